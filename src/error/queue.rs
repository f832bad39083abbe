//! Errors of taking a queue over.

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
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// `mlx5dv_init_obj` failed.
    #[error("mlx5dv_init_obj failed with errno {0}: the object is not one of libmlx5")]
    InitObj(i32),
    /// `ibv_query_qp` failed.
    #[error("ibv_query_qp failed with errno {0}")]
    QueryQp(i32),
    /// The HCA refused to report the state of a queue that was made by command.
    #[error("the HCA refused to say the queue's state: status {status:#x}, syndrome {syndrome:#x}")]
    QueryRefused {
        /// `MLX5_CMD_STAT_*`.
        status: u8,
        /// The firmware's syndrome.
        syndrome: u32,
    },
    /// The QP is in the wrong state for this queue: a send queue needs RTS, a receive queue INIT or
    /// later.
    #[error("the QP is in state {name}, and this queue needs {needed}")]
    WrongState {
        /// `enum ibv_qp_state` of the QP.
        found: u32,
        /// Name of the state.
        name: &'static str,
        /// The states that are right.
        needed: &'static str,
    },
    /// The QP's transport is not that of the type.
    #[error("the QP's type is {0}, which is not this queue's transport")]
    WrongTransport(u32),
    /// CQEs of packets name the mark of their flow where others name the QP.
    #[error("completions of packets do not name their QP: take its receive queue over as PacketRq")]
    PacketQueue,
    /// The QP has no such queue: its size is 0, or receives come from an SRQ.
    #[error("the QP has no such queue (size 0, or it receives from a shared receive queue)")]
    NoQueue,
    /// The completion reader is of another CQ than the one that this queue completes on.
    #[error("the QP completes on another CQ than the one given")]
    CqMismatch,
    /// The receiver is of another QP.
    #[error("the receiver belongs to another QP")]
    QpMismatch,
    /// The QP takes its receives from another shared receive queue, or from none.
    #[error("the QP does not take its receives from this shared receive queue")]
    SrqMismatch,
    /// The shared receive queue matches tags, and cannot be taken over as an ordinary one.
    #[error("the shared receive queue matches tags: take it over as TmSrq")]
    Tagged,
    /// The shared receive queue matches no tags.
    #[error("the shared receive queue matches no tags: make it by SharedReceiveQueueBuilder::tags")]
    NoTags,
    /// Another tag-matching queue, or one of an XRC domain, completes on the same CQ, or has done
    /// so.
    #[error(
        "a queue that matches tags needs a CQ that no other such queue, nor one of an XRC domain, \
         completes on, or has"
    )]
    TagsElsewhere,
    /// `ibv_query_srq` failed.
    #[error("ibv_query_srq failed with errno {0}")]
    QuerySrq(i32),
    /// The user index of the shared receive queue of an XRC domain is not known, and other such
    /// queues complete, or have completed, on the same CQ.
    #[error(
        "the shared receive queue's user index is not known (the context may not give firmware \
         commands), so it needs a CQ that no other queue of an XRC domain completes on, or has"
    )]
    UnknownIndex,
    /// A shared receive queue of an XRC domain and another queue of receives that complete on the CQ
    /// have the same user index, or may have. A poll that is given one of them could take receives
    /// of the other.
    #[error(
        "the queue and another that completes on the CQ have, or may have, the same user index, and \
         one is a shared receive queue of an XRC domain: give them different indices (user_index), \
         or CQs of their own"
    )]
    IndexTaken,
    /// Too few CQ slots are free for the queue: other queues have reserved them.
    #[error(
        "the CQ of {cqes} entries has {free} free, and the queue needs {needed}: make the CQ \
         larger, or state fewer for this queue or others (SendConfig::requests, \
         ReceiveConfig::receives)"
    )]
    CqFull {
        /// Number of entries of the CQ.
        cqes: u32,
        /// Number of entries that no queue has reserved.
        free: u32,
        /// Number of entries that the queue needs.
        needed: u32,
    },
    /// The key names no connection.
    #[error("the key names no connection: it was removed before")]
    UnknownConnection,
    /// The library reported a geometry that is not a ring: sizes must be powers of two.
    #[error("the library reports an impossible geometry: {0}")]
    Geometry(&'static str),
    /// The HCA checks the CQ's consumer index for overruns.
    #[error("the CQ was not made to ignore overruns, so the HCA has to be told how far it is read")]
    OverrunChecked,
    /// The CQ is collapsed: every CQE overwrites the one before.
    #[error("the CQ is collapsed: a CollapsedCqReader reads it")]
    Collapsed,
    /// The CQ is not collapsed.
    #[error("the CQ is not collapsed: a CqReader reads it")]
    NotCollapsed,
    /// Another send queue completes on a collapsed CQ.
    #[error("a collapsed CQ tells of one send queue, and there is one")]
    CollapsedTaken,
    /// The QP has [streams](crate::verbs::attr::DciStreams): each request needs the completion of its own
    /// that a collapsed CQ overwrites.
    #[error(
        "the QP has streams, whose requests complete in any order, and a collapsed CQ keeps only \
         the last completion: use a CQ that is not collapsed"
    )]
    CollapsedStreams,
    /// The last user of the queue left WQEs outstanding.
    #[error(
        "WQEs of the queue's last owner are outstanding: reset the QP first (an SRQ cannot be)"
    )]
    NotIdle,
    /// The QP was not reset since the queue was last started.
    #[error("the QP was not taken through RESET since this queue was last started")]
    NotReset,
    /// This processor does not support the requested way of copying to BlueFlame registers.
    #[error(transparent)]
    CopyUnavailable(#[from] CopyUnavailable),
    /// The QP has another doorbell register than the queues that it was to share one with.
    #[error(
        "the QP has another doorbell register than the queues before it: make them all in one \
         thread domain"
    )]
    OtherRegister,
    /// Another queue of this process uses the QP's BlueFlame register.
    #[error(
        "the QP's BlueFlame register is used by another queue: use plain doorbells on every queue \
         that shares it (SendConfig::register = RegisterUse::Shared), \
         or give the QP a register of its own (a thread domain)"
    )]
    RegisterShared,
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
