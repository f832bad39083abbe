//! Memory behind a descriptor, without an address in the program.

use libc::c_int;

use super::super::process::errno::{Errno, Result, last};
use super::umem::PAGE;
use crate::private::system;

/// A mapping of the model's own.
pub(crate) struct Mapping {
    /// Address of the first byte that is meant.
    pub start: u64,
    base: usize,
    length: usize,
}

impl Mapping {
    /// Maps `length` bytes from `offset` on of what a descriptor stands for.
    pub fn new(fd: c_int, offset: u64, length: u64) -> Result<Self> {
        let end = offset.checked_add(length).ok_or(Errno::EINVAL)?;
        // SAFETY: integers, for which zeros are values; the call writes one `stat`.
        let size = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if system::fstat(fd, &mut stat) != 0 {
                return Err(last());
            }
            u64::try_from(stat.st_size).map_err(|_| Errno::EINVAL)?
        };
        if length == 0 || end > size {
            return Err(Errno::EINVAL);
        }
        let first = offset / PAGE * PAGE;
        let whole = usize::try_from(end - first).map_err(|_| Errno::EINVAL)?;
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the kernel chooses where the new mapping is.
        let base = unsafe {
            let at = first as libc::off_t;
            system::mmap(std::ptr::null_mut(), whole, rights, libc::MAP_SHARED, fd, at)
        };
        if base == libc::MAP_FAILED {
            return Err(Errno::EINVAL);
        }
        let base = base as usize;
        Ok(Self { start: base as u64 + offset - first, base, length: whole })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping. The region's key is gone, so no card reaches it any more.
        unsafe { system::munmap(self.base as *mut _, self.length) };
    }
}
