//! The program's mappings of open devices. As with the kernel's, a mapping keeps the open device: its
//! objects live, and doorbells reach them, until the last descriptor is closed and the last mapping is
//! gone.
//!
//! Threads unmap memory in signal handlers, inside allocators, and while others fork, so the table has no
//! lock.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::super::process::errno::{Errno, Result};
use super::super::process::in_children;
use super::file::CommandFile;
use crate::engine::Shield;

/// Mappings that there may be at once.
const MAPPED: usize = 8192;

/// A mapping. The words are zero and null for none.
struct Mapping {
    start: AtomicUsize,
    end: AtomicUsize,
    /// The open device, which is kept open.
    file: AtomicPtr<CommandFile>,
}

static MAPPINGS: [Mapping; MAPPED] = [const {
    Mapping {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        file: AtomicPtr::new(std::ptr::null_mut()),
    }
}; MAPPED];
/// No mapping at or behind this index has ever been used.
static USED: AtomicUsize = AtomicUsize::new(0);

/// What a mapping does: it keeps an open device.
struct Hold(&'static CommandFile);

impl Hold {
    /// Keeps a device open; `None` if it is closed already.
    fn new(file: &'static CommandFile) -> Option<Self> {
        file.hold().then_some(Self(file))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _shield = Shield::new();
        self.0.let_go();
    }
}

/// Has a new mapping keep an open device.
///
/// # Errors
/// `EBADF` if the device is closed already; `ENOMEM` if there are too many mappings.
pub(super) fn add(file: &Arc<CommandFile>, start: usize, length: usize) -> Result<()> {
    static ASKED: AtomicBool = AtomicBool::new(false);
    in_children(&ASKED, forget);
    let hold = Hold::new(CommandFile::forever(file)).ok_or(Errno::EBADF)?;
    enter(hold, start..start + length).map_err(|_| Errno::ENOMEM)
}

/// Enters a mapping. Gives the hold back if there is no place.
fn enter(hold: Hold, range: Range<usize>) -> std::result::Result<(), Hold> {
    let file = std::ptr::from_ref(hold.0).cast_mut();
    for (index, mapping) in MAPPINGS.iter().enumerate() {
        let nothing = std::ptr::null_mut();
        if mapping.file.compare_exchange(nothing, file, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            mapping.start.store(range.start, Ordering::Release);
            // A mapping without an end is not found.
            mapping.end.store(range.end, Ordering::Release);
            USED.fetch_max(index + 1, Ordering::AcqRel);
            // It is the table's now.
            std::mem::forget(hold);
            return Ok(());
        }
    }
    Err(hold)
}

/// Parts of mappings that the program is about to unmap. When it is dropped they are gone: a device
/// whose last mapping is among them is closed if its descriptors are.
pub(super) struct Leaving(Vec<(Hold, Range<usize>)>);

impl Leaving {
    /// The memory was not unmapped after all.
    pub fn stay(mut self) {
        for (hold, range) in self.0.drain(..) {
            // Without a place for the mapping, the device stays open.
            if let Err(hold) = enter(hold, range) {
                std::mem::forget(hold);
            }
        }
    }
}

/// Takes memory out of the mappings, before its addresses can be used again.
pub(super) fn leaving(start: usize, length: usize) -> Leaving {
    let end = start.saturating_add(length);
    // Allocates only if there is something in it.
    let mut parts = Vec::new();
    for mapping in &MAPPINGS[..USED.load(Ordering::Acquire)] {
        let (first, last) =
            (mapping.start.load(Ordering::Acquire), mapping.end.load(Ordering::Acquire));
        if last > start && first < end {
            let range = start.max(first)..end.min(last);
            parts.extend(take(mapping, first..last, &range).map(|hold| (hold, range)));
        }
    }
    Leaving(parts)
}

/// Takes a part out of a mapping. What is left on either side stays. `None` if another thread has taken
/// it.
fn take(mapping: &Mapping, whole: Range<usize>, part: &Range<usize>) -> Option<Hold> {
    // SAFETY: null, or what `enter` was given: a reference that is valid for ever.
    let file: &'static CommandFile = unsafe { mapping.file.load(Ordering::Acquire).as_ref() }?;
    // The bytes before the part stay in this place. Of several threads one changes the end.
    let before = if part.start > whole.start { part.start } else { 0 };
    mapping.end.compare_exchange(whole.end, before, Ordering::AcqRel, Ordering::Relaxed).ok()?;
    let hold = if before == 0 {
        mapping.file.store(std::ptr::null_mut(), Ordering::Release);
        Hold(file)
    } else {
        Hold::new(file)?
    };
    if part.end < whole.end {
        let behind = Hold::new(file).and_then(|hold| enter(hold, part.end..whole.end).err());
        // Without a place for the mapping, the device stays open.
        std::mem::forget(behind);
    }
    Some(hold)
}

/// Forgets every mapping, in the child of a fork, which does not inherit them.
extern "C" fn forget() {
    for mapping in &MAPPINGS[..USED.load(Ordering::Acquire)] {
        mapping.end.store(0, Ordering::Release);
        mapping.file.store(std::ptr::null_mut(), Ordering::Release);
    }
}
