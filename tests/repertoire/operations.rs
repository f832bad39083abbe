//! Atomics under masks, copies by the card, steering of other queues, and WQEs given as bytes, on
//! reliable connections: in one process, and atomics between two.

use mlx5::connect::Connection;
use mlx5::cqe::{Completion, ReceiveKind, SendOperation, Status};
use mlx5::endpoint::{Endpoint, MrSlice, Receiver};
use mlx5::expert::RawWqe;
use mlx5::ib::{Rc, Uc};
use mlx5::ring::{CqReader, PostError, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::QueuePair;
use mlx5::wqe::{Bits, DmaMemcpy, MaskedCompareSwap, MaskedFetchAdd, Number, Remote, Sge, Word};
use mlx5_model::Mode;

use crate::processes::with_peer;
use rig::Side;
use rig::{Rig, all_rights, wait};

/// Offsets of the old values of atomics, and of the numbers.
const OLD: usize = 1 << 12;
const AT: usize = 64;

fn word(side: &Side<Rc>, offset: usize) -> Word {
    let sge = side.sge(offset, 64);
    Word::new(sge.addr, sge.lkey)
}

/// Adds to and swaps in a number of the peer's memory, and looks at what is there then.
///
/// `bytes` is how a number lies in the peer's memory, `returned` how the old one comes back.
fn number<N: Number>(
    value: impl Fn(u64) -> N,
    bytes: impl Fn(N) -> Vec<u8>,
    returned: impl Fn(N) -> Vec<u8>,
) {
    let rig = Rig::new(Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Rc>().sides();
    let size = bytes(value(0)).len();
    b.memory.write(AT, &bytes(value(40)));
    let (old, at) = (word(&a, OLD), b.remote(AT));
    let check = |a: &mut Side<Rc>, b: &Side<Rc>, operation: SendOperation, was: u64, is: u64| {
        let Completion::Send(done) = a.wait() else { panic!("{operation:?}") };
        assert_eq!((done.operation, done.byte_len), (operation, size as u32));
        assert_eq!(a.memory.to_vec(OLD, size), returned(value(was)));
        assert_eq!(b.memory.to_vec(AT, size), bytes(value(is)));
        assert_eq!(
            (b.memory.to_vec(AT - 8, 8), b.memory.to_vec(AT + size, 32)),
            (vec![0; 8], vec![0; 32])
        );
    };
    let (add, swap) = (SendOperation::MaskedFetchAdd, SendOperation::MaskedCompareSwap);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        a.send.post(1, MaskedFetchAdd::new(old, at, value(2)).signaled()).unwrap();
        check(&mut a, &b, add, 40, 42);
        // 0xffff + 1 stays in the lower 16 bits where those are a field.
        b.memory.write(AT, &bytes(value(0x1_ffff)));
        let fields = MaskedFetchAdd::new(old, at, value(0x1_0001)).fields(value(0x8000));
        a.send.post(2, fields.signaled()).unwrap();
        check(&mut a, &b, add, 0x1_ffff, 0x2_0000);
        // Compared in the upper half alone, replaced in the lower alone.
        let compare = Bits::new(value(0x2_5555), value(0xf_0000));
        let put = Bits::new(value(0xffff_1234), value(0xffff));
        let request = MaskedCompareSwap::new(old, at, compare, put).signaled();
        a.send.post(3, request).unwrap();
        check(&mut a, &b, swap, 0x2_0000, 0x2_1234);
        let other = Bits::new(value(0x3_0000), value(0xf_0000));
        a.send.post(4, MaskedCompareSwap::new(old, at, other, put).signaled()).unwrap();
        check(&mut a, &b, swap, 0x2_1234, 0x2_1234);
        let always = MaskedCompareSwap::new(old, at, Bits::none(), Bits::all(value(7)));
        a.send.post(5, always.fenced().signaled()).unwrap();
        check(&mut a, &b, swap, 0x2_1234, 7);
        // Round the end of the ring, many times.
        for id in 0..500 {
            a.send.post(id, MaskedFetchAdd::new(old, at, value(1)).signaled()).unwrap();
            check(&mut a, &b, add, 7 + id, 8 + id);
        }
    }
}

#[test]
fn atomics_under_masks_of_each_size() {
    let four = |value| value as u32;
    number(four, |number| number.to_ne_bytes().into(), |number| number.to_be_bytes().into());
    let host = |number: u64| number.to_ne_bytes().into();
    number(|value| value, host, host);
    let network = |number: u128| number.to_be_bytes().into();
    number(u128::from, network, network);
    let halves = |number: [u128; 2]| number.map(u128::to_be_bytes).concat();
    number(|value| [0, value.into()], halves, halves);
}

#[test]
fn the_old_value_comes_in_the_cqe_where_the_queue_pair_says_so() {
    let rig = Rig::new(Mode::Trapped);
    // libmlx5 has a card put answers into CQEs where every request is signaled.
    let cqs = [rig.cq(64), rig.cq(64)];
    let [first, second] =
        cqs.each_ref().map(|cq| rig.init(QueuePair::builder(&rig.pd, cq).signal_all(true)));
    let (first, _second) = rig.connect(first, second);
    let mut completions = CqReader::new(&cqs[0]).unwrap();
    let mut send = SendQueue::new(&first, &mut completions, SendConfig::default()).unwrap();
    let mut memory = rig.memory(4096);
    let (old, at) = (memory.word(1024).unwrap(), memory.remote(0).unwrap());
    memory.write(0, &0x11u128.to_be_bytes());
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        send.post(1, MaskedFetchAdd::new(old, at, 0x22u128)).unwrap();
        let Completion::Send(_) = wait(&mut completions, &mut send) else { panic!("it fails") };
        let swap = MaskedCompareSwap::new(
            Word::new(old.addr + 64, old.lkey),
            at,
            Bits::all([0x33 << 64, 0]),
            Bits::none(),
        );
        send.post(2, swap).unwrap();
        let Completion::Send(_) = wait(&mut completions, &mut send) else { panic!("it fails") };
    }
    let mut found = [0; 96];
    memory.read(1024, &mut found);
    assert_eq!(found[..16], 0x11u128.to_be_bytes());
    assert_eq!(found[64..80], 0x33u128.to_be_bytes());
}

#[test]
fn atomics_under_masks_fail_as_others_do() {
    let add = |a: &Side<Rc>, at| MaskedFetchAdd::new(word(a, OLD), at, 1u128).signaled();
    type Spoil = fn(Remote) -> Remote;
    let cases: [(Spoil, Status); 3] = [
        (|at| at.offset(8), Status::RemoteInvalidRequest),
        (|at| Remote::new(at.addr, at.rkey ^ 0x100), Status::RemoteAccess),
        (|at| at.offset(1 << 20), Status::RemoteAccess),
    ];
    for (spoil, status) in cases {
        let rig = Rig::new(Mode::Trapped);
        let [mut a, b] = rig.pair::<Rc>().sides();
        let at = spoil(b.remote(AT));
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { a.send.post(9, add(&a, at)).unwrap() };
        let failure = a.failed();
        assert_eq!((failure.id, failure.status, failure.opcode), (9, status, 0x15));
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        assert_eq!(unsafe { a.send.post(10, add(&a, at)) }, Err(PostError::WrongState));
        assert_eq!(b.memory.to_vec(AT, 16), [0; 16]);
    }
}

#[test]
fn the_safe_layer_has_atomics_under_masks() {
    let rig = Rig::new(Mode::Trapped);
    let cq = rig.cq(64);
    let (first, second) = (
        rig.init(QueuePair::builder(&rig.pd, &cq)),
        rig.init(QueuePair::builder(&rig.pd, &rig.cq(64))),
    );
    let mut completions = CqReader::new(&cq).unwrap();
    let receiver = Receiver::new(&first, &mut completions, ReceiveConfig::default()).unwrap();
    let (first, _second) = rig.connect(first, second);
    let mut channel = Endpoint::new(first, receiver, completions, SendConfig::default()).unwrap();
    let memory = rig.memory(64);
    let at = memory.remote(0).unwrap();
    let old = |length| MrSlice::new(rig.pd.allocate(length, all_rights()).unwrap());
    let refused = channel.post(1, MaskedFetchAdd::new(old(15), at, 5u128).signaled()).unwrap_err();
    assert_eq!(refused.error, PostError::WordTooShort);
    drop(refused.operation.into_old());
    channel.post(2, MaskedFetchAdd::new(old(16), at, 5u128).signaled()).unwrap();
    let swap = MaskedCompareSwap::new(old(16), at, Bits::all(5u128), Bits::all(6));
    channel.post(3, swap.signaled()).unwrap();
    for (id, was) in [(2, 0u128), (3, 5)] {
        let returned = loop {
            match channel.poll().next() {
                Some(returned) => break returned.unwrap(),
                None => std::thread::yield_now(),
            }
        };
        assert_eq!(returned.id, id);
        assert_eq!(returned.buffers.one().unwrap().to_vec(), was.to_be_bytes());
    }
    let mut now = [0; 16];
    memory.read(0, &mut now);
    assert_eq!(u128::from_be_bytes(now), 6);
}

#[test]
fn the_card_copies_memory() {
    let rig = Rig::new(Mode::Trapped);
    let [mut a, _b] = rig.pair::<Rc>().sides();
    let bytes: Vec<u8> = (0..30_000u32).map(|at| (at % 251) as u8).collect();
    a.memory.write(0, &bytes);
    let notes = word(&a, 65_472);
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe {
        let copy = DmaMemcpy::new(a.sge(0, 30_000), word(&a, 32_000), notes);
        a.send.post(1, copy.signaled()).unwrap();
        assert_eq!(a.sent(), (1, SendOperation::DmaMemcpy));
        assert_eq!(a.memory.to_vec(32_000, 30_000), bytes);
        let nothing = DmaMemcpy::new(a.sge(0, 0), word(&a, 0), notes);
        assert_eq!(a.send.post(2, nothing), Err(PostError::NothingToCopy));
        let long = Sge { length: (1 << 31) + 1, ..a.sge(0, 1) };
        let long = DmaMemcpy::new(long, word(&a, 0), notes);
        let expected = PostError::SgeTooLong { bytes: (1 << 31) + 1 };
        assert_eq!(a.send.post(3, long), Err(expected));
        // A write to memory that the key does not allow.
        let elsewhere = Word::new(a.memory.address(), a.memory.lkey() ^ 0x100);
        a.send.post(4, DmaMemcpy::new(a.sge(0, 8), elsewhere, notes)).unwrap();
        let failure = a.failed();
        assert_eq!((failure.id, failure.status), (4, Status::LocalProtection));
    }
}

/// A ctrl segment without index and queue pair number, and what follows it.
fn bytes(modifier: u8, opcode: u8, flags: u8, imm: u32, segments: &[[u8; 16]]) -> Vec<u8> {
    let mut bytes = vec![modifier, 0xee, 0xee, opcode, 0xee, 0xee, 0xee, 1 + segments.len() as u8];
    bytes.extend([0, 0, 0, flags]);
    bytes.extend(imm.to_be_bytes());
    bytes.extend(segments.concat());
    bytes
}

fn pointer(sge: Sge) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&sge.length.to_be_bytes());
    segment[4..8].copy_from_slice(&sge.lkey.to_be_bytes());
    segment[8..].copy_from_slice(&sge.addr.to_be_bytes());
    segment
}

#[test]
fn wqes_given_as_bytes_are_executed() {
    let rig = Rig::new(Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Rc>().sides();
    a.memory.write(0, b"raw bytes");
    // SAFETY: these are WQEs of reliable connections, and memory is as above.
    unsafe {
        let send = bytes(0, 0x0b, 0x08, 0x1234, &[pointer(a.sge(0, 9))]);
        b.receive.post(1, b.sge(100, 64)).unwrap();
        a.send.post(2, RawWqe::new(&send).unwrap()).unwrap();
        let done = b.received();
        assert_eq!((done.kind, done.byte_len), (ReceiveKind::SendImm(0x1234), 9));
        assert_eq!(b.memory.to_vec(100, 9), b"raw bytes");
        assert_eq!(a.sent(), (2, SendOperation::SendImm));
        // Unsignaled as it is; of several blocks, round the ring, in one batch with others.
        for round in 0..100u8 {
            let list = [pointer(a.sge(0, 9)); 6];
            let long = bytes(0, 0x0a, 0, 0, &list);
            let nop = bytes(0, 0x00, 0, 0, &[]);
            b.receive.post(3, b.sge(200, 64)).unwrap();
            let mut batch = a.send.batch();
            batch.append(4, RawWqe::new(&long).unwrap()).unwrap();
            batch.append(5, RawWqe::new(&nop).unwrap().signaled()).unwrap();
            batch.ring();
            assert_eq!(b.received().byte_len, 54, "round {round}");
            assert_eq!(a.sent(), (5, SendOperation::Nop));
        }
        // With a modifier, which the completion does not have.
        let copy = [pointer(Sge { length: 0, ..a.sge(4096, 64) }), pointer(a.sge(0, 9))];
        let copy = bytes(1, 0x2f, 0x08, 0, &[copy[0], copy[1], pointer(a.sge(500, 9))]);
        a.send.post(6, RawWqe::new(&copy).unwrap()).unwrap();
        assert_eq!(a.sent(), (6, SendOperation::DmaMemcpy));
        assert_eq!(a.memory.to_vec(500, 9), b"raw bytes");
        // What no card knows.
        let unknown = bytes(0, 0x3e, 0, 0, &[]);
        a.send.post(7, RawWqe::new(&unknown).unwrap()).unwrap();
        let failure = a.failed();
        assert_eq!((failure.status, failure.opcode), (Status::LocalQpOperation, 0x3e));
    }
}

#[test]
fn wqes_given_as_bytes_are_executed_on_other_transports() {
    let rig = Rig::new(Mode::Trapped);
    let [mut a, mut b] = rig.pair::<Uc>().sides();
    a.memory.write(0, b"raw bytes");
    let mut c = rig.datagrams();
    // SAFETY: these are WQEs of the transports that they are posted on, and memory is as above.
    unsafe {
        b.receive.post(1, b.sge(100, 64)).unwrap();
        let send = bytes(0, 0x0a, 0x08, 0, &[pointer(a.sge(0, 9))]);
        a.send.post(2, RawWqe::new(&send).unwrap()).unwrap();
        assert_eq!((b.received().byte_len, b.memory.to_vec(100, 9)), (9, b"raw bytes".into()));
        assert_eq!(a.sent(), (2, SendOperation::Send));
        let nop = bytes(0, 0x00, 0x08, 0, &[]);
        c.send.post(4, RawWqe::new(&nop).unwrap()).unwrap();
        assert_eq!(c.sent(), (4, SendOperation::Nop));
        // What the transport does not have stops its send queue.
        let read = bytes(0, 0x10, 0, 0, &[[0; 16], pointer(c.sge(0, 9))]);
        c.send.post(5, RawWqe::new(&read).unwrap()).unwrap();
        let Completion::Failed(failure) = c.wait() else { panic!("a READ of a datagram") };
        assert_eq!((failure.status, failure.opcode), (Status::LocalQpOperation, 0x10));
    }
}

#[test]
fn bytes_that_are_no_wqe_are_refused() {
    let refused = |bytes: &[u8]| {
        // SAFETY: nothing is posted.
        unsafe { RawWqe::new(bytes) }.map(|_| ()).unwrap_err()
    };
    let good = bytes(0, 0, 0, 0, &[[0; 16]]);
    for length in [0, 8, 15, 17, 31] {
        assert_eq!(refused(&good[..length]), PostError::WqeLength);
    }
    assert_eq!(refused(&good[..16]), PostError::WqeSize);
    assert_eq!(refused(&[&good[..], &[0; 16]].concat()), PostError::WqeSize);
    assert_eq!(refused(&vec![0; 64 * 16]), PostError::WqeLength);
}

const ADDITIONS: u128 = 300;

/// Adds to a number of each size in the other process's memory, one by one.
fn count(rig: &Rig, mut connection: Connection) {
    let cq = rig.cq(64);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq));
    let mut completions = CqReader::new(&cq).unwrap();
    let memory = rig.memory(4096);
    let mut mine = rig.local.connection_data(&qp);
    mine.region = Some((&memory).into());
    let theirs = connection.exchange(&mine).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&mine, &theirs)).unwrap();
    let qp = qp.rts(&rig.local.rts(&mine, &theirs)).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    connection.barrier(1).unwrap();
    let region = theirs.region.unwrap();
    let at = Remote::new(region.address, region.rkey);
    let old = |bytes: usize| memory.word(1024 + bytes).unwrap();
    for id in 0..ADDITIONS as u64 {
        // SAFETY: memory lives to the end.
        unsafe {
            let mut batch = send.batch();
            batch.append(id, MaskedFetchAdd::new(old(0), at, 3u32)).unwrap();
            batch.append(id, MaskedFetchAdd::new(old(32), at.offset(64), 3u64)).unwrap();
            batch.append(id, MaskedFetchAdd::new(old(64), at.offset(128), 3u128)).unwrap();
            let wide = MaskedFetchAdd::new(old(96), at.offset(192), [0, 3u128]);
            batch.append(id, wide.signaled()).unwrap();
            batch.ring();
        }
        match wait(&mut completions, &mut send) {
            Completion::Send(done) => assert_eq!((done.id, done.byte_len), (id, 32)),
            other => panic!("{other:?}"),
        }
        let mut found = [0; 32];
        memory.read(1024 + 96, &mut found);
        assert_eq!(found[16..], (3 * u128::from(id)).to_be_bytes());
    }
    connection.barrier(2).unwrap();
    let mut found = [0; 256];
    memory.read(0, &mut found);
    let all = 3 * ADDITIONS;
    assert_eq!(found[..4], (all as u32).to_ne_bytes());
    assert_eq!(found[64..72], (all as u64).to_ne_bytes());
    assert_eq!(found[128..144], all.to_be_bytes());
    assert_eq!(found[192 + 16..192 + 32], all.to_be_bytes());
    connection.barrier(3).unwrap();
}

#[test]
fn two_processes_count_in_each_other() {
    let both = |rig: Rig, connection| count(&rig, connection);
    with_peer(two_processes_count_in_each_other, both, both);
}
