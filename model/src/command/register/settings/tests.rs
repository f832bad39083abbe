//! Unit tests.

use super::super::super::test::Rig;
use super::super::tests::{access, data};
use super::*;

#[test]
fn a_group_is_read_by_class_number_and_length() {
    let mut rig = Rig::new();
    let mut ask = |group: u64, length: u64, op_mod| {
        let command = access(0x9024, op_mod, mnvda_reg::SIZE)
            .set(data(mnvda_reg::PARAMETER_INDEX), group)
            .set(data(mnvda_reg::LENGTH), length);
        rig.run(&command).map(|reply| {
            let content = &reply[0x10..][mnvda_reg::CONFIGURATION_ITEM_DATA.bytes()];
            offload::UCTX_EN.get(content)
        })
    };
    assert_eq!(ask(OFFLOADS, 8, 1), Ok(1));
    assert_eq!(ask(PCI, 12, 1), Ok(0));
    assert_eq!(ask(PCI_CAPABILITIES, 0x14, 1), Ok(0));
    for (group, length, op_mod) in [(OFFLOADS, 12, 1), (0x11d, 8, 1), (OFFLOADS, 8, 0)] {
        assert_eq!(ask(group, length, op_mod), Err(Refusal::RegisterValue));
    }
}
