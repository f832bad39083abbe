//! Send queues that an engine posts to: a GPU, another processor, or a program in C.
//!
//! The program owns the objects, and lends the memory. The engine writes WQEs, rings, and reads the CQE
//! by `mlx5_engine.h` or by code of its own.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::{Cqe64, OPCODE_SHIFT, OWNER_MASK, opcode};
use mlx5_sys::doorbell::SEND_WORD;
use mlx5_sys::wqe::WQEBB_SIZE;

use super::source::claims::{CqKeep, QueueKeep, RegisterClaim};
use super::source::{CompletionOrder, CompletionSource, CompletionView, SendSource, SendView};
use crate::error::QueueError;
use crate::ib::INTERNAL;

/// The addresses of a send queue and its CQ: `struct mlx5_engine_handles` of `mlx5_engine.h`.
///
/// The addresses are those of this process. An engine that has others (a GPU) gets them from its own
/// driver, which maps the memory for it. The doorbell register is on a UAR page, which is memory of
/// the HCA: for a queue pair that was made by command with a `Uar`, `Uar::export_dmabuf` exports the page, and
/// `Uar::dmabuf_offset` is the offset of the register.
///
/// An engine stores to the ring, to the second word of the record, and to the register, in this
/// order, with the fences of `docs/ordering.md` between them. To a CQ that is not collapsed, it
/// stores the consumer index, after it has read CQEs. It stores to nothing else: the record's first
/// word is the receive queue's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct EngineHandles {
    /// Address of the send ring.
    pub ring: u64,
    /// Address of the doorbell record, two words: that of the receive queue, and that of this queue.
    pub record: u64,
    /// Address of the doorbell register.
    pub doorbell: u64,
    /// Address of the CQEs.
    pub cqes: u64,
    /// Address of the CQ's record, two words: the consumer index, and the arm word.
    pub cq_record: u64,
    /// Bytes of the ring, a power of two.
    pub ring_bytes: u32,
    /// Bytes from one half of the register to the other; 0 if it has one.
    pub doorbell_half: u32,
    /// Bytes of a CQE: 64 or 128.
    pub cqe_bytes: u32,
    /// CQEs, a power of two; 1 if the CQ is collapsed.
    pub cqe_count: u32,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Blocks that were posted since RESET, modulo 2^16.
    pub producer_index: u32,
    /// CQEs that were polled, modulo 2^24.
    pub consumer_index: u32,
    /// Zero.
    pub reserved: u32,
}

/// A send queue that an engine posts to, and the CQ that it reads, which has no other queue. Best is a
/// [collapsed](crate::verbs::CompletionQueueBuilder::collapsed) CQ, whose one CQE every completion
/// overwrites. `mlx5_engine.h` reads no compressed CQEs.
///
/// It keeps both objects alive, and keeps queues and readers of this crate away from them. Nothing is
/// polled or posted here. When it is dropped, the queue pair has to go through RESET before its send
/// queue is used again, and the CQ is not read again: no record tells what the engine has done.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::expert::EngineQueue;
/// use mlx5::verbs::{CompletionQueue, QueuePair};
///
/// let local = LocalPort::new(&context, 1, None)?;
/// let cq = CompletionQueue::by_command(&context, 1).collapsed().build()?;
/// let qp = QueuePair::by_command(&pd, &cq).build()?;
/// let data = local.connection_data_of(qp.number()); // its own peer
/// let qp = qp.init(&local.init())?.rtr(&local.rtr(&data, &data))?;
/// let qp = qp.rts(&local.rts(&data, &data))?;
/// let queue = EngineQueue::new(&qp, &cq)?;
/// // To the engine, with the keys of the memory that it may name:
/// let handles = queue.handles();
/// assert_eq!((handles.qpn, handles.cqe_bytes), (qp.number(), 64));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct EngineQueue {
    handles: EngineHandles,
    _queue: QueueKeep,
    _cq: CqKeep,
}

impl EngineQueue {
    /// Takes over the send queue of a queue pair in RTS, and the CQ that it completes on. The CQE of a
    /// collapsed CQ is cleared: its opcode is invalid until the first completion.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse); [`Error::Queue`](crate::Error::Queue): the
    /// queue pair is not in RTS, completes on another CQ, has no record or no order of completions,
    /// its register is another queue's, or the CQ has fewer CQEs than the queue pair has requests.
    /// Nothing is changed then.
    pub fn new<Q: SendSource, C: CompletionSource>(qp: &Q, cq: &C) -> crate::error::Result<Self> {
        let mut queue = QueueKeep::send(qp.owner(INTERNAL))?;
        let mut keep = CqKeep::new(cq.owner(INTERNAL))?;
        let (sends, completions) = (qp.sends()?, cq.completions()?);
        check(&sends, &completions)?;
        queue.register = Some(RegisterClaim::new(sends.register, true)?);
        let (count, size) = (completions.cqe_count, completions.cqe_size);
        if completions.collapsed {
            // SAFETY: the keep holds the owner, which keeps the CQ alive, whose first CQE has 64 or 128
            // bytes. The claim keeps other readers away.
            unsafe {
                let last = completions.buffer.add(size as usize - 1);
                last.write_volatile(opcode::INVALID << OPCODE_SHIFT | OWNER_MASK);
            }
        }
        // SAFETY: the records of a live QP and of a live CQ have two words.
        let [producer, consumer] = unsafe {
            [sends.record.add(SEND_WORD), completions.record].map(|word| word.read_volatile())
        };
        (queue.idle, keep.reusable) = (false, false);
        let handles = EngineHandles {
            ring: address(sends.buffer),
            record: address(sends.record),
            doorbell: address(sends.register),
            cqes: address(completions.buffer),
            cq_record: address(completions.record),
            ring_bytes: sends.blocks * WQEBB_SIZE as u32,
            doorbell_half: sends.half as u32,
            cqe_bytes: size,
            cqe_count: if completions.collapsed { 1 } else { count },
            qpn: sends.number,
            producer_index: u32::from_be(producer) & 0xffff,
            consumer_index: u32::from_be(consumer) & 0xff_ffff,
            reserved: 0,
        };
        Ok(Self { handles, _queue: queue, _cq: keep })
    }

    /// Returns where the queue lies. The addresses are valid as long as this value.
    pub fn handles(&self) -> EngineHandles {
        self.handles
    }

    /// Returns the CQE in a slot as it is now, for [decoding](crate::cqe) the cause of a failure. The
    /// HCA may overwrite it at any time: it is whole if no request is outstanding.
    ///
    /// # Panics
    /// If the CQ has fewer CQEs.
    pub fn cqe(&self, slot: u32) -> [u8; Cqe64::SIZE] {
        let EngineHandles { cqes, cqe_bytes, cqe_count, .. } = self.handles;
        assert!(slot < cqe_count, "the CQ has {cqe_count} CQEs");
        let start = cqes as usize + (slot as usize + 1) * cqe_bytes as usize - Cqe64::SIZE;
        let start = core::ptr::with_exposed_provenance::<[u64; 8]>(start);
        // SAFETY: an aligned CQE of the CQ, which is alive.
        let words: [u64; 8] = unsafe { start.read_volatile() };
        zerocopy::transmute!(words)
    }
}

/// Checks that an engine can use the queue with this CQ.
fn check(sends: &SendView, completions: &CompletionView) -> Result<(), QueueError> {
    if sends.cq != completions.object {
        return Err(QueueError::CqMismatch);
    }
    if sends.order == CompletionOrder::Any {
        return Err(QueueError::CollapsedStreams);
    }
    if sends.recordless {
        return Err(QueueError::Geometry("an engine needs the doorbell record"));
    }
    if completions.collapsed {
        return Ok(());
    }
    // Each request of a queue pair that fails has a CQE.
    if sends.max_wr > completions.cqe_count {
        let (cqes, needed) = (completions.cqe_count, sends.max_wr);
        return Err(QueueError::CqFull { cqes, free: cqes, needed });
    }
    Ok(())
}

/// The address of memory that code outside this program's view may access.
fn address<T>(of: NonNull<T>) -> u64 {
    of.as_ptr().expose_provenance() as u64
}

impl fmt::Debug for EngineQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineQueue").field("handles", &self.handles).finish_non_exhaustive()
    }
}
