//! The state of a send queue: what is posted and retired, how far posts need no check, and which
//! entry of the shadow the next CQE is compared with.
//!
//! Nothing else assigns these fields. Posts call the methods here, polls those in `retire`, who
//! stops and restarts the queue those in `stop`, and owners of memory those in `give_back`. The bytes of WQEs, the doorbell and the CQ are unknown
//! here.

mod give_back;
mod retire;
mod stop;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ptr::NonNull;

use super::cursor::Cursor;
use super::ready::Ready;
use super::shadow::{Entry, Shadow};
use super::wqes;
use crate::ib::{Counter, Shape};
use crate::ring::source::CompletionOrder;
use crate::ring::{Excess, PostError};

/// A point between two WQEs of a send queue.
///
/// A block is *silent* if no WQE begins in it: every block of a WQE but its first. So the number of
/// requests between two points is the number of blocks less that of silent ones, and no post of one
/// block has to count requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The block that follows.
    pub(super) at: Counter,
    /// Number of silent blocks before the point, which wraps. It has an arbitrary start.
    pub(super) silent: u32,
}

impl Point {
    /// Returns the point behind a WQE of so many blocks that begins here.
    #[inline(always)]
    pub(super) fn behind(self, blocks: u32) -> Self {
        Self { at: self.at.plus(blocks), silent: self.silent.wrapping_add(blocks - 1) }
    }

    /// Returns the number of requests between an earlier point and this one.
    #[inline(always)]
    fn requests_since(self, earlier: Self) -> u32 {
        self.at.since(earlier.at).wrapping_sub(self.silent.wrapping_sub(earlier.silent))
    }
}

/// The state of a send queue.
///
/// # Invariants
///
/// 1. A WQE of one block may be written and posted at any head before `clear`, without a check:
///    there is a free block and a CQ slot for each block up to there. If no signaled request is
///    outstanding, one more of both is free, for a signaled one. The queue is not stopped, requests
///    can have entries, and no request follows a key change. `clear` may be too low, never too high:
///    retiring does not move it, and the next post that reaches it does.
/// 2. `clear_single` is `clear` if single WQEs go to the register word by word. Otherwise it is not
///    after the head.
/// 3. `run` is how far key changes may follow the last one without a check. It is valid only while
///    the head is where that one left it. Blocks up to there are free, contiguous, and of two CQ
///    slots each.
/// 4. While an entry of the shadow at or after the head may look posted, the state is *open*: the
///    shadow expects no CQE. Nor does it while the tail is held back, or if requests complete in any
///    order. Otherwise it expects the CQE of the WQE at the tail.
///
/// The tests run every short sequence of operations on small rings against a plain list of requests.
#[cfg_attr(test, derive(Clone))]
pub struct SendState {
    cursor: Cursor,
    /// Silent blocks before the head, and before the tail.
    silent: u32,
    silent_retired: u32,
    clear: Counter,
    clear_single: Counter,
    run: Run,
    /// Number of requests that may be outstanding, signaled or not: the queue's CQ slots. A queue
    /// pair that fails writes a CQE for each.
    slots: u32,
    /// An error completion was seen, or the device failed. No more posts until the queue is
    /// restarted.
    stopped: bool,
    /// The device failed. No more posts.
    device_failed: bool,
    /// Requests cannot have entries. Then each post needs the check that refuses them.
    no_entries: bool,
    /// A WQE may have changed keys. Then a head is clear only if the WQE before it did not.
    keys_changed: bool,
    shadow: Shadow,
    /// The order in which requests complete. If it is any, a comparison with the oldest WQE's entry
    /// does not suffice to retire it.
    order: CompletionOrder,
    /// The WQE that was retired last, if requests complete in any order.
    last: Counter,
    ready: Ready,
}

/// A run of key changes that follow each other directly, see [`SendState`].
#[derive(Clone, Copy)]
struct Run {
    /// The head after the last key change.
    head: Counter,
    clear: Counter,
}

/// What a [`SendState`] is made of.
pub(super) struct Start {
    pub(super) shape: Shape,
    /// The counter of the first WQE.
    pub(super) at: Counter,
    /// The queue's CQ slots.
    pub(super) slots: u32,
    pub(super) order: CompletionOrder,
    /// Whether requests cannot have entries.
    pub(super) no_entries: bool,
}

impl SendState {
    /// Creates the state of an idle queue, in which nothing is clear.
    pub(super) fn new(start: Start) -> Self {
        let Start { shape, at, slots, order, no_entries } = start;
        let mut shadow = Shadow::new(shape, at);
        // Each request needs a completion of its own.
        if order == CompletionOrder::Any {
            shadow.expect_nothing();
        }
        Self {
            cursor: Cursor::new(shape, at),
            silent: 0,
            silent_retired: 0,
            clear: at,
            clear_single: at,
            run: Run { head: at, clear: at },
            slots,
            stopped: false,
            device_failed: false,
            no_entries,
            keys_changed: false,
            shadow,
            order,
            last: at,
            ready: Ready::NONE,
        }
    }

    /// Shape of the ring.
    #[inline(always)]
    pub(crate) fn shape(&self) -> Shape {
        self.cursor.shape()
    }

    /// Counter of the next WQE to be posted.
    #[inline(always)]
    pub(crate) fn head(&self) -> Counter {
        self.cursor.head()
    }

    /// Counter of the oldest WQE that is not retired.
    #[inline(always)]
    pub(crate) fn tail(&self) -> Counter {
        self.cursor.tail()
    }

    /// Returns the point behind all posted WQEs.
    #[inline(always)]
    pub(super) fn end(&self) -> Point {
        Point { at: self.cursor.head(), silent: self.silent }
    }

    /// Returns the point behind all retired WQEs.
    #[inline(always)]
    pub(crate) fn mark(&self) -> Point {
        Point { at: self.cursor.tail(), silent: self.silent_retired }
    }

    /// Returns whether every posted WQE is retired.
    #[inline(always)]
    pub(super) fn is_idle(&self) -> bool {
        self.cursor.used() == 0
    }

    /// Returns the number of free blocks.
    pub(super) fn free_blocks(&self) -> u32 {
        self.cursor.free_from(self.head())
    }

    /// Returns the number of requests that may be outstanding.
    #[inline(always)]
    pub(super) fn slots(&self) -> u32 {
        self.slots
    }

    /// Returns the entry of slot 0 of the shadow. Writers of WQEs write entries of free blocks there.
    #[inline(always)]
    pub(super) fn entries(&self) -> NonNull<Entry> {
        self.shadow.first()
    }

    /// Returns a copy of the entry of a block.
    #[inline(always)]
    pub(in crate::ring) fn entry(&self, at: Counter) -> Entry {
        self.shadow.get(at)
    }

    /// Returns the number of blocks posted and not retired.
    #[cfg(test)]
    pub(in crate::ring) fn used(&self) -> u32 {
        self.cursor.used()
    }

    /// Returns the number of prepared WQEs that are ready.
    #[cfg(test)]
    pub(in crate::ring) fn ready_left(&self) -> u32 {
        self.ready.left()
    }

    /// Says which prepared WQEs may be fired without further checks.
    pub(super) fn make_ready(&mut self, ready: Ready) {
        self.ready = ready;
    }

    /// Prepared WQEs that may be fired without further checks; they change by methods of their own.
    #[inline(always)]
    pub(super) fn ready(&mut self) -> &mut Ready {
        &mut self.ready
    }

    /// Returns how far posts need no check.
    #[inline(always)]
    pub(in crate::ring) fn clear(&self) -> Counter {
        self.clear
    }

    /// Returns how far single posts to a register that takes words need no check.
    #[inline(always)]
    pub(super) fn clear_single(&self) -> Counter {
        self.clear_single
    }

    /// Returns whether a WQE of one block may be posted without a check.
    #[inline(always)]
    pub(super) fn may_take(&self) -> bool {
        self.head() != self.clear
    }

    /// Returns whether a WQE of one block may be posted without a check, word by word.
    #[inline(always)]
    pub(super) fn may_take_single(&self) -> bool {
        !self.head().reaches(self.clear_single)
    }

    /// Returns whether the last post was a key change.
    #[inline(always)]
    pub(super) fn is_in_run(&self) -> bool {
        self.head() == self.run.head
    }

    /// Returns how many blocks a key change may take without a check, [in a run](Self::is_in_run).
    #[inline(always)]
    pub(super) fn run_room(&self) -> u32 {
        self.run.clear.since(self.head())
    }

    /// Counts a WQE of one block as posted; `head` is behind it. The caller is about to ring.
    #[inline(always)]
    pub(super) fn posted_block(&mut self, head: Counter) {
        debug_assert_eq!(head.since(self.head()), 1);
        self.cursor.publish(head);
    }

    /// Counts all WQEs before `end` as posted. The caller rings at once, or just did, and then
    /// moves `clear`: a WQE of several blocks may have passed it.
    #[inline(always)]
    pub(super) fn posted(&mut self, end: Point) {
        self.cursor.publish(end.at);
        self.silent = end.silent;
    }

    /// Sets how far posts need no check: to what [`clear_from`](Self::clear_from) returned, or less.
    /// `single` is the same for single posts, word by word: `clear` or the head.
    #[inline(always)]
    pub(super) fn grant(&mut self, clear: Counter, single: Counter) {
        debug_assert!(clear.reaches(self.head()) && (single == clear || single == self.head()));
        (self.clear, self.clear_single) = (clear, single);
    }

    /// Grants nothing: the next post is checked.
    #[inline(always)]
    pub(super) fn grant_none(&mut self) {
        self.grant(self.head(), self.head());
    }

    /// Begins a run of key changes: the last post was one.
    pub(super) fn begin_run(&mut self) {
        let end = self.end();
        // The last block and slot are kept, without looking whether a signaled request is
        // outstanding.
        let (free, slots) = self.free(end);
        let to_ring_end = self.shape().entries() - self.shape().slot(end.at) as u32;
        let room = (2 * slots.saturating_sub(1)).min(free.saturating_sub(1)).min(to_ring_end);
        self.run = Run { head: end.at, clear: end.at.plus(room) };
    }

    /// Takes blocks for a key change in the run, and counts its silent blocks. Returns the point
    /// behind it. The caller writes it, and then posts it or [leaves](Self::leave_run) the run.
    ///
    /// The count is stored at once: kept until the post, it would cost a register while the WQE is
    /// written.
    #[inline(always)]
    pub(super) fn take_in_run(&mut self, blocks: u32) -> Point {
        let end = self.end().behind(blocks);
        self.silent = end.silent;
        end
    }

    /// Counts the key change that was [taken](Self::take_in_run) as posted; `head` is behind it. The
    /// caller is about to ring, and then continues the run.
    #[inline(always)]
    pub(super) fn posted_in_run(&mut self, head: Counter) {
        self.cursor.publish(head);
    }

    /// Leaves the run: the key change of so many blocks that was [taken](Self::take_in_run) is not
    /// posted.
    pub(super) fn leave_run(&mut self, blocks: u32) {
        self.silent = self.silent.wrapping_sub(blocks - 1);
        self.end_run();
    }

    /// Continues a run, after another key change was posted, behind which the head is now. Nothing
    /// is clear.
    #[inline(always)]
    pub(super) fn continue_run(&mut self, head: Counter) {
        self.run.head = head;
        // `clear_single` is behind the head since the run began.
        self.clear = head;
    }

    /// Ends a run of key changes.
    #[inline(always)]
    pub(super) fn end_run(&mut self) {
        self.run.clear = self.run.head;
    }

    /// Notes that a WQE of this opcode is written.
    #[inline(always)]
    pub(super) fn note(&mut self, opcode: u8) {
        self.keys_changed |= wqes::changes_keys(opcode);
    }

    /// Notes that WQEs of any opcode may have been written.
    pub(super) fn note_any(&mut self) {
        self.keys_changed = true;
    }

    /// Returns whether the WQE before `at` changes keys. The WQE at `at` then waits for it, as with
    /// libmlx5.
    #[inline(always)]
    pub(super) fn follows_key_change(&self, at: Counter) -> bool {
        self.keys_changed && wqes::changes_keys(self.shadow.get(at.before()).key.opcode())
    }

    /// Checks that the queue is not stopped.
    ///
    /// # Errors
    /// Why it is.
    #[inline(always)]
    pub(super) fn check_running(&self) -> Result<(), PostError> {
        if self.stopped { Err(self.why_stopped()) } else { Ok(()) }
    }

    #[cold]
    fn why_stopped(&self) -> PostError {
        if self.device_failed { PostError::DeviceFailed } else { PostError::WrongState }
    }

    /// Checks that there are blocks and a CQ slot for a request at `at`. While no signaled request
    /// is outstanding, the last block and the last slot stay free for one: its completion retires
    /// the others. Otherwise the completion of the signaled one makes both free. `expects_cqe` tells
    /// whether a signaled request before `at` is outstanding, and is called only for the last block
    /// or slot.
    ///
    /// # Errors
    /// What is missing.
    #[inline(always)]
    pub(super) fn check_free(
        &self,
        at: Point,
        blocks: u32,
        signaled: bool,
        expects_cqe: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        let (free, slots) = self.free(at);
        if blocks < free && slots > 1 {
            return Ok(());
        }
        self.check_last(at, blocks, signaled, expects_cqe)
    }

    /// Handles [`check_free`](Self::check_free) for a request that would take the last free block
    /// or slot, or more.
    #[cold]
    #[inline(never)]
    fn check_last(
        &self,
        at: Point,
        blocks: u32,
        signaled: bool,
        expects_cqe: impl FnOnce() -> bool,
    ) -> Result<(), PostError> {
        if blocks > self.shape().entries() {
            let excess = Excess::new(blocks as usize, self.shape().entries());
            return Err(PostError::LongerThanRing(excess));
        }
        let (free, slots) = self.free(at);
        let fits = blocks <= free && slots != 0;
        if fits && signaled {
            return Ok(());
        }
        match expects_cqe() {
            true if fits => Ok(()),
            true if blocks > free => Err(PostError::QueueFull { free }),
            true => Err(PostError::CqFull { slots: self.slots }),
            false => Err(PostError::NothingSignaled { outstanding: at.at.since(self.tail()) }),
        }
    }

    /// Returns the numbers of free blocks and of free CQ slots for a queue that is, provisionally,
    /// posted up to `at`.
    #[inline(always)]
    fn free(&self, at: Point) -> (u32, u32) {
        (self.cursor.free_from(at.at), self.slots - at.requests_since(self.mark()))
    }

    /// Returns the furthest `clear` for a queue that is, provisionally, posted up to `at`.
    /// `expects_cqe` tells whether a signaled request before `at` is outstanding, and is called only
    /// for the last block or slot: it looks at all outstanding requests if none is signaled.
    pub(super) fn clear_from(&self, at: Point, expects_cqe: impl FnOnce() -> bool) -> Counter {
        let clear = self.clear_keeping(at, 1);
        if clear == at.at && expects_cqe() { self.clear_keeping(at, 0) } else { clear }
    }

    /// Returns the furthest `clear` that leaves `kept` blocks and CQ slots free.
    pub(super) fn clear_keeping(&self, at: Point, kept: u32) -> Counter {
        if self.stopped || self.no_entries || self.follows_key_change(at.at) {
            return at.at;
        }
        let (free, slots) = self.free(at);
        at.at.plus(free.min(slots).saturating_sub(kept))
    }

    /// Opens the state: entries from the head on are about to be written that may never be posted.
    /// From now on polls take the slow path, which checks the head, too.
    #[inline(always)]
    pub(super) fn open(&mut self) {
        self.abandon();
        self.leave_open();
    }

    /// Leaves the state open after entries were written that are not posted.
    #[inline(always)]
    pub(super) fn leave_open(&mut self) {
        self.shadow.suspend();
        self.end_run();
    }

    /// Closes the state: all entries that were written since [`open`](Self::open) are posted.
    #[inline(always)]
    pub(super) fn close(&mut self) {
        self.shadow.resume();
    }

    /// Closes the state if it is open: clears entries that were written and not posted.
    #[inline(always)]
    pub(super) fn abandon(&mut self) {
        if self.is_open() {
            self.forget_unposted();
        }
    }

    /// Returns whether entries from the head on may look posted and are not.
    #[inline(always)]
    pub(in crate::ring) fn is_open(&self) -> bool {
        self.shadow.is_paused()
    }

    /// Clears the entries of all free blocks. Costs a store for each.
    #[cold]
    #[inline(never)]
    fn forget_unposted(&mut self) {
        let head = self.head();
        for ahead in 0..self.cursor.free_from(head) {
            self.shadow.set(head.plus(ahead), Entry::NONE);
        }
        self.close();
    }
}

impl fmt::Debug for SendState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendState")
            .field("cursor", &self.cursor)
            .field("clear", &self.clear)
            .field("stopped", &self.stopped)
            .finish_non_exhaustive()
    }
}
