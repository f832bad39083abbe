//! Objects whose effect no test has had executed. Needs the feature `unproven`.
//!
//! - [`Psv`]: the model makes and destroys it, which tests show. But nothing has executed a request
//!   that uses one, see [`wqe::unproven`](crate::wqe::unproven).
//! - [`EventQueue`] and [`MsiVector`]: libmlx5 offers them where a program drives the device by VFIO.
//!   Tests have only seen the kernel's driver refuse them.
//!
//! This module may change in any release.

mod event_queue;
mod psv;

pub use event_queue::{EventQueue, MsiVector};
pub use psv::Psv;
