//! Queues that libmlx5 has used are taken over, handed back, and taken again. Also what libmlx5 can
//! do with them afterwards.

use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{Inline, Nop, SendMessage, Sge};
use mlx5_sys::verbs::{ibv_qp, ibv_wc_opcode, ibv_wr_opcode};

use rig::verbs::{QpMemory, Request, poll, post_receive, post_send};
use rig::{PATIENCE, Rig, wait};

/// A queue pair connected to itself, which no queue of this crate has seen.
struct Loop {
    qp: QueuePair<Rc, Rts>,
    memory: MemoryRegion,
    cq: CompletionQueue,
    rig: Rig,
}

impl Loop {
    fn new() -> Self {
        let rig = Rig::new(mlx5_model::Mode::Trapped);
        let cq = rig.cq(256);
        let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(64));
        let qp = rig.looped(qp);
        Self { qp, memory: rig.memory(4096), cq, rig }
    }

    fn sge(&self) -> Sge {
        self.memory.sge(0, 64).unwrap()
    }

    /// Messages by libmlx5, each with two completions, which it polls.
    fn by_libmlx5(&self, count: u64) {
        for id in 0..count {
            // SAFETY: QP, CQ and memory live on; no other code posts or polls now.
            unsafe {
                post_receive(self.qp.as_raw(), id, &[self.sge()]).unwrap();
                post_send(self.qp.as_raw(), &[request(id, self.sge())]).unwrap();
                let mut seen = [self.polled(), self.polled()];
                seen.sort_by_key(|(opcode, _)| *opcode);
                assert_eq!(
                    seen,
                    [(ibv_wc_opcode::IBV_WC_SEND, id), (ibv_wc_opcode::IBV_WC_RECV, id)]
                );
            }
        }
    }

    /// The next completion that libmlx5 finds.
    ///
    /// # Safety
    /// No other reader has the CQ.
    unsafe fn polled(&self) -> (u32, u64) {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            // SAFETY: the caller upholds the conditions.
            if let Some(wc) = unsafe { poll(self.cq.as_raw()) }.unwrap() {
                return (wc.opcode, wc.wr_id);
            }
            assert!(std::time::Instant::now() < deadline, "no completion");
        }
    }

    /// # Safety
    /// The queue pair and the CQ live longer than the results, and nothing is outstanding on them.
    /// Until the results are dropped, no other code posts to the QP, resets it, or polls the CQ.
    unsafe fn take(&self) -> (CqReader, SendQueue, ReceiveQueue) {
        // SAFETY: the caller upholds the conditions.
        unsafe {
            let mut completions = CqReader::from_raw(self.cq.as_raw()).unwrap();
            let qp = self.qp.as_raw();
            let send = SendQueue::from_raw(qp, &mut completions, SendConfig::default()).unwrap();
            let receive =
                ReceiveQueue::from_raw(qp, &mut completions, ReceiveConfig::default()).unwrap();
            (completions, send, receive)
        }
    }

    /// Returns the send queue's doorbell record: the number of posted requests.
    fn record(&self) -> u32 {
        // SAFETY: the QP lives on.
        let record = unsafe { QpMemory::new(self.qp.as_raw()) }.record();
        u32::from_be_bytes(record[4..].try_into().unwrap())
    }
}

fn request(id: u64, sge: Sge) -> Request {
    Request {
        id,
        opcode: ibv_wr_opcode::IBV_WR_SEND,
        list: vec![sge],
        inline: false,
        signaled: true,
        solicited: false,
        fenced: false,
        remote: (0, 0),
        imm: 0,
        compare: 0,
        swap_add: 0,
    }
}

/// Messages on the direct path.
fn directly(count: u64, queues: &mut (CqReader, SendQueue, ReceiveQueue), sge: Sge) {
    let (completions, send, receive) = queues;
    for id in 0..count {
        // SAFETY: the memory lives on, and is left alone.
        unsafe {
            receive.post(id, sge).unwrap();
            send.post(id, SendMessage::new(Inline(b"directly")).signaled()).unwrap();
        }
        let mut kinds = [false; 2];
        for _ in 0..2 {
            match wait(completions, &mut (&mut *send, &mut *receive)) {
                Completion::Send(done) if done.id == id => kinds[0] = true,
                Completion::Receive(done) if done.id == id => kinds[1] = true,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(kinds, [true; 2]);
    }
}

fn hand_back((completions, send, receive): (CqReader, SendQueue, ReceiveQueue)) -> NonNull<ibv_qp> {
    let qp = send.into_raw().unwrap();
    assert_eq!(receive.into_raw().unwrap(), qp);
    completions.into_raw().unwrap();
    qp
}

#[test]
fn queues_go_on_from_libmlx5_and_from_each_other() {
    let pair = Loop::new();
    pair.by_libmlx5(150);
    assert_eq!(pair.record(), 150);
    // So often that the ring, the CQ and the counters of 16 bits go round.
    let mut total = 150;
    for round in 0..3 {
        // SAFETY: libmlx5 has nothing outstanding and is not called again; the parts live on.
        let mut queues = unsafe { pair.take() };
        directly(500 + round, &mut queues, pair.sge());
        total += 500 + round as u32;
        assert_eq!(pair.record(), total);
        assert_eq!(hand_back(queues), pair.qp.as_raw());
    }
    let mut bytes = [0; 8];
    pair.memory.read(0, &mut bytes);
    assert_eq!(&bytes, b"directly");
}

#[test]
fn what_is_outstanding_is_not_handed_back() {
    let pair = Loop::new();
    // SAFETY: fresh, and the parts live on.
    let (mut completions, mut send, mut receive) = unsafe { pair.take() };
    // SAFETY: the memory lives on, and is left alone.
    unsafe {
        send.post(1, Nop::new()).unwrap();
        receive.post(2, pair.sge()).unwrap();
    }
    let mut send = send.into_raw().unwrap_err();
    let mut receive = receive.into_raw().unwrap_err();
    // SAFETY: the payload is copied into the WQE.
    unsafe { send.post(3, SendMessage::new(Inline(b"now")).signaled()).unwrap() };
    for _ in 0..2 {
        let done = wait(&mut completions, &mut (&mut send, &mut receive));
        assert!(!matches!(done, Completion::Failed(_)), "{done:?}");
    }
    hand_back((completions, send, receive));
}

/// Why a CQ stays with this crate, and a send queue up to RESET.
#[test]
fn libmlx5_does_not_know_what_was_done_without_it() {
    let pair = Loop::new();
    pair.by_libmlx5(5);
    // SAFETY: libmlx5 has nothing outstanding; the parts live on.
    let mut queues = unsafe { pair.take() };
    directly(3, &mut queues, pair.sge());
    assert_eq!(pair.record(), 8);
    hand_back(queues);
    // SAFETY: handed back; nothing is in flight.
    unsafe {
        // Nothing new has come, and yet it finds the first completion that was read here, whose id
        // it cannot know.
        assert!(poll(pair.cq.as_raw()).unwrap().is_some());
        // And writes over the sixth request, which tells the card to go back.
        post_send(pair.qp.as_raw(), &[request(9, pair.sge())]).unwrap();
    }
    assert_eq!(pair.record(), 6);
}

#[test]
fn a_reset_makes_everybody_start_anew() {
    let pair = Loop::new();
    pair.by_libmlx5(5);
    // SAFETY: libmlx5 has nothing outstanding; the parts live on.
    let mut queues = unsafe { pair.take() };
    directly(3, &mut queues, pair.sge());
    hand_back(queues);
    let Loop { qp, memory, cq, rig } = pair;
    let qp = rig.to_init(qp.reset().unwrap());
    let qp = rig.looped(qp);
    let pair = Loop { qp, memory, cq, rig };
    assert_eq!(pair.record(), 0);
    // libmlx5 posts from the start again, and this crate still reads the CQ.
    // SAFETY: the QP was reset, the memory lives on.
    unsafe {
        post_receive(pair.qp.as_raw(), 1, &[pair.sge()]).unwrap();
        post_send(pair.qp.as_raw(), &[request(2, pair.sge())]).unwrap();
        let mut completions = CqReader::from_raw(pair.cq.as_raw()).unwrap();
        for _ in 0..2 {
            let done = wait(&mut completions, &mut ());
            assert!(matches!(done, Completion::UnexpectedCqe(_)), "{done:?}");
        }
        assert_eq!(pair.record(), 1);
        completions.into_raw().unwrap();
        // And from there the direct path goes on again.
        let mut queues = pair.take();
        directly(200, &mut queues, pair.sge());
        hand_back(queues);
    }
    assert_eq!(pair.record(), 201);
}
