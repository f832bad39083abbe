//! The direct path: this crate's rings, used as a program would use them.

use std::marker::PhantomData;
use std::time::Duration;

use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::Transport;
use mlx5::ring::{CqReader, PollError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};

use super::request::{Requests, Site};
use super::sleep::Sleeper;
use super::{Event, Message, Path, Stop};
use crate::outcome::{Error, Result};
use crate::perf::plan::{Layout, Plan};
#[cfg(feature = "phases")]
use crate::perf::result::Phase;
use crate::perf::result::Via;
use crate::perf::station::memory::Memory;
use crate::perf::station::{Backend, Connects, Station};

/// Bits of an id for the message number. The bits above hold the queue pair.
const SEQUENCE_BITS: u32 = 48;

/// The queues of one thread, posted to and polled without libmlx5.
pub struct Direct<T: Transport, R: Requests<T>> {
    /// Dropped before the memory, so that no request is in flight when the memory is freed.
    queues: Vec<(SendQueue<T>, ReceiveQueue)>,
    completions: CqReader,
    sleeper: Sleeper,
    site: Site,
    header: usize,
    requests: PhantomData<fn() -> R>,
}

/// The backend that makes [`Direct`]s.
#[derive(Clone, Copy, Debug)]
pub enum ByHand {}

impl Backend for ByHand {
    const VIA: Via = Via::Direct;
    type Path<T: Connects, R: Requests<T>> = Direct<T, R>;

    fn path<T: Connects, R: Requests<T>>(station: Station<T>, plan: &Plan) -> Result<Direct<T, R>> {
        let mut completions = CqReader::new(&station.cq)?;
        let mut queues = Vec::with_capacity(station.queue_pairs.len());
        for qp in &station.queue_pairs {
            let sends = SendQueue::new(qp, &mut completions, SendConfig::default())?;
            plan.check_limits(sends.limits()).map_err(Error::Told)?;
            let receives = ReceiveQueue::new(qp, &mut completions, ReceiveConfig::default())?;
            queues.push((sends, receives));
        }
        let header = if T::HAS_HEADER { Layout::HEADER } else { 0 };
        Ok(Direct {
            queues,
            completions,
            sleeper: Sleeper::new(station.channel),
            site: station.site,
            header,
            requests: PhantomData,
        })
    }
}

#[inline(always)]
fn id(queue: usize, number: u64) -> u64 {
    (queue as u64) << SEQUENCE_BITS | number
}

#[inline(always)]
fn parts(id: u64) -> (usize, u64) {
    ((id >> SEQUENCE_BITS) as usize, id & ((1 << SEQUENCE_BITS) - 1))
}

impl<T: Connects, R: Requests<T>> Path for Direct<T, R> {
    #[inline(always)]
    fn queues(&self) -> usize {
        self.queues.len()
    }

    #[inline(always)]
    fn post(&mut self, queue: usize, message: Message) -> Result<(), Stop> {
        let (sends, _) = &mut self.queues[queue];
        let request = R::request(&self.site, queue, message);
        // SAFETY: the request's memory is a slot of `site`, which is dropped after the queues. No
        // reference to it exists. Loops keep at most the plan's depth of requests outstanding, and
        // there are as many slots where contents matter. Where contents do not matter, requests may
        // share a slot.
        unsafe { sends.post(id(queue, message.sequence), request)? };
        Ok(())
    }

    #[inline(always)]
    fn post_batch(
        &mut self,
        queue: usize,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), Stop> {
        let (sends, _) = &mut self.queues[queue];
        let mut batch = sends.batch();
        for message in messages {
            let request = R::request(&self.site, queue, message);
            batch.append(id(queue, message.sequence), request)?;
        }
        // SAFETY: each request's memory is a slot of `site`, which outlives the queues; no
        // reference to it exists. Slots are shared only where contents do not matter.
        unsafe { batch.ring() };
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, queue: usize, slot: u64) -> Result<(), Stop> {
        let memory = self.site.memory.receive(queue, slot);
        let (_, receives) = &mut self.queues[queue];
        // SAFETY: the memory is a slot of `site`, which is dropped after the queues. It is read
        // only by copying, and posted again only after that.
        unsafe { receives.post(id(queue, slot), memory)? };
        Ok(())
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Event>, Stop> {
        // For a single (send, receive) pair, the poll decides which to try first. A longer slice is
        // searched.
        let polled: Result<Option<Completion>, PollError> = match &mut self.queues[..] {
            [one] => self.completions.poll(one),
            many => self.completions.poll(many),
        };
        match polled? {
            None => Ok(None),
            Some(Completion::Send(done)) => {
                let (queue, sequence) = parts(done.id);
                Ok(Some(Event::Sent { queue, sequence }))
            }
            Some(Completion::Receive(done)) => {
                let (queue, slot) = parts(done.id);
                let length = (done.byte_len as usize).saturating_sub(self.header);
                let immediate = match done.kind {
                    ReceiveKind::SendImm(immediate) | ReceiveKind::WriteImm(immediate) => {
                        Some(immediate)
                    }
                    _ => None,
                };
                Ok(Some(Event::Received { queue, slot, length, immediate }))
            }
            Some(Completion::Failed(failure)) => Err(Stop::Failed(failure)),
            Some(Completion::UnexpectedCqe(unexpected)) => Err(Stop::UnexpectedCqe(unexpected)),
        }
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Stop> {
        let Direct { sleeper, completions, .. } = self;
        sleeper.sleep(time, || {
            completions.arm();
            Ok(())
        })
    }

    fn events(&self) -> Option<u64> {
        self.sleeper.events()
    }

    #[inline(always)]
    fn memory(&mut self) -> &mut Memory {
        &mut self.site.memory
    }

    #[cfg(feature = "phases")]
    fn phases(&self) -> Vec<Phase> {
        let mut phases = Vec::new();
        let mut add = |queue: &str, report: mlx5::timing::Report| {
            phases.extend(report.phases().iter().map(|phase| Phase {
                queue: queue.to_owned(),
                name: phase.phase.name().to_owned(),
                count: phase.count,
                min: phase.min,
                median: phase.median,
                p99: phase.p99,
                max: phase.max,
                median_ns: report.clock().nanoseconds(phase.median),
            }));
        };
        // Queues of one thread do the same work, so the first stands for all.
        if let Some((sends, receives)) = self.queues.first() {
            add("send", sends.timing());
            add("receive", receives.timing());
        }
        add("completions", self.completions.timing());
        phases
    }

    #[cfg(feature = "phases")]
    fn clear_phases(&mut self) {
        for (sends, receives) in &mut self.queues {
            sends.clear_timing();
            receives.clear_timing();
        }
        self.completions.clear_timing();
    }
}
