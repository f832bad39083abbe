//! Conformance suite for ConnectX devices.
//!
//! Each [`Case`] shows one property of the device and of the driver together: an operation, an error
//! with its status and side, an event, an order, a recovery. Cases use the public interface of
//! [`mlx5`] alone, so they run unchanged on the model, under a kernel in a virtual machine, and on a
//! device.
//!
//! A case is written once, as the program of its active side. The passive side is an [`Agent`]: it
//! makes a queue pair, posts receives, compares memory and reports completions, as the active side
//! asks. It is in the same process, on the same port or another, or in another process
//! ([`serve`]).
//!
//! ```no_run
//! use mlx5_conformance::report::Front;
//! use mlx5_conformance::{Other, Place, Run};
//!
//! let place = Place { device: None, port: 1, gid_index: None };
//! let run = Run::new(place, Front::Kernel, Other::Loopback);
//! let report = run.run(|row| println!("{} {}", row.case, row.result))?;
//! assert!(report.is_good());
//! # Ok::<(), String>(())
//! ```

#![allow(missing_docs, reason = "modules are private; what is public has its page")]

mod agent;
mod bed;
mod bench;
mod case;
mod cases;
pub mod evidence;
mod message;
mod peer;
pub mod report;
mod side;
mod suite;
mod verdict;

pub use agent::{Agent, Place};
pub use case::{Case, Need};
pub use cases::all;
pub use peer::serve;
pub use side::{Spoiled, Terms};
pub use suite::{Other, PATIENCE, Run};
