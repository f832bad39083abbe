//! The same requests through libmlx5 and through this crate, on twin queue pairs, by transport and
//! operation. The rings' bytes, the doorbell records, and every register store must be equal except
//! for the queue pair's number. Tests of RC alone are in `twin_post.rs`.

use std::sync::{Mutex, MutexGuard, PoisonError};

#[path = "../rig/mod.rs"]
mod rig;

mod bytes;
mod commanded;
mod dynamic;
mod grants;
mod keys;
mod operations;
mod shared_receive;
mod tags;
mod unreliable;
mod xrc;

/// The log of stores is one for the process: who looks at it, and who posts, take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
