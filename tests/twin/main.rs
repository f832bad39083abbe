//! The same requests through libmlx5 and through this crate, on twin queue pairs, by transport and
//! operation. The rings' bytes, the doorbell records, and every register store must be equal except
//! for the queue pair's number. And the same CQEs through both polls.

mod bytes;
mod commanded;
mod compressed;
mod dynamic;
mod grants;
mod keys;
mod operations;
mod poll;
mod post;
mod shared_receive;
mod tags;
mod unreliable;
mod xrc;

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use mlx5_model::Mode;
use rig::Rig;

/// The log of stores is one for the process: who looks at it, and who posts, take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the model, whose registers are noticed as `mode` says. libmlx5 prints no error CQEs.
fn open(mode: Mode) -> Rig {
    static QUIET: LazyLock<()> = LazyLock::new(|| {
        // SAFETY: every test comes through here before it calls anything that reads the environment.
        unsafe { std::env::set_var("MLX5_DEBUG_FILE", "/dev/null") };
    });
    LazyLock::force(&QUIET);
    Rig::new(mode)
}
