//! The same requests through libmlx5 and through this crate, on twin queue pairs: the rings' bytes,
//! the doorbell records, and every store to a register, in order and width, must be equal but for
//! the queue pair's number.
//!
//! Everything in the rings is compared, also what lies behind a WQE's end: neither side clears the
//! padding of inline data or the rest of a block, so stale bytes are equal as long as both have
//! written the same before. One field differs on purpose: `compare` of a fetch-and-add's atomic
//! segment, which the card does not read. It is zero here, and what the ring had there before in
//! libmlx5; these eight bytes are left out until something else is written over them.

use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::diag::text;
use mlx5::ib::Rc;
use mlx5::ring::{Batch, CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Init, MemoryRegion, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{
    CompareSwap, FetchAdd, InlineGather, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm,
    SendMessage, Sge, Word,
};
use mlx5_sys::verbs::{ibv_qp, ibv_wc_status, ibv_wr_opcode as wr};
use rig::random::Random;
use rig::stores::{self, Store};
use rig::verbs::{QpMemory, Request};
use rig::{Rig, lint, verbs};

/// Posts of twins in all, and in each case, which has queue pairs of its own.
const POSTS: u32 = 2400;
const POSTS_OF_CASE: u32 = 200;
const MEMORY: usize = 1 << 14;
/// Room in every receive: the longest message here.
const RECEIVE: usize = 4096;

/// One request of libmlx5 as this crate's operation.
fn append(batch: &mut Batch<'_>, request: &Request) -> Result<(), PostError> {
    let id = request.id;
    let remote = Remote::new(request.remote.0, request.remote.1);
    macro_rules! flags {
        ($op:expr) => {{
            let op = $op.signaled_if(request.signaled);
            if request.fenced { batch.append(id, op.fenced()) } else { batch.append(id, op) }
        }};
        (solicited $op:expr) => {
            if request.solicited { flags!($op.solicited()) } else { flags!($op) }
        };
    }
    macro_rules! payload {
        (|$payload:ident| $op:expr) => {
            if request.inline {
                // SAFETY: inline requests name memory of the test that no code writes.
                let piece = |sge: &Sge| unsafe {
                    std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
                };
                let pieces: Vec<&[u8]> = request.list.iter().map(piece).collect();
                let $payload = InlineGather(&pieces);
                $op
            } else {
                match *request.list.as_slice() {
                    [one] => {
                        let $payload = one;
                        $op
                    }
                    [one, two, three] => {
                        let $payload = [one, two, three];
                        $op
                    }
                    ref list => {
                        let $payload = list;
                        $op
                    }
                }
            }
        };
    }
    let word = || Word::new(request.list[0].addr, request.list[0].lkey);
    match request.opcode {
        wr::IBV_WR_SEND => payload!(|payload| flags!(solicited SendMessage::new(payload))),
        wr::IBV_WR_SEND_WITH_IMM => {
            payload!(|payload| flags!(solicited SendImm::new(payload, request.imm)))
        }
        wr::IBV_WR_RDMA_WRITE => payload!(|payload| flags!(RdmaWrite::new(payload, remote))),
        wr::IBV_WR_RDMA_WRITE_WITH_IMM => {
            payload!(|payload| flags!(solicited RdmaWriteImm::new(payload, remote, request.imm)))
        }
        wr::IBV_WR_RDMA_READ => flags!(RdmaRead::new(request.list.as_slice(), remote)),
        wr::IBV_WR_ATOMIC_CMP_AND_SWP => {
            flags!(CompareSwap::new(word(), remote, request.compare, request.swap_add))
        }
        wr::IBV_WR_ATOMIC_FETCH_AND_ADD => flags!(FetchAdd::new(word(), remote, request.swap_add)),
        other => unreachable!("opcode {other}"),
    }
}

/// The attributes of a case's queue pair.
#[derive(Clone, Copy, Debug)]
struct Shape {
    max_send_wr: u32,
    max_sge: u32,
    max_inline: u32,
    signal_all: bool,
    /// A doorbell register of its own by a thread domain, or one of libmlx5's choice.
    domain: bool,
}

/// A queue pair and the one it is connected to, which only receives.
struct Line {
    qp: QueuePair<Rc, Rts>,
    peer: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    peer_cq: CompletionQueue,
}

fn line(rig: &Rig, shape: &Shape) -> Line {
    let (cq, peer_cq) = (rig.cq(512), rig.cq(512));
    let mut builder = QueuePair::builder(&rig.pd, &cq)
        .max_send_wr(shape.max_send_wr)
        .max_recv_wr(64)
        .max_send_sge(shape.max_sge)
        .max_inline_data(shape.max_inline)
        .signal_all(shape.signal_all);
    if shape.domain {
        builder = builder.thread_domain(&ThreadDomain::new(&rig.context).unwrap());
    }
    let peer = QueuePair::builder(&rig.pd, &peer_cq).max_recv_wr(32).max_recv_sge(shape.max_sge);
    let (qp, peer): (QueuePair<Rc, Init>, _) = (rig.init(builder), rig.init(peer));
    let (qp, peer) = rig.connect(qp, peer);
    Line { qp, peer, cq, peer_cq }
}

struct Case<'a> {
    random: &'a mut Random,
    shape: Shape,
    memory: &'a MemoryRegion,
    /// The source of inline payloads.
    bytes: &'a [u8],
    next: u64,
}

impl Case<'_> {
    fn sge(&mut self, longest: u32) -> Sge {
        let length = if self.random.one_in(5) { 0 } else { self.random.below(longest + 1) };
        let offset = self.random.below(MEMORY as u32 - length);
        let address = self.memory.address() + u64::from(offset);
        Sge::new(address, length, self.memory.lkey())
    }

    /// Pieces of `bytes` of `total` bytes at most.
    fn inline(&mut self, total: u32) -> Vec<Sge> {
        let mut left = self.random.below(total + 1);
        let mut list = Vec::new();
        for _ in 0..self.random.below(self.shape.max_sge + 1) {
            let length = self.random.below(left + 1);
            let offset = self.random.below(self.bytes.len() as u32 - length) as usize;
            let address = self.bytes[offset..].as_ptr().expose_provenance() as u64;
            list.push(Sge::new(address, length, self.random.next() as u32));
            left -= length;
        }
        list
    }

    fn request(&mut self, max_inline: u32, signaled: bool) -> Request {
        let opcode = [
            wr::IBV_WR_SEND,
            wr::IBV_WR_SEND_WITH_IMM,
            wr::IBV_WR_RDMA_WRITE,
            wr::IBV_WR_RDMA_WRITE_WITH_IMM,
            wr::IBV_WR_RDMA_READ,
            wr::IBV_WR_ATOMIC_CMP_AND_SWP,
            wr::IBV_WR_ATOMIC_FETCH_AND_ADD,
        ][self.random.below(7) as usize];
        let atomic =
            matches!(opcode, wr::IBV_WR_ATOMIC_CMP_AND_SWP | wr::IBV_WR_ATOMIC_FETCH_AND_ADD);
        let carries = !atomic && opcode != wr::IBV_WR_RDMA_READ;
        let inline = carries && self.random.one_in(2);
        let list = if atomic {
            let offset = self.random.below(MEMORY as u32 / 8 - 1) * 8;
            vec![self.memory.sge(offset as usize, 8).unwrap()]
        } else if inline {
            self.inline(max_inline)
        } else {
            let entries = self.random.below(self.shape.max_sge + 1);
            let longest = (RECEIVE as u32 / self.shape.max_sge).min(300);
            (0..entries).map(|_| self.sge(longest)).collect()
        };
        let remote = self.random.below((MEMORY - RECEIVE) as u32 / 8) * 8;
        let solicits = !matches!(opcode, wr::IBV_WR_RDMA_WRITE | wr::IBV_WR_RDMA_READ) && !atomic;
        self.next += 1;
        Request {
            id: self.next,
            opcode,
            list,
            inline,
            signaled,
            solicited: solicits && self.random.one_in(3),
            fenced: self.random.one_in(4),
            remote: (self.memory.remote_address() + u64::from(remote), self.memory.rkey()),
            imm: self.random.next() as u32,
            compare: self.random.next(),
            swap_add: self.random.next(),
        }
    }
}

/// Sets the ctrl segments' QP numbers in a ring to zero: those of WQEs that are at `starts`.
fn without_number(mut ring: Vec<u8>, starts: &[usize]) -> Vec<u8> {
    for &start in starts {
        ring[start + 4..start + 7].fill(0);
    }
    ring
}

/// Stores of one queue pair, made comparable.
struct Stores {
    qpn: u32,
    /// Offset in its page of the queue pair's register.
    register: usize,
    /// The half that its first doorbell used. libmlx5 goes on where the register's last user, a
    /// queue pair that is long gone, stopped.
    half: Option<usize>,
}

impl Stores {
    fn new(qp: &QueuePair<Rc, Rts>, rings: &QpMemory) -> Self {
        Self { qpn: qp.number(), register: rings.dv.bf.reg.addr() % 4096, half: None }
    }

    /// Offset from the register's first used half, and width, of each store of a post. The bytes
    /// must be those of `ring` from `from` on, where the last WQE lies: a doorbell
    /// stores its first eight, a BlueFlame copy its blocks.
    fn check(&mut self, stores: Vec<Store>, ring: &[u8], from: usize) -> Vec<(usize, usize)> {
        assert_eq!(stores[0].bytes[4..7], self.qpn.to_be_bytes()[1..], "the queue pair's number");
        let half = *self.half.get_or_insert(stores[0].offset);
        let mut at = from;
        let mut places = Vec::new();
        for Store { offset, bytes, .. } in stores {
            for byte in &bytes {
                assert_eq!(*byte, ring[at % ring.len()], "byte {:#x} of the WQE", at - from);
                at += 1;
            }
            places.push(((offset - self.register) ^ (half - self.register), bytes.len()));
        }
        places
    }
}

/// Bytes of a WQE of `ds` segments that are written: all, or what lies before inline padding.
fn written(request: &Request, ds: usize) -> usize {
    let inline: u32 = request.list.iter().map(|sge| sge.length).sum();
    if !request.inline || inline == 0 {
        return ds * 16;
    }
    let remote = matches!(request.opcode, wr::IBV_WR_RDMA_WRITE | wr::IBV_WR_RDMA_WRITE_WITH_IMM);
    16 + usize::from(remote) * 16 + 4 + inline as usize
}

/// Posts `count` empty WRITEs by libmlx5, so that the indices stand there.
fn advance(line: &Line, memory: &MemoryRegion, count: u32) {
    let mut left = count;
    let lists = count.div_ceil(line.qp.capacities().max_send_wr / 2);
    for list in 0..lists {
        let now = left.div_ceil(lists - list);
        left -= now;
        let requests: Vec<_> = (0..now)
            .map(|at| Request {
                id: 0,
                opcode: wr::IBV_WR_RDMA_WRITE,
                list: vec![],
                inline: false,
                signaled: at + 1 == now,
                solicited: false,
                fenced: false,
                remote: (memory.remote_address(), memory.rkey()),
                imm: 0,
                compare: 0,
                swap_add: 0,
            })
            .collect();
        // SAFETY: the QP is alive; the requests name no local memory.
        unsafe { verbs::post_send(line.qp.as_raw(), &requests) }.unwrap();
        drain(line);
    }
}

/// Polls libmlx5's side until everything signaled is there. The model executes inside the doorbell.
fn drain(line: &Line) -> Vec<u64> {
    let mut ids = Vec::new();
    // SAFETY: the CQ is alive, and libmlx5's.
    while let Some(wc) = unsafe { verbs::poll(line.cq.as_raw()) }.unwrap() {
        assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
        ids.push(wc.wr_id);
    }
    ids
}

/// libmlx5's limit on inline data, which is more than what was asked for.
fn max_inline(qp: &QueuePair<Rc, Rts>) -> u32 {
    qp.capacities().max_inline_data
}

/// `late`: the counter of blocks wraps, which takes libmlx5 65,000 posts to come to.
fn twins(rig: &Rig, random: &mut Random, memory: &MemoryRegion, bytes: &[u8], late: bool) {
    let shape = Shape {
        max_send_wr: 16 << random.below(3),
        max_sge: 1 + random.below(10),
        max_inline: random.below(400),
        signal_all: random.one_in(4),
        domain: random.one_in(2),
    };
    let (theirs, ours) = (line(rig, &shape), line(rig, &shape));
    let start = match late {
        true => 0xffff - random.below(300),
        false => random.below(3000),
    };
    println!("{shape:?}, from index {start:#x}");
    advance(&theirs, memory, start);
    advance(&ours, memory, start);
    stores::take();

    let mut completions = CqReader::new(&ours.cq).unwrap();
    let mut queue = SendQueue::new(&ours.qp, &mut completions, SendConfig::default()).unwrap();
    let mut peer_completions = CqReader::new(&ours.peer_cq).unwrap();
    let mut receive =
        ReceiveQueue::new(&ours.peer, &mut peer_completions, ReceiveConfig::default()).unwrap();

    // SAFETY: the QPs live to the end of the function.
    let memories = |qp: NonNull<ibv_qp>| unsafe { QpMemory::new(qp) };
    let (their_rings, our_rings) = (memories(theirs.qp.as_raw()), memories(ours.qp.as_raw()));
    let (their_peer, our_peer) = (memories(theirs.peer.as_raw()), memories(ours.peer.as_raw()));
    assert_eq!(our_rings.dv.bf.size, their_rings.dv.bf.size);

    let mut their_register = Stores::new(&theirs.qp, &their_rings);
    let mut our_register = Stores::new(&ours.qp, &our_rings);

    let limit = max_inline(&theirs.qp);
    let mut case = Case { random, shape, memory, bytes, next: 0 };
    let ring_size = our_rings.send_ring().len();
    let mut compared = vec![true; ring_size];
    // Blocks whose ctrl segment has a number: at first those of libmlx5's own WQEs.
    let mut starts: Vec<_> = (0..ring_size).step_by(64).collect();
    let mut head = start;
    let mut unsignaled = 0;
    for post in 0..POSTS_OF_CASE {
        let count = if case.random.one_in(2) { 1 } else { 1 + case.random.below(4) };
        let requests: Vec<_> = (0..count)
            .map(|at| {
                unsignaled += 1;
                let must = unsignaled + count - at >= shape.max_send_wr / 2;
                let signaled = must || case.random.one_in(3);
                if signaled {
                    unsignaled = 0;
                }
                case.request(limit, signaled)
            })
            .collect();

        // Receives, for requests that take one.
        for request in &requests {
            if !matches!(
                request.opcode,
                wr::IBV_WR_SEND | wr::IBV_WR_SEND_WITH_IMM | wr::IBV_WR_RDMA_WRITE_WITH_IMM
            ) {
                continue;
            }
            let mut list: Vec<_> =
                (1..case.random.below(shape.max_sge) + 1).map(|_| case.sge(100)).collect();
            list.push(memory.sge(0, RECEIVE).unwrap());
            // SAFETY: the QPs and the memory live to the end.
            unsafe {
                verbs::post_receive(theirs.peer.as_raw(), request.id, &list).unwrap();
                receive.post(request.id, list.as_slice()).unwrap();
            }
            assert_eq!(their_peer.receive_ring(), our_peer.receive_ring(), "receive ring");
            assert_eq!(their_peer.record(), our_peer.record(), "receive record");
        }
        assert!(stores::take().is_empty(), "receives ring no register");

        // SAFETY: QP and memory live to the end; inline data is copied.
        unsafe { verbs::post_send(theirs.qp.as_raw(), &requests) }.unwrap();
        let their_log = stores::take();
        let mut batch = queue.batch();
        for request in &requests {
            append(&mut batch, request).unwrap();
        }
        // SAFETY: QP and memory live to the end; inline data is copied.
        unsafe { batch.ring() };
        let our_log = stores::take();

        let what = || format!("post {post}: {requests:#?}");
        assert_eq!(our_rings.record(), their_rings.record(), "record, {}", what());

        // Where the WQEs lie, and which bytes are not compared.
        let ring = our_rings.send_ring();
        let mut texts = String::new();
        let mut last = 0;
        for request in &requests {
            let at = head as usize * 64 % ring_size;
            let wqe: Vec<u8> =
                (0..1024.min(ring_size)).map(|byte| ring[(at + byte) % ring_size]).collect();
            let ds = usize::from(wqe[7] & 0x3f);
            let wqe = text::SendWqe::new(&wqe[..ds * 16], text::Addressing::Connected);
            texts += &format!("{wqe}\n");
            let end = written(request, ds);
            // Behind a payload this crate stores zeros, and libmlx5 nothing.
            for byte in 0..ds * 16 {
                compared[(at + byte) % ring_size] = byte < end;
            }
            if request.opcode == wr::IBV_WR_ATOMIC_FETCH_AND_ADD {
                for byte in 40..48 {
                    compared[(at + byte) % ring_size] = false;
                }
            }
            // A block that held a ctrl segment may now be in the middle of a WQE. Its number is
            // still there if it lies in the padding of inline data.
            let blocks = ds.div_ceil(4);
            starts.retain(|&start| {
                let distance = (start + ring_size - at) % ring_size;
                distance >= blocks * 64 || distance + 7 > end
            });
            starts.push(at);
            last = at;
            head = head.wrapping_add(blocks as u32);
        }
        let their_ring = their_rings.send_ring();
        let (our_places, their_places) = (
            our_register.check(our_log, &ring, last),
            their_register.check(their_log, &their_ring, last),
        );
        assert_eq!(our_places, their_places, "stores to the register, {}\n{texts}", what());
        let (mine, libs) = (without_number(ring, &starts), without_number(their_ring, &starts));
        for at in 0..ring_size {
            assert!(
                !compared[at] || mine[at] == libs[at],
                "byte {at:#x} is {:#x} here and {:#x} there, {}\n{texts}",
                mine[at],
                libs[at],
                what()
            );
        }

        // Both retire what is complete, and get the same ids.
        let ids = drain(&theirs);
        let mine: Vec<u64> = completions
            .poll_all(&mut queue)
            .map(|completion| match completion.unwrap() {
                Completion::Send(done) => done.id,
                other => panic!("{other:?}, {}", what()),
            })
            .collect();
        assert_eq!(mine, ids);
        // SAFETY: the CQ is alive, and libmlx5's.
        while let Some(wc) = unsafe { verbs::poll(theirs.peer_cq.as_raw()) }.unwrap() {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
        }
        for completion in peer_completions.poll_all(&mut receive) {
            assert!(matches!(completion, Ok(Completion::Receive(_))), "{completion:?}");
        }
    }
    for rings in [&our_rings, &their_rings] {
        assert!(lint::looked_at(rings) >= POSTS_OF_CASE, "the lint saw what was posted");
    }
}

#[test]
fn requests_leave_the_same_bytes_as_libmlx5() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = rig.memory(MEMORY);
    let bytes = random.bytes(4096);
    for case in 0..POSTS / POSTS_OF_CASE {
        twins(&rig, &mut random, &memory, &bytes, case % 6 == 1);
    }
}

/// Payload of which each block of the WQE but the first begins as a WQE of this queue pair does; the
/// payload begins `before` bytes into a WQE at `counter`.
fn disguised(length: usize, before: usize, counter: u16, qpn: u32, random: &mut Random) -> Vec<u8> {
    let mut payload = match random.below(3) {
        0 => vec![2; length],
        _ => random.bytes(length),
    };
    for block in (1..).take_while(|block| block * 64 < before + length) {
        let mut ctrl = vec![0];
        ctrl.extend(counter.wrapping_add(block as u16).to_be_bytes());
        ctrl.push([0x00, 0x08, 0x0a][random.below(3) as usize]);
        ctrl.extend((qpn << 8 | random.below(5)).to_be_bytes());
        // Of the last one there may only be a part, and the rest of its block is of an earlier lap.
        for (place, byte) in payload[block * 64 - before..].iter_mut().zip(ctrl) {
            *place = byte;
        }
    }
    payload
}

#[test]
fn inline_payload_of_any_size_and_content_is_posted_and_found_right_by_the_lint() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let mut random = Random::new();
    let memory = rig.memory(MEMORY);
    let shape =
        Shape { max_send_wr: 64, max_sge: 1, max_inline: 400, signal_all: false, domain: true };
    let (theirs, ours) = (line(&rig, &shape), line(&rig, &shape));
    let mut completions = CqReader::new(&ours.cq).unwrap();
    let mut queue = SendQueue::new(&ours.qp, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: the QPs live to the end of the function.
    let rings = [&theirs, &ours].map(|line| unsafe { QpMemory::new(line.qp.as_raw()) });
    assert!(rings.iter().all(|rings| rings.dv.sq.wqe_cnt >= 512), "small enough to look alike");
    let limit = max_inline(&ours.qp);
    let remote = memory.remote(0).unwrap();
    let mut head = 0u16;
    // Some ten laps.
    for id in 0..1500 {
        // Around the ends of blocks, above all.
        let length = match random.one_in(2) {
            true => random.below(limit + 1),
            false => (random.below(6) * 64 + 26 + random.below(12)).min(limit),
        } as usize;
        let sends = random.one_in(2);
        let before = if sends { 20 } else { 36 };
        let [their_bytes, our_bytes] = [&theirs, &ours]
            .map(|line| disguised(length, before, head, line.qp.number(), &mut random));
        if sends {
            for peer in [&theirs.peer, &ours.peer] {
                let list = [memory.sge(0, RECEIVE).unwrap()];
                // SAFETY: QP and memory live to the end.
                unsafe { verbs::post_receive(peer.as_raw(), id, &list) }.unwrap();
            }
        }
        let address = their_bytes.as_ptr().expose_provenance() as u64;
        let request = Request {
            id,
            opcode: if sends { wr::IBV_WR_SEND } else { wr::IBV_WR_RDMA_WRITE },
            list: vec![Sge::new(address, length as u32, 0)],
            inline: true,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (remote.addr, remote.rkey),
            imm: 0,
            compare: 0,
            swap_add: 0,
        };
        // SAFETY: QP and memory live to the end; inline data is copied.
        unsafe {
            verbs::post_send(theirs.qp.as_raw(), &[request]).unwrap();
            let payload = mlx5::wqe::Inline(&our_bytes);
            match (sends, random.one_in(2)) {
                (true, true) => queue.post(id, SendMessage::new(payload).signaled()).unwrap(),
                (false, true) => {
                    queue.post(id, RdmaWrite::new(payload, remote).signaled()).unwrap()
                }
                (true, false) => {
                    let mut batch = queue.batch();
                    batch.append(id, SendMessage::new(payload).signaled()).unwrap();
                    batch.ring();
                }
                (false, false) => {
                    let mut batch = queue.batch();
                    batch.append(id, RdmaWrite::new(payload, remote).signaled()).unwrap();
                    batch.ring();
                }
            }
        }
        // Looking at a ring is what has the lint go over it.
        let [their_ring, our_ring] = [0, 1].map(|side: usize| rings[side].send_ring());
        let at = usize::from(head) * 64 % our_ring.len();
        assert_eq!(their_ring[at + 7], our_ring[at + 7], "post {id} of {length} bytes");
        head = head.wrapping_add(u16::from(our_ring[at + 7]).div_ceil(4));
        assert_eq!(drain(&theirs), [id], "{length} bytes");
        let drained =
            completions.poll_all(&mut queue).map(|completion| match completion.unwrap() {
                Completion::Send(done) => done.id,
                other => panic!("{other:?}"),
            });
        assert_eq!(drained.collect::<Vec<_>>(), [id], "{length} bytes");
        for peer in [&theirs, &ours] {
            // SAFETY: the CQ is alive, and libmlx5's.
            while let Some(wc) = unsafe { verbs::poll(peer.peer_cq.as_raw()) }.unwrap() {
                assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            }
        }
    }
    for rings in &rings {
        assert!(lint::looked_at(rings) >= 1500, "the lint saw what was posted");
    }
}
