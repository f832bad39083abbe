//! Collapsed CQs: every CQE overwrites the one before.
//!
//! For one send queue this suffices to know which requests are done: its last CQE names the last
//! WQE that completed, and the WQEs before it are done, too. The ring is a single slot. The
//! consumer index is never published, and no CQE has to be read in time. (GPUNetIO polls this way,
//! `doca_priv_gpu_dev_verbs_poll_cq_collapsed_at`; UCX creates CQs of one entry this way.)
//!
//! The reader polls the slot's last word. It has counter, opcode and queue, and changes with every
//! CQE. When it has changed, the CQE is copied to the reader's own ring, which has consecutive
//! laps. An ordinary [`CqReader`] reads that ring, so completions are decoded in one place.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::{Cqe64, OPCODE_SHIFT, OWNER_MASK, opcode};

use crate::cqe::{Completion, QueueKind};
use crate::doorbell::{ArmDoorbell, Record, fence};
use crate::error::QueueError;
use crate::ib::{INTERNAL, Transport};
use crate::ring::completion::reader::CqParts;
use crate::ring::completion::slots::CqSlots;
use crate::ring::source::claims::CqKeep;
use crate::ring::source::{CompletionOrder, CompletionSource, SendSource};
use crate::ring::{CqReader, PollError, SendConfig, SendQueue};

/// Words of a CQE.
const WORDS: usize = Cqe64::SIZE / 8;
/// CQEs of the reader's own ring.
const OWN: usize = 2;
/// Signaled requests that may be outstanding: all that a send queue can have. Nothing overruns.
const MOST: u32 = 1 << 15;

/// Polls a CQ that was created [collapsed](crate::verbs::CompletionQueueBuilder::collapsed), for one
/// send queue.
///
/// A poll that finds no CQE costs a load. If several requests completed since the last poll, it
/// returns the last, as if those before it had been unsignaled. So if a request fails, the CQE of a
/// later one, which was flushed because of it, may overwrite its error. Then it is not known which
/// of them failed, and why. Do not rely on any request that was not reported before a
/// [`Failed`](Completion::Failed).
///
/// Events cannot be requested reliably: a reader could miss completions. Poll it.
///
/// ```
/// # use mlx5_model as _;
/// # let context = mlx5::verbs::Context::open_first()?;
/// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
/// use mlx5::connect::LocalPort;
/// use mlx5::expert::CollapsedCqReader;
/// use mlx5::ring::SendConfig;
/// use mlx5::verbs::{CompletionQueue, QueuePair};
///
/// let local = LocalPort::new(&context, 1, None)?;
/// // One CQE, which every completion overwrites.
/// let cq = CompletionQueue::by_command(&context, 1).collapsed().build()?;
/// let qp = QueuePair::by_command(&pd, &cq).build()?;
/// let data = local.connection_data_of(qp.number()); // its own peer
/// let qp = qp.init(&local.init())?.rtr(&local.rtr(&data, &data))?;
/// let qp = qp.rts(&local.rts(&data, &data))?;
/// let mut reader = CollapsedCqReader::new(&cq)?;
/// let mut sends = reader.send_queue(&qp, SendConfig::default())?;
/// assert!(reader.poll(&mut sends)?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CollapsedCqReader {
    pub(in crate::ring) reader: CqReader,
    /// The memory that the reader reads; freed after the reader is dropped.
    own: OwnMemory,
    /// The CQ's 64-byte CQE.
    slot: NonNull<u64>,
    /// The slot's last word, as seen last.
    seen: u64,
    /// Number of CQEs that were copied.
    copied: u32,
}

/// A ring, a record, and a page for a doorbell that is not rung.
#[repr(C, align(64))]
struct Own {
    ring: [[u64; WORDS]; OWN],
    record: [u32; 2],
    page: [u64; 8],
}

/// Owns an [`Own`] on the heap. A pointer and not a `Box`: the reader keeps pointers into the
/// memory, which a `Box`, and every reference to what it holds, would make invalid.
struct OwnMemory(NonNull<Own>);

impl OwnMemory {
    fn new(fill: u64) -> Self {
        let own = Own { ring: [[fill; WORDS]; OWN], record: [0; 2], page: [0; 8] };
        Self(NonNull::from(Box::leak(Box::new(own))))
    }

    /// The first word of a CQE of the ring.
    fn entry(&self, at: usize) -> NonNull<u64> {
        assert!(at < OWN);
        // SAFETY: the memory is allocated until `self` is dropped, and the CQE is one of the
        // ring's.
        unsafe { NonNull::new_unchecked((&raw mut (*self.0.as_ptr()).ring[at]).cast()) }
    }

    /// The two words of the record.
    fn record(&self) -> NonNull<u32> {
        // SAFETY: the memory is allocated until `self` is dropped, so the field's address is not
        // null.
        unsafe { NonNull::new_unchecked((&raw mut (*self.0.as_ptr()).record).cast()) }
    }

    /// The page of the doorbell.
    fn page(&self) -> NonNull<u8> {
        // SAFETY: the memory is allocated until `self` is dropped, so the field's address is not
        // null.
        unsafe { NonNull::new_unchecked((&raw mut (*self.0.as_ptr()).page).cast()) }
    }
}

impl Drop for OwnMemory {
    fn drop(&mut self) {
        // SAFETY: `new` made it from a box, and nothing else frees it. Its user, the reader, is a
        // field before it and dropped by now.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: the reader owns the CQ's consumer side by its claim, so only the HCA and this thread
// access the slot. The HCA accepts reads from any thread. Only this value reaches the memory behind
// `own`.
unsafe impl Send for CollapsedCqReader {}

impl CollapsedCqReader {
    /// Takes over a collapsed CQ, and keeps it alive.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse); [`Error::Queue`](crate::Error::Queue) for a
    /// CQ that is not collapsed.
    pub fn new<C: CompletionSource>(cq: &C) -> crate::error::Result<Self> {
        let keep = CqKeep::new(cq.owner(INTERNAL))?;
        let view = cq.completions()?;
        if !view.collapsed {
            return Err(QueueError::NotCollapsed.into());
        }
        // A value that is no CQE of any lap.
        let none = u64::from_ne_bytes([opcode::INVALID << OPCODE_SHIFT | OWNER_MASK; 8]);
        let own = OwnMemory::new(none);
        let record = own.record();
        // SAFETY: `own` is allocated, and used by the reader alone, until the reader is dropped: it
        // is a field behind it. It has a ring of `OWN` CQEs of 64 bytes, a record of two words, and
        // a page that ends behind its arm register, the only word of it that a reader stores to.
        let mut reader = unsafe {
            CqReader::from_parts(CqParts {
                buffer: own.entry(0).cast(),
                cqe_count: OWN as u32,
                cqe_size: Cqe64::SIZE as u32,
                record: Record::new(record, 0),
                arm: ArmDoorbell::new(Record::new(record, 1), own.page()),
                cqn: view.cqn,
                object: view.object,
                compression: Default::default(),
                enhanced: false,
            })?
        };
        reader.adopt_collapsed(keep, CqSlots::new(MOST));
        // SAFETY: the CQ has at least one CQE of `cqe_size` bytes, 64 or 128; of 128, this is the
        // second half.
        let slot = unsafe { view.buffer.add(view.cqe_size as usize - Cqe64::SIZE) };
        let mut collapsed = Self { reader, own, slot: slot.cast(), seen: none, copied: 0 };
        collapsed.clear();
        Ok(collapsed)
    }

    /// Takes over the send queue of a queue pair that completes here, see [`SendQueue::new`]. Only
    /// one may exist at a time.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse), [`Error::Queue`](crate::Error::Queue): the
    /// queue pair is not in RTS, completes on another CQ, or shares its doorbell register;
    /// [`QueueError::CollapsedTaken`] while there is another send queue;
    /// [`QueueError::CollapsedStreams`].
    pub fn send_queue<Q: SendSource>(
        &mut self,
        qp: &Q,
        config: SendConfig,
    ) -> crate::error::Result<SendQueue<Q::Transport>> {
        self.reader.collect();
        let view = qp.sends()?;
        if view.order == CompletionOrder::Any {
            return Err(QueueError::CollapsedStreams.into());
        }
        let again = self.reader.slots.has_dropped(view.number, QueueKind::Send);
        if !again && !self.reader.slots.is_unreserved() {
            return Err(QueueError::CollapsedTaken.into());
        }
        let queue = SendQueue::new(qp, &mut self.reader, config)?;
        self.clear();
        Ok(queue)
    }

    /// Restarts the send queue after its queue pair went through RESET, see [`SendQueue::restart`].
    ///
    /// # Errors
    /// [`QueueError::WrongState`] if the QP is not in RTS, [`QueueError::NotReset`] if it was not
    /// reset since the last post, [`QueueError::CqMismatch`]. Nothing is changed then.
    ///
    /// # Safety
    /// The QP's send WQEs are those of this queue only, and none was posted since the QP was reset.
    pub unsafe fn restart<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
    ) -> Result<(), QueueError> {
        // SAFETY: the caller upholds this function's contract, which repeats that of
        // `SendQueue::restart`.
        unsafe { queue.restart(&mut self.reader)? };
        self.clear();
        Ok(())
    }

    /// Takes the completion of the last request that completed, if there is one that was not taken.
    ///
    /// # Errors
    /// [`PollError::DeviceFailed`]; [`PollError::Overrun`] only if the HCA could not write the CQE. A
    /// damaged CQE is returned as [`UnexpectedCqe`](Completion::UnexpectedCqe).
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
    ) -> Result<Option<Completion>, PollError> {
        // SAFETY: the slot has `WORDS` words, which live as long as the CQ, which the reader keeps.
        let last = unsafe { self.slot.add(WORDS - 1).read_volatile() };
        if last == self.seen {
            if self.reader.consumer.idles() {
                return self.recheck_health(queue);
            }
            return Ok(None);
        }
        self.take(last);
        self.reader.poll(queue)
    }

    /// Polls the reader's own ring, which has no CQE. So the reader checks whether the CQ failed.
    #[cold]
    #[inline(never)]
    fn recheck_health<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
    ) -> Result<Option<Completion>, PollError> {
        self.reader.poll(queue)
    }

    /// Copies the CQE whose last word was seen to the reader's ring.
    fn take(&mut self, mut last: u64) {
        let at = self.copied as usize % OWN;
        let lap = self.copied as usize / OWN % 2;
        let place = self.own.entry(at);
        loop {
            fence::ownership_then_cqe();
            for word in 0..WORDS - 1 {
                // SAFETY: both CQEs have `WORDS` words. The slot lives as long as the CQ, which the
                // reader keeps, and `place` as long as `own`.
                unsafe { place.add(word).write_volatile(self.slot.add(word).read_volatile()) };
            }
            fence::ownership_then_cqe();
            // SAFETY: the slot has `WORDS` words, which live as long as the CQ, which the reader
            // keeps.
            let again = unsafe { self.slot.add(WORDS - 1).read_volatile() };
            if again == last {
                break;
            }
            // The HCA wrote another CQE meanwhile.
            last = again;
        }
        self.seen = last;
        let mut bytes = last.to_ne_bytes();
        bytes[7] = bytes[7] & !OWNER_MASK | lap as u8;
        // SAFETY: `place` is a CQE of `WORDS` words in memory of `own`.
        unsafe { place.add(WORDS - 1).write_volatile(u64::from_ne_bytes(bytes)) };
        self.copied = self.copied.wrapping_add(1);
    }

    /// Marks the slot as holding no CQE. Nothing completes here now.
    fn clear(&mut self) {
        let none = u64::from_ne_bytes([opcode::INVALID << OPCODE_SHIFT | OWNER_MASK; 8]);
        // SAFETY: the slot has `WORDS` words, which live as long as the CQ, which the reader keeps.
        // The HCA does not write it now, because no queue that completes here has requests
        // outstanding.
        unsafe { self.slot.add(WORDS - 1).write_volatile(none) };
        self.seen = none;
    }

    /// Number of the CQ.
    pub fn cqn(&self) -> u32 {
        self.reader.cqn()
    }
}

impl fmt::Debug for CollapsedCqReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollapsedCqReader").field("cqn", &self.cqn()).finish_non_exhaustive()
    }
}
