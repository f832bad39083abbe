//! Bus memory: the one way the card reaches anything outside itself.

/// An access to a bus address that nothing answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory answers at bus address {0:#x}")]
pub struct Fault(pub u64);

/// Memory as a device on the bus sees it.
///
/// Addresses are whatever the page lists given by commands hold: addresses of this process for the
/// verbs front end, guest physical addresses for the PCI one. Nothing is trusted: an address that
/// no memory answers is a [`Fault`], never a crash.
pub trait Memory: Send + Sync {
    /// Reads bytes, in increasing order of address.
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault>;

    /// Writes bytes, in increasing order of address.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault>;

    /// Replaces eight bytes, aligned to eight, in one access that nothing interrupts, and returns
    /// what was there. Bytes are in memory order.
    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault>;

    /// Writes bytes and orders every write before it ahead of the last byte written: what makes a
    /// CQE or EQE visible only when it is whole.
    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault>;
}

/// Memory of this process: a bus address is an address of the process.
///
/// Accesses are made by a few instructions whose faults are expected: the process's SIGSEGV and
/// SIGBUS handler asks [`recover`] first, and resumes where it says. A thread that works on the
/// card must not block these two signals.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcessMemory {
    guarded: bool,
}

impl ProcessMemory {
    /// Memory of this process, where a signal handler that asks [`recover`] is (`guarded`) or is
    /// not installed. Without it, every access is made by the kernel: slower, and [`Memory::update`]
    /// is not atomic against this process's own threads.
    pub fn new(guarded: bool) -> Self {
        Self { guarded }
    }
}

/// Where to resume a thread that faulted at instruction `rip` while it accessed memory for a card;
/// `None` if the instruction is not one of ours. Nothing else needs to change in the context.
/// Async-signal-safe.
pub fn recover(rip: u64) -> Option<u64> {
    todo!()
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        todo!()
    }
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        todo!()
    }
    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        todo!()
    }
    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        todo!()
    }
}
