//! Atomics under masks, of 4 to 32 bytes.
//!
//! UCX (`rc_mlx5.inl`, `uct_rc_mlx5_txqp_dptr_post`, up to eight bytes) and the libmlx5 of Mellanox
//! OFED (`qp.c`, `ext_cmp_swp`, `ext_fetch_add`, all sizes) post the same segments and opcode
//! modifiers. rdma-core's libmlx5 posts no masked atomics.

use mlx5_sys::wqe::opcode;
use zerocopy::big_endian::{U32, U64, U128};

use super::encode::{raddr_segment, setters};
use super::{
    Code, Encode, Limits, OldValue, Operation, Remote, Segment, Segments, Sge, Word, data_segment,
};

mod sealed {
    use super::{Segment, Segments};

    /// How operands become segments. Sealed: the queue trusts the counts to be what is written.
    pub trait Encode: Copy {
        /// log2 of its bytes.
        const LOG: u32;
        /// Segments of two operands.
        const PAIR: u32;
        /// Segments of four.
        const QUAD: u32;
        /// No bit, and every bit.
        const NONE: Self;
        const ALL: Self;
        /// Writes two operands.
        ///
        /// # Safety
        /// There is space for [`PAIR`](Self::PAIR) segments.
        unsafe fn put_pair<W: Segments>(operands: [Self; 2], writer: &mut W);
        /// Writes four.
        ///
        /// # Safety
        /// There is space for [`QUAD`](Self::QUAD) segments.
        unsafe fn put_quad<W: Segments>(operands: [Self; 4], writer: &mut W);
    }

    /// Sixteen bytes of a number.
    pub(super) fn half(value: u128) -> Segment {
        zerocopy::transmute!(super::U128::new(value))
    }
}
use crate::wqe::{Excess, PostError};
use sealed::{Encode as EncodeNumber, half};

/// The operand of a masked atomic: a number of 4 ([`u32`]), 8 ([`u64`]), 16 ([`u128`]) or 32 bytes
/// (`[u128; 2]`, the more significant half first).
///
/// Eight bytes are in host byte order, at the peer and in the memory for the old value, as those of
/// [`CompareSwap`](super::CompareSwap). Four bytes are in host byte order at the peer. Their old
/// value is stored most significant byte first (UCX's `rc_iface.c`,
/// `uct_rc_ep_atomic_handler_32_be1`). The order of wider numbers is not published; they are
/// assumed to be most significant byte first. Addresses at the peer are multiples of the size. The
/// HCA's capabilities list its sizes (`atomic_size_qp` of QUERY_HCA_CAP). It refuses others as an
/// invalid request.
///
/// ```
/// use mlx5::wqe::{MaskedFetchAdd, Remote, Word};
///
/// // The operand's type says how many bytes the HCA changes.
/// let (old, remote) = (Word::new(0x1000, 1), Remote::new(0x2000, 2));
/// let four = MaskedFetchAdd::new(old, remote, 1u32);
/// let eight = MaskedFetchAdd::new(old, remote, 1u64);
/// ```
pub trait Number: EncodeNumber {}

macro_rules! whole {
    ($type:ty, $log:literal, $pair:literal, $quad:literal, $put_pair:expr, $put_quad:expr) => {
        impl Number for $type {}

        impl EncodeNumber for $type {
            const LOG: u32 = $log;
            const PAIR: u32 = $pair;
            const QUAD: u32 = $quad;
            const NONE: Self = 0;
            const ALL: Self = <$type>::MAX;

            #[inline(always)]
            unsafe fn put_pair<W: Segments>(operands: [Self; 2], writer: &mut W) {
                let segments: [Segment; $pair] = $put_pair(operands);
                for segment in segments {
                    // SAFETY: these are the segments there is space for.
                    unsafe { writer.put(segment) }
                }
            }

            #[inline(always)]
            unsafe fn put_quad<W: Segments>(operands: [Self; 4], writer: &mut W) {
                let segments: [Segment; $quad] = $put_quad(operands);
                for segment in segments {
                    // SAFETY: one of the `$quad` segments there is space for.
                    unsafe { writer.put(segment) }
                }
            }
        }
    };
}

whole!(
    u32,
    2,
    1,
    1,
    |[a, b]: [u32; 2]| [zerocopy::transmute!([a, b, 0, 0].map(U32::new))],
    |operands: [u32; 4]| [zerocopy::transmute!(operands.map(U32::new))]
);
whole!(
    u64,
    3,
    1,
    2,
    |operands: [u64; 2]| [zerocopy::transmute!(operands.map(U64::new))],
    |operands: [u64; 4]| zerocopy::transmute!(operands.map(U64::new))
);
whole!(u128, 4, 2, 4, |operands: [u128; 2]| operands.map(half), |operands: [u128; 4]| operands
    .map(half));

impl Number for [u128; 2] {}

impl EncodeNumber for [u128; 2] {
    const LOG: u32 = 5;
    const PAIR: u32 = 4;
    const QUAD: u32 = 8;
    const NONE: Self = [0; 2];
    const ALL: Self = [u128::MAX; 2];

    #[inline(always)]
    unsafe fn put_pair<W: Segments>(operands: [Self; 2], writer: &mut W) {
        for value in operands.as_flattened() {
            // SAFETY: four segments, for which there is space.
            unsafe { writer.put(half(*value)) }
        }
    }

    #[inline(always)]
    unsafe fn put_quad<W: Segments>(operands: [Self; 4], writer: &mut W) {
        for value in operands.as_flattened() {
            // SAFETY: eight segments, for which there is space.
            unsafe { writer.put(half(*value)) }
        }
    }
}

/// A number with a mask of the bits that count.
///
/// ```
/// use mlx5::wqe::{Bits, MaskedCompareSwap, Remote, Word};
///
/// // Whatever is there, bit 0 gets 1, and all other bits stay.
/// let (old, remote) = (Word::new(0x1000, 1), Remote::new(0x2000, 2));
/// let set = MaskedCompareSwap::new(old, remote, Bits::none(), Bits::new(1u64, 1));
/// assert_eq!(Bits::all(1u64), Bits::new(1, !0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits<N = u64> {
    value: N,
    mask: N,
}

impl<N: Number> Bits<N> {
    /// The bits of `value` where `mask` has ones.
    pub const fn new(value: N, mask: N) -> Self {
        Self { value, mask }
    }

    /// Every bit of `value`.
    pub const fn all(value: N) -> Self {
        Self { value, mask: N::ALL }
    }

    /// No bit: equal to anything.
    pub const fn none() -> Self {
        Self { value: N::NONE, mask: N::NONE }
    }
}

/// Masked atomic compare and swap on a [`Number`] in the peer's memory.
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::{Bits, MaskedCompareSwap};
///
/// memory.write(64, &0xab00u64.to_ne_bytes()); // the peer's word
/// let old = memory.word(0)?;
/// // Compares the low byte with 0, and sets it to 7. The other bytes stay.
/// let swap = MaskedCompareSwap::new(old, remote, Bits::new(0, 0xff), Bits::new(7u64, 0xff));
/// // SAFETY: the memory stays registered, and nothing uses the word before the completion.
/// unsafe { sends.post(1, swap.signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// let mut bytes = [0; 8];
/// memory.read(64, &mut bytes);
/// assert_eq!(u64::from_ne_bytes(bytes), 0xab07); // when the request is complete
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "MLX5_OPCODE_ATOMIC_MASKED_CS")]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MaskedCompareSwap<N = u64, W = Word> {
    old: W,
    remote: Remote,
    compare: Bits<N>,
    swap: Bits<N>,
    flags: u8,
}

impl<N: Number, W: OldValue> MaskedCompareSwap<N, W> {
    /// Replaces the bits of `swap` at `remote`, if the bits of `compare` are equal there. Puts the
    /// whole old value into `old`. With [`Bits::none`] to compare it always replaces.
    pub const fn new(old: W, remote: Remote, compare: Bits<N>, swap: Bits<N>) -> Self {
        Self { old, remote, compare, swap, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn old(&self) -> &W {
        &self.old
    }

    /// Returns the memory for the old value.
    pub fn into_old(self) -> W {
        self.old
    }

    setters!(signaled);

    #[inline(always)]
    unsafe fn put_operands<S: Segments>(&self, writer: &mut S) {
        let Self { compare, swap, .. } = self;
        // SAFETY: there is space for the operands, which are a quad.
        unsafe { N::put_quad([swap.value, compare.value, swap.mask, compare.mask], writer) }
    }
}

/// Atomic addition to the fields of a [`Number`] in the peer's memory.
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::MaskedFetchAdd;
///
/// // Two counters of 32 bits in the peer's word. The lower one does not carry into the upper one.
/// memory.write(64, &0xffff_ffffu64.to_ne_bytes());
/// let old = memory.word(0)?;
/// let add = MaskedFetchAdd::new(old, remote, 1u64 << 32 | 1).fields(1 << 31);
/// // SAFETY: the memory stays registered, and nothing uses the word before the completion.
/// unsafe { sends.post(1, add.signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// let mut bytes = [0; 8];
/// memory.read(64, &mut bytes);
/// assert_eq!(u64::from_ne_bytes(bytes), 1 << 32); // when the request is complete
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "MLX5_OPCODE_ATOMIC_MASKED_FA")]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct MaskedFetchAdd<N = u64, W = Word> {
    old: W,
    remote: Remote,
    add: N,
    ends: N,
    flags: u8,
}

impl<N: Number, W: OldValue> MaskedFetchAdd<N, W> {
    /// Adds `add` to the number at `remote`, wrapping. Puts the old value into `old`.
    pub const fn new(old: W, remote: Remote, add: N) -> Self {
        Self { old, remote, add, ends: N::NONE, flags: 0 }
    }

    /// Adds field by field: each bit set in `ends` is the most significant bit of a field. No carry
    /// leaves a field.
    pub const fn fields(mut self, ends: N) -> Self {
        self.ends = ends;
        self
    }

    #[inline(always)]
    pub(crate) fn old(&self) -> &W {
        &self.old
    }

    /// Returns the memory for the old value.
    pub fn into_old(self) -> W {
        self.old
    }

    setters!(signaled);

    #[inline(always)]
    unsafe fn put_operands<S: Segments>(&self, writer: &mut S) {
        // SAFETY: there is space for the operands, which are a pair.
        unsafe { N::put_pair([self.add, self.ends], writer) }
    }
}

macro_rules! masked {
    ($type:ident, $code:ident, $units:ident) => {
        impl<N: Number, W: OldValue> Operation for $type<N, W> {
            const OPCODE: u8 = opcode::$code;

            #[inline(always)]
            fn code(&self) -> Code {
                Code::modified(Self::OPCODE, opcode::opmod_masked(N::LOG))
            }
        }

        impl<N: Number, W: OldValue> Encode for $type<N, W> {
            const KNOWN_DS: u32 = 3 + N::$units;

            #[inline(always)]
            fn is_usual(&self, _: &Limits) -> bool {
                self.old.word(1 << N::LOG).is_some()
            }

            #[inline(always)]
            fn body_ds(&self) -> u32 {
                2 + N::$units
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                if limits.max_sge == 0 {
                    return Err(PostError::TooManySges(Excess::new(1, 0)));
                }
                self.old.word(1 << N::LOG).map(|_| ()).ok_or(PostError::WordTooShort)
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            unsafe fn put<S: Segments>(&self, writer: &mut S) {
                // `check` has ensured that there is one.
                let old = self.old.word(1 << N::LOG).unwrap_or_default();
                let old = Sge { addr: old.addr, length: 1 << N::LOG, lkey: old.lkey };
                // SAFETY: these are the segments that `body_ds` counts.
                unsafe {
                    writer.put(raddr_segment(self.remote));
                    self.put_operands(writer);
                    writer.put(data_segment(&old));
                }
            }
        }
    };
}

masked!(MaskedCompareSwap, ATOMIC_MASKED_CS, QUAD);
masked!(MaskedFetchAdd, ATOMIC_MASKED_FA, PAIR);
