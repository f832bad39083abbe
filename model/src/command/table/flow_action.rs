//! Commands on contexts of changed headers and of reformatting, and entries that name them.

use mlx5_sys::ifc::{
    Field, add_action_in, alloc_modify_header_context_in as modify,
    alloc_modify_header_context_out, alloc_packet_reformat_context_in as reformat,
    alloc_packet_reformat_context_out, copy_action_in, create_flow_group_in, create_flow_group_out,
    create_flow_table_in, create_flow_table_out, dealloc_modify_header_context_in,
    dealloc_packet_reformat_context_in, delete_fte_in, dest_format_struct, flow_context,
    flow_table_context, opcode, packet_reformat_context_in, set_action_in, set_fte_in,
};

use super::super::{OP_MOD, Refusal};
use super::ethernet::tir;
use super::steering::{
    context, delete_command, entry, entry_command, group_command, list, table_command,
};
use super::{Case, Command, Rig, Row};
use crate::object::{NIC_RX, NIC_TX, SNIFFER_RX};

pub const ROWS: &[Row] = &[
    Row::new(alloc_modify_header).roce(),
    Row::new(dealloc_modify_header).roce(),
    Row::new(encapsulate).roce(),
    Row::new(encapsulate_packet).roce(),
    Row::new(decapsulate).roce(),
    Row::new(insert).roce(),
    Row::new(remove).roce(),
    Row::new(dealloc_reformat).roce(),
    Row::new(change_received).roce(),
    Row::new(change_sent).roce(),
    Row::new(forward_sent).roce(),
];

/// The place of an action in the command for a context of changed headers.
fn action(index: usize, field: Field) -> Field {
    field.within(Field::new(modify::SIZE + index * set_action_in::SIZE, 31, 64))
}

/// Sets a time to live, adds to another, copies a part of an address to a register.
fn modify_header_command(kind: u8) -> Command {
    let mut command = Command::new(opcode::ALLOC_MODIFY_HEADER_CONTEXT, modify::SIZE);
    command.0.resize(modify::SIZE + 3 * set_action_in::SIZE, 0);
    command
        .set(modify::TABLE_TYPE, kind)
        .set(modify::NUM_OF_ACTIONS, 3u64)
        .set(action(0, set_action_in::ACTION_TYPE), 1u64)
        .set(action(0, set_action_in::FIELD), 0x0au64)
        .set(action(0, set_action_in::OFFSET), 1u64)
        .set(action(0, set_action_in::LENGTH), 7u64)
        .set(action(1, add_action_in::ACTION_TYPE), 2u64)
        .set(action(1, add_action_in::FIELD), 0x47u64)
        .set(action(1, add_action_in::DATA), 0xffu64)
        .set(action(2, copy_action_in::ACTION_TYPE), 3u64)
        .set(action(2, copy_action_in::SRC_FIELD), 0x15u64)
        .set(action(2, copy_action_in::SRC_OFFSET), 16u64)
        .set(action(2, copy_action_in::LENGTH), 16u64)
        .set(action(2, copy_action_in::DST_FIELD), 0x51u64)
}

fn modify_header(rig: &mut Rig, kind: u8) -> u32 {
    let id = alloc_modify_header_context_out::MODIFY_HEADER_ID;
    rig.number(&modify_header_command(kind), id)
}

fn alloc_modify_header(_: &mut Rig) -> Case {
    let (kind, field, range) =
        (Refusal::ModifyHeaderType, Refusal::ModifyHeaderField, Refusal::ModifyHeaderRange);
    let case = Case::anyones(modify_header_command(NIC_RX))
        .elsewhere(Refusal::NotRoce)
        .refuses(modify::TABLE_TYPE, 2u64, Refusal::FlowTableType)
        .refuses(modify::TABLE_TYPE, 5u64, Refusal::FlowTableType)
        .refuses(modify::NUM_OF_ACTIONS, 0u64, Refusal::ModifyHeaderActions)
        .refuses(modify::NUM_OF_ACTIONS, 17u64, Refusal::ModifyHeaderActions)
        .refuses(modify::NUM_OF_ACTIONS, 4u64, Refusal::InputLength)
        .refuses(action(0, set_action_in::FIELD), 0x18u64, field)
        .refuses(action(0, set_action_in::OFFSET), 2u64, range)
        .refuses(action(0, set_action_in::LENGTH), 0u64, range)
        .refuses(action(1, add_action_in::FIELD), 0u64, field)
        .refuses(action(2, copy_action_in::SRC_FIELD), 0x59eu64, field)
        .refuses(action(2, copy_action_in::DST_FIELD), 0x50u64, field)
        .refuses(action(2, copy_action_in::SRC_OFFSET), 17u64, range)
        .refuses(action(2, copy_action_in::DST_OFFSET), 17u64, range)
        .refuses(action(2, copy_action_in::LENGTH), 0u64, range);
    (0..3).fold(case, |case, index| {
        case.refuses(action(index, set_action_in::ACTION_TYPE), 4u64, kind)
    })
}

fn received_modify_header(rig: &mut Rig) -> u32 {
    modify_header(rig, NIC_RX)
}

fn dealloc_modify_header(rig: &mut Rig) -> Case {
    use dealloc_modify_header_context_in as d;
    let (own, foreign) = (modify_header(rig, NIC_RX), rig.foreign(received_modify_header));
    let Received { table, modify, .. } = received(rig);
    Case::new(
        Command::new(opcode::DEALLOC_MODIFY_HEADER_CONTEXT, d::SIZE).set(d::MODIFY_HEADER_ID, own),
    )
    .refuses(d::MODIFY_HEADER_ID, 5u64, Refusal::NoModifyHeader)
    .foreign(d::MODIFY_HEADER_ID, foreign)
    .held(d::MODIFY_HEADER_ID, modify, Refusal::ModifyHeaderBusy, [delete_command(table)])
    .twice(Refusal::NoModifyHeader)
}

fn of_reformat(field: Field) -> Field {
    field.within(reformat::PACKET_REFORMAT_CONTEXT)
}

/// A context of a type, with as many bytes of headers.
fn reformat_command(kind: u64, size: usize) -> Command {
    use packet_reformat_context_in as r;
    let mut command = Command::new(opcode::ALLOC_PACKET_REFORMAT_CONTEXT, reformat::SIZE);
    let end = of_reformat(r::REFORMAT_DATA).bytes().start + size;
    command.0.resize(end.max(reformat::SIZE), 0);
    command
        .set(of_reformat(r::REFORMAT_TYPE), kind)
        .set(of_reformat(r::REFORMAT_DATA_SIZE), size as u64)
}

/// The refusals of sizes of headers.
fn sizes(case: Case, sizes: &[(u64, Refusal)]) -> Case {
    let field = of_reformat(packet_reformat_context_in::REFORMAT_DATA_SIZE);
    sizes.iter().fold(case, |case, (size, refusal)| case.refuses(field, *size, *refusal))
}

fn encapsulating(kind: u64) -> Case {
    let case = Case::anyones(reformat_command(kind, 50)).elsewhere(Refusal::NotRoce).refuses(
        of_reformat(packet_reformat_context_in::REFORMAT_TYPE),
        5u64,
        Refusal::ReformatType,
    );
    let size = Refusal::ReformatSize;
    sizes(case, &[(0, size), (13, size), (129, size), (51, Refusal::InputLength)])
}

fn encapsulate(_: &mut Rig) -> Case {
    encapsulating(2)
}

fn encapsulate_packet(_: &mut Rig) -> Case {
    encapsulating(4)
}

fn decapsulate(_: &mut Rig) -> Case {
    let case = Case::anyones(reformat_command(3, 14)).elsewhere(Refusal::NotRoce);
    let case = case.kind(of_reformat(packet_reformat_context_in::REFORMAT_TYPE));
    let size = Refusal::ReformatSize;
    sizes(case, &[(0, size), (10, size), (16, size), (22, size), (18, Refusal::InputLength)])
}

/// At an offset from the start of the frame.
fn anchored(kind: u64) -> Case {
    use packet_reformat_context_in as r;
    let command = reformat_command(kind, 4)
        .set(of_reformat(r::REFORMAT_PARAM_0), 1u64)
        .set(of_reformat(r::REFORMAT_PARAM_1), 12u64);
    Case::anyones(command)
        .elsewhere(Refusal::NotRoce)
        .kind(of_reformat(r::REFORMAT_TYPE))
        .refuses(of_reformat(r::REFORMAT_PARAM_0), 7u64, Refusal::ReformatAnchor)
        .refuses(of_reformat(r::REFORMAT_PARAM_1), 128u64, Refusal::ReformatAnchor)
}

fn insert(_: &mut Rig) -> Case {
    let size = Refusal::ReformatSize;
    sizes(anchored(0xf), &[(0, size), (129, size), (5, Refusal::InputLength)])
}

fn remove(_: &mut Rig) -> Case {
    sizes(anchored(0x10), &[(0, Refusal::ReformatSize), (129, Refusal::ReformatSize)])
}

fn reformat(rig: &mut Rig, kind: u64, size: usize) -> u32 {
    rig.number(&reformat_command(kind, size), alloc_packet_reformat_context_out::PACKET_REFORMAT_ID)
}

fn encapsulation(rig: &mut Rig) -> u32 {
    reformat(rig, 2, 50)
}

fn dealloc_reformat(rig: &mut Rig) -> Case {
    use dealloc_packet_reformat_context_in as d;
    let (own, foreign) = (encapsulation(rig), rig.foreign(encapsulation));
    let Received { table, reformat, .. } = received(rig);
    Case::new(
        Command::new(opcode::DEALLOC_PACKET_REFORMAT_CONTEXT, d::SIZE)
            .set(d::PACKET_REFORMAT_ID, own),
    )
    .refuses(d::PACKET_REFORMAT_ID, 5u64, Refusal::NoReformat)
    .foreign(d::PACKET_REFORMAT_ID, foreign)
    .held(d::PACKET_REFORMAT_ID, reformat, Refusal::ReformatBusy, [delete_command(table)])
    .twice(Refusal::NoReformat)
}

/// A table of a type with a group. Its entries may act on tunnels as far as the type allows.
fn table(rig: &mut Rig, kind: u8, level: u64) -> (u32, u32) {
    let changes = u64::from(matches!(kind, NIC_RX | NIC_TX));
    let table = table_command(level)
        .set(create_flow_table_in::TABLE_TYPE, kind)
        .set(context(flow_table_context::REFORMAT_EN), changes)
        .set(context(flow_table_context::DECAP_EN), u64::from(kind == NIC_RX));
    let table = rig.number(&table, create_flow_table_out::TABLE_ID);
    let group = group_command(table).set(create_flow_group_in::TABLE_TYPE, kind);
    (table, rig.number(&group, create_flow_group_out::GROUP_ID))
}

/// A table with an entry that changes packets, the contexts that the entry names, and its command.
struct Received {
    table: u32,
    modify: u32,
    reformat: u32,
    command: Command,
}

/// Actions (`MLX5_FLOW_CONTEXT_ACTION_*`): all on headers, and second tags without first ones.
const ON_HEADERS: u64 = 0xdf0;
const FORWARD: u64 = 4;
const ALLOW: u64 = 1;

/// Adds all actions on headers to the command for an entry.
fn changing(command: Command, modify: u32, reformat: u32, others: u64) -> Command {
    command
        .set(entry(flow_context::ACTION), others)
        .set(entry(flow_context::MODIFY_HEADER_ID), modify)
        .set(entry(flow_context::PACKET_REFORMAT_ID), reformat)
        .set(entry(flow_context::PUSH_VLAN), 0x8100_0005u64)
        .set(entry(flow_context::PUSH_VLAN_2), 0x88a8_0006u64)
}

fn received(rig: &mut Rig) -> Received {
    let (tir, modify, reformat) = (tir(rig), modify_header(rig, NIC_RX), encapsulation(rig));
    let (table, group) = table(rig, NIC_RX, 3);
    let command = entry_command(table, group, tir);
    let command = changing(command, modify, reformat, FORWARD | ON_HEADERS);
    rig.run(&command).expect("an entry");
    Received { table, modify, reformat, command }
}

/// Lists the fields of entries that are no subject of these rows.
fn others_of(case: Case) -> Case {
    let lists = [dest_format_struct::DESTINATION_TYPE, dest_format_struct::DESTINATION_ID];
    let fields = [
        set_fte_in::TABLE_ID,
        set_fte_in::TABLE_TYPE,
        set_fte_in::FLOW_INDEX,
        entry(flow_context::GROUP_ID),
        entry(flow_context::DESTINATION_LIST_SIZE),
        entry(flow_context::MATCH_VALUE),
        OP_MOD,
    ];
    lists.map(list).into_iter().chain(fields).fold(case, Case::kind)
}

fn change_received(rig: &mut Rig) -> Case {
    let Received { table: own, command, modify, .. } = received(rig);
    rig.run(&delete_command(own)).expect("the entry goes");
    let foreign = (rig.foreign(received_modify_header), rig.foreign(encapsulation));
    let sent = modify_header(rig, NIC_TX);
    let tir = list(dest_format_struct::DESTINATION_ID).get(&command.0) as u32;
    // Without the right to act on tunnels, and on packets that sniffers see.
    let plain = rig.number(&table_command(3), create_flow_table_out::TABLE_ID);
    let of_plain = rig.number(&group_command(plain), create_flow_group_out::GROUP_ID);
    let (sniffer, of_sniffer) = table(rig, SNIFFER_RX, 3);
    let plain = |action: u64| {
        let reformat = entry(flow_context::PACKET_REFORMAT_ID).get(&command.0) as u32;
        changing(entry_command(plain, of_plain, tir), modify, reformat, FORWARD | action)
    };
    let sniffer = changing(entry_command(sniffer, of_sniffer, tir), modify, 0, FORWARD | 0x80)
        .set(set_fte_in::TABLE_TYPE, SNIFFER_RX);
    others_of(Case::new(command.clone()))
        .refuses(entry(flow_context::ACTION), FORWARD | 0x400, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), FORWARD | 0x800, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), FORWARD | 0x1000, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), ALLOW | 0x80, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), 0x80u64, Refusal::FlowAction)
        .refuses(entry(flow_context::MODIFY_HEADER_ID), 5u64, Refusal::NoModifyHeader)
        .refuses(entry(flow_context::MODIFY_HEADER_ID), sent, Refusal::FlowTableType)
        .foreign(entry(flow_context::MODIFY_HEADER_ID), foreign.0)
        .refuses(entry(flow_context::PACKET_REFORMAT_ID), 5u64, Refusal::NoReformat)
        .foreign(entry(flow_context::PACKET_REFORMAT_ID), foreign.1)
        .otherwise(plain(0x10), Refusal::FlowTunnel)
        .otherwise(plain(0x20), Refusal::FlowTunnel)
        .otherwise(sniffer, Refusal::FlowAction)
        .twice(Refusal::FlowRange)
}

/// The command for an entry of a table of sent packets that lets them leave, with all changes.
fn sent(rig: &mut Rig) -> Command {
    let (modify, reformat) = (modify_header(rig, NIC_TX), encapsulation(rig));
    let (table, group) = table(rig, NIC_TX, 3);
    // Tunnels are not taken off.
    changing(entry_command(table, group, 0), modify, reformat, ALLOW | ON_HEADERS & !0x20)
        .set(set_fte_in::TABLE_TYPE, NIC_TX)
        .set(entry(flow_context::DESTINATION_LIST_SIZE), 0u64)
}

fn change_sent(rig: &mut Rig) -> Case {
    let command = sent(rig);
    let (received, from_tunnel) = (modify_header(rig, NIC_RX), reformat(rig, 3, 14));
    others_of(Case::new(command))
        .refuses(entry(flow_context::ACTION), ALLOW | 2, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), ALLOW | FORWARD, Refusal::FlowAction)
        .refuses(entry(flow_context::ACTION), ALLOW | 0x20, Refusal::FlowTunnel)
        .refuses(entry(flow_context::MODIFY_HEADER_ID), received, Refusal::FlowTableType)
        .refuses(entry(flow_context::PACKET_REFORMAT_ID), from_tunnel, Refusal::FlowTunnel)
        .twice(Refusal::FlowRange)
}

/// Leads sent packets to another table.
fn forward_sent(rig: &mut Rig) -> Case {
    let (own, group) = table(rig, NIC_TX, 3);
    let (next, _) = table(rig, NIC_TX, 4);
    let (received, _) = table(rig, NIC_RX, 4);
    let delete = Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, 0x40)
        .set(delete_fte_in::TABLE_TYPE, NIC_TX)
        .set(delete_fte_in::TABLE_ID, own);
    let command = entry_command(own, group, next)
        .set(set_fte_in::TABLE_TYPE, NIC_TX)
        .set(list(dest_format_struct::DESTINATION_TYPE), 1u64);
    rig.run(&command).expect("an entry");
    rig.run(&delete).expect("it goes");
    others_of(Case::new(command))
        .kind(entry(flow_context::ACTION))
        .refuses(list(dest_format_struct::DESTINATION_TYPE), 2u64, Refusal::FlowDestination)
        .refuses(list(dest_format_struct::DESTINATION_ID), received, Refusal::FlowTableType)
        .refuses(entry(flow_context::DESTINATION_LIST_SIZE), 2u64, Refusal::FlowDestinations)
        .twice(Refusal::FlowRange)
}
