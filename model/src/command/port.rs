//! Commands on the port: its state, GID and P_Key tables.

use std::ops::Range;

use mlx5_sys::ifc::{
    Field, hca_vport_context, query_hca_vport_context_in, query_hca_vport_context_out,
    query_hca_vport_gid_in, query_hca_vport_gid_out, query_hca_vport_pkey_in,
    query_hca_vport_pkey_out, query_roce_address_in, query_roce_address_out, roce_addr_layout,
    set_roce_address_in,
};

use super::capability::PKEYS;
use super::{Refusal, get};
use crate::card::{Card, Link};
use crate::transport::p_key;

/// Asks for the whole table.
const ALL: u32 = 0xffff;

/// Bytes of the MAC in an entry of the table of RoCE addresses.
const SOURCE_MAC: Range<usize> = 0x12..0x18;

/// Checks the fields by which a command could name another virtual port or port.
fn here(input: &[u8], other: Field, vport: Field, port: Field) -> Result<(), Refusal> {
    if get(input, other) == 1 || get(input, vport) != 0 {
        return Err(Refusal::OtherFunction);
    }
    // Zero where the function has one port only.
    if get(input, port) > 1 { Err(Refusal::Port) } else { Ok(()) }
}

pub fn query_context(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use hca_vport_context as c;
    use query_hca_vport_context_in as q;
    here(input, q::OTHER_VPORT, q::VPORT_NUMBER, q::PORT_NUM)?;
    let context = &mut output[query_hca_vport_context_out::HCA_VPORT_CONTEXT.bytes()];
    let identity = &card.identity;
    let port_guid = match (identity.link, identity.gids.first()) {
        (Link::InfiniBand, Some(gid)) => {
            gid[8..].iter().fold(0, |guid, byte| guid << 8 | u64::from(*byte))
        }
        _ => identity.node_guid,
    };
    for (field, value) in [
        (c::PORT_PHYSICAL_STATE, card.port_state.physical().into()),
        (c::PORT_STATE, card.port_state.logical().into()),
        (c::VPORT_STATE, 4),
        (c::SYSTEM_IMAGE_GUID, identity.node_guid),
        (c::NODE_GUID, identity.node_guid),
        (c::PORT_GUID, port_guid),
        // System image GUID, extended speeds.
        (c::CAP_MASK1, 1 << 11 | 1 << 14),
        (c::LID, if card.configured { identity.lid.into() } else { 0 }),
        (c::SM_LID, u64::from(card.configured && identity.link == Link::InfiniBand)),
        (c::SUBNET_TIMEOUT, 18),
    ] {
        field.set(context, value);
    }
    Ok(())
}

/// The entries of a table of `size` that an index asks for.
fn range(index: u32, size: usize, refusal: Refusal) -> Result<Range<usize>, Refusal> {
    match index {
        ALL => Ok(0..size),
        n if (n as usize) < size => Ok(n as usize..n as usize + 1),
        _ => Err(refusal),
    }
}

pub fn query_gid(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_hca_vport_gid_in as q;
    here(input, q::OTHER_VPORT, q::VPORT_NUMBER, q::PORT_NUM)?;
    let range = range(get(input, q::GID_INDEX), card.gid_table_size(), Refusal::GidIndex)?;
    let start = query_hca_vport_gid_out::GID.bytes().start;
    let table = output.get_mut(start..start + range.len() * 16).ok_or(Refusal::OutputLength)?;
    for (entry, index) in table.chunks_exact_mut(16).zip(range.clone()) {
        if let Some(gid) = card.identity.gids.get(index) {
            entry.copy_from_slice(gid);
        }
    }
    query_hca_vport_gid_out::GIDS_NUM.set(output, range.len() as u64);
    Ok(())
}

pub fn query_pkey(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_hca_vport_pkey_in as q;
    here(input, q::OTHER_VPORT, q::VPORT_NUMBER, q::PORT_NUM)?;
    let range = range(get(input, q::PKEY_INDEX), PKEYS, Refusal::PkeyIndex)?;
    let start = query_hca_vport_pkey_out::PKEY.bytes().start;
    let table = output.get_mut(start..start + range.len() * 4).ok_or(Refusal::OutputLength)?;
    for (entry, index) in table.chunks_exact_mut(4).zip(range) {
        if let Some(key) = p_key(card.identity.link, index as u32) {
            Field::new(0, 15, 16).set(entry, u64::from(key));
        }
    }
    Ok(())
}

fn index(card: &Card, input: &[u8], index: Field, port: Field) -> Result<u16, Refusal> {
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    if get(input, port) > 1 {
        return Err(Refusal::Port);
    }
    let index = get(input, index);
    if index as usize >= card.gid_table_size() {
        return Err(Refusal::GidIndex);
    }
    Ok(index as u16)
}

pub fn query_roce_address(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_roce_address_in as q;
    let index = index(card, input, q::ROCE_ADDRESS_INDEX, q::VHCA_PORT_NUM)?;
    let entry = &mut output[query_roce_address_out::ROCE_ADDRESS.bytes()];
    match card.objects.roce_addresses.get(&index) {
        Some(address) => entry.copy_from_slice(address),
        // Entries the card was made with.
        None => {
            if let Some(gid) = card.identity.gids.get(usize::from(index)) {
                entry[..16].copy_from_slice(gid);
                if *gid != [0; 16] {
                    roce_addr_layout::ROCE_VERSION.set(entry, 2);
                    let mapped = gid[..10] == [0; 10] && gid[10..12] == [0xff; 2];
                    roce_addr_layout::ROCE_L3_TYPE.set(entry, u64::from(!mapped));
                }
            }
        }
    }
    Ok(())
}

pub fn set_roce_address(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use set_roce_address_in as q;
    let index = index(card, input, q::ROCE_ADDRESS_INDEX, q::VHCA_PORT_NUM)?;
    let mut address = [0; 32];
    address.copy_from_slice(&input[q::ROCE_ADDRESS.bytes()]);
    let gid: [u8; 16] = std::array::from_fn(|i| address[i]);
    let empty = gid == [0; 16];
    // `device.h`: version 2 is RoCEv2; type 0 is IPv4, 1 is IPv6.
    if !empty
        && (get(&address, roce_addr_layout::ROCE_VERSION) != 2
            || get(&address, roce_addr_layout::ROCE_L3_TYPE) > 1)
    {
        return Err(Refusal::RoceVersion);
    }
    card.objects.roce_addresses.insert(index, address);
    let index = usize::from(index);
    let identity = &mut card.identity;
    if identity.gids.len() <= index {
        identity.gids.resize(index + 1, [0; 16]);
    }
    identity.gids[index] = gid;
    // Without a MAC, the port's own.
    match address[SOURCE_MAC].try_into() {
        Ok(mac) if !empty && mac != [0; 6] && mac != identity.mac => {
            identity.gid_macs.insert(index, mac);
        }
        _ => drop(identity.gid_macs.remove(&index)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(one[0x10..0x20], rig.card.identity.gids[0]);
        assert_eq!(query_hca_vport_gid_out::GIDS_NUM.get(&one), 1);
        let all = rig.run(&gid.clone().set(index, ALL)).unwrap();
        assert_eq!(all[0x10..0x20], rig.card.identity.gids[0]);
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
        assert_eq!(identity.gids[2], address[..16]);
        assert_eq!(identity.source_mac(2), identity.mac, "no other came with it");
        let query = Command::new(opcode::QUERY_ROCE_ADDRESS, 0x10);
        let reply = rig.run(&query.clone().set(index, 2u64)).unwrap();
        assert_eq!(reply[0x10..0x30], address);
        let made = rig.run(&query).unwrap();
        assert_eq!(made[0x10..0x20], rig.card.identity.gids[0]);
        assert_eq!(roce_addr_layout::ROCE_VERSION.get(&made[0x10..]), 2);
        assert_eq!(roce_addr_layout::ROCE_L3_TYPE.get(&made[0x10..]), 1);
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
}
