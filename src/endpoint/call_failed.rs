//! Calls that failed, with their arguments.

use core::fmt;

use crate::error::Error;

/// An error of a call that takes its arguments by value, with these arguments: queue pairs, readers,
/// and receivers with the memory that is posted to them.
///
/// It is not an error itself, but `?` converts it to [`mlx5::Error`](crate::Error) and to
/// `Box<dyn Error>`, and drops the arguments. For error types of other crates, such as
/// `anyhow::Error`, convert it first: `.map_err(mlx5::Error::from)?`. The memory of receives that
/// were posted comes back by [`Receiver::close`](super::Receiver::close):
///
/// ```no_run
/// # use mlx5::endpoint::{CallFailed, Endpoint, MrSlice, Receiver};
/// # use mlx5::ring::{CqReader, SendConfig};
/// # use mlx5::verbs::{QueuePair, Rts};
/// # fn example(
/// #     qp: QueuePair<mlx5::ib::Rc, Rts>, receiver: Receiver, reader: CqReader,
/// #     free: &mut Vec<MrSlice>,
/// # ) -> mlx5::Result<()> {
/// match Endpoint::new(qp, receiver, reader, SendConfig::default()) {
///     Ok(endpoint) => println!("{} is connected", endpoint.queue_pair().number()),
///     Err(CallFailed { error, arguments: (qp, receiver, _reader) }) => {
///         println!("{error}");
///         let closed = receiver.close(qp)?;
///         free.extend(closed.receives.into_iter().flat_map(|(_, buffers)| buffers));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct CallFailed<A> {
    /// Why.
    pub error: Error,
    /// The arguments. The documentation of the call says whether it changed them.
    pub arguments: A,
}

impl<A> fmt::Debug for CallFailed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<A> fmt::Display for CallFailed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<A> From<CallFailed<A>> for Error {
    /// Drops the arguments.
    fn from(failed: CallFailed<A>) -> Error {
        failed.error
    }
}

impl<A> From<CallFailed<A>> for Box<dyn std::error::Error> {
    /// Drops the arguments.
    fn from(failed: CallFailed<A>) -> Self {
        failed.error.into()
    }
}

impl<A> From<CallFailed<A>> for Box<dyn std::error::Error + Send + Sync> {
    /// Drops the arguments.
    fn from(failed: CallFailed<A>) -> Self {
        failed.error.into()
    }
}
