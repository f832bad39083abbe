//! Commands on contexts of changed headers and of reformatting, and the part of an entry's command that
//! names them.

use mlx5_sys::ifc::{
    Field, add_action_in, alloc_modify_header_context_in, alloc_modify_header_context_out,
    alloc_packet_reformat_context_in, alloc_packet_reformat_context_out, copy_action_in,
    dealloc_modify_header_context_in, dealloc_packet_reformat_context_in, flow_context,
    packet_reformat_context_in, set_action_in, set_fte_in,
};

use super::{Refusal, get, owned, uid};
use crate::card::{Card, Link};
use crate::object::{
    AddedTag, Decapsulation, ModifyHeader, NIC_RX, NIC_TX, PacketChanges, Reformat, Reformatting,
    TunnelActions,
};
use crate::wire::ethernet::fields::{FieldAction, FieldPart, NoPart};
use crate::wire::ethernet::{HEADER, TAG};

/// The most actions of a context of changed headers.
pub const MAX_ACTIONS: u32 = 16;
/// log2 of contexts of changed headers, and of reformatting.
pub const LOG_MAX_CONTEXTS: u32 = 12;
/// The most bytes of headers that packets get.
pub const MAX_HEADERS: u32 = 128;
/// The greatest offset at which bytes are put in or taken off.
pub const MAX_OFFSET: u32 = 127;

/// Actions on headers (`mlx5_ifc.h`, `MLX5_FLOW_CONTEXT_ACTION_*`).
const REFORMAT: u32 = 0x10;
const DECAP: u32 = 0x20;
const MODIFY: u32 = 0x40;
const POP: u32 = 0x80;
const PUSH: u32 = 0x100;
const POP_2: u32 = 0x400;
const PUSH_2: u32 = 0x800;
/// All of them.
pub const ALL: u32 = REFORMAT | DECAP | MODIFY | POP | PUSH | POP_2 | PUSH_2;

impl From<NoPart> for Refusal {
    fn from(error: NoPart) -> Self {
        match error {
            NoPart::Number => Self::ModifyHeaderField,
            NoPart::Range => Self::ModifyHeaderRange,
        }
    }
}

/// Reads an action of a context of changed headers.
fn field_action(entry: &[u8]) -> Result<FieldAction, Refusal> {
    /// `MLX5_ACTION_TYPE_*`
    const SET: u32 = 1;
    const ADD: u32 = 2;
    const COPY: u32 = 3;
    let field = |field: Field| get(entry, field);
    Ok(match field(set_action_in::ACTION_TYPE) {
        SET => {
            use set_action_in as a;
            let part = FieldPart::new(field(a::FIELD), field(a::OFFSET), field(a::LENGTH))?;
            FieldAction::Set(part, field(a::DATA))
        }
        ADD => {
            use add_action_in as a;
            FieldAction::Add(FieldPart::whole(field(a::FIELD))?, field(a::DATA))
        }
        COPY => {
            use copy_action_in as a;
            let length = field(a::LENGTH);
            let from = FieldPart::new(field(a::SRC_FIELD), field(a::SRC_OFFSET), length)?;
            FieldAction::Copy(
                from,
                FieldPart::new(field(a::DST_FIELD), field(a::DST_OFFSET), length)?,
            )
        }
        _ => return Err(Refusal::ModifyHeaderType),
    })
}

pub fn alloc_modify_header(
    card: &mut Card,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Refusal> {
    use alloc_modify_header_context_in as a;
    on_ethernet(card)?;
    let kind = get(input, a::TABLE_TYPE) as u8;
    if !matches!(kind, NIC_RX | NIC_TX) {
        return Err(Refusal::FlowTableType);
    }
    let count = get(input, a::NUM_OF_ACTIONS);
    if !(1..=MAX_ACTIONS).contains(&count) {
        return Err(Refusal::ModifyHeaderActions);
    }
    let end = a::SIZE + count as usize * set_action_in::SIZE;
    let list = input.get(a::SIZE..end).ok_or(Refusal::InputLength)?;
    let actions = list.chunks_exact(set_action_in::SIZE).map(field_action);
    let actions = actions.collect::<Result<_, _>>()?;
    let contexts = &mut card.objects.steering.modify_headers;
    let context = ModifyHeader { uid: uid(input), kind, actions };
    let vacant = contexts.len() < 1 << LOG_MAX_CONTEXTS;
    let number = if vacant { contexts.add(context) } else { None };
    let number = number.ok_or(Refusal::Exhausted)?;
    alloc_modify_header_context_out::MODIFY_HEADER_ID.set(output, number.into());
    Ok(())
}

/// Looks up a context of changed headers that a command may name.
fn modify_header<'a>(
    card: &'a Card,
    number: u32,
    input: &[u8],
) -> Result<&'a ModifyHeader, Refusal> {
    let context = card.objects.steering.modify_headers.get(number);
    let context = context.ok_or(Refusal::NoModifyHeader)?;
    owned(context.uid, uid(input))?;
    Ok(context)
}

pub fn dealloc_modify_header(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_modify_header_context_in::MODIFY_HEADER_ID);
    modify_header(card, number, input)?;
    if card.objects.steering.uses_modify_header(number) {
        return Err(Refusal::ModifyHeaderBusy);
    }
    card.objects.steering.modify_headers.remove(number);
    Ok(())
}

/// Reads a context of reformatting.
fn reformatting(input: &[u8]) -> Result<Reformatting, Refusal> {
    use packet_reformat_context_in as r;
    /// `MLX5_REFORMAT_TYPE_*`
    const TO_VXLAN: u32 = 0;
    const TO_NVGRE: u32 = 1;
    const TO_L2_TUNNEL: u32 = 2;
    const FROM_L3_TUNNEL: u32 = 3;
    const TO_L3_TUNNEL: u32 = 4;
    const INSERT: u32 = 0xf;
    const REMOVE: u32 = 0x10;
    /// `MLX5_REFORMAT_CONTEXT_ANCHOR_MAC_START`
    const MAC: u32 = 1;
    let at = alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT;
    let field = |field: Field| get(input, field.within(at));
    let kind = field(r::REFORMAT_TYPE);
    let size = field(r::REFORMAT_DATA_SIZE);
    let sizes = match kind {
        TO_VXLAN | TO_NVGRE | TO_L2_TUNNEL | TO_L3_TUNNEL => HEADER as u32..=MAX_HEADERS,
        FROM_L3_TUNNEL => HEADER as u32..=(HEADER + TAG) as u32,
        INSERT | REMOVE => 1..=MAX_HEADERS,
        _ => return Err(Refusal::ReformatType),
    };
    // With a tag or without.
    let cut = kind == FROM_L3_TUNNEL && size as usize % TAG != HEADER % TAG;
    if !sizes.contains(&size) || cut {
        return Err(Refusal::ReformatSize);
    }
    let anchored = matches!(kind, INSERT | REMOVE);
    let offset = field(r::REFORMAT_PARAM_1);
    if anchored && (field(r::REFORMAT_PARAM_0) != MAC || offset > MAX_OFFSET) {
        return Err(Refusal::ReformatAnchor);
    }
    let (offset, size) = (offset as usize, size as usize);
    let start = r::REFORMAT_DATA.within(at).bytes().start;
    let data = input.get(start..start + size).map(<[u8]>::to_vec).ok_or(Refusal::InputLength);
    Ok(match kind {
        TO_L3_TUNNEL => Reformatting::EncapsulatePacket(data?),
        FROM_L3_TUNNEL => Reformatting::Decapsulate(data?),
        INSERT => Reformatting::Insert(offset, data?),
        REMOVE => Reformatting::Remove(offset, size),
        _ => Reformatting::Encapsulate(data?),
    })
}

pub fn alloc_reformat(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    on_ethernet(card)?;
    let context = Reformat { uid: uid(input), form: reformatting(input)? };
    let contexts = &mut card.objects.steering.reformats;
    let vacant = contexts.len() < 1 << LOG_MAX_CONTEXTS;
    let number = if vacant { contexts.add(context) } else { None };
    let number = number.ok_or(Refusal::Exhausted)?;
    alloc_packet_reformat_context_out::PACKET_REFORMAT_ID.set(output, number.into());
    Ok(())
}

/// Looks up a context of reformatting that a command may name.
fn reformat<'a>(card: &'a Card, number: u32, input: &[u8]) -> Result<&'a Reformat, Refusal> {
    let context = card.objects.steering.reformats.get(number).ok_or(Refusal::NoReformat)?;
    owned(context.uid, uid(input))?;
    Ok(context)
}

pub fn dealloc_reformat(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_packet_reformat_context_in::PACKET_REFORMAT_ID);
    reformat(card, number, input)?;
    if card.objects.steering.uses_reformat(number) {
        return Err(Refusal::ReformatBusy);
    }
    card.objects.steering.reformats.remove(number);
    Ok(())
}

fn on_ethernet(card: &Card) -> Result<(), Refusal> {
    if card.identity.link == Link::Roce { Ok(()) } else { Err(Refusal::NotRoce) }
}

/// A tag that an entry adds, as its context says it in a field.
fn added_tag(input: &[u8], field: Field) -> AddedTag {
    let both = get(input, field.within(set_fte_in::FLOW_CONTEXT));
    AddedTag { kind: (both >> 16) as u16, tag: both as u16 }
}

/// Returns the changes that an entry of a table makes by its actions on headers, each checked.
pub fn changes(
    card: &Card,
    input: &[u8],
    kind: u8,
    tunnels: TunnelActions,
    action: u32,
) -> Result<PacketChanges, Refusal> {
    let field = |field: Field| get(input, field.within(set_fte_in::FLOW_CONTEXT));
    let has = |bit: u32| action & bit != 0;
    let second = has(POP_2) && !has(POP) || has(PUSH_2) && !has(PUSH);
    if second || action != 0 && !matches!(kind, NIC_RX | NIC_TX) {
        return Err(Refusal::FlowAction);
    }
    let mut changes = PacketChanges::default();
    if has(DECAP) {
        if !tunnels.decap {
            return Err(Refusal::FlowTunnel);
        }
        changes.decapsulation = Decapsulation::Tunnel;
    }
    changes.pops = usize::from(has(POP)) + usize::from(has(POP_2));
    if has(MODIFY) {
        let number = field(flow_context::MODIFY_HEADER_ID);
        if modify_header(card, number, input)?.kind != kind {
            return Err(Refusal::FlowTableType);
        }
        changes.modify = Some(number);
    }
    for (bit, tag) in [(PUSH, flow_context::PUSH_VLAN), (PUSH_2, flow_context::PUSH_VLAN_2)] {
        changes.pushes.extend(has(bit).then(|| added_tag(input, tag)));
    }
    if has(REFORMAT) {
        let number = field(flow_context::PACKET_REFORMAT_ID);
        let from_tunnel =
            matches!(reformat(card, number, input)?.form, Reformatting::Decapsulate(_));
        // Tunnels end where packets arrive.
        if !tunnels.reformat || from_tunnel && kind == NIC_TX {
            return Err(Refusal::FlowTunnel);
        }
        changes.reformat = Some(number);
    }
    Ok(changes)
}

#[cfg(test)]
mod tests;
