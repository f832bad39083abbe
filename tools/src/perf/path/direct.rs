//! The direct path: this crate's rings, used as a program would use them.

use std::marker::PhantomData;
use std::time::Duration;

use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ring::{
    CqReader, PacketEvent, PacketRq, PollError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue,
    Srq,
};
use mlx5::verbs::{ClockReading, DeviceClock};
use mlx5::wqe::Sge;

use super::request::{Requests, Site};
use super::sleep::Sleeper;
use super::{Arrival, Event, Message, Path, Stop};
use crate::outcome::{Error, Result};
use crate::perf::plan::Plan;
#[cfg(feature = "phases")]
use crate::perf::result::Phase;
use crate::perf::station::memory::Memory;
use crate::perf::station::{Answerer, Connects, Linked, Station, Taken};

/// Bits of an id for the message number. The bits above hold the queue pair.
const SEQUENCE_BITS: u32 = 48;

/// The queues of one thread, posted to and polled without libmlx5.
pub struct Direct<T: Connects, R: Requests<T>> {
    /// Dropped before the memory, so that no request is in flight when the memory is freed.
    queues: Queues<T>,
    /// The ends that answer, which nothing is posted to. Dropped before the memory, too.
    _answerers: Vec<Answerer>,
    completions: CqReader,
    sleeper: Sleeper,
    site: Site<T>,
    requests: PhantomData<fn() -> R>,
}

/// Send queues, and where receives are posted.
enum Queues<T: Connects> {
    /// Each queue pair has its own receives.
    Own(Vec<(SendQueue<T>, ReceiveQueue)>),
    /// All share receives.
    Shared {
        sends: Vec<SendQueue<T>>,
        receives: Box<Srq>,
        /// The numbers that completions of receives carry, per queue pair.
        receivers: Vec<u32>,
    },
    /// Each queue pair has its own receives, for packets, which complete on a CQ of their own.
    Packets {
        sends: Vec<SendQueue<T>>,
        receives: Vec<PacketRq>,
        /// Of the HCA's clock, where it can be read.
        clock: Option<ClockReading>,
    },
}

impl<T: Connects, R: Requests<T>> Direct<T, R> {
    /// Makes the path of a thread's objects, without posting receives.
    ///
    /// # Errors
    /// Returns what prevents taking the queues over.
    pub(super) fn new(station: Station<T>, plan: &Plan) -> Result<Direct<T, R>> {
        let mut completions = CqReader::new(&station.cq)?;
        let queues = Queues::new(&station, plan, &mut completions)?;
        Ok(Direct {
            queues,
            _answerers: station.links.into_iter().map(|link| link.answerer).collect(),
            completions,
            sleeper: Sleeper::new(station.channel),
            site: station.site,
            requests: PhantomData,
        })
    }
}

impl<T: Connects> Queues<T> {
    fn new(station: &Station<T>, plan: &Plan, completions: &mut CqReader) -> Result<Queues<T>> {
        let mut shared = match &station.shared {
            None => None,
            Some(shared) => {
                let receives = plan.receives() * station.links.len() as u32;
                Some(Srq::new(&shared.queue, completions, ReceiveConfig { receives })?)
            }
        };
        let mut own = Vec::with_capacity(station.links.len());
        let mut sends = Vec::with_capacity(station.links.len());
        let mut packets = Vec::new();
        for link in &station.links {
            // The CQ has a slot for each request of the plan. The queue may hold more.
            let config = SendConfig { requests: plan.depth, ..SendConfig::default() };
            let queue = SendQueue::new(&link.qp, completions, config)?;
            plan.check_limits(queue.limits()).map_err(Error::Told)?;
            match T::receives(link, completions, shared.as_mut())? {
                Taken::Own(receives) => own.push((queue, *receives)),
                Taken::Shared => sends.push(queue),
                Taken::Packets(receives) => {
                    sends.push(queue);
                    packets.push(*receives);
                }
            }
        }
        Ok(match shared {
            None if packets.is_empty() => Queues::Own(own),
            None => {
                let context = station.links.first().map(|link| link.qp.context());
                let clock = context.and_then(|context| DeviceClock::new(context).ok()?.read());
                Queues::Packets { sends, receives: packets, clock }
            }
            Some(receives) => Queues::Shared {
                sends,
                receives: Box::new(receives),
                receivers: station.links.iter().map(Linked::receiver).collect(),
            },
        })
    }

    #[inline(always)]
    fn sends(&mut self, queue: usize) -> &mut SendQueue<T> {
        match self {
            Queues::Own(pairs) => &mut pairs[queue].0,
            Queues::Shared { sends, .. } | Queues::Packets { sends, .. } => &mut sends[queue],
        }
    }

    /// Posts a receive on the queue pair, or on the queue that all share.
    ///
    /// # Safety
    /// The memory stays valid until the queues are dropped. Until the receive completes, nothing
    /// else accesses it.
    #[cfg_attr(not(debug_assertions), inline(always))]
    unsafe fn receive(&mut self, queue: usize, slot: u64, memory: Sge) -> Result<(), Stop> {
        let id = id(queue, slot);
        match self {
            // SAFETY: the caller upholds the same conditions.
            Queues::Own(pairs) => unsafe { pairs[queue].1.post(id, memory)? },
            // SAFETY: the caller upholds the same conditions.
            Queues::Shared { receives, .. } => unsafe { receives.post(id, memory)? },
            // SAFETY: the caller upholds the same conditions.
            Queues::Packets { receives, .. } => unsafe { receives[queue].post(id, memory)? },
        }
        Ok(())
    }

    /// Returns the oldest completion, if there is one.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn poll(&mut self, completions: &mut CqReader) -> Result<Option<Event>, Stop> {
        // For a single (send, receive) pair, the poll decides which to try first. A longer slice is
        // searched.
        let polled: Result<Option<Completion>, PollError> = match self {
            Queues::Own(pairs) => match &mut pairs[..] {
                [one] => completions.poll(one),
                many => completions.poll(many),
            },
            Queues::Shared { sends, receives, .. } => match &mut sends[..] {
                [one] => completions.poll(&mut (one, &mut **receives)),
                many => completions.poll(&mut (many, &mut **receives)),
            },
            Queues::Packets { sends, receives, clock } => match completions.poll(&mut sends[..]) {
                Ok(None) => {
                    let mut receives = receives.iter_mut();
                    return receives.find_map(|queue| packet(queue, clock.as_ref())).transpose();
                }
                polled => polled,
            },
        };
        match polled? {
            None => Ok(None),
            Some(Completion::Send(done)) => {
                let (queue, sequence) = parts(done.id);
                Ok(Some(Event::Sent { queue, sequence }))
            }
            Some(Completion::Receive(done)) => {
                let (queue, slot) = parts(done.id);
                let from = self.source(queue, done.qpn);
                let immediate = match done.kind {
                    ReceiveKind::SendImm(immediate) | ReceiveKind::WriteImm(immediate) => {
                        Some(immediate)
                    }
                    _ => None,
                };
                Ok(Some(Event::Received(Arrival { queue, from, slot, immediate, at: None })))
            }
            Some(Completion::Failed(failure)) => Err(Stop::Failed(failure)),
            Some(Completion::UnexpectedCqe(unexpected)) => Err(Stop::UnexpectedCqe(unexpected)),
        }
    }

    /// Returns the queue pair at which a message arrived, whose receive had a slot of `queue`.
    #[inline(always)]
    fn source(&self, queue: usize, qpn: u32) -> usize {
        match self {
            Queues::Own(_) | Queues::Packets { .. } => queue,
            Queues::Shared { receivers, .. } => {
                receivers.iter().position(|&receiver| receiver == qpn).unwrap_or(queue)
            }
        }
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

/// Returns the next packet of a queue.
fn packet(receives: &mut PacketRq, clock: Option<&ClockReading>) -> Option<Result<Event, Stop>> {
    let event = match receives.poll() {
        Ok(event) => event?,
        Err(error) => return Some(Err(error.into())),
    };
    Some(match event {
        PacketEvent::Packet(packet) => {
            let (queue, slot) = parts(packet.id);
            let at = clock.map(|clock| clock.nanoseconds(packet.info().timestamp));
            Ok(Event::Received(Arrival { queue, from: queue, slot, immediate: None, at }))
        }
        PacketEvent::Failed(failure) => Err(Stop::Failed(failure)),
        PacketEvent::UnexpectedCqe(unexpected) => Err(Stop::UnexpectedCqe(unexpected)),
        PacketEvent::UsedUp { .. } => Err(Stop::Told("a receive without a packet".into())),
    })
}

impl<T: Connects, R: Requests<T>> Path for Direct<T, R> {
    #[inline(always)]
    fn queues(&self) -> usize {
        match &self.queues {
            Queues::Own(pairs) => pairs.len(),
            Queues::Shared { sends, .. } | Queues::Packets { sends, .. } => sends.len(),
        }
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post(&mut self, queue: usize, message: Message) -> Result<(), Stop> {
        let request = R::request(&self.site, queue, message);
        // SAFETY: the request's memory is a slot of `site`, which is dropped after the queues. No
        // reference to it exists. Loops keep at most the plan's depth of requests outstanding. They
        // have as many slots where contents matter, and may share slots elsewhere.
        unsafe { self.queues.sends(queue).post(id(queue, message.sequence), request)? };
        Ok(())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post_batch(
        &mut self,
        queue: usize,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), Stop> {
        let mut batch = self.queues.sends(queue).batch();
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
        // SAFETY: the memory is a slot of `site`, which is dropped after the queues. It is read only
        // by copying, and posted again only after that.
        unsafe { self.queues.receive(queue, slot, memory) }
    }

    #[inline(always)]
    fn poll(&mut self) -> Result<Option<Event>, Stop> {
        self.queues.poll(&mut self.completions)
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Stop> {
        let Direct { sleeper, completions, queues, .. } = self;
        sleeper.sleep(time, || {
            completions.arm();
            if let Queues::Packets { receives, .. } = queues {
                receives.iter_mut().for_each(PacketRq::arm);
            }
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
        match &self.queues {
            Queues::Own(pairs) => {
                if let Some((sends, receives)) = pairs.first() {
                    add("send", sends.timing());
                    add("receive", receives.timing());
                }
            }
            Queues::Shared { sends, .. } | Queues::Packets { sends, .. } => {
                if let Some(sends) = sends.first() {
                    add("send", sends.timing());
                }
            }
        }
        add("completions", self.completions.timing());
        phases
    }

    #[cfg(feature = "phases")]
    fn clear_phases(&mut self) {
        match &mut self.queues {
            Queues::Own(pairs) => {
                for (sends, receives) in pairs {
                    sends.clear_timing();
                    receives.clear_timing();
                }
            }
            Queues::Shared { sends, .. } | Queues::Packets { sends, .. } => {
                sends.iter_mut().for_each(SendQueue::clear_timing);
            }
        }
        self.completions.clear_timing();
    }
}
