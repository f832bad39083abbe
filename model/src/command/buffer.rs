//! Buffers in commands: start offset and pages.

use super::Refusal;
use crate::card::Card;
use crate::object::Pages;

/// Offset of the page list in a queue's command.
pub const PAS: usize = 0x110;

/// The geometry a context gives for its queue's buffer.
pub struct Geometry {
    /// Relative to 4 KiB.
    pub log_page_size: u32,
    /// In 64ths of a page.
    pub page_offset: u32,
    /// Bytes.
    pub length: usize,
    /// Entries of the queue start at multiples of this many bytes.
    pub alignment: usize,
}

/// Reads the page list of a queue.
pub fn queue(card: &Card, input: &[u8], geometry: &Geometry) -> Result<Pages, Refusal> {
    let shift = geometry.log_page_size + 12;
    let offset = u64::from(geometry.page_offset) * (1u64 << shift) / 64;
    if offset % geometry.alignment as u64 != 0 {
        return Err(Refusal::PageOffset);
    }
    let bytes = offset + geometry.length as u64;
    let count = bytes.div_ceil(1 << shift) as usize;
    pages(card, input, count, shift, offset as usize, geometry.length)
}

/// Reads `count` page addresses at [`PAS`].
pub fn pages(
    card: &Card,
    input: &[u8],
    count: usize,
    shift: u32,
    offset: usize,
    length: usize,
) -> Result<Pages, Refusal> {
    let end = count.checked_mul(8).and_then(|n| n.checked_add(PAS)).ok_or(Refusal::InputLength)?;
    let list = input.get(PAS..end).ok_or(Refusal::InputLength)?;
    let mut pages = Vec::with_capacity(count);
    for entry in list.chunks_exact(8) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(entry);
        // Bits 1:0 are access rights per page, which count only where the command says so.
        let address = u64::from_be_bytes(bytes) & !3;
        if address & ((1u64 << shift) - 1) != 0 {
            return Err(Refusal::PageAddress);
        }
        pages.push(address);
    }
    let pages = Pages::new(pages, shift, offset, length).ok_or(Refusal::InputLength)?;
    pages.counted(&card.objects.room).ok_or(Refusal::NoRoom)
}
