//! Sources of queues: verbs objects of this crate or of others, and objects made by firmware
//! command.
//!
//! A [`SendSource`], [`ReceiveSource`], [`CompletionSource`] or [`SharedReceiveSource`] is read
//! once, when a queue is made from it. It returns a plain structure ([`view`]): the addresses of
//! ring, record and register, its number, its limits, and its CQ. After that, posts and polls do
//! not depend on the kind of object. Rare later requests, for its state and for claims, go through
//! its [`QueueOwner`], [`CqOwner`] or [`SrqOwner`].
//!
//! What a queue is made of, and who may make it:
//!
//! | object | trait | hands over | owner | claimed |
//! |---|---|---|---|---|
//! | queue pair in RTS, or a send queue by command | [`SendSource`] | `SendView` | [`QueueOwner`] | its send queue, once; its register, if WQEs are copied there |
//! | queue pair in INIT or later, or a receive queue by command | [`ReceiveSource`] | `ReceiveView` | [`QueueOwner`] | its receive queue, once |
//! | shared receive queue | [`SharedReceiveSource`] | `SharedView` | [`SrqOwner`] | once |
//! | completion queue | [`CompletionSource`] | `CompletionView` | [`CqOwner`] | once |
//! | any of libibverbs, by its address (`from_raw`) | – | the same, read by `mlx5dv` | `Foreign` | nothing: the caller promises it |

pub(super) mod claims;
mod owner;
mod raw;
mod retained;
mod titles;
mod view;

pub(crate) use owner::{CqCheck, CqOwner, QueueOwner, SrqOwner, WorkQueue};
pub(super) use raw::Foreign;
pub(crate) use raw::{QpView, check_cq, device_is_gone, member, query, resume, view_cq};
pub(crate) use retained::Retained;
pub(crate) use titles::Titles;
pub(crate) use view::{
    CompletionOrder, CompletionView, CqId, CqObject, DomainId, LEAST_INDEX, Member, ObjectId,
    POSTABLE, ReceiveIndex, ReceiveView, SENDABLE, SendView, SharedView, UserIndex, require,
};

use crate::error::QueueError;
use crate::ib::{Transport, TransportKind};

/// A source of a send queue: a queue pair in RTS.
///
/// ```
/// # use mlx5::{expert::*, ring::*};
/// /// Takes over a queue pair, whatever interface has made it.
/// fn take<S: SendSource>(qp: &S, reader: &mut CqReader) -> mlx5::Result<SendQueue<S::Transport>> {
///     SendQueue::new(qp, reader, SendConfig::default())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "no send queue can be made of `{Self}`",
    note = "sends are posted in RTS, not before: move the queue pair by `init`, `rtr` and `rts`"
)]
pub trait SendSource: handover::Sends {
    /// The transport of the requests that can be posted on it.
    type Transport: Transport;
}

/// A source of a receive queue: a queue pair in INIT or later, of a transport that receives.
///
/// ```
/// # use mlx5::{expert::*, ring::*};
/// /// Takes over a queue pair for short bursts, whatever interface has made it.
/// fn take(qp: &impl ReceiveSource, reader: &mut CqReader) -> mlx5::Result<ReceiveQueue> {
///     ReceiveQueue::new(qp, reader, ReceiveConfig { receives: 16 })
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "no receive queue can be made of `{Self}`",
    note = "receives are posted in INIT or later, on transports that take any"
)]
pub trait ReceiveSource: handover::Receives {
    /// Its transport.
    type Transport: Transport;
}

/// A source of a completion reader: a completion queue.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// use mlx5::expert::CompletionSource;
/// use mlx5::ring::CqReader;
/// use mlx5::verbs::CompletionQueue;
///
/// fn number(cq: &impl CompletionSource) -> mlx5::Result<u32> {
///     Ok(CqReader::new(cq)?.cqn())
/// }
/// // One made by verbs, and one by firmware command.
/// let verbs = number(&CompletionQueue::new(&context, 64)?)?;
/// let command = number(&CompletionQueue::by_command(&context, 64).build()?)?;
/// assert_ne!(verbs, command);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(message = "no reader of completions can be made of `{Self}`")]
pub trait CompletionSource: handover::Completes {}

/// A source of [`Srq`](crate::ring::Srq): a shared receive queue.
///
/// ```
/// # use mlx5::{expert::*, ring::*};
/// /// Takes over an SRQ, whatever interface has made it.
/// fn take(srq: &impl SharedReceiveSource, reader: &mut CqReader) -> mlx5::Result<Srq> {
///     Srq::new(srq, reader, ReceiveConfig::default())
/// }
/// ```
#[diagnostic::on_unimplemented(message = "no shared receives can be made of `{Self}`")]
pub trait SharedReceiveSource: handover::Shares {}

/// The methods of sources. Code outside of this crate cannot name these traits, so it cannot
/// implement a source.
pub(crate) mod handover {
    use core::ptr::NonNull;
    use std::sync::Arc;

    use mlx5_sys::verbs::ibv_context;

    use super::{
        CompletionView, CqOwner, DomainId, Member, ObjectId, QueueOwner, ReceiveView, SendView,
        SharedView, SrqOwner,
    };
    use crate::error::Result;
    use crate::ib::Internal;

    /// Hands over a send queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory and the register that the view names stay where
    ///   they are, and the HCA uses them for this queue.
    /// - While the owner's send queue is claimed, only the claimant writes them.
    pub unsafe trait Sends {
        /// Returns the owner, which keeps the queue alive.
        fn owner(&self, _: Internal) -> Arc<dyn QueueOwner>;

        /// Returns the queue's addresses and parameters, if it is ready to send.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn sends(&self) -> Result<SendView>;
    }

    /// Hands over a receive queue: the queue pair's own, or a shared one.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory that the view names stays where it is, and the HCA
    ///   uses it for this queue.
    /// - While the owner's receive queue is claimed, only the claimant writes it.
    pub unsafe trait Receives {
        /// Returns the owner, which keeps the queue alive.
        fn owner(&self, _: Internal) -> Arc<dyn QueueOwner>;

        /// Returns the queue's addresses and parameters, if it is the queue pair's own and takes
        /// receives.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn receives(&self) -> Result<ReceiveView>;

        /// Returns the domain of the memory that its receives may name. `None` if it has no ring of
        /// its own.
        fn domain(&self) -> Option<DomainId>;

        /// Returns how completions of a shared receive queue name it.
        fn member(&self) -> Member;
    }

    /// Hands over a completion queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory and the page that the view names stay where they
    ///   are, and the HCA uses them for this queue.
    /// - While the owner's consumer side is claimed, only the claimant and the HCA access them.
    pub unsafe trait Completes {
        /// Returns the owner, which keeps the CQ alive.
        fn owner(&self, _: Internal) -> Arc<dyn CqOwner>;

        /// Returns the opened device that it belongs to.
        fn device(&self) -> NonNull<ibv_context>;

        /// Returns the CQ's addresses and parameters.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn completions(&self) -> Result<CompletionView>;
    }

    /// Hands over a shared receive queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory that the view names stays where it is, and the HCA
    ///   uses it for this queue.
    /// - While the owner's queue is claimed, only the claimant writes it.
    pub unsafe trait Shares {
        /// Returns the owner, which keeps the queue alive.
        fn owner(&self, _: Internal) -> Arc<dyn SrqOwner>;

        /// Returns the opened device that it belongs to.
        fn device(&self) -> NonNull<ibv_context>;

        /// Returns the queue's addresses and parameters. `order` is the order in which the last
        /// claimant left its WQEs, if there was one.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        ///
        /// # Safety
        /// The caller has claimed the queue from its [owner](Self::owner), so nothing writes the
        /// list of WQEs, which is read.
        unsafe fn shared(&self, order: Option<Box<[u16]>>) -> Result<SharedView>;

        /// Returns its number, by which commands name it.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn number(&self) -> Result<u32>;

        /// Returns the identity of the object.
        fn id(&self) -> ObjectId;

        /// Returns whether queue pairs take from it directly, and not the receive that each request
        /// names.
        fn is_plain(&self) -> bool;
    }
}

/// Fails for packets: their CQEs name the mark of a flow, so polls of several queues could take a
/// CQE for one of another queue.
pub(in crate::ring) fn require_named<T: Transport>() -> Result<(), QueueError> {
    match T::TRANSPORT_KIND {
        TransportKind::RawPacket => Err(QueueError::PacketQueue),
        _ => Ok(()),
    }
}
