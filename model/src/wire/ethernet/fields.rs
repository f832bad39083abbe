//! Header fields that flows change, and the changes to them.
//!
//! Numbers and widths of fields: `mlx5_ifc.h`, `MLX5_ACTION_IN_FIELD_*`. A field that a packet lacks
//! is left alone, and is zero where it is copied from.

use super::checksum::Sums;
use super::{HEADER, Headers, Network, Transport};

/// Registers of metadata that a packet has on its way through flow tables (`metadata_reg_c_0` to `_7`).
pub type Metadata = [u32; 8];

/// The header that a field belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// The Ethernet addresses.
    Link,
    /// The type behind addresses and tags.
    Kind,
    /// The first VLAN tag.
    Tag,
    V4,
    V6,
    /// The DSCP of either version of IP.
    Dscp,
    Tcp,
    Udp,
    /// No header: a register.
    Register(usize),
}

/// A field by number.
#[derive(Debug, PartialEq, Eq)]
pub struct HeaderField {
    number: u16,
    place: Place,
    /// Its first bit, from the start of its header, and its width.
    bit: usize,
    width: u32,
}

const fn field(number: u16, place: Place, bit: usize, width: u32) -> HeaderField {
    HeaderField { number, place, bit, width }
}

const fn register(number: u16, index: usize) -> HeaderField {
    field(number, Place::Register(index), 0, 32)
}

const FIELDS: &[HeaderField] = &[
    field(0x01, Place::Link, 48, 32),
    field(0x02, Place::Link, 80, 16),
    field(0x03, Place::Kind, 0, 16),
    field(0x04, Place::Link, 0, 32),
    field(0x05, Place::Link, 32, 16),
    field(0x06, Place::Dscp, 0, 6),
    // The lower nine bits of the word with the header's length.
    field(0x07, Place::Tcp, 103, 9),
    field(0x08, Place::Tcp, 0, 16),
    field(0x09, Place::Tcp, 16, 16),
    field(0x0a, Place::V4, 64, 8),
    field(0x0b, Place::Udp, 0, 16),
    field(0x0c, Place::Udp, 16, 16),
    field(0x0d, Place::V6, 64, 32),
    field(0x0e, Place::V6, 96, 32),
    field(0x0f, Place::V6, 128, 32),
    field(0x10, Place::V6, 160, 32),
    field(0x11, Place::V6, 192, 32),
    field(0x12, Place::V6, 224, 32),
    field(0x13, Place::V6, 256, 32),
    field(0x14, Place::V6, 288, 32),
    field(0x15, Place::V4, 96, 32),
    field(0x16, Place::V4, 128, 32),
    field(0x17, Place::Tag, 4, 12),
    field(0x47, Place::V6, 56, 8),
    register(0x51, 0),
    register(0x52, 1),
    register(0x53, 2),
    register(0x54, 3),
    register(0x55, 4),
    register(0x56, 5),
    register(0x57, 6),
    register(0x58, 7),
    field(0x59, Place::Tcp, 32, 32),
    field(0x5b, Place::Tcp, 64, 32),
];

impl HeaderField {
    /// Returns the field of a number, if flows can change it.
    fn of(number: u32) -> Option<&'static Self> {
        FIELDS.iter().find(|field| u32::from(field.number) == number)
    }

    /// Returns the field's first bit in a frame. `None` if the frame lacks the field.
    fn bit(&self, headers: &Headers) -> Option<usize> {
        let tags = if headers.vlan.is_some() { super::TAG } else { 0 };
        let byte = match self.place {
            Place::Link => 0,
            Place::Kind => HEADER - 2 + tags,
            Place::Tag => headers.vlan.map(|_| HEADER)?,
            Place::V4 => headers.network_at(Network::V4)?,
            Place::V6 => headers.network_at(Network::V6)?,
            // The upper six bits of IPv4's second byte; of IPv6's class, which starts in the first.
            Place::Dscp => match headers.network? {
                (Network::V4, at) => return Some(at * 8 + 8),
                (Network::V6, at) => return Some(at * 8 + 4),
            },
            Place::Tcp => headers.transport_at(Transport::Tcp)?,
            Place::Udp => headers.transport_at(Transport::Udp)?,
            Place::Register(_) => return None,
        };
        Some(byte * 8 + self.bit)
    }

    fn get(&self, packet: &View<'_>) -> u32 {
        if let Place::Register(index) = self.place {
            return packet.metadata[index];
        }
        let bits = self.bit(packet.headers);
        bits.and_then(|bit| read(packet.frame, bit, self.width)).unwrap_or(0)
    }

    fn set(&self, packet: &mut View<'_>, value: u32) {
        if let Place::Register(index) = self.place {
            packet.metadata[index] = value;
        } else if let Some(bit) = self.bit(packet.headers) {
            write(packet.frame, bit, self.width, value);
        }
    }
}

/// The bytes that hold some bits, at most 32 of them, as a number, and the bits below those.
fn span(bit: usize, width: u32) -> (std::ops::Range<usize>, u32) {
    let end = bit + width as usize;
    let bytes = bit / 8..end.div_ceil(8);
    let below = (bytes.end * 8 - end) as u32;
    (bytes, below)
}

fn ones(width: u32) -> u64 {
    (1 << width) - 1
}

fn read(frame: &[u8], bit: usize, width: u32) -> Option<u32> {
    let (bytes, below) = span(bit, width);
    let all = frame.get(bytes)?.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    Some((all >> below & ones(width)) as u32)
}

/// Writes bits that lie in a frame; others are not written.
fn write(frame: &mut [u8], bit: usize, width: u32, value: u32) {
    let (bytes, below) = span(bit, width);
    let Some(bytes) = frame.get_mut(bytes) else { return };
    let all = bytes.iter().fold(0u64, |all, byte| all << 8 | u64::from(*byte));
    let kept = all & !(ones(width) << below);
    let mut new = kept | (u64::from(value) & ones(width)) << below;
    for byte in bytes.iter_mut().rev() {
        *byte = new as u8;
        new >>= 8;
    }
}

/// Some bits of a field, counted from its lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldPart {
    field: &'static HeaderField,
    offset: u32,
    length: u32,
}

/// Why there is no such part of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPart {
    /// The number is that of no field that can be changed.
    Number,
    /// The bits do not lie in the field.
    Range,
}

impl FieldPart {
    /// The part of a field by number. A length of zero stands for 32 bits.
    pub fn new(number: u32, offset: u32, length: u32) -> Result<Self, NoPart> {
        let field = HeaderField::of(number).ok_or(NoPart::Number)?;
        let length = if length == 0 { 32 } else { length };
        match offset.checked_add(length) {
            Some(end) if end <= field.width => Ok(Self { field, offset, length }),
            _ => Err(NoPart::Range),
        }
    }

    /// The whole field of a number.
    pub fn whole(number: u32) -> Result<Self, NoPart> {
        let field = HeaderField::of(number).ok_or(NoPart::Number)?;
        Ok(Self { field, offset: 0, length: field.width })
    }

    fn get(self, packet: &View<'_>) -> u32 {
        (u64::from(self.field.get(packet)) >> self.offset & ones(self.length)) as u32
    }

    fn set(self, packet: &mut View<'_>, value: u32) {
        let mask = ones(self.length) << self.offset;
        let kept = u64::from(self.field.get(packet)) & !mask;
        let value = kept | u64::from(value) << self.offset & mask;
        self.field.set(packet, value as u32);
    }
}

/// A change to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldAction {
    /// A value is put there.
    Set(FieldPart, u32),
    /// A value is added, without carry out of the field.
    Add(FieldPart, u32),
    /// The first part is copied to the second, of the same length.
    Copy(FieldPart, FieldPart),
}

/// A packet whose fields change.
struct View<'a> {
    frame: &'a mut [u8],
    headers: &'a Headers,
    metadata: &'a mut Metadata,
}

/// Changes fields of a frame with these headers, one action after the other. Checksums that were right
/// stay so, and wrong ones stay wrong, by the same difference.
pub fn change(
    frame: &mut [u8],
    headers: &Headers,
    metadata: &mut Metadata,
    actions: &[FieldAction],
) {
    let before = Sums::of(headers, frame);
    let packet = &mut View { frame, headers, metadata };
    for action in actions {
        match *action {
            FieldAction::Set(part, value) => part.set(packet, value),
            FieldAction::Add(part, value) => {
                let sum = part.get(packet).wrapping_add(value);
                part.set(packet, sum);
            }
            FieldAction::Copy(from, to) => {
                let value = from.get(packet);
                to.set(packet, value);
            }
        }
    }
    before.restore(headers, packet.frame);
}

#[cfg(test)]
pub(super) mod tests;
