//! Decoder for the instruction behind a trapped access: its address, its bytes, and how to step over
//! it.
//!
//! A store to a register page faults. The fault gives the page, but not the bytes. They are in the
//! instruction's source operand, whose value is in the signal frame or in memory.
//!
//! On x86-64 a [`Follower`] also executes the instructions behind a store, up to the next one, so that
//! a copy of several stores needs one fault. On arm64 each store faults.

#[cfg(any(target_arch = "aarch64", test))]
mod a64;
#[cfg(test)]
mod trapping;
#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::fmt;
use std::ops::{Deref, DerefMut};

#[cfg(target_arch = "aarch64")]
pub(super) use a64::frame::{
    Follower, Trapped, counter, decode, load, prepare, resume, stack_pointer,
};
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Follower, Trapped, counter, decode, load, prepare, resume, stack_pointer};

/// Most bytes taken from one instruction: those of its widest store. They are copied often.
const MOST: usize = 64;

/// Bytes in place. The handler must not allocate: it may have interrupted the allocator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    array: [u8; MOST],
    length: usize,
}

impl Bytes {
    /// Copies the first bytes, up to [`MOST`].
    pub fn of(bytes: &[u8]) -> Self {
        let length = bytes.len().min(MOST);
        let mut array = [0; MOST];
        array[..length].copy_from_slice(&bytes[..length]);
        Self { array, length }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.array[..self.length]
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.array[..self.length]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
