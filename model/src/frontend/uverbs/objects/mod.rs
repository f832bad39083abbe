//! The objects that programs make on an open device (`file`), one file per kind.
//!
//! Each turns requests into firmware commands, as `ib_uverbs` and `mlx5_ib` do. `devx` are the objects that
//! programs make by commands of their own.

pub(super) mod advise;
pub(super) mod ah;
pub(super) mod context;
pub(super) mod cq;
pub(super) mod dct;
pub(super) mod device;
pub(super) mod devx;
pub(super) mod dm;
pub(super) mod dmabuf;
pub(super) mod file;
pub(super) mod flow;
pub(super) mod flow_matcher;
pub(super) mod keys;
pub(super) mod map;
pub(super) mod mappings;
pub(super) mod mr;
pub(super) mod multicast;
pub(super) mod mw;
pub(super) mod path;
pub(super) mod pd;
pub(super) mod port;
pub(super) mod qp;
pub(super) mod qp_modify;
pub(super) mod qp_query;
pub(super) mod raw;
pub(super) mod srq;
pub(super) mod uar;
pub(super) mod wq;
pub(super) mod xrcd;
