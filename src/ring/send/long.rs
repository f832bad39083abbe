//! The fast path for WQEs of several blocks whose size the compiler knows: those with an address
//! vector, and with longer inline payloads. A BlueFlame buffer takes four blocks.
//!
//! As for one block, it is open while the head is clear, and the WQE is copied to the register from
//! where its words are at hand. A WQE that would wrap to the ring's start takes the general path.

use super::own::{Held, Place};
use super::ring::SendRing;
use super::shadow::{Entry, Key};
use super::state::Point;
use super::wqes::{Last, ctrl_segment};
use crate::doorbell::Lent;
use crate::ib::{Counter, Transport};
use crate::ring::opaque::opaque;
use crate::ring::{Batch, SendQueue};
use crate::watch::lint::Refusal;
use crate::watch::timing::Phase;
use crate::wqe::{Linear, Operation, PostOn, Segment, Segments};
use mlx5_sys::wqe::WQEBB_SIZE;

/// A WQE that was written: its place, the point behind it, and its ctrl segment.
struct Encoded {
    place: Place,
    end: Point,
    ctrl: Segment,
}

impl SendRing {
    /// Writes a usual WQE of several blocks at `head`. If the operation is not usual, the blocks are
    /// not contiguous, or they are not before `clear`, writes nothing and returns `None`.
    ///
    /// # Safety
    /// The first argument is this ring's.
    #[inline(always)]
    unsafe fn encode_long<T: Transport, O: PostOn<T>>(
        &mut self,
        Held(wqes, limits): Held,
        at: Point,
        clear: Counter,
        id: u64,
        operation: &O,
    ) -> Option<Encoded> {
        if O::LONG_DS == 0 || !operation.is_usual(&limits) {
            return None;
        }
        // Hides from the compiler how both were computed, or it would compute them twice.
        let slot = opaque(wqes.shape.slot(at.at));
        let next = Counter::new(opaque(at.at.plus(O::LONG_BLOCKS).value() as usize) as u32);
        // Each block before `clear` also stands for a CQ slot.
        if !clear.reaches(next) || wqes.shape.ends_within(slot, O::LONG_BLOCKS) {
            return None;
        }
        let flags = self.flags(operation);
        self.doorbell.timing.stamp(Phase::Reserve);
        let code = operation.code();
        let first = wqes.names.ctrl(at.at, code, O::LONG_DS);
        let ctrl = ctrl_segment(first, code, flags, operation.immediate());
        // As for one block.
        const { assert!(size_of::<Entry>() == 16 && WQEBB_SIZE == 64) };
        let offset = opaque(slot * size_of::<Entry>());
        // SAFETY: by the meaning of `clear`, free, contiguous blocks for the WQE start there, and
        // `check` would pass. The HCA does not read them before the producer index covers them, and
        // nothing else writes them (`from_parts`).
        unsafe {
            let wqe = wqes.buffer.byte_add(offset * (WQEBB_SIZE / size_of::<Entry>()));
            let mut writer = Linear::new(wqe.as_ptr());
            writer.put(ctrl);
            operation.put_usual(&mut writer);
        }
        // Not before: the compiler would keep it in a register while the WQE is written.
        let end = Point { at: next, ..at.behind(O::LONG_BLOCKS) };
        // SAFETY: the shadow has an entry for every slot, so it has those for these slots.
        unsafe {
            let place = wqes.shadow.byte_add(offset);
            place.write(Entry { id, key: Key::other(code.opcode, O::LONG_DS, end.silent) });
            for block in 1..O::LONG_BLOCKS {
                Entry::write_inside(place.add(block as usize), code.opcode, end.silent);
            }
        }
        self.doorbell.timing.stamp(Phase::Encode);
        Some(Encoded { place: Place(offset), end, ctrl })
    }

    /// Posts a single WQE at the cursor's head by BlueFlame.
    ///
    /// # Safety
    /// [`encode_long`](Self::encode_long) returned `encoded` for this operation, at the head, before
    /// `clear_single`, and the doorbell takes its size (`takes_long`).
    #[inline(always)]
    unsafe fn commit_long<O: Operation>(
        &mut self,
        lent: Lent,
        encoded: Encoded,
        operation: &O,
    ) -> Result<(), Refusal> {
        let Encoded { end, ctrl, .. } = encoded;
        self.inspect(end.at)?;
        self.state.posted(end);
        // SAFETY: the WQE was just written. `clear_single` was ahead of the head, so the register
        // takes two blocks, and `post_long` has asked for more.
        unsafe { self.doorbell.ring_long(lent, end.at.low16(), ctrl, operation) }
        self.rang(end.at);
        Ok(())
    }
}

impl<T: Transport> SendQueue<T> {
    /// Posts a request if its WQE has several blocks and a known size, goes by BlueFlame word by
    /// word, and the head is clear. Returns whether it did, and stores where.
    #[inline(always)]
    pub(super) fn post_long<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        // First, though it is asked for again, as for one block.
        if !operation.is_usual(&self.ring.limits) {
            return Ok(false);
        }
        let ring = &mut self.ring;
        // What takes one block takes two.
        if O::LONG_BLOCKS > 2 && !ring.doorbell.takes_long(O::LONG_DS) {
            return Ok(false);
        }
        let (at, clear) = (ring.end(), ring.state.clear_single());
        // At hand: fewer words are kept until the register than for one block.
        let own = Held::of(ring);
        // SAFETY: these are the ring's own.
        let encoded = unsafe { ring.encode_long::<T, O>(own, at, clear, id, operation) };
        let Some(encoded) = encoded else { return Ok(false) };
        *place = encoded.place;
        // SAFETY: the WQE was just encoded, before `clear_single`.
        unsafe { ring.commit_long(lent, encoded, operation)? };
        Ok(true)
    }
}

impl<T: Transport> Batch<'_, T> {
    /// Appends a request of several blocks and a known size, if it fits before the clear head. Returns
    /// whether it did.
    #[inline(always)]
    pub(super) fn append_long<O: PostOn<T>>(&mut self, id: u64, operation: &O) -> bool {
        let (own, at, clear) = (self.own, self.end, self.clear);
        let ring = &mut self.queue.ring;
        // SAFETY: these are the ring's own.
        let encoded = unsafe { ring.encode_long::<T, O>(own, at, clear, id, operation) };
        let Some(Encoded { end, ctrl, .. }) = encoded else { return false };
        self.one_more(end, Last { doorbell: ctrl[0] });
        true
    }
}
