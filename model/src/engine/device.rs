//! A device with its lock, and the work of a thread that is in it.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::deferred::Deferred;
use super::inbox::{Inbox, Note, SPENT};
use super::lock::{Guard, Lock};
use super::pace::Order;
use super::shared::{Directory, next_prefix, owner};
use super::{Engine, NUMBERS, SPARE, TURN};
use crate::card::Card;
use crate::clock::Clock;
use crate::fabric::local;
use crate::identity::Identity;
use crate::private::complain;
use crate::wire::{Frame, Way};

/// A device of the process.
pub(super) struct Device {
    pub(super) lock: Lock<Seat>,
    pub(super) work: Work,
    /// The engine's time of its next timer; `u64::MAX` if it has none on the machine's clock.
    pub(super) deadline: AtomicU64,
}

/// The work that waits for a thread to enter a device. Threads of other devices look at it often, so
/// it shares no cache line with what each entry changes.
#[repr(align(64))]
pub(super) struct Work {
    /// Frames and news from other devices, processes and hosts.
    pub(super) inbox: Inbox,
    /// Stores of signal handlers.
    pub(super) deferred: Deferred,
    /// Whether the last thread in the device has left work.
    unfinished: AtomicBool,
}

impl Work {
    /// Returns whether any work waits, or is being done.
    pub(super) fn is_there(&self) -> bool {
        self.inbox.waiting() != 0 || !self.deferred.is_empty() || self.is_unfinished()
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire)
    }

    pub(super) fn set_unfinished(&self, unfinished: bool) {
        if self.is_unfinished() != unfinished {
            self.unfinished.store(unfinished, Ordering::Release);
        }
    }
}

/// The state that a device's lock protects.
pub(super) struct Seat {
    pub(super) card: Card,
    /// Frames from its port to its port.
    pub(super) loopback: VecDeque<Frame>,
    /// Notes taken from the inbox.
    notes: VecDeque<Note>,
    /// Frames that were received and that the device has no use for.
    spent: Vec<Frame>,
    /// Notes whose consequences are not complete.
    taken: usize,
    /// Whether frames were given to sockets and are not sent yet.
    pub(super) unsent: bool,
    /// The identities of all devices, as of this version of the directory.
    pub(super) ports: Arc<[Identity]>,
    version: usize,
    /// Whether the network has the port's addresses.
    attached: bool,
    /// Whether the process has announced itself as a listener for this device.
    listens: bool,
    /// The version of the groups that the network has.
    groups: Option<u64>,
}

impl Device {
    pub(super) fn new(card: Card, ports: Arc<[Identity]>) -> Self {
        let seat = Seat {
            card,
            loopback: VecDeque::new(),
            notes: VecDeque::new(),
            spent: Vec::new(),
            taken: 0,
            unsent: false,
            ports,
            version: 0,
            attached: false,
            listens: false,
            groups: None,
        };
        Self {
            lock: Lock::new(seat),
            work: Work {
                inbox: Inbox::new(),
                deferred: Deferred::new(),
                unfinished: AtomicBool::new(false),
            },
            deadline: AtomicU64::new(u64::MAX),
        }
    }
}

impl Seat {
    /// Looks up the devices' identities again if one has changed.
    pub(super) fn refresh(&mut self, directory: &Directory) {
        let version = directory.version();
        if self.version != version {
            (self.version, self.ports) = (version, directory.ports());
        }
    }

    /// Keeps the memory of a frame that was received, for the device or for those who send to it.
    fn recycle(&mut self, frame: Frame) {
        let spent = self.card.recycle(frame).filter(|_| self.spent.len() < SPENT);
        self.spent.extend(spent);
    }
}

/// A thread that works in devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Worker {
    /// A thread of the program.
    Program,
    /// The engine's thread.
    Engine,
}

/// What a thread in a device does with its due timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Timers {
    Fire,
    Leave,
}

/// The work that an entry has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// All of it was done in the devices that the thread was in.
    Done,
    /// Some of it was left for devices, where other threads may do it.
    Left,
    /// All that was left is done, or left to the engine's thread for good.
    Complete,
}

/// How much a thread still does before it leaves the rest to the engine's thread, and what it has done.
pub(super) struct Budget {
    /// Frames to carry, or other work that takes as long.
    pub(super) frames: usize,
    pub(super) worker: Worker,
    pub(super) own: Own,
    /// Whether the thread has sent frames to other processes.
    pub(super) has_sent: bool,
}

impl Budget {
    pub(super) fn new(worker: Worker, frames: usize) -> Self {
        Self { frames, worker, own: Own::Done, has_sent: false }
    }

    /// Returns whether the thread returns only when other threads have done what it left.
    pub(super) fn must_wait(&self) -> bool {
        self.worker == Worker::Program && self.own == Own::Left
    }

    /// The thread has left work for devices.
    fn leave_work(&mut self) {
        if self.own == Own::Done {
            self.own = Own::Left;
        }
    }
}

/// A thread in a device. It holds the device's lock.
pub(super) struct Inside<'a> {
    pub(super) engine: &'a Engine,
    pub(super) index: usize,
    // Dropped in this order.
    pub(super) seat: Guard<'a, Seat>,
    pub(super) order: Option<Guard<'a, Order>>,
    /// Whether the thread has left frames for other devices.
    pub(super) has_left: bool,
}

impl Engine {
    /// Enters a device, waiting no longer than `limit`.
    pub(super) fn inside_within(&self, index: usize, limit: Duration) -> Option<Inside<'_>> {
        let order = match &self.order {
            Some(order) => Some(order.lock_within(limit)?),
            None => None,
        };
        let seat = self.devices[index].lock.lock_within(limit)?;
        Some(self.arrive(index, seat, order))
    }

    /// Enters a device.
    pub(super) fn inside(&self, index: usize) -> Inside<'_> {
        let order = self.order.as_ref().map(Lock::lock);
        let seat = self.devices[index].lock.lock();
        self.arrive(index, seat, order)
    }

    /// Looks around in a device whose lock the thread has taken.
    pub(super) fn arrive<'a>(
        &'a self,
        index: usize,
        mut seat: Guard<'a, Seat>,
        order: Option<Guard<'a, Order>>,
    ) -> Inside<'a> {
        seat.refresh(&self.directory);
        Inside { engine: self, index, seat, order, has_left: false }
    }

    /// Ends an entry of a program, when its thread is in no device. The peer's thread has often been
    /// woken on the same processor. A program that polls for the answer would keep it waiting until
    /// the scheduler's next tick, so the thread yields. Where threads may be raised, this does not
    /// happen.
    pub(super) fn settle(&self, budget: &Budget) {
        if !budget.has_sent {
            return;
        }
        self.times.entries.fetch_add(1, Ordering::Relaxed);
        if self.waits.as_ref().is_some_and(|waits| !waits.raised.load(Ordering::Relaxed)) {
            std::thread::yield_now();
        }
    }
}

impl Inside<'_> {
    pub(super) fn device(&self) -> &Device {
        &self.engine.devices[self.index]
    }

    /// Prepares the device for work of the program: executes the stores that wait. In virtual time the
    /// stores to all devices come before it, with all that they lead to, and so do the CQEs that the
    /// program has taken.
    pub(super) fn begin(&mut self, budget: &mut Budget) {
        if self.engine.is_virtual {
            self.look_at_taken();
            while self.next_store() {
                self.run_in_order(budget);
            }
        } else {
            self.catch_up();
        }
    }

    /// Executes the oldest store that waits for the device. Returns whether there was one.
    pub(super) fn execute_store(&mut self) -> bool {
        let store = self.engine.devices[self.index].work.deferred.take();
        if let Some(store) = &store {
            store.execute(&mut self.seat.card);
        }
        store.is_some()
    }

    /// Executes the stores that wait for the device. Returns whether there were any.
    fn catch_up(&mut self) -> bool {
        let mut any = false;
        while self.execute_store() {
            any = true;
        }
        any
    }

    /// Does what waits for the device. Its timers are the engine thread's, if there is one.
    pub(super) fn attend(&mut self, budget: &mut Budget) {
        let timers = if self.engine.runs() { Timers::Leave } else { Timers::Fire };
        self.attend_with(timers, budget);
    }

    /// Does what waits for the device, and with its timers as is said. Returns whether any was due.
    pub(super) fn attend_with(&mut self, timers: Timers, budget: &mut Budget) -> bool {
        let fired = if self.engine.is_virtual {
            self.run_in_order(budget);
            timers == Timers::Fire && self.jump()
        } else {
            self.catch_up();
            // Answers first: what was waited for may be among them.
            self.read_notes();
            timers == Timers::Fire && self.fire()
        };
        self.run(budget);
        self.conclude(budget);
        fired
    }

    /// Fires due timers: only some of them if the thread comes again for the others, otherwise all.
    /// Returns whether any was due.
    fn fire(&mut self) -> bool {
        let mut any = false;
        let now = self.seat.card.clock.now();
        while self.seat.card.deadline().is_some_and(|deadline| deadline <= now) {
            self.expire(now);
            any = true;
            if self.engine.runs() {
                break;
            }
        }
        any
    }

    /// Fires due timers of the device, only some of them if there are many.
    pub(super) fn expire(&mut self, now: u64) {
        let late = self.seat.card.late_peers(now);
        let ways: BTreeSet<Way> =
            late.into_iter().map(|(to, number)| local::way(to, number)).collect();
        for way in ways {
            let slow = self.is_slow(way);
            self.seat.card.set_slow(way, slow);
        }
        self.seat.card.expire();
    }

    /// Returns whether packets on a way, in either direction, have not arrived yet. Then a missing
    /// answer does not mean that a packet was lost.
    fn is_slow(&self, way: Way) -> bool {
        match owner(&self.seat.ports, way.to, way.first) {
            Some(_) if self.engine.is_virtual => {
                self.order.as_deref().is_some_and(Order::has_parcels)
            }
            Some(index) if index == self.index => self.device().work.is_unfinished(),
            Some(index) => {
                // In this order: the other device's work ends with notes to this one.
                self.engine.devices[index].work.is_there()
                    || self.device().work.inbox.waiting() > self.seat.taken
            }
            None => {
                let mut outside = self.engine.outside();
                outside.network.as_mut().is_some_and(|network| network.is_slow(way))
            }
        }
    }

    /// Runs the device until nothing is left to do, or [`TURN`] frames or the budget's have been
    /// carried, or other work was done that takes as long. Completions become visible only after the
    /// packets created before them have been handed on.
    pub(super) fn run(&mut self, budget: &mut Budget) {
        if self.engine.is_virtual {
            return self.run_in_order(budget);
        }
        let most = budget.frames.min(TURN);
        let mut left = most;
        let unfinished = loop {
            let mut busy = self.catch_up();
            self.has_left |= self.engine.send_management();
            let (any, work) = self.step(budget);
            left = left.saturating_sub(work);
            busy |= any | self.read_notes();
            // Only now is it certain that no further CQE can join a compressed block.
            busy = busy || self.seat.card.release_cqes();
            if !busy || left == 0 {
                break busy;
            }
        };
        budget.frames -= most - left;
        self.device().work.set_unfinished(unfinished);
    }

    /// Executes requests of the device, and carries what it sends. Returns whether there was anything
    /// to do, and how much was done, in frames.
    pub(super) fn step(&mut self, budget: &mut Budget) -> (bool, usize) {
        let mut frames = 0;
        let mut busy = self.seat.card.pump() | self.manage();
        while let Some(frame) = self.seat.card.take_frame() {
            frames += 1;
            self.carry(frame);
        }
        if std::mem::take(&mut self.seat.unsent) {
            self.flush(budget);
        }
        busy |= self.seat.card.settle();
        while let Some(vector) = self.seat.card.take_interrupt() {
            (self.engine.interrupt)(self.index, &mut self.seat.card, vector);
            busy = true;
        }
        (busy, frames.max(self.seat.card.port.take_charge()))
    }

    /// Has the sockets send the frames that were given to them.
    fn flush(&mut self, budget: &mut Budget) {
        let mut outside = self.engine.outside();
        if let Some(network) = &mut outside.network {
            network.flush(self.engine);
            budget.has_sent |= network.take_sent();
            for frame in network.take_spent() {
                self.seat.card.recycle(frame);
            }
        }
        if let Some(udp) = &mut outside.udp {
            udp.flush(self.engine);
        }
    }

    /// Reads the frames to the port itself, and the inbox. Returns whether there was anything.
    pub(super) fn read_notes(&mut self) -> bool {
        let mut any = false;
        while let Some(frame) = self.seat.loopback.pop_front() {
            self.receive(frame, None);
            any = true;
        }
        let Seat { notes, spent, taken, .. } = &mut *self.seat;
        let inbox = &self.engine.devices[self.index].work.inbox;
        if inbox.waiting() > *taken {
            *taken += inbox.take(notes, spent);
        }
        while let Some(note) = self.seat.notes.pop_front() {
            self.read(note);
            any = true;
        }
        any
    }

    fn read(&mut self, note: Note) {
        match note {
            Note::Arrived(frame) => self.receive(frame, None),
            Note::Send(frame) => self.seat.card.send_management(frame),
            Note::Datagram(frame) => self.pass_on(&frame),
            Note::Congested { way, full } => self.seat.card.set_congested(way, full),
        }
    }

    /// Receives a frame that has arrived at the port: at this virtual time, if it has one.
    pub(super) fn receive(&mut self, frame: Frame, at: Option<u64>) {
        let card = &mut self.seat.card;
        card.port.pace.arrived(at);
        if self.engine.agent.get().is_some() {
            card.managed.get_or_insert_with(VecDeque::new);
        }
        card.receive(&frame);
        self.seat.recycle(frame);
    }

    /// Publishes what changed in the device: addresses, groups, and whether it listens. Claims a
    /// prefix for a device that runs out of QP numbers.
    pub(super) fn publish(&mut self) -> io::Result<()> {
        let Self { engine, index, seat, .. } = self;
        let (engine, index) = (*engine, *index);
        let Seat { card, ports, attached, listens, groups, .. } = &mut **seat;
        if ports[index] != card.identity {
            engine.directory.publish(index, &card.identity);
            *attached = false;
        }
        let numbers = card.identity.qpn_prefixes.len() * NUMBERS;
        let short = card.objects.qps.len() + SPARE > numbers;
        let listener = !*listens && card.listens_to_all();
        let joined = Some(card.objects.groups.version());
        if !*attached || short || listener || *groups != joined {
            let mut outside = engine.outside();
            if let Some(network) = &mut outside.network {
                network.attach(index, &card.identity)?;
            }
            *attached = true;
            if short {
                let prefix = match &mut outside.network {
                    Some(network) => network.claim(index, &card.identity)?,
                    None => next_prefix(),
                };
                card.add_prefix(prefix);
                engine.directory.publish(index, &card.identity);
            }
            if let Some(udp) = &mut outside.udp {
                for complaint in udp.join(index, &card.objects.groups) {
                    complain!("{complaint}");
                }
            }
            *groups = joined;
            if let (Some(network), true) = (&mut outside.network, listener) {
                network.listen()?;
            }
            *listens |= listener;
        }
        seat.refresh(&engine.directory);
        Ok(())
    }

    /// Leaves the device in order: the thread knows of its next timer, and readers of a recording
    /// see it. The consequences of what was read are complete, or wait elsewhere.
    pub(super) fn conclude(&mut self, budget: &mut Budget) {
        let engine = self.engine;
        // In virtual time all devices have done what they had to do.
        if !engine.is_virtual && (self.has_left || self.device().work.is_unfinished()) {
            budget.leave_work();
        }
        let deadline = self.next_deadline().unwrap_or(u64::MAX);
        if engine.is_virtual {
            self.visit(|inside| inside.close(deadline));
        } else {
            self.close(deadline);
        }
        let card = &self.seat.card;
        let agent = engine.agent.get().and_then(|agent| agent.wait());
        let agent = agent.map_or(u64::MAX, |wait| engine.times.now() + wait);
        if let Some(tapping) = &card.tapping {
            tapping.tap.flush();
        }
        let first = deadline.min(agent);
        if first != u64::MAX {
            engine.wake_at(first.max(engine.times.rest.load(Ordering::Relaxed)));
        }
        // Packets for other processes may come to this one.
        let managed = engine.agent.get().is_some();
        if !engine.runs() && (managed || engine.is_on_network() || !card.objects.qps.is_empty()) {
            engine.start_thread();
        }
    }

    /// Returns the engine's time of the device's next timer on the machine's clock; in virtual time,
    /// that of all devices.
    fn next_deadline(&mut self) -> Option<u64> {
        if self.engine.is_virtual {
            return self.next_jump();
        }
        let (card, times) = (&self.seat.card, &self.engine.times);
        let deadline = card.deadline()?;
        match &card.clock {
            Clock::Real(start) => Some(times.at(*start + Duration::from_nanos(deadline))),
            Clock::Source(source) => Some(times.now() + deadline.saturating_sub(source.now())),
            Clock::Manual(_) => None,
        }
    }

    /// The consequences of what was read are complete, or wait elsewhere.
    fn close(&mut self, deadline: u64) {
        self.device().deadline.store(deadline, Ordering::SeqCst);
        let taken = std::mem::take(&mut self.seat.taken);
        self.device().work.inbox.done(taken);
    }
}
