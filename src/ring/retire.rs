//! Retiring requests of a send queue: handles a requester's CQEs.

use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::{SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::keys::Run;
use super::own::Place;
use super::scatter;
use super::send_ring::SendRing;
use super::shadow::{Entry, Key};
use super::shared::Sequencer;
use super::source::{CompletionOrder, CqId};
use crate::cqe::{
    Completion, CqeRef, Failure, QueueKind, SendDone, SendOperation, Status, UnexpectedCqe,
    UnexpectedCqeReason,
};
use crate::ib::Counter;

/// The side of a send queue that a poll uses, see [`Queues`](super::Queues).
pub struct SendSide<'a> {
    pub(super) ring: &'a mut SendRing,
    /// The sequencer of a shared queue, in which its producers read the retired position.
    pub(super) shared: Option<&'a Sequencer>,
}

impl<'a> SendSide<'a> {
    /// Returns the ring.
    #[inline(always)]
    pub(crate) fn into_ring(self) -> &'a mut SendRing {
        self.ring
    }
}

impl SendSide<'_> {
    /// Number of the queue pair.
    #[inline(always)]
    pub fn qpn(&self) -> u32 {
        self.ring.qpn()
    }

    /// Retires the plain request that a CQE of the CQ `cq` reports. The CQE is a success without
    /// data in it. Without `ANY`, the request must be the oldest one, and `cq` is the queue's.
    /// `None`, and nothing changes, if it is another request or of another queue. The caller
    /// publishes the consumer index, then calls [`release`](Self::release).
    #[inline(always)]
    pub(super) fn retire_plain<const ANY: bool>(
        &mut self,
        cq: CqId,
        cqe: &CqeRef<'_>,
    ) -> Option<Entry> {
        self.ring.retire_plain::<ANY>(cq, cqe.end())
    }

    /// Builds the completion of a request that was retired.
    #[inline(always)]
    pub(super) fn done(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        self.ring.done(entry, cqe)
    }

    /// Retires requests like [`complete`](Self::complete), for a success without data in the CQE.
    /// `None`, and nothing changes, if the CQE is not of this queue.
    #[inline(always)]
    pub(super) fn complete_plain(
        &mut self,
        cq: CqId,
        qpn: u32,
        cqe: &CqeRef<'_>,
    ) -> Option<SendDone> {
        let ring = &mut *self.ring;
        if ring.cq != cq || ring.qpn() != qpn {
            return None;
        }
        let entry = match ring.retire_plain::<true>(cq, cqe.end()) {
            Some(entry) => entry,
            None => {
                let counter = ring.retire(cqe.wqe_counter())?;
                ring.shadow.get(counter)
            }
        };
        Some(ring.done(&entry, cqe))
    }

    /// Retires the request that a requester's CQE of the CQ `cq` completes. The caller publishes
    /// the consumer index, then calls [`release`](Self::release).
    pub(super) fn complete(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let completion = self.ring.complete(cq, cqe);
        self.stop_producers();
        completion
    }

    /// Stops the producers of a shared queue after a failure.
    #[inline(always)]
    pub(super) fn stop_producers(&self) {
        if let Some(shared) = self.shared.filter(|_| self.ring.stopped) {
            shared.stop();
        }
    }

    /// Releases the ring slots and CQ slots of retired requests to the producers of a shared queue.
    /// To be called after the consumer index was published: a producer on another thread may post
    /// at once, and the HCA must know by then that the CQEs of the retired requests were taken.
    #[inline(always)]
    pub(super) fn release(&self) {
        if let Some(shared) = self.shared {
            let tail = self.ring.cursor.tail().since(Counter::default());
            shared.retire(tail, tail.wrapping_sub(self.ring.slack_retired) as u16);
        }
    }
}

impl SendRing {
    /// Retires the outstanding plain WQE that a CQE of the CQ `cq` with these last eight bytes
    /// reports, and all before it. Without `ANY`, the WQE must be the oldest, and `cq` is the
    /// queue's.
    #[inline(always)]
    fn retire_plain<const ANY: bool>(&mut self, cq: CqId, end: u64) -> Option<Entry> {
        if ANY && self.cq != cq {
            return None;
        }
        if let Some(entry) = self.shadow.retire_oldest(end) {
            // An entry that looks posted is posted (`pause`), so the queue is not empty.
            self.cursor.retire_known(self.cursor.tail().plus(1));
            return Some(entry);
        }
        if !ANY {
            return None;
        }
        let tail = self.cursor.tail().plus(self.shadow.stride());
        // If the slacks are equal, no outstanding WQE has further blocks, and none adds slack.
        if self.slack == self.slack_retired && self.cursor.head().reaches(tail) {
            if let Some(entry) = self.shadow.retire_stride(end) {
                self.cursor.retire_known(tail);
                return Some(entry);
            }
        }
        self.retire_later(Key::reported(end)).copied()
    }

    /// Returns the place of the request that [`retire_plain`](Self::retire_plain) has just retired,
    /// the oldest.
    #[inline(always)]
    pub(crate) fn retired(&self) -> Place {
        Place(self.shadow.retired())
    }

    /// Handles [`retire_plain`](Self::retire_plain) for a WQE that is neither the oldest nor ends a
    /// stride like the last one, or begins a lap. A separate call, so that the other cases
    /// need no registers for it.
    #[inline(never)]
    fn retire_later(&mut self, reported: Key) -> Option<&Entry> {
        // It retires those before it, too.
        if self.order == CompletionOrder::Any {
            return None;
        }
        let counter = self.cursor.outstanding(reported.index())?;
        if self.shadow.get(counter).key != reported {
            return None;
        }
        // If a queue posts other WQEs than plain ones, one is often just before the signaled one.
        let before = counter.plus(1u32.wrapping_neg());
        match self.shadow.get(before).key.slack() {
            _ if counter == self.cursor.tail() => {}
            Some(slack) => self.slack_retired = slack,
            None => return self.retire_any(counter),
        }
        self.shadow.set_stride(counter.plus(1).since(self.cursor.tail()));
        self.cursor.retire_known(counter.plus(1));
        self.shadow.set_tail(self.cursor.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires everything up to the end of the outstanding WQE that begins at `counter`. `None`,
    /// and nothing changes, if no WQE begins there.
    #[cold]
    #[inline(never)]
    fn retire_any(&mut self, counter: Counter) -> Option<&Entry> {
        // Every posted WQE wrote the entries of all its blocks, and a batch that was dropped wrote
        // only those behind the head. So a WQE that begins here was posted, as a whole.
        let blocks = self.shadow.get(counter).key.blocks()?;
        let tail = self.cursor.tail();
        for ahead in (0..=counter.since(tail)).rev() {
            // Entries of plain WQEs do not hold the slack, and do not add to it.
            if let Some(slack) = self.shadow.get(tail.plus(ahead)).key.slack() {
                self.slack_retired = slack;
                break;
            }
        }
        self.cursor.retire_known(counter.plus(blocks));
        self.shadow.set_tail(self.cursor.tail());
        Some(self.shadow.entry(counter))
    }

    /// Retires the outstanding WQE that a CQE names, and all before it if requests complete in the
    /// order of posting.
    pub(super) fn retire(&mut self, named: u16) -> Option<Counter> {
        let counter = self.cursor.outstanding(named)?;
        match self.order {
            CompletionOrder::Posting => drop(self.retire_any(counter)?),
            CompletionOrder::Any => self.retire_alone(counter)?,
        }
        Some(counter)
    }

    /// Retires the outstanding WQE that begins at `counter`, and no other. `None`, and nothing
    /// changes, if no WQE begins there, or it has completed before.
    ///
    /// Blocks become free only up to the oldest WQE that has not completed: the HCA may still fetch
    /// that one, for the first time or to send it again, whatever completed behind it.
    #[cold]
    fn retire_alone(&mut self, counter: Counter) -> Option<()> {
        let Entry { id, key } = self.shadow.get(counter);
        key.blocks().filter(|_| !key.is_completed())?;
        self.shadow.set(counter, Entry { id, key: key.completed() });
        self.last = counter;
        let mut tail = self.cursor.tail();
        while tail != self.cursor.head() {
            let key = self.shadow.get(tail).key;
            let Some(blocks) = key.blocks().filter(|_| key.is_completed()) else { break };
            if let Some(slack) = key.slack() {
                self.slack_retired = slack;
            }
            tail = tail.plus(blocks);
        }
        self.cursor.retire_known(tail);
        Some(())
    }

    /// Copies the data of a READ or atomic from the CQE to the memory that the WQE names.
    #[cold]
    fn scatter(&self, entry: &Entry, counter: Counter, cqe: &CqeRef<'_>, length: u32) -> bool {
        let before = self.units_before_payload as usize;
        let first = match entry.operation() {
            SendOperation::Read => before,
            // Behind the operands.
            SendOperation::CompareSwap | SendOperation::FetchAdd => before + 1,
            // One segment, behind operands of any size.
            SendOperation::MaskedCompareSwap | SendOperation::MaskedFetchAdd => {
                (entry.key.ds() as usize).saturating_sub(1)
            }
            _ => return false,
        };
        let Some(data) = cqe.inline_data(length) else { return false };
        // The answer of an atomic of eight bytes is most significant byte first in a CQE, and in the
        // host's order where the HCA writes it to memory (UCX, `rc_mlx5_iface.c`).
        let is_number = length == 8 && entry.operation() != SendOperation::Read;
        let data = if is_number { data.in_host_order() } else { data };
        let shape = self.cursor.shape();
        let size = shape.entries() as usize * WQEBB_SIZE;
        let start = shape.slot(counter) * WQEBB_SIZE;
        let segments = (first..entry.key.ds() as usize).map(|unit| {
            let offset = (start + unit * SEGMENT_SIZE) % size;
            // SAFETY: a multiple of 16 within the ring.
            unsafe { scatter::Segment::read(self.buffer.as_ptr().add(offset)) }
        });
        // SAFETY: if the QP puts payload into CQEs, the contract of posting guarantees that the
        // entries' memory is mapped at their addresses and unused until this completion is
        // reported.
        unsafe { scatter::scatter(data.bytes(), segments) }
    }

    #[inline(always)]
    fn complete(&mut self, cq: CqId, cqe: &CqeRef<'_>) -> Completion {
        let ring = self;
        if ring.cq != cq || cqe.qpn() != ring.qpn() {
            return Completion::UnexpectedCqe(UnexpectedCqe::new(
                UnexpectedCqeReason::UnknownQueue,
                cqe,
            ));
        }
        let Some(counter) = ring.retire(cqe.wqe_counter()) else {
            return Completion::UnexpectedCqe(UnexpectedCqe::new(
                UnexpectedCqeReason::NotOutstanding,
                cqe,
            ));
        };
        let entry = ring.shadow.get(counter);
        if cqe.opcode() != cqe_opcode::REQ {
            // SAFETY: the ring's own memory. The WQE was outstanding until now, and nothing was
            // posted since.
            unsafe { ring.doorbell.flight.found_send(ring.buffer, ring.cursor.shape(), counter) }
            return ring.fail(&entry, cqe);
        }
        let done = ring.done(&entry, cqe);
        if cqe.has_inline_data() && !ring.scatter(&entry, counter, cqe, done.byte_len) {
            let failure = Failure {
                id: entry.id,
                qpn: done.qpn,
                queue: QueueKind::Send,
                status: Status::LocalLength,
                vendor_error: 0,
                wqe_index: counter.low16(),
                opcode: entry.key.opcode(),
            };
            return Completion::Failed(failure);
        }
        Completion::Send(done)
    }

    #[inline(always)]
    fn done(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> SendDone {
        let end = match self.order {
            CompletionOrder::Posting => self.cursor.tail(),
            CompletionOrder::Any => self.last.plus(entry.key.blocks().unwrap_or(1)),
        };
        self.doorbell.timing.arrived(end, cqe.seen());
        self.doorbell.flight.cqe(cqe);
        let code = entry.key.opcode();
        // Requests that fetch nothing are checked first. Most of them have lower opcodes.
        let byte_len = match code {
            ..opcode::RDMA_READ => 0,
            opcode::RDMA_READ => cqe.byte_count(),
            opcode::ATOMIC_CS | opcode::ATOMIC_FA => 8,
            opcode::ATOMIC_MASKED_CS | opcode::ATOMIC_MASKED_FA => cqe.byte_count(),
            _ => 0,
        };
        SendDone { id: entry.id, qpn: self.qpn(), operation: entry.operation(), byte_len }
    }

    /// Refuses posts from now on, because the device failed.
    #[cold]
    pub(super) fn device_failed(&mut self) {
        self.device_failed = true;
        self.stop();
    }

    /// Refuses posts from now on.
    #[cold]
    fn stop(&mut self) {
        self.stopped = true;
        self.set_clear(self.cursor.head());
        self.run = Run::none(self.cursor.head());
        self.ready.left = 0;
    }

    #[cold]
    fn fail(&mut self, entry: &Entry, cqe: &CqeRef<'_>) -> Completion {
        self.doorbell.flight.cqe(cqe);
        self.stop();
        Completion::Failed(Failure {
            id: entry.id,
            qpn: self.qpn(),
            queue: QueueKind::Send,
            status: Status::from_syndrome(cqe.syndrome()),
            vendor_error: cqe.vendor_syndrome(),
            wqe_index: cqe.wqe_counter(),
            opcode: entry.key.opcode(),
        })
    }
}
