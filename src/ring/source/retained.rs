//! Memory that the HCA may access after the queue that it was posted to was dropped.

use core::mem::{ManuallyDrop, take};
use std::sync::{Mutex, PoisonError};

/// The memory of requests that were outstanding when their queue was dropped.
///
/// Deregistering does not keep the HCA away: the WQEs still name an address and a key, and a later
/// region may get both. So the object whose rings hold the WQEs owns the memory. It is leaked,
/// unless the object [frees](Self::free) it.
#[derive(Default)]
pub(crate) struct Retained {
    memory: Mutex<Vec<ManuallyDrop<Box<dyn Send>>>>,
}

impl Retained {
    /// Adds memory of requests.
    pub(crate) fn add(&self, memory: Box<dyn Send>) {
        let mut all = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(ManuallyDrop::new(memory));
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The object was destroyed, or reset, since the last [`add`](Self::add).
    pub(crate) unsafe fn free(&self) {
        let memory = take(&mut *self.memory.lock().unwrap_or_else(PoisonError::into_inner));
        // After the lock: a buffer of the program may run any code here.
        memory.into_iter().map(ManuallyDrop::into_inner).for_each(drop);
    }
}

#[cfg(test)]
mod tests;
