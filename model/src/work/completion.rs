//! Completions, as the transport reports them.

use super::{Seen, Syndrome, Tagged};

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
pub struct Completion<'a> {
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
    pub inline: Option<&'a [u8]>,
    /// The peer's LID and service level, if the packet has them.
    pub source: (u16, u8),
    /// Datagram: its sender's queue pair, and whether it came with a GRH.
    pub sender: Option<(u32, bool)>,
    /// Ethernet: fields of the frame's headers.
    pub ethernet: Option<Seen>,
    /// Tag-matching SRQ: the tag event.
    pub tagged: Option<Tagged>,
}
