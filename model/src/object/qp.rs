//! Queue pairs.

use std::collections::VecDeque;

use mlx5_sys::ifc::{Field, qpc, rqc, sqc};

use super::{Pages, Strides, Target, TransportState};
use crate::wire::Service;
use crate::work::FailedWqe;

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

impl State {
    /// Returns the name that verbs have for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::SqError => "SQE",
            Self::Sqd => "SQD",
            Self::Error => "ERR",
        }
    }
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
    /// Counter up to which WQEs may be fetched. It comes from the doorbell register. In an error
    /// state it is the doorbell record as last read (measured on ConnectX-6, evidence E001, E003).
    pub producer: u16,
    /// Whether a doorbell register has named WQEs since the last reset. It has not where the front
    /// end sees no single stores.
    pub rung: bool,
    /// Counter up to which the device is done, as QUERY_QP tells it.
    pub executed: u16,
    /// The oldest WQEs that are not complete, after an error: their CQEs wait until the doorbell
    /// record covers them.
    pub failed: VecDeque<FailedWqe>,
    /// Counter up to which this queue may run, if another queue steers it.
    pub enabled: u16,
    /// The WQE that came with the last doorbell. It is executed if it is the next one.
    pub copied: Option<Box<CopiedWqe>>,
    /// Blocks as they were when their doorbell came, with their counters, oldest first. Only in the mode
    /// that executes changed WQEs in either version.
    pub prefetched: VecDeque<(u16, [u8; 64])>,
    /// How many more requests there is room for, and for how many in all, while none has asked for a CQE.
    /// `None` once one has, or where nobody said.
    pub unsignaled: Option<(u32, u32)>,
    /// Whether the program itself moved the queue pair to Error, and no WQE was flushed since.
    pub told_to_flush: bool,
}

/// The largest ring in blocks: the counter of a doorbell or record that is farther ahead is behind.
const LARGEST_RING: u16 = 1 << 15;

impl SendQueue {
    /// A request was fetched. Returns for how many the program asked room if this is the last of them, and
    /// none has asked for a CQE.
    pub fn note_request(&mut self, is_signaled: bool) -> Option<u32> {
        let (left, most) = self.unsignaled.take().filter(|_| !is_signaled)?;
        self.unsignaled = (left > 1).then_some((left - 1, most));
        (left == 1).then_some(most)
    }

    /// Returns whether a producer counter covers a WQE: the WQE is before the counter, by no more
    /// than the largest ring. A counter that is behind covers nothing.
    pub fn covers(producer: u16, wqe: u16) -> bool {
        (1..=LARGEST_RING).contains(&producer.wrapping_sub(wqe))
    }

    /// Moves the fetch counter past a WQE.
    pub fn pass(&mut self, blocks: u16) {
        self.fetched = self.fetched.wrapping_add(blocks);
        self.executed = self.fetched;
    }

    /// Returns whether the ring can hold WQEs up to a counter.
    pub fn holds_up_to(&self, producer: u16) -> bool {
        u32::from(producer.wrapping_sub(self.fetched)) <= self.blocks
    }

    /// Returns the counter of the first WQE that is not complete, after an error.
    pub fn first_incomplete(&self) -> u16 {
        self.failed.front().map_or(self.fetched, |failed| failed.index)
    }

    /// Takes the doorbell record's counter as the end of the queue, in an error state.
    pub fn load(&mut self, record: u16) {
        self.producer = record;
        let first = self.first_incomplete();
        // A record that is behind leaves QUERY_QP's other counter alone (evidence E007).
        if record == first || Self::covers(record, first) {
            self.executed = record;
        }
    }

    /// Takes the next failed WQE that the record covers.
    pub fn take_covered(&mut self) -> Option<FailedWqe> {
        let first = self.failed.front()?.index;
        if Self::covers(self.producer, first) { self.failed.pop_front() } else { None }
    }

    /// Forgets all WQEs: the counters start at zero again.
    fn reset(&mut self) {
        let Self { pages, blocks, .. } = std::mem::take(self);
        *self = Self { pages, blocks, ..Self::default() };
    }
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
    /// Bytes 52 to 55 of an error CQE for the first failure since Reset; zeros if there was none.
    pub failure: [u8; 4],
}

impl Qp {
    /// Notes why it failed, unless it has failed before.
    pub fn note_failure(&mut self, codes: [u8; 4]) {
        if self.failure == [0; 4] {
            self.failure = codes;
        }
    }

    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// Goes to Reset: the queues are empty and their counters start at zero again. The transport
    /// resets its part when it hears of the state.
    pub fn reset(&mut self) {
        self.state = State::Reset;
        self.failure = [0; 4];
        self.sq.reset();
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

    /// Whether its send queue has stopped on an error.
    pub fn has_failed(&self) -> bool {
        matches!(self.state, State::SqError | State::Error)
    }

    /// Whether the device polls its doorbell record: it has failed, and WQEs may still be posted.
    pub fn is_watched(&self) -> bool {
        self.state == State::Error && self.rq.wqes > 0
            || self.has_failed() && self.has_send_record()
    }

    /// Returns whether the doorbell record of a queue pair in an error state, with this content,
    /// tells of receives or sends that have no CQE yet.
    pub fn has_news(&self, record: [u8; 8]) -> bool {
        let word = |at: usize| u16::from_be_bytes([record[at + 2], record[at + 3]]);
        let receives = self.state == State::Error && self.rq.wqes > 0;
        receives && word(0) != self.rq.taken
            || self.has_send_record() && SendQueue::covers(word(4), self.sq.first_incomplete())
    }

    /// Whether its send queue has a doorbell record that the device reads.
    pub fn has_send_record(&self) -> bool {
        self.sq.blocks > 0 && !self.is_recordless()
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
        qpc::HW_SQ_WQEBB_COUNTER.set(&mut context, self.sq.executed.into());
        qpc::SW_SQ_WQEBB_COUNTER.set(&mut context, self.sq.producer.into());
        qpc::HW_RQ_COUNTER.set(&mut context, self.rq.taken.into());
        qpc::SW_RQ_COUNTER.set(&mut context, self.rq.producer.into());
        context
    }
}
