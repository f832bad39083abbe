//! Raw access to a queue pair by command and its CQ: stores to ring, record and register, and the bytes
//! of CQEs.
//!
//! The project's tests of doorbell records (`evidence/tests/doorbell.rs`) compile this file too, so it
//! uses nothing of this package.

use std::sync::atomic::{Ordering, fence};

use mlx5::devx::{Firmware, Umem};
use mlx5::ib::Rc;
use mlx5::verbs::{MemoryRegion, QueuePair, Rts};

/// CQEs of the ring.
pub const CQES: usize = 128;
/// Blocks of the send queue.
pub const BLOCKS: u16 = 64;

/// Opcodes of WQEs.
pub const WRITE: u8 = 0x08;
pub const NOP: u8 = 0x00;

/// A requester, the ring of its CQ, and memory that its peer lets it write.
pub struct Ring {
    pub requester: QueuePair<Rc, Rts, Firmware>,
    pub cqes: Umem,
    pub memory: MemoryRegion,
    /// WQEs in the ring so far: no more than it has blocks may be outstanding.
    pub posted: u16,
}

impl Ring {
    /// Writes a WQE to the ring: a WRITE of the memory to itself, or a NOP. Its ctrl segment has an index
    /// of its own.
    pub fn wqe(&mut self, opcode: u8, named: u16, rkey: u32) {
        let mut wqe = [0; 64];
        let ds = if opcode == WRITE { 3 } else { 1 };
        let first = u32::from(named) << 8 | u32::from(opcode);
        wqe[..4].copy_from_slice(&first.to_be_bytes());
        wqe[4..8].copy_from_slice(&(self.requester.number() << 8 | ds).to_be_bytes());
        // A CQE in any case.
        wqe[11] = 8;
        let address = self.memory.remote_address().to_be_bytes();
        wqe[16..24].copy_from_slice(&address);
        wqe[24..28].copy_from_slice(&rkey.to_be_bytes());
        wqe[32..36].copy_from_slice(&64u32.to_be_bytes());
        wqe[36..40].copy_from_slice(&self.memory.lkey().to_be_bytes());
        wqe[40..48].copy_from_slice(&address);
        let (rings, sends) = self.requester.rings();
        let slot = usize::from(self.posted % BLOCKS) * 64;
        // SAFETY: a block of the send ring, which lives as long as the queue pair and which only this
        // code writes. The device reads bytes.
        unsafe { rings.add(sends + slot).cast::<[u8; 64]>().write_volatile(wqe) };
        self.posted += 1;
    }

    /// Writes signaled WRITEs to the ring.
    pub fn write(&mut self, count: u16) {
        (0..count).for_each(|_| self.wqe(WRITE, self.posted, self.memory.rkey()));
    }

    /// Writes signaled NOPs to the ring.
    pub fn nops(&mut self, count: u16) {
        (0..count).for_each(|_| self.wqe(NOP, self.posted, 0));
    }

    /// Stores the send counter of the doorbell record.
    pub fn record(&self, counter: u16) {
        fence(Ordering::SeqCst);
        // SAFETY: the second word of a doorbell record of eight bytes, aligned to eight, which lives
        // as long as the queue pair.
        unsafe {
            let word = self.requester.record().cast::<u32>().add(1);
            word.write_volatile(u32::from(counter).to_be());
        }
        fence(Ordering::SeqCst);
    }

    /// Stores to the doorbell register, as NVSHMEM does: the counter behind the last WQE.
    pub fn ring(&self, counter: u16) {
        let value = u64::from(counter) << 40 | u64::from(self.requester.number()) << 8;
        let register = self.requester.uar().register().cast::<u64>();
        fence(Ordering::SeqCst);
        // SAFETY: a register of the queue pair's UAR, which lives as long as the queue pair.
        unsafe { register.write_volatile(value.to_be()) };
    }

    /// Returns the CQEs so far: of the send queue, in order.
    pub fn found(&self) -> Vec<[u8; 64]> {
        let Some(first) = self.cqes.start() else { return Vec::new() };
        let cqe = |slot: usize| {
            // SAFETY: a slot of the CQ's ring. The device may write meanwhile: the bytes have any
            // value, and are checked below.
            unsafe { first.add(slot * 64).cast::<[u8; 64]>().read_volatile() }
        };
        // In the first lap the device writes 0 as the owner; before, the opcode is none.
        let is_there = |cqe: &[u8; 64]| cqe[63] >> 4 != 0xf && cqe[63] & 1 == 0;
        let found: Vec<_> = (0..CQES).map(cqe).take_while(is_there).collect();
        fence(Ordering::Acquire);
        found
    }

    /// Counts the CQEs of requests that succeeded.
    pub fn successes(&self) -> usize {
        self.found().iter().filter(|cqe| cqe[63] >> 4 == 0).count()
    }
}
