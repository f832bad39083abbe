//! Packets that a program keeps.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::PacketFault;
use super::slots::Slots;
use crate::cqe::{PacketInfo, PacketWords};

/// A received packet that the program keeps, in the memory where it arrived. Made by
/// [`Packet::keep`](super::Packet::keep). It dereferences to its bytes.
///
/// It may go to another thread, and outlives its receiver. When it is dropped, its memory returns to the
/// receiver. A leaked one keeps its memory for ever.
///
/// See the example on [`Packet::keep`](super::Packet::keep).
pub struct KeptPacket {
    slots: Arc<Slots>,
    slot: u32,
    offset: u32,
    length: u32,
    words: PacketWords,
}

impl KeptPacket {
    /// Keeps a packet with this length at this offset, or returns `None` if as many are kept as may be.
    ///
    /// # Safety
    /// The packet [fits](Slots::fits) the slot, the HCA has reported it, and the slot is not posted
    /// again while it [is not free](Slots::is_free).
    pub(super) unsafe fn new(
        slots: &Arc<Slots>,
        (slot, offset, length): (u32, u32, u32),
        words: PacketWords,
    ) -> Option<KeptPacket> {
        let kept = slots.keep(slot);
        kept.then(|| KeptPacket { slots: Arc::clone(slots), slot, offset, length, words })
    }

    /// Returns the HCA's results for its headers.
    pub fn info(&self) -> PacketInfo {
        self.words.info()
    }

    /// Returns the fault that the HCA has found in its headers, as [`Packet::fault`](super::Packet::fault)
    /// does.
    pub fn fault(&self) -> Option<PacketFault> {
        PacketFault::of(&self.info())
    }
}

impl Deref for KeptPacket {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: by the contract of `new`, the packet lies in its slot, which this keeps from being
        // posted again.
        unsafe { self.slots.bytes(self.slot, self.offset, self.length) }
    }
}

impl Drop for KeptPacket {
    fn drop(&mut self) {
        self.slots.release(self.slot);
    }
}

impl fmt::Debug for KeptPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPacket").field("len", &self.len()).field("info", &self.info()).finish()
    }
}
