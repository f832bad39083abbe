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
mod tests {
    use mlx5_sys::ifc::{create_qp_in, create_qp_out, qpc};

    use super::super::Data;
    use super::*;
    use crate::command::test::{BASE, Rig, SIZE, ring};
    use crate::work::END;

    fn segment(length: u32, key: u32, address: u64) -> Vec<u8> {
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&address.to_be_bytes());
        bytes
    }

    #[test]
    fn receives_are_taken_in_order_as_the_record_tells() {
        let mut rig = Rig::new();
        let cq = rig.cq();
        let create = rig.create_qp(cq, cq);
        let qp = rig.number(&create, create_qp_out::QPN);
        let record = qpc::DBR_ADDR.within(create_qp_in::QPC).get(&create.0);
        let queue = ring(&create);
        // WQEs of 32 bytes: a full list, a short one, one of 2 GiB.
        rig.write(queue, &[segment(16, 1, 2), segment(32, 3, 4)].concat());
        rig.write(queue + 32, &[segment(64, 5, 6), segment(0, END, 0)].concat());
        rig.write(queue + 64, &[segment(0, 7, 8), segment(0, END, 0)].concat());
        rig.write(record, &[0, 0, 0, 2]);
        // Nothing can be taken in Reset.
        assert_eq!(rig.card.take_receive(qp), Ok(None));
        rig.rts(qp);
        let pointer = |length, key, address| Data::Pointer { length, key, address };
        let one = rig.card.take_receive(qp).unwrap().unwrap();
        let domain = Domain { pd: rig.pd, qp };
        assert_eq!(
            one,
            ReceiveWqe {
                index: 0,
                domain,
                xrc_srq: None,
                data: vec![pointer(16, 1, 2), pointer(32, 3, 4)]
            }
        );
        let two = rig.card.take_receive(qp).unwrap().unwrap();
        assert_eq!(
            two,
            ReceiveWqe { index: 1, domain, xrc_srq: None, data: vec![pointer(64, 5, 6)] }
        );
        assert_eq!(rig.card.take_receive(qp), Ok(None));
        // The ring has eight: the ninth is in the first's place.
        rig.write(record, &[0, 0, 0, 9]);
        let three = rig.card.take_receive(qp).unwrap().unwrap();
        assert_eq!(three.data, [pointer(1 << 31, 7, 8)]);
        for _ in 3..8 {
            rig.card.take_receive(qp).unwrap().unwrap();
        }
        let nine = rig.card.take_receive(qp).unwrap().unwrap();
        assert_eq!((nine.index, nine.data.len()), (8, 2));
        assert_eq!(rig.card.take_receive(qp), Ok(None));
        assert_eq!(rig.card.complaints, crate::card::Complaints::default());
        rig.write(record, &[0, 0, 0, 18]);
        rig.card.take_receive(qp).unwrap().unwrap();
        assert_eq!(rig.card.complaints.overfull_queues, 1);
    }

    #[test]
    fn a_queue_that_is_not_there_is_an_error() {
        let mut rig = Rig::new();
        let cq = rig.cq();
        let gone = BASE + SIZE as u64;
        let create = rig.create_qp(cq, cq).set(qpc::DBR_ADDR.within(create_qp_in::QPC), gone);
        let qp = rig.number(&create, create_qp_out::QPN);
        rig.rts(qp);
        assert_eq!(rig.card.take_receive(qp), Err(Syndrome::LocalQpOperation));
        assert_eq!(rig.card.complaints.unmapped_queues, 1);
        assert_eq!(rig.card.take_receive(qp + 1), Ok(None));
    }
}
