//! The two ways in which prepared requests hold their send queue: by value or by mutable reference.

use super::SendQueue;
use crate::ib::Transport;

mod sealed {
    use super::{SendQueue, Transport};

    /// Gives the same queue in every call.
    pub trait Sealed<T: Transport> {
        fn queue(&self) -> &SendQueue<T>;
        fn queue_mut(&mut self) -> &mut SendQueue<T>;
    }
}
pub(super) use sealed::Sealed;

/// A send queue held by value or by mutable reference: `SendQueue<T>` or `&mut SendQueue<T>`.
///
/// Sealed. [`Prepared`](super::Prepared) keeps pointers into the queue, so each access must give
/// the same queue. `BorrowMut` and `DerefMut` of other types do not promise that.
///
/// ```compile_fail,E0277
/// # use core::borrow::{Borrow, BorrowMut};
/// # use mlx5::{ring::{*, variable::*}, wqe::*};
/// struct Alternating { queues: [SendQueue; 2], calls: usize }
/// impl Borrow<SendQueue> for Alternating {
///     fn borrow(&self) -> &SendQueue { &self.queues[0] }
/// }
/// impl BorrowMut<SendQueue> for Alternating {
///     fn borrow_mut(&mut self) -> &mut SendQueue {
///         self.calls += 1;
///         &mut self.queues[self.calls % 2]
///     }
/// }
/// fn prepare(queues: Alternating) {
///     let prepared = Prepared::<_, Form<RdmaWrite<InlineBytes<8>>, Bytes>>::new(queues);
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not hold a send queue of this transport",
    note = "give the `SendQueue` itself, or `&mut SendQueue`"
)]
pub trait HasSendQueue<T: Transport>: Sealed<T> {}

impl<T: Transport> HasSendQueue<T> for SendQueue<T> {}
impl<T: Transport> HasSendQueue<T> for &mut SendQueue<T> {}

impl<T: Transport> Sealed<T> for SendQueue<T> {
    #[inline(always)]
    fn queue(&self) -> &SendQueue<T> {
        self
    }

    #[inline(always)]
    fn queue_mut(&mut self) -> &mut SendQueue<T> {
        self
    }
}

impl<T: Transport> Sealed<T> for &mut SendQueue<T> {
    #[inline(always)]
    fn queue(&self) -> &SendQueue<T> {
        self
    }

    #[inline(always)]
    fn queue_mut(&mut self) -> &mut SendQueue<T> {
        self
    }
}
