//! The names that most programs need, for `use mlx5::prelude::*`.
//!
//! ```
//! use mlx5::prelude::*;
//! # use mlx5_model as _;
//!
//! // An endpoint that is connected to itself, and sends itself a message.
//! let unconnected = Endpoint::builder(&Context::open_first()?).receives(1, 64).build()?;
//! let own = unconnected.connection_data();
//! let mut endpoint = unconnected.connect(&own)?;
//! endpoint.post(7, SendMessage::new(Inline(b"hello")).signaled())?;
//! # let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
//! let (mut sent, mut received) = (false, false);
//! # while !(sent && received) {
//! # assert!(std::time::Instant::now() < deadline);
//! for done in endpoint.poll() {
//!     match done?.outcome {
//!         Outcome::Failed(failure) => return Err(failure.into()),
//!         Outcome::Received(message) => received = message.byte_len == 5,
//!         Outcome::Sent(_) | Outcome::SentUnsignaled { .. } => sent = true,
//!     }
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | task | names |
//! |---|---|
//! | devices, memory, queues | [`Context`], [`ProtectionDomain`], [`MemoryRegion`], [`Access`], [`CompletionQueue`], [`QueuePair`] |
//! | connecting | [`Connection`], [`Listener`], [`ConnectionData`], [`LocalPort`] |
//! | safe layer | [`Endpoint`], [`Receiver`], [`MrSlice`], [`Buffers`], [`Returned`], [`Outcome`] |
//! | raw layer | [`SendQueue`], [`SendConfig`], [`ReceiveQueue`], [`ReceiveConfig`], [`CqReader`], [`Completion`] |
//! | requests | [`SendMessage`], [`RdmaWrite`], [`RdmaRead`], [`Inline`], [`Remote`], [`Sge`] |

pub use crate::connect::{Connection, ConnectionData, Listener, LocalPort};
pub use crate::cqe::Completion;
pub use crate::endpoint::{Buffers, Endpoint, MrSlice, Outcome, Receiver, Returned};
pub use crate::ib::Access;
pub use crate::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
pub use crate::verbs::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair};
pub use crate::wqe::{Inline, RdmaRead, RdmaWrite, Remote, SendMessage, Sge};
