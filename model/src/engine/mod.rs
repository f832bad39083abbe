//! Runs cards: carries packets between them and to other processes, delivers interrupts, fires
//! timers.
//!
//! One lock covers all cards of a process. Whoever enters with [`Engine::enter`] leaves only when
//! every packet between local cards has been executed, so that work started by a doorbell inside
//! one process is done when the store returns. A thread, started when first needed and with every
//! signal blocked but those of memory faults, waits for packets from other processes and for
//! timers.
//!
//! All processes of one machine that share a *domain* hold slices of the same cards: the same LIDs,
//! GIDs and GUIDs. A QP number's upper 16 bits, its prefix, name the process: `network` claims
//! a prefix by binding the local socket of its name, which vanishes with the process.

mod config;
mod hall;
mod network;
mod process;
pub(crate) mod socket;
#[cfg(test)]
mod test;
mod thread;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

pub use config::identities;
pub(crate) use thread::be_brief;

use crate::card::Card;
use crate::clock::Clock;
use crate::wire::{Frame, Header, MULTICAST};
use network::Network;

/// Delivers an MSI-X vector: the card's index, the card, the vector.
pub type Interrupt = Box<dyn FnMut(usize, &mut Card, u32) + Send>;

/// QP numbers in a prefix.
const NUMBERS: usize = 256;
/// Prefixes of QP numbers that have a meaning of their own: 0 and 1, and that of multicast.
const RESERVED: [u16; 2] = [0, (MULTICAST >> 8) as u16];
/// Another prefix is claimed when fewer numbers than this are free.
const SPARE: usize = 64;

/// The cards of this process and what connects them.
pub struct Engine {
    state: Mutex<State>,
    /// Itself, for its thread.
    own: Weak<Self>,
    /// In the child of a fork: the cards are memories of the parent's, without wire and thread.
    detached: AtomicBool,
}

/// What the lock covers.
struct State {
    cards: Vec<Card>,
    interrupt: Interrupt,
    /// Frames for local cards, by index.
    inbox: VecDeque<(usize, Frame)>,
    network: Option<Network>,
    /// Whether the thread has been started.
    started: bool,
    /// What the timer counts from.
    epoch: Instant,
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
        let state = State {
            cards,
            interrupt,
            inbox: VecDeque::new(),
            network,
            started: false,
            epoch: Instant::now(),
        };
        Arc::new_cyclic(|own| Self {
            state: Mutex::new(state),
            own: own.clone(),
            detached: AtomicBool::new(false),
        })
    }

    /// Does something with a card, then carries away what it caused, until nothing is left to do
    /// in this process: packets between local cards are delivered, those for other processes are
    /// sent, interrupts are raised, the thread's next wake-up is set.
    ///
    /// Never to be called from inside itself or from an interrupt.
    ///
    /// # Panics
    /// If there is no such card.
    pub fn enter<R>(&self, card: usize, work: impl FnOnce(&mut Card) -> R) -> R {
        let mut state = self.lock();
        let result = work(&mut state.cards[card]);
        state.run();
        if let Err(error) = state.provide_numbers() {
            tracing::warn!(%error, "no further QP numbers");
        }
        state.arm();
        state.flush_trace();
        if !state.started && !self.is_detached() && state.has_work_for_thread() {
            state.started = true;
            if let Err(error) = thread::start(self.own.clone(), &state) {
                tracing::error!(%error, "cannot start the engine's thread");
            }
        }
        let turn = state.network.as_mut().is_some_and(Network::owes_a_turn);
        drop(state);
        if turn {
            std::thread::yield_now();
        }
        result
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(network) = &state.network {
            network.stop();
        }
    }
}

impl State {
    /// Runs the cards until nothing is left to do. Completions become visible only after the
    /// packets that were made before them have been handed on.
    fn run(&mut self) {
        loop {
            let mut busy = false;
            for index in 0..self.cards.len() {
                let card = &mut self.cards[index];
                if card.deadline().is_some_and(|deadline| deadline <= card.clock.now()) {
                    card.expire();
                    busy = true;
                }
                busy |= card.pump();
                while let Some(frame) = self.cards[index].take_frame() {
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
            if !busy && !self.cards.iter_mut().fold(false, |any, card| card.release_cqes() | any) {
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

    /// Sets the timer to the earliest deadline of the cards that run on the machine's clock.
    fn arm(&mut self) {
        let Some(network) = &mut self.network else { return };
        let waits = self.cards.iter().filter_map(|card| match card.clock {
            Clock::Real(_) | Clock::Tapped(_) => {
                Some(card.deadline()?.saturating_sub(card.clock.now()))
            }
            Clock::Manual(_) => None,
        });
        if let Some(wait) = waits.min() {
            network.arm(self.epoch.elapsed().as_nanos() as u64, wait);
        }
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
