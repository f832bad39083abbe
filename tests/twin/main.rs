//! The same requests through libmlx5 and through this crate, on twin queue pairs, transport by
//! transport and operation by operation: the rings' bytes, the doorbell records, and every store to a
//! register must be equal but for the queue pair's number. RC's own are in `twin_post.rs`.

#[path = "../rig/mod.rs"]
mod rig;
mod shared_receive;

mod operations;
