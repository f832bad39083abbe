//! The queried context of a target made by command, and the requests that it is refused.

use std::time::{Duration, Instant};

use mlx5::Error;
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::devx;
use mlx5::devx::ifc::{dctc, query_dct_out, status};
use mlx5::ib::{Access, Dci, Dct};
use mlx5::ring::{CqReader, QueueError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{
    CqeSize, DctRtrAttributes, InitAttributes, Mtu, QpState, RtsAttributes, ScatterToCqe,
};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, QueuePair, QueuePairBuilder, Rtr, SharedReceiveQueue, XrcDomain,
};
use mlx5::wqe::{DcAddress, Inline, SendImm};
use mlx5_model::Mode;

use rig::{PATIENCE, Rig, wait};

const KEY: u64 = 0x0dc0_ffee_1234_5678;

/// A target with everything of its own.
fn target(
    rig: &Rig,
    cq: &CompletionQueue,
    srq: &SharedReceiveQueue<devx::Firmware>,
) -> QueuePair<Dct, Rtr, devx::Firmware> {
    let made = QueuePair::dc_target_by_command(&rig.pd, cq, srq, KEY)
        .unwrap()
        .user_index(0x77)
        .build()
        .unwrap();
    let address = rig.local.address(&rig.local.connection_data_of(0));
    made.init(&rig.local.init()).unwrap().rtr(&DctRtrAttributes::new(address)).unwrap()
}

#[test]
fn a_target_says_what_it_was_made_with() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let target = target(&rig, &cq, &srq);
    let reply = target.query_context().unwrap();
    let get = |field: devx::ifc::Field| reply.get(field.within(query_dct_out::DCT_CONTEXT_ENTRY));
    assert_eq!(get(dctc::PD), rig.pd.number().unwrap().into());
    assert_eq!(get(dctc::SRQN_XRQN), srq.number().unwrap().into());
    assert_eq!(get(dctc::DC_ACCESS_KEY), KEY);
    assert_eq!((get(dctc::MTU), get(dctc::PORT)), (Mtu::Mtu1024 as u64, 1));
    assert_eq!((get(dctc::RRE), get(dctc::RWE), get(dctc::RAE)), (1, 1, 1));
    assert_eq!((get(dctc::STATE), get(dctc::USER_INDEX)), (0, 0x77));
    assert_eq!(target.key_violations().unwrap(), 0);
    target.arm_key_violation().unwrap();
    let attributes = target.query().unwrap();
    assert_eq!((attributes.state, attributes.port), (QpState::Rtr, 1));
    assert_eq!(attributes.path_mtu, Some(Mtu::Mtu1024));
    assert_eq!(
        attributes.access,
        Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
    );
}

#[test]
fn a_target_goes_from_reset_to_rtr_only() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let failed = target(&rig, &cq, &srq).to_error().unwrap_err();
    assert!(failed.to_string().contains("stays in RTR"), "{failed}");
    assert_eq!(failed.queue_pair.query().unwrap().state, QpState::Rtr);
    let failed = failed.queue_pair.reset().unwrap_err();
    assert!(matches!(failed.error, Error::Attribute { .. }), "{failed}");
    let target = failed.queue_pair;
    assert_eq!(target.state(), QpState::Rtr);
    // Its shared receive queue still takes it.
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
    shared.attach(&target, &mut completions).unwrap();
}

/// A message to the target, from an initiator of verbs.
fn send(rig: &Rig, number: u32, key: u64, payload: &[u8]) -> Completion {
    let cq = rig.cq(16);
    let qp = QueuePairBuilder::<Dci>::new(&rig.pd, &cq).max_inline_data(64).build().unwrap();
    let qp = qp.init(&InitAttributes::new(1)).unwrap().rtr(Mtu::Mtu1024).unwrap();
    let qp = qp.rts(&RtsAttributes::default()).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let way = rig.local.address(&rig.local.connection_data_of(number));
    let to = DcAddress::new(&AddressHandle::new(&rig.pd, &way).unwrap(), number, key);
    // SAFETY: the payload is copied.
    unsafe { send.post(1, SendImm::new(Inline(payload), 7).signaled().to(to)) }.unwrap();
    wait(&mut completions, &mut send)
}

#[test]
fn violations_of_the_key_are_counted() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let target = target(&rig, &cq, &srq);
    let done = send(&rig, target.number(), !KEY, b"let me in");
    assert!(matches!(done, Completion::Failed(_)), "{done:?}");
    assert_eq!(target.key_violations().unwrap(), 1);
}

#[test]
fn objects_of_verbs_and_of_commands_serve_one_target() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let address = rig.local.address(&rig.local.connection_data_of(0));
    let target = QueuePair::dc_target_by_command(&rig.pd, &cq, &srq, KEY).unwrap().build().unwrap();
    let target = target.init(&rig.local.init()).unwrap();
    let target = target.rtr(&DctRtrAttributes::new(address)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    shared.attach(&target, &mut completions).unwrap();
    let memory = rig.memory(4096);
    // SAFETY: the memory lives to the end, and is read after the receive completes.
    unsafe { shared.post(9, memory.sge(0, 64).unwrap()) }.unwrap();
    assert!(matches!(send(&rig, target.number(), KEY, b"mixed"), Completion::Send(_)));
    let Completion::Receive(done) = wait(&mut completions, &mut shared) else { panic!() };
    assert_eq!((done.id, done.qpn, done.kind), (9, target.number(), ReceiveKind::SendImm(7)));
    let mut bytes = [0; 5];
    memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"mixed");
}

#[test]
fn short_messages_come_in_wide_cqes_where_asked_for() {
    let rig = Rig::new(Mode::Trapped);
    let cq = CompletionQueue::builder(&rig.context, 64).cqe_size(CqeSize::B128).build().unwrap();
    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let made = QueuePair::dc_target_by_command(&rig.pd, &cq, &srq, KEY)
        .unwrap()
        .scatter_to_cqe(ScatterToCqe::Receives);
    let address = rig.local.address(&rig.local.connection_data_of(0));
    let target = made.build().unwrap().init(&rig.local.init()).unwrap();
    let target = target.rtr(&DctRtrAttributes::new(address)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    shared.attach(&target, &mut completions).unwrap();
    let memory = rig.memory(4096);
    // SAFETY: the memory lives to the end, and is read after the receive completes.
    unsafe { shared.post(9, memory.sge(0, 64).unwrap()) }.unwrap();
    assert!(matches!(send(&rig, target.number(), KEY, &[0x5a; 50]), Completion::Send(_)));
    let Completion::Receive(done) = wait(&mut completions, &mut shared) else { panic!() };
    assert_eq!((done.id, done.byte_len), (9, 50));
    let mut bytes = [0; 50];
    memory.read(0, &mut bytes);
    assert_eq!(bytes, [0x5a; 50]);
    // CQEs of 64 bytes have no room for them, and the card says so.
    let narrow = rig.cq(64);
    let made = QueuePair::dc_target_by_command(&rig.pd, &narrow, &srq, KEY)
        .unwrap()
        .scatter_to_cqe(ScatterToCqe::Receives);
    let target = made.build().unwrap().init(&rig.local.init()).unwrap();
    let failed = target.rtr(&DctRtrAttributes::new(address)).unwrap_err();
    let Error::Refused(refused) = &failed.error else { panic!("{failed}") };
    assert_eq!(refused.status(), status::BAD_PARAM_ERR);
    assert!(failed.to_string().contains("CREATE_DCT"), "{failed}");
    assert_eq!(failed.queue_pair.number(), 0);
}

#[test]
fn what_a_target_cannot_be_made_of_is_named() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let domain = XrcDomain::new(&rig.context).unwrap();
    let xrc = SharedReceiveQueue::builder(&rig.pd).xrc(&domain, &cq).build().unwrap();
    let error = QueuePair::dc_target_by_command(&rig.pd, &cq, &xrc, KEY).err().unwrap();
    assert!(error.to_string().contains("XRC domain"), "{error}");

    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let made =
        || QueuePair::dc_target_by_command(&rig.pd, &cq, &srq, KEY).unwrap().build().unwrap();
    let failed = made().init(&InitAttributes::new(7)).unwrap_err();
    assert!(matches!(failed.error, Error::NoSuchPort { .. }), "{failed}");
    // It can go on from where it was.
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let init = InitAttributes { access, ..rig.local.init() };
    let target = failed.queue_pair.init(&init).unwrap();
    let mut wrong = DctRtrAttributes::new(rig.local.address(&rig.local.connection_data_of(0)));
    wrong.address.dlid = 0;
    let failed = target.rtr(&wrong).unwrap_err();
    assert!(failed.to_string().contains("LID"), "{failed}");
    let right = DctRtrAttributes::new(rig.local.address(&rig.local.connection_data_of(0)));
    let target = failed.queue_pair.rtr(&right).unwrap();
    let rights = |field: devx::ifc::Field| {
        target.query_context().unwrap().get(field.within(query_dct_out::DCT_CONTEXT_ENTRY))
    };
    assert_eq!((rights(dctc::RWE), rights(dctc::RRE), rights(dctc::RAE)), (1, 0, 0));
    let mut completions = CqReader::new(&cq).unwrap();
    let none = ReceiveQueue::new(&target, &mut completions, ReceiveConfig::default());
    assert!(matches!(none, Err(Error::Queue(QueueError::NoQueue))), "{none:?}");
}

#[test]
fn a_target_goes_when_the_last_that_uses_it_goes() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let srq = SharedReceiveQueue::by_command(&rig.pd).build().unwrap();
    let target = target(&rig, &cq, &srq);
    let number = target.number();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    shared.attach(&target, &mut completions).unwrap();
    drop(target);
    let memory = rig.memory(4096);
    // SAFETY: the memory lives to the end, and is read after the receive completes.
    unsafe { shared.post(9, memory.sge(0, 64).unwrap()) }.unwrap();
    assert!(matches!(send(&rig, number, KEY, b"still there"), Completion::Send(_)));
    assert!(matches!(wait(&mut completions, &mut shared), Completion::Receive(_)));
    assert!(shared.detach(number, &mut completions));
    // Nobody answers any more: who sends finds out after all retries.
    let deadline = Instant::now() + PATIENCE;
    let done = send(&rig, number, KEY, b"gone");
    assert!(matches!(done, Completion::Failed(_)), "{done:?}");
    assert!(Instant::now() + Duration::from_millis(1) < deadline);
}
