/// Flow control of the Ethernet port, as the driver has set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pauses {
    /// The port may ask its peer to pause.
    pub sent: bool,
    /// The port obeys its peer's pauses.
    pub obeyed: bool,
    /// Priorities, as bits, for which the port may ask its peer to pause.
    pub sent_by_priority: u8,
    /// Priorities, as bits, whose pauses the port obeys.
    pub obeyed_by_priority: u8,
}

impl Default for Pauses {
    /// Pauses of the whole port are on, as on a device.
    fn default() -> Self {
        Self { sent: true, obeyed: true, sent_by_priority: 0, obeyed_by_priority: 0 }
    }
}
