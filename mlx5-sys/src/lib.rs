//! FFI to libmlx5 and the raw layouts of ConnectX cards.

/// Verbs, from rdma-sys.
#[cfg(feature = "rdma-sys")]
pub mod verbs {
    pub use rdma_sys::*;
}

pub mod ifc;
