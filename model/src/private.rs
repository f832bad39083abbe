//! The model's own descriptors. On a machine with a real device the program would not have them, so
//! the model keeps the program from closing or replacing them.
//!
//! A program that closes every descriptor it does not know, as daemons do, would otherwise close
//! the sockets between devices, and its next file would get the number.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsRawFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of descriptors that can be distinguished. Higher ones are not protected.
const LIMIT: usize = 1 << 16;

/// A bit for each descriptor.
static PRIVATE: [AtomicU64; LIMIT / 64] = [const { AtomicU64::new(0) }; LIMIT / 64];

fn place(fd: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((PRIVATE.get(fd / 64)?, 1 << (fd % 64)))
}

/// Whether a descriptor is the model's own. One load.
pub(crate) fn is_private(fd: RawFd) -> bool {
    place(fd).is_some_and(|(word, bit)| word.load(Ordering::Acquire) & bit != 0)
}

/// Makes a descriptor the model's own, until [`release`].
pub(crate) fn claim(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// The descriptor is about to be closed by the model.
pub(crate) fn release(fd: RawFd) {
    if let Some((word, bit)) = place(fd) {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// The lowest private descriptor from this one on.
pub(crate) fn next(from: RawFd) -> Option<RawFd> {
    let mut fd = from.max(0);
    while (fd as usize) < LIMIT {
        // Most words have none.
        if PRIVATE[fd as usize / 64].load(Ordering::Acquire) == 0 {
            fd = (fd / 64 + 1) * 64;
        } else if is_private(fd) {
            return Some(fd);
        } else {
            fd += 1;
        }
    }
    None
}

/// The owner of a private descriptor.
#[derive(Debug)]
pub(crate) struct Private<T: IntoRawFd + AsRawFd>(ManuallyDrop<T>);

impl<T: IntoRawFd + AsRawFd> Private<T> {
    /// Makes the descriptor of something private.
    pub fn new(owner: T) -> Self {
        claim(owner.as_raw_fd());
        Self(ManuallyDrop::new(owner))
    }
}

impl<T: IntoRawFd + AsRawFd> Deref for Private<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: IntoRawFd + AsRawFd> Drop for Private<T> {
    fn drop(&mut self) {
        release(self.0.as_raw_fd());
        // SAFETY: the value is dropped here alone, once, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.0) };
    }
}
