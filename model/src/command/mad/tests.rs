//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;

#[test]
fn the_agent_knows_the_port() {
    let mut rig = Rig::new();
    let mut ask = Command::new(opcode::MAD_IFC, mad_ifc_in::SIZE).set(mad_ifc_in::PORT, 1u64);
    ask.0[0x10..0x14].copy_from_slice(&[1, 1, 1, 1]);
    // PortInfo.
    ask.0[0x10 + 17] = 0x15;
    let lid = |rig: &mut Rig| {
        let reply = rig.run(&ask).unwrap();
        assert_eq!(reply[0x10 + 3], 0x81);
        (reply[0x10 + 64 + 17], reply[0x10 + 64 + 32] & 0xf)
    };
    assert_eq!(lid(&mut rig), (7, 4));
    rig.card.set_port(false);
    assert_eq!(lid(&mut rig), (7, 1));
    // P_Key table.
    ask.0[0x10 + 17] = 0x16;
    let reply = rig.run(&ask).unwrap();
    assert_eq!(reply[0x10 + 64..0x10 + 66], [0xff, 0xff]);
}
