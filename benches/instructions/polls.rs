//! Polls other than one success of one signaled request: receives, many at once, requests after
//! unsignaled ones, and a consumer index record that only some calls store.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::expert::Publish;
use mlx5::ib::{CqeCompression, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::CqeSize;
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{RdmaWrite, Remote, Sge};
use mlx5_sys::verbs::*;

use crate::MODE;
use crate::rows::UNSIGNALED;
use crate::side::{LENGTH, LIST, Row, Side, forget, shape};
use rig::Rig;
use rig::verbs::{CqMemory, Request, poll, post_receive, post_send};

/// How many CQEs a reader takes before it says so, in the row of the quiet record.
const EVERY: u32 = 16;

/// A connected queue pair, and the peer's end, by which messages are sent to it.
struct Ends {
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    peer: QueuePair<Rc, Rts>,
    peer_cq: CompletionQueue,
    _rig: Rig,
}

impl Ends {
    fn new(cqe_size: CqeSize, compression: Option<CqeCompression>) -> Self {
        let rig = Rig::new(MODE);
        let mut cq = CompletionQueue::builder(&rig.context, 511).cqe_size(cqe_size);
        if let Some(format) = compression {
            cq = cq.compression(format);
        }
        let cq = cq.build();
        let (cq, peer_cq) = (cq.expect("a CQ"), rig.cq(511));
        let (qp, peer) = rig.connect(rig.init(shape(&rig, &cq)), rig.init(shape(&rig, &peer_cq)));
        let memory = rig.memory(4096);
        Self { qp, cq, memory, peer, peer_cq, _rig: rig }
    }

    fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), LENGTH, self.memory.lkey())
    }

    fn remote(&self) -> Remote {
        Remote::new(self.memory.remote_address() + 1024, self.memory.rkey())
    }

    fn request(&self, id: u64, opcode: ibv_wr_opcode::Type, signaled: bool) -> Request {
        let remote = self.remote();
        Request {
            id,
            opcode,
            list: vec![self.sge()],
            inline: false,
            signaled,
            solicited: false,
            fenced: false,
            remote: (remote.addr, remote.rkey),
            imm: 0,
            compare: 0,
            swap_add: 0,
        }
    }

    /// The peer sends so many messages, which take as many receives.
    fn send(&self, row: Row, messages: usize) {
        let request = |id| {
            let mut request = self.request(id, ibv_wr_opcode::IBV_WR_SEND, true);
            if row == Row::PollInside {
                request.list[0].length = 8;
            }
            request
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

/// Returns whether a request of a row is signaled.
fn signaled(row: Row, request: usize) -> bool {
    row != Row::PollLater || request % (UNSIGNALED + 1) == UNSIGNALED
}

/// How many requests are posted, for so many completions.
fn requests(row: Row, completions: usize) -> usize {
    if row == Row::PollLater { completions * (UNSIGNALED + 1) } else { completions }
}

fn receives(row: Row) -> bool {
    use Row::*;
    matches!(row, PollReceive | PollReceives | PollInside | PollFoldedReceive)
}

/// Whether a side whose CQEs have that size has the row.
fn has(row: Row, cqe_size: CqeSize) -> bool {
    (row == Row::PollWide) == (cqe_size == CqeSize::B128)
}

/// The objects that libmlx5's two interfaces share.
struct Verbs {
    ends: Ends,
    sum: u64,
}

impl Verbs {
    fn new(cqe_size: CqeSize) -> Self {
        Self { ends: Ends::new(cqe_size, None), sum: 0 }
    }

    fn prepare(&self, row: Row, completions: usize) {
        let qp = self.ends.qp.as_raw();
        if receives(row) {
            for id in 0..completions as u64 {
                // SAFETY: QP and memory live as long as `self`.
                unsafe { post_receive(qp, id, &[self.ends.sge()]) }.expect("room for all");
            }
            return self.ends.send(row, completions);
        }
        let write = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        let request = |at| self.ends.request(at as u64, write, signaled(row, at));
        let list: Vec<_> = (0..requests(row, completions)).map(request).collect();
        // SAFETY: QP and memory live as long as `self`.
        unsafe { post_send(qp, &list) }.expect("room for all");
        mlx5_model::run();
    }
}

/// `ibv_poll_cq`.
pub struct Classic {
    verbs: Verbs,
}

impl Classic {
    pub fn new(cqe_size: CqeSize) -> Self {
        Self { verbs: Verbs::new(cqe_size) }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let cq = self.verbs.ends.cq.as_raw().as_ptr();
        let mut wc = MaybeUninit::<ibv_wc>::zeroed();
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: there is space for one completion, zeros are valid in it, and no other code
            // polls the CQ.
            let (taken, wc) =
                unsafe { (ibv_poll_cq(cq, 1, wc.as_mut_ptr()), wc.assume_init_ref()) };
            if taken == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                self.verbs.sum += wc.wr_id + u64::from(wc.byte_len);
                found += 1;
            }
        }
        found
    }

    #[inline(never)]
    fn many(&mut self, calls: usize) -> usize {
        let cq = self.verbs.ends.cq.as_raw().as_ptr();
        let mut wcs = [const { MaybeUninit::<ibv_wc>::zeroed() }; LIST];
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: there is space for as many completions, zeros are valid in them, and no other
            // code polls the CQ.
            let taken = unsafe { ibv_poll_cq(cq, LIST as i32, wcs.as_mut_ptr().cast()) };
            for wc in wcs.iter().take(taken as usize) {
                // SAFETY: the library filled it.
                let wc = unsafe { wc.assume_init_ref() };
                if wc.status == ibv_wc_status::IBV_WC_SUCCESS {
                    self.verbs.sum += wc.wr_id + u64::from(wc.byte_len);
                    found += 1;
                }
            }
        }
        found
    }
}

impl Side for Classic {
    fn prepare(&mut self, row: Row, completions: usize) {
        self.verbs.prepare(row, completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            _ if !has(row, self.verbs.ends.cq.cqe_size()) => return None,
            Row::PollLater | Row::PollWide | Row::PollReceive | Row::PollInside => self.one(calls),
            // libmlx5 knows no compressed blocks: it takes the same completions one by one.
            Row::PollFolded | Row::PollFoldedReceive => self.one(calls),
            Row::PollMany | Row::PollReceives => self.many(calls),
            _ => return None,
        })
    }
}

/// `ibv_start_poll`, `ibv_next_poll`, `ibv_end_poll`.
pub struct Extended {
    verbs: Verbs,
}

impl Extended {
    pub fn new(cqe_size: CqeSize) -> Self {
        Self { verbs: Verbs::new(cqe_size) }
    }

    /// Takes what the CQ stands at. CQs of this crate tell of nothing but the id and the status.
    ///
    /// # Safety
    /// Between start and end.
    #[inline(always)]
    unsafe fn take(&mut self, cq: NonNull<ibv_cq_ex>) -> usize {
        // SAFETY: the CQ lives as long as `self`.
        let cq = unsafe { cq.as_ref() };
        self.verbs.sum += cq.wr_id;
        usize::from(cq.status == ibv_wc_status::IBV_WC_SUCCESS)
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let cq = self.verbs.ends.cq.as_raw().cast::<ibv_cq_ex>();
        // SAFETY: the structure consists of integers, so zeros are valid.
        let mut attributes: ibv_poll_cq_attr = unsafe { zeroed() };
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: the CQ is an extended one, and no other code polls it.
            unsafe {
                if ibv_start_poll(cq.as_ptr(), &mut attributes) == 0 {
                    found += self.take(cq);
                    ibv_end_poll(cq.as_ptr());
                }
            }
        }
        found
    }

    #[inline(never)]
    fn many(&mut self, calls: usize) -> usize {
        let cq = self.verbs.ends.cq.as_raw().cast::<ibv_cq_ex>();
        // SAFETY: the structure consists of integers, so zeros are valid.
        let mut attributes: ibv_poll_cq_attr = unsafe { zeroed() };
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: the CQ is an extended one, and no other code polls it.
            unsafe {
                if ibv_start_poll(cq.as_ptr(), &mut attributes) == 0 {
                    found += self.take(cq);
                    for _ in 1..LIST {
                        if ibv_next_poll(cq.as_ptr()) != 0 {
                            break;
                        }
                        found += self.take(cq);
                    }
                    ibv_end_poll(cq.as_ptr());
                }
            }
        }
        found
    }
}

impl Side for Extended {
    fn prepare(&mut self, row: Row, completions: usize) {
        self.verbs.prepare(row, completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            _ if !has(row, self.verbs.ends.cq.cqe_size()) => return None,
            Row::PollLater | Row::PollWide | Row::PollReceive | Row::PollInside => self.one(calls),
            // libmlx5 knows no compressed blocks: it takes the same completions one by one.
            Row::PollFolded | Row::PollFoldedReceive => self.one(calls),
            Row::PollMany | Row::PollReceives => self.many(calls),
            _ => return None,
        })
    }
}

/// This crate, raw layer.
pub struct Raw {
    completions: CqReader,
    send: SendQueue<Rc>,
    receive: ReceiveQueue,
    sum: u64,
    /// Whether the record is told every so many only.
    quiet: bool,
    ends: Ends,
}

impl Raw {
    pub fn new() -> Self {
        Self::with(Publish::EveryPoll, CqeSize::B64, None)
    }

    pub fn wide() -> Self {
        Self::with(Publish::EveryPoll, CqeSize::B128, None)
    }

    pub fn quiet() -> Self {
        Self::with(Publish::Every(EVERY), CqeSize::B64, None)
    }

    pub fn folded() -> Self {
        Self::with(Publish::EveryPoll, CqeSize::B64, Some(CqeCompression::Hash))
    }

    fn with(publish: Publish, cqe_size: CqeSize, compression: Option<CqeCompression>) -> Self {
        let ends = Ends::new(cqe_size, compression);
        let mut completions = CqReader::new(&ends.cq).expect("a CQ of its own");
        completions.publish(publish).expect("entries");
        let send = SendQueue::new(&ends.qp, &mut completions, SendConfig::default());
        let receive = ReceiveQueue::new(&ends.qp, &mut completions, ReceiveConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            receive: receive.expect("a QP of its own"),
            completions,
            sum: 0,
            quiet: publish != Publish::EveryPoll,
            ends,
        }
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            if let Ok(Some(Completion::Send(done))) = self.completions.poll(&mut self.send) {
                self.sum += done.id;
                found += 1;
            }
        }
        found
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            if let Ok(Some(Completion::Receive(done))) = self.completions.poll(&mut self.receive) {
                self.sum += done.id + u64::from(done.byte_len);
                found += 1;
            }
        }
        found
    }

    #[inline(never)]
    fn many(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            for completion in self.completions.poll_all(&mut self.send).take(LIST) {
                if let Ok(Completion::Send(done)) = completion {
                    self.sum += done.id;
                    found += 1;
                }
            }
        }
        found
    }

    #[inline(never)]
    fn receives(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            for completion in self.completions.poll_all(&mut self.receive).take(LIST) {
                if let Ok(Completion::Receive(done)) = completion {
                    self.sum += done.id + u64::from(done.byte_len);
                    found += 1;
                }
            }
        }
        found
    }
}

impl Side for Raw {
    fn prepare(&mut self, row: Row, completions: usize) {
        if receives(row) {
            for id in 0..completions as u64 {
                // SAFETY: the memory lives as long as the queue, and the program does not access
                // it.
                unsafe { self.receive.post(id, self.ends.sge()) }.expect("posted");
            }
            return self.ends.send(row, completions);
        }
        for at in 0..requests(row, completions) {
            let write = RdmaWrite::new(self.ends.sge(), self.ends.remote());
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(at as u64, write.signaled_if(signaled(row, at))) }
                .expect("posted");
        }
        mlx5_model::run();
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::PollQuiet if self.quiet => self.one(calls),
            Row::PollFolded if self.ends.cq.compression().is_some() => self.one(calls),
            Row::PollFoldedReceive if self.ends.cq.compression().is_some() => self.receive(calls),
            _ if self.ends.cq.compression().is_some() => return None,
            _ if self.quiet || !has(row, self.ends.cq.cqe_size()) => return None,
            Row::PollLater | Row::PollWide => self.one(calls),
            Row::PollReceive | Row::PollInside => self.receive(calls),
            Row::PollMany => self.many(calls),
            Row::PollReceives => self.receives(calls),
            _ => return None,
        })
    }
}

/// The loads and stores that must happen: the CQE's owner, the length of a message, the record.
pub struct Floor {
    memory: CqMemory,
    consumer: u32,
    sum: u64,
    /// Posts, and retires afterwards what the floor has polled.
    work: Raw,
}

impl Floor {
    pub fn new() -> Self {
        let work = Raw::new();
        // SAFETY: the CQ lives as long as the floor.
        let memory = unsafe { CqMemory::new(work.ends.cq.as_raw()) };
        Self { memory, consumer: 0, sum: 0, work }
    }

    /// Whether there is a CQE of that opcode, which is taken then.
    ///
    /// # Safety
    /// The CQ is alive.
    #[inline(always)]
    unsafe fn take(&mut self, opcode: u8) -> bool {
        let dv = self.memory.dv;
        let (ring, count) = (dv.buf.cast::<u8>(), dv.cqe_cnt);
        // SAFETY: a CQE of the ring.
        unsafe {
            let cqe = ring.add((self.consumer & (count - 1)) as usize * 64);
            let last = cqe.add(63).read_volatile();
            let lap = self.consumer & count != 0;
            if last >> 4 != opcode || last & 1 != u8::from(lap) {
                return false;
            }
            if opcode != 0 {
                self.sum += u64::from(u32::from_be(cqe.add(0x2c).cast::<u32>().read_volatile()));
            }
        }
        self.consumer = self.consumer.wrapping_add(1);
        true
    }

    #[inline(always)]
    fn publish(&mut self) {
        // SAFETY: the record's first word, which is this CQ's.
        unsafe { self.memory.dv.dbrec.write_volatile((self.consumer & 0xff_ffff).to_be()) }
    }

    #[inline(always)]
    fn polls<const OPCODE: u8>(&mut self, calls: usize, many: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            let before = found;
            for _ in 0..many {
                // SAFETY: the CQ lives as long as the floor.
                if !unsafe { self.take(OPCODE) } {
                    break;
                }
                found += 1;
            }
            if found != before {
                self.publish();
            }
        }
        found
    }

    #[inline(never)]
    fn one(&mut self, calls: usize) -> usize {
        self.polls::<0>(calls, 1)
    }

    #[inline(never)]
    fn receive(&mut self, calls: usize) -> usize {
        self.polls::<2>(calls, 1)
    }

    #[inline(never)]
    fn many(&mut self, calls: usize) -> usize {
        self.polls::<0>(calls, LIST)
    }

    #[inline(never)]
    fn receives(&mut self, calls: usize) -> usize {
        self.polls::<2>(calls, LIST)
    }
}

impl Side for Floor {
    fn prepare(&mut self, row: Row, completions: usize) {
        // The CQEs that the floor has taken are still there for the one that posts.
        let Raw { completions: reader, send, receive, .. } = &mut self.work;
        while matches!(reader.poll(&mut (&mut *send, &mut *receive)), Ok(Some(_))) {}
        self.work.prepare(row, completions);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::PollLater => self.one(calls),
            Row::PollReceive => self.receive(calls),
            Row::PollMany => self.many(calls),
            Row::PollReceives => self.receives(calls),
            _ => return None,
        })
    }
}
