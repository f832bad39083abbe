//! Ctrl-C: the first ends a measurement and keeps its result, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::low_level;

use crate::outcome::{Error, Result};

/// Time after the first signal in which further ones count as the same Ctrl-C, in nanoseconds.
/// `timeout -s INT` sends two: to the program, and to its process group.
const SAME: u64 = 200_000_000;

/// The number of `Signals::first` while no signal came.
const NONE: u64 = u64::MAX;

/// Whether the user has asked for the end. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Signals>);

#[derive(Debug)]
struct Signals {
    /// Whether the measurement ends.
    came: AtomicBool,
    /// The time of the first signal, in nanoseconds of the monotonic clock.
    first: AtomicU64,
}

impl Default for Signals {
    fn default() -> Signals {
        Signals { came: AtomicBool::new(false), first: AtomicU64::new(NONE) }
    }
}

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// The measurement ends.
    Measurement,
    /// The program ends at once.
    Program,
}

impl Signals {
    /// Notes a signal at a time of the monotonic clock. Async-signal-safe.
    fn signal(&self, now: u64) -> Asked {
        self.came.store(true, Ordering::Relaxed);
        match self.first.compare_exchange(NONE, now, Ordering::Relaxed, Ordering::Relaxed) {
            Err(first) if now.saturating_sub(first) >= SAME => Asked::Program,
            _ => Asked::Measurement,
        }
    }
}

/// Returns the time of the monotonic clock in nanoseconds. Async-signal-safe.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec of this function, which the kernel may write to.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

impl Interrupt {
    /// Has Ctrl-C (SIGINT) set the flag, and a later Ctrl-C end the program.
    ///
    /// # Errors
    /// [`Error::Told`] if the kernel refuses the handler.
    pub fn catch() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let signals = Arc::clone(&interrupt.0);
        let handler = move || {
            if signals.signal(now()) == Asked::Program {
                // It ends the process, so it returns only if that fails.
                let _ = low_level::emulate_default_handler(SIGINT);
            }
        };
        // SAFETY: the handler stores to atomics, reads the clock and calls
        // `emulate_default_handler`: all of these are async-signal-safe, and none panics.
        unsafe { low_level::register(SIGINT, handler) }
            .map_err(|error| Error::Told(format!("cannot handle Ctrl-C: {error}")))?;
        Ok(interrupt)
    }

    /// Sets the flag, as Ctrl-C does.
    pub fn end(&self) {
        self.0.came.store(true, Ordering::Relaxed);
    }

    /// Returns whether it came.
    #[inline(always)]
    #[must_use]
    pub fn came(&self) -> bool {
        self.0.came.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_signal_ends_the_program_only_some_time_after_the_first() {
        let signals = Signals::default();
        let at = 1_000_000_000;
        assert_eq!(signals.signal(at), Asked::Measurement);
        // The clock of another processor may be a little behind.
        for soon in [at - 1, at, at + 1_000_000, at + SAME - 1] {
            assert_eq!(signals.signal(soon), Asked::Measurement, "{soon}");
        }
        assert_eq!(signals.signal(at + SAME), Asked::Program);
    }

    #[test]
    fn the_first_signal_after_another_reason_to_end_does_not_end_the_program() {
        let interrupt = Interrupt::default();
        interrupt.end();
        assert!(interrupt.came());
        assert_eq!(interrupt.0.signal(5), Asked::Measurement);
    }
}
