//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::UID;
use super::super::capability::group;
use super::super::test::{Command, Rig};
use super::*;

fn modify_header() -> Command {
    use alloc_modify_header_context_in as a;
    let mut command = Command::new(opcode::ALLOC_MODIFY_HEADER_CONTEXT, a::SIZE);
    command.0.extend_from_slice(&[0x10, 0x0a, 0, 8, 0, 0, 0, 9]);
    command.set(a::NUM_OF_ACTIONS, 1u64)
}

/// A context that takes four bytes off.
fn reformat() -> Command {
    use packet_reformat_context_in as r;
    let field =
        |field: Field| field.within(alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT);
    let code = opcode::ALLOC_PACKET_REFORMAT_CONTEXT;
    Command::new(code, alloc_packet_reformat_context_in::SIZE)
        .set(field(r::REFORMAT_TYPE), 0x10u64)
        .set(field(r::REFORMAT_PARAM_0), 1u64)
        .set(field(r::REFORMAT_DATA_SIZE), 4u64)
}

/// A user cannot fill the memory of the process that the model is in.
#[test]
fn contexts_are_as_many_as_the_capabilities_say() {
    for command in [modify_header(), reformat()] {
        let mut rig = Rig::on(Link::Roce);
        for _ in 0..1 << LOG_MAX_CONTEXTS {
            rig.run(&command).unwrap();
        }
        assert_eq!(rig.run(&command), Err(Refusal::Exhausted));
    }
}

#[test]
fn a_user_context_with_contexts_is_busy() {
    use mlx5_sys::ifc::destroy_uctx_in;
    for (alloc, dealloc, id) in [
        (
            modify_header(),
            opcode::DEALLOC_MODIFY_HEADER_CONTEXT,
            alloc_modify_header_context_out::MODIFY_HEADER_ID,
        ),
        (
            reformat(),
            opcode::DEALLOC_PACKET_REFORMAT_CONTEXT,
            alloc_packet_reformat_context_out::PACKET_REFORMAT_ID,
        ),
    ] {
        let mut rig = Rig::on(Link::Roce);
        let user = rig.uctx();
        let number = rig.number(&alloc.set(UID, user), id);
        let destroy = Command::new(opcode::DESTROY_UCTX, destroy_uctx_in::SIZE)
            .set(destroy_uctx_in::UID, user);
        assert_eq!(rig.run(&destroy), Err(Refusal::UserBusy));
        // The number is in the same field of both commands.
        let dealloc = Command::new(dealloc, 0x10)
            .set(UID, user)
            .set(dealloc_modify_header_context_in::MODIFY_HEADER_ID, number);
        rig.run(&dealloc).unwrap();
        rig.run(&destroy).unwrap();
    }
}

#[test]
fn the_capabilities_are_what_the_commands_hold_to() {
    use mlx5_sys::ifc::{flow_table_nic_cap as nic, flow_table_prop_layout as table};
    let mut rig = Rig::on(Link::Roce);
    let query = Command::new(opcode::QUERY_HCA_CAP, 0x10)
        .set(super::super::OP_MOD, group::FLOW_TABLE << 1 | 1);
    let reply = rig.run(&query).unwrap();
    let get = |field: Field| field.get(&reply[0x10..]);
    let [received, sent] =
        [nic::FLOW_TABLE_PROPERTIES_NIC_RECEIVE, nic::FLOW_TABLE_PROPERTIES_NIC_TRANSMIT];
    let both = |field: Field| [received, sent].map(|kind| get(field.within(kind)));
    assert_eq!(both(table::FT_SUPPORT), [1, 1]);
    assert_eq!(both(table::MAX_MODIFY_HEADER_ACTIONS), [16, 16]);
    assert_eq!(both(table::DECAP), [1, 0]);
    assert_eq!(both(table::REFORMAT), [1, 1]);
    assert_eq!(both(table::REFORMAT_L3_TUNNEL_TO_L2), [1, 0]);
    assert_eq!(both(table::REFORMAT_L2_TO_L3_TUNNEL), [1, 1]);
    assert_eq!(both(table::PUSH_VLAN), [1, 1]);
    // Not offered.
    for field in
        [table::SW_OWNER, table::IGNORE_FLOW_LEVEL, table::IPSEC_ENCRYPT, table::EXECUTE_ASO]
    {
        assert_eq!(both(field), [0, 0]);
    }
    assert_eq!(get(nic::ENCAP_GENERAL_HEADER), 1);
    assert_eq!(get(nic::MAX_ENCAP_HEADER_SIZE), 128);
}
