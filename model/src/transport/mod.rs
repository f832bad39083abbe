//! The InfiniBand transport services.
//!
//! Everything here is driven from outside: [`Card::send_ready`] after a doorbell or a change of
//! state, [`Card::receive`] for a packet, [`Card::expire`] for the clock. Packets to send are put
//! into [`Card::outbox`].

pub mod rc;

use crate::card::Card;
use crate::wire::Frame;

impl Card {
    /// A send queue may have work: fetch and execute as far as window and fences allow.
    pub fn send_ready(&mut self, qp: u32) {
        todo!()
    }

    /// A packet has arrived at the port.
    pub fn receive(&mut self, frame: &Frame) {
        todo!()
    }

    /// Fires every timer that is due.
    pub fn expire(&mut self) {
        todo!()
    }

    /// When the next timer is due, in nanoseconds of the card's clock.
    pub fn deadline(&self) -> Option<u64> {
        todo!()
    }

    /// A queue pair changed state by command. To Error: everything posted is flushed. To Reset:
    /// transport state is forgotten. To Rtr, Rts: PSNs, timers and limits are taken from the context.
    pub fn state_changed(&mut self, qp: u32) {
        todo!()
    }

    /// Moves a queue pair to Error because of something that happened on it, flushes it, and
    /// reports the async event where the cause has one.
    pub fn fail(&mut self, qp: u32) {
        todo!()
    }
}
