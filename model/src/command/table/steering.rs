//! Commands on flow tables, their groups and entries.

use mlx5_sys::ifc::{
    Field, alloc_flow_counter_in, alloc_flow_counter_out, create_flow_group_in,
    create_flow_group_out, create_flow_table_in, create_flow_table_out, dealloc_flow_counter_in,
    delete_fte_in, dest_format_struct, destroy_flow_group_in, destroy_flow_table_in, flow_context,
    flow_counter_list, flow_table_context, fte_match_param, fte_match_set_lyr_2_4,
    fte_match_set_misc2, modify_flow_table_in, opcode, query_flow_counter_in,
    set_flow_table_root_in, set_fte_in,
};

use super::super::{OP_MOD, Refusal};
use super::ethernet::tir;
use super::{Case, Command, Rig, Row};

pub const ROWS: &[Row] = &[
    Row::new(create_table).roce(),
    Row::new(modify_table).roce(),
    Row::new(destroy_table).roce(),
    Row::new(set_root).roce(),
    Row::new(create_group).roce(),
    Row::new(create_group_of_registers).roce(),
    Row::new(destroy_group).roce(),
    Row::new(set_entry).roce(),
    Row::new(change_entry).roce(),
    Row::new(delete_entry).roce(),
    Row::new(count_entry).roce(),
    Row::new(alloc_counter).roce(),
    Row::new(query_counter).roce(),
    Row::new(dealloc_counter).roce(),
];

pub(super) fn context(field: Field) -> Field {
    field.within(create_flow_table_in::FLOW_TABLE_CONTEXT)
}

/// A table of four entries, of a level.
pub(super) fn table_command(level: u64) -> Command {
    Command::new(opcode::CREATE_FLOW_TABLE, 0x40)
        .set(context(flow_table_context::LEVEL), level)
        .set(context(flow_table_context::LOG_SIZE), 2u64)
}

fn table_of(rig: &mut Rig, level: u64) -> u32 {
    rig.number(&table_command(level), create_flow_table_out::TABLE_ID)
}

fn table(rig: &mut Rig) -> u32 {
    table_of(rig, 3)
}

/// The group of a table's first two entries, which match all outer headers.
pub(super) fn group_command(table: u32) -> Command {
    let group = Command::new(opcode::CREATE_FLOW_GROUP, 0x400)
        .set(create_flow_group_in::TABLE_ID, table)
        .set(create_flow_group_in::END_FLOW_INDEX, 1u64)
        .set(create_flow_group_in::MATCH_CRITERIA_ENABLE, 1u64);
    words(create_flow_group_in::MATCH_CRITERIA, fte_match_param::OUTER_HEADERS)
        .fold(group, |group, word| group.set(word, u64::MAX))
}

/// The parts, of eight bytes, of some headers in criteria or a value.
fn words(outer: Field, headers: Field) -> impl Iterator<Item = Field> {
    let start = outer.bytes().start;
    headers.bytes().step_by(8).map(move |at| Field::new(start + at, 31, 64))
}

/// The parts, of eight bytes, of what is no outer header in criteria or a value.
fn behind_outer(all: Field) -> impl Iterator<Item = Field> {
    let start = all.bytes().start + fte_match_param::OUTER_HEADERS.bytes().end;
    (start..all.bytes().end).step_by(8).map(|at| Field::new(at, 31, 64))
}

fn group(rig: &mut Rig, table: u32) -> u32 {
    rig.number(&group_command(table), create_flow_group_out::GROUP_ID)
}

pub(super) fn entry(field: Field) -> Field {
    field.within(set_fte_in::FLOW_CONTEXT)
}

/// An entry of a group that leads to a TIR.
pub(super) fn entry_command(table: u32, group: u32, tir: u32) -> Command {
    /// `MLX5_FLOW_CONTEXT_ACTION_FWD_DEST`, `MLX5_FLOW_DESTINATION_TYPE_TIR`
    const FORWARD: u64 = 4;
    const TIR: u64 = 2;
    let mut command = Command::new(opcode::SET_FLOW_TABLE_ENTRY, 0x340);
    command.0.resize(0x340 + dest_format_struct::SIZE, 0);
    command
        .set(set_fte_in::TABLE_ID, table)
        .set(entry(flow_context::GROUP_ID), group)
        .set(entry(flow_context::ACTION), FORWARD)
        .set(entry(flow_context::DESTINATION_LIST_SIZE), 1u64)
        .set(list(dest_format_struct::DESTINATION_TYPE), TIR)
        .set(list(dest_format_struct::DESTINATION_ID), tir)
}

/// A field of the first destination, which lies behind the context.
pub(super) fn list(field: Field) -> Field {
    field.within(Field::new(0x340, 31, 64))
}

/// Leads packets to a TIR; gives the command by which they are led there no more.
pub fn holder(rig: &mut Rig, tir: u32) -> Command {
    delete_command(lead_to(rig, tir).0)
}

/// Deletes a table's first entry.
pub(super) fn delete_command(table: u32) -> Command {
    Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, 0x40).set(delete_fte_in::TABLE_ID, table)
}

/// Leads packets of a new table to a TIR.
fn lead_to(rig: &mut Rig, tir: u32) -> (u32, u32) {
    let table = table(rig);
    let group = group(rig, table);
    rig.run(&entry_command(table, group, tir)).expect("an entry");
    (table, group)
}

fn create_table(rig: &mut Rig) -> Case {
    let (lower, higher, foreign) = (table_of(rig, 1), table_of(rig, 5), rig.foreign(table));
    let tunnels = |kind: u64, field: Field| {
        table_command(3).set(create_flow_table_in::TABLE_TYPE, kind).set(context(field), 1u64)
    };
    // With the table where unmatched packets go.
    let miss = context(flow_table_context::TABLE_MISS_ID);
    let create = table_command(3)
        .set(context(flow_table_context::TABLE_MISS_ACTION), 1u64)
        .set(miss, higher);
    Case::new(create)
        .other_function(&[create_flow_table_in::OTHER_VPORT])
        .refuses(create_flow_table_in::TABLE_TYPE, 1u64, Refusal::FlowTableType)
        // Unmatched packets stay among tables of one type.
        .refuses(create_flow_table_in::TABLE_TYPE, 5u64, Refusal::FlowTableType)
        .refuses(context(flow_table_context::LOG_SIZE), 21u64, Refusal::FlowTableSize)
        .refuses(context(flow_table_context::LEVEL), 129u64, Refusal::FlowTableSize)
        .refuses(context(flow_table_context::SW_OWNER), 1u64, Refusal::FlowTableType)
        // Sniffers see packets as they are, and tunnels end where packets arrive.
        .kind(context(flow_table_context::REFORMAT_EN))
        .kind(context(flow_table_context::DECAP_EN))
        .otherwise(tunnels(5, flow_table_context::REFORMAT_EN), Refusal::FlowTableType)
        .otherwise(tunnels(6, flow_table_context::DECAP_EN), Refusal::FlowTableType)
        .otherwise(tunnels(1, flow_table_context::DECAP_EN), Refusal::FlowTableType)
        .refuses(context(flow_table_context::TABLE_MISS_ACTION), 2u64, Refusal::FlowTableType)
        .refuses(context(flow_table_context::TABLE_MISS_ACTION), 3u64, Refusal::FlowTableType)
        .refuses(miss, 5u64, Refusal::NoFlowTable)
        .refuses(miss, lower, Refusal::FlowTableLevel)
        .foreign(miss, foreign)
}

/// A command on a table.
fn on_table(rig: &mut Rig, command: Command, kind: Field, number: Field, own: u32) -> Case {
    let foreign = rig.foreign(table);
    Case::new(command.set(number, own))
        .refuses(number, 5u64, Refusal::NoFlowTable)
        .refuses(kind, 5u64, Refusal::FlowTableType)
        .foreign(number, foreign)
}

fn modify_table(rig: &mut Rig) -> Case {
    use modify_flow_table_in as m;
    let field = |field: Field| field.within(m::FLOW_TABLE_CONTEXT);
    let (own, lower, higher) = (table(rig), table_of(rig, 1), table_of(rig, 5));
    let (foreign, miss) = (rig.foreign(table), field(flow_table_context::TABLE_MISS_ID));
    let action = field(flow_table_context::TABLE_MISS_ACTION);
    let modify = Command::new(opcode::MODIFY_FLOW_TABLE, 0x40)
        .set(m::MODIFY_FIELD_SELECT, 1u64)
        .set(action, 1u64)
        .set(miss, higher);
    on_table(rig, modify, m::TABLE_TYPE, m::TABLE_ID, own)
        .other_function(&[m::OTHER_VPORT])
        .refuses(m::MODIFY_FIELD_SELECT, 0u64, Refusal::EthernetModify)
        .refuses(m::MODIFY_FIELD_SELECT, 0x8000u64, Refusal::EthernetModify)
        .refuses(action, 2u64, Refusal::FlowTableType)
        .refuses(miss, 5u64, Refusal::NoFlowTable)
        .refuses(miss, own, Refusal::FlowTableLevel)
        .refuses(miss, lower, Refusal::FlowTableLevel)
        .foreign(miss, foreign)
}

fn destroy_table(rig: &mut Rig) -> Case {
    use destroy_flow_table_in as d;
    let (own, grouped, next) = (table(rig), table(rig), table_of(rig, 7));
    let of_grouped = group(rig, grouped);
    let before = table_command(2)
        .set(context(flow_table_context::TABLE_MISS_ACTION), 1u64)
        .set(context(flow_table_context::TABLE_MISS_ID), next);
    let before = rig.number(&before, create_flow_table_out::TABLE_ID);
    let destroy = Command::new(opcode::DESTROY_FLOW_TABLE, 0x40);
    let before = destroy.clone().set(d::TABLE_ID, before);
    let ungroup = Command::new(opcode::DESTROY_FLOW_GROUP, 0x40)
        .set(destroy_flow_group_in::TABLE_ID, grouped)
        .set(destroy_flow_group_in::GROUP_ID, of_grouped);
    on_table(rig, destroy, d::TABLE_TYPE, d::TABLE_ID, own)
        .held(d::TABLE_ID, grouped, Refusal::FlowTableBusy, [ungroup])
        .held(d::TABLE_ID, next, Refusal::FlowTableBusy, [before])
        .twice(Refusal::NoFlowTable)
}

fn set_root(rig: &mut Rig) -> Case {
    use set_flow_table_root_in as r;
    let own = table(rig);
    let set = Command::new(opcode::SET_FLOW_TABLE_ROOT, 0x40);
    on_table(rig, set, r::TABLE_TYPE, r::TABLE_ID, own).refuses(
        r::UNDERLAY_QPN,
        1u64,
        Refusal::FlowTableType,
    )
}

fn create_group(rig: &mut Rig) -> Case {
    use create_flow_group_in as g;
    let own = table(rig);
    let other = group_command(own).set(g::START_FLOW_INDEX, 2u64).set(g::END_FLOW_INDEX, 2u64);
    rig.run(&other).expect("another group");
    let nothing = words(g::MATCH_CRITERIA, fte_match_param::OUTER_HEADERS)
        .fold(group_command(own), |group, word| group.set(word, 0u64));
    let inner: Vec<Field> = words(g::MATCH_CRITERIA, fte_match_param::INNER_HEADERS).collect();
    let case = on_table(rig, group_command(own), g::TABLE_TYPE, g::TABLE_ID, own)
        .refuses(g::START_FLOW_INDEX, 2u64, Refusal::FlowRange)
        .refuses(g::END_FLOW_INDEX, 2u64, Refusal::FlowRange)
        .refuses(g::END_FLOW_INDEX, 4u64, Refusal::FlowRange)
        .refuses(g::MATCH_CRITERIA_ENABLE, 2u64, Refusal::FlowCriteria)
        .refuses(g::MATCH_CRITERIA_ENABLE, 3u64, Refusal::FlowCriteria)
        .refuses(g::MATCH_CRITERIA_ENABLE, 0u64, Refusal::FlowOuterUnset)
        // The one field that is always matched here.
        .kind(ethertype(g::MATCH_CRITERIA))
        .otherwise(nothing, Refusal::FlowCriteriaEmpty);
    behind_outer(g::MATCH_CRITERIA).fold(case, |case, word| {
        let is_inner = inner.iter().any(|field| field.bytes() == word.bytes());
        let refusal = if is_inner { Refusal::FlowInnerUnset } else { Refusal::FlowCriteria };
        case.refuses(word, 1u64 << 63, refusal)
    })
}

/// A group that matches registers of metadata alone.
fn create_group_of_registers(rig: &mut Rig) -> Case {
    use create_flow_group_in as g;
    use fte_match_set_misc2 as m;
    let own = table(rig);
    let register =
        |field: Field| field.within(fte_match_param::MISC_PARAMETERS_2).within(g::MATCH_CRITERIA);
    let group = Command::new(opcode::CREATE_FLOW_GROUP, 0x400)
        .set(g::TABLE_ID, own)
        .set(g::MATCH_CRITERIA_ENABLE, 8u64)
        .set(register(m::METADATA_REG_C_0), 0xffff_ffffu64)
        .set(register(m::METADATA_REG_C_7), 0xffu64);
    let others = [m::METADATA_REG_A, Field::new(0xc, 31, 32)].map(register);
    let case =
        Case::new(group.clone()).refuses(g::MATCH_CRITERIA_ENABLE, 0u64, Refusal::FlowCriteria);
    let case = case.kind(g::TABLE_ID).kind(g::TABLE_TYPE).kind(g::MATCH_CRITERIA);
    let case = case.kind(g::START_FLOW_INDEX).kind(g::END_FLOW_INDEX);
    others.into_iter().fold(case, |case, field| {
        case.otherwise(group.clone().set(field, 1u64), Refusal::FlowCriteria)
    })
}

fn destroy_group(rig: &mut Rig) -> Case {
    use destroy_flow_group_in as g;
    let (own, tir) = (table(rig), tir(rig));
    let busy = group(rig, own);
    rig.run(&entry_command(own, busy, tir)).expect("an entry");
    let idle = group_command(own)
        .set(create_flow_group_in::START_FLOW_INDEX, 2u64)
        .set(create_flow_group_in::END_FLOW_INDEX, 3u64);
    let idle = rig.number(&idle, create_flow_group_out::GROUP_ID);
    let destroy = Command::new(opcode::DESTROY_FLOW_GROUP, 0x40).set(g::GROUP_ID, idle);
    on_table(rig, destroy, g::TABLE_TYPE, g::TABLE_ID, own)
        .refuses(g::GROUP_ID, 9u64, Refusal::NoFlowGroup)
        .held(g::GROUP_ID, busy, Refusal::FlowGroupBusy, [delete_command(own)])
        .twice(Refusal::NoFlowGroup)
}

/// Adds the refusals of a value in what the group does not match.
fn matches_outer(case: Case) -> Case {
    behind_outer(entry(flow_context::MATCH_VALUE))
        .fold(case, |case, word| case.refuses(word, 1u64, Refusal::FlowValue))
}

/// Creates a case with the refusals common to all entries that are set.
fn entry_case(rig: &mut Rig, command: Command, table: u32) -> Case {
    let foreign = rig.foreign(tir);
    let lower = table_of(rig, 1);
    let to_table = command
        .clone()
        .set(list(dest_format_struct::DESTINATION_TYPE), 1u64)
        .set(list(dest_format_struct::DESTINATION_ID), lower);
    let to_none = to_table.clone().set(list(dest_format_struct::DESTINATION_ID), 0xffu64);
    let to_itself = to_table.clone().set(list(dest_format_struct::DESTINATION_ID), table);
    matches_outer(on_table(rig, command, set_fte_in::TABLE_TYPE, set_fte_in::TABLE_ID, table))
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(entry(flow_context::GROUP_ID), 9u64, Refusal::NoFlowGroup)
        .refuses(entry(flow_context::ACTION), 1u64, Refusal::FlowAction)
        .refuses(entry(flow_context::DESTINATION_LIST_SIZE), 0u64, Refusal::FlowDestinations)
        .refuses(entry(flow_context::DESTINATION_LIST_SIZE), 2u64, Refusal::InputLength)
        .refuses(entry(flow_context::DESTINATION_LIST_SIZE), 257u64, Refusal::FlowDestinations)
        .refuses(set_fte_in::FLOW_INDEX, 2u64, Refusal::FlowRange)
        .refuses(list(dest_format_struct::DESTINATION_TYPE), 0u64, Refusal::FlowDestination)
        .refuses(list(dest_format_struct::DESTINATION_ID), 5u64, Refusal::NoTir)
        .foreign(list(dest_format_struct::DESTINATION_ID), foreign)
        .otherwise(to_none, Refusal::NoFlowTable)
        .otherwise(to_table, Refusal::FlowTableLevel)
        .otherwise(to_itself, Refusal::FlowTableLevel)
}

/// A field of outer headers in criteria or a value.
fn ethertype(all: Field) -> Field {
    fte_match_set_lyr_2_4::ETHERTYPE.within(fte_match_param::OUTER_HEADERS.within(all))
}

fn set_entry(rig: &mut Rig) -> Case {
    let (table, tir) = (table(rig), tir(rig));
    let group = group(rig, table);
    let value = entry(flow_context::MATCH_VALUE);
    // The group's second entry is taken.
    let other = entry_command(table, group, tir).set(ethertype(value), 0x800u64);
    rig.run(&other.clone().set(set_fte_in::FLOW_INDEX, 1u64)).expect("an entry");
    let command = entry_command(table, group, tir);
    entry_case(rig, command, table)
        .otherwise(other, Refusal::FlowTwice)
        .refuses(set_fte_in::FLOW_INDEX, 1u64, Refusal::FlowRange)
        .refuses(OP_MOD, 1u64, Refusal::FlowRange)
        .twice(Refusal::FlowRange)
}

fn change_entry(rig: &mut Rig) -> Case {
    let tir = tir(rig);
    let (table, group) = lead_to(rig, tir);
    let command = entry_command(table, group, tir).set(OP_MOD, 1u64);
    entry_case(rig, command, table)
        .refuses(set_fte_in::FLOW_INDEX, 1u64, Refusal::FlowRange)
        .refuses(OP_MOD, 0u64, Refusal::FlowRange)
}

fn delete_entry(rig: &mut Rig) -> Case {
    let tir = tir(rig);
    let (table, _) = lead_to(rig, tir);
    let delete = delete_command(table);
    on_table(rig, delete, delete_fte_in::TABLE_TYPE, delete_fte_in::TABLE_ID, table)
        .refuses(delete_fte_in::FLOW_INDEX, 1u64, Refusal::FlowRange)
        .twice(Refusal::FlowRange)
}

fn flow_counter(rig: &mut Rig) -> u32 {
    let alloc = Command::new(opcode::ALLOC_FLOW_COUNTER, 0x10);
    rig.number(&alloc, alloc_flow_counter_out::FLOW_COUNTER_ID)
}

/// An entry of a group that drops packets and counts them.
fn counted_command(table: u32, group: u32, counter: u32) -> Command {
    /// `MLX5_FLOW_CONTEXT_ACTION_DROP` and `_COUNT`
    const DROP_AND_COUNT: u64 = 2 | 8;
    entry_command(table, group, 0)
        .set(entry(flow_context::ACTION), DROP_AND_COUNT)
        .set(entry(flow_context::DESTINATION_LIST_SIZE), 0u64)
        .set(entry(flow_context::FLOW_COUNTER_LIST_SIZE), 1u64)
        .set(list(flow_counter_list::FLOW_COUNTER_ID), counter)
}

fn count_entry(rig: &mut Rig) -> Case {
    let (table, counter, foreign) = (table(rig), flow_counter(rig), rig.foreign(flow_counter));
    let group = group(rig, table);
    let command = counted_command(table, group, counter);
    matches_outer(on_table(rig, command, set_fte_in::TABLE_TYPE, set_fte_in::TABLE_ID, table))
        .refuses(OP_MOD, 2u64, Refusal::OpModifier)
        .refuses(OP_MOD, 1u64, Refusal::FlowRange)
        .refuses(entry(flow_context::GROUP_ID), 9u64, Refusal::NoFlowGroup)
        .refuses(entry(flow_context::ACTION), 9u64, Refusal::FlowAction)
        .refuses(entry(flow_context::DESTINATION_LIST_SIZE), 1u64, Refusal::InputLength)
        .refuses(entry(flow_context::FLOW_COUNTER_LIST_SIZE), 0u64, Refusal::FlowCounterList)
        .refuses(entry(flow_context::FLOW_COUNTER_LIST_SIZE), 5u64, Refusal::FlowCounterList)
        .refuses(entry(flow_context::FLOW_COUNTER_LIST_SIZE), 2u64, Refusal::InputLength)
        .refuses(set_fte_in::FLOW_INDEX, 2u64, Refusal::FlowRange)
        .refuses(list(flow_counter_list::FLOW_COUNTER_ID), 5u64, Refusal::NoFlowCounter)
        .foreign(list(flow_counter_list::FLOW_COUNTER_ID), foreign)
        .twice(Refusal::FlowRange)
}

fn alloc_counter(_: &mut Rig) -> Case {
    use alloc_flow_counter_in as q;
    Case::anyones(Command::new(opcode::ALLOC_FLOW_COUNTER, q::SIZE))
        .refuses(q::FLOW_COUNTER_BULK, 1u64, Refusal::FlowCounterBulk)
        .refuses(q::FLOW_COUNTER_BULK_LOG_SIZE, 1u64, Refusal::FlowCounterBulk)
}

fn query_counter(rig: &mut Rig) -> Case {
    use query_flow_counter_in as q;
    let (own, foreign) = (flow_counter(rig), rig.foreign(flow_counter));
    Case::new(Command::new(opcode::QUERY_FLOW_COUNTER, q::SIZE).set(q::FLOW_COUNTER_ID, own))
        .refuses(q::FLOW_COUNTER_ID, 5u64, Refusal::NoFlowCounter)
        .foreign(q::FLOW_COUNTER_ID, foreign)
        .refuses(q::DUMP_TO_MEMORY, 1u64, Refusal::FlowCounterBulk)
        .refuses(q::NUM_OF_COUNTERS, 1025u64, Refusal::FlowCounterBulk)
}

fn dealloc_counter(rig: &mut Rig) -> Case {
    use dealloc_flow_counter_in as q;
    let (own, busy, foreign) = (flow_counter(rig), flow_counter(rig), rig.foreign(flow_counter));
    let table = table(rig);
    let group = group(rig, table);
    rig.run(&counted_command(table, group, busy)).expect("an entry");
    Case::new(Command::new(opcode::DEALLOC_FLOW_COUNTER, q::SIZE).set(q::FLOW_COUNTER_ID, own))
        .refuses(q::FLOW_COUNTER_ID, 5u64, Refusal::NoFlowCounter)
        .foreign(q::FLOW_COUNTER_ID, foreign)
        .held(q::FLOW_COUNTER_ID, busy, Refusal::FlowCounterBusy, [delete_command(table)])
        .twice(Refusal::NoFlowCounter)
}
