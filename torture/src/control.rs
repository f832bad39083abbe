//! A page of counters that the supervisor and both processes share.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::{MAX_QPS, Side};

const WORDS: usize = 64;
const PORT: usize = 0;
const DEAD: usize = 1;
const EPISODE: usize = 2;
const PROGRESS: usize = 4;
const RECEIVES: usize = 8;
const POSTED: usize = 16;

/// The page. It is never unmapped.
#[derive(Clone, Copy)]
pub struct Control {
    words: NonNull<AtomicU64>,
}

impl Control {
    /// Creates a page that child processes inherit as the returned descriptor.
    ///
    /// # Errors
    /// The kernel's, if it has no memory.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        // SAFETY: the name is a C string.
        let raw = unsafe { libc::memfd_create(c"mlx5-torture".as_ptr(), 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: the call takes a descriptor and no memory.
        if unsafe { libc::ftruncate(raw, (WORDS * 8) as i64) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Self::map(raw)?, fd))
    }

    /// Maps the page of an inherited descriptor.
    ///
    /// # Errors
    /// The kernel's, if the descriptor is none of a page.
    pub fn map(fd: RawFd) -> io::Result<Self> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, which nothing else names.
        let page = unsafe { libc::mmap(null_mut(), WORDS * 8, rights, libc::MAP_SHARED, fd, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(page.cast())
            .map(|words| Self { words })
            .ok_or_else(|| io::Error::other("a mapping at address 0"))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < WORDS);
        // SAFETY: within the page, which stays mapped; other processes use atomics, too.
        unsafe { self.words.add(at).as_ref() }
    }

    fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Release);
    }

    /// Sets all words to zero, before processes start.
    pub fn clear(&self) {
        (0..WORDS).for_each(|at| self.set(at, 0));
    }

    /// The TCP port that the driver's process listens on; 0: not yet.
    pub fn port(&self) -> u16 {
        self.get(PORT) as u16
    }

    /// Announces the port.
    pub fn set_port(&self, port: u16) {
        self.set(PORT, port.into());
    }

    /// Whether the supervisor has killed a process and seen it end.
    pub fn is_dead(&self) -> bool {
        self.get(DEAD) != 0
    }

    /// Says so.
    pub fn set_dead(&self) {
        self.set(DEAD, 1);
    }

    /// The episode that runs.
    pub fn episode(&self) -> u64 {
        self.get(EPISODE)
    }

    /// Announces the episode.
    pub fn set_episode(&self, episode: u64) {
        self.set(EPISODE, episode);
    }

    /// Completions that `side` has taken so far.
    pub fn progress(&self, side: Side) -> u64 {
        self.get(PROGRESS + side as usize)
    }

    /// Counts completions of `side`.
    pub fn advance(&self, side: Side, completions: u64) {
        self.word(PROGRESS + side as usize).fetch_add(completions, Ordering::AcqRel);
    }

    /// Receives that `side` has posted to `queue` in this episode.
    pub fn receives(&self, side: Side, queue: usize) -> u64 {
        self.get(RECEIVES + side as usize * MAX_QPS + queue)
    }

    /// Says how many.
    pub fn set_receives(&self, side: Side, queue: usize, count: u64) {
        self.set(RECEIVES + side as usize * MAX_QPS + queue, count);
    }

    /// Requests that `side` has posted to the queue pair `qp` in `episode`.
    pub fn posted(&self, side: Side, qp: usize, episode: u64) -> u64 {
        let word = self.get(POSTED + side as usize * MAX_QPS + qp);
        if word >> 32 == episode { word & 0xffff_ffff } else { 0 }
    }

    /// Says how many.
    pub fn set_posted(&self, side: Side, qp: usize, episode: u64, count: u64) {
        self.set(POSTED + side as usize * MAX_QPS + qp, episode << 32 | count);
    }
}
