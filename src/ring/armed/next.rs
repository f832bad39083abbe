//! Firing.

use core::fmt;
use core::marker::PhantomData;

use mlx5_sys::wqe::SEGMENT_SIZE;

use super::forms::Parts;
use super::line::Line;
use crate::ring::PostError;
use crate::ring::send_ring::SendRing;
use crate::ring::variable::Variable;
use crate::watch::lint::Refusal;
use crate::watch::timing::Phase;
use crate::wqe::{Operation, Unit};

/// The armed request that may be fired: the oldest.
#[must_use = "nothing is posted until it is fired"]
pub struct Next<'a, O, V> {
    ring: &'a mut SendRing,
    line: &'a mut Line,
    /// It is in the line of those that are ready.
    ready: bool,
    form: PhantomData<(O, V)>,
}

impl<'a, O: Operation, V: Variable<O>> Next<'a, O, V> {
    #[inline(always)]
    pub(super) fn new(Parts { ring, line }: Parts<'a>, ready: bool) -> Self {
        Self { ring, line, ready, form: PhantomData }
    }

    /// Fills the variable fields in and posts the request: `docs/ordering.md`, "Armed". It cannot
    /// fail. A WQE of one block goes by BlueFlame where the register allows it, in four stores of 16
    /// bytes, with two fences, and some twenty instructions in all. One that has NOPs before it, or
    /// more than one block, and every one on another register, takes a longer way.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes what a SEND or WRITE reads. Nothing reads, writes or holds a reference to what a
    ///   READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic writes
    ///   is mapped, writable, in this process at the address in the entry.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue, or when the QP has been moved to RESET or destroyed. Inline payload names no memory.
    ///
    /// With the feature `lint`, a request with a defect, or with one in a NOP before it, is not posted
    /// and stays armed: the defect is printed on standard error, and the queue's next call that can fail
    /// returns it. [`try_fire`](Self::try_fire) returns it at once.
    #[inline(always)]
    pub unsafe fn fire(mut self, values: V::Values) {
        // SAFETY: passed on.
        if let Err(refusal) = unsafe { self.go(values) } {
            self.ring.guard.keep(refusal);
        }
    }

    /// Posts the request, as [`fire`](Self::fire), and returns what is wrong with it.
    ///
    /// # Errors
    /// `PostError::Refused`, with the feature `lint`; nothing is posted then, and it is armed as it
    /// was, with these values. Without it, none.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes what a SEND or WRITE reads. Nothing reads, writes or holds a reference to what a
    ///   READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic writes
    ///   is mapped, writable, in this process at the address in the entry.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue, or when the QP has been moved to RESET or destroyed. Inline payload names no memory.
    #[inline(always)]
    pub unsafe fn try_fire(mut self, values: V::Values) -> Result<(), PostError> {
        // SAFETY: passed on.
        unsafe { self.go(values) }?;
        Ok(())
    }

    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else uses it.
    #[inline(always)]
    unsafe fn go(&mut self, values: V::Values) -> Result<(), Refusal> {
        let ring = &mut *self.ring;
        ring.doorbell.timing.begin();
        if O::USUAL_DS == 0 || !self.ready {
            // SAFETY: passed on.
            return unsafe { Self::fire_otherwise(ring, self.line, values) };
        }
        let (block, record) = ring.ready.next();
        let unit = |at: usize| {
            // SAFETY: a block of the ring; its WQE is an `O`, and not posted.
            unsafe {
                let place = block.add(at * SEGMENT_SIZE);
                let old = Unit::load(place);
                if V::UNITS >> at & 1 == 0 {
                    return old;
                }
                let unit = V::unit(&values, at, old);
                unit.store(place);
                unit
            }
        };
        let mut units = [unit(0); 4];
        for at in 1..4 {
            // Behind its end, the last unit again: nothing looks at it, and it is at hand.
            units[at] = if at < O::USUAL_DS as usize { unit(at) } else { units[at - 1] };
        }
        ring.doorbell.timing.stamp(Phase::Encode);
        ring.inspect_next()?;
        // SAFETY: the WQE at the head was written before, and the line is only drawn where the register
        // takes it. Its memory meets this function's contract.
        unsafe { ring.doorbell.fire(record, units) };
        ring.step();
        Ok(())
    }

    /// Fires a request that is not in the line.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else uses it.
    #[cold]
    #[inline(never)]
    unsafe fn fire_otherwise(
        ring: &mut SendRing,
        line: &mut Line,
        values: V::Values,
    ) -> Result<(), Refusal> {
        if O::USUAL_DS == 0 || ring.ready.plain() == 0 {
            // SAFETY: the WQE is an `O`, armed and so blank, and not posted.
            let patch = |wqe: &_| unsafe { V::patch(&values, wqe) };
            // SAFETY: passed on.
            return unsafe { line.fire_any(ring, patch) };
        }
        let block = ring.plain_block();
        for at in (0..4).filter(|at| V::UNITS >> at & 1 != 0) {
            // SAFETY: a block of the ring; its WQE is an `O`, and not posted.
            unsafe {
                let place = block.add(at * SEGMENT_SIZE);
                V::unit(&values, at, Unit::load(place)).store(place);
            }
        }
        ring.doorbell.timing.stamp(Phase::Encode);
        // SAFETY: passed on.
        unsafe { ring.post_plain(line.ctrl(ring)) }
    }
}

impl<O, V> fmt::Debug for Next<'_, O, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("at", &self.ring.cursor.head()).finish()
    }
}
