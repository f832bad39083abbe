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
/// [Iterating](IntoIterator) over it gives all its slices. [`one`](Self::one) and [`many`](Self::many)
/// give what was posted in the same shape, and otherwise give the buffers back.
/// [`slices`](Self::slices) borrows. No call loses a slice, and none allocates; only the iterator over a
/// list frees something, when it is dropped: the list itself. Two values are equal if both are none, or
/// both are lists without slices.
///
/// ```no_run
/// # use mlx5::ring::owned::{Buffers, Slice};
/// # fn example(buffers: Buffers) {
/// let free: Vec<Slice> = buffers.into_iter().collect();
/// # }
/// ```
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

    /// Returns the slice, if a single one was posted.
    ///
    /// # Errors
    /// The buffers, unchanged: none, or a list, even if that has one slice.
    #[inline]
    pub fn one(self) -> Result<Slice, Self> {
        if !self.is_one() {
            return Err(self);
        }
        // SAFETY: `from` made it, and as `self` is forgotten it is given back once.
        let slice = unsafe { Slice::from_raw(self.word.cast()) };
        forget(self);
        Ok(slice)
    }

    /// Returns the list, if a list was posted.
    ///
    /// # Errors
    /// The buffers, unchanged: none, or a single slice.
    pub fn many(self) -> Result<Vec<Slice>, Self> {
        if self.is_one() || self.is_none() {
            return Err(self);
        }
        // SAFETY: it is a list, and as `self` is forgotten it is given back once.
        let list = unsafe { self.list() };
        forget(self);
        Ok(list)
    }

    /// Borrows all slices.
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
        // SAFETY: the word owns a slice or a list, and this is its last use.
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

/// The slices of [`Buffers`], in the order in which they were posted. Dropping it drops those that are
/// left.
#[derive(Debug)]
pub struct IntoIter {
    one: Option<Slice>,
    many: std::vec::IntoIter<Slice>,
}

impl Iterator for IntoIter {
    type Item = Slice;

    #[inline]
    fn next(&mut self) -> Option<Slice> {
        self.one.take().or_else(|| self.many.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.one.is_some()) + self.many.len();
        (left, Some(left))
    }
}

impl ExactSizeIterator for IntoIter {}
impl std::iter::FusedIterator for IntoIter {}

impl IntoIterator for Buffers {
    type Item = Slice;
    type IntoIter = IntoIter;

    #[inline]
    fn into_iter(self) -> IntoIter {
        let (one, many) = match self.one() {
            Ok(slice) => (Some(slice), Vec::new()),
            // Of what is neither, there is nothing.
            Err(other) => (None, other.many().unwrap_or_default()),
        };
        IntoIter { one, many: many.into_iter() }
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
