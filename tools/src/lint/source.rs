//! Input files with WQEs: ring bytes, dumps of the flight recorder, recordings.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use mlx5::diag::decode::{self, WordOrder};
use mlx5::diag::flight::{Dump, Queue, What};
use mlx5::diag::lint::{Facts, Lint};
use mlx5_model::trace::{ReadError, Reader};

use super::report::Report;
use super::{Arguments, recording};
use crate::outcome::{Error, Result};
use crate::output::say;

/// Reads the file, or standard input.
pub(super) fn read(file: Option<&Path>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let (what, done) = match file.filter(|file| *file != Path::new("-")) {
        Some(file) => {
            let read = File::open(file).and_then(|mut open| open.read_to_end(&mut bytes));
            (file.display().to_string(), read)
        }
        None => ("standard input".to_owned(), io::stdin().read_to_end(&mut bytes)),
    };
    match done {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::File { what: format!("cannot read {what}"), error }),
    }
}

/// Checks the input, of any kind.
pub(super) fn lint(input: &[u8], arguments: &Arguments, report: &mut Report) -> Result<()> {
    match Reader::new(input) {
        Ok(reader) => match recording::lint(reader, arguments.queue.strict, report) {
            Ok(()) => return Ok(()),
            Err(error @ ReadError::Cut(_)) => {
                say!("{error}");
                return Ok(());
            }
            Err(error) => return Err(Error::Told(error.to_string())),
        },
        Err(ReadError::NoTrace) => {}
        Err(error) => return Err(Error::Told(error.to_string())),
    }
    let Some(text) = decode::as_text(input) else { return ring(input, arguments, report) };
    let dump = Dump::parse(text);
    if !dump.records.is_empty() || !dump.damaged.is_empty() {
        flight(&dump, arguments, report);
        return Ok(());
    }
    ring(&decode::hex_bytes(text, WordOrder::BigEndian), arguments, report)
}

/// Checks a ring's bytes.
fn ring(bytes: &[u8], arguments: &Arguments, report: &mut Report) -> Result<()> {
    let queue = &arguments.queue;
    let have = bytes.len() / 64;
    let blocks = queue.wqes.map_or(have, |wqes| wqes as usize);
    if bytes.is_empty() {
        return Err(Error::Told("the input is empty, or has no hex in it".to_owned()));
    }
    if blocks > have || bytes.len() % 64 != 0 && queue.wqes.is_none() {
        return Err(Error::Told(format!(
            "the input has {} bytes: a ring has 64 for each block, and --wqes tells how many",
            bytes.len()
        )));
    }
    if !blocks.is_power_of_two() || blocks > 1 << 15 {
        return Err(Error::Told(format!(
            "{blocks} blocks are no ring: a send queue has a power of two of them, up to 32768; \
             --wqes tells how many of the input are the ring"
        )));
    }
    let ring = &bytes[..blocks * 64];
    let facts = queue.facts();
    let mut lint = match queue.first {
        Some(first) => Lint::at(facts, first as u16),
        None => Lint::new(facts),
    };
    let mut found = Vec::new();
    let record = queue.record.map(|record| record as u16);
    let wqes = lint.ring(ring, record, &mut |finding| found.push(finding));
    if let Some(doorbell) = arguments.doorbell {
        lint.doorbell(doorbell, &mut |finding| found.push(finding));
    }
    let found = found.into_iter().map(|finding| {
        let at = usize::from(finding.wqe) * 64 % ring.len();
        let size = (usize::from(ring[at + 7] & 0x3f) * 16).clamp(16, ring.len());
        let wqe = ring[at..].iter().chain(&ring[..at]).take(size);
        (finding, Some(wqe.copied().collect()))
    });
    report.queue(None, &lint, wqes.into(), found.collect());
    Ok(())
}

/// Checks the send queues in dumps of the flight recorder.
fn flight(dump: &Dump, arguments: &Arguments, report: &mut Report) {
    for damage in &dump.damaged {
        say!("line {} of the log cannot be read: {}", damage.line, damage.reason);
    }
    let given = arguments.queue.facts();
    for record in dump.records.iter().filter(|record| record.queue == Queue::Send) {
        let transport = record.send_transport().unwrap_or(given.transport);
        let blocks = record.entries.is_power_of_two().then_some(record.entries);
        let facts = Facts { transport, blocks, qpn: Some(record.number), ..given };
        let mut lint = Lint::new(facts);
        let (mut wqes, mut found) = (0, Vec::new());
        for event in &record.events {
            match &event.what {
                // A WQE that was read again at the failure was already checked when it was posted.
                What::Wqe(wqe) if !wqe.found => {
                    if lint.next().is_none_or(|next| next != wqe.index) {
                        // Older WQEs were overwritten.
                        lint = Lint::at(facts, wqe.index);
                    }
                    wqes += 1;
                    if wqe.is_cut() {
                        recording::start_only(&mut lint, &wqe.bytes, &mut found);
                    } else {
                        let bytes = &wqe.bytes;
                        lint.wqe(bytes, &mut |finding| found.push((finding, Some(bytes.clone()))));
                    }
                }
                What::Cqe(cqe) => lint.completed(cqe.is_error()),
                _ => {}
            }
        }
        if record.missing != 0 {
            let (number, missing) = (record.number, record.missing);
            let s = if missing == 1 { " is" } else { "s are" };
            say!("{missing} event{s} missing in the log from the dump of QP {number:#x}");
        }
        report.queue(None, &lint, wqes, found);
    }
}
