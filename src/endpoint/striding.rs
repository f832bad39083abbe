//! Striding receive queues that own their buffers.

use std::collections::VecDeque;
use std::fmt;
use std::mem::take;
use std::sync::Arc;

use super::operation::accepts;
use super::{MrSlice, Refused};
use crate::cqe::{Failure, PacketInfo, UnexpectedCqe};
use crate::ring::source::DomainId;
use crate::ring::{PacketEvent, PollError, StridingRq};
use crate::verbs::{CompletionQueue, StridingQueue};

/// A [`StridingRq`] that owns the memory of its WQEs, and returns it packet by packet.
///
/// A [`Frame`] shares the memory of its WQE with other packets there, and with this queue while the
/// HCA may write to it. After the last of them is dropped, [`reclaim`](Self::reclaim) returns the
/// memory, which can be posted again. A leaked frame keeps only its WQE's memory.
///
/// ```no_run
/// # use mlx5::endpoint::{FrameArrival, StridingReceiver};
/// # fn example(receiver: &mut StridingReceiver) -> mlx5::Result<()> {
/// while let Some(arrival) = receiver.poll()? {
///     match arrival {
///         FrameArrival::Frame(frame) => println!("{} bytes", frame.len()),
///         FrameArrival::Failed(failure) => return Err(failure.into()),
///         FrameArrival::UnexpectedCqe(unexpected) => println!("{unexpected:?}"),
///     }
///     while let Some(memory) = receiver.reclaim() {
///         receiver.post(memory)?;
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct StridingReceiver {
    raw: StridingRq,
    /// Takes the memory of the posted WQEs over when this is dropped.
    queue: StridingQueue,
    /// Protection domain of the memory that WQEs may name.
    domain: DomainId,
    /// Memory of the posted WQEs, oldest first.
    posted: VecDeque<Arc<MrSlice>>,
    /// Memory of WQEs that are used up, whose frames may still exist.
    spent: Vec<Arc<MrSlice>>,
}

/// The result of a poll. See the example on [`StridingReceiver`].
#[derive(Debug)]
#[must_use = "a frame is dropped, and what failed is forgotten, if this is"]
pub enum FrameArrival {
    /// A packet.
    Frame(Frame),
    /// A WQE failed, or was flushed. Its memory can be reclaimed.
    Failed(Failure),
    /// A CQE that is not of this queue, or contradicts its state.
    UnexpectedCqe(UnexpectedCqe),
}

/// A received Ethernet packet, in the memory where it arrived. See the example on
/// [`StridingReceiver`].
pub struct Frame {
    memory: Arc<MrSlice>,
    offset: usize,
    length: usize,
    /// The HCA's results for its headers.
    pub info: PacketInfo,
}

impl StridingReceiver {
    /// Takes over a queue, see [`StridingRq::new`].
    ///
    /// # Errors
    /// The errors of [`StridingRq::new`].
    pub fn new(queue: &StridingQueue, cq: &CompletionQueue) -> crate::error::Result<Self> {
        let raw = StridingRq::new(queue, cq)?;
        let domain = queue.domain();
        let (posted, spent) = (VecDeque::new(), Vec::new());
        Ok(Self { raw, queue: queue.clone(), domain, posted, spent })
    }

    /// Returns the number of WQEs that can still be posted.
    pub fn free(&self) -> u32 {
        self.raw.free()
    }

    /// Posts a WQE over memory of at least [`StridingQueue::wqe_bytes`].
    ///
    /// # Errors
    /// [`Refused`], which gives the memory back: with
    /// [`PostError::PdMismatch`](crate::ring::PostError::PdMismatch) for memory of another
    /// protection domain or device, with
    /// [`PostError::NoLocalWrite`](crate::ring::PostError::NoLocalWrite) for memory without that
    /// right.
    #[doc(alias = "ibv_post_wq_recv")]
    pub fn post(&mut self, memory: MrSlice) -> Result<(), Refused<MrSlice>> {
        if !accepts(self.domain, &memory) {
            return Err(Refused::memory(memory));
        }
        let sge = memory.entry();
        // SAFETY: `posted` owns the slice until the WQE is used up or failed. Frames share it, and
        // read only where a packet was reported. If this is dropped, the queue's object owns it.
        match unsafe { self.raw.post(0, sge) } {
            Ok(()) => {
                self.posted.push_back(Arc::new(memory));
                Ok(())
            }
            Err(error) => Err(Refused { error, operation: memory }),
        }
    }

    /// Returns the next packet, if one has arrived. Allocates nothing.
    ///
    /// # Errors
    /// [`PollError`].
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&mut self) -> Result<Option<FrameArrival>, PollError> {
        loop {
            let Some(event) = self.raw.poll()? else { return Ok(None) };
            match event {
                PacketEvent::Packet(packet) => {
                    let Some(memory) = self.posted.front().cloned() else { continue };
                    if packet.last {
                        self.used_up();
                    }
                    return Ok(Some(FrameArrival::Frame(Frame {
                        memory,
                        offset: packet.offset as usize,
                        length: packet.byte_len as usize,
                        info: packet.info(),
                    })));
                }
                PacketEvent::UsedUp { .. } => self.used_up(),
                PacketEvent::Failed(failure) => {
                    self.used_up();
                    return Ok(Some(FrameArrival::Failed(failure)));
                }
                PacketEvent::UnexpectedCqe(unexpected) => {
                    return Ok(Some(FrameArrival::UnexpectedCqe(unexpected)));
                }
            }
        }
    }

    fn used_up(&mut self) {
        self.spent.extend(self.posted.pop_front());
    }

    /// Returns memory of a WQE that is used up and of which no frame is left.
    pub fn reclaim(&mut self) -> Option<MrSlice> {
        // Only this list could make another holder, and this one is the only holder.
        let index = self.spent.iter().position(|memory| Arc::strong_count(memory) == 1)?;
        Arc::into_inner(self.spent.swap_remove(index))
    }

    /// Requests an event at the next packet, see
    /// [`CqReader::arm`](crate::ring::CqReader::arm).
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&mut self) {
        self.raw.arm();
    }
}

impl Drop for StridingReceiver {
    fn drop(&mut self) {
        if !self.posted.is_empty() {
            self.queue.retain(Box::new(take(&mut self.posted)));
        }
    }
}

impl Frame {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether it has no bytes. No packet is empty.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Copies the bytes at `offset`.
    ///
    /// # Panics
    /// If the frame is shorter.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        let end = offset.checked_add(data.len());
        assert!(end.is_some_and(|end| end <= self.length), "{end:?} of {} bytes", self.length);
        self.memory.read(self.offset + offset, data);
    }

    /// A copy of its bytes. Allocates.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.read(0, &mut bytes);
        bytes
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("len", &self.length).field("info", &self.info).finish()
    }
}

impl fmt::Debug for StridingReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StridingReceiver")
            .field("raw", &self.raw)
            .field("spent", &self.spent.len())
            .finish_non_exhaustive()
    }
}
