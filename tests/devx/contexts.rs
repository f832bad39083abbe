//! The HCA's contexts of queue pairs and CQs made by command, compared with those made by verbs:
//! field by field, in every state.

use mlx5::connect::LocalPort;
use mlx5::devx::ifc::Field;
use mlx5::devx::{self, CommandTarget, ObjectContext};
use mlx5::ib::Ud;
use mlx5::verbs::attr::{
    AckTimeout, AddressVector, InitAttributes, Mtu, QpState, RnrTimer, RtrAttributes,
    RtsAttributes, UcRtrAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{self, CompletionQueue};

use rig::Rig;

/// Fields of a queue pair's context that may differ, and why.
const QP_MAY: &[(&str, &str)] = &[
    ("uar_page", "each has a register of its own"),
    ("user_index", "libmlx5 finds its structures by it; rings go by the number"),
    ("log_sq_size", "libmlx5 has every request take room for a change of a key"),
    ("dbr_addr", "the record lies in a umem"),
    ("dbr_umem_valid", "the record lies in a umem"),
    ("dbr_umem_id", "the record lies in a umem"),
    ("page_offset", "verbs' rings start where malloc has them"),
    ("cqn_snd", "each has a CQ of its own"),
    ("cqn_rcv", "each has a CQ of its own"),
    ("counter_set_id", "the kernel's driver counts queue pairs of verbs in the port's set"),
    ("primary_address_path.udp_sport", "of numbers of both ends, which are others'"),
    ("secondary_address_path.udp_sport", "of numbers of both ends, which are others'"),
];

/// The same of a CQ's.
const CQ_MAY: &[(&str, &str)] = &[
    ("uar_page", "each has its own"),
    ("dbr_addr", "the record lies in a umem"),
    ("dbr_umem_valid", "the record lies in a umem"),
    ("dbr_umem_id", "the record lies in a umem"),
    ("page_offset", "verbs' rings start where malloc has them"),
];

fn alike(verbs: &ObjectContext, command: &ObjectContext, may: &[(&str, &str)], when: &str) {
    let path = |field: Field| field.path().to_string();
    let differ: Vec<_> = verbs
        .differences(command)
        .into_iter()
        .filter(|(field, ..)| !may.iter().any(|(name, _)| path(*field).ends_with(name)))
        .map(|(field, verbs, command)| format!("{}: {verbs:#x}, {command:#x}", path(field)))
        .collect();
    assert!(differ.is_empty(), "{when}: {differ:#?}");
}

/// Returns connection attributes, none of which is the default.
fn attributes(local: &LocalPort) -> (InitAttributes, RtrAttributes, RtsAttributes) {
    let init = local.init();
    let mut address = local.address(&local.connection_data_of(0x1234));
    address.service_level = 3;
    address.global = address.global.map(|route| verbs::attr::GlobalRoute {
        traffic_class: 0x68,
        flow_label: 0x12345,
        hop_limit: 17,
        ..route
    });
    let rtr = RtrAttributes {
        rq_psn: 0xabcdef,
        path_mtu: Mtu::Mtu2048,
        max_dest_rd_atomic: 5,
        min_rnr_timer: RnrTimer::from_code(19).unwrap(),
        alternate: Some(verbs::attr::AlternatePath {
            address: AddressVector { service_level: 5, ..address },
            pkey_index: 0,
            timeout: AckTimeout::from_code(9).unwrap(),
        }),
        ..RtrAttributes::new(0x1234, address)
    };
    let rts = RtsAttributes {
        sq_psn: 0x13579b,
        timeout: AckTimeout::from_code(13).unwrap(),
        retry_cnt: 5,
        rnr_retry: 3,
        max_rd_atomic: 4,
    };
    (init, rtr, rts)
}

/// Moves one of each kind of a connected transport along, and compares their contexts in every state.
macro_rules! along {
    ($transport:ty, $rig:expr, $init:expr, $rtr:expr, $rts:expr) => {{
        let rig = $rig;
        let cq = CompletionQueue::new(&rig.context, 255).unwrap();
        let other_cq = CompletionQueue::by_command(&rig.context, 256).build().unwrap();
        macro_rules! shaped {
            ($builder:expr) => {
                $builder.max_send_sge(2).max_recv_wr(64).max_recv_sge(4).build().unwrap()
            };
        }
        let one = shaped!(verbs::QueuePairBuilder::<$transport>::new(&rig.pd, &cq));
        let other =
            shaped!(verbs::QueuePairBuilder::<$transport, _>::by_command(&rig.pd, &other_cq));
        macro_rules! compare {
            ($one:expr, $other:expr, $state:expr) => {{
                let verbs = $one.object_context().unwrap();
                let command = $other.object().object_context().unwrap();
                alike(&verbs, &command, QP_MAY, concat!(stringify!($transport), " ", $state));
                // Verbs say the same of both, but for what a ring holds.
                let [mut said, mut also] = [$one.query().unwrap(), $other.query().unwrap()];
                (said.capacities, also.capacities) = ($one.capacities(), $one.capacities());
                assert_eq!(format!("{said:?}"), format!("{also:?}"));
            }};
        }
        compare!(one, other, "RESET");
        let (one, other) = (one.init(&$init).unwrap(), other.init(&$init).unwrap());
        compare!(one, other, "INIT");
        let (one, other) = (one.rtr(&$rtr).unwrap(), other.rtr(&$rtr).unwrap());
        compare!(one, other, "RTR");
        let (one, other) = (one.rts(&$rts).unwrap(), other.rts(&$rts).unwrap());
        compare!(one, other, "RTS");
        assert_eq!(other.query().unwrap().state, QpState::Rts);
        let (one, other) = (one.to_error().unwrap(), other.to_error().unwrap());
        compare!(one, other, "ERROR");
        let (one, other) = (one.reset().unwrap(), other.reset().unwrap());
        compare!(one, other, "RESET again");
    }};
}

fn rig() -> Rig {
    Rig::new(mlx5_model::Mode::Trapped)
}

#[test]
fn reliable_connections_are_alike_in_every_state() {
    let rig = rig();
    let (init, rtr, rts) = attributes(&rig.local);
    along!(mlx5::ib::Rc, &rig, init, rtr, rts);
}

#[test]
fn unreliable_connections_are_alike_in_every_state() {
    let rig = rig();
    let (init, rtr, rts) = attributes(&rig.local);
    let (rtr, rts): (UcRtrAttributes, UnreliableRtsAttributes) = (rtr.into(), rts.into());
    along!(mlx5::ib::Uc, &rig, init, rtr, rts);
}

#[test]
fn datagrams_are_alike_in_every_state() {
    let rig = rig();
    let cq = CompletionQueue::new(&rig.context, 255).unwrap();
    let other_cq = CompletionQueue::by_command(&rig.context, 256).build().unwrap();
    let one = verbs::QueuePairBuilder::<Ud>::new(&rig.pd, &cq).build().unwrap();
    let other = verbs::QueuePairBuilder::<Ud, _>::by_command(&rig.pd, &other_cq).build().unwrap();
    macro_rules! compare {
        ($one:expr, $other:expr, $state:expr) => {
            let verbs = $one.object_context().unwrap();
            alike(&verbs, &$other.object().object_context().unwrap(), QP_MAY, $state)
        };
    }
    compare!(one, other, "UD RESET");
    let init = UdInitAttributes::new(1, 0x1ee7_5eed);
    let (one, other) = (one.init(&init).unwrap(), other.init(&init).unwrap());
    compare!(one, other, "UD INIT");
    let (one, other) = (one.rtr().unwrap(), other.rtr().unwrap());
    compare!(one, other, "UD RTR");
    let rts = UnreliableRtsAttributes { sq_psn: 0x2468 };
    let (one, other) = (one.rts(&rts).unwrap(), other.rts(&rts).unwrap());
    compare!(one, other, "UD RTS");
    assert_eq!(other.query().unwrap().qkey, 0x1ee7_5eed);
}

#[test]
fn completion_queues_are_alike() {
    use std::time::Duration;
    let rig = rig();
    for size in [verbs::attr::CqeSize::B64, verbs::attr::CqeSize::B128] {
        let one = CompletionQueue::builder(&rig.context, 100).cqe_size(size);
        // SAFETY: no queue completes on it.
        let one = unsafe { one.ignore_overrun() };
        let other = CompletionQueue::by_command(&rig.context, 101).cqe_size(size);
        // SAFETY: no queue completes on it.
        let other = unsafe { other.ignore_overrun() }.moderation(7, Duration::from_micros(99));
        let (one, other) = (one.build().unwrap(), other.build().unwrap());
        one.moderate(7, Duration::from_micros(99)).unwrap();
        let compare = || {
            let verbs = one.object_context().unwrap();
            alike(&verbs, &other.object().object_context().unwrap(), CQ_MAY, "CQ");
        };
        compare();
        one.moderate(3, Duration::from_micros(4095)).unwrap();
        other.moderate(3, Duration::from_micros(4095)).unwrap();
        compare();
        let error = other.moderate(3, Duration::from_micros(4096)).unwrap_err().to_string();
        assert!(error.contains("4095"), "{error}");
        assert!(other.ignores_overrun() && other.capacity() == 128);
    }
}

#[test]
fn what_is_changed_on_the_way_is_changed() {
    use mlx5::devx::ifc::qpc;
    use mlx5::ib::Access;
    let rig = rig();
    let (init, rtr, rts) = attributes(&rig.local);
    let cq = CompletionQueue::by_command(&rig.context, 16).build().unwrap();
    let qp = verbs::QueuePair::by_command(&rig.pd, &cq).build().unwrap();
    let rights = |qp: &devx::Object| {
        let context = qp.object_context().unwrap();
        [qpc::RWE, qpc::RRE, qpc::RAE].map(|field| context.get(field))
    };
    let qp = qp.init(&init).unwrap();
    assert_eq!(rights(qp.object()), [1, 0, 0]);
    qp.change(&InitAttributes { access: Access::REMOTE_READ, ..init }).unwrap();
    assert_eq!(rights(qp.object()), [0, 0, 0]);
    let qp = qp.rtr(&rtr).unwrap();
    assert_eq!(rights(qp.object()), [0, 1, 0]);
    let qp = qp.rts(&rts).unwrap();
    qp.set_access(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).unwrap();
    assert_eq!(rights(qp.object()), [1, 0, 1]);
    // A path is armed by both ends; that this one cannot move yet is the card's word.
    assert_eq!(qp.query().unwrap().migration, verbs::attr::MigrationState::Migrated);
    qp.set_alternate_path(&rtr.alternate.unwrap()).unwrap();
    assert_ne!(qp.query().unwrap().migration, verbs::attr::MigrationState::Migrated);
    let ud = verbs::QueuePairBuilder::<Ud, _>::by_command(&rig.pd, &cq).build().unwrap();
    let ud = ud.init(&UdInitAttributes::new(1, 1)).unwrap();
    ud.change(&UdInitAttributes::new(1, 2)).unwrap();
    assert_eq!(ud.query().unwrap().qkey, 2);
}
