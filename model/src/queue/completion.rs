//! Writing CQEs and the events that follow.

use mlx5_sys::ifc::{ads, cqc, qpc};

use super::Syndrome;
use super::event::{COUNTER, CqFailure, QpEvent};
use crate::card::Card;
use crate::object::{Arm, Pages, State};

/// Which queue a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The send queue; `opcode` is the WQE's.
    Requester {
        /// The WQE's opcode byte.
        opcode: u8,
    },
    /// The receive queue.
    Responder(Opcode),
}

/// What a receive completion reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// RDMA WRITE with immediate.
    WriteImmediate,
    /// SEND.
    Send,
    /// SEND with immediate.
    SendImmediate,
    /// SEND with invalidate.
    SendInvalidate,
}

/// One completion, as the transport knows it.
#[derive(Clone, Debug)]
pub struct Completion<'a> {
    /// Queue pair.
    pub qp: u32,
    /// Queue.
    pub origin: Origin,
    /// Counter of the WQE.
    pub wqe: u16,
    /// How it ended.
    pub result: Result<(), Syndrome>,
    /// Bytes moved.
    pub length: u32,
    /// Immediate data or invalidated key, as on the wire.
    pub immediate: [u8; 4],
    /// Whether the peer asked for a solicited event.
    pub solicited: bool,
    /// Payload, where the queue scatters small payloads into the CQE.
    pub inline: Option<&'a [u8]>,
    /// The peer's LID and service level, where the packet said.
    pub source: (u16, u8),
}

/// CQE opcodes (`mlx5dv.h`, `MLX5_CQE_*`).
mod opcode {
    pub const REQUESTER: u8 = 0;
    pub const WRITE_IMMEDIATE: u8 = 1;
    pub const SEND: u8 = 2;
    pub const SEND_IMMEDIATE: u8 = 3;
    pub const SEND_INVALIDATE: u8 = 4;
    pub const RESIZE: u8 = 5;
    pub const REQUESTER_ERROR: u8 = 13;
    pub const RESPONDER_ERROR: u8 = 14;
}

/// A CQE before it has its place: bytes 64 to 127 are the CQE of 64 bytes, those before it exist
/// only where CQEs have 128.
pub(super) type Entry = [u8; 128];

/// Offset of the CQE of 64 bytes in an [`Entry`].
const CQE: usize = 64;

impl Card {
    /// Writes the CQE of a completion to the queue's CQ, and the event it is armed for. An overrun
    /// puts the CQ and its queue pairs in error, with an async event, as a card does.
    pub fn complete(&mut self, completion: &Completion<'_>) {
        let Some(qp) = self.objects.qps.get(&completion.qp) else { return };
        let requester = matches!(completion.origin, Origin::Requester { .. });
        let cqn = qp.get(if requester { qpc::CQN_SND } else { qpc::CQN_RCV });
        let room = self.inline_room(completion.qp, requester);

        let mut entry: Entry = [0; 128];
        let (before, cqe) = entry.split_at_mut(CQE);
        let mut format = 0;
        if let (Ok(()), Some(data)) = (completion.result, completion.inline) {
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
        cqe[32..36].copy_from_slice(&qp.get(qpc::USER_INDEX).to_be_bytes());
        let mut wqe_opcode = 0;
        let code = match (completion.result, completion.origin) {
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
                    let grh = qp.get(ads::GRH.within(qpc::PRIMARY_ADDRESS_PATH));
                    let flags =
                        grh << 28 | u32::from(sl & 0xf) << 24 | qp.get(qpc::REMOTE_QPN) & COUNTER;
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
        let origin = u32::from(wqe_opcode) << 24 | completion.qp & COUNTER;
        cqe[56..60].copy_from_slice(&origin.to_be_bytes());
        cqe[60..62].copy_from_slice(&completion.wqe.to_be_bytes());
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

    /// Puts a CQE in its place, owner bit included; `urgent` ones are those that solicited arms
    /// wait for.
    pub(super) fn post_cqe(&mut self, cqn: u32, entry: &mut Entry, urgent: bool) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        if cq.failed {
            return;
        }
        let full = |consumer: u32, producer: u32, entries: u32| {
            producer.wrapping_sub(consumer) & COUNTER >= entries
        };
        if cq.get(cqc::OI) == 0 && full(cq.consumer, cq.producer, cq.entries) {
            let mut record = [0; 4];
            match self.memory.read(cq.record(), &mut record) {
                Ok(()) => cq.consumer = u32::from_be_bytes(record) & COUNTER,
                Err(fault) => {
                    tracing::error!(cqn, %fault, "the doorbell record of a CQ is not there");
                    self.complaints.unmapped_queues += 1;
                }
            }
            if full(cq.consumer, cq.producer, cq.entries) {
                tracing::warn!(cqn, "a CQ overran");
                self.fail_cq(cqn, CqFailure::Overrun);
                return;
            }
        }
        entry[CQE + 63] = entry[CQE + 63] & !1 | u8::from(cq.producer & cq.entries != 0);
        let slot = (cq.producer & (cq.entries - 1)) as usize * cq.cqe_size;
        let bytes = if cq.cqe_size == 128 { &entry[..] } else { &entry[CQE..] };
        if let Err(fault) = cq.pages.publish(&*self.memory, slot, bytes) {
            tracing::error!(cqn, %fault, "the ring of a CQ is not there");
            self.complaints.unmapped_queues += 1;
            self.fail_cq(cqn, CqFailure::Access);
            return;
        }
        cq.producer = (cq.producer + 1) & COUNTER;
        if urgent {
            cq.solicited = cq.producer;
        }
        match cq.armed {
            Some(Arm::Any) => self.fire_cq(cqn),
            Some(Arm::Solicited) if urgent => self.fire_cq(cqn),
            _ => {}
        }
    }

    /// Moves a CQ to another ring: a last CQE in the old one says where the new one takes over.
    /// `false`, and nothing changed, where what is not yet taken does not fit either.
    pub(crate) fn resize_cq(&mut self, cqn: u32, pages: Pages, entries: u32) -> bool {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return false };
        let mut record = [0; 4];
        if self.memory.read(cq.record(), &mut record).is_err() {
            return false;
        }
        cq.consumer = u32::from_be_bytes(record) & COUNTER;
        let waiting = cq.producer.wrapping_sub(cq.consumer) & COUNTER;
        if waiting >= cq.entries || waiting >= entries {
            return false;
        }
        let mut entry: Entry = [0; 128];
        entry[CQE + 63] = opcode::RESIZE << 4;
        let (armed, solicited) = (cq.armed.take(), cq.solicited);
        let told = cq.notified == cq.producer;
        self.post_cqe(cqn, &mut entry, false);
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return false };
        // It is no completion: nobody waits for it.
        (cq.armed, cq.solicited) = (armed, solicited);
        if cq.failed {
            return false;
        }
        if told {
            cq.notified = cq.producer;
        }
        cq.pages = pages;
        cq.entries = entries;
        true
    }

    /// The arm word reached a CQ: `word` is what the register's upper half and the doorbell
    /// record's second word hold.
    pub(super) fn arm_cq(&mut self, cqn: u32, word: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        let sequence = (word >> 28 & 3) as u8;
        cq.arm_word = word;
        if cq.failed || cq.fired == Some(sequence) {
            // The event of this sequence number is on its way already.
            return;
        }
        let (arm, newest) = if word >> 24 & 1 == 1 {
            (Arm::Solicited, cq.solicited)
        } else {
            (Arm::Any, cq.producer)
        };
        cq.armed = Some(arm);
        // Completions the last event did not tell of and software has not taken yet. Counters
        // wrap, so "newer than" is "less than half the circle ahead".
        let newer = |than: u32| {
            let ahead = newest.wrapping_sub(than) & COUNTER;
            ahead != 0 && ahead <= COUNTER / 2
        };
        if newer(cq.notified) && newer(word & COUNTER) {
            self.fire_cq(cqn);
        }
    }

    fn fire_cq(&mut self, cqn: u32) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        cq.armed = None;
        cq.fired = Some((cq.arm_word >> 28 & 3) as u8);
        cq.notified = cq.producer;
        self.completion_event(cqn);
    }

    fn fail_cq(&mut self, cqn: u32, failure: CqFailure) {
        let Some(cq) = self.objects.cqs.get_mut(cqn) else { return };
        cq.failed = true;
        cq.armed = None;
        self.cq_error_event(cqn, failure);
        let mut users: Vec<u32> = self
            .objects
            .qps
            .values()
            .filter(|qp| !matches!(qp.state, State::Reset | State::Error))
            .filter(|qp| qp.get(qpc::CQN_SND) == cqn || qp.get(qpc::CQN_RCV) == cqn)
            .map(|qp| qp.number)
            .collect();
        users.sort_unstable();
        for qp in users {
            self.qp_event(qp, QpEvent::Catastrophic);
            self.fail(qp);
        }
    }
}
