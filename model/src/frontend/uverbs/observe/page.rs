//! Register pages: the device's, and the memory that the program has in place of it.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::off_t;

use super::super::process::trap::{self, PAGE, Target};
use super::super::process::{lock, real};
use super::Observer;
use crate::engine::{Shield, Stores};
use crate::trace::Call;

/// A register page of a device that a program has mapped.
pub(crate) struct Page {
    /// The device.
    pub(super) card: u8,
    /// Number of the page.
    pub(super) uar: u32,
    /// The mapping of the device's page; 0 once it is unmapped. It changes under the queues' lock.
    device: AtomicUsize,
}

impl Page {
    /// Makes the stores on the device's page: in their order, each of its width. The caller holds the
    /// queues' lock.
    pub(super) fn forward(&self, block: &Block) {
        let device = self.device.load(Ordering::Acquire);
        if device == 0 {
            return;
        }
        for (offset, bytes) in block.stores() {
            // SAFETY: the bytes are within the page, and the page stays mapped while the caller holds
            // the lock. Its content is the device's: no reference covers it.
            unsafe { put((device + offset) as *mut u8, bytes) };
        }
    }
}

impl Target for Page {
    /// Records and makes a store of the program, and those behind it that belong to the same copy. A child
    /// that has no observer and has not inherited the page does not know of them.
    fn store(&'static self, stores: &mut dyn Stores, _in_handler: bool) -> bool {
        let Some(observer) = Observer::current() else { return false };
        let mut queues = lock(&observer.queues);
        let mut block = Block::default();
        let mut is_first = true;
        loop {
            let is_last = block.gather(stores);
            for (offset, bytes) in block.stores() {
                if is_first {
                    queues.before_store(observer, self.card, offset, bytes);
                }
                let call =
                    Call::Store { uar: self.uar, offset: offset as u16, bytes: bytes.into() };
                observer.record(self.card, call, || {
                    if is_first {
                        queues.rung(observer, self.card, offset, bytes);
                    }
                });
                is_first = false;
            }
            // The device may act at once, so the recording comes first.
            self.forward(&block);
            if is_last {
                break;
            }
            block = Block::default();
        }
        observer.tap.relieve();
        true
    }

    /// The program has unmapped its page.
    fn unmapped(&self) {
        let _shield = Shield::new();
        let _queues = Observer::current().map(|observer| lock(&observer.queues));
        let device = self.device.swap(0, Ordering::AcqRel);
        if device != 0 {
            // SAFETY: `map` has made the mapping. Stores find it under the lock that is held here.
            unsafe { real::munmap(device as *mut c_void, PAGE) };
        }
    }
}

/// Maps the page for the observer, and protected memory for the program.
///
/// # Safety
/// With MAP_FIXED, the program does not use the old mapping from `address` on any more.
pub(super) unsafe fn map(
    address: *mut c_void,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
    (card, uar): (u8, u32),
) -> *mut c_void {
    let elsewhere = flags & !libc::MAP_FIXED;
    // SAFETY: the kernel chooses where the new mapping is.
    let device =
        unsafe { real::mmap(std::ptr::null_mut(), PAGE, protection, elsewhere, fd, offset) };
    if device == libc::MAP_FAILED {
        return device;
    }
    let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags & libc::MAP_FIXED;
    // SAFETY: the caller guarantees that the replaced mapping is not used any more.
    let at = unsafe { real::mmap(address, PAGE, libc::PROT_READ, anonymous, -1, 0) };
    if at == libc::MAP_FAILED {
        // SAFETY: the page was mapped above, and nothing else knows it.
        unsafe { real::munmap(device, PAGE) };
        return at;
    }
    trap::unblock();
    trap::replaced(at as usize, PAGE);
    // A trapped store may still refer to it when the program has unmapped it, so it is never freed.
    let page: &'static Page =
        Box::leak(Box::new(Page { card, uar, device: AtomicUsize::new(device as usize) }));
    if !trap::mapped(at as usize, trap::entry(page)) {
        // SAFETY: both pages were mapped above, and the program does not know them yet.
        unsafe {
            real::munmap(at, PAGE);
            real::munmap(device, PAGE);
        }
        super::set_errno(libc::ENOMEM);
        return libc::MAP_FAILED;
    }
    // Like the device's page, it is not inherited by a forked child.
    // SAFETY: MADV_DONTFORK changes no byte of the page, which was mapped above.
    unsafe { real::madvise(at, PAGE, libc::MADV_DONTFORK) };
    at
}

/// Stores that are made together.
pub(super) struct Block {
    stores: [Store; MOST],
    count: usize,
}

/// Most stores that are made together: those of a copy of 512 bytes in words.
const MOST: usize = 64;
/// Longest store.
const LONGEST: usize = 64;

#[derive(Clone, Copy)]
struct Store {
    offset: u16,
    length: u8,
    bytes: [u8; LONGEST],
}

impl Default for Block {
    fn default() -> Self {
        Self { stores: [Store { offset: 0, length: 0, bytes: [0; LONGEST] }; MOST], count: 0 }
    }
}

impl Block {
    /// Takes the program's stores while they belong together. Returns whether there are no more.
    pub fn gather(&mut self, stores: &mut dyn Stores) -> bool {
        while self.count < MOST {
            let (offset, bytes) = stores.store();
            let length = bytes.len().min(LONGEST);
            let store = &mut self.stores[self.count];
            store.bytes[..length].copy_from_slice(&bytes[..length]);
            // Both are within a page.
            (store.offset, store.length) = (offset as u16, length as u8);
            self.count += 1;
            if !stores.done() {
                return true;
            }
        }
        false
    }

    /// Returns each store: its offset in the page, and its bytes.
    pub fn stores(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.stores[..self.count]
            .iter()
            .map(|store| (store.offset.into(), &store.bytes[..store.length.into()]))
    }
}

/// Makes a store of 1, 2, 4, 8 or 16 bytes in one access. Others go out in pieces of these widths, the
/// widest first.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes, and no reference covers them.
unsafe fn put(mut to: *mut u8, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let length = match bytes.len() {
            16.. => 16,
            length => 1 << length.ilog2(),
        };
        let (piece, rest) = bytes.split_at(length);
        // SAFETY: the caller guarantees the bytes behind `to`. The processors of `trap::AVAILABLE` make
        // unaligned accesses, which assembly may make.
        unsafe {
            access(to, piece);
            to = to.add(length);
        }
        bytes = rest;
    }
}

/// Loads from `$from` and stores to `$to` by one instruction each, through a register of a class.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! through {
    ($class:ident, $load:literal, $store:literal, $from:ident, $to:ident) => {
        std::arch::asm!(
            concat!($load, ", [{from}]"),
            $store,
            value = out($class) _,
            from = in(reg) $from,
            to = in(reg) $to,
            options(nostack, preserves_flags)
        )
    };
}

/// # Safety
/// `bytes` has 1, 2, 4, 8 or 16 bytes. `to` is valid for writes of so many, and no reference covers them.
#[cfg(target_arch = "x86_64")]
unsafe fn access(to: *mut u8, bytes: &[u8]) {
    let from = bytes.as_ptr();
    // SAFETY: each instruction reads as many bytes as `bytes` has, and writes as many.
    unsafe {
        match bytes.len() {
            1 => through!(reg_byte, "mov {value}", "mov [{to}], {value}", from, to),
            2 => through!(reg, "mov {value:x}", "mov [{to}], {value:x}", from, to),
            4 => through!(reg, "mov {value:e}", "mov [{to}], {value:e}", from, to),
            8 => through!(reg, "mov {value}", "mov [{to}], {value}", from, to),
            _ => through!(xmm_reg, "movups {value}", "movups [{to}], {value}", from, to),
        }
    }
}

/// # Safety
/// `bytes` has 1, 2, 4, 8 or 16 bytes. `to` is valid for writes of so many, and no reference covers them.
#[cfg(target_arch = "aarch64")]
unsafe fn access(to: *mut u8, bytes: &[u8]) {
    let from = bytes.as_ptr();
    // SAFETY: each instruction reads as many bytes as `bytes` has, and writes as many.
    unsafe {
        match bytes.len() {
            1 => through!(reg, "ldrb {value:w}", "strb {value:w}, [{to}]", from, to),
            2 => through!(reg, "ldrh {value:w}", "strh {value:w}, [{to}]", from, to),
            4 => through!(reg, "ldr {value:w}", "str {value:w}, [{to}]", from, to),
            8 => through!(reg, "ldr {value}", "str {value}, [{to}]", from, to),
            _ => through!(vreg, "ldr {value:q}", "str {value:q}, [{to}]", from, to),
        }
    }
}

/// Never called: stores trap on other processors only if they can be decoded.
///
/// # Safety
/// `to` is valid for writes of `bytes.len()` bytes, and no reference covers them.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
unsafe fn access(to: *mut u8, bytes: &[u8]) {
    for (index, byte) in bytes.iter().enumerate() {
        // SAFETY: the caller guarantees the bytes behind `to`.
        unsafe { to.add(index).write_volatile(*byte) };
    }
}

#[cfg(test)]
mod tests;
