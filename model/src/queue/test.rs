//! A queue pair and its CQ, for tests of written CQEs.

use mlx5_sys::ifc::{cqc, create_cq_in, create_cq_out, create_qp_out};

use super::{Completion, Opcode, Origin, Syndrome};
use crate::command::test::{Command, Rig, ring};

/// A queue pair in RTS, its CQ, and where the CQ's ring and record are.
pub struct Queue {
    pub rig: Rig,
    pub qp: u32,
    pub cq: u32,
    pub ring: u64,
    pub record: u64,
}

impl Queue {
    pub fn new() -> Self {
        Self::with(|cq| cq, |qp| qp)
    }

    pub fn with(cq: impl Fn(Command) -> Command, qp: impl Fn(Command) -> Command) -> Self {
        let mut rig = Rig::new();
        let create = cq(rig.create_cq());
        let number = rig.number(&create, create_cq_out::CQN);
        let record = cqc::DBR_ADDR.within(create_cq_in::CQ_CONTEXT).get(&create.0);
        let made = qp(rig.create_qp(number, number));
        let qp = rig.number(&made, create_qp_out::QPN);
        rig.rts(qp);
        Self { rig, qp, cq: number, ring: ring(&create), record }
    }

    pub fn sent(&self, wqe: u16, result: Result<(), Syndrome>) -> Completion {
        Completion {
            length: 0x1234,
            immediate: [9; 4],
            ..Completion::sent(self.qp, 0x0a, wqe, result)
        }
    }

    pub fn received(&self, solicited: bool) -> Completion {
        Completion {
            origin: Origin::Responder(Opcode::SendImmediate),
            solicited,
            source: (0x1122, 5),
            ..self.sent(3, Ok(()))
        }
    }

    pub fn cqe(&self, slot: u64) -> [u8; 64] {
        self.rig.read(self.ring + slot * 64)
    }

    pub fn arm(&mut self, sequence: u32, solicited: bool, consumer: u32) {
        let word = sequence << 28 | u32::from(solicited) << 24 | consumer;
        let bytes = (u64::from(word) << 32 | u64::from(self.cq)).to_be_bytes();
        let uar = self.rig.uar;
        self.rig.card.store(uar, 0x20, &bytes);
    }

    /// How many EQEs have been written.
    pub fn events(&self) -> u32 {
        self.rig.card.objects.eqs.get(self.rig.eq).unwrap().producer
    }
}
