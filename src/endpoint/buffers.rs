//! The slices of a request, as one word.
//!
//! Posting stores the word beside the WQE's slot, polling loads it and gives it to the program:
//! neither allocates or frees, or asks what it is.

use core::fmt;
use core::mem::forget;

use super::MrSlice;
use super::tagged;

/// The slices of a request: [`None`](Self::None), one, or a list.
///
/// [Iterating](IntoIterator) over it gives all its slices. [`one`](Self::one) and
/// [`many`](Self::many) give what was posted in the same shape, and otherwise give the buffers
/// back. [`slices`](Self::slices) borrows. No call loses a slice, and none allocates; only the
/// iterator over a list frees something, when it is dropped: the list itself. Two values are equal
/// if both are none, or both are lists without slices.
///
/// ```no_run
/// # use mlx5::endpoint::{Buffers, MrSlice};
/// # fn example(buffers: Buffers) {
/// let free: Vec<MrSlice> = buffers.into_iter().collect();
/// # }
/// ```
#[derive(PartialEq, Eq)]
#[repr(transparent)]
pub struct Buffers {
    /// A word of [`tagged`] that owns slices.
    word: *mut (),
}

// SAFETY: the word owns slices and nothing else, and a slice is `Send`.
unsafe impl Send for Buffers {}
// SAFETY: a shared reference leads to shared references to the slices alone, and a slice is `Sync`.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// The request had none. Also a pattern.
    #[allow(non_upper_case_globals, reason = "as the variant of an enum, which it stands for")]
    pub const None: Self = Self { word: tagged::NONE };

    /// Returns the slice, if a single one was posted.
    ///
    /// # Errors
    /// The buffers, unchanged: none, or a list, even if that has one slice.
    #[inline]
    pub fn one(self) -> Result<MrSlice, Self> {
        if !self.is_one() {
            return Err(self);
        }
        // SAFETY: the tag says that `From<MrSlice>` made the word. `self` is forgotten, so the word
        // is used once.
        let slice = unsafe { tagged::into_one(self.word) };
        forget(self);
        Ok(slice)
    }

    /// Returns the list, if a list was posted.
    ///
    /// # Errors
    /// The buffers, unchanged: none, or a single slice.
    pub fn many(self) -> Result<Vec<MrSlice>, Self> {
        if self.is_one() || self.is_none() {
            return Err(self);
        }
        // SAFETY: the tag says that `From<Vec<MrSlice>>` made the word. `self` is forgotten, so the
        // word is used once.
        let list = unsafe { tagged::into_list(self.word) };
        forget(self);
        Ok(list)
    }

    /// Borrows all slices.
    pub fn slices(&self) -> &[MrSlice] {
        // SAFETY: the word is `NONE` or was made by one of the two `From`, and `self` owns its
        // slices as long as it is borrowed.
        unsafe { tagged::elements(&self.word) }
    }

    // Not by comparison with a value, which would be dropped.

    #[inline(always)]
    fn is_one(&self) -> bool {
        tagged::is_one(self.word)
    }

    #[inline(always)]
    pub(super) fn is_none(&self) -> bool {
        tagged::is_none(self.word)
    }
}

impl From<MrSlice> for Buffers {
    #[inline(always)]
    fn from(slice: MrSlice) -> Self {
        Self { word: tagged::of_one(slice) }
    }
}

/// An empty list loses its capacity.
impl From<Vec<MrSlice>> for Buffers {
    fn from(slices: Vec<MrSlice>) -> Self {
        Self { word: tagged::of_list(slices) }
    }
}

/// The slices of [`Buffers`], in the order in which they were posted. Dropping it drops the rest.
#[derive(Debug)]
pub struct IntoIter {
    one: Option<MrSlice>,
    many: std::vec::IntoIter<MrSlice>,
}

impl Iterator for IntoIter {
    type Item = MrSlice;

    #[inline]
    fn next(&mut self) -> Option<MrSlice> {
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
    type Item = MrSlice;
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
            // SAFETY: the word is not `NONE`, so one of the two `From` made it. It is not used
            // after the drop.
            unsafe { tagged::free::<MrSlice>(self.word) }
        }
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { f.write_str("None") } else { self.slices().fmt(f) }
    }
}
