//! Steps to an endpoint that failed, with what they were given.

use core::fmt;

use super::Receiver;
use crate::error::Error;
use crate::ib::{Rc, Transport};
use crate::ring::CqReader;
use crate::verbs::{Init, QueuePair, Rts, State};

/// An endpoint that was not built, with all that it was to be built of.
///
/// It is not an error itself, but `?` converts it to [`mlx5::Error`](crate::Error) and to
/// `Box<dyn Error>`, and drops the rest. For error types of other crates, such as `anyhow::Error`,
/// convert it first: `.map_err(mlx5::Error::from)?`. The memory of receives that were posted comes back by
/// [`Receiver::close`]:
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, MrSlice, NotBuilt, Receiver};
/// # use mlx5::ring::{CqReader, SendConfig};
/// # use mlx5::verbs::{QueuePair, Rts};
/// # fn example(
/// #     qp: QueuePair<mlx5::ib::Rc, Rts>, receiver: Receiver, reader: CqReader,
/// #     free: &mut Vec<MrSlice>,
/// # ) -> mlx5::Result<()> {
/// match Endpoint::new(qp, receiver, reader, SendConfig::default()) {
///     Ok(endpoint) => println!("{} is connected", endpoint.queue_pair().number()),
///     Err(NotBuilt { error, queue_pair, receiver, .. }) => {
///         println!("{error}");
///         let closed = receiver.close(queue_pair)?;
///         free.extend(closed.receives.into_iter().flat_map(|(_, buffers)| buffers));
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct NotBuilt<T: Transport = Rc> {
    /// Why.
    pub error: Error,
    /// The queue pair.
    pub queue_pair: QueuePair<T, Rts>,
    /// The receiver, with its receives.
    pub receiver: Receiver,
    /// The reader of the CQ of sends, or of both.
    pub completions: CqReader,
    /// The reader of the CQ of receives, if it was separate.
    pub receive_completions: Option<CqReader>,
}

/// A receiver that was not closed, with its queue pair. See the example on [`Receiver::close`].
///
/// `?` converts it to [`mlx5::Error`](crate::Error) and to `Box<dyn Error>`, and drops the rest.
pub struct NotClosed<T: Transport = Rc, S: State = Init> {
    /// Why.
    pub error: Error,
    /// The queue pair, in the state that it was in.
    pub queue_pair: QueuePair<T, S>,
    /// The receiver, if it is of another queue pair. Otherwise the queue pair owns the memory, and
    /// frees it when it is destroyed or reset.
    pub receiver: Option<Receiver>,
}

macro_rules! as_its_error {
    ([$($generics:tt)*] $type:ty) => {
        impl<$($generics)*> fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.error, f)
            }
        }

        impl<$($generics)*> fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.error, f)
            }
        }

        impl<$($generics)*> From<$type> for Error {
            /// Drops all but the error.
            fn from(failed: $type) -> Error {
                failed.error
            }
        }

        impl<$($generics)*> From<$type> for Box<dyn std::error::Error> {
            /// Drops all but the error.
            fn from(failed: $type) -> Self {
                failed.error.into()
            }
        }

        impl<$($generics)*> From<$type> for Box<dyn std::error::Error + Send + Sync> {
            /// Drops all but the error.
            fn from(failed: $type) -> Self {
                failed.error.into()
            }
        }
    };
}

as_its_error!([T: Transport] NotBuilt<T>);
as_its_error!([T: Transport, S: State] NotClosed<T, S>);
