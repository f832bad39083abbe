//! Compressed CQEs: a title, and mini CQEs of what differs from it.
//!
//! A block takes as many slots of the ring as it has mini CQEs. The title is in the first slot.
//! Eight mini CQEs are in the second, the next eight in the ninth, then in the seventeenth, and so
//! on. The HCA does not write the slots between them. They keep the content of an earlier lap,
//! whose owner bit equals that of this lap in every other lap.
//!
//! The reader goes through a block as through other CQEs, so the path of a poll does not depend on
//! blocks. Up to [`AHEAD`] CQEs at a time are expanded in memory of the reader's own, and the
//! consumer reads there. Each is a copy of the title, made when the block is opened, in which only
//! the three fields that differ are stored. In the ring, only the last byte of each slot is
//! written, to mark it as holding no CQE. This must precede telling the HCA that the slot is free.
//! Since mini CQEs are read ahead, every single CQE can be published, and so a block takes no more
//! space in the CQ than its CQEs would.

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::cqe::{
    Cqe64, FORMAT_SHIFT, MINI_CQES_PER_SLOT, MiniCqe, MiniCqeChecksum, MiniCqeRequester,
    OPCODE_SHIFT, OWNER_MASK, opcode,
};

use crate::ib::{Counter, CqeCompression, Shape};
use crate::ring::source::Titles;

/// Number of CQEs that are expanded at a time: whole slots of mini CQEs, and as many as HCAs put
/// into a block. Costs per expansion are shared by all of them.
pub(super) const AHEAD: usize = 8 * MINI_CQES_PER_SLOT;

/// Words of a CQE.
pub(in crate::ring) type Words = [u64; 8];

/// Index of the word with a field of the CQE.
const fn word(offset: usize) -> usize {
    offset / 8
}

const LENGTH: usize = word(offset_of!(Cqe64, byte_cnt));
const END: usize = word(offset_of!(Cqe64, sop_drop_qpn));

/// The content of mini CQEs: of a requester, or of a responder by format.
const REQUESTER: u8 = 0;
const HASH: u8 = 1;
const CHECKSUM: u8 = 2;
const STRIDE: u8 = 3;

/// Writes `count` CQEs to `out`, the first of which is the block's `number`th. `slots` returns the
/// address of each slot of mini CQEs, by the number of CQEs before it. Unless `FRESH`, `out` already
/// holds the title.
///
/// # Safety
/// - `out` has space for `count` CQEs.
/// - The slots have `count` mini CQEs.
#[inline(always)]
unsafe fn fill<const WHAT: u8, const FRESH: bool>(
    out: NonNull<Words>,
    title: &Words,
    number: u32,
    slots: impl Fn(u32) -> NonNull<u8>,
    count: u32,
) {
    const SLOT: u32 = MINI_CQES_PER_SLOT as u32;
    let whole = if FRESH { Some(Whole::new(title)) } else { None };
    let first = u16::from_be((title[END].to_le() >> 32) as u16).wrapping_add(number as u16);
    for start in (0..count).step_by(MINI_CQES_PER_SLOT) {
        let (minis, counter) = (slots(start), first.wrapping_add(start as u16));
        // SAFETY: `start` is less than `count`, the number of CQEs that `out` and the slots have.
        unsafe {
            let out = out.add(start as usize);
            match count - start {
                // The most frequent case, in a loop whose length the compiler knows.
                SLOT.. => fill_slot::<WHAT>(out, whole, counter, minis, MINI_CQES_PER_SLOT),
                rest => fill_slot::<WHAT>(out, whole, counter, minis, rest as usize),
            }
        }
    }
}

/// Writes `count` CQEs to `out`, of one slot of mini CQEs. Without `whole`, `out` already holds the
/// title. `counter` is the WQE index of the first one, if mini CQEs have none.
///
/// Fields are copied one by one, in their own sizes, which takes the fewest instructions. The poll
/// loads some of them together, but long after, except for the first CQE.
///
/// # Safety
/// - `out` has space for `count` CQEs.
/// - `minis` has `count` mini CQEs.
#[inline(always)]
unsafe fn fill_slot<const WHAT: u8>(
    out: NonNull<Words>,
    whole: Option<Whole>,
    counter: u16,
    minis: NonNull<u8>,
    count: usize,
) {
    for at in 0..count {
        // SAFETY: `at` is less than `count`. By the caller's contract, `out` and `minis` have so
        // many. Each field is aligned to its size.
        unsafe {
            let (cqe, mini) = (out.add(at), minis.add(at * size_of::<MiniCqe>()));
            if let Some(whole) = whole {
                whole.write(cqe);
            }
            let cqe = cqe.cast::<u8>();
            let length = mini.add(offset_of!(MiniCqe, byte_cnt)).cast::<u32>().read_volatile();
            cqe.add(offset_of!(Cqe64, byte_cnt)).cast::<u32>().write(length);
            let short = |at: usize| mini.add(at).cast::<u16>().read_volatile();
            let put = |at: usize, value: u16| cqe.add(at).cast::<u16>().write(value);
            if WHAT == REQUESTER {
                let code = mini.add(offset_of!(MiniCqeRequester, s_wqe_opcode)).read_volatile();
                cqe.add(offset_of!(Cqe64, sop_drop_qpn)).write(code);
                put(WQE_COUNTER, short(offset_of!(MiniCqeRequester, wqe_counter)));
                continue;
            }
            if WHAT == HASH {
                let hash = mini.cast::<u32>().read_volatile();
                cqe.add(offset_of!(Cqe64, rss_hash_result)).cast::<u32>().write(hash);
            } else {
                put(offset_of!(Cqe64, check_sum), short(offset_of!(MiniCqeChecksum, checksum)));
            }
            if WHAT == STRIDE {
                put(WQE_COUNTER, short(offset_of!(MiniCqeChecksum, stridx)));
            } else {
                put(WQE_COUNTER, counter.wrapping_add(at as u16).to_be());
            }
        }
    }
}

/// A CQE in registers, to be written many times.
#[derive(Clone, Copy)]
struct Whole(
    #[cfg(target_arch = "x86_64")] [core::arch::x86_64::__m128i; 4],
    #[cfg(not(target_arch = "x86_64"))] Words,
);

impl Whole {
    #[inline(always)]
    fn new(words: &Words) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let words = words.as_ptr().cast::<core::arch::x86_64::__m128i>();
            // SAFETY: four times 16 bytes, of which no alignment is asked; every x86-64 processor
            // has SSE2.
            let part = |at| unsafe { core::arch::x86_64::_mm_loadu_si128(words.add(at)) };
            Self([part(0), part(1), part(2), part(3)])
        }
        #[cfg(not(target_arch = "x86_64"))]
        Self(*words)
    }

    /// # Safety
    /// 64 bytes at `to` are the caller's, aligned to 16.
    #[inline(always)]
    unsafe fn write(self, to: NonNull<Words>) {
        // SAFETY: 64 bytes that the caller owns, aligned to 16.
        unsafe { to.cast().write(self.0) };
    }
}

/// Marks `count` slots as holding no CQE.
///
/// # Safety
/// They are slots of a ring, from this CQE's slot on, that software owns.
#[inline(always)]
unsafe fn mark_empty(cqe: NonNull<u8>, count: usize, shift: u32) {
    let none = opcode::INVALID << OPCODE_SHIFT;
    let mut last = cqe.as_ptr().wrapping_add(Cqe64::SIZE - 1);
    let mut left = count;
    // SAFETY: the last bytes of these slots.
    unsafe {
        while left >= 8 {
            for ahead in 0..8 {
                last.wrapping_add(ahead << shift).write_volatile(none);
            }
            last = last.wrapping_add(8 << shift);
            left -= 8;
        }
        for ahead in 0..left {
            last.wrapping_add(ahead << shift).write_volatile(none);
        }
    }
}

const WQE_COUNTER: usize = offset_of!(Cqe64, wqe_counter);

/// The block that a CQ's consumer is in, or none.
pub(in crate::ring) struct Block {
    /// Memory of [`AHEAD`] CQEs of 64 bytes.
    out: NonNull<Words>,
    format: CqeCompression,
    title: Words,
    /// Index of the title.
    first: Counter,
    /// Number of CQEs in the block; 0 if there is none.
    count: u32,
    /// Index of the first expanded CQE, and the number of expanded CQEs.
    base: Counter,
    loaded: u32,
    /// Enhanced layout: the CQEs that mini CQEs may refer to.
    titles: Option<Titles>,
}

/// Expanded CQEs, aligned like those of a ring.
#[repr(C, align(64))]
struct Out([Words; AHEAD]);

// SAFETY: only the block accesses the memory.
unsafe impl Send for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the pointer is from a box, and is freed once.
        drop(unsafe { Box::from_raw(self.out.cast::<Out>().as_ptr()) });
    }
}

impl Block {
    pub(in crate::ring) fn new(format: CqeCompression) -> Box<Self> {
        let out = NonNull::from(Box::leak(Box::new(Out([[0; 8]; AHEAD]))));
        let none = Counter::default();
        let block = Self {
            out: out.cast(),
            format,
            title: [0; 8],
            first: none,
            count: 0,
            base: none,
            loaded: 0,
            titles: None,
        };
        Box::new(block)
    }

    /// Switches to a ring of the enhanced layout.
    pub(super) fn enhance(&mut self, titles: Titles) {
        self.titles = Some(titles);
    }

    pub(super) fn is_enhanced(&self) -> bool {
        self.titles.is_some()
    }

    /// Returns the CQEs that mini CQEs may refer to.
    pub(in crate::ring) fn titles(&self) -> Titles {
        self.titles.unwrap_or_default()
    }

    /// Records the CQE that mini CQEs at `index` may refer to.
    pub(in crate::ring) fn remember(&mut self, index: Counter, cqe: Words) {
        if let Some(titles) = &mut self.titles {
            titles.remember(index, cqe);
        }
    }

    /// Keeps the CQE recorded last for mini CQEs at `end`, whatever is recorded from now on.
    pub(super) fn keep_title(&mut self, end: Counter) {
        if let Some(titles) = &mut self.titles {
            titles.keep(end);
        }
    }

    /// Expands `count` CQEs like `title`, from `index` on, of one slot of mini CQEs. They become
    /// the block.
    pub(super) fn write_out(&mut self, index: Counter, title: Words, slot: Words, count: u32) {
        assert!(count as usize <= MINI_CQES_PER_SLOT);
        self.title = title;
        (self.first, self.count) = (index, count);
        let minis = NonNull::from(&slot).cast();
        // SAFETY: `count` is at most the mini CQEs of a slot, and the memory has space for more.
        // The title is the CQE before the first.
        unsafe { self.expand(1, |_| minis, count, true) };
        (self.base, self.loaded) = (index, count);
    }

    pub(super) fn set_format(&mut self, format: CqeCompression) {
        self.format = format;
    }

    /// Returns the address of the expanded CQEs.
    pub(in crate::ring) fn out(&self) -> NonNull<u8> {
        self.out.cast()
    }

    /// Returns whether a block is open.
    pub(in crate::ring) fn is_open(&self) -> bool {
        self.count != 0
    }

    /// Returns the index behind the block.
    pub(in crate::ring) fn end(&self) -> Counter {
        self.first.plus(self.count)
    }

    /// Returns the index of the first expanded CQE, and the number of expanded CQEs.
    pub(super) fn written_out(&self) -> (Counter, u32) {
        (self.base, self.loaded)
    }

    /// Returns whether the CQE at `index` is expanded.
    pub(in crate::ring) fn holds(&self, index: Counter) -> bool {
        index.since(self.base) < self.loaded
    }

    pub(in crate::ring) fn close(&mut self) {
        (self.count, self.loaded) = (0, 0);
    }

    /// Opens the block whose title is at `index` of a ring of `entries` slots. False if the title
    /// is not of a success, or its length is impossible.
    pub(in crate::ring) fn open(&mut self, index: Counter, title: [u8; 64], entries: u32) -> bool {
        let op_own = title[63];
        if op_own >> OPCODE_SHIFT > opcode::RESP_SEND_INV {
            return false;
        }
        self.title = zerocopy::transmute!(title);
        let count = u32::from_be((self.title[LENGTH].to_le() >> 32) as u32);
        // A block of one CQE would have its mini CQE behind the block.
        if count < 2 || count > entries {
            return false;
        }
        const NO_FORMAT: u8 = !(3 << FORMAT_SHIFT | OWNER_MASK);
        let end = self.title[END].to_le();
        let end = end & (!0 >> 8) | u64::from(op_own & NO_FORMAT) << 56;
        self.title[END] = u64::from_le(end);
        (self.first, self.count, self.loaded) = (index, count, 0);
        true
    }

    /// Expands the CQEs from `index` on, which is the first of a slot of mini CQEs. The ring is
    /// given by the CQE of slot 0, its shape, and the binary logarithm of its slots' size.
    ///
    /// # Safety
    /// - The block is open. Software owns it, and it is not published up to its end.
    /// - The ring is one of CQEs that are aligned to eight.
    pub(in crate::ring) unsafe fn load(
        &mut self,
        index: Counter,
        first: NonNull<u8>,
        shape: Shape,
        shift: u32,
    ) {
        let done = index.since(self.first);
        let wanted = (self.count - done).min(AHEAD as u32);
        // The memory holds the title, left by the first CQEs of the block.
        let fresh = done == 0;
        let slots = |start: u32| {
            let slot = shape.slot(self.first.plus((done + start).max(1)));
            // SAFETY: a slot of the ring.
            unsafe { first.add(slot << shift) }
        };
        // SAFETY: `wanted` is at most `AHEAD`. The slots are of the open block, which software owns.
        unsafe { self.expand(done, slots, wanted, fresh) };
        // Up to the ring's end, then from its start.
        let slot = shape.slot(index);
        let before_end = (wanted as usize).min(shape.entries() as usize - slot);
        // SAFETY: slots of the block, which software owns.
        unsafe {
            mark_empty(first.add(slot << shift), before_end, shift);
            mark_empty(first, wanted as usize - before_end, shift);
        }
        (self.base, self.loaded) = (index, wanted);
    }

    /// Expands `count` CQEs, the first of which is the block's `number`th. `slots` returns the
    /// address of each slot of mini CQEs, by the number of CQEs before it.
    ///
    /// # Safety
    /// `count` is at most [`AHEAD`]. The slots have so many mini CQEs, and software owns them.
    #[inline(always)]
    unsafe fn expand(
        &self,
        number: u32,
        slots: impl Fn(u32) -> NonNull<u8>,
        count: u32,
        fresh: bool,
    ) {
        let (out, title) = (self.out, &self.title);
        let opcode = title[END].to_le() >> (56 + OPCODE_SHIFT);
        let what = match self.format {
            _ if opcode == u64::from(opcode::REQ) => REQUESTER,
            CqeCompression::Hash => HASH,
            CqeCompression::Checksum => CHECKSUM,
            CqeCompression::ChecksumStride => STRIDE,
        };
        // SAFETY: `count` is at most `AHEAD`, the length of `out`, and the slots have as many mini
        // CQEs.
        unsafe {
            match (what, fresh) {
                (REQUESTER, true) => fill::<REQUESTER, true>(out, title, number, slots, count),
                (REQUESTER, false) => fill::<REQUESTER, false>(out, title, number, slots, count),
                (HASH, true) => fill::<HASH, true>(out, title, number, slots, count),
                (HASH, false) => fill::<HASH, false>(out, title, number, slots, count),
                (CHECKSUM, true) => fill::<CHECKSUM, true>(out, title, number, slots, count),
                (CHECKSUM, false) => fill::<CHECKSUM, false>(out, title, number, slots, count),
                (_, true) => fill::<STRIDE, true>(out, title, number, slots, count),
                (_, false) => fill::<STRIDE, false>(out, title, number, slots, count),
            }
        }
    }

    /// Returns the CQE at `index`, which is expanded.
    pub(in crate::ring) fn cqe(&self, index: Counter) -> Words {
        assert!(self.holds(index));
        // SAFETY: less than `loaded`, which is at most `AHEAD`.
        unsafe { self.out.add(index.since(self.base) as usize).read_volatile() }
    }
}
