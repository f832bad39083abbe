//! Receives of shared receive queues by `ibv_post_srq_recv` and by this crate, which complete in any
//! order: the card fetches the same bytes in the same order, and both get the same ids. This crate's
//! queue is made by verbs, or it and the queue pairs that take from it by command.
//!
//! Compared is the whole list, with the memory behind it, but for one field: libmlx5 links a WQE to
//! the next as soon as that one is free, this crate when the first of the two is posted. So the links
//! of WQEs that are not posted are left out; those of all that are posted are equal.

use std::collections::VecDeque;

use mlx5::cqe::Completion;
use mlx5::devx::{self, Umem};
use mlx5::expert::{ReceiveSource, SharedReceiveSource};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, Srq};
use mlx5::verbs::attr::CqeSize;
use mlx5::verbs::{CompletionQueue, MemoryRegion, Pages, QueuePair, Rts, SharedReceiveQueue};
use mlx5::wqe::Sge;
use mlx5_sys::verbs::{ibv_wc_status, ibv_wr_opcode};
use rig::stores;

use rig::Rig;
use rig::random::Random;
use rig::verbs::{self, CqMemory, Request, SrqMemory};

const MEMORY: usize = 1 << 16;
const LONGEST: u32 = 3000;

/// A shared receive queue, and peers that send to queue pairs that take from it.
struct Line<Q, T> {
    srq: Q,
    memory: SrqMemory,
    cq: CompletionQueue,
    /// Queue pairs that take, and their peers with the peers' CQ.
    takers: Vec<T>,
    peers: Vec<(QueuePair<Rc, Rts>, CompletionQueue)>,
    /// The memory of the queue, if it was placed.
    _umem: Option<Umem>,
}

type ByVerbs = Line<SharedReceiveQueue, QueuePair<Rc, Rts>>;
type ByCommand = Line<SharedReceiveQueue<devx::Firmware>, QueuePair<Rc, Rts, devx::Firmware>>;

const PEERS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Shape {
    max_wr: u32,
    max_sge: u32,
    cqe_size: CqeSize,
}

fn cq(rig: &Rig, shape: &Shape) -> CompletionQueue {
    CompletionQueue::builder(&rig.context, 2047).cqe_size(shape.cqe_size).build().unwrap()
}

fn by_verbs(rig: &Rig, shape: &Shape) -> ByVerbs {
    let cq = cq(rig, shape);
    let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(shape.max_wr).max_sge(shape.max_sge);
    let srq = srq.build().unwrap();
    let (mut takers, mut peers) = (vec![], vec![]);
    for _ in 0..PEERS {
        let taker = rig.init(QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&srq));
        let peer_cq = rig.cq(255);
        let (taker, peer) = rig.connect(taker, rig.init(QueuePair::builder(&rig.pd, &peer_cq)));
        takers.push(taker);
        peers.push((peer, peer_cq));
    }
    // SAFETY: the SRQ lives as long as the line.
    let memory = unsafe { SrqMemory::new(srq.as_raw()) };
    Line { srq, memory, cq, takers, peers, _umem: None }
}

/// The peers are by verbs, as they post by libmlx5.
fn by_command(rig: &Rig, shape: &Shape) -> ByCommand {
    let cq = cq(rig, shape);
    let umem = Umem::new(&rig.context, Pages::new(32 << 10).unwrap()).unwrap();
    let srq = SharedReceiveQueue::by_command(&rig.pd).max_wr(shape.max_wr);
    let srq = srq.max_sge(shape.max_sge).record(&umem, 0).ring(&umem, 4096).build().unwrap();
    let (mut takers, mut peers) = (vec![], vec![]);
    for _ in 0..PEERS {
        let taker = QueuePair::by_command(&rig.pd, &cq).shared_receive_queue(&srq);
        let taker = taker.build().unwrap().init(&rig.local.init()).unwrap();
        let peer_cq = rig.cq(255);
        let peer = rig.init(QueuePair::builder(&rig.pd, &peer_cq));
        let ends =
            [taker.number(), peer.number()].map(|number| rig.local.connection_data_of(number));
        let taker = taker.rtr(&rig.local.rtr(&ends[0], &ends[1])).unwrap();
        takers.push(taker.rts(&rig.local.rts(&ends[0], &ends[1])).unwrap());
        let peer = peer.rtr(&rig.local.rtr(&ends[1], &ends[0])).unwrap();
        peers.push((peer.rts(&rig.local.rts(&ends[1], &ends[0])).unwrap(), peer_cq));
    }
    let (wqes, stride) = (srq.capacity() as usize + 1, (srq.max_sge() as usize + 1) * 16);
    // SAFETY: the umem lives as long as the line.
    let memory = unsafe { SrqMemory::placed(&umem, stride, wqes) };
    Line { srq, memory, cq, takers, peers, _umem: Some(umem) }
}

impl<Q, T> Line<Q, T> {
    fn send(&self, peer: usize, sge: Sge) {
        let request = Request {
            id: 0,
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
        };
        let (qp, cq) = &self.peers[peer];
        // SAFETY: QPs, CQs and memory live to the end.
        unsafe {
            verbs::post_send(qp.as_raw(), &[request]).unwrap();
            let done = verbs::poll(cq.as_raw()).unwrap().expect("the model sends at once");
            assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
        }
    }

    /// The list's bytes without the links of WQEs that are not posted.
    fn bytes(&self, posted: &[bool]) -> Vec<u8> {
        let stride = self.memory.stride;
        let mut list = self.memory.list();
        for (wqe, posted) in list.chunks_exact_mut(stride).zip(posted) {
            if !posted {
                wqe[2..4].fill(0);
            }
        }
        list
    }
}

struct Case<'a> {
    random: &'a mut Random,
    region: &'a MemoryRegion,
}

impl Case<'_> {
    /// An entry that is not empty: libmlx5 has one of length 0 say 2 GiB here.
    fn sge(&mut self, longest: u32) -> Sge {
        let length = 1 + self.random.below(longest);
        let offset = self.random.below(MEMORY as u32 - length);
        self.region.sge(offset as usize, length as usize).unwrap()
    }

    /// A receive of at least [`LONGEST`] bytes.
    fn receive(&mut self, max_sge: u32) -> Vec<Sge> {
        let short = self.random.below(max_sge);
        let mut list: Vec<_> = (0..short).map(|_| self.sge(40)).collect();
        let offset = self.random.below(MEMORY as u32 - LONGEST);
        list.push(self.region.sge(offset as usize, LONGEST as usize).unwrap());
        list
    }
}

fn shape(random: &mut Random) -> Shape {
    let shape = Shape {
        max_wr: 1 + random.below(70),
        max_sge: 1 + random.below(6),
        cqe_size: [CqeSize::B64, CqeSize::B128][random.below(2) as usize],
    };
    println!("{shape:?}");
    shape
}

fn twins<Q: SharedReceiveSource, T: ReceiveSource>(
    theirs: &ByVerbs,
    ours: &Line<Q, T>,
    random: &mut Random,
    region: &MemoryRegion,
    posts: u64,
) {
    let mut completions = CqReader::new(&ours.cq).unwrap();
    let mut queue = Srq::new(&ours.srq, &mut completions, ReceiveConfig::default()).unwrap();
    for taker in &ours.takers {
        queue.attach(taker, &mut completions).unwrap();
    }
    assert_eq!(queue.capacity(), theirs.srq.capacity());
    // SAFETY: the CQs live to the end.
    let rings = unsafe { [CqMemory::new(theirs.cq.as_raw()), CqMemory::new(ours.cq.as_raw())] };
    let mut case = Case { random, region };
    let mut posted = vec![false; ours.memory.wqes];
    let mut free: VecDeque<u16> = (0..=queue.capacity() as u16).collect();
    let (mut next, mut taken, mut disorder) = (0u64, 0usize, 0);
    while next < posts {
        let count = case.random.below(queue.free().min(8) + 1);
        let receives: Vec<_> = (0..count)
            .map(|_| {
                next += 1;
                (next, case.receive(queue.max_sge()))
            })
            .collect();
        stores::take();
        if count != 0 {
            // SAFETY: SRQs and memory live to the end.
            unsafe { verbs::post_shared(theirs.srq.as_raw(), &receives) }.unwrap();
        }
        let mut batch = queue.batch();
        for (id, list) in &receives {
            match list[..] {
                [one] => batch.append(*id, one).unwrap(),
                _ => batch.append(*id, list.as_slice()).unwrap(),
            }
        }
        // SAFETY: SRQs and memory live to the end.
        unsafe { batch.ring() };
        assert!(stores::take().is_empty(), "receives ring no register");
        for slot in free.drain(..count as usize) {
            posted[usize::from(slot)] = true;
        }
        assert_eq!(ours.memory.record(), theirs.memory.record());
        assert_eq!(
            ours.bytes(&posted),
            theirs.bytes(&posted)[..ours.memory.wqes * ours.memory.stride],
            "after {receives:#x?}"
        );

        // At most as many messages as posted receives, and equally many on both lines.
        let messages = case.random.below(queue.outstanding() + 1) as usize;
        for _ in 0..messages {
            let (peer, sge) = (case.random.below(PEERS as u32) as usize, case.sge(LONGEST));
            theirs.send(peer, sge);
            ours.send(peer, sge);
        }
        // Their completions come in any order.
        for at in (1..messages).rev() {
            let other = case.random.below(at as u32 + 1) as usize;
            disorder += u32::from(other != at);
            for ring in &rings {
                swap(ring, taken + at, taken + other);
            }
        }
        for at in taken..taken + messages {
            let entry = rings[1].entry(at % rings[1].dv.cqe_cnt as usize);
            let slot = &entry[entry.len() - 4..entry.len() - 2];
            let slot = u16::from_be_bytes(slot.try_into().unwrap());
            posted[usize::from(slot)] = false;
            free.push_back(slot);
            // SAFETY: the CQ is alive, and libmlx5's.
            let wc = unsafe { verbs::poll(theirs.cq.as_raw()) }.unwrap().expect("as many");
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            match completions.poll(&mut queue) {
                Ok(Some(Completion::Receive(done))) => {
                    assert_eq!((done.id, done.byte_len), (wc.wr_id, wc.byte_len));
                }
                other => panic!("{other:?}"),
            }
        }
        taken += messages;
        assert_eq!(
            ours.bytes(&posted),
            theirs.bytes(&posted)[..ours.memory.wqes * ours.memory.stride],
            "after {messages} messages"
        );
    }
    assert!(disorder > 0 || queue.capacity() == 1);
}

/// Exchanges two CQEs, but for their owner bits.
fn swap(ring: &CqMemory, first: usize, second: usize) {
    let slots = [first, second].map(|index| index % ring.dv.cqe_cnt as usize);
    let [mut one, mut other] = slots.map(|slot| ring.entry(slot));
    let last = one.len() - 1;
    let owners = (one[last] ^ other[last]) & 1;
    one[last] ^= owners;
    other[last] ^= owners;
    ring.write(slots[0], &other);
    ring.write(slots[1], &one);
}

#[test]
fn receives_leave_the_same_bytes_as_libmlx5_whatever_completes_first() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    let region = rig.memory(MEMORY);
    for _ in 0..12 {
        let shape = shape(&mut random);
        let (theirs, ours) = (by_verbs(&rig, &shape), by_verbs(&rig, &shape));
        twins(&theirs, &ours, &mut random, &region, 300);
    }
}

#[test]
fn so_they_do_in_a_queue_that_was_made_by_command() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    let region = rig.memory(MEMORY);
    for _ in 0..12 {
        let shape = shape(&mut random);
        let (theirs, ours) = (by_verbs(&rig, &shape), by_command(&rig, &shape));
        twins(&theirs, &ours, &mut random, &region, 300);
    }
}
