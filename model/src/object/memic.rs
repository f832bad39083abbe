//! Device memory (MEMIC), which software reaches through a window of the register BAR.

use std::collections::BTreeMap;

/// A run of device memory that someone has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// User context that asked for it; 0 is the driver itself.
    pub uid: u16,
    /// Bytes.
    pub length: u64,
}

/// The card's memory.
#[derive(Debug, Default)]
pub struct Memic {
    bus: Option<u64>,
    runs: BTreeMap<u64, Run>,
}

impl Memic {
    /// Offset of its window in the register BAR.
    pub const WINDOW: u64 = 0x0200_0000;
    /// Pages of 4 KiB in the window. There are more than can be allocated at a time. So each
    /// allocation of less than a page gets a page that no other allocation maps.
    pub const PAGES: u64 = 0x100;
    /// Bytes that can be had in all.
    pub const SIZE: u64 = 128 << 10;
    /// Allocations are multiples of so many bytes, and start at such.
    pub const GRAIN: u64 = 64;
    /// log2 of the greatest alignment that may be asked for.
    pub const LOG_ALIGNMENT: u32 = 12;

    /// Memory whose window the bus reaches at an address. A card without has none to offer.
    pub fn at(bus: u64) -> Self {
        Self { bus: Some(bus), runs: BTreeMap::new() }
    }

    /// Whether the card has any.
    pub fn is_there(&self) -> bool {
        self.bus.is_some()
    }

    /// Bus address of an address of the BAR.
    pub fn bus(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(Self::WINDOW)?;
        if offset >= Self::PAGES << 12 { None } else { self.bus?.checked_add(offset) }
    }

    /// The run that starts at an address of the BAR.
    pub fn get(&self, address: u64) -> Option<&Run> {
        self.runs.get(&address)
    }

    /// Every run.
    pub fn runs(&self) -> impl Iterator<Item = (u64, Run)> + '_ {
        self.runs.iter().map(|(address, run)| (*address, *run))
    }

    /// The run that all of a range belongs to.
    pub fn run_of(&self, address: u64, length: u64) -> Option<&Run> {
        let (start, run) = self.runs.range(..=address).next_back()?;
        let offset = address - start;
        (offset <= run.length && length <= run.length - offset).then_some(run)
    }

    /// Takes `run` at the lowest place within `range` that is a multiple of `alignment`; `None`
    /// where there is none, or the memory is used up.
    pub fn take(&mut self, range: std::ops::Range<u64>, alignment: u64, run: Run) -> Option<u64> {
        let used: u64 = self.runs.values().map(|run| run.length).sum();
        if run.length > Self::SIZE - used {
            return None;
        }
        let mut at = range.start.checked_next_multiple_of(alignment)?;
        for (start, taken) in &self.runs {
            if at + run.length <= *start {
                break;
            }
            if start + taken.length > at {
                at = (start + taken.length).checked_next_multiple_of(alignment)?;
            }
        }
        if at.checked_add(run.length)? > range.end {
            return None;
        }
        self.runs.insert(at, run);
        Some(at)
    }

    /// Gives a run back.
    pub fn give(&mut self, address: u64) {
        self.runs.remove(&address);
    }
}

#[cfg(test)]
mod tests;
