//! Requests that were prepared and fired, beside the same ones posted on a twin queue: the same
//! bytes in the ring, the same record, the same stores to the register.

use core::mem::forget;
use std::collections::VecDeque;

use mlx5_diag::text::{self, Addressing};

use super::*;
use crate::cqe::{Completion, Status};
use crate::ib::{Dci, RawPacket, Uc, Ud, XrcSend};
use crate::ring::random::{Random, rounds};
use crate::ring::send::state::SendState;
use crate::ring::{Excess, PostError, Prepared};
use crate::wqe::{
    DcAddress, EthSend, Field, Fill, InlineBytes, Nop, Patch, PostOn, RdmaWrite, RdmaWriteImm,
    Remote, SendImm, SendMessage, Sge, UdAddress, XrcAddress,
};

/// A CQ and a send queue that completes on it.
pub(super) struct Twin<T: Transport = Rc> {
    pub(super) cq: Cq,
    pub(super) sq: Sq<T>,
}

impl Twin {
    fn new(blocks: u32, cqes: u32, start: u32, half: usize) -> Self {
        Self::of(blocks, cqes, start, half)
    }
}

impl<T: Transport> Twin<T> {
    pub(super) fn of(blocks: u32, cqes: u32, start: u32, half: usize) -> Self {
        let mut cq = Cq::new(cqes, 64, 0);
        let mut sq = Sq::of(&mut cq, blocks, start, half);
        // As much as the longest WQE that can be prepared.
        sq.queue.ring.limits.max_inline = 236;
        Self { cq, sq }
    }
}

/// Returns, for each half of the register, the WQE (or the doorbell of one) that was stored there
/// last, without its last `padding` bytes.
fn register(page: &Memory, padding: usize) -> [Vec<u8>; 2] {
    [0x800, 0x800 + HALF].map(|half| {
        let ds = page.be32(half + 4) as usize & 0x3f;
        // Without BlueFlame, bytes that were not stored are zero.
        page.read_at(half, (ds * 16).saturating_sub(padding))
    })
}

/// Returns the outstanding WQEs of a ring, with their last `padding` bytes zeroed.
fn outstanding(buffer: &Memory, state: &SendState, padding: usize) -> Vec<Vec<u8>> {
    let (mut wqes, mut at) = (Vec::new(), state.tail());
    while at != state.head() {
        let block = |ahead| state.shape().slot(at.plus(ahead)) * 64;
        let ds = buffer.be32(block(0) + 4) as usize & 0x3f;
        let blocks = ds.div_ceil(4) as u32;
        let mut wqe: Vec<_> = (0..blocks).flat_map(|of| buffer.read_at(block(of), 64)).collect();
        // What is behind the end is of an earlier lap.
        wqe[ds * 16 - padding..].fill(0);
        wqes.push(wqe);
        at = at.plus(blocks);
    }
    wqes
}

/// Both sides of what the HCA sees: of the rings, what is outstanding, since one side may have
/// written ahead.
pub(super) fn same<T: Transport>(
    card: (&Memory, &Memory, &Memory),
    plain: &Sq<T>,
    padding: usize,
    of: Addressing,
    what: &str,
) {
    let (buffer, record, page) = card;
    let state = &plain.queue.ring.state;
    let (left, right) =
        (outstanding(buffer, state, padding), outstanding(&plain.buffer, state, padding));
    if let Some(at) = (0..right.len()).find(|&at| left.get(at) != right.get(at)) {
        let text =
            |wqes: &[Vec<u8>]| wqes.get(at).map(|wqe| text::SendWqe::new(wqe, of).to_string());
        panic!("{what}: WQE {at}\nis    {:?}\nplain {:?}", text(&left), text(&right));
    }
    assert_eq!(record.read(), plain.record.read(), "{what}");
    let (left, right) = (register(page, padding), register(&plain.page, padding));
    assert!(left == right, "{what}: the register");
}

/// A request's parts that stay what they were when it was prepared.
#[derive(Clone, Copy)]
struct Rest {
    remote: Remote,
    imm: u32,
    signaled: bool,
    solicited: bool,
}

impl Rest {
    fn new(random: &mut Random) -> Self {
        let remote = Remote::new(random.next(), random.next() as u32);
        let [signaled, solicited] = [(); 2].map(|()| random.below(2) == 0);
        Self { remote, imm: random.next() as u32, signaled, solicited }
    }
}

/// Prepares and fires requests of one type on one twin, and posts the same on the other. `make`
/// gives a request with a payload, and `fill` changes a payload and says what it has changed.
fn twins<T, O, F, const N: usize>(
    name: &str,
    of: Addressing,
    make: impl Fn(InlineBytes<N>, Rest) -> O,
    fill: impl Fn(&mut [u8; N], &mut Random) -> F,
) where
    T: Transport,
    O: PostOn<T> + Patch<Bytes = [u8; N]>,
    F: Fill<[u8; N]>,
{
    // A post leaves the bytes behind the payload as they are.
    let padding = (O::UNITS - O::BEFORE) * 16 - 4 - N;
    let mut random = Random::from_clock();
    let (mut fired, mut wrapped) = (0, false);
    for round in 0..rounds(8) {
        let blocks = 8 << random.below(4);
        let start = match (round, random.below(3)) {
            // The first request of several blocks wraps around the ring's end.
            (0, _) => blocks - 1,
            (_, 0) => 0,
            (_, 1) => 0x1_0000 - 1 - random.below(20),
            _ => random.below(0x1_0000),
        };
        let half = if random.below(4) == 0 { 0 } else { HALF };
        // CQ slots for all requests, or only for some.
        let cqes = if random.below(3) == 0 { 4 } else { 64 };
        let what = format!("{name} of {N}, round {round}, seed {}", random.seed());
        let mut plain = Twin::<T>::of(blocks, cqes, start, half);
        let Twin { mut cq, sq: Sq { buffer, record, page, queue } } =
            Twin::<T>::of(blocks, cqes, start, half);
        let mut prepared = Prepared::<O, T>::new(queue);
        let card = (&buffer, &record, &page);
        let (mut id, mut waiting) = (0, VecDeque::new());
        for _ in 0..rounds(25) {
            for _ in 0..1 + random.below(5) {
                let before: [u8; N] = core::array::from_fn(|_| random.next() as u8);
                let mut after = before;
                let filled = fill(&mut after, &mut random);
                let rest = Rest::new(&mut random);
                match prepared.prepare(id, make(InlineBytes(before), rest)) {
                    Ok(()) => waiting.push_back((id, filled, make(InlineBytes(after), rest))),
                    Err(error) => {
                        assert!(
                            matches!(
                                error,
                                PostError::QueueFull { .. }
                                    | PostError::CqFull { .. }
                                    | PostError::NothingSignaled { .. }
                            ),
                            "{error}"
                        );
                        break;
                    }
                }
                id += 1;
            }
            assert_eq!(prepared.len() as usize, waiting.len(), "{what}");
            for _ in 0..random.below(waiting.len() as u32 + 1) {
                let (id, filled, posted) = waiting.pop_front().unwrap();
                let head = plain.sq.queue.ring.state.head();
                prepared.fire(filled).unwrap();
                // SAFETY: no HCA is there.
                unsafe { plain.sq.queue.post(id, posted).unwrap() };
                same(card, &plain.sq, padding, of, &what);
                fired += 1;
                let slot = plain.sq.queue.ring.state.shape().slot(head);
                wrapped |= slot + O::BLOCKS > blocks as usize;
                // All of them complete, or some time later.
                if random.below(4) == 0 || plain.sq.queue.free_blocks() < blocks / 2 {
                    for cq in [&mut plain.cq, &mut cq] {
                        cq.produce(cqe(0, O::OPCODE, head.low16().into()), &[]);
                    }
                    let expected = plain.cq.reader.poll(&mut plain.sq.queue);
                    assert!(matches!(expected, Ok(Some(Completion::Send(_)))), "{expected:?}");
                    assert_eq!(cq.reader.poll(&mut prepared), expected, "{what}");
                    assert!(plain.sq.queue.is_idle() && prepared.queue().is_idle(), "{what}");
                }
            }
        }
        let (ring, oracle) = (&prepared.queue().ring, &plain.sq.queue.ring);
        assert_eq!((ring.end(), ring.mark()), (oracle.end(), oracle.mark()), "{what}");
    }
    // Miri has no time for so many.
    let enough = fired > 0 && (wrapped || O::BLOCKS == 1) || cfg!(miri);
    assert!(enough, "{name} of {N}: {fired} were fired");
}

/// Changes all of a payload.
fn whole<const N: usize>(bytes: &mut [u8; N], random: &mut Random) -> [u8; N] {
    *bytes = core::array::from_fn(|_| random.next() as u8);
    *bytes
}

#[test]
fn a_prepared_payload_of_any_length_is_as_if_it_had_been_posted() {
    macro_rules! lengths {
        ($name:literal, $($length:literal)*, |$bytes:ident, $rest:ident| $make:expr) => { $(
            twins::<Rc, _, _, $length>(
                $name,
                Addressing::Connected,
                |$bytes, $rest| $make.signaled_if($rest.signaled),
                whole,
            );
        )* };
    }
    lengths!("WRITE", 1 4 7 8 9 11 12 13 16 20 27 28 29 64 92 93 128 156 157 200 220, |bytes, rest| {
        RdmaWrite::new(bytes, rest.remote)
    });
    lengths!("WRITE with immediate", 3 8 28 110, |bytes, rest| {
        let write = RdmaWriteImm::new(bytes, rest.remote, rest.imm);
        if rest.solicited { write.solicited() } else { write }
    });
    lengths!("SEND", 1 8 12 13 28 29 43 44 45 108 109 172 236, |bytes, rest| {
        let send = SendMessage::new(bytes);
        if rest.solicited { send.solicited() } else { send }
    });
    lengths!("SEND with immediate", 5 24 44 64, |bytes, rest| SendImm::new(bytes, rest.imm));
}

const PRICE: Field<8, 8> = Field;
const QUANTITY: Field<17, 4> = Field;
const SEQUENCE: Field<90, 6> = Field;

/// Changes three fields of a payload.
fn fields<const N: usize>(bytes: &mut [u8; N], random: &mut Random) -> impl Fill<[u8; N]> + use<N> {
    let price = random.next().to_ne_bytes();
    let quantity = (random.next() as u32).to_ne_bytes();
    let sequence = core::array::from_fn(|_| random.next() as u8);
    bytes[8..16].copy_from_slice(&price);
    bytes[17..21].copy_from_slice(&quantity);
    bytes[90..96].copy_from_slice(&sequence);
    (PRICE.with(price), QUANTITY.with(quantity), SEQUENCE.with(sequence))
}

#[test]
fn fields_of_a_prepared_payload_are_as_if_they_had_been_posted() {
    let connected = Addressing::Connected;
    macro_rules! lengths {
        ($($length:literal)*) => { $(
            twins::<Rc, _, _, $length>("WRITE", connected, |bytes, rest| {
                RdmaWrite::new(bytes, rest.remote).signaled_if(rest.signaled)
            }, fields);
        )* };
    }
    lengths!(96 128 200 220);
    twins::<Rc, _, _, 20>(
        "SEND",
        connected,
        |bytes, rest| SendMessage::new(bytes).signaled_if(rest.signaled),
        |bytes, random| {
            let price = random.next().to_ne_bytes();
            bytes[8..16].copy_from_slice(&price);
            PRICE.with(price)
        },
    );
    // Nothing changes.
    twins::<Rc, _, _, 100>("SEND", connected, |bytes, _| SendMessage::new(bytes), |_, _| ());
}

#[test]
fn prepared_requests_of_every_transport_are_as_if_they_had_been_posted() {
    let to = UdAddress::of_segments(core::array::from_fn(|at| [at as u64, !(at as u64)]));
    twins::<Uc, _, _, 100>(
        "UC WRITE with immediate",
        Addressing::Connected,
        |bytes, rest| RdmaWriteImm::new(bytes, rest.remote, 1).signaled_if(rest.signaled),
        fields,
    );
    twins::<Ud, _, _, 8>(
        "UD SEND",
        Addressing::Datagram,
        |bytes, rest| SendMessage::new(bytes).signaled_if(rest.signaled).to(to),
        whole,
    );
    twins::<Ud, _, _, 188>(
        "UD SEND with immediate",
        Addressing::Datagram,
        |bytes, rest| SendImm::new(bytes, rest.imm).signaled_if(rest.signaled).to(&to),
        fields,
    );
    let to = DcAddress::of(Default::default(), 0x1234, 99).on_stream(3);
    twins::<Dci, _, _, 172>(
        "DC WRITE",
        Addressing::Datagram,
        |bytes, rest| RdmaWrite::new(bytes, rest.remote).signaled_if(rest.signaled).to(to),
        fields,
    );
    twins::<Dci, _, _, 60>(
        "DC SEND",
        Addressing::Datagram,
        |bytes, rest| SendMessage::new(bytes).signaled_if(rest.signaled).to(to),
        whole,
    );
    let to = XrcAddress::new(0x4321);
    twins::<XrcSend, _, _, 204>(
        "XRC WRITE with immediate",
        Addressing::Xrc,
        |bytes, rest| {
            RdmaWriteImm::new(bytes, rest.remote, rest.imm).signaled_if(rest.signaled).to(to)
        },
        fields,
    );
    twins::<RawPacket, _, _, 100>(
        "packet",
        Addressing::Ethernet,
        |bytes, rest| EthSend::new(bytes).checksums().signaled_if(rest.signaled),
        fields,
    );
    twins::<RawPacket, _, _, 64>(
        "packet with a tag",
        Addressing::Ethernet,
        |bytes, rest| EthSend::new(bytes).vlan(5).signaled_if(rest.signaled),
        whole,
    );
}

#[test]
fn a_packet_with_a_header_of_its_own_is_not_prepared() {
    let twin = Twin::<RawPacket>::of(8, 8, 0, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    let packet = EthSend::new(InlineBytes([0; 40]));
    let refused = prepared.prepare(0, packet.header(&[0; 18]));
    assert_eq!(refused, Err(PostError::HeaderPrepared));
    assert!(prepared.is_empty());
    prepared.prepare(0, packet).unwrap();
}

/// Once per lap of the ring, and where the high byte of the record's counter changes.
#[test]
fn only_a_wqe_around_the_rings_end_is_rung_like_any_other() {
    type Three = RdmaWrite<InlineBytes<128>>;
    let three = || Three::new(InlineBytes([1; 128]), Remote::new(0x1000, 7)).signaled();
    let mut twin = Twin::new(32, 64, 0x1_0000 - 7, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    let (mut wrapped, mut at) = (0, 0x1_0000 - 7);
    for id in 0..rounds(400).into() {
        prepared.prepare(id, three()).unwrap();
        let end = at % 32 + 3;
        let ready = prepared.queue().ring.state.ready_left();
        wrapped += u32::from(end > 32);
        assert_eq!(ready, u32::from(end <= 32), "{at:#x}");
        prepared.fire([2; 128]).unwrap();
        twin.cq.produce(cqe(0, WRITE, at), &[]);
        assert!(matches!(twin.cq.reader.poll(&mut prepared), Ok(Some(Completion::Send(_)))));
        at += 3;
        assert_eq!(twin.sq.record.be32(4), at & 0xffff);
    }
    assert!(wrapped > 0);
}

type Eight = RdmaWrite<InlineBytes<8>>;

fn eight(byte: u8) -> Eight {
    RdmaWrite::new(InlineBytes([byte; 8]), Remote::new(0x1000, 7)).signaled()
}

const WRITE: u8 = 0x08;

#[test]
fn what_does_not_fit_is_refused_when_it_is_prepared() {
    let mut twin = Twin::new(8, 4, 0, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    for id in 0..4 {
        prepared.prepare(id, eight(0)).unwrap();
    }
    assert_eq!(prepared.prepare(4, eight(0)), Err(PostError::CqFull { slots: 4 }));
    assert_eq!(prepared.len(), 4);
    let long = SendMessage::new(InlineBytes([0; 44]));
    twin.sq.queue = prepared.into_queue();
    twin.sq.queue.ring.limits.max_inline = 43;
    let mut prepared = Prepared::new(twin.sq.queue);
    let refused = prepared.prepare(0, long);
    let expected = PostError::InlineTooLong(Excess::new(44, 43));
    assert_eq!(refused, Err(expected));
    assert!(prepared.is_empty());
    assert_eq!(twin.sq.record.be32(4), 0, "nothing is posted");

    let twin = Twin::new(8, 16, 0, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    for id in 0..8 {
        prepared.prepare(id, eight(0)).unwrap();
    }
    let full = PostError::QueueFull { free: 0 };
    assert_eq!(prepared.prepare(8, eight(0)), Err(full));
    assert_eq!(prepared.len(), 8);
}

/// Unsignaled requests take CQ slots, too, but not the last one from a signaled request.
#[test]
fn unsignaled_requests_leave_the_last_cq_slot_to_a_signaled_one() {
    let mut twin = Twin::new(16, 4, 0, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    let unsignaled = RdmaWrite::new(InlineBytes([0; 8]), Remote::new(0x1000, 7));
    for round in 0..rounds(40) {
        for id in 0..3 {
            prepared.prepare(id, unsignaled).unwrap();
        }
        let silent = PostError::NothingSignaled { outstanding: 3 };
        assert_eq!(prepared.prepare(98, unsignaled), Err(silent));
        prepared.prepare(99, eight(0)).unwrap();
        assert_eq!(prepared.prepare(100, unsignaled), Err(PostError::CqFull { slots: 4 }));
        assert_eq!(prepared.prepare(100, eight(0)), Err(PostError::CqFull { slots: 4 }));
        for byte in 0..4 {
            prepared.fire([byte; 8]).unwrap();
        }
        assert_eq!(prepared.fire([4; 8]), Err(PostError::NothingPrepared));
        assert_eq!(twin.sq.record.be32(4), (round + 1) * 4);
        assert_eq!(prepared.queue().free_blocks(), 12);
        twin.cq.produce(cqe(0, WRITE, 4 * round + 3), &[]);
        let found = twin.cq.reader.poll(&mut prepared);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == 99), "{found:?}");
        assert!(prepared.queue().is_idle());
    }
    // As many CQ slots as at first.
    let mut queue = prepared.into_queue();
    for id in 0..4 {
        // SAFETY: no HCA is there.
        unsafe { queue.post(id, eight(1)).unwrap() };
    }
    // SAFETY: no HCA is there.
    assert_eq!(unsafe { queue.post(4, eight(1)) }, Err(PostError::CqFull { slots: 4 }));
}

#[test]
fn unsignaled_requests_leave_a_block_for_a_signaled_one() {
    let unsignaled = RdmaWrite::new(InlineBytes([0; 8]), Remote::new(0x1000, 7));
    // Unsignaled requests that are posted before some are prepared.
    for before in 0..8 {
        let mut twin = Twin::new(8, 8, 5, HALF);
        let mut queue = twin.sq.queue;
        for id in 0..before {
            // SAFETY: no HCA is there.
            unsafe { queue.post(id, Nop::new()).unwrap() };
        }
        let mut prepared = Prepared::new(queue);
        let silent = Err(PostError::NothingSignaled { outstanding: 7 });
        for id in before..7 {
            prepared.prepare(id, unsignaled).unwrap();
        }
        assert_eq!(prepared.prepare(7, unsignaled), silent);
        while !prepared.is_empty() {
            prepared.fire([1; 8]).unwrap();
        }
        let mut queue = prepared.into_queue();
        // SAFETY: no HCA is there.
        assert_eq!(unsafe { queue.post(8, Nop::new()) }, silent);
        assert!(queue.is_silent());
        assert_eq!(queue.reclaim(99), Ok(true));
        twin.cq.produce(cqe(0, 0, 5 + 7), &[]);
        let found = twin.cq.reader.poll(&mut queue);
        assert!(matches!(found, Ok(Some(Completion::Send(done))) if done.id == 99), "{found:?}");
        assert!(queue.is_idle());
        // Every CQ slot is free again.
        for id in 0..8 {
            // SAFETY: no HCA is there.
            unsafe { queue.post(id, Nop::new().signaled()).unwrap() };
        }
    }
}

#[test]
fn what_is_still_prepared_is_not_posted() {
    for fired in [0, 2, 6] {
        let mut twin = Twin::new(8, 8, 5, HALF);
        let mut prepared = Prepared::new(twin.sq.queue);
        for id in 0..6 {
            prepared.prepare(id, eight(0)).unwrap();
        }
        for byte in 0..fired {
            prepared.fire([byte; 8]).unwrap();
        }
        let fired = u32::from(fired);
        let mut queue = prepared.into_queue();
        assert_eq!(twin.sq.record.be32(4), 5 + fired);
        assert_eq!(queue.free_blocks(), 8 - fired);
        // A CQE of what is prepared, and not fired, completes nothing.
        twin.cq.produce(cqe(0, WRITE, 5 + fired), &[]);
        let found = twin.cq.reader.poll(&mut queue);
        assert!(matches!(found, Ok(Some(Completion::UnexpectedCqe(_)))), "{found:?}");
        // All the room is there, and not more; ids are the new ones.
        for id in 0..8 - u64::from(fired) {
            // SAFETY: no HCA is there.
            unsafe {
                queue.post(100 + id, SendMessage::new(Sge::new(0, 1, 0)).signaled()).unwrap()
            };
        }
        let full = PostError::QueueFull { free: 0 };
        // SAFETY: no HCA is there.
        assert_eq!(unsafe { queue.post(9, Nop::new()) }, Err(full));
        for at in 0..8 {
            twin.cq.produce(cqe(0, 0, 5 + at), &[]);
            let found = twin.cq.reader.poll(&mut queue);
            let Ok(Some(Completion::Send(done))) = found else { panic!("{found:?}") };
            let id = if at < fired { u64::from(at) } else { 100 + u64::from(at - fired) };
            assert_eq!(done.id, id, "fired: {fired}");
        }
    }
}

#[test]
fn warming_changes_nothing_and_posts_nothing() {
    let mut twin = Twin::new(8, 8, 7, HALF);
    let mut prepared = Prepared::new(twin.sq.queue);
    let write = |byte| RdmaWrite::new(InlineBytes([byte; 128]), Remote::new(0x1000, 7)).signaled();
    prepared.warm();
    for id in 0..2 {
        prepared.prepare(id, write(id as u8)).unwrap();
    }
    // The first goes on at the ring's start.
    for at in [7, 10] {
        let seen = || [twin.sq.buffer.read(), twin.sq.record.read(), twin.sq.page.read()];
        let before = seen();
        prepared.warm();
        assert!(seen() == before);
        prepared.fire(()).unwrap();
        assert_eq!(twin.sq.record.be32(4), at + 3);
        twin.cq.produce(cqe(0, WRITE, at), &[]);
        assert!(matches!(twin.cq.reader.poll(&mut prepared), Ok(Some(Completion::Send(_)))));
    }
    prepared.warm();
    assert_eq!(prepared.fire(()), Err(PostError::NothingPrepared));
}

/// A request of three blocks takes as many, and one CQ slot.
#[test]
fn what_is_left_of_long_requests_gives_its_blocks_and_cq_slots_back() {
    for fired in 0..=5 {
        let mut twin = Twin::new(16, 16, 14, HALF);
        let mut prepared = Prepared::new(twin.sq.queue);
        let long = RdmaWrite::new(InlineBytes([0; 128]), Remote::new(0x1000, 7)).signaled();
        for id in 0..5 {
            prepared.prepare(id, long).unwrap();
        }
        assert_eq!(prepared.prepare(5, long), Err(PostError::QueueFull { free: 1 }));
        for at in 0..fired {
            prepared.fire(()).unwrap();
            // The first goes on at the ring's start, and then the others are ready.
            assert_eq!(prepared.queue().ring.state.ready_left(), 4 - at);
        }
        assert_eq!(prepared.len(), 5 - fired);
        let mut queue = prepared.into_queue();
        let free = 16 - 3 * fired;
        assert_eq!(queue.free_blocks(), free);
        for id in 0..u64::from(free) {
            // SAFETY: no HCA is there.
            unsafe { queue.post(100 + id, Nop::new().signaled()).unwrap() };
        }
        for at in 0..fired + free {
            let (index, id) = match at < fired {
                true => (3 * at, u64::from(at)),
                false => (2 * fired + at, 100 + u64::from(at - fired)),
            };
            twin.cq.produce(cqe(0, 0, 14 + index), &[]);
            let found = twin.cq.reader.poll(&mut queue);
            assert!(
                matches!(found, Ok(Some(Completion::Send(done))) if done.id == id),
                "{found:?}"
            );
        }
        assert!(queue.is_idle());
        for id in 0..16 {
            // SAFETY: no HCA is there.
            unsafe { queue.post(id, Nop::new().signaled()).unwrap() };
        }
    }
}

#[test]
fn dropping_or_leaking_it_posts_nothing() {
    for end in [drop, forget] as [fn(Prepared<Eight>); 2] {
        for half in [0, HALF] {
            let twin = Twin::new(8, 8, 5, half);
            let mut prepared = Prepared::new(twin.sq.queue);
            for id in 0..6 {
                prepared.prepare(id, eight(0)).unwrap();
            }
            prepared.fire([1; 8]).unwrap();
            let before = twin.sq.page.read();
            end(prepared);
            assert_eq!(twin.sq.record.be32(4), 6);
            assert!(twin.sq.page.read() == before);
        }
    }
}

#[test]
fn nothing_is_fired_after_an_error_was_seen() {
    refused_after_an_error::<8>();
    refused_after_an_error::<128>();
}

fn refused_after_an_error<const N: usize>() {
    let write = || RdmaWrite::new(InlineBytes([0; N]), Remote::new(0x1000, 7)).signaled();
    for half in [0, HALF] {
        let mut twin = Twin::new(32, 32, 0, half);
        let mut prepared = Prepared::new(twin.sq.queue);
        let blocks = <RdmaWrite<InlineBytes<N>> as Patch>::BLOCKS as u32;
        for id in 0..6 {
            prepared.prepare(id, write()).unwrap();
        }
        for byte in 0..3 {
            prepared.fire([byte; N]).unwrap();
        }
        let mut error = cqe(13, WRITE, blocks);
        error.timestamp = u64::from_be_bytes([0, 0, 0, 0, 0, 0, 0, 0x13]).into();
        twin.cq.produce(error, &[]);
        let Ok(Some(Completion::Failed(failure))) = twin.cq.reader.poll(&mut prepared) else {
            panic!()
        };
        assert_eq!((failure.id, u32::from(failure.wqe_index)), (1, blocks));
        assert_eq!(failure.status, Status::RemoteAccess);
        for _ in 0..2 {
            assert_eq!(prepared.fire([3; N]), Err(PostError::WrongState));
        }
        assert_eq!(prepared.prepare(9, write()), Err(PostError::WrongState));
        let posted = twin.sq.record.be32(4);
        assert_eq!((prepared.len(), posted), (3, 3 * blocks), "nothing more is posted");
        let mut queue = prepared.into_queue();
        // SAFETY: no HCA is there.
        assert_eq!(unsafe { queue.post(9, Nop::new()) }, Err(PostError::WrongState));
    }
}
