//! Ctrl-C: the first ends a measurement and keeps its result, the second ends the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::outcome::{Error, Result};

/// Whether the user has asked for the end. Clones are the same flag.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Has Ctrl-C (SIGINT) set the flag, and end the program if it is set already.
    ///
    /// # Errors
    /// [`Error::Told`] if the kernel refuses the handler.
    pub fn catch() -> Result<Interrupt> {
        let interrupt = Interrupt::default();
        let flag = &interrupt.0;
        // In this order: the first signal finds the flag clear.
        flag::register_conditional_default(SIGINT, Arc::clone(flag))
            .and_then(|_| flag::register(SIGINT, Arc::clone(flag)))
            .map_err(|error| Error::Told(format!("cannot handle Ctrl-C: {error}")))?;
        Ok(interrupt)
    }

    /// Sets the flag, as Ctrl-C does.
    pub fn end(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether it came.
    #[inline(always)]
    #[must_use]
    pub fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
