//! Tables that the data path reads without a lock, and that only one thread at a time changes.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Places of a table.
const PLACES: usize = 1 << 16;
/// Places that a key may lie behind the one that it belongs to.
const REACH: usize = 64;
/// The key of a place whose entry was removed. No address and no number is this.
const REMOVED: u64 = u64::MAX;

/// A hash table of pointers by keys. Zeroed memory is an empty one.
#[repr(C)]
pub(crate) struct Table<T> {
    /// The key in each place; 0 where none was yet.
    keys: [AtomicU64; PLACES],
    /// The pointer that belongs to it. It stays valid when the entry is removed.
    values: [AtomicPtr<T>; PLACES],
}

impl<T> Table<T> {
    /// Makes an empty table, which a forked child finds empty again.
    pub(crate) fn map() -> Option<&'static Table<T>> {
        let length = size_of::<Table<T>>();
        // SAFETY: a new private mapping; nothing else is at its place.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        // SAFETY: the mapping has this length.
        let is_wiped = memory != libc::MAP_FAILED
            && unsafe { libc::madvise(memory, length, libc::MADV_WIPEONFORK) } == 0;
        // SAFETY: the mapping is zeroed, which is an empty table, and is never unmapped.
        is_wiped.then(|| unsafe { &*memory.cast::<Table<T>>() })
    }

    /// Returns whether the entry with a key lies in the place that the key belongs to. The key is not 0.
    #[inline(always)]
    pub(crate) fn has(&self, key: u64, place: usize) -> bool {
        self.keys[place % PLACES].load(Ordering::Acquire) == key
    }

    /// Returns the entry in a place.
    ///
    /// # Safety
    /// [`Table::has`] has found it there, and all values that were put in live as long as the process.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, place: usize) -> &'static T {
        // SAFETY: a place has its value before it has its key, and keeps it.
        unsafe { &*self.values[place % PLACES].load(Ordering::Relaxed) }
    }

    /// Returns the pointer with a key; null if there is none.
    #[inline(never)]
    pub(crate) fn find(&self, key: u64, place: usize) -> *mut T {
        for step in 0..REACH {
            let place = (place + step) % PLACES;
            match self.keys[place].load(Ordering::Acquire) {
                0 => break,
                found if found == key => return self.values[place].load(Ordering::Relaxed),
                _ => {}
            }
        }
        ptr::null_mut()
    }

    /// Puts a pointer in, in place of the one with the same key. Returns false if there is no room near
    /// the place.
    pub(crate) fn put(&self, key: u64, place: usize, value: *mut T) -> bool {
        let mut free = None;
        for step in 0..REACH {
            let place = (place + step) % PLACES;
            match self.keys[place].load(Ordering::Relaxed) {
                found if found == key => {
                    self.values[place].store(value, Ordering::Release);
                    return true;
                }
                REMOVED => free = free.or(Some(place)),
                0 => {
                    free = free.or(Some(place));
                    break;
                }
                _ => {}
            }
        }
        let Some(place) = free else { return false };
        self.values[place].store(value, Ordering::Relaxed);
        self.keys[place].store(key, Ordering::Release);
        true
    }

    /// Removes an entry, if it still is the one with this pointer.
    pub(crate) fn remove(&self, key: u64, place: usize, value: *mut T) {
        for step in 0..REACH {
            let place = (place + step) % PLACES;
            match self.keys[place].load(Ordering::Relaxed) {
                0 => return,
                found if found == key => {
                    if self.values[place].load(Ordering::Relaxed) == value {
                        self.keys[place].store(REMOVED, Ordering::Release);
                    }
                    return;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_with_one_place_are_found_until_they_are_removed() {
        let table = Table::<u64>::map().unwrap();
        let mut numbers: Vec<u64> = (1..=100).collect();
        let put: Vec<(u64, *mut u64)> =
            numbers.iter_mut().map(|number| (*number, ptr::from_mut(number))).collect();
        let fits = put.iter().filter(|(key, value)| table.put(*key, 65_530, *value)).count();
        assert_eq!(fits, REACH);
        assert_eq!(table.find(64, 65_530), put[63].1);
        assert!(table.find(65, 65_530).is_null());
        // Another entry has the key by now.
        table.remove(1, 65_530, put[9].1);
        assert_eq!(table.find(1, 65_530), put[0].1);
        table.remove(1, 65_530, put[0].1);
        assert!(table.find(1, 65_530).is_null());
        assert_eq!(table.find(64, 65_530), put[63].1);
        // The free place is used again, and so is that of an equal key.
        assert!(table.put(65, 65_530, put[64].1) && table.put(65, 65_530, put[65].1));
        assert_eq!(table.find(65, 65_530), put[65].1);
    }

    #[test]
    fn a_forked_child_finds_a_table_empty() {
        let table = Table::<u64>::map().unwrap();
        let mut value = 7;
        assert!(table.put(5, 5, &mut value));
        // SAFETY: the child only reads the table, and ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child without anything of the parent's.
            unsafe { libc::_exit(i32::from(!table.find(5, 5).is_null())) };
        }
        let mut status = 0;
        // SAFETY: waits for the own child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        assert!(!table.find(5, 5).is_null());
    }
}
