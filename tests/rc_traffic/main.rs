//! Traffic of reliable connections end to end on the model, both sides in this process, on the raw layer.

mod consumer_record;
mod prepared;
mod shared;
mod traffic;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The log of stores is one for the process: the tests that take from it take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
