//! Plain structures that sources return.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use mlx5_sys::verbs::{ibv_cq, ibv_qp_state};

use crate::error::{QueueError, state_name};
use crate::ib::CqeCompression;
use crate::ring::UarMapping;
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

/// The reader that a queue completes on: a serial number, never reused. Each reader of a CQ has its
/// own, also where one CQ is taken over several times: CQ slots are counted by the reader, so a
/// queue that was taken over with an earlier reader is not a queue of a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqId(u64);

impl CqId {
    /// Not the number of any reader.
    pub(crate) const NONE: Self = Self(0);

    /// Returns the number of a new reader.
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The CQ object that a queue was created with: the address of the verbs object, or of this crate's
/// owner of a CQ that was created by command.
///
/// An address is unique only among objects that exist at the same time. So two are compared only
/// while both objects exist: when a queue is taken over, whose owner keeps its CQ alive, with a
/// reader, which keeps its own CQ alive. From then on the queue knows the reader by [`CqId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqObject(usize);

impl CqObject {
    /// Returns the address of a CQ of verbs.
    pub(crate) fn of(cq: *mut ibv_cq) -> Self {
        Self(cq.addr())
    }

    /// Returns the address of the object that stands for a CQ.
    pub(crate) fn at<O>(owner: *const O) -> Self {
        Self(owner.addr())
    }
}

/// A queue pair or shared receive queue: its address. Compared, as [`CqObject`] is, only while both
/// objects exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectId(usize);

impl ObjectId {
    /// Returns the id of the object at this address.
    pub(crate) fn at<O>(object: *const O) -> Self {
        Self(object.addr())
    }
}

/// Tells protection domains apart, across all devices. No two that live have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainId(usize);

impl DomainId {
    /// The id of no domain.
    pub(crate) const NONE: DomainId = DomainId(0);

    /// The id of a domain that `object` stands for, which lives as long and does not move.
    pub(crate) fn at<T>(object: *const T) -> DomainId {
        DomainId(object.addr())
    }
}

/// The least user index of a shared receive queue that is created by command, by default. libmlx5
/// uses indices from the lower end.
pub(crate) const LEAST_INDEX: u32 = 0x80_0000;

/// The user index in the CQEs of a queue of receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveIndex {
    /// The queue was created by command, with this index.
    Given(u32),
    /// libmlx5 chose it: less than [`LEAST_INDEX`], and not that of another queue of libmlx5.
    Library,
}

/// The order in which the requests of a send queue complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompletionOrder {
    /// In the order of posting: a completion reports all earlier requests, too.
    Posting,
    /// In any order, since no public source promises one across the streams of an initiator: a
    /// completion reports its own request alone, and every request is signaled.
    Any,
}

/// The view of a send queue.
pub struct SendView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// Size of the ring in 64-byte blocks.
    pub(crate) blocks: u32,
    /// The record of the pair: two words.
    pub(crate) record: NonNull<u32>,
    /// Its doorbell register.
    pub(crate) register: NonNull<u8>,
    /// Size of each of the register's BlueFlame buffers; 0 if it has none.
    pub(crate) half: usize,
    /// Memory type of the register, as far as it is known.
    pub(crate) memory: UarMapping,
    /// Whether the HCA does not read the record's send word: the register tells it what is posted.
    pub(crate) recordless: bool,
    /// Number of the queue pair.
    pub(crate) number: u32,
    /// Limits of a request.
    pub(crate) limits: Limits,
    /// Maximum number of requests, as given when the QP was created.
    pub(crate) max_wr: u32,
    /// Whether every request is signaled.
    pub(crate) signal_all: bool,
    /// The order in which requests complete.
    pub(crate) order: CompletionOrder,
    /// The CQ that it completes on.
    pub(crate) cq: CqObject,
    /// Receives of the pair's own receive queue, if that completes on the same CQ.
    pub(crate) partner: u32,
}

/// The view of a receive queue.
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
    /// The CQ that it completes on.
    pub(crate) cq: CqObject,
    /// The user index in its CQEs.
    pub(crate) index: ReceiveIndex,
    /// Requests of the pair's send queue, if that completes on the same CQ.
    pub(crate) partner: u32,
}

/// A queue pair as a member of a shared receive queue.
pub struct Member {
    /// Its number.
    pub(crate) number: u32,
    /// The CQ that its receives complete on.
    pub(crate) cq: CqObject,
    /// The user index in its CQEs.
    pub(crate) index: ReceiveIndex,
    /// The shared receive queue that it takes from. `None` if it takes from its own receive queue.
    pub(crate) srq: Option<ObjectId>,
}

/// The view of a completion queue.
pub struct CompletionView {
    /// Its ring.
    pub(crate) buffer: NonNull<u8>,
    /// CQEs of the ring.
    pub(crate) cqe_count: u32,
    /// Bytes of a CQE: 64 or 128.
    pub(crate) cqe_size: u32,
    /// Its record: two words.
    pub(crate) record: NonNull<u32>,
    /// The UAR page with its arm register.
    pub(crate) page: NonNull<u8>,
    /// Its number.
    pub(crate) cqn: u32,
    /// The object, for comparison with those of queues.
    pub(crate) object: CqObject,
    /// The CQ of libibverbs, if it is one.
    pub(crate) raw: Option<NonNull<ibv_cq>>,
    /// Format of mini CQEs.
    pub(crate) compression: CqeCompression,
    /// Whether compressed CQEs have the enhanced layout.
    pub(crate) enhanced: bool,
    /// Whether every CQE is written to the first slot.
    pub(crate) collapsed: bool,
}

/// The view of a shared receive queue.
pub struct SharedView {
    /// Its WQEs.
    pub(crate) buffer: NonNull<u8>,
    /// How many there are.
    pub(crate) wqes: u32,
    /// Bytes of a WQE.
    pub(crate) stride: u32,
    /// The order in which the HCA takes them.
    pub(crate) order: Box<[u16]>,
    /// Its record: one word.
    pub(crate) record: NonNull<u32>,
    /// Whether the HCA takes the WQEs in cyclic order, not by their list.
    pub(crate) cyclic: bool,
    /// How CQEs name it if it is of an XRC domain; this crate's id of its list if it matches tags.
    pub(crate) index: Option<UserIndex>,
    /// The chooser of that index: this crate or the program.
    pub(crate) origin: ReceiveIndex,
    /// The CQ of its receives, if it has one itself and its queue pairs do not determine it.
    pub(crate) cq: Option<CqObject>,
    /// Identity of the object.
    pub(crate) id: ObjectId,
    /// Its number, only for display; 0 if it is not known.
    pub(crate) number: u32,
}

/// Fails unless `state` is one of `states` (`enum ibv_qp_state`).
pub(crate) fn require(state: u32, states: &[u32], needed: &'static str) -> Result<(), QueueError> {
    if states.contains(&state) {
        return Ok(());
    }
    Err(QueueError::WrongState { found: state, name: state_name(state), needed })
}

/// How CQEs name a shared receive queue of an XRC domain, or one that matches tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserIndex {
    /// By this user index.
    Known(u32),
    /// The index is not known. No other queue of an XRC domain completes on its CQ.
    Alone,
    /// The index is not known. The queue matches tags by the list with this id. No other such list
    /// is on its CQ.
    Tagged(u64),
}
