//! Send queues: WQEs are written to the ring (`wqes`, `ring`), noted in private memory (`shadow`),
//! and posted by a doorbell (`commit`). `state` counts what is posted and retired, and grants posts that need
//! no check. `retire` handles CQEs.
//!
//! Which path a post takes. *Clear* means that the WQE ends before `clear`; *words*, that the
//! register takes WQEs word by word; *plain*, that the queue has a record, and the register is not
//! known to be uncached and takes no single WQE: eight bytes ring. *Another* register is known to be
//! uncached, or the queue has no record, or WQEs are copied in another way.
//! `Inline` of a slice is of a size known at run time; `InlineBytes` is usual.
//!
//! | request | register | state | path | rings by |
//! |---|---|---|---|---|
//! | one block, usual or of a size known at run time | words | clear | `post_words`: `encode_block`, `commit_block` | `ring_block` |
//! | usual, one block | plain | clear | `post_plain`: `encode_block`, `commit_plain` | `ring_plain` |
//! | usual, one block | another | clear | `post_plain`: `encode_block`, `commit_other` | `ring_single` |
//! | long | words | clear, before the ring's end | `post_long`: `encode_long`, `commit_long` | `ring_long` |
//! | key change of whole blocks | words | in a run, before the ring's end | `post_in_run` | `ring_kept` |
//! | key change | any | any other | `begin_run`: `encode`, `commit` | `ring` |
//! | any other | any | clear | `post_rest`: `encode_sized`, `commit` | `ring` |
//! | any | any | any other | `post_rest`: grants anew, then one of the above, or a batch of one | |
//!
//! In a [`Batch`], `append` writes and `ring` rings for all: `encode_block` (usual, clear),
//! `encode_long` (long, clear), `encode_sized` (clear), or else `encode`; then `commit`.
//! [`Prepared`] requests are written by `encode`, and fired by `fire` if they are ready, or else by
//! `commit`. Those of [`Ahead`] are written by `encode` and fired by `commit`. A [`Producer`] writes by the same `wqes` into blocks that its sequencer reserves
//! (`shared`).

// First: rustdoc lists the methods of a type in the order of these modules.
pub(super) mod queue;

mod ahead;
mod batch;
mod commit;
mod config;
pub(super) mod cursor;
mod dedicated;
mod dynamic;
mod key_changes;
mod long;
mod open;
mod own;
mod post;
mod prepared;
mod ready;
mod recover;
mod retire;
pub(super) mod ring;
pub(super) mod shadow;
mod shared;
pub(super) mod state;
mod wqes;
mod written;

pub use ahead::Ahead;
pub use batch::Batch;
pub use config::{RegisterUse, SendConfig};
pub use dedicated::{DedicatedRegister, Turn};
#[cfg(test)]
pub(super) use open::SendParts;
pub(crate) use own::Place;
pub use prepared::Prepared;
pub use queue::SendQueue;
pub use retire::SendSide;
pub use shared::{Producer, Retirer};
pub(crate) use state::{Point, SendState};
