//! The device: objects, port, clock, and the queues of its output.
//!
//! This module holds the state of a device and its boundary. Higher modules add its behaviour as
//! methods on [`Card`]: `queue/` fetches WQEs and writes CQEs, `transport/` moves messages, and
//! `command/` creates objects.

mod boundary;
mod explain;
mod placement;
mod port;
mod reaction;
mod registers;
mod reset;
mod traffic;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::capture::Capturing;
use crate::clock::{Clock, Random};
use crate::cost::{Pace, Parameters, Side, VirtualTime};
use crate::fault::{Impairment, Tally, WqeFault};
use crate::function::Function;
use crate::memory::Memory;
use crate::object::{Memic, Objects};
use crate::trace::{Call, Observed};
use crate::wire::{Direction, Frame, Header, Way, ethernet};
pub(crate) use boundary::Tapping;
pub(crate) use explain::Explaining;
pub(crate) use placement::Placement;
pub use port::Port;
pub(crate) use port::{Aftermath, TURN};
pub(crate) use reaction::{Destination, Reaction, parameter};
pub(crate) use registers::{BlueflameCopy, Registers};
pub use traffic::{CongestionCounts, Count, Counts, Sort, Traffic};

pub use crate::identity::{
    Bus, CounterSets, Feature, GidEntry, Identity, PortState, Profile, Timeouts,
};
pub use crate::trace::Complaints;
pub use crate::wire::Link;

/// One software ConnectX.
pub struct Card {
    /// Identity.
    pub identity: Identity,
    /// The life cycle of the function, and what its driver gave and chose.
    pub(crate) function: Function,
    /// The GIDs that the device was created with.
    own_gids: Vec<GidEntry>,
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
    /// Draws the versions of WQEs that have changed behind their doorbell, if they are not all executed
    /// as they are when their turn comes.
    pub(crate) prefetch: Option<Random>,
    /// Data that waits to become visible, if it does not in the order of arrival.
    pub(crate) placement: Option<Placement>,
    /// The transport's state of the port.
    pub port: Port,
    /// Traffic counters of the port.
    pub traffic: Traffic,
    /// Counters of congestion.
    pub congestion: CongestionCounts,
    /// The port's reaction to congestion.
    pub(crate) reaction: Reaction,
    /// State of the port: see [`Card::set_port`].
    pub port_state: PortState,
    /// Whether the cable is plugged in.
    pub(crate) plugged: bool,
    /// Whether a subnet manager has ever given the port its LID.
    pub configured: bool,
    /// Faults of frames and of the device, if there are rules for any.
    pub(crate) impairment: Option<Box<Impairment>>,
    /// Rules for send WQEs that fail, each with what it has done.
    pub(crate) wqe_faults: Vec<(WqeFault, Tally)>,
    /// Whether a fatal error has stopped the firmware.
    pub(crate) stopped: bool,
    /// Packets that leave the port, oldest first. The device's caller takes them away.
    pub outbox: VecDeque<Frame>,
    /// Memory of frames that have been carried away.
    spare: Vec<Vec<u8>>,
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
    /// The capture of the port's frames.
    pub(crate) capturing: Option<Capturing>,
    /// The writer of reasons for which something is refused, fails or is dropped.
    told: Option<explain::Told>,
    /// Packets that have arrived for the port's management agent, oldest first. `None` if it has none.
    pub(crate) managed: Option<VecDeque<Frame>>,
}

impl Card {
    /// Creates a device without objects. Its HCA runs, as if a driver had started it:
    /// [`Card::reset`] changes that.
    pub fn new(identity: Identity, memory: Arc<dyn Memory>, clock: Clock) -> Self {
        let random = Random::seeded(identity.seed);
        let prefetch = identity.prefetch.map(Random::seeded);
        let placement = identity.placement.map(Placement::seeded);
        let port_state = identity.port;
        Self {
            function: Function::running(),
            own_gids: identity.gids.clone(),
            identity,
            objects: Objects::default(),
            memory,
            memic: Memic::default(),
            clock,
            random,
            prefetch,
            placement,
            port: Port::default(),
            traffic: Traffic::default(),
            congestion: CongestionCounts::default(),
            reaction: Reaction::default(),
            port_state,
            plugged: port_state != PortState::Polling,
            configured: port_state.is_configured(),
            impairment: None,
            wqe_faults: Vec::new(),
            stopped: false,
            outbox: VecDeque::new(),
            spare: Vec::new(),
            interrupts: VecDeque::new(),
            complaints: Complaints::default(),
            registers: Registers::default(),
            compressing: Vec::new(),
            moderating: Vec::new(),
            tapping: None,
            capturing: None,
            told: None,
            managed: None,
        }
    }

    /// Returns the number of pages that the driver has given and not taken back.
    pub fn pages(&self) -> usize {
        self.function.pages.count()
    }

    /// Replaces the device's clock by virtual time. `host` is the program's time, which all devices of
    /// a process share. Must come before a tap.
    pub(crate) fn keep_virtual_time(&mut self, host: &Arc<VirtualTime>, parameters: Parameters) {
        (self.port.pace, self.clock) = Pace::start(host, parameters);
    }

    /// Returns whether the device keeps virtual time.
    pub(crate) fn keeps_virtual_time(&self) -> bool {
        self.port.pace.is_virtual()
    }

    /// Returns the device's clock as a program reads it.
    pub(crate) fn read_clock(&self) -> u64 {
        let now = self.port.pace.read_clock().unwrap_or_else(|| self.clock.now());
        self.identity.profile.ticks(now)
    }

    /// Puts a packet of a requester into the outbox.
    pub(crate) fn send(&mut self, frame: Frame) {
        self.port.pace.sent(Side::Request, frame.0.len());
        self.outbox.push_back(frame);
    }

    /// Sends a packet of the port's management agent.
    pub(crate) fn send_management(&mut self, frame: Frame) {
        self.enter(
            || Call::SendManagement((&frame.0).into()),
            |card| card.send(frame.clone()),
            |()| false,
        );
    }

    /// Takes the oldest packet that has arrived for the port's management agent.
    pub(crate) fn take_managed(&mut self) -> Option<Frame> {
        self.managed.as_mut()?.pop_front()
    }

    /// Puts a packet of a responder into the outbox.
    pub(crate) fn respond(&mut self, frame: Frame) {
        self.port.pace.sent(Side::Response, frame.0.len());
        self.outbox.push_back(frame);
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

    /// Takes the oldest packet that waits to leave the port and is not delayed by a fault.
    pub fn take_frame(&mut self) -> Option<Frame> {
        while self.impairment.is_some() && !self.has_frame() {
            let frame = self.take_sent()?;
            let now = self.clock.now();
            if let Some(impairment) = &mut self.impairment {
                impairment.put(Direction::Outbound, frame, now);
            }
        }
        match &mut self.impairment {
            Some(impairment) => impairment.take(Direction::Outbound),
            None => self.take_sent(),
        }
    }

    /// Returns memory for a frame: empty, with the capacity of an earlier one if there is one.
    pub(crate) fn spare(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    fn has_frame(&self) -> bool {
        self.impairment.as_ref().is_some_and(|impairment| impairment.has_frame(Direction::Outbound))
    }

    fn take_sent(&mut self) -> Option<Frame> {
        if self.outbox.is_empty() {
            return None;
        }
        let frame = self.enter(
            || Call::TakeFrame,
            |card| {
                let frame = card.outbox.pop_front()?;
                card.port.pace.left();
                card.count_sent(&frame);
                card.observe(|| Observed::Sent((&frame.0).into()));
                Some(frame)
            },
            |_| false,
        )?;
        self.captured(Direction::Outbound, &frame, None);
        Some(frame)
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

    /// Keeps the memory of a frame that has been carried away. Returns the frame if the device keeps
    /// enough already.
    pub(crate) fn recycle(&mut self, mut frame: Frame) -> Option<Frame> {
        /// Most frames that a device keeps: those of a few full outboxes.
        const MOST: usize = 256;
        if self.spare.len() == MOST {
            return Some(frame);
        }
        frame.0.clear();
        self.spare.push(frame.0);
        None
    }

    /// Returns whether a packet can pass the port, in either direction.
    pub fn passes(&self, frame: &Frame) -> bool {
        self.port_up() && !self.stopped && !self.is_too_long(frame)
    }

    /// Sets the law of transport timers. Queue pairs take it when they next move to another state.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) {
        self.enter(
            || Call::Timeouts(timeouts),
            |card| card.identity.timeouts = timeouts,
            |()| false,
        );
    }

    /// Sets whether user contexts get sets of queue counters. Sets that they have stay.
    pub fn set_counter_sets(&mut self, sets: CounterSets) {
        self.enter(
            || Call::CounterSets(sets),
            |card| card.identity.counter_sets = sets,
            |()| false,
        );
    }

    /// Returns whether a fatal error has stopped the firmware.
    pub fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Returns whether the port carries traffic.
    pub fn port_up(&self) -> bool {
        self.port_state == PortState::Active
    }

    /// Returns log2 of a packet's maximum payload in bytes.
    pub fn log_mtu(&self) -> u32 {
        self.identity.log_mtu()
    }

    /// Returns log2 of the largest path MTU of a connection, in bytes: the port's, or on Ethernet what
    /// fits the limit that a driver has set.
    pub(crate) fn log_path_mtu(&self) -> u32 {
        let (identity, limit) = (&self.identity, self.function.limit);
        if identity.link == Link::InfiniBand || !limit.is_set() {
            return identity.log_mtu();
        }
        let fits = ethernet::log_mtu(limit.payload() as u32).unwrap_or(0);
        identity.log_mtu.map_or(fits, |own| own.min(fits))
    }

    fn is_too_long(&self, frame: &Frame) -> bool {
        self.exceeds_port(frame) || self.exceeds_link(frame)
    }

    /// Returns whether a frame is longer than its Ethernet port lets through. A driver that sets no
    /// limit leaves the length of RoCE packets to connections.
    fn exceeds_port(&self, frame: &Frame) -> bool {
        let (link, limit) = (self.identity.link, self.function.limit);
        link == Link::Roce
            && ethernet::payload(&frame.0) > limit.payload()
            && (limit.is_set() || !frame.is_transport(link))
    }

    /// Returns whether a packet of the transport has more payload than the link's MTU.
    fn exceeds_link(&self, frame: &Frame) -> bool {
        let Some(log_mtu) = self.identity.log_mtu else { return false };
        let mtu = 1 << log_mtu;
        // Decode the headers only if the frame may be too long.
        frame.0.len() > mtu
            && Header::decode(self.identity.link, &frame.0)
                .is_ok_and(|(_, payload)| payload.len() > mtu)
    }
}
