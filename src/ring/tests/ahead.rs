//! Requests of any type that were written ahead and fired, beside the same ones posted on a twin queue: the same
//! bytes in the ring, the same record, the same stores to the register.

use std::collections::VecDeque;

use mlx5_diag::text::Addressing;

use super::prepared::{Twin, same};
use super::*;
use crate::cqe::{Completion, Status};
use crate::expert::{Ahead, Change};
use crate::ib::{Dci, RawPacket, Ud, XrcSend};
use crate::ring::random::{Random, rounds};
use crate::ring::{Excess, PostError};
use crate::wqe::{
    CompareSwap, DcAddress, EthSend, EthTso, Inline, Nop, RdmaRead, RdmaWrite, RdmaWriteImm,
    Remote, SendImm, SendInvalidate, SendMessage, Sge, UdAddress, Word, XrcAddress,
};

/// The longest inline payload: more than a register takes.
const LONGEST: u32 = 300;

/// Returns a value without requests.
fn ahead() -> Ahead {
    // SAFETY: each test calls it with one queue, which it does not use otherwise meanwhile.
    unsafe { Ahead::new() }
}

fn twin<T: Transport>(blocks: u32, cqes: u32, start: u32) -> Twin<T> {
    let mut made = Twin::of(blocks, cqes, start, HALF);
    made.sq.queue.ring.limits.max_inline = LONGEST;
    made
}

/// A request of a reliable connection, which owns its payload.
#[derive(Clone, Debug)]
enum Request {
    Write(Vec<u8>, Remote),
    WriteImm(Vec<u8>, Remote, u32),
    Send(Vec<u8>),
    Pointer(Vec<Sge>, Remote),
    Read(Sge, Remote),
    Swap(Remote, u64),
    Nop,
}

impl Request {
    fn any(random: &mut Random) -> Self {
        let remote = Remote::new(random.next(), random.next() as u32);
        let longest = if random.below(3) == 0 { LONGEST } else { 40 };
        let length = random.below(longest + 1);
        let bytes = (0..length).map(|_| random.next() as u8).collect();
        let sge = Sge::new(random.next(), 1 + random.below(1000), random.next() as u32);
        match random.below(7) {
            0 => Self::Write(bytes, remote),
            1 => Self::WriteImm(bytes, remote, random.next() as u32),
            2 => Self::Send(bytes),
            3 => Self::Pointer(vec![sge; 1 + random.below(8) as usize], remote),
            4 => Self::Read(sge, remote),
            5 => Self::Swap(remote, random.next()),
            _ => Self::Nop,
        }
    }

    /// The inline payload.
    fn payload(&mut self) -> Option<&mut Vec<u8>> {
        match self {
            Self::Write(bytes, _) | Self::WriteImm(bytes, ..) | Self::Send(bytes) => Some(bytes),
            _ => None,
        }
    }

    const fn opcode(&self) -> u8 {
        match self {
            Self::Write(..) | Self::Pointer(..) => 0x08,
            Self::WriteImm(..) => 0x09,
            Self::Send(_) => 0x0a,
            Self::Read(..) => 0x10,
            Self::Swap(..) => 0x11,
            Self::Nop => 0,
        }
    }
}

/// Calls a method with the operation of a request.
macro_rules! with_operation {
    ($request:expr, $signaled:expr, |$operation:ident| $body:expr) => {
        match $request {
            Request::Write(bytes, remote) => {
                let $operation = RdmaWrite::new(Inline(bytes), *remote).signaled_if($signaled);
                $body
            }
            Request::WriteImm(bytes, remote, imm) => {
                let write = RdmaWriteImm::new(Inline(bytes), *remote, *imm);
                let $operation = write.signaled_if($signaled);
                $body
            }
            Request::Send(bytes) => {
                let $operation = SendMessage::new(Inline(bytes)).signaled_if($signaled);
                $body
            }
            Request::Pointer(list, remote) => {
                let write = RdmaWrite::new(list.as_slice(), *remote);
                let $operation = write.signaled_if($signaled);
                $body
            }
            Request::Read(sge, remote) => {
                let $operation = RdmaRead::new(*sge, *remote).signaled_if($signaled);
                $body
            }
            Request::Swap(remote, value) => {
                let swap = CompareSwap::new(Word::new(0x1000, 1), *remote, *value, !*value);
                let $operation = swap.signaled_if($signaled);
                $body
            }
            Request::Nop => {
                let $operation = Nop::new().signaled_if($signaled);
                $body
            }
        }
    };
}

fn prepare(
    ahead: &mut Ahead,
    queue: &mut SendQueue,
    id: u64,
    request: &Request,
    signaled: bool,
) -> Result<(), PostError> {
    with_operation!(request, signaled, |operation| ahead.prepare(queue, id, operation))
}

fn post(queue: &mut SendQueue, id: u64, request: &Request, signaled: bool) {
    // SAFETY: no HCA is there.
    with_operation!(request, signaled, |operation| unsafe { queue.post(id, operation) }).unwrap();
}

/// Changes a payload at up to three places. Returns the changes, by place and bytes.
fn changes(payload: &mut [u8], random: &mut Random) -> Vec<(usize, Vec<u8>)> {
    let mut made = Vec::new();
    for _ in 0..random.below(4) {
        let at = random.below(payload.len() as u32 + 1) as usize;
        let length = random.below((payload.len() - at) as u32 + 1) as usize;
        let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
        payload[at..at + length].copy_from_slice(&bytes);
        made.push((at, bytes));
    }
    made
}

/// Compares what both twins have stored since the last call.
fn stored<T: Transport>(plain: &Sq<T>, other: &Sq<T>, of: Addressing, what: &str) {
    same((&other.buffer, &other.record, &other.page), plain, 0, of, what);
    // A doorbell leaves what the last WQE has left there.
    for sq in [plain, other] {
        sq.page.write(0, &vec![0; sq.page.bytes]);
    }
}

/// Fires with these changes.
fn fire<T: Transport>(
    ahead: &mut Ahead,
    queue: &mut SendQueue<T>,
    changes: &[(usize, Vec<u8>)],
) -> Result<(), PostError> {
    let changes = changes.iter().map(|(at, bytes)| Change::new(*at, bytes));
    // SAFETY: no HCA is there.
    unsafe { ahead.fire(queue, changes) }
}

/// Requests of all types between posts, where some of those written ahead are forgotten.
#[test]
fn requests_written_ahead_are_as_if_they_had_been_posted() {
    let mut random = Random::from_clock();
    let (mut fired, mut cancelled) = (0, 0);
    for round in 0..rounds(60) {
        let blocks = 16 << random.below(3);
        let start = if round % 2 == 0 { random.below(0x1_0000) } else { 0x1_0000 - 3 };
        let cqes = if random.below(3) == 0 { 4 } else { 64 };
        let what = format!("round {round}, seed {}", random.seed());
        let mut plain = twin::<Rc>(blocks, cqes, start);
        let mut other = twin::<Rc>(blocks, cqes, start);
        let (mut ahead, mut waiting, mut id) = (ahead(), VecDeque::new(), 0);
        for _ in 0..rounds(40) {
            for _ in 0..1 + random.below(4) {
                let (mut request, signaled) = (Request::any(&mut random), random.below(2) == 0);
                match prepare(&mut ahead, &mut other.sq.queue, id, &request, signaled) {
                    Ok(()) => {
                        let filled = request.payload().map(|bytes| changes(bytes, &mut random));
                        waiting.push_back((id, filled.unwrap_or_default(), request, signaled));
                    }
                    Err(
                        PostError::QueueFull { .. }
                        | PostError::CqFull { .. }
                        | PostError::NothingSignaled { .. },
                    ) => break,
                    Err(error) => panic!("{error}, {what}"),
                }
                id += 1;
            }
            assert_eq!(ahead.len() as usize, waiting.len(), "{what}");
            for _ in 0..random.below(waiting.len() as u32 + 1) {
                let (id, filled, request, signaled) = waiting.pop_front().unwrap();
                let head = plain.sq.queue.ring.head();
                ahead.warm(&mut other.sq.queue);
                fire(&mut ahead, &mut other.sq.queue, &filled).unwrap();
                post(&mut plain.sq.queue, id, &request, signaled);
                stored(
                    &plain.sq,
                    &other.sq,
                    Addressing::Connected,
                    &format!("{what}, {request:?}"),
                );
                fired += 1;
                // All of them complete, or some time later.
                if random.below(3) == 0 || plain.sq.queue.free_blocks() < blocks / 2 {
                    for cq in [&mut plain.cq, &mut other.cq] {
                        cq.produce(cqe(0, request.opcode(), head.low16().into()), &[]);
                    }
                    let expected = plain.cq.reader.poll(&mut plain.sq.queue);
                    assert!(matches!(expected, Ok(Some(Completion::Send(_)))), "{expected:?}");
                    assert_eq!(other.cq.reader.poll(&mut other.sq.queue), expected, "{what}");
                    assert!(other.sq.queue.is_idle(), "{what}");
                }
            }
            if random.below(3) == 0 {
                ahead.cancel(&mut other.sq.queue);
                cancelled += waiting.len();
                waiting.clear();
            }
            // Without requests, the queue takes others.
            if ahead.is_empty() && plain.sq.queue.is_idle() {
                for Twin { sq, .. } in [&mut plain, &mut other] {
                    post(&mut sq.queue, id, &Request::Nop, true);
                }
                stored(&plain.sq, &other.sq, Addressing::Connected, &what);
                let head = plain.sq.queue.ring.head().before();
                for Twin { cq, sq } in [&mut plain, &mut other] {
                    cq.produce(cqe(0, 0, head.low16().into()), &[]);
                    let found = cq.reader.poll(&mut sq.queue);
                    let done = matches!(found, Ok(Some(Completion::Send(done))) if done.id == id);
                    assert!(done && sq.queue.is_idle(), "{found:?}, {what}");
                }
                id += 1;
            }
        }
        let (ring, oracle) = (&other.sq.queue.ring, &plain.sq.queue.ring);
        assert_eq!((ring.end(), ring.mark()), (oracle.end(), oracle.mark()), "{what}");
    }
    assert!(fired > 0 && cancelled > 0, "{fired} fired, {cancelled} cancelled");
}

/// Writes a request ahead with a payload of every length, changes all of it, and compares.
macro_rules! lengths {
    ($transport:ty, $of:ident, $opcode:literal, |$bytes:ident| $make:expr) => {{
        let mut random = Random::from_clock();
        let (mut plain, mut other) = (twin(32, 64, 0xfff0), twin::<$transport>(32, 64, 0xfff0));
        let mut ahead = ahead();
        for length in 1..=if cfg!(miri) { 20 } else { 200 } {
            let before = vec![0; length];
            let mut after = before.clone();
            let changes = changes(&mut after, &mut random);
            {
                let $bytes = Inline(&before);
                ahead.prepare(&mut other.sq.queue, 1, $make).unwrap();
            }
            let past = [(0, vec![0xff]), (length, vec![1])];
            let refused = fire(&mut ahead, &mut other.sq.queue, &past);
            let excess = Excess::new(length + 1, length as u32);
            assert_eq!(refused, Err(PostError::OutsidePayload(excess)));
            let head = plain.sq.queue.ring.head().low16();
            fire(&mut ahead, &mut other.sq.queue, &changes).unwrap();
            let $bytes = Inline(&after);
            // SAFETY: no HCA is there.
            unsafe { plain.sq.queue.post(1, $make).unwrap() };
            stored(&plain.sq, &other.sq, Addressing::$of, &format!("{length} bytes"));
            for Twin { cq, sq } in [&mut plain, &mut other] {
                cq.produce(cqe(0, $opcode, head.into()), &[]);
                assert!(matches!(cq.reader.poll(&mut sq.queue), Ok(Some(_))));
            }
        }
    }};
}

#[test]
fn payloads_of_every_transport_change_as_if_they_had_been_posted() {
    let remote = Remote::new(0x1000, 7);
    lengths!(Rc, Connected, 0x01, |bytes| SendInvalidate::new(bytes, 9).signaled());
    let to = UdAddress::of_segments(core::array::from_fn(|at| [at as u64, !(at as u64)]));
    lengths!(Ud, Datagram, 0x0a, |bytes| SendMessage::new(bytes).signaled().to(to));
    let to = DcAddress::of(Default::default(), 0x1234, 99);
    lengths!(Dci, Datagram, 0x0a, |bytes| SendMessage::new(bytes).signaled().to(to));
    lengths!(Dci, Datagram, 0x08, |bytes| RdmaWrite::new(bytes, remote).signaled().to(to));
    let to = XrcAddress::new(0x4321);
    lengths!(XrcSend, Xrc, 0x0b, |bytes| SendImm::new(bytes, 5).signaled().to(to));
    lengths!(XrcSend, Xrc, 0x08, |bytes| RdmaWrite::new(bytes, remote).signaled().to(to));
    lengths!(RawPacket, Ethernet, 0x0a, |bytes| EthSend::new(bytes).checksums().signaled());
    lengths!(RawPacket, Ethernet, 0x0a, |bytes| EthSend::new(bytes).vlan(5).signaled());
    lengths!(RawPacket, Ethernet, 0x0a, |bytes| EthSend::new(bytes).header(&[1, 2]).signaled());
}

#[test]
fn a_request_without_inline_payload_has_none_to_change() {
    let mut twin = twin::<RawPacket>(32, 32, 0);
    let (mut ahead, queue) = (ahead(), &mut twin.sq.queue);
    let sge = Sge::new(0x8000_0000, 60, 1);
    ahead.prepare(queue, 1, EthSend::new(sge)).unwrap();
    // The header lies in units of its own, in front of the payload.
    ahead.prepare(queue, 2, EthSend::new(Inline(&[0; 40])).header(&[0x80; 18])).unwrap();
    ahead.prepare(queue, 3, EthTso::new(&[0x80; 54], 1000, sge)).unwrap();
    ahead.prepare(queue, 4, Nop::new().signaled()).unwrap();
    for left in (0..4).rev() {
        let refused = fire(&mut ahead, queue, &[(0, vec![1])]);
        assert_eq!(refused, Err(PostError::OutsidePayload(Excess::new(1, 0))));
        assert_eq!(ahead.len(), left + 1);
        fire(&mut ahead, queue, &[]).unwrap();
    }
    assert_eq!(fire(&mut ahead, queue, &[]), Err(PostError::NothingPrepared));
}

/// The iterator's clone is looked at, and its changes are stored.
#[test]
fn changes_that_differ_from_those_that_were_checked_are_refused() {
    #[derive(Default)]
    struct Longer {
        is_clone: bool,
        done: bool,
    }
    impl Clone for Longer {
        fn clone(&self) -> Self {
            Self { is_clone: true, done: self.done }
        }
    }
    impl Iterator for Longer {
        type Item = Change<'static>;

        fn next(&mut self) -> Option<Self::Item> {
            let first = !std::mem::replace(&mut self.done, true);
            let at = if self.is_clone { 0 } else { 9 };
            first.then_some(Change::new(at, &[0xff; 8]))
        }
    }
    let mut twin = twin::<Rc>(8, 8, 0);
    let mut ahead = ahead();
    let write = RdmaWrite::new(Inline(&[1; 16]), Remote::default());
    ahead.prepare(&mut twin.sq.queue, 1, write.signaled()).unwrap();
    let before = twin.sq.buffer.read();
    // SAFETY: no HCA is there.
    let refused = unsafe { ahead.fire(&mut twin.sq.queue, Longer::default()) };
    assert_eq!(refused, Err(PostError::OutsidePayload(Excess::new(17, 16))));
    assert!(ahead.len() == 1 && twin.sq.buffer.read() == before);
}

#[test]
fn a_refused_request_leaves_the_queue_as_it_was() {
    let mut twin = twin::<Rc>(8, 4, 0);
    let (mut ahead, queue) = (ahead(), &mut twin.sq.queue);
    let long = RdmaWrite::new(Inline(&[0; 301]), Remote::default());
    let refused = PostError::InlineTooLong(Excess::new(301, LONGEST));
    assert_eq!(ahead.prepare(queue, 1, long), Err(refused));
    assert!(ahead.is_empty() && !queue.ring.state.is_open());
    for id in 0..4 {
        ahead.prepare(queue, id, Nop::new().signaled()).unwrap();
    }
    assert_eq!(ahead.prepare(queue, 4, Nop::new().signaled()), Err(PostError::CqFull { slots: 4 }));
    ahead.cancel(queue);
    assert!(ahead.is_empty() && !queue.ring.state.is_open());
    for id in 0..4 {
        post(queue, id, &Request::Nop, true);
    }
}

/// The queue stays sound if the value is lost with its requests.
#[test]
fn requests_of_a_value_that_is_dropped_are_never_posted() {
    let mut twin = twin::<Rc>(8, 8, 0);
    let mut lost = ahead();
    for id in 0..5 {
        let write = RdmaWrite::new(Inline(&[0; 8]), Remote::default());
        lost.prepare(&mut twin.sq.queue, id, write.signaled()).unwrap();
    }
    fire(&mut lost, &mut twin.sq.queue, &[]).unwrap();
    let _: Ahead = lost;
    for at in 1..40 {
        post(&mut twin.sq.queue, at, &Request::Nop, true);
        assert_eq!(twin.sq.record.be32(4), at as u32 + 1);
        twin.cq.produce(cqe(0, 0, at as u32), &[]);
        let found = twin.cq.reader.poll(&mut twin.sq.queue);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == at), "{found:?}");
    }
}

#[test]
fn nothing_is_fired_after_an_error() {
    let mut twin = twin::<Rc>(8, 8, 0);
    let (mut ahead, queue) = (ahead(), &mut twin.sq.queue);
    for id in 0..3 {
        ahead.prepare(queue, id, Nop::new().signaled()).unwrap();
    }
    fire(&mut ahead, queue, &[]).unwrap();
    let mut error = cqe(13, 0, 0);
    error.timestamp = u64::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0x13]).into();
    twin.cq.produce(error, &[]);
    let found = twin.cq.reader.poll(queue);
    let failed = matches!(found, Ok(Some(Completion::Failed(failure)))
        if failure.status == Status::RemoteAccess && failure.id == 0);
    assert!(failed, "{found:?}");
    assert_eq!(fire(&mut ahead, queue, &[]), Err(PostError::WrongState));
    assert_eq!(ahead.prepare(queue, 3, Nop::new()), Err(PostError::WrongState));
    assert_eq!(ahead.len(), 2);
    ahead.cancel(queue);
    assert_eq!(twin.sq.record.be32(4), 1);
}
