//! Receiving Ethernet packets.

use core::fmt;

use mlx5_sys::cqe::{Cqe64, opcode as cqe_opcode};
use zerocopy::FromBytes;

use super::completion::CqReader;
use super::receive::{ReceiveConfig, ReceiveQueue};
use super::receive_batch::ReceiveBatch;
use super::{CompletionSource, PollError, PostError, ReceiveSource};
use crate::cqe::{Failure, FrameInfo, QueueKind, Status, UnexpectedCqe, UnexpectedCqeReason};
use crate::ib::RawPacket;
use crate::wqe::SgeList;

/// The receive queue of a queue pair for Ethernet packets, with the CQ of its own on which it
/// completes. The CQEs of packets name flows, not queues, so no other queue may complete there.
///
/// Posting is that of [`ReceiveQueue`]. A poll costs about as much as one of a queue that is looked
/// up.
pub struct FrameReceives {
    queue: ReceiveQueue,
    completions: CqReader,
}

/// The result of a poll of [`FrameReceives`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a completion says which receive is done, or that one failed"]
pub enum FrameEvent {
    /// A packet has arrived.
    Frame(FrameDone),
    /// A receive failed, or was flushed because an earlier one had failed.
    Failed(Failure),
    /// A CQE that is not of this queue, or contradicts its state.
    UnexpectedCqe(UnexpectedCqe),
}

/// A packet that has arrived in the memory of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameDone {
    /// The id that the receive was posted with.
    pub id: u64,
    /// Length of the packet in bytes, without its checksum.
    pub byte_len: u32,
    /// The HCA's results for its headers.
    pub info: FrameInfo,
}

impl FrameReceives {
    /// Takes over the receive queue of a queue pair, and the CQ that it completes on.
    ///
    /// # Errors
    /// The errors of [`ReceiveQueue::new`] and [`CqReader::new`].
    pub fn new<Q: ReceiveSource<Transport = RawPacket>, C: CompletionSource>(
        qp: &Q,
        cq: &C,
        config: ReceiveConfig,
    ) -> crate::error::Result<Self> {
        let mut completions = CqReader::new(cq)?;
        let queue = ReceiveQueue::new(qp, &mut completions, config)?;
        Ok(Self { queue, completions })
    }

    /// Returns the queue.
    pub fn queue(&self) -> &ReceiveQueue {
        &self.queue
    }

    /// Starts a batch of receives. Dropping it posts nothing.
    pub fn batch(&mut self) -> ReceiveBatch<'_> {
        self.queue.batch()
    }

    /// Posts one receive, see [`ReceiveQueue::post`].
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA may put a packet into the receive from now on. Until a poll returns its completion,
    /// or the QP has been moved to RESET or destroyed:
    /// - The memory of its entries stays allocated, and registered for local write under the `lkey`
    ///   given.
    /// - Nothing reads, writes or holds a reference to that memory.
    pub unsafe fn post<L: SgeList>(&mut self, id: u64, list: L) -> Result<(), PostError> {
        // SAFETY: passed on.
        unsafe { self.queue.post(id, list) }
    }

    /// Returns the next packet, if one has arrived.
    ///
    /// # Errors
    /// [`PollError`].
    pub fn poll(&mut self) -> Result<Option<FrameEvent>, PollError> {
        let queue = &mut self.queue;
        self.completions.take_cqe(|cqe, reader| {
            let bytes = cqe.bytes();
            let unexpected = |reason| FrameEvent::UnexpectedCqe(UnexpectedCqe::new(reason, cqe));
            let failed = match cqe.opcode() {
                cqe_opcode::RESP_ERR => true,
                cqe_opcode::RESP_SEND => false,
                _ => return unexpected(UnexpectedCqeReason::UnknownQueue),
            };
            let (at, slot) = match queue.retire_named(reader, cqe) {
                Ok(retired) => retired,
                Err(reason) => return unexpected(reason),
            };
            let id = queue.shadow[slot].id;
            queue.note(slot, at, cqe);
            if failed {
                return FrameEvent::Failed(Failure {
                    id,
                    qpn: queue.qpn(),
                    queue: QueueKind::Receive,
                    status: Status::from_syndrome(cqe.syndrome()),
                    vendor_error: cqe.vendor_syndrome(),
                    wqe_index: cqe.wqe_counter(),
                    opcode: 0,
                });
            }
            match Cqe64::read_from_bytes(&bytes) {
                Ok(cqe) => FrameEvent::Frame(FrameDone {
                    id,
                    byte_len: cqe.byte_cnt.get(),
                    info: FrameInfo::decode(&cqe),
                }),
                Err(_) => unexpected(UnexpectedCqeReason::UnknownOpcode),
            }
        })
    }

    /// Requests an event at the next packet, see [`CqReader::arm`].
    pub fn arm(&mut self) {
        self.completions.arm(false);
    }
}

impl fmt::Debug for FrameReceives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameReceives").field("queue", &self.queue).finish_non_exhaustive()
    }
}
