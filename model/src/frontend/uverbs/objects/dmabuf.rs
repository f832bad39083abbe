//! Regions over a dma-buf: memory behind a descriptor, without an address in the program.
//!
//! The model maps the descriptor, and the device reaches the memory through that mapping. The model
//! accepts everything that can be mapped shared, such as a memfd. So this path can be tested on
//! machines whose kernel has no exporter of dma-bufs.

use libc::c_int;

use super::super::driver::umem::PAGE;
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::file::{CommandFile, Object};
use super::mr;
use super::pd::Pd;
use crate::private::system;

/// A mapping of the model's own.
pub(super) struct Mapping {
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
                return Err(super::super::process::errno::last());
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

/// `REG_DMABUF_MR`.
pub(in super::super) fn register(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let pd = attributes.handle(1)?;
    let (offset, length) = (attributes.number(2)?, attributes.number(3)?);
    let iova = attributes.number(4)?;
    let fd = attributes.number(5)? as u32 as c_int;
    let access = attributes.number(6)? as u32;
    if offset % PAGE != iova % PAGE {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let pdn = state.get::<Pd>(pd)?.number;
    let mapping = Mapping::new(fd, offset, length)?;
    let mr = mr::over_mapping(file, mapping, (pd, pdn, uid), (length, iova), access)?;
    let key = mr.key();
    attributes.put(7, &key.to_ne_bytes())?;
    attributes.put(8, &key.to_ne_bytes())?;
    let handle = state.enter(Object::Mr(mr));
    attributes.put_handle(0, u64::from(handle))
}
