//! What the steps of a device's work cost, and where the values come from.

/// Costs in picoseconds.
///
/// `docs/model.md` ("Virtual time") has the sources. Most values are chosen near published
/// measurements of machines with a link of 100 Gb/s: they are not those of the reader's device.
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
    /// From a write's arrival at the root complex until the program can see it.
    pub memory: u64,
    /// A byte on PCIe.
    pub bus_byte: u64,
    /// The time between two WQEs that the device begins.
    pub request: u64,
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
}

impl Parameters {
    /// The documented values.
    pub const DOCUMENTED: Self = Self {
        doorbell: 20_000,
        blueflame: 95_000,
        posted: 140_000,
        read: 520_000,
        memory: 240_000,
        bus_byte: 63,
        request: 10_000,
        wire_byte: 80,
        flight: 380_000,
        // Measured on ConnectX-6 (evidence E022, E016, E017).
        protection: 225_000_000,
        first_flush: 59_500_000,
        flush: 9_350_000,
        // Measured on ConnectX-5 and -6 Dx (evidence E118); the repetition took 2 to 6 µs.
        nak: 2_000_000,
        repetition: 4_000_000,
        // Measured on ConnectX-5 (evidence E122).
        jump: 20_000_000,
    };
}
