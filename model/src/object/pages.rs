//! A buffer as the device knows it: a list of pages and an offset in the first.

use std::sync::Arc;

use super::umem::Hold;
use super::{Room, Share};
use crate::memory::{Fault, Memory};

/// A buffer scattered over pages of equal size.
#[derive(Clone, Debug, Default)]
pub struct Pages {
    list: Arc<List>,
    log_page_size: u32,
    offset: usize,
    length: usize,
    holds: Vec<Hold>,
}

/// A list of pages, which all parts of a buffer share.
#[derive(Debug, Default)]
struct List {
    pages: Vec<u64>,
    _share: Share,
}

impl Pages {
    /// A buffer of `length` bytes that starts `offset` bytes into the first of `pages`, bus
    /// addresses of pages of `1 << log_page_size` bytes. `None` if the pages are too few.
    pub fn new(pages: Vec<u64>, log_page_size: u32, offset: usize, length: usize) -> Option<Self> {
        let room = (pages.len() as u64).checked_mul(1u64.checked_shl(log_page_size)?)?;
        let end = (offset as u64).checked_add(length as u64)?;
        let list = Arc::new(List { pages, _share: Share::default() });
        (end <= room).then(|| Self { list, log_page_size, offset, length, holds: Vec::new() })
    }

    /// Counts the list of a buffer that has no parts yet. `None` if a card has no room for it.
    pub fn counted(mut self, room: &Room) -> Option<Self> {
        let list = Arc::get_mut(&mut self.list)?;
        list._share = room.take(size_of_val(&list.pages[..]))?;
        Some(self)
    }

    /// Bus addresses of the pages.
    pub fn addresses(&self) -> &[u64] {
        &self.list.pages
    }

    /// Whether the memory below belongs to another object, as that of a umem does.
    pub fn is_held(&self) -> bool {
        !self.holds.is_empty()
    }

    /// Keeps the memory below the buffer, or below an object that belongs to it.
    pub fn keep(&mut self, hold: Hold) {
        self.holds.push(hold);
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of the buffer as a buffer of its own. `None` if it does not lie inside.
    pub fn part(&self, offset: usize, length: usize) -> Option<Self> {
        (offset.checked_add(length)? <= self.length).then(|| Self {
            offset: self.offset + offset,
            length,
            ..self.clone()
        })
    }

    /// Bus address of a byte and how many bytes follow it on its page, within the buffer.
    pub fn locate(&self, offset: usize) -> Option<(u64, usize)> {
        if offset >= self.length {
            return None;
        }
        let at = self.offset + offset;
        let size = 1usize << self.log_page_size;
        let (page, within) = (at >> self.log_page_size, at & (size - 1));
        Some((self.list.pages[page] + within as u64, (size - within).min(self.length - offset)))
    }

    /// Reads from the buffer. Leaving it is a fault at the address where it ends.
    pub fn read(&self, memory: &dyn Memory, offset: usize, to: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < to.len() {
            let (address, room) =
                offset.checked_add(done).and_then(|at| self.locate(at)).ok_or(Fault(0))?;
            let n = room.min(to.len() - done);
            memory.read(address, &mut to[done..done + n])?;
            done += n;
        }
        Ok(())
    }

    /// Writes to the buffer, in increasing order.
    pub fn write(&self, memory: &dyn Memory, offset: usize, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let (address, room) =
                offset.checked_add(done).and_then(|at| self.locate(at)).ok_or(Fault(0))?;
            let n = room.min(from.len() - done);
            memory.write(address, &from[done..done + n])?;
            done += n;
        }
        Ok(())
    }

    /// Writes to the buffer as [`Memory::publish`] does: the last byte after all others, and after
    /// every write before.
    pub fn publish(&self, memory: &dyn Memory, offset: usize, from: &[u8]) -> Result<(), Fault> {
        let Some(end) = offset.checked_add(from.len()).filter(|end| *end <= self.length) else {
            return Err(Fault(0));
        };
        if from.is_empty() {
            return Ok(());
        }
        // Only the part on the last page needs to be published; what is before it is before it.
        let (address, _) = self.locate(end - 1).ok_or(Fault(0))?;
        let page = 1u64 << self.log_page_size;
        let part = ((address & (page - 1)) + 1).min(from.len() as u64) as usize;
        let (head, tail) = from.split_at(from.len() - part);
        self.write(memory, offset, head)?;
        memory.publish(address - (part as u64 - 1), tail)
    }
}

#[cfg(test)]
mod tests;
