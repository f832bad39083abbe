//! Unnamed dumps that are recognized as error CQEs by their content.

use super::super::{completion, hex, lines::Lines};
use super::{Format, Reading};

/// The format of dumps that were cut out of a log.
pub(super) const FORMAT: Format = Format {
    name: "hex",
    reads: "64 bytes of hex that are an error CQE, or the last 16 of them",
    read,
};

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let block = hex::block(lines, at, completion::SIZE)?;
    if let Ok(bytes) = block.bytes.as_slice().try_into() {
        return found(&bytes, block.end, None);
    }
    // A single line of sixteen bytes.
    if block.bytes.len() != completion::TAIL || ![0, 0x30].contains(&block.offset) {
        return None;
    }
    let mut bytes = [0; completion::SIZE];
    bytes[completion::SIZE - completion::TAIL..].copy_from_slice(&block.bytes);
    found(&bytes, block.end, Some(completion::ONLY_TAIL))
}

fn found(bytes: &[u8; completion::SIZE], end: usize, note: Option<&str>) -> Option<Reading> {
    let mut turned = *bytes;
    turned.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    let (bytes, turn) =
        match (completion::looks_like_error(bytes), completion::looks_like_error(&turned)) {
            (true, _) => (bytes, None),
            (false, true) => {
                (&turned, Some("Its words were printed as a little-endian machine loads them."))
            }
            (false, false) => return None,
        };
    let mut record = completion::cqe(bytes);
    record.notes.extend([note, turn].into_iter().flatten().map(str::to_owned));
    Some(Reading::until(end, vec![record]))
}
