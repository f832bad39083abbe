//! The context of the function's virtual Ethernet port: what it is, and what the driver has set.

use mlx5_sys::ifc::{
    Field, modify_nic_vport_context_in, modify_nic_vport_field_select, nic_vport_context,
    query_nic_vport_context_in, query_nic_vport_context_out,
};

use super::vport::own;
use super::{Refusal, get};
use crate::card::{Card, Link};
use crate::function::{LONGEST_FRAME, List, MTU, Vport};

/// Bytes of an entry of a list.
const ENTRY: usize = 8;

/// The bits for packets to one receiver, to groups, and all.
const PROMISCUOUS: [Field; 3] =
    [nic_vport_context::PROMISC_UC, nic_vport_context::PROMISC_MC, nic_vport_context::PROMISC_ALL];

/// The bits that switch local loopback off: to one receiver, and to groups.
const NO_LOCAL_LOOPBACK: [Field; 2] =
    [nic_vport_context::DISABLE_UC_LOCAL_LB, nic_vport_context::DISABLE_MC_LOCAL_LB];

/// Checks that a command names the function's own port, on Ethernet, and one of its lists.
fn list_of(card: &Card, input: &[u8], [other, vport, list]: [Field; 3]) -> Result<List, Refusal> {
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    own(input, other, vport)?;
    List::numbered(get(input, list)).ok_or(Refusal::VportList)
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use nic_vport_context as c;
    use query_nic_vport_context_in as q;
    let list = list_of(card, input, [q::OTHER_VPORT, q::VPORT_NUMBER, q::ALLOWED_LIST_TYPE])?;
    let vport = &card.function.vport;
    let entries = vport.list(list);
    let context = query_nic_vport_context_out::NIC_VPORT_CONTEXT.bytes();
    // The driver asks for the context alone as well: entries that do not fit are left out.
    let room = output.get_mut(context.end..).ok_or(Refusal::OutputLength)?;
    for (to, entry) in room.chunks_exact_mut(ENTRY).zip(entries) {
        to.copy_from_slice(&entry.to_be_bytes());
    }
    let context = &mut output[context];
    let address = card.identity.mac.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    for (field, value) in [
        (c::ROCE_EN, vport.roce.into()),
        (c::MTU, vport.mtu.unwrap_or(MTU).into()),
        (c::SYSTEM_IMAGE_GUID, card.identity.node_guid),
        (c::PORT_GUID, card.identity.node_guid),
        (c::NODE_GUID, card.identity.node_guid),
        (c::ALLOWED_LIST_TYPE, list as u64),
        (c::ALLOWED_LIST_SIZE, entries.len() as u64),
        (c::PERMANENT_ADDRESS, address),
    ] {
        field.set(context, value);
    }
    for (field, set) in PROMISCUOUS.into_iter().zip(vport.promiscuous()) {
        field.set(context, set.into());
    }
    for (field, set) in NO_LOCAL_LOOPBACK.into_iter().zip(vport.no_local_loopback) {
        field.set(context, set.into());
    }
    Ok(())
}

/// MODIFY_NIC_VPORT_CONTEXT: sets what the driver selects, all or nothing.
pub fn modify(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use modify_nic_vport_context_in as q;
    use modify_nic_vport_field_select as select;
    use nic_vport_context as c;
    super::by_driver(input)?;
    let which = c::ALLOWED_LIST_TYPE.within(q::NIC_VPORT_CONTEXT);
    let list = list_of(card, input, [q::OTHER_VPORT, q::VPORT_NUMBER, which])?;
    let selected = |field: Field| field.within(q::FIELD_SELECT).get(input) == 1;
    let fixed = [
        select::AFFILIATION,
        select::NODE_GUID,
        select::PORT_GUID,
        select::MIN_INLINE,
        select::CHANGE_EVENT,
        select::PERMANENT_ADDRESS,
    ];
    if fixed.into_iter().any(selected) {
        return Err(Refusal::VportField);
    }
    let context = &input[q::NIC_VPORT_CONTEXT.bytes()];
    let mut vport: Vport = card.function.vport.clone();
    if selected(select::MTU) {
        let mtu = c::MTU.get(context);
        if mtu > LONGEST_FRAME.into() {
            return Err(Refusal::VportMtu);
        }
        vport.mtu = Some(mtu as u16);
    }
    if selected(select::ROCE_EN) {
        vport.roce = c::ROCE_EN.get(context) == 1;
    }
    let loopback = [select::DISABLE_UC_LOCAL_LB, select::DISABLE_MC_LOCAL_LB];
    for (at, selector) in loopback.into_iter().enumerate() {
        if selected(selector) {
            vport.no_local_loopback[at] = NO_LOCAL_LOOPBACK[at].get(context) == 1;
        }
    }
    if selected(select::PROMISC) {
        vport.set_promiscuous(PROMISCUOUS.map(|field| field.get(context) == 1));
    }
    if selected(select::ADDRESSES_LIST) {
        let start = q::NIC_VPORT_CONTEXT.bytes().end;
        let length = c::ALLOWED_LIST_SIZE.get(context) as usize * ENTRY;
        let entries = input.get(start..start + length).ok_or(Refusal::InputLength)?;
        let entries = entries.chunks_exact(ENTRY);
        let number = |entry: &[u8]| entry.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        if !vport.set_list(list, entries.map(number).collect()) {
            return Err(Refusal::VportListLength);
        }
    }
    card.function.vport = vport;
    Ok(())
}

#[cfg(test)]
pub mod tests;
