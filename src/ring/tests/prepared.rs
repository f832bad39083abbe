//! Requests that were prepared and fired, beside the same ones posted on a twin queue: the same
//! bytes in the ring, the same record, the same stores to the register.

use core::mem::forget;

use mlx5_diag::text;

use super::*;
use crate::cqe::{Completion, SendOperation, Status};
use crate::ring::cursor::Cursor;
use crate::ring::prepared::Either;
use crate::ring::random::{Random, rounds};
use crate::ring::variable::{Bytes, Immediate, Offset, Variable};
use crate::ring::{FireError, Form, PostError, Prepared};
use crate::wqe::{
    EncodeError, FetchAdd, Inline, InlineBytes, Nop, Operation, PostOn, RdmaRead, RdmaWrite,
    RdmaWriteImm, Remote, SendImm, SendMessage, Sge, Word,
};

/// A CQ and a send queue that completes on it.
pub(super) struct Twin {
    pub(super) cq: Cq,
    pub(super) sq: Sq,
}

impl Twin {
    pub(super) fn new(blocks: u32, cqes: u32, start: u32, half: usize) -> Self {
        let mut cq = Cq::new(cqes, 64, 0);
        let sq = Sq::new(&mut cq, blocks, start, half);
        Self { cq, sq }
    }
}

/// Returns, for each half of the register, the WQE (or the doorbell of one) that was stored there
/// last, without its last `padding` bytes.
fn register(page: &Memory, padding: usize) -> [Vec<u8>; 2] {
    [0x800, 0x800 + HALF].map(|half| {
        let ds = page.be32(half + 4) as usize & 0x3f;
        let end = match ds {
            0 => 0,
            // A NOP, or one that is too long.
            1 | 17.. => 8,
            // Without BlueFlame, bytes that were not stored are zero.
            _ => ds * 16 - padding,
        };
        page.read_at(half, end)
    })
}

/// Returns the outstanding WQEs of a ring, with their last `padding` bytes zeroed.
fn outstanding(buffer: &Memory, cursor: &Cursor, padding: usize) -> Vec<Vec<u8>> {
    let at = |counter: Counter| cursor.shape().slot(counter) * 64;
    let mut wqes = Vec::new();
    let mut next = cursor.tail();
    while next != cursor.head() {
        let start = at(next);
        let ds = buffer.be32(start + 4) as usize & 0x3f;
        let bytes = ds.div_ceil(4) * 64;
        let before_end = bytes.min(buffer.bytes - start);
        let mut wqe = buffer.read_at(start, before_end);
        wqe.extend(buffer.read_at(0, bytes - before_end));
        wqe[ds * 16 - padding..ds * 16].fill(0);
        wqes.push(wqe);
        next = next.plus(bytes as u32 / 64);
    }
    wqes
}

/// Both sides of what the HCA sees: of the rings, what is outstanding, since one side may have
/// written ahead.
pub(super) fn same(card: (&Memory, &Memory, &Memory), plain: &Sq, padding: usize, what: &str) {
    let (buffer, record, page) = card;
    let cursor = &plain.queue.ring.cursor;
    let (left, right) =
        (outstanding(buffer, cursor, padding), outstanding(&plain.buffer, cursor, padding));
    if let Some(at) = (0..right.len()).find(|&at| left.get(at) != right.get(at)) {
        let text = |wqes: &[Vec<u8>]| {
            wqes.get(at).map(|wqe| text::SendWqe::new(wqe, text::Addressing::Connected).to_string())
        };
        panic!("{what}: WQE {at}\nis    {:?}\nplain {:?}", text(&left), text(&right));
    }
    assert_eq!(record.read(), plain.record.read(), "{what}");
    let (left, right) = (register(page, padding), register(&plain.page, padding));
    assert!(left == right, "{what}: the register");
}

/// Prepares and fires requests of one form on one twin, and posts the same with their values on the
/// other. `make` gives what is prepared, the values, and what is posted.
fn twins<O, V>(name: &str, make: impl Fn(&mut Random) -> (O, V::Values, O))
where
    O: PostOn<Rc> + Operation,
    V: Variable<O>,
{
    let mut random = Random::from_clock();
    for round in 0..rounds(8) {
        let blocks = 8 << random.below(4);
        let start = match random.below(3) {
            0 => 0,
            1 => 0x1_0000 - 1 - random.below(20),
            _ => random.below(0x1_0000),
        };
        let half = if random.below(4) == 0 { 0 } else { HALF };
        // Room in the CQ for all, or only for some: then unsignaled ones cannot count as signaled.
        let cqes = if random.below(3) == 0 { 4 } else { 64 };
        let what = format!("{name}, round {round}, seed {}", random.seed());
        let mut plain = Twin::new(blocks, cqes, start, half);
        let mut twin = Twin::new(blocks, cqes, start, half);
        let mut prepared = Prepared::<_, Form<O, V>>::new(&mut twin.sq.queue);
        let card = (&twin.sq.buffer, &twin.sq.record, &twin.sq.page);
        let mut waiting = std::collections::VecDeque::new();
        let mut id = 0;
        for _ in 0..rounds(25) {
            for _ in 0..1 + random.below(5) {
                let (before, values, after) = make(&mut random);
                match prepared.prepare(id, before) {
                    Ok(()) => waiting.push_back((id, values, after)),
                    Err(error) => {
                        assert!(matches!(error, PostError::QueueFull | PostError::CqFull));
                        break;
                    }
                }
                id += 1;
            }
            assert_eq!(prepared.len() as usize, waiting.len(), "{what}");
            for _ in 0..random.below(waiting.len() as u32 + 1) {
                let (id, values, after) = waiting.pop_front().unwrap();
                let head = plain.sq.queue.ring.cursor.head();
                // SAFETY: no HCA is there.
                unsafe {
                    prepared.next().unwrap().fire(values);
                    plain.sq.queue.post(id, after).unwrap();
                }
                same(card, &plain.sq, 0, &what);
                // The last of them completes.
                if random.below(4) == 0 {
                    for cq in [&mut plain.cq, &mut twin.cq] {
                        cq.produce(cqe(0, O::OPCODE, head.low16().into()), &[]);
                    }
                    let expected = plain.cq.reader.poll(&mut plain.sq.queue);
                    assert!(matches!(expected, Ok(Some(Completion::Send(_)))), "{expected:?}");
                    assert_eq!(twin.cq.reader.poll(&mut prepared), expected, "{what}");
                }
            }
            if plain.sq.queue.free_blocks() < blocks / 2 {
                let last = plain.sq.queue.ring.cursor.head().plus(u32::MAX);
                let wqes = plain.sq.queue.ring.cursor.used();
                // Whichever block the last one begins in: others name none.
                for before in 0..wqes.min(4) {
                    let named = u32::from(last.plus(before.wrapping_neg()).low16());
                    for cq in [&mut plain.cq, &mut twin.cq] {
                        cq.produce(cqe(0, O::OPCODE, named), &[]);
                    }
                    let expected = plain.cq.reader.poll(&mut plain.sq.queue);
                    assert_eq!(twin.cq.reader.poll(&mut prepared), expected, "{what}");
                    if plain.sq.queue.is_idle() {
                        break;
                    }
                }
                assert!(plain.sq.queue.is_idle() && prepared.queue().is_idle(), "{what}");
            }
        }
    }
}

pub(super) fn bytes<const N: usize>(random: &mut Random) -> [u8; N] {
    core::array::from_fn(|_| random.next() as u8)
}

pub(super) fn remote(random: &mut Random) -> Remote {
    Remote::new(random.next(), random.next() as u32)
}

pub(super) fn sge(random: &mut Random) -> Sge {
    Sge::new(random.next(), 1 + random.below(1 << 20), random.next() as u32)
}

/// An array of bytes as payload, of which something else was prepared.
fn writes<const N: usize>(
    random: &mut Random,
) -> (RdmaWrite<InlineBytes<N>>, [u8; N], RdmaWrite<InlineBytes<N>>) {
    let (first, second, remote) = (bytes(random), bytes(random), remote(random));
    let yes = random.below(2) == 0;
    let write = |bytes| RdmaWrite::new(InlineBytes(bytes), remote).signaled_if(yes);
    (write(first), second, write(second))
}

#[test]
fn a_prepared_payload_of_any_length_is_as_if_it_had_been_posted() {
    macro_rules! lengths {
        ($($length:literal)*) => { $(
            twins::<_, Bytes>(concat!("WRITE of ", $length), writes::<$length>);
        )* };
    }
    lengths!(0 1 4 7 8 9 11 12 13 16 20 27 28 29 44 60 61 100 200);
    macro_rules! sends {
        ($($length:literal)*) => { $(
            twins::<_, Bytes>(concat!("SEND of ", $length), |random| {
                let (first, second) = (bytes::<$length>(random), bytes(random));
                let solicited = random.below(2) == 0;
                let send = |bytes| {
                    let send = SendMessage::new(InlineBytes(bytes)).signaled();
                    if solicited { send.solicited() } else { send }
                };
                (send(first), second, send(second))
            });
        )* };
    }
    sends!(1 8 12 13 28 43 44 45);
}

#[test]
fn every_variable_field_is_as_if_it_had_been_posted() {
    twins::<_, ()>("WRITE by pointer", |random| {
        let write = RdmaWrite::new(sge(random), remote(random)).signaled();
        (write, (), write)
    });
    twins::<_, ()>("WRITE of two entries", |random| {
        let write = RdmaWrite::new([sge(random), sge(random)], remote(random)).fenced();
        (write, (), write)
    });
    twins::<_, Offset>("READ", |random| {
        let (sge, remote, offset) = (sge(random), remote(random), random.next());
        let read = |remote| RdmaRead::new(sge, remote).signaled();
        (read(remote), offset, read(remote.offset(offset)))
    });
    twins::<_, Offset>("fetch and add", |random| {
        let (remote, offset, add) = (remote(random), random.next(), random.next());
        let old = Word::new(random.next(), random.next() as u32);
        let add = |remote| FetchAdd::new(old, remote, add).signaled();
        (add(remote), offset, add(remote.offset(offset)))
    });
    twins::<_, Immediate>("SEND with immediate, by pointer", |random| {
        let (sge, first, second) = (sge(random), random.next() as u32, random.next() as u32);
        let send = |imm| SendImm::new(sge, imm).signaled().solicited();
        (send(first), second, send(second))
    });
    twins::<_, (Immediate, Bytes)>("SEND with immediate", |random| {
        let imm = random.next() as u32;
        let (first, second) = (bytes(random), bytes(random));
        let send = |imm, bytes: [u8; 24]| SendImm::new(InlineBytes(bytes), imm).signaled();
        (send(!imm, first), (imm, second), send(imm, second))
    });
    twins::<_, (Bytes, Offset)>("WRITE", |random| {
        let (remote, offset) = (remote(random), random.next());
        let (first, second) = (bytes(random), bytes(random));
        let write = |remote, bytes: [u8; 8]| RdmaWrite::new(InlineBytes(bytes), remote).signaled();
        (write(remote, first), (second, offset), write(remote.offset(offset), second))
    });
    twins::<_, (Bytes, Offset, Immediate)>("WRITE with immediate, long", |random| {
        let (remote, offset, imm) = (remote(random), random.next(), random.next() as u32);
        let (first, second) = (bytes(random), bytes(random));
        let write = |remote, imm, bytes: [u8; 90]| {
            RdmaWriteImm::new(InlineBytes(bytes), remote, imm).signaled()
        };
        let before = write(remote, !imm, first);
        (before, (second, offset, imm), write(remote.offset(offset), imm, second))
    });
}

type Eight = RdmaWrite<InlineBytes<8>>;

fn eight(byte: u8) -> Eight {
    RdmaWrite::new(InlineBytes([byte; 8]), Remote::new(0x1000, 7)).signaled()
}

/// Opcodes of the WQEs in the ring, from slot 0 on.
fn opcodes(sq: &Memory, count: usize) -> Vec<u8> {
    sq.read().chunks(64).take(count).map(|block| block[3]).collect()
}

const NOP: u8 = 0x00;
const WRITE: u8 = 0x08;

#[test]
fn what_does_not_fit_is_refused_when_it_is_prepared() {
    let mut twin = Twin::new(8, 4, 0, HALF);
    let mut prepared = Prepared::<_, Form<Eight, Bytes>>::new(&mut twin.sq.queue);
    for id in 0..4 {
        prepared.prepare(id, eight(0)).unwrap();
    }
    assert_eq!(prepared.prepare(4, eight(0)), Err(PostError::CqFull));
    let queue = prepared.into_queue();
    let mut prepared = Prepared::<_, Form<SendMessage<Inline<'_>>>>::new(queue);
    assert_eq!(
        prepared.prepare(0, SendMessage::new(Inline(&[0; 201]))),
        Err(PostError::Encode(EncodeError::InlineTooLong))
    );
    // Two blocks each.
    for id in 0..4 {
        prepared.prepare(id, SendMessage::new(Inline(&[1; 90]))).unwrap();
    }
    assert_eq!(prepared.prepare(4, SendMessage::new(Inline(b"short"))), Err(PostError::QueueFull));
    assert_eq!(prepared.len(), 4);
    assert_eq!(twin.sq.record.be32(4), 0, "nothing is posted");
}

/// Unsignaled requests may count as signaled ones, but must not take the last CQE from those.
#[test]
fn as_many_unsignaled_requests_as_there_are_blocks_wait_for_a_signaled_one() {
    let mut twin = Twin::new(16, 4, 0, HALF);
    let mut prepared = Prepared::<_, Form<Eight, Bytes>>::new(&mut twin.sq.queue);
    let unsignaled = RdmaWrite::new(InlineBytes([0; 8]), Remote::new(0x1000, 7));
    for round in 0..rounds(40) {
        for id in 0..15 {
            prepared.prepare(id, unsignaled).unwrap();
        }
        prepared.prepare(99, eight(0)).unwrap();
        assert_eq!(prepared.prepare(100, unsignaled), Err(PostError::QueueFull));
        for byte in 0..16 {
            // SAFETY: no HCA is there.
            unsafe { prepared.next().unwrap().fire([byte; 8]) };
        }
        assert_eq!(prepared.next().unwrap_err(), FireError::NothingPrepared);
        assert_eq!(twin.sq.record.be32(4), (round + 1) * 16);
        assert_eq!(prepared.queue().free_blocks(), 0);
        twin.cq.produce(cqe(0, WRITE, 16 * round + 15), &[]);
        let found = twin.cq.reader.poll(&mut prepared);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == 99), "{found:?}");
    }
    // As much room as at first.
    for id in 0..4 {
        // SAFETY: no HCA is there.
        unsafe { twin.sq.queue.post(id, eight(1)).unwrap() };
    }
    // SAFETY: no HCA is there.
    assert_eq!(unsafe { twin.sq.queue.post(4, eight(1)) }, Err(PostError::CqFull));
}

#[test]
fn cancelled_requests_are_nops_where_they_lie() {
    for half in [0, HALF] {
        for cancelled in [&[0][..], &[2], &[5], &[0, 1], &[1, 4, 5], &[0, 1, 2, 3, 4, 5]] {
            let mut twin = Twin::new(8, 16, 0xfffd, half);
            let mut prepared = Prepared::<_, Form<Eight, Bytes>>::new(&mut twin.sq.queue);
            for id in 0..6 {
                prepared.prepare(id, eight(0)).unwrap();
            }
            // From the last on, so that positions stay what they are.
            for &position in cancelled.iter().rev() {
                assert_eq!(prepared.cancel(position), Some(u64::from(position)));
            }
            let left = 6 - cancelled.len() as u32;
            assert_eq!((prepared.len(), prepared.cancel(left)), (left, None));
            for byte in 0..left as u8 {
                // SAFETY: no HCA is there.
                unsafe { prepared.next().unwrap().fire([byte; 8]) };
            }
            assert_eq!(prepared.next().unwrap_err(), FireError::NothingPrepared);
            // Those at the end go out when they are told to.
            let behind = (0..6).rev().take_while(|at| cancelled.contains(at)).count() as u32;
            let posted = u32::from(0xfffd_u16.wrapping_add((6 - behind) as u16));
            assert_eq!(twin.sq.record.be32(4), posted, "{cancelled:?}");
            assert_eq!(prepared.ring_cancelled(), behind);
            assert_eq!(prepared.ring_cancelled(), 0);
            assert_eq!(twin.sq.record.be32(4), 3);
            // All of them are signaled, and come back in order.
            for at in 0..6 {
                let is_nop = cancelled.contains(&at);
                let opcode = if is_nop { NOP } else { WRITE };
                let slot = (0xfffd_usize + at as usize) % 8;
                assert_eq!(opcodes(&twin.sq.buffer, 8)[slot], opcode, "{cancelled:?}");
                twin.cq.produce(cqe(0, opcode, 0xfffd + at), &[]);
                let Ok(Some(Completion::Send(done))) = twin.cq.reader.poll(&mut prepared) else {
                    panic!("{cancelled:?}, {at}")
                };
                let operation = if is_nop { SendOperation::Nop } else { SendOperation::Write };
                assert_eq!((done.id, done.operation), (at.into(), operation));
            }
            assert!(prepared.queue().is_idle());
        }
    }
}

#[test]
fn a_long_request_becomes_as_many_nops_and_one_completion() {
    let mut twin = Twin::new(8, 16, 6, HALF);
    let mut prepared =
        Prepared::<_, Either<Form<RdmaWrite<InlineBytes<150>>, Bytes>, Form<Nop>>>::new(
            &mut twin.sq.queue,
        );
    let long = RdmaWrite::new(InlineBytes([9; 150]), Remote::new(0, 0)).signaled();
    prepared.prepare(1, Either::First(long)).unwrap();
    prepared.prepare(2, Either::Second(Nop::new().signaled())).unwrap();
    assert_eq!(prepared.cancel(0), Some(1));
    let Either::Second(next) = prepared.next().unwrap() else { panic!() };
    // SAFETY: no HCA is there.
    unsafe { next.fire(()) };
    assert_eq!(twin.sq.record.be32(4), 6 + 4);
    let ring = twin.sq.buffer.read();
    for (at, signaled) in [(6_u16, false), (7, false), (8, true), (9, true)] {
        let block = &ring[usize::from(at % 8) * 64..];
        assert_eq!((block[3], block[7], block[11] & 8 != 0), (NOP, 1, signaled));
        assert_eq!(block[1..3], at.to_be_bytes());
    }
    for (named, id) in [(8, 1), (9, 2)] {
        twin.cq.produce(cqe(0, NOP, named), &[]);
        let Ok(Some(Completion::Send(done))) = twin.cq.reader.poll(&mut prepared) else { panic!() };
        assert_eq!((done.id, done.operation), (id, SendOperation::Nop));
    }
    assert!(prepared.queue().is_idle());
}

#[test]
fn what_is_still_prepared_is_not_posted() {
    for leak in [false, true] {
        for fired in [0, 2] {
            let mut twin = Twin::new(8, 8, 5, HALF);
            let mut prepared = Prepared::<_, Form<Eight, Bytes>>::new(&mut twin.sq.queue);
            for id in 0..6 {
                prepared.prepare(id, eight(0)).unwrap();
            }
            for byte in 0..fired {
                // SAFETY: no HCA is there.
                unsafe { prepared.next().unwrap().fire([byte; 8]) };
            }
            if leak {
                forget(prepared)
            } else {
                drop(prepared)
            }
            let fired = u32::from(fired);
            assert_eq!(twin.sq.record.be32(4), 5 + fired);
            assert_eq!(twin.sq.queue.free_blocks(), 8 - fired);
            // A CQE of what is prepared, and not fired, completes nothing.
            twin.cq.produce(cqe(0, WRITE, 5 + fired), &[]);
            let found = twin.cq.reader.poll(&mut twin.sq.queue);
            assert!(matches!(found, Ok(Some(Completion::UnexpectedCqe(_)))), "{found:?}");
            // All the room is there, and not more; ids are the new ones.
            for id in 0..8 - u64::from(fired) {
                // SAFETY: no HCA is there.
                unsafe {
                    twin.sq
                        .queue
                        .post(100 + id, SendMessage::new(Sge::new(0, 1, 0)).signaled())
                        .unwrap()
                };
            }
            // SAFETY: no HCA is there.
            let refused = unsafe { twin.sq.queue.post(9, Nop::new()) };
            assert_eq!(refused, Err(PostError::QueueFull));
            for at in 0..8 {
                twin.cq.produce(cqe(0, 0, 5 + at), &[]);
                let found = twin.cq.reader.poll(&mut twin.sq.queue);
                let Ok(Some(Completion::Send(done))) = found else { panic!("{found:?}") };
                let id = if at < fired { u64::from(at) } else { 100 + u64::from(at - fired) };
                assert_eq!(done.id, id, "leaked: {leak}, fired: {fired}");
            }
        }
    }
}

#[test]
fn nothing_is_fired_after_an_error_was_seen() {
    let mut twin = Twin::new(8, 16, 0, HALF);
    let mut prepared = Prepared::<_, Form<Eight, Bytes>>::new(&mut twin.sq.queue);
    for id in 0..6 {
        prepared.prepare(id, eight(0)).unwrap();
    }
    for byte in 0..3 {
        // SAFETY: no HCA is there.
        unsafe { prepared.next().unwrap().fire([byte; 8]) };
    }
    let mut error = cqe(13, WRITE, 1);
    error.timestamp = u64::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0x13]).into();
    twin.cq.produce(error, &[]);
    let Ok(Some(Completion::Failed(failure))) = twin.cq.reader.poll(&mut prepared) else {
        panic!()
    };
    assert_eq!((failure.id, failure.wqe_index), (1, 1));
    assert_eq!(failure.status, Status::RemoteAccess);
    assert_eq!(prepared.next().unwrap_err(), FireError::WrongState);
    assert_eq!(prepared.prepare(9, eight(0)), Err(PostError::WrongState));
    assert_eq!(prepared.cancel(0), Some(3));
    assert_eq!((prepared.ring_cancelled(), prepared.len()), (0, 2));
    assert_eq!(twin.sq.record.be32(4), 3, "nothing more is posted");
    drop(prepared);
    // SAFETY: no HCA is there.
    assert_eq!(unsafe { twin.sq.queue.post(9, Nop::new()) }, Err(PostError::WrongState));
}

#[test]
fn two_forms_are_fired_in_the_order_of_preparing() {
    type Forms =
        Either<Form<Eight, Bytes>, Either<Form<SendMessage<Sge>>, Form<SendImm<Sge>, Immediate>>>;
    let mut random = Random::from_clock();
    let mut plain = Twin::new(64, 64, 0xfff0, HALF);
    let mut twin = Twin::new(64, 64, 0xfff0, HALF);
    let card = (&twin.sq.buffer, &twin.sq.record, &twin.sq.page);
    let mut prepared = Prepared::<_, Forms>::new(&mut twin.sq.queue);
    let sge = Sge::new(0x1234, 5, 6);
    let order: Vec<_> = (0..rounds(160).min(40)).map(|_| random.below(3)).collect();
    for (id, kind) in (0..).zip(&order) {
        let operation = match kind {
            0 => Either::First(eight(3)),
            1 => Either::Second(Either::First(SendMessage::new(sge).signaled())),
            _ => Either::Second(Either::Second(SendImm::new(sge, 0))),
        };
        prepared.prepare(id, operation).unwrap();
    }
    for (id, &kind) in (0..).zip(&order) {
        // SAFETY: no HCA is there.
        unsafe {
            match prepared.next().unwrap() {
                Either::First(next) => {
                    next.fire([id as u8; 8]);
                    plain.sq.queue.post(id, eight(id as u8)).unwrap();
                    assert_eq!(kind, 0);
                }
                Either::Second(Either::First(next)) => {
                    next.fire(());
                    plain.sq.queue.post(id, SendMessage::new(sge).signaled()).unwrap();
                    assert_eq!(kind, 1);
                }
                Either::Second(Either::Second(next)) => {
                    next.fire(id as u32);
                    plain.sq.queue.post(id, SendImm::new(sge, id as u32)).unwrap();
                    assert_eq!(kind, 2);
                }
            }
        }
        same(card, &plain.sq, 0, "two forms");
    }
}
