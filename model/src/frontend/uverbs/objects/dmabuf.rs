//! Dma-bufs: memory behind a descriptor, without an address in the program. Programs register those of others,
//! and export pages of devices as such: UAR pages and device memory.
//!
//! The model maps a descriptor that is not its own, and the device reaches the memory through that mapping. It
//! accepts everything that can be mapped shared, such as a memfd. So this path can be tested on
//! machines whose kernel has no exporter of dma-bufs.
//!
//! A descriptor of exported pages is a memfd of their size that nothing can be written to: a process that does
//! not know it, such as a forked child, cannot map it, and its registration is refused. The device reaches the
//! pages themselves.

use std::sync::Arc;

use libc::{c_int, c_void, size_t, ssize_t};

use super::super::driver::exports::Export;
use super::super::driver::mapping::Mapping;
use super::super::driver::umem::PAGE;
use super::super::process::descriptors::{Descriptors, OpenFile};
use super::super::process::errno::{Errno, Result, last, set_errno};
use super::super::request::ioctl::Attributes;
use super::file::CommandFile;
use super::pd::Pd;
use super::{dm, mr, uar};
use crate::private::system;

/// Memory behind a descriptor that a region keeps.
pub(super) enum DmaBuf {
    /// That of another exporter.
    Foreign(#[allow(dead_code, reason = "kept mapped")] Mapping),
    /// Pages of a device of this process.
    Own(#[allow(dead_code, reason = "kept at its addresses")] Arc<Export>),
}

/// An open dma-buf of a device's pages.
struct ExportFile(Arc<Export>);

impl OpenFile for ExportFile {
    /// A dma-buf has no `read`.
    unsafe fn read(&self, _fd: c_int, _to: *mut c_void, _length: size_t) -> Option<ssize_t> {
        set_errno(libc::EINVAL);
        Some(-1)
    }
}

fn exported(fd: c_int) -> Option<Arc<ExportFile>> {
    Descriptors::current()?.get_as::<ExportFile>(fd)
}

/// Returns whether a descriptor is a dma-buf of a device's pages.
pub(super) fn is_export(fd: c_int) -> bool {
    exported(fd).is_some()
}

/// `DMABUF_ALLOC`: exports the pages at an offset of `mmap`.
pub(crate) fn export(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let offset = attributes.number(1)? / PAGE;
    let state = file.state();
    state.context()?;
    let export = match dm::page(offset) {
        Some(page) => dm::export(file, &state, page),
        None => uar::export(&file.running.exports, &state, offset),
    };
    let export = export.ok_or_else(|| {
        Errno::EINVAL.because(format_args!(
            "a dma-buf is refused: no UAR and no device memory of this open device is mapped at page \
             {offset:#x}"
        ))
    })?;
    let fd = descriptor(export.length)?;
    Descriptors::own().enter(fd, Arc::new(ExportFile(export))).inspect_err(|_| close(fd))?;
    attributes.put_handle(0, fd as u64)
}

/// Makes the descriptor of a dma-buf of so many bytes.
fn descriptor(length: u64) -> Result<c_int> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    let length = libc::off_t::try_from(length).map_err(|_| Errno::EINVAL)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the call reads the name, a C string.
    let fd = unsafe { system::memfd_create(c"mlx5-dmabuf".as_ptr(), flags) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: the file is new. Both calls pass no memory.
    let made = unsafe {
        system::ftruncate(fd, length) == 0
            && system::fcntl(fd, libc::F_ADD_SEALS, seals as usize) == 0
    };
    if made { Ok(fd) } else { Err(last()).inspect_err(|_| close(fd)) }
}

/// Closes a descriptor that the program does not know yet.
fn close(fd: c_int) {
    // SAFETY: the caller has made the descriptor, and nothing else knows it.
    unsafe { system::close(fd) };
}

/// `REG_DMABUF_MR`.
pub(crate) fn register(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
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
    let memory = match exported(fd) {
        Some(exported) => own(&exported.0, offset, length)?,
        None => {
            let mapping = Mapping::new(fd, offset, length)?;
            let start = mapping.start;
            (DmaBuf::Foreign(mapping), start)
        }
    };
    let mr = mr::over_dmabuf(file, memory, (pd, pdn, uid), (length, iova), access)?;
    let key = mr.key();
    attributes.put(7, &key.to_ne_bytes())?;
    attributes.put(8, &key.to_ne_bytes())?;
    let handle = state.enter(mr);
    attributes.put_handle(0, u64::from(handle))
}

/// Returns a part of exported pages, and its bus address.
fn own(export: &Arc<Export>, offset: u64, length: u64) -> Result<(DmaBuf, u64)> {
    if offset.checked_add(length).is_none_or(|end| end > export.length) {
        return Err(Errno::EINVAL);
    }
    if export.is_revoked() {
        return Err(Errno::ENODEV.because(format_args!(
            "ibv_reg_dmabuf_mr refused: the UAR or the device memory of the dma-buf was freed"
        )));
    }
    Ok((DmaBuf::Own(export.clone()), export.bus(offset)))
}
