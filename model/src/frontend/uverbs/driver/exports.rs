//! Pages of devices that programs export as dma-bufs: UAR pages and device memory.
//!
//! A device reaches an exported page by a bus address in a space of its own, above those of pinned memory. A
//! table tells what each address stands for. When the exported object is destroyed, its addresses answer no
//! more, whoever still has the dma-buf. Addresses are used once, so an old key never reaches a new object.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use super::super::process::lock;
use super::pins::{EXPORTS, bus};
use super::registers::Page;
use super::umem::PAGE;
use crate::memory::{Fault, Memory, ProcessMemory};

/// A range of exported pages.
struct Window {
    /// Bus address behind the last byte.
    end: u64,
    /// `None` once the object is destroyed.
    target: Option<Target>,
}

/// The memory that an export stands for.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// A page of registers.
    Registers(&'static Page),
    /// Device memory, at this address of the process.
    Memory(u64),
}

#[derive(Default)]
struct Table {
    /// The windows by their first bus address.
    windows: BTreeMap<u64, Window>,
    /// Pages that were ever exported.
    pages: u64,
}

/// All exports of a process.
#[derive(Default)]
pub(crate) struct Exports {
    table: Mutex<Table>,
}

/// Pages of one object, which a dma-buf stands for.
pub(crate) struct Export {
    exports: Arc<Exports>,
    /// Bus address of the first byte.
    start: u64,
    /// Bytes: whole pages.
    pub length: u64,
}

impl Export {
    /// Exports so many bytes, in whole pages.
    pub fn new(exports: &Arc<Exports>, target: Target, length: u64) -> Self {
        let mut table = lock(&exports.table);
        let start = bus(EXPORTS, table.pages * PAGE);
        table.pages += length.div_ceil(PAGE);
        table.windows.insert(start, Window { end: start + length, target: Some(target) });
        Self { exports: exports.clone(), start, length }
    }

    /// Returns the bus address of a byte.
    pub fn bus(&self, offset: u64) -> u64 {
        self.start + offset
    }

    /// Returns whether the object is destroyed.
    pub fn is_revoked(&self) -> bool {
        lock(&self.exports.table).windows.get(&self.start).is_none_or(|it| it.target.is_none())
    }

    fn revoke(&self) {
        if let Some(window) = lock(&self.exports.table).windows.get_mut(&self.start) {
            window.target = None;
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        lock(&self.exports.table).windows.remove(&self.start);
    }
}

/// The exports of one object.
#[derive(Default)]
pub(crate) struct Shares(Mutex<Vec<Weak<Export>>>);

impl Shares {
    /// Enters an export.
    pub fn add(&self, export: &Arc<Export>) {
        let mut exports = lock(&self.0);
        exports.retain(|export| export.strong_count() > 0);
        exports.push(Arc::downgrade(export));
    }

    /// The object is about to be destroyed: no device reaches it by a dma-buf any more, not even one that is
    /// at work now.
    pub fn revoke(&self) {
        lock(&self.0).drain(..).filter_map(|export| export.upgrade()).for_each(|it| it.revoke());
    }
}

impl Exports {
    /// Does an access. The table stays locked, so that an object is not destroyed meanwhile.
    fn access<R>(
        &self,
        address: u64,
        length: usize,
        work: impl FnOnce(Target, u64) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let fault = Fault(address);
        let table = lock(&self.table);
        let (start, window) = table.windows.range(..=address).next_back().ok_or(fault)?;
        if address.checked_add(length as u64).is_none_or(|end| end > window.end) {
            return Err(fault);
        }
        // The fault is where the device has asked.
        work(window.target.ok_or(fault)?, address - start).map_err(|_| fault)
    }

    /// Reads bytes. Registers read as what was stored last.
    pub fn read(&self, memory: ProcessMemory, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.access(address, to.len(), |target, offset| match target {
            Target::Registers(page) => {
                page.read(offset as usize, to);
                Ok(())
            }
            Target::Memory(start) => memory.read(start + offset, to),
        })
    }

    /// Writes bytes. A write to registers is a store to the device whose registers these are.
    pub fn write(&self, memory: ProcessMemory, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.access(address, from.len(), |target, offset| match target {
            Target::Registers(page) => {
                page.write(offset as usize, from);
                Ok(())
            }
            Target::Memory(start) => memory.write(start + offset, from),
        })
    }

    /// Replaces eight bytes at once. Registers have no atomic operations.
    pub fn update(
        &self,
        memory: ProcessMemory,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        self.access(address, 8, |target, offset| match target {
            Target::Registers(_) => Err(Fault(address)),
            Target::Memory(start) => memory.update(start + offset, change),
        })
    }
}

#[cfg(test)]
mod tests;
