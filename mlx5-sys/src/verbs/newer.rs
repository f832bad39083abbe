//! Functions of `verbs.h` that are newer than the bindings.

use libc::c_int;

use super::ibv_dm;

crate::load::newer_functions! {
    Verbs;
    "IBVERBS_1.16" fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int;
}
