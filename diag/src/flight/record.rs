//! The parts of a record.

use mlx5_sys::cqe::{NUMBER_MASK, OPCODE_SHIFT, opcode, syndrome};

/// The kind of a record's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queue {
    /// A send queue; its number is that of the queue pair.
    Send,
    /// A queue pair's own receive queue; likewise.
    Receive,
    /// A shared receive queue.
    SharedReceive,
    /// A completion queue.
    Completion,
}

impl Queue {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Send, Self::Receive, Self::SharedReceive, Self::Completion];

    /// Returns the word for it in a dump.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::SharedReceive => "srq",
            Self::Completion => "cq",
        }
    }
}

/// Why a record was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The program asked for it.
    Request,
    /// An error CQE had arrived, which is its last event.
    Error,
}

impl Reason {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Request, Self::Error];

    /// Returns the word for it in a dump.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Error => "error",
        }
    }
}

/// How the HCA was told of what was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DoorbellKind {
    /// The record, and eight bytes to the register.
    Doorbell,
    /// The record, and the last WQE to the register.
    BlueFlame,
    /// The record alone: a receive queue, which has no register.
    RecordOnly,
    /// Eight bytes to the register alone: a send queue without a record.
    RegisterOnly,
    /// A completion queue's request for an event: record and register.
    Arm,
}

impl DoorbellKind {
    /// All kinds.
    pub const ALL: [Self; 5] =
        [Self::Doorbell, Self::BlueFlame, Self::RecordOnly, Self::RegisterOnly, Self::Arm];

    /// Returns the word for it in a dump.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Doorbell => "doorbell",
            Self::BlueFlame => "blueflame",
            Self::RecordOnly => "record",
            Self::RegisterOnly => "register",
            Self::Arm => "arm",
        }
    }
}

/// The last events of a queue. `Display` writes the dump; [`Dump::parse`](super::Dump::parse) reads
/// it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The kind of the queue.
    pub queue: Queue,
    /// Number of the queue pair, shared receive queue or completion queue; 0 of a shared receive
    /// queue whose number is not known.
    pub number: u32,
    /// The queue pair's transport, as in `RC`; empty where the queue does not know it.
    pub transport: String,
    /// Number of the completion queue.
    pub cqn: u32,
    /// Size of the ring: blocks of a send queue, WQEs of a receive queue, CQEs.
    pub entries: u32,
    /// Bytes of each of these.
    pub stride: u32,
    /// Frequency of the counter that stamps are taken of: the TSC on x86-64, CNTVCT_EL0 on arm64.
    pub hertz: u64,
    /// The counter at the first event: what records of several queues are put side by side by.
    pub tick: u64,
    /// Why it was made.
    pub reason: Reason,
    /// Events of the queue that are not in the record: overwritten, or before an earlier error.
    pub lost: u64,
    /// In the order in which they happened.
    pub events: Vec<Event>,
    /// For a parsed record: events that it had when it was written, but that were not found.
    pub missing: u64,
}

/// Something that happened to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds since the record's first event.
    pub at: u64,
    /// The event itself.
    pub what: What,
}

/// The contents of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A WQE was posted, or looked at again.
    Wqe(Wqe),
    /// A doorbell was rung.
    Doorbell(Doorbell),
    /// A CQE was read.
    Cqe(Cqe),
}

/// A WQE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wqe {
    /// By what a CQE names it: low 16 bits of the index of a send WQE's first block, or of a
    /// receive WQE; the place of a WQE of a shared receive queue.
    pub index: u16,
    /// Whether it was read from the ring when its error CQE came, and not when it was posted.
    pub found: bool,
    /// Its size in bytes.
    pub size: u32,
    /// Its bytes; the first of them if it is longer than what is recorded.
    pub bytes: Vec<u8>,
}

impl Wqe {
    /// Returns whether its end is missing.
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.size as usize
    }
}

/// A doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doorbell {
    /// How it was rung.
    pub kind: DoorbellKind,
    /// The value that was stored to the doorbell record: the producer index, or the value with
    /// which a CQ is armed. For a queue without a doorbell record, the value that it would have.
    pub record: u32,
    /// Offset of the register in its page; `None` if none was stored to.
    pub register: Option<u16>,
}

/// The 64 bytes of a CQE, as in memory. For a 128-byte CQE, the last 64 bytes. For a mini-CQE, the
/// CQE that it stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe(pub [u8; 64]);

impl Cqe {
    /// Returns its opcode (`mlx5dv.h`, `MLX5_CQE_*`).
    pub fn opcode(&self) -> u8 {
        self.0[63] >> OPCODE_SHIFT
    }

    /// Returns the number of the queue pair.
    pub fn qpn(&self) -> u32 {
        let [.., a, b, c, d] = self.0[56..60] else { return 0 };
        u32::from_be_bytes([a, b, c, d]) & NUMBER_MASK
    }

    /// Returns the index of its WQE, like [`Wqe::index`].
    pub fn wqe_index(&self) -> u16 {
        u16::from_be_bytes([self.0[60], self.0[61]])
    }

    /// Returns the bytes of the message (`byte_cnt`).
    pub fn byte_count(&self) -> u32 {
        u32::from_be_bytes([self.0[44], self.0[45], self.0[46], self.0[47]])
    }

    /// Returns whether it reports an error.
    pub fn is_error(&self) -> bool {
        matches!(self.opcode(), opcode::REQ_ERR | opcode::RESP_ERR)
    }

    /// Returns whether it reports an error that is but the consequence of another one.
    pub fn is_flush(&self) -> bool {
        self.is_error() && self.syndrome() == syndrome::WR_FLUSH
    }

    /// Returns the syndrome of an error (`MLX5_CQE_SYNDROME_*`).
    pub fn syndrome(&self) -> u8 {
        self.0[55]
    }

    /// Returns the vendor syndrome of an error.
    pub fn vendor_syndrome(&self) -> u8 {
        self.0[54]
    }

    /// Returns the queue whose WQE it is about: a send queue, or one of receives; `None` for other
    /// CQEs.
    pub fn queue(&self) -> Option<Queue> {
        match self.opcode() {
            opcode::REQ | opcode::REQ_ERR => Some(Queue::Send),
            opcode::RESP_WR_IMM..=opcode::RESP_SEND_INV | opcode::RESP_ERR => Some(Queue::Receive),
            _ => None,
        }
    }
}

impl Record {
    /// Returns the place in [`events`](Self::events) of the CQE that tells of a failure: of the
    /// error that froze the record, which is its last; of a record that was asked for, of the first
    /// error that is not a flush, or else of the first flush.
    pub fn failure(&self) -> Option<usize> {
        let is =
            |event: &Event, is: fn(&Cqe) -> bool| matches!(&event.what, What::Cqe(cqe) if is(cqe));
        if self.reason == Reason::Error {
            return self.events.iter().rposition(|event| is(event, Cqe::is_error));
        }
        let cause = |cqe: &Cqe| cqe.is_error() && !cqe.is_flush();
        let first = |wanted| self.events.iter().position(|event| is(event, wanted));
        first(cause).or_else(|| first(Cqe::is_error))
    }

    /// Returns the place of the WQE that the CQE at the place `cqe` is about: the last one before
    /// it of its index. `None` if it is not in the record, or `cqe` is not the place of such a CQE.
    pub fn wqe_of(&self, cqe: usize) -> Option<usize> {
        let What::Cqe(named) = &self.events.get(cqe)?.what else { return None };
        self.last_wqe_before(cqe, named, |_| true)
    }

    fn last_wqe_before(&self, end: usize, cqe: &Cqe, is: fn(&Wqe) -> bool) -> Option<usize> {
        let of_this = match (cqe.queue()?, self.queue) {
            (Queue::Send, Queue::Send) | (Queue::Receive, Queue::Receive) => {
                cqe.qpn() == self.number
            }
            (Queue::Receive, Queue::SharedReceive) => true,
            _ => false,
        };
        let index = cqe.wqe_index();
        let it =
            |event: &Event| matches!(&event.what, What::Wqe(wqe) if wqe.index == index && is(wqe));
        of_this.then(|| self.events[..end].iter().rposition(it)).flatten()
    }

    /// Returns the WQE that failed.
    pub fn guilty(&self) -> Option<&Wqe> {
        match &self.events[self.wqe_of(self.failure()?)?].what {
            What::Wqe(wqe) => Some(wqe),
            _ => None,
        }
    }

    /// Returns whether the WQE that failed had other bytes in the ring when it failed than when it
    /// was posted; `None` if not both are in the record.
    pub fn changed(&self) -> Option<bool> {
        let end = self.failure()?;
        let What::Cqe(cqe) = &self.events[end].what else { return None };
        let bytes = |is| match &self.events[self.last_wqe_before(end, cqe, is)?].what {
            What::Wqe(wqe) => Some(&wqe.bytes),
            _ => None,
        };
        Some(bytes(|wqe| wqe.found)? != bytes(|wqe| !wqe.found)?)
    }
}
