//! Commands on flow tables, their groups and entries.

use mlx5_sys::ifc::{
    Field, create_flow_group_in, create_flow_group_out, create_flow_table_in,
    create_flow_table_out, delete_fte_in, dest_format_struct, destroy_flow_group_in,
    destroy_flow_table_in, flow_context, flow_counter_list, flow_table_context, fte_match_param,
    fte_match_set_misc2, modify_flow_table_in, set_flow_table_root_in, set_fte_in,
};

use super::capability::{LOG_MAX_FLOW_TABLE, MAX_FLOW_LEVEL};
use super::flow_counter::{self, LOG_MAX_COUNTERS};
use super::{Refusal, context, flow_action, get, owned, uid};
use crate::card::{Card, Link};
use crate::object::{
    Destination, FlowEntry, FlowGroup, FlowTable, LOG_MAX_DESTINATIONS, MATCH, NIC_RX, NIC_TX,
    SNIFFER_RX, SNIFFER_TX, TunnelActions,
};

/// Destinations (`mlx5_ifc.h`, `MLX5_FLOW_DESTINATION_TYPE_*`).
const TO_TABLE: u32 = 1;
const TO_TIR: u32 = 2;

/// Actions (`mlx5_ifc.h`, `MLX5_FLOW_CONTEXT_ACTION_*`).
const ALLOW: u32 = 1;
const DROP: u32 = 2;
const FORWARD: u32 = 4;
const COUNT: u32 = 8;

/// Looks up a table that a command may touch.
fn table<'a>(
    card: &'a mut Card,
    number: u32,
    kind: u32,
    input: &[u8],
) -> Result<&'a mut FlowTable, Refusal> {
    let table = card.objects.steering.tables.get_mut(number).ok_or(Refusal::NoFlowTable)?;
    owned(table.uid, uid(input))?;
    if u32::from(table.kind) != kind {
        return Err(Refusal::FlowTableType);
    }
    Ok(table)
}

pub fn create_table(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let field = |field: Field| get(input, field.within(create_flow_table_in::FLOW_TABLE_CONTEXT));
    if card.identity.link != Link::Roce {
        return Err(Refusal::NotRoce);
    }
    if get(input, create_flow_table_in::OTHER_VPORT) == 1 {
        return Err(Refusal::OtherFunction);
    }
    let kind = get(input, create_flow_table_in::TABLE_TYPE) as u8;
    if !matches!(kind, NIC_RX | NIC_TX | SNIFFER_RX | SNIFFER_TX) {
        return Err(Refusal::FlowTableType);
    }
    if field(flow_table_context::LOG_SIZE) > LOG_MAX_FLOW_TABLE
        || field(flow_table_context::LEVEL) > MAX_FLOW_LEVEL
    {
        return Err(Refusal::FlowTableSize);
    }
    let tunnels = TunnelActions {
        reformat: field(flow_table_context::REFORMAT_EN) == 1,
        decap: field(flow_table_context::DECAP_EN) == 1,
    };
    // Tunnels end where packets arrive, and sniffers see packets as they are.
    if field(flow_table_context::SW_OWNER) == 1
        || tunnels.reformat && !matches!(kind, NIC_RX | NIC_TX)
        || tunnels.decap && kind != NIC_RX
    {
        return Err(Refusal::FlowTableType);
    }
    let level = field(flow_table_context::LEVEL) as u8;
    let miss = miss(card, input, create_flow_table_in::FLOW_TABLE_CONTEXT, kind.into(), level)?;
    let table = FlowTable {
        uid: uid(input),
        kind,
        level,
        size: 1 << field(flow_table_context::LOG_SIZE),
        miss,
        tunnels,
        groups: Default::default(),
        next_group: 1,
    };
    let number = card.objects.steering.tables.add(table).ok_or(Refusal::Exhausted)?;
    create_flow_table_out::TABLE_ID.set(output, number.into());
    Ok(())
}

/// Returns the table for packets that match no entry of a table of a type and level, as the context
/// at a field names it.
fn miss(
    card: &mut Card,
    input: &[u8],
    at: Field,
    kind: u32,
    level: u8,
) -> Result<Option<u32>, Refusal> {
    /// `table_miss_action`: on to the default, or to the table that is named.
    const DEFAULT: u32 = 0;
    const NAMED: u32 = 1;
    match get(input, flow_table_context::TABLE_MISS_ACTION.within(at)) {
        DEFAULT => Ok(None),
        NAMED => {
            let next = get(input, flow_table_context::TABLE_MISS_ID.within(at));
            if table(card, next, kind, input)?.level <= level {
                return Err(Refusal::FlowTableLevel);
            }
            Ok(Some(next))
        }
        _ => Err(Refusal::FlowTableType),
    }
}

/// MODIFY_FLOW_TABLE: another table for packets that match no entry.
pub fn modify_table(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use modify_flow_table_in as m;
    /// `modify_field_select`: the action and the table for packets that match no entry.
    const MISS_TABLE: u32 = 1;
    if get(input, m::OTHER_VPORT) == 1 {
        return Err(Refusal::OtherFunction);
    }
    if get(input, m::MODIFY_FIELD_SELECT) != MISS_TABLE {
        return Err(Refusal::EthernetModify);
    }
    let (number, kind) = (get(input, m::TABLE_ID), get(input, m::TABLE_TYPE));
    let level = table(card, number, kind, input)?.level;
    let miss = miss(card, input, m::FLOW_TABLE_CONTEXT, kind, level)?;
    table(card, number, kind, input)?.miss = miss;
    Ok(())
}

pub fn destroy_table(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_flow_table_in::TABLE_ID);
    let kind = get(input, destroy_flow_table_in::TABLE_TYPE);
    let empty = table(card, number, kind, input)?.groups.is_empty();
    if !empty || card.objects.steering.uses_table(number) {
        return Err(Refusal::FlowTableBusy);
    }
    // A root may go: nothing is found there any more.
    card.objects.steering.roots.retain(|_, root| *root != number);
    card.objects.steering.tables.remove(number);
    Ok(())
}

pub fn set_root(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, set_flow_table_root_in::TABLE_ID);
    let kind = get(input, set_flow_table_root_in::TABLE_TYPE);
    if get(input, set_flow_table_root_in::UNDERLAY_QPN) != 0 {
        return Err(Refusal::FlowTableType);
    }
    table(card, number, kind, input)?;
    card.objects.steering.roots.insert(kind as u8, number);
    Ok(())
}

/// Returns whether a byte of the criteria is that of a register of metadata.
fn is_register(at: usize) -> bool {
    use fte_match_set_misc2 as m;
    let place = |field: Field| field.within(fte_match_param::MISC_PARAMETERS_2).bytes();
    (place(m::METADATA_REG_C_7).start..place(m::METADATA_REG_C_0).end).contains(&at)
}

pub fn create_group(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    /// `match_criteria_enable`: outer headers, inner ones, and the parameters with the registers of
    /// metadata. The first and the last are offered.
    const OUTER: u32 = 1;
    const INNER: u32 = 4;
    const MISC_2: u32 = 8;
    let number = get(input, create_flow_group_in::TABLE_ID);
    let kind = get(input, create_flow_group_in::TABLE_TYPE);
    let criteria: Box<[u8; MATCH]> = context(input, create_flow_group_in::MATCH_CRITERIA)?;
    let enabled = get(input, create_flow_group_in::MATCH_CRITERIA_ENABLE);
    let matches = |headers: Field| criteria[headers.bytes()].iter().any(|byte| *byte != 0);
    let outer = fte_match_param::OUTER_HEADERS;
    if matches(fte_match_param::INNER_HEADERS) && enabled & INNER == 0 {
        return Err(Refusal::FlowInnerUnset);
    }
    let others = |at: usize| at >= outer.bytes().end && !is_register(at);
    let compared = |at: &usize| criteria[*at] != 0;
    if enabled & !(OUTER | MISC_2) != 0
        || (0..MATCH).filter(compared).any(others)
        || enabled & MISC_2 == 0 && matches(fte_match_param::MISC_PARAMETERS_2)
    {
        return Err(Refusal::FlowCriteria);
    }
    match (enabled & OUTER, matches(outer)) {
        (0, true) => return Err(Refusal::FlowOuterUnset),
        (OUTER, false) => return Err(Refusal::FlowCriteriaEmpty),
        _ => {}
    }
    let range = (
        get(input, create_flow_group_in::START_FLOW_INDEX),
        get(input, create_flow_group_in::END_FLOW_INDEX),
    );
    let table = table(card, number, kind, input)?;
    let overlaps = |other: &FlowGroup| range.0 <= other.range.1 && other.range.0 <= range.1;
    if range.0 > range.1 || range.1 >= table.size || table.groups.values().any(overlaps) {
        return Err(Refusal::FlowRange);
    }
    let group = table.next_group;
    table.next_group += 1;
    table.groups.insert(group, FlowGroup { range, criteria, entries: Default::default() });
    create_flow_group_out::GROUP_ID.set(output, group.into());
    Ok(())
}

pub fn destroy_group(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_flow_group_in::TABLE_ID);
    let kind = get(input, destroy_flow_group_in::TABLE_TYPE);
    let id = get(input, destroy_flow_group_in::GROUP_ID);
    let table = table(card, number, kind, input)?;
    if !table.groups.get(&id).ok_or(Refusal::NoFlowGroup)?.entries.is_empty() {
        return Err(Refusal::FlowGroupBusy);
    }
    table.groups.remove(&id);
    Ok(())
}

/// The destinations of an entry, each checked.
fn destinations(
    card: &mut Card,
    input: &[u8],
    kind: u32,
    level: u8,
) -> Result<Vec<Destination>, Refusal> {
    let field = |field: Field| get(input, field.within(set_fte_in::FLOW_CONTEXT));
    let start = set_fte_in::FLOW_CONTEXT.bytes().start + flow_context::SIZE;
    let sent = kind == u32::from(NIC_TX);
    let count = field(flow_context::DESTINATION_LIST_SIZE) as usize;
    // A packet that is sent stays one packet.
    let most = if sent { 1 } else { 1 << LOG_MAX_DESTINATIONS };
    if !(1..=most).contains(&count) {
        return Err(Refusal::FlowDestinations);
    }
    let end = count.checked_mul(dest_format_struct::SIZE).and_then(|size| size.checked_add(start));
    let list = end.and_then(|end| input.get(start..end)).ok_or(Refusal::InputLength)?;
    let mut destinations = Vec::new();
    for entry in list.chunks_exact(dest_format_struct::SIZE) {
        let id = get(entry, dest_format_struct::DESTINATION_ID);
        destinations.push(match get(entry, dest_format_struct::DESTINATION_TYPE) {
            TO_TIR if !sent => {
                owned(card.objects.tirs.get(id).ok_or(Refusal::NoTir)?.uid, uid(input))?;
                Destination::Tir(id)
            }
            TO_TABLE => {
                if table(card, id, kind, input)?.level <= level {
                    return Err(Refusal::FlowTableLevel);
                }
                Destination::Table(id)
            }
            _ => return Err(Refusal::FlowDestination),
        });
    }
    Ok(destinations)
}

/// The counters of an entry, each checked. Their list follows that of destinations.
fn counters(card: &Card, input: &[u8]) -> Result<Vec<u32>, Refusal> {
    let field = |field: Field| get(input, field.within(set_fte_in::FLOW_CONTEXT));
    let count = field(flow_context::FLOW_COUNTER_LIST_SIZE) as usize;
    if !(1..=1 << LOG_MAX_COUNTERS).contains(&count) {
        return Err(Refusal::FlowCounterList);
    }
    let before = field(flow_context::DESTINATION_LIST_SIZE) as usize * dest_format_struct::SIZE;
    let start = set_fte_in::FLOW_CONTEXT.bytes().start + flow_context::SIZE + before;
    let list = input.get(start..start + count * flow_counter_list::SIZE);
    let list = list.ok_or(Refusal::InputLength)?.chunks_exact(flow_counter_list::SIZE);
    let numbers = list.map(|entry| get(entry, flow_counter_list::FLOW_COUNTER_ID));
    let checked = |number| flow_counter::check(card, number, input).map(|()| number);
    numbers.map(checked).collect()
}

/// Returns an entry with those parts of `new` that a change names in its mask, and the others of `old`.
fn changed(old: &FlowEntry, new: FlowEntry, mask: u32) -> FlowEntry {
    /// Bits of `modify_enable_mask` (`fs_core.h`, `MLX5_SET_FTE_MODIFY_ENABLE_MASK_*`).
    const ACTION: u32 = 1;
    const TAG: u32 = 1 << 1;
    const DESTINATIONS: u32 = 1 << 2;
    const COUNTERS: u32 = 1 << 3;
    let mut entry = FlowEntry { value: new.value, ..old.clone() };
    if mask & ACTION != 0 {
        entry.changes = new.changes;
    }
    if mask & TAG != 0 {
        entry.tag = new.tag;
    }
    // A packet is dropped by the action, and led elsewhere by the list.
    if mask & DESTINATIONS != 0 || (mask & ACTION != 0 && new.destinations.is_empty()) {
        entry.destinations = new.destinations;
    }
    if mask & COUNTERS != 0 {
        entry.counters = new.counters;
    }
    entry
}

pub fn set_entry(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// op_mod: a new entry, or changes to one.
    const NEW: u32 = 0;
    const CHANGED: u32 = 1;
    let number = get(input, set_fte_in::TABLE_ID);
    let kind = get(input, set_fte_in::TABLE_TYPE);
    let index = get(input, set_fte_in::FLOW_INDEX);
    let field = |field: Field| get(input, field.within(set_fte_in::FLOW_CONTEXT));
    let operation = get(input, set_fte_in::OP_MOD);
    if !matches!(operation, NEW | CHANGED) {
        return Err(Refusal::OpModifier);
    }
    let FlowTable { level, tunnels, kind: table_kind, .. } = *table(card, number, kind, input)?;
    let action = field(flow_context::ACTION);
    let destinations = match action & !(COUNT | flow_action::ALL) {
        DROP => Vec::new(),
        FORWARD => destinations(card, input, kind, level)?,
        ALLOW if table_kind == NIC_TX => vec![Destination::Port],
        _ => return Err(Refusal::FlowAction),
    };
    let on_headers = action & flow_action::ALL;
    let changes = flow_action::changes(card, input, table_kind, tunnels, on_headers)?;
    let counters = if action & COUNT == 0 { Vec::new() } else { counters(card, input)? };
    let value = flow_context::MATCH_VALUE.within(set_fte_in::FLOW_CONTEXT);
    let value: Box<[u8; MATCH]> = context(input, value)?;
    let tag = field(flow_context::FLOW_TAG);
    let entry = FlowEntry { value, tag, destinations, counters, changes };
    let id = field(flow_context::GROUP_ID);
    let mask = get(input, set_fte_in::MODIFY_ENABLE_MASK);
    let group =
        table(card, number, kind, input)?.groups.get_mut(&id).ok_or(Refusal::NoFlowGroup)?;
    if !(group.range.0..=group.range.1).contains(&index) {
        return Err(Refusal::FlowRange);
    }
    let entry = match (group.entries.get(&index), operation) {
        (None, NEW) => entry,
        (Some(old), CHANGED) => changed(old, entry, mask),
        _ => return Err(Refusal::FlowRange),
    };
    if entry.value.iter().zip(&group.criteria[..]).any(|(value, mask)| value & !mask != 0) {
        return Err(Refusal::FlowValue);
    }
    if group.entries.iter().any(|(other, met)| *other != index && met.value == entry.value) {
        return Err(Refusal::FlowTwice);
    }
    group.entries.insert(index, entry);
    Ok(())
}

pub fn delete_entry(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, delete_fte_in::TABLE_ID);
    let kind = get(input, delete_fte_in::TABLE_TYPE);
    let index = get(input, delete_fte_in::FLOW_INDEX);
    let table = table(card, number, kind, input)?;
    let removed = table.groups.values_mut().find_map(|group| group.entries.remove(&index));
    removed.map(|_| ()).ok_or(Refusal::FlowRange)
}
