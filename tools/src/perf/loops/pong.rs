//! The server's half of a ping-pong of SENDs, or of WRITEs with immediate.

use super::wait::Wait;
use super::{Every, Served, Task};
use crate::perf::path::{Event, Message, Path, Stop};

/// Answers each message with one of the same number, until all that the client sent are answered.
pub(super) fn answer<P: Path>(path: &mut P, task: &Task<'_>) -> Result<Served, Stop> {
    let mut served = Served::default();
    let mut signal = Every::new(task.plan.signal_every);
    let mut retired = 0;
    let mut wait = Wait::patient(task, "message");
    // A message that came before completions of answers that the queue needed for room.
    let mut early = None;
    task.stamp(path, 0, 0);
    loop {
        let event = if early.is_some() { early.take() } else { path.poll()? };
        match event {
            Some(Event::Received(arrival)) => {
                let sequence = served.received;
                task.stall(sequence);
                if task.plan.validate {
                    let (queue, slot, skip) = task.landed(arrival, sequence);
                    let right = path.memory().is_right(queue, slot, skip, sequence, false);
                    served.wrong += u64::from(!right);
                }
                // Posts the receive first: the next message may come as soon as this one is
                // answered.
                path.receive(0, arrival.slot)?;
                path.post(0, Message { sequence, signaled: signal.next() })?;
                served.received += 1;
                task.signals.progress(task.thread, served.received);
                while served.received - retired >= u64::from(task.plan.depth) {
                    match path.poll()? {
                        Some(Event::Sent { sequence, .. }) => retired = sequence + 1,
                        // The only one: the client waits for the answer before it sends another.
                        message @ Some(_) => early = message,
                        None => {
                            if wait.turn(path)? && task.signals.expected(task.thread) != u64::MAX {
                                break;
                            }
                        }
                    }
                }
                // Writes the next answer while the previous one is on its way.
                task.stamp(path, 0, served.received);
            }
            Some(Event::Sent { sequence, .. }) => retired = sequence + 1,
            None => {
                if wait.turn(path)? && served.received >= task.signals.expected(task.thread) {
                    return Ok(served);
                }
            }
        }
    }
}
