//! Unit tests.

use super::super::ReceiveKind;
use super::*;

fn done(grh: bool, slid: u16, sl: u8) -> ReceiveDone {
    ReceiveDone {
        id: 1,
        qpn: 2,
        kind: ReceiveKind::Send,
        byte_len: 48,
        src_qp: 3,
        slid,
        sl,
        dlid_path_bits: 0,
        grh,
        solicited: false,
    }
}

#[test]
fn payloads_lie_behind_the_header() {
    assert_eq!(done(false, 7, 0).datagram(), 40..48);
    let torn = ReceiveDone { byte_len: 7, ..done(false, 7, 0) };
    assert_eq!(torn.datagram(), 40..40);
}

#[test]
fn headers_of_both_kinds_are_read() {
    let mut head = [0; 40];
    head[..4].copy_from_slice(&[0x62, 0x01, 0x23, 0x45]);
    head[7] = 9;
    (head[8], head[24]) = (0xfe, 0xff);
    // A destination that looks like an IPv4 header's start at the end of the room.
    head[20] = 0x45;
    let read = DatagramHeader::read(&done(true, 7, 2), &head).unwrap();
    assert_eq!((read.source.0[0], read.destination.0[0]), (0xfe, 0xff));
    assert_eq!((read.traffic_class, read.flow_label, read.hop_limit), (0x20, 0x1_2345, 9));
    assert_eq!(DatagramHeader::read(&done(false, 7, 2), &head), None);

    let mut head = [0; 40];
    head[20..22].copy_from_slice(&[0x45, 0x68]);
    head[28] = 64;
    head[32..].copy_from_slice(&[192, 0, 2, 1, 239, 1, 2, 3]);
    let mut stale = head;
    stale[0] = 0x60;
    for head in [head, stale] {
        let read = DatagramHeader::read(&done(true, 0, 2), &head).unwrap();
        assert_eq!(read.source, "192.0.2.1".parse().unwrap());
        assert_eq!(read.destination, "239.1.2.3".parse().unwrap());
        assert_eq!((read.traffic_class, read.flow_label, read.hop_limit), (0x68, 0, 64));
    }
    assert_eq!(DatagramHeader::read(&done(true, 0, 1), &[0; 40]), None);
}
