//! Queried properties of the function and its port.

use mlx5::cqe::Completion;
use mlx5::devx::ifc::{hca_vport_context, opcode, status};
use mlx5::devx::{Command, Traffic};
use mlx5::ib::Rc;
use mlx5::verbs::QueuePair;
use mlx5::verbs::attr::LinkLayer;
use mlx5::{Error, ring::CqReader, wqe::RdmaWrite};

use crate::commands::execute;
use rig::{Rig, wait};

fn rig() -> Rig {
    Rig::new(mlx5_model::Mode::Trapped)
}

#[test]
fn the_board_and_the_port_agree_with_what_verbs_tell() {
    let rig = rig();
    let attributes = rig.context.attributes().unwrap();
    let adapter = rig.context.adapter().unwrap();
    assert_eq!(Some(adapter.psid), attributes.board_id);
    assert_eq!(u32::from(adapter.vendor_id), 0x15b3);
    assert_eq!(adapter.ieee_vendor_id, attributes.vendor_id);
    let (current, supported) = rig.context.command_interface().unwrap();
    assert_eq!(supported >> current & 1, 1);
    assert!(rig.context.vport_state().unwrap().up);
    let port = rig.context.port(1).unwrap();
    let context = rig.context.hca_vport_context(1).unwrap();
    assert_eq!(context.get(hca_vport_context::NODE_GUID), attributes.node_guid.0);
    assert!(context.to_string().contains("node_guid = 0x"), "{context}");
    if port.link_layer == LinkLayer::InfiniBand {
        assert_eq!(context.get(hca_vport_context::LID), port.lid.into());
        // No NIC of Ethernet is behind it.
        let error = rig.context.nic_vport_context().unwrap_err();
        assert!(matches!(&error, Error::Refused(one) if one.status() == status::BAD_OP_ERR));
    }
}

#[test]
fn packets_are_counted_as_they_go() {
    let rig = rig();
    let cqs = [rig.cq(16), rig.cq(16)];
    let [one, other] = cqs.each_ref().map(|cq| rig.init(QueuePair::<Rc, _>::builder(&rig.pd, cq)));
    let (a, _b) = rig.connect(one, other);
    let mut completions = CqReader::new(&cqs[0]).unwrap();
    let mut send = mlx5::ring::SendQueue::new(&a, &mut completions, Default::default()).unwrap();
    let memory = rig.memory(8192);
    let sge = memory.sge(0, 4096).unwrap();
    let to = memory.remote(4096).unwrap();
    let before = rig.context.vport_counters().unwrap();
    for id in 0..3 {
        // SAFETY: the memory lives to the end, and no other code uses it.
        unsafe { send.post(id, RdmaWrite::new(sge, to).signaled()).unwrap() };
        let done = wait(&mut completions, &mut send);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
    }
    // Other tests of this process use the same port: so much at least.
    let after = rig.context.vport_counters().unwrap();
    let more = |after: Traffic, before: Traffic| {
        (after.packets - before.packets, after.octets - before.octets)
    };
    // Three writes of 4096 bytes, and their acknowledgements; all to this very port.
    for (after, before) in [
        (after.sent_rdma_unicast, before.sent_rdma_unicast),
        (after.received_rdma_unicast, before.received_rdma_unicast),
    ] {
        let (packets, octets) = more(after, before);
        assert!(packets >= 6 && octets > 3 * 4096, "{packets} packets, {octets} bytes");
    }
    assert!(after.to_string().contains("sent_rdma_unicast: "), "{after}");
}

#[test]
fn the_port_is_not_bonded_and_its_counters_are_asked_for() {
    let context = rig().context;
    let reply = execute(&Command::new(opcode::QUERY_LAG, 0x10).reply(0x10), &context).unwrap();
    assert_eq!(reply.as_bytes()[8..0x10], [0; 8], "no state, no affinity");
    for code in [opcode::QUERY_VNIC_ENV, opcode::QUERY_CONG_STATISTICS] {
        execute(&Command::new(code, 0x10).reply(0x210), &context).unwrap();
    }
}

#[test]
fn what_the_kernel_passes_and_the_card_does_not_do_is_refused_by_the_card() {
    let context = rig().context;
    for code in [opcode::QUERY_ESW_VPORT_CONTEXT, opcode::GET_DROPPED_PACKET_LOG, 0xb05] {
        let error = execute(&Command::new(code, 0x20).reply(0x100), &context).unwrap_err();
        let Error::Refused(refused) = &error else { panic!("{error}") };
        assert_eq!(refused.status(), status::BAD_OP_ERR, "{error}");
    }
    // What the kernel keeps to itself does not get so far.
    for code in [opcode::QUERY_HCA_VPORT_GID, opcode::SET_ISSI, opcode::TEARDOWN_HCA] {
        let error = execute(&Command::new(code, 0x20).reply(0x100), &context).unwrap_err();
        assert!(matches!(error, Error::Withheld(_)), "{error}");
    }
}
