//! The card: objects, port, clock, and what waits to leave it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::clock::{Clock, Random};
use crate::memory::Memory;
use crate::object::{Memic, Objects};
use crate::trace::{Call, Observed, Tapping};
use crate::wire::{Frame, Header, Route};

/// What the port is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// An InfiniBand subnet: LIDs, optional GRH.
    InfiniBand,
    /// Ethernet: RoCEv2, GIDs over IP and UDP.
    Roce,
}

/// How far the link of a port has come (`PortState` and `PortPhysicalState` of InfiniBand's PortInfo).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// The subnet manager has configured it and not made it active yet.
    Armed,
    /// The link is up, and no subnet manager has come by.
    Init,
    /// No link: the port looks for somebody at the other end.
    Polling,
    /// No link: switched off by whoever administers it.
    Disabled,
}

impl PortState {
    /// All, in the order of their numbers.
    pub const ALL: [PortState; 5] =
        [Self::Active, Self::Armed, Self::Init, Self::Polling, Self::Disabled];

    /// The state in PortInfo.
    pub fn logical(self) -> u8 {
        match self {
            Self::Polling | Self::Disabled => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
        }
    }

    /// The physical state in PortInfo.
    pub fn physical(self) -> u8 {
        match self {
            Self::Polling => 2,
            Self::Disabled => 3,
            Self::Init | Self::Armed | Self::Active => 5,
        }
    }

    /// Whether a subnet manager has given the port its LID.
    pub fn is_configured(self) -> bool {
        matches!(self, Self::Armed | Self::Active)
    }
}

impl Link {
    /// log2 of the bytes of payload in the largest packet that a port sends unless a connection's
    /// path says otherwise: all that InfiniBand has, and what fits Ethernet's 1,500 bytes.
    pub fn log_mtu(self) -> u32 {
        match self {
            Self::InfiniBand => 12,
            Self::Roce => 10,
        }
    }
}

/// What a card is told when it is made.
#[derive(Clone, Debug)]
pub struct Identity {
    /// EUI-64 of the node; the port's follows from it.
    pub node_guid: u64,
    /// Link of the port.
    pub link: Link,
    /// LID of the port on an InfiniBand link.
    pub lid: u16,
    /// GID table of the port, by index. Empty entries are all zero. On InfiniBand entry 0 is the
    /// subnet prefix and port GUID; on Ethernet the entries are IPv6 link-local and mapped IPv4
    /// addresses of RoCEv2.
    pub gids: Vec<[u8; 16]>,
    /// Upper bits of every QP number: `number >> 8`. Another process of the same fabric has
    /// another prefix, so that a packet's destination QP also names the process. More prefixes
    /// are claimed by the engine when these 256 numbers are used up.
    pub qpn_prefixes: Vec<u16>,
    /// Seed of the card's randomness.
    pub seed: u64,
    /// Whether programs may have user contexts, in whose name they give commands.
    pub user_contexts: bool,
    /// How far the port has come when the card starts.
    pub port: PortState,
    /// log2 of the bytes of payload that a packet may have on this link, where it is not what is
    /// [usual](Link::log_mtu): then longer packets are lost.
    pub log_mtu: Option<u32>,
}

/// What software did that a card would suffer in silence. Tests hold drivers to zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Complaints {
    /// Doorbells for a queue that does not exist or does not use that UAR page.
    pub stray_doorbells: u64,
    /// BlueFlame copies whose bytes are not those of the WQE in the ring.
    pub blueflame_mismatches: u64,
    /// Stores that are no access any register knows: wrong length, alignment or place.
    pub unknown_stores: u64,
    /// Doorbells that name another WQE than the one their doorbell record says is new.
    pub wrong_doorbells: u64,
    /// Doorbell records that claim more WQEs than the ring holds.
    pub overfull_queues: u64,
    /// Accesses to queues, doorbell records and rings that no memory answered.
    pub unmapped_queues: u64,
}

/// One software ConnectX.
pub struct Card {
    /// Who it is.
    pub identity: Identity,
    /// Everything made by command.
    pub objects: Objects,
    /// The bus.
    pub memory: Arc<dyn Memory>,
    /// Memory of its own.
    pub memic: Memic,
    /// Time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// What the transport keeps for the port.
    pub port: crate::transport::Port,
    /// What went through the port.
    pub traffic: crate::transport::Traffic,
    /// How far the port has come: see [`Card::set_port`].
    pub port_state: PortState,
    /// Whether a subnet manager has ever given the port its LID.
    pub configured: bool,
    /// Service levels, a bit each, whose way through the fabric is broken: see
    /// [`Card::set_service_level`].
    broken_levels: u16,
    /// Packets that leave the port, oldest first; whoever runs the card carries them away.
    pub outbox: VecDeque<Frame>,
    /// MSI-X vectors raised, oldest first; whoever runs the card delivers them.
    pub interrupts: VecDeque<u32>,
    /// What software did that a card would suffer in silence.
    pub complaints: Complaints,
    /// Doorbells and copies that arrived in part.
    pub(crate) registers: crate::queue::Registers,
    /// CQs that hold CQEs back, to compress them.
    pub(crate) compressing: Vec<u32>,
    /// CQs whose moderation keeps an event back.
    pub(crate) moderating: Vec<u32>,
    /// Who is told of all that it does.
    pub(crate) tapping: Option<Tapping>,
}

impl Card {
    /// A card with no objects.
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
            port: crate::transport::Port::default(),
            traffic: crate::transport::Traffic::default(),
            port_state,
            configured: port_state.is_configured(),
            broken_levels: 0,
            outbox: VecDeque::new(),
            interrupts: VecDeque::new(),
            complaints: Complaints::default(),
            registers: crate::queue::Registers::default(),
            compressing: Vec::new(),
            moderating: Vec::new(),
            tapping: None,
        }
    }

    /// Another prefix of QP numbers is the card's.
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

    /// The card has memory of its own, nothing of which is taken.
    pub fn set_memic(&mut self, memic: Memic) {
        let bus = memic.bus(Memic::WINDOW).unwrap_or_default();
        self.enter(|| Call::Memic(bus), |card| card.memic = memic, |()| false);
    }

    /// The oldest packet that waits to leave the port.
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

    /// The oldest MSI-X vector that was raised and not delivered.
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

    /// The way to another process has no room, or has some again: see
    /// [`Port::set_congested`](crate::transport::Port::set_congested).
    pub fn set_congested(&mut self, way: u32, full: bool) {
        self.enter(
            || Call::Congested { way, full },
            |card| card.port.set_congested(way, full),
            |()| false,
        );
    }

    /// Packets to or from another process are still under way, or not any more: see
    /// [`Port::set_slow`](crate::transport::Port::set_slow).
    pub fn set_slow(&mut self, way: u16, slow: bool) {
        if self.port.is_slow(way) != slow {
            self.enter(
                || Call::Slow { way, slow },
                |card| card.port.set_slow(way, slow),
                |()| false,
            );
        }
    }

    /// Tells whoever wants to know what the card does.
    pub(crate) fn observe<'a>(&self, what: impl FnOnce() -> Observed<'a>) {
        if let Some(tapping) = &self.tapping {
            tapping.tap.observe(what());
        }
    }

    /// The way that packets of a service level take through the fabric breaks, or is mended: meanwhile
    /// they are lost. Nobody is told, and other levels take other ways. Of an Ethernet, whose packets
    /// have none, nothing is lost.
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

    /// Whether a packet gets from the port to the fabric's other side, or from there to the port.
    pub fn passes(&self, frame: &Frame) -> bool {
        let broken = || {
            let level = Route::service_level(self.identity.link, &frame.0);
            level.is_some_and(|level| self.broken_levels >> level & 1 != 0)
        };
        self.port_up() && (self.broken_levels == 0 || !broken()) && !self.is_too_long(frame)
    }

    /// Whether the port carries traffic.
    pub fn port_up(&self) -> bool {
        self.port_state == PortState::Active
    }

    /// log2 of the bytes of payload that a packet may have.
    pub fn log_mtu(&self) -> u32 {
        self.identity.log_mtu()
    }

    fn is_too_long(&self, frame: &Frame) -> bool {
        let Some(log_mtu) = self.identity.log_mtu else { return false };
        let mtu = 1 << log_mtu;
        // Headers are read only where it could be.
        frame.0.len() > mtu
            && Header::decode(self.identity.link, &frame.0)
                .is_ok_and(|(_, payload)| payload.len() > mtu)
    }
}

impl Identity {
    /// log2 of the bytes of payload that a packet may have on the port's link.
    pub fn log_mtu(&self) -> u32 {
        self.log_mtu.unwrap_or(self.link.log_mtu())
    }
}
