//! Two devices, each with a queue pair created by command, joined by a wire that tests choose.
//!
//! [`side`] is one device with its rings, [`Pair`] is both devices with the wire and the time
//! between them.
//!
//! The tests:
//!
//! - [`traffic`]: moves data whatever the wire does.
//! - [`errors`]: provokes every error.
//! - [`tags`]: tag matching.
//! - [`extended`]: masked atomics, DMA memcpy, queues that steer others.
//! - [`timing`]: waits, measured on the manual clock.
//! - [`measured`]: waits and their counters, as they were measured on devices.
//! - [`boundary`]: what QUERY_QP shows of requests that have landed.
//! - [`duplicates`]: PSNs that were executed already.
//! - [`changed`]: WQEs that change behind their doorbell.
//! - [`placement`]: data that becomes visible out of order.
//! - [`destroyed`]: requests to keys and queue pairs that are gone.
//! - [`faults`]: faults of devices by rule.
//! - [`unreliable`] and [`datagram`]: services without retransmission.
//! - [`counters`]: counts errors.
//! - [`congestion`]: marks, notifications and rates.
//! - [`special`]: queue pairs that only the driver has.
//! - [`captures`]: compares counters with captures.
//! - [`shared`]: several queue pairs take receives from one queue.
//! - [`windows`]: binds and invalidates keys.
//! - [`xrc`]: sends to SRQs that requests name.
//! - [`dynamic`]: connects to the target of each request.
//! - [`limits`]: requests without end.
//! - [`rules`]: the specification's rules.
//! - [`scale`]: many queue pairs.
//! - [`versions`]: the two versions of RoCE.
//! - [`vlans`]: GIDs of VLANs.
//! - [`seeds`]: random operations under random faults.

mod boundary;
pub(crate) mod captures;
mod changed;
mod congestion;
mod counters;
mod datagram;
mod destroyed;
mod duplicates;
mod dynamic;
mod errors;
pub(crate) mod extended;
mod faults;
mod limits;
mod measured;
mod placement;
mod rules;
mod scale;
mod seeds;
mod shared;
pub mod side;
mod special;
mod tags;
mod timing;
mod traffic;
mod unreliable;
mod versions;
mod vlans;
mod windows;
mod xrc;

use side::Side;

use crate::card::{Link, Timeouts};
use crate::object::{Service, Special};
use crate::wire::Frame;

/// Parameters of queue pairs.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub link: Link,
    pub service: Service,
    pub special: Option<Special>,
    pub q_key: u32,
    pub mtu: u32,
    pub psn: [u32; 2],
    pub depth: u32,
    pub timeout: u32,
    /// The law of the timers.
    pub timeouts: Timeouts,
    pub retries: u32,
    pub rnr_retries: u32,
    pub rnr_timer: u32,
    pub scatter_to_cqe: bool,
    /// Whether receives come from a shared receive queue.
    pub shared_receive: bool,
    /// Whether that queue matches tags.
    pub tags: bool,
    /// Whether an extended reliable connection is the receiving side.
    pub xrc_target: bool,
    pub grh: bool,
    /// The priority of the path, on RoCE.
    pub priority: u32,
    /// log2 of an initiator's streams, and of the streams that may have failed.
    pub streams: [u32; 2],
    /// The peer's access rights: READ, WRITE, atomics.
    pub access: [bool; 3],
    /// Which atomics (QPC, `atomic_mode`).
    pub atomic_mode: u32,
    /// log2 of the packets from one that asks for an acknowledge to the next.
    pub log_ack_frequency: u32,
    /// log2 of the longest message's bytes.
    pub log_message: u32,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            link: Link::InfiniBand,
            service: Service::Rc,
            special: None,
            q_key: 0,
            mtu: 1024,
            psn: [0x123, 0xabc],
            depth: 4,
            timeout: 14,
            timeouts: Timeouts::Measured,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 12,
            scatter_to_cqe: false,
            shared_receive: false,
            tags: false,
            xrc_target: false,
            grh: false,
            priority: 0,
            streams: [0; 2],
            access: [true; 3],
            atomic_mode: 5,
            log_ack_frequency: 8,
            log_message: 30,
        }
    }
}

/// Which packets are lost: asked with the index of the side that sends.
pub type Loss = Box<dyn FnMut(usize, &Frame) -> bool>;

/// Two sides and what is between them.
pub struct Pair {
    pub sides: [Side; 2],
    /// Selects the packets to drop on their way from the side with this index.
    pub drop: Loss,
}

impl Pair {
    pub fn new(setup: Setup) -> Self {
        Self::lossy(setup, 0, 0)
    }

    /// `rate` thousandths of the packets suffer each kind of accident.
    pub fn lossy(setup: Setup, seed: u64, rate: u64) -> Self {
        Self::of([setup, setup], seed, rate)
    }

    /// Each side with settings of its own.
    pub fn of(setups: [Setup; 2], seed: u64, rate: u64) -> Self {
        let mut sides = [Side::new(setups[0], 0), Side::new(setups[1], 1)];
        Self::connect(&mut sides, setups);
        let mut pair = Self::between(sides);
        if rate > 0 {
            let percent = rate as f64 / 10.0;
            let rules = ["loss", "corrupt", "duplicate", "reorder"];
            let rules = rules.map(|fault| format!("out {percent}% {fault}")).join("\n");
            pair.set_faults(&format!("seed {seed}\n{rules}"));
        }
        pair
    }

    /// Two sides that are set up already.
    pub fn between(sides: [Side; 2]) -> Self {
        Self { sides, drop: Box::new(|_, _| false) }
    }

    /// Sets the rules for faults. The sides are devices 0 and 1.
    pub fn set_faults(&mut self, rules: &str) {
        let faults = rules.parse().unwrap_or_else(|error| panic!("{error}: {rules}"));
        for (index, side) in self.sides.iter_mut().enumerate() {
            side.rig.card.set_faults(&faults, index);
        }
    }

    /// Moves both queue pairs from Reset to RTS.
    pub fn connect(sides: &mut [Side; 2], setups: [Setup; 2]) {
        let peers = [1, 0].map(|other: usize| {
            let side: &Side = &sides[other];
            (side.qp, side.rig.card.identity.lid, side.rig.card.identity.gids[0].gid)
        });
        for (index, side) in sides.iter_mut().enumerate() {
            let setup = setups[index];
            side.connect(setup, peers[index], [setup.psn[index], setup.psn[1 - index]]);
        }
    }

    /// Runs both cards until nothing happens without time passing.
    pub fn settle(&mut self) {
        let mut wires = [vec![], vec![]];
        loop {
            let mut busy = false;
            for (index, wire) in wires.iter_mut().enumerate() {
                let card = &mut self.sides[index].rig.card;
                busy |= card.pump();
                while let Some(frame) = card.take_frame() {
                    if !(self.drop)(index, &frame) {
                        wire.push(frame);
                    }
                }
                busy |= card.settle();
            }
            for (index, wire) in wires.iter_mut().enumerate() {
                for frame in wire.drain(..) {
                    self.sides[1 - index].rig.card.receive(&frame);
                    busy = true;
                }
            }
            if !busy {
                return;
            }
        }
    }

    /// Lets time pass until the next timer of either side and fires it; the time, if there was one.
    pub fn tick(&mut self) -> Option<u64> {
        let deadlines = self.sides.iter().filter_map(|side| side.rig.card.deadline());
        let next = deadlines.min()?;
        for side in &mut self.sides {
            let card = &mut side.rig.card;
            card.clock.advance(next.saturating_sub(card.clock.now()));
            card.expire();
        }
        self.settle();
        Some(next)
    }

    /// Settles, and lets time pass until `done` or until so many timers have fired.
    pub fn run(&mut self, ticks: usize, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        self.settle();
        for _ in 0..ticks {
            if done(self) {
                return true;
            }
            if self.tick().is_none() {
                return done(self);
            }
        }
        done(self)
    }

    pub fn now(&self) -> u64 {
        self.sides[0].rig.card.clock.now()
    }
}
