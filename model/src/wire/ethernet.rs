//! Ethernet frames: which of them are packets of the transport; positions of the headers of all
//! others, and checksums. [`fields`] changes header fields, [`tunnel`] adds and removes headers.
//!
//! Any sender may have built these frames. So the code indexes only after a length check.

mod checksum;
pub mod fields;
pub mod tunnel;

use super::route::ROCE_PORT;

/// Bytes of the addresses and the type.
pub const HEADER: usize = 14;
/// Bytes of the longest headers of a RoCE packet, from IPv6 to the ICRC.
pub const ROCE_HEADERS: u32 = 100;
/// Bytes that a VLAN tag adds.
pub const TAG: usize = 4;

/// Type of a VLAN tag (802.1Q).
pub const VLAN: u16 = 0x8100;
/// Type of a service tag (802.1ad).
pub const SERVICE_VLAN: u16 = 0x88a8;
/// Type of IPv4.
pub const IPV4: u16 = 0x0800;
/// Type of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Type of RoCE v1.
pub const ROCE_V1: u16 = 0x8915;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// An 802.1Q tag: the VLAN of a frame and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Number of the VLAN, 12 bits. A frame with number 0 is of no VLAN.
    pub vlan: u16,
    /// Priority, three bits.
    pub priority: u8,
}

impl Tag {
    /// Returns the control information. No frame of the model may be dropped before others (DEI is 0).
    pub fn control(self) -> u16 {
        u16::from(self.priority & 7) << 13 | self.vlan & 0xfff
    }

    /// Returns the tag that has this control information.
    pub fn of_control(control: u16) -> Self {
        Self { vlan: control & 0xfff, priority: (control >> 13) as u8 }
    }

    /// Returns the tag of a frame, if it has one.
    pub fn of_frame(frame: &[u8]) -> Option<Self> {
        let control = word(frame, HEADER)?;
        (word(frame, HEADER - 2)? == VLAN).then(|| Self::of_control(control))
    }
}

/// Returns the bytes of a frame's addresses, 802.1Q tag and type.
pub fn header(frame: &[u8]) -> usize {
    HEADER + if Tag::of_frame(frame).is_some() { TAG } else { 0 }
}

/// Whether a frame is a packet of RoCE, whole or damaged: the type of RoCE v1, or UDP to the port of
/// RoCEv2 in IPv4 without options or in IPv6, and not a fragment. It may have an 802.1Q tag.
pub fn is_roce(frame: &[u8]) -> bool {
    let start = header(frame);
    let Some(packet) = frame.get(start..) else { return false };
    let udp = match (word(frame, start - 2), packet.first()) {
        (Some(ROCE_V1), _) => return true,
        (Some(IPV4), Some(0x45)) if packet.get(9) == Some(&UDP) => {
            // Offset, or more to come.
            let whole = word(packet, 6).is_some_and(|fragment| fragment & 0x3fff == 0);
            if whole { 20 } else { return false }
        }
        (Some(IPV6), Some(first)) if first >> 4 == 6 && packet.get(6) == Some(&UDP) => 40,
        _ => return false,
    };
    word(packet, udp + 2) == Some(ROCE_PORT)
}

/// Returns log2 of the largest payload of RoCE whose packets fit an Ethernet MTU, from 256 to 4,096
/// bytes. `None` if not even the smallest fits.
pub fn log_mtu(mtu: u32) -> Option<u32> {
    (8..=12).rev().find(|log| (1 << log) + ROCE_HEADERS <= mtu)
}

/// Returns the bytes of a frame behind its header and its first VLAN tag.
pub fn payload(frame: &[u8]) -> usize {
    let tag = matches!(word(frame, HEADER - 2), Some(VLAN | SERVICE_VLAN));
    frame.len().saturating_sub(HEADER + if tag { TAG } else { 0 })
}

/// The protocol above Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The protocol above IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The headers of a frame, as far as they are whole and known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The first VLAN tag: its type and its control information.
    pub vlan: Option<(u16, u16)>,
    /// The type of what follows addresses and tags.
    pub kind: u16,
    /// IP: which, and where its header starts.
    pub network: Option<(Network, usize)>,
    /// The protocol field of the IP header.
    pub protocol: u8,
    /// Whether the packet is a piece of a larger one.
    pub fragment: bool,
    /// End of the IP payload. The frame may be longer, but not shorter.
    pub end: usize,
    /// Whether IP says that it carries more than there is.
    pub cut_off: bool,
    /// TCP or UDP, and where its header starts. Fragments have none.
    pub transport: Option<(Transport, usize)>,
}

impl Headers {
    /// Reads the headers of a frame; `None` where it has not even addresses and a type.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let mut headers = Self { end: frame.len(), ..Self::default() };
        let mut at = HEADER - 2;
        let mut kind = word(frame, at)?;
        at += 2;
        if kind == VLAN || kind == SERVICE_VLAN {
            if let (Some(tag), Some(next)) = (word(frame, at), word(frame, at + 2)) {
                headers.vlan = Some((kind, tag));
                (kind, at) = (next, at + TAG);
            }
        }
        headers.kind = kind;
        match (kind, frame.get(at..)) {
            (IPV4, Some(packet)) => headers.version_4(packet, at),
            (IPV6, Some(packet)) => headers.version_6(packet, at),
            _ => None,
        };
        Some(headers)
    }

    fn version_4(&mut self, packet: &[u8], at: usize) -> Option<()> {
        let first = *packet.first()?;
        let length = usize::from(first & 0xf) * 4;
        let total = usize::from(word(packet, 2)?);
        if first >> 4 != 4 || length < 20 || packet.len() < length || total < length {
            return None;
        }
        self.network = Some((Network::V4, at));
        self.protocol = packet[9];
        self.cut_off = total > packet.len();
        let total = total.min(packet.len());
        self.end = at + total;
        // Offset, or more to come.
        self.fragment = word(packet, 6)? & 0x3fff != 0;
        if !self.fragment {
            self.above(&packet[length..total], at + length);
        }
        Some(())
    }

    fn version_6(&mut self, packet: &[u8], at: usize) -> Option<()> {
        const LENGTH: usize = 40;
        let total = usize::from(word(packet, 4)?) + LENGTH;
        if packet.first()? >> 4 != 6 || packet.len() < LENGTH {
            return None;
        }
        self.network = Some((Network::V6, at));
        self.protocol = packet[6];
        self.cut_off = total > packet.len();
        let total = total.min(packet.len());
        self.end = at + total;
        self.above(&packet[LENGTH..total], at + LENGTH);
        Some(())
    }

    fn above(&mut self, segment: &[u8], at: usize) {
        self.transport = match self.protocol {
            TCP if segment.len() >= 20 => Some((Transport::Tcp, at)),
            UDP if segment.len() >= 8 => Some((Transport::Udp, at)),
            _ => None,
        };
    }

    /// Returns the start of the header of IP of a version.
    fn network_at(&self, version: Network) -> Option<usize> {
        self.network.filter(|(met, _)| *met == version).map(|(_, at)| at)
    }

    /// Returns the start of the header of TCP, or of UDP.
    fn transport_at(&self, kind: Transport) -> Option<usize> {
        self.transport.filter(|(met, _)| *met == kind).map(|(_, at)| at)
    }

    /// Source and destination ports of TCP or UDP.
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        let (_, at) = self.transport?;
        Some((word(frame, at)?, word(frame, at + 2)?))
    }

    /// Bytes of TCP's header with its options, or of UDP's; `None` where TCP's are not there.
    pub fn transport_length(&self, frame: &[u8]) -> Option<usize> {
        match self.transport? {
            (Transport::Udp, _) => Some(8),
            (Transport::Tcp, at) => {
                let length = usize::from(frame.get(at + 12)? >> 4) * 4;
                (length >= 20 && at + length <= self.end).then_some(length)
            }
        }
    }

    /// Whether IP's length fits the frame, and the checksum of an IPv4 header is right; IPv6 has
    /// none to be wrong.
    pub fn network_is_right(&self, frame: &[u8]) -> bool {
        if self.cut_off {
            return false;
        }
        match self.network {
            Some((Network::V4, at)) => match frame.get(at..at + header_length(frame, at)) {
                Some(header) => fold(sum(header)) == 0xffff,
                None => false,
            },
            Some((Network::V6, _)) => true,
            None => false,
        }
    }

    /// Whether the checksum of TCP or UDP is right; IPv4's UDP may do without.
    pub fn transport_is_right(&self, frame: &[u8]) -> bool {
        if self.cut_off {
            return false;
        }
        match (self.transport, self.network) {
            (Some((Transport::Udp, at)), Some((Network::V4, _)))
                if word(frame, at + 6) == Some(0) =>
            {
                true
            }
            (Some((_, at)), Some(_)) => match frame.get(at..self.end) {
                Some(segment) => fold(self.pseudo_header(frame) + sum(segment)) == 0xffff,
                None => false,
            },
            _ => false,
        }
    }

    /// Puts in the checksum of an IPv4 header.
    pub fn fill_network(&self, frame: &mut [u8]) {
        let Some((Network::V4, at)) = self.network else { return };
        let length = header_length(frame, at);
        let Some(header) = frame.get_mut(at..at + length) else { return };
        header[10..12].fill(0);
        let checksum = !fold(sum(header));
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
    }

    /// Puts in the checksum of TCP or UDP.
    pub fn fill_transport(&self, frame: &mut [u8]) {
        let Some((kind, at)) = self.transport else { return };
        let field = match kind {
            Transport::Tcp => at + 16,
            Transport::Udp => at + 6,
        };
        let pseudo = self.pseudo_header(frame);
        let Some(place) = frame.get_mut(field..field + 2) else { return };
        place.fill(0);
        let Some(segment) = frame.get(at..self.end) else { return };
        let checksum = match !fold(pseudo + sum(segment)) {
            // Zero says that there is none.
            0 if kind == Transport::Udp => 0xffff,
            checksum => checksum,
        };
        frame[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The sum of what TCP and UDP count of IP's header: addresses, length, protocol.
    fn pseudo_header(&self, frame: &[u8]) -> u32 {
        let (Some((network, at)), Some((_, start))) = (self.network, self.transport) else {
            return 0;
        };
        let addresses = match network {
            Network::V4 => at + 12..at + 20,
            Network::V6 => at + 8..at + 40,
        };
        let length = (self.end - start) as u32;
        sum(frame.get(addresses).unwrap_or_default())
            + (length >> 16)
            + (length & 0xffff)
            + u32::from(self.protocol)
    }
}

/// Bytes of an IPv4 header with its options.
fn header_length(frame: &[u8], at: usize) -> usize {
    frame.get(at).map_or(0, |first| usize::from(first & 0xf) * 4)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes([pair[0], pair[1]]))
}

/// The sum of the words of 16 bits, the last filled up with zeros. No frame is long enough to
/// overflow it.
fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum()
}

/// The sum of some bytes as TCP, UDP and IP make it, folded to 16 bits.
pub fn folded(bytes: &[u8]) -> u16 {
    fold(sum(bytes))
}

/// Folds a sum to 16 bits, carries added again (RFC 1071).
fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests;
