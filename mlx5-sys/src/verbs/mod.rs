//! `verbs.h`: libibverbs.
//!
//! With the feature `rdma-sys` (the default) everything here is that crate's. Without it the build
//! script makes the same bindings itself, in the same shape, so a program compiles with either:
//! sets of bits are structures (`ibv_access_flags::IBV_ACCESS_LOCAL_WRITE`), alternatives are
//! modules (`ibv_qp_state::IBV_QPS_RTS`, of type `ibv_qp_state::Type`), `ibv_event_type` is a Rust
//! enum, unions and the structures with unions in them carry rdma-sys' names
//! (`ibv_send_wr::wr.rdma`), and inline functions that return a pointer return an `Option` that is
//! `None` where the provider lacks the function. Not made again without rdma-sys: librdmacm
//! (`rdma_*`) and `ibv_opcode`.
//!
//! Either way there is besides what rdma-sys lacks: [`ibv_query_gid_ex`], [`ibv_query_gid_table`],
//! [`ibv_flow_label_to_udp_sport`], `IBV_LINK_LAYER_*` and `IBV_QPF_GRH_REQUIRED`.

#[cfg(not(feature = "rdma-sys"))]
mod inline;
mod supplement;
#[cfg(not(feature = "rdma-sys"))]
mod types;

#[cfg(not(feature = "rdma-sys"))]
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unsafe_op_in_unsafe_fn,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
mod generated {
    use super::types::*;
    #[allow(unused_imports)]
    use libc::*;

    include!(concat!(env!("OUT_DIR"), "/verbs.rs"));
}

#[cfg(not(feature = "rdma-sys"))]
pub use {generated::*, inline::*, types::*};

#[cfg(feature = "rdma-sys")]
pub use rdma_sys::*;
pub use supplement::*;

#[cfg(test)]
mod check;
