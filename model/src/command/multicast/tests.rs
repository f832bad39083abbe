//! Unit tests.

use mlx5_sys::ifc::{create_qp_in, create_qp_out, opcode, qpc};

use super::super::test::{Command, Rig};
use super::*;

fn datagram(rig: &mut Rig) -> u32 {
    let cq = rig.cq();
    let create = rig.create_qp(cq, cq).set(qpc::ST.within(create_qp_in::QPC), 2u64);
    rig.number(&create, create_qp_out::QPN)
}

fn command(opcode: u16, qp: u32, gid: [u8; 16]) -> Command {
    let mut command = Command::new(opcode, 0x20).set(attach_to_mcg_in::QPN, qp);
    command.0[attach_to_mcg_in::MULTICAST_GID.bytes()].copy_from_slice(&gid);
    command
}

fn group(number: u32) -> [u8; 16] {
    let mut gid = [0; 16];
    gid[0] = 0xff;
    gid[12..].copy_from_slice(&number.to_be_bytes());
    gid
}

#[test]
fn both_commands_have_one_layout() {
    assert_eq!(attach_to_mcg_in::QPN, detach_from_mcg_in::QPN);
    assert_eq!(attach_to_mcg_in::MULTICAST_GID, detach_from_mcg_in::MULTICAST_GID);
}

#[test]
fn queue_pairs_are_attached_and_detached() {
    let mut rig = Rig::new();
    let (one, other) = (datagram(&mut rig), datagram(&mut rig));
    let members = [(one, 1), (other, 1), (other, 2)];
    for (qp, number) in members {
        rig.run(&command(opcode::ATTACH_TO_MCG, qp, group(number))).unwrap();
    }
    assert_eq!(rig.card.objects.groups.of(&group(1)), [one, other]);
    for (qp, number) in members {
        rig.run(&command(opcode::DETACH_FROM_MCG, qp, group(number))).unwrap();
    }
    assert!(rig.card.objects.groups.is_empty());
}
