//! Queue pairs.

use mlx5_sys::ifc::{Field, qpc, rqc, sqc};

use super::{Pages, Strides, Target, TransportState};
use crate::wire::Service;

/// State of a queue pair, as QPC encodes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum State {
    /// Nothing is sent or received.
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue stopped on an error.
    SqError = 4,
    /// The send queue drains or is drained.
    Sqd = 5,
    /// Every request is flushed.
    Error = 6,
}

/// The card's view of a send queue: blocks of 64 bytes.
#[derive(Clone, Debug, Default)]
pub struct SendQueue {
    /// The ring itself.
    pub pages: Pages,
    /// Blocks in the ring, a power of two; 0 where there is no send queue.
    pub blocks: u32,
    /// Counter (not masked) of the next block to fetch a WQE from.
    pub fetched: u16,
    /// Counter up to which WQEs may be fetched: the doorbell record as last read.
    pub producer: u16,
    /// Whether the doorbell was rung since the last read of the record that found nothing new. A
    /// card reads the record only then.
    pub rung: bool,
    /// Counter up to which this queue may run, if another queue steers it.
    pub enabled: u16,
    /// The WQE that came with the last doorbell. It is executed if it is the next one.
    pub copied: Option<Box<CopiedWqe>>,
    /// Whether the program itself moved the queue pair to Error, and no WQE was flushed since.
    pub told_to_flush: bool,
}

/// A WQE of one block that was copied to a BlueFlame register in one store.
#[derive(Clone, Debug)]
pub struct CopiedWqe {
    /// Its counter.
    pub index: u16,
    /// The block.
    pub block: [u8; 64],
}

/// The card's view of a receive queue.
#[derive(Clone, Debug, Default)]
pub struct ReceiveQueue {
    /// The ring itself.
    pub pages: Pages,
    /// WQEs in the ring, a power of two; 0 where there is no receive queue.
    pub wqes: u32,
    /// Bytes from one WQE to the next.
    pub stride: u32,
    /// Counter (not masked) of the next WQE to take.
    pub taken: u16,
    /// Counter up to which WQEs may be taken: the doorbell record as last read.
    pub producer: u16,
}

/// An object that a queue pair uses for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Used {
    /// A CQ.
    Cq(u32),
    /// A shared receive queue.
    Srq(u32),
    /// A protection domain.
    Pd(u32),
    /// A UAR page.
    Uar(u32),
    /// An XRC domain.
    Xrcd(u32),
}

/// A queue pair with a purpose of its own. Only the driver makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Subnet management: what is sent to queue pair 0 of the port. It sends as queue pair 0.
    Smi,
    /// General services: what is sent to queue pair 1 of the port. It sends as queue pair 1.
    Gsi,
    /// Changes of memory keys alone: it sends nothing.
    Umr,
}

impl Special {
    /// The number that it has on the wire, if it sends and receives.
    pub fn wire_number(self) -> Option<u32> {
        match self {
            Self::Smi => Some(0),
            Self::Gsi => Some(1),
            Self::Umr => None,
        }
    }
}

/// The kind of an object that has a queue pair number, and what only this kind has.
#[derive(Clone, Debug)]
pub enum Role {
    /// A queue pair.
    Pair,
    /// A queue pair that only the driver has.
    Special(Special),
    /// An Ethernet send queue: its context as commands have set it. Ethernet queues share numbers,
    /// doorbells and rings with queue pairs. Each is a queue pair with only one of its queues.
    EthernetSend(Box<[u8; sqc::SIZE]>),
    /// An Ethernet receive queue: its context as commands have set it, and its strides if several
    /// packets share a WQE.
    EthernetReceive(Box<[u8; rqc::SIZE]>, Option<Strides>),
    /// A target of dynamic connections. It has no queues, and no states but Rtr and Error.
    Target(Box<Target>),
}

/// A queue pair.
pub struct Qp {
    /// Number.
    pub number: u32,
    /// User context that made it.
    pub uid: u16,
    /// State.
    pub state: State,
    /// Transport service.
    pub service: Service,
    /// The QP context as commands have set it. Counters and PSNs that move by themselves are kept
    /// elsewhere and put in when it is queried.
    pub context: Box<[u8; qpc::SIZE]>,
    /// Send queue.
    pub sq: SendQueue,
    /// Receive queue.
    pub rq: ReceiveQueue,
    /// State of the transport. The transport takes it out while it works with the rest of the
    /// device.
    pub transport: Option<Box<dyn TransportState>>,
    /// The kind of object, and what only this kind has.
    pub role: Role,
}

impl Qp {
    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// Goes to Reset: the queues are empty and their counters start at zero again. The transport
    /// resets its part when it hears of the state.
    pub fn reset(&mut self) {
        self.state = State::Reset;
        self.sq.fetched = 0;
        self.sq.producer = 0;
        self.sq.copied = None;
        self.sq.rung = false;
        self.sq.enabled = 0;
        self.sq.told_to_flush = false;
        self.rq.taken = 0;
        self.rq.producer = 0;
        if let Some(strides) = self.strides_mut() {
            strides.current = None;
        }
    }

    /// Returns what it is for, if it is a special queue pair.
    pub fn special(&self) -> Option<Special> {
        match self.role {
            Role::Special(special) => Some(special),
            _ => None,
        }
    }

    /// Returns whether packets that name this queue pair on the wire are for it.
    pub fn is_reached_by(&self, destination: u32) -> bool {
        self.special().is_none_or(|special| special.wire_number() == Some(destination))
    }

    /// Returns the target that it is, if it is one.
    pub fn target(&self) -> Option<&Target> {
        match &self.role {
            Role::Target(target) => Some(target),
            _ => None,
        }
    }

    /// Returns the target that it is, for changes.
    pub fn target_mut(&mut self) -> Option<&mut Target> {
        match &mut self.role {
            Role::Target(target) => Some(target),
            _ => None,
        }
    }

    /// Returns its strides, if it is an Ethernet receive queue with several packets to a WQE.
    pub fn strides(&self) -> Option<&Strides> {
        match &self.role {
            Role::EthernetReceive(_, strides) => strides.as_ref(),
            _ => None,
        }
    }

    /// Returns the same strides, for changes.
    pub fn strides_mut(&mut self) -> Option<&mut Strides> {
        match &mut self.role {
            Role::EthernetReceive(_, strides) => strides.as_mut(),
            _ => None,
        }
    }

    /// The objects that it uses, each as often as the context names it. No command changes the
    /// fields that this reads.
    pub fn uses(&self) -> impl Iterator<Item = Used> + use<> {
        let (sends, shared) = (self.sq.blocks > 0, self.shared_receive());
        let receives = self.rq.wqes > 0 || shared.is_some();
        let is_xrc_target = self.service == Service::Xrc && self.get(qpc::NO_SQ) == 1;
        [
            Some(Used::Pd(self.get(qpc::PD))),
            sends.then(|| Used::Cq(self.get(qpc::CQN_SND))),
            sends.then(|| Used::Uar(self.get(qpc::UAR_PAGE))),
            receives.then(|| Used::Cq(self.get(qpc::CQN_RCV))),
            shared.map(Used::Srq),
            is_xrc_target.then(|| Used::Xrcd(self.get(qpc::XRCD))),
        ]
        .into_iter()
        .flatten()
    }

    /// Number of the shared receive queue that it takes its receives from, if that is one alone.
    pub fn shared_receive(&self) -> Option<u32> {
        /// QPC's `rq_type` of such a queue pair (`qp.h`, `MLX5_SRQ_RQ`).
        const SHARED: u32 = 1;
        let receives = match self.service {
            Service::Xrc | Service::Ethernet => false,
            // An initiator has none.
            Service::Dc => self.get(qpc::NO_SQ) == 1,
            Service::Rc | Service::Uc | Service::Ud => true,
        };
        let shares = self.get(qpc::RQ_TYPE) == SHARED && receives;
        shares.then(|| self.get(qpc::SRQN_RMPN_XRQN))
    }

    /// Bytes of the longest message that it sends or receives: QPC's `log_msg_max` is taken as it
    /// stands, so 0 allows one byte.
    pub fn longest_message(&self) -> u64 {
        1 << self.get(qpc::LOG_MSG_MAX)
    }

    /// Whether its send queue has no doorbell record. Then the doorbell says which WQEs are posted.
    pub fn is_recordless(&self) -> bool {
        self.get(qpc::SEND_DBR_MODE) == 1
    }

    /// Address of the doorbell record: receive counter, then send counter, each four bytes.
    pub fn record(&self) -> u64 {
        qpc::DBR_ADDR.get(&self.context[..])
    }

    /// Returns the context with the fields that the device changes by itself.
    pub fn query(&self) -> [u8; qpc::SIZE] {
        let mut context = *self.context;
        if let Some(transport) = &self.transport {
            transport.describe(&mut context);
        }
        qpc::STATE.set(&mut context, self.state as u64);
        qpc::HW_SQ_WQEBB_COUNTER.set(&mut context, self.sq.fetched.into());
        qpc::SW_SQ_WQEBB_COUNTER.set(&mut context, self.sq.producer.into());
        qpc::HW_RQ_COUNTER.set(&mut context, self.rq.taken.into());
        qpc::SW_RQ_COUNTER.set(&mut context, self.rq.producer.into());
        context
    }
}
