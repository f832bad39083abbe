//! Access to the calling program's memory, for addresses that may be invalid.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use super::errno::{Errno, Result};
use crate::memory::{Memory, ProcessMemory};

fn memory() -> ProcessMemory {
    // SAFETY: the handlers of `trap` ask `recover`, and stay. The addresses are those of a system call
    // of the program, which keeps no reference to what the call writes.
    unsafe { ProcessMemory::new(super::trap::installed()) }
}

/// Reads bytes.
pub(in crate::frontend) fn read(address: u64, length: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    if length > 0 {
        memory().read(address, &mut bytes)?;
    }
    Ok(bytes)
}

/// Writes bytes.
pub(in crate::frontend) fn write(address: u64, bytes: &[u8]) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    Ok(memory().write(address, bytes)?)
}

/// A structure from the beginning of what was given; what is not given counts as zero, as in a
/// request of an older library.
pub(in crate::frontend) fn lenient<T: FromZeros + FromBytes + IntoBytes>(bytes: &[u8]) -> T {
    let mut value = T::new_zeroed();
    let n = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..n].copy_from_slice(&bytes[..n]);
    value
}

/// A structure that has to be given whole.
pub(in crate::frontend) fn whole<T: FromZeros + FromBytes + IntoBytes>(bytes: &[u8]) -> Result<T> {
    if bytes.len() < size_of::<T>() { Err(Errno::ENOSPC) } else { Ok(lenient(bytes)) }
}

/// Bytes of a structure.
pub(in crate::frontend) fn bytes<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    value.as_bytes().to_vec()
}
