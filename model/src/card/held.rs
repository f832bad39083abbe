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
    /// The XRC SRQ that the WQE was taken from.
    pub xrc_srq: Option<u32>,
    /// Result.
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
    /// Ethernet: fields of the frame's headers.
    pub ethernet: Option<Seen>,
    /// Tag-matching SRQ: the tag event.
    pub tagged: Option<Tagged>,
}

impl Held {
    /// Creates a completion that reports only the result of a WQE.
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

    /// Creates a completion of a tag-matching SRQ.
    pub fn tagged(qp: u32, tagged: Tagged) -> Self {
        let held = Self::new(qp, Origin::Responder(Opcode::Send), 0, Ok(()));
        Self { xrc_srq: Some(tagged.srq), tagged: Some(tagged), ..held }
    }

    /// Creates a completion of a receive.
    pub fn received(qp: u32, kind: Opcode, taken: Taken, result: Result<(), Syndrome>) -> Self {
        let held = Self::new(qp, Origin::Responder(kind), taken.index, result);
        Self { xrc_srq: taken.xrc_srq, ..held }
    }

    /// Returns the completion to write to the queue.
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

/// A result to show to software.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A CQE.
    Completion(Held),
    /// An EQE.
    Event(u32, QpEvent),
}
