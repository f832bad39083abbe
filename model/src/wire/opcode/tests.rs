//! Unit tests.

use super::*;

#[test]
fn every_encoding_decodes_to_itself() {
    let known = (0..=255u8).filter_map(|byte| Opcode::decode(byte).map(|opcode| (byte, opcode)));
    let mut counts = [0; 5];
    for (byte, (service, opcode)) in known {
        assert_eq!(opcode.encode(service), byte);
        counts[service as usize] += 1;
    }
    assert_eq!(counts, [27, 12, 2, 26, 28]);
    assert_eq!(Opcode::decode(0x81), Some((Service::Rc, Opcode::CongestionNotification)));
    assert_eq!(Opcode::decode(0x80), None);
    assert_eq!(Opcode::decode(0x64), Some((Service::Ud, Opcode::SendOnly)));
    assert_eq!(Opcode::decode(0x2b), Some((Service::Uc, Opcode::WriteOnlyImmediate)));
    // A READ of an unreliable connection.
    assert_eq!(Opcode::decode(0x2c), None);
}
