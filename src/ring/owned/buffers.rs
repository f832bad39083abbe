//! The slices of a request, as one word.
//!
//! Posting stores the word beside the WQE's slot, polling loads it and gives it to the program:
//! neither allocates or frees, or asks what it is.

use core::fmt;
use core::mem::{ManuallyDrop, forget};
use core::ptr::without_provenance_mut;
use core::slice::{from_raw_parts, from_ref};

use super::Slice;
use super::slice::Part;

/// The slices of a request: [`None`](Self::None), one, or a list.
///
/// It is asked by [`one`](Self::one) or [`many`](Self::many), which give the slices, or by
/// [`slices`](Self::slices), which shows them. None of that allocates or frees, but for dropping what
/// was not asked for. Two are equal if both are none, or both are lists without slices.
#[derive(PartialEq, Eq)]
#[repr(transparent)]
pub struct Buffers {
    /// A slice's pointer, or something odd: the pointer to a list's elements and 1, or just 1 for
    /// none. The first slice of a list has its length and capacity; the pointer of one without
    /// elements is dangling.
    word: *mut (),
}

// SAFETY: it owns slices, which may be sent.
unsafe impl Send for Buffers {}
// SAFETY: it gives shared references to its slices only, which may be shared.
unsafe impl Sync for Buffers {}

/// Set in a word that is not a slice's. Slices and lists are aligned to more.
const OTHER: usize = 1;

/// The word of a list without elements.
const EMPTY: usize = align_of::<Slice>() | OTHER;

const _: () = assert!(align_of::<Part>() > OTHER && align_of::<Slice>() > OTHER);

impl Buffers {
    /// The request had none. Also a pattern.
    #[allow(non_upper_case_globals, reason = "as the variant of an enum, which it stands for")]
    pub const None: Self = Self { word: without_provenance_mut(OTHER) };

    /// The slice, if it is one.
    #[inline]
    pub fn one(self) -> Option<Slice> {
        if !self.is_one() {
            return None;
        }
        // SAFETY: `from` made it, and as `self` is forgotten it is given back once.
        let slice = unsafe { Slice::from_raw(self.word.cast()) };
        forget(self);
        Some(slice)
    }

    /// The list, if it is one.
    pub fn many(self) -> Option<Vec<Slice>> {
        if self.is_one() || self.is_none() {
            return None;
        }
        // SAFETY: it is a list, and as `self` is forgotten it is given back once.
        let list = unsafe { self.list() };
        forget(self);
        Some(list)
    }

    /// All slices.
    pub fn slices(&self) -> &[Slice] {
        if self.is_one() {
            // SAFETY: the word is a slice, which is a pointer and nothing else.
            return from_ref(unsafe { &*(&raw const self.word).cast::<Slice>() });
        }
        let elements = self.elements();
        if self.is_none() || self.is_empty_list() {
            return &[];
        }
        // SAFETY: a list with a first element, which has the length; what is borrowed is borrowed
        // from `self`.
        unsafe { from_raw_parts(elements, (*elements).list_shape()[0]) }
    }

    // Not by comparison with a value, which would be dropped.

    #[inline(always)]
    fn is_one(&self) -> bool {
        self.word.addr() & OTHER == 0
    }

    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        self.word.addr() == OTHER
    }

    fn is_empty_list(&self) -> bool {
        self.word.addr() == EMPTY
    }

    fn elements(&self) -> *mut Slice {
        self.word.map_addr(|address| address & !OTHER).cast()
    }

    /// # Safety
    /// It is a list, and given back once.
    unsafe fn list(&self) -> Vec<Slice> {
        if self.is_empty_list() {
            return Vec::new();
        }
        let elements = self.elements();
        // SAFETY: there is a first element, and it says what `from` was given; nobody could reach
        // them since.
        unsafe {
            let [length, capacity] = (*elements).list_shape();
            Vec::from_raw_parts(elements, length, capacity)
        }
    }

    /// By value, so that only this path needs it in memory.
    ///
    /// # Safety
    /// It is a word that owns a slice or a list, and is used no more.
    #[cold]
    #[inline(never)]
    unsafe fn free(word: *mut ()) {
        let buffers = ManuallyDrop::new(Self { word });
        // SAFETY: as the caller vouches.
        unsafe {
            if buffers.is_one() {
                drop(Slice::from_raw(word.cast()));
            } else {
                drop(buffers.list());
            }
        }
    }
}

impl From<Slice> for Buffers {
    #[inline(always)]
    fn from(slice: Slice) -> Self {
        Self { word: slice.into_raw().cast() }
    }
}

/// An empty list loses its capacity.
impl From<Vec<Slice>> for Buffers {
    fn from(mut slices: Vec<Slice>) -> Self {
        let shape = [slices.len(), slices.capacity()];
        let Some(first) = slices.first_mut() else {
            return Self { word: without_provenance_mut(EMPTY) };
        };
        first.set_list_shape(shape);
        let elements = ManuallyDrop::new(slices).as_mut_ptr();
        Self { word: elements.map_addr(|address| address | OTHER).cast() }
    }
}

impl Default for Buffers {
    fn default() -> Self {
        Self::None
    }
}

impl Drop for Buffers {
    #[inline]
    fn drop(&mut self) {
        if !self.is_none() {
            // SAFETY: it is not none, and being dropped.
            unsafe { Self::free(self.word) }
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.write_str("None") } else { self.slices().fmt(f) }
    }
}
