//! Unit tests.

use super::*;
use crate::wire::icrc::icrc;

/// A local packet. Other software gives the same ICRC; the VCRC is computed with the published
/// polynomial.
const EXAMPLE: [u8; 52] = [
    0x70, 0x12, 0x37, 0x5c, 0x00, 0x0e, 0x17, 0xd2, 0x0a, 0x20, 0x24, 0x87, 0x00, 0x87, 0xb1, 0xb3,
    0x00, 0x0d, 0xec, 0x2a, 0x01, 0x71, 0x0a, 0x1c, 0x01, 0x5d, 0x40, 0x02, 0x38, 0xf2, 0x7a, 0x05,
    0x00, 0x00, 0x00, 0x0e, 0xbb, 0x88, 0x4d, 0x85, 0xfd, 0x5c, 0xfb, 0xa4, 0x72, 0x8b, 0xc0, 0x69,
    0x0e, 0xd4, 0x00, 0x00,
];

#[test]
fn a_packet_has_its_known_checksums() {
    let mut packet = EXAMPLE.to_vec();
    let invariant = icrc(Link::InfiniBand, &packet).unwrap();
    assert_eq!(invariant, [0x96, 0x25, 0xb7, 0x5a]);
    packet.extend(invariant);
    let variant = vcrc(&packet);
    assert_eq!(variant, [0x45, 0xfa]);
    // What follows its own checksum, complemented, leaves the same remainder for every packet.
    packet.extend(variant);
    assert_eq!(vcrc(&packet), vcrc(&[0, 0]), "of no bytes the checksum is zero");
}

#[test]
fn a_frame_without_bytes_is_captured_all_the_same() {
    let frame = Frame::new(Vec::new());
    let envelope = Envelope::of(Link::InfiniBand, &frame, 1_500_000_000);
    let [before, ..] = envelope.around(&frame.0);
    assert_eq!(before[..8], [0, 0, 0, 0x80, 1, 0, 0, 0]);
}
