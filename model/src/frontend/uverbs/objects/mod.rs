//! The objects that programs make on an open device, one file per kind.
//!
//! `file` is the open device, with its objects by handle. Each kind implements its trait `Object`, and turns
//! requests into firmware commands, as `ib_uverbs` and `mlx5_ib` do. `devx` are the objects that programs make
//! by commands of their own. `device` and `port` answer what programs ask before they make any. `map` serves
//! `mmap`, and `mappings` keep the device open.

pub(super) mod advise;
pub(super) mod ah;
mod context;
pub(super) mod counters;
pub(super) mod cq;
mod dct;
pub(super) mod device;
pub(super) mod devx;
pub(super) mod dm;
pub(super) mod dmabuf;
pub(super) mod file;
pub(super) mod flow;
pub(super) mod flow_action;
pub(super) mod flow_matcher;
mod keys;
pub(super) mod map;
mod mappings;
pub(super) mod mr;
pub(super) mod multicast;
pub(super) mod mw;
mod path;
pub(super) mod pd;
pub(super) mod port;
pub(super) mod qp;
pub(super) mod qp_modify;
pub(super) mod qp_query;
mod raw;
pub(super) mod srq;
pub(super) mod uar;
pub(super) mod wq;
pub(super) mod xrcd;
