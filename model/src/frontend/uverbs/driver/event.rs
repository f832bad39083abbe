//! Completion channels and asynchronous event files. Each is a socket pair of which the program
//! holds one end, so read, poll and epoll work without further code.
//!
//! When an object is destroyed, the kernel discards its unread events and reports how many were
//! read. libibverbs waits for exactly that many acknowledgements. So the model keeps a list of the
//! unread events' objects, in order, and takes a destroyed object's events back out of the socket.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void};

use super::super::process::descriptors::{self, Descriptors, OpenFile, aside};
use super::super::process::errno::{Result, last};
use super::super::process::{lock, thread};
use crate::private::{self, system};

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The program's identifier of the source.
    pub user_handle: u64,
    /// The file's identifier of the source, unique among objects that share a queue.
    pub id: u64,
}

impl Source {
    /// Creates an object's identity in event queues: the program's handle, and a number that no other
    /// object of the process ever has.
    pub fn new(user_handle: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { user_handle, id: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

/// Events on their way to a program.
pub(crate) struct EventQueue {
    state: Mutex<State>,
}

struct State {
    /// The model's end.
    sender: c_int,
    /// Another descriptor of the program's end, for taking back unread events.
    receiver: c_int,
    /// Bytes of one event.
    size: usize,
    /// Whose events are in the socket, oldest first; may still hold some that were read.
    unread: VecDeque<Source>,
    /// Events that did not fit the socket, and whether a thread is bringing them in.
    waiting: VecDeque<(Source, Vec<u8>)>,
    bringing: bool,
    /// How many events each object, by id, has reported.
    posted: HashMap<u64, u32>,
    /// Whether the program has closed its end.
    abandoned: bool,
    /// Whether events of the device were lost since the program last read.
    overflowed: bool,
}

/// A completion channel.
pub(crate) struct Completions(pub Arc<EventQueue>);

/// An asynchronous event file.
pub(crate) struct Events(pub Arc<EventQueue>);

impl OpenFile for Completions {
    fn release(&self) {
        self.0.abandon();
    }
}

impl OpenFile for Events {
    fn release(&self) {
        self.0.abandon();
    }
}

/// Bytes of `ib_uverbs_comp_event_desc`.
const COMPLETION: usize = 8;
/// Bytes of `ib_uverbs_async_event_desc`.
const ASYNC: usize = 16;
/// Events of the device that wait for a program; the kernel has no limit but memory.
pub(super) const MOST_WAITING: usize = 1 << 14;

/// Event types (`device.h`, `MLX5_EVENT_TYPE_*`).
pub(crate) mod kind {
    pub const COMPLETION: u8 = 0x00;
    pub const PATH_MIGRATED: u8 = 0x01;
    pub const COMMUNICATION_ESTABLISHED: u8 = 0x02;
    pub const SEND_QUEUE_DRAINED: u8 = 0x03;
    pub const CQ_ERROR: u8 = 0x04;
    pub const QP_CATASTROPHIC: u8 = 0x05;
    pub const PATH_MIGRATION_FAILED: u8 = 0x07;
    pub const PORT_CHANGE: u8 = 0x09;
    pub const QP_INVALID_REQUEST: u8 = 0x10;
    pub const QP_ACCESS_ERROR: u8 = 0x11;
    pub const SRQ_CATASTROPHIC: u8 = 0x12;
    pub const SRQ_LAST_WQE: u8 = 0x13;
    pub const SRQ_LIMIT: u8 = 0x14;
    pub const TARGET_DRAINED: u8 = 0x1c;
    pub const TARGET_KEY_VIOLATION: u8 = 0x1d;
    pub const GENERAL: u8 = 0x22;
    /// `enum ib_event_type`: the device itself has failed. No EQE says so.
    pub const DEVICE_FATAL: u32 = 8;
    /// `enum ib_event_type`: the GID table has changed. No EQE says so.
    pub const GID_CHANGE: u32 = 18;
}

impl EventQueue {
    /// Opens a completion channel. Returns it, and the program's descriptor of it.
    pub fn completions() -> Result<(Arc<Completions>, c_int)> {
        Self::subscribed(COMPLETION, |queue| Arc::new(Completions(queue)))
    }

    /// Opens an asynchronous event file. Returns it, and the program's descriptor of it.
    pub fn events() -> Result<(Arc<Events>, c_int)> {
        Self::subscribed(ASYNC, |queue| Arc::new(Events(queue)))
    }

    /// Opens a file of events of `size` bytes. Returns it, and the program's descriptor of it.
    pub fn subscribed<T: OpenFile>(
        size: usize,
        kind: impl FnOnce(Arc<Self>) -> Arc<T>,
    ) -> Result<(Arc<T>, c_int)> {
        let mut pair = [0; 2];
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        // SAFETY: the call writes the two descriptors of `pair`.
        if unsafe { system::socketpair(libc::AF_UNIX, flags, 0, pair.as_mut_ptr()) } != 0 {
            return Err(last());
        }
        let [user, sender] = pair;
        let close = |fd| {
            // SAFETY: it is called with descriptors of this function, which the program does not know yet.
            unsafe { descriptors::shut(fd) };
        };
        let sender = aside(sender).inspect_err(|_| {
            close(sender);
            close(user);
        })?;
        // SAFETY: F_DUPFD_CLOEXEC passes no memory.
        let receiver = unsafe { system::fcntl(user, libc::F_DUPFD_CLOEXEC, sender as usize) };
        let receiver = if receiver < 0 { Err(last()) } else { Ok(receiver) };
        let receiver = receiver.inspect_err(|_| {
            close(sender);
            close(user);
        })?;
        private::claim(receiver);
        let state = State {
            sender,
            receiver,
            size,
            unread: VecDeque::new(),
            waiting: VecDeque::new(),
            bringing: false,
            posted: HashMap::new(),
            abandoned: false,
            overflowed: false,
        };
        let file = kind(Arc::new(Self { state: Mutex::new(state) }));
        Descriptors::own().enter(user, file.clone()).inspect_err(|_| close(user))?;
        Ok((file, user))
    }

    /// Tells of a completion event of a CQ.
    pub fn post_completion(self: &Arc<Self>, source: Source) {
        self.post(source, source.user_handle.to_ne_bytes().to_vec());
    }

    /// Tells of an asynchronous event (`enum ib_event_type`).
    pub fn post_async(self: &Arc<Self>, source: Source, event: u32) {
        let mut bytes = source.user_handle.to_ne_bytes().to_vec();
        bytes.extend(event.to_ne_bytes());
        bytes.extend([0; 4]);
        self.post(source, bytes);
    }

    /// Tells of an event that was subscribed to. With `once`, not of one whose source has another one
    /// there that the program has not read.
    pub fn post_subscribed(self: &Arc<Self>, source: Source, bytes: Vec<u8>, once: bool) {
        let mut state = lock(&self.state);
        state.trim();
        let of_source = |other: &Source| other.id == source.id;
        if once && (state.unread.iter().any(of_source) || state.waits(of_source)) {
            return;
        }
        if state.unread.len() + state.waiting.len() >= MOST_WAITING {
            state.overflowed = true;
            return;
        }
        drop(state);
        self.post(source, bytes);
    }

    /// Whether events were lost since this was last asked.
    pub fn take_overflow(&self) -> bool {
        std::mem::take(&mut lock(&self.state).overflowed)
    }

    fn post(self: &Arc<Self>, source: Source, bytes: Vec<u8>) {
        let mut state = lock(&self.state);
        if state.abandoned {
            return;
        }
        *state.posted.entry(source.id).or_default() += 1;
        if state.waiting.is_empty() && state.send(source, &bytes) {
            return;
        }
        state.waiting.push_back((source, bytes));
        if !state.bringing {
            state.bringing = true;
            let queue = self.clone();
            thread(move || queue.bring());
        }
    }

    /// Brings in what did not fit, as the program reads.
    fn bring(&self) {
        loop {
            let mut state = lock(&self.state);
            while let Some((source, bytes)) = state.waiting.pop_front() {
                if !state.send(source, &bytes) {
                    state.waiting.push_front((source, bytes));
                    break;
                }
            }
            if state.waiting.is_empty() || state.abandoned {
                state.bringing = false;
                return;
            }
            let mut wait = libc::pollfd { fd: state.sender, events: libc::POLLOUT, revents: 0 };
            drop(state);
            // The time limit only covers the case that the queue is abandoned meanwhile.
            // SAFETY: the call reads and writes one pollfd, which lives through it.
            unsafe { system::poll(&mut wait, 1, 1000) };
        }
    }

    /// An object that reported here is gone: takes back its unread events, and gives how many of
    /// its events were read.
    pub fn retract(&self, id: u64) -> u32 {
        let mut state = lock(&self.state);
        let Some(posted) = state.posted.remove(&id) else { return 0 };
        let waiting = state.waiting.len();
        state.waiting.retain(|(source, _)| source.id != id);
        let mut unread = waiting - state.waiting.len();
        state.trim();
        if state.unread.iter().any(|source| source.id == id) {
            unread += state.take_back(id);
        }
        posted.saturating_sub(unread as u32)
    }

    /// The program has closed its last descriptor: nothing can be read any more.
    pub fn abandon(&self) {
        let mut state = lock(&self.state);
        state.abandoned = true;
        state.waiting.clear();
        state.unread.clear();
    }

    /// Drops all unread events and shuts the socket down, so that readers see its end.
    pub fn hang_up(&self) {
        self.abandon();
        let state = lock(&self.state);
        let mut byte = 0u8;
        let to = (&raw mut byte).cast::<c_void>();
        // SAFETY: the call writes at most one byte, to `byte`; the rest of each event is cut off.
        unsafe {
            while system::recv(state.receiver, to, 1, libc::MSG_DONTWAIT) > 0 {}
            system::shutdown(state.sender, libc::SHUT_RDWR);
        }
    }
}

impl State {
    /// Whether an event that did not fit the socket is of such a source.
    fn waits(&self, of: impl Fn(&Source) -> bool) -> bool {
        self.waiting.iter().any(|(source, _)| of(source))
    }

    /// Puts an event into the socket, if it fits.
    fn send(&mut self, source: Source, bytes: &[u8]) -> bool {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the call reads `bytes`, whose length it is given.
        let sent = unsafe { system::send(self.sender, bytes.as_ptr().cast(), bytes.len(), flags) };
        if sent == bytes.len() as isize {
            self.unread.push_back(source);
            if self.unread.len() > 64 {
                self.trim();
            }
            return true;
        }
        // A program that has closed its end wants no events; only a full socket keeps them waiting.
        !matches!(last().0, libc::EAGAIN | libc::ENOBUFS | libc::EINTR)
    }

    /// Empties the socket and fills it again without the events of one object. Gives how many
    /// those were.
    fn take_back(&mut self, id: u64) -> usize {
        let mut taken = Vec::new();
        loop {
            let mut bytes = vec![0; self.size];
            let (to, length) = (bytes.as_mut_ptr().cast::<c_void>(), bytes.len());
            // SAFETY: the call writes to `bytes`, whose length it is given.
            let got = unsafe { system::recv(self.receiver, to, length, libc::MSG_DONTWAIT) };
            if got != length as isize {
                break;
            }
            taken.push(bytes);
        }
        // What was read meanwhile was the oldest.
        while self.unread.len() > taken.len() {
            self.unread.pop_front();
        }
        let sources = std::mem::take(&mut self.unread);
        let mut removed = 0;
        for (source, bytes) in sources.into_iter().zip(taken) {
            if source.id == id {
                removed += 1;
            } else {
                // There is room: no more goes in than came out.
                self.send(source, &bytes);
            }
        }
        removed
    }

    /// Forgets whose the events were that have been read.
    fn trim(&mut self) {
        let mut bytes: c_int = 0;
        // SAFETY: FIONREAD writes one int.
        let asked = unsafe {
            system::ioctl(self.receiver, libc::FIONREAD, (&raw mut bytes).cast::<c_void>())
        };
        if asked == 0 {
            let unread = bytes as usize / self.size;
            while self.unread.len() > unread {
                self.unread.pop_front();
            }
        }
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        for fd in [state.sender, state.receiver] {
            // SAFETY: `new` has made both descriptors for the queue, which is gone after this.
            unsafe { descriptors::shut(fd) };
        }
    }
}
