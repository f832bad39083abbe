//! Collapsed CQs: every CQE takes the place of the one before.
//!
//! Of one send queue that is enough to know what is done: its last CQE names the last WQE that
//! completed, and what comes before it is done, too. The ring is a single slot, the card is never told
//! how far it is read, and nobody has to read in time. (GPUNetIO polls so,
//! `doca_priv_gpu_dev_verbs_poll_cq_collapsed_at`; UCX makes CQs of one entry so.)
//!
//! The reader looks at the slot's last word, which has counter, opcode and queue, and changes with
//! every CQE. When it did, the CQE is copied, as one in a ring of one lap after another that is the
//! reader's own and that a usual [`Completions`] reads: what completions mean is said there alone.

use core::fmt;
use core::ptr::NonNull;

use mlx5_sys::cqe::{Cqe64, OPCODE_SHIFT, OWNER_MASK, opcode};

use super::completion::CqParts;
use super::credit::Ledger;
use super::keep::CqKeep;
use super::source::{CompletionSource, SendSource};
use super::{Completions, PollError, QueueError, SendConfig, SendQueue};
use crate::cqe::{Completion, QueueKind};
use crate::doorbell::{ArmDoorbell, Record, fence};
use crate::verbs::Transport;

/// Words of a CQE.
const WORDS: usize = Cqe64::SIZE / 8;
/// CQEs of the reader's own ring.
const OWN: usize = 2;
/// Signaled requests that may be outstanding: all that a send queue can have. Nothing overruns.
const MOST: u32 = 1 << 15;

/// Reads a CQ that was made [collapsed](crate::devx::CompletionQueueBuilder::collapsed), of one send
/// queue.
///
/// A poll that finds nothing costs a load. Of several requests that completed since the last poll, it
/// gives the last, as if those before it had not been signaled. So where one fails, its error may be
/// taken over by that of a later one, which was flushed because of it: then which of them failed, and
/// why, is not known. Of those that were not reported before a [`Failed`](Completion::Failed), none can
/// be relied on.
///
/// The card raises no event that a reader could ask for so that none is missed; poll it.
pub struct CollapsedCompletions {
    reader: Completions,
    /// What that reads; dropped after it.
    own: Box<Own>,
    /// The CQ's 64-byte CQE.
    slot: NonNull<u64>,
    /// The slot's last word, as it was seen last.
    seen: u64,
    /// CQEs that were copied.
    copied: u32,
}

/// A ring, a record, and a page for a doorbell that nobody rings.
#[repr(C, align(64))]
struct Own {
    ring: [[u64; WORDS]; OWN],
    record: [u32; 2],
    page: [u64; 8],
}

// SAFETY: the slot is the CQ's, whose consumer side belongs to the reader alone; the rest is the
// reader's own.
unsafe impl Send for CollapsedCompletions {}

impl CollapsedCompletions {
    /// Takes over a collapsed CQ, and keeps it alive.
    ///
    /// # Errors
    /// [`Error::QueueInUse`](crate::Error::QueueInUse); [`Error::Queue`](crate::Error::Queue) for a
    /// CQ that is not collapsed.
    pub fn new<C: CompletionSource>(cq: &C) -> crate::Result<Self> {
        let keep = CqKeep::new(cq.owner())?;
        let view = cq.completions()?;
        if !view.collapsed {
            return Err(QueueError::NotCollapsed.into());
        }
        // What is no CQE of any lap.
        let none = u64::from_ne_bytes([opcode::INVALID << OPCODE_SHIFT | OWNER_MASK; 8]);
        let mut own = Box::new(Own { ring: [[none; WORDS]; OWN], record: [0; 2], page: [0; 8] });
        let buffer = NonNull::from(&mut own.ring).cast();
        let record = NonNull::from(&mut own.record).cast();
        let page = NonNull::from(&mut own.page).cast();
        // SAFETY: memory of the result's own, which it keeps as long as the reader. The page ends
        // behind its arm register, which nothing else is stored to.
        let mut reader = unsafe {
            Completions::from_parts(CqParts {
                buffer,
                cqe_count: OWN as u32,
                cqe_size: Cqe64::SIZE as u32,
                record: Record::new(record, 0),
                arm: ArmDoorbell::new(Record::new(record, 1), page),
                cqn: view.cqn,
                id: view.id,
                compression: Default::default(),
                enhanced: false,
            })?
        };
        reader.adopt_collapsed(keep, Ledger::new(MOST));
        // SAFETY: the second half of a wide one.
        let slot = unsafe { view.buffer.add(view.cqe_size as usize - Cqe64::SIZE) };
        let mut collapsed = Self { reader, own, slot: slot.cast(), seen: none, copied: 0 };
        collapsed.clear();
        Ok(collapsed)
    }

    /// Takes over the send queue of a queue pair that completes here, as
    /// [`SendQueue::new`]. There is one at a time.
    ///
    /// # Errors
    /// As there; [`QueueError::CollapsedTaken`] while there is another.
    pub fn send_queue<Q: SendSource>(
        &mut self,
        qp: &Q,
        config: SendConfig,
    ) -> crate::Result<SendQueue<Q::Transport>> {
        self.reader.collect();
        let again = self.reader.ledger.owes(qp.sends()?.number, QueueKind::Send);
        if !again && !self.reader.ledger.is_unpromised() {
            return Err(QueueError::CollapsedTaken.into());
        }
        self.clear();
        SendQueue::new(qp, &mut self.reader, config)
    }

    /// Starts the send queue anew after its queue pair went through RESET, as
    /// [`SendQueue::restart`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn restart<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
    ) -> Result<(), QueueError> {
        // SAFETY: passed on.
        unsafe { queue.restart(&mut self.reader)? };
        self.clear();
        Ok(())
    }

    /// Takes the completion of the last request that completed, if there is one that was not taken.
    ///
    /// # Errors
    /// [`PollError::Overrun`] never; what a damaged CQE is, is told as
    /// [`Unclaimed`](Completion::Unclaimed).
    #[inline]
    pub fn poll<T: Transport>(
        &mut self,
        queue: &mut SendQueue<T>,
    ) -> Result<Option<Completion>, PollError> {
        // SAFETY: the last word of the CQE.
        let last = unsafe { self.slot.add(WORDS - 1).read_volatile() };
        if last == self.seen {
            return Ok(None);
        }
        self.take(last);
        self.reader.poll(queue)
    }

    /// Copies the CQE whose last word was seen to the reader's ring.
    fn take(&mut self, mut last: u64) {
        let at = self.copied as usize % OWN;
        let lap = self.copied as usize / OWN % 2;
        let place = NonNull::from(&mut self.own.ring[at]).cast::<u64>();
        loop {
            fence::ownership_then_cqe();
            for word in 0..WORDS - 1 {
                // SAFETY: words of the CQE, and of the reader's ring.
                unsafe { place.add(word).write_volatile(self.slot.add(word).read_volatile()) };
            }
            fence::ownership_then_cqe();
            // SAFETY: as in `poll`.
            let again = unsafe { self.slot.add(WORDS - 1).read_volatile() };
            if again == last {
                break;
            }
            // The card wrote another one meanwhile.
            last = again;
        }
        self.seen = last;
        let mut bytes = last.to_ne_bytes();
        bytes[7] = bytes[7] & !OWNER_MASK | lap as u8;
        // SAFETY: the last word of the reader's CQE.
        unsafe { place.add(WORDS - 1).write_volatile(u64::from_ne_bytes(bytes)) };
        self.copied = self.copied.wrapping_add(1);
    }

    /// Says that there is no CQE: nothing completes here now.
    fn clear(&mut self) {
        let none = u64::from_ne_bytes([opcode::INVALID << OPCODE_SHIFT | OWNER_MASK; 8]);
        // SAFETY: the last word of the CQE, which nobody writes while no queue completes here.
        unsafe { self.slot.add(WORDS - 1).write_volatile(none) };
        self.seen = none;
    }

    /// Number of the CQ.
    pub fn cqn(&self) -> u32 {
        self.reader.cqn()
    }
}

impl fmt::Debug for CollapsedCompletions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollapsedCompletions").field("cqn", &self.cqn()).finish_non_exhaustive()
    }
}
