//! Shared receive queues: taking WQEs, and reporting events.

use mlx5_sys::ifc::qpc;

use super::{Domain, ReceiveWqe, SrqEvent, Syndrome};
use crate::card::Card;
use crate::object::Srq;
use crate::trace::{Observed, Queue};
use crate::work::list;

/// Bytes before the scatter list of a WQE: the segment that names its successor (`mlx5dv.h`,
/// `mlx5_wqe_srq_next_seg`).
pub(super) const NEXT: usize = 16;

impl Card {
    /// Takes the next receive WQE of a shared receive queue for one of its queue pairs; `None` where nothing is posted. A
    /// queue whose memory does not answer, or whose list leads out of it, fails with an event.
    pub(super) fn take_shared(
        &mut self,
        number: u32,
        qp: u32,
    ) -> Result<Option<ReceiveWqe>, Syndrome> {
        let Some(srq) = self.objects.srqs.get(number) else {
            return Err(Syndrome::LocalQpOperation);
        };
        if srq.failed {
            return Err(Syndrome::LocalQpOperation);
        }
        // A limit counts all posted WQEs, not only the known ones.
        if srq.queue.posted() == 0 || srq.limit != 0 {
            self.read_posted(number)?;
        }
        let Some(srq) = self.objects.srqs.get(number) else { return Ok(None) };
        let queue = &srq.queue;
        if queue.posted() == 0 {
            return Ok(None);
        }
        let Some((place, index)) = queue.next() else {
            tracing::warn!(srq = number, index = queue.head, "the list of an SRQ leads out of it");
            return Err(self.fail_srq(number));
        };
        let mut bytes = vec![0; queue.stride as usize];
        let at = usize::from(place) * queue.stride as usize;
        if let Err(fault) = queue.pages.read(&*self.memory, at, &mut bytes) {
            tracing::error!(srq = number, %fault, "the shared receive queue is not there");
            self.complaints.unmapped_queues += 1;
            return Err(self.fail_srq(number));
        }
        self.port.pace.take_receive(bytes.len());
        let domain = Domain { pd: srq.pd, qp };
        let xrc_srq = srq.completes().map(|_| number);
        if let Some(srq) = self.objects.srqs.get_mut(number) {
            srq.queue.head = u16::from_be_bytes([bytes[2], bytes[3]]);
            srq.queue.taken = srq.queue.taken.wrapping_add(1);
        }
        self.observe(|| Observed::ReceiveWqe {
            qp,
            queue: Queue::Shared(number),
            index,
            bytes: (&bytes[NEXT..]).into(),
        });
        self.check_limit(number);
        Ok(Some(ReceiveWqe { index, domain, xrc_srq, data: list(&bytes[NEXT..]) }))
    }

    /// The XRC SRQ that a request to a target may use: of the target's XRC domain.
    pub(crate) fn xrc_srq(&self, qp: u32, number: u32) -> Option<&Srq> {
        let domain = self.objects.qps.get(&qp)?.get(qpc::XRCD);
        let same = |srq: &&Srq| srq.xrc().is_some_and(|context| context.domain == domain);
        self.objects.srqs.get(number).filter(same)
    }

    /// Takes the next receive of an XRC SRQ for a target, as [`Card::take_receive`] does.
    pub fn take_xrc_receive(
        &mut self,
        qp: u32,
        number: u32,
    ) -> Result<Option<ReceiveWqe>, Syndrome> {
        if self.xrc_srq(qp, number).is_none() {
            return Err(Syndrome::LocalQpOperation);
        }
        self.take_shared(number, qp)
    }

    /// Asks for an event once fewer than `limit` WQEs are posted, which may be at once; 0 asks for
    /// none.
    pub(crate) fn arm_srq(&mut self, number: u32, limit: u16) {
        if let Some(srq) = self.objects.srqs.get_mut(number) {
            srq.limit = limit;
        }
        if limit != 0 && self.read_posted(number).is_ok() {
            self.check_limit(number);
        }
    }

    /// Reads the doorbell record: posting rings no register.
    fn read_posted(&mut self, number: u32) -> Result<(), Syndrome> {
        let Some(srq) = self.objects.srqs.get_mut(number) else { return Ok(()) };
        let mut word = [0; 4];
        if let Err(fault) = self.memory.read(srq.record, &mut word) {
            tracing::error!(srq = number, %fault, "the doorbell record of an SRQ is not there");
            self.complaints.unmapped_queues += 1;
            return Err(self.fail_srq(number));
        }
        let before = srq.queue.producer;
        srq.queue.producer = u32::from_be_bytes(word) as u16;
        if before != srq.queue.producer && u32::from(srq.queue.posted()) > srq.queue.wqes {
            tracing::warn!(srq = number, "more receives are posted than the SRQ holds");
            self.complaints.overfull_queues += 1;
        }
        Ok(())
    }

    fn check_limit(&mut self, number: u32) {
        let Some(srq) = self.objects.srqs.get_mut(number) else { return };
        if !srq.failed && srq.queue.posted() < srq.limit {
            srq.limit = 0;
            self.srq_event(number, SrqEvent::LimitReached);
        }
    }

    fn fail_srq(&mut self, number: u32) -> Syndrome {
        let Some(srq) = self.objects.srqs.get_mut(number) else {
            return Syndrome::LocalQpOperation;
        };
        if !srq.failed {
            srq.failed = true;
            self.srq_event(number, SrqEvent::Catastrophic);
        }
        Syndrome::LocalQpOperation
    }
}

#[cfg(test)]
mod tests;
