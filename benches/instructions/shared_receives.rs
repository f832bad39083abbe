//! Posting to a shared receive queue, and polling its receives, also where the queue pair is one of
//! hundreds.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, QueueTable, Queues, ReceiveConfig, SharedKey, Srq};
use mlx5::verbs::{
    CompletionQueue, Init, MemoryRegion, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::*;

use super::prepared::Receives;
use crate::MODE;
use crate::side::{LENGTH, LIST, Row, Side, forget};
use rig::Rig;
use rig::verbs::{Request, poll, post_send, post_shared};

/// Queue pairs that take from the queue, in the row of the many.
pub const MANY: usize = 300;

/// Whether a queue that so many queue pairs take from has the row.
fn has(row: Row, takers: usize) -> bool {
    match row {
        Row::ReceiveShared | Row::ReceiveSharedList | Row::PollShared => takers == 1,
        Row::PollTable => takers == MANY,
        _ => false,
    }
}

/// A shared receive queue, a queue pair that takes from it with its peer, and others.
struct Ends {
    memory: MemoryRegion,
    peer: QueuePair<Rc, Rts>,
    peer_cq: CompletionQueue,
    taker: QueuePair<Rc, Rts>,
    others: Vec<QueuePair<Rc, Init>>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    _rig: Rig,
}

impl Ends {
    fn new(takers: usize) -> Self {
        let rig = Rig::new(MODE);
        let (cq, peer_cq) = (rig.cq(511), rig.cq(511));
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(255).build().expect("an SRQ");
        let taker = || rig.init(QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&srq));
        let others = (1..takers).map(|_| taker()).collect();
        let peer = QueuePairBuilder::<Rc>::new(&rig.pd, &peer_cq).max_send_wr(128);
        let (taker, peer) = rig.connect(taker(), rig.init(peer));
        let memory = rig.memory(4096);
        Self { memory, peer, peer_cq, taker, others, srq, cq, _rig: rig }
    }

    fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), LENGTH, self.memory.lkey())
    }

    /// The peer sends so many messages.
    fn send(&self, messages: usize) {
        let request = |id| Request::signaled(id, ibv_wr_opcode::IBV_WR_SEND, &[self.sge()]);
        let requests: Vec<_> = (0..messages as u64).map(request).collect();
        // SAFETY: QPs, CQs and memory live as long as `self`.
        unsafe {
            post_send(self.peer.as_raw(), &requests).expect("room for all");
            mlx5_model::run();
            for _ in 0..messages {
                let done = poll(self.peer_cq.as_raw()).expect("polled").expect("sent");
                assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
            }
        }
    }
}

/// `ibv_post_srq_recv`, `ibv_poll_cq`.
pub struct Classic {
    ends: Ends,
    takers: usize,
    receives: Receives,
    sum: u64,
}

impl Classic {
    pub fn new(takers: usize) -> Self {
        let ends = Ends::new(takers);
        Self { receives: Receives::new(ends.sge()), ends, takers, sum: 0 }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let srq = self.ends.srq.as_raw().as_ptr();
        // SAFETY: SRQ, requests and memory live as long as `self`.
        self.receives.one(calls, |first| unsafe { ibv_post_srq_recv(srq, first, &mut null_mut()) })
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let srq = self.ends.srq.as_raw().as_ptr();
        // SAFETY: SRQ, requests and memory live as long as `self`.
        self.receives.list(calls, |first| unsafe { ibv_post_srq_recv(srq, first, &mut null_mut()) })
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let cq = self.ends.cq.as_raw().as_ptr();
        let mut wc = MaybeUninit::<ibv_wc>::zeroed();
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: there is space for one completion, zeros are valid in it, and no other code
            // polls the CQ.
            let (taken, wc) =
                unsafe { (ibv_poll_cq(cq, 1, wc.as_mut_ptr()), wc.assume_init_ref()) };
            if taken == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                self.sum += wc.wr_id + u64::from(wc.byte_len);
                found += 1;
            }
        }
        found
    }

    /// By `ibv_start_poll` and `ibv_end_poll`.
    #[inline(never)]
    fn extended(&mut self, calls: usize) -> usize {
        // CQs of this crate are extended ones.
        let cq = self.ends.cq.as_raw().as_ptr().cast::<ibv_cq_ex>();
        // SAFETY: the structure consists of integers, so zeros are valid.
        let mut attributes: ibv_poll_cq_attr = unsafe { zeroed() };
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: the CQ lives as long as `self`, and no other code polls it.
            unsafe {
                if ibv_start_poll(cq, &mut attributes) == 0 {
                    self.sum += (*cq).wr_id;
                    found += usize::from((*cq).status == ibv_wc_status::IBV_WC_SUCCESS);
                    ibv_end_poll(cq);
                }
            }
        }
        found
    }

    fn post(&self, receives: usize) {
        let receives: Vec<_> = (0..receives as u64).map(|id| (id, vec![self.ends.sge()])).collect();
        // SAFETY: the SRQ and the memory live as long as `self`.
        unsafe { post_shared(self.ends.srq.as_raw(), &receives) }.expect("room for all");
    }
}

impl Side for Classic {
    fn prepare(&mut self, _: Row, completions: usize) {
        self.post(completions);
        self.ends.send(completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            _ if !has(row, self.takers) => return None,
            Row::ReceiveShared => self.one(calls),
            Row::ReceiveSharedList => self.list(calls),
            _ => self.poll(calls),
        })
    }
}

/// The same, but polls by the extended interface. It has no other posts.
pub struct Extended(Classic);

impl Extended {
    pub fn new(takers: usize) -> Self {
        Self(Classic::new(takers))
    }
}

impl Side for Extended {
    fn prepare(&mut self, row: Row, completions: usize) {
        self.0.prepare(row, completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PollShared | Row::PollTable if has(row, self.0.takers) => {
                Some(self.0.extended(calls))
            }
            _ => None,
        }
    }
}

/// This crate, raw layer.
pub struct Raw {
    queue: Srq,
    completions: CqReader,
    sge: Sge,
    sum: u64,
    ends: Ends,
}

/// Takes `calls` receives by polls that find queues by `queues`.
#[inline(always)]
fn take<Q: Queues>(
    completions: &mut CqReader,
    queues: &mut Q,
    sum: &mut u64,
    calls: usize,
) -> usize {
    let mut found = 0;
    for _ in 0..calls {
        forget(completions);
        forget(queues);
        if let Ok(Some(Completion::Receive(done))) = completions.poll(queues) {
            *sum += done.id + u64::from(done.byte_len);
            found += 1;
        }
    }
    found
}

impl Raw {
    pub fn new() -> Self {
        let ends = Ends::new(1);
        let mut completions = CqReader::new(&ends.cq).expect("a CQ of its own");
        let queue = Srq::new(&ends.srq, &mut completions, ReceiveConfig::default());
        let mut queue = queue.expect("an SRQ of its own");
        queue.attach(&ends.taker, &mut completions).expect("one that takes from it");
        Self { queue, completions, sge: ends.sge(), sum: 0, ends }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for id in 0..calls as u64 {
            forget(&mut self.queue);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.queue.post(id, sge) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for _ in 0..calls {
            forget(&mut self.queue);
            let mut batch = self.queue.batch();
            for id in 0..LIST as u64 {
                batch.append(id, sge).expect("appended");
            }
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { batch.ring() };
        }
        calls * LIST
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        take(&mut self.completions, &mut self.queue, &mut self.sum, calls)
    }
}

impl Side for Raw {
    fn prepare(&mut self, _: Row, completions: usize) {
        self.one(completions);
        self.ends.send(completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::ReceiveShared => self.one(calls),
            Row::ReceiveSharedList => self.list(calls),
            Row::PollShared => self.poll(calls),
            _ => return None,
        })
    }
}

/// This crate, raw layer: the queue is one of a table that hundreds of queue pairs are in.
pub struct Table {
    table: QueueTable,
    key: SharedKey,
    completions: CqReader,
    sum: u64,
    ends: Ends,
}

impl Table {
    pub fn new() -> Self {
        let ends = Ends::new(MANY);
        let mut completions = CqReader::new(&ends.cq).expect("a CQ of its own");
        let queue = Srq::new(&ends.srq, &mut completions, ReceiveConfig::default());
        let mut table = QueueTable::new();
        let key = table.insert_shared(queue.expect("an SRQ of its own")).expect("room");
        for other in &ends.others {
            table.attach(key, other, &mut completions).expect("one that takes from it");
        }
        table.attach(key, &ends.taker, &mut completions).expect("one that takes from it");
        Self { table, key, completions, sum: 0, ends }
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        take(&mut self.completions, &mut self.table, &mut self.sum, calls)
    }
}

impl Side for Table {
    fn prepare(&mut self, _: Row, completions: usize) {
        let sge = self.ends.sge();
        let queue = self.table.shared(self.key).expect("the table's");
        for id in 0..completions as u64 {
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { queue.post(id, sge) }.expect("posted");
        }
        self.ends.send(completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        (row == Row::PollTable).then(|| self.poll(calls))
    }
}
