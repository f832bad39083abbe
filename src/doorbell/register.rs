//! Registers of a UAR page: the send doorbell with its BlueFlame buffers, and the CQ arm register.

use core::ptr::NonNull;

use mlx5_sys::doorbell::{BF_BUFFER_SIZE, UAR_CQ_ARM};
use mlx5_sys::wqe::WQEBB_SIZE;
use volatile_register::WO;

use super::{Record, fence};

/// A WQE where it lies in its ring, for copying to a BlueFlame buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    /// Start of the ring.
    pub(crate) ring: NonNull<u8>,
    /// Size of the ring in 64-byte blocks.
    pub(crate) blocks: usize,
    /// First block of the WQE.
    pub(crate) first: usize,
    /// Blocks that the WQE touches.
    pub(crate) count: usize,
}

/// The doorbell of a send queue: its record's word and its register.
///
/// The register has two buffers that are stored to in turn. Where it is a BlueFlame register, a
/// whole WQE can be stored there and the card need not fetch it.
#[derive(Debug)]
pub(crate) struct SendDoorbell {
    record: Record,
    register: NonNull<u8>,
    /// Size of a buffer in bytes; 0: there is one buffer, and BlueFlame is not to be used.
    buffer: usize,
    /// The buffer that is next.
    next: NonNull<u8>,
    /// What its address differs in from the other's, by exclusive or.
    flip: usize,
    blue_flame: bool,
    /// Whether a block goes by BlueFlame.
    blocks: bool,
}

impl SendDoorbell {
    /// A doorbell whose next store goes to the first buffer. With `blue_flame`, single short WQEs
    /// are copied to it.
    ///
    /// # Safety
    /// `register` is the BlueFlame register of the queue's UAR page, `buffer` the size of its
    /// halves or 0, as `mlx5dv_init_obj` gives them; both live as long as the result is used. With
    /// `blue_flame`, nothing else stores to the register meanwhile.
    pub(crate) unsafe fn new(
        record: Record,
        register: NonNull<u8>,
        buffer: usize,
        blue_flame: bool,
    ) -> Self {
        let blue_flame = blue_flame && buffer != 0;
        let blocks = blue_flame && buffer >= WQEBB_SIZE;
        let first = register.addr().get();
        let flip = first ^ first.wrapping_add(buffer);
        Self { record, register, buffer, next: register, flip, blue_flame, blocks }
    }

    /// The record's word.
    pub(crate) fn record(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Address of the register.
    pub(crate) fn register(&self) -> NonNull<u8> {
        self.register
    }

    /// Whether WQEs are copied to the register, which must then be this queue's alone.
    pub(crate) fn blue_flame(&self) -> bool {
        self.blue_flame
    }

    /// Whether a single WQE of `ds` 16-byte units goes to the card by BlueFlame. One of a single
    /// unit does not: the doorbell's eight bytes are half of it. (rdma-core, `post_send_db`.)
    #[inline(always)]
    pub(crate) fn takes(&self, ds: u32) -> bool {
        self.blue_flame && ds > 1 && ds as usize * 16 <= self.buffer
    }

    /// Whether [`takes`](Self::takes) accepts every WQE of one block but more than one unit.
    #[inline(always)]
    pub(crate) fn takes_block(&self) -> bool {
        self.blocks
    }

    /// Rings, in the order of the PRM's posting steps. The WQEs have been written to the ring.
    ///
    /// 1. fence: WQEs before the record
    /// 2. doorbell record: `counter`, the queue's producer counter after the WQEs
    /// 3. fence: record before the register
    /// 4. register: the WQE (`image`) in 64-byte blocks, or else `ctrl`, the first eight bytes of
    ///    the last WQE's ctrl segment as they lie in memory
    /// 5. flush of the register's stores
    /// 6. the other buffer is next
    ///
    /// # Safety
    /// `ctrl` belongs to the last WQE before `counter`; `image` is that WQE, its blocks lie in a
    /// ring that is readable, and [`takes`](Self::takes) accepts it. All that the WQEs name obeys
    /// the contract of the queue's commit point.
    #[inline(always)]
    pub(crate) unsafe fn ring(&mut self, counter: u16, ctrl: u64, image: Option<Image>) {
        self.post(counter, |to| match image {
            // SAFETY: the caller vouches for the image, and `takes` for its fitting the buffer.
            Some(image) => unsafe { copy_blocks(to, image) },
            // SAFETY: `new`'s caller vouches for the register.
            None => unsafe { store(to, ctrl) },
        });
    }

    /// As [`ring`](Self::ring), for a single WQE of one block, of which the words that are given
    /// are known, and goes by BlueFlame.
    ///
    /// # Safety
    /// As there: `block` is the WQE, in a ring, its words are as given, and
    /// [`takes_block`](Self::takes_block).
    #[inline(always)]
    pub(crate) unsafe fn ring_block(
        &mut self,
        counter: u16,
        words: [Option<u64>; WORDS],
        block: NonNull<u64>,
    ) {
        self.post(counter, |to| {
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
        });
    }

    /// The steps of [`ring`](Self::ring), of which `store` is the fourth.
    #[inline(always)]
    fn post(&mut self, counter: u16, store: impl FnOnce(NonNull<WO<u64>>)) {
        fence::wqe_then_record();
        self.record.store(u32::from(counter));
        fence::record_then_register();
        let to = self.next.as_ptr();
        store(self.next.cast());
        fence::flush_register();
        // SAFETY: one buffer's address becomes the other's, and neither is null.
        self.next = unsafe { NonNull::new_unchecked(to.map_addr(|addr| addr ^ self.flip)) };
    }
}

/// Words of a block.
const WORDS: usize = WQEBB_SIZE / 8;

/// Stores eight bytes, as they lie in memory, to a register: one store.
///
/// # Safety
/// `to` is a register of eight bytes, aligned to eight.
#[inline(always)]
unsafe fn store(to: NonNull<WO<u64>>, value: u64) {
    // SAFETY: the caller vouches for the register; `WO` is a volatile cell, so the reference
    // asserts nothing about it.
    unsafe { to.as_ref().write(value) }
}

/// Stores a WQE's blocks in ascending order, eight bytes at a time.
///
/// # Safety
/// The image's ring is readable, its blocks lie in it; `to` has room for them.
#[inline(always)]
unsafe fn copy_blocks(to: NonNull<WO<u64>>, image: Image) {
    debug_assert!(image.count * WQEBB_SIZE <= BF_BUFFER_SIZE);
    for block in 0..image.count {
        let mut from = image.first + block;
        // A WQE goes on at the ring's start, not behind its end.
        if from >= image.blocks {
            from -= image.blocks;
        }
        // SAFETY: `from` is a block of the ring.
        let from = unsafe { image.ring.add(from * WQEBB_SIZE) }.cast::<u64>();
        for word in 0..WORDS {
            // SAFETY: within the block, and within the buffer.
            unsafe { store(to.add(block * WORDS + word), from.add(word).read()) }
        }
    }
}

/// The doorbell that asks for an event of a CQ: a record's word and a register that all CQs of the
/// context share, each store to it naming its CQ.
#[derive(Debug)]
pub(crate) struct ArmDoorbell {
    record: Record,
    register: NonNull<WO<u64>>,
}

impl ArmDoorbell {
    /// The arm register of the UAR page at `page`.
    ///
    /// # Safety
    /// `page` is a UAR page that lives as long as the result is used.
    pub(crate) unsafe fn new(record: Record, page: NonNull<u8>) -> Self {
        // SAFETY: the register lies in the page.
        Self { record, register: unsafe { page.add(UAR_CQ_ARM) }.cast() }
    }

    /// The record's word.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Stores `word` to the record, then `word` and `cqn` to the register.
    pub(crate) fn arm(&mut self, word: u32, cqn: u32) {
        self.record.publish(word);
        fence::record_then_register();
        let value = u64::from(word) << 32 | u64::from(cqn);
        // SAFETY: `new`'s caller vouches for the register. An event on a CQ harms nobody.
        unsafe { store(self.register, value.to_be()) }
        fence::flush_register();
    }
}
