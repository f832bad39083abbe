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
//! LIDs, GIDs and GUIDs. A QP number's upper 16 bits, its prefix, name the process. `network`
//! claims a prefix by binding the local socket of its name, which vanishes with the process.

mod config;
mod deferred;
mod hall;
mod lock;
mod network;
mod process;
mod shield;
pub(crate) mod socket;
#[cfg(test)]
mod test;
mod thread;

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

pub use config::identities;
pub(crate) use deferred::Registers;
pub(crate) use shield::{Shield, Uncancelled};
pub(crate) use thread::be_brief;

use crate::card::Card;
use crate::clock::Clock;
use crate::wire::{Frame, Header, MULTICAST};
use deferred::{Deferred, Store};
use lock::{Guard, Lock};
use network::{Network, Waits};

/// Delivers an MSI-X vector: the card's index, the card, the vector.
pub type Interrupt = Box<dyn FnMut(usize, &mut Card, u32) + Send>;

/// QP numbers in a prefix.
const NUMBERS: usize = 256;
/// Prefixes of QP numbers that have a meaning of their own: 0 and 1, and that of multicast.
const RESERVED: [u16; 2] = [0, (MULTICAST >> 8) as u16];
/// Another prefix is claimed when fewer numbers than this are free.
const SPARE: usize = 64;
/// Frames that one entry of a program carries before the thread goes on.
const ENTRY: usize = 1 << 16;
/// Frames that the thread carries before it leaves the lock to others.
const TURN: usize = 1 << 10;
/// Longest time a store waits for the lock before signals are delivered.
const STORE: Duration = Duration::from_millis(10);
/// Nanoseconds between looks of programs' entries at what other processes have sent.
const INTAKE: u64 = 1_000_000;

/// The cards of this process and what connects them.
pub struct Engine {
    state: Lock<State>,
    /// Itself, for its thread.
    own: Weak<Self>,
    /// In the child of a fork: the cards are memories of the parent's, without wire and thread.
    detached: AtomicBool,
    /// Stores of signal handlers.
    deferred: Deferred,
    /// What wakes the thread.
    waits: Option<Arc<Waits>>,
    /// Whether the thread runs.
    runs: AtomicBool,
}

/// What the lock covers.
struct State {
    cards: Vec<Card>,
    interrupt: Interrupt,
    /// Frames for local cards, by index.
    inbox: VecDeque<(usize, Frame)>,
    network: Option<Network>,
    /// Whether the thread runs.
    started: bool,
    /// Whether the last to enter has left work to the thread.
    unfinished: bool,
    /// What the timer counts from.
    epoch: Instant,
    /// Nanoseconds of the engine's time before which no further timers fire.
    rest: u64,
    /// When programs' entries look again at what other processes have sent, in the same time.
    intake: u64,
}

/// Access to the state of a thread that no signal interrupts and nobody cancels.
struct Entered<'a> {
    // Dropped in this order: what a signal handler needs is free when it runs.
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
    /// Takes over cards that reach each other and nobody else, and run only while somebody is
    /// inside [`Engine::enter`]: there is no thread, and a timer that is due fires at the next
    /// entry. Cards without QP number prefixes are given some.
    pub fn new(cards: Vec<Card>, interrupt: Interrupt) -> Arc<Self> {
        let engine = Self::with(cards, interrupt, None);
        let _ = engine.lock().provide_numbers();
        engine
    }

    /// Takes over cards that also reach those of every other process on this machine, and in this
    /// network namespace, that names the same domain. Prefixes of QP numbers are claimed for each
    /// card.
    ///
    /// # Errors
    /// Whatever making and binding a local socket says; `AddrInUse` if no prefix is free.
    pub fn connected(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        let seed = cards.first().map_or(0, |card| card.identity.seed);
        let engine = Self::with(cards, interrupt, Some(Network::new(domain, seed)?));
        engine.lock().provide_numbers()?;
        process::register(&engine);
        Ok(engine)
    }

    fn with(cards: Vec<Card>, interrupt: Interrupt, network: Option<Network>) -> Arc<Self> {
        let waits = network.as_ref().map(|network| Arc::clone(&network.waits));
        let state = State {
            cards,
            interrupt,
            inbox: VecDeque::new(),
            network,
            started: false,
            unfinished: false,
            epoch: Instant::now(),
            rest: 0,
            intake: 0,
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

    /// Does something with a card, then carries away what it caused, until nothing is left to do
    /// in this process: packets between local cards are delivered, those for other processes are
    /// sent, interrupts are raised, the thread's next wake-up is set. After [`ENTRY`] frames the rest
    /// is left to the thread.
    ///
    /// Signals and cancellation wait until it returns. Never to be called from inside itself or from
    /// an interrupt.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn enter<R>(&self, card: usize, work: impl FnOnce(&mut Card) -> R) -> R {
        let mut entered = self.lock();
        let (result, turn) = self.work(&mut entered, card, work);
        drop(entered);
        if turn {
            std::thread::yield_now();
        }
        result
    }

    /// The same for a store or load that faulted, whose handler blocks signals and cancellation
    /// itself. `None` if another thread did not leave the lock for [`STORE`]: then the handler
    /// returns, pending signals are delivered, and the processor tries again.
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

    /// Leaves a store of a signal handler to whoever enters next, which is the thread at the latest.
    /// Takes no lock and no memory. `None` if that is not possible now.
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

    /// Executes the stores of signal handlers. The caller has the lock.
    fn catch_up(&self, state: &mut State) {
        // SAFETY: `state` is lent by the lock's guard, so no other thread is in this function.
        while let Some(store) = unsafe { self.deferred.take() } {
            if let Some(card) = state.cards.get_mut(store.card) {
                store.execute(card);
            }
        }
    }

    /// What an entry does under the lock; also whether others should have a turn afterwards.
    fn work<R>(
        &self,
        state: &mut State,
        card: usize,
        work: impl FnOnce(&mut Card) -> R,
    ) -> (R, bool) {
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
        (result, state.network.as_mut().is_some_and(Network::owes_a_turn))
    }

    /// How many cards there are.
    pub fn cards(&self) -> usize {
        self.lock().cards.len()
    }

    /// Whether this is the child of the process that made it: nothing reaches other processes any
    /// more and no timer fires. Whoever opens a device now needs a new engine.
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
    /// Takes in what other processes have sent, if that was not done just now.
    fn take_in(&mut self) {
        let Some(network) = &mut self.network else { return };
        let now = self.epoch.elapsed().as_nanos() as u64;
        if self.started && now >= self.intake {
            self.intake = now + INTAKE;
            network.take_in(&mut self.cards);
        }
    }

    /// Fires the timers that are due: some of them where the thread comes again for the others, all
    /// of them otherwise. Returns whether there were any.
    fn fire(&mut self) -> bool {
        let mut any = false;
        if self.started && self.now() < self.rest {
            return any;
        }
        for index in 0..self.cards.len() {
            let now = self.cards[index].clock.now();
            while self.cards[index].deadline().is_some_and(|deadline| deadline <= now) {
                for prefix in self.cards[index].late_peers(now) {
                    let slow = self.is_slow(prefix);
                    self.cards[index].set_slow(prefix, slow);
                }
                self.cards[index].expire();
                any = true;
                if self.started {
                    break;
                }
            }
        }
        any
    }

    /// Nanoseconds of the engine's time.
    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Whether packets to or from the process with this prefix are still under way: then a missing
    /// answer says nothing.
    fn is_slow(&mut self, prefix: u16) -> bool {
        if self.cards.iter().any(|card| card.identity.qpn_prefixes.contains(&prefix)) {
            return self.unfinished;
        }
        self.network.as_mut().is_some_and(|network| network.is_slow(prefix))
    }

    /// Runs the cards until nothing is left to do, or so many frames have been carried. Completions
    /// become visible only after the packets that were made before them have been handed on.
    fn run(&mut self, mut frames: usize) {
        loop {
            let mut busy = false;
            for index in 0..self.cards.len() {
                busy |= self.cards[index].pump();
                while let Some(frame) = self.cards[index].take_frame() {
                    frames = frames.saturating_sub(1);
                    self.carry(index, frame);
                }
                if let Some(network) = &mut self.network {
                    network.flush(&mut self.cards);
                }
                let card = &mut self.cards[index];
                busy |= card.settle();
                while let Some(vector) = card.take_interrupt() {
                    (self.interrupt)(index, card, vector);
                    busy = true;
                }
            }
            while let Some((index, frame)) = self.inbox.pop_front() {
                self.cards[index].receive(&frame);
                busy = true;
            }
            // Only now is nothing left that a CQE could be compressed with.
            let busy =
                busy || self.cards.iter_mut().fold(false, |any, card| card.release_cqes() | any);
            self.unfinished = busy && frames == 0;
            if !busy || frames == 0 {
                return;
            }
        }
    }

    /// Hands a frame to the local card that has the destination's number, or to the network; one
    /// that is for whoever listens to all of both.
    fn carry(&mut self, from: usize, frame: Frame) {
        if !self.cards[from].passes(&frame) {
            return;
        }
        let link = self.cards[from].identity.link;
        if frame.is_for_all(link) {
            if let Some(network) = &mut self.network {
                network.send_to_all(&frame);
            }
            self.inbox.extend((0..self.cards.len()).map(|index| (index, frame.clone())));
            return;
        }
        let Some((_, destination)) = Header::destination(link, &frame.0) else { return };
        let prefix = (destination >> 8) as u16;
        let owner = self.cards.iter().position(|card| card.identity.qpn_prefixes.contains(&prefix));
        if let Some(index) = owner {
            self.inbox.push_back((index, frame));
        } else if let Some(network) = &mut self.network {
            network.send(prefix, frame);
        }
    }

    /// Claims prefixes for cards that run out of QP numbers, and the name of those who listen to
    /// what goes to all.
    fn provide_numbers(&mut self) -> io::Result<()> {
        for (index, card) in self.cards.iter_mut().enumerate() {
            let numbers = card.identity.qpn_prefixes.len() * NUMBERS;
            if card.objects.qps.len() + SPARE <= numbers {
                continue;
            }
            let prefix = match &mut self.network {
                Some(network) => network.claim(index)?,
                None => next_prefix(),
            };
            card.add_prefix(prefix);
        }
        match &mut self.network {
            Some(network) if self.cards.iter().any(Card::listens_to_all) => network.listen(),
            _ => Ok(()),
        }
    }

    /// Lets whoever follows what the cards do see it.
    fn flush_trace(&self) {
        // One tap has all cards.
        if let Some(tapping) = self.cards.first().and_then(|card| card.tapping.as_ref()) {
            tapping.tap.flush();
        }
    }

    /// Sets the timer to when the thread has something to do: at once where work was left, or at the
    /// earliest deadline of the cards that run on the machine's clock.
    fn arm(&mut self) {
        let now = self.now();
        let Some(network) = &mut self.network else { return };
        let waits = self.cards.iter().filter_map(|card| match card.clock {
            Clock::Real(_) | Clock::Source(_) => {
                Some(card.deadline()?.saturating_sub(card.clock.now()))
            }
            Clock::Manual(_) => None,
        });
        let rest = self.rest.saturating_sub(now);
        let wait = match waits.min() {
            _ if self.unfinished => 0,
            Some(wait) => wait.max(rest),
            None => return,
        };
        network.arm(now, wait);
    }

    fn has_work_for_thread(&self) -> bool {
        self.network.is_some() && self.cards.iter().any(|card| !card.objects.qps.is_empty())
    }
}

/// Prefixes of cards that no other process can reach: unique in this process.
fn next_prefix() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    loop {
        let prefix = NEXT.fetch_add(1, Ordering::Relaxed);
        if !RESERVED.contains(&prefix) {
            return prefix;
        }
    }
}
