//! Checks of send queues: WQEs as they lie in a ring, against what is known of the queue.
//!
//! [`Facts`] say what is known: transport, size of the ring, limits, capabilities. What is not
//! known is not checked. A [`Lint`] goes over WQEs in the order of posting and reports each
//! [`Finding`]: which WQE, which segment, at which byte, a typed [`Defect`] with what was expected
//! and what was found, and the cure. A defect is what no HCA executes as it was meant; what an HCA
//! executes, and nobody means, is only [suspicious](Severity::Suspicious).
//!
//! The bytes come from anywhere: a ring in memory, a dump, a recording. Any bytes are taken,
//! nothing panics, nothing allocates. `facts` is what is known, `defect` the table of all that is
//! looked for, `queue` what concerns one WQE after the other, `wqe`, `data` and `keys` the segments
//! of one.
//!
//! ```
//! use mlx5_diag::lint::{Facts, Lint, Transport};
//!
//! // A NOP that says it has no segment at all.
//! let mut ring = vec![0; 64 * 16];
//! ring[..8].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x42, 0]);
//! let facts = Facts { qpn: Some(0x42), ..Facts::new(Transport::Rc) };
//! let mut found = Vec::new();
//! Lint::at(facts, 0).ring(&ring, Some(1), &mut |finding| found.push(finding));
//! assert_eq!(found.len(), 1);
//! assert_eq!(found[0].defect.name(), "size-zero");
//! ```
//!
//! The driver's feature `lint` has every send queue go over what was written before it rings.

mod data;
mod defect;
mod facts;
mod finding;
mod keys;
mod queue;
#[cfg(test)]
mod tests;
mod wqe;

pub use defect::{Defect, Severity};
pub use facts::{Capabilities, Facts, Transport};
pub use finding::{Finding, Segment};
pub use queue::{Blocks, Lint, Starts};
