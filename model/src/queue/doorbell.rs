//! Registers of the UAR pages.

use crate::card::Card;

impl Card {
    /// A store reached a register: `offset` bytes into UAR page `uar`, in the order the bus saw
    /// them. A BlueFlame copy arrives as one store of its full length or as several; the first
    /// eight bytes at a BlueFlame register's half are the doorbell.
    pub fn store(&mut self, uar: u32, offset: usize, bytes: &[u8]) {
        todo!()
    }

    /// Looks at every queue pair whose doorbells are on UAR page `uar`, as if each had been rung:
    /// for front ends that see that something was stored, but not each store.
    pub fn ring_all(&mut self, uar: u32) {
        todo!()
    }
}
