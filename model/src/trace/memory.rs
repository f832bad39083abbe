//! Memory and time whose accesses a tap records or answers.

use std::sync::Arc;

use super::Tap;
use crate::clock::{Clock, TimeSource};
use crate::memory::{Fault, Memory};

/// A card's memory while it is recorded or replayed.
pub(crate) struct Tapped {
    memory: Arc<dyn Memory>,
    tap: Arc<Tap>,
}

impl Tapped {
    pub fn new(memory: Arc<dyn Memory>, tap: Arc<Tap>) -> Tapped {
        Tapped { memory, tap }
    }
}

impl Memory for Tapped {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.tap.read(&*self.memory, address, to)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.tap.write(address, from, || self.memory.write(address, from))
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        self.tap.update(&*self.memory, address, change)
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.tap.write(address, from, || self.memory.publish(address, from))
    }
}

/// A card's clock while it is recorded or replayed.
#[derive(Debug)]
pub(crate) struct TappedClock {
    /// A time that is not the machine's.
    source: Option<Arc<dyn TimeSource>>,
    tap: Arc<Tap>,
}

impl TappedClock {
    pub fn new(clock: &Clock, tap: Arc<Tap>) -> TappedClock {
        let source = match clock {
            Clock::Source(source) => Some(source.clone()),
            Clock::Real(_) | Clock::Manual(_) => None,
        };
        TappedClock { source, tap }
    }
}

impl TimeSource for TappedClock {
    fn now(&self) -> u64 {
        self.tap.time(self.source.as_deref())
    }
}

/// Memory without any bytes. A replayed card would reach it only if its tap did not answer.
pub(crate) struct Nothing;

impl Memory for Nothing {
    fn read(&self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault(address))
    }

    fn write(&self, address: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault(address))
    }

    fn update(
        &self,
        address: u64,
        _: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        Err(Fault(address))
    }

    fn publish(&self, address: u64, _: &[u8]) -> Result<(), Fault> {
        Err(Fault(address))
    }
}
