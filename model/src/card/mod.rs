//! The device: objects, port, clock, and the queues of its output.
//!
//! This module holds the state of a device and its boundary. Higher modules add its behaviour as
//! methods on [`Card`]: `queue/` fetches WQEs and writes CQEs, `transport/` moves messages, and
//! `command/` creates objects.

mod boundary;
mod port;
mod registers;
mod traffic;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::{Clock, Random};
use crate::memory::Memory;
use crate::object::{Memic, Objects};
use crate::trace::{Call, Observed};
use crate::wire::{Frame, Header, Route, Way};
pub(crate) use boundary::Tapping;
pub use port::Port;
pub(crate) use port::{Aftermath, Notified, TURN};
pub(crate) use registers::{BlueflameCopy, Registers};
pub use traffic::{Count, Counts, Sort, Traffic};

pub use crate::identity::{Identity, PortState};
pub use crate::trace::Complaints;
pub use crate::wire::Link;

/// One software ConnectX.
pub struct Card {
    /// Identity.
    pub identity: Identity,
    /// All objects created by command.
    pub objects: Objects,
    /// The bus.
    pub memory: Arc<dyn Memory>,
    /// Device memory (MEMIC).
    pub memic: Memic,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// The transport's state of the port.
    pub port: Port,
    /// Traffic counters of the port.
    pub traffic: Traffic,
    /// State of the port: see [`Card::set_port`].
    pub port_state: PortState,
    /// Whether a subnet manager has ever given the port its LID.
    pub configured: bool,
    /// Service levels, one bit each, whose path through the fabric is broken: see
    /// [`Card::set_service_level`].
    broken_levels: u16,
    /// Packets that leave the port, oldest first. The device's caller takes them away.
    pub outbox: VecDeque<Frame>,
    /// MSI-X vectors raised, oldest first. The device's caller delivers them.
    pub interrupts: VecDeque<u32>,
    /// Software errors that a real device ignores silently.
    pub complaints: Complaints,
    /// Doorbells and BlueFlame copies that have arrived only in part.
    pub(crate) registers: Registers,
    /// CQs that hold CQEs back to compress them.
    pub(crate) compressing: Vec<u32>,
    /// CQs whose moderation delays an event.
    pub(crate) moderating: Vec<u32>,
    /// The tap that records all that the device does.
    pub(crate) tapping: Option<Tapping>,
}

impl Card {
    /// Creates a device without objects.
    pub fn new(identity: Identity, memory: Arc<dyn Memory>, clock: Clock) -> Self {
        let random = Random::seeded(identity.seed);
        let port_state = identity.port;
        Self {
            identity,
            objects: Objects::default(),
            memory,
            memic: Memic::default(),
            clock,
            random,
            port: Port::default(),
            traffic: Traffic::default(),
            port_state,
            configured: port_state.is_configured(),
            broken_levels: 0,
            outbox: VecDeque::new(),
            interrupts: VecDeque::new(),
            complaints: Complaints::default(),
            registers: Registers::default(),
            compressing: Vec::new(),
            moderating: Vec::new(),
            tapping: None,
        }
    }

    /// Adds a prefix of QP numbers to the device's.
    pub fn add_prefix(&mut self, prefix: u16) {
        self.enter(
            || Call::Prefix(prefix),
            |card| {
                if !card.identity.qpn_prefixes.contains(&prefix) {
                    card.identity.qpn_prefixes.push(prefix);
                }
            },
            |()| false,
        );
    }

    /// Gives the device its own memory, all of it free.
    pub fn set_memic(&mut self, memic: Memic) {
        let bus = memic.bus(Memic::WINDOW).unwrap_or_default();
        self.enter(|| Call::Memic(bus), |card| card.memic = memic, |()| false);
    }

    /// Takes the oldest packet that waits to leave the port.
    pub fn take_frame(&mut self) -> Option<Frame> {
        if self.outbox.is_empty() {
            return None;
        }
        self.enter(
            || Call::TakeFrame,
            |card| {
                let frame = card.outbox.pop_front()?;
                card.count_sent(&frame);
                card.observe(|| Observed::Sent((&frame.0).into()));
                Some(frame)
            },
            |_| false,
        )
    }

    /// Takes the oldest MSI-X vector that was raised and not delivered.
    pub fn take_interrupt(&mut self) -> Option<u32> {
        if self.interrupts.is_empty() {
            return None;
        }
        self.enter(
            || Call::TakeInterrupt,
            |card| {
                let vector = card.interrupts.pop_front()?;
                card.observe(|| Observed::Interrupt(vector));
                Some(vector)
            },
            |_| false,
        )
    }

    /// Sets whether a way through the fabric is full: see [`Port::set_congested`].
    pub fn set_congested(&mut self, way: Way, full: bool) {
        self.enter(
            || Call::Congested { way, full },
            |card| card.port.set_congested(way, full),
            |()| false,
        );
    }

    /// Sets whether packets on a way through the fabric are still under way: see
    /// [`Port::set_slow`].
    pub fn set_slow(&mut self, way: Way, slow: bool) {
        if self.port.is_way_slow(&way) != slow {
            self.enter(
                || Call::Slow { way, slow },
                |card| card.port.set_slow(way, slow),
                |()| false,
            );
        }
    }

    /// Reports an action of the device to the tap, if there is one.
    pub(crate) fn observe<'a>(&self, what: impl FnOnce() -> Observed<'a>) {
        if let Some(tapping) = &self.tapping {
            tapping.tap.observe(what());
        }
    }

    /// Breaks or restores the path of a service level's packets through the fabric. While it is
    /// broken, these packets are lost. No error is reported, and other levels take other paths. On
    /// Ethernet nothing is lost, because packets have no service level.
    pub fn set_service_level(&mut self, level: u8, up: bool) {
        let bit = 1 << (level & 0xf);
        self.enter(
            || Call::ServiceLevel { level, up },
            |card| {
                let levels = card.broken_levels;
                card.broken_levels = if up { levels & !bit } else { levels | bit };
            },
            |()| false,
        );
    }

    /// Returns whether a packet can cross the fabric, from the port or to it.
    pub fn passes(&self, frame: &Frame) -> bool {
        let broken = || {
            let level = Route::service_level(self.identity.link, &frame.0);
            level.is_some_and(|level| self.broken_levels >> level & 1 != 0)
        };
        self.port_up() && (self.broken_levels == 0 || !broken()) && !self.is_too_long(frame)
    }

    /// Returns whether the port carries traffic.
    pub fn port_up(&self) -> bool {
        self.port_state == PortState::Active
    }

    /// Returns log2 of a packet's maximum payload in bytes.
    pub fn log_mtu(&self) -> u32 {
        self.identity.log_mtu()
    }

    fn is_too_long(&self, frame: &Frame) -> bool {
        let Some(log_mtu) = self.identity.log_mtu else { return false };
        let mtu = 1 << log_mtu;
        // Decode the headers only if the frame may be too long.
        frame.0.len() > mtu
            && Header::decode(self.identity.link, &frame.0)
                .is_ok_and(|(_, payload)| payload.len() > mtu)
    }
}
