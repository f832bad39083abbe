//! Asynchronous DevX commands: the program reads the answers later, from a file.
//!
//! The model executes such a command at once, as an idle device would. The file behaves as the
//! kernel's: answers come in the order of the commands, each is read whole or not at all, and
//! unread answers count against a limit. The program's descriptor is an eventfd that counts the
//! answers, so poll and epoll work without further code.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use libc::{c_int, c_void, size_t, ssize_t};

use super::super::file::CommandFile;
use super::target::{self, Does};
use super::{SHORTEST, allowed};
use crate::frontend::uverbs::driver::command::submit;
use crate::frontend::uverbs::process::descriptors::{Descriptors, OpenFile};
use crate::frontend::uverbs::process::errno::{Errno, Result, last, set_errno};
use crate::frontend::uverbs::process::lock;
use crate::frontend::uverbs::request::ioctl::Attributes;
use crate::private::system;

/// Bytes of answers in a file that may be waited for or unread (`MAX_ASYNC_BYTES_IN_USE`).
const LIMIT: usize = 1 << 20;

/// A file of answers.
pub(crate) struct AnswerFile {
    state: Mutex<Answers>,
    /// Which command file it was opened by.
    by: usize,
}

#[derive(Default)]
struct Answers {
    /// The model's descriptor of the eventfd; none when the program has closed all of its.
    count: Option<c_int>,
    /// Cookie and answer of each command.
    answers: VecDeque<(u64, Vec<u8>)>,
    /// Bytes of all answers.
    bytes: usize,
    /// Whether the command file is closed.
    hung_up: bool,
}

/// `DEVX_ASYNC_CMD_FD_ALLOC`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut state = file.state();
    state.context()?;
    // SAFETY: `eventfd` passes no memory.
    let fd = unsafe { system::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
    if fd < 0 {
        return Err(last());
    }
    // SAFETY: F_DUPFD_CLOEXEC passes no memory.
    let copy = unsafe { system::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
    let close = |fd| {
        // SAFETY: it is called with the descriptor of this function, which the program does not know yet.
        unsafe { system::close(fd) };
    };
    let copy = if copy < 0 {
        Err(last())
    } else {
        crate::frontend::uverbs::process::descriptors::aside(copy)
    };
    let count = copy.inspect_err(|_| close(fd))?;
    let answers = Answers { count: Some(count), ..Answers::default() };
    let made = Arc::new(AnswerFile { state: Mutex::new(answers), by: file.identity() });
    Descriptors::own().enter(fd, made.clone()).inspect_err(|_| close(fd))?;
    state.follow(&made);
    attributes.put_handle(0x1000, fd as u64)
}

/// `DEVX_OBJ_ASYNC_QUERY`: the object must be the one that the command names. What the card answers
/// goes to the file, a refusal as well.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut command = attributes.input(0x1001)?;
    let room = attributes.number(0x1004)?;
    let room = usize::from(u16::try_from(room).map_err(|_| Errno::EINVAL)?);
    let descriptor = attributes.descriptor(0x1002)?.ok_or(Errno::EINVAL)?;
    let cookie = attributes.number(0x1003)?;
    let state = file.state();
    let uid = allowed(&state, &command)?;
    target::check(&state, attributes.handle(0x1000)?, &command, Does::Asks)?;
    let answers = Descriptors::own().get_as::<AnswerFile>(descriptor);
    let answers = answers.filter(|answers| answers.by == file.identity()).ok_or(Errno::EBADF)?;
    answers.reserve(room)?;
    command[2..4].copy_from_slice(&uid.to_be_bytes());
    let mut reply = vec![0; room.max(SHORTEST)];
    let done = file.function().enter(|card| submit(card, &command, &mut reply));
    reply.truncate(room);
    answers.put(cookie, reply);
    done
}

impl OpenFile for AnswerFile {
    fn release(&self) {
        let mut state = lock(&self.state);
        if let Some(count) = state.count.take() {
            // SAFETY: the file has made the descriptor for itself, and has just forgotten it.
            unsafe { crate::frontend::uverbs::process::descriptors::shut(count) };
        }
        state.answers.clear();
    }

    /// Tells waiting readers.
    fn hang_up(&self) {
        let mut state = lock(&self.state);
        state.hung_up = true;
        state.signal();
    }

    /// Reads one answer, with its cookie before it.
    unsafe fn read(&self, fd: c_int, to: *mut c_void, length: size_t) -> Option<ssize_t> {
        Some(match self.take(fd, to as u64, length) {
            Ok(bytes) => bytes as ssize_t,
            Err(error) => {
                set_errno(error.0);
                -1
            }
        })
    }
}

impl AnswerFile {
    /// Counts the bytes of an answer to come.
    fn reserve(&self, bytes: usize) -> Result<()> {
        let mut state = lock(&self.state);
        if state.bytes + bytes > LIMIT {
            return Err(Errno::EAGAIN);
        }
        state.bytes += bytes;
        Ok(())
    }

    fn put(&self, cookie: u64, reply: Vec<u8>) {
        let mut state = lock(&self.state);
        state.answers.push_back((cookie, reply));
        state.signal();
    }

    fn take(&self, fd: c_int, to: u64, length: usize) -> Result<usize> {
        loop {
            let mut state = lock(&self.state);
            if let Some((_, answer)) = state.answers.front() {
                if size_of::<u64>() + answer.len() > length {
                    return Err(Errno::ENOSPC);
                }
                return state.give(to);
            }
            // SAFETY: F_GETFL passes no memory.
            let flags = unsafe { system::fcntl(fd, libc::F_GETFL, 0) };
            if flags < 0 || state.count.is_none() {
                return Err(Errno::EBADF);
            }
            if flags & libc::O_NONBLOCK != 0 {
                return Err(Errno::EAGAIN);
            }
            if state.hung_up {
                return Err(Errno::EIO);
            }
            // What a program has written itself to the descriptor counts for nothing.
            while state.consume() {}
            drop(state);
            let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: the call reads and writes one pollfd, which lives through it.
            if unsafe { system::poll(&mut wait, 1, -1) } < 0 {
                return Err(last());
            }
        }
    }
}

impl Answers {
    /// Moves the oldest answer to the program.
    fn give(&mut self, to: u64) -> Result<usize> {
        let Some((cookie, answer)) = self.answers.pop_front() else { return Err(Errno::EAGAIN) };
        self.consume();
        self.bytes -= answer.len();
        let mut bytes = cookie.to_ne_bytes().to_vec();
        bytes.extend(answer);
        crate::frontend::uverbs::process::user::write(to, &bytes)?;
        Ok(bytes.len())
    }

    /// Whether the eventfd is ready for something now.
    fn ready(&self, events: libc::c_short) -> Option<c_int> {
        let fd = self.count?;
        let mut wait = libc::pollfd { fd, events, revents: 0 };
        // SAFETY: the call reads and writes one pollfd, which lives through it.
        let ready = unsafe { system::poll(&mut wait, 1, 0) } == 1 && wait.revents & events != 0;
        ready.then_some(fd)
    }

    /// Counts one more.
    fn signal(&self) {
        let one = 1u64;
        if let Some(fd) = self.ready(libc::POLLOUT) {
            // SAFETY: the call reads the eight bytes of `one`.
            unsafe { system::write(fd, (&raw const one).cast(), size_of_val(&one)) };
        }
    }

    /// Counts one less; gives whether there was one.
    fn consume(&self) -> bool {
        let mut one = 0u64;
        let ready = self.ready(libc::POLLIN);
        if let Some(fd) = ready {
            // SAFETY: the call writes at most the eight bytes of `one`.
            unsafe { system::read(fd, (&raw mut one).cast(), size_of_val(&one)) };
        }
        ready.is_some()
    }
}
