//! Writing CQEs, and the events that follow.

use mlx5_sys::ifc::qpc;

use super::event::COUNTER;
use super::{Completion, Opcode, Origin};
use crate::card::Card;
use crate::object::{CQE, Entry, Srq};

/// CQE opcodes (`mlx5dv.h`, `MLX5_CQE_*`).
mod opcode {
    pub const REQUESTER: u8 = 0;
    pub const WRITE_IMMEDIATE: u8 = 1;
    pub const SEND: u8 = 2;
    pub const SEND_IMMEDIATE: u8 = 3;
    pub const SEND_INVALIDATE: u8 = 4;
    pub const NO_PACKET: u8 = 6;
    pub const REQUESTER_ERROR: u8 = 13;
    pub const RESPONDER_ERROR: u8 = 14;
}

impl Card {
    /// Writes the CQE of a completion to the queue's CQ, and the event it is armed for. What that
    /// means for queue pairs is left to [`Card::follow_up`].
    pub(crate) fn write_completion(&mut self, completion: &Completion) {
        let Some(qp) = self.objects.qps.get(&completion.qp) else { return };
        let requester = matches!(completion.origin, Origin::Requester { .. });
        let mut cqn = qp.get(if requester { qpc::CQN_SND } else { qpc::CQN_RCV });
        let mut user_index = qp.get(qpc::USER_INDEX);
        if let Some(number) = completion.xrc_srq {
            let Some(own) = self.objects.srqs.get(number).and_then(Srq::completes) else { return };
            (cqn, user_index) = own;
        }
        let peer = qp.get(qpc::REMOTE_QPN);
        let room = self.inline_room(completion.qp, requester);
        self.count_error(completion);

        let mut entry: Entry = [0; 128];
        let (before, cqe) = entry.split_at_mut(CQE);
        cqe[32..36].copy_from_slice(&user_index.to_be_bytes());
        let mut wqe_opcode = 0;
        let mut code = match (completion.result, completion.origin) {
            (result, Origin::Requester { opcode }) => {
                wqe_opcode = opcode;
                if result.is_ok() { opcode::REQUESTER } else { opcode::REQUESTER_ERROR }
            }
            (Err(_), Origin::Responder(_)) => opcode::RESPONDER_ERROR,
            (Ok(()), Origin::Responder(opcode)) => match opcode {
                Opcode::WriteImmediate => opcode::WRITE_IMMEDIATE,
                Opcode::Send => opcode::SEND,
                Opcode::SendImmediate => opcode::SEND_IMMEDIATE,
                Opcode::SendInvalidate => opcode::SEND_INVALIDATE,
            },
        };
        match completion.result {
            Ok(()) => {
                if !requester {
                    let (lid, sl) = completion.source;
                    cqe[22..24].copy_from_slice(&lid.to_be_bytes());
                    // CQEs of a connection's packets never report a GRH, whatever the path:
                    // rdma-core's tests of tag matching expect that.
                    let (peer, grh) = completion.sender.unwrap_or((peer, false));
                    let flags = u32::from(grh) << 28 | u32::from(sl & 0xf) << 24 | peer & COUNTER;
                    cqe[24..28].copy_from_slice(&flags.to_be_bytes());
                    cqe[36..40].copy_from_slice(&completion.immediate);
                }
                cqe[44..48].copy_from_slice(&completion.length.to_be_bytes());
                cqe[48..56].copy_from_slice(&self.clock.now().to_be_bytes());
            }
            Err(syndrome) => {
                cqe[54] = syndrome.vendor_code();
                cqe[55] = syndrome as u8;
            }
        }
        // After the fields: a payload of format 1 takes the place of LID and source QP.
        let mut format = 0;
        if let (Ok(()), Some(data)) = (completion.result, &completion.inline) {
            match data.len() {
                0 => {}
                n if n <= 32.min(room) => {
                    cqe[..n].copy_from_slice(data);
                    format = 1;
                }
                n if n <= room => {
                    before[..n].copy_from_slice(data);
                    format = 2;
                }
                n => tracing::error!(n, room, "a payload does not fit a CQE"),
            }
        }
        let origin = u32::from(wqe_opcode) << 24 | completion.qp & COUNTER;
        cqe[56..60].copy_from_slice(&origin.to_be_bytes());
        cqe[60..62].copy_from_slice(&completion.wqe.to_be_bytes());
        if let (Ok(()), Some(seen)) = (completion.result, completion.ethernet) {
            seen.write(cqe);
        }
        if let (Ok(()), Some(tagged)) = (completion.result, completion.tagged) {
            tagged.write(cqe);
            if tagged.event.is_bare() {
                code = opcode::NO_PACKET;
            }
        }
        let solicited = completion.solicited && completion.result.is_ok();
        cqe[63] = code << 4 | format << 2 | u8::from(solicited) << 1;
        self.post_cqe(cqn, &mut entry, solicited || completion.result.is_err());
    }

    /// How many bytes of payload the queue's CQEs can carry themselves: 0, 32 or 64. A payload
    /// that fits goes into [`Completion::inline`] and nowhere else. Asks for the receive queue
    /// (SENDs) or, with `requester`, for READ and atomic answers; a request that writes no CQE
    /// scatters to memory all the same.
    pub fn inline_room(&self, qp: u32, requester: bool) -> usize {
        let Some(qp) = self.objects.qps.get(&qp) else { return 0 };
        let (mode, cqn) = if requester {
            (qp.get(qpc::CS_REQ), qp.get(qpc::CQN_SND))
        } else {
            (qp.get(qpc::CS_RES), qp.get(qpc::CQN_RCV))
        };
        let cqe_size = self.objects.cqs.get(cqn).map_or(0, |cq| cq.cqe_size);
        // `qp.h`: MLX5_REQ_SCAT_DATA32_CQE, …DATA64_CQE, MLX5_RES_SCAT_DATA32_CQE, …DATA64_CQE.
        match (mode, requester, cqe_size) {
            (0x22, true, 128) | (0x2, false, 128) => 64,
            (0x11, true, _) | (0x1, false, _) => 32,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{cqc, create_cq_in, create_qp_in};

    use super::super::Syndrome;
    use super::super::test::Queue;
    use super::*;

    #[test]
    fn a_requester_cqe_has_its_fields_in_place() {
        let mut queue = Queue::new();
        queue.rig.card.clock.advance(0x0102_0304);
        queue.rig.card.complete(&queue.sent(0xabcd, Ok(())));
        let cqe = queue.cqe(0);
        assert_eq!(cqe[32..36], [0, 0xab, 0xcd, 0xef]);
        assert_eq!(cqe[44..48], [0, 0, 0x12, 0x34]);
        assert_eq!(cqe[48..56], [0, 0, 0, 0, 1, 2, 3, 4]);
        assert_eq!(cqe[56..60], [0x0a, 0, 0x12, 0]);
        assert_eq!(cqe[60..62], [0xab, 0xcd]);
        assert_eq!(cqe[63], 0x00);
        assert_eq!(cqe[..32], [0; 32]);
    }

    #[test]
    fn a_responder_cqe_has_its_fields_in_place() {
        let mut queue = Queue::new();
        queue.rig.card.complete(&queue.received(true));
        let cqe = queue.cqe(0);
        assert_eq!(cqe[22..24], [0x11, 0x22]);
        assert_eq!(cqe[24..28], [0x05, 0, 0x12, 0]);
        assert_eq!(cqe[36..40], [9; 4]);
        assert_eq!(cqe[56..60], [0, 0, 0x12, 0]);
        assert_eq!(cqe[60..62], [0, 3]);
        assert_eq!(cqe[63], 0x32);
    }

    #[test]
    fn a_datagrams_cqe_names_its_sender() {
        let mut queue = Queue::new();
        let datagram = Completion { sender: Some((0xfe_dcba, true)), ..queue.received(false) };
        queue.rig.card.complete(&datagram);
        let cqe = queue.cqe(0);
        assert_eq!(cqe[22..24], [0x11, 0x22]);
        assert_eq!(cqe[24..28], [0x15, 0xfe, 0xdc, 0xba]);
    }

    #[test]
    fn error_cqes_name_syndrome_and_wqe() {
        let mut queue = Queue::new();
        queue.rig.card.complete(&queue.sent(5, Err(Syndrome::RemoteAccess)));
        let failed = Completion { result: Err(Syndrome::LocalLength), ..queue.received(true) };
        queue.rig.card.complete(&failed);
        let cqe = queue.cqe(0);
        assert_eq!(cqe[32..36], [0, 0xab, 0xcd, 0xef]);
        assert_eq!(cqe[54..56], [0x88, 0x13]);
        assert_eq!(cqe[56..62], [0x0a, 0, 0x12, 0, 0, 5]);
        assert_eq!(cqe[63], 0xd0);
        let cqe = queue.cqe(1);
        assert_eq!(cqe[54..56], [0, 0x01]);
        assert_eq!(cqe[63], 0xe0);
    }

    #[test]
    fn small_payloads_ride_in_the_cqe() {
        let data: Vec<u8> = (1..=64).collect();
        let field = |f: mlx5_sys::ifc::Field| f.within(create_qp_in::QPC);
        let mut queue = Queue::with(
            |cq| cq,
            |qp| qp.set(field(qpc::CS_RES), 1u64).set(field(qpc::CS_REQ), 0x11u64),
        );
        assert_eq!(queue.rig.card.inline_room(queue.qp, false), 32);
        assert_eq!(queue.rig.card.inline_room(queue.qp, true), 32);
        let one = Completion { inline: Some(data[..32].to_vec()), ..queue.received(false) };
        queue.rig.card.complete(&one);
        assert_eq!(queue.cqe(0)[..32], data[..32]);
        assert_eq!(queue.cqe(0)[63], 0x34);

        let mut queue = Queue::with(
            |cq| {
                let size = cqc::CQE_SZ.within(create_cq_in::CQ_CONTEXT);
                cq.set(size, 1u64).set(cqc::LOG_CQ_SIZE.within(create_cq_in::CQ_CONTEXT), 3u64)
            },
            |qp| qp.set(field(qpc::CS_RES), 2u64).set(field(qpc::CS_REQ), 0x22u64),
        );
        assert_eq!(queue.rig.card.inline_room(queue.qp, true), 64);
        let answer = Completion { inline: Some(data.clone()), ..queue.sent(1, Ok(())) };
        queue.rig.card.complete(&answer);
        assert_eq!(queue.cqe(0)[..], data);
        assert_eq!(queue.cqe(1)[63], 0x08);
        let small = Completion { inline: Some(data[..8].to_vec()), ..queue.sent(2, Ok(())) };
        queue.rig.card.complete(&small);
        assert_eq!(queue.cqe(3)[..8], data[..8]);
        assert_eq!(queue.cqe(3)[63], 0x04);
        assert_eq!(queue.rig.card.inline_room(queue.qp + 1, true), 0);
    }
}
