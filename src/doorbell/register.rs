//! Registers of a UAR page: the send doorbell with its BlueFlame buffers, and the CQ arm register.

use super::Lent;
use core::ptr::NonNull;

use mlx5_sys::doorbell::UAR_CQ_ARM;
use mlx5_sys::wqe::{SEGMENT_SIZE, WQEBB_SIZE};
use volatile_register::WO;

use super::copy::WORDS;
use super::{BlueFlameCopy, CopyUnavailable, Record, fence};
use crate::watch::flight::{self, DoorbellKind};
use crate::watch::timing::{Phase, Recorder};

/// The memory type of a send queue's doorbell register.
///
/// It is known for queues made by command: of the kinds of [`Uar`](crate::devx::Uar), all but
/// [`BlueFlame`](crate::devx::UarKind) are uncached. Of other queues, only the program can know it,
/// and promises it by the unsafe [`uncached`](Self::uncached).
///
/// ```
/// # let rig::Link { qp, mut reader, sends, .. } = rig::link()?;
/// # drop(sends);
/// use mlx5::expert::UarMapping;
/// use mlx5::ring::{SendConfig, SendQueue};
///
/// // SAFETY: the program was started with `MLX5_SHUT_UP_BF=1`, so libmlx5 maps all its registers
/// // uncached.
/// let memory = unsafe { UarMapping::uncached() };
/// let sends = SendQueue::new(&qp, &mut reader, SendConfig { memory, ..SendConfig::default() })?;
/// assert!(sends.is_uncached());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Safe code cannot promise it:
/// ```compile_fail,E0133
/// let memory = mlx5::expert::UarMapping::uncached();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct UarMapping {
    uncached: bool,
}

impl UarMapping {
    /// Write-combining memory, or unknown. libmlx5 requests it from the kernel, unless it was told
    /// not to use BlueFlame. Each doorbell has a fence before it and a flush after it.
    pub const WRITE_COMBINING: Self = Self { uncached: false };

    /// Uncached memory. Then BlueFlame is not used, and on x86-64 no fence is needed.
    ///
    /// # Safety
    /// Every send queue that is taken over with it rings a register in uncached memory: one that was
    /// allocated that way (`mlx5dv_devx_alloc_uar` with `MLX5DV_UAR_ALLOC_TYPE_NC`), or by a libmlx5
    /// that ran with `MLX5_SHUT_UP_BF=1`. That `mlx5dv_init_obj` reports no BlueFlame size is not
    /// enough: the first register of a context is on a write-combining page and shared.
    ///
    /// In write-combining memory, no manual of a processor keeps such a doorbell behind its WQE. If
    /// it comes first, the HCA executes what the slot had before, on memory that was given back.
    pub const unsafe fn uncached() -> Self {
        Self::UNCACHED
    }

    /// Uncached memory, for registers of which this crate knows it.
    pub(crate) const UNCACHED: Self = Self { uncached: true };

    /// Returns whether it is uncached memory.
    pub const fn is_uncached(self) -> bool {
        self.uncached
    }
}

/// A send ring, for copying from it to a BlueFlame buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocks {
    /// Start of the ring.
    pub(crate) start: NonNull<u64>,
    /// Size of the ring in 64-byte blocks, a power of two.
    pub(crate) count: u32,
}

/// The doorbell of a send queue: its doorbell record word and its register.
///
/// The register has two buffers that are stored to in turn. If it is a BlueFlame register, a whole
/// WQE can be stored there, and the HCA need not fetch it.
#[derive(Debug)]
pub(crate) struct SendDoorbell {
    record: Record,
    register: NonNull<u8>,
    /// The buffer for the next store.
    pub(super) next: NonNull<u8>,
    /// Exclusive or of the addresses of the two buffers.
    pub(super) flip: usize,
    /// Most 16-byte units of a WQE that goes by BlueFlame if it is posted singly. 0: none does.
    single: u32,
    /// Most 16-byte units of a WQE that goes by BlueFlame if it is the last of a batch. 0: none
    /// does.
    last: u32,
    copy: BlueFlameCopy,
    /// Whether WQEs of one and of two blocks go by BlueFlame, word by word.
    words: bool,
    /// Units of the longest single WQE that goes by BlueFlame word by word; 0 if none does.
    pub(super) long: u32,
    memory: UarMapping,
    /// Whether the register may be in write-combining memory, the queue has a record, and no WQE posted
    /// singly (`single_plain`) or last in a batch (`batch_plain`) goes by BlueFlame.
    single_plain: bool,
    batch_plain: bool,
    /// Whether the queue has no record: the register tells the HCA what is posted.
    recordless: bool,
    /// Times of the queue's posts.
    pub(crate) timing: Recorder,
    pub(crate) flight: flight::Recorder,
}

impl SendDoorbell {
    /// Creates a doorbell whose next store goes to the first buffer. With `blue_flame`, single
    /// short WQEs are copied to it.
    ///
    /// # Safety
    /// - `register` is the BlueFlame register of the queue's UAR page, and `buffer` the size of its
    ///   halves or 0, as `mlx5dv_init_obj` gives them.
    /// - Both live as long as the result is used.
    /// - With `blue_flame`, nothing else stores to the register meanwhile.
    pub(crate) unsafe fn new(
        record: Record,
        register: NonNull<u8>,
        buffer: usize,
        blue_flame: bool,
    ) -> Self {
        let first = register.addr().get();
        let flip = first ^ first.wrapping_add(buffer);
        let single = if blue_flame { (buffer / SEGMENT_SIZE) as u32 } else { 0 };
        let mut doorbell = Self {
            record,
            register,
            next: register,
            flip,
            single,
            last: 0,
            copy: BlueFlameCopy::Words,
            words: false,
            long: 0,
            memory: UarMapping::WRITE_COMBINING,
            single_plain: false,
            batch_plain: false,
            recordless: false,
            timing: Recorder::new(),
            flight: flight::Recorder::none(),
        };
        doorbell.settle();
        doorbell
    }

    /// Creates a doorbell of a queue whose record the HCA does not read: `register` tells it what
    /// is posted. The record's word is for the driver only. Until [`leave`](Self::leave) it shows
    /// that the queue is in use, and then its producer counter.
    ///
    /// # Safety
    /// `register` is the register at which such queues are rung, of the queue's UAR page. It lives
    /// as long as the result is used.
    pub(crate) unsafe fn without_record(record: Record, register: NonNull<u8>) -> Self {
        // SAFETY: nothing is copied to the register, and it has no second buffer.
        let mut doorbell = unsafe { Self::new(record, register, 0, false) };
        doorbell.recordless = true;
        doorbell.settle();
        doorbell.enter();
        doorbell
    }

    /// Marks a queue without a record as in use, from its record's counter on.
    pub(crate) fn enter(&mut self) {
        if self.recordless {
            let counter = self.record.read() & 0xffff;
            self.record.store(IN_USE | counter);
        }
    }

    /// Stores the producer counter at which a queue without a record is left.
    pub(crate) fn leave(&mut self, counter: u16) {
        if self.recordless {
            self.record.store(IN_USE | u32::from(counter));
        }
    }

    /// Returns a second doorbell of the queue, without timing and flight recording.
    ///
    /// # Safety
    /// The two are not used at the same time. One that is used after the other [goes on from
    /// it](Self::go_on_from).
    pub(crate) unsafe fn twin(&self) -> Self {
        // SAFETY: a plain description without destructor. By this function's contract, only one is
        // used at a time.
        let record = unsafe { core::ptr::read(&self.record) };
        let flight = flight::Recorder::none();
        Self { record, timing: Recorder::new(), flight, ..*self }
    }

    /// Continues alternating the register's buffers where `twin` stopped.
    pub(crate) fn go_on_from(&mut self, twin: &Self) {
        self.next = twin.next;
    }

    /// Returns the buffer for the next store.
    #[inline(always)]
    pub(crate) fn buffer(&self) -> NonNull<u8> {
        self.next
    }

    /// Sets the buffer for the next store, which is one of the same register.
    #[inline(always)]
    pub(crate) fn set_buffer(&mut self, next: NonNull<u8>) {
        debug_assert!(
            next == self.register || next.addr().get() ^ self.flip == self.register.addr().get()
        );
        self.next = next;
    }

    /// Sets how WQEs are copied to the register.
    ///
    /// # Errors
    /// [`CopyUnavailable`].
    pub(crate) fn set_copy(&mut self, copy: BlueFlameCopy) -> Result<(), CopyUnavailable> {
        copy.check()?;
        self.copy = copy;
        self.settle();
        Ok(())
    }

    /// Returns how WQEs are copied to the register.
    pub(crate) fn copy(&self) -> BlueFlameCopy {
        self.copy
    }

    /// Returns whether a WQE of one block can go by BlueFlame, by any way of copying.
    pub(crate) fn copies_block(&self) -> bool {
        self.single >= BLOCK_DS
    }

    /// Lets the last WQE of a batch go by BlueFlame as a single WQE does.
    pub(crate) fn copy_last(&mut self) {
        self.last = self.single;
        self.settle();
    }

    /// Leaves out what only write-combining memory needs. BlueFlame would be slower than letting the
    /// HCA fetch the WQE, and is not used.
    ///
    /// # Safety
    /// The register is in uncached memory.
    pub(crate) unsafe fn set_uncached(&mut self) {
        self.memory = UarMapping::UNCACHED;
        (self.single, self.last) = (0, 0);
        self.settle();
    }

    /// Returns whether the register is known to be in uncached memory.
    pub(crate) fn is_uncached(&self) -> bool {
        self.memory.is_uncached()
    }

    /// Computes the fields that posts test.
    fn settle(&mut self) {
        self.words = self.single >= 2 * BLOCK_DS && self.copy == BlueFlameCopy::Words;
        self.long = if self.words { self.single } else { 0 };
        let plain = !self.memory.is_uncached() && !self.recordless;
        self.single_plain = plain && self.single == 0;
        self.batch_plain = plain && self.last == 0;
    }

    /// Returns the record's word.
    pub(crate) fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Returns the address of the register.
    pub(crate) fn register(&self) -> NonNull<u8> {
        self.register
    }

    /// Returns whether WQEs are copied to the register. Then only this queue may store to it.
    pub(crate) fn blue_flame(&self) -> bool {
        self.single != 0
    }

    /// Returns whether the last WQE of a post, of `ds` 16-byte units, goes by BlueFlame. `single`:
    /// it is the only WQE of the post. A WQE of one unit does not: the doorbell's eight bytes are
    /// half of it. (rdma-core, `post_send_db`.)
    #[inline(always)]
    pub(crate) fn takes(&self, ds: u32, single: bool) -> bool {
        ds > 1 && ds <= if single { self.single } else { self.last }
    }

    /// Returns whether every single WQE of one or two blocks but more than one unit goes by
    /// BlueFlame word by word. Then [`ring_block`](Self::ring_block) can be used, and
    /// [`ring_long`](Self::ring_long) for two blocks.
    #[inline(always)]
    pub(crate) fn takes_words(&self) -> bool {
        self.words
    }

    /// Rings, in the order of the PRM's posting steps. The WQEs were written to the ring before.
    ///
    /// 1. fence: WQEs before the record
    /// 2. doorbell record: `counter`, the queue's producer counter after the WQEs
    /// 3. fence: record before the register
    /// 4. register: the last WQE in 64-byte blocks, or else `ctrl`, the first eight bytes of its
    ///    ctrl segment in memory order
    /// 5. flush of the register's stores
    /// 6. the other buffer is next
    ///
    /// `single`: the post has one WQE.
    ///
    /// # Safety
    /// `ctrl` belongs to the last WQE before `counter`, which lies in `ring`, memory that is
    /// readable.
    #[inline(always)]
    pub(crate) unsafe fn ring(
        &mut self,
        lent: Lent,
        counter: u16,
        ctrl: u64,
        single: bool,
        ring: Blocks,
    ) {
        if if single { self.rings_plain() } else { self.batch_plain } {
            // SAFETY: the caller upholds this function's contract. Batches that are plain are rung as
            // single WQEs are.
            unsafe { self.ring_plain(lent, counter, ctrl) }
        } else {
            // SAFETY: the caller upholds this function's contract, which is the callee's.
            unsafe { self.ring_otherwise(lent, counter, ctrl, single, ring) }
        }
    }

    /// Returns whether every single WQE is rung by a [plain doorbell](Self::ring_plain).
    #[inline(always)]
    pub(crate) fn rings_plain(&self) -> bool {
        self.single_plain
    }

    /// Rings by the doorbell's eight bytes: all steps of [`ring`](Self::ring).
    ///
    /// # Safety
    /// - `ctrl` belongs to the last WQE before `counter`.
    /// - The queue has a record, and the register is not known to be in uncached memory.
    #[inline(always)]
    pub(crate) unsafe fn ring_plain(&mut self, _: Lent, counter: u16, ctrl: u64) {
        self.flight.rings(DoorbellKind::Doorbell, self.next);
        // SAFETY: the caller of `new` keeps the register mapped.
        self.post(counter, |to| unsafe { store(to, ctrl) });
    }

    /// Rings for a single WQE. Inlined in few places, so that most ways need no call.
    ///
    /// # Safety
    /// `ctrl` belongs to the only WQE before `counter` that was not rung. It lies in `ring`,
    /// memory that is readable.
    #[inline(always)]
    pub(crate) unsafe fn ring_single(&mut self, lent: Lent, counter: u16, ctrl: u64, ring: Blocks) {
        if self.recordless {
            self.ring_bare(ctrl);
        } else if self.memory.is_uncached() {
            self.ring_uncached(counter, ctrl);
        } else {
            // SAFETY: the caller upholds this function's contract, which is the callee's.
            unsafe { self.ring_by_size(lent, counter, ctrl, ring) }
        }
    }

    /// Rings a queue without a record: steps 1, 4 and 5 of [`ring`](Self::ring).
    #[inline(always)]
    fn ring_bare(&mut self, ctrl: u64) {
        self.flight.rings(DoorbellKind::RegisterOnly, self.register);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        // SAFETY: the caller of `without_record` keeps the register mapped.
        unsafe { store(self.register.cast(), ctrl) }
        self.timing.stamp(Phase::Doorbell);
        fence::flush_register();
        self.timing.stamp(Phase::Flush);
    }

    /// Rings in all cases that [`ring`](Self::ring) does not inline: BlueFlame, uncached memory, no
    /// record.
    ///
    /// Not inlined: the ways of copying, in every function that posts, would cost registers even on
    /// paths that never copy.
    ///
    /// # Safety
    /// `ctrl` belongs to the last WQE before `counter`, which lies in `ring`, memory that is
    /// readable.
    #[inline(never)]
    unsafe fn ring_otherwise(
        &mut self,
        lent: Lent,
        counter: u16,
        ctrl: u64,
        single: bool,
        ring: Blocks,
    ) {
        if self.recordless {
            self.ring_bare(ctrl);
        } else if self.memory.is_uncached() {
            self.ring_uncached(counter, ctrl);
        } else {
            // SAFETY: the caller upholds this function's contract, which is the callee's.
            unsafe { self.ring_chosen(lent, counter, ctrl, single, ring) }
        }
    }

    /// Rings for a single WQE of a queue with a record, on a register that is not known to be in
    /// uncached memory.
    ///
    /// # Safety
    /// `ctrl` belongs to the only WQE before `counter` that was not rung. It lies in `ring`,
    /// memory that is readable.
    #[inline(never)]
    unsafe fn ring_by_size(&mut self, lent: Lent, counter: u16, ctrl: u64, ring: Blocks) {
        // SAFETY: the caller upholds this function's contract, which is the callee's for one WQE.
        unsafe { self.ring_chosen(lent, counter, ctrl, true, ring) }
    }

    /// Rings by BlueFlame, or by the doorbell's eight bytes, whichever the WQE's size asks for.
    ///
    /// # Safety
    /// `ctrl` belongs to the last WQE before `counter`, which lies in `ring`, memory that is
    /// readable.
    #[inline(always)]
    unsafe fn ring_chosen(
        &mut self,
        lent: Lent,
        counter: u16,
        ctrl: u64,
        single: bool,
        ring: Blocks,
    ) {
        let [_, ds] = index_and_ds(ctrl);
        // SAFETY: `ctrl` and `ring` are as the caller guarantees, and `takes` has checked that a WQE
        // that is copied fits the buffer.
        unsafe {
            if self.takes(ds, single) {
                self.ring_copied(lent, counter, ctrl, ring);
            } else {
                self.ring_plain(lent, counter, ctrl);
            }
        }
    }

    /// Rings for a last WQE that is copied to the register, see [`ring`](Self::ring).
    ///
    /// # Safety
    /// - `ctrl` belongs to the last WQE before `counter`, which lies in `ring`, memory that is
    ///   readable.
    /// - The last WQE's blocks fit the register's buffer.
    #[inline(never)]
    pub(crate) unsafe fn ring_copied(&mut self, _: Lent, counter: u16, ctrl: u64, ring: Blocks) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        let [index, ds] = index_and_ds(ctrl);
        let copy = self.copy;
        let mask = ring.count as usize - 1;
        let from = |block: u32| {
            // A WQE that reaches the ring's end continues at its start.
            let at = (index.wrapping_add(block)) as usize & mask;
            // SAFETY: a block of the ring.
            unsafe { ring.start.add(at * WORDS) }
        };
        // SAFETY: the caller guarantees that the WQE lies in the ring, and fits the buffer. The
        // processor supports the way of copying: `set_copy` refuses others.
        self.post(counter, |to| unsafe {
            copy.block(to, from(0));
            for block in 1..ds.div_ceil(BLOCK_DS) {
                copy.block(to.add(block as usize * WORDS), from(block));
            }
        });
    }

    /// Rings a register in uncached memory: the steps of [`ring`](Self::ring), without what only
    /// write-combining memory needs.
    #[inline(always)]
    fn ring_uncached(&mut self, counter: u16, ctrl: u64) {
        self.flight.rings(DoorbellKind::Doorbell, self.next);
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record.store(u32::from(counter));
        self.timing.stamp(Phase::Record);
        fence::record_then_uncached();
        self.timing.stamp(Phase::Order);
        // SAFETY: the caller of `new` keeps the register mapped.
        unsafe { store(self.next.cast(), ctrl) }
        self.timing.stamp(Phase::Doorbell);
        fence::uncached_sent();
        self.timing.stamp(Phase::Flush);
        self.flip();
    }

    /// Rings by BlueFlame for a single WQE of one block. `words` has those of its words that are
    /// known.
    ///
    /// # Safety
    /// - `block` is the only WQE before `counter` that was not rung, in a ring, and its words are
    ///   as given.
    /// - [`takes_words`](Self::takes_words) is true.
    #[inline(always)]
    pub(crate) unsafe fn ring_block(
        &mut self,
        _: Lent,
        counter: u16,
        words: [Option<u64>; WORDS],
        block: NonNull<u64>,
    ) {
        self.flight.rings(DoorbellKind::BlueFlame, self.next);
        // Not by `post`: the compiler may keep a closure of eight stores out of line.
        let to: NonNull<WO<u64>> = self.announce(counter).cast();
        macro_rules! copy {
            ($($word:literal)*) => { $(
                // SAFETY: within the block and the buffer, which takes a block.
                unsafe {
                    let value = match words[$word] {
                        Some(value) => value,
                        None => block.add($word).read(),
                    };
                    store(to.add($word), value);
                }
            )* };
        }
        copy!(0 1 2 3 4 5 6 7);
        self.finish();
    }

    /// Performs the steps of [`ring`](Self::ring). `store` is the fourth.
    #[inline(always)]
    fn post(&mut self, counter: u16, store: impl FnOnce(NonNull<WO<u64>>)) {
        store(self.announce(counter).cast());
        self.finish();
    }

    /// Performs the first three steps of [`ring`](Self::ring). Returns the register for the fourth.
    #[inline(always)]
    fn announce(&mut self, counter: u16) -> NonNull<u8> {
        fence::wqe_then_record();
        self.timing.stamp(Phase::Fence);
        self.record.store(u32::from(counter));
        self.timing.stamp(Phase::Record);
        fence::record_then_register();
        self.timing.stamp(Phase::Order);
        self.next
    }

    /// Performs the last step of [`ring`](Self::ring), after the store to the register.
    #[inline(always)]
    fn finish(&mut self) {
        self.timing.stamp(Phase::Doorbell);
        fence::flush_register();
        self.timing.stamp(Phase::Flush);
        self.flip();
    }

    /// Makes the other buffer the next one.
    #[inline(always)]
    pub(super) fn flip(&mut self) {
        let flipped = self.next.as_ptr().map_addr(|addr| addr ^ self.flip);
        // SAFETY: one buffer's address becomes the other's, and neither is null.
        self.next = unsafe { NonNull::new_unchecked(flipped) };
    }
}

/// 16-byte units of a block.
pub(super) const BLOCK_DS: u32 = (WQEBB_SIZE / SEGMENT_SIZE) as u32;

/// Set in the record's word of a queue whose record the HCA does not read: the queue was not just
/// reset.
const IN_USE: u32 = 1 << 31;

/// Stores eight bytes, in memory order, to a register by one store.
///
/// # Safety
/// `to` is a register of eight bytes, aligned to eight.
#[inline(always)]
pub(super) unsafe fn store(to: NonNull<WO<u64>>, value: u64) {
    // SAFETY: the caller guarantees the register. `WO` is a volatile cell, so the reference asserts
    // nothing about its value.
    unsafe { to.as_ref().write(value) }
}

/// Returns index and size in 16-byte units of the WQE whose ctrl segment begins with `ctrl`.
#[inline(always)]
fn index_and_ds(ctrl: u64) -> [u32; 2] {
    let words = u64::from_be(ctrl);
    [(words >> 40) as u32 & 0xffff, words as u32 & 0x3f]
}

/// The doorbell that requests an event of a CQ. It has a word of the record, and a register that
/// all CQs of the context share: each store to it names its CQ.
#[derive(Debug)]
pub(crate) struct ArmDoorbell {
    record: Record,
    register: NonNull<WO<u64>>,
}

impl ArmDoorbell {
    /// Creates the doorbell of the arm register of the UAR page at `page`.
    ///
    /// # Safety
    /// `page` is a UAR page that lives as long as the result is used.
    pub(crate) unsafe fn new(record: Record, page: NonNull<u8>) -> Self {
        // SAFETY: the register lies in the page.
        Self { record, register: unsafe { page.add(UAR_CQ_ARM) }.cast() }
    }

    /// Returns the record's word.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Stores `word` to the record, then `word` and `cqn` to the register.
    pub(crate) fn arm(&mut self, word: u32, cqn: u32) {
        self.record.publish(word);
        fence::record_then_register();
        let value = u64::from(word) << 32 | u64::from(cqn);
        // SAFETY: the caller of `new` keeps the page mapped. An event on a CQ does no harm.
        unsafe { store(self.register, value.to_be()) }
        fence::flush_register();
    }
}
