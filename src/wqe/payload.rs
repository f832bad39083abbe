//! What an operation carries: scatter/gather entries, or bytes in the WQE itself.

use mlx5_sys::wqe::{DataSeg, InlineHeader, SEGMENT_SIZE};

use super::{Limits, Segments, Sge};
use crate::ring::PostError;

/// The longest entry; a data segment says it with 0.
const MAX_SGE_LENGTH: u32 = 1 << 31;

mod sealed {
    use super::{Limits, PostError, Segments};

    /// How a payload becomes segments. Sealed: the queue trusts `ds` to be what `put` writes.
    pub trait Encode {
        /// Size in 16-byte units.
        fn ds(&self) -> u32;
        /// Whether the queue takes it.
        fn check(&self, limits: &Limits) -> Result<(), PostError>;
        /// Writes the segments.
        ///
        /// # Safety
        /// There is space for [`ds`](Self::ds) segments, and [`check`](Self::check) passed.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
    }
}
use sealed::Encode;

/// What an operation carries.
///
/// [`Sge`], `[Sge; N]` and `&[Sge]` name memory that the card reads or writes later. [`Inline`],
/// [`InlineBytes`] and [`InlineGather`] are copied into the WQE when it is appended.
pub trait Payload: Encode {}

/// A payload of scatter/gather entries: what a READ can scatter to.
pub trait SgeList: Payload {}

impl Payload for Sge {}
impl SgeList for Sge {}
impl<const N: usize> Payload for [Sge; N] {}
impl<const N: usize> SgeList for [Sge; N] {}
impl Payload for &[Sge] {}
impl SgeList for &[Sge] {}
impl Payload for Inline<'_> {}
impl<const N: usize> Payload for InlineBytes<N> {}
impl Payload for InlineGather<'_> {}

/// Bytes that travel in the WQE. They are copied when the operation is appended, so they may change
/// right after. An empty slice adds nothing to the WQE.
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// As [`Inline`], of a length known at compile time.
#[derive(Clone, Copy, Debug)]
pub struct InlineBytes<const N: usize>(pub [u8; N]);

/// As [`Inline`], gathered from several places.
#[derive(Clone, Copy, Debug)]
pub struct InlineGather<'a>(pub &'a [&'a [u8]]);

/// The data segment of an entry that is not empty.
#[inline(always)]
pub(crate) fn data_segment(sge: &Sge) -> DataSeg {
    DataSeg {
        byte_count: (sge.length & !MAX_SGE_LENGTH).into(),
        lkey: sge.lkey.into(),
        addr: sge.addr.into(),
    }
}

/// Whether a queue with room for `max` entries takes the list.
#[inline(always)]
fn check_list(list: &[Sge], max: u32) -> Result<(), PostError> {
    if list.len() > max as usize {
        return Err(PostError::TooManySges);
    }
    if list.iter().any(|sge| sge.length > MAX_SGE_LENGTH) {
        return Err(PostError::SgeTooLong);
    }
    Ok(())
}

macro_rules! list {
    ([$($generics:tt)*] $type:ty, |$this:ident| $list:expr) => {
        impl<$($generics)*> Encode for $type {
            #[inline(always)]
            fn ds(&self) -> u32 {
                let $this = self;
                $list.iter().map(|sge| u32::from(sge.length != 0)).sum()
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                let $this = self;
                check_list($list, limits.max_sge)
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, writer: &mut W) {
                let $this = self;
                for sge in $list.iter().filter(|sge| sge.length != 0) {
                    // SAFETY: `ds` counted this entry, and the caller has that much space.
                    unsafe { writer.put(data_segment(sge)) }
                }
            }
        }
    };
}

list!([] Sge, |this| core::slice::from_ref(this));
list!([const N: usize] [Sge; N], |this| this.as_slice());
list!([] & [Sge], |this| *this);

macro_rules! inline {
    ([$($generics:tt)*] $type:ty, |$this:ident| $length:expr, $pieces:expr) => {
        impl<$($generics)*> Encode for $type {
            #[inline(always)]
            fn ds(&self) -> u32 {
                let $this = self;
                let length: usize = $length;
                if length == 0 {
                    return 0;
                }
                (InlineHeader::SIZE + length).div_ceil(SEGMENT_SIZE) as u32
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                let $this = self;
                let length: usize = $length;
                if length > limits.max_inline as usize {
                    return Err(PostError::InlineTooLong);
                }
                Ok(())
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, writer: &mut W) {
                let $this = self;
                let length: usize = $length;
                if length != 0 {
                    // SAFETY: `ds` counted header and payload, and `check` bounded the length.
                    unsafe { writer.put_inline(length as u32, $pieces) }
                }
            }
        }
    };
}

inline!([] Inline<'_>, |this| this.0.len(), core::iter::once(this.0));
inline!([const N: usize] InlineBytes<N>, |this| this.0.len(), core::iter::once(this.0.as_slice()));
inline!(
    [] InlineGather<'_>,
    |this| this.0.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len())),
    this.0.iter().copied()
);
