//! Writing CQEs, and the events that follow.

use mlx5_sys::ifc::qpc;

use super::event::COUNTER;
use super::{Completion, Opcode, Origin, Syndrome};
use crate::card::Card;
use crate::cost::Failure;
use crate::object::{CQE, Entry, Service, Srq, State};
use crate::work::TAGGED;

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

/// `ts_format` of a queue: seconds and nanoseconds.
const REAL_TIME: u32 = 2;
/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

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
        match completion.result {
            Err(syndrome) if requester => {
                self.port.pace.fails(completion.qp, cqn, failure(syndrome));
            }
            _ => self.port.pace.completes(cqn),
        }
        let peer = qp.get(qpc::REMOTE_QPN);
        let format = qp.get(qpc::TS_FORMAT);
        let is_ethernet = qp.service == Service::Ethernet;
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
                    if let Some(tag) = completion.tag {
                        // Linux, `handle_responder` of mlx5_ib.
                        cqe[29] |= TAGGED;
                        cqe[30..32].copy_from_slice(&tag.control().to_be_bytes());
                    }
                }
                cqe[44..48].copy_from_slice(&completion.length.to_be_bytes());
                cqe[48..56].copy_from_slice(&self.stamp(format).to_be_bytes());
            }
            Err(syndrome) => {
                cqe[52..56].copy_from_slice(&syndrome.codes());
                self.note_failure(completion.qp, syndrome);
            }
        }
        // After the fields: a payload of format 1 takes the place of LID and source QP.
        let mut inline = 0;
        if let (Ok(()), Some(data)) = (completion.result, &completion.inline) {
            let mut data = data.clone();
            // In a CQE, this answer is most significant byte first whatever its order in memory (UCX,
            // `rc_mlx5_iface.c`: "to still treat the response as big-endian when it arrives in the CQE").
            if requester && data.len() == 8 && is_atomic(wqe_opcode) {
                data.reverse();
            }
            match data.len() {
                0 => {}
                n if n <= 32.min(room) => {
                    cqe[..n].copy_from_slice(&data);
                    inline = 1;
                }
                n if n <= room => {
                    before[..n].copy_from_slice(&data);
                    inline = 2;
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
        let failed = completion.result.is_err();
        let solicited = completion.solicited && !failed;
        // Dumps of devices have the solicited bit in each error CQE but those of Ethernet receive
        // queues (E028, E029, F031).
        let marked = solicited || failed && (requester || !is_ethernet);
        cqe[63] = code << 4 | inline << 2 | u8::from(marked) << 1;
        if failed {
            cqe[62] = signature(cqe);
        }
        self.post_cqe(cqn, &mut entry, solicited || failed);
    }

    /// Notes why a queue pair failed, if it did: a failed stream leaves it in its state.
    fn note_failure(&mut self, qp: u32, syndrome: Syndrome) {
        let Some(qp) = self.objects.qps.get_mut(&qp) else { return };
        let stopped = matches!(qp.state, State::Error | State::SqError);
        if stopped && !matches!(syndrome, Syndrome::Flushed(_)) {
            qp.note_failure(syndrome.codes());
        }
    }

    /// Returns the present time in a queue's `ts_format`. Real time is that of a PTP clock that was
    /// never set: the time since the device was created.
    pub(crate) fn stamp(&self, format: u32) -> u64 {
        let now = self.clock.now();
        if format == REAL_TIME {
            return (now / SECOND) << 32 | (now % SECOND);
        }
        self.identity.profile.ticks(now)
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

/// Returns what an error CQE of a send WQE is in virtual time.
fn failure(syndrome: Syndrome) -> Failure {
    match syndrome {
        Syndrome::Flushed(_) => Failure::Flush,
        Syndrome::LocalProtection(_) => Failure::Protection,
        _ => Failure::Other,
    }
}

/// Returns the signature byte of an error CQE.
///
/// How devices compute it is not known. It is no XOR of the other bytes, and never 0 in a dump (E032).
fn signature(cqe: &[u8]) -> u8 {
    let sum = cqe.iter().fold(0x55_u8, |sum, byte| sum.rotate_left(3).wrapping_add(*byte));
    sum.max(1)
}

/// Returns whether a send WQE's opcode is that of an atomic.
fn is_atomic(code: u8) -> bool {
    use mlx5_sys::wqe::opcode::{ATOMIC_CS, ATOMIC_FA, ATOMIC_MASKED_CS, ATOMIC_MASKED_FA};
    matches!(code, ATOMIC_CS | ATOMIC_FA | ATOMIC_MASKED_CS | ATOMIC_MASKED_FA)
}

#[cfg(test)]
mod tests;
