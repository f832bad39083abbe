//! What queues are made of: objects of verbs, by this crate or by others, and objects that were made
//! by firmware command.
//!
//! A [`SendSource`], [`ReceiveSource`], [`CompletionSource`] or [`SharedReceiveSource`] is looked at
//! once, when a queue is made of it. It hands over a plain structure ([`view`]): where ring, record
//! and register are, its number, its limits, which CQ it completes on. From then on no post and no
//! poll knows what made the object. What is rarely asked of it later, its state and who uses it, goes
//! through its [`QueueOwner`], [`CqOwner`] or [`SrqOwner`].

mod owner;
mod verbs;
mod view;

pub(crate) use super::srq::UserIndex;
pub(crate) use owner::{CqCheck, CqOwner, QueueOwner, SrqOwner};
pub(super) use verbs::{Foreign, QpView, check_cq, member, view_cq};
pub(crate) use view::{
    CompletionView, CqId, CqObject, Member, ObjectId, POSTABLE, ReceiveView, SENDABLE, SendView,
    SharedView, require,
};

use crate::ib::Transport;

/// What a send queue can be made of: a queue pair in RTS.
#[diagnostic::on_unimplemented(
    message = "no send queue can be made of `{Self}`",
    note = "sends are posted in RTS, not before: move the queue pair by `init`, `rtr` and `rts`"
)]
pub trait SendSource: handover::Sends {
    /// Whose requests can be posted on it.
    type Transport: Transport;
}

/// What a receive queue can be made of: a queue pair in INIT or later, of a transport that receives.
#[diagnostic::on_unimplemented(
    message = "no receive queue can be made of `{Self}`",
    note = "receives are posted in INIT or later, on transports that take any"
)]
pub trait ReceiveSource: handover::Receives {
    /// Its transport.
    type Transport: Transport;
}

/// What a reader of completions can be made of: a completion queue.
#[diagnostic::on_unimplemented(message = "no reader of completions can be made of `{Self}`")]
pub trait CompletionSource: handover::Completes {}

/// What [`SharedReceives`](super::SharedReceives) can be made of: a shared receive queue.
#[diagnostic::on_unimplemented(message = "no shared receives can be made of `{Self}`")]
pub trait SharedReceiveSource: handover::Shares {}

/// How sources hand over what they have. Nothing outside of this crate can name these, so nothing can
/// make up a source.
pub(crate) mod handover {
    use std::sync::Arc;

    use super::{
        CompletionView, CqOwner, Member, ObjectId, QueueOwner, ReceiveView, SendView, SharedView,
        SrqOwner,
    };
    use crate::Result;
    use crate::verbs::{Context, DomainId};

    /// Of a send queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory and the register that the view names stay where they
    ///   are, and the HCA uses them for this queue.
    /// - While the send queue is claimed of the owner, only the claimant writes them.
    pub unsafe trait Sends {
        /// What keeps it alive.
        fn owner(&self) -> Arc<dyn QueueOwner>;

        /// Where it is and what it is like, if it is ready to send.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn sends(&self) -> Result<SendView>;
    }

    /// Of a receive queue, its own or a shared one.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory that the view names stays where it is, and the HCA uses
    ///   it for this queue.
    /// - While the receive queue is claimed of the owner, only the claimant writes it.
    pub unsafe trait Receives {
        /// What keeps it alive.
        fn owner(&self) -> Arc<dyn QueueOwner>;

        /// Where it is and what it is like, if it is its own and takes receives.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn receives(&self) -> Result<ReceiveView>;

        /// The domain of the memory that its receives may name; `None` if it has no ring of its own.
        fn domain(&self) -> Option<DomainId>;

        /// By what completions of a shared receive queue name it.
        fn member(&self) -> Member;
    }

    /// Of a completion queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory and the page that the view names stay where they are,
    ///   and the HCA uses them for this queue.
    /// - While the consumer side is claimed of the owner, only the claimant and the HCA access them.
    pub unsafe trait Completes {
        /// What keeps it alive.
        fn owner(&self) -> Arc<dyn CqOwner>;

        /// The device it belongs to.
        fn context(&self) -> &Context;

        /// Where it is and what it is like.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn completions(&self) -> Result<CompletionView>;
    }

    /// Of a shared receive queue.
    ///
    /// # Safety
    /// - As long as the owner exists, the memory that the view names stays where it is, and the HCA uses
    ///   it for this queue.
    /// - While the queue is claimed of the owner, only the claimant writes it.
    pub unsafe trait Shares {
        /// What keeps it alive.
        fn owner(&self) -> Arc<dyn SrqOwner>;

        /// Where it is and what it is like. `order` is that in which the last owner left its WQEs, if
        /// there was one.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        ///
        /// # Safety
        /// The caller has claimed the queue of its [owner](Self::owner): the list of its WQEs is read.
        unsafe fn shared(&self, order: Option<Box<[u16]>>) -> Result<SharedView>;

        /// Its number, by which commands name it.
        ///
        /// # Errors
        /// [`Error::Queue`](crate::Error::Queue).
        fn number(&self) -> Result<u32>;

        /// Which one it is.
        fn id(&self) -> ObjectId;

        /// Whether queue pairs take from it, and not what each request names.
        fn is_plain(&self) -> bool;
    }
}
