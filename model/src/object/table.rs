//! Numbered objects.

use std::collections::BTreeMap;

/// Objects by number. Numbers are given in turn, so that one that was freed comes back late.
#[derive(Debug)]
pub struct Table<T> {
    entries: BTreeMap<u32, T>,
    first: u32,
    last: u32,
    next: u32,
}

impl<T> Table<T> {
    /// An empty table that numbers from `first` to `last`.
    pub fn new(first: u32, last: u32) -> Self {
        Self { entries: BTreeMap::new(), first, last, next: first }
    }

    /// The number the next object gets; `None` if all are taken.
    pub fn vacant(&self) -> Option<u32> {
        if self.entries.len() > (self.last - self.first) as usize {
            return None;
        }
        let mut number = self.next;
        while self.entries.contains_key(&number) {
            number = if number == self.last { self.first } else { number + 1 };
        }
        Some(number)
    }

    /// Whether a number is one of the table's, and free.
    pub fn is_vacant(&self, number: u32) -> bool {
        (self.first..=self.last).contains(&number) && !self.entries.contains_key(&number)
    }

    /// The first of `count` free numbers in a row, a multiple of `count`; `None` if there is no such
    /// row.
    pub fn vacant_row(&self, count: u32) -> Option<u32> {
        let from = |start: u32| {
            let mut first = start.checked_next_multiple_of(count)?;
            loop {
                let last = first.checked_add(count - 1).filter(|last| *last <= self.last)?;
                match self.entries.range(first..=last).next_back() {
                    None => return Some(first),
                    Some((taken, _)) => {
                        first = taken.checked_add(1)?.checked_next_multiple_of(count)?;
                    }
                }
            }
        };
        from(self.next).or_else(|| from(self.first))
    }

    /// Inserts an object under the number that [`Table::vacant`] returned.
    pub fn insert(&mut self, number: u32, entry: T) {
        self.entries.insert(number, entry);
        self.next = if number == self.last { self.first } else { number + 1 };
    }

    /// Enters an object under the next free number; `None` if all are taken.
    pub fn add(&mut self, entry: T) -> Option<u32> {
        let number = self.vacant()?;
        self.insert(number, entry);
        Some(number)
    }

    /// Looks an object up.
    pub fn get(&self, number: u32) -> Option<&T> {
        self.entries.get(&number)
    }

    /// Looks an object up to change it.
    pub fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.entries.get_mut(&number)
    }

    /// Takes an object out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        self.entries.remove(&number)
    }

    /// Every object with its number, in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.entries.iter().map(|(number, entry)| (*number, entry))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests;
