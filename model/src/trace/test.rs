//! Tests of recordings of two devices in memory: replayed, damaged, and distinguished.

use std::borrow::Cow;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::{
    Call, Detail, Header, Mistake, OLDEST, Observed, Queue, ReadError, Reader, Record, Sink, Tap,
    VERSION, Verdict, What,
};
use crate::card::{Card, CounterSets, Link, Profile, Timeouts};
use crate::clock::{Clock, Random};
use crate::command::hca_test as hca;
use crate::command::test::{BASE, Rig, SIZE, identity};
use crate::fault::WqeFault;
use crate::function::{Notice, PortChange};
use crate::memory::test::Flat;
use crate::object::Service;
use crate::replay::replay;
use crate::transport::test::side::{Post, Side};
use crate::transport::test::{Pair, Setup};
use crate::wire::{LinkAddress, Way, mac};

const SEND: u8 = 0x0a;
const WRITE: u8 = 0x08;
const READ: u8 = 0x10;
const ADD: u8 = 0x12;

/// Records what two cards of one process do about each other's requests.
fn record(setup: Setup, detail: Detail, work: impl FnOnce(&mut Pair)) -> Vec<u8> {
    record_placed(setup, detail, None, work)
}

/// The same with a seed of placement.
fn record_placed(
    setup: Setup,
    detail: Detail,
    placement: Option<u64>,
    work: impl FnOnce(&mut Pair),
) -> Vec<u8> {
    let stream = Arc::new(Mutex::new(Vec::new()));
    let identities = [0, 1].map(|index: u16| {
        let mut identity = identity(setup.link);
        identity.qpn_prefixes.clear();
        identity.lid = if setup.link == Link::Roce { 0 } else { 7 + index };
        identity.gids[0].gid[15] = 1 + index as u8;
        identity.mac = mac(&identity.gids[0].gid);
        identity.placement = placement;
        identity
    });
    let header = Header::of_this_process(identities.to_vec(), detail);
    let tap = Tap::recording(Sink::Memory(stream.clone()), &header, Clock::real());
    let mut index = 0;
    let mut sides = identities.map(|identity| {
        let memory = Arc::new(Flat::new(BASE, SIZE));
        let mut card = Card::new(identity, memory.clone(), Clock::Manual(0));
        card.tap(&tap, index);
        card.add_prefix(0x12 + u16::from(index));
        index += 1;
        Side::with(Rig::of(card, memory), setup)
    });
    Pair::connect(&mut sides, [setup; 2]);
    let mut pair = Pair::between(sides);
    work(&mut pair);
    pair.settle();
    tap.flush();
    drop((pair, tap));
    Arc::into_inner(stream).expect("nobody else has it").into_inner().unwrap()
}

fn exchange(pair: &mut Pair) {
    let [own, peer] = &mut pair.sides;
    own.put(0, b"over there");
    peer.receive(&[(64, 64, peer.key)]);
    own.send(10);
    let mut write = Post::new(WRITE);
    write.data = vec![(0, 3000, own.key)];
    write.remote = (Side::address(4096), peer.key);
    own.post(&write);
    let mut read = Post::new(READ);
    read.data = vec![(8192, 100, own.key)];
    read.remote = (Side::address(4096), peer.key);
    own.post(&read);
    let mut add = Post::new(ADD);
    add.data = vec![(128, 8, own.key)];
    add.remote = (Side::address(64), peer.key);
    add.operands = (1, 0);
    own.post(&add);
    pair.settle();
}

fn replayed(bytes: &[u8]) -> Result<Verdict, ReadError> {
    replay(&mut Reader::new(bytes)?)
}

fn observed(bytes: &[u8]) -> Vec<Observed<'static>> {
    let events = Reader::new(bytes).unwrap().events();
    events
        .filter_map(|event| match event.unwrap().what {
            What::Observed(observed) => Some(observed),
            _ => None,
        })
        .collect()
}

#[test]
fn faults_are_done_again() {
    let bytes = record(Setup::default(), Detail::Replay, |pair| {
        pair.set_faults("packet 2 duplicate; in packet 4 loss; mark 50%");
        exchange(pair);
        pair.set_faults("wqe 2 error 93005204");
        exchange(pair);
        pair.set_faults("device 0 flap; device 0 overrun cq; device 1 overrun eq; device 1 fatal");
        exchange(pair);
    });
    let verdict = replayed(&bytes).unwrap();
    assert!(verdict.is_equal() && !verdict.cut, "{verdict:#?}");
    let calls: Vec<_> = Reader::new(&bytes[..])
        .unwrap()
        .events()
        .filter_map(|event| match event.unwrap().what {
            What::Entered(call) => Some(call),
            _ => None,
        })
        .collect();
    for call in [Call::Port(false), Call::OverrunCqs(None), Call::OverrunEqs(None), Call::Stop] {
        assert!(calls.contains(&call), "{call:?}");
    }
}

#[test]
fn data_that_became_visible_out_of_order_does_so_again() {
    for seed in 0..8 {
        let bytes = record_placed(Setup::default(), Detail::Replay, Some(seed), |pair| {
            exchange(pair);
            let [own, peer] = &mut pair.sides;
            own.write_to(4096, 3000, peer.key);
            pair.settle();
            while pair.tick().is_some() {}
        });
        let verdict = replayed(&bytes).unwrap();
        assert!(verdict.is_equal() && !verdict.cut, "{verdict:#?}");
        assert_eq!(verdict.cqes, 6);
    }
}

#[test]
fn what_was_recorded_is_done_again() {
    for setup in [
        Setup::default(),
        Setup { link: Link::Roce, ..Setup::default() },
        Setup { shared_receive: true, scatter_to_cqe: true, ..Setup::default() },
    ] {
        let bytes = record(setup, Detail::Replay, exchange);
        let verdict = replayed(&bytes).unwrap();
        assert!(verdict.is_equal() && !verdict.cut, "{verdict:#?}");
        // Four requests, and the receive of the first.
        assert_eq!(verdict.cqes, 5);
        // On each card: UAR page, PD, EQs, CQs, keys, a queue pair and its way to RTS.
        assert!(verdict.commands >= 2 * 10, "{verdict:?}");
        // Requests, three packets of the write, acknowledges and answers.
        assert!(verdict.packets >= 4 + 2 + 3, "{verdict:?}");
        assert!(verdict.writes >= 5 + 4, "{verdict:?}");
    }
}

#[test]
fn the_story_names_requests_and_completions() {
    let bytes = record(Setup::default(), Detail::Replay, exchange);
    let observed = observed(&bytes);
    let sends: Vec<u8> = observed
        .iter()
        .filter_map(|what| match what {
            Observed::SendWqe { bytes, service: Service::Rc, .. } => Some(bytes[3]),
            _ => None,
        })
        .collect();
    assert_eq!(sends, [SEND, WRITE, READ, ADD]);
    let cqes: Vec<(u32, u8)> = observed
        .iter()
        .filter_map(|what| match what {
            Observed::Cqe { index, bytes, compressed: false, .. } => Some((*index, bytes[63] >> 4)),
            _ => None,
        })
        .collect();
    // The first request's completion comes with the others', the receive's before.
    assert_eq!(cqes, [(0, 2), (0, 0), (1, 0), (2, 0), (3, 0)]);
    let receive = |what: &&Observed<'_>| {
        matches!(what, Observed::ReceiveWqe { queue: Queue::Own, index: 0, .. })
    };
    assert_eq!(observed.iter().filter(receive).count(), 1);
}

#[test]
fn a_story_alone_is_shorter_and_cannot_be_replayed() {
    let whole = record(Setup::default(), Detail::Replay, exchange);
    let story = record(Setup::default(), Detail::Story, exchange);
    assert!(story.len() < whole.len());
    assert_eq!(observed(&story).len(), observed(&whole).len());
    assert!(matches!(replayed(&story), Err(ReadError::StoryOnly)));
}

#[test]
fn a_changed_wqe_completes_otherwise() {
    let mut bytes = record(Setup::default(), Detail::Replay, |pair| {
        let [own, peer] = &mut pair.sides;
        own.write_to(4096, 64, peer.key);
    });
    // The write's opcode becomes an unknown one, wherever its control segment stands: the card
    // reads it first, and then the whole WQE.
    let control = control(&bytes, WRITE);
    let places: Vec<usize> =
        (0..bytes.len() - 16).filter(|at| bytes[*at..*at + 16] == control).collect();
    for at in places {
        bytes[at + 3] = 0x77;
    }
    let verdict = replayed(&bytes).unwrap();
    let completion = verdict.completion.clone().expect("another completion");
    let (Some(Record::Observed(Observed::Cqe { bytes: recorded, .. })), Some(replayed)) =
        (completion.recorded, completion.replayed)
    else {
        panic!("{verdict:#?}");
    };
    let Record::Observed(Observed::Cqe { bytes: replayed, .. }) = replayed else {
        panic!("{replayed:?}");
    };
    assert_eq!((recorded[63] >> 4, replayed[63] >> 4, replayed[55]), (0, 13, 2));
}

/// The first control segment with this opcode that the card read.
fn control(bytes: &[u8], opcode: u8) -> Vec<u8> {
    let mut reader = Reader::new(bytes).unwrap();
    while let Some(record) = reader.next_record().unwrap() {
        if let Record::Read { length: 16, found: Ok(found), .. } = record {
            if found[3] == opcode {
                return found.into_owned();
            }
        }
    }
    panic!("it was not read");
}

#[test]
fn a_mistake_is_told() {
    let bytes = record(Setup::default(), Detail::Replay, |pair| {
        let side = &mut pair.sides[0];
        let uar = side.rig.uar;
        side.rig.card.store(uar, 0x100, &[1; 8]);
        // The record does not cover what is rung.
        let index = side.write(&Post::new(0));
        side.rig.write(side.places().0 + 4, &[0; 4]);
        side.ring(index);
    });
    for mistake in [Mistake::UnknownStore, Mistake::LateRecord] {
        let told = Observed::Mistake { mistake, count: 1 };
        assert!(observed(&bytes).contains(&told), "{mistake:?}");
    }
    assert!(replayed(&bytes).unwrap().is_equal());
}

#[test]
fn a_reset_and_the_boot_after_it_are_replayed() {
    let mut queue_pairs = usize::MAX;
    let bytes = record(Setup::default(), Detail::Replay, |pair| {
        let rig = &mut pair.sides[0].rig;
        rig.card.notify(Notice::Pages(3));
        hca::prepare(rig);
        rig.run(&hca::init()).unwrap();
        queue_pairs = rig.card.objects.qps.len();
    });
    assert_eq!(queue_pairs, 0, "the reset destroyed the queue pairs");
    let verdict = replayed(&bytes).unwrap();
    assert!(verdict.is_equal(), "{verdict:?}");
}

#[test]
fn what_is_no_recording_is_told() {
    let bytes = record(Setup::default(), Detail::Replay, exchange);
    let error = |bytes: &[u8]| Reader::new(bytes).map(drop).unwrap_err();
    assert!(matches!(error(b""), ReadError::NoTrace));
    assert!(matches!(error(b"\x7fELF, which is something else"), ReadError::NoTrace));
    let mut other = bytes.clone();
    other[8] += 1;
    assert!(matches!(error(&other), ReadError::Version(other) if other == VERSION + 1));
    other[8] = OLDEST as u8;
    Reader::new(&other[..]).expect("earlier versions lack calls alone");
    other[8] -= 1;
    assert!(matches!(error(&other), ReadError::Version(1)));
    for at in 12..60 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x40;
        let told = error(&damaged);
        assert!(matches!(told, ReadError::Header | ReadError::Cut(0)), "{at}: {told}");
    }
}

#[test]
fn what_was_cut_is_replayed_up_to_there() {
    let bytes = record(Setup::default(), Detail::Replay, exchange);
    let whole = replayed(&bytes).unwrap();
    let mut calls = Vec::new();
    for end in (bytes.len() / 2..bytes.len()).step_by(101) {
        let verdict = replayed(&bytes[..end]).unwrap();
        assert!(verdict.is_equal(), "{verdict:#?}");
        calls.push(verdict.calls);
    }
    assert!(calls.is_sorted() && calls.last().unwrap() < &whole.calls);
}

#[test]
fn records_are_read_as_they_were_written() {
    let bytes = || vec![1u8, 2, 3, 4, 5].into();
    let call = |call| Record::Call { card: 3, time: 1 << 40, call };
    let way = |to| Way { to, first: 0x12_3400, last: 0x12_34ff };
    let all = [
        call(Call::Command(bytes())),
        call(Call::Store { uar: 7, offset: 0x800, bytes: bytes() }),
        call(Call::RingAll(9)),
        call(Call::Receive(bytes())),
        call(Call::ReceiveOwn { domain: 0x10, frame: bytes() }),
        call(Call::ReceiveManagement(bytes())),
        call(Call::SendManagement(bytes())),
        call(Call::Expire),
        call(Call::Pump),
        call(Call::Settle),
        call(Call::Release),
        call(Call::TakeFrame),
        call(Call::TakeInterrupt),
        call(Call::Prefix(0x1234)),
        call(Call::Memic(1 << 50)),
        call(Call::Port(true)),
        call(Call::OverrunCqs(Some(3))),
        call(Call::OverrunCqs(None)),
        call(Call::OverrunEqs(Some(4))),
        call(Call::WqeFaults(Cow::Owned(vec![
            WqeFault { qp: None, numbers: 3..=u64::MAX, codes: [1, 2, 3, 4] },
            WqeFault { qp: Some(7), numbers: 1..=1, codes: [0; 4] },
        ]))),
        call(Call::Stop),
        call(Call::Reset),
        call(Call::Notice(Notice::Commands { eq: 3, slots: 1 << 31 })),
        call(Call::Notice(Notice::Pages(-7))),
        call(Call::Notice(Notice::Port(PortChange::Gids))),
        call(Call::Notice(Notice::General(8))),
        call(Call::Timeouts(Timeouts::Specification { floor: 31 })),
        call(Call::Timeouts(Timeouts::Measured)),
        call(Call::Timeouts(Timeouts::FloorOff)),
        call(Call::CounterSets(CounterSets::Allowed)),
        call(Call::CounterSets(CounterSets::Refused)),
        call(Call::Congested { way: way(LinkAddress::Lid(0xbfff)), full: true }),
        call(Call::Slow { way: way(LinkAddress::Mac([2, 1, 2, 3, 4, 5])), slow: true }),
        Record::Reply(bytes()),
        Record::End,
        Record::Read { address: 5, length: 5, found: Ok(bytes()) },
        Record::Read { address: 5, length: 9, found: Err(8) },
        Record::Write { address: 5, fault: None, bytes: bytes() },
        Record::Write { address: 5, fault: Some(7), bytes: bytes() },
        Record::Update { address: 8, values: Ok(([1; 8], [2; 8])) },
        Record::Update { address: 8, values: Err(8) },
        Record::Time(12345),
        Record::Observed(Observed::SendWqe {
            qp: 1,
            index: 2,
            service: Service::Ud,
            bytes: bytes(),
        }),
        Record::Observed(Observed::ReceiveWqe {
            qp: 1,
            queue: Queue::Own,
            index: 2,
            bytes: bytes(),
        }),
        Record::Observed(Observed::ReceiveWqe {
            qp: 1,
            queue: Queue::Shared(4),
            index: 2,
            bytes: bytes(),
        }),
        Record::Observed(Observed::Cqe { cq: 1, index: 2, compressed: true, bytes: bytes() }),
        Record::Observed(Observed::Eqe { eq: 1, index: 2, bytes: bytes() }),
        Record::Observed(Observed::Sent(bytes())),
        Record::Observed(Observed::Interrupt(5)),
        Record::Observed(Observed::Mistake { mistake: Mistake::WrongDoorbell, count: 2 }),
    ];
    let mut stream = Header::of_this_process(vec![identity(Link::Roce)], Detail::Replay).bytes();
    for record in &all {
        assert!(record.write(&mut stream));
    }
    let mut reader = Reader::new(&stream[..]).unwrap();
    for record in &all {
        assert_eq!(reader.next_record().unwrap().as_ref(), Some(record));
    }
    assert!(reader.next_record().unwrap().is_none());
    // Cut anywhere, and with something behind, a record is none.
    for record in &all {
        let mut bytes = Vec::new();
        record.write(&mut bytes);
        let (kind, content) = (bytes[0], &bytes[5..]);
        assert_eq!(Record::read(kind, content).as_ref(), Some(record));
        assert_eq!(Record::read(0, content), None);
    }
}

#[test]
fn the_header_is_read_as_it_was_written() {
    let mut cards = vec![identity(Link::Roce); 3];
    cards[1].counter_sets = CounterSets::Refused;
    cards[1].prefetch = Some(7);
    cards[2].placement = Some(8);
    cards[2].profile = Profile::ConnectX7;
    let header = Header::of_this_process(cards.clone(), Detail::Story);
    let bytes = header.bytes();
    let reader = Reader::new(&bytes[..]).unwrap();
    let read = reader.header();
    assert_eq!((&read.build, &read.program), (&header.build, &header.program));
    assert_eq!((read.process, read.began), (header.process, header.began));
    assert_eq!((read.monotonic, read.detail), (header.monotonic, Detail::Story));
    // Prefixes of numbers are no part of it.
    cards.iter_mut().for_each(|card| card.qpn_prefixes.clear());
    assert_eq!(read.cards, cards);
    assert!(!reader.is_foreign());
}

/// Changes some bytes of a recording behind its header: single bits, bytes, lengths, whole pieces that
/// are left out, doubled or moved.
fn spoil(bytes: &[u8], header: usize, random: &mut Random) -> Vec<u8> {
    let mut spoiled = bytes.to_vec();
    for _ in 0..1 + random.draw() % 4 {
        let length = spoiled.len() - header;
        if length < 2 {
            break;
        }
        let at = header + random.draw() as usize % length;
        let run = (random.draw() as usize % 64).min(spoiled.len() - at);
        match random.draw() % 6 {
            0 => spoiled[at] ^= 1 << (random.draw() % 8),
            1 => spoiled[at] = random.draw() as u8,
            2 => spoiled[at..at + run].fill(0xff),
            3 => drop(spoiled.drain(at..at + run)),
            4 => {
                let piece = spoiled[at..at + run].to_vec();
                let to = header + random.draw() as usize % length;
                drop(spoiled.splice(to..to, piece));
            }
            _ => spoiled.truncate(at),
        }
    }
    spoiled
}

/// How many damaged recordings are read and replayed.
const DAMAGED: usize = 100_000;

#[test]
fn damaged_recordings_are_read_and_replayed_without_harm() {
    let bytes = record(Setup::default(), Detail::Replay, |pair| {
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(64, 64, peer.key)]);
        own.send(10);
    });
    let header =
        Header::of_this_process(vec![identity(Link::InfiniBand); 2], Detail::Replay).bytes().len();
    let (mut random, mut equal, mut different, mut refused) = (Random::seeded(6), 0, 0, 0);
    for _ in 0..DAMAGED {
        match replayed(&spoil(&bytes, header, &mut random)) {
            Ok(verdict) if verdict.is_equal() => equal += 1,
            Ok(_) => different += 1,
            Err(_) => refused += 1,
        }
    }
    // Each kind is common: the damage reaches everything.
    assert!(equal.min(different).min(refused) > DAMAGED / 50, "{equal} {different} {refused}");
}

proptest! {
    #[test]
    fn any_bytes_behind_a_header_are_read_without_harm(
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        let mut stream = Header::of_this_process(vec![identity(Link::Roce)], Detail::Replay).bytes();
        stream.extend(&bytes);
        let _ = replayed(&stream);
        let _ = Reader::new(&bytes[..]);
    }
}
