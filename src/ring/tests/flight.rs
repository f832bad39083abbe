//! Tests of the flight recorder: for each way of posting, its records match the ring and the stores
//! to the register.

use mlx5_diag::flight::What;
use mlx5_sys::cqe::opcode as cqe_opcode;
use mlx5_sys::wqe::opcode;

use super::*;
use crate::ib::{Transport, Ud};
use crate::ring::random::Random;
use crate::watch::flight::{Config, DoorbellKind};
use crate::wqe::{
    Inline, InlineBytes, LocalInvalidate, Nop, PostOn, RdmaRead, RdmaWrite, Remote, SendMessage,
    Sge, UdAddress,
};

const BLOCKS: u32 = 32;
/// Value of the page's bytes that no store has reached.
const UNTOUCHED: u8 = 0x55;
/// Offsets of the BlueFlame register, and of the register of queues without a record.
const REGISTER: usize = 0x800;
const BARE: usize = 0x600;

/// How a queue's doorbell is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bell {
    BlueFlame,
    LastToo,
    Plain,
    Uncached,
    Recordless,
}

struct Watched<T: Transport> {
    // Before what it reads.
    sq: Sq<T>,
    cq: Cq,
    bell: Bell,
}

impl<T: Transport> Watched<T> {
    fn new(bell: Bell, start: u32) -> Self {
        let mut cq = Cq::new(64, 64, 0);
        let half = if matches!(bell, Bell::BlueFlame | Bell::LastToo) { HALF } else { 0 };
        let mut sq = Sq::<T>::of(&mut cq, BLOCKS, start, half);
        let doorbell = &mut sq.queue.ring.doorbell;
        match bell {
            Bell::BlueFlame | Bell::Plain => {}
            Bell::LastToo => doorbell.copy_last(),
            // SAFETY: the page is ordinary memory, whose stores stay in order.
            Bell::Uncached => unsafe { doorbell.set_uncached() },
            Bell::Recordless => {
                // SAFETY: the memory lives as long as the queue.
                let other = unsafe {
                    let record = crate::doorbell::Record::new(sq.record.at(0).cast(), 1);
                    SendDoorbell::without_record(record, sq.page.at(BARE))
                };
                let before = core::mem::replace(doorbell, other);
                doorbell.flight = before.flight;
            }
        }
        sq.queue.set_flight(Config { events: 64, wqe_bytes: 256 });
        Self { sq, cq, bell }
    }

    /// Posts, and looks at what was recorded of it.
    fn post(&mut self, what: &str, post: impl FnOnce(&mut SendQueue<T>) -> u32) {
        self.sq.page.write(0x600, &[UNTOUCHED; 0x600]);
        self.sq.queue.clear_flight();
        let head = self.sq.queue.ring.head();
        let wqes = post(&mut self.sq.queue);
        let record = self.sq.queue.flight_record();
        let what = format!("{what} by {:?} from {head:?}:\n{record}", self.bell);

        let (ring, end) = (self.sq.buffer.read(), self.sq.queue.ring.head());
        let (bell, posted) = record.events.split_last().expect(&what);
        assert_eq!(posted.len(), wqes as usize, "{what}");
        let mut at = head;
        for event in posted {
            let What::Wqe(wqe) = &event.what else { panic!("{what}") };
            assert_eq!((wqe.index, wqe.found), (at.low16(), false), "{what}");
            let slot = at.value() as usize % BLOCKS as usize;
            let units = usize::from(ring[slot * 64 + 7] & 0x3f);
            let bytes: Vec<_> =
                (0..units * 16).map(|byte| ring[(slot * 64 + byte) % ring.len()]).collect();
            assert_eq!(wqe.size as usize, bytes.len(), "{what}");
            assert_eq!(wqe.bytes, bytes[..bytes.len().min(256)], "{what}");
            at = at.plus(units.div_ceil(4) as u32);
        }
        assert_eq!(at, end, "all that was posted: {what}");

        let What::Doorbell(bell) = bell.what else { panic!("{what}") };
        assert_eq!(bell.record, u32::from(end.low16()), "{what}");
        let page = self.sq.page.read();
        let touched = |at: &usize| page[*at] != UNTOUCHED;
        let first = (0x600..0xc00).find(touched).expect(&what);
        assert_eq!(bell.register, Some(first as u16), "{what}");
        let copied = (first + 8..first + 64).any(|at| touched(&at));
        let expected = match (self.bell, copied) {
            (Bell::Recordless, false) => DoorbellKind::RegisterOnly,
            (_, true) => DoorbellKind::BlueFlame,
            (_, false) => DoorbellKind::Doorbell,
        };
        assert_eq!(bell.kind, expected, "{what}");
        assert_eq!(first >= REGISTER, self.bell != Bell::Recordless, "{what}");
    }

    /// A request posted singly, and as the second of a batch.
    fn both<O: PostOn<T> + Copy>(&mut self, what: &str, operation: O)
    where
        Nop: PostOn<T>,
    {
        self.post(what, |queue| {
            // SAFETY: no HCA is there.
            unsafe { queue.post(1, operation).unwrap() };
            1
        });
        self.post(&format!("{what} in a batch"), |queue| {
            let mut batch = queue.batch();
            batch.append(1, Nop::new()).unwrap();
            batch.append(2, operation).unwrap();
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
            2
        });
        self.retire();
    }

    /// Retires all, by the CQE of a last request, and looks at what was recorded of that.
    fn retire(&mut self)
    where
        Nop: PostOn<T>,
    {
        let last = self.sq.queue.ring.head().low16();
        // SAFETY: no HCA is there.
        unsafe { self.sq.queue.post(9, Nop::new().signaled()).unwrap() };
        self.cq.produce(cqe(cqe_opcode::REQ, opcode::NOP, last.into()), &[]);
        self.cq.reader.clear_flight();
        self.sq.queue.clear_flight();
        let done = self.cq.reader.poll(&mut self.sq.queue).unwrap();
        assert!(done.is_some() && self.sq.queue.is_idle());
        for record in [self.sq.queue.flight_record(), self.cq.reader.flight_record()] {
            let [event] = &record.events[..] else { panic!("{record}") };
            let What::Cqe(found) = event.what else { panic!("{record}") };
            assert_eq!((found.wqe_index(), found.qpn()), (last, QPN), "{record}");
        }
    }
}

const BELLS: [Bell; 5] =
    [Bell::BlueFlame, Bell::LastToo, Bell::Plain, Bell::Uncached, Bell::Recordless];

fn each<T: Transport>(mut work: impl FnMut(&mut Watched<T>, &mut Random)) {
    let mut random = Random::from_clock();
    for bell in BELLS {
        for start in [0, 0xfff0, random.below(0x1_0000)] {
            let mut watched = Watched::<T>::new(bell, start);
            for _ in 0..8 {
                work(&mut watched, &mut random);
            }
        }
    }
}

#[test]
fn every_way_of_posting_on_a_connection_is_recorded_as_it_lies_in_the_ring() {
    each::<Rc>(|watched, random| {
        let remote = Remote::new(random.next(), random.next() as u32);
        let entry = |random: &mut Random| {
            Sge::new(random.next(), 1 + random.below(1 << 20), random.next() as u32)
        };
        let sge = entry(random);
        let bytes: [u8; 180] = core::array::from_fn(|_| random.next() as u8);
        watched.both("a pointer", RdmaWrite::new(sge, remote));
        watched.both("an inline payload", RdmaWrite::new(InlineBytes([7; 8]), remote).signaled());
        watched.both("a payload of run-time length", SendMessage::new(Inline(&bytes[..8])));
        watched.both("two blocks", RdmaWrite::new(InlineBytes([8; 92]), remote));
        watched.both("several blocks", SendMessage::new(Inline(&bytes)));
        watched.both("a list", RdmaRead::new([entry(random), entry(random), sge], remote));
        watched.both("a ctrl segment", Nop::new());
        watched.both("a change of keys", LocalInvalidate::new(5));
    });
}

#[test]
fn so_is_every_way_of_posting_datagrams() {
    each::<Ud>(|watched, random| {
        let address = UdAddress::of_segments([(); 3].map(|()| [random.next(), random.next()]));
        let sge = Sge::new(random.next(), 8, 9);
        watched.post("a pointer", |queue| {
            // SAFETY: no HCA is there.
            unsafe { queue.post(1, SendMessage::new(sge).to(&address)).unwrap() };
            1
        });
        watched.post("a batch", |queue| {
            let mut batch = queue.batch();
            batch.append(1, SendMessage::new(InlineBytes([1; 8])).to(&address)).unwrap();
            batch.append(2, SendMessage::new(sge).to(&address)).unwrap();
            // SAFETY: no HCA is there.
            unsafe { batch.ring() };
            2
        });
        let last = watched.sq.queue.ring.head().low16();
        // SAFETY: no HCA is there.
        unsafe { watched.sq.queue.post(9, SendMessage::new(sge).signaled().to(&address)).unwrap() };
        watched.cq.produce(cqe(cqe_opcode::REQ, opcode::SEND, last.into()), &[]);
        assert!(watched.cq.reader.poll(&mut watched.sq.queue).unwrap().is_some());
    });
}

/// A CQE of an error, as `mlx5dv.h` has it.
fn error(syndrome: u8, counter: u16) -> Cqe64 {
    let mut bytes = [0; 64];
    bytes.copy_from_slice(cqe(cqe_opcode::REQ_ERR, opcode::SEND, counter.into()).as_bytes());
    bytes[55] = syndrome;
    zerocopy::transmute!(bytes)
}

#[test]
fn a_second_failure_that_is_no_flush_is_kept_in_place_of_the_first() {
    const ACCESS: u8 = 0x13;
    const FLUSH: u8 = 0x05;
    let mut watched = Watched::<Rc>::new(Bell::Plain, 0);
    for id in 0..4 {
        // SAFETY: no HCA is there.
        unsafe { watched.sq.queue.post(id, SendMessage::new(Inline(b"x")).signaled()).unwrap() };
    }
    let syndromes = |record: &mlx5_diag::flight::Record| -> Vec<u8> {
        let cqes = record.events.iter().filter_map(|event| match &event.what {
            What::Cqe(cqe) => Some(cqe.syndrome()),
            _ => None,
        });
        cqes.collect()
    };
    let mut kept = Vec::new();
    for (syndrome, counter) in [(FLUSH, 0), (FLUSH, 1), (ACCESS, 2), (FLUSH, 3)] {
        watched.cq.produce(error(syndrome, counter), &[]);
        assert!(watched.cq.reader.poll(&mut watched.sq.queue).unwrap().is_some());
        let record = watched.sq.queue.flight_record();
        kept.push((record.guilty().unwrap().index, syndromes(&record)));
        assert_eq!(syndromes(&record), syndromes(&watched.cq.reader.flight_record()));
    }
    let first = (0, vec![FLUSH]);
    let second = (2, vec![FLUSH, ACCESS]);
    assert_eq!(kept, [first.clone(), first, second.clone(), second]);
}

#[test]
fn a_wqe_that_something_has_written_to_is_told_from_what_was_posted() {
    const LENGTH: u8 = 0x01;
    for overwritten in [false, true] {
        let mut watched = Watched::<Rc>::new(Bell::BlueFlame, 0xffff);
        let write = RdmaWrite::new(InlineBytes([7; 8]), Remote::new(1, 2)).signaled();
        // SAFETY: no HCA is there.
        unsafe { watched.sq.queue.post(1, write).unwrap() };
        if overwritten {
            watched.sq.buffer.write((BLOCKS as usize - 1) * 64 + 20, b"stray");
        }
        watched.cq.produce(error(LENGTH, 0xffff), &[]);
        assert!(watched.cq.reader.poll(&mut watched.sq.queue).unwrap().is_some());
        let record = watched.sq.queue.flight_record();
        assert_eq!(record.changed(), Some(overwritten), "{record}");
        let found = &record.guilty().unwrap().bytes[20..25];
        assert_eq!(found == b"stray", overwritten, "{record}");
    }
}

#[test]
fn a_ring_that_says_nonsense_of_its_wqes_is_recorded_within_its_bounds() {
    let mut random = Random::from_clock();
    for start in [0, 0xfffe, 7] {
        let mut watched = Watched::<Rc>::new(Bell::Plain, start);
        for _ in 0..200 {
            let junk: Vec<u8> = (0..BLOCKS * 64).map(|_| random.next() as u8).collect();
            watched.sq.buffer.write(0, &junk);
            let ring = &mut watched.sq.queue.ring;
            let ahead = ring.head().plus(random.below(2 * BLOCKS));
            let shape = ring.shape();
            // SAFETY: the ring's memory, which nothing else writes.
            unsafe {
                ring.doorbell.flight.posted(ring.buffer, shape, ahead);
                ring.doorbell.flight.found_send(ring.buffer, shape, ahead);
            }
            let record = watched.sq.queue.flight_record();
            for event in &record.events {
                if let What::Wqe(wqe) = &event.what {
                    assert!(wqe.bytes.len() <= 256 && wqe.size <= 63 * 16, "{record}");
                }
            }
        }
    }
}
