//! Variable fields: the fields of a WQE that get their values when it is posted.
//!
//! [`Prepared`](super::Prepared) writes WQEs ahead. Types declare which fields may change
//! afterwards: [`Bytes`], [`Offset`], [`Immediate`], a tuple of these, or `()` for none. Posting
//! takes exactly the values of the declared fields. Declaring a field that the operation does not
//! have does not compile:
//!
//! ```compile_fail,E0277
//! # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
//! type Eight = RdmaWrite<InlineBytes<8>>;
//! fn prepared(queue: SendQueue<Rc>) -> Prepared<SendQueue<Rc>, Form<Eight, Immediate>> {
//!     Prepared::new(queue)
//! }
//! ```
//! ```
//! # use mlx5::{ib::Rc, ring::{*, variable::*}, wqe::*};
//! type Eight = RdmaWriteImm<InlineBytes<8>>;
//! fn prepared(queue: SendQueue<Rc>) -> Prepared<SendQueue<Rc>, Form<Eight, Immediate>> {
//!     Prepared::new(queue)
//! }
//! ```

use core::ptr::NonNull;

use mlx5_sys::wqe::{CtrlSeg, InlineHeader, RaddrSeg, SEGMENT_SIZE};

use crate::wqe::{
    CompareSwap, FetchAdd, InlineBytes, OldValue, Payload, RdmaRead, RdmaWrite, RdmaWriteImm,
    SendImm, SendMessage, SgeList, Unit,
};

/// The place of a WQE in its ring.
pub struct Place {
    pub(super) ring: NonNull<u8>,
    /// Size of the ring in bytes.
    pub(super) size: usize,
    /// Offset of the WQE in the ring, less than `size`.
    pub(super) offset: usize,
}

impl Place {
    /// Stores bytes at offset `at` of the WQE, which may wrap around to the ring's start.
    ///
    /// # Safety
    /// The WQE has these bytes, and only the caller writes its blocks.
    unsafe fn write(&self, at: usize, bytes: &[u8]) {
        for (index, &byte) in bytes.iter().enumerate() {
            let offset = (self.offset + at + index) % self.size;
            // SAFETY: `offset` is less than the ring's size. The byte is the WQE's, which the
            // caller may write.
            unsafe { self.ring.add(offset).write_volatile(byte) }
        }
    }

    /// Loads eight bytes at offset `at` of the WQE.
    ///
    /// # Safety
    /// The WQE has these bytes, and nothing else writes its blocks.
    unsafe fn read(&self, at: usize) -> [u8; 8] {
        core::array::from_fn(|index| {
            let offset = (self.offset + at + index) % self.size;
            // SAFETY: `offset` is less than the ring's size.
            unsafe { self.ring.add(offset).read_volatile() }
        })
    }
}

mod sealed {
    use super::{Place, Unit};

    /// How values are written into a WQE. Sealed: prepared WQEs rely on nothing else being written.
    #[diagnostic::on_unimplemented(message = "`{O}` has no such variable fields as `{Self}`")]
    pub trait Patch<O> {
        /// [`Variable::Values`](super::Variable::Values).
        type Given: Copy;
        /// One bit per field, so that no field is named twice.
        const FIELDS: u8;
        /// One bit per 16-byte unit that changes, in a WQE of one block.
        const UNITS: u8;
        /// Returns unit `at` with the values filled in. `old` is the unit after
        /// [`blank`](Self::blank).
        fn unit(values: &Self::Given, at: usize, old: Unit) -> Unit;
        /// Prepares the fields of a written WQE for [`unit`](Self::unit) and
        /// [`patch`](Self::patch).
        ///
        /// # Safety
        /// The WQE is an `O`, and only the caller writes its blocks.
        unsafe fn blank(wqe: &Place);
        /// Stores the values to a WQE of any length.
        ///
        /// # Safety
        /// - The WQE is an `O`, and only the caller writes its blocks.
        /// - [`blank`](Self::blank) was called before, and no other `patch` since.
        unsafe fn patch(values: &Self::Given, wqe: &Place);
    }
}
pub(super) use sealed::Patch;

/// Fields of the operation `O` that get their values when a prepared WQE is posted.
pub trait Variable<O>: Patch<O, Given = <Self as Variable<O>>::Values> {
    /// The values: a tuple for a tuple of fields, `()` for `()`.
    type Values: Copy;
}

impl<O, V: Patch<O>> Variable<O> for V {
    type Values = V::Given;
}

/// The payload, which is [`InlineBytes`]: takes `[u8; N]`.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(());

/// The remote address, given as an offset in bytes from the address that the operation was written
/// with. Takes `u64`, and wraps at 2^64.
#[derive(Clone, Copy, Debug)]
pub struct Offset(());

/// The immediate: takes `u32`, as the operation's constructor does.
#[derive(Clone, Copy, Debug)]
pub struct Immediate(());

/// No field varies.
impl<O> Patch<O> for () {
    type Given = ();
    const FIELDS: u8 = 0;
    const UNITS: u8 = 0;

    #[inline(always)]
    fn unit((): &(), _: usize, old: Unit) -> Unit {
        old
    }

    unsafe fn blank(_: &Place) {}

    unsafe fn patch((): &(), _: &Place) {}
}

macro_rules! tuple {
    ($($name:ident $value:ident),*) => {
        impl<O, $($name: Patch<O>),*> Patch<O> for ($($name,)*) {
            type Given = ($($name::Given,)*);
            const FIELDS: u8 = {
                let fields = 0;
                $(
                    assert!(fields & $name::FIELDS == 0, "a field is named twice");
                    let fields = fields | $name::FIELDS;
                )*
                fields
            };
            const UNITS: u8 = 0 $(| $name::UNITS)*;

            #[inline(always)]
            fn unit(($($value,)*): &Self::Given, at: usize, old: Unit) -> Unit {
                const { assert!(Self::FIELDS != 0) };
                $(let old = $name::unit($value, at, old);)*
                old
            }

            unsafe fn blank(wqe: &Place) {
                const { assert!(Self::FIELDS != 0) };
                // SAFETY: the WQE is an `O`, whose blocks the caller may write, for each field.
                unsafe { $($name::blank(wqe);)* }
            }

            unsafe fn patch(($($value,)*): &Self::Given, wqe: &Place) {
                // SAFETY: the WQE is a blank `O`, whose blocks the caller may write. No field is
                // named twice, as `FIELDS` checks, so each is patched once.
                unsafe { $($name::patch($value, wqe);)* }
            }
        }
    };
}

tuple!(A a, B b);
tuple!(A a, B b, C c);

/// Returns the offset of the inline header of a WQE with this many segments before it.
const fn header_at(segments: usize) -> usize {
    segments * SEGMENT_SIZE
}

/// Units from `first` on that an inline payload of `length` bytes touches in the first block.
const fn units_of(first: usize, length: usize) -> u8 {
    let mut units = 0;
    let mut unit = 0;
    while unit < 4 {
        let is_behind_first = unit >= first;
        let is_before_end = unit * SEGMENT_SIZE < header_at(first) + InlineHeader::SIZE + length;
        if length != 0 && is_behind_first && is_before_end {
            units |= 1 << unit;
        }
        unit += 1;
    }
    units
}

/// Returns eight of the bytes in memory order, from `from` on. Bytes outside are zero.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8; N], from: isize) -> u64 {
    let mut word = [0; 8];
    let (start, end) = (from.max(0), (from + 8).min(N as isize));
    if start < end {
        let (at, length) = ((start - from) as usize, (end - start) as usize);
        word[at..at + length].copy_from_slice(&bytes[start as usize..end as usize]);
    }
    u64::from_ne_bytes(word)
}

macro_rules! bytes {
    ($($type:ident behind $segments:literal),*) => { $(
        impl<const N: usize> Patch<$type<InlineBytes<N>>> for Bytes {
            type Given = [u8; N];
            const FIELDS: u8 = 1;
            const UNITS: u8 = units_of($segments, N);

            #[inline(always)]
            fn unit(bytes: &[u8; N], at: usize, old: Unit) -> Unit {
                if at < $segments || N == 0 {
                    return old;
                }
                if N <= 8 && at == $segments {
                    return old.or(Unit::from_word_at_4(word(bytes, 0)));
                }
                let from = ((at - $segments) * SEGMENT_SIZE) as isize - InlineHeader::SIZE as isize;
                old.or(Unit::from_words(word(bytes, from), word(bytes, from + 8)))
            }

            unsafe fn blank(wqe: &Place) {
                // SAFETY: the WQE has the header and `N` bytes of payload there.
                unsafe { wqe.write(header_at($segments) + InlineHeader::SIZE, &[0; N]) }
            }

            unsafe fn patch(bytes: &[u8; N], wqe: &Place) {
                // SAFETY: the WQE has the header and `N` bytes of payload there.
                unsafe { wqe.write(header_at($segments) + InlineHeader::SIZE, bytes) }
            }
        }
    )* };
}

bytes!(SendMessage behind 1, SendImm behind 1, RdmaWrite behind 2, RdmaWriteImm behind 2);

macro_rules! offset {
    ($($type:ident<$parameter:ident: $bound:ident>),*) => { $(
        impl<$parameter: $bound> Patch<$type<$parameter>> for Offset {
            type Given = u64;
            const FIELDS: u8 = 2;
            const UNITS: u8 = 1 << 1;

            #[inline(always)]
            fn unit(&offset: &u64, at: usize, old: Unit) -> Unit {
                const {
                    assert!(CtrlSeg::SIZE == SEGMENT_SIZE && RaddrSeg::SIZE == SEGMENT_SIZE);
                    assert!(core::mem::offset_of!(RaddrSeg, raddr) == 0);
                }
                if at != 1 {
                    return old;
                }
                old.with_low(u64::from_be(old.low()).wrapping_add(offset).to_be())
            }

            unsafe fn blank(_: &Place) {}

            unsafe fn patch(&offset: &u64, wqe: &Place) {
                // SAFETY: the WQE's second segment is the remote address.
                unsafe {
                    let addr = u64::from_be_bytes(wqe.read(SEGMENT_SIZE)).wrapping_add(offset);
                    wqe.write(SEGMENT_SIZE, &addr.to_be_bytes());
                }
            }
        }
    )* };
}

offset!(RdmaWrite<P: Payload>, RdmaWriteImm<P: Payload>, RdmaRead<P: SgeList>);
offset!(CompareSwap<W: OldValue>, FetchAdd<W: OldValue>);

/// Offset of the immediate in a ctrl segment.
const IMM: usize = core::mem::offset_of!(CtrlSeg, imm);

macro_rules! immediate {
    ($($type:ident),*) => { $(
        impl<P: Payload> Patch<$type<P>> for Immediate {
            type Given = u32;
            const FIELDS: u8 = 4;
            const UNITS: u8 = 1;

            #[inline(always)]
            fn unit(&immediate: &u32, at: usize, old: Unit) -> Unit {
                const { assert!(IMM == 12) };
                if at != 0 {
                    return old;
                }
                let [a, b, c, d] = immediate.to_be_bytes();
                old.or(Unit::from_words(0, u64::from_ne_bytes([0, 0, 0, 0, a, b, c, d])))
            }

            unsafe fn blank(wqe: &Place) {
                // SAFETY: a WQE begins with the ctrl segment, which has the immediate there.
                unsafe { wqe.write(IMM, &[0; 4]) }
            }

            unsafe fn patch(&immediate: &u32, wqe: &Place) {
                // SAFETY: a WQE begins with the ctrl segment, which has the immediate there.
                unsafe { wqe.write(IMM, &immediate.to_be_bytes()) }
            }
        }
    )* };
}

immediate!(SendImm, RdmaWriteImm);
