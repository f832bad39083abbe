//! Tests of the rings over plain memory: what is written is compared with an oracle that lays WQEs
//! out by itself, what is read is written by the test.

mod account;
mod ahead;
mod collapsed;
mod compressed;
#[cfg(feature = "flight-recorder")]
mod flight;
mod give_back;
mod long;
mod oldest;
mod poll;
mod post;
mod prepared;
mod publish;
mod receive;
mod shared;
mod single;
mod srq;
mod streams;
mod striding;

use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mlx5_sys::cqe::Cqe64;
use mlx5_sys::verbs::{ibv_qp, ibv_qp_state};
use zerocopy::IntoBytes;

use crate::cqe::QueueKind;
use crate::doorbell::{ArmDoorbell, Record, SendDoorbell};
use crate::error::QueueError;
use crate::ib::{Counter, Rc, Transport};
use crate::ring::PostError;
use crate::ring::completion::reader::{CqParts, CqReader};
use crate::ring::receive::ReceiveQueue;
use crate::ring::send::{SendParts, SendQueue};
use crate::ring::source::WorkQueue;
use crate::ring::source::{
    CompletionOrder, CqObject, ObjectId, QueueOwner, ReceiveIndex, ReceiveView,
};
use crate::wqe::Limits;

const QPN: u32 = 0xab_cdef;
const CQN: u32 = 0x77;

/// Memory that both the test and the ring reach by raw pointers, aligned to 64.
struct Memory {
    words: NonNull<u64>,
    bytes: usize,
}

impl Memory {
    fn new(bytes: usize, fill: u8) -> Self {
        let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
        // SAFETY: the size is not 0.
        let words = NonNull::new(unsafe { std::alloc::alloc(layout) }).unwrap();
        // SAFETY: just allocated.
        unsafe { words.write_bytes(fill, bytes) };
        Self { words: words.cast(), bytes }
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes);
        // SAFETY: within the allocation.
        unsafe { self.words.cast::<u8>().add(offset) }
    }

    fn read(&self) -> Vec<u8> {
        self.read_at(0, self.bytes)
    }

    fn read_at(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes);
        let mut copy = vec![0; bytes];
        // SAFETY: both are `bytes` long, of different allocations, and nothing else writes
        // meanwhile.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(self.start().add(offset), bytes) };
        copy
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.bytes);
        // SAFETY: within the allocation, which `bytes` is no part of, and nothing else reads or
        // writes meanwhile.
        unsafe { self.start().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    fn start(&self) -> *mut u8 {
        self.words.cast().as_ptr()
    }

    fn be32(&self, offset: usize) -> u32 {
        assert!(offset + 4 <= self.bytes);
        // SAFETY: within the allocation, and aligned.
        u32::from_be(unsafe { self.at(offset).cast::<u32>().read_volatile() })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let layout = std::alloc::Layout::from_size_align(self.bytes, 4096).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { std::alloc::dealloc(self.words.cast().as_ptr(), layout) }
    }
}

/// Stands for a queue pair that there is none of.
struct Nobody;

impl QueueOwner for Nobody {
    fn id(&self) -> ObjectId {
        ObjectId::at(self)
    }

    fn claim(&self, _: WorkQueue) -> crate::error::Result<()> {
        Ok(())
    }

    fn release(&self, _: WorkQueue, _: bool) {}

    fn destroyed(&self) -> Arc<AtomicBool> {
        Arc::default()
    }

    fn state(&self) -> Result<u32, QueueError> {
        Ok(ibv_qp_state::IBV_QPS_RTS)
    }

    fn resume(&self) -> crate::error::Result<()> {
        Ok(())
    }

    fn as_raw(&self) -> Option<NonNull<ibv_qp>> {
        None
    }
}

/// A CQ with its reader, of a number of its own.
struct Cq {
    /// Before what it reads and writes, which is dropped later.
    reader: CqReader,
    buffer: Memory,
    record: Memory,
    page: Memory,
    cqe_size: usize,
    /// CQEs written by the test.
    produced: u32,
    /// Whether it is one of the enhanced layout.
    enhanced: bool,
}

impl Cq {
    fn new(cqes: u32, cqe_size: usize, start: u32) -> Self {
        Self::of(cqes, cqe_size, start, false)
    }

    fn of(cqes: u32, cqe_size: usize, start: u32, enhanced: bool) -> Self {
        static CQS: AtomicUsize = AtomicUsize::new(1);
        let object = core::ptr::without_provenance_mut(CQS.fetch_add(1, Ordering::Relaxed));
        Self::made(CqObject::of(object), cqes, cqe_size, start, enhanced)
    }

    /// One that lies at that address.
    fn at(object: CqObject, cqes: u32, cqe_size: usize) -> Self {
        Self::made(object, cqes, cqe_size, 0, false)
    }

    fn made(object: CqObject, cqes: u32, cqe_size: usize, start: u32, enhanced: bool) -> Self {
        let buffer = Memory::new(cqes as usize * cqe_size, 0xf0);
        // A page of its own, so that a test can protect it.
        let record = Memory::new(4096, 0);
        let page = Memory::new(4096, 0);
        record.write(0, &(start & 0xff_ffff).to_be_bytes());
        // Slots that the HCA has not come to in this lap still have the last lap's owner bit.
        for slot in 0..cqes {
            let behind = slot < start % cqes;
            let lap = start / cqes % 2 == 1;
            let owner = if behind { lap } else { !lap };
            let at = slot as usize * cqe_size + cqe_size - 1;
            buffer.write(at, &[u8::from(owner)]);
            if enhanced {
                // The number of the lap before.
                let before = (start / cqes).wrapping_sub(u32::from(!behind)) as u8;
                buffer.write(at - 1, &[before]);
            }
        }
        // SAFETY: the memory lives as long as the reader, in the same structure.
        let reader = unsafe {
            let parts = CqParts {
                buffer: buffer.at(0),
                cqe_count: cqes,
                cqe_size: cqe_size as u32,
                record: Record::new(record.at(0).cast(), 0),
                arm: ArmDoorbell::new(Record::new(record.at(0).cast(), 1), page.at(0)),
                cqn: CQN,
                compression: Default::default(),
                enhanced,
                object,
            };
            CqReader::from_parts(parts).unwrap()
        };
        Self { buffer, record, page, cqe_size, produced: start, reader, enhanced }
    }

    /// Writes the next CQE, with its owner bit; `before` goes to the data half of a wide one.
    fn produce(&mut self, mut cqe: Cqe64, before: &[u8]) {
        let cqes = self.reader.capacity();
        cqe.op_own = cqe.op_own & !1 | (self.produced / cqes % 2) as u8;
        if self.enhanced {
            cqe.signature = (self.produced / cqes) as u8;
        }
        let at = (self.produced % cqes) as usize * self.cqe_size;
        self.buffer.write(at + self.cqe_size - 64, cqe.as_bytes());
        self.buffer.write(at, before);
        self.produced = self.produced.wrapping_add(1);
    }
}

/// A send queue over plain memory.
struct Sq<T: Transport = Rc> {
    /// Before what it reads and writes, which is dropped later.
    queue: SendQueue<T>,
    buffer: Memory,
    record: Memory,
    page: Memory,
}

/// Size of the half of a BlueFlame register that a test's queue uses, unless it uses 0.
const HALF: usize = 256;
const LIMITS: Limits = Limits { max_sge: 8, max_inline: 200, max_packets: 0 };

impl Sq {
    fn new(cq: &mut Cq, blocks: u32, start: u32, half: usize) -> Self {
        Self::of(cq, blocks, start, half)
    }
}

impl<T: Transport> Sq<T> {
    fn of(cq: &mut Cq, blocks: u32, start: u32, half: usize) -> Self {
        Self::of_reader(&mut cq.reader, blocks, start, half)
    }

    fn of_reader(reader: &mut CqReader, blocks: u32, start: u32, half: usize) -> Self {
        Self::ordered(reader, blocks, start, half, CompletionOrder::Posting)
    }

    fn ordered(
        reader: &mut CqReader,
        blocks: u32,
        start: u32,
        half: usize,
        order: CompletionOrder,
    ) -> Self {
        let buffer = Memory::new(blocks as usize * 64, 0xee);
        let record = Memory::new(8, 0);
        let page = Memory::new(4096, 0);
        record.write(4, &(start & 0xffff).to_be_bytes());
        // SAFETY: the memory lives as long as the queue, in the same structure; `restart` is not
        // called.
        let queue = unsafe {
            let record = Record::new(record.at(0).cast(), 1);
            let parts = SendParts {
                buffer: buffer.at(0),
                blocks,
                doorbell: SendDoorbell::new(record, page.at(0x800), half, true),
                qpn: QPN,
                limits: LIMITS,
                signal_all: false,
                order,
                start: Counter::new(start),
                cq_slots: reader.reserve(QPN, QueueKind::Send, (u32::MAX, u32::MAX), 0).unwrap(),
                cq: reader.id(),
                owner: Arc::new(Nobody),
            };
            SendQueue::from_parts(parts).unwrap()
        };
        Self { buffer, record, page, queue }
    }
}

/// Returns what the post of a WQE at `head` stored to the register, and clears the page. Bytes
/// behind the WQE's end, which the HCA does not read, are returned as zeros.
fn take_register(buffer: &Memory, page: &Memory, head: u32, half: usize) -> Vec<u8> {
    let slot = head as usize % (buffer.bytes / 64);
    let ds = buffer.read_at(slot * 64 + 7, 1)[0] & 0x3f;
    let mut register = page.read();
    page.write(0, &vec![0; page.bytes]);
    for half in [0, half] {
        let end = 0x800 + half + usize::from(ds) * 16;
        register[end..end.next_multiple_of(64)].fill(0);
    }
    register
}

/// A receive queue over plain memory.
struct Rq {
    buffer: Memory,
    record: Memory,
    queue: ReceiveQueue,
}

impl Rq {
    fn new(cq: &mut Cq, entries: u32, stride: u32, start: u32) -> Self {
        let buffer = Memory::new((entries * stride) as usize, 0xee);
        let record = Memory::new(8, 0);
        record.write(0, &(start & 0xffff).to_be_bytes());
        // SAFETY: the memory lives as long as the queue, in the same structure.
        let queue = unsafe {
            let view = ReceiveView {
                buffer: buffer.at(0),
                entries,
                stride,
                record: record.at(0).cast(),
                number: QPN,
                cq: CqObject::at(cq),
                index: ReceiveIndex::Library,
                partner: 0,
            };
            let wanted = (u32::MAX, entries);
            let cq_slots = cq.reader.reserve(QPN, QueueKind::Receive, wanted, 0).unwrap();
            ReceiveQueue::from_view(view, Arc::new(Nobody), &cq.reader, cq_slots).unwrap()
        };
        Self { buffer, record, queue }
    }
}

/// A CQE of the queue pair.
fn cqe(kind: u8, code: u8, counter: u32) -> Cqe64 {
    Cqe64 {
        sop_drop_qpn: (u32::from(code) << 24 | QPN).into(),
        wqe_counter: (counter as u16).into(),
        op_own: kind << 4,
        ..Cqe64::default()
    }
}

/// The state of a send queue by which it accepts or refuses a request, as a test counts it.
struct Account {
    blocks: u32,
    used: u32,
    slots: u32,
    /// Outstanding requests, and how many of them are signaled.
    requests: u32,
    signals: u32,
}

impl Account {
    /// Returns what a post of a request of so many blocks says.
    fn verdict(&self, needed: u32, signaled: bool) -> Result<(), PostError> {
        let (free, slots) = (self.blocks - self.used, self.slots - self.requests);
        let kept = u32::from(self.signals == 0 && !signaled);
        if needed + kept <= free && kept < slots {
            return Ok(());
        }
        Err(match self.signals {
            0 => PostError::NothingSignaled { outstanding: self.used },
            _ if needed > free => PostError::QueueFull { free },
            _ => PostError::CqFull { slots: self.slots },
        })
    }
}
