//! Pinned memory: the device keeps a registered page until deregistration, whatever the program
//! maps at its address meanwhile.
//!
//! A process cannot pin a page. So the model moves pinned pages aside (`mremap`) before the program
//! unmaps them, maps over them, or drops their content. The device uses bus addresses: a *space* in
//! the upper bits, and the address at which the memory was registered. A table tells where the
//! pages of each space are now. Space 0 is not in the table: it is the memory that the process
//! currently has at an address, as ODP regions access it.
//!
//! Pages are moved while no thread is in a device, so no device accesses them meanwhile.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void};

use super::super::process::errno::{Errno, Result, last};
use super::super::process::lock;
use super::exports::Exports;
use super::umem::{self};
use crate::memory::{Fault, Memory, ProcessMemory};
use crate::private::system;

/// Position of the lowest bit of the space's number in a bus address.
const SPACE: u32 = 57;
/// Spaces there can be, with space 0.
const SPACES: u64 = 63;
/// The space of pages that devices have exported, which `exports` knows.
pub(super) const EXPORTS: u64 = SPACES;

/// Pinned segments of all processes of this address space: zero means that there is nothing to do
/// when memory is unmapped.
static PINNED: AtomicUsize = AtomicUsize::new(0);

/// Returns whether any process of this address space has pinned pages.
pub(crate) fn are_there() -> bool {
    PINNED.load(Ordering::Acquire) != 0
}

/// Bus address of an address in a space.
pub(super) fn bus(space: u64, address: u64) -> u64 {
    space << SPACE | address
}

/// Consecutive pages with the same history.
#[derive(Clone, Debug)]
struct Segment {
    end: u64,
    /// Registrations that pin it.
    holds: usize,
    /// Current address of its first byte.
    at: u64,
    /// The mapping that it was moved to, if the model moved it.
    aside: Option<Arc<Aside>>,
}

/// A mapping of the model's own that pinned pages were moved to.
#[derive(Debug)]
struct Aside(Range<u64>);

impl Drop for Aside {
    fn drop(&mut self) {
        // SAFETY: `new` has made the mapping. Its segments have shares of this value and are gone, so no
        // card reaches it.
        unsafe {
            system::munmap(self.0.start as *mut c_void, (self.0.end - self.0.start) as usize)
        };
    }
}

/// Segments of a space by the address at which they were registered. They do not overlap.
type Space = BTreeMap<u64, Segment>;

#[derive(Debug, Default)]
struct Table {
    /// Space `n` is at index `n - 1`.
    spaces: Vec<Space>,
}

/// The pinned segments of a process and their current addresses.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    table: Mutex<Table>,
    /// Segments that are not at the address at which they were registered.
    moved: AtomicUsize,
}

/// A registration of pages.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    space: u64,
    pages: Range<u64>,
}

impl Pin {
    /// Bus address of an address in the registered memory.
    pub fn bus(&self, address: u64) -> u64 {
        bus(self.space, address)
    }

    /// Whether its pages are still at the address at which they were registered.
    pub fn is_in_place(&self) -> bool {
        let table = lock(&self.pins.table);
        let space = &table.spaces[self.space as usize - 1];
        overlapping(space, &self.pages).all(|(start, segment)| segment.at == *start)
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut table = lock(&self.pins.table);
        let space = &mut table.spaces[self.space as usize - 1];
        let before = space.len();
        split(space, self.pages.start);
        split(space, self.pages.end);
        let starts: Vec<u64> = space.range(self.pages.clone()).map(|(start, _)| *start).collect();
        for start in &starts {
            let Some(segment) = space.get_mut(start) else { continue };
            segment.holds -= 1;
            if segment.holds == 0 {
                space.remove(start);
            }
        }
        for at in starts.into_iter().chain([self.pages.end]) {
            join(space, at);
        }
        count(before, space.len());
        self.pins.recount(&table);
    }
}

/// Keeps [`PINNED`] right.
fn count(before: usize, after: usize) {
    PINNED.fetch_add(after.wrapping_sub(before), Ordering::AcqRel);
}

/// Segments of a space that have part of a range.
fn overlapping<'a>(
    space: &'a Space,
    range: &Range<u64>,
) -> impl Iterator<Item = (&'a u64, &'a Segment)> {
    let first = space.range(..range.start).next_back().filter(|(_, first)| first.end > range.start);
    first.into_iter().chain(space.range(range.clone()))
}

/// Makes a segment begin at an address that lies inside one.
fn split(space: &mut Space, at: u64) {
    let Some((start, segment)) = space.range_mut(..at).next_back() else { return };
    if segment.end <= at {
        return;
    }
    let rest = Segment { at: segment.at + (at - start), ..segment.clone() };
    segment.end = at;
    space.insert(at, rest);
}

/// Joins the segment that begins at an address to the one before, if both have one history.
fn join(space: &mut Space, at: u64) {
    let Some(next) = space.get(&at).cloned() else { return };
    let Some((start, before)) = space.range_mut(..at).next_back() else { return };
    let same = match (&before.aside, &next.aside) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        _ => false,
    };
    let adjacent = before.end == at && before.at + (at - start) == next.at;
    if same && adjacent && before.holds == next.holds {
        before.end = next.end;
        space.remove(&at);
    }
}

impl Pins {
    /// Pins the pages of a range, which starts and ends at a page.
    ///
    /// # Errors
    /// ENOMEM if pages were moved away from under this range so often that no space is left.
    pub fn pin(self: &Arc<Self>, pages: Range<u64>) -> Result<Pin> {
        let mut table = lock(&self.table);
        let in_place =
            |space: &Space| overlapping(space, &pages).all(|(start, found)| found.at == *start);
        let index = match table.spaces.iter().position(in_place) {
            Some(index) => index,
            None => {
                table.spaces.push(Space::new());
                table.spaces.len() - 1
            }
        };
        if index as u64 + 1 >= SPACES {
            table.spaces.pop();
            return Err(Errno::ENOMEM);
        }
        let space = &mut table.spaces[index];
        let before = space.len();
        split(space, pages.start);
        split(space, pages.end);
        let mut at = pages.start;
        while at < pages.end {
            let next = space.range_mut(at..pages.end).next();
            at = match next {
                Some((start, segment)) if *start == at => {
                    segment.holds += 1;
                    segment.end
                }
                next => {
                    let end = next.map_or(pages.end, |(start, _)| *start);
                    space.insert(at, Segment { end, holds: 1, at, aside: None });
                    end
                }
            };
        }
        count(before, space.len());
        Ok(Pin { pins: self.clone(), space: index as u64 + 1, pages })
    }

    fn recount(&self, table: &Table) {
        let moved =
            |space: &Space| space.iter().filter(|(start, found)| found.at != **start).count();
        // Without moved segments this is the usual case, which costs nothing.
        if self.moved.load(Ordering::Acquire) != 0 {
            self.moved.store(table.spaces.iter().map(moved).sum(), Ordering::Release);
        }
    }

    /// Returns the current process addresses of a range of bus addresses, each with the bytes of
    /// the range that lie there.
    fn places(&self, address: u64, length: usize) -> Vec<(u64, Range<usize>)> {
        let (space, start) = (address >> SPACE, address & ((1 << SPACE) - 1));
        let mut places = Vec::new();
        let table = lock(&self.table);
        let Some(space) = (space as usize).checked_sub(1).and_then(|n| table.spaces.get(n)) else {
            return vec![(start, 0..length)];
        };
        let end = start.saturating_add(length as u64);
        let mut at = start;
        for (first, segment) in overlapping(space, &(start..end)) {
            if at < *first {
                places.push((at, (at - start) as usize..(first - start) as usize));
                at = *first;
            }
            let until = segment.end.min(end);
            places
                .push((segment.at + (at - first), (at - start) as usize..(until - start) as usize));
            at = until;
        }
        if at < end || places.is_empty() {
            places.push((at, (at - start) as usize..length));
        }
        places
    }

    /// Pinned pages that are in a range of process addresses now, as separate ranges.
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let table = lock(&self.table);
        let mut found: Vec<Range<u64>> = Vec::new();
        let mut add = |start: u64, segment: &Segment| {
            let end = segment.at + (segment.end - start);
            let part = segment.at.max(range.start)..end.min(range.end);
            if segment.aside.is_none() && part.start < part.end {
                found.push(part);
            }
        };
        let any_moved = self.moved.load(Ordering::Acquire) != 0;
        for space in &table.spaces {
            if any_moved {
                space.iter().for_each(|(start, segment)| add(*start, segment));
            } else {
                overlapping(space, range).for_each(|(start, segment)| add(*start, segment));
            }
        }
        found.sort_by_key(|part| part.start);
        let mut separate: Vec<Range<u64>> = Vec::new();
        for part in found {
            match separate.last_mut() {
                Some(before) if part.start <= before.end => before.end = before.end.max(part.end),
                _ => separate.push(part),
            }
        }
        separate
    }

    /// The program has moved pages itself.
    pub fn moved_by_program(&self, from: &Range<u64>, to: u64) {
        self.moved(from, to, None);
    }

    /// The pages of a range of process addresses are somewhere else now.
    fn moved(&self, from: &Range<u64>, to: u64, aside: Option<&Arc<Aside>>) {
        let mut table = lock(&self.table);
        for space in &mut table.spaces {
            let before = space.len();
            let parts: Vec<Range<u64>> = space
                .iter()
                .filter(|(_, segment)| segment.aside.is_none())
                .filter_map(|(start, segment)| {
                    let end = segment.at + (segment.end - start);
                    let part = from.start.max(segment.at)..from.end.min(end);
                    let as_registered = |at: u64| start + (at - segment.at);
                    (part.start < part.end)
                        .then(|| as_registered(part.start)..as_registered(part.end))
                })
                .collect();
            for part in parts {
                split(space, part.start);
                split(space, part.end);
                for (_, segment) in space.range_mut(part) {
                    segment.at = to + (segment.at - from.start);
                    segment.aside = aside.cloned();
                }
            }
            count(before, space.len());
        }
        self.moved.store(1, Ordering::Release);
        self.recount(&table);
    }

    /// Moves pinned pages out of a range of process addresses. What was mapped there stays mapped,
    /// without content where the kernel allows.
    ///
    /// # Safety
    /// Nothing but the cards uses the content of the range any more.
    pub unsafe fn set_aside(&self, range: &Range<u64>) {
        for part in self.within(range).iter().flat_map(umem::mappings) {
            // SAFETY: the part is inside the range, which the caller does not use any more.
            match unsafe { Aside::new(&part) } {
                Ok(aside) => {
                    let aside = Arc::new(aside);
                    self.moved(&part, aside.0.start, Some(&aside));
                }
                Err(error) => {
                    tracing::warn!(errno = error.0, start = part.start, "pinned pages are lost");
                }
            }
        }
    }
}

impl Aside {
    /// Moves the pages of a mapping to a place of the model's own.
    ///
    /// # Safety
    /// Nothing but the cards uses the content of `part` any more, and no card runs.
    unsafe fn new(part: &Range<u64>) -> Result<Self> {
        /// `MREMAP_DONTUNMAP` of `linux/mman.h`.
        const DONTUNMAP: c_int = 4;
        let length = (part.end - part.start) as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses where the new mapping is.
        let to =
            unsafe { system::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, flags, -1, 0) };
        if to == libc::MAP_FAILED {
            return Err(last());
        }
        let aside = Self(to as u64..to as u64 + length as u64);
        let move_there = |flags: c_int| {
            let flags = flags | libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let from = part.start as *mut c_void;
            // SAFETY: the caller guarantees that the content of `part` is not used where it was. It is
            // moved over the mapping made above, which nothing uses.
            let moved = unsafe { system::mremap(from, length, length, flags, to) };
            moved != libc::MAP_FAILED
        };
        // The old place has to stay mapped where only its content goes. Old kernels can do without
        // only.
        if !move_there(DONTUNMAP) && !move_there(0) {
            return Err(last());
        }
        // A forked child has no use for it.
        // SAFETY: MADV_DONTFORK changes no byte of the mapping, which is the model's own.
        unsafe { system::madvise(to, length, libc::MADV_DONTFORK) };
        Ok(aside)
    }
}

/// Memory of the process as its cards see it.
pub(super) struct Bus {
    pub memory: ProcessMemory,
    pub pins: Arc<Pins>,
    pub exports: Arc<Exports>,
}

impl Bus {
    /// Does an access piece by piece, at the process addresses where the pages are now.
    fn access(
        &self,
        address: u64,
        length: usize,
        mut work: impl FnMut(u64, Range<usize>) -> std::result::Result<(), Fault>,
    ) -> std::result::Result<(), Fault> {
        let mut piece = |at: u64, bytes: Range<usize>| {
            let first = bytes.start as u64;
            // The fault is where the card has asked.
            let asked = |fault: Fault| Fault(address + first + fault.0.wrapping_sub(at));
            work(at, bytes).map_err(asked)
        };
        let space = address >> SPACE;
        if space == 0 || self.pins.moved.load(Ordering::Acquire) == 0 {
            let at = if space < SPACES { address & ((1 << SPACE) - 1) } else { address };
            return piece(at, 0..length);
        }
        self.pins.places(address, length).into_iter().try_for_each(|(at, bytes)| piece(at, bytes))
    }
}

/// Returns whether an address is that of a page that a device has exported.
fn is_exported(address: u64) -> bool {
    address >> SPACE == EXPORTS
}

impl Memory for Bus {
    fn read(&self, address: u64, to: &mut [u8]) -> std::result::Result<(), Fault> {
        if is_exported(address) {
            return self.exports.read(self.memory, address, to);
        }
        self.access(address, to.len(), |at, bytes| self.memory.read(at, &mut to[bytes]))
    }

    fn write(&self, address: u64, from: &[u8]) -> std::result::Result<(), Fault> {
        if is_exported(address) {
            return self.exports.write(self.memory, address, from);
        }
        self.access(address, from.len(), |at, bytes| self.memory.write(at, &from[bytes]))
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> std::result::Result<[u8; 8], Fault> {
        if is_exported(address) {
            return self.exports.update(self.memory, address, change);
        }
        let mut old = [0; 8];
        // Eight bytes aligned to eight lie on one page.
        self.access(address & !7, 8, |at, bytes| {
            old = self.memory.update(at + address % 8 + bytes.start as u64, change)?;
            Ok(())
        })?;
        Ok(old)
    }

    fn publish(&self, address: u64, from: &[u8]) -> std::result::Result<(), Fault> {
        if is_exported(address) {
            return self.exports.write(self.memory, address, from);
        }
        self.access(address, from.len(), |at, bytes| self.memory.publish(at, &from[bytes]))
    }
}
