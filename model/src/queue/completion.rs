//! Writing CQEs and the events that follow.

use super::Syndrome;
use crate::card::Card;

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

impl Card {
    /// Writes the CQE of a completion to the queue's CQ, and the event it is armed for. An overrun
    /// puts the CQ and its queue pairs in error, with an async event, as a card does.
    pub fn complete(&mut self, completion: &Completion<'_>) {
        todo!()
    }

    /// How many bytes of payload the queue's CQEs can carry themselves: 0, 32 or 64. A payload
    /// that fits goes into [`Completion::inline`] and nowhere else. Asks for the receive queue
    /// (SENDs) or, with `requester`, for READ and atomic answers; a request that writes no CQE
    /// scatters to memory all the same.
    pub fn inline_room(&self, qp: u32, requester: bool) -> usize {
        todo!()
    }
}
