//! Mappings of an open device: registers, the clock, device memory.

use std::sync::Arc;

use libc::{c_int, c_void, off_t, size_t};

use super::super::driver::clock;
use super::super::driver::running::Running;
use super::super::process::descriptors::Descriptors;
use super::super::process::errno::{Errno, Result, last, set_errno};
use super::super::process::trap::{self, PAGE};
use super::super::tree::config::Mode;
use super::file::CommandFile;
use super::{dm, dmabuf, mappings, uar};
use crate::engine::Shield;
use crate::private::system;

/// Page offsets of `mmap` that encode a command: it, and below an index (`enum mlx5_ib_mmap_cmd`).
const COMMAND: u32 = 8;
const CORE_CLOCK: u64 = 5;
const CLOCK_INFO: u64 = 7;

/// Serves `mmap` of a command file.
///
/// # Safety
/// With MAP_FIXED, the program does not use the old mapping from `address` on any more.
pub(crate) unsafe fn map(
    running: &'static Running,
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let _shield = Shield::new();
    let Some(file) = Descriptors::own().get_as::<CommandFile>(fd) else {
        // A dma-buf of a device's pages cannot be mapped.
        let error = if dmabuf::is_export(fd) { Errno::EINVAL } else { Errno::ENODEV };
        set_errno(error.0);
        return libc::MAP_FAILED;
    };
    let mapped = (|| {
        if flags & libc::MAP_SHARED == 0 || offset % PAGE as off_t != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some(page) = dm::page(offset as u64 / PAGE as u64) {
            // SAFETY: the caller guarantees that the replaced mapping is not used any more.
            return unsafe { dm::map(&file, address, length, protection, flags, page) };
        }
        if length > PAGE {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller guarantees that the replaced mapping is not used any more.
        if let Some(mapped) = unsafe { map_clock(&file, address, protection, flags, offset) } {
            return mapped;
        }
        let number = u64::try_from(offset / PAGE as off_t).map_err(|_| Errno::EINVAL)?;
        let page = uar::at(&file.state(), number).ok_or(Errno::EINVAL)?;
        let trapped = page.mode == Mode::Trapped;
        let allowed = if trapped { libc::PROT_READ } else { protection | libc::PROT_READ };
        // SAFETY: the caller guarantees that the replaced mapping is not used any more. The page is
        // inside the model's file.
        let at = unsafe {
            system::mmap(
                address,
                PAGE,
                allowed,
                flags,
                running.registers.file,
                page.index as off_t * PAGE as off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(last());
        }
        if trapped {
            trap::unblock();
            trap::replaced(at as usize, PAGE);
            if !trap::mapped(at as usize, page.entry()) {
                // SAFETY: the page was mapped above, and the program does not know it yet.
                unsafe { system::munmap(at, PAGE) };
                return Err(Errno::ENOMEM);
            }
        }
        // Like a real device's registers, the page is not inherited by a forked child.
        // SAFETY: MADV_DONTFORK changes no byte of the page, which was mapped above.
        unsafe { system::madvise(at, PAGE, libc::MADV_DONTFORK) };
        Ok(at)
    })();
    let kept = mapped.and_then(|at| {
        // SAFETY: the page was mapped above, and the program does not know it yet.
        unsafe { keep(&file, at, length) }.map(|()| at)
    });
    kept.unwrap_or_else(|error| {
        set_errno(error.0);
        libc::MAP_FAILED
    })
}

/// Has a mapping that was just made keep the device open.
///
/// # Safety
/// The program does not know the mapping yet.
unsafe fn keep(file: &Arc<CommandFile>, at: *mut c_void, length: size_t) -> Result<()> {
    let length = length.next_multiple_of(PAGE);
    // What was mapped there was replaced.
    drop(mappings::leaving(at as usize, length));
    mappings::add(file, at as usize, length).inspect_err(|_| {
        trap::replaced(at as usize, length);
        // SAFETY: the caller guarantees that the program does not use the mapping.
        unsafe { system::munmap(at, length) };
    })
}

/// Unmaps memory of the program by a call that returns zero on success. Register pages in the range
/// are removed before the call, while their addresses cannot be reused yet, and restored if it
/// fails.
pub(crate) fn unmapping(start: usize, length: usize, unmap: impl FnOnce() -> c_int) -> c_int {
    trap::leaving(start, length);
    let leaving = mappings::leaving(start, length.next_multiple_of(PAGE));
    let result = unmap();
    if result == 0 {
        trap::unmapped(start, length);
        drop(leaving);
    } else {
        trap::staying(start, length);
        leaving.stay();
    }
    result
}

/// Removes the register pages in a range that the program is about to replace.
pub(crate) fn replacing(start: usize, length: usize) {
    trap::replaced(start, length);
    drop(mappings::leaving(start, length.next_multiple_of(PAGE)));
}

/// `mmap` of the register or the page. `None` if the offset is of neither.
///
/// # Safety
/// With MAP_FIXED, nothing uses the replaced mapping of the page at `address` any more.
unsafe fn map_clock(
    file: &CommandFile,
    address: *mut c_void,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Option<Result<*mut c_void>> {
    let number = offset as u64 / PAGE as u64;
    let (command, index) = (number >> COMMAND, number & 0xff);
    let function = file.function();
    let fixed = flags & libc::MAP_FIXED;
    match command {
        CLOCK_INFO if index == u64::from(clock::VERSION) => Some((|| {
            if protection & (libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
                return Err(Errno::EPERM);
            }
            let info = function.enter(|card| function.clock.file(card))?;
            // SAFETY: the caller guarantees that the replaced page is no longer used. The model's
            // file has the new page.
            let at = unsafe {
                system::mmap(address, PAGE, libc::PROT_READ, libc::MAP_SHARED | fixed, info, 0)
            };
            if at == libc::MAP_FAILED { Err(last()) } else { Ok(at) }
        })()),
        CORE_CLOCK if clock::is_readable() => Some((|| {
            if protection & (libc::PROT_WRITE | libc::PROT_EXEC) != 0 {
                return Err(Errno::EPERM);
            }
            let page = file.running.registers.clock(function);
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
            // SAFETY: the caller guarantees that the replaced page is no longer used.
            let at = unsafe { system::mmap(address, PAGE, libc::PROT_NONE, kind, -1, 0) };
            if at == libc::MAP_FAILED {
                return Err(last());
            }
            trap::unblock();
            trap::replaced(at as usize, PAGE);
            if !trap::mapped(at as usize, page.entry()) {
                // SAFETY: the page was mapped above, and the program does not know it yet.
                unsafe { system::munmap(at, PAGE) };
                return Err(Errno::ENOMEM);
            }
            // SAFETY: MADV_DONTFORK changes no byte of the page, which was mapped above.
            unsafe { system::madvise(at, PAGE, libc::MADV_DONTFORK) };
            Ok(at)
        })()),
        _ => None,
    }
}
