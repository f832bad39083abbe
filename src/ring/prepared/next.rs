//! Firing of prepared WQEs.

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

/// The oldest prepared request, which may be fired.
#[must_use = "nothing is posted until it is fired"]
pub struct Next<'a, O, V> {
    ring: &'a mut SendRing,
    line: &'a mut Line,
    /// Whether it is in the line of WQEs that are ready.
    ready: bool,
    form: PhantomData<(O, V)>,
}

impl<'a, O: Operation, V: Variable<O>> Next<'a, O, V> {
    #[inline(always)]
    pub(super) fn new(Parts { ring, line }: Parts<'a>, ready: bool) -> Self {
        Self { ring, line, ready, form: PhantomData }
    }

    /// Fills in the variable fields and posts the request: `docs/ordering.md`, "Prepared". It
    /// cannot fail. A WQE of one block goes by BlueFlame if the register allows it: in four stores
    /// of 16 bytes, with two fences, and about twenty instructions in all. A WQE with NOPs before
    /// it or with more than one block, and any WQE on another register, takes a slower path.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes the memory that a SEND or WRITE reads. Nothing reads, writes or holds a
    ///   reference to the memory that a READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic
    ///   writes is mapped, writable, in this process at the address in the entry.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue, or when the QP has been moved to RESET or destroyed. Inline payload names no memory.
    ///
    /// With the feature `lint`, a request with a defect, or with one in a NOP before it, is not
    /// posted and stays prepared: the defect is printed on standard error, and the queue's next
    /// call that can fail returns it. [`try_fire`](Self::try_fire) returns it at once.
    #[inline(always)]
    pub unsafe fn fire(mut self, values: V::Values) {
        // SAFETY: passed on.
        if let Err(refusal) = unsafe { self.go(values) } {
            self.ring.guard.keep(refusal);
        }
    }

    /// Posts the request like [`fire`](Self::fire), and returns its defect, if any.
    ///
    /// # Errors
    /// `PostError::Refused`, with the feature `lint`. Nothing is posted then, and the request stays
    /// prepared, with these values. Without the feature, no error.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes the memory that a SEND or WRITE reads. Nothing reads, writes or holds a
    ///   reference to the memory that a READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic
    ///   writes is mapped, writable, in this process at the address in the entry.
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
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
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
            // Behind its end, the last unit is repeated: it is at hand, and the HCA does not read
            // it.
            units[at] = if at < O::USUAL_DS as usize { unit(at) } else { units[at - 1] };
        }
        ring.doorbell.timing.stamp(Phase::Encode);
        ring.inspect_next()?;
        // SAFETY: the WQE at the head was written before, and the line is only started if the
        // register takes it. The caller guarantees its memory by this function's contract.
        unsafe { ring.doorbell.fire(record, units) };
        ring.step();
        Ok(())
    }

    /// Fires a request that is not in the line.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[cold]
    #[inline(never)]
    unsafe fn fire_otherwise(
        ring: &mut SendRing,
        line: &mut Line,
        values: V::Values,
    ) -> Result<(), Refusal> {
        if O::USUAL_DS == 0 || ring.ready.plain() == 0 {
            // SAFETY: the WQE is an `O`, prepared and so blank, and not posted.
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
