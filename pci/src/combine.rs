//! Stores to BlueFlame registers, which a processor combines and a client splits.
//!
//! Drivers map these registers so that the processor may combine stores. A WQE that is copied there
//! arrives at a device in 64 bytes. A client has them in pieces of at most 8 bytes. This puts them
//! together again. It gives the pieces up one by one if something else happens before there are 64
//! bytes, as a processor may at any time.

/// Bytes that a processor combines.
const LINE: usize = 64;
/// The part of a UAR page that has BlueFlame registers.
const REGISTERS: std::ops::Range<u64> = 0x800..0x1000;
const PAGE: u64 = 0x1000;

/// Stores that may become one.
#[derive(Debug, Default)]
pub struct Combiner {
    held: Vec<(u64, Vec<u8>)>,
}

impl Combiner {
    /// Takes a store to a UAR page. Calls `deliver` for each store that the device sees now.
    pub fn store(&mut self, offset: u64, bytes: &[u8], mut deliver: impl FnMut(u64, &[u8])) {
        let length = bytes.len() as u64;
        let next = self.held.last().map(|(at, held)| at + held.len() as u64);
        let line = LINE as u64;
        let begins = offset % line == 0 && REGISTERS.contains(&(offset % PAGE));
        let inside = offset % line + length <= line;
        if next != Some(offset) || offset % line == 0 || !inside {
            self.release(&mut deliver);
        }
        if bytes.is_empty() || !inside || !begins && self.held.is_empty() {
            return deliver(offset, bytes);
        }
        self.held.push((offset, bytes.to_vec()));
        if offset % line + length == line {
            let whole: Vec<u8> = self.held.iter().flat_map(|(_, held)| held).copied().collect();
            let first = self.held[0].0;
            self.held.clear();
            deliver(first, &whole);
        }
    }

    /// Gives up the stores that are held, one by one.
    pub fn release(&mut self, mut deliver: impl FnMut(u64, &[u8])) {
        for (offset, bytes) in self.held.drain(..) {
            deliver(offset, &bytes);
        }
    }

    /// Forgets the stores that are held.
    pub fn clear(&mut self) {
        self.held.clear();
    }

    /// Returns whether stores are held.
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }
}

#[cfg(test)]
mod tests;
