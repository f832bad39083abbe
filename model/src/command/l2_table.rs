//! Commands on the table of Ethernet addresses that the function's packets have.

use mlx5_sys::ifc::{
    Field, delete_l2_table_entry_in, query_l2_table_entry_in, query_l2_table_entry_out,
    set_l2_table_entry_in,
};

use super::{Refusal, get};
use crate::card::{Card, Link};
use crate::object::L2Entry;

/// log2 of entries in the table.
pub const LOG_MAX_L2_TABLE: u32 = 7;

/// Checks that the driver of an Ethernet port names an index of the table.
fn index(card: &Card, input: &[u8], field: Field) -> Result<u32, Refusal> {
    super::by_driver(input)?;
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    let index = get(input, field);
    if index < 1 << LOG_MAX_L2_TABLE { Ok(index) } else { Err(Refusal::L2Index) }
}

pub fn set(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use set_l2_table_entry_in as q;
    let index = index(card, input, q::TABLE_INDEX)?;
    let vlan = (get(input, q::VLAN_VALID) == 1).then(|| get(input, q::VLAN) as u16);
    let [.., a, b, c, d, e, f] = q::MAC_ADDRESS.get(input).to_be_bytes();
    card.objects.l2_table.insert(index, L2Entry { mac: [a, b, c, d, e, f], vlan });
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_l2_table_entry_out as r;
    let index = index(card, input, query_l2_table_entry_in::TABLE_INDEX)?;
    let L2Entry { mac, vlan } = card.objects.l2_table.get(&index).ok_or(Refusal::NoL2Entry)?;
    let mac = mac.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    r::MAC_ADDRESS.set(output, mac);
    r::VLAN_VALID.set(output, vlan.is_some().into());
    r::VLAN.set(output, vlan.unwrap_or(0).into());
    Ok(())
}

pub fn delete(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let index = index(card, input, delete_l2_table_entry_in::TABLE_INDEX)?;
    card.objects.l2_table.remove(&index).map(|_| ()).ok_or(Refusal::NoL2Entry)
}

#[cfg(test)]
mod tests;
