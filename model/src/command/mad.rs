//! MAD_IFC: the driver asks the subnet management agent of its port.

use mlx5_sys::ifc::{mad_ifc_in, mad_ifc_out};

use super::capability::PKEYS;
use super::port::{CAPABILITIES, manager_lid, port_guid};
use super::{Refusal, get};
use crate::card::{Card, Link};
use crate::management::mad::SIZE;
use crate::management::smp::Agent;
use crate::transport::p_key;

/// Vendor, as PCI has it.
const VENDOR: u32 = 0x15b3;

/// MAD_IFC. Its op_mod lets the agent ignore keys of management, which it has none of.
pub fn ask(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    super::by_driver(input)?;
    if card.identity.link != Link::InfiniBand {
        return Err(Refusal::NotInfiniBand);
    }
    if get(input, mad_ifc_in::PORT) != 1 {
        return Err(Refusal::Port);
    }
    let start = mad_ifc_in::MAD.bytes().start;
    let request = input.get(start..start + SIZE).and_then(|bytes| bytes.try_into().ok());
    let reply = agent(card).answer(request.ok_or(Refusal::InputLength)?);
    let start = mad_ifc_out::RESPONSE_MAD_PACKET.bytes().start;
    let output = output.get_mut(start..start + SIZE).ok_or(Refusal::OutputLength)?;
    output.copy_from_slice(&reply);
    Ok(())
}

fn agent(card: &Card) -> Agent {
    let identity = &card.identity;
    let half = |gid: &[u8]| gid.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let guid = |index| half(&identity.entry(index).gid[8..]);
    let mut guids: Vec<u64> = (0..card.gid_table_size()).map(guid).collect();
    guids[0] = port_guid(identity);
    let key = |index| p_key(identity.link, index as u32).unwrap_or(0);
    Agent {
        description: card.function.description,
        node_guid: identity.node_guid,
        vendor: VENDOR,
        device: identity.profile.device(),
        prefix: half(&identity.entry(0).gid[..8]),
        guids,
        p_keys: (0..PKEYS).map(key).collect(),
        lid: if card.configured { identity.lid } else { 0 },
        manager_lid: manager_lid(card),
        capabilities: CAPABILITIES,
        state: card.port_state.logical(),
        physical: card.port_state.physical(),
        log_mtu: card.log_mtu(),
    }
}

#[cfg(test)]
mod tests;
