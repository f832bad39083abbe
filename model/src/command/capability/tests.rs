//! Unit tests.

use mlx5_sys::ifc::{cqc, create_cq_in, create_qp_in, opcode, qpc};

use super::super::test::{Command, Rig};
use super::*;
use crate::card::Profile;

fn ask(group: u32, current: u32) -> Command {
    Command::new(opcode::QUERY_HCA_CAP, 0x10).set(OP_MOD, group << 1 | current)
}

#[test]
fn capabilities_are_told_by_group() {
    let mut rig = Rig::new();
    for group in [group::GENERAL, group::ODP, group::ATOMIC, group::GENERAL_2] {
        let (greatest, current) =
            (rig.run(&ask(group, 0)).unwrap(), rig.run(&ask(group, 1)).unwrap());
        assert_eq!(greatest, current);
    }
    let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
    assert_eq!(cmd_hca_cap::LOG_MAX_MSG.get(&general[0x10..]), 30);
    assert_eq!(cmd_hca_cap::CQE_VERSION.get(&general[0x10..]), 1);
    assert_eq!(cmd_hca_cap::PORT_TYPE.get(&general[0x10..]), 0);
    let atomic = rig.run(&ask(group::ATOMIC, 1)).unwrap();
    assert_eq!(atomic_caps::ATOMIC_SIZE_QP.get(&atomic[0x10..]), 0x3c);
    let mut rig = Rig::on(Link::Roce);
    let roce = rig.run(&ask(group::ROCE, 1)).unwrap();
    assert_eq!(roce_cap::R_ROCE_DEST_UDP_PORT.get(&roce[0x10..]), 4791);
    let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
    assert_eq!(cmd_hca_cap::PORT_TYPE.get(&general[0x10..]), 1);
}

#[test]
fn pages_come_when_asked_in_a_process_alone() {
    let mut rig = Rig::new();
    for (bus, paging) in [(Bus::Process, 1), (Bus::Pci, 0)] {
        rig.card.identity.bus = bus;
        let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
        assert_eq!(cmd_hca_cap::PG.get(&general[0x10..]), paging);
        assert_eq!(rig.run(&ask(group::ODP, 1)).is_ok(), paging == 1);
    }
}

#[test]
fn an_ethernet_port_takes_both_versions_of_ip_and_lists_of_addresses() {
    let mut rig = Rig::on(Link::Roce);
    let roce = rig.run(&ask(group::ROCE, 1)).unwrap();
    assert_eq!(roce_cap::L3_TYPE.get(&roce[0x10..]), 0b111);
    let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
    for list in [
        cmd_hca_cap::LOG_MAX_CURRENT_UC_LIST,
        cmd_hca_cap::LOG_MAX_CURRENT_MC_LIST,
        cmd_hca_cap::LOG_MAX_VLAN_LIST,
    ] {
        assert_eq!(1 << list.get(&general[0x10..]), LONGEST_LIST);
    }
}

#[test]
fn real_time_is_offered_on_ethernet_alone() {
    for (link, formats) in [(Link::Roce, 2), (Link::InfiniBand, 0)] {
        let mut rig = Rig::on(link);
        let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
        for field in [cmd_hca_cap::SQ_TS_FORMAT, cmd_hca_cap::RQ_TS_FORMAT] {
            assert_eq!(field.get(&general[0x10..]), formats, "{link:?}");
        }
        if let Ok(roce) = rig.run(&ask(group::ROCE, 1)) {
            assert_eq!(roce_cap::QP_TS_FORMAT.get(&roce[0x10..]), formats);
        }
        for (format, passes) in [(0, true), (1, true), (2, formats != 0), (3, false)] {
            assert_eq!(may_stamp(&rig.card, format), passes, "{link:?} {format}");
        }
    }
}

#[test]
fn the_board_has_a_name() {
    let mut rig = Rig::new();
    let query = Command::new(opcode::QUERY_ADAPTER, 0x10);
    let reply = rig.run(&query).unwrap();
    assert_eq!(reply[0x10 + 0xf0..0x10 + 0x100], *PSID);
}

#[test]
fn a_group_that_the_device_has_nothing_of_is_zero() {
    for (link, group) in [(Link::InfiniBand, group::FLOW_TABLE), (Link::InfiniBand, group::QOS)] {
        for current in [0, 1] {
            let reply = Rig::on(link).run(&ask(group, current)).unwrap();
            assert!(reply.iter().all(|byte| *byte == 0), "{link:?} {group:#x}");
        }
    }
}

#[test]
fn a_profile_refuses_the_operations_that_its_capabilities_leave_out() {
    let of_cq = |field: Field| field.within(create_cq_in::CQ_CONTEXT);
    let of_qp = |field: Field| field.within(create_qp_in::QPC);
    for profile in Profile::ALL {
        let mut rig = Rig::on(Link::Roce);
        rig.card.identity.profile = profile;
        let general = rig.run(&ask(group::GENERAL, 1)).unwrap();
        let second = rig.run(&ask(group::GENERAL_2, 1)).unwrap();
        let enhanced = rig
            .create_cq()
            .set(of_cq(cqc::CQE_COMP_EN), 1u64)
            .set(of_cq(cqc::CQE_COMPRESSION_LAYOUT), 1u64);
        let (sends, receives) = (rig.cq(), rig.cq());
        let streams =
            rig.create_qp(sends, receives).set(of_qp(qpc::LOG_NUM_DCI_STREAM_CHANNELS), 2u64);
        let recordless = rig.create_qp(sends, receives).set(of_qp(qpc::SEND_DBR_MODE), 1u64);
        let tags = rig.create_xrq(receives);
        let real_time = rig.create_qp(sends, receives).set(of_qp(qpc::TS_FORMAT), 2u64);
        for (feature, capability, reply, command, refusal) in [
            (
                Feature::EnhancedCqes,
                cmd_hca_cap::ENHANCED_CQE_COMPRESSION,
                &general,
                enhanced,
                Refusal::CqCompression,
            ),
            (
                Feature::DciStreams,
                cmd_hca_cap::LOG_MAX_DCI_STREAM_CHANNELS,
                &general,
                streams,
                Refusal::QpStreams,
            ),
            (
                Feature::Recordless,
                cmd_hca_cap_2::SEND_DBR_MODE_NO_DBR_EXT,
                &second,
                recordless,
                Refusal::QpRecordless,
            ),
            (Feature::TagMatching, cmd_hca_cap::TAG_MATCHING, &general, tags, Refusal::SrqType),
            (
                Feature::RealTime,
                cmd_hca_cap::SQ_TS_FORMAT,
                &general,
                real_time,
                Refusal::QpTimestamp,
            ),
        ] {
            let has = profile.has(feature);
            assert_eq!(capability.get(&reply[0x10..]) != 0, has, "{profile:?} {feature:?}");
            let refused = rig.run(&command).err();
            assert_eq!(refused, (!has).then_some(refusal), "{profile:?} {feature:?}");
        }
        let copies = cmd_hca_cap::DMA_MMO_SQ.get(&general[0x10..]) == 1;
        assert_eq!(copies, profile.has(Feature::DmaCopy), "{profile:?}");
    }
}
