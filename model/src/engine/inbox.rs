//! The inbox of a device: frames for its port, and news of the fabric.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::wire::{Frame, Way};

/// Notes in a crowded inbox.
const CROWDED: usize = 1 << 13;

/// Most spent frames in an inbox.
pub(super) const SPENT: usize = 256;

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

/// What an inbox holds.
#[derive(Default)]
struct Shelf {
    notes: VecDeque<Note>,
    /// Frames that the device has received, for their memory.
    spent: Vec<Frame>,
}

/// Notes for a device, in order.
///
/// Threads put notes in and take them out only while they are in a device or hold the lock of
/// [`Outside`](super::shared::Outside). So no thread is at a note while the process forks.
pub(super) struct Inbox {
    shelf: Mutex<Shelf>,
    /// Notes that were put in and whose consequences are not complete.
    waiting: AtomicUsize,
}

impl Inbox {
    pub(super) fn new() -> Self {
        Self { shelf: Mutex::default(), waiting: AtomicUsize::new(0) }
    }

    pub(super) fn put(&self, note: Note) {
        let mut shelf = self.shelf();
        shelf.notes.push_back(note);
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts a frame in that has arrived at the port. Returns a spent one, if there is any.
    pub(super) fn exchange(&self, frame: Frame) -> Option<Frame> {
        let mut shelf = self.shelf();
        shelf.notes.push_back(Note::Arrived(frame));
        self.waiting.fetch_add(1, Ordering::Relaxed);
        shelf.spent.pop()
    }

    /// Puts a copy of a frame in that has arrived at the port.
    pub(super) fn put_copy(&self, frame: &Frame) {
        let mut shelf = self.shelf();
        let mut bytes = shelf.spent.pop().map_or(Vec::new(), |spent| spent.0);
        bytes.clear();
        bytes.extend_from_slice(&frame.0);
        shelf.notes.push_back(Note::Arrived(Frame::new(bytes)));
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the notes to `to`, which is empty, and returns their number. They count as waiting until
    /// [`Inbox::done`]. Leaves spent frames to those who put new ones in.
    pub(super) fn take(&self, to: &mut VecDeque<Note>, spent: &mut Vec<Frame>) -> usize {
        let mut shelf = self.shelf();
        std::mem::swap(&mut shelf.notes, to);
        let room = SPENT.saturating_sub(shelf.spent.len()).min(spent.len());
        shelf.spent.extend(spent.drain(..room));
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

    /// Returns whether the engine's thread has to wait for the device before it puts more in.
    pub(super) fn is_crowded(&self) -> bool {
        self.waiting() >= CROWDED
    }

    /// Forgets all notes, in the child of a fork: they are the parent's.
    pub(super) fn clear(&self) {
        self.shelf().notes.clear();
        self.waiting.store(0, Ordering::Relaxed);
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
