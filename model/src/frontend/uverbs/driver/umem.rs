//! Program memory that a device may reach: checked as pinning would check it, and counted against
//! the limit of locked memory.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::super::process::errno::{Errno, Result};
use super::super::process::lock;
use super::super::tree::privilege;
use super::pins::{Pin, Pins};
use crate::private::{files, system};

/// Memory of the process that its devices may reach.
#[derive(Debug, Default)]
pub(crate) struct Pinned {
    /// Number of pinned pages, counted against the limit of locked memory.
    count: AtomicU64,
    /// Pages that hold doorbell records, by address: many records share one, which is pinned once.
    records: Mutex<BTreeMap<u64, Weak<Umem>>>,
    /// The places of pinned pages.
    pub pins: Arc<Pins>,
}

/// Page of the processor and of page lists.
pub(crate) const PAGE: u64 = 4096;

/// Pinned memory; the count goes back when it is dropped.
#[derive(Debug)]
pub(crate) struct Umem {
    counted: Counted,
    address: u64,
    pin: Pin,
}

/// Pages that count against the limit of locked memory.
#[derive(Debug)]
struct Counted {
    pinned: &'static Pinned,
    pages: u64,
}

impl Umem {
    /// Pins `length` bytes at `address`.
    ///
    /// # Errors
    /// - EINVAL for zero bytes, or for a range that wraps around.
    /// - ENOMEM beyond the limit of locked memory.
    /// - EFAULT for memory that is not mapped, or not writable although `writable` is set.
    pub fn pin(pinned: &'static Pinned, address: u64, length: u64, writable: bool) -> Result<Self> {
        let end = address.checked_add(length).ok_or(Errno::EINVAL)?;
        let last = end.checked_next_multiple_of(PAGE).ok_or(Errno::EINVAL)?;
        let first = address / PAGE * PAGE;
        if length == 0 {
            return Err(Errno::EINVAL
                .because(format_args!("memory at {address:#x} refused: its length is 0")));
        }
        let pages = (last - first) / PAGE;
        let count = pinned.count.fetch_add(pages, Ordering::AcqRel) + pages;
        let counted = Counted { pinned, pages };
        if count > limit() && !privilege::has(privilege::CAP_IPC_LOCK) {
            return Err(Errno::ENOMEM.because(format_args!(
                "memory of {length} bytes at {address:#x} refused: with it {} KiB are locked, and RLIMIT_MEMLOCK \
                 (ulimit -l) is {} KiB",
                count * PAGE / 1024,
                limit() * PAGE / 1024
            )));
        }
        if !mapped(first, last, writable) {
            let writable = if writable { ", or not writable" } else { "" };
            return Err(Errno::EFAULT.because(format_args!(
                "memory of {length} bytes at {address:#x} refused: some of it is not mapped{writable}"
            )));
        }
        Ok(Self { counted, address, pin: pinned.pins.pin(first..last)? })
    }

    /// Bus address of an address in this memory.
    pub fn bus(&self, address: u64) -> u64 {
        self.pin.bus(address)
    }

    /// Pins the page of a doorbell record, if none of its records has done so yet.
    ///
    /// # Errors
    /// The errors of [`Umem::pin`]: EINVAL for a page that wraps around, ENOMEM beyond the limit of
    /// locked memory, EFAULT for a page that is not mapped writable.
    pub fn pin_record(pinned: &'static Pinned, address: u64) -> Result<Arc<Self>> {
        let page = address / PAGE;
        let mut pages = lock(&pinned.records);
        // A page that was moved aside is another one than the program has there now.
        let known = pages.get(&page).and_then(Weak::upgrade);
        if let Some(umem) = known.filter(|umem| umem.pin.is_in_place()) {
            return Ok(umem);
        }
        let umem = Arc::new(Self::pin(pinned, page * PAGE, PAGE, true)?);
        pages.retain(|_, umem| umem.strong_count() > 0);
        pages.insert(page, Arc::downgrade(&umem));
        Ok(umem)
    }

    /// Bus addresses of its pages of 4 KiB.
    pub fn pages(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.bus(self.address / PAGE * PAGE);
        (0..self.counted.pages).map(move |page| first + page * PAGE)
    }

    /// Returns the offset in its first page, in units of 64 bytes, as queue contexts want it.
    /// EINVAL if the offset is not a multiple.
    pub fn offset(&self) -> Result<u64> {
        let offset = self.address % PAGE;
        if offset % 64 == 0 { Ok(offset / 64) } else { Err(Errno::EINVAL) }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.pinned.count.fetch_sub(self.pages, Ordering::AcqRel);
    }
}

/// Pages that may be locked.
fn limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call writes one `rlimit`.
    if unsafe { system::prlimit(0, libc::RLIMIT_MEMLOCK, std::ptr::null(), &mut limit) } != 0 {
        return u64::MAX;
    }
    if limit.rlim_cur == libc::RLIM_INFINITY { u64::MAX } else { limit.rlim_cur / PAGE }
}

/// A line of `/proc/self/maps`: the range of addresses, and what follows.
fn mapping(line: &str) -> Option<(Range<u64>, &str)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    Some((start..end, rest))
}

/// The parts of a range of pages that lie in one mapping each. Page by page where the kernel does
/// not say.
pub(super) fn mappings(range: &Range<u64>) -> Vec<Range<u64>> {
    let Ok(maps) = files::text("/proc/self/maps") else {
        let starts = range.clone().step_by(PAGE as usize);
        return starts.map(|start| start..start + PAGE).collect();
    };
    let part = |mapped: Range<u64>| range.start.max(mapped.start)..range.end.min(mapped.end);
    let parts = maps.lines().filter_map(mapping).map(|(mapped, _)| part(mapped));
    parts.filter(|part| part.start < part.end).collect()
}

/// Whether every page is mapped with the rights.
fn mapped(first: u64, last: u64, writable: bool) -> bool {
    let Ok(maps) = files::text("/proc/self/maps") else {
        // Without it nothing can be said; a card's access to memory that is not there fails later.
        return true;
    };
    let mut at = first;
    for (Range { start, end }, rest) in maps.lines().filter_map(mapping) {
        if end <= at {
            continue;
        }
        let rights = rest.as_bytes();
        if start > at || rights[0] != b'r' || (writable && rights[1] != b'w') {
            return false;
        }
        at = end;
        if at >= last {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
