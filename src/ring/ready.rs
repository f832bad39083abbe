//! A line of WQEs, written ahead in the ring, that are fired one after another without further
//! checks.

use core::ptr::NonNull;

use mlx5_sys::wqe::WQEBB_SIZE;

use super::keys::Run;
use super::send_ring::SendRing;
use super::slots::Last;
use super::source::CqId;
use super::variable::Place;
use crate::ib::Counter;
use crate::watch::lint::Refusal;

/// The line: WQEs of one block each, from `next` up to `end`. The first is at the cursor's head,
/// and all are before [`SendRing::clear_single`]. So each may be posted by BlueFlame, and posting
/// moves only the head.
///
/// The line is in the ring's state, not in that of the firing object, so that an error completion
/// can end it.
pub(super) struct Ready {
    next: NonNull<u8>,
    end: NonNull<u8>,
    /// The doorbell record's value after the next WQE, in memory order.
    record: u32,
    /// The number of WQEs in the line, if the register does not support firing. Then `next` is
    /// `end`. These WQEs need their fields written, and a doorbell like any other WQE.
    plain: u32,
}

/// One step of the record's counter: the counter's low byte is the last in memory. The high byte
/// does not change within a line.
const STEP: u32 = u32::from_ne_bytes([0, 0, 0, 1]);

impl Ready {
    /// Creates an empty line.
    pub(super) fn new() -> Self {
        Self { next: NonNull::dangling(), end: NonNull::dangling(), record: 0, plain: 0 }
    }

    /// Ends the line.
    pub(super) fn clear(&mut self) {
        self.end = self.next;
        self.plain = 0;
    }

    /// Returns the number of WQEs in the line that need an ordinary doorbell.
    #[inline(always)]
    pub(super) fn plain(&self) -> u32 {
        self.plain
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end
    }

    /// Returns the block of the next WQE, and the record's value after it.
    #[inline(always)]
    pub(super) fn next(&self) -> (NonNull<u8>, u32) {
        (self.next, self.record)
    }
}

impl SendRing {
    /// Called before an entry behind the head is written. Makes polls check the head, too, until
    /// [`close`](Self::close). [`open`](Self::open) was called before the first such entry.
    pub(super) fn write_ahead(&mut self) {
        self.doorbell.timing.end();
        self.expects = CqId::NONE;
    }

    /// Returns the place of the WQE at `counter`.
    pub(super) fn place(&self, counter: Counter) -> Place {
        let shape = self.cursor.shape();
        Place {
            ring: self.buffer,
            size: shape.entries() as usize * WQEBB_SIZE,
            offset: shape.slot(counter) * WQEBB_SIZE,
        }
    }

    /// Starts a new line of up to `wanted` WQEs from the head on. Returns the number of WQEs in it.
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

    /// Returns the block of the WQE at the head, which is one of [`Ready::plain`].
    #[inline(always)]
    pub(super) fn plain_block(&self) -> NonNull<u8> {
        let slot = self.cursor.shape().slot(self.cursor.head());
        // SAFETY: a block of the ring.
        unsafe { self.buffer.add(slot * WQEBB_SIZE) }
    }

    /// Posts the WQE at the head, which is one of [`Ready::plain`] and begins with `ctrl`.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(super) unsafe fn post_plain(&mut self, ctrl: u64) -> Result<(), Refusal> {
        let head = self.cursor.head().plus(1);
        // SAFETY: the line's WQEs were written, and have one block each. The caller guarantees this
        // one's memory by this function's contract.
        unsafe { self.commit(head, self.slack, &Last { doorbell: ctrl }, true)? };
        self.ready.plain -= 1;
        // `clear` itself does not move: the line lies before it.
        self.set_clear(self.clear);
        Ok(())
    }

    /// Checks the next WQE of the line, at the head, before it is posted; see
    /// [`inspect`](Self::inspect).
    #[inline(always)]
    pub(super) fn inspect_next(&mut self) -> Result<(), Refusal> {
        self.inspect(self.cursor.head().plus(1))
    }

    /// Moves on after the next WQE of the line was posted.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.doorbell.turn();
        // Each is one instruction, if the compiler does not keep the value in a register.
        // SAFETY: at most the line's end.
        self.ready.next = unsafe { self.ready.next.add(WQEBB_SIZE) };
        self.ready.record = self.ready.record.wrapping_add(STEP);
        self.cursor.publish(self.cursor.head().plus(1));
        self.rang(self.cursor.head());
    }
}
