//! The tag list of a shared receive queue with tag matching.

use crate::work::Data;

/// A receive for a tagged message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagEntry {
    /// Its index, by which software identifies it.
    pub index: u16,
    /// The tag to compare.
    pub tag: u64,
    /// The bits of the tag that are compared.
    pub mask: u64,
    /// Memory for the message.
    pub data: Vec<Data>,
    /// Whether messages are compared with it. Not before software has counted all unexpected
    /// messages.
    active: bool,
}

/// Tag entries, in the order in which they were appended and are compared.
#[derive(Clone, Debug, Default)]
pub struct TagList {
    entries: Vec<TagEntry>,
    most: usize,
    /// Index of the next entry, from the link in the last one appended.
    next: u16,
    /// Unexpected messages by software's count, modulo 2^16.
    pub software: u16,
    /// Unexpected messages by the device's count, modulo 2^16.
    pub hardware: u16,
}

impl TagList {
    /// Creates an empty list of at most `most` entries.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Index of the next entry.
    pub fn next(&self) -> u16 {
        self.next
    }

    /// Appends an entry, which has the index that the last one named; `false` where there is no
    /// room.
    pub fn append(&mut self, next: u16, tag: u64, mask: u64, data: Vec<Data>) -> bool {
        if self.entries.len() >= self.most {
            return false;
        }
        let (index, active) = (self.next, self.software == self.hardware);
        self.entries.push(TagEntry { index, tag, mask, data, active });
        self.next = next;
        true
    }

    /// Takes an entry out; `false` where it is not there (any more).
    pub fn remove(&mut self, index: u16) -> bool {
        let at = self.entries.iter().position(|entry| entry.index == index);
        at.map(|at| self.entries.remove(at)).is_some()
    }

    /// Software says how many messages for no tag it knows of.
    pub fn know(&mut self, count: u16) {
        self.software = count;
        if self.software == self.hardware {
            self.entries.iter_mut().for_each(|entry| entry.active = true);
        }
    }

    /// A message came for no tag.
    pub fn unexpected(&mut self) {
        self.hardware = self.hardware.wrapping_add(1);
    }

    /// The oldest entry that a tag matches.
    pub fn find(&self, tag: u64) -> Option<&TagEntry> {
        self.entries.iter().find(|entry| entry.active && (entry.tag ^ tag) & entry.mask == 0)
    }
}

#[cfg(test)]
mod tests;
