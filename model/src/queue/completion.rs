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
        // After the fields: a payload of format 1 takes the place of LID and source QP.
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

#[cfg(test)]
mod tests {
    use mlx5_sys::ifc::{
        create_cq_in, create_cq_out, create_qp_in, create_qp_out, modify_cq_in, opcode as command,
    };

    use super::*;
    use crate::command::Refusal;
    use crate::command::test::{BASE, Command, Rig, SIZE, ring};

    /// A queue pair in RTS, its CQ, and where the CQ's ring and record are.
    struct Queue {
        rig: Rig,
        qp: u32,
        cq: u32,
        ring: u64,
        record: u64,
    }

    impl Queue {
        fn new() -> Self {
            Self::with(|cq| cq, |qp| qp)
        }

        fn with(cq: impl Fn(Command) -> Command, qp: impl Fn(Command) -> Command) -> Self {
            let mut rig = Rig::new();
            let create = cq(rig.create_cq());
            let number = rig.number(&create, create_cq_out::CQN);
            let record = cqc::DBR_ADDR.within(create_cq_in::CQ_CONTEXT).get(&create.0);
            let made = qp(rig.create_qp(number, number));
            let qp = rig.number(&made, create_qp_out::QPN);
            rig.rts(qp);
            Self { rig, qp, cq: number, ring: ring(&create), record }
        }

        fn sent(&self, wqe: u16, result: Result<(), Syndrome>) -> Completion<'static> {
            Completion {
                qp: self.qp,
                origin: Origin::Requester { opcode: 0x0a },
                wqe,
                result,
                length: 0x1234,
                immediate: [9; 4],
                solicited: false,
                inline: None,
                source: (0, 0),
            }
        }

        fn received(&self, solicited: bool) -> Completion<'static> {
            Completion {
                origin: Origin::Responder(Opcode::SendImmediate),
                solicited,
                source: (0x1122, 5),
                ..self.sent(3, Ok(()))
            }
        }

        fn cqe(&self, slot: u64) -> [u8; 64] {
            self.rig.read(self.ring + slot * 64)
        }

        fn arm(&mut self, sequence: u32, solicited: bool, consumer: u32) {
            let word = sequence << 28 | u32::from(solicited) << 24 | consumer;
            let bytes = (u64::from(word) << 32 | u64::from(self.cq)).to_be_bytes();
            let uar = self.rig.uar;
            self.rig.card.store(uar, 0x20, &bytes);
        }

        /// How many EQEs have been written.
        fn events(&self) -> u32 {
            self.rig.card.objects.eqs.get(self.rig.eq).unwrap().producer
        }
    }

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
    fn the_owner_bit_turns_with_the_ring() {
        let mut queue = Queue::new();
        for i in 0..40u32 {
            queue.rig.write(queue.record, &i.to_be_bytes());
            queue.rig.card.complete(&queue.sent(i as u16, Ok(())));
            let cqe = queue.cqe(u64::from(i % 16));
            assert_eq!(cqe[63] & 1, (i / 16 % 2) as u8);
            assert_eq!(cqe[61], i as u8);
        }
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
        let one = Completion { inline: Some(&data[..32]), ..queue.received(false) };
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
        let answer = Completion { inline: Some(&data), ..queue.sent(1, Ok(())) };
        queue.rig.card.complete(&answer);
        assert_eq!(queue.cqe(0)[..], data);
        assert_eq!(queue.cqe(1)[63], 0x08);
        let small = Completion { inline: Some(&data[..8]), ..queue.sent(2, Ok(())) };
        queue.rig.card.complete(&small);
        assert_eq!(queue.cqe(3)[..8], data[..8]);
        assert_eq!(queue.cqe(3)[63], 0x04);
        assert_eq!(queue.rig.card.inline_room(queue.qp + 1, true), 0);
    }

    #[test]
    fn an_armed_cq_tells_once() {
        let mut queue = Queue::new();
        let word = [0x40u64, 0x48].map(|_| queue.rig.eq << 24);
        queue.rig.card.store(queue.rig.uar, 0x40, &word[0].to_be_bytes());
        queue.rig.card.complete(&queue.sent(0, Ok(())));
        assert_eq!(queue.events(), 0);
        // What is there already and was not told of is told now.
        queue.arm(0, false, 0);
        assert_eq!(queue.events(), 1);
        let eqe: [u8; 64] = queue.rig.read(queue.rig.eq_ring);
        assert_eq!(eqe[1], 0);
        assert_eq!(eqe[0x38..0x3c], queue.cq.to_be_bytes());
        assert_eq!(eqe[0x3f], 0);
        assert_eq!(queue.rig.card.interrupts, [3]);
        // The same sequence number again is the same request.
        queue.arm(0, false, 0);
        queue.rig.card.complete(&queue.sent(1, Ok(())));
        assert_eq!(queue.events(), 1);
        // The completion that came between event and arm is newer than the event.
        queue.arm(1, false, 0);
        assert_eq!(queue.events(), 2);
        // All were told of, though none was taken.
        queue.arm(2, false, 0);
        assert_eq!(queue.events(), 2);
        queue.rig.card.complete(&queue.sent(2, Ok(())));
        assert_eq!(queue.events(), 3);
        // Newer than the last event, but taken already.
        queue.rig.card.complete(&queue.sent(3, Ok(())));
        queue.arm(3, false, 4);
        assert_eq!(queue.events(), 3);
        queue.rig.card.complete(&queue.sent(4, Ok(())));
        assert_eq!(queue.events(), 4);
    }

    #[test]
    fn solicited_arms_wait_for_solicited_completions_and_errors() {
        let mut queue = Queue::new();
        queue.arm(0, true, 0);
        queue.rig.card.complete(&queue.sent(0, Ok(())));
        queue.rig.card.complete(&queue.received(false));
        assert_eq!(queue.events(), 0);
        queue.rig.card.complete(&queue.received(true));
        assert_eq!(queue.events(), 1);
        queue.arm(1, true, 3);
        queue.rig.card.complete(&queue.sent(1, Err(Syndrome::Flushed)));
        assert_eq!(queue.events(), 2);
        queue.rig.card.complete(&queue.sent(2, Ok(())));
        queue.arm(2, true, 3);
        assert_eq!(queue.events(), 2);
    }

    /// A second EQ that listens for CQ and queue pair errors; returns where its ring is.
    fn listen(rig: &mut Rig) -> u64 {
        let create = rig
            .create_eq()
            .set(mlx5_sys::ifc::create_eq_in::EVENT_BITMASK, 1u64 << 4 | 1 << 5 | 1 << 0x10);
        rig.run(&create).unwrap();
        ring(&create)
    }

    #[test]
    fn an_overrun_fails_the_cq_and_its_queue_pairs() {
        let mut queue = Queue::new();
        let events = listen(&mut queue.rig);
        for i in 0..16 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        let before = queue.cqe(0);
        queue.rig.card.complete(&queue.sent(16, Ok(())));
        assert_eq!(queue.cqe(0), before);
        assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
        assert_eq!(queue.rig.card.objects.qps[&queue.qp].state, State::Error);
        let eqe: [u8; 64] = queue.rig.read(events);
        assert_eq!(eqe[1], 4);
        assert_eq!(eqe[0x20..0x24], queue.cq.to_be_bytes());
        assert_eq!(eqe[0x2b], 1);
        let eqe: [u8; 64] = queue.rig.read(events + 64);
        assert_eq!(eqe[1], 5);
        assert_eq!(eqe[0x34], 0);
        assert_eq!(eqe[0x38..0x3c], queue.qp.to_be_bytes());
        // Taking one now does not help.
        queue.rig.write(queue.record, &16u32.to_be_bytes());
        queue.rig.card.complete(&queue.sent(17, Ok(())));
        assert_eq!(queue.cqe(0), before);
    }

    #[test]
    fn a_cq_told_to_ignore_overruns_writes_on() {
        let mut queue =
            Queue::with(|cq| cq.set(cqc::OI.within(create_cq_in::CQ_CONTEXT), 1u64), |qp| qp);
        for i in 0..17 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        assert_eq!(queue.cqe(0)[60..64], [0, 16, 0, 1]);
    }

    #[test]
    fn a_ring_that_is_not_there_fails_the_cq() {
        let gone = BASE + SIZE as u64;
        let mut queue =
            Queue::with(|cq| cq.set(mlx5_sys::ifc::Field::new(0x110, 31, 64), gone), |qp| qp);
        queue.rig.card.complete(&queue.sent(0, Ok(())));
        assert!(queue.rig.card.objects.cqs.get(queue.cq).unwrap().failed);
        assert!(queue.rig.card.complaints.unmapped_queues > 0);
    }

    #[test]
    fn a_resize_marks_the_old_ring_and_goes_on_in_the_new() {
        let mut queue = Queue::new();
        for i in 0..3 {
            queue.rig.card.complete(&queue.sent(i, Ok(())));
        }
        let page = queue.rig.page();
        let log_size = cqc::LOG_CQ_SIZE.within(modify_cq_in::CQ_CONTEXT);
        let mut resize = Command::new(command::MODIFY_CQ, 0x110)
            .set(mlx5_sys::ifc::Field::new(4, 15, 16), 1u64)
            .set(modify_cq_in::CQN, queue.cq)
            .set(log_size, 5u64);
        resize.0.extend_from_slice(&page.to_be_bytes());
        let small = resize.clone().set(log_size, 1u64);
        assert_eq!(queue.rig.run(&small).err(), Some(Refusal::CqResize));
        queue.rig.run(&resize).unwrap();
        assert_eq!(queue.cqe(3)[63], 0x50);
        queue.rig.card.complete(&queue.sent(9, Ok(())));
        let cqe: [u8; 64] = queue.rig.read(page + 4 * 64);
        assert_eq!(cqe[60..64], [0, 9, 0, 0]);
        assert_eq!(queue.events(), 0);
    }
}
