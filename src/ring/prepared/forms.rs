//! Types that declare which requests may be prepared.

use core::marker::PhantomData;

use mlx5_sys::wqe::{CE_ALWAYS, CE_MASK};

use super::line::{Line, Slot};
use super::next::Next;
use crate::ib::Transport;
use crate::ring::PostError;
use crate::ring::send_ring::SendRing;
use crate::ring::variable::Variable;
use crate::wqe::PostOn;

/// Requests of the operation `O`, whose fields `V` get their values when they are fired.
#[derive(Debug)]
pub struct Form<O, V = ()>(PhantomData<fn(O, V)>);

/// One of two: two forms that may be prepared in any order, and their values. For a third form,
/// nest it in one of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first form, or a value of it.
    First(A),
    /// The second form, or a value of it.
    Second(B),
}

/// The ring, and the bookkeeping of its prepared requests.
pub struct Parts<'a> {
    pub(super) ring: &'a mut SendRing,
    pub(super) line: &'a mut Line,
}

/// The kind of form, as a bit for each choice, the first one lowest.
#[derive(Clone, Copy, Default)]
pub struct Kind {
    pub(super) bits: u8,
    choices: u8,
}

impl Kind {
    fn and(self, second: bool) -> Self {
        Self { bits: self.bits | u8::from(second) << self.choices, choices: self.choices + 1 }
    }
}

mod sealed {
    pub trait Sealed {}
}
use sealed::Sealed;

/// The requests that may be prepared: a [`Form`], or [`Either`] of two. Sealed.
pub trait Forms<T: Transport>: Sealed {
    /// The argument of [`Prepared::prepare`](super::Prepared::prepare): the operation, or
    /// [`Either`] of two.
    type Operation;
    /// The result of [`Prepared::next`](super::Prepared::next): [`Next`], or [`Either`] of two.
    type Next<'a>;
    /// Maximum number of choices that lead to a form.
    #[doc(hidden)]
    const CHOICES: u8;

    /// Writes a request.
    #[doc(hidden)]
    fn prepare(
        parts: Parts<'_>,
        kind: Kind,
        id: u64,
        operation: &Self::Operation,
    ) -> Result<(), PostError>;

    /// Returns the next request, of the kind with these bits. `ready`: it is in the line.
    #[doc(hidden)]
    fn next(parts: Parts<'_>, bits: u8, ready: bool) -> Self::Next<'_>;
}

impl<O, V> Sealed for Form<O, V> {}

impl<T: Transport, O: PostOn<T>, V: Variable<O>> Forms<T> for Form<O, V> {
    type Operation = O;
    type Next<'a> = Next<'a, O, V>;
    const CHOICES: u8 = 0;

    fn prepare(parts: Parts<'_>, kind: Kind, id: u64, operation: &O) -> Result<(), PostError> {
        let Parts { ring, line } = parts;
        let at = line.until();
        ring.write_ahead();
        let signaled = ring.flags(operation) & CE_MASK == CE_ALWAYS;
        let usual = O::USUAL_DS != 0 && operation.is_usual(&ring.limits);
        // A request that brings no CQE counts as if it did, if CQ slots are free, so posting it
        // moves only the head. The last CQ slot is kept for a signaled request, which retires all
        // others.
        let counts = signaled || usual && ring.clear_from(at, line.slack()).since(at) > 1;
        let slack = line.slack().wrapping_sub(u32::from(counts && !signaled));
        let (end, after, last, _) = ring.encode_any::<T, O>(at, slack, id, operation)?;
        // SAFETY: the WQE was just written, to blocks that nothing else writes and that are not
        // posted.
        unsafe { V::blank(&ring.place(at)) };
        let fast = usual && counts;
        let (kind, blocks) = (kind.bits, end.since(at));
        let slot = Slot { id, last, blocks, slack, after, kind, signaled, fast, prepared: true };
        line.push(ring, end, slot);
        Ok(())
    }

    #[inline(always)]
    fn next(parts: Parts<'_>, _: u8, ready: bool) -> Next<'_, O, V> {
        Next::new(parts, ready)
    }
}

impl<A, B> Sealed for Either<A, B> {}

impl<T: Transport, A: Forms<T>, B: Forms<T>> Forms<T> for Either<A, B> {
    type Operation = Either<A::Operation, B::Operation>;
    type Next<'a> = Either<A::Next<'a>, B::Next<'a>>;
    const CHOICES: u8 = {
        let deeper = if A::CHOICES > B::CHOICES { A::CHOICES } else { B::CHOICES };
        assert!(deeper < 8, "too many forms within each other");
        deeper + 1
    };

    fn prepare(
        parts: Parts<'_>,
        kind: Kind,
        id: u64,
        operation: &Self::Operation,
    ) -> Result<(), PostError> {
        match operation {
            Either::First(operation) => A::prepare(parts, kind.and(false), id, operation),
            Either::Second(operation) => B::prepare(parts, kind.and(true), id, operation),
        }
    }

    #[inline(always)]
    fn next(parts: Parts<'_>, bits: u8, ready: bool) -> Self::Next<'_> {
        if bits & 1 == 0 {
            Either::First(A::next(parts, bits >> 1, ready))
        } else {
            Either::Second(B::next(parts, bits >> 1, ready))
        }
    }
}
