//! Commands on umems: user memory that other commands name by number, for buffers and doorbell
//! records.

use mlx5_sys::ifc::{Field, create_umem_in, create_umem_out, destroy_umem_in, umem};

use super::buffer::Geometry;
use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::{Pages, Umem};

/// Largest page, as log2 of bytes.
const MAX_PAGE: u32 = 30;

pub fn create(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let field = |field: Field| field.within(create_umem_in::UMEM).get(input);
    let user = uid(input);
    if user == 0 {
        return Err(Refusal::UmemOfDriver);
    }
    if field(umem::ATS) == 1 {
        return Err(Refusal::UmemShape);
    }
    let shift = field(umem::LOG_PAGE_SIZE) as u32 + 12;
    let offset = field(umem::PAGE_OFFSET);
    if shift > MAX_PAGE || offset >= 1 << shift {
        return Err(Refusal::UmemShape);
    }
    let count = usize::try_from(field(umem::NUM_OF_MTT)).map_err(|_| Refusal::InputLength)?;
    let list = input.get(create_umem_in::MTT.bytes().start..).ok_or(Refusal::InputLength)?;
    let list = count.checked_mul(8).and_then(|bytes| list.get(..bytes));
    let list = list.ok_or(Refusal::InputLength)?;
    if list.is_empty() {
        return Err(Refusal::UmemShape);
    }
    let mut pages = Vec::with_capacity(count);
    for entry in list.chunks_exact(8) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(entry);
        // Bits 1:0 are access rights, which count for keys only.
        let address = u64::from_be_bytes(bytes) & !3;
        if address % (1 << shift) != 0 {
            return Err(Refusal::PageAddress);
        }
        pages.push(address);
    }
    let length = (count << shift) - offset as usize;
    let pages = Pages::new(pages, shift, offset as usize, length).ok_or(Refusal::UmemShape)?;
    let pages = pages.counted(&card.objects.room).ok_or(Refusal::NoRoom)?;
    let number = card.objects.umems.add(Umem::new(user, pages)).ok_or(Refusal::Exhausted)?;
    create_umem_out::UMEM_ID.set(output, number.into());
    Ok(())
}

pub fn destroy(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, destroy_umem_in::UMEM_ID);
    let umem = card.objects.umems.get(number).ok_or(Refusal::NoUmem)?;
    owned(umem.uid, uid(input))?;
    if umem.is_held() {
        return Err(Refusal::UmemBusy);
    }
    card.objects.umems.remove(number);
    Ok(())
}

/// Returns a user's umem, for one of that user's commands.
fn find(card: &Card, user: u16, number: u32) -> Result<&Umem, Refusal> {
    let umem = card.objects.umems.get(number).ok_or(Refusal::NoUmem)?;
    owned(umem.uid, user)?;
    Ok(umem)
}

/// The buffer of a queue, `offset` bytes into the memory of that number, and into its first page as
/// the queue's context says.
pub fn buffer(
    card: &Card,
    user: u16,
    number: u32,
    offset: u64,
    geometry: &Geometry,
) -> Result<Pages, Refusal> {
    let umem = find(card, user, number)?;
    let first = u64::from(geometry.page_offset) << (geometry.log_page_size + 12) >> 6;
    let start = offset.checked_add(first).ok_or(Refusal::UmemRange)?;
    if start % geometry.alignment as u64 != 0 {
        return Err(Refusal::PageOffset);
    }
    let start = usize::try_from(start).map_err(|_| Refusal::UmemRange)?;
    let mut pages = umem.pages.part(start, geometry.length).ok_or(Refusal::UmemRange)?;
    pages.keep(umem.hold());
    Ok(pages)
}

/// Returns the bytes behind a key that starts at an address and has a length: the umem's bytes from
/// `offset` on.
pub fn region(
    card: &Card,
    user: u16,
    number: u32,
    offset: u64,
    (start, length): (u64, u64),
) -> Result<Pages, Refusal> {
    let umem = find(card, user, number)?;
    let range = usize::try_from(offset).ok().zip(usize::try_from(length).ok());
    let pages = range.and_then(|(offset, length)| umem.pages.part(offset, length));
    let mut pages = pages.ok_or(Refusal::UmemRange)?;
    // What is below the size of a page is no matter of translation.
    if pages.locate(0).is_none_or(|(bus, _)| (bus ^ start) % 4096 != 0) {
        return Err(Refusal::MkeyUmem);
    }
    pages.keep(umem.hold());
    Ok(pages)
}

/// The fields of a context that say where its doorbell record is.
pub struct RecordFields {
    /// Whether `address` counts from the start of a umem.
    pub valid: Field,
    /// The umem's number.
    pub number: Field,
    /// A bus address, or an offset.
    pub address: Field,
}

/// Finds the doorbell record. From then on the context has its bus address, and `pages` keeps the
/// umem in which it lies.
pub fn place(
    card: &Card,
    user: u16,
    context: &mut [u8],
    fields: &RecordFields,
    pages: &mut Pages,
) -> Result<(), Refusal> {
    let given = fields.address.get(context);
    if given % 8 != 0 {
        return Err(Refusal::Record);
    }
    if fields.valid.get(context) == 0 {
        return Ok(());
    }
    let umem = find(card, user, fields.number.get(context) as u32)?;
    let at = usize::try_from(given).ok().and_then(|offset| umem.pages.locate(offset));
    let (address, _) = at.filter(|(_, room)| *room >= 8).ok_or(Refusal::UmemRange)?;
    // The memory may start anywhere.
    if address % 8 != 0 {
        return Err(Refusal::Record);
    }
    fields.address.set(context, address);
    pages.keep(umem.hold());
    Ok(())
}

#[cfg(test)]
mod tests;
