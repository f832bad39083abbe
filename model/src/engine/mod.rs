//! Runs devices: carries packets between them and to other processes, delivers interrupts, fires
//! timers.
//!
//! One lock covers all devices of a process. A thread enters with [`Engine::enter`] and leaves only
//! when every packet between local devices has been executed. So work started by a doorbell inside
//! one process is done when the store returns. The engine's own thread waits for packets from other
//! processes and for timers. It is started when first needed, with every signal blocked except
//! those of memory faults.
//!
//! Time under the lock is bounded. An entry carries at most [`ENTRY`] frames and a turn of the
//! engine's thread [`TURN`]; the thread continues with the rest. Once the thread runs, timers fire
//! only in it, some at a time, and take at most half of its time. The lock is handed over to
//! threads that have waited (`lock`). An entry also takes in packets from other processes, so that
//! answers are seen even while the engine's thread waits for a processor.
//!
//! While a thread is inside, no signal handler of the program runs in it and it is not cancelled
//! (`shield`). A store that finds the lock taken waits a bounded time. Then the processor repeats
//! it, with signals delivered in between.
//!
//! All processes of one machine that share a *domain* hold slices of the same devices: the same
//! ports, with the same LIDs, MACs, GIDs and GUIDs. The fabric carries a frame to the port of its
//! address, and to the process that has the QP number there.

mod agent;
mod config;
mod deferred;
mod lock;
mod outside;
mod pace;
mod process;
mod shield;
#[cfg(test)]
mod test;
mod thread;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub use agent::{Agent, Listening, Reserved};
pub use config::{identities, neighbour};
pub(crate) use deferred::Registers;
pub(crate) use shield::{Shield, Uncancelled, is_inside};
pub(crate) use thread::be_brief;

use crate::card::Card;
use crate::clock::Clock;
use crate::fabric::local::{self, Network, RESERVED, Waits};
use crate::fabric::udp::{Interface, Udp};
use crate::management::mad;
use crate::wire::{Frame, Header, LinkAddress, Way};
use deferred::{Deferred, Store};
use lock::{Guard, Lock};
use pace::Parcel;

/// Delivers an MSI-X vector: the device's index, the device, the vector.
pub type Interrupt = Box<dyn FnMut(usize, &mut Card, u32) + Send>;

/// QP numbers in a prefix.
const NUMBERS: usize = 256;
/// Another prefix is claimed when fewer numbers than this are free.
const SPARE: usize = 64;
/// Frames that one entry of a program carries; the thread carries the rest.
const ENTRY: usize = 1 << 16;
/// Frames that the thread carries before it releases the lock to others.
const TURN: usize = 1 << 10;
/// Longest time a store waits for the lock before signals are delivered.
const STORE: Duration = Duration::from_millis(10);
/// Nanoseconds between the times at which entries take in packets from other processes.
const INTAKE: u64 = 1_000_000;
/// The same while the thread naps.
const INTAKE_IN_NAP: u64 = 20_000;

/// The devices of this process and the connections between them.
pub struct Engine {
    state: Lock<State>,
    /// The engine itself, for its thread.
    own: Weak<Self>,
    /// Set in the child of a fork: the devices are copies of the parent's, without wire and thread.
    detached: AtomicBool,
    /// Stores of signal handlers.
    deferred: Deferred,
    /// The descriptors that wake the thread.
    waits: Option<Arc<Waits>>,
    /// Whether the thread runs.
    runs: AtomicBool,
}

/// The state under the lock.
struct State {
    cards: Vec<Card>,
    interrupt: Interrupt,
    /// Frames for local cards.
    inbox: VecDeque<Parcel>,
    network: Option<Network>,
    /// The recipient of management datagrams.
    agent: Option<Arc<dyn Agent>>,
    /// The way to ports that are not on this machine.
    udp: Option<Udp>,
    /// Whether the thread runs.
    started: bool,
    /// Whether the last entry has left work to the thread.
    unfinished: bool,
    /// Start of the engine's time.
    epoch: Instant,
    /// Nanoseconds of the engine's time before which no further timers fire.
    rest: u64,
    /// Engine time from which entries take in packets from other processes again.
    intake: u64,
    /// Whether the thread naps, and is not woken by packets.
    naps: bool,
    /// The next timer in virtual time: its time, and the engine time at which it fires at the latest.
    jump: Option<(u64, u64)>,
}

/// Access to the state, with signals and cancellation of the thread blocked.
struct Entered<'a> {
    // Dropped in this order: the lock is free when a signal handler runs.
    state: Guard<'a, State>,
    _shield: Shield,
}

impl Deref for Entered<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Entered<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Engine {
    /// Creates an engine for devices that reach only each other. They run only while a thread is
    /// inside [`Engine::enter`]: there is no engine thread, and a due timer fires at the next
    /// entry. Devices without QP number prefixes are given some.
    pub fn new(cards: Vec<Card>, interrupt: Interrupt) -> Arc<Self> {
        let engine = Self::with(cards, interrupt, None, None);
        let _ = engine.lock().provide_numbers();
        engine
    }

    /// Creates an engine for devices that also reach those of other processes. These are the
    /// processes on this machine and in this network namespace that name the same domain. The
    /// engine claims prefixes of QP numbers for each device.
    ///
    /// # Errors
    /// - Any error of creating and binding a local socket.
    /// - `AddrInUse` if no prefix is free.
    pub fn connected(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        Self::start(domain, cards, interrupt, None)
    }

    /// Creates an engine like [`Engine::connected`], for devices that also reach ports outside this
    /// machine, each on a network interface.
    ///
    /// # Errors
    /// - Any error of creating and binding a socket.
    /// - `AddrInUse` if no prefix is free, or another program has UDP port 4791 of an address.
    pub(crate) fn on_network(
        domain: &str,
        ports: &[Interface],
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        Self::start(domain, cards, interrupt, Some(Udp::new(domain, ports)?))
    }

    fn start(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
        udp: Option<Udp>,
    ) -> io::Result<Arc<Self>> {
        let seed = cards.first().map_or(0, |card| card.identity.seed);
        let network = Network::new(domain, seed)?;
        if let Some(udp) = &udp {
            network.watch_outside(udp.descriptor())?;
            config::remember(udp.addresses());
        }
        let engine = Self::with(cards, interrupt, Some(network), udp);
        engine.lock().provide_numbers()?;
        process::register(&engine);
        Ok(engine)
    }

    fn with(
        cards: Vec<Card>,
        interrupt: Interrupt,
        network: Option<Network>,
        udp: Option<Udp>,
    ) -> Arc<Self> {
        let waits = network.as_ref().map(|network| Arc::clone(&network.waits));
        let state = State {
            cards,
            interrupt,
            inbox: VecDeque::new(),
            network,
            agent: None,
            udp,
            started: false,
            unfinished: false,
            epoch: Instant::now(),
            rest: 0,
            intake: 0,
            naps: false,
            jump: None,
        };
        Arc::new_cyclic(|own| Self {
            state: Lock::new(state),
            own: own.clone(),
            detached: AtomicBool::new(false),
            deferred: Deferred::new(),
            waits,
            runs: AtomicBool::new(false),
        })
    }

    /// Calls `work` with a device, then executes its consequences until nothing is left to do in
    /// this process: packets between local devices are delivered, those for other processes are
    /// sent, interrupts are raised, the thread's next wake-up is set. After [`ENTRY`] frames the
    /// rest is left to the thread.
    ///
    /// Signals and cancellation wait until it returns. Must not be called inside `work` or from an
    /// interrupt.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn enter<R>(&self, card: usize, work: impl FnOnce(&mut Card) -> R) -> R {
        let mut entered = self.lock();
        let (result, turn) = self.work(&mut entered, card, work);
        drop(entered);
        if turn {
            std::thread::yield_now();
        }
        result
    }

    /// Enters like [`Engine::enter`] for a store or load that faulted; the fault handler blocks
    /// signals and cancellation itself. Returns `None` if another thread kept the lock for
    /// [`STORE`]. Then the handler returns, pending signals are delivered, and the processor tries
    /// again.
    pub(crate) fn enter_from_fault<R>(
        &self,
        card: usize,
        work: impl FnOnce(&mut Card) -> R,
    ) -> Option<R> {
        let mut state = self.state.lock_within(STORE)?;
        let (result, turn) = self.work(&mut state, card, work);
        drop(state);
        if turn {
            std::thread::yield_now();
        }
        Some(result)
    }

    /// Records a store of a signal handler, to be executed at the next entry, which is the engine
    /// thread's at the latest. Neither locks nor allocates. Returns `None` if that is not possible
    /// now.
    pub(crate) fn defer(
        &self,
        card: usize,
        page: &'static dyn Registers,
        offset: usize,
        bytes: &[u8],
    ) -> Option<()> {
        let waits = self.waits.as_ref().filter(|_| self.runs.load(Ordering::Acquire))?;
        if !self.deferred.put(Store::new(page, card, offset, bytes)?) {
            return None;
        }
        waits.ring();
        Some(())
    }

    /// Executes the stores of signal handlers. The caller holds the lock.
    fn catch_up(&self, state: &mut State) {
        // SAFETY: `state` is borrowed from the lock's guard, so no other thread is in this
        // function.
        while let Some(store) = unsafe { self.deferred.take() } {
            if let Some(card) = state.cards.get_mut(store.card) {
                store.execute(card);
            }
        }
    }

    /// Does an entry's work under the lock. Also returns whether the thread should yield
    /// afterwards.
    fn work<R>(
        &self,
        state: &mut State,
        card: usize,
        work: impl FnOnce(&mut Card) -> R,
    ) -> (R, bool) {
        state.look_at_taken();
        self.catch_up(state);
        let result = work(&mut state.cards[card]);
        state.take_in();
        if state.started {
            state.run(ENTRY);
        } else {
            state.fire();
            state.run(usize::MAX);
        }
        if let Err(error) = state.provide_numbers() {
            tracing::warn!(%error, "no further QP numbers");
        }
        state.arm();
        state.flush_trace();
        if !state.started && !self.is_detached() && state.has_work_for_thread() {
            match thread::start(self.own.clone(), state) {
                Ok(()) => {
                    state.started = true;
                    self.runs.store(true, Ordering::Release);
                }
                // The next entry tries again.
                Err(error) => tracing::error!(%error, "cannot start the engine's thread"),
            }
        }
        (result, state.network.as_mut().is_some_and(Network::end_entry))
    }

    /// Returns the number of devices.
    pub fn cards(&self) -> usize {
        self.lock().cards.len()
    }

    /// Returns whether this is a forked child's copy of the engine. Then no packet reaches other
    /// processes and no timer fires. A device opened now needs a new engine.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed)
    }

    fn lock(&self) -> Entered<'_> {
        let shield = Shield::new();
        Entered { state: self.state.lock(), _shield: shield }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(network) = &self.state.get_mut().network {
            network.stop();
        }
    }
}

impl State {
    /// Takes in packets from other processes, unless that was done just now.
    fn take_in(&mut self) {
        let Some(network) = &mut self.network else { return };
        let now = self.epoch.elapsed().as_nanos() as u64;
        if self.started && now >= self.intake {
            self.intake = now + if self.naps { INTAKE_IN_NAP } else { INTAKE };
            let agent = self.agent.as_ref();
            network.take_in(&mut self.cards, &mut |card, frame| {
                agent::deliver(agent, card, frame, None)
            });
            self.take_in_from_outside();
        }
    }

    /// Fires due timers: only some of them if the thread comes again for the others, otherwise all.
    /// Returns whether any was due.
    fn fire(&mut self) -> bool {
        let mut any = false;
        if self.started && self.now() < self.rest {
            return any;
        }
        if let Some(agent) = &self.agent {
            agent.expire();
        }
        if self.is_virtual() {
            return self.jump();
        }
        for index in 0..self.cards.len() {
            let now = self.cards[index].clock.now();
            while self.cards[index].deadline().is_some_and(|deadline| deadline <= now) {
                self.expire(index, now);
                any = true;
                if self.started {
                    break;
                }
            }
        }
        any
    }

    /// Fires due timers of a device, only some of them if there are many.
    fn expire(&mut self, index: usize, now: u64) {
        let late = self.cards[index].late_peers(now);
        let ways: BTreeSet<Way> =
            late.into_iter().map(|(to, number)| local::way(to, number)).collect();
        for way in ways {
            let slow = self.is_slow(way);
            self.cards[index].set_slow(way, slow);
        }
        self.cards[index].expire();
    }

    /// Nanoseconds of the engine's time.
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Returns whether packets on a way, in either direction, have not arrived yet. Then a missing
    /// answer does not mean that a packet was lost.
    fn is_slow(&mut self, way: Way) -> bool {
        if self.local(way.to, way.first).is_some() {
            return self.unfinished || !self.inbox.is_empty();
        }
        self.network.as_mut().is_some_and(|network| network.is_slow(way))
    }

    /// Runs the devices until nothing is left to do, or `frames` frames have been carried.
    /// Completions become visible only after the packets created before them have been handed on.
    fn run(&mut self, frames: usize) {
        // In virtual time, what a store starts is done before the next one, however much it is.
        let mut frames = if self.is_virtual() { usize::MAX } else { frames };
        loop {
            let mut busy = self.send_management();
            for index in 0..self.cards.len() {
                busy |= self.cards[index].pump();
                while let Some(frame) = self.cards[index].take_frame() {
                    frames = frames.saturating_sub(1);
                    self.carry(index, frame);
                }
                if let Some(network) = &mut self.network {
                    network.flush(&mut self.cards);
                }
                if let Some(udp) = &mut self.udp {
                    udp.flush(&mut self.cards);
                }
                let card = &mut self.cards[index];
                busy |= card.settle();
                while let Some(vector) = card.take_interrupt() {
                    (self.interrupt)(index, card, vector);
                    busy = true;
                }
            }
            busy |= if self.is_virtual() { !busy && self.next_event() } else { self.empty_inbox() };
            // Only now is it certain that no further CQE can join a compressed block.
            let busy =
                busy || self.cards.iter_mut().fold(false, |any, card| card.release_cqes() | any);
            self.unfinished = busy && frames == 0;
            if !busy || frames == 0 {
                return;
            }
        }
    }

    /// Passes a frame to the port of its address: to the local device that has the destination's QP
    /// number there, or to the network. A frame for all listeners goes to all devices of this
    /// process and to the network.
    fn carry(&mut self, from: usize, frame: Frame) {
        if !self.cards[from].passes(&frame) {
            return;
        }
        let link = self.cards[from].identity.link;
        let Some(frame) = self.send_outside(frame) else { return };
        let Some(to) = LinkAddress::of(link, &frame.0) else { return };
        if to.is_group() || !frame.is_transport(link) {
            if let Some(network) = &mut self.network {
                network.send_to_all(&frame);
            }
            (0..self.cards.len()).for_each(|index| self.put(from, index, frame.clone()));
            return;
        }
        let Some((_, number)) = Header::destination(link, &frame.0) else { return };
        if number == mad::QP && self.carry_management(from, to, &frame) {
            return;
        }
        if let Some(index) = self.local(to, number) {
            self.put(from, index, frame);
        } else if let Some(network) = &mut self.network {
            network.send(local::way(to, number), frame);
        }
    }

    /// Returns the device of this process at an address that has a QP number: see [`owner`].
    fn local(&self, to: LinkAddress, number: u32) -> Option<usize> {
        owner(&self.cards, to, number)
    }

    /// Attaches the ports of devices to the network at their addresses, and claims prefixes for
    /// devices that run out of QP numbers. Registers this process as a listener if one of its
    /// devices listens to all.
    fn provide_numbers(&mut self) -> io::Result<()> {
        for (index, card) in self.cards.iter_mut().enumerate() {
            if let Some(network) = &mut self.network {
                network.attach(index, &card.identity)?;
            }
            let numbers = card.identity.qpn_prefixes.len() * NUMBERS;
            if card.objects.qps.len() + SPARE <= numbers {
                continue;
            }
            let prefix = match &mut self.network {
                Some(network) => network.claim(index, &card.identity)?,
                None => next_prefix(),
            };
            card.add_prefix(prefix);
        }
        if let Some(udp) = &mut self.udp {
            for complaint in udp.join(&self.cards) {
                eprintln!("mlx5-model: {complaint}");
            }
        }
        match &mut self.network {
            Some(network) if self.cards.iter().any(Card::listens_to_all) => network.listen(),
            _ => Ok(()),
        }
    }

    /// Flushes the recording, so that its readers see it.
    fn flush_trace(&self) {
        // All devices share one tap.
        if let Some(tapping) = self.cards.first().and_then(|card| card.tapping.as_ref()) {
            tapping.tap.flush();
        }
    }

    /// Sets the timer to the thread's next work: at once if work was left, otherwise the earliest
    /// deadline of the devices that run on the machine's clock.
    fn arm(&mut self) {
        let now = self.now();
        let jump = self.next_jump();
        let Some(network) = &mut self.network else { return };
        let waits = self.cards.iter().filter_map(|card| match card.clock {
            _ if card.keeps_virtual_time() => jump,
            Clock::Real(_) | Clock::Source(_) => {
                Some(card.deadline()?.saturating_sub(card.clock.now()))
            }
            Clock::Manual(_) => None,
        });
        let waits = waits.chain(self.agent.as_ref().and_then(|agent| agent.wait()));
        let rest = self.rest.saturating_sub(now);
        let wait = match waits.min() {
            _ if self.unfinished => 0,
            Some(wait) => wait.max(rest),
            None => return,
        };
        network.arm(now, wait);
    }

    fn has_work_for_thread(&self) -> bool {
        let works = || self.cards.iter().any(|card| !card.objects.qps.is_empty());
        // Packets for other processes may come to this one.
        self.udp.is_some() || self.network.is_some() && (self.agent.is_some() || works())
    }
}

/// Returns the device at an address that has a QP number. The management queue pairs are behind every
/// device at the address.
fn owner(cards: &[Card], to: LinkAddress, number: u32) -> Option<usize> {
    let prefix = local::prefix(number);
    cards.iter().position(|card| {
        let identity = &card.identity;
        identity.has_address(to)
            && (prefix == local::MANAGEMENT || identity.qpn_prefixes.contains(&prefix))
    })
}

/// Returns a prefix for devices that no other process can reach, unique in this process.
fn next_prefix() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    loop {
        let prefix = NEXT.fetch_add(1, Ordering::Relaxed);
        if !RESERVED.contains(&prefix) {
            return prefix;
        }
    }
}
