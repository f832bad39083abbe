use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;
use crate::function::LONGEST_LIST;

/// Selects a field of the context.
pub fn select(field: Field) -> Field {
    field.within(modify_nic_vport_context_in::FIELD_SELECT)
}

/// A field of the context.
pub fn of(field: Field) -> Field {
    field.within(modify_nic_vport_context_in::NIC_VPORT_CONTEXT)
}

pub fn modify() -> Command {
    Command::new(opcode::MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context_in::SIZE)
}

/// Replaces a list.
pub fn list(kind: u64, entries: &[u64]) -> Command {
    let mut command = modify()
        .set(select(modify_nic_vport_field_select::ADDRESSES_LIST), 1u64)
        .set(of(nic_vport_context::ALLOWED_LIST_TYPE), kind)
        .set(of(nic_vport_context::ALLOWED_LIST_SIZE), entries.len() as u64);
    command.0.extend(entries.iter().flat_map(|entry| entry.to_be_bytes()));
    command
}

fn ask(kind: u64) -> Command {
    Command::new(opcode::QUERY_NIC_VPORT_CONTEXT, 0x10)
        .set(query_nic_vport_context_in::ALLOWED_LIST_TYPE, kind)
}

#[test]
fn lists_are_kept_by_kind() {
    let mut rig = Rig::on(Link::Roce);
    let lists = [&[0x0201_0203_0405, 6][..], &[0x0100_5e00_0001], &[]];
    for (kind, entries) in (0..).zip(lists) {
        rig.run(&list(kind, entries)).unwrap();
    }
    for (kind, entries) in (0..).zip(lists) {
        let reply = rig.run(&ask(kind)).unwrap();
        let context = &reply[0x10..];
        assert_eq!(nic_vport_context::ALLOWED_LIST_SIZE.get(context), entries.len() as u64);
        let told = context[0x100..].chunks_exact(8).take(entries.len());
        let told: Vec<u64> = told.map(|e| u64::from_be_bytes(e.try_into().unwrap())).collect();
        assert_eq!(told, entries);
    }
    let short = rig.run_into(&ask(0), 0x118).unwrap();
    assert_eq!(nic_vport_context::ALLOWED_LIST_SIZE.get(&short[0x10..]), 2);
    assert_eq!(short[0x110..], lists[0][0].to_be_bytes(), "what fits");
    let long = list(0, &[1; LONGEST_LIST + 1]);
    assert_eq!(rig.run(&long).err(), Some(Refusal::VportListLength));
}

#[test]
fn the_driver_sets_what_it_selects() {
    use modify_nic_vport_field_select as s;
    use nic_vport_context as c;
    let mut rig = Rig::on(Link::Roce);
    let read = |rig: &mut Rig, field: Field| field.get(&rig.run(&ask(0)).unwrap()[0x10..]);
    for (selector, field, before, after) in [
        (s::ROCE_EN, c::ROCE_EN, 1, 0u64),
        (s::MTU, c::MTU, 1500, 9022),
        (s::PROMISC, c::PROMISC_MC, 0, 1),
        (s::DISABLE_UC_LOCAL_LB, c::DISABLE_UC_LOCAL_LB, 0, 1),
        (s::DISABLE_MC_LOCAL_LB, c::DISABLE_MC_LOCAL_LB, 0, 1),
    ] {
        assert_eq!(read(&mut rig, field), before);
        let set = modify().set(of(field), after);
        rig.run(&set).unwrap();
        assert_eq!(read(&mut rig, field), before, "it was not selected");
        rig.run(&set.set(select(selector), 1u64)).unwrap();
        assert_eq!(read(&mut rig, field), after);
    }
    rig.card.reset();
    assert!(rig.card.function.vport.roce);
}

#[test]
fn an_ethernet_port_has_its_address() {
    let mut rig = Rig::on(Link::Roce);
    rig.card.identity.mac = [2, 1, 2, 3, 4, 5];
    let reply = rig.run(&Command::new(opcode::QUERY_NIC_VPORT_CONTEXT, 0x10)).unwrap();
    let context = &reply[query_nic_vport_context_out::NIC_VPORT_CONTEXT.bytes()];
    assert_eq!(nic_vport_context::PERMANENT_ADDRESS.get(context), 0x0201_0203_0405);
    assert_eq!(nic_vport_context::ROCE_EN.get(context), 1);
}
