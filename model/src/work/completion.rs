//! Completions, as the transport reports them.

use super::{QpEvent, Seen, Syndrome, Tagged, Taken};
use crate::wire::Tag;

/// The queue that a completion belongs to.
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

/// The operation that a receive completion reports.
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

/// One completion, as the transport reports it.
#[derive(Clone, Debug)]
pub struct Completion {
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
    /// Immediate data or invalidated key, as on the wire.
    pub immediate: [u8; 4],
    /// Whether the peer asked for a solicited event.
    pub solicited: bool,
    /// Payload, where the queue scatters small payloads into the CQE.
    pub inline: Option<Vec<u8>>,
    /// The peer's LID and service level, if the packet has them.
    pub source: (u16, u8),
    /// Datagram: its sender's queue pair, and whether it came with a GRH.
    pub sender: Option<(u32, bool)>,
    /// Datagram: the VLAN tag that it came with.
    pub tag: Option<Tag>,
    /// Ethernet: fields of the frame's headers.
    pub ethernet: Option<Seen>,
    /// Tag-matching SRQ: the tag event.
    pub tagged: Option<Tagged>,
}

impl Completion {
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
            tag: None,
            ethernet: None,
            tagged: None,
        }
    }

    /// Creates a completion of a send WQE with this opcode.
    pub fn sent(qp: u32, opcode: u8, wqe: u16, result: Result<(), Syndrome>) -> Self {
        Self::new(qp, Origin::Requester { opcode }, wqe, result)
    }

    /// Creates a completion of a receive.
    pub fn received(qp: u32, kind: Opcode, taken: Taken, result: Result<(), Syndrome>) -> Self {
        let completion = Self::new(qp, Origin::Responder(kind), taken.index, result);
        Self { xrc_srq: taken.xrc_srq, ..completion }
    }

    /// Creates a completion of a tag-matching SRQ.
    pub fn tagged(qp: u32, tagged: Tagged) -> Self {
        let completion = Self::new(qp, Origin::Responder(Opcode::Send), 0, Ok(()));
        Self { xrc_srq: Some(tagged.srq), tagged: Some(tagged), ..completion }
    }
}

/// A result to show to software.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A CQE.
    Completion(Completion),
    /// An EQE of a queue pair.
    Event(u32, QpEvent),
}

impl From<Completion> for Outcome {
    fn from(completion: Completion) -> Self {
        Self::Completion(completion)
    }
}
