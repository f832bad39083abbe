//! Objects and queries by firmware command, end to end on the model: the supported uses, and the
//! form of each error.

mod capabilities;
mod commands;
mod contexts;
mod counters;
mod cq_kinds;
mod dynamic;
mod ends;
mod events;
mod exports;
mod flow_counters;
mod function;
mod keys;
mod made;
mod objects;
#[allow(dead_code, reason = "the errors of RC are provoked elsewhere")]
#[path = "../rc_errors/pair.rs"]
mod pair;
mod pending;
mod queues;
mod recordless;
mod refused;
mod resources;
mod shared;
mod shared_receive;
mod targets;
mod xrc;
