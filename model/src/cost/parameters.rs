//! What the steps of a device's work cost, and where the values come from.

/// Costs in picoseconds.
///
/// `docs/model.md` ("Virtual time") has the steps. The values of generations are in
/// [`devices`](super::devices).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// The program's store of eight bytes to a register, with its fence.
    pub doorbell: u64,
    /// The program's copy of 64 bytes to a BlueFlame register, with its fence.
    pub blueflame: u64,
    /// A write on its way over PCIe, in either direction.
    pub posted: u64,
    /// A read over PCIe, from the request to the first byte.
    pub read: u64,
    /// The same for a receive WQE; zero if the device has fetched that ahead.
    pub receive: u64,
    /// From a write's arrival at the root complex until the program can see it.
    pub memory: u64,
    /// A byte on PCIe.
    pub bus_byte: u64,
    /// The time between two WQEs that the device begins.
    pub request: u64,
    /// The same of one queue pair: a multiple of `request`, or zero if a queue pair is not limited.
    pub queue: u64,
    /// The time between a NOP and the next WQE of its queue pair.
    pub nop: u64,
    /// A byte on the link.
    pub wire_byte: u64,
    /// A packet's way over cables and a switch, with the work of both ports.
    pub flight: u64,
    /// From the refusal of a request's local memory to its error CQE.
    pub protection: u64,
    /// From the CQE of a request that failed to that of the first request behind it.
    pub first_flush: u64,
    /// From the CQE of a request that is flushed to the next one.
    pub flush: u64,
    /// From the packet behind a gap to its NAK.
    pub nak: u64,
    /// From the NAK of a gap to the first packet that is sent again.
    pub repetition: u64,
    /// What a PSN that is not the next one costs an unreliable connection.
    pub jump: u64,
    /// From the arrival of a request until its answer may leave, with the requester's work on the
    /// answer.
    pub answer: u64,
    /// The time between two atomics that the device begins.
    pub atomic: u64,
    /// The same at one place: addresses with the same lower 12 bits.
    pub place: u64,
    /// Commands that take time. The others take none.
    pub commands: &'static [Command],
}

/// The cost of a firmware command, with the kernel's work on it, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its opcode.
    pub opcode: u16,
    /// Each.
    pub each: u64,
    /// A byte of the memory that it registers or deregisters.
    pub byte: u64,
}
