//! Building request packets.

use super::super::{Parameters, Psn};
use super::requester::{Kind, Requester};
use super::to_peer;
use crate::card::Card;
use crate::queue::{Protection, Syndrome};
use crate::wire::{AtomicEth, Opcode, Reth};

impl Requester {
    /// Sends the packet at the cursor of a SEND or WRITE. `false` if its memory is not there.
    pub(super) fn send_packet(&mut self, card: &mut Card, own: &Parameters) -> bool {
        let is_limited = self.sent == 0 && self.is_limited();
        let request = &mut self.requests[self.cursor];
        let index = self.sent;
        let (starts, ends) = (index == 0, index + 1 == request.packets);
        let offset = u64::from(index) * u64::from(own.mtu);
        let length = (request.length - offset).min(own.mtu.into()) as usize;
        let opcode = match request.kind {
            Kind::Write { immediate } => Opcode::write(starts, ends, immediate),
            Kind::Send { immediate } => Opcode::send(starts, ends, immediate),
            Kind::SendInvalidate => Opcode::send(starts, ends, false).invalidating(),
            Kind::Connect => Opcode::Connect,
            _ => return false,
        };
        let psn = request.first.plus(index);
        let mut header = to_peer(own, opcode, psn);
        header.xrc_srq = request.wqe.xrc_srq;
        header.solicited = ends && request.wqe.solicited;
        header.ack_request = ends || is_limited || index % own.ack_interval == own.ack_interval - 1;
        header.immediate = opcode.has_immediate().then_some(request.wqe.immediate);
        if let (true, Some(remote)) = (opcode.has_reth(), request.wqe.remote) {
            header.reth = Some(Reth {
                address: remote.address,
                key: remote.key,
                length: request.length as u32,
            });
        }
        let data = &request.wqe.data;
        let frame = header.frame_in(card.spare(), length, |to| {
            if to.is_empty() { Ok(()) } else { card.gather(own.domain(), data, offset, to) }
        });
        match frame {
            Ok(frame) => card.send(frame),
            Err(denied) => {
                let protection = Protection::Gather(denied);
                request.kind = Kind::Failed(Syndrome::LocalProtection(protection));
                return false;
            }
        }
        self.note_sent(psn.plus(1));
        self.sent += 1;
        if ends {
            self.cursor += 1;
            self.sent = 0;
        }
        true
    }

    /// Sends the READ or atomic request at the cursor; of a READ only what is not answered yet.
    pub(super) fn send_fetch(&mut self, card: &mut Card, own: &Parameters) {
        let request = &mut self.requests[self.cursor];
        request.asked = request.answered;
        let request = &*request;
        let psn = request.first.plus(request.answered);
        let remote = request.wqe.remote.unwrap_or(crate::queue::Remote { address: 0, key: 0 });
        let opcode = match request.kind {
            Kind::CompareSwap => Opcode::CompareSwap,
            Kind::FetchAdd => Opcode::FetchAdd,
            Kind::Masked { swap: true } => Opcode::MaskedCompareSwap,
            Kind::Masked { swap: false } => Opcode::MaskedFetchAdd,
            _ => Opcode::ReadRequest,
        };
        let mut header = to_peer(own, opcode, psn);
        header.xrc_srq = request.wqe.xrc_srq;
        let mut operands: &[u8] = &[];
        if let Some(masked) = request.wqe.masked.as_ref().filter(|_| opcode.has_masked()) {
            let (address, key) = (remote.address, remote.key);
            header.reth = Some(Reth { address, key, length: masked.size as u32 });
            operands = &masked.operands;
        } else if opcode == Opcode::ReadRequest {
            let done = u64::from(request.answered) * u64::from(own.mtu);
            header.reth = Some(Reth {
                address: remote.address.wrapping_add(done),
                key: remote.key,
                length: (request.length - done) as u32,
            });
        } else if let Some(atomic) = request.wqe.atomic {
            header.atomic = Some(AtomicEth {
                address: remote.address,
                key: remote.key,
                swap_or_add: atomic.swap_or_add,
                compare: atomic.compare,
            });
        }
        let end = request.first.plus(request.packets);
        let Ok(frame) = header.frame(operands.len(), |to| {
            to.copy_from_slice(operands);
            Ok::<_, std::convert::Infallible>(())
        });
        card.send(frame);
        self.note_sent(end);
        self.cursor += 1;
        self.sent = 0;
    }

    pub(super) fn note_sent(&mut self, end: Psn) {
        if end.after(self.unacknowledged) > self.high.after(self.unacknowledged) {
            self.high = end;
        }
    }
}
