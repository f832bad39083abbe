//! Runs cards: carries packets between them and to other processes, delivers interrupts, fires
//! timers.
//!
//! One lock covers all cards of a process. Whoever enters with [`Engine::enter`] leaves only when
//! every packet between local cards has been executed, so that work started by a doorbell inside
//! one process is done when the store returns. A thread, started when first needed and with every
//! signal blocked, waits for packets from other processes and for timers.

use std::sync::{Arc, Mutex};

use crate::card::Card;

/// Delivers an MSI-X vector: the card's index, the card, the vector.
pub type Interrupt = Box<dyn FnMut(usize, &mut Card, u32) + Send>;

/// The cards of this process and what connects them.
pub struct Engine {
    cards: Mutex<Vec<Card>>,
}

impl Engine {
    /// Takes over cards.
    pub fn new(cards: Vec<Card>, interrupt: Interrupt) -> Arc<Self> {
        todo!()
    }

    /// Does something with a card, then carries away what it caused, until nothing is left to do
    /// in this process: packets between local cards are delivered, those for other processes are
    /// sent, interrupts are raised, the thread's next wake-up is set.
    pub fn enter<R>(&self, card: usize, work: impl FnOnce(&mut Card) -> R) -> R {
        todo!()
    }
}
