//! The floor: hand-written loops of the required stores, with all constants in registers. No
//! checks, no ids, no errors: the HCA knows what is outstanding. But the WQEs, their order, their
//! places and their fences are the same; the model executes them.

use std::sync::atomic::{Ordering, compiler_fence};

use mlx5_sys::wqe::{CE_ALWAYS, INLINE_SEG, opcode};

use super::inline::{Known, known};
use super::prepared::MOST;
use crate::side::{LENGTH, LIST, Line, Row, Side, forget};
use rig::verbs::{CqMemory, QpMemory};

pub struct Floor {
    send: QpMemory,
    completions: CqMemory,
    head: u32,
    /// Offset of the register's buffer that is next.
    half: usize,
    received: u32,
    consumer: u32,
    message: [u8; MOST + 8],
    line: Line,
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn store_fence() {
    // SAFETY: a fence.
    unsafe { core::arch::x86_64::_mm_sfence() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn store_fence() {
    // SAFETY: a fence.
    unsafe { core::arch::asm!("dsb st", options(nostack, preserves_flags)) }
}

/// Stores `value` at word `at`.
#[inline(always)]
pub unsafe fn put(to: *mut u64, at: usize, value: u64) {
    // SAFETY: the caller upholds the conditions of this function.
    unsafe { to.add(at).write_volatile(value) }
}

impl Floor {
    pub fn new() -> Self {
        let line = Line::new();
        // SAFETY: QP and CQ live as long as the floor.
        let (send, completions) =
            unsafe { (QpMemory::new(line.qp.as_raw()), CqMemory::new(line.cq.as_raw())) };
        assert_eq!((send.dv.sq.stride, send.dv.rq.stride, completions.dv.cqe_size), (64, 16, 64));
        Self {
            send,
            completions,
            head: 0,
            half: 0,
            received: 0,
            consumer: 0,
            message: [7; MOST + 8],
            line,
        }
    }

    /// Second and first words of raddr and ctrl segments, and the ctrl segment's lower half.
    fn fixed(&self, ds: u32) -> ([u64; 3], u64) {
        let remote = self.line.remote();
        let flags = u64::from(CE_ALWAYS) << 32;
        let words = [flags.to_be(), remote.addr.to_be(), (u64::from(remote.rkey) << 32).to_be()];
        (words, u64::from(self.line.qp.number() << 8 | ds))
    }

    fn data(&self) -> [u64; 2] {
        let sge = self.line.sge();
        [(u64::from(LENGTH) << 32 | u64::from(sge.lkey)).to_be(), sge.addr.to_be()]
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let ([flags, address, key], low) = self.fixed(3);
        let data = self.data();
        let dv = self.send.dv;
        let (ring, mask) = (dv.sq.buf.cast::<u8>(), dv.sq.wqe_cnt - 1);
        let (register, size) = (dv.bf.reg.cast::<u8>(), dv.bf.size as usize);
        let (mut head, mut half) = (self.head, self.half);
        for _ in 0..calls {
            let index = u64::from(head as u16) << 8 | u64::from(opcode::RDMA_WRITE);
            let ctrl = (index << 32 | low).to_be();
            // SAFETY: a block of the ring, the record, and a half of the register, which are this
            // queue pair's; no other code uses them.
            unsafe {
                let wqe = ring.add((head & mask) as usize * 64).cast::<u64>();
                put(wqe, 0, ctrl);
                put(wqe, 1, flags);
                put(wqe, 2, address);
                put(wqe, 3, key);
                put(wqe, 4, data[0]);
                put(wqe, 5, data[1]);
                head = head.wrapping_add(1);
                compiler_fence(Ordering::SeqCst);
                dv.dbrec.add(1).write_volatile(u32::from(head as u16).to_be());
                store_fence();
                let to = register.add(half).cast::<u64>();
                put(to, 0, ctrl);
                put(to, 1, flags);
                put(to, 2, address);
                put(to, 3, key);
                put(to, 4, data[0]);
                put(to, 5, data[1]);
                // What is in the ring behind the data segment goes, too.
                put(to, 6, wqe.add(6).read());
                put(to, 7, wqe.add(7).read());
                store_fence();
                half ^= size;
            }
        }
        (self.head, self.half) = (head, half);
        calls
    }

    /// Posts payloads of `BYTES` bytes in the WQE: a message in memory, but for its first eight
    /// bytes, which the loop knows. What follows the payload in the last word is the message's, too.
    #[inline(never)]
    fn inline<const BYTES: usize>(&mut self, calls: usize) -> usize {
        let segments = (BYTES + 4).div_ceil(16) + 2;
        let (words, blocks) = ((BYTES + 4).div_ceil(8) + 4, segments.div_ceil(4));
        let ([flags, address, key], low) = self.fixed(segments as u32);
        let mut message = self.message;
        let dv = self.send.dv;
        let (ring, mask) = (dv.sq.buf.cast::<u8>(), dv.sq.wqe_cnt - 1);
        let (register, size) = (dv.bf.reg.cast::<u8>(), dv.bf.size as usize);
        let header = u64::from((INLINE_SEG | BYTES as u32).to_be());
        let (mut head, mut half) = (self.head, self.half);
        for id in 0..calls as u64 {
            forget(&mut message);
            let index = u64::from(head as u16) << 8 | u64::from(opcode::RDMA_WRITE);
            let ctrl = (index << 32 | low).to_be();
            let message = message.as_ptr();
            let word = |at: usize| match at {
                0 => ctrl,
                1 => flags,
                2 => address,
                3 => key,
                4 => header | id << 32,
                5 if BYTES <= 8 => id >> 32,
                // SAFETY: the message has as many bytes, and eight more.
                5 => id >> 32 | u64::from(unsafe { message.add(8).cast::<u32>().read() }) << 32,
                // SAFETY: the message has as many bytes, and eight more.
                _ => unsafe { message.add(at * 8 - 36).cast::<u64>().read_unaligned() },
            };
            // SAFETY: blocks of the ring, the record, and a half of the register, which are this
            // queue pair's; no other code uses them.
            unsafe {
                for block in 0..blocks {
                    let slot = head.wrapping_add(block as u32) & mask;
                    let to = ring.add(slot as usize * 64).cast::<u64>();
                    for at in (0..8).filter(|at| block * 8 + at < words) {
                        put(to, at, word(block * 8 + at));
                    }
                }
                head = head.wrapping_add(blocks as u32);
                compiler_fence(Ordering::SeqCst);
                dv.dbrec.add(1).write_volatile(u32::from(head as u16).to_be());
                store_fence();
                let to = register.add(half).cast::<u64>();
                // In blocks, as above, so that the compiler unrolls both loops.
                for block in 0..blocks {
                    for at in block * 8..block * 8 + 8 {
                        put(to, at, if at < words { word(at) } else { 0 });
                    }
                }
                store_fence();
                half ^= size;
            }
        }
        (self.head, self.half) = (head, half);
        calls
    }

    /// Posts to a register that BlueFlame is not used on.
    #[inline(never)]
    fn doorbells<const INLINE: bool>(&mut self, calls: usize) -> usize {
        let ([flags, address, key], low) = self.fixed(3);
        let data = self.data();
        let dv = self.send.dv;
        let (ring, mask) = (dv.sq.buf.cast::<u8>(), dv.sq.wqe_cnt - 1);
        let header = (INLINE_SEG | 8).to_be();
        let mut head = self.head;
        for id in 0..calls as u64 {
            let index = u64::from(head as u16) << 8 | u64::from(opcode::RDMA_WRITE);
            let ctrl = (index << 32 | low).to_be();
            // SAFETY: a block of the ring, the record, and a half of the register, which are this
            // queue pair's; no other code uses them.
            unsafe {
                let wqe = ring.add((head & mask) as usize * 64).cast::<u64>();
                put(wqe, 0, ctrl);
                put(wqe, 1, flags);
                put(wqe, 2, address);
                put(wqe, 3, key);
                if INLINE {
                    put(wqe, 4, u64::from(header) | id << 32);
                    wqe.add(5).cast::<u32>().write_volatile((id >> 32) as u32);
                } else {
                    put(wqe, 4, data[0]);
                    put(wqe, 5, data[1]);
                }
                head = head.wrapping_add(1);
                compiler_fence(Ordering::SeqCst);
                dv.dbrec.add(1).write_volatile(u32::from(head as u16).to_be());
                store_fence();
                put(dv.bf.reg.cast(), 0, ctrl);
                store_fence();
            }
        }
        self.head = head;
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let ([flags, address, key], low) = self.fixed(3);
        let data = self.data();
        let dv = self.send.dv;
        let (ring, mask) = (dv.sq.buf.cast::<u8>(), dv.sq.wqe_cnt - 1);
        for _ in 0..calls {
            let mut ctrl = 0;
            for _ in 0..LIST {
                let index = u64::from(self.head as u16) << 8 | u64::from(opcode::RDMA_WRITE);
                ctrl = (index << 32 | low).to_be();
                // SAFETY: a block of the ring, the record, and a half of the register, which are
                // this queue pair's; no other code uses them.
                unsafe {
                    let wqe = ring.add((self.head & mask) as usize * 64).cast::<u64>();
                    put(wqe, 0, ctrl);
                    put(wqe, 1, flags);
                    put(wqe, 2, address);
                    put(wqe, 3, key);
                    put(wqe, 4, data[0]);
                    put(wqe, 5, data[1]);
                }
                self.head = self.head.wrapping_add(1);
            }
            // SAFETY: a block of the ring, the record, and a half of the register, which are this
            // queue pair's; no other code uses them.
            unsafe {
                dv.dbrec.add(1).write_volatile(u32::from(self.head as u16).to_be());
                store_fence();
                put(dv.bf.reg.cast::<u8>().add(self.half).cast(), 0, ctrl);
                store_fence();
            }
            self.half ^= dv.bf.size as usize;
        }
        calls * LIST
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let dv = self.completions.dv;
        let (ring, count) = (dv.buf.cast::<u8>(), dv.cqe_cnt);
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: a CQE of the ring, and the record, which are this CQ's.
            unsafe {
                let cqe = ring.add((self.consumer & (count - 1)) as usize * 64);
                let last = cqe.add(63).read_volatile();
                let lap = self.consumer & count != 0;
                // A requester's success has opcode 0; a slot never written has 15.
                if last >> 4 == 0 && last & 1 == u8::from(lap) {
                    self.consumer = self.consumer.wrapping_add(1);
                    dv.dbrec.write_volatile((self.consumer & 0xff_ffff).to_be());
                    found += 1;
                }
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        let data = self.data();
        let dv = self.send.dv;
        let (ring, mask) = (dv.rq.buf.cast::<u8>(), dv.rq.wqe_cnt - 1);
        for _ in 0..calls {
            // SAFETY: a CQE of the ring, and the record, which are this CQ's.
            unsafe {
                let wqe = ring.add((self.received & mask) as usize * 16).cast::<u64>();
                put(wqe, 0, data[0]);
                put(wqe, 1, data[1]);
                self.received = self.received.wrapping_add(1);
                dv.dbrec.write_volatile(u32::from(self.received as u16).to_be());
            }
        }
        calls
    }
}

impl Side for Floor {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Inline if self.send.dv.bf.size == 0 => self.doorbells::<true>(calls),
            Row::Pointer if self.send.dv.bf.size == 0 => self.doorbells::<false>(calls),
            Row::Inline => self.inline::<8>(calls),
            Row::Pointer => self.pointer(calls),
            Row::List => self.list(calls),
            Row::Poll | Row::Empty => self.poll(calls),
            Row::Receive => self.receive(calls),
            _ => return known(self, row, calls),
        })
    }
}

impl Known for Floor {
    fn post<const BYTES: usize>(&mut self, calls: usize) -> usize {
        self.inline::<BYTES>(calls)
    }
}
