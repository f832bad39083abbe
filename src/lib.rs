//! Userspace data path for NVIDIA ConnectX HCAs.
//!
//! libibverbs makes the queues and moves them to RTS ([`verbs`]); two sides tell each other where
//! to send ([`connect`]); from then on the program writes WQEs ([`wqe`]) into the send queue
//! itself, rings the HCA itself and reads CQEs ([`cqe`]) itself ([`ring`]). The safe layer above
//! ([`endpoint`]) owns the memory of requests. What verbs cannot ask or make is asked and made by
//! firmware command ([`devx`]). All of them speak in the plain values
//! of [`ib`]. [`diag`] shows queue entries as text, explains the HCA's codes and checks WQEs.
//! [`timing`] shows where cycles go. The feature `unproven` adds requests that no test has had
//! executed, in the modules `wqe::unproven` and `devx::unproven`.

pub mod connect;
pub mod cqe;
pub mod devx;
mod doorbell;
pub mod endpoint;
mod error;
pub mod ib;
pub mod ring;
pub mod verbs;
mod watch;
pub mod wqe;

pub use error::{Error, Result};
pub use mlx5_diag as diag;
#[cfg(feature = "flight-recorder")]
pub use watch::flight;
pub use watch::timing;

/// Version of the rdma-core whose headers this build used, such as `44.0`.
///
/// The libmlx5 that the program loads at run time may be of a newer one.
pub const RDMA_CORE_VERSION: &str = env!("MLX5_RDMA_CORE");

/// The README's example, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
