//! Segmentation of large sends: a TCP segment longer than a frame becomes several frames.

use crate::queue::{EthernetSegment, Syndrome};
use crate::wire::ethernet::tunnel::set_length;
use crate::wire::ethernet::{Headers, Network, Transport};

/// Flags of TCP: CWR is for the first packet alone, FIN and PSH are for the last.
const CWR: u8 = 0x80;
const FIN: u8 = 0x01;
const PSH: u8 = 0x08;

/// Cuts a packet: `header` bytes of it, which are all of the headers, go before each piece of what
/// follows.
pub(super) fn cut(
    packet: &[u8],
    header: usize,
    segment: &EthernetSegment,
) -> Result<Vec<Vec<u8>>, Syndrome> {
    let step = usize::from(segment.maximum);
    let (header, payload) = packet.split_at_checked(header).ok_or(Syndrome::LocalQpOperation)?;
    let mut header = header.to_vec();
    // What the headers say of their length is of no packet that will be; it is set for this, too.
    set_length(&mut header).ok_or(Syndrome::LocalQpOperation)?;
    let headers = Headers::of(&header).ok_or(Syndrome::LocalQpOperation)?;
    let (Some((network, ip)), Some((Transport::Tcp, tcp))) = (headers.network, headers.transport)
    else {
        return Err(Syndrome::LocalQpOperation);
    };
    let whole = headers.transport_length(&header).map(|length| tcp + length) == Some(header.len());
    if step == 0 || !whole {
        return Err(Syndrome::LocalQpOperation);
    }
    let sequence =
        u32::from_be_bytes([header[tcp + 4], header[tcp + 5], header[tcp + 6], header[tcp + 7]]);
    let id = u16::from_be_bytes([header[ip + 4], header[ip + 5]]);
    let flags = header[tcp + 13];
    let pieces = payload.len().div_ceil(step).max(1);
    let mut packets = Vec::with_capacity(pieces);
    for index in 0..pieces {
        let start = index * step;
        let piece = &payload[start..payload.len().min(start + step)];
        let mut packet = header.clone();
        packet.extend_from_slice(piece);
        set_length(&mut packet).ok_or(Syndrome::LocalQpOperation)?;
        if network == Network::V4 {
            packet[ip + 4..ip + 6].copy_from_slice(&id.wrapping_add(index as u16).to_be_bytes());
        }
        let at = sequence.wrapping_add(start as u32);
        packet[tcp + 4..tcp + 8].copy_from_slice(&at.to_be_bytes());
        let mut now = flags;
        if index > 0 {
            now &= !CWR;
        }
        if index + 1 < pieces {
            now &= !(FIN | PSH);
        }
        packet[tcp + 13] = now;
        packets.push(packet);
    }
    Ok(packets)
}
