//! CQs and queue pairs made by command: their memory, their refusals, their order of destruction,
//! and the transports that the traffic tests leave out.

use mlx5::Error;
use mlx5::cqe::{Completion, SendOperation, Status};
use mlx5::devx::{DevxPd, DevxXrcd, Firmware, Uar, UarKind, Umem};
use mlx5::expert::{DedicatedRegister, SendSource};
use mlx5::ib::{Rc, Uc, Ud};
use mlx5::ring::{
    CqReader, PostError, QueueError, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig,
    SendQueue,
};
use mlx5::verbs::attr::{
    CqeSize, QpState, RtrAttributes, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::verbs::{
    self, AddressHandle, CompletionQueue, Connected, Context, HugePageSize, Pages,
    ProtectionDomain, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
};
use mlx5::wqe::{Inline, Nop, RdmaRead, RdmaWrite, SendMessage, Sge, UdAddress};

use rig::made::{By, Cq, Qp, queue_pair};
use rig::{Rig, connect_made, wait};

fn rig() -> Rig {
    Rig::new(mlx5_model::Mode::Trapped)
}

/// Connects a queue pair to itself.
fn loopback(rig: &Rig, qp: QueuePair<Rc, verbs::Reset, Firmware>) -> QueuePair<Rc, Rts, Firmware> {
    rig.looped(rig.to_init(qp))
}

/// Writes some bytes by the queue pair and waits for it.
fn writes(rig: &Rig, send: &mut SendQueue<Rc>, completions: &mut CqReader, bytes: &[u8]) {
    let memory = rig.memory(64);
    // SAFETY: inline; the memory is not read before completion.
    unsafe { send.post(9, RdmaWrite::new(Inline(bytes), memory.remote(0).unwrap()).signaled()) }
        .unwrap();
    let done = wait(completions, send);
    assert!(matches!(done, Completion::Send(done) if done.id == 9), "{done:?}");
    let found = memory.to_vec(0, bytes.len());
    assert_eq!(found, bytes);
}

#[test]
fn rings_and_records_lie_where_the_program_placed_them() {
    let rig = rig();
    let umem = Umem::new(&rig.context, Pages::new(1 << 17).unwrap()).unwrap();
    let start = umem.start().unwrap();
    let cq = CompletionQueue::by_command(&rig.context, 64).cqe_size(CqeSize::B128);
    let pair = QueuePairBuilder::<Rc, _>::by_command(
        &rig.pd,
        // Not made yet, but as large as it will be.
        &CompletionQueue::by_command(&rig.context, 1).build().unwrap(),
    );
    assert_eq!(cq.ring_bytes(), 64 * 128);
    assert_eq!(pair.ring_bytes().unwrap(), 64 * 16 + 64 * 64);
    let cq = cq.ring(&umem, 1 << 13).record(&umem, 0).build().unwrap();
    let qp = QueuePair::by_command(&rig.pd, &cq).max_inline_data(32);
    let qp = qp.ring(&umem, 1 << 15).record(&umem, 8).build().unwrap();
    // SAFETY: within the memory.
    assert_eq!(qp.rings().0, unsafe { start.add(1 << 15) });
    let qp = loopback(&rig, qp);
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    writes(&rig, &mut send, &mut completions, b"placed");
    let read = |offset: usize, length: usize| {
        // SAFETY: within the memory, which is not written now.
        let byte = |at| unsafe { start.add(offset + at).read_volatile() };
        (0..length).map(byte).collect::<Vec<u8>>()
    };
    // Compares the WQE (after the receives), its CQE, and both doorbell records.
    let wqe = read((1 << 15) + qp.rings().1, 64);
    assert_eq!(wqe[4..7], qp.number().to_be_bytes()[1..]);
    assert_eq!(&wqe[36..42], b"placed");
    assert_eq!(read((1 << 13) + 64 + 56 + 1, 3), qp.number().to_be_bytes()[1..]);
    assert_eq!(read(0, 4), [0, 0, 0, 1]);
    assert_eq!(read(12, 4), [0, 0, 0, 1]);
}

#[test]
fn places_are_taken_once_and_given_back() {
    let rig = rig();
    let context = &rig.context;
    let umem = Umem::new(context, Pages::new(3 << 12).unwrap()).unwrap();
    let cq = |ring: usize, record: usize| {
        CompletionQueue::by_command(context, 64).ring(&umem, ring).record(&umem, record).build()
    };
    let text = |ring, record| cq(ring, record).unwrap_err().to_string();
    let first = cq(0, 2 << 12).unwrap();
    assert!(text(0, (2 << 12) + 8).contains("overlaps 0x0 to 0x1000 of a ring"));
    assert!(text(1 << 12, 2 << 12).contains("overlaps 0x2000 to 0x2008 of a ring"));
    assert!(text(1 << 12, 100).contains("multiple of 8"));
    assert!(text(1 << 11, (2 << 12) + 8).contains("multiple of 4096"));
    assert!(text(3 << 12, (2 << 12) + 8).contains("the umem ends at 0x3000"));
    assert!(text(1 << 12, 3 << 12).contains("the umem ends at 0x3000"));
    assert!(text(usize::MAX & !4095, 0).contains("the umem ends"));
    let second = cq(1 << 12, (2 << 12) + 8).unwrap();
    drop(first);
    cq(0, 2 << 12).unwrap();
    drop(second);
    let other = Context::open_first().unwrap();
    let foreign = Umem::new(&other, Pages::new(4096).unwrap()).unwrap();
    let foreign = CompletionQueue::by_command(context, 64).ring(&foreign, 0).build();
    assert!(foreign.unwrap_err().to_string().contains("another opened device"));
}

#[test]
fn rings_lie_in_huge_pages_where_there_are_some() {
    let rig = rig();
    let pages = match Pages::huge(1 << 20, HugePageSize::Mib2) {
        Ok(pages) => pages,
        Err(error @ Error::HugePages { .. }) => return println!("{error}"),
        Err(error) => panic!("{error}"),
    };
    let umem = Umem::builder(&rig.context).page_sizes(1 << 12 | 1 << 21).pages(pages).unwrap();
    let cq = CompletionQueue::by_command(&rig.context, 64).ring(&umem, 0).build().unwrap();
    let qp = QueuePair::by_command(&rig.pd, &cq).max_inline_data(32).ring(&umem, 1 << 14);
    let qp = loopback(&rig, qp.build().unwrap());
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    writes(&rig, &mut send, &mut completions, b"huge");
}

#[test]
fn what_cannot_be_made_is_refused_in_words() {
    let rig = rig();
    let context = &rig.context;
    let text = |error: Error| error.to_string();
    let most = 1u32 << 30;
    for (builder, said) in [
        (CompletionQueue::by_command(context, 0), "CQ entries is 0"),
        (CompletionQueue::by_command(context, most), "a completion queue of this device has up to"),
        (CompletionQueue::by_command(context, 1).vector(1000), "completion vector is 1000"),
        (CompletionQueue::by_command(context, 1).event_queue(999), "c_eqn_or_apu_element = 0x3e7"),
    ] {
        let error = builder.build().map_err(text).unwrap_err();
        assert!(error.contains(said), "{said:?} is missing in {error:?}");
    }
    let cq = CompletionQueue::by_command(context, 16).build().unwrap();
    let builder = || QueuePair::by_command(&rig.pd, &cq);
    for (builder, said) in [
        (builder().max_send_wr(0).max_recv_wr(0), "max_recv_wr is 0 as well"),
        (builder().max_send_wr(1 << 20), "max_send_wr is 1048576"),
        (builder().max_send_sge(100), "max_send_sge is 100"),
        (builder().max_inline_data(2000), "max_inline_data is 2000"),
        (builder().max_recv_sge(200), "max_recv_sge is 200"),
        (builder().max_recv_sge(64), "those of this device up to 512"),
        (builder().user_index(1 << 24), "user index is 0x1000000"),
    ] {
        let error = builder.build().map_err(text).unwrap_err();
        assert!(error.contains(said), "{said:?} is missing in {error:?}");
    }
    let other = Context::open_first().unwrap();
    let foreign = Uar::new(&other, UarKind::BlueFlame).unwrap();
    let error = builder().uar(&foreign).build().map_err(text).unwrap_err();
    assert!(error.contains("another opened device"), "{error}");
    let error = CompletionQueue::by_command(context, 16).uar(&foreign).build().map_err(text);
    assert!(error.unwrap_err().contains("register is one of another opened device"));
    let foreign = crate::counters::set(&other);
    let error = builder().counters(&foreign).build().map_err(text).unwrap_err();
    assert!(error.contains("counter set is one of another opened device"), "{error}");
    let foreign = CompletionQueue::by_command(&other, 16).build().unwrap();
    let error = QueuePair::by_command(&rig.pd, &foreign).build().map_err(text).unwrap_err();
    assert!(error.contains("another opened device"), "{error}");
    let other_pd = ProtectionDomain::new(&other).unwrap();
    let foreign_srq = SharedReceiveQueue::builder(&other_pd).build().unwrap();
    let error = builder().shared_receive_queue(&foreign_srq).build().map_err(text).unwrap_err();
    assert!(error.contains("shared receive queue is one of another opened device"), "{error}");
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let target = QueuePair::dc_target_by_command(&rig.pd, &foreign, &srq, 0);
    let error = target.map_err(text).map(drop).unwrap_err();
    assert!(error.contains("completion queue is one of another opened device"), "{error}");
    let domains = [context, &other].map(|context| DevxXrcd::new(context).unwrap());
    for (domain, cq, said) in
        [(&domains[1], &cq, "XRC domain"), (&domains[0], &foreign, "completion")]
    {
        let builder = SharedReceiveQueue::by_command(&rig.pd).xrc(domain, cq);
        let error = builder.build().map_err(text).map(drop).unwrap_err();
        assert!(error.contains(said) && error.contains("another opened device"), "{error}");
    }
    let target = QueuePair::target_by_command(&rig.pd, &domains[1], &cq);
    let error = target.map_err(text).map(drop).unwrap_err();
    assert!(error.contains("XRC domain is one of another opened device"), "{error}");
    // A move from a state that the card is no longer in.
    let qp = builder().build().unwrap().init(&rig.local.init()).unwrap();
    let reset = mlx5::devx::Command::new(mlx5::devx::ifc::opcode::QP_2RST, 16)
        .set(mlx5::devx::ifc::qp_2rst_in::QPN, qp.number());
    // SAFETY: no queue was made of the queue pair.
    unsafe { qp.object().modify(&reset) }.unwrap();
    let end = rig.local.connection_data_of(qp.number());
    let failed = qp.rtr(&rig.local.rtr(&end, &end)).unwrap_err();
    let said = failed.to_string();
    for part in ["stays in INIT", "INIT2RTR_QP", "bad", "qpc.remote_qpn = ", "syndrome"] {
        assert!(said.contains(part), "{part:?} is missing in {said:?}");
    }
    assert_eq!(failed.queue_pair.query().unwrap().state, QpState::Reset);
    let queue = ReceiveQueue::new(
        &failed.queue_pair,
        &mut CqReader::new(&cq).unwrap(),
        ReceiveConfig::default(),
    );
    let error = queue.map_err(text).unwrap_err();
    assert!(error.contains("in state RESET"), "{error}");
}

#[test]
fn everything_goes_in_any_order_and_nothing_leaks() {
    let rig = rig();
    let mut registers = std::collections::BTreeSet::new();
    // More than a card has numbers of queue pairs here.
    for round in 0..600 {
        let uar = Uar::new(&rig.context, UarKind::BlueFlame).unwrap();
        registers.insert(uar.register());
        let umem = Umem::new(&rig.context, Pages::new(1 << 15).unwrap()).unwrap();
        let pd = DevxPd::new(&rig.context).unwrap();
        let cq = CompletionQueue::by_command(&rig.context, 16).uar(&uar).record(&umem, 0);
        let cq = cq.build().unwrap();
        let qp = QueuePair::by_command(&pd, &cq).uar(&uar).ring(&umem, 1 << 12).build().unwrap();
        match round % 4 {
            0 => drop((uar, umem, pd, cq, qp)),
            1 => drop((qp, cq, pd, umem, uar)),
            2 => drop((cq, qp, uar, pd, umem)),
            _ => {
                // What was given away still works.
                drop((uar, umem, pd));
                let qp = loopback(&rig, qp);
                let mut completions = CqReader::new(&cq).unwrap();
                drop(cq);
                let config = SendConfig::default();
                let mut send = SendQueue::new(&qp, &mut completions, config).unwrap();
                drop(qp);
                // SAFETY: the request names no memory.
                unsafe { send.post(1, Nop::new().signaled()) }.unwrap();
                let done = wait(&mut completions, &mut send);
                assert!(matches!(done, Completion::Send(_)), "{done:?}");
            }
        }
    }
    // Those of a page, or two, again and again.
    assert!(registers.len() <= 4, "{registers:x?}");
}

#[test]
fn what_is_leaked_goes_with_the_context() {
    let context = Context::open_first().unwrap();
    for _ in 0..40 {
        let context = Context::open_first().unwrap();
        let pd = verbs::ProtectionDomain::new(&context).unwrap();
        let cq = CompletionQueue::by_command(&context, 16).build().unwrap();
        let qp = QueuePair::by_command(&pd, &cq).build().unwrap();
        std::mem::forget(qp);
    }
    // Leaked ones keep their contexts open; another context is not concerned by it, but for numbers.
    let cq = CompletionQueue::by_command(&context, 16).build().unwrap();
    drop(cq);
}

#[test]
fn a_queue_pair_is_reset_under_its_queues_and_they_start_anew() {
    let rig = rig();
    let cq = CompletionQueue::by_command(&rig.context, 256).build().unwrap();
    let qp = QueuePair::by_command(&rig.pd, &cq).max_inline_data(32).build().unwrap();
    let qp = qp.init(&rig.local.init()).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let mut qp = rig.looped(qp);
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: only the test owns the queues, which restarts them.
    let error = unsafe { send.restart(&mut completions) };
    assert_eq!(error, Ok(()), "nothing was posted yet");
    let memory = rig.memory(64);
    for _ in 0..3 {
        // SAFETY: no code accesses the memory meanwhile.
        unsafe {
            receive.post(1, memory.sge(0, 64).unwrap()).unwrap();
            send.post(2, RdmaWrite::new(Inline(b"x"), memory.remote(0).unwrap()).signaled())
                .unwrap();
            assert_eq!(send.restart(&mut completions), Err(QueueError::NotReset));
            // With a completion on its way, and a receive outstanding.
            let reset = qp.reset_under_queues().unwrap().init(&rig.local.init()).unwrap();
            let early = send.restart(&mut completions);
            assert!(
                matches!(early, Err(QueueError::WrongState { needed: "RTS", .. })),
                "{early:?}"
            );
            receive.restart(&mut completions).unwrap();
            qp = rig.looped(reset);
            send.restart(&mut completions).unwrap();
        }
        assert!(send.is_idle() && receive.outstanding() == 0);
        writes(&rig, &mut send, &mut completions, b"again");
        // SAFETY: only the test owns the queues, and it restarts them next.
        unsafe { qp = rig.looped(rig.to_init(qp.reset_under_queues().unwrap())) };
        // SAFETY: only the test owns the queues, which it restarts.
        unsafe {
            receive.restart(&mut completions).unwrap();
            send.restart(&mut completions).unwrap();
        }
    }
    assert!(matches!(send.into_raw(), Err(queue) if queue.qpn() == qp.number()));
    assert!(receive.into_raw().is_err() && completions.into_raw().is_err());
}

#[test]
fn registers_are_shared_or_dedicated_as_those_of_verbs() {
    let rig = rig();
    let uar = Uar::new(&rig.context, UarKind::BlueFlame).unwrap();
    let cq = CompletionQueue::by_command(&rig.context, 256).uar(&uar).build().unwrap();
    let make = |uar: &Uar| {
        let qp = QueuePair::by_command(&rig.pd, &cq).max_inline_data(32).max_recv_wr(0).uar(uar);
        loopback(&rig, qp.build().unwrap())
    };
    let (one, other) = (make(&uar), make(&uar));
    let mut completions = CqReader::new(&cq).unwrap();
    let own = SendConfig { requests: 8, ..SendConfig::default() };
    let shared = SendConfig { register: RegisterUse::Shared, ..own };
    let mut send = SendQueue::new(&one, &mut completions, own).unwrap();
    assert!(send.copy().is_some());
    for config in [own, shared] {
        let refused = SendQueue::new(&other, &mut completions, config).unwrap_err();
        assert!(matches!(refused, Error::Queue(QueueError::RegisterShared)), "{refused}");
    }
    writes(&rig, &mut send, &mut completions, b"own");
    drop(send);
    // Doorbells do not disturb each other …
    let mut sends = [&one, &other].map(|qp| SendQueue::new(qp, &mut completions, shared).unwrap());
    for send in &mut sends {
        assert!(send.copy().is_none());
        writes(&rig, send, &mut completions, b"shared");
    }
    drop(sends);
    // … nor do copies of one owner's.
    let mut register = DedicatedRegister::new();
    for qp in [&one, &other] {
        register.add(qp, &mut completions, own).unwrap();
    }
    for index in [0, 1, 1, 0] {
        // SAFETY: the request names no memory.
        unsafe { register.turn(index).post(index as u64, Nop::new().signaled()) }.unwrap();
        let done = wait(&mut completions, &mut register);
        assert!(matches!(done, Completion::Send(done) if done.id == index as u64), "{done:?}");
    }
    let elsewhere = make(&Uar::new(&rig.context, UarKind::BlueFlame).unwrap());
    let refused = register.add(&elsewhere, &mut completions, own).unwrap_err();
    assert!(matches!(refused, Error::Queue(QueueError::OtherRegister)), "{refused}");
    // One that all have rings as well.
    let everybody = Uar::new(&rig.context, UarKind::NonCached).unwrap();
    let (one, other) = (make(&everybody), make(&everybody));
    for qp in [&one, &other] {
        let mut send = SendQueue::new(qp, &mut completions, own).unwrap();
        assert!(send.copy().is_none() && send.is_uncached());
        writes(&rig, &mut send, &mut completions, b"uncached");
    }
}

/// An end of a connection with its queues.
type End<T> = (SendQueue<T>, ReceiveQueue, CqReader, Qp<T, Rts>);

/// Both ends of a connection, each with its queues.
fn ends<T>(rig: &Rig, made: [By; 2]) -> [End<T>; 2]
where
    T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>
        + mlx5::devx::ByCommand
        + mlx5::ib::Receives,
{
    let shape = verbs::attr::Capacities {
        max_send_wr: 16,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 32,
    };
    let [one, other] = made.map(|by| {
        let cq = Cq::new(&rig.context, by, 127, CqeSize::B64);
        let qp = queue_pair::<T>(by, &rig.pd, &cq, shape, false);
        let qp = qp.init(&rig.local.init()).unwrap();
        let mut completions = cq.completions();
        let receive = qp.receive_queue(&mut completions, ReceiveConfig::default()).unwrap();
        (qp, receive, completions)
    });
    let (first, second) = connect_made(&rig.local, one.0, other.0);
    [(first, one.1, one.2), (second, other.1, other.2)].map(|(qp, receive, mut completions)| {
        let send = qp.send_queue(&mut completions, SendConfig::default()).unwrap();
        (send, receive, completions, qp)
    })
}

#[test]
fn unreliable_connections_send_write_and_recover() {
    let rig = rig();
    for made in [[By::Command; 2], [By::Verbs, By::Command], [By::Command, By::Verbs]] {
        let [(mut send, _, mut sent, qp), (_, mut receive, mut received, _peer)] =
            ends::<Uc>(&rig, made);
        let memory = rig.memory(128);
        let sge = memory.sge(0, 64).unwrap();
        let target = memory.remote(64).unwrap();
        for round in 0..3u8 {
            // SAFETY: the memory is looked at when what was posted on it is complete.
            unsafe {
                receive.post(1, sge).unwrap();
                send.post(2, RdmaWrite::new(Inline(&[round; 8]), target)).unwrap();
                send.post(3, SendMessage::new(Inline(b"unreliable")).signaled()).unwrap();
            }
            let done = wait(&mut sent, &mut send);
            assert!(matches!(done, Completion::Send(_)), "{done:?}");
            let done = wait(&mut received, &mut receive);
            assert!(matches!(done, Completion::Receive(done) if done.byte_len == 10), "{done:?}");
            let mut bytes = [0; 8];
            memory.read(64, &mut bytes);
            assert_eq!(bytes, [round; 8]);
            // A request that cannot be read stops the send queue alone.
            let bad = Sge { lkey: sge.lkey ^ 0x5500, ..sge };
            // SAFETY: the card refuses the key.
            unsafe { send.post(4, SendMessage::new(bad).signaled()) }.unwrap();
            let done = wait(&mut sent, &mut send);
            assert!(
                matches!(&done, Completion::Failed(it) if it.status == Status::LocalProtection),
                "{done:?}"
            );
            // SAFETY: the payload is copied into the WQE.
            let stopped = unsafe { send.post(5, SendMessage::new(Inline(b"x"))) };
            assert_eq!(stopped, Err(PostError::WrongState));
            assert_eq!(qp.query().state, QpState::SqError);
            send.recover().unwrap();
            assert_eq!(qp.query().state, QpState::Rts);
        }
    }
}

/// A datagram queue pair by either, with its queues.
struct Datagrams {
    send: SendQueue<Ud>,
    receive: ReceiveQueue,
    completions: CqReader,
    number: u32,
}

fn datagrams(rig: &Rig, by: By) -> Datagrams {
    macro_rules! up {
        ($cq:expr, $builder:expr) => {{
            let qp = $builder.max_inline_data(32).build().unwrap();
            let qp = qp.init(&UdInitAttributes::new(1, 0x1ee7)).unwrap();
            let mut completions = CqReader::new($cq).unwrap();
            let config = ReceiveConfig::default();
            let receive = ReceiveQueue::new(&qp, &mut completions, config).unwrap();
            let qp = qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
            let send = sends(&qp, &mut completions);
            Datagrams { send, receive, completions, number: qp.number() }
        }};
    }
    match Cq::new(&rig.context, by, 255, CqeSize::B64) {
        Cq::Verbs(cq) if by == By::Verbs => {
            up!(&cq, verbs::QueuePairBuilder::<Ud>::new(&rig.pd, &cq))
        }
        Cq::Verbs(cq) => up!(&cq, QueuePairBuilder::<Ud, _>::by_command(&rig.pd, &cq)),
        Cq::Command(cq) => up!(&cq, QueuePairBuilder::<Ud, _>::by_command(&rig.pd, &cq)),
    }
}

fn sends<Q: SendSource>(qp: &Q, completions: &mut CqReader) -> SendQueue<Q::Transport> {
    // Of verbs, by a register that other tests of this context may ring.
    let config = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    SendQueue::new(qp, completions, config).unwrap()
}

#[test]
fn datagrams_go_both_ways_whoever_made_the_ends() {
    let rig = rig();
    let memory = rig.memory(4096);
    for made in [[By::Command; 2], [By::Verbs, By::Command], [By::CommandOnVerbsCq, By::Command]] {
        let [mut one, mut other] = made.map(|by| datagrams(&rig, by));
        for round in 0..20 {
            let (from, to) =
                if round % 2 == 0 { (&mut one, &mut other) } else { (&mut other, &mut one) };
            let way = rig.local.address(&rig.local.connection_data_of(to.number));
            let way = AddressHandle::new(&rig.pd, &way).unwrap();
            let address = UdAddress::new(&way, to.number, 0x1ee7);
            // SAFETY: the memory is looked at when what was posted on it is complete.
            unsafe {
                to.receive.post(7, memory.sge(0, 200).unwrap()).unwrap();
                from.send
                    .post(8, SendMessage::new(Inline(b"datagram")).signaled().to(address))
                    .unwrap();
            }
            let done = wait(&mut from.completions, &mut from.send);
            assert!(
                matches!(done, Completion::Send(it) if it.operation == SendOperation::Send),
                "{done:?}"
            );
            let done = wait(&mut to.completions, &mut to.receive);
            // With the header of 40 bytes in front.
            assert!(matches!(done, Completion::Receive(it) if it.byte_len == 48), "{done:?}");
            let mut bytes = [0; 8];
            memory.read(40, &mut bytes);
            assert_eq!(&bytes, b"datagram");
        }
    }
}

#[test]
fn short_answers_come_in_the_cqe_if_that_was_asked_for() {
    use mlx5::devx::CommandTarget;
    use mlx5::devx::ifc::qpc;
    use mlx5::verbs::attr::ScatterToCqe;
    let rig = rig();
    for (scatter, size, all, expected) in [
        (None, CqeSize::B128, true, [0, 0]),
        (Some(ScatterToCqe::Receives), CqeSize::B64, false, [0, 1]),
        (Some(ScatterToCqe::Receives), CqeSize::B128, true, [0x22, 2]),
        (Some(ScatterToCqe::Always), CqeSize::B64, false, [0x11, 1]),
        (Some(ScatterToCqe::Never), CqeSize::B128, true, [0, 0]),
    ] {
        let cq = CompletionQueue::by_command(&rig.context, 64).cqe_size(size).build().unwrap();
        let mut builder = QueuePair::by_command(&rig.pd, &cq).signal_all(all).max_inline_data(32);
        if let Some(scatter) = scatter {
            builder = builder.scatter_to_cqe(scatter);
        }
        let qp = loopback(&rig, builder.build().unwrap());
        let context = qp.object().object_context().unwrap();
        assert_eq!([qpc::CS_REQ, qpc::CS_RES].map(|field| context.get(field)), expected);
        let mut completions = CqReader::new(&cq).unwrap();
        let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        let mut memory = rig.memory(64);
        memory.write(0, b"thirty-two bytes that are read!!");
        let into = memory.sge(32, 32).unwrap();
        // SAFETY: the memory is looked at when the read is complete.
        unsafe { send.post(1, RdmaRead::new(into, memory.remote(0).unwrap()).signaled()) }.unwrap();
        let done = wait(&mut completions, &mut send);
        assert!(matches!(done, Completion::Send(it) if it.byte_len == 32), "{done:?}");
        let mut bytes = [0; 32];
        memory.read(32, &mut bytes);
        assert_eq!(&bytes, b"thirty-two bytes that are read!!");
    }
}
