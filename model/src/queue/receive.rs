//! Taking from receive queues.

use mlx5_sys::ifc::qpc;

use super::shared::NEXT;
use super::{Domain, ReceiveWqe, Syndrome};
use crate::card::{Card, Tapping};
use crate::object::State;
use crate::trace::{Observed, Queue};
use crate::work::list;

impl Card {
    /// Receives that are posted to a queue pair's own receive queue and not taken, as its doorbell
    /// record says now; `None` where it has none or the record cannot be read.
    pub(crate) fn posted_receives(&self, qp: u32) -> Option<u32> {
        let qp = self.objects.qps.get(&qp).filter(|qp| qp.rq.wqes > 0)?;
        let mut word = [0; 4];
        self.memory.read(qp.record(), &mut word).ok()?;
        let posted = (u32::from_be_bytes(word) as u16).wrapping_sub(qp.rq.taken);
        Some(u32::from(posted).min(qp.rq.wqes))
    }

    /// Takes the next receive WQE of a queue pair (or of the SRQ behind it); `None` where nothing is
    /// posted. Looks at the doorbell record when it has taken all it knew of: posting a receive
    /// rings no register.
    pub fn take_receive(&mut self, qp: u32) -> Result<Option<ReceiveWqe>, Syndrome> {
        let Some(qp) = self.objects.qps.get_mut(&qp) else { return Ok(None) };
        if qp.state == State::Reset {
            return Ok(None);
        }
        if let Some(srq) = qp.shared_receive() {
            let qp = qp.number;
            return self.take_shared(srq, qp);
        }
        if qp.rq.wqes == 0 {
            return Ok(None);
        }
        if qp.rq.taken == qp.rq.producer {
            let mut word = [0; 4];
            if let Err(fault) = self.memory.read(qp.record(), &mut word) {
                tracing::error!(qp = qp.number, %fault, "the doorbell record is not there");
                self.complaints.unmapped_queues += 1;
                return Err(Syndrome::LocalQpOperation);
            }
            qp.rq.producer = u32::from_be_bytes(word) as u16;
            if u32::from(qp.rq.producer.wrapping_sub(qp.rq.taken)) > qp.rq.wqes {
                tracing::warn!(qp = qp.number, "more receives are posted than the ring holds");
                self.complaints.overfull_queues += 1;
            }
            if qp.rq.taken == qp.rq.producer {
                return Ok(None);
            }
        }
        let index = qp.rq.taken;
        let stride = qp.rq.stride as usize;
        let slot = (u32::from(index) & (qp.rq.wqes - 1)) as usize * stride;
        let mut bytes = vec![0; stride];
        if let Err(fault) = qp.rq.pages.read(&*self.memory, slot, &mut bytes) {
            tracing::error!(qp = qp.number, %fault, "the receive queue is not there");
            self.complaints.unmapped_queues += 1;
            return Err(Syndrome::LocalQpOperation);
        }
        qp.rq.taken = index.wrapping_add(1);
        self.port.pace.take_receive(stride);
        if let Some(Tapping { tap, .. }) = &self.tapping {
            let (qp, bytes) = (qp.number, (&bytes).into());
            tap.observe(Observed::ReceiveWqe { qp, queue: Queue::Own, index, bytes });
        }
        let domain = Domain { pd: qp.get(qpc::PD), qp: qp.number };
        // Before the list of a WQE that packets share is room for the name of another, unused.
        let unused = if qp.strides().is_some() { NEXT } else { 0 };
        let data = list(&bytes[unused..]);
        Ok(Some(ReceiveWqe { index, domain, xrc_srq: None, data }))
    }
}

#[cfg(test)]
mod tests;
