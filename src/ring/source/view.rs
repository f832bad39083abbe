//! What sources hand over: plain structures.

use core::ptr::NonNull;

use mlx5_sys::verbs::{ibv_cq, ibv_qp_state};

use crate::ring::QueueError;
use crate::ring::error::state_name;
use crate::ring::srq::UserIndex;
use crate::verbs::CqeCompression;
use crate::wqe::Limits;

/// The states in which receives may be posted: all but RESET.
pub(crate) const POSTABLE: [u32; 6] = [
    ibv_qp_state::IBV_QPS_INIT,
    ibv_qp_state::IBV_QPS_RTR,
    ibv_qp_state::IBV_QPS_RTS,
    ibv_qp_state::IBV_QPS_SQD,
    ibv_qp_state::IBV_QPS_SQE,
    ibv_qp_state::IBV_QPS_ERR,
];

/// The states in which sends may be posted.
pub(crate) const SENDABLE: [u32; 1] = [ibv_qp_state::IBV_QPS_RTS];

/// Which CQ a queue completes on: the address of what stands for it, the verbs object or this crate's
/// owner of one that was made by command. No two that live have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqId(usize);

impl CqId {
    /// No CQ's.
    pub(crate) const NONE: Self = Self(0);

    /// Of a CQ of verbs.
    pub(crate) fn of(cq: *mut ibv_cq) -> Self {
        Self(cq.addr())
    }

    /// Of the CQ that the object at this address stands for.
    pub(crate) fn at<O>(owner: *const O) -> Self {
        Self(owner.addr())
    }
}

/// Which queue pair or shared receive queue: as [`CqId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId(usize);

impl ObjectId {
    /// Of the object at this address.
    pub(crate) fn at<O>(object: *const O) -> Self {
        Self(object.addr())
    }
}

/// A send queue.
pub struct SendView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// Size of the ring in 64-byte blocks.
    pub(crate) blocks: u32,
    /// The record of the pair: two words.
    pub(crate) record: NonNull<u32>,
    /// Its doorbell register.
    pub(crate) register: NonNull<u8>,
    /// Size of each of the register's BlueFlame buffers; 0 where it has none.
    pub(crate) half: usize,
    /// Whether the card does not look at the record's send word: the register says what is posted.
    pub(crate) recordless: bool,
    /// Number of the queue pair.
    pub(crate) number: u32,
    /// What a request may be.
    pub(crate) limits: Limits,
    /// Requests that it was made for.
    pub(crate) max_wr: u32,
    /// Whether every request is signaled.
    pub(crate) signal_all: bool,
    /// Where its completions go.
    pub(crate) cq: CqId,
}

/// A receive queue.
pub struct ReceiveView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// WQEs of the ring.
    pub(crate) entries: u32,
    /// Bytes of a WQE.
    pub(crate) stride: u32,
    /// The record of the pair: two words.
    pub(crate) record: NonNull<u32>,
    /// Number of the queue pair.
    pub(crate) number: u32,
    /// Where its completions go.
    pub(crate) cq: CqId,
}

/// A queue pair as one that takes from a shared receive queue.
pub struct Member {
    /// Its number.
    pub(crate) number: u32,
    /// Where its receives complete.
    pub(crate) cq: CqId,
    /// What it takes from; its own receive queue, where there is none.
    pub(crate) srq: Option<ObjectId>,
}

/// A completion queue.
pub struct CompletionView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// CQEs of the ring.
    pub(crate) cqe_count: u32,
    /// Bytes of a CQE: 64 or 128.
    pub(crate) cqe_size: u32,
    /// Its record: two words.
    pub(crate) record: NonNull<u32>,
    /// The UAR page that it is armed by.
    pub(crate) page: NonNull<u8>,
    /// Its number.
    pub(crate) cqn: u32,
    /// Which one it is.
    pub(crate) id: CqId,
    /// The CQ of libibverbs, where it is one.
    pub(crate) raw: Option<NonNull<ibv_cq>>,
    /// What compressed CQEs have.
    pub(crate) compression: CqeCompression,
    /// Whether they are of the enhanced layout.
    pub(crate) enhanced: bool,
    /// Whether every CQE is written to the first slot.
    pub(crate) collapsed: bool,
}

/// A shared receive queue.
pub struct SharedView {
    /// Its WQEs.
    pub(crate) buffer: NonNull<u8>,
    /// How many there are.
    pub(crate) wqes: u32,
    /// Bytes of a WQE.
    pub(crate) stride: u32,
    /// The order in which the card takes them.
    pub(crate) order: Box<[u16]>,
    /// Its record: one word.
    pub(crate) record: NonNull<u32>,
    /// Whether the card goes round the WQEs, instead of by their list.
    pub(crate) cyclic: bool,
    /// What CQEs call it, if it is one of an XRC domain; what this crate does, if it matches tags.
    pub(crate) index: Option<UserIndex>,
    /// Where its receives complete, if it says so and not its queue pairs.
    pub(crate) cq: Option<CqId>,
    /// Which one it is.
    pub(crate) id: ObjectId,
    /// Its number, for people; 0 where it is not known.
    pub(crate) number: u32,
}

/// Fails unless `state` is one of `states` (`enum ibv_qp_state`).
pub(crate) fn require(state: u32, states: &[u32], needed: &'static str) -> Result<(), QueueError> {
    if states.contains(&state) {
        return Ok(());
    }
    Err(QueueError::WrongState { found: state, name: state_name(state), needed })
}
