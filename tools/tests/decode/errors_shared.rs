//! Errors of connections whose messages go to a shared receive queue or to a tag list.

use std::time::Instant;

use mlx5::cqe::Failure;
use mlx5::expert::TagCapacity;
use mlx5::expert::{Tag, TagHeader};
use mlx5::expert::{TagCompletion, TagConfig, TagReceive, TmSrq};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::{
    CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
};
use mlx5::wqe::{SendMessage, Sge};
use mlx5_sys::verbs::ibv_ops_flags;
use mlx5_sys::verbs::ibv_wc_status::*;

use crate::errors::{Polled, Seen, failures, polled, receive, send};
use ::rig::tags::{TagOperation, post_change};
use ::rig::{PATIENCE, Rig};

/// One that sends, with a send queue alone.
struct Sender {
    send: SendQueue<Rc>,
    completions: CqReader,
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
}

impl Sender {
    /// One connected to a queue pair of that shape; it comes with its peer.
    fn to(
        rig: &Rig,
        shape: QueuePairBuilder<Rc>,
        attach: impl FnOnce(&QueuePair<Rc, mlx5::verbs::Init>),
    ) -> (Self, QueuePair<Rc, Rts>) {
        let cq = rig.cq(255);
        let taker = rig.init(shape);
        attach(&taker);
        let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_send_sge(4).max_inline_data(64));
        let (taker, qp) = rig.connect(taker, qp);
        let mut completions = CqReader::new(&cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        (Self { send, completions, qp, cq }, taker)
    }

    fn fails(&mut self) -> Polled {
        failures(self.cq.as_raw(), &mut self.completions, &mut self.send, 1)
    }
}

/// One that matches tags.
struct Matcher {
    tags: TmSrq,
    completions: CqReader,
    memory: MemoryRegion,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
}

const CAPACITY: TagCapacity = TagCapacity { tags: 15, operations: 16 };

impl Matcher {
    fn new(rig: &Rig) -> Self {
        let cq = rig.cq(511);
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(31).tags(&cq, CAPACITY);
        let srq = srq.build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let tags = TmSrq::new(&srq, &mut completions, TagConfig::default()).unwrap();
        Self { tags, completions, memory: rig.memory(4096), srq, cq }
    }

    fn sge(&self, length: usize) -> Sge {
        self.memory.sge(0, length).unwrap()
    }

    fn sender(&mut self, rig: &Rig) -> (Sender, QueuePair<Rc, Rts>) {
        let shape = QueuePair::builder(&rig.pd, &self.cq).max_send_wr(0);
        Sender::to(rig, shape.shared_receive_queue(&self.srq), |taker| {
            self.tags.attach(taker, &mut self.completions).unwrap();
        })
    }

    fn fails(&mut self, count: usize) -> Polled {
        let mut failed: Vec<Failure> = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while failed.len() < count {
            match self.tags.poll(&mut self.completions, &mut ()).unwrap() {
                Some(TagCompletion::Failed(failure)) => failed.push(failure),
                Some(other) => panic!("{other:?}"),
                None => assert!(Instant::now() < deadline, "no completion"),
            }
        }
        polled(self.cq.as_raw(), failed)
    }
}

pub fn shared(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let memory = rig.memory(4096);
    let sge = |length| memory.sge(0, length).unwrap();

    for (name, length, key, own, peer) in [
        ("too short", 63, 0, IBV_WC_REM_INV_REQ_ERR, IBV_WC_LOC_LEN_ERR),
        ("of a wrong lkey", 64, 0x5500, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR),
    ] {
        let cq = rig.cq(255);
        let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
        let mut received = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut receives = Srq::new(&srq, &mut received, config).unwrap();
        let shape = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&srq);
        let (mut a, _taker) = Sender::to(&rig, shape, |taker| {
            receives.attach(taker, &mut received).unwrap();
        });
        let into = sge(length);
        // SAFETY: of every post here: the memory lives to the end, or does not exist, which the HCA
        // has to detect.
        unsafe {
            receives.post(1, Sge { lkey: into.lkey ^ key, ..into }).unwrap();
            a.send.post(2, SendMessage::new(sge(64))).unwrap();
        }
        let ends = [a.fails(), failures(cq.as_raw(), &mut received, &mut receives, 1)];
        let expected = [send(own, "SEND"), receive(peer)];
        seen.hold(&format!("SRQ: receive {name}"), "rc", &ends, &[a.qp.as_raw()], &expected);
    }

    // A message that no entry takes, and a receive that has no memory.
    let mut matcher = Matcher::new(&rig);
    let (mut a, _taker) = matcher.sender(&rig);
    let into = Sge { lkey: 0xdead_be00, ..matcher.sge(256) };
    // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
    unsafe {
        matcher.tags.post(8, into).unwrap();
        a.send.post(5, SendMessage::new((TagHeader::eager(1), sge(8)))).unwrap();
    }
    let ends = [a.fails(), matcher.fails(1)];
    let expected = [send(IBV_WC_REM_OP_ERR, "SEND"), receive(IBV_WC_LOC_PROT_ERR)];
    seen.hold("tags: receive of a wrong lkey", "rc", &ends, &[a.qp.as_raw()], &expected);

    // A message longer than the entry that takes it.
    let mut matcher = Matcher::new(&rig);
    let (mut a, _taker) = matcher.sender(&rig);
    let into = matcher.sge(7);
    // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
    unsafe {
        matcher.tags.append(1, TagReceive::new(Tag::exact(1), into)).unwrap();
        a.send.post(5, SendMessage::new((TagHeader::eager(1), sge(8)))).unwrap();
    }
    let expected = [send(IBV_WC_REM_INV_REQ_ERR, "SEND")];
    seen.hold("tags: entry too short", "rc", &[a.fails()], &[a.qp.as_raw()], &expected);

    // A list that another program has filled except for two places: the third change fails.
    let mut matcher = Matcher::new(&rig);
    for _ in 0..CAPACITY.tags - 1 {
        let append = TagOperation::Append(Tag::exact(0), Sge::new(0, 0, 0));
        // SAFETY: the queue is alive; no memory is named.
        unsafe { post_change(matcher.srq.as_raw(), 0, append, ibv_ops_flags(0)) };
    }
    let into = matcher.sge(64);
    for id in 1..=3 {
        // SAFETY: the memory lives to the end.
        unsafe { matcher.tags.append(id, TagReceive::new(Tag::exact(id), into)) }.unwrap();
    }
    let expected = [send(IBV_WC_LOC_QP_OP_ERR, "TAG_MATCHING")];
    seen.hold("tags: list full", "rc", &[matcher.fails(1)], &[], &expected);
}
