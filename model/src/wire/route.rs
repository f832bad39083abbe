//! The addressing of a packet: LRH and GRH on InfiniBand, Ethernet addresses, IP and UDP on
//! Ethernet.

use super::ethernet::{self, HEADER, TAG, Tag};
use super::packet::Malformed;
use super::{Link, LinkAddress, gid};

/// Hop limit of packets on RoCE whose sender gives none, as Linux sets it.
pub const HOPS: u8 = 64;
/// Bytes of a local route header.
pub const LRH: usize = 8;
/// Bytes of a global route header, which is an IPv6 header.
pub const GRH: usize = 40;
/// Bytes of an IPv4 header without options.
pub const IPV4: usize = 20;
/// Bytes of a UDP header.
pub const UDP: usize = 8;
/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

/// What follows a GRH in its packet.
pub(super) const NEXT_HEADER_IBA: u8 = 0x1b;
const NEXT_HEADER_UDP: u8 = 17;
const LNH_LOCAL: u8 = 2;
const LNH_GLOBAL: u8 = 3;

/// The version of RoCE that a packet is of, and the entry of a GID table that it is sent from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoceVersion {
    /// A GRH behind the Ethernet header. It reaches ports of the same Ethernet only.
    V1,
    /// UDP in IP.
    #[default]
    V2,
}

/// A global address pair: GRH, or IP header in RoCE v2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Global {
    /// Traffic class.
    pub traffic_class: u8,
    /// Flow label, 20 bits. IPv4 has none.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source GID.
    pub source: [u8; 16],
    /// Destination GID.
    pub destination: [u8; 16],
}

/// The lower two bits of an IP header's traffic class (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not react to congestion.
    NotCapable = 0b00,
    /// The sender reacts to congestion.
    Capable = 0b10,
    /// The packet met congestion on its way.
    Experienced = 0b11,
}

impl Global {
    /// Whether the packet met congestion on its way.
    pub fn met_congestion(&self) -> bool {
        self.traffic_class & 0b11 == Ecn::Experienced as u8
    }

    /// The same addresses with these bits.
    pub fn with_ecn(self, ecn: Ecn) -> Self {
        Self { traffic_class: self.traffic_class & !0b11 | ecn as u8, ..self }
    }
}

/// The source and the destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Inside a subnet by LID, with a GRH where asked for.
    InfiniBand {
        /// Service level.
        level: u8,
        /// Source LID.
        source: u16,
        /// Destination LID.
        destination: u16,
        /// Global route.
        global: Option<Global>,
    },
    /// RoCE: a GRH in version 1. In version 2, IPv4 and UDP where both GIDs are mapped IPv4 addresses,
    /// else IPv6 and UDP.
    Ethernet {
        /// Ethernet address of the sending port.
        source: [u8; 6],
        /// Ethernet address of the receiving port, or of a group.
        destination: [u8; 6],
        /// VLAN tag of the Ethernet header, if it has one.
        tag: Option<Tag>,
        /// Addresses.
        global: Global,
        /// UDP source port of version 2. Version 1 has no UDP header.
        port: Option<u16>,
    },
}

impl Route {
    /// The same route with these bits in the IP header. InfiniBand and RoCE v1 have no such bits.
    pub fn with_ecn(self, ecn: Ecn) -> Self {
        match self {
            Self::InfiniBand { .. } | Self::Ethernet { port: None, .. } => self,
            Self::Ethernet { global, .. } => self.with_global(global.with_ecn(ecn)),
        }
    }

    /// The same route with other global addresses. A route without global addresses stays as it is.
    fn with_global(mut self, new: Global) -> Self {
        if let Self::Ethernet { global, .. } | Self::InfiniBand { global: Some(global), .. } =
            &mut self
        {
            *global = new;
        }
        self
    }

    /// Returns the destination as a key: its GID on Ethernet, its LID on InfiniBand.
    pub fn destination(&self) -> [u8; 16] {
        match self {
            Self::InfiniBand { destination, .. } => u128::from(*destination).to_be_bytes(),
            Self::Ethernet { global, .. } => global.destination,
        }
    }

    /// The way back.
    pub fn reverse(&self) -> Self {
        let turn = |global: Global| Global {
            source: global.destination,
            destination: global.source,
            ..global
        };
        match *self {
            Self::InfiniBand { level, source, destination, global } => Self::InfiniBand {
                level,
                source: destination,
                destination: source,
                global: global.map(turn),
            },
            Self::Ethernet { source, destination, tag, global, port } => Self::Ethernet {
                source: destination,
                destination: source,
                tag,
                global: turn(global),
                port,
            },
        }
    }

    /// Returns the way back for an answer that is of no connection: with the hop limit of a new
    /// packet, and without the mark of a router. Otherwise the request's way decided them.
    pub fn answer(&self) -> Self {
        let mut back = self.reverse();
        match &mut back {
            Self::Ethernet { global, .. } => {
                *global = Global { hop_limit: HOPS, ..global.with_ecn(Ecn::NotCapable) };
            }
            Self::InfiniBand { global: Some(global), .. } => global.hop_limit = u8::MAX,
            Self::InfiniBand { global: None, .. } => {}
        }
        back
    }

    /// The address on the link of the port that it leads to.
    pub fn to(&self) -> LinkAddress {
        match self {
            Self::InfiniBand { destination, .. } => LinkAddress::Lid(*destination),
            Self::Ethernet { destination, .. } => LinkAddress::Mac(*destination),
        }
    }

    /// Returns the VLAN tag of the Ethernet header, if it has one.
    pub fn tag(&self) -> Option<Tag> {
        match self {
            Self::Ethernet { tag, .. } => *tag,
            Self::InfiniBand { .. } => None,
        }
    }

    /// Returns the VLAN whose tag it has; 0 for none (IEEE 802.1Q: a tag of VLAN 0 has a priority alone).
    pub fn vlan(&self) -> u16 {
        self.tag().map_or(0, |tag| tag.vlan)
    }

    /// Bytes before the network's header: of the Ethernet header, or of the LRH.
    fn link_len(&self) -> usize {
        match self {
            Self::InfiniBand { .. } => LRH,
            Self::Ethernet { tag: None, .. } => HEADER,
            Self::Ethernet { tag: Some(_), .. } => HEADER + TAG,
        }
    }

    /// Bytes of the headers before the BTH.
    pub fn len(&self) -> usize {
        let network = match self {
            Self::InfiniBand { global: None, .. } => 0,
            Self::InfiniBand { .. } | Self::Ethernet { port: None, .. } => GRH,
            Self::Ethernet { global, .. } if is_ipv4(global) => IPV4 + UDP,
            Self::Ethernet { .. } => GRH + UDP,
        };
        self.link_len() + network
    }

    /// Returns the header that a datagram's receiver sees of a packet with this route: the GRH, the
    /// IPv6 header in its place, or an IPv4 header in the last bytes of the GRH's space. `None` if
    /// the packet has no such header.
    pub fn shown(&self, packet: &[u8]) -> Option<[u8; GRH]> {
        if !self.is_global() {
            return None;
        }
        let (start, length) = (self.link_len(), if self.has_ipv4() { IPV4 } else { GRH });
        let (header, at) = (packet.get(start..start + length)?, GRH - length);
        let mut shown = [0; GRH];
        shown[at..].copy_from_slice(header);
        Some(shown)
    }

    /// The version of RoCE; `None` on InfiniBand.
    pub fn version(&self) -> Option<RoceVersion> {
        match self {
            Self::InfiniBand { .. } => None,
            Self::Ethernet { port: None, .. } => Some(RoceVersion::V1),
            Self::Ethernet { port: Some(_), .. } => Some(RoceVersion::V2),
        }
    }

    /// Whether the packet has an IPv4 header.
    pub fn has_ipv4(&self) -> bool {
        matches!(self, Self::Ethernet { global, port: Some(_), .. } if is_ipv4(global))
    }

    /// Whether there is a GRH, or what is in its place on Ethernet.
    pub fn is_global(&self) -> bool {
        !matches!(self, Self::InfiniBand { global: None, .. })
    }

    /// The multicast group that it leads to, if it does: on InfiniBand both LID and GID say so.
    pub fn group(&self) -> Option<&[u8; 16]> {
        let global = match self {
            Self::InfiniBand { .. } if !self.to().is_group() => return None,
            Self::InfiniBand { global, .. } => global.as_ref()?,
            Self::Ethernet { global, .. } => global,
        };
        gid::is_multicast(&global.destination).then_some(&global.destination)
    }

    /// Never: a route is at least a header.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Appends the headers. `rest` is the number of bytes that will follow them, ICRC included; it
    /// is a multiple of four and leaves the packet under 8 KiB.
    pub(super) fn encode(&self, rest: usize, to: &mut Vec<u8>) {
        match self {
            Self::InfiniBand { level, source, destination, global } => {
                let next = if global.is_some() { LNH_GLOBAL } else { LNH_LOCAL };
                let words = (self.len() + rest) / 4;
                to.extend_from_slice(&[0, level << 4 | next]);
                to.extend_from_slice(&destination.to_be_bytes());
                to.extend_from_slice(&(words as u16 & 0x7ff).to_be_bytes());
                to.extend_from_slice(&source.to_be_bytes());
                if let Some(global) = global {
                    encode_ipv6(global, rest, NEXT_HEADER_IBA, to);
                }
            }
            Self::Ethernet { source, destination, tag, global, port } => {
                to.extend_from_slice(destination);
                to.extend_from_slice(source);
                if let Some(tag) = tag {
                    to.extend_from_slice(&ethernet::VLAN.to_be_bytes());
                    to.extend_from_slice(&tag.control().to_be_bytes());
                }
                let Some(port) = port else {
                    to.extend_from_slice(&ethernet::ROCE_V1.to_be_bytes());
                    return encode_ipv6(global, rest, NEXT_HEADER_IBA, to);
                };
                let kind = if is_ipv4(global) { ethernet::IPV4 } else { ethernet::IPV6 };
                to.extend_from_slice(&kind.to_be_bytes());
                if is_ipv4(global) {
                    encode_ipv4(global, UDP + rest, to);
                } else {
                    encode_ipv6(global, UDP + rest, NEXT_HEADER_UDP, to);
                }
                to.extend_from_slice(&port.to_be_bytes());
                to.extend_from_slice(&ROCE_PORT.to_be_bytes());
                to.extend_from_slice(&((UDP + rest) as u16).to_be_bytes());
                // No UDP checksum: the ICRC guards more than it would.
                to.extend_from_slice(&[0, 0]);
            }
        }
    }

    /// The service level of a whole packet, unchecked; `None` on Ethernet.
    pub fn service_level(link: Link, bytes: &[u8]) -> Option<u8> {
        match link {
            Link::InfiniBand => bytes.get(1).map(|byte| byte >> 4),
            Link::Roce => None,
        }
    }

    /// Marks a whole packet as having met congestion: ECN "congestion experienced" of its IP header,
    /// or FECN of its BTH on InfiniBand. The ICRC covers neither. Other frames stay unchanged.
    pub fn mark_congestion(link: Link, bytes: &mut [u8]) {
        /// FECN, in byte 4 of the BTH.
        const FECN: u8 = 0x80;
        match (Self::decode(link, bytes), link) {
            (Err(_), _) => {}
            (Ok(route), Link::InfiniBand) => {
                if let Some(byte) = bytes.get_mut(route.len() + 4) {
                    *byte |= FECN;
                }
            }
            // RoCE v1 has no such bits.
            (Ok(Self::Ethernet { port: None, .. }), Link::Roce) => {}
            (Ok(route), Link::Roce) if route.has_ipv4() => {
                let header = &mut bytes[route.link_len()..][..IPV4];
                header[1] |= Ecn::Experienced as u8;
                header[10..12].fill(0);
                let sum = checksum(header).to_be_bytes();
                header[10..12].copy_from_slice(&sum);
            }
            // The traffic class is bits 4 to 11 of an IPv6 header.
            (Ok(route), Link::Roce) => {
                bytes[route.link_len() + 1] |= (Ecn::Experienced as u8) << 4;
            }
        }
    }

    /// Reads the headers of a whole packet; what follows starts at [`Route::len`].
    pub fn decode(link: Link, bytes: &[u8]) -> Result<Self, Malformed> {
        match link {
            Link::InfiniBand => decode_infiniband(bytes),
            Link::Roce => decode_roce(bytes),
        }
    }
}

/// Whether both ends are IPv4 addresses.
fn is_ipv4(global: &Global) -> bool {
    gid::is_ipv4(&global.source) && gid::is_ipv4(&global.destination)
}

/// Returns the Ethernet address that follows from a GID alone. The interface identifier of a
/// link-local address contains it (RFC 4291). For a multicast address it ends with the last bytes of
/// the GID (RFC 7042 for IPv6, RFC 1112 for IPv4). Of other addresses nothing follows; for these it
/// is 02:00 and the last four bytes of the GID.
pub fn mac(gid: &[u8; 16]) -> [u8; 6] {
    if gid[0] == 0xff {
        return [0x33, 0x33, gid[12], gid[13], gid[14], gid[15]];
    }
    if gid::is_multicast(gid) {
        return [0x01, 0x00, 0x5e, gid[13] & 0x7f, gid[14], gid[15]];
    }
    if gid[11] == 0xff && gid[12] == 0xfe {
        return [gid[8] ^ 2, gid[9], gid[10], gid[13], gid[14], gid[15]];
    }
    [0x02, 0x00, gid[12], gid[13], gid[14], gid[15]]
}

fn encode_ipv6(global: &Global, length: usize, next: u8, to: &mut Vec<u8>) {
    let first = 6 << 28 | u32::from(global.traffic_class) << 20 | global.flow_label & 0xf_ffff;
    to.extend_from_slice(&first.to_be_bytes());
    to.extend_from_slice(&(length as u16).to_be_bytes());
    to.extend_from_slice(&[next, global.hop_limit]);
    to.extend_from_slice(&global.source);
    to.extend_from_slice(&global.destination);
}

fn encode_ipv4(global: &Global, length: usize, to: &mut Vec<u8>) {
    let start = to.len();
    to.extend_from_slice(&[0x45, global.traffic_class]);
    to.extend_from_slice(&((IPV4 + length) as u16).to_be_bytes());
    // No identification, do not fragment.
    to.extend_from_slice(&[0, 0, 0x40, 0, global.hop_limit, NEXT_HEADER_UDP, 0, 0]);
    to.extend_from_slice(&global.source[12..]);
    to.extend_from_slice(&global.destination[12..]);
    let sum = checksum(&to[start..]).to_be_bytes();
    to[start + 10..start + 12].copy_from_slice(&sum);
}

/// Internet checksum of a header whose own checksum field is zero, or 0 of a header that is right.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 =
        header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn gid_at(bytes: &[u8], at: usize) -> [u8; 16] {
    let mut gid = [0; 16];
    gid.copy_from_slice(&bytes[at..at + 16]);
    gid
}

fn decode_infiniband(bytes: &[u8]) -> Result<Route, Malformed> {
    if bytes.len() < LRH {
        return Err(Malformed::Short);
    }
    if bytes[0] & 0x0f != 0 {
        return Err(Malformed::Route);
    }
    if usize::from(be16(bytes, 4) & 0x7ff) * 4 != bytes.len() {
        return Err(Malformed::Length);
    }
    let global = match bytes[1] & 3 {
        LNH_LOCAL => None,
        LNH_GLOBAL => Some(decode_ipv6(&bytes[LRH..], NEXT_HEADER_IBA)?),
        _ => return Err(Malformed::Route),
    };
    Ok(Route::InfiniBand {
        level: bytes[1] >> 4,
        source: be16(bytes, 6),
        destination: be16(bytes, 2),
        global,
    })
}

/// `bytes` starts at the header and ends with the packet.
fn decode_ipv6(bytes: &[u8], next: u8) -> Result<Global, Malformed> {
    if bytes.len() < GRH {
        return Err(Malformed::Short);
    }
    if bytes[0] >> 4 != 6 || bytes[6] != next {
        return Err(Malformed::Route);
    }
    if usize::from(be16(bytes, 4)) != bytes.len() - GRH {
        return Err(Malformed::Length);
    }
    let first = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Ok(Global {
        traffic_class: (first >> 20) as u8,
        flow_label: first & 0xf_ffff,
        hop_limit: bytes[7],
        source: gid_at(bytes, 8),
        destination: gid_at(bytes, 24),
    })
}

fn decode_ipv4(bytes: &[u8]) -> Result<Global, Malformed> {
    if bytes.len() < IPV4 {
        return Err(Malformed::Short);
    }
    if bytes[0] != 0x45 || bytes[9] != NEXT_HEADER_UDP || checksum(&bytes[..IPV4]) != 0 {
        return Err(Malformed::Route);
    }
    if usize::from(be16(bytes, 2)) != bytes.len() {
        return Err(Malformed::Length);
    }
    Ok(Global {
        traffic_class: bytes[1],
        flow_label: 0,
        hop_limit: bytes[8],
        source: gid::ipv4_at(bytes, 12),
        destination: gid::ipv4_at(bytes, 16),
    })
}

fn decode_roce(bytes: &[u8]) -> Result<Route, Malformed> {
    let tag = Tag::of_frame(bytes);
    let header = ethernet::header(bytes);
    let (link, packet) = bytes.split_at_checked(header).ok_or(Malformed::Short)?;
    let mac = |at: usize| std::array::from_fn(|byte| link[at + byte]);
    let (destination, source) = (mac(0), mac(6));
    let (global, length) = match be16(link, header - 2) {
        ethernet::IPV4 => (decode_ipv4(packet)?, IPV4),
        ethernet::IPV6 => (decode_ipv6(packet, NEXT_HEADER_UDP)?, GRH),
        ethernet::ROCE_V1 => {
            let global = decode_ipv6(packet, NEXT_HEADER_IBA)?;
            return Ok(Route::Ethernet { source, destination, tag, global, port: None });
        }
        _ => return Err(Malformed::Route),
    };
    let at = header + length;
    if bytes.len() < at + UDP {
        return Err(Malformed::Short);
    }
    if be16(bytes, at + 2) != ROCE_PORT {
        return Err(Malformed::Route);
    }
    if usize::from(be16(bytes, at + 4)) != bytes.len() - at {
        return Err(Malformed::Length);
    }
    let port = Some(be16(bytes, at));
    let route = Route::Ethernet { source, destination, tag, global, port };
    // Mapped addresses in an IPv6 header would be sent back in an IPv4 one.
    if route.len() != at + UDP {
        return Err(Malformed::Route);
    }
    Ok(route)
}
