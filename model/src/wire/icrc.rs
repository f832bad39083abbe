//! The invariant CRC at the end of every packet.
//!
//! It is a CRC-32 over everything from the first header on. The fields that may change on the way
//! are read as ones (IBA 1.3, 7.8.1; annexes A16 and A17 for RoCE): the virtual lane of a local packet, the
//! whole LRH of a packet with a GRH (on Ethernet eight bytes of ones replace it), traffic class,
//! flow label, hop limit, IP and UDP checksums, and the BTH's byte 4.

use crc32fast::Hasher;

use super::Link;
use super::route::{GRH, IPV4, LRH, NEXT_HEADER_IBA, UDP};

/// Bytes of the ICRC.
pub const ICRC: usize = 4;
const BTH: usize = 12;

/// The ICRC of a packet as its last four bytes hold it. `bytes` is the packet without them; `None`
/// if it is too short to have the headers it says it has.
pub fn icrc(link: Link, bytes: &[u8]) -> Option<[u8; ICRC]> {
    let mut masked = [0xff; LRH + GRH + UDP + BTH];
    let network = match link {
        Link::InfiniBand if *bytes.get(1)? & 3 == 3 => LRH + GRH,
        Link::InfiniBand => LRH,
        Link::Roce if *bytes.first()? >> 4 == 4 => IPV4 + UDP,
        Link::Roce if *bytes.get(6)? == NEXT_HEADER_IBA => GRH,
        Link::Roce => GRH + UDP,
    };
    let transport = network + BTH;
    let headers = bytes.get(..transport)?;
    // Ethernet has no LRH; ones stand in for it.
    let skip = if link == Link::Roce { LRH } else { 0 };
    let masked = &mut masked[..skip + transport];
    masked[skip..].copy_from_slice(headers);
    match link {
        Link::InfiniBand => {
            if network == LRH {
                masked[0] |= 0xf0;
            } else {
                masked[..LRH].fill(0xff);
                mask_ipv6(&mut masked[LRH..]);
            }
        }
        Link::Roce => {
            let ip = &mut masked[LRH..];
            if network == IPV4 + UDP {
                ip[1] = 0xff;
                ip[8] = 0xff;
                ip[10..12].fill(0xff);
            } else {
                mask_ipv6(ip);
            }
            if network != GRH {
                ip[network - 2..network].fill(0xff);
            }
        }
    }
    masked[skip + network + 4] = 0xff;
    let mut hasher = Hasher::new();
    hasher.update(masked);
    hasher.update(&bytes[transport..]);
    Some(hasher.finalize().to_le_bytes())
}

fn mask_ipv6(header: &mut [u8]) {
    header[0] |= 0x0f;
    header[1..4].fill(0xff);
    header[7] = 0xff;
}

#[cfg(test)]
mod tests;
