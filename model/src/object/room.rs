//! The memory of this process that the lists of one card's objects may take.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of the lists of a card. The pages of 64 GiB, of 4 KiB each, take an eighth of it.
const MOST: usize = 1 << 30;

/// The bytes that all lists of pages and of keys have, and a limit.
#[derive(Debug)]
pub struct Room {
    used: Arc<AtomicUsize>,
    most: usize,
}

/// The bytes of one list in a [`Room`]. The room has them again when this is dropped.
#[derive(Default)]
pub struct Share {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Room {
    /// Room for so many bytes.
    pub fn of(most: usize) -> Self {
        Self { used: Arc::default(), most }
    }

    /// Takes bytes for a list. `None` if fewer are left.
    pub fn take(&self, bytes: usize) -> Option<Share> {
        let sum = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.most);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok()?;
        Some(Share { used: Arc::clone(&self.used), bytes })
    }
}

impl Default for Room {
    fn default() -> Self {
        Self::of(MOST)
    }
}

impl Share {
    /// Returns the number of bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Debug for Share {
    // An object's text says nothing of other objects.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Share").field(&self.bytes).finish()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
