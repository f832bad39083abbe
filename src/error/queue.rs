//! Errors of taking a queue over.

use std::fmt;

use mlx5_sys::verbs::ibv_qp_state;

use crate::doorbell::CopyUnavailable;
use crate::ib::debug_as_display;

/// Why a queue could not be taken over.
///
/// ```
/// # let rig::Link { pd, qp, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::Error;
/// use mlx5::ring::{CqReader, QueueError, SendConfig, SendQueue};
/// use mlx5::verbs::CompletionQueue;
///
/// // The queue pair completes on another CQ.
/// let cq = CompletionQueue::new(pd.context(), 64)?;
/// let refused = SendQueue::new(&qp, &mut CqReader::new(&cq)?, SendConfig::default());
/// assert!(matches!(refused, Err(Error::Queue(QueueError::CqMismatch))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// `mlx5dv_init_obj` failed.
    InitObj(i32),
    /// `ibv_query_qp` failed.
    QueryQp(i32),
    /// The HCA refused to report the state of a queue that was made by command.
    QueryRefused {
        /// `MLX5_CMD_STAT_*`.
        status: u8,
        /// The firmware's syndrome.
        syndrome: u32,
    },
    /// The QP is in the wrong state for this queue: a send queue needs RTS, a receive queue INIT or
    /// later.
    WrongState {
        /// `enum ibv_qp_state` of the QP.
        found: u32,
        /// Name of the state.
        name: &'static str,
        /// The states that are right.
        needed: &'static str,
    },
    /// The QP's transport is not that of the type.
    WrongTransport(u32),
    /// CQEs of packets name the mark of their flow where others name the QP.
    PacketQueue,
    /// The QP has no such queue: its size is 0, or receives come from an SRQ.
    NoQueue,
    /// The completion reader is of another CQ than the one that this queue completes on.
    CqMismatch,
    /// The receiver is of another QP.
    QpMismatch,
    /// The QP takes its receives from another shared receive queue, or from none.
    SrqMismatch,
    /// The shared receive queue matches tags, and cannot be taken over as an ordinary one.
    Tagged,
    /// The shared receive queue matches no tags.
    NoTags,
    /// Another tag-matching queue, or one of an XRC domain, completes on the same CQ, or has done
    /// so.
    TagsElsewhere,
    /// `ibv_query_srq` failed.
    QuerySrq(i32),
    /// The user index of the shared receive queue of an XRC domain is not known, and other such
    /// queues complete, or have completed, on the same CQ.
    UnknownIndex,
    /// A shared receive queue of an XRC domain and another queue of receives that complete on the CQ
    /// have the same user index, or may have. A poll that is given one of them could take receives
    /// of the other.
    IndexTaken,
    /// Too few CQ slots are free for the queue: other queues have reserved them.
    CqFull {
        /// Number of entries of the CQ.
        cqes: u32,
        /// Number of entries that no queue has reserved.
        free: u32,
        /// Number of entries that the queue needs.
        needed: u32,
    },
    /// The key names no connection.
    UnknownConnection,
    /// The library reported a geometry that is not a ring: sizes must be powers of two.
    Geometry(&'static str),
    /// The HCA checks the CQ's consumer index for overruns.
    OverrunChecked,
    /// The work queue is not a striding one.
    NotStriding,
    /// The work queue is not in the state RDY.
    NotReady,
    /// The CQ is collapsed: every CQE overwrites the one before.
    Collapsed,
    /// The CQ is not collapsed.
    NotCollapsed,
    /// Another send queue completes on a collapsed CQ.
    CollapsedTaken,
    /// The QP has [streams](crate::verbs::attr::DciStreams): each request needs the completion of its own
    /// that a collapsed CQ overwrites.
    CollapsedStreams,
    /// The last user of the queue left WQEs outstanding.
    NotIdle,
    /// The QP was not reset since the queue was last started.
    NotReset,
    /// This processor does not support the requested way of copying to BlueFlame registers.
    CopyUnavailable(CopyUnavailable),
    /// The QP has another doorbell register than the queues that it was to share one with.
    OtherRegister,
    /// Another queue of this process uses the QP's BlueFlame register.
    RegisterShared,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InitObj(value) => write!(
                f,
                "mlx5dv_init_obj failed with errno {value}: the object is not one of libmlx5"
            ),
            Self::QueryQp(value) => write!(f, "ibv_query_qp failed with errno {value}"),
            Self::QueryRefused { status, syndrome } => write!(
                f,
                "the HCA refused to say the queue's state: status {status:#x}, syndrome \
                 {syndrome:#x}"
            ),
            Self::WrongState { name, needed, .. } => {
                write!(f, "the QP is in state {name}, and this queue needs {needed}")
            }
            Self::WrongTransport(value) => {
                write!(f, "the QP's type is {value}, which is not this queue's transport")
            }
            Self::PacketQueue => f.write_str(
                "completions of packets do not name their QP: take its receive queue over as \
                 PacketRq",
            ),
            Self::NoQueue => f.write_str(
                "the QP has no such queue (size 0, or it receives from a shared receive queue)",
            ),
            Self::CqMismatch => f.write_str("the QP completes on another CQ than the one given"),
            Self::QpMismatch => f.write_str("the receiver belongs to another QP"),
            Self::SrqMismatch => {
                f.write_str("the QP does not take its receives from this shared receive queue")
            }
            Self::Tagged => {
                f.write_str("the shared receive queue matches tags: take it over as TmSrq")
            }
            Self::NoTags => f.write_str(
                "the shared receive queue matches no tags: make it by \
                 SharedReceiveQueueBuilder::tags",
            ),
            Self::TagsElsewhere => f.write_str(
                "a queue that matches tags needs a CQ that no other such queue, nor one of an \
                 XRC domain, completes on, or has",
            ),
            Self::QuerySrq(value) => write!(f, "ibv_query_srq failed with errno {value}"),
            Self::UnknownIndex => f.write_str(
                "the shared receive queue's user index is not known (the context may not give \
                 firmware commands), so it needs a CQ that no other queue of an XRC domain \
                 completes on, or has",
            ),
            Self::IndexTaken => f.write_str(
                "the queue and another that completes on the CQ have, or may have, the same \
                 user index, and one is a shared receive queue of an XRC domain: give them \
                 different indices (user_index), or CQs of their own",
            ),
            Self::CqFull { cqes, free, needed } => write!(
                f,
                "the CQ of {cqes} entries has {free} free, and the queue needs {needed}: make \
                 the CQ larger, or state fewer for this queue or others (SendConfig::requests, \
                 ReceiveConfig::receives)"
            ),
            Self::UnknownConnection => {
                f.write_str("the key names no connection: it was removed before")
            }
            Self::Geometry(value) => {
                write!(f, "the library reports an impossible geometry: {value}")
            }
            Self::OverrunChecked => f.write_str(
                "the CQ was not made to ignore overruns, so the HCA has to be told how far it \
                 is read",
            ),
            Self::NotStriding => f.write_str(
                "the work queue (ibv_wq) is not striding: make it by mlx5dv_create_wq with \
                 MLX5DV_WQ_INIT_ATTR_MASK_STRIDING_RQ",
            ),
            Self::NotReady => f.write_str(
                "the work queue (ibv_wq) is not in the state IBV_WQS_RDY: call ibv_modify_wq before",
            ),
            Self::Collapsed => f.write_str("the CQ is collapsed: a CollapsedCqReader reads it"),
            Self::NotCollapsed => f.write_str("the CQ is not collapsed: a CqReader reads it"),
            Self::CollapsedTaken => {
                f.write_str("a collapsed CQ tells of one send queue, and there is one")
            }
            Self::CollapsedStreams => f.write_str(
                "the QP has streams, whose requests complete in any order, and a collapsed CQ \
                 keeps only the last completion: use a CQ that is not collapsed",
            ),
            Self::NotIdle => f.write_str(
                "WQEs of the queue's last owner are outstanding: reset the QP first (an SRQ \
                 cannot be)",
            ),
            Self::NotReset => {
                f.write_str("the QP was not taken through RESET since this queue was last started")
            }
            Self::CopyUnavailable(error) => fmt::Display::fmt(error, f),
            Self::OtherRegister => f.write_str(
                "the QP has another doorbell register than the queues before it: make them all \
                 in one thread domain",
            ),
            Self::RegisterShared => f.write_str(
                "the QP's BlueFlame register is used by another queue: use plain doorbells on \
                 every queue that shares it (SendConfig::register = RegisterUse::Shared), or \
                 give the QP a register of its own (a thread domain)",
            ),
        }
    }
}

impl std::error::Error for QueueError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::CopyUnavailable(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

impl From<CopyUnavailable> for QueueError {
    fn from(error: CopyUnavailable) -> Self {
        Self::CopyUnavailable(error)
    }
}

debug_as_display!(QueueError);

/// Returns the name of a QP state.
pub(crate) const fn state_name(state: u32) -> &'static str {
    match state {
        ibv_qp_state::IBV_QPS_RESET => "RESET",
        ibv_qp_state::IBV_QPS_INIT => "INIT",
        ibv_qp_state::IBV_QPS_RTR => "RTR",
        ibv_qp_state::IBV_QPS_RTS => "RTS",
        ibv_qp_state::IBV_QPS_SQD => "SQD",
        ibv_qp_state::IBV_QPS_SQE => "SQE",
        ibv_qp_state::IBV_QPS_ERR => "ERR",
        _ => "unknown",
    }
}
