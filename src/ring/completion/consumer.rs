//! The consumer side of a CQ: finds the next CQE and its owner, and publishes the consumer index.

use core::ptr::NonNull;

use mlx5_sys::cqe::{Cqe64, OPCODE_SHIFT, OWNER_MASK, opcode};

use super::block::{Block, Words};
use super::enhanced::NOBODY;
use super::health::PERIOD;
use crate::cqe::CqeRef;
use crate::doorbell::{Record, fence};
use crate::ib::{Counter, CqeCompression, Shape};

/// When polls publish the consumer index to the HCA.
///
/// ```
/// # let rig::Link { mut reader, .. } = rig::link()?;
/// use mlx5::expert::Publish;
///
/// // Seven of eight polls store no consumer index.
/// reader.publish(Publish::Every(8))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Publish {
    /// With every CQE that a poll takes.
    #[default]
    EveryPoll,
    /// After this many CQEs. The consumer index shares a cache line with the arm word of the
    /// doorbell record, and the HCA reads it when the CQ runs short of free entries. Fewer stores
    /// mean fewer transfers of that line. As many entries of the CQ cannot be reserved for queues.
    Every(u32),
    /// Only by [`arm`](crate::ring::CqReader::arm) and when the reader is dropped: for CQs that
    /// [ignore overruns](crate::verbs::CompletionQueueBuilder::ignore_overrun).
    Never,
}

/// A value that no owner byte equals.
const NEVER: u32 = u32::MAX;

/// The part of the consumer index that the record does not have.
const UPPER: u32 = 0xff00_0000;

/// The consumer side of a CQ.
///
/// The usual poll touches only the first fields. It compares the CQE's last byte with values
/// that are computed ahead. [`seek`](Self::seek) computes everything that depends on the place in
/// the ring or the lap, once per lap.
///
/// In a compressed block, the next CQE is one that was expanded beside the ring, see
/// [`block`](super::block).
pub(in crate::ring) struct Consumer {
    /// The 64-byte CQE at the consumer index.
    next: NonNull<u8>,
    /// The last byte of a requester's success without inline data in this lap. [`NEVER`] if last
    /// bytes do not tell who owns a CQE.
    success: u32,
    /// The last byte of the success of a SEND that arrived, without inline data, in this lap.
    /// [`NEVER`] like `success`.
    arrived: u32,
    /// The last byte last seen in this lap of a slot that the HCA has not written yet. [`NEVER`] if
    /// a poll that finds no CQE has more to do.
    stale: u32,
    /// Number of polls without a CQE before the reader checks whether the CQ failed, less one.
    /// Negative when the check is due.
    idle: i32,
    /// A copy of `success`, for [`differs`](Self::differs). A separate field, so that code
    /// that only compares needs no register for it.
    expected: u32,
    /// The owner bit of this lap, which is also the value of `success` if that is not [`NEVER`].
    /// Expanded CQEs have no owner bit.
    owner: u32,
    /// The CQE after which more is to be done than to move to the next one.
    pause: NonNull<u8>,
    /// Bytes from a CQE to the next one.
    stride: usize,
    /// The consumer index as in the record. It passes 2^24 only where more is to be done.
    taken: u32,
    record: Record,

    /// The 64-byte CQE of slot 0.
    first: NonNull<u8>,
    shape: Shape,
    wide: bool,
    /// The bits of the consumer index above those of `taken`.
    upper: u32,
    /// The memory that is being read: the address of the CQE at the index `lap` (slot 0 if it is
    /// the ring).
    origin: NonNull<u8>,
    lap: Counter,
    block: Box<Block>,
    /// Whether a poll that finds no CQE has more to do.
    watched: bool,
    /// Set if not every poll publishes the consumer index.
    reserve: Option<Reserve>,
    /// Whether every poll must take the slow path.
    held: bool,
}

/// The CQ's record, while `record` is a word in memory that the HCA does not read.
struct Reserve {
    record: Record,
    scrap: NonNull<u32>,
    /// Number of CQEs that may be taken without publishing.
    most: u32,
    /// The consumer index in the record.
    published: Counter,
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: `set_reserve` made the pointer from a box, and nothing else frees it.
        drop(unsafe { Box::from_raw(self.scrap.as_ptr()) });
    }
}

// SAFETY: only this value accesses the words behind `record` and `scrap`.
unsafe impl Send for Reserve {}

impl Consumer {
    /// Creates a consumer that starts at the index in the record.
    ///
    /// # Safety
    /// - `buffer` is a ring of CQEs of 64 bytes, or, with `wide`, 128, aligned to 64, that lives as
    ///   long as the result.
    /// - The record belongs to the result.
    pub(in crate::ring) unsafe fn new(
        buffer: NonNull<u8>,
        shape: Shape,
        wide: bool,
        record: Record,
        format: CqeCompression,
    ) -> Self {
        // SAFETY: the ring has at least one CQE. A wide one has 128 bytes, so its second half is
        // inside.
        let first = unsafe { buffer.add(if wide { Cqe64::SIZE } else { 0 }) };
        let start = Counter::new(record.read());
        let mut consumer = Self {
            next: first,
            success: NEVER,
            arrived: NEVER,
            stale: NEVER,
            idle: PERIOD,
            expected: NEVER,
            owner: 0,
            pause: first,
            stride: 0,
            taken: 0,
            record,
            first,
            shape,
            wide,
            upper: 0,
            origin: first,
            lap: start,
            block: Block::new(format),
            watched: false,
            reserve: None,
            held: false,
        };
        consumer.seek(start);
        consumer
    }

    pub(in crate::ring) fn shape(&self) -> Shape {
        self.shape
    }

    /// The consumer index.
    #[inline(always)]
    pub(in crate::ring) fn index(&self) -> Counter {
        Counter::new(self.upper | self.taken)
    }

    /// Returns the binary logarithm of the distance between CQEs in the ring.
    fn slot_shift(&self) -> u32 {
        Cqe64::SIZE.trailing_zeros() + u32::from(self.wide)
    }

    /// Moves the consumer index, within the open block or to its end if one is open.
    #[cold]
    #[inline(never)]
    pub(super) fn seek(&mut self, index: Counter) {
        if self.block.is_open() && self.seek_in_block(index) {
            return;
        }
        let slot = self.shape.slot(index) as u32;
        self.lap = index.plus(slot.wrapping_neg());
        self.owner = u32::from(self.shape.lap(index));
        let success = u32::from(opcode::REQ) << OPCODE_SHIFT | self.owner;
        let enhanced = self.block.is_enhanced();
        let success = if enhanced { NEVER } else { success };
        self.stride = 1 << self.slot_shift();
        self.walk(index, success, self.shape.entries() - 1 - slot);
        if enhanced {
            // With the enhanced layout, last bytes do not tell who owns a CQE.
            (self.owner, self.stale) = (NOBODY, NEVER);
        }
    }

    /// Moves the consumer index within the open block. If the block ends there, closes it and
    /// returns false.
    #[inline(never)]
    fn seek_in_block(&mut self, index: Counter) -> bool {
        if !self.block.holds(index) {
            if index == self.block.end() {
                self.block.close();
                self.origin = self.first;
                return false;
            }
            // SAFETY: the block is open, so software owns its slots of the ring, and `index` is
            // before its end. Slots that were published before are not read again.
            unsafe { self.block.load(index, self.first, self.shape, self.slot_shift()) };
        }
        let (base, loaded) = self.block.written_out();
        (self.origin, self.lap, self.stride) = (self.block.out(), base, Cqe64::SIZE);
        self.owner = 0;
        // The published index has 24 bits. In the ring, they wrap at the end of a lap.
        let ahead = base.plus(loaded - 1).since(index).min(0xff_ffff - index.low24());
        self.walk(index, u32::from(opcode::REQ) << OPCODE_SHIFT, ahead);
        true
    }

    /// Continues at `index`. `success` is the last byte of a requester's success. `ahead` CQEs follow
    /// before more is to be done.
    #[inline(always)]
    fn walk(&mut self, index: Counter, success: u32, mut ahead: u32) {
        self.success = success;
        self.expected = success;
        // An invalid opcode means in any lap that there is no CQE.
        self.stale = if self.watched { NEVER } else { u32::from(opcode::INVALID) << OPCODE_SHIFT };
        if self.held {
            (self.success, self.expected, self.stale) = (NEVER, NEVER, NEVER);
        }
        // Of `NEVER` it makes the same.
        self.arrived = self.success | u32::from(opcode::RESP_SEND) << OPCODE_SHIFT;
        if let Some(reserve) = &mut self.reserve {
            let mut unpublished = index.since(reserve.published);
            if unpublished >= reserve.most {
                reserve.record.release(index.low24());
                reserve.published = index;
                unpublished = 0;
            }
            // The CQE after which `most` CQEs will be unpublished.
            ahead = ahead.min(reserve.most - unpublished - 1);
        }
        let behind = index.since(self.lap) as usize * self.stride;
        // SAFETY: `index` and the `ahead` CQEs behind it are in one lap of the ring, or in the
        // expanded block at `origin`, so both results are CQEs of that memory.
        unsafe {
            self.next = self.origin.add(behind);
            self.pause = self.next.add(ahead as usize * self.stride);
        }
        (self.taken, self.upper) = (index.low24(), index.value() & UPPER);
    }

    /// Opens the compressed block whose title is the next CQE. Returns false, and changes nothing,
    /// if the block is damaged.
    #[cold]
    pub(in crate::ring) fn open(&mut self) -> bool {
        let index = self.index();
        let open = self.open_at(index);
        if open {
            self.seek(index);
        }
        open
    }

    /// Opens the block whose title is at `index` of the ring. Software owns the title.
    fn open_at(&mut self, index: Counter) -> bool {
        let words = self.words(index);
        if self.block.is_enhanced() {
            return self.open_enhanced(index, words);
        }
        self.block.open(index, zerocopy::transmute!(words), self.shape.entries())
    }

    /// Returns a copy of the 64-byte CQE at `index` of the ring.
    pub(in crate::ring) fn words(&self, index: Counter) -> Words {
        let cqe = self.entry(index).cast::<u64>();
        // SAFETY: a CQE of the ring.
        core::array::from_fn(|at| unsafe { cqe.add(at).read_volatile() })
    }

    pub(in crate::ring) fn block(&mut self) -> &mut Block {
        &mut self.block
    }

    pub(super) fn block_ref(&self) -> &Block {
        &self.block
    }

    /// Writes the rest of the open block to the ring as uncompressed CQEs.
    #[cold]
    pub(super) fn unfold(&mut self) {
        if self.block.is_open() {
            let index = self.index();
            self.unfold_from(index);
            self.seek(index);
        }
    }

    /// Writes the block whose title is at `index` to the ring as uncompressed CQEs. No block is
    /// open. Returns false, and changes nothing, if the block is damaged.
    #[cold]
    pub(super) fn unfold_at(&mut self, index: Counter) -> bool {
        let open = self.open_at(index);
        if open {
            self.unfold_from(index);
        }
        open
    }

    fn unfold_from(&mut self, index: Counter) {
        let end = self.block.end();
        let mut cqes = Vec::with_capacity(end.since(index) as usize);
        let mut next = index;
        while next != end {
            if !self.block.holds(next) {
                // SAFETY: the block is open, so software owns its slots of the ring, and `next` is
                // before its end. Slots that were published before are not read again.
                unsafe { self.block.load(next, self.first, self.shape, self.slot_shift()) };
            }
            cqes.push(self.block.cqe(next));
            next = next.plus(1);
        }
        for (ahead, cqe) in cqes.into_iter().enumerate() {
            let index = index.plus(ahead as u32);
            let mut bytes: [u8; 64] = zerocopy::transmute!(cqe);
            bytes[63] |= u8::from(self.shape.lap(index));
            if self.block.is_enhanced() {
                bytes[62] = self.shape.iteration(index);
            }
            let words: Words = zerocopy::transmute!(bytes);
            for (at, word) in words.into_iter().enumerate() {
                // SAFETY: a CQE of the ring that software owns: all mini CQEs were read.
                unsafe { self.entry(index).cast::<u64>().add(at).write_volatile(word) };
            }
        }
        self.block.close();
        self.origin = self.first;
    }

    /// Sets the format of mini CQEs of responders.
    pub(super) fn set_format(&mut self, format: CqeCompression) {
        self.block.set_format(format);
    }

    /// Publishes the consumer index only after `most` CQEs from now on; `None`: with every CQE
    /// taken.
    pub(super) fn set_reserve(&mut self, most: Option<u32>) {
        self.flush();
        if let Some(mut reserve) = self.reserve.take() {
            core::mem::swap(&mut self.record, &mut reserve.record);
        }
        if let Some(most) = most {
            let scrap = NonNull::from(Box::leak(Box::new(0u32)));
            // SAFETY: a word of the consumer's own, which lives as long as the reserve. The second
            // word of the record is not used.
            let stand_in = unsafe { Record::new(scrap, 0) };
            let record = core::mem::replace(&mut self.record, stand_in);
            let (most, published) = (most.max(1), self.index());
            self.reserve = Some(Reserve { record, scrap, most, published });
        }
        self.seek(self.index());
    }

    /// Publishes the consumer index, if polls did not.
    pub(super) fn flush(&mut self) {
        let index = self.index();
        if let Some(reserve) = &mut self.reserve {
            reserve.record.release(index.low24());
            reserve.published = index;
            self.seek(index);
        }
    }

    /// Sets whether a poll that finds no CQE must take the slow path.
    pub(in crate::ring) fn watch(&mut self, watched: bool) {
        self.watched = watched;
        self.seek(self.index());
    }

    /// Sets whether every poll must take the slow path.
    pub(in crate::ring) fn hold(&mut self, held: bool) {
        self.held = held;
        self.seek(self.index());
    }

    /// Returns the last byte of the next CQE.
    #[inline(always)]
    pub(in crate::ring) fn op_own(&self) -> u32 {
        // SAFETY: `next` is a 64-byte CQE of the ring or of the expanded block, both of which live
        // as long as the reader.
        unsafe { self.next.add(Cqe64::SIZE - 1).read_volatile() }.into()
    }

    /// Returns whether `op_own` is a requester's success, in a CQE without inline data.
    #[inline(always)]
    pub(in crate::ring) fn is_success(&self, op_own: u32) -> bool {
        op_own == self.success
    }

    /// Returns whether `op_own` is the success of a SEND that arrived, not a solicited one, in a CQE
    /// without inline data.
    #[inline(always)]
    pub(in crate::ring) fn is_arrived(&self, op_own: u32) -> bool {
        op_own == self.arrived
    }

    /// Returns whether `op_own` is the byte last seen where there was no CQE.
    #[inline(always)]
    pub(in crate::ring) fn is_stale(&self, op_own: u32) -> bool {
        op_own == self.stale
    }

    /// Counts a poll that finds no CQE. Returns whether the reader must check now if the CQ failed.
    #[inline(always)]
    pub(in crate::ring) fn idles(&mut self) -> bool {
        self.idle = self.idle.wrapping_sub(1);
        self.idle < 0
    }

    /// Sets the number of polls without a CQE before the reader checks whether the CQ failed.
    pub(in crate::ring) fn recheck_after(&mut self, polls: i32) {
        self.idle = polls;
    }

    /// Counts `polls` polls without a CQE.
    pub(super) fn age(&mut self, polls: i32) {
        self.idle = self.idle.saturating_sub(polls).max(0);
    }

    /// Returns the bits in which a last byte differs from a requester's success without inline
    /// data. Bits that no last byte has differ if last bytes do not tell who owns a CQE.
    #[inline(always)]
    pub(in crate::ring) fn differs(&self, op_own: u32) -> u32 {
        op_own ^ self.expected
    }

    /// Returns the bits in which a last byte differs from a requester's success without inline
    /// data, at any time.
    #[inline(always)]
    pub(in crate::ring) fn kind(&self, op_own: u32) -> u32 {
        const { assert!(opcode::REQ == 0) };
        op_own ^ self.owner
    }

    /// Returns the next CQE.
    ///
    /// # Safety
    /// The next CQE is [at](Self::place) `at`. `op_own` is its last byte, and shows that software
    /// owns the CQE.
    #[inline(always)]
    pub(in crate::ring) unsafe fn cqe<'a>(&self, at: NonNull<u8>, op_own: u32) -> CqeRef<'a> {
        fence::ownership_then_cqe();
        // SAFETY: an entry of this ring that software owns. The HCA gets it back when the consumer
        // index is published.
        unsafe { CqeRef::new(at, self.wide, op_own as u8) }
    }

    /// Returns the next CQE of any kind, if there is one.
    pub(in crate::ring) fn look<'a>(&mut self) -> Option<CqeRef<'a>> {
        let op_own = self.op_own();
        if op_own & u32::from(OWNER_MASK) != self.owner
            || op_own >> OPCODE_SHIFT == u32::from(opcode::INVALID)
        {
            if self.owner == NOBODY {
                return self.look_enhanced();
            }
            if !self.watched && !self.held {
                self.stale = op_own;
            }
            return None;
        }
        fence::ownership_then_cqe();
        // SAFETY: the owner bit is that of this lap and the opcode is valid, so software owns the
        // CQE until the consumer index is published behind it.
        Some(unsafe { CqeRef::new(self.next, self.wide, op_own as u8) })
    }

    fn is_mine(&self, index: Counter, op_own: u8) -> bool {
        if self.block.is_enhanced() {
            return self.is_of_lap(index);
        }
        op_own & OWNER_MASK == u8::from(self.shape.lap(index))
            && op_own >> OPCODE_SHIFT != opcode::INVALID
    }

    /// Returns the CQE at `index` of the ring, if software owns it. Not for compressed blocks.
    pub(super) fn peek<'a>(&self, index: Counter) -> Option<CqeRef<'a>> {
        let entry = self.entry(index);
        // SAFETY: the last byte of a CQE of this ring.
        let last = || unsafe { entry.add(Cqe64::SIZE - 1).read_volatile() };
        if !self.is_mine(index, last()) {
            return None;
        }
        fence::ownership_then_cqe();
        let op_own = last();
        // SAFETY: `is_mine` checked that software owns the entry. It does so until the consumer
        // index is published behind it.
        Some(unsafe { CqeRef::new(entry, self.wide, op_own) })
    }

    /// Returns the address of the 64-byte CQE at `index` of the ring.
    pub(in crate::ring) fn entry(&self, index: Counter) -> NonNull<u8> {
        // SAFETY: a slot is less than the number of entries, so the result is inside the ring.
        unsafe { self.first.add(self.shape.slot(index) << self.slot_shift()) }
    }

    /// Returns whether more is to be done after the next CQE than to move to the one after it.
    #[inline(always)]
    pub(in crate::ring) fn is_at_pause(&self) -> bool {
        self.next == self.pause
    }

    /// Returns the address of the next CQE.
    #[inline(always)]
    pub(in crate::ring) fn place(&self) -> NonNull<u8> {
        self.next
    }

    /// Takes the next CQE, and publishes the consumer index.
    ///
    /// # Safety
    /// The next CQE is [at](Self::place) `taken`, and is not [one to pause
    /// at](Self::is_at_pause).
    #[inline(always)]
    pub(in crate::ring) unsafe fn take_and_publish(&mut self, taken: NonNull<u8>) {
        // SAFETY: the caller passes the address of the next CQE, which is before the pause.
        unsafe { self.step(taken) };
        self.publish();
    }

    /// Moves behind the next CQE.
    ///
    /// # Safety
    /// The next CQE is [at](Self::place) `taken`, and is not [one to pause
    /// at](Self::is_at_pause).
    #[inline(always)]
    unsafe fn step(&mut self, taken: NonNull<u8>) {
        // SAFETY: the caller passes the address of the next CQE, which is before the pause. So
        // another CQE of the ring or of the expanded block follows it.
        self.next = unsafe { taken.add(self.stride) };
        self.taken += 1;
    }

    /// Takes the next CQE, of any kind and at any place.
    #[inline(always)]
    pub(in crate::ring) fn turn(&mut self) {
        if self.next == self.pause {
            return self.seek(self.index().plus(1));
        }
        // SAFETY: the next CQE is before the pause.
        unsafe { self.step(self.next) };
    }

    /// Publishes the consumer index, unless a reserve is set.
    #[inline(always)]
    pub(in crate::ring) fn publish(&mut self) {
        self.record.release(self.taken);
    }

    /// Copies a CQE that software owns over another one. The destination keeps its owner bit.
    pub(super) fn move_entry(&mut self, from: Counter, to: Counter) {
        let to_index = to;
        let (from, to) = (self.entry(from), self.entry(to));
        let words = if self.wide { -8..8 } else { 0..8 };
        for word in words {
            // SAFETY: both are entries of the ring that software owns; the first half of a wide one
            // lies before `entry`'s address.
            unsafe {
                let mut value = from.cast::<u64>().offset(word).read_volatile().to_ne_bytes();
                let place = to.cast::<u64>().offset(word);
                if word == 7 {
                    let owner = place.cast::<u8>().add(7).read_volatile() & OWNER_MASK;
                    value[7] = value[7] & !OWNER_MASK | owner;
                }
                place.write_volatile(u64::from_ne_bytes(value));
            }
        }
        if self.block.is_enhanced() {
            self.stamp(to_index);
        }
    }
}
