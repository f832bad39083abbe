//! Commands that attach queue pairs to multicast groups and detach them.

use mlx5_sys::ifc::attach_to_mcg_in;
#[cfg(test)]
use mlx5_sys::ifc::detach_from_mcg_in;

use super::capability::{LOG_MAX_GROUPS, MAX_GROUP_MEMBERS};
use super::{Refusal, context, get, owned, uid};
use crate::card::Card;
use crate::object::Service;
use crate::wire::is_multicast;

/// Queue pair and group of a command; both have the same layout.
fn member(card: &Card, input: &[u8]) -> Result<(u32, [u8; 16]), Refusal> {
    let number = get(input, attach_to_mcg_in::QPN);
    let qp = card.objects.qps.get(&number).ok_or(Refusal::NoQp)?;
    owned(qp.uid, uid(input))?;
    if qp.service != Service::Ud {
        return Err(Refusal::QpService);
    }
    let gid = *context(input, attach_to_mcg_in::MULTICAST_GID)?;
    if !is_multicast(&gid) {
        return Err(Refusal::GroupGid);
    }
    Ok((number, gid))
}

pub fn attach(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (qp, gid) = member(card, input)?;
    let members = card.objects.groups.of(&gid);
    if members.contains(&qp) {
        return Err(Refusal::GroupMember);
    }
    let new = members.is_empty();
    if members.len() >= MAX_GROUP_MEMBERS as usize
        || new && card.objects.groups.len() >= 1 << LOG_MAX_GROUPS
    {
        return Err(Refusal::GroupsFull);
    }
    card.objects.groups.attach(gid, qp);
    Ok(())
}

pub fn detach(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let (qp, gid) = member(card, input)?;
    if card.objects.groups.detach(&gid, qp) { Ok(()) } else { Err(Refusal::NotGroupMember) }
}

#[cfg(test)]
mod tests {
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
}
