//! The configuration space: type 0 header, power management, vendor capability, PCI Express, MSI-X.

use mlx5_model::card::Link;
use mlx5_model::identity::pci;

use crate::bar;
use crate::vectors;

/// Bytes of the configuration space. No extended capability is in it.
pub const SIZE: usize = 4096;

/// Offsets of registers.
mod at {
    pub const COMMAND: usize = 0x04;
    pub const BAR: usize = 0x10;
    pub const POWER: usize = mlx5_model::identity::pci::CAPABILITIES as usize;
    pub const VENDOR: usize = 0x48;
    pub const EXPRESS: usize = 0x60;
    pub const MSIX: usize = 0x9c;
    /// Device control.
    pub const CONTROL: usize = EXPRESS + 0x08;
    /// The counter from which a tool takes a ticket for the vendor capability's lock.
    pub const TICKET: usize = VENDOR + 0x08;
    /// Message control of MSI-X.
    pub const VECTORS: usize = MSIX + 0x02;
}

/// Bit of device control that starts a function-level reset.
const FUNCTION_RESET: u16 = 1 << 15;
/// Bit of message control that masks all vectors.
const MASK_ALL: u16 = 1 << 14;

/// A request by a store to the configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing more.
    None,
    /// A function-level reset.
    Reset,
}

/// The configuration space of a function.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    /// Bits that can be written.
    writable: Vec<u8>,
}

impl ConfigSpace {
    /// Creates the configuration space of a device, which is the number that PCI has of it, with ports of
    /// this link.
    pub fn new(device: u16, link: Link) -> Self {
        let mut space = Self { bytes: vec![0; SIZE], writable: vec![0; SIZE] };
        space.put(0, &pci::header(device, link));
        // Memory space, bus master, parity, SERR, no INTx.
        space.allow(at::COMMAND, &0x0546u16.to_le_bytes());
        // The bits below the size are fixed, which tells the size.
        space.allow(at::BAR, &(!(bar::SIZE - 1)).to_le_bytes());
        space.put_capabilities();
        space
    }

    fn put_capabilities(&mut self) {
        // Power management, version 3; D3hot keeps the state.
        self.put(at::POWER, &[0x01, at::VENDOR as u8, 0x03, 0x00, 0x08]);
        self.allow(at::POWER + 4, &[0x03]);
        // The vendor capability, by which tools reach other address spaces. Its control register says
        // of each that it is not there. Its lock works.
        self.put(at::VENDOR, &[0x09, at::EXPRESS as u8, 0x18, 0x00]);
        self.allow(at::VENDOR + 0x04, &[0xff, 0xff]);
        self.allow(at::VENDOR + 0x0c, &[0xff; 12]);
        // An endpoint, version 2: payloads of 512 bytes, extended tags, function-level reset, a link
        // of 16 lanes at 16 GT/s.
        self.put(at::EXPRESS, &[0x10, at::MSIX as u8, 0x02, 0x00]);
        self.put(at::EXPRESS + 0x04, &(0x0000_8022u32 | 1 << 28).to_le_bytes());
        self.allow(at::CONTROL, &0x7fffu16.to_le_bytes());
        self.put(at::EXPRESS + 0x0c, &0x0000_0104u32.to_le_bytes());
        self.put(at::EXPRESS + 0x12, &0x0104u16.to_le_bytes());
        self.put(at::EXPRESS + 0x2c, &0x0000_001eu32.to_le_bytes());
        self.put(at::MSIX, &[0x11, 0x00]);
        self.put(at::VECTORS, &(vectors::COUNT as u16 - 1).to_le_bytes());
        self.allow(at::VECTORS, &0xc000u16.to_le_bytes());
        self.put(at::MSIX + 4, &(bar::VECTORS as u32).to_le_bytes());
        self.put(at::MSIX + 8, &(bar::PENDING as u32).to_le_bytes());
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// Reads bytes; `None` if they are not all inside.
    pub fn read(&mut self, offset: u64, count: usize) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let bytes = self.bytes.get(start..start.checked_add(count)?)?.to_vec();
        if (start..start + count).contains(&at::TICKET) {
            let next = u32::from(self.half(at::TICKET)).wrapping_add(1) as u16;
            self.put(at::TICKET, &next.to_le_bytes());
        }
        Some(bytes)
    }

    /// Writes bytes; `None` if they are not all inside.
    pub fn write(&mut self, offset: u64, from: &[u8]) -> Option<Effect> {
        let start = usize::try_from(offset).ok()?;
        let range = start..start.checked_add(from.len())?;
        let bytes = self.bytes.get_mut(range.clone())?;
        for ((byte, new), mask) in bytes.iter_mut().zip(from).zip(&self.writable[range.clone()]) {
            *byte = *byte & !mask | new & mask;
        }
        // The bit that starts a reset is in the upper byte, and reads as zero.
        let high = at::CONTROL + 1;
        let started =
            range.contains(&high) && from[high - start] & (FUNCTION_RESET >> 8) as u8 != 0;
        Some(if started { Effect::Reset } else { Effect::None })
    }

    /// Returns whether message control masks all vectors.
    pub fn masks_all(&self) -> bool {
        self.half(at::VECTORS) & MASK_ALL != 0
    }
}

#[cfg(test)]
mod tests;
