//! What few programs need: queues of other programs, stores that are measured one by one, CQs of one
//! entry, matching of tags, WQEs as bytes.
//!
//! These types stand on those of the other modules, and the methods that take them are found there.
//!
//! | task | names |
//! |---|---|
//! | take over queues, whatever interface made them | [`SendSource`], [`ReceiveSource`], [`SharedReceiveSource`], [`CompletionSource`]; see `docs/takeover.md` |
//! | write code for queues of verbs and of firmware commands | [`Backend`], [`Verbs`], [`Makes`] |
//! | choose where queues lie in memory | [`Placement`], [`QueueAllocator`], [`QueueBuffer`] |
//! | ring by hand | [`DedicatedRegister`], [`Turn`], [`UarMapping`], [`BlueFlameCopy`] |
//! | write requests of any type ahead, in a queue that stays in its table | [`Ahead`], [`Change`] |
//! | measure when the HCA reads and writes | [`CopyProbe`], [`CopyTime`] |
//! | read CQEs without consuming them, or from a CQ of one entry | [`Peeked`], [`CollapsedCqReader`] |
//! | lend queues to a GPU or another engine | [`EngineQueue`], [`EngineHandles`] |
//! | store the consumer index at chosen times | [`Publish`] |
//! | match tags | [`TmSrq`], [`TagConfig`], [`TagReceive`], [`TagHandle`], [`TagCompletion`] and what it consists of, [`TagMatching`], [`TagCapacity`], [`Tag`], [`TagHeader`], [`TagKind`], [`Rendezvous`] |
//! | write and read WQEs as bytes | [`RawWqe`], [`Dump`] |

pub use crate::doorbell::{BlueFlameCopy, CopyUnavailable, UarMapping};
pub use crate::error::{ProbeError, TagError};
pub use crate::ring::completion::{Peeked, Publish};
pub use crate::ring::engine::{EngineHandles, EngineQueue};
pub use crate::ring::poll::{CollapsedCqReader, CopyProbe, CopyTime};
pub use crate::ring::send::{Ahead, DedicatedRegister, Turn};
pub use crate::ring::source::{CompletionSource, ReceiveSource, SendSource, SharedReceiveSource};
pub use crate::ring::tags::{
    IncompleteReason, TagArrival, TagCompletion, TagConfig, TagHandle, TagIncomplete, TagMatch,
    TagReceive, TmSrq,
};
pub use crate::verbs::backend::{Backend, Verbs};
pub use crate::verbs::placement::{Placement, QueueAllocator, QueueBuffer};
pub use crate::verbs::qp::Makes;
pub use crate::verbs::tags::{TagCapacity, TagMatching};
pub use crate::wqe::change::Change;
pub use crate::wqe::dump::Dump;
pub use crate::wqe::raw::RawWqe;
pub use crate::wqe::tags::{Rendezvous, Tag, TagHeader, TagKind};
