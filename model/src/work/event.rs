//! Asynchronous events.

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
    /// In error, nothing more will complete that was taken from the SRQ.
    LastWqeReached = 0x13,
    /// A peer's request was not valid on this queue pair.
    InvalidRequest = 0x10,
    /// A peer's request was refused by the memory it named.
    AccessError = 0x11,
}

/// An asynchronous event of a shared receive queue (`device.h`, `MLX5_EVENT_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SrqEvent {
    /// Nothing can be taken any more.
    Catastrophic = 0x12,
    /// Fewer WQEs are posted than its limit.
    LimitReached = 0x14,
}

/// An asynchronous event of a target of dynamic connections (`device.h`, `MLX5_EVENT_TYPE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TargetEvent {
    /// No message is on its way to it any more.
    Drained = 0x1c,
    /// An initiator has shown a wrong access key.
    KeyViolation = 0x1d,
}

/// Why a CQ failed (`device.h`, syndrome of the CQ error event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum CqFailure {
    /// A CQE had no room.
    Overrun = 0x01,
    /// The ring's memory did not answer.
    Access = 0x02,
}
