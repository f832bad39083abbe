//! What changes in a prepared request when it is fired: its inline payload, or fields of it.
//!
//! All in whole 16-byte units, put together in registers. A field that was stored by itself would
//! make the copy to the register wait: it loads 16 bytes.

use core::ptr::NonNull;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::{InlineHeader, SEGMENT_SIZE, WQEBB_SIZE};

use super::address::EncodeAddress;
use super::payload::word;
use super::{
    Address, EncodePayload, EthSend, InlineBytes, Operation, RdmaWrite, RdmaWriteImm, SendImm,
    SendMessage, To, Unit,
};

/// 16-byte units of the longest WQE that a BlueFlame register takes.
pub(crate) const MOST_UNITS: usize = BF_BUFFER_SIZE / SEGMENT_SIZE;

mod sealed {
    use super::{NonNull, Operation, SEGMENT_SIZE, Unit, WQEBB_SIZE};

    /// A request whose payload is inline, of a length that the compiler knows, and the last part of
    /// its WQE.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be prepared",
        note = "a prepared request is a SEND or WRITE of `InlineBytes`, also with its address, or an \
                `EthSend` of `InlineBytes`"
    )]
    pub trait Patch: Operation {
        /// The payload: an array of bytes.
        type Bytes;
        /// Number of 16-byte units before the payload's header.
        const BEFORE: usize;
        /// Number of 16-byte units; 0 if the payload is empty.
        const UNITS: usize;
        /// Number of 64-byte blocks.
        const BLOCKS: usize = Self::UNITS.div_ceil(WQEBB_SIZE / SEGMENT_SIZE);
    }

    /// How bytes are put into the units of an inline payload with its header. Sealed: the queue
    /// trusts that no unit changes that `UNITS` does not have.
    pub trait FillUnits<B> {
        /// The units that change, as bits.
        const UNITS: u32;
        /// Returns the bytes of a unit that stay, as ones: two words in memory order. If no byte of
        /// the unit changes, all do.
        fn kept(at: usize) -> [u64; 2];
        /// Returns the bytes of a unit that change, and zeros.
        fn changed(&self, at: usize) -> Unit;
        /// Returns a unit as it will be, of a payload that lies in a ring.
        ///
        /// # Safety
        /// `place` is where the unit lies. It can be read, and is aligned to 16.
        #[inline(always)]
        unsafe fn unit(&self, at: usize, place: NonNull<u8>) -> Unit {
            let [low, high] = Self::kept(at);
            // SAFETY: by this function's contract. If nothing is kept, the compiler leaves it out.
            let old = unsafe { Unit::load(place) };
            old.and(Unit::from_words(low, high)).or(self.changed(at))
        }
    }
}
pub(crate) use sealed::{FillUnits, Patch};

/// What [`Prepared::fire`](crate::ring::Prepared::fire) puts into a payload of type `B`, an array of
/// bytes: the array itself, for all of it; a [`Field`] with its bytes; up to eight of these, as a
/// tuple; or `()`, if the payload stays as it was prepared. If fields of a tuple overlap, the later
/// one counts.
///
/// ```
/// use mlx5::wqe::{Field, Fill};
///
/// const PRICE: Field<8, 8> = Field;
///
/// /// The changes of an order of 24 bytes.
/// fn repriced(price: u64) -> impl Fill<[u8; 24]> {
///     PRICE.with(price.to_le_bytes())
/// }
/// let _ = repriced(101);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be put into a payload of type `{B}`",
    note = "a prepared request is fired with its whole payload, with `FIELD.with(bytes)`, or with a \
            tuple of these"
)]
pub trait Fill<B>: FillUnits<B> {}

impl<B, F: FillUnits<B>> Fill<B> for F {}

/// The place of a field in a payload: `LENGTH` bytes from byte `AT` on.
///
/// ```
/// # let rig::Link { mut reader, sends, memory, remote, .. } = rig::link()?;
/// use mlx5::ring::Prepared;
/// use mlx5::wqe::{Field, InlineBytes, RdmaWrite};
///
/// // An order: symbol, price, quantity.
/// const PRICE: Field<8, 8> = Field;
/// const QUANTITY: Field<16, 4> = Field;
///
/// let mut prepared = Prepared::new(sends);
/// prepared.prepare(1, RdmaWrite::new(InlineBytes(*b"BTC-USD price...many"), remote).signaled())?;
/// prepared.fire((PRICE.with(101u64.to_le_bytes()), QUANTITY.with(7u32.to_le_bytes())))?;
/// # rig::poll(&mut reader, &mut prepared)?;
/// // `remote` is byte 64 of the peer's memory, which here is this side's.
/// let mut order = [0; 20];
/// memory.read(64, &mut order);
/// assert_eq!((&order[..7], order[8], order[16]), (&b"BTC-USD"[..], 101, 7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A field that reaches past the payload does not compile:
/// ```compile_fail,E0080
/// # use mlx5::{ring::*, wqe::*};
/// type Orders = Prepared<RdmaWrite<InlineBytes<20>>>;
/// let fire: fn(&mut _, _) -> _ = Orders::fire::<FieldBytes<16, 8>>;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<const AT: usize, const LENGTH: usize>;

impl<const AT: usize, const LENGTH: usize> Field<AT, LENGTH> {
    /// The field, with these bytes.
    #[inline(always)]
    pub const fn with(self, bytes: [u8; LENGTH]) -> FieldBytes<AT, LENGTH> {
        FieldBytes(bytes)
    }
}

/// A [`Field`] with its bytes, made by [`Field::with`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldBytes<const AT: usize, const LENGTH: usize>([u8; LENGTH]);

impl<const AT: usize, const LENGTH: usize> FieldBytes<AT, LENGTH> {
    /// Returns the field's byte that is the first of the payload's unit; less than 0, if the field
    /// begins later.
    #[inline(always)]
    fn first(unit: usize) -> isize {
        (unit * SEGMENT_SIZE) as isize - (InlineHeader::SIZE + AT) as isize
    }
}

impl<const AT: usize, const LENGTH: usize, const N: usize> FillUnits<[u8; N]>
    for FieldBytes<AT, LENGTH>
{
    const UNITS: u32 = {
        assert!(AT + LENGTH <= N, "the field reaches past the payload");
        let start = InlineHeader::SIZE + AT;
        units_below((start + LENGTH).div_ceil(SEGMENT_SIZE)) & !units_below(start / SEGMENT_SIZE)
    };

    #[inline(always)]
    fn kept(at: usize) -> [u64; 2] {
        let first = Self::first(at);
        [first, first + 8].map(|from| !word(&[0xff; LENGTH], from))
    }

    #[inline(always)]
    fn changed(&self, at: usize) -> Unit {
        let first = Self::first(at);
        if LENGTH <= 8 {
            return Unit::from_word_at(word(&self.0, 0), -first);
        }
        Unit::from_words(word(&self.0, first), word(&self.0, first + 8))
    }
}

/// Returns the units before `end`, as bits.
const fn units_below(end: usize) -> u32 {
    ((1u64 << end) - 1) as u32
}

/// The whole payload, with its header, and zeros up to the end of the last unit.
impl<const N: usize> FillUnits<[u8; N]> for [u8; N] {
    const UNITS: u32 = units_below(<InlineBytes<N> as EncodePayload>::USUAL_DS as usize);

    #[inline(always)]
    fn kept(_: usize) -> [u64; 2] {
        [0; 2]
    }

    #[inline(always)]
    fn changed(&self, at: usize) -> Unit {
        InlineBytes::unit(self, at)
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*))*) => { $(
        impl<Bytes, $($name: FillUnits<Bytes>),*> FillUnits<Bytes> for ($($name,)*) {
            const UNITS: u32 = 0 $(| $name::UNITS)*;

            #[inline(always)]
            fn kept(_at: usize) -> [u64; 2] {
                let [_low, _high] = [!0; 2];
                $(let [_low, _high] = {
                    let [low, high] = $name::kept(_at);
                    [_low & low, _high & high]
                };)*
                [_low, _high]
            }

            #[inline(always)]
            fn changed(&self, _at: usize) -> Unit {
                let unit = Unit::from_words(0, 0);
                $(let unit = {
                    let [low, high] = $name::kept(_at);
                    unit.and(Unit::from_words(low, high)).or(self.$index.changed(_at))
                };)*
                unit
            }
        }
    )* };
}

tuples! {
    () (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5) (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}

macro_rules! patch {
    ($([$($generics:tt)*] $type:ty, behind $units:literal;)*) => { $(
        impl<$($generics)* const N: usize> Patch for $type {
            type Bytes = [u8; N];
            const BEFORE: usize = $units;
            const UNITS: usize = behind($units, <InlineBytes<N> as EncodePayload>::USUAL_DS as usize);
        }
    )* };
}

patch! {
    [] SendMessage<InlineBytes<N>>, behind 1;
    [] SendImm<InlineBytes<N>>, behind 1;
    [] RdmaWrite<InlineBytes<N>>, behind 2;
    [] RdmaWriteImm<InlineBytes<N>>, behind 2;
    // Without a header of its own: the payload is the whole packet.
    ['a,] EthSend<'a, InlineBytes<N>>, behind 2;
}

/// Returns the size of a WQE with so many units before a payload of `payload` units.
const fn behind(before: usize, payload: usize) -> usize {
    if payload == 0 { 0 } else { before + payload }
}

impl<O: Patch, A: Address> Patch for To<O, A> {
    type Bytes = O::Bytes;
    const BEFORE: usize = <A as EncodeAddress>::DS as usize + O::BEFORE;
    const UNITS: usize = behind(<A as EncodeAddress>::DS as usize, O::UNITS);
}

#[cfg(test)]
mod tests;
