//! Asynchronous events of verbs, as programs report them.
//!
//! UCX: "IB Async event on mlx5_0: DCT access error on DCTN 0x2a8a3". NCCL: "NET/IB : mlx5_0:1 Got
//! async event : port error". The words are those of `ibv_event_type_str`.

use crate::explain::{ExplainedCode, event};

use super::super::lines::Lines;
use super::super::record::{DecodedRecord, RecordKind};
use super::{Format, Reading};

/// The format of asynchronous events.
pub(super) const FORMAT: Format = Format {
    name: "an asynchronous event",
    reads: "UCX, NCCL and others: \"async event\" with the words of ibv_event_type_str",
    read,
};

/// Longest line that is searched.
const LONGEST: usize = 4096;

fn read(lines: &Lines<'_>, at: usize) -> Option<Reading> {
    let line = lines.get(at);
    if line.len() > LONGEST {
        return None;
    }
    // "Async event on", "Got async event :", "Got async fatal event:", "async_event".
    let behind = ["sync event", "sync fatal event", "sync non-fatal event"]
        .iter()
        .find_map(|token| line.split_once(token))?
        .1;
    let event = event::find_async(behind)?;
    let mut record = DecodedRecord::new(RecordKind::AsyncEvent, event.title);
    let device = line.split([' ', ':', '/', ',']).find(|word| word.starts_with("mlx5_"));
    record.field_if("device", device);
    record.field("message", behind.trim_start_matches([' ', ':']));
    record.findings.push(ExplainedCode::event(event));
    Some(Reading::to(at, vec![record]))
}
