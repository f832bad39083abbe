//! The longest frame that an Ethernet port lets through, as its driver sets it.

/// Bytes of a frame beside its payload: header, VLAN tag and checksum.
const AROUND: u16 = 14 + 4 + 4;
/// Bytes of the longest payload until the driver sets another one.
pub const MTU: u16 = 1500;
/// Bytes of the longest frame that a driver may set: ConnectX reports it to Linux, which shows 9978
/// as the greatest MTU.
pub const LONGEST_FRAME: u16 = 10_000;
/// Bytes of the shortest: a payload of 68 bytes, which every link of IPv4 carries (RFC 791).
pub const SHORTEST_FRAME: u16 = 68 + AROUND;

/// The limit of an Ethernet port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameLimit(Option<u16>);

impl FrameLimit {
    /// Sets the bytes of the longest frame, header, VLAN tag and checksum included. Returns whether the
    /// port takes such frames.
    pub fn set(&mut self, bytes: u64) -> bool {
        let bytes = u16::try_from(bytes).ok();
        let bytes = bytes.filter(|bytes| (SHORTEST_FRAME..=LONGEST_FRAME).contains(bytes));
        self.0 = bytes.or(self.0);
        bytes.is_some()
    }

    /// Returns the bytes of the longest frame, header, VLAN tag and checksum included.
    pub fn frame(self) -> u16 {
        self.0.unwrap_or(MTU + AROUND)
    }

    /// Returns the bytes of the longest payload.
    pub fn payload(self) -> usize {
        usize::from(self.frame() - AROUND)
    }

    /// Returns whether a driver has set the limit.
    pub fn is_set(self) -> bool {
        self.0.is_some()
    }
}
