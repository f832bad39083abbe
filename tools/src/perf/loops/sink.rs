//! The server's half of a stream of SENDs, or of WRITEs with immediate: it takes each message and
//! posts its receive again.

use std::time::{Duration, Instant};

use super::wait::Wait;
use super::{Served, Task};
use crate::perf::path::{Event, Path, Stop};
use crate::perf::plan::Carrier;

/// How long a datagram or a message of an unreliable connection may arrive after the client is
/// done.
const LATE: Duration = Duration::from_millis(200);

/// Receives until all messages that the client sent have arrived; where messages may be lost, until
/// none has arrived for a while.
pub(super) fn take<P: Path>(path: &mut P, task: &Task<'_>) -> Result<Served, Stop> {
    let mut served = Served::default();
    let mut expected = vec![0; path.queues()];
    let mut wait = Wait::patient(task, "message");
    let mut quiet: Option<Instant> = None;
    loop {
        match path.poll()? {
            Some(Event::Received { queue, slot, immediate, .. }) => {
                task.stall(served.received);
                if task.plan.validate {
                    let number = number(path, task, queue, slot, immediate, expected[queue]);
                    let (slot, skip) = task.landed(slot, number);
                    let right = path.memory().is_right(queue, slot, skip, number, false);
                    served.wrong += u64::from(!right);
                    expected[queue] = if right { number + 1 } else { expected[queue] + 1 };
                }
                path.receive(queue, slot)?;
                served.received += 1;
                task.signals.progress(task.thread, served.received);
                quiet = None;
            }
            Some(Event::Sent { .. }) => {
                return Err(Stop::Told("a request of the server's, which posts none".into()));
            }
            None if wait.once()? => {
                let all = task.signals.expected(task.thread);
                let is_over = || quiet.is_some_and(|since| since.elapsed() > LATE);
                if served.received >= all || (all != u64::MAX && may_lose(task) && is_over()) {
                    return Ok(served);
                }
                if all != u64::MAX && quiet.is_none() {
                    quiet = Some(Instant::now());
                }
            }
            None => {}
        }
    }
}

fn may_lose(task: &Task<'_>) -> bool {
    task.plan.carrier != Carrier::Rc
}

/// Returns the number of a message that arrived: the next one, or, where messages may be lost, the
/// number that the message carries, in as many bits as it has for it.
fn number<P: Path>(
    path: &mut P,
    task: &Task<'_>,
    queue: usize,
    slot: u64,
    immediate: Option<u32>,
    expected: u64,
) -> u64 {
    if !may_lose(task) {
        return expected;
    }
    let (said, bits) = match immediate {
        Some(immediate) => (u64::from(immediate), 32),
        None => {
            let (slot, skip) = task.landed(slot, expected);
            (path.memory().says(queue, slot, skip), (task.plan.size * 8).min(64) as u32)
        }
    };
    let lost = said.wrapping_sub(expected) & (u64::MAX >> (64 - bits));
    expected.wrapping_add(lost)
}
