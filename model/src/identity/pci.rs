//! What the PCI function of a device says of itself: the same in sysfs and on the bus of a virtual
//! machine.

use crate::wire::Link;

/// Vendor of the device and of the board: Mellanox.
pub const VENDOR: u16 = 0x15b3;
/// Number of the board among the vendor's.
pub const SUBSYSTEM: u16 = 0x0001;
/// Bytes of BAR 0, the only one.
pub const BAR_SIZE: u64 = 1 << 26;
/// The lowest bits of BAR 0's register: prefetchable memory with an address of 64 bits.
pub const BAR_KIND: u32 = 0x0c;
/// Vectors of MSI-X.
pub const VECTORS: usize = 64;
/// Bytes of the header of the configuration space. Linux shows no more to a user without privilege.
pub const HEADER: usize = 64;
/// Offset of the first capability.
pub const CAPABILITIES: u8 = 0x40;

/// Returns the class of a function: an InfiniBand or an Ethernet controller.
pub fn class(link: Link) -> u32 {
    match link {
        Link::InfiniBand => 0x02_0700,
        Link::Roce => 0x02_0000,
    }
}

/// Returns the header of the configuration space after a reset. `device` is the number that PCI has of
/// the device.
pub fn header(device: u16, link: Link) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0x00, &VENDOR.to_le_bytes());
    put(0x02, &device.to_le_bytes());
    // Status: there are capabilities.
    put(0x06, &0x0010_u16.to_le_bytes());
    put(0x08, &(class(link) << 8).to_le_bytes());
    put(0x10, &BAR_KIND.to_le_bytes());
    put(0x2c, &VENDOR.to_le_bytes());
    put(0x2e, &SUBSYSTEM.to_le_bytes());
    put(0x34, &[CAPABILITIES]);
    header
}
