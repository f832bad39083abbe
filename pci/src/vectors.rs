//! MSI-X: vectors, their table and pending bits, and the eventfds by which the client hears of them.
//!
//! A client may keep the guest's table to itself, as QEMU does: then it tells by eventfds and masks
//! which vectors are in use. The table here masks vectors only once the client has stored to it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::protocol::Refusal;
use crate::signaller::Signaller;

/// Vectors of a function.
pub const COUNT: usize = mlx5_model::identity::pci::VECTORS;
/// Bytes of an entry of the table.
const ENTRY: usize = 16;
/// Bytes of the table.
pub const TABLE: usize = COUNT * ENTRY;
/// Bytes of the pending bits.
pub const PENDING: usize = COUNT / 8;
/// Offset in an entry of the word whose bit 0 masks the vector.
const CONTROL: usize = 12;

#[derive(Debug)]
struct State {
    events: Vec<Option<OwnedFd>>,
    table: [u8; TABLE],
    /// Whether the client has stored to the table.
    uses_table: bool,
    pending: u64,
    /// Vectors that the client has masked by message.
    masked: u64,
    /// Whether the function's control register masks all.
    all_masked: bool,
}

impl Default for State {
    fn default() -> Self {
        Self {
            events: (0..COUNT).map(|_| None).collect(),
            table: table_of_reset(),
            uses_table: false,
            pending: 0,
            masked: 0,
            all_masked: false,
        }
    }
}

impl State {
    fn is_masked(&self, vector: usize) -> bool {
        let in_table = self.uses_table && self.table[vector * ENTRY + CONTROL] & 1 == 1;
        in_table || self.all_masked || self.masked >> vector & 1 == 1
    }

    /// Signals the pending vectors that are not masked and have an eventfd. A vector stays pending if
    /// the kernel fails to signal it.
    fn deliver(&mut self, signaller: &Signaller) {
        for vector in 0..COUNT {
            if self.pending >> vector & 1 == 0 || self.is_masked(vector) {
                continue;
            }
            if let Some(event) = &self.events[vector] {
                match signaller.signal(event) {
                    Ok(()) => self.pending &= !(1 << vector),
                    Err(error) => eprintln!("mlx5-model-pci: vector {vector} waits: {error}"),
                }
            }
        }
    }
}

/// Accepts an eventfd of the client.
fn accept(event: OwnedFd) -> Result<OwnedFd, Refusal> {
    let link = fs::read_link(format!("/proc/self/fd/{}", event.as_raw_fd()));
    let is_eventfd = link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]");
    if is_eventfd { Ok(event) } else { Err(Refusal::Invalid) }
}

/// The vectors of a function.
#[derive(Debug)]
pub struct Vectors {
    state: Mutex<State>,
    signaller: Signaller,
}

/// Returns a table that masks every vector.
fn table_of_reset() -> [u8; TABLE] {
    let mut table = [0; TABLE];
    table.chunks_exact_mut(ENTRY).for_each(|entry| entry[CONTROL] = 1);
    table
}

impl Vectors {
    /// Creates the vectors of a function without a client.
    ///
    /// # Errors
    /// Those of [`Signaller::new`].
    pub fn new() -> io::Result<Self> {
        Ok(Self { state: Mutex::default(), signaller: Signaller::new()? })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a vector. It is pending while it is masked or has no eventfd. A number that is no
    /// vector's is ignored: the guest chooses it.
    pub fn raise(&self, vector: u32) {
        if (vector as usize) < COUNT {
            let mut state = self.lock();
            state.pending |= 1 << vector;
            state.deliver(&self.signaller);
        }
    }

    /// Replaces the eventfds of vectors from `first` on.
    ///
    /// # Errors
    /// If there are not so many vectors, or a descriptor is no eventfd. Nothing changes then.
    pub fn listen(&self, first: usize, events: Vec<Option<OwnedFd>>) -> Result<(), Refusal> {
        let range = range(first, events.len())?;
        let events: Vec<Option<OwnedFd>> = events
            .into_iter()
            .map(|event| event.map(accept).transpose())
            .collect::<Result<_, _>>()?;
        let mut state = self.lock();
        for (place, event) in state.events[range].iter_mut().zip(events) {
            *place = event;
        }
        state.deliver(&self.signaller);
        Ok(())
    }

    /// Masks or unmasks vectors by message.
    ///
    /// # Errors
    /// If there are not so many vectors.
    pub fn mask(&self, first: usize, count: usize, masked: bool) -> Result<(), Refusal> {
        let mut state = self.lock();
        for vector in range(first, count)? {
            if masked {
                state.masked |= 1 << vector;
            } else {
                state.masked &= !(1 << vector);
            }
        }
        state.deliver(&self.signaller);
        Ok(())
    }

    /// Raises vectors for the client.
    ///
    /// # Errors
    /// If there are not so many vectors.
    pub fn trigger(&self, first: usize, count: usize) -> Result<(), Refusal> {
        range(first, count)?.for_each(|vector| self.raise(vector as u32));
        Ok(())
    }

    /// Masks or unmasks all vectors by the control register.
    pub fn mask_all(&self, masked: bool) {
        let mut state = self.lock();
        state.all_masked = masked;
        state.deliver(&self.signaller);
    }

    /// Reads from the table.
    pub fn read_table(&self, offset: usize, to: &mut [u8]) {
        if let Some(from) = self.lock().table.get(offset..offset + to.len()) {
            to.copy_from_slice(from);
        }
    }

    /// Stores to the table.
    pub fn write_table(&self, offset: usize, from: &[u8]) {
        let mut state = self.lock();
        state.uses_table = true;
        if let Some(to) = state.table.get_mut(offset..offset + from.len()) {
            to.copy_from_slice(from);
        }
        state.deliver(&self.signaller);
    }

    /// Reads from the pending bits.
    pub fn read_pending(&self, offset: usize, to: &mut [u8]) {
        let pending = self.lock().pending.to_le_bytes();
        if let Some(from) = pending.get(offset..offset + to.len()) {
            to.copy_from_slice(from);
        }
    }

    /// Resets the function: nothing is pending, and the table is as after power-on. The client keeps
    /// its eventfds.
    pub fn reset(&self) {
        let mut state = self.lock();
        state.table = table_of_reset();
        state.uses_table = false;
        state.pending = 0;
        state.all_masked = false;
    }

    /// Forgets the client: its eventfds and masks.
    pub fn disconnect(&self) {
        *self.lock() = State::default();
    }
}

fn range(first: usize, count: usize) -> Result<std::ops::Range<usize>, Refusal> {
    let end = first.checked_add(count).filter(|end| *end <= COUNT).ok_or(Refusal::Invalid)?;
    Ok(first..end)
}

#[cfg(test)]
mod tests;
