//! Payloads of operations: scatter/gather entries, or bytes in the WQE itself.

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::{DataSeg, INLINE_SEG, INVALID_LKEY, InlineHeader, MAX_DS, SEGMENT_SIZE};

use super::{Limits, Segment, Segments, Sge, Unit, Word};

/// Length of the longest entry. A data segment encodes it as 0.
pub(crate) const MAX_SGE_LENGTH: u32 = 1 << 31;

mod sealed {
    use super::{Limits, PostError, Segments, Word};

    /// The local memory of an atomic.
    pub trait EncodeWord {
        /// Returns its address and key, if it has this many bytes.
        fn word(&self, bytes: u32) -> Option<Word>;
    }

    /// How a payload is encoded as segments. Sealed: the queue trusts that `put` writes `ds` units.
    pub trait Encode {
        /// Size in 16-byte units of the payload in its usual form; 0 if it has no usual form. A
        /// constant, so that a WQE with it needs no arithmetic.
        const USUAL_DS: u32 = 0;
        /// Size in 16-byte units.
        fn ds(&self) -> u32;
        /// Returns whether [`check`](Self::check) would pass and [`ds`](Self::ds) is
        /// [`USUAL_DS`](Self::USUAL_DS), on a queue that takes at least one entry.
        #[inline(always)]
        fn is_usual(&self, _limits: &Limits) -> bool {
            false
        }
        /// Checks the payload against the queue's limits.
        fn check(&self, limits: &Limits) -> Result<(), PostError>;
        /// Writes the segments.
        ///
        /// # Safety
        /// There is space for [`ds`](Self::ds) segments, and [`check`](Self::check) passed.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
        /// Writes the segments of a [usual](Self::is_usual) payload, without further checks.
        ///
        /// # Safety
        /// There is space for [`ds`](Self::ds) segments, and [`is_usual`](Self::is_usual) returned
        /// true.
        #[inline(always)]
        unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
            // SAFETY: there is space. `is_usual` returned true, so `check` would pass.
            unsafe { self.put(writer) }
        }
        /// Writes the segments of a payload with at most `_most` of them.
        ///
        /// # Safety
        /// - There is space for [`ds`](Self::ds) segments, which is no more than `_most`.
        /// - [`check`](Self::check) passed.
        #[inline(always)]
        unsafe fn put_short<W: Segments>(&self, writer: &mut W, _most: usize) {
            // SAFETY: there is space, and `check` passed.
            unsafe { self.put(writer) }
        }
    }
}
use crate::wqe::{Excess, PostError};
use sealed::Encode;
pub(crate) use sealed::{Encode as EncodePayload, EncodeWord};

/// The payload of an operation.
///
/// [`Sge`], `[Sge; N]` and `&[Sge]` name memory that the HCA reads or writes later. [`MrSlice`] and
/// `Vec<MrSlice>` own it. [`Inline`], [`InlineBytes`] and [`InlineGather`] are copied into the WQE
/// when it is appended. `(TagHeader, P)` is a [`TagHeader`](super::TagHeader) before entries.
///
/// [`MrSlice`]: crate::endpoint::MrSlice
///
/// ```
/// use mlx5::wqe::{Inline, Payload, RdmaWrite, Remote, Sge};
///
/// /// A WRITE of one entry, of many, or of bytes in the WQE.
/// fn write<P: Payload>(payload: P, to: Remote) -> RdmaWrite<P> {
///     RdmaWrite::new(payload, to).signaled()
/// }
/// let (sge, to) = (Sge::new(0x1000, 8, 1), Remote::new(0x2000, 2));
/// let _writes = (write(sge, to), write([sge, sge], to), write(Inline(b"8 bytes."), to));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no payload",
    note = "memory is an `Sge`, an array or a slice of them, or an `MrSlice` of the safe layer",
    note = "bytes that travel in the request are `Inline(&bytes)` or `InlineBytes(array)`"
)]
pub trait Payload: Encode {}

/// A payload of scatter/gather entries. A READ scatters to it.
///
/// ```
/// use mlx5::wqe::{RdmaRead, Remote, Sge};
///
/// // Scatters over two pieces of memory, in this order.
/// let pieces = [Sge::new(0x1000, 8, 1), Sge::new(0x3000, 56, 1)];
/// let read = RdmaRead::new(pieces, Remote::new(0x2000, 2));
/// assert_eq!(read.into_payload().iter().map(|sge| sge.length).sum::<u32>(), 64);
/// ```
#[doc(alias("ibv_wr_set_sge", "ibv_wr_set_sge_list"))]
pub trait SgeList: Payload {}

/// The memory for the peer's old value of an atomic: a [`Word`] that names it, or a [`MrSlice`]
/// that owns it. It has at least as many bytes as the atomic, of which the first are written.
///
/// [`MrSlice`]: crate::endpoint::MrSlice
///
/// ```
/// use mlx5::wqe::{FetchAdd, OldValue, Remote, Word};
///
/// /// An increment, whatever names the memory of the old value.
/// fn increment<W: OldValue>(old: W, counter: Remote) -> FetchAdd<W> {
///     FetchAdd::new(old, counter, 1)
/// }
/// let add = increment(Word::new(0x1000, 1), Remote::new(0x2000, 2));
/// assert_eq!(add.into_old().addr, 0x1000);
/// ```
pub trait OldValue: EncodeWord {}

impl OldValue for Word {}

impl EncodeWord for Word {
    #[inline(always)]
    fn word(&self, _: u32) -> Option<Word> {
        Some(*self)
    }
}

/// Bytes in the WQE itself. They are copied when the operation is appended, so they may change
/// right after. An empty slice adds nothing to the WQE.
///
/// ```
/// # let rig::Link { mut sends, remote, memory: _m, .. } = rig::link()?;
/// use mlx5::ring::{Excess, PostError};
/// use mlx5::wqe::{Inline, RdmaWrite};
///
/// let text = String::from("hello");
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, RdmaWrite::new(Inline(text.as_bytes()), remote))? };
/// drop(text);
/// // SAFETY: the payload would be copied.
/// let long = unsafe { sends.post(2, RdmaWrite::new(Inline(&[0; 4096]), remote)) };
/// let most = sends.limits().max_inline;
/// let expected = PostError::InlineTooLong(Excess::new(4096, most));
/// assert_eq!(long, Err(expected));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("IBV_SEND_INLINE", "ibv_wr_set_inline_data"))]
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a>(pub &'a [u8]);

/// Inline bytes of a length known at compile time, see [`Inline`].
///
/// ```
/// use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};
///
/// // The length is known to the compiler, so that the post has no loop.
/// let flag = RdmaWrite::new(InlineBytes(1u64.to_ne_bytes()), Remote::new(0x2000, 2));
/// assert_eq!(flag.into_payload().0.len(), 8);
/// ```
#[doc(alias("IBV_SEND_INLINE", "ibv_wr_set_inline_data"))]
#[derive(Clone, Copy, Debug)]
pub struct InlineBytes<const N: usize>(pub [u8; N]);

/// Inline bytes gathered from several slices, see [`Inline`].
///
/// ```
/// use mlx5::wqe::{InlineGather, SendMessage};
///
/// // A header and a body become one message.
/// let pieces: [&[u8]; 2] = [b"head", b"body"];
/// let message = SendMessage::new(InlineGather(&pieces));
/// assert_eq!(message.into_payload().0.concat(), b"headbody");
/// ```
#[doc(alias("IBV_SEND_INLINE", "ibv_wr_set_inline_data_list"))]
#[derive(Clone, Copy, Debug)]
pub struct InlineGather<'a>(pub &'a [&'a [u8]]);

/// Returns the data segment of an entry that is not empty.
#[inline(always)]
pub(crate) fn data_segment(sge: &Sge) -> Segment {
    zerocopy::transmute!(DataSeg {
        byte_count: (sge.length & !MAX_SGE_LENGTH).into(),
        lkey: sge.lkey.into(),
        addr: sge.addr.into(),
    })
}

/// Ends a receive that has fewer entries than its stride.
pub(crate) const TERMINATOR: Segment = zerocopy::transmute!(DataSeg {
    byte_count: zerocopy::big_endian::U32::new(0),
    lkey: zerocopy::big_endian::U32::new(INVALID_LKEY),
    addr: zerocopy::big_endian::U64::new(0),
});

/// Returns whether a queue that takes `max` entries takes the list.
#[inline(always)]
fn check_list(mut list: impl ExactSizeIterator<Item = Sge>, max: u32) -> Result<(), PostError> {
    if list.len() > max as usize {
        return Err(PostError::TooManySges(Excess::new(list.len(), max)));
    }
    match list.find(|sge| sge.length > MAX_SGE_LENGTH) {
        None => Ok(()),
        Some(long) => Err(PostError::SgeTooLong { bytes: long.length }),
    }
}

/// Implements a payload for a type that is a list of entries.
macro_rules! list {
    ([$($generics:tt)*] $type:ty, |$this:ident| $list:expr $(, one $one:expr)?) => {
        impl<$($generics)*> Payload for $type {}
        impl<$($generics)*> SgeList for $type {}

        impl<$($generics)*> Encode for $type {
            $(
                const USUAL_DS: u32 = 1;

                #[inline(always)]
                fn is_usual(&self, _: &Limits) -> bool {
                    let $this = self;
                    let Sge { length, .. } = $one;
                    length.wrapping_sub(1) < MAX_SGE_LENGTH
                }

                #[inline(always)]
                unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
                    let $this = self;
                    // SAFETY: a usual entry is not empty, so `ds` counts it.
                    unsafe { writer.put(data_segment(&$one)) }
                }
            )?

            #[inline(always)]
            fn ds(&self) -> u32 {
                let $this = self;
                $list.map(|sge| u32::from(sge.length != 0)).sum()
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                let $this = self;
                check_list($list, limits.max_sge)
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, writer: &mut W) {
                let $this = self;
                for sge in $list.filter(|sge| sge.length != 0) {
                    // SAFETY: `ds` counted this entry, and the caller has that much space.
                    unsafe { writer.put(data_segment(&sge)) }
                }
            }
        }
    };
}

list!([] Sge, |this| core::iter::once(*this), one *this);
list!([const N: usize] [Sge; N], |this| this.iter().copied());
list!(['a] &'a [Sge], |this| this.iter().copied());
/// Size in 16-byte units of an inline payload of `length` bytes.
#[inline(always)]
const fn inline_ds(length: usize) -> u32 {
    let bytes = InlineHeader::SIZE + length + SEGMENT_SIZE - 1;
    if length == 0 { 0 } else { (bytes >> SEGMENT_SIZE.trailing_zeros()) as u32 }
}

/// Length of a payload in pieces.
#[inline(always)]
fn length_of(pieces: &[&[u8]]) -> usize {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.len()))
}

/// Implements a payload for a type whose bytes are in the WQE.
macro_rules! inline {
    ([$($generics:tt)*] $type:ty, |$this:ident, $writer:ident, $most:ident| $length:expr, $put:expr $(, known $known:expr)?) => {
        impl<$($generics)*> Payload for $type {}

        impl<$($generics)*> Encode for $type {
            $(
                const USUAL_DS: u32 = inline_ds($known);

                #[inline(always)]
                fn is_usual(&self, limits: &Limits) -> bool {
                    $known <= limits.max_inline as usize
                }

                #[inline(always)]
                unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
                    // SAFETY: there is space, and the length is within the limits.
                    unsafe { self.put_units(writer) }
                }
            )?

            #[inline(always)]
            fn ds(&self) -> u32 {
                let $this = self;
                inline_ds($length)
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                let $this = self;
                let length: usize = $length;
                if length > limits.max_inline as usize {
                    let excess = Excess::new(length, limits.max_inline);
                    return Err(PostError::InlineTooLong(excess));
                }
                Ok(())
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, writer: &mut W) {
                // SAFETY: `ds` counted the segments, and `check` passed. A WQE has no more.
                unsafe { self.put_short(writer, MAX_DS) }
            }

            #[inline(always)]
            unsafe fn put_short<W: Segments>(&self, $writer: &mut W, $most: usize) {
                let $this = self;
                let length: usize = $length;
                if length != 0 {
                    // SAFETY: `ds` counted header and payload, and `check` bounded the length.
                    unsafe { $put }
                }
            }
        }
    };
}

inline!([] Inline<'_>, |this, writer, most| this.0.len(), writer.put_inline(this.0, most));
inline!(
    [const N: usize] InlineBytes<N>,
    |this, writer, most| this.0.len(),
    writer.put_inline(&this.0, most),
    known N
);
inline!(
    [] InlineGather<'_>,
    |this, writer, _most| length_of(this.0),
    writer.put_gathered(length_of(this.0) as u32, this.0.iter().copied())
);

impl<const N: usize> InlineBytes<N> {
    /// Writes header and payload. The compiler sees where each word of a short one goes.
    ///
    /// # Safety
    /// There is space for them.
    #[inline(always)]
    unsafe fn put_units<W: Segments>(&self, writer: &mut W) {
        macro_rules! units {
            ($($at:literal)*) => { $(
                if $at < inline_ds(N) {
                    // SAFETY: the space is for all units.
                    unsafe { writer.put_known(&self.0, $at) }
                }
            )* };
        }
        // As many as follow a ctrl segment in a BlueFlame buffer: no post whose size is known has
        // more.
        const { assert!(BF_BUFFER_SIZE / SEGMENT_SIZE == 16) };
        if const { inline_ds(N) <= 15 } {
            units!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14);
        } else {
            // SAFETY: there is space.
            unsafe { self.put(writer) }
        }
    }

    /// Returns segment `at` of an inline payload: header, bytes, and zeros up to the segment's end.
    #[inline(always)]
    pub(super) fn segment(bytes: &[u8; N], at: usize) -> Segment {
        let from = Self::byte(at);
        let header = if at == 0 { Self::HEADER } else { 0 };
        [word(bytes, from) | header, word(bytes, from + 8)]
    }

    /// Returns the same as a unit.
    #[inline(always)]
    pub(crate) fn unit(bytes: &[u8; N], at: usize) -> Unit {
        let from = Self::byte(at);
        if at == 0 {
            let start = Unit::from_words(word(bytes, 0), part(bytes, 8, 12)).behind_4();
            return start.or(Unit::from_words(Self::HEADER, 0));
        }
        // As wide as the payload lets a load be.
        match bytes.get(from as usize..).and_then(|bytes| bytes.first_chunk()) {
            Some(whole) => Unit::from_bytes(whole),
            None => Unit::from_words(word(bytes, from), word(bytes, from + 8)),
        }
    }

    const HEADER: u64 = (INLINE_SEG | N as u32).to_be() as u64;

    /// Index of the payload's byte at the start of segment `at`.
    #[inline(always)]
    const fn byte(at: usize) -> isize {
        (at * SEGMENT_SIZE) as isize - InlineHeader::SIZE as isize
    }
}

/// Returns eight of the bytes in memory order, from `from` on. Bytes outside are zero.
#[inline(always)]
pub(super) fn word<const N: usize>(bytes: &[u8; N], from: isize) -> u64 {
    part(bytes, from, from + 8)
}

/// Returns up to eight of the bytes in memory order, from `from` to `end`. Others are zero.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8; N], from: isize, end: isize) -> u64 {
    let mut word = [0; 8];
    let (start, end) = (from.max(0), end.min(N as isize));
    if start < end {
        let (at, length) = ((start - from) as usize, (end - start) as usize);
        word[at..at + length].copy_from_slice(&bytes[start as usize..end as usize]);
    }
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests;
