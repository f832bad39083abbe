//! Checks of send queues: the WQEs in a ring, against known facts about the queue.
//!
//! [`Facts`] are transport, size of the ring, limits, capabilities. Unknown facts are not checked.
//! A [`Lint`] checks WQEs in the order of posting and reports each [`Finding`]: the WQE, the
//! segment, the byte, a typed [`Defect`] with the expected and the found value, and the cure. A
//! defect is a WQE that no HCA executes as intended. A WQE that an HCA executes, but that is hardly
//! intended, is only [suspicious](Severity::Suspicious).
//!
//! The bytes may come from a ring in memory, a dump or a recording. Any bytes are accepted. It does
//! not panic and does not allocate.
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
//! The driver's feature `lint` makes every send queue check its new WQEs before it rings.

mod data;
mod defect;
mod facts;
mod finding;
mod keys;
mod queue;
mod refused;
mod region;
#[cfg(test)]
mod tests;
mod wqe;

pub use defect::{Defect, Severity};
pub use facts::{Capabilities, Facts, Transport};
pub use finding::{Finding, Segment};
pub use queue::{Blocks, Lint, Starts};
pub use refused::{Side, reversed_key};
pub use region::{Region, changed_key, misused_regions};
