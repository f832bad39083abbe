//! Headers that are put before a packet or taken off it: VLAN tags, tunnels, any bytes.
//!
//! Any sender may have built the packets, and any program the headers. So the code indexes only after a
//! length check.

use super::{HEADER, Headers, IPV4, IPV6, Network, SERVICE_VLAN, TAG, Transport, VLAN, word};

/// Destination ports of tunnels over UDP.
const VXLAN: u16 = 4789;
const VXLAN_GPE: u16 = 4790;
const GENEVE: u16 = 6081;
/// Protocols of tunnels over IP.
const IP_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Type of an Ethernet frame in GRE and Geneve (`ETH_P_TEB`).
const BRIDGED: u16 = 0x6558;
/// Bytes of UDP's header, and of those of VXLAN and Geneve.
const UDP: usize = 8;
const SHIM: usize = 8;

/// Takes the first VLAN tag off a frame; does nothing to a frame without one.
pub fn pop_tag(frame: &mut Vec<u8>) {
    let tagged = matches!(word(frame, HEADER - 2), Some(VLAN | SERVICE_VLAN));
    if tagged && frame.len() >= HEADER + TAG {
        frame.drain(HEADER - 2..HEADER - 2 + TAG);
    }
}

/// Puts a tag, of a type and with its control information, before the tags of a frame. Does nothing to
/// bytes that are shorter than Ethernet's addresses.
pub fn push_tag(frame: &mut Vec<u8>, kind: u16, tag: u16) {
    if frame.len() >= HEADER - 2 {
        let [[high, low], [first, last]] = [kind, tag].map(u16::to_be_bytes);
        frame.splice(HEADER - 2..HEADER - 2, [high, low, first, last]);
    }
}

/// Returns the payload of IP, without padding; `None` for fragments.
fn above_network<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    if headers.fragment {
        return None;
    }
    let start = match headers.network? {
        (Network::V4, at) => at + super::header_length(frame, at),
        (Network::V6, at) => at + 40,
    };
    frame.get(start..headers.end)
}

/// Type and payload of GRE (RFC 2784, RFC 2890).
fn gre(packet: &[u8]) -> Option<(u16, &[u8])> {
    /// Flags of the optional words: checksum, key, sequence number.
    const WORDS: [u16; 3] = [0x8000, 0x2000, 0x1000];
    const VERSION: u16 = 7;
    let flags = word(packet, 0)?;
    if flags & VERSION != 0 {
        return None;
    }
    let words = WORDS.iter().filter(|word| flags & **word != 0).count();
    Some((word(packet, 2)?, packet.get(4 + 4 * words..)?))
}

/// The payload of VXLAN's general extension, if it is of a protocol.
fn general_vxlan(packet: &[u8], protocol: u8) -> Option<&[u8]> {
    packet.get(SHIM..).filter(|_| packet.get(3) == Some(&protocol))
}

/// The frame inside of a tunnel that carries Ethernet: VXLAN, its general extension, Geneve, GRE.
pub fn inner_frame<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    const ETHERNET: u8 = 3;
    let packet = above_network(frame, headers)?;
    let inner = match headers.transport {
        Some((Transport::Udp, _)) => {
            let above = packet.get(UDP..)?;
            match headers.ports(frame)?.1 {
                VXLAN => above.get(SHIM..),
                VXLAN_GPE => general_vxlan(above, ETHERNET),
                GENEVE if word(above, 2) == Some(BRIDGED) => {
                    // In words of four bytes.
                    let options = usize::from(above.first()? & 0x3f) * 4;
                    above.get(SHIM + options..)
                }
                _ => None,
            }
        }
        None if headers.protocol == GRE => {
            gre(packet).filter(|(kind, _)| *kind == BRIDGED).map(|(_, inner)| inner)
        }
        _ => None,
    };
    inner.filter(|inner| inner.len() >= HEADER)
}

/// The IP packet inside of a tunnel that carries such packets: GRE, IP in IP, the general extension of
/// VXLAN.
pub fn inner_packet<'a>(frame: &'a [u8], headers: &Headers) -> Option<&'a [u8]> {
    const V4: u8 = 1;
    const V6: u8 = 2;
    let packet = above_network(frame, headers)?;
    match (headers.transport, headers.protocol) {
        (Some((Transport::Udp, _)), _) if headers.ports(frame)?.1 == VXLAN_GPE => {
            let above = packet.get(UDP..)?;
            general_vxlan(above, V4).or_else(|| general_vxlan(above, V6))
        }
        (None, GRE) => {
            gre(packet).filter(|(kind, _)| matches!(*kind, IPV4 | IPV6)).map(|(_, inner)| inner)
        }
        (None, IP_IN_IP | IPV6_IN_IP) => Some(packet),
        _ => None,
    }
}

/// Puts headers of a tunnel before a frame or packet. The lengths in them become right, and so do their
/// checksums; UDP's stays zero if it is. `None` if that is too long for IP.
pub fn encapsulate(outer: &[u8], inner: &[u8]) -> Option<Vec<u8>> {
    let mut frame = [outer, inner].concat();
    let is_network = matches!(kind(&frame).map(|(kind, _)| kind), Some(IPV4 | IPV6));
    if is_network {
        set_length(&mut frame)?;
    }
    let headers = Headers::of(&frame)?;
    headers.fill_network(&mut frame);
    if let Some(at) = headers.transport_at(Transport::Udp) {
        let length = u16::try_from(headers.end - at).ok()?;
        frame[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
        if word(&frame, at + 6) != Some(0) {
            headers.fill_transport(&mut frame);
        }
    }
    Some(frame)
}

/// Returns the type behind Ethernet's addresses and one VLAN tag, and where its header starts.
fn kind(frame: &[u8]) -> Option<(u16, usize)> {
    match word(frame, HEADER - 2)? {
        VLAN | SERVICE_VLAN => Some((word(frame, HEADER - 2 + TAG)?, HEADER + TAG)),
        kind => Some((kind, HEADER)),
    }
}

/// Makes IP's header say how long the packet is. `None` if it is not IP, or too long.
pub fn set_length(packet: &mut [u8]) -> Option<()> {
    let (kind, at) = kind(packet)?;
    let (field, length) = match kind {
        IPV4 => (at + 2, packet.len().checked_sub(at)?),
        IPV6 => (at + 4, packet.len().checked_sub(at + 40)?),
        _ => return None,
    };
    let length = u16::try_from(length).ok()?;
    packet.get_mut(field..field + 2)?.copy_from_slice(&length.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests;
