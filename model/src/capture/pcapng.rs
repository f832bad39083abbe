//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng).
//!
//! Integers are little-endian, and each block's length is a multiple of four bytes.

use crate::wire::Direction;

/// Block types.
mod block {
    pub const SECTION: u32 = 0x0a0d_0d0a;
    pub const INTERFACE: u32 = 1;
    pub const PACKET: u32 = 6;
}

/// Option codes. Codes from 2 on depend on the type of the block.
mod option {
    pub const END: u16 = 0;
    pub const COMMENT: u16 = 1;
    pub const SECTION_HARDWARE: u16 = 2;
    pub const SECTION_APPLICATION: u16 = 4;
    pub const INTERFACE_NAME: u16 = 2;
    pub const INTERFACE_DESCRIPTION: u16 = 3;
    pub const INTERFACE_RESOLUTION: u16 = 9;
    pub const PACKET_FLAGS: u16 = 2;
}

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Times count nanoseconds: the resolution is ten to the power of minus nine.
const NANOSECONDS: u8 = 9;

/// Bits 1:0 of a packet's flags (`epb_flags`).
fn flags(direction: Direction) -> u32 {
    match direction {
        Direction::Inbound => 1,
        Direction::Outbound => 2,
    }
}

/// A block that is being built at the end of a buffer.
struct Block<'a> {
    to: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Block<'a> {
    fn new(to: &'a mut Vec<u8>, kind: u32) -> Self {
        let start = to.len();
        to.extend_from_slice(&kind.to_le_bytes());
        // The length, see `end`.
        to.extend_from_slice(&[0; 4]);
        Self { to, start }
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.to.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.to.extend_from_slice(&value.to_le_bytes());
        self
    }

    fn pad(&mut self) {
        let length = self.to.len() - self.start;
        self.to.resize(self.start + length.next_multiple_of(4), 0);
    }

    fn option(&mut self, code: u16, value: &[u8]) -> &mut Self {
        // Longer texts are cut off. Readers accept a character that is cut in two.
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.u16(code).u16(value.len() as u16);
        self.to.extend_from_slice(value);
        self.pad();
        self
    }

    /// Ends options and block.
    fn end(self) {
        let mut block = self;
        block.u16(option::END).u16(0);
        let length = (block.to.len() - block.start + 4) as u32;
        block.u32(length);
        let at = block.start + 4;
        block.to[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Appends the block that begins a section. `application` is who writes it.
pub(super) fn section(hardware: &str, application: &str, to: &mut Vec<u8>) {
    let mut block = Block::new(to, block::SECTION);
    block.u32(BYTE_ORDER).u16(1).u16(0);
    // The length of the section is unknown.
    block.u32(u32::MAX).u32(u32::MAX);
    block.option(option::SECTION_HARDWARE, hardware.as_bytes());
    block.option(option::SECTION_APPLICATION, application.as_bytes());
    block.end();
}

/// Appends the block of an interface. Packets name interfaces by their position in the section.
pub(super) fn interface(link_type: u16, name: &str, description: &str, to: &mut Vec<u8>) {
    let mut block = Block::new(to, block::INTERFACE);
    // No limit of a packet's captured bytes.
    block.u16(link_type).u16(0).u32(0);
    block.option(option::INTERFACE_NAME, name.as_bytes());
    block.option(option::INTERFACE_DESCRIPTION, description.as_bytes());
    block.option(option::INTERFACE_RESOLUTION, &[NANOSECONDS]);
    block.end();
}

/// A packet with what is known of it.
pub(super) struct Packet<'a> {
    /// The position of the interface's block in the section.
    pub interface: u32,
    /// Nanoseconds since 1970.
    pub time: u64,
    pub direction: Direction,
    /// The parts that the packet consists of, in order.
    pub parts: [&'a [u8]; 3],
    pub comment: Option<String>,
}

impl Packet<'_> {
    /// Appends the packet's block.
    pub(super) fn put(&self, to: &mut Vec<u8>) {
        let length = self.parts.iter().map(|part| part.len()).sum::<usize>() as u32;
        let mut block = Block::new(to, block::PACKET);
        block.u32(self.interface).u32((self.time >> 32) as u32).u32(self.time as u32);
        block.u32(length).u32(length);
        for part in self.parts {
            block.to.extend_from_slice(part);
        }
        block.pad();
        block.option(option::PACKET_FLAGS, &flags(self.direction).to_le_bytes());
        if let Some(comment) = &self.comment {
            block.option(option::COMMENT, comment.as_bytes());
        }
        block.end();
    }
}
