//! Shared receive queues by command: queries, refusals, and ownership.

use mlx5::Error;
use mlx5::cqe::Completion;
use mlx5::devx::ifc::{query_rmp_out, query_xrc_srq_out, rmpc, wq, xrc_srqc};
use mlx5::devx::{DevxXrcd, Firmware, Umem};
use mlx5::ib::{Dci, Dct, Rc};
use mlx5::ring::{
    CqReader, PostError, QueueError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue, Srq,
};
use mlx5::verbs::attr::{DctRtrAttributes, InitAttributes, Mtu, RtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Context, MemoryRegion, Pages, ProtectionDomain, QueuePair,
    QueuePairBuilder, Reset, Rtr, SharedReceiveQueue,
};
use mlx5::wqe::{DcAddress, Inline, SendMessage, Sge};
use mlx5_model::Mode;

use rig::{Rig, wait};

const KEY: u64 = 5;

/// A target that takes from a queue, and an initiator that sends to it.
struct Line {
    send: SendQueue<Dci>,
    sent: CqReader,
    to: DcAddress,
    target: QueuePair<Dct, Rtr, Firmware>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    srq: SharedReceiveQueue<Firmware>,
    rig: Rig,
}

impl Line {
    fn new(cyclic: bool) -> Self {
        let rig = Rig::new(Mode::Trapped);
        let srq = SharedReceiveQueue::by_command(&rig.pd).max_wr(7).cyclic(cyclic).build().unwrap();
        let cq = rig.cq(64);
        let made =
            QueuePair::dc_target_by_command(&rig.pd, &cq, &srq, KEY).unwrap().build().unwrap();
        let address = rig.local.address(&rig.local.connection_data_of(0));
        let target = made.init(&rig.local.init()).unwrap();
        let target = target.rtr(&DctRtrAttributes::new(address)).unwrap();
        let handle = AddressHandle::new(&rig.pd, &address).unwrap();
        let to = DcAddress::new(&handle, target.number(), KEY);

        let sent = rig.cq(64);
        let qp = QueuePairBuilder::<Dci>::new(&rig.pd, &sent).max_inline_data(64).build().unwrap();
        let qp = qp.init(&InitAttributes::new(1)).unwrap().rtr(Mtu::Mtu1024).unwrap();
        let qp = qp.rts(&RtsAttributes::default()).unwrap();
        let mut sent = CqReader::new(&sent).unwrap();
        let send = SendQueue::new(&qp, &mut sent, SendConfig::default()).unwrap();
        Self { send, sent, to, target, cq, memory: rig.memory(4096), srq, rig }
    }

    fn sge(&self, id: u64) -> Sge {
        self.memory.sge(id as usize % 64 * 64, 64).unwrap()
    }

    fn post(&self, shared: &mut Srq, id: u64) -> Result<(), PostError> {
        // SAFETY: the memory lives to the end, and is read after the receive completes.
        unsafe { shared.post(id, self.sge(id)) }
    }

    fn send(&mut self, payload: &[u8]) {
        // SAFETY: the payload is copied.
        unsafe { self.send.post(1, SendMessage::new(Inline(payload)).signaled().to(self.to)) }
            .unwrap();
        let done = wait(&mut self.sent, &mut self.send);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
    }

    /// A message for the receive `id`.
    fn pass(&mut self, shared: &mut Srq, completions: &mut CqReader, id: u64) {
        self.send(&id.to_ne_bytes());
        let Completion::Receive(done) = wait(completions, shared) else { panic!() };
        assert_eq!((done.id, done.byte_len), (id, 8));
        let mut bytes = [0; 8];
        self.memory.read(id as usize % 64 * 64, &mut bytes);
        assert_eq!(bytes, id.to_ne_bytes());
    }
}

#[test]
fn a_queue_is_taken_again_where_it_was_left_if_nothing_is_outstanding() {
    for cyclic in [false, true] {
        let mut line = Line::new(cyclic);
        let mut completions = CqReader::new(&line.cq).unwrap();
        let config = ReceiveConfig::default();
        let mut next = 0;
        for round in 0..5 {
            let mut shared = Srq::new(&line.srq, &mut completions, config).unwrap();
            assert_eq!(shared.is_cyclic(), cyclic);
            let again = Srq::new(&line.srq, &mut completions, config);
            assert!(matches!(again, Err(Error::QueueInUse { .. })), "{again:?}");
            shared.attach(&line.target, &mut completions).unwrap();
            for id in next..next + 7 {
                line.post(&mut shared, id).unwrap();
            }
            let full = PostError::QueueFull { free: 0 };
            assert_eq!(line.post(&mut shared, 0), Err(full));
            for id in next..next + 5 {
                line.pass(&mut shared, &mut completions, id);
            }
            // Round and round, in steps that are no part of the ring.
            for id in next + 7..next + 10 {
                line.post(&mut shared, id).unwrap();
            }
            let left = if round == 4 { 1 } else { 0 };
            for id in next + 5..next + 10 - left {
                line.pass(&mut shared, &mut completions, id);
            }
            next += 10;
            assert_eq!(shared.outstanding(), left as u32);
        }
        let last = Srq::new(&line.srq, &mut completions, config);
        assert!(matches!(last, Err(Error::Queue(QueueError::NotIdle))), "{last:?}");
    }
}

#[test]
fn a_limit_is_armed_by_command_and_seen_by_query() {
    for cyclic in [false, true] {
        let mut line = Line::new(cyclic);
        let mut completions = CqReader::new(&line.cq).unwrap();
        let config = ReceiveConfig::default();
        let mut shared = Srq::new(&line.srq, &mut completions, config).unwrap();
        shared.attach(&line.target, &mut completions).unwrap();
        for id in 0..5 {
            line.post(&mut shared, id).unwrap();
        }
        line.srq.set_limit(4).unwrap();
        line.pass(&mut shared, &mut completions, 0);
        let query = line.srq.query().unwrap();
        assert_eq!((query.max_wr, query.max_sge, query.limit), (7, 1, 4));
        line.pass(&mut shared, &mut completions, 1);
        assert_eq!(line.srq.query().unwrap().limit, 0, "it was reached");
        let error = line.srq.set_limit(8).unwrap_err();
        assert!(error.to_string().contains("holds 7"), "{error}");
        // Above what is posted it is reached at once.
        line.srq.set_limit(7).unwrap();
        assert_eq!(line.srq.query().unwrap().limit, 0);
    }
}

#[test]
fn a_queue_is_what_was_asked_for() {
    let rig = Rig::new(Mode::Trapped);
    for (max_wr, max_sge, cyclic, log_wqes, log_stride) in
        [(1, 1, false, 1, 5), (7, 3, true, 3, 6), (8, 4, false, 4, 7), (1000, 7, true, 10, 7)]
    {
        let srq =
            SharedReceiveQueue::by_command(&rig.pd).max_wr(max_wr).max_sge(max_sge).cyclic(cyclic);
        let srq = srq.build().unwrap();
        let reply = srq.query_context().unwrap();
        let get = |field: mlx5::devx::ifc::Field| {
            reply.get(field.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT))
        };
        assert_eq!((get(wq::LOG_WQ_SZ), get(wq::LOG_WQ_STRIDE)), (log_wqes, log_stride));
        assert_eq!(get(wq::WQ_TYPE), u64::from(cyclic));
        assert_eq!(get(wq::PD), rig.pd.number().unwrap().into());
        assert!(srq.capacity() >= max_wr && srq.max_sge() >= max_sge, "{srq:?}");
        assert_eq!((srq.user_index(), srq.number().unwrap() != 0), (None, true));
    }
}

#[test]
fn a_queue_lies_where_it_was_placed_and_nothing_else_does() {
    let rig = Rig::new(Mode::Trapped);
    let umem = Umem::new(&rig.context, Pages::new(4 * 4096).unwrap()).unwrap();
    let builder = || SharedReceiveQueue::by_command(&rig.pd).max_wr(63).max_sge(3);
    let cq = rig.cq(64);
    let srq = builder().ring(&umem, 4096).record(&umem, 64).build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig::default()).unwrap();
    let memory = rig.memory(4096);
    for id in 0..3 {
        // SAFETY: the memory lives to the end.
        unsafe { shared.post(id, memory.sge(id as usize, 77).unwrap()) }.unwrap();
    }
    // SAFETY: no code writes the umem now.
    let bytes = unsafe { std::slice::from_raw_parts(umem.start().unwrap().as_ptr(), umem.len()) };
    assert_eq!(bytes[64..68], 3u32.to_be_bytes());
    for id in 0..3usize {
        let wqe = &bytes[4096 + id * 64..][..64];
        assert_eq!(wqe[2..4], (id as u16 + 1).to_be_bytes());
        assert_eq!(wqe[16..20], 77u32.to_be_bytes());
        assert_eq!(wqe[24..32], (memory.address() + id as u64).to_be_bytes());
    }
    for (wrong, says) in [
        (builder().ring(&umem, 4096), "overlaps"),
        (builder().record(&umem, 64), "overlaps"),
        (builder().ring(&umem, 2 * 4096 + 64), "multiple"),
        (builder().record(&umem, 84), "multiple"),
        (builder().ring(&umem, 4 * 4096), "ends at"),
    ] {
        let error = wrong.build().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    // The card still has it while the queue is there, and lets go of it then.
    drop((shared, srq));
    builder().ring(&umem, 4096).record(&umem, 64).build().unwrap();
}

#[test]
fn a_queue_of_an_xrc_domain_knows_what_cqes_call_it() {
    let rig = Rig::new(Mode::Trapped);
    let (domain, cq) = (DevxXrcd::new(&rig.context).unwrap(), rig.cq(64));
    let builder = || SharedReceiveQueue::by_command(&rig.pd).max_wr(15).xrc(&domain, &cq);
    let (one, other) = (builder().build().unwrap(), builder().build().unwrap());
    let chosen = builder().user_index(0x1234).limit(3).build().unwrap();
    assert_ne!(one.user_index(), other.user_index());
    assert_eq!(chosen.user_index(), Some(0x1234));
    for srq in [&one, &other, &chosen] {
        let reply = srq.query_context().unwrap();
        let get = |field: mlx5::devx::ifc::Field| {
            reply.get(field.within(query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY)) as u32
        };
        assert_eq!(Some(get(xrc_srqc::USER_INDEX)), srq.user_index());
        assert_eq!(get(xrc_srqc::XRCD), domain.number());
    }
    // Nothing is posted: fewer than three.
    assert_eq!(chosen.query().unwrap().limit, 0);
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig { receives: 15 };
    let mut shared = Srq::new(&one, &mut completions, config).unwrap();
    assert!(shared.is_xrc());
    let memory = rig.memory(4096);
    for id in 0..5 {
        // SAFETY: the memory lives to the end.
        unsafe { shared.post(id, memory.sge(0, 64).unwrap()) }.unwrap();
    }
    one.set_limit(5).unwrap();
    assert_eq!(one.query().unwrap().limit, 5);
    one.set_limit(6).unwrap();
    assert_eq!(one.query().unwrap().limit, 0, "it was reached at once");
    // Another CQ is not where they complete.
    let elsewhere = rig.cq(16);
    let mut elsewhere = CqReader::new(&elsewhere).unwrap();
    let wrong = Srq::new(&other, &mut elsewhere, config);
    assert!(matches!(wrong, Err(Error::Queue(QueueError::CqMismatch))), "{wrong:?}");
    let same = builder().user_index(one.user_index().unwrap()).build().unwrap();
    index_is_taken(Srq::new(&same, &mut completions, ReceiveConfig { receives: 1 }));
    let ring = builder().cyclic(true).build().unwrap_err();
    assert!(ring.to_string().contains("lists"), "{ring}");
    let wide = builder().user_index(1 << 24).build().unwrap_err();
    assert!(wide.to_string().contains("24 bits"), "{wide}");
}

fn index_is_taken<Q: std::fmt::Debug>(result: mlx5::Result<Q>) {
    assert!(matches!(result, Err(Error::Queue(QueueError::IndexTaken))), "{result:?}");
}

/// A poll that is given the queue of an XRC domain, and not the queue pair, would take the queue
/// pair's receives.
#[test]
fn a_queue_pair_with_the_user_index_of_a_queue_of_an_xrc_domain_is_refused() {
    let rig = Rig::new(Mode::Trapped);
    let (domain, cq) = (DevxXrcd::new(&rig.context).unwrap(), rig.cq(255));
    let xrc = SharedReceiveQueue::by_command(&rig.pd).xrc(&domain, &cq).user_index(7);
    let xrc = xrc.build().unwrap();
    let plain = SharedReceiveQueue::by_command(&rig.pd).max_wr(7).build().unwrap();
    let pair = || QueuePair::by_command(&rig.pd, &cq);
    let init = |qp: QueuePair<Rc, Reset, Firmware>| qp.init(&rig.local.init()).unwrap();
    let same = init(pair().user_index(7).build().unwrap());
    let sharing = pair().shared_receive_queue(&plain);
    let sharing = init(sharing.user_index(7).build().unwrap());
    let other = init(pair().user_index(8).build().unwrap());
    let nameless = init(pair().build().unwrap());
    // libmlx5 may have chosen the index 7 for it.
    let library = rig.init(QueuePair::builder(&rig.pd, &cq));
    let config = ReceiveConfig { receives: 4 };
    let mut completions = CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&plain, &mut completions, config).unwrap();
    // Whichever comes first.
    let first = ReceiveQueue::new(&same, &mut completions, config).unwrap();
    index_is_taken(Srq::new(&xrc, &mut completions, config));
    drop(first);
    let _xrc = Srq::new(&xrc, &mut completions, config).unwrap();
    index_is_taken(ReceiveQueue::new(&same, &mut completions, config));
    index_is_taken(ReceiveQueue::new(&library, &mut completions, config));
    index_is_taken(shared.attach(&sharing, &mut completions));
    for qp in [&other, &nameless] {
        ReceiveQueue::new(qp, &mut completions, config).unwrap();
    }
    // A target of dynamic connections has the index of no queue, unless it is given one.
    for (index, taken) in [(None, false), (Some(7), true)] {
        let target = QueuePair::dc_target_by_command(&rig.pd, &cq, &plain, KEY).unwrap();
        let target = match index {
            Some(index) => target.user_index(index),
            None => target,
        };
        let address = rig.local.address(&rig.local.connection_data_of(0));
        let target = target.build().unwrap().init(&rig.local.init()).unwrap();
        let target = target.rtr(&DctRtrAttributes::new(address)).unwrap();
        let attached = shared.attach(&target, &mut completions);
        match taken {
            true => index_is_taken(attached),
            false => attached.unwrap(),
        }
    }
}

#[test]
fn what_the_device_does_not_have_is_refused_with_what_was_sent() {
    let rig = Rig::new(Mode::Trapped);
    let builder = || SharedReceiveQueue::by_command(&rig.pd);
    for (wrong, says) in [
        (builder().max_wr(0), "max_wr"),
        (builder().max_wr(1 << 20), "max_wr"),
        (builder().max_sge(0), "max_sge"),
        (builder().max_sge(1000), "max_sge"),
    ] {
        let error = wrong.build().unwrap_err();
        assert!(matches!(error, Error::Attribute { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let other = ProtectionDomain::new(&Context::open_first().unwrap()).unwrap();
    let foreign = SharedReceiveQueue::by_command(&other).build().unwrap();
    let target = QueuePair::dc_target_by_command(&rig.pd, &rig.cq(16), &foreign, KEY);
    let error = target.map(drop).unwrap_err().to_string();
    assert!(error.contains("shared receive queue is one of another opened device"), "{error}");
}

#[test]
fn queues_that_are_never_dropped_do_no_harm() {
    let context = Context::open_first().unwrap();
    let pd = ProtectionDomain::new(&context).unwrap();
    for _ in 0..200 {
        let srq = SharedReceiveQueue::by_command(&pd).build().unwrap();
        std::mem::forget(srq);
    }
    for _ in 0..2000 {
        SharedReceiveQueue::by_command(&pd).build().unwrap();
    }
    let line = Line::new(false);
    std::mem::forget(line.target);
    // Its CQ, its queue and its context stay as long as it does.
    drop((line.srq, line.cq, line.rig));
}
