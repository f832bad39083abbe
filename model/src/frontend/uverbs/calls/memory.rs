//! Calls of the program that change its mappings: pinned pages that they would take away are set aside
//! before, and register pages are forgotten.

use std::ops::Range;

use libc::{c_int, c_void, size_t};

use super::super::driver::pins::{self, Pins};
use super::super::driver::running::Running;
use super::super::driver::umem::PAGE;
use super::super::objects::map::{replacing, unmapping};
use super::super::process::real;
use crate::engine::Shield;
use crate::private::system;

/// How a program has made a call, which is how it goes on to the kernel. Libraries that watch
/// mappings put a jump into a function of the C library, and end with a plain system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// By the function of the C library.
    Library,
    /// By `syscall`.
    Kernel,
}

/// The range of pages that a call names, if a kernel would accept it.
fn range(start: usize, length: usize) -> Option<Range<u64>> {
    let (start, length) = (start as u64, length as u64);
    let end = start.checked_add(length)?.checked_next_multiple_of(PAGE)?;
    (start % PAGE == 0 && length > 0).then_some(start..end)
}

/// Does `work` while no card runs, if this process has pinned pages in one of the ranges.
fn with_pins<R>(ranges: &[Range<u64>], work: impl FnOnce(&Pins) -> R) -> Option<R> {
    if !pins::are_there() {
        return None;
    }
    let running = Running::current()?;
    let pins = &running.pinned.pins;
    let _shield = Shield::new();
    if ranges.iter().all(|range| pins.within(range).is_empty()) {
        return None;
    }
    Some(running.engine.while_stopped(|| work(pins)))
}

/// `munmap`.
///
/// # Safety
/// Nothing but the cards uses the range any more.
pub(super) unsafe fn unmap(door: Door, address: *mut c_void, length: size_t) -> c_int {
    // SAFETY: the caller guarantees that the range is not used any more. What the cards use of it is set
    // aside before.
    let unmap = || unsafe {
        match door {
            Door::Library => real::munmap(address, length),
            Door::Kernel => system::munmap(address, length),
        }
    };
    // What the kernel refuses unmaps nothing.
    let Some(range) = range(address as usize, length) else { return unmap() };
    unmapping(address as usize, length, || {
        let ranges = std::slice::from_ref(&range);
        let unmapped = with_pins(ranges, |pins| {
            // SAFETY: the caller guarantees that nothing but the cards uses the range any more.
            unsafe { pins.set_aside(&range) };
            unmap()
        });
        unmapped.unwrap_or_else(unmap)
    })
}

/// `mmap` without a descriptor of the model.
///
/// # Safety
/// With MAP_FIXED, nothing but the cards uses the replaced mapping from `address` on any more.
pub(super) unsafe fn map(
    door: Door,
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: libc::off_t,
) -> *mut c_void {
    let map = |address: *mut c_void, flags: c_int| {
        // SAFETY: the caller guarantees that nothing but the cards uses the replaced range. The
        // part that the cards use is set aside before.
        unsafe {
            match door {
                Door::Library => real::mmap(address, length, protection, flags, fd, offset),
                Door::Kernel => system::mmap(address, length, protection, flags, fd, offset),
            }
        }
    };
    let replaces = flags & libc::MAP_FIXED != 0;
    let Some(range) = range(address as usize, length).filter(|_| replaces) else {
        return map(address, flags);
    };
    replacing(address as usize, length);
    let mapped = with_pins(std::slice::from_ref(&range), |pins| {
        // Maps elsewhere first: if that fails, the pinned pages stay where they are.
        let new = map(std::ptr::null_mut(), flags & !libc::MAP_FIXED);
        if new == libc::MAP_FAILED {
            return new;
        }
        // SAFETY: the caller guarantees that nothing but the cards uses the range any more.
        unsafe { pins.set_aside(&range) };
        let whole = (range.end - range.start) as usize;
        let place = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the caller guarantees that nothing but the cards uses the range. The part that
        // the cards use is set aside. Nothing uses the new mapping yet, which is moved there.
        unsafe { system::mremap(new, whole, whole, place, address) }
    });
    mapped.unwrap_or_else(|| map(address, flags))
}

/// `mremap`.
///
/// # Safety
/// Nothing but the cards uses the ranges that the call unmaps: the old range where it moves or
/// shrinks it, and with MREMAP_FIXED the range from `to` on.
pub(super) unsafe fn remap(
    door: Door,
    address: *mut c_void,
    old: size_t,
    new: size_t,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller guarantees that nothing but the cards uses the unmapped ranges any more.
    let remap = || unsafe {
        match door {
            Door::Library => real::mremap(address, old, new, flags, to),
            Door::Kernel => system::mremap(address, old, new, flags, to),
        }
    };
    let Some(from) = range(address as usize, old) else { return remap() };
    let fixed = flags & libc::MREMAP_FIXED != 0;
    let target = range(to as usize, new).filter(|_| fixed).unwrap_or(0..0);
    let moved = with_pins(&[from.clone(), target.clone()], |pins| {
        // SAFETY: the caller guarantees that nothing but the cards uses the range from `to` on.
        unsafe { pins.set_aside(&target) };
        let end = range(address as usize, new).map_or(from.start, |range| range.end);
        if end < from.end {
            // SAFETY: the caller guarantees that nothing but the cards uses the part that is cut
            // off.
            unsafe { pins.set_aside(&(end..from.end)) };
        }
        // The system call is made directly: a library that watches mappings could come back here
        // while the devices are stopped.
        // SAFETY: the caller guarantees that nothing but the cards uses the unmapped ranges. The
        // parts that the cards use are set aside.
        let now = unsafe { system::mremap(address, old, new, flags, to) };
        if now != libc::MAP_FAILED && now != address {
            let stays = from.start..from.end.min(end);
            for part in pins.within(&stays) {
                pins.moved_by_program(&part, now as u64 + (part.start - from.start));
            }
        }
        now
    });
    let now = moved.unwrap_or_else(remap);
    if now != libc::MAP_FAILED && now != address {
        replacing(address as usize, old);
    }
    now
}

/// `madvise`.
///
/// # Safety
/// Nothing but the cards relies on the content of the range, where the advice drops it.
pub(super) unsafe fn advise(
    door: Door,
    address: *mut c_void,
    length: size_t,
    advice: c_int,
) -> c_int {
    /// `MADV_DONTNEED_LOCKED` of `linux/mman.h`.
    const DONTNEED_LOCKED: c_int = 24;
    // SAFETY: the caller guarantees that content which the advice drops is not relied on. What the cards
    // use of it is set aside before.
    let advise = || unsafe {
        match door {
            Door::Library => real::madvise(address, length, advice),
            Door::Kernel => system::madvise(address, length, advice),
        }
    };
    let Some(range) = range(address as usize, length) else { return advise() };
    let advised = match advice {
        libc::MADV_DONTNEED | DONTNEED_LOCKED => with_pins(std::slice::from_ref(&range), |pins| {
            // SAFETY: the caller guarantees that nothing but the cards relies on the content.
            unsafe { pins.set_aside(&range) };
            advise()
        }),
        // The kernel frees no page that a device has pinned.
        libc::MADV_FREE => with_pins(std::slice::from_ref(&range), |_| 0),
        _ => None,
    };
    advised.unwrap_or_else(advise)
}
