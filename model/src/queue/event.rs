//! Event queues: EQEs, what makes them, and the interrupts that announce them.

use crate::card::Card;

/// An asynchronous event of a queue pair (`device.h`, `MLX5_EVENT_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QpEvent {
    /// The alternate path was taken.
    PathMigrated = 0x01,
    /// The first packet arrived while the queue pair was in RTR.
    CommunicationEstablished = 0x02,
    /// The send queue is drained.
    SendQueueDrained = 0x03,
    /// The queue pair failed and cannot say more in a CQE.
    Catastrophic = 0x05,
    /// The alternate path could not be taken.
    PathMigrationFailed = 0x07,
    /// A peer's request was not valid on this queue pair.
    InvalidRequest = 0x10,
    /// A peer's request was refused by the memory it named.
    AccessError = 0x11,
}

impl Card {
    /// Writes the EQE of an asynchronous event of a queue pair, to the EQ that listens for its
    /// type. Where none does, it is lost, as on a card.
    pub fn qp_event(&mut self, qp: u32, event: QpEvent) {
        todo!()
    }
}
