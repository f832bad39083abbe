//! The slices of a request.

use core::iter::Chain;
use core::slice::from_ref;
use std::{option, vec};

use super::MrSlice;

/// The slices of a request, in the shape in which they were posted.
///
/// [Iterating](IntoIterator) over it gives all its slices, whatever the shape, in the order in
/// which they were posted. [`slices`](Self::slices) borrows them. Neither allocates.
///
/// ```no_run
/// # use mlx5::endpoint::{Buffers, MrSlice};
/// # fn example(buffers: Buffers, free: &mut Vec<MrSlice>) {
/// free.extend(buffers);
/// # }
/// ```
// Polls compare a tag of one byte with fewer instructions than one in the capacity of the list, and
// slots of 32 bytes are found with fewer than slots of 24.
#[derive(Debug, Default)]
#[repr(u8)]
pub enum Buffers {
    /// The request had no memory: its payload was inline, or there was none.
    #[default]
    None,
    /// A single slice was posted.
    One(MrSlice),
    /// A list was posted, perhaps of one slice or of none.
    Many(Vec<MrSlice>),
}

impl Buffers {
    /// Returns the slice, if a single one was posted.
    ///
    /// # Errors
    /// The buffers, unchanged: none, or a list, even if that has one slice.
    #[inline]
    pub fn one(self) -> Result<MrSlice, Self> {
        match self {
            Self::One(slice) => Ok(slice),
            other => Err(other),
        }
    }

    /// Borrows all slices.
    pub fn slices(&self) -> &[MrSlice] {
        match self {
            Self::None => &[],
            Self::One(slice) => from_ref(slice),
            Self::Many(slices) => slices,
        }
    }
}

impl From<MrSlice> for Buffers {
    #[inline(always)]
    fn from(slice: MrSlice) -> Self {
        Self::One(slice)
    }
}

impl From<Vec<MrSlice>> for Buffers {
    #[inline(always)]
    fn from(slices: Vec<MrSlice>) -> Self {
        Self::Many(slices)
    }
}

impl IntoIterator for Buffers {
    type Item = MrSlice;
    type IntoIter = Chain<option::IntoIter<MrSlice>, vec::IntoIter<MrSlice>>;

    #[inline]
    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::None => (None, Vec::new()),
            Self::One(slice) => (Some(slice), Vec::new()),
            Self::Many(slices) => (None, slices),
        };
        one.into_iter().chain(many)
    }
}
