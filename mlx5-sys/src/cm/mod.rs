//! `rdma_cma.h`: librdmacm. With the feature `cm`.
//!
//! The bindings have the shape of rdma-sys 0.3.0, like those of [`verbs`](crate::verbs), and with the
//! feature `rdma-sys` they are that crate's. Types of libibverbs are those of [`verbs`](crate::verbs)
//! either way. Tests compare all types and values.
//!
//! Besides there is what rdma-sys lacks: the options of `rdma_set_option`, the limits of the depths
//! and the Q_Key of datagrams.

mod supplement;
mod types;

#[cfg(not(feature = "rdma-sys"))]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    unknown_lints,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
mod generated {
    use super::types::*;
    use crate::verbs::*;
    use libc::{sockaddr, socklen_t};

    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/cm.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("../bindings/cm.rs");
}

// `pub use` of each name that the build script finds in the header, from `generated` or `rdma_sys`.
#[cfg(feature = "bindgen")]
include!(concat!(env!("OUT_DIR"), "/cm_names.rs"));
#[cfg(not(feature = "bindgen"))]
pub use generated::*;
pub use supplement::*;
pub use types::*;

#[cfg(all(test, feature = "bindgen"))]
mod check;
#[cfg(all(test, feature = "bindgen"))]
mod same;
