//! Taking from receive queues.

use super::{Data, ReceiveWqe, Syndrome};
use crate::card::Card;
use crate::object::State;

/// The key that ends a receive list shorter than its WQE (`mlx5dv.h`, `MLX5_INVALID_LKEY`).
const END: u32 = 0x100;

/// What a byte count of zero stands for.
pub(super) const TWO_GIB: u32 = 0x8000_0000;

impl Card {
    /// Takes the next receive WQE of a queue pair (or of the SRQ behind it); `None` where nothing is
    /// posted. Looks at the doorbell record when it has taken all it knew of: posting a receive
    /// rings no register.
    pub fn take_receive(&mut self, qp: u32) -> Result<Option<ReceiveWqe>, Syndrome> {
        let Some(qp) = self.objects.qps.get_mut(&qp) else { return Ok(None) };
        if qp.state == State::Reset || qp.rq.wqes == 0 {
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
        Ok(Some(ReceiveWqe { index, data: list(&bytes) }))
    }
}

/// The scatter list of a receive WQE.
fn list(bytes: &[u8]) -> Vec<Data> {
    let mut data = Vec::new();
    for segment in bytes.chunks_exact(16) {
        let word = |at: usize| {
            u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]])
        };
        let (length, key) = (word(0), word(4));
        if key == END {
            break;
        }
        let address = u64::from(word(8)) << 32 | u64::from(word(12));
        let length = if length == 0 { TWO_GIB } else { length };
        data.push(Data::Pointer { length, key, address });
    }
    data
}
