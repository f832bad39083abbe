//! The inbox of a device: frames for its port, and news of the fabric.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::{Frame, Way};

/// Notes in a crowded inbox.
const CROWDED: usize = 1 << 13;

/// Something for a device to do.
pub(super) enum Note {
    /// Receive a frame that has arrived at the port.
    Arrived(Frame),
    /// Send a frame of the agent.
    Send(Frame),
    /// Pass on a management datagram that has come from outside the machine.
    Datagram(Frame),
    /// A way through the fabric is full, or is not any more.
    Congested { way: Way, full: bool },
}

/// Notes for a device, in order.
///
/// Threads put notes in and take them out only while they are in a device or hold the lock of
/// [`Outside`](super::shared::Outside). So no thread is at a note while the process forks.
pub(super) struct Inbox {
    notes: Mutex<VecDeque<Note>>,
    /// Notes that were put in and whose consequences are not complete.
    waiting: AtomicUsize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { notes: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    pub(super) fn put(&self, note: Note) {
        let mut notes = self.notes();
        notes.push_back(note);
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the notes to `to`, which is empty, and returns their number. They count as waiting until
    /// [`Inbox::done`].
    pub(super) fn take(&self, to: &mut VecDeque<Note>) -> usize {
        std::mem::swap(&mut *self.notes(), to);
        to.len()
    }

    /// The consequences of so many notes are complete, or wait elsewhere.
    pub(super) fn done(&self, count: usize) {
        self.waiting.fetch_sub(count, Ordering::Release);
    }

    /// Returns the number of notes whose consequences are not complete. One load.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    /// Returns whether those who put notes in have to wait for the device.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting() >= CROWDED
    }

    /// Forgets all notes, in the child of a fork: they are the parent's.
    pub(super) fn clear(&self) {
        self.notes().clear();
        self.waiting.store(0, Ordering::Relaxed);
    }

    fn notes(&self) -> MutexGuard<'_, VecDeque<Note>> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
