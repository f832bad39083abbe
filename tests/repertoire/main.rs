//! Every transport, operation and form of completion, end to end on the model: what arrives, and what
//! each error looks like on both sides. RC's own are in `rc_traffic.rs` and `rc_errors`.

#[path = "../rig/mod.rs"]
mod rig;

mod memory;
mod operations;
mod shared_receive;
mod takeover;
mod unreliable;
mod upkeep;
