//! WQEs that lie in the ring in a line, ready to be fired one after another with nothing looked at.

use core::ptr::NonNull;

use mlx5_sys::wqe::WQEBB_SIZE;

use super::keys::Run;
use super::send_ring::SendRing;
use super::slots::Last;
use super::source::CqId;
use super::variable::Place;
use crate::ib::Counter;
use crate::watch::lint::Refusal;

/// From `next` on, up to `end`: WQEs of one block each, the first of them at the cursor's head, of
/// which all are before [`SendRing::clear_single`]. So each may be posted by BlueFlame, and posting
/// moves nothing but the head.
///
/// It lies in the ring's state and not in that of whoever fires, so that an error completion can end
/// it.
pub(super) struct Ready {
    next: NonNull<u8>,
    end: NonNull<u8>,
    /// What the doorbell record says after the next: in memory's order.
    record: u32,
    /// Where the register is not one that WQEs are fired on, `next` is `end`, and this is the number
    /// of WQEs in the line: they need their fields, and a doorbell as any other.
    plain: u32,
}

/// What one more in the record's counter is: the counter's low byte is the last in memory. The high
/// byte stays the same as long as a line lasts.
const STEP: u32 = u32::from_ne_bytes([0, 0, 0, 1]);

impl Ready {
    /// None.
    pub(super) fn new() -> Self {
        Self { next: NonNull::dangling(), end: NonNull::dangling(), record: 0, plain: 0 }
    }

    /// Ends the line.
    pub(super) fn clear(&mut self) {
        self.end = self.next;
        self.plain = 0;
    }

    /// WQEs that are ready for another doorbell.
    #[inline(always)]
    pub(super) fn plain(&self) -> u32 {
        self.plain
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// The block of the next, and the record's word after it.
    #[inline(always)]
    pub(super) fn next(&self) -> (NonNull<u8>, u32) {
        (self.next, self.record)
    }
}

impl SendRing {
    /// Before an entry behind the head is written: polls look at the head, too, until
    /// [`close`](Self::close). As [`open`](Self::open), which was called when the first was.
    pub(super) fn write_ahead(&mut self) {
        self.doorbell.timing.end();
        self.expects = CqId::NONE;
    }

    /// Where the WQE at `counter` lies.
    pub(super) fn place(&self, counter: Counter) -> Place {
        let shape = self.cursor.shape();
        Place {
            ring: self.buffer,
            size: shape.entries() as usize * WQEBB_SIZE,
            offset: shape.slot(counter) * WQEBB_SIZE,
        }
    }

    /// Draws the line anew: `wanted` WQEs from the head on, or as many of them as can be in one,
    /// whose number it returns.
    pub(super) fn draw_line(&mut self, wanted: u32) -> u32 {
        self.ready.clear();
        let head = self.cursor.head();
        self.run = Run::none(head);
        self.set_clear(self.clear_from(head, self.slack));
        let shape = self.cursor.shape();
        let slot = shape.slot(head);
        let to_ring_end = shape.entries() - slot as u32;
        let first = head.plus(1).low16();
        let same_high_byte = 0x100 - u32::from(first & 0xff);
        let fires = self.doorbell.fires();
        let clear = if fires { self.clear_single } else { self.clear }.since(head);
        let length = wanted.min(to_ring_end).min(same_high_byte).min(clear);
        // SAFETY: blocks of the ring, up to its end.
        unsafe {
            self.ready.next = self.buffer.add(slot * WQEBB_SIZE);
            let fired = if fires { length as usize } else { 0 };
            self.ready.end = self.ready.next.add(fired * WQEBB_SIZE);
        }
        self.ready.plain = if fires { 0 } else { length };
        self.ready.record = u32::from(first).to_be();
        length
    }

    /// Where the WQE at the head lies, which is one of [`Ready::plain`].
    #[inline(always)]
    pub(super) fn plain_block(&self) -> NonNull<u8> {
        let slot = self.cursor.shape().slot(self.cursor.head());
        // SAFETY: a block of the ring.
        unsafe { self.buffer.add(slot * WQEBB_SIZE) }
    }

    /// Makes the WQE at the head, which is one of [`Ready::plain`] and begins with `ctrl`, known to
    /// the HCA.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else uses it.
    #[inline(always)]
    pub(super) unsafe fn post_plain(&mut self, ctrl: u64) -> Result<(), Refusal> {
        let head = self.cursor.head().plus(1);
        // SAFETY: the line's WQEs were written, and are one block each. The memory of this one meets this
        // function's contract.
        unsafe { self.commit(head, self.slack, &Last { doorbell: ctrl }, true)? };
        self.ready.plain -= 1;
        // It is as far as it was: the line lies before it.
        self.set_clear(self.clear);
        Ok(())
    }

    /// Before the WQE at the head, which is the next of the line, is made known to the HCA: as
    /// [`inspect`](Self::inspect).
    #[inline(always)]
    pub(super) fn inspect_next(&mut self) -> Result<(), Refusal> {
        self.inspect(self.cursor.head().plus(1))
    }

    /// After the next of the line was made known to the HCA.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.doorbell.turn();
        // Each is one instruction, if the compiler has forgotten the value by now.
        // SAFETY: at most the line's end.
        self.ready.next = unsafe { self.ready.next.add(WQEBB_SIZE) };
        self.ready.record = self.ready.record.wrapping_add(STEP);
        self.cursor.publish(self.cursor.head().plus(1));
        self.rang(self.cursor.head());
    }
}
