//! Virtual time: what the work of a device costs, and when it is done.
//!
//! With virtual time, a device's clock is not the machine's. It says when the work at hand would be
//! done if each step cost what [`Parameters`] say. The engine still executes everything at once;
//! only the times differ. So times are the same in every run, and do not depend on the machine.
//!
//! A device tells its [`Pace`] of each step by a call. Without virtual time, the calls do nothing.
//! The results come back to the device by its clock alone, which recordings have: so a recording is
//! replayed without this module.
//!
//! Latency and occupancy are separate. A part of the device (requests, PCIe reads, PCIe writes, the
//! port) is occupied for the time of the bytes that pass, and the next bytes may follow while the
//! first are still under way. A part serves a step in the first gap after the step may begin. Packets
//! of one queue pair do not overtake each other, nor do CQEs of one CQ.
//!
//! The program's time is one for all devices of a process. Stores to registers move it forward, and
//! so do CQEs that the program has taken, and some commands. Nothing else of the program costs time, and
//! nothing that the process does for others.

pub(crate) mod devices;
mod parameters;
#[cfg(test)]
mod tests;
mod timeline;

use std::cell::Cell;
use std::sync::Arc;

use crate::clock::Clock;
pub use parameters::Parameters;
use timeline::Timeline;
pub use timeline::VirtualTime;

thread_local! {
    /// Whether the thread works for other processes.
    static FOR_OTHERS: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread works for other processes from now on: their questions take none of
/// the program's time, whenever they come.
pub(crate) fn work_for_others() {
    FOR_OTHERS.set(true);
}

/// A store of the program to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A word: a doorbell, or an arm.
    Word,
    /// The first part of a copy of a WQE of so many 64-byte blocks.
    Copy {
        /// Number of blocks.
        blocks: u32,
        /// Queue pair and counter of the WQE, if the device has fetched all before it.
        newest: Option<(u32, u16)>,
    },
    /// A further part of a copy.
    Rest,
}

/// The reason for an error CQE of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The device refused the request's local memory.
    Protection,
    /// The request failed for another reason.
    Other,
    /// A request before it failed.
    Flush,
}

/// Work that a device does not do on its fast path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detour {
    /// A responder makes the NAK of a gap.
    Nak,
    /// A requester goes back after such a NAK.
    Repetition,
    /// An unreliable connection takes a packet behind a gap.
    Jump,
}

/// A limit of the rate at which a send queue sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Rate in kbit/s.
    pub kbps: u32,
    /// Bytes that may leave at once after a pause; 0 if each packet waits for the one before it.
    pub burst: u32,
}

/// What a send WQE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Packets, or work of the device alone.
    Packets,
    /// Nothing.
    Nop,
    /// To wait for a CQ, or to enable WQEs of another queue.
    Steering,
}

/// The part of a queue pair that sends a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The requester.
    Request,
    /// The responder.
    Response,
}

/// A device's virtual time, if it has one.
#[derive(Debug, Default)]
pub struct Pace(Option<Box<Timeline>>);

impl Pace {
    /// Starts virtual time. `host` is the program's time, which all devices of a process share.
    /// Returns the device's clock as well.
    pub fn start(host: &Arc<VirtualTime>, parameters: Parameters) -> (Self, Clock) {
        let timeline = Timeline::new(host.clone(), parameters);
        let clock = Clock::Source(timeline.now.clone());
        (Self(Some(Box::new(timeline))), clock)
    }

    fn with<R: Default>(&self, work: impl FnOnce(&Timeline) -> R) -> R {
        self.0.as_deref().map_or_else(R::default, work)
    }

    /// Returns whether there is virtual time.
    pub fn is_virtual(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the program's time in nanoseconds.
    pub fn host(&self) -> u64 {
        use crate::clock::TimeSource as _;
        self.with(|timeline| timeline.host.now())
    }

    /// The program stores to a register. What follows is done when the store reaches the device.
    pub fn stored(&self, store: impl FnOnce() -> Store) {
        self.with(|timeline| timeline.stored(store()));
    }

    /// The program gives a command: its opcode, and the bytes of the memory that it registers or
    /// deregisters. What follows is done when the command is. A command of a thread that works for
    /// others takes no time.
    pub fn commanded(&self, command: impl FnOnce() -> (u16, u64)) {
        if FOR_OTHERS.get() {
            return;
        }
        self.with(|timeline| {
            let (opcode, bytes) = command();
            timeline.commanded(opcode, bytes);
        });
    }

    /// A timer fires. What follows is done at this time.
    pub fn timer(&self, nanoseconds: u64) {
        self.with(|timeline| timeline.timer(nanoseconds));
    }

    /// A packet arrives. What follows is done at this time; now, if the packet has none.
    pub fn arrived(&self, nanoseconds: Option<u64>) {
        self.with(|timeline| timeline.arrived(nanoseconds));
    }

    /// A queue pair's turn begins.
    pub fn turn(&self, qp: u32) {
        self.with(|timeline| timeline.turn(qp));
    }

    /// A send WQE, given as queue pair and counter, was fetched: by PCIe, or with the store. What
    /// follows is done when the device begins it.
    pub fn fetched(&self, wqe: (u32, u16), bytes: usize, request: Request) {
        self.with(|timeline| timeline.fetched(wqe, bytes, request));
    }

    /// Another queue has enabled WQEs of a queue pair, which are fetched from now on.
    pub fn enabled(&self, qp: u32) {
        self.with(|timeline| timeline.enabled(qp));
    }

    /// A queue pair has waited for the newest CQE of a CQ. Its next WQE begins after that CQE.
    pub fn waited(&self, qp: u32, cq: u32) {
        self.with(|timeline| timeline.waited(qp, cq));
    }

    /// Bytes of memory are read for the next packet.
    pub fn read(&self, bytes: usize) {
        self.with(|timeline| timeline.read(bytes));
    }

    /// A receive WQE is taken, and what follows waits for it.
    pub fn take_receive(&self, bytes: usize) {
        self.with(|timeline| timeline.take_receive(bytes));
    }

    /// An atomic changes bytes at an address, and what follows waits for it.
    pub fn atomic(&self, address: u64, bytes: usize) {
        self.with(|timeline| timeline.atomic(address, bytes));
    }

    /// Work off the fast path is done, and what follows waits for it.
    pub fn detour(&self, detour: Detour) {
        self.with(|timeline| timeline.detour(detour));
    }

    /// Bytes are written to memory.
    pub fn wrote(&self, bytes: usize) {
        self.with(|timeline| timeline.wrote(bytes));
    }

    /// The next packet of a queue pair, of so many bytes, is held to a rate.
    pub fn limited(&self, qp: u32, bytes: usize, rate: Rate) {
        self.with(|timeline| timeline.limited(qp, bytes, rate));
    }

    /// A packet of the queue pair whose turn it is, of so many bytes, is put into the outbox.
    pub fn sent(&self, side: Side, bytes: usize) {
        self.with(|timeline| timeline.sent(side, bytes));
    }

    /// What follows waits until the newest packet has left.
    pub fn wait_for_departure(&self) {
        self.with(Timeline::wait_for_departure);
    }

    /// The oldest packet is taken from the outbox.
    pub fn left(&self) {
        self.with(Timeline::left);
    }

    /// Returns when the packet that was taken last arrives, in nanoseconds.
    pub fn arrival(&self) -> u64 {
        self.with(Timeline::arrival)
    }

    /// A CQE is written to a CQ: the device's clock says when.
    pub fn completes(&self, cq: u32) {
        self.with(|timeline| timeline.completes(cq));
    }

    /// The error CQE of a send WQE is written to a CQ: the device's clock says when.
    pub fn fails(&self, qp: u32, cq: u32, failure: Failure) {
        self.with(|timeline| timeline.fails(qp, cq, failure));
    }

    /// CQEs were written to a CQ of so many entries, up to a counter.
    pub fn completed(&self, cq: u32, producer: u32, entries: u32) {
        self.with(|timeline| timeline.completed(cq, producer, entries));
    }

    /// The program has taken CQEs: `consumer` returns the counter of a CQ, if it exists. The
    /// program's time moves to when it could see the newest.
    pub fn take(&self, consumer: impl Fn(u32) -> Option<u32>) {
        self.with(|timeline| timeline.take(consumer));
    }

    /// The program reads the device's clock. Returns what it reads; `None` without virtual time.
    pub fn read_clock(&self) -> Option<u64> {
        self.with(|timeline| Some(timeline.read_clock()))
    }

    /// Returns the time of the work at hand, for [`resume`](Self::resume).
    pub fn stamp(&self) -> u64 {
        self.with(Timeline::stamp)
    }

    /// Goes on with work of a time.
    pub fn resume(&self, stamp: u64) {
        self.with(|timeline| timeline.resume(stamp));
    }
}
