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
use crate::card::{Card, GidEntry, Identity, Link};
use crate::transport::p_key;
use crate::wire::{RoceVersion, gid};

/// Asks for the whole table.
const ALL: u32 = 0xffff;

/// Capability flags of the port: system image GUID, extended speeds.
pub const CAPABILITIES: u32 = 1 << 11 | 1 << 14;

/// Codes of the versions of RoCE in such an entry (`device.h`).
const VERSION_1: u32 = 0;
const VERSION_2: u32 = 2;
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

/// Returns the GUID of the port.
pub fn port_guid(identity: &Identity) -> u64 {
    match (identity.link, identity.gids.first()) {
        (Link::InfiniBand, Some(entry)) => {
            entry.gid[8..].iter().fold(0, |guid, byte| guid << 8 | u64::from(*byte))
        }
        _ => identity.node_guid,
    }
}

/// Returns the LID of the subnet manager, if one has configured the port.
pub fn manager_lid(card: &Card) -> u16 {
    u16::from(card.configured && card.identity.link == Link::InfiniBand)
}

pub fn query_context(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use hca_vport_context as c;
    use query_hca_vport_context_in as q;
    here(input, q::OTHER_VPORT, q::VPORT_NUMBER, q::PORT_NUM)?;
    let context = &mut output[query_hca_vport_context_out::HCA_VPORT_CONTEXT.bytes()];
    let identity = &card.identity;
    for (field, value) in [
        (c::PORT_PHYSICAL_STATE, card.port_state.physical().into()),
        (c::PORT_STATE, card.port_state.logical().into()),
        (c::VPORT_STATE, 4),
        (c::SYSTEM_IMAGE_GUID, identity.node_guid),
        (c::NODE_GUID, identity.node_guid),
        (c::PORT_GUID, port_guid(identity)),
        (c::CAP_MASK1, CAPABILITIES.into()),
        (c::LID, if card.configured { identity.lid.into() } else { 0 }),
        (c::SM_LID, manager_lid(card).into()),
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
        entry.copy_from_slice(&card.identity.entry(index).gid);
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
            let known = card.identity.entry(index.into());
            entry[..16].copy_from_slice(&known.gid);
            if !known.is_empty() && known.version == RoceVersion::V2 {
                roce_addr_layout::ROCE_VERSION.set(entry, VERSION_2.into());
                let is_ipv6 = !gid::is_ipv4(&known.gid);
                roce_addr_layout::ROCE_L3_TYPE.set(entry, is_ipv6.into());
            }
        }
    }
    Ok(())
}

/// Returns the VLAN of an entry, if it is of one.
fn vlan_of(address: &[u8]) -> Result<Option<u16>, Refusal> {
    /// Names no VLAN (IEEE 802.1Q).
    const RESERVED: u16 = 0xfff;
    if get(address, roce_addr_layout::VLAN_VALID) == 0 {
        return Ok(None);
    }
    match get(address, roce_addr_layout::VLAN_ID) as u16 {
        RESERVED => Err(Refusal::RoceVlan),
        vlan => Ok(Some(vlan)),
    }
}

pub fn set_roce_address(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use set_roce_address_in as q;
    let index = index(card, input, q::ROCE_ADDRESS_INDEX, q::VHCA_PORT_NUM)?;
    let mut address = [0; 32];
    address.copy_from_slice(&input[q::ROCE_ADDRESS.bytes()]);
    let gid: [u8; 16] = std::array::from_fn(|i| address[i]);
    let empty = gid == [0; 16];
    let vlan = if empty { None } else { vlan_of(&address)? };
    let version = match get(&address, roce_addr_layout::ROCE_VERSION) {
        VERSION_1 => RoceVersion::V1,
        // Type 0 is IPv4, 1 is IPv6.
        VERSION_2 if get(&address, roce_addr_layout::ROCE_L3_TYPE) <= 1 => RoceVersion::V2,
        _ if empty => RoceVersion::default(),
        _ => return Err(Refusal::RoceVersion),
    };
    card.objects.roce_addresses.insert(index, address);
    let index = usize::from(index);
    let identity = &mut card.identity;
    if identity.gids.len() <= index {
        identity.gids.resize(index + 1, GidEntry::default());
    }
    let mac: [u8; 6] = std::array::from_fn(|at| address[SOURCE_MAC.start + at]);
    let is_other = !empty && mac != [0; 6] && mac != identity.mac;
    identity.gids[index] = GidEntry { gid, version, mac: is_other.then_some(mac), vlan };
    Ok(())
}

#[cfg(test)]
mod tests;
