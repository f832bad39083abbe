//! Streams in both directions at once. The client sends as much as the plan says. The server sends
//! until the client is done, so that neither direction is measured alone. Then each side receives
//! what is still on its way.

use super::stream::Stream;
use super::{Measured, Record, Runner as _, Task, measure_by};
use crate::perf::path::{Path, Stop};
use crate::perf::plan::{Amount, Operation};

/// The part of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// It sends as much as the plan says: the client.
    Leads,
    /// It sends until it is told that the other side is done: the server.
    Follows,
}

/// Runs a thread of either side.
pub(super) fn both<P: Path>(
    path: &mut P,
    task: &Task<'_>,
    record: Record,
    part: Part,
    sent: &dyn Fn() -> Vec<u64>,
) -> Result<Measured, Stop> {
    let amount: Option<Amount> = (part == Part::Leads).then_some(task.plan.amount);
    let mut stream = Stream::new(path.queues(), task.plan);
    let mut measured = measure_by(path, task, record, &mut stream, amount)?;
    task.signals.report(task.thread, &measured.sent);
    let served = stream.rest(path, task, &mut measured.record)?;
    measured.received = served.received;
    measured.wrong += served.wrong;
    if task.plan.validate && task.plan.operation == Operation::Write {
        measured.wrong += path.look_at_writes(task, &sent());
    }
    Ok(measured)
}
