//! What commands refuse of queues and flows.

use super::*;

#[test]
fn what_is_in_use_is_not_destroyed_and_the_rest_is() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(1, 0x0101, &[tir]);
    let command = |opcode, size, field, value: u32| Command::new(opcode, size).set(field, value);
    let tir = command(opcode::DESTROY_TIR, destroy_tir_in::SIZE, destroy_tir_in::TIRN, side.tir);
    let rq = command(opcode::DESTROY_RQ, destroy_rq_in::SIZE, destroy_rq_in::RQN, side.rq);
    let tis = command(opcode::DESTROY_TIS, destroy_tis_in::SIZE, destroy_tis_in::TISN, side.tis);
    let sq = command(opcode::DESTROY_SQ, destroy_sq_in::SIZE, destroy_sq_in::SQN, side.sq);
    let size = destroy_flow_table_in::SIZE;
    let table =
        command(opcode::DESTROY_FLOW_TABLE, size, destroy_flow_table_in::TABLE_ID, side.table);
    let group = command(
        opcode::DESTROY_FLOW_GROUP,
        destroy_flow_group_in::SIZE,
        destroy_flow_group_in::TABLE_ID,
        side.table,
    )
    .set(destroy_flow_group_in::GROUP_ID, 1u64);
    let entry = command(
        opcode::DELETE_FLOW_TABLE_ENTRY,
        delete_fte_in::SIZE,
        delete_fte_in::TABLE_ID,
        side.table,
    )
    .set(delete_fte_in::FLOW_INDEX, 1u64);
    let busy = [
        (&tir, Refusal::TirBusy),
        (&rq, Refusal::RqBusy),
        (&tis, Refusal::TisBusy),
        (&table, Refusal::FlowTableBusy),
        (&group, Refusal::FlowGroupBusy),
    ];
    for (command, refusal) in busy {
        assert_eq!(side.rig.run(command).err(), Some(refusal));
    }
    assert!(side.rig.card.listens_to_all());
    for command in [entry, group, table, tir, rq, sq, tis] {
        side.rig.run(&command).unwrap();
        assert!(side.rig.run(&command).is_err(), "twice");
    }
    assert!(!side.rig.card.listens_to_all());
}

#[test]
fn fields_of_queues_are_checked() {
    let mut side = Side::new();
    let tis = side.tis;
    let (create, _) = create_sq(&mut side.rig, tis);
    let field = |field: Field| field.within(create_sq_in::CTX);
    let inner = |inner: Field| field(inner.within(sqc::WQ));
    side.rig.refuses(
        &create,
        &[
            (field(sqc::STATE), 1, Refusal::WorkQueueState),
            (field(sqc::HAIRPIN), 1, Refusal::WorkQueueFeature),
            (field(sqc::ALLOW_SWP), 1, Refusal::WorkQueueFeature),
            (field(sqc::REG_UMR), 1, Refusal::WorkQueueFeature),
            (field(sqc::TS_FORMAT), 2, Refusal::WorkQueueFeature),
            (field(sqc::PACKET_PACING_RATE_LIMIT_INDEX), 1, Refusal::WorkQueueFeature),
            (field(sqc::CQN), 0xff, Refusal::NoCq),
            (field(sqc::TIS_LST_SZ), 2, Refusal::NoTis),
            (field(sqc::TIS_NUM_0), 0xff, Refusal::NoTis),
            (inner(wq::WQ_TYPE), 0, Refusal::WorkQueueType),
            (inner(wq::WQ_SIGNATURE), 1, Refusal::QpSignature),
            (inner(wq::END_PADDING_MODE), 1, Refusal::QpPadding),
            (inner(wq::PD), 0xff, Refusal::NoPd),
            (inner(wq::UAR_PAGE), 0xff, Refusal::NoUar),
            (inner(wq::DBR_ADDR), 4, Refusal::Record),
            (inner(wq::LOG_WQ_STRIDE), 5, Refusal::WorkQueueSize),
            (inner(wq::LOG_WQ_SZ), 16, Refusal::WorkQueueSize),
            (inner(wq::DBR_UMEM_VALID), 1, Refusal::NoUmem),
            (inner(wq::WQ_UMEM_VALID), 1, Refusal::NoUmem),
        ],
    );
    side.rig.run(&create).unwrap();
    let (create, _) = create_rq(&mut side.rig);
    let field = |field: Field| field.within(create_rq_in::CTX);
    let inner = |inner: Field| field(inner.within(rqc::WQ));
    side.rig.refuses(
        &create,
        &[
            (field(rqc::STATE), 1, Refusal::WorkQueueState),
            (field(rqc::HAIRPIN), 1, Refusal::WorkQueueFeature),
            (field(rqc::MEM_RQ_TYPE), 1, Refusal::WorkQueueFeature),
            (field(rqc::SCATTER_FCS), 1, Refusal::WorkQueueFeature),
            (field(rqc::DELAY_DROP_EN), 1, Refusal::WorkQueueFeature),
            (field(rqc::CQN), 0xff, Refusal::NoCq),
            (field(rqc::COUNTER_SET_ID), 9, Refusal::NoCounters),
            (inner(wq::WQ_TYPE), 2, Refusal::WorkQueueType),
            (inner(wq::DBR_UMEM_VALID), 1, Refusal::NoUmem),
            (inner(wq::WQ_UMEM_VALID), 1, Refusal::NoUmem),
            (inner(wq::LOG_WQ_STRIDE), 3, Refusal::WorkQueueSize),
            (inner(wq::LOG_WQ_STRIDE), 10, Refusal::WorkQueueSize),
        ],
    );
    side.rig.run(&create).unwrap();
    // A number of a queue is none of a queue pair.
    let query = Command::new(opcode::QUERY_QP, query_qp_in::SIZE).set(query_qp_in::QPN, side.sq);
    assert_eq!(side.rig.run(&query).err(), Some(Refusal::NoQp));
    assert_eq!(side.modify_sq(0, 1).err(), Some(Refusal::WorkQueueState));
    assert_eq!(side.modify_rq(3, 1).err(), Some(Refusal::WorkQueueState));
    // An InfiniBand port has none of it.
    let mut rig = Rig::new();
    let domain = Command::new(opcode::ALLOC_TRANSPORT_DOMAIN, 0x10);
    let domain = rig.number(&domain, alloc_transport_domain_out::TRANSPORT_DOMAIN);
    let tis = Command::new(opcode::CREATE_TIS, create_tis_in::SIZE)
        .set(tisc::TRANSPORT_DOMAIN.within(create_tis_in::CTX), domain);
    let tis = rig.number(&tis, create_tis_out::TISN);
    let (create, _) = create_sq(&mut rig, tis);
    assert_eq!(rig.run(&create).err(), Some(Refusal::NotRoce));
}

#[test]
fn fields_of_flows_are_checked() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(5, 0x0101, &[tir]);
    let context = |field: Field| field.within(create_flow_table_in::FLOW_TABLE_CONTEXT);
    let create = Command::new(opcode::CREATE_FLOW_TABLE, create_flow_table_in::SIZE);
    side.rig.refuses(
        &create,
        &[
            (create_flow_table_in::TABLE_TYPE, 1, Refusal::FlowTableType),
            (create_flow_table_in::OTHER_VPORT, 1, Refusal::OtherFunction),
            (context(flow_table_context::LOG_SIZE), 21, Refusal::FlowTableSize),
            (context(flow_table_context::LEVEL), 65, Refusal::FlowTableSize),
            (context(flow_table_context::SW_OWNER), 1, Refusal::FlowTableType),
            (context(flow_table_context::TABLE_MISS_ACTION), 1, Refusal::NoFlowTable),
            (context(flow_table_context::TABLE_MISS_ACTION), 3, Refusal::FlowTableType),
        ],
    );
    let group = Command::new(opcode::CREATE_FLOW_GROUP, create_flow_group_in::SIZE)
        .set(create_flow_group_in::TABLE_ID, side.table)
        .set(create_flow_group_in::START_FLOW_INDEX, 6u64)
        .set(create_flow_group_in::END_FLOW_INDEX, 7u64);
    let inner = fte_match_param::INNER_HEADERS.within(create_flow_group_in::MATCH_CRITERIA);
    let inner = Field::new(inner.bit_offset() / 8, 31, 32);
    side.rig.refuses(
        &group,
        &[
            (create_flow_group_in::TABLE_ID, 0xff, Refusal::NoFlowTable),
            (create_flow_group_in::TABLE_TYPE, 5, Refusal::FlowTableType),
            (create_flow_group_in::MATCH_CRITERIA_ENABLE, 3, Refusal::FlowCriteria),
            (inner, 1, Refusal::FlowCriteria),
            (create_flow_group_in::START_FLOW_INDEX, 5, Refusal::FlowRange),
            (create_flow_group_in::START_FLOW_INDEX, 8, Refusal::FlowRange),
            (create_flow_group_in::END_FLOW_INDEX, 16, Refusal::FlowRange),
        ],
    );
    let group = side.rig.number(&group, create_flow_group_out::GROUP_ID);
    let field = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
    let mut entry = Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE)
        .set(set_fte_in::TABLE_ID, side.table)
        .set(set_fte_in::FLOW_INDEX, 6u64)
        .set(field(flow_context::GROUP_ID), group)
        .set(field(flow_context::ACTION), 4u64)
        .set(field(flow_context::DESTINATION_LIST_SIZE), 1u64);
    entry.0.extend_from_slice(&[2, 0, 0, side.tir as u8, 0, 0, 0, 0]);
    let kind = dest_format_struct::DESTINATION_TYPE.bit_offset() / 8 + set_fte_in::SIZE;
    let number = Field::new(set_fte_in::SIZE, 23, 24);
    let itself = u64::from(1 << 24 | side.table);
    side.rig.refuses(
        &entry,
        &[
            (set_fte_in::OP_MOD, 2, Refusal::OpModifier),
            (set_fte_in::OP_MOD, 1, Refusal::FlowRange),
            (set_fte_in::TABLE_ID, 0xff, Refusal::NoFlowTable),
            (set_fte_in::FLOW_INDEX, 8, Refusal::FlowRange),
            (field(flow_context::GROUP_ID), 0xff, Refusal::NoFlowGroup),
            (field(flow_context::ACTION), 1, Refusal::FlowAction),
            (Field::new(kind, 31, 8), 0, Refusal::FlowDestination),
            (Field::new(kind, 31, 8), 1, Refusal::NoFlowTable),
            (Field::new(kind, 31, 32), itself, Refusal::FlowTableLevel),
            (number, 0xff, Refusal::NoTir),
        ],
    );
    side.rig.run(&entry).unwrap();
    assert_eq!(side.rig.run(&entry).err(), Some(Refusal::FlowRange));
}
