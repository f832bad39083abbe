//! Congestion notification packets (CNP): a receiver's answer to packets that were marked on the
//! way (annex A17).

use super::ethernet::HEADER;
use super::icrc::{ICRC, icrc};
use super::{Frame, Link, Route};

/// The opcode of a CNP, which has a transport service of its own.
const OPCODE: u8 = 0x81;
/// BECN in the fifth byte of the BTH.
const BACKWARD: u8 = 0x40;
const BTH: usize = 12;
/// Reserved bytes behind the BTH.
const RESERVED: usize = 16;
/// Type of service: DSCP 48, as ConnectX devices send, on an ECN-capable transport.
const SERVICE: u8 = 48 << 2 | 2;

/// Builds a CNP for a queue pair. Only its type of service differs from that of `route`.
pub fn encode(mut route: Route, p_key: u16, destination: u32) -> Frame {
    if let Route::Ethernet { global, .. } = &mut route {
        global.traffic_class = SERVICE;
    }
    let mut to = Vec::with_capacity(route.len() + BTH + RESERVED + ICRC);
    route.encode(BTH + RESERVED + ICRC, &mut to);
    to.extend_from_slice(&[OPCODE, 0]);
    to.extend_from_slice(&p_key.to_be_bytes());
    to.extend_from_slice(&(u32::from(BACKWARD) << 24 | destination & 0xff_ffff).to_be_bytes());
    // PSN and reserved bytes.
    to.resize(to.len() + 4 + RESERVED, 0);
    to.extend_from_slice(&icrc(Link::Roce, &to[HEADER..]).unwrap_or_default());
    Frame(to)
}

/// Returns the way that a CNP came, and the queue pair that it is for. `None` for other packets, and
/// for damaged ones.
pub fn decode(bytes: &[u8]) -> Option<(Route, u32)> {
    let route = Route::decode(Link::Roce, bytes).ok()?;
    let covered = bytes.len().checked_sub(ICRC)?;
    let header = bytes.get(route.len()..covered)?;
    if header.len() != BTH + RESERVED || header[0] != OPCODE {
        return None;
    }
    let destination = u32::from_be_bytes([0, header[5], header[6], header[7]]);
    (icrc(Link::Roce, &bytes[HEADER..covered])? == bytes[covered..]).then_some((route, destination))
}

#[cfg(test)]
mod tests {
    use super::super::Global;
    use super::*;

    /// The packet that `icrc` checks too: captured on a ConnectX-4 Lx, published in Scapy's tests.
    #[test]
    fn notification_is_what_a_device_sends() {
        let gid = |last: [u8; 4]| {
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            gid[12..].copy_from_slice(&last);
            gid
        };
        let global = Global {
            traffic_class: 0x02,
            flow_label: 0,
            hop_limit: 64,
            source: gid([10, 0, 17, 1]),
            destination: gid([10, 0, 18, 1]),
        };
        let route = Route::Ethernet { source: [2; 6], destination: [4; 6], global, port: 0 };
        let frame = encode(route, 0xffff, 0x118);
        assert_eq!(frame.0.len(), 74);
        assert_eq!(frame.0[15], 0xc2);
        assert_eq!(frame.0[42..54], [0x81, 0, 0xff, 0xff, 0x40, 0, 1, 0x18, 0, 0, 0, 0]);
        assert!(frame.0[54..70].iter().all(|byte| *byte == 0));
        let (from, to) = decode(&frame.0).unwrap();
        assert_eq!((from.reverse().len(), to), (42, 0x118));

        // The device numbered the packet.
        let mut captured = frame.0.clone();
        captured[18..20].copy_from_slice(&[0x71, 0x8c]);
        captured[24..26].copy_from_slice(&[0x91, 0x61]);
        captured[70..].copy_from_slice(&[0x82, 0xfd, 0x00, 0x2a]);
        assert_eq!(decode(&captured).map(|(_, to)| to), Some(0x118));
        for byte in [42, 49, 64, 72] {
            let mut damaged = frame.0.clone();
            damaged[byte] ^= 1;
            assert!(decode(&damaged).is_none(), "{byte}");
        }
        for length in 0..frame.0.len() {
            assert!(decode(&frame.0[..length]).is_none());
        }
    }
}
