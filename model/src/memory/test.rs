//! A memory for tests: a vector at a base of its own.

use std::sync::Mutex;

use super::{Fault, Memory};

/// Bytes that answer at `base` and above.
pub struct Flat {
    base: u64,
    bytes: Mutex<Vec<u8>>,
}

impl Flat {
    /// `length` zero bytes at `base`.
    pub fn new(base: u64, length: usize) -> Self {
        Self { base, bytes: Mutex::new(vec![0; length]) }
    }

    fn with<R>(
        &self,
        address: u64,
        length: usize,
        work: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Fault> {
        let mut bytes = self.bytes.lock().unwrap();
        let from = address.checked_sub(self.base).ok_or(Fault(address))? as usize;
        let to = from.checked_add(length).ok_or(Fault(address))?;
        bytes.get_mut(from..to).map(work).ok_or(Fault(address))
    }
}

impl Memory for Flat {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.with(address, to.len(), |bytes| to.copy_from_slice(bytes))
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.with(address, from.len(), |bytes| bytes.copy_from_slice(from))
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        self.with(address, 8, |bytes| {
            let old: [u8; 8] = (&*bytes).try_into().unwrap();
            bytes.copy_from_slice(&change(old));
            old
        })
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.write(address, from)
    }
}
