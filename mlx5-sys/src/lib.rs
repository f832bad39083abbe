//! FFI to libmlx5 and the raw layouts of ConnectX cards.

pub mod cqe;
pub mod doorbell;
pub mod dv;
pub mod ifc;
mod layout;
pub mod wqe;

/// Verbs, from rdma-sys.
#[cfg(feature = "rdma-sys")]
pub mod verbs {
    pub use rdma_sys::*;
}
