//! Unit tests.

use super::*;

#[test]
fn syndromes_rise_and_lead_back() {
    for pair in Refusal::ALL.windows(2) {
        assert!(pair[0].syndrome() < pair[1].syndrome(), "{pair:?}");
    }
    for refusal in Refusal::ALL {
        assert_eq!(Refusal::from_syndrome(refusal.syndrome()), Some(*refusal));
        assert_ne!(refusal.to_string(), "");
    }
    assert_eq!(Refusal::from_syndrome(0), None);
}

#[test]
fn a_syndrome_of_devices_leads_back_and_goes_with_its_command() {
    for known in OF_DEVICES {
        assert_eq!(Refusal::from_syndrome(known.syndrome), Some(known.refusal));
        let opcode = known.opcode.unwrap_or(opcode::NOP);
        assert_eq!(known.refusal.reply(opcode).1, known.syndrome);
    }
    assert_eq!(Refusal::NoQp.reply(opcode::QP_2RST), (Status::BadResourceState, 0x7e_a02d));
    assert_eq!(Refusal::NoQp.reply(opcode::QP_2ERR), (Status::BadResource, 0x5c_0609));
}
