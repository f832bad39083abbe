//! The control path against a real device, or the model where there is none.

use std::time::Duration;

use mlx5::Error;
use mlx5::connect::LocalPort;
use mlx5::devx::{
    DevxPd, DevxXrcd, EventChannel, Firmware, QueueCounters, Rq, Rqt, Sq, Tir, Tis,
    TransportDomain, Uar, Umem,
};
use mlx5::ib::{Access, RawPacket, Rc};
use mlx5::ib::{GidType, PortState};
use mlx5::ring::{CqReader, QueueError, ReceiveConfig, Srq};
use mlx5::verbs::attr::{
    AckTimeout, AddressVector, AlternatePath, CqeSize, GlobalRoute, InitAttributes, LinkLayer,
    MigrationState, Mtu, QpState, RnrTimer, RtrAttributes, RtsAttributes,
};
use mlx5::verbs::{
    AddressHandle, AsyncEvents, CompletionChannel, CompletionQueue, Context, Devx, Pages,
    ProtectionDomain, QueuePair, QueuePairBuilder, Reset, RssQueues, Rts, SharedReceiveQueue,
    StridingQueue, ThreadDomain, XrcDomain, devices,
};
use mlx5_model as _;

struct Fixture {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Fixture {
    fn new() -> Fixture {
        let context = Context::open_first().unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::new(&context, 64).unwrap();
        Fixture { context, pd, cq }
    }

    fn queue_pair(&self) -> QueuePair<Rc, Reset> {
        QueuePair::builder(&self.pd, &self.cq).build().unwrap()
    }

    fn local(&self) -> LocalPort {
        LocalPort::new(&self.context, 1, None).unwrap()
    }

    /// Attributes towards a queue pair of this port.
    fn rtr(&self, destination: u32) -> RtrAttributes {
        let local = self.local();
        let theirs = mlx5::connect::ConnectionData {
            lid: local.attributes().lid,
            gid: local.gid().map(|entry| entry.gid),
            ..mlx5::connect::ConnectionData::new(destination, Mtu::Mtu1024)
        };
        local.rtr(&theirs, &theirs)
    }

    fn connected(&self) -> QueuePair<Rc, Rts> {
        let qp = self.queue_pair();
        let rtr = self.rtr(qp.number());
        let qp = qp.init(&InitAttributes::new(1)).unwrap().rtr(&rtr).unwrap();
        qp.rts(&RtsAttributes::default()).unwrap()
    }
}

#[test]
fn devices_are_listed_and_opened_by_name() {
    let devices = devices().unwrap();
    let device = devices.iter().find(|device| device.is_mlx5()).expect("a device of libmlx5");
    let context = Context::open(&device.name()).unwrap();
    assert_eq!(context.name(), device.name());
    assert_eq!(device.open().unwrap().name(), device.name());
    let attributes = context.attributes().unwrap();
    assert_eq!(attributes.name, device.name());
    assert_eq!(attributes.node_guid, device.guid());
    assert_eq!(attributes.board_id, device.board_id());
    assert_eq!(attributes.vendor_id, 0x2c9);
    assert_ne!(attributes.product(), "unknown ConnectX");
    assert!(!attributes.firmware.is_empty());
    assert!(attributes.ports >= 1 && attributes.max_qp > 1 && attributes.max_cqe >= 1024);
    assert!(matches!(context.devx(), Devx::Open | Devx::Refused(_)));
}

#[test]
fn a_device_that_is_not_there_is_told_with_those_that_are() {
    let present = devices().unwrap()[0].name();
    match Context::open("mlx5_none") {
        Err(error @ Error::DeviceNotFound { .. }) => {
            let text = error.to_string();
            assert!(text.contains("mlx5_none") && text.contains(&present), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn ports_say_how_they_are_addressed() {
    let context = Fixture::new().context;
    let port = context.port(1).unwrap();
    assert_eq!((port.port, port.state), (1, PortState::Active));
    assert!(port.active_mtu <= port.max_mtu);
    assert!(port.mbps() > 0, "{port:?}");
    if port.link_layer == LinkLayer::InfiniBand {
        assert!((1..=0xbfff).contains(&port.lid), "{port:?}");
    }
    let pkey = context.pkey(1, 0).unwrap();
    assert_eq!(pkey & 0x7fff, 0x7fff);
    let ports = context.attributes().unwrap().ports;
    for wrong in [0, ports + 1] {
        match context.port(wrong) {
            Err(Error::NoSuchPort { port, ports: there, .. }) => {
                assert_eq!((port, there), (wrong, ports));
            }
            other => panic!("port {wrong}: {other:?}"),
        }
    }
    let length = port.pkey_table_length;
    assert!(matches!(context.pkey(1, length), Err(Error::Attribute { .. })));
}

#[test]
fn gids_are_read_and_empty_ones_named() {
    let context = Fixture::new().context;
    let port = context.port(1).unwrap();
    let gids = context.gids(1).unwrap();
    let first = gids[0];
    assert_eq!(context.gid(1, first.index).unwrap(), first);
    assert!(!first.gid.is_zero());
    let kind = if port.is_ethernet() { GidType::RoceV2 } else { GidType::InfiniBand };
    assert_eq!(context.find_gid(1, kind).unwrap().kind, kind);
    let other = if port.is_ethernet() { GidType::InfiniBand } else { GidType::RoceV1 };
    match context.find_gid(1, other) {
        Err(error @ Error::NoGidOfType { .. }) => {
            let text = error.to_string();
            assert!(text.contains(&first.gid.to_string()), "{text}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        context.gid(1, port.gid_table_length),
        Err(Error::GidIndexRange { length, .. }) if length == port.gid_table_length
    ));
    let used: Vec<u32> = gids.iter().map(|entry| entry.index).collect();
    if let Some(empty) = (0..port.gid_table_length).find(|index| !used.contains(index)) {
        match context.gid(1, empty) {
            Err(Error::GidEmpty { index, valid, .. }) => {
                assert_eq!((index, valid), (empty, used));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn memory_is_registered_and_given_back() {
    let fixture = Fixture::new();
    let local = Access::LOCAL_WRITE;
    let mut region = fixture.pd.register(b"a vector".to_vec(), local).unwrap();
    assert_ne!(region.lkey(), 0);
    assert_eq!(region.address(), region.as_ptr().as_ptr() as u64);
    region.as_mut_slice().unwrap()[0] = b'A';
    region.write(2, b"V");
    let mut bytes = [0; 3];
    region.read(0, &mut bytes);
    assert_eq!(&bytes, b"A V");
    assert_eq!(region.poll_byte(2), b'V');
    let failed = region.into_buffer::<Box<[u8]>>().unwrap_err();
    assert!(failed.to_string().contains("another type"), "{failed}");
    assert_eq!(failed.region.into_buffer::<Vec<u8>>().unwrap(), b"A Vector");

    let mut pages = fixture.pd.allocate(10_000, local | Access::REMOTE_WRITE).unwrap();
    assert_eq!(pages.address() % 4096, 0);
    assert!(pages.as_mut_slice().is_none(), "a peer may write it");
    assert_eq!(pages.remote_address(), pages.address());
    assert_eq!(pages.into_buffer::<Pages>().unwrap().len(), 10_000);

    let two = [
        fixture.pd.allocate(1, local).unwrap(),
        fixture.pd.allocate(1, local | Access::REMOTE_READ).unwrap(),
    ];
    assert_ne!(two[0].lkey(), two[1].lkey());
}

#[test]
fn registrations_that_cannot_be_are_refused_with_the_buffer() {
    let pd = Fixture::new().pd;
    let refused = pd.register(vec![1u8; 10], Access::REMOTE_WRITE).unwrap_err();
    assert_eq!(refused.buffer, [1; 10]);
    assert!(refused.to_string().contains("LOCAL_WRITE"), "{refused}");
    let refused = pd.register(Vec::new(), Access::LOCAL_WRITE).unwrap_err();
    assert!(matches!(refused.error, Error::Attribute { .. }));
    // SAFETY: no code uses the memory, which exists when the region is made and is not read.
    let unmapped =
        unsafe { pd.register_raw(std::ptr::NonNull::<u8>::dangling(), 4096, Access::LOCAL_WRITE) };
    let text = unmapped.unwrap_err().to_string();
    assert!(text.contains("ibv_reg_mr") && text.contains("not mapped"), "{text}");
}

#[test]
fn completion_queues_have_the_size_asked_for() {
    let context = Fixture::new().context;
    for size in [CqeSize::B64, CqeSize::B128] {
        let cq = CompletionQueue::builder(&context, 100).cqe_size(size).build().unwrap();
        assert!(cq.capacity() >= 100, "{cq:?}");
        assert_eq!(cq.cqe_size(), size);
    }
    let limit = context.attributes().unwrap().max_cqe;
    for entries in [0, limit + 1] {
        let refused = CompletionQueue::new(&context, entries).unwrap_err().to_string();
        assert!(refused.contains(&limit.to_string()), "{refused}");
    }
    let vectors = context.completion_vectors();
    let refused = CompletionQueue::builder(&context, 8).vector(vectors).build().unwrap_err();
    assert!(refused.to_string().contains("completion vector"), "{refused}");
    let channel = CompletionChannel::new(&context).unwrap();
    let elsewhere = Context::open_first().unwrap();
    let refused = CompletionQueue::builder(&elsewhere, 8).channel(&channel).build().unwrap_err();
    assert!(refused.to_string().contains("another opened device"), "{refused}");
}

#[test]
fn a_channel_without_events_times_out() {
    let context = Fixture::new().context;
    let channel = CompletionChannel::new(&context).unwrap();
    let cq = CompletionQueue::builder(&context, 8).channel(&channel).build().unwrap();
    cq.request_notification(false).unwrap();
    assert!(channel.get_event(Duration::from_millis(10)).unwrap().is_none());
    assert!(context.async_event(Duration::from_millis(10)).unwrap().is_none());
    let deaf = CompletionQueue::new(&context, 8).unwrap();
    assert!(matches!(deaf.request_notification(false), Err(Error::Attribute { .. })));
}

#[test]
fn queue_pairs_have_at_least_the_capacities_asked_for() {
    let fixture = Fixture::new();
    let receive_cq = CompletionQueue::new(&fixture.context, 8).unwrap();
    let qp = QueuePair::builder(&fixture.pd, &fixture.cq)
        .receive_cq(&receive_cq)
        .max_send_wr(33)
        .max_recv_wr(17)
        .max_send_sge(3)
        .max_recv_sge(2)
        .max_inline_data(100)
        .signal_all(true)
        .build()
        .unwrap();
    let got = qp.capacities();
    assert!(got.max_send_wr >= 33 && got.max_recv_wr >= 17, "{got:?}");
    assert!(got.max_send_sge >= 3 && got.max_recv_sge >= 2, "{got:?}");
    assert!(got.max_inline_data >= 100, "{got:?}");
    assert!(*qp.send_cq() == fixture.cq && *qp.receive_cq() == receive_cq);
    let queried = qp.query().unwrap();
    assert_eq!(queried.state, QpState::Reset);
    assert!(queried.signal_all);

    let limit = fixture.context.attributes().unwrap().max_qp_wr;
    let refused = QueuePair::builder(&fixture.pd, &fixture.cq).max_send_wr(limit + 1).build();
    assert!(refused.unwrap_err().to_string().contains("max_send_wr"));
    let none = QueuePair::builder(&fixture.pd, &fixture.cq).max_send_wr(0).max_recv_wr(0).build();
    assert!(matches!(none, Err(Error::Attribute { .. })));
    let elsewhere = Fixture::new();
    let mixed = QueuePair::builder(&fixture.pd, &elsewhere.cq).build();
    assert!(mixed.unwrap_err().to_string().contains("another opened device"));
}

#[test]
fn more_inline_data_than_a_wqe_carries_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    // libmlx5 makes a queue pair with 60 of the last two.
    for asked in [973, 0x8000, 1 << 31, u32::MAX] {
        let builder = QueuePair::builder(&fixture.pd, &fixture.cq);
        let refused = builder.max_inline_data(asked).build().unwrap_err().to_string();
        let rule = "a request of transport RC carries up to 972";
        assert_eq!(refused, format!("max_inline_data is {asked}: {rule}"));
    }
}

#[test]
fn a_queue_pair_of_packets_on_infiniband_is_refused_with_the_link() {
    let rig = Fixture::new();
    if rig.local().attributes().link_layer != LinkLayer::InfiniBand {
        return;
    }
    let error = QueuePairBuilder::<RawPacket>::new(&rig.pd, &rig.cq).build().unwrap_err();
    assert!(error.to_string().contains("port 1 is InfiniBand"), "{error}");
}

#[test]
fn a_queue_without_sges_and_inline_data_has_space_for_neither() {
    let fixture = Fixture::new();
    // libmlx5 grants 4,294,967,292 inline bytes.
    let qp = QueuePair::builder(&fixture.pd, &fixture.cq).max_send_sge(0).build().unwrap();
    assert_eq!((qp.capacities().max_send_sge, qp.capacities().max_inline_data), (0, 0));
    let qp = QueuePair::builder(&fixture.pd, &fixture.cq).max_send_sge(0).max_inline_data(64);
    assert!((64..1024).contains(&qp.build().unwrap().capacities().max_inline_data));
}

#[test]
fn query_reads_back_what_was_set() {
    let fixture = Fixture::new();
    let peer = fixture.queue_pair();
    let qp = fixture.queue_pair();
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let qp = qp.init(&InitAttributes { access, ..InitAttributes::new(1) }).unwrap();
    let queried = qp.query().unwrap();
    assert_eq!((queried.state, queried.port, queried.pkey_index), (QpState::Init, 1, 0));
    // READs and atomics are only accepted once RTR says how many at a time.
    assert!(queried.access.contains(Access::REMOTE_WRITE), "{queried:?}");

    let mut rtr = RtrAttributes {
        rq_psn: 0x12_3456,
        path_mtu: Mtu::Mtu512,
        max_dest_rd_atomic: 4,
        min_rnr_timer: RnrTimer::from_code(0x12).unwrap(),
        ..fixture.rtr(peer.number())
    };
    rtr.address.service_level = 3;
    let qp = qp.rtr(&rtr).unwrap();
    let queried = qp.query().unwrap();
    assert_eq!((queried.state, queried.destination), (QpState::Rtr, peer.number()));
    assert_eq!((queried.rq_psn, queried.path_mtu), (0x12_3456, Some(Mtu::Mtu512)));
    assert_eq!((queried.max_dest_rd_atomic, queried.access), (4, access));
    assert_eq!(queried.min_rnr_timer.code(), 0x12);
    assert_eq!(queried.address.service_level, 3);
    if rtr.address.global.is_none() {
        assert_eq!(queried.address, rtr.address);
    }

    let rts = RtsAttributes {
        sq_psn: 0x65_4321,
        timeout: AckTimeout::from_code(17).unwrap(),
        retry_cnt: 6,
        rnr_retry: 5,
        max_rd_atomic: 2,
    };
    let qp = qp.rts(&rts).unwrap();
    let queried = qp.query().unwrap();
    assert_eq!((queried.state, queried.sq_psn), (QpState::Rts, 0x65_4321));
    assert_eq!(queried.timeout.code(), 17);
    assert_eq!((queried.retry_cnt, queried.rnr_retry, queried.max_rd_atomic), (6, 5, 2));
    assert_eq!(queried.migration, MigrationState::Migrated);
    assert_eq!(queried.alternate, None);
}

#[test]
fn global_routes_are_read_back() {
    let fixture = Fixture::new();
    let own = fixture.context.gids(1).unwrap()[0];
    let route = GlobalRoute {
        dgid: own.gid,
        sgid_index: u8::try_from(own.index).unwrap(),
        flow_label: 0xabcde,
        hop_limit: 7,
        traffic_class: 0x68,
    };
    let lid = fixture.context.port(1).unwrap().lid;
    let address = AddressVector { global: Some(route), ..AddressVector::lid(1, lid) };
    let qp = fixture.queue_pair();
    let rtr = RtrAttributes { address, ..fixture.rtr(qp.number()) };
    let qp = qp.init(&InitAttributes::new(1)).unwrap().rtr(&rtr).unwrap();
    let got = qp.query().unwrap().address.global.expect("a global route");
    assert_eq!((got.dgid, got.sgid_index), (route.dgid, route.sgid_index));
    assert_eq!((got.hop_limit, got.traffic_class), (7, 0x68));
}

#[test]
fn states_go_round_and_come_back() {
    let fixture = Fixture::new();
    let mut qp = fixture.queue_pair();
    for _ in 0..3 {
        let rtr = fixture.rtr(qp.number());
        let rts = qp
            .init(&InitAttributes::new(1))
            .unwrap()
            .rtr(&rtr)
            .unwrap()
            .rts(&RtsAttributes::default())
            .unwrap();
        assert_eq!(rts.query().unwrap().state, QpState::Rts);
        assert_eq!(rts.state(), QpState::Rts);
        let failed = rts.to_error().unwrap();
        assert_eq!(failed.query().unwrap().state, QpState::Error);
        assert_eq!(failed.state(), QpState::Error);
        qp = failed.reset().unwrap();
        assert_eq!(qp.query().unwrap().state, QpState::Reset);
    }
    // From every state on the way.
    let qp = qp.to_error().unwrap().reset().unwrap();
    let qp = qp.init(&InitAttributes::new(1)).unwrap().reset().unwrap();
    let rtr = fixture.rtr(qp.number());
    let qp = qp.init(&InitAttributes::new(1)).unwrap().rtr(&rtr).unwrap();
    assert_eq!(qp.to_error().unwrap().query().unwrap().state, QpState::Error);
}

#[test]
fn a_move_that_is_refused_gives_the_pair_back_as_it_was() {
    let fixture = Fixture::new();
    let qp = fixture.queue_pair();
    let number = qp.number();
    let refused = qp.init(&InitAttributes::new(99)).unwrap_err();
    assert!(matches!(refused.error, Error::NoSuchPort { port: 99, .. }), "{refused}");
    let qp = refused.queue_pair;
    assert_eq!(qp.query().unwrap().state, QpState::Reset);

    let attributes = InitAttributes { pkey_index: u16::MAX, ..InitAttributes::new(1) };
    let refused = qp.init(&attributes).unwrap_err();
    assert!(refused.to_string().contains("P_Key index"), "{refused}");
    let mut qp = refused.queue_pair;
    // A partition that the port is not in: packets would be dropped without a word.
    if let Some(empty) = (1..fixture.context.port(1).unwrap().pkey_table_length)
        .find(|&index| fixture.context.pkey(1, index).unwrap() == 0)
    {
        let attributes = InitAttributes { pkey_index: empty, ..InitAttributes::new(1) };
        let refused = qp.init(&attributes).unwrap_err();
        assert!(refused.to_string().contains("in no such partition"), "{refused}");
        qp = refused.queue_pair;
    }
    let qp = qp.init(&InitAttributes::new(1)).unwrap();

    let good = fixture.rtr(number);
    type Change = fn(&mut RtrAttributes);
    let wrong: [(&str, Change); 5] = [
        ("destination QP number", |it| it.destination = 1 << 24),
        ("rq_psn", |it| it.rq_psn = 1 << 24),
        ("max_dest_rd_atomic", |it| it.max_dest_rd_atomic = 255),
        ("service level", |it| it.address.service_level = 16),
        ("has no port 9", |it| it.address.port = 9),
    ];
    let mut qp = qp;
    for (part, change) in wrong {
        let mut attributes = good;
        change(&mut attributes);
        let refused = qp.rtr(&attributes).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(part) && text.contains("stays in INIT"), "{part}: {text}");
        qp = refused.queue_pair;
        assert_eq!(qp.query().unwrap().state, QpState::Init);
    }
    let ethernet = fixture.context.port(1).unwrap().is_ethernet();
    let attributes = RtrAttributes { address: AddressVector::lid(1, 0), ..good };
    let refused = qp.rtr(&attributes).unwrap_err();
    if ethernet {
        assert!(matches!(refused.error, Error::GidRequired { .. }), "{refused}");
    } else {
        assert!(refused.to_string().contains("destination LID"), "{refused}");
    }
    let address = AddressVector::gid(1, 200, "fe80::1".parse().unwrap());
    let refused = refused.queue_pair.rtr(&RtrAttributes { address, ..good }).unwrap_err();
    assert!(
        matches!(refused.error, Error::GidEmpty { .. } | Error::GidIndexRange { .. }),
        "{refused}"
    );
    let mut qp = refused.queue_pair;
    if !ethernet {
        // Of the right GID, but without a LID nothing leaves the port.
        let own = fixture.context.gid(1, 0).unwrap().gid;
        let attributes = RtrAttributes { address: AddressVector::gid(1, 0, own), ..good };
        let refused = qp.rtr(&attributes).unwrap_err();
        assert!(refused.to_string().contains("destination LID"), "{refused}");
        qp = refused.queue_pair;
    }

    let qp = qp.rtr(&good).unwrap();
    let attributes = RtsAttributes { retry_cnt: 8, ..RtsAttributes::default() };
    let refused = qp.rts(&attributes).unwrap_err();
    assert!(refused.to_string().contains("retry_cnt is 8"), "{refused}");
    let qp = refused.queue_pair.rts(&RtsAttributes::default()).unwrap();
    assert_eq!(qp.query().unwrap().state, QpState::Rts);
}

#[test]
fn an_mtu_beyond_the_link_is_refused() {
    let fixture = Fixture::new();
    let port = fixture.context.port(1).unwrap();
    let Some(too_much) = Mtu::from_code(port.active_mtu.code() + 1) else {
        // A link at 4096 has no larger MTU to refuse.
        assert_eq!(port.active_mtu, Mtu::Mtu4096);
        return;
    };
    let qp = fixture.queue_pair();
    let rtr = RtrAttributes { path_mtu: too_much, ..fixture.rtr(qp.number()) };
    let refused = qp.init(&InitAttributes::new(1)).unwrap().rtr(&rtr).unwrap_err();
    assert!(refused.to_string().contains("path MTU"), "{refused}");
}

#[test]
fn owners_may_be_dropped_in_any_order() {
    // Parents first, as their variables go: children keep them alive.
    let fixture = Fixture::new();
    let mut region = fixture.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let thread = ThreadDomain::new(&fixture.context).unwrap();
    let reset = QueuePair::builder(&fixture.pd, &fixture.cq).thread_domain(&thread).build();
    let qp = fixture.connected();
    let channel = CompletionChannel::new(&fixture.context).unwrap();
    let cq = CompletionQueue::builder(&fixture.context, 4).channel(&channel).build().unwrap();
    let Fixture { context, pd, cq: first } = fixture;
    drop((context, thread, channel, pd, first));
    assert_eq!(reset.unwrap().query().unwrap().state, QpState::Reset);
    assert_eq!(qp.query().unwrap().state, QpState::Rts);
    assert_eq!(qp.send_cq().context().name(), cq.context().name());
    drop(qp);
    assert!(cq.capacity() >= 4);
    region.write(0, b"still there");
    drop(region);
}

/// A handle of an object, by the rule of `mlx5::verbs`.
fn is_handle<T: Clone + Send + Sync + 'static>() {}

#[test]
fn clones_of_a_handle_name_one_object_that_lives_as_long_as_the_last() {
    is_handle::<Context>();
    is_handle::<ProtectionDomain>();
    is_handle::<CompletionQueue>();
    is_handle::<CompletionQueue<Firmware>>();
    is_handle::<CompletionChannel>();
    is_handle::<SharedReceiveQueue>();
    is_handle::<SharedReceiveQueue<Firmware>>();
    is_handle::<StridingQueue>();
    is_handle::<RssQueues>();
    is_handle::<AddressHandle>();
    is_handle::<ThreadDomain>();
    is_handle::<XrcDomain>();
    is_handle::<AsyncEvents>();
    is_handle::<Umem>();
    is_handle::<(Rq, Sq, Rqt, Tir, Tis, TransportDomain)>();
    is_handle::<(DevxPd, DevxXrcd, Uar, EventChannel, QueueCounters)>();

    let fixture = Fixture::new();
    let cq = fixture.cq.clone();
    assert!(cq == fixture.cq && cq != CompletionQueue::new(&fixture.context, 8).unwrap());
    cq.resize(200).unwrap();
    assert_eq!(fixture.cq.capacity(), cq.capacity());
    let handle = AddressHandle::new(&fixture.pd, &fixture.rtr(1).address).unwrap();
    let other = handle.clone();
    let Fixture { context, pd, cq: first } = fixture;
    drop((handle, context, first));
    let qp = QueuePair::builder(&pd, &cq).build().unwrap();
    drop(cq);
    assert!(qp.send_cq().capacity() >= 200);
    assert_eq!(other.address().port, 1);
}

#[test]
fn several_threads_make_and_drop_objects() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let qp = fixture.connected();
                    let region = fixture.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
                    assert_eq!(qp.query().unwrap().state, QpState::Rts);
                    drop((region, qp));
                }
            });
        }
    });
}

#[test]
fn a_connection_is_given_an_alternate_path_and_told_to_move() {
    let fixture = Fixture::new();
    let qp = fixture.connected();
    assert_eq!(qp.query().unwrap().migration, MigrationState::Migrated);
    let address = AddressVector { service_level: 3, ..fixture.rtr(qp.number()).address };
    let path = AlternatePath { address, pkey_index: 0, timeout: AckTimeout::default() };
    qp.set_alternate_path(&path).unwrap();
    let got = qp.query().unwrap();
    assert_eq!(got.alternate.map(|it| it.address.service_level), Some(3));
    assert_ne!(got.migration, MigrationState::Migrated);
    qp.migrate().unwrap();
    assert_eq!(qp.query().unwrap().migration, MigrationState::Migrated);
}

#[test]
fn atomics_are_granted_where_the_device_has_them() {
    let fixture = Fixture::new();
    let granted = fixture.local().init().access.contains(Access::REMOTE_ATOMIC);
    assert_eq!(granted, fixture.context.attributes().unwrap().atomics);
}

#[test]
fn a_target_of_dynamic_connections_is_attached_from_rtr_on() {
    let Fixture { pd, cq, context: _context } = Fixture::new();
    let srq = SharedReceiveQueue::builder(&pd).build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    let target = QueuePair::dc_target(&pd, &cq, &srq, 7).build().unwrap();
    let target = target.init(&InitAttributes::new(1)).unwrap();
    let error = shared.attach(&target, &mut completions).unwrap_err();
    assert!(matches!(error, Error::Queue(QueueError::WrongState { name: "INIT", .. })), "{error}");
    assert_eq!(shared.attached().count(), 0);
}
