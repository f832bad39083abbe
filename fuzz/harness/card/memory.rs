//! The memory that answers the card.

use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_model::memory::{Fault, Memory};

use super::{BASE, SIZE};

/// Bus memory: one range of bytes.
pub struct Flat(Mutex<Vec<u8>>);

impl Flat {
    pub fn new() -> Self {
        Self(Mutex::new(vec![0; SIZE]))
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn range(address: u64, length: usize) -> Result<std::ops::Range<usize>, Fault> {
    let from = address.checked_sub(BASE).filter(|from| *from <= SIZE as u64);
    let from = from.ok_or(Fault(address))? as usize;
    if length > SIZE - from {
        return Err(Fault(address));
    }
    Ok(from..from + length)
}

impl Memory for Flat {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        to.copy_from_slice(&self.bytes()[range(address, to.len())?]);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.bytes()[range(address, from.len())?].copy_from_slice(from);
        Ok(())
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        let mut old = [0; 8];
        self.read(address, &mut old)?;
        self.write(address, &change(old))?;
        Ok(old)
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.write(address, from)
    }
}
