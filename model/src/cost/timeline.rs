//! The virtual time of one device: the work at hand, and the times at which its parts are free.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Detour, Failure, Parameters, Rate, Request, Side, Store};
use crate::clock::TimeSource;

/// Picoseconds of a nanosecond.
const NANOSECOND: u64 = 1_000;
/// Most bytes of payload in a PCIe packet.
const BUS_PAYLOAD: u64 = 256;
/// Bytes of a PCIe packet that are no payload: framing, link layer, and a memory request's header.
const BUS_HEADER: u64 = 24;
/// Bytes of a CQE.
const CQE: u64 = 64;
/// Most busy times of a part, and most queue pairs, that are remembered.
const PLANNED: usize = 1 << 16;
/// Bits of a CQ's counters.
const COUNTER: u32 = 0xff_ffff;
/// Bits of an address that choose the place of an atomic (measured on Connect-IB, evidence E169).
const PLACE: u64 = 0xfff;

/// A time in picoseconds that others read in nanoseconds.
#[derive(Debug, Default)]
pub struct VirtualTime(AtomicU64);

impl VirtualTime {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, time: u64) {
        self.0.store(time, Ordering::Relaxed);
    }

    /// Moves forward to a time that is not past.
    fn reach(&self, time: u64) {
        self.0.fetch_max(time, Ordering::Relaxed);
    }

    fn add(&self, time: u64) -> u64 {
        self.0.fetch_add(time, Ordering::Relaxed) + time
    }
}

impl TimeSource for VirtualTime {
    fn now(&self) -> u64 {
        self.get() / NANOSECOND
    }
}

/// A part of the device that does one thing at a time: when it is busy, by start.
///
/// The engine finishes the work of one store before it sees the next one, so work of an earlier time
/// may come later. It finds the gaps between what is planned already.
#[derive(Debug, Default)]
struct Part(RefCell<BTreeMap<u64, u64>>);

impl Part {
    /// Uses the part for a time, from the first gap after `from` on. Returns the start. Nothing comes
    /// any more that begins before `past`.
    fn take(&self, from: u64, time: u64, past: u64) -> u64 {
        let mut busy = self.0.borrow_mut();
        while busy.len() >= PLANNED || busy.first_key_value().is_some_and(|(_, end)| *end <= past) {
            busy.pop_first();
        }
        let before = busy.range(..=from).next_back();
        let mut start = before.map_or(from, |(_, end)| from.max(*end));
        for (begin, end) in busy.range(from.saturating_add(1)..) {
            if *begin >= start + time {
                break;
            }
            start = start.max(*end);
        }
        let (mut begin, mut end) = (start, start + time);
        if let Some((touching, _)) =
            busy.range(..start).next_back().filter(|(_, end)| **end == start)
        {
            begin = *touching;
        }
        if let Some(longer) = busy.remove(&end) {
            end = longer;
        }
        if begin < end {
            busy.insert(begin, end);
        }
        start
    }
}

/// CQEs that the program has not taken: the CQ's counter behind each, and when it could be seen.
type Untaken = VecDeque<(u32, u64)>;

/// The virtual time of one device.
#[derive(Debug)]
pub(super) struct Timeline {
    costs: Parameters,
    /// The program's time, which all devices of the process share.
    pub(super) host: Arc<VirtualTime>,
    /// The time of the work at hand: what the device's clock says.
    pub(super) now: Arc<VirtualTime>,
    /// The time of the store, arrival or timer that the work follows from.
    event: Cell<u64>,
    /// The queue pair whose turn it is.
    turn: Cell<u32>,
    /// The times at which the newest packet of each queue pair leaves: none overtakes another.
    newest: RefCell<BTreeMap<(u32, Side), u64>>,
    /// The end of the last write of payload that belongs to the event.
    written: Cell<u64>,
    /// The times of the newest CQEs, by CQ.
    last: RefCell<BTreeMap<u32, u64>>,
    /// The earliest times of the next flush, by queue pair that has failed.
    flushes: RefCell<BTreeMap<u32, u64>>,
    /// The WQE that came with the store: queue pair and counter.
    copied: Cell<Option<(u32, u16)>>,
    /// The times from which queue pairs may begin their next WQE.
    free: RefCell<BTreeMap<u32, u64>>,
    /// The times at which other queues have enabled WQEs of queue pairs.
    enabled: RefCell<BTreeMap<u32, u64>>,
    /// The times up to which the packets of send queues take their rates.
    limited: RefCell<BTreeMap<u32, u64>>,
    requests: Part,
    reads: Part,
    writes: Part,
    egress: Part,
    atomics: Part,
    /// The atomics at each place of memory.
    places: RefCell<BTreeMap<u64, Part>>,
    /// Bytes that the next packet reads from memory.
    gathered: Cell<u64>,
    /// The times at which the packets in the outbox have left.
    departures: RefCell<VecDeque<u64>>,
    /// The time at which the last packet taken from the outbox has left.
    departed: Cell<u64>,
    untaken: RefCell<BTreeMap<u32, Untaken>>,
}

impl Timeline {
    pub(super) fn new(host: Arc<VirtualTime>, costs: Parameters) -> Self {
        Self {
            costs,
            host,
            now: Arc::default(),
            event: Cell::default(),
            turn: Cell::default(),
            newest: RefCell::default(),
            written: Cell::default(),
            last: RefCell::default(),
            flushes: RefCell::default(),
            copied: Cell::default(),
            free: RefCell::default(),
            enabled: RefCell::default(),
            limited: RefCell::default(),
            requests: Part::default(),
            reads: Part::default(),
            writes: Part::default(),
            egress: Part::default(),
            atomics: Part::default(),
            places: RefCell::default(),
            gathered: Cell::default(),
            departures: RefCell::default(),
            departed: Cell::default(),
            untaken: RefCell::default(),
        }
    }

    /// Returns the time for which bytes occupy PCIe.
    fn on_bus(&self, bytes: u64) -> u64 {
        let packets = bytes.div_ceil(BUS_PAYLOAD).max(1);
        (bytes + packets * BUS_HEADER) * self.costs.bus_byte
    }

    /// Reads memory from a time on. Returns when the last byte is there.
    fn fetch(&self, from: u64, bytes: u64) -> u64 {
        let time = self.on_bus(bytes);
        self.reads.take(from, time, self.host.get()) + self.costs.read + time
    }

    fn begin(&self, time: u64) {
        self.event.set(time);
        self.now.set(time);
        self.copied.set(None);
        self.gathered.set(0);
        self.written.set(0);
    }

    pub(super) fn stored(&self, store: Store) {
        let cost = match store {
            Store::Word => self.costs.doorbell,
            Store::Copy { blocks, .. } => self.costs.blueflame * u64::from(blocks),
            // The first part has cost all.
            Store::Rest => return,
        };
        self.begin(self.host.add(cost) + self.costs.posted);
        if let Store::Copy { newest, .. } = store {
            self.copied.set(newest);
        }
    }

    pub(super) fn commanded(&self, opcode: u16, bytes: u64) {
        let cost = self.costs.commands.iter().find(|command| command.opcode == opcode);
        if let Some(cost) = cost {
            self.begin(self.host.add(cost.each + cost.byte * bytes));
        }
    }

    pub(super) fn timer(&self, nanoseconds: u64) {
        self.begin(nanoseconds * NANOSECOND);
    }

    pub(super) fn arrived(&self, nanoseconds: Option<u64>) {
        // A packet of another process arrives now.
        let at = nanoseconds.map_or(self.host.get(), |at| at * NANOSECOND);
        self.begin(at);
    }

    pub(super) fn turn(&self, qp: u32) {
        self.turn.set(qp);
        self.now.set(self.event.get());
        self.gathered.set(0);
    }

    pub(super) fn fetched(&self, (qp, index): (u32, u16), bytes: usize, request: Request) {
        let enabled = self.enabled.borrow().get(&qp).copied();
        let from = self.event.get().max(enabled.unwrap_or_default());
        let ready = match self.copied.take() {
            Some(copied) if copied == (qp, index) => from,
            _ => self.fetch(from, bytes as u64),
        };
        let free = self.free.borrow().get(&qp).copied();
        let mut from = ready.max(free.unwrap_or_default());
        if self.costs.queue > 0 {
            // What a queue pair leaves free are whole slots, which other queue pairs fill.
            from = from.next_multiple_of(self.costs.request);
        }
        let start = self.requests.take(from, self.costs.request, self.host.get());
        self.now.set(start);
        let gap = match request {
            Request::Packets => self.costs.queue,
            Request::Nop => self.costs.nop,
            Request::Steering => 0,
        };
        if gap > 0 {
            self.hold_back(&self.free, qp, start + gap);
        }
    }

    /// Notes that a queue pair does something not before a time.
    fn hold_back(&self, times: &RefCell<BTreeMap<u32, u64>>, qp: u32, until: u64) {
        let mut times = times.borrow_mut();
        if times.len() >= PLANNED {
            times.retain(|_, time| *time > self.host.get());
        }
        let time = times.entry(qp).or_default();
        *time = until.max(*time);
    }

    pub(super) fn enabled(&self, qp: u32) {
        self.hold_back(&self.enabled, qp, self.now.get());
    }

    pub(super) fn waited(&self, qp: u32, cq: u32) {
        let written = self.last.borrow().get(&cq).copied();
        self.hold_back(&self.free, qp, written.unwrap_or_default());
    }

    pub(super) fn read(&self, bytes: usize) {
        self.gathered.set(self.gathered.get() + bytes as u64);
    }

    pub(super) fn take_receive(&self, bytes: usize) {
        let time = self.on_bus(bytes as u64);
        let start = self.reads.take(self.now.get(), time, self.host.get());
        if self.costs.receive > 0 {
            self.wait_until(start + self.costs.receive + time);
        }
    }

    pub(super) fn atomic(&self, address: u64, bytes: usize) {
        let past = self.host.get();
        let mut places = self.places.borrow_mut();
        let place = places.entry(address & PLACE).or_default();
        let begun = self.atomics.take(self.now.get(), self.costs.atomic, past);
        let begun = place.take(begun, self.costs.place, past);
        self.wait_until(self.fetch(begun, bytes as u64));
    }

    pub(super) fn detour(&self, detour: Detour) {
        let cost = match detour {
            Detour::Nak => self.costs.nak,
            Detour::Repetition => self.costs.repetition,
            Detour::Jump => self.costs.jump,
        };
        self.wait_until(self.now.get() + cost);
    }

    /// What follows waits. So does the answer, which is sent in a later turn.
    fn wait_until(&self, time: u64) {
        self.event.set(time);
        self.now.set(time);
    }

    pub(super) fn wrote(&self, bytes: usize) {
        let time = self.on_bus(bytes as u64);
        let end = self.writes.take(self.now.get(), time, self.host.get()) + time;
        self.written.set(self.written.get().max(end));
    }

    pub(super) fn limited(&self, qp: u32, bytes: usize, rate: Rate) {
        // Picoseconds of so many bytes at the rate.
        let time = |bytes: u64| bytes * 8 * 1_000_000_000 / u64::from(rate.kbps.max(1));
        let mut limited = self.limited.borrow_mut();
        if limited.len() >= PLANNED {
            limited.retain(|_, time| *time > self.host.get());
        }
        // The time at which all packets so far would have left at the rate.
        let due = limited.entry(qp).or_default();
        let start = self.now.get().max(due.saturating_sub(time(rate.burst.into())));
        self.now.set(start);
        *due = start.max(*due) + time(bytes as u64);
    }

    pub(super) fn sent(&self, side: Side, bytes: usize) {
        let mut newest = self.newest.borrow_mut();
        if newest.len() >= PLANNED {
            newest.retain(|_, left| *left > self.host.get());
        }
        let newest = newest.entry((self.turn.get(), side)).or_default();
        let mut ready = match self.gathered.take() {
            0 => self.now.get(),
            gathered => self.fetch(self.now.get(), gathered),
        };
        if side == Side::Response {
            ready += self.costs.answer;
        }
        let time = bytes as u64 * self.costs.wire_byte;
        *newest = self.egress.take(ready.max(*newest), time, self.host.get()) + time;
        self.departures.borrow_mut().push_back(*newest);
    }

    pub(super) fn wait_for_departure(&self) {
        if let Some(left) = self.departures.borrow().back() {
            self.now.set(*left);
        }
    }

    pub(super) fn left(&self) {
        if let Some(left) = self.departures.borrow_mut().pop_front() {
            self.departed.set(left);
        }
    }

    /// Returns when the packet that left last arrives, in nanoseconds. A packet that a fault has
    /// held back arrives later than it would have.
    pub(super) fn arrival(&self) -> u64 {
        (self.departed.get().max(self.event.get()) + self.costs.flight) / NANOSECOND
    }

    pub(super) fn completes(&self, cq: u32) {
        let mut last = self.last.borrow_mut();
        if last.len() >= PLANNED {
            last.retain(|_, time| *time > self.host.get());
        }
        let last = last.entry(cq).or_default();
        let time = self.on_bus(CQE);
        // Behind its payload, and behind the CQE before it.
        let from = self.now.get().max(self.written.get()).max(*last);
        *last = self.writes.take(from, time, self.host.get()) + time;
        self.now.set(*last);
    }

    pub(super) fn fails(&self, qp: u32, cq: u32, failure: Failure) {
        let mut flushes = self.flushes.borrow_mut();
        if flushes.len() >= PLANNED {
            flushes.retain(|_, time| *time > self.host.get());
        }
        let next = flushes.entry(qp).or_default();
        let now = self.now.get();
        let (from, pause) = match failure {
            Failure::Protection => (now + self.costs.protection, self.costs.first_flush),
            Failure::Other => (now, self.costs.first_flush),
            Failure::Flush => (now.max(*next), self.costs.flush),
        };
        self.now.set(from);
        self.completes(cq);
        *next = self.now.get() + pause;
    }

    pub(super) fn completed(&self, cq: u32, producer: u32, entries: u32) {
        let seen = self.now.get() + self.costs.posted + self.costs.memory;
        let mut untaken = self.untaken.borrow_mut();
        let untaken = untaken.entry(cq).or_default();
        // A CQ of this number was destroyed before.
        if untaken.back().is_some_and(|(last, _)| producer.wrapping_sub(*last) & COUNTER > entries)
        {
            untaken.clear();
        }
        untaken.push_back((producer, seen));
        // More than the CQ holds have overrun it.
        if untaken.len() > entries as usize {
            untaken.pop_front();
        }
    }

    pub(super) fn take(&self, consumer: impl Fn(u32) -> Option<u32>) {
        self.untaken.borrow_mut().retain(|cq, untaken| {
            let Some(consumer) = consumer(*cq) else { return false };
            let taken = |producer: u32| consumer.wrapping_sub(producer) & COUNTER <= COUNTER / 2;
            while let Some((_, seen)) = untaken.front().filter(|(producer, _)| taken(*producer)) {
                self.host.reach(*seen);
                untaken.pop_front();
            }
            !untaken.is_empty()
        });
    }

    pub(super) fn read_clock(&self) -> u64 {
        // The device answers half way.
        (self.host.add(self.costs.read) - self.costs.read / 2) / NANOSECOND
    }

    pub(super) fn resume(&self, time: u64) {
        self.now.set(time);
    }

    pub(super) fn stamp(&self) -> u64 {
        self.now.get()
    }
}
