//! WQEs that lie in the ring in a line, ready to be fired one after another with nothing looked at.

use core::ptr::NonNull;

use mlx5_sys::wqe::WQEBB_SIZE;

use super::completion::CqId;
use super::cursor::Counter;
use super::send_ring::SendRing;
use super::variable::Place;

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
}

/// What one more in the record's counter is: the counter's low byte is the last in memory. The high
/// byte stays the same as long as a line lasts.
const STEP: u32 = u32::from_ne_bytes([0, 0, 0, 1]);

impl Ready {
    /// None.
    pub(super) fn new() -> Self {
        Self { next: NonNull::dangling(), end: NonNull::dangling(), record: 0 }
    }

    /// Ends the line.
    pub(super) fn clear(&mut self) {
        self.end = self.next;
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
        self.set_clear(self.clear_from(head, self.slack));
        if !self.doorbell.fires() {
            return 0;
        }
        let shape = self.cursor.shape();
        let slot = shape.slot(head);
        let to_ring_end = shape.entries() - slot as u32;
        let first = head.plus(1).low16();
        let same_high_byte = 0x100 - u32::from(first & 0xff);
        let clear = self.clear_single.since(head);
        let length = wanted.min(to_ring_end).min(same_high_byte).min(clear);
        // SAFETY: blocks of the ring, up to its end.
        unsafe {
            self.ready.next = self.buffer.add(slot * WQEBB_SIZE);
            self.ready.end = self.ready.next.add(length as usize * WQEBB_SIZE);
        }
        self.ready.record = u32::from(first).to_be();
        length
    }

    /// After the next of the line was made known to the card.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.doorbell.turn();
        // Each is one instruction, if the compiler has forgotten the value by now.
        // SAFETY: at most the line's end.
        self.ready.next = unsafe { self.ready.next.add(WQEBB_SIZE) };
        self.ready.record = self.ready.record.wrapping_add(STEP);
        self.cursor.publish(self.cursor.head().plus(1));
        self.doorbell.timing.rang(self.cursor.head());
    }
}
