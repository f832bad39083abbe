//! Prepared requests, end to end on the model, which executes each doorbell in the store that rings
//! it. An unfired request must not reach the peer, a fired one must arrive in full, and the
//! register stores must be those of `docs/ordering.md`.

use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::expert::{BlueFlameCopy, UarMapping};
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, PostError, Prepared, Queues, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig,
    SendQueue,
};
use mlx5::verbs::{MemoryRegion, QueuePair, Rts, ThreadDomain};
use mlx5::wqe::{Field, Inline, InlineBytes, RdmaWrite, RdmaWriteImm, Remote};
use mlx5_model::Mode;
use mlx5_model::stores::{self, Store};
use rig::verbs::QpMemory;
use rig::{PATIENCE, Rig, wait};

const MEMORY: usize = 1 << 14;

type Eight = RdmaWrite<InlineBytes<8>>;

/// A requester, and the memory that it reaches.
struct Line {
    completions: CqReader,
    peer_completions: CqReader,
    peer_receive: ReceiveQueue,
    memory: MemoryRegion,
    qp: QueuePair<Rc, Rts>,
    _peer: QueuePair<Rc, Rts>,
}

impl Line {
    fn new(rig: &Rig) -> (Self, SendQueue) {
        Self::with(rig, SendConfig::default())
    }

    fn with(rig: &Rig, config: SendConfig) -> (Self, SendQueue) {
        let (cq, peer_cq) = (rig.cq(256), rig.cq(256));
        let builder = |cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(16).max_recv_wr(64);
            builder.max_inline_data(220).max_send_sge(2)
        };
        // A register of its own, so that BlueFlame is used.
        let domain = ThreadDomain::new(&rig.context).unwrap();
        let qp = rig.init(builder(&cq).thread_domain(&domain));
        let (qp, peer) = rig.connect(qp, rig.init(builder(&peer_cq)));
        let mut completions = CqReader::new(&cq).unwrap();
        let mut peer_completions = CqReader::new(&peer_cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, config).unwrap();
        let peer_receive =
            ReceiveQueue::new(&peer, &mut peer_completions, ReceiveConfig::default()).unwrap();
        let memory = rig.memory(MEMORY);
        let line = Self { completions, peer_completions, peer_receive, memory, qp, _peer: peer };
        (line, send)
    }

    fn remote(&self, offset: usize) -> Remote {
        self.memory.remote(offset).unwrap()
    }

    /// A signaled WRITE whose payload comes later.
    fn eight(&self, offset: usize) -> Eight {
        RdmaWrite::new(InlineBytes([0xee; 8]), self.remote(offset)).signaled()
    }
}

fn read<const N: usize>(memory: &MemoryRegion, offset: usize) -> [u8; N] {
    let mut bytes = [0; N];
    memory.read(offset, &mut bytes);
    bytes
}

fn sent<Q: Queues>(completions: &mut CqReader, queues: &mut Q) -> (u64, SendOperation) {
    match wait(completions, queues) {
        Completion::Send(done) => (done.id, done.operation),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_fired_arrives_in_order_and_nothing_else_does() {
    let rig = Rig::new(Mode::Trapped);
    let (mut line, send) = Line::new(&rig);
    let blocks = send.blocks();
    let mut prepared = Prepared::new(send);
    // Many laps of the ring, and past the wrap of the record's low byte and of what it counts.
    for id in 0..700_usize {
        let write = RdmaWrite::new(InlineBytes([0xee; 8]), line.remote(id * 8 % 4096));
        prepared.prepare(id as u64, write.signaled_if(id % 3 == 0)).unwrap();
        if id % 5 != 4 {
            continue;
        }
        for fired in id - 4..=id {
            prepared.fire(fired.to_le_bytes()).unwrap();
            assert_eq!(usize::from_le_bytes(read(&line.memory, fired * 8 % 4096)), fired);
            if fired % 3 == 0 {
                let done = sent(&mut line.completions, &mut prepared);
                assert_eq!(done, (fired as u64, SendOperation::Write));
            }
        }
    }
    assert!(blocks < 350, "more than one lap");
    assert_eq!(prepared.fire([0; 8]), Err(PostError::NothingPrepared));
    assert_eq!(line.completions.poll(&mut prepared), Ok(None));
}

/// Bytes of each store of a fired WQE to the register.
const WIDTH: usize = if cfg!(target_arch = "x86_64") { 16 } else { 8 };

#[test]
fn the_register_gets_a_whole_wqe_in_wide_ascending_stores() {
    stores_of_a_prepared_write::<8>();
    stores_of_a_prepared_write::<128>();
    stores_of_a_prepared_write::<220>();
}

/// A WRITE of `N` bytes, each byte of which is that of the number of the request.
fn stores_of_a_prepared_write<const N: usize>() {
    let _turn = crate::turn();
    let rig = Rig::new(Mode::Trapped);
    let (mut line, send) = Line::new(&rig);
    // SAFETY: the queue pair lives as long as `self`.
    let memory = unsafe { QpMemory::new(line.qp.as_raw()) };
    assert_ne!(memory.dv.bf.size, 0, "a BlueFlame register");
    let qpn = line.qp.number().to_be_bytes();
    let of_this = |stores: Vec<Store>| -> Vec<_> {
        let page = stores.iter().find(|store| store.bytes.get(4..7) == Some(&qpn[1..]));
        let page = page.expect("a doorbell").uar;
        let register = memory.dv.bf.reg.addr() % 4096;
        let mine = stores.into_iter().filter(|store| store.uar == page);
        mine.map(|store| (store.offset - register, store.bytes)).collect()
    };
    let _recording = stores::record();
    let mut prepared = Prepared::new(send);
    let write = RdmaWrite::new(InlineBytes([0xee; N]), line.remote(0)).signaled();
    // Two segments, the inline header, and the payload.
    let size = 36 + N;
    let blocks = size.div_ceil(64);
    let ring = memory.dv.sq.wqe_cnt as usize * 64;
    let (mut halves, mut wrapped) = (Vec::new(), 0);
    for id in 0..ring / 64 {
        prepared.prepare(id as u64, write).unwrap();
        drop(stores::take());
        prepared.fire([id as u8; N]).unwrap();
        let made = of_this(stores::take());
        let half = made[0].0;
        let start = id * blocks * 64 % ring;
        // A WQE that goes on at the ring's start goes to the register as after a post.
        let width = if start + blocks * 64 <= ring { WIDTH } else { 8 };
        wrapped += usize::from(start + blocks * 64 > ring);
        let places: Vec<_> = made.iter().map(|(at, bytes)| (at - half, bytes.len())).collect();
        let expected: Vec<_> = (0..blocks * 64).step_by(width).map(|at| (at, width)).collect();
        assert_eq!(places, expected);
        let wqe: Vec<u8> = made.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let at_rest = memory.send_ring();
        assert!((0..size).all(|at| wqe[at] == at_rest[(start + at) % ring]), "request {id}");
        assert_eq!(wqe[36..size], [id as u8; N]);
        assert_eq!(memory.record()[4..], (((id + 1) * blocks) as u32 & 0xffff).to_be_bytes());
        halves.push(half);
        assert_eq!(sent(&mut line.completions, &mut prepared), (id as u64, SendOperation::Write));
        assert_eq!(read(&line.memory, 0), [id as u8; N]);
    }
    assert!(halves.windows(2).all(|pair| pair[0] ^ pair[1] == memory.dv.bf.size as usize));
    assert_eq!(wrapped != 0, blocks == 3, "{N} bytes, {ring} of ring");
}

#[test]
fn a_prepared_write_with_immediate_reaches_the_peers_receive() {
    let rig = Rig::new(Mode::Trapped);
    let (mut line, send) = Line::new(&rig);
    let (remote, into) = (line.remote(0), line.memory.sge(12288, 64).unwrap());
    let mut prepared = Prepared::new(send);
    for round in 0..50_u8 {
        let (id, imm) = (u64::from(round), 1000 + u32::from(round));
        // SAFETY: the memory lives to the end, and is read after the receive completes.
        unsafe { line.peer_receive.post(id, into).unwrap() };
        let write = RdmaWriteImm::new(InlineBytes([0; 28]), remote, imm);
        prepared.prepare(id, write.signaled()).unwrap();
        let queues = &mut line.peer_receive;
        assert_eq!(line.peer_completions.poll(queues), Ok(None), "nothing is fired");
        prepared.fire([round; 28]).unwrap();
        let received = wait(&mut line.peer_completions, &mut line.peer_receive);
        let Completion::Receive(done) = received else { panic!("{received:?}") };
        assert_eq!((done.id, done.byte_len, done.kind), (id, 28, ReceiveKind::WriteImm(imm)));
        assert_eq!(read(&line.memory, 0), [round; 28]);
        let done = sent(&mut line.completions, &mut prepared);
        assert_eq!(done, (id, SendOperation::WriteImm));
    }
}

#[test]
fn what_is_fired_after_a_failure_is_flushed_until_that_is_seen() {
    let rig = Rig::new(Mode::Trapped);
    let (mut line, send) = Line::new(&rig);
    let (good, bad) = (line.remote(0), Remote::new(0, 0xdead_be00));
    let mut prepared = Prepared::new(send);
    for (id, remote) in [(1, good), (2, bad), (3, good), (4, good)] {
        prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote)).unwrap();
    }
    for byte in 1..=3 {
        prepared.fire([byte; 8]).unwrap();
    }
    for (id, status) in [(2, Status::RemoteAccess), (3, Status::Flushed)] {
        let completion = wait(&mut line.completions, &mut prepared);
        let Completion::Failed(failure) = completion else { panic!("{completion:?}") };
        assert_eq!((failure.id, failure.status), (id, status));
        assert_eq!(prepared.fire([4; 8]), Err(PostError::WrongState));
    }
    assert_eq!(read(&line.memory, 0), [1; 8]);
    // The way on: RESET, and everything anew.
    let Line { completions, memory, qp, .. } = line;
    drop((prepared, completions, qp));
    let (mut line, send) = Line::new(&rig);
    let remote = memory.remote(0).unwrap();
    let mut prepared = Prepared::new(send);
    prepared.prepare(9, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled()).unwrap();
    prepared.fire([9; 8]).unwrap();
    assert_eq!(sent(&mut line.completions, &mut prepared), (9, SendOperation::Write));
    assert_eq!(read(&memory, 0), [9; 8]);
}

/// The queue is taken back, or taken over anew, and overwrites what was prepared.
#[test]
fn what_is_not_fired_never_arrives() {
    let rig = Rig::new(Mode::Trapped);
    for dropped in [false, true] {
        let (mut line, send) = Line::new(&rig);
        let (other, operation) = (line.remote(64), SendOperation::Write);
        let mut prepared = Prepared::new(send);
        for id in 0..8 {
            prepared.prepare(id, line.eight(0)).unwrap();
        }
        prepared.fire([1; 8]).unwrap();
        assert_eq!(sent(&mut line.completions, &mut prepared), (0, operation));
        let mut send = if dropped {
            drop(prepared);
            SendQueue::new(&line.qp, &mut line.completions, SendConfig::default()).unwrap()
        } else {
            prepared.into_queue()
        };
        for id in 100..200 {
            let write = RdmaWrite::new(InlineBytes([2; 8]), other).signaled();
            // SAFETY: an inline payload names no memory of this side.
            unsafe { send.post(id, write).unwrap() };
            let done = sent(&mut line.completions, &mut send);
            assert_eq!(done, (id, operation), "dropped: {dropped}");
        }
        assert_eq!(line.completions.poll(&mut send), Ok(None));
        assert_eq!((read(&line.memory, 0), read(&line.memory, 64)), ([1; 8], [2; 8]));
    }
}

/// Of one block, whole; and of three, in fields.
#[test]
fn every_kind_of_register_is_told() {
    const PRICE: Field<40, 8> = Field;
    const QUANTITY: Field<99, 4> = Field;
    let rig = Rig::new(Mode::Trapped);
    let own = SendConfig::default();
    let mut configs = vec![SendConfig { register: RegisterUse::Shared, ..own }];
    // SAFETY: the model's register is not in write-combining memory.
    let memory = unsafe { UarMapping::uncached() };
    configs.push(SendConfig { memory, ..own });
    configs.extend(BlueFlameCopy::available().map(|copy| SendConfig { copy, ..own }));
    for config in configs {
        let (mut line, send) = Line::with(&rig, config);
        let write = RdmaWrite::new(InlineBytes([0; 8]), line.remote(0));
        let mut prepared = Prepared::new(send);
        for id in 0..300_u64 {
            prepared.prepare(id, write.signaled_if(id % 2 == 0)).unwrap();
            prepared.fire(id.to_le_bytes()).unwrap();
            assert_eq!(u64::from_le_bytes(read(&line.memory, 0)), id, "{config:?}");
            if id % 2 == 0 {
                assert_eq!(sent(&mut line.completions, &mut prepared), (id, SendOperation::Write));
            }
        }
        let mut prepared = Prepared::new(prepared.into_queue());
        let mut order: [u8; 130] = core::array::from_fn(|at| at as u8);
        let write = RdmaWrite::new(InlineBytes(order), line.remote(0)).signaled();
        for id in 0..100_u64 {
            prepared.prepare(id, write).unwrap();
            let [price, quantity] = [id.to_le_bytes(), (!id).to_le_bytes()];
            let quantity = quantity[..4].try_into().unwrap();
            prepared.fire((PRICE.with(price), QUANTITY.with(quantity))).unwrap();
            order[40..48].copy_from_slice(&price);
            order[99..103].copy_from_slice(&quantity);
            assert_eq!(read(&line.memory, 0), order, "{config:?}");
            assert_eq!(sent(&mut line.completions, &mut prepared), (id, SendOperation::Write));
        }
    }
}

/// Unsignaled prepared requests reserve CQ slots, but bring no CQE: a drain posts the marker that
/// does.
#[test]
fn unsignaled_prepared_requests_are_drained() {
    let rig = Rig::new(Mode::Trapped);
    let (mut line, mut send) = Line::new(&rig);
    let write = RdmaWrite::new(InlineBytes([0; 8]), line.remote(0));
    for (round, last) in [None, Some(false), Some(true)].into_iter().enumerate() {
        let mut prepared = Prepared::new(send);
        for id in 0..6_u64 {
            prepared.prepare(id, write).unwrap();
            prepared.fire(id.to_le_bytes()).unwrap();
        }
        send = prepared.into_queue();
        // A request of two blocks is the last of some.
        if let Some(signaled) = last {
            let long = RdmaWrite::new(Inline(&[7; 100]), line.remote(64)).signaled_if(signaled);
            // SAFETY: an inline payload names no memory of this side.
            unsafe { send.post(6, long) }.unwrap();
        }
        let silent = last != Some(true);
        assert_eq!((send.is_silent(), send.is_idle()), (silent, false), "round {round}");
        let mut found = Vec::new();
        let drained =
            line.completions.drain_sends(&mut send, &mut (), 77, PATIENCE, |done| match done {
                Completion::Send(done) => found.push(done.id),
                other => panic!("{other:?}"),
            });
        assert_eq!(drained, Ok(()), "round {round}");
        assert_eq!(found, if silent { vec![] } else { vec![6] }, "round {round}");
        assert!(send.is_idle() && !send.is_silent());
        assert_eq!(u64::from_le_bytes(read(&line.memory, 0)), 5);
    }
}
