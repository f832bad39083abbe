//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;
use crate::wire::LinkAddress;

#[test]
fn the_port_is_up_and_has_its_names() {
    use query_hca_vport_context_in as q;
    let mut rig = Rig::new();
    let query = Command::new(opcode::QUERY_HCA_VPORT_CONTEXT, 0x10);
    let reply = rig.run(&query.set(q::PORT_NUM, 1u64)).unwrap();
    let context = &reply[0x10..];
    assert_eq!(hca_vport_context::LID.get(context), 7);
    assert_eq!(hca_vport_context::PORT_STATE.get(context), 4);
    assert_eq!(hca_vport_context::PORT_GUID.get(context), 0x5000_0000_0000_0001);
}

#[test]
fn tables_are_shown_whole_and_by_entry() {
    let mut rig = Rig::new();
    let gid = Command::new(opcode::QUERY_HCA_VPORT_GID, 0x10);
    let index = query_hca_vport_gid_in::GID_INDEX;
    let one = rig.run(&gid).unwrap();
    assert_eq!(one[0x10..0x20], rig.card.identity.entry(0).gid);
    assert_eq!(query_hca_vport_gid_out::GIDS_NUM.get(&one), 1);
    let all = rig.run(&gid.clone().set(index, ALL)).unwrap();
    assert_eq!(all[0x10..0x20], rig.card.identity.entry(0).gid);
    assert_eq!(query_hca_vport_gid_out::GIDS_NUM.get(&all), 8);
    let short = rig.run_into(&gid.set(index, ALL), 0x20);
    assert_eq!(short.err(), Some(Refusal::OutputLength));

    let pkey = Command::new(opcode::QUERY_HCA_VPORT_PKEY, 0x10);
    let index = query_hca_vport_pkey_in::PKEY_INDEX;
    assert_eq!(rig.run(&pkey).unwrap()[0x10..0x14], [0, 0, 0xff, 0xff]);
    assert_eq!(rig.run(&pkey.clone().set(index, 1u64)).unwrap()[0x10..0x14], [0, 0, 0x80, 1]);
    assert_eq!(rig.run(&pkey.clone().set(index, 9u64)).unwrap()[0x10..0x14], [0; 4]);
    let all = rig.run(&pkey.set(index, ALL)).unwrap();
    assert_eq!(all[0x10..0x20], [0, 0, 0xff, 0xff, 0, 0, 0x80, 1, 0, 0, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn addresses_of_an_ethernet_port_can_be_set() {
    let index = set_roce_address_in::ROCE_ADDRESS_INDEX;
    let mut address = [0u8; 32];
    address[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
    roce_addr_layout::ROCE_VERSION.set(&mut address, 2);
    let mut set = Command::new(opcode::SET_ROCE_ADDRESS, 0x10).set(index, 2u64);
    set.0.extend_from_slice(&address);
    let mut rig = Rig::on(Link::Roce);
    rig.run(&set).unwrap();
    let identity = &rig.card.identity;
    assert_eq!(identity.entry(2).gid, address[..16]);
    assert_eq!(identity.source_mac(2), identity.mac, "no other came with it");
    let query = Command::new(opcode::QUERY_ROCE_ADDRESS, 0x10);
    let reply = rig.run(&query.clone().set(index, 2u64)).unwrap();
    assert_eq!(reply[0x10..0x30], address);
    let made = rig.run(&query).unwrap();
    assert_eq!(made[0x10..0x20], rig.card.identity.entry(0).gid);
    assert_eq!(roce_addr_layout::ROCE_VERSION.get(&made[0x10..]), 2);
    assert_eq!(roce_addr_layout::ROCE_L3_TYPE.get(&made[0x10..]), 1);
}

#[test]
fn entries_say_which_version_of_roce_they_are_of() {
    let mut rig = Rig::on(Link::Roce);
    let index = set_roce_address_in::ROCE_ADDRESS_INDEX;
    for (code, kind, version) in [(0, 0, RoceVersion::V1), (2, 1, RoceVersion::V2)] {
        let mut address = [0u8; 32];
        address[..2].copy_from_slice(&[0xfe, 0x80]);
        roce_addr_layout::ROCE_VERSION.set(&mut address, code);
        roce_addr_layout::ROCE_L3_TYPE.set(&mut address, kind);
        let mut set = Command::new(opcode::SET_ROCE_ADDRESS, 0x10).set(index, 1u64);
        set.0.extend_from_slice(&address);
        rig.run(&set).unwrap();
        assert_eq!(rig.card.identity.entry(1).version, version);
    }
    // An entry that the device was created with.
    rig.card.identity.gids[0].version = RoceVersion::V1;
    let made = rig.run(&Command::new(opcode::QUERY_ROCE_ADDRESS, 0x10)).unwrap();
    assert_eq!(roce_addr_layout::ROCE_VERSION.get(&made[0x10..]), 0);
}

#[test]
fn address_that_comes_with_a_gid_is_one_of_the_ports() {
    const MAC: [u8; 6] = [2, 1, 2, 3, 4, 5];
    let mut rig = Rig::on(Link::Roce);
    let set = |rig: &mut Rig, gid: u8, mac: [u8; 6]| {
        let mut address = [0u8; 32];
        address[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, gid]);
        if gid == 0 {
            address = [0; 32];
        }
        address[SOURCE_MAC].copy_from_slice(&mac);
        roce_addr_layout::ROCE_VERSION.set(&mut address, 2);
        let index = set_roce_address_in::ROCE_ADDRESS_INDEX;
        let mut set = Command::new(opcode::SET_ROCE_ADDRESS, 0x10).set(index, 1u64);
        set.0.extend_from_slice(&address);
        rig.run(&set).unwrap();
    };
    set(&mut rig, 1, MAC);
    assert_eq!(rig.card.identity.source_mac(1), MAC);
    assert_eq!(rig.card.identity.source_mac(0), rig.card.identity.mac);
    assert!(rig.card.identity.has_address(LinkAddress::Mac(MAC)));
    // It goes with the entry.
    set(&mut rig, 0, MAC);
    assert!(!rig.card.identity.has_address(LinkAddress::Mac(MAC)));
    assert_eq!(rig.card.identity.addresses().count(), 1);
}

#[test]
fn an_entry_may_be_of_a_vlan() {
    let mut rig = Rig::on(Link::Roce);
    let index = set_roce_address_in::ROCE_ADDRESS_INDEX;
    let set = |rig: &mut Rig, at: u64, valid: u64, vlan: u64| {
        let mut address = [0u8; 32];
        address[10..16].copy_from_slice(&[0xff, 0xff, 10, 0, 0, 1]);
        roce_addr_layout::ROCE_VERSION.set(&mut address, 2);
        roce_addr_layout::VLAN_VALID.set(&mut address, valid);
        roce_addr_layout::VLAN_ID.set(&mut address, vlan);
        let mut set = Command::new(opcode::SET_ROCE_ADDRESS, 0x10).set(index, at);
        set.0.extend_from_slice(&address);
        rig.run(&set).map(|_| address)
    };
    // The same address without a VLAN, in one, and in another. A number alone makes no VLAN.
    for (at, valid, vlan, expected) in
        [(1, 0, 0, None), (2, 1, 5, Some(5)), (3, 1, 4094, Some(4094)), (4, 0, 5, None)]
    {
        let address = set(&mut rig, at, valid, vlan).unwrap();
        assert_eq!(rig.card.identity.entry(at as usize).vlan, expected);
        let query = Command::new(opcode::QUERY_ROCE_ADDRESS, 0x10).set(index, at);
        assert_eq!(rig.run(&query).unwrap()[0x10..0x30], address);
    }
    assert!(set(&mut rig, 2, 1, 4095).is_err());
    assert_eq!(rig.card.identity.entry(2).vlan, Some(5), "a refused command changes nothing");
    // The driver clears an entry by zeros alone.
    let mut clear = Command::new(opcode::SET_ROCE_ADDRESS, 0x10).set(index, 2u64);
    clear.0.extend_from_slice(&[0; 32]);
    rig.run(&clear).unwrap();
    let cleared = rig.card.identity.entry(2);
    assert_eq!((cleared.gid, cleared.vlan), ([0; 16], None));
}
