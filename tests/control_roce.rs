//! The control path over RoCE, where peers are addressed by GID. Runs on the model, which is set to
//! an Ethernet link before libibverbs first looks for devices. In a program of its own, since the
//! environment sets it.

use mlx5::Error;
use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::Completion;
use mlx5::ib::Access;
use mlx5::ib::GidType;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{
    AckTimeout, AddressVector, AlternatePath, DctRtrAttributes, InitAttributes, LinkLayer,
    RtrAttributes,
};
use mlx5::verbs::{
    CompletionQueue, Context, GidEntry, ProtectionDomain, QueuePair, SharedReceiveQueue,
};
use mlx5::wqe::SendMessage;
use mlx5_model as _;
use mlx5_sys::verbs::{ibv_modify_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_state};

fn open() -> Context {
    rig::ethernet::choose();
    Context::open_first().unwrap()
}

fn of_kind(gids: &[GidEntry], kind: GidType, ipv4: bool) -> Option<GidEntry> {
    gids.iter().copied().find(|it| it.kind == kind && it.gid.ipv4().is_some() == ipv4)
}

#[test]
fn the_port_is_ethernet_and_has_gids_of_addresses() {
    let context = open();
    let port = context.port(1).unwrap();
    assert_eq!((port.link_layer, port.lid), (LinkLayer::Ethernet, 0));
    let gids = context.gids(1).unwrap();
    assert!(gids.iter().all(|entry| entry.kind != GidType::InfiniBand), "{gids:?}");
    let link_local = of_kind(&gids, GidType::RoceV2, false).expect("an IPv6 GID");
    assert!(link_local.gid.is_link_local(), "{link_local}");
    let ipv4 = of_kind(&gids, GidType::RoceV2, true).expect("an IPv4 GID");
    assert_eq!(context.find_gid(1, GidType::RoceV2).unwrap(), ipv4);
    assert_eq!(LocalPort::new(&context, 1, None).unwrap().gid(), Some(ipv4));
    let text = context.find_gid(1, GidType::InfiniBand).unwrap_err().to_string();
    assert!(text.contains("no IB GID") && text.contains(&ipv4.to_string()), "{text}");
}

#[test]
fn addresses_that_do_not_fit_are_told_apart() {
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 8).unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    let mine = local.connection_data(&qp);
    let good = local.rtr(&mine, &mine);
    let qp = qp.init(&local.init()).unwrap();

    let lid = RtrAttributes { address: AddressVector::lid(1, 5), ..good };
    let refused = qp.rtr(&lid).unwrap_err();
    assert!(matches!(refused.error, Error::GidRequired { port: 1, .. }), "{refused}");

    let empty = RtrAttributes { address: AddressVector::gid(1, 250, mine.gid.unwrap()), ..good };
    let refused = refused.queue_pair.rtr(&empty).unwrap_err();
    assert!(
        matches!(&refused.error, Error::GidEmpty { index: 250, valid, .. } if !valid.is_empty())
            || matches!(refused.error, Error::GidIndexRange { index: 250, .. }),
        "{refused}"
    );

    // A peer that gave no GID, perhaps because it is InfiniBand.
    let silent = local.rtr(&mine, &ConnectionData { gid: None, ..mine.clone() });
    let refused = refused.queue_pair.rtr(&silent).unwrap_err();
    assert!(refused.to_string().contains("the peer told none"), "{refused}");

    // The card has three bits for an Ethernet priority, and would cut the fourth off.
    let address = AddressVector { service_level: 8, ..good.address };
    let refused = refused.queue_pair.rtr(&RtrAttributes { address, ..good }).unwrap_err();
    assert!(refused.to_string().contains("Ethernet priority"), "{refused}");

    // A source of the wrong kind for the destination.
    let gids = context.gids(1).unwrap();
    let mut qp = refused.queue_pair;
    let mut tried = 0;
    for kind in [GidType::RoceV1, GidType::RoceV2] {
        for ipv4 in [false, true] {
            let Some(source) = of_kind(&gids, kind, ipv4) else { continue };
            let other = if ipv4 { "2001:db8::1" } else { "192.0.2.1" };
            let index = u8::try_from(source.index).unwrap();
            let address = AddressVector::gid(1, index, other.parse().unwrap());
            let refused = qp.rtr(&RtrAttributes { address, ..good }).unwrap_err();
            assert!(matches!(refused.error, Error::GidKind { .. }), "{source}: {refused}");
            qp = refused.queue_pair;
            tried += 1;
        }
    }
    assert!(tried >= 2, "{gids:?}");
    qp.rtr(&good).unwrap();
}

#[test]
fn a_peer_that_no_port_is_says_why_it_is_not_reached() {
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 8).unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let mut qp = QueuePair::builder(&pd, &cq).build().unwrap().init(&local.init()).unwrap();
    let mine = local.connection_data_of(qp.number());
    let good = local.rtr(&mine, &mine);
    let index = u8::try_from(local.gid().unwrap().index).unwrap();
    for (gid, name, cause) in [
        ("198.18.0.99", "ETIMEDOUT", "nobody answers for the destination GID"),
        ("192.0.2.1", "ENETUNREACH", "no route leads to the destination GID"),
    ] {
        let address = AddressVector::gid(1, index, gid.parse().unwrap());
        let refused = qp.rtr(&RtrAttributes { address, ..good }).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(name) && text.contains(cause), "{text}");
        qp = refused.queue_pair;
    }
    qp.rtr(&good).unwrap();
}

/// Linux finds the peer's port for connected queue pairs only.
#[test]
fn a_target_of_dynamic_connections_needs_no_answer_from_its_address() {
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 8).unwrap();
    let srq = SharedReceiveQueue::builder(&pd).build().unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let index = u8::try_from(local.gid().unwrap().index).unwrap();
    for gid in ["198.18.0.99", "192.0.2.1"] {
        let target = QueuePair::dc_target(&pd, &cq, &srq, 7).build().unwrap();
        let target = target.init(&InitAttributes::new(1)).unwrap();
        let address = AddressVector::gid(1, index, gid.parse().unwrap());
        target.rtr(&DctRtrAttributes::new(address)).unwrap();
    }
}

#[test]
fn linux_refuses_alternate_paths_of_roce() {
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 8).unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap().init(&local.init()).unwrap();
    let mine = local.connection_data_of(qp.number());
    let way = local.rtr(&mine, &mine);
    let qp = qp.rtr(&way).unwrap().rts(&local.rts(&mine, &mine)).unwrap();
    let timeout = AckTimeout::from_code(12).unwrap();
    let path = AlternatePath { address: way.address, pkey_index: 0, timeout };
    let refused = qp.set_alternate_path(&path).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("EINVAL") && text.contains("alternate paths to InfiniBand"), "{text}");
}

#[test]
fn the_kernel_refuses_a_path_mtu_above_the_ports() {
    use ibv_qp_attr_mask as mask;
    let context = open();
    let pd = ProtectionDomain::new(&context).unwrap();
    let cq = CompletionQueue::new(&context, 8).unwrap();
    let local = LocalPort::new(&context, 1, None).unwrap();
    let qp = QueuePair::builder(&pd, &cq).build().unwrap().init(&local.init()).unwrap();
    let active = context.port(1).unwrap().active_mtu.code();
    let own = local.gid().unwrap();
    // The driver compares with the port by itself, so this goes to libibverbs.
    let errors = [active + 1, active].map(|mtu| {
        // SAFETY: all zeros are valid attributes, which are filled; the queue pair lives.
        unsafe {
            let mut attributes: ibv_qp_attr = std::mem::zeroed();
            attributes.qp_state = ibv_qp_state::IBV_QPS_RTR;
            attributes.path_mtu = mtu.into();
            attributes.dest_qp_num = qp.number();
            (attributes.max_dest_rd_atomic, attributes.min_rnr_timer) = (1, 12);
            (attributes.ah_attr.port_num, attributes.ah_attr.is_global) = (1, 1);
            attributes.ah_attr.grh.dgid.raw = own.gid.0;
            attributes.ah_attr.grh.sgid_index = own.index as u8;
            let changed = mask::IBV_QP_STATE.0
                | mask::IBV_QP_AV.0
                | mask::IBV_QP_PATH_MTU.0
                | mask::IBV_QP_DEST_QPN.0
                | mask::IBV_QP_RQ_PSN.0
                | mask::IBV_QP_MAX_DEST_RD_ATOMIC.0
                | mask::IBV_QP_MIN_RNR_TIMER.0;
            ibv_modify_qp(qp.as_raw().as_ptr(), &mut attributes, changed as i32)
        }
    });
    assert_eq!(errors, [libc::EINVAL, 0]);
}

#[test]
fn a_message_travels_by_every_gid() {
    let context = open();
    for entry in context.gids(1).unwrap() {
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        let mut region = pd.allocate(8192, Access::LOCAL_WRITE).unwrap();
        let index = u8::try_from(entry.index).unwrap();
        let local = LocalPort::new(&context, 1, Some(index)).unwrap();
        // To itself.
        let qp = QueuePair::builder(&pd, &cq).max_send_wr(4).max_recv_wr(4).build().unwrap();
        let mine = local.connection_data(&qp);
        assert_eq!((mine.lid, mine.gid), (0, Some(entry.gid)));
        let qp = qp.init(&local.init()).unwrap().rtr(&local.rtr(&mine, &mine)).unwrap();
        let qp = qp.rts(&local.rts(&mine, &mine)).unwrap();
        let got = qp.query().unwrap().address.global.expect("a global route");
        assert_eq!((got.dgid, got.sgid_index, got.hop_limit), (entry.gid, index, 64));

        let mut completions = CqReader::new(&cq).unwrap();
        let mut receives =
            ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
        let mut sends = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        let text = format!("by {entry}");
        let length = text.len() as u32;
        region.write(0, text.as_bytes());
        // SAFETY: the region outlives the queues, and its halves are used as the requests say.
        unsafe {
            let into = region.sge(4096, 4096).unwrap();
            receives.post(1, into).unwrap();
            let from = region.sge(0, length as usize).unwrap();
            sends.post(2, SendMessage::new(from).signaled()).unwrap();
        }
        let mut received = None;
        let mut sent = false;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while received.is_none() || !sent {
            assert!(std::time::Instant::now() < deadline, "{entry}: {received:?}, {sent}");
            match completions.poll(&mut (&mut sends, &mut receives)).unwrap() {
                Some(Completion::Receive(done)) => received = Some(done.byte_len),
                Some(Completion::Send(_)) => sent = true,
                Some(other) => panic!("{entry}: {other:?}"),
                None => std::thread::yield_now(),
            }
        }
        assert_eq!(received, Some(length));
        let bytes = region.to_vec(4096, text.len());
        assert_eq!(bytes, text.as_bytes());
        drop((sends, receives));
    }
}
