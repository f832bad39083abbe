//! Completions and events held back until earlier packets are sent.

use crate::work::{Completion, Opcode, Origin, QpEvent, Seen, Syndrome, Tagged, Taken};

/// A [`Completion`] that owns its payload.
#[derive(Clone, Debug)]
pub struct Held {
    /// Queue pair.
    pub qp: u32,
    /// Queue.
    pub origin: Origin,
    /// Counter of the WQE.
    pub wqe: u16,
    /// The XRC SRQ that it was taken from.
    pub xrc_srq: Option<u32>,
    /// How it ended.
    pub result: Result<(), Syndrome>,
    /// Bytes moved.
    pub length: u32,
    /// Immediate data.
    pub immediate: [u8; 4],
    /// Whether the event is solicited.
    pub solicited: bool,
    /// Payload for the CQE itself.
    pub inline: Option<Vec<u8>>,
    /// The peer's LID and service level.
    pub source: (u16, u8),
    /// A datagram's sender, and whether it came with a GRH.
    pub sender: Option<(u32, bool)>,
    /// Of a frame of Ethernet: what is said of its headers.
    pub ethernet: Option<Seen>,
    /// Of a queue that matches tags: what is said of them.
    pub tagged: Option<Tagged>,
}

impl Held {
    /// A completion that says no more than how a WQE ended.
    pub fn new(qp: u32, origin: Origin, wqe: u16, result: Result<(), Syndrome>) -> Self {
        Self {
            qp,
            origin,
            wqe,
            xrc_srq: None,
            result,
            length: 0,
            immediate: [0; 4],
            solicited: false,
            inline: None,
            source: (0, 0),
            sender: None,
            ethernet: None,
            tagged: None,
        }
    }

    /// A completion of a queue that matches tags.
    pub fn tagged(qp: u32, tagged: Tagged) -> Self {
        let held = Self::new(qp, Origin::Responder(Opcode::Send), 0, Ok(()));
        Self { xrc_srq: Some(tagged.srq), tagged: Some(tagged), ..held }
    }

    /// A receive's completion.
    pub fn received(qp: u32, kind: Opcode, taken: Taken, result: Result<(), Syndrome>) -> Self {
        let held = Self::new(qp, Origin::Responder(kind), taken.index, result);
        Self { xrc_srq: taken.xrc_srq, ..held }
    }

    /// What the queue is told.
    pub fn completion(&self) -> Completion<'_> {
        Completion {
            qp: self.qp,
            origin: self.origin,
            wqe: self.wqe,
            xrc_srq: self.xrc_srq,
            result: self.result,
            length: self.length,
            immediate: self.immediate,
            solicited: self.solicited,
            inline: self.inline.as_deref(),
            source: self.source,
            sender: self.sender,
            ethernet: self.ethernet,
            tagged: self.tagged,
        }
    }
}

/// What software will see.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A CQE.
    Completion(Held),
    /// An EQE.
    Event(u32, QpEvent),
}
