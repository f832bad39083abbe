//! Appending to a tag list, and polling the messages that consume its entries.

use std::mem::zeroed;

use mlx5::expert::TagCapacity;
use mlx5::expert::{Tag, TagHeader};
use mlx5::expert::{TagCompletion, TagConfig, TagReceive, TmSrq};
use mlx5::ib::Rc;
use mlx5::ring::CqReader;
use mlx5::verbs::{
    CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::*;

use crate::MODE;
use crate::side::{LENGTH, Row, Side, forget};
use rig::Rig;
use rig::tags::Change;
use rig::verbs::{Request, poll, post_send};

const CAPACITY: TagCapacity = TagCapacity { tags: 127, operations: 128 };

/// A queue that matches tags, a queue pair that takes from it, and its peer, whose memory begins
/// with a message for any tag.
struct Ends {
    memory: MemoryRegion,
    peer: QueuePair<Rc, Rts>,
    peer_cq: CompletionQueue,
    taker: QueuePair<Rc, Rts>,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    _rig: Rig,
}

impl Ends {
    fn new() -> Self {
        let rig = Rig::new(MODE);
        let (cq, peer_cq) = (rig.cq(1023), rig.cq(511));
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(4).tags(&cq, CAPACITY);
        let srq = srq.build().expect("an SRQ");
        let taker = QueuePair::builder(&rig.pd, &cq).max_send_wr(0).shared_receive_queue(&srq);
        let peer = QueuePairBuilder::<Rc>::new(&rig.pd, &peer_cq).max_send_wr(128);
        let (taker, peer) = rig.connect(rig.init(taker), rig.init(peer));
        let mut memory = rig.memory(4096);
        memory.write(0, &TagHeader::eager(7).to_bytes());
        Self { memory, peer, peer_cq, taker, srq, cq, _rig: rig }
    }

    /// Memory that messages fill, without their header.
    fn entry(&self) -> Sge {
        Sge::new(self.memory.address() + 1024, LENGTH, self.memory.lkey())
    }

    /// The peer sends so many messages.
    fn send(&self, messages: usize) {
        let length = TagHeader::SIZE as u32 + LENGTH;
        let request = |id| Request {
            id,
            opcode: ibv_wr_opcode::IBV_WR_SEND,
            list: vec![Sge::new(self.memory.address(), length, self.memory.lkey())],
            inline: false,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (0, 0),
            imm: 0,
            compare: 0,
            swap_add: 0,
        };
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

/// Whether a side that has appended what it was asked to, which is then polled, has the row.
fn has(row: Row, appended: bool) -> bool {
    match row {
        Row::TagAppend | Row::TagPoll => true,
        Row::Poll | Row::Empty => appended,
        _ => false,
    }
}

/// `ibv_post_srq_ops`, `ibv_start_poll`. The request is prepared ahead; a call changes its id.
pub struct Classic {
    ends: Ends,
    append: Change,
    appended: bool,
    sum: u64,
}

impl Classic {
    pub fn new() -> Self {
        let ends = Ends::new();
        let append = Change::append(Tag::exact(7), ends.entry());
        Self { ends, append, appended: false, sum: 0 }
    }

    #[inline(never)]
    fn append(&mut self, calls: usize) -> usize {
        let flags = ibv_ops_flags::IBV_OPS_SIGNALED | ibv_ops_flags::IBV_OPS_TM_SYNC;
        let srq = self.ends.srq.as_raw();
        for id in 0..calls as u64 {
            self.append.renew(id, flags);
            // SAFETY: SRQ and memory live as long as `self`.
            assert_eq!(unsafe { self.append.post(srq) }, 0);
        }
        calls
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
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
}

impl Side for Classic {
    fn prepare(&mut self, _: Row, completions: usize) {
        self.append(completions);
        mlx5_model::run();
        assert_eq!(self.poll(completions), completions);
        self.ends.send(completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        if !has(row, self.appended) {
            return None;
        }
        Some(match row {
            Row::TagAppend => {
                self.appended |= calls != 0;
                self.append(calls)
            }
            Row::TagPoll => self.poll(calls),
            Row::Empty => {
                // Polls of other rows are not of this side.
                self.appended = false;
                0
            }
            _ => {
                let reported = self.poll(calls);
                self.ends.send(calls);
                assert_eq!(self.poll(calls), calls);
                reported
            }
        })
    }
}

/// This crate, raw layer.
pub struct Raw {
    tags: TmSrq,
    completions: CqReader,
    into: Sge,
    appended: bool,
    sum: u64,
    ends: Ends,
}

impl Raw {
    pub fn new() -> Self {
        let ends = Ends::new();
        let mut completions = CqReader::new(&ends.cq).expect("a CQ of its own");
        let tags = TmSrq::new(&ends.srq, &mut completions, TagConfig::default());
        let mut tags = tags.expect("an SRQ of its own");
        tags.attach(&ends.taker, &mut completions).expect("one that takes from it");
        Self { tags, completions, into: ends.entry(), appended: false, sum: 0, ends }
    }

    #[inline(never)]
    fn append(&mut self, calls: usize) -> usize {
        let entry = TagReceive::new(Tag::exact(7), self.into).signaled();
        for id in 0..calls as u64 {
            forget(&mut self.tags);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.tags.append(id, entry) }.expect("appended");
        }
        calls
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(&mut self.completions);
            forget(&mut self.tags);
            match self.tags.poll(&mut self.completions, &mut ()) {
                Ok(Some(TagCompletion::Arrived(arrival))) => {
                    self.sum += arrival.id + u64::from(arrival.byte_len);
                    found += 1;
                }
                Ok(Some(TagCompletion::Appended { id, .. })) => {
                    self.sum += id;
                    found += 1;
                }
                _ => {}
            }
        }
        found
    }

    /// Takes what is no part of a row, in a function of its own: calls of the row's are counted.
    #[inline(never)]
    fn drain(&mut self, calls: usize) -> usize {
        let taken =
            (0..calls).map_while(|_| self.tags.poll(&mut self.completions, &mut ()).ok()?);
        taken.count()
    }
}

impl Side for Raw {
    fn prepare(&mut self, _: Row, completions: usize) {
        self.append(completions);
        mlx5_model::run();
        assert_eq!(self.drain(completions), completions);
        self.ends.send(completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        if !has(row, self.appended) {
            return None;
        }
        Some(match row {
            Row::TagAppend => {
                self.appended |= calls != 0;
                self.append(calls)
            }
            Row::TagPoll => self.poll(calls),
            Row::Empty => {
                // Polls of other rows are not of this side.
                self.appended = false;
                0
            }
            _ => {
                let reported = self.drain(calls);
                self.ends.send(calls);
                assert_eq!(self.drain(calls), calls);
                reported
            }
        })
    }
}
