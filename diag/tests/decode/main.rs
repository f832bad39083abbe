//! The decoders on dumps from public threads, and on random input.

mod apart;
mod dumps;
mod formats;
mod installation;
mod kernel;
mod pasted;
mod public;
mod random;
#[path = "../../../rig/src/random.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod rng;
mod unread;
