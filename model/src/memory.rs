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
