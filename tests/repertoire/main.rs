//! Every transport, operation and form of completion, end to end on the model: delivery, and the
//! form of each error on both sides. Tests of RC alone are in `rc_traffic.rs` and `rc_errors`.

mod completions;
mod datagram_processes;
mod dynamic;
mod dynamic_made;
mod dynamic_processes;
mod elsewhere;
mod made;
mod memory;
mod memory_processes;
mod migration;
mod migration_processes;
mod mkeys;
mod multicast;
mod operations;
mod owned_senders;
mod owned_streams;
mod owned_unreliable;
#[allow(dead_code, reason = "the errors of RC are provoked elsewhere")]
#[path = "../rc_errors/pair.rs"]
mod pair;
mod partition;
mod placement;
mod prepared;
mod processes;
mod shared_receive;
mod sharing;
mod tags;
mod tags_processes;
mod takeover;
mod times;
mod unread;
mod unreliable;
mod upkeep;
mod upkeep_processes;
mod window_processes;
mod windows;
mod xrc;
mod xrc_made;
