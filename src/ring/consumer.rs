//! Where a completion queue is read: the next CQE, whose it is, and what the HCA is told of it.

use core::ptr::NonNull;

use mlx5_sys::cqe::{Cqe64, OPCODE_SHIFT, OWNER_MASK, opcode};

use super::block::{Block, Words};
use super::enhanced::NOBODY;
use super::health::PERIOD;
use crate::cqe::CqeRef;
use crate::doorbell::{Record, fence};
use crate::ib::{Counter, CqeCompression, Shape};

/// When the HCA is told how far a CQ is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Publish {
    /// With every CQE that a poll takes.
    #[default]
    EveryPoll,
    /// When so many CQEs were taken since the last time. The record shares a cache line with what
    /// the HCA is told of arms, and the HCA reads it when it runs short of room: the fewer stores,
    /// the less often the line changes hands. As many entries of the CQ cannot be promised to
    /// queues.
    Every(u32),
    /// Only by [`arm`](super::Completions::arm) and when the reader is dropped: for CQs that
    /// [ignore overruns](crate::verbs::CompletionQueueBuilder::ignore_overrun).
    Never,
}

/// What no owner byte is equal to.
const NEVER: u32 = u32::MAX;

/// Binary logarithm of a CQE's size, where it is the usual one.
const SHIFT: u32 = Cqe64::SIZE.trailing_zeros();

/// The consumer side of a CQ.
///
/// A poll that finds what it usually finds touches the first fields only, and compares the CQE's
/// last byte with two that are known ahead. All that depends on where in the ring, or in which lap,
/// the next CQE is, was put into them by [`seek`](Self::seek), once per lap.
///
/// In a compressed block, the next CQE is one that was written out beside the ring: see
/// [`block`](super::block).
pub(super) struct Consumer {
    /// The 64-byte CQE at the consumer index.
    next: NonNull<u8>,
    /// The last byte of a requester's success, without data in it, in this lap. Never equal to a
    /// byte if CQEs are 128 bytes long.
    plain: u32,
    /// A last byte that says, in this lap, that the HCA did not write the CQE yet: that which was
    /// seen last. Never equal to a byte if such polls have more to do.
    stale: u32,
    /// Polls that find nothing until the reader looks whether the CQ failed, less one; negative when
    /// it is to look.
    idle: i32,
    /// As `plain`, for those who ask what a byte differs in from it: read apart, so that who only
    /// compares needs no register for it.
    usual: u32,
    /// The owner bit of this lap, which is also what `plain` is where it is not "never". What is
    /// written out has none.
    owner: u32,
    /// The CQE after which more is to be done than to go on to the following one.
    pause: NonNull<u8>,
    /// Added to the low half of a CQE's address: the consumer index behind it, as the record has
    /// it, 2^[`SHIFT`] times.
    bias: u32,
    record: Record,

    /// The 64-byte CQE of slot 0.
    first: NonNull<u8>,
    shape: Shape,
    wide: bool,
    /// Where the consumer walks: the CQE at the index `lap`, which is slot 0 in the ring, and the
    /// binary logarithm of the distance of CQEs.
    origin: NonNull<u8>,
    lap: Counter,
    shift: u32,
    block: Box<Block>,
    /// Whether a poll that finds nothing has more to do.
    watched: bool,
    /// Where the HCA is not told by every poll.
    reserve: Option<Reserve>,
    /// Whether no poll is over by comparisons.
    held: bool,
}

/// The CQ's record, while `record` is a word that nothing looks at.
struct Reserve {
    record: Record,
    scrap: NonNull<u32>,
    /// CQEs that may be taken without telling the HCA.
    most: u32,
    /// What the record says.
    published: Counter,
}

impl Drop for Reserve {
    fn drop(&mut self) {
        // SAFETY: `set_reserve` made the pointer from a box, and nothing else frees it.
        drop(unsafe { Box::from_raw(self.scrap.as_ptr()) });
    }
}

// SAFETY: the words behind `record` and `scrap` are accessed through this value alone.
unsafe impl Send for Reserve {}

impl Consumer {
    /// Goes on where the record says.
    ///
    /// # Safety
    /// `buffer` is a ring of CQEs of 64 bytes, or, with `wide`, 128, aligned to 64, that lives as
    /// long as the result; the record is its own.
    pub(super) unsafe fn new(
        buffer: NonNull<u8>,
        shape: Shape,
        wide: bool,
        record: Record,
        format: CqeCompression,
    ) -> Self {
        // SAFETY: the ring has at least one CQE. A wide one has 128 bytes, so its second half is inside.
        let first = unsafe { buffer.add(if wide { Cqe64::SIZE } else { 0 }) };
        let start = Counter::new(record.read());
        let mut consumer = Self {
            next: first,
            plain: NEVER,
            stale: NEVER,
            idle: PERIOD,
            usual: NEVER,
            owner: 0,
            pause: first,
            bias: 0,
            record,
            first,
            shape,
            wide,
            origin: first,
            lap: start,
            shift: SHIFT + u32::from(wide),
            block: Block::new(format),
            watched: false,
            reserve: None,
            held: false,
        };
        consumer.seek(start);
        consumer
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// The consumer index.
    pub(super) fn index(&self) -> Counter {
        let offset = self.next.addr().get() - self.origin.addr().get();
        self.lap.plus((offset >> self.shift) as u32)
    }

    /// Binary logarithm of the distance of CQEs in the ring.
    fn slot_shift(&self) -> u32 {
        SHIFT + u32::from(self.wide)
    }

    /// Moves the consumer index. It stays in the block it is in, or goes to its end.
    #[cold]
    #[inline(never)]
    pub(super) fn seek(&mut self, index: Counter) {
        if self.block.is_open() && self.seek_in_block(index) {
            return;
        }
        let slot = self.shape.slot(index) as u32;
        self.lap = index.plus(slot.wrapping_neg());
        self.owner = u32::from(self.shape.lap(index));
        let plain = u32::from(opcode::REQ) << OPCODE_SHIFT | self.owner;
        let enhanced = self.block.is_enhanced();
        let plain = if self.wide || enhanced { NEVER } else { plain };
        self.walk(index, plain, self.shape.entries() - 1 - slot);
        if enhanced {
            // Last bytes do not tell whose a CQE is.
            (self.owner, self.stale) = (NOBODY, NEVER);
        }
    }

    /// Moves the consumer index within the block that it is in. `false`, and it is in none any more,
    /// if the block ends there.
    #[inline(never)]
    fn seek_in_block(&mut self, index: Counter) -> bool {
        if !self.block.holds(index) {
            if index == self.block.end() {
                self.block.close();
                (self.origin, self.shift) = (self.first, self.slot_shift());
                return false;
            }
            // SAFETY: the block is open, so software owns its slots of the ring, and `index` is before
            // its end. Slots that were published before are not read again.
            unsafe { self.block.load(index, self.first, self.shape, self.slot_shift()) };
        }
        let (base, loaded) = self.block.written_out();
        (self.origin, self.lap, self.shift) = (self.block.out(), base, SHIFT);
        self.owner = 0;
        // What is published has 24 bits. In the ring they end where a lap does.
        let ahead = base.plus(loaded - 1).since(index).min(0xff_ffff - index.low24());
        self.walk(index, u32::from(opcode::REQ) << OPCODE_SHIFT, ahead);
        true
    }

    /// Goes on at `index`, with `plain` as the last byte of a requester's success, and `ahead` CQEs
    /// behind that one before more is to be done.
    #[inline(always)]
    fn walk(&mut self, index: Counter, plain: u32, mut ahead: u32) {
        self.plain = plain;
        self.usual = plain;
        // An invalid opcode means it in any lap.
        self.stale = if self.watched { NEVER } else { u32::from(opcode::INVALID) << OPCODE_SHIFT };
        if self.held {
            (self.plain, self.usual, self.stale) = (NEVER, NEVER, NEVER);
        }
        if let Some(reserve) = &mut self.reserve {
            let mut unpublished = index.since(reserve.published);
            if unpublished >= reserve.most {
                reserve.record.release(index.low24());
                reserve.published = index;
                unpublished = 0;
            }
            // The CQE behind which it will be as many.
            ahead = ahead.min(reserve.most - unpublished - 1);
        }
        let behind = (index.since(self.lap) as usize) << self.shift;
        // SAFETY: `index` and the `ahead` CQEs behind it are of one lap of the ring, or of those that
        // are written out at `origin`, so both results are CQEs of that memory.
        unsafe {
            self.next = self.origin.add(behind);
            self.pause = self.next.add((ahead as usize) << self.shift);
        }
        let behind_next = (index.low24() << SHIFT).wrapping_add(1 << SHIFT);
        self.bias = behind_next.wrapping_sub(self.next.addr().get() as u32);
    }

    /// Opens the compressed block that the next CQE is the title of. `false`, and nothing changes, if
    /// it is a damaged one.
    #[cold]
    pub(super) fn open(&mut self) -> bool {
        let index = self.index();
        let open = self.open_at(index);
        if open {
            self.seek(index);
        }
        open
    }

    /// Opens the block whose title is at `index` of the ring, and was seen to be software's.
    fn open_at(&mut self, index: Counter) -> bool {
        let words = self.words(index);
        if self.block.is_enhanced() {
            return self.open_enhanced(index, words);
        }
        self.block.open(index, zerocopy::transmute!(words), self.shape.entries())
    }

    /// A copy of the 64-byte CQE at `index` of the ring.
    pub(super) fn words(&self, index: Counter) -> Words {
        let cqe = self.entry(index).cast::<u64>();
        // SAFETY: a CQE of the ring.
        core::array::from_fn(|at| unsafe { cqe.add(at).read_volatile() })
    }

    pub(super) fn block(&mut self) -> &mut Block {
        &mut self.block
    }

    pub(super) fn block_ref(&self) -> &Block {
        &self.block
    }

    /// Writes what is left of the block that the consumer is in to the ring, as CQEs that are not
    /// compressed.
    #[cold]
    pub(super) fn unfold(&mut self) {
        if self.block.is_open() {
            let index = self.index();
            self.unfold_from(index);
            self.seek(index);
        }
    }

    /// The same of a block whose title is at `index`, where the consumer is in none. `false`, and
    /// nothing changes, if it is a damaged one.
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
                // SAFETY: the block is open, so software owns its slots of the ring, and `next` is before
                // its end. Slots that were published before are not read again.
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
        (self.origin, self.shift) = (self.first, self.slot_shift());
    }

    /// What mini CQEs of responders say.
    pub(super) fn set_format(&mut self, format: CqeCompression) {
        self.block.set_format(format);
    }

    /// From now on, the HCA is told when `most` CQEs were taken, or by every poll that takes one.
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

    /// Tells the HCA how far the CQ is read, if polls did not.
    pub(super) fn flush(&mut self) {
        let index = self.index();
        if let Some(reserve) = &mut self.reserve {
            reserve.record.release(index.low24());
            reserve.published = index;
            self.seek(index);
        }
    }

    /// From now on, no poll that finds nothing is over by one comparison, or again is.
    pub(super) fn watch(&mut self, watched: bool) {
        self.watched = watched;
        self.seek(self.index());
    }

    /// From now on, no poll is over by comparisons, or again is.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
        self.seek(self.index());
    }

    /// The last byte of the next CQE.
    #[inline(always)]
    pub(super) fn op_own(&self) -> u32 {
        // SAFETY: `next` is a 64-byte CQE of the ring or of those that are written out, both of which
        // live as long as the reader.
        unsafe { self.next.add(Cqe64::SIZE - 1).read_volatile() }.into()
    }

    /// Whether it is a requester's success, in a CQE of 64 bytes, without data in it.
    #[inline(always)]
    pub(super) fn is_plain(&self, op_own: u32) -> bool {
        op_own == self.plain
    }

    /// Whether it is one that was found to say that there is no CQE.
    #[inline(always)]
    pub(super) fn is_stale(&self, op_own: u32) -> bool {
        op_own == self.stale
    }

    /// Counts a poll that finds nothing. Returns whether the reader is to look whether the CQ failed.
    #[inline(always)]
    pub(super) fn idles(&mut self) -> bool {
        self.idle = self.idle.wrapping_sub(1);
        self.idle < 0
    }

    /// Sets after how many polls that find nothing the reader looks whether the CQ failed.
    pub(super) fn look_after_in(&mut self, polls: i32) {
        self.idle = polls;
    }

    /// Counts as so many polls that find nothing.
    pub(super) fn age(&mut self, polls: i32) {
        self.idle = self.idle.saturating_sub(polls).max(0);
    }

    /// What a last byte differs in from that of a requester's success in a CQE of 64 bytes.
    #[inline(always)]
    pub(super) fn differs(&self, op_own: u32) -> u32 {
        op_own ^ self.usual
    }

    /// What a last byte differs in from that of a requester's success without data in it. Of any CQE,
    /// and at any time: for who has the time to ask.
    #[inline(always)]
    pub(super) fn kind(&self, op_own: u32) -> u32 {
        const { assert!(opcode::REQ == 0) };
        op_own ^ self.owner
    }

    /// The next CQE.
    ///
    /// # Safety
    /// `op_own` is its last byte, and says that it is the reader's.
    #[inline(always)]
    pub(super) unsafe fn next<'a>(&self, op_own: u32) -> CqeRef<'a> {
        fence::ownership_then_cqe();
        // SAFETY: an entry of this ring that software owns; the HCA gets it back when the consumer
        // index is published.
        unsafe { CqeRef::new(self.next, self.wide, op_own as u8) }
    }

    /// The next CQE of any kind, if there is one.
    pub(super) fn look<'a>(&mut self) -> Option<CqeRef<'a>> {
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
        // SAFETY: the owner bit is that of this lap and the opcode valid, so software owns the CQE, until
        // the consumer index is published behind it.
        Some(unsafe { CqeRef::new(self.next, self.wide, op_own as u8) })
    }

    fn is_mine(&self, index: Counter, op_own: u8) -> bool {
        if self.block.is_enhanced() {
            return self.is_of_lap(index);
        }
        op_own & OWNER_MASK == u8::from(self.shape.lap(index))
            && op_own >> OPCODE_SHIFT != opcode::INVALID
    }

    /// The CQE at `index` of the ring, if software owns it. Not of a block.
    pub(super) fn peek<'a>(&self, index: Counter) -> Option<CqeRef<'a>> {
        let entry = self.entry(index);
        // SAFETY: the last byte of a CQE of this ring.
        let last = || unsafe { entry.add(Cqe64::SIZE - 1).read_volatile() };
        if !self.is_mine(index, last()) {
            return None;
        }
        fence::ownership_then_cqe();
        let op_own = last();
        // SAFETY: `is_mine` says that software owns the entry, which it does until the consumer index is
        // published behind it.
        Some(unsafe { CqeRef::new(entry, self.wide, op_own) })
    }

    /// The 64-byte CQE at `index` of the ring.
    pub(super) fn entry(&self, index: Counter) -> NonNull<u8> {
        // SAFETY: a slot is less than the number of entries, so the result is inside the ring.
        unsafe { self.first.add(self.shape.slot(index) << self.slot_shift()) }
    }

    /// Whether more is to be done after the next CQE than to go on to the following one.
    #[inline(always)]
    pub(super) fn is_at_pause(&self) -> bool {
        self.next == self.pause
    }

    /// Where the next CQE is.
    #[inline(always)]
    pub(super) fn place(&self) -> NonNull<u8> {
        self.next
    }

    /// Takes the next CQE, and publishes that.
    ///
    /// # Safety
    /// It is [at](Self::place) `taken`, has 64 bytes, and is not [one to pause at](Self::is_at_pause).
    #[inline(always)]
    pub(super) unsafe fn take_and_publish(&mut self, taken: NonNull<u8>) {
        // SAFETY: the caller passes the place of the next CQE, which is before the pause: another
        // CQE of the ring, or of those that are written out, follows it.
        self.next = unsafe { taken.add(Cqe64::SIZE) };
        // It does not pass 2^24 but behind the last CQE of a lap, or one to pause at.
        self.record.release((taken.addr().get() as u32).wrapping_add(self.bias) >> SHIFT);
    }

    /// Takes the next CQE, of any kind and anywhere.
    #[inline(always)]
    pub(super) fn turn(&mut self) {
        if self.next == self.pause {
            return self.seek(self.index().plus(1));
        }
        // SAFETY: `next` is before the pause, so another CQE of the ring, or of those that are written
        // out, follows it.
        self.next = unsafe { self.next.add(1 << self.shift) };
    }

    /// Gives all CQEs that were taken back to the HCA, unless it is told less often.
    #[inline(always)]
    pub(super) fn publish(&mut self) {
        self.record.release(self.index().low24());
    }

    /// Copies a CQE that software owns over another one, which keeps its owner bit.
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
