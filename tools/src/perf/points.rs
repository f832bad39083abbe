//! The results of all threads, combined into a point.

use super::arguments::Arguments;
use super::loops::{self, Measured};
use super::plan::{Operation, Plan};
use super::result::distribution::Distribution;
use super::result::{Point, Slow};
use crate::outcome::{Error, Result};

/// Compares what one side sent with what arrived, and with what the receiver's flow rules matched. Returns
/// a note on what is lost.
///
/// # Errors
/// Fails if messages of a reliable connection are lost.
pub fn lost(plan: &Plan, sent: u64, received: u64, matched: Option<u64>) -> Result<Option<String>> {
    if received == sent {
        return Ok(None);
    }
    if plan.carrier.is_reliable() {
        return Err(Error::Told(format!(
            "{sent} messages were sent and acknowledged, and {received} arrived"
        )));
    }
    let place = matched.map_or(String::new(), |matched| {
        let dropped = matched.saturating_sub(received);
        format!("; {dropped} of them matched the receiver's rules and found no receive")
    });
    Ok(Some(format!(
        "of {} bytes, {} of {sent} messages were lost on the way: {} does not tell the sender{place}",
        plan.size,
        sent.saturating_sub(received),
        plan.carrier
    )))
}

/// Returns a note if the server, which begins a little later, had sent nothing when this side was done.
pub fn silent(plan: &Plan, messages: u64) -> Option<String> {
    (messages == 0).then(|| {
        format!(
            "of {} bytes, the server had not begun when this side was done: measure longer, by -n or -D",
            plan.size
        )
    })
}

/// Combines the measurements of all threads into a point.
pub fn point(plan: &Plan, arguments: &Arguments, threads: &[Measured]) -> Point {
    let mut distribution = Distribution::new();
    threads.iter().for_each(|thread| distribution.add(thread.record.distribution()));
    let (began, ended) = loops::span(threads);
    let clock = mlx5::timing::Clock::get();
    let slow = |&(ns, end): &(u64, u64)| Slow {
        ns,
        at: clock.nanoseconds(end.saturating_sub(began)) / 1e9,
    };
    let mut slowest = threads.iter().flat_map(|thread| thread.record.slowest()).map(slow).collect();
    Slow::keep(&mut slowest, loops::SLOWEST);
    let messages: u64 = threads.iter().map(|thread| thread.messages).sum();
    let ways = if plan.is_echoed() { 2 } else { 1 };
    Point {
        via: plan.via,
        size: plan.size,
        began: 0.0,
        seconds: clock.nanoseconds(ended - began) / 1e9,
        messages: messages * ways,
        back: None,
        gaps: None,
        events: threads.iter().map(|thread| thread.events).sum(),
        planned_per_second: plan.schedule.map(|schedule| schedule.per_second),
        latency: distribution.latency(plan.timed(), &arguments.percentiles),
        slowest,
        cpu: threads.first().and_then(|thread| thread.cpu.clone()),
        phases: threads.first().map(|thread| thread.phases.clone()).unwrap_or_default(),
        counters: Vec::new(),
        validated: plan.validate.then(|| validated(plan, threads) * ways),
    }
}

/// Returns the number of validated messages. In a stream of WRITEs, only the last ones are still in
/// memory.
fn validated(plan: &Plan, threads: &[Measured]) -> u64 {
    let sent = threads.iter().flat_map(|thread| &thread.sent);
    match (plan.operation, plan.is_echoed(), plan.layout()) {
        (Operation::Write, false, Ok(layout)) => sent.map(|sent| *sent.min(&layout.target)).sum(),
        _ => sent.sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::plan::Carrier;
    use crate::perf::plan::tests::plan;

    #[test]
    fn losses_are_told_with_their_place() {
        let raw = Plan { carrier: Carrier::Raw, ..plan() };
        assert_eq!(lost(&raw, 100, 100, Some(100)).unwrap(), None);
        let text = |matched| lost(&raw, 100, 88, matched).unwrap().unwrap();
        assert!(
            text(None)
                .ends_with("12 of 100 messages were lost on the way: raw does not tell the sender")
        );
        assert!(
            text(Some(95)).ends_with(
                "the sender; 7 of them matched the receiver's rules and found no receive"
            )
        );
        assert!(lost(&plan(), 100, 88, None).is_err(), "rc loses none");
    }
}
