//! Bytes in text: hex dumps of every style that drivers print.
//!
//! A line of a dump is `00000010: 55 00 …` (Linux, DPDK), `000: 05000002 00000000 …` (mailboxes of
//! commands), `00000000 00008813 08006214 0000f6d2` (libmlx5), or bytes without an offset. Text
//! before that is a log prefix; text after it is a rendering for people.

use super::lines::{Lines, Options, WordOrder};

/// Bytes, and the lines that contained them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The bytes, in the order of memory.
    pub bytes: Vec<u8>,
    /// The offset that the dump gives for the first byte.
    pub offset: u64,
    /// The line after the last.
    pub end: usize,
}

/// The content of one line of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    offset: Option<u64>,
    /// Bytes per token: 1, or 4 for words.
    unit: usize,
    bytes: Vec<u8>,
}

/// Reads bytes from line `at` on, at most `limit`; `None` if that line is not part of a dump.
///
/// With offsets, one foreign line between two rows is skipped. Without offsets, the rows follow
/// each other and have the same form.
pub(super) fn block(lines: &Lines<'_>, at: usize, limit: usize) -> Option<Block> {
    let first = row(lines, at)?;
    let (offset, unit) = (first.offset, first.unit);
    let mut width = first.bytes.len();
    let mut block = Block { bytes: first.bytes, offset: offset.unwrap_or(0), end: at + 1 };
    while block.bytes.len() < limit {
        let next = |at| row(lines, at).filter(|row| row.unit == unit);
        let found = match offset {
            Some(start) => {
                // A row of 16 that shows one byte too many is cut where the next row begins.
                let expected = start.checked_add(block.bytes.len() as u64);
                let cut =
                    expected.and_then(|expected| expected.checked_sub(1)).filter(|_| width == 17);
                let follows = |row: &Row| {
                    row.offset.is_some() && (row.offset == expected || row.offset == cut)
                };
                let found = |at| next(at).filter(follows).map(|row| (at + 1, row));
                found(block.end).or_else(|| found(block.end + 1))
            }
            None => next(block.end)
                .filter(|row| row.offset.is_none() && row.bytes.len() == width)
                .map(|row| (block.end + 1, row)),
        };
        let Some((end, row)) = found else { break };
        if let (Some(start), Some(here)) = (offset, row.offset) {
            block.bytes.truncate((here - start) as usize);
        }
        width = row.bytes.len();
        block.bytes.extend(row.bytes);
        block.end = end;
    }
    block.bytes.truncate(limit);
    Some(block)
}

/// Reads the first block that begins on line `at` or on one of the next `within` lines.
pub(super) fn block_near(
    lines: &Lines<'_>,
    at: usize,
    within: usize,
    limit: usize,
) -> Option<Block> {
    (at..=at + within).find_map(|at| block(lines, at, limit))
}

fn row(lines: &Lines<'_>, at: usize) -> Option<Row> {
    // Offsets, and the text beside the bytes: rte_hexdump puts a bar before it.
    let line = lines.get(at);
    let line = line.split_once(" | ").map_or(line, |(bytes, _)| bytes);
    let order = lines.options.words;
    let tokens: Vec<&str> = line.split_ascii_whitespace().collect();
    for (at, token) in tokens.iter().enumerate() {
        let Some(digits) = token.strip_suffix(':') else { continue };
        if !(3..=16).contains(&digits.len()) || !is_hex(digits) {
            continue;
        }
        let row = values(&tokens[at + 1..], order)?;
        let offset = u64::from_str_radix(digits, 16).ok();
        return (!row.bytes.is_empty()).then_some(Row { offset, ..row });
    }
    // Without an offset: four words, or a multiple of that, or 16 bytes, at the end of the line.
    let words = tokens.iter().rposition(|token| word(token).is_some())?;
    let unit = if word(tokens[words])?.len() == 8 { 4 } else { 1 };
    let alike = |token: &&&str| word(token).is_some_and(|digits| digits.len() == unit * 2);
    let count = tokens[..=words].iter().rev().take_while(alike).count();
    let count = match (unit, count) {
        (4, 4..) => count / 4 * 4,
        (1, 16..) => count / 16 * 16,
        _ => return None,
    };
    values(&tokens[words + 1 - count..=words], order)
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the two or eight hex digits of a token. Other text may follow them: programs that print
/// at the same time do not wait for each other's line ends.
fn word(token: &str) -> Option<&str> {
    let end = token.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(token.len());
    let digits = &token[..end];
    let cut = end < token.len();
    match digits.len() {
        8 => (!cut || token[end..].starts_with('[')).then_some(digits),
        2 => (!cut).then_some(digits),
        _ => None,
    }
}

/// Reads the leading tokens of equal form: bytes, or words.
fn values(tokens: &[&str], order: WordOrder) -> Option<Row> {
    let unit = word(tokens.first()?)?.len() / 2;
    let mut bytes = Vec::new();
    for token in tokens {
        let Some(digits) = word(token).filter(|digits| digits.len() == unit * 2) else { break };
        let from = bytes.len();
        for pair in digits.as_bytes().chunks_exact(2) {
            let pair = std::str::from_utf8(pair).ok()?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
        }
        if order == WordOrder::LittleEndian {
            bytes[from..].reverse();
        }
    }
    Some(Row { offset: None, unit, bytes })
}

/// Returns all bytes of a text that is only hex: whole bytes per token, with or without `0x`,
/// separated by commas, colons or quotes too. Offsets of lines and text that is not hex are
/// skipped.
///
/// With [`WordOrder::LittleEndian`], tokens of eight digits are such words.
#[must_use]
pub fn hex_bytes(text: &str, words: WordOrder) -> Vec<u8> {
    let lines = Lines::new(text, Options { words, ..Options::default() });
    let mut bytes = Vec::new();
    for at in 0..lines.len() {
        let line = lines.get(at);
        let line = line.split_once(" | ").map_or(line, |(bytes, _)| bytes);
        let tokens: Vec<&str> = line.split_ascii_whitespace().collect();
        // An offset ends with a colon, and bytes follow it. A log prefix before it is skipped too.
        let offset = tokens.iter().position(|token| {
            token.strip_suffix(':').is_some_and(|digits| digits.len() >= 3 && is_hex(digits))
        });
        let tokens = match offset {
            Some(offset) if offset + 1 < tokens.len() => &tokens[offset + 1..],
            _ => &tokens[..],
        };
        for token in tokens
            .iter()
            .flat_map(|token| token.split([',', ':', ';', '"', '\'', '{', '}', '[', ']']))
        {
            let digits =
                token.strip_prefix("0x").or_else(|| token.strip_prefix("\\x")).unwrap_or(token);
            if !is_hex(digits) || digits.len() % 2 != 0 {
                continue;
            }
            let from = bytes.len();
            bytes.extend(
                (0..digits.len())
                    .step_by(2)
                    .filter_map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()),
            );
            if words == WordOrder::LittleEndian && digits.len() == 8 {
                bytes[from..].reverse();
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Block> {
        block(&Lines::new(text, Options::default()), 0, 64)
    }

    #[test]
    fn every_style_of_dump_is_read() {
        let kernel = "[  1.5] 00000000: 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f\n\
                      [  1.6] other line\n\
                      [  1.6] 00000010: ff fe";
        let block = read(kernel).unwrap();
        assert_eq!((block.bytes.len(), block.bytes[17], block.end), (18, 0xfe, 3));
        let dpdk = "00000000: 00 73 65 65 6E 00 00 00 00 00 00 00 00 00 00 00 | .seen...........";
        assert_eq!(read(dpdk).unwrap().bytes[4], 0x6e);
        let words =
            "x 00000000 00008813 08006214 0000f6d2[14] 5\n00000001 00000002 00000003 00000004";
        let block = read(words).unwrap();
        assert_eq!((block.bytes.len(), block.bytes[15], block.bytes[31]), (32, 0xd2, 4));
        let mailbox = "cmd[0]: 000: 05000002 00000000\ncmd[0]: 008: 00000001 00000000";
        assert_eq!(read(mailbox).unwrap().bytes[..2], [5, 0]);
        assert_eq!(read(mailbox).unwrap().bytes.len(), 16);
        let last = read("00000030: 00 00 00 00 00 00 88 13 08 00 01 13 07 47 67 d2").unwrap();
        assert_eq!((last.offset, last.bytes.len()), (0x30, 16));
    }

    #[test]
    fn what_is_no_dump_is_none() {
        for text in ["", "00000000", "deadbeef cafebabe", "a: b", "12:34:56 mlx5_core", "00 01 02"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn rows_with_a_byte_too_many_are_cut_where_the_next_begins() {
        let row = |offset: &str| format!("{offset}: {}", ["00"; 16].join(" ") + " 07");
        let block = read(&format!("{}\n{}", row("00000000"), row("00000010"))).unwrap();
        assert_eq!((block.bytes.len(), block.bytes[16]), (33, 0));
    }

    #[test]
    fn words_of_a_little_endian_machine_are_turned() {
        let options = Options { words: WordOrder::LittleEndian, ..Options::default() };
        let text = "01000000 02000000 03000000 d3000000";
        let block = block(&Lines::new(text, options), 0, 64).unwrap();
        assert_eq!((block.bytes[3], block.bytes[15]), (1, 0xd3));
    }

    #[test]
    fn plain_hex_is_read_however_it_is_written() {
        let all = |text: &str| hex_bytes(text, WordOrder::BigEndian);
        assert_eq!(all("0x01, 0x02 03:04 0506"), [1, 2, 3, 4, 5, 6]);
        assert_eq!(all("00000000: 01 02 | ..\nlog 00000010: 03"), [1, 2, 3]);
        assert!(all("words only, xyz 123").is_empty());
    }
}
