//! Register pages: the model's side of what programs map, and stores to them.
//!
//! All pages of a process lie in one anonymous file. The model writes to a page through its own
//! mapping. The program's mapping is read-only where stores trap, and writable where the model
//! polls.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use libc::{c_int, off_t, pid_t};

use super::super::process::descriptors::aside;
use super::super::process::errno::{Result, last};
use super::super::process::lock;
use super::super::process::trap::{self, PAGE, Target};
use super::super::tree::config::Mode;
use super::clock::Clock;
use super::function::Function;
use crate::card::{Card, Profile};
use crate::engine::{Engine, Stores};
use crate::private::system;
use crate::queue::blueflame_end;

/// A register page.
pub(crate) struct Page {
    /// The device's number for it. Changes when the page is used again.
    pub uar: AtomicU32,
    /// The device.
    pub function: usize,
    /// How the model notices stores to it.
    pub mode: Mode,
    /// The thread that opened the device: it runs the card in manual mode. Changes as the number does.
    opener: AtomicI32,
    /// The model's own mapping.
    alias: usize,
    /// Number of the page in the file, as offsets of `mmap` count.
    pub index: u64,
    /// Whether an object uses it.
    used: AtomicBool,
    /// The engine of its device.
    pub engine: Arc<Engine>,
    /// Its entry among trapped pages, once it was mapped as one.
    entry: OnceLock<trap::Entry>,
    /// Whether it is the device's clock, which is read and not stored to.
    reads_clock: bool,
    /// The device's clock.
    clock: Arc<Clock>,
    /// Time at which the card's clock was zero, on its page. `None` where a record is kept of its
    /// readings.
    time: Option<(Instant, Profile)>,
}

impl Page {
    /// Returns a part of the model's own mapping of the page.
    ///
    /// # Panics
    /// If the part is not inside the page, or the page is a clock's, which has no mapping.
    fn part(&self, offset: usize, length: usize) -> *mut u8 {
        let inside = offset.checked_add(length).is_some_and(|end| end <= PAGE);
        assert!(self.alias != 0 && inside, "no {length} bytes at {offset} of a register page");
        (self.alias + offset) as *mut u8
    }

    /// Creates the page of a device's clock. Only the program maps it.
    fn of_clock(function: usize, engine: &Arc<Engine>, clock: &Arc<Clock>) -> Self {
        let time = engine.enter(function, |card| match card.clock {
            crate::clock::Clock::Real(start) => Some((start, card.identity.profile)),
            _ => None,
        });
        Self {
            uar: AtomicU32::new(0),
            function,
            mode: Mode::Trapped,
            opener: AtomicI32::new(0),
            alias: 0,
            index: 0,
            used: AtomicBool::new(true),
            engine: engine.clone(),
            entry: OnceLock::new(),
            reads_clock: true,
            clock: clock.clone(),
            time,
        }
    }

    /// Returns its entry among trapped pages.
    pub fn entry(&'static self) -> trap::Entry {
        self.entry.get_or_init(|| trap::entry(self))
    }

    /// The object that used it is gone.
    pub fn free(&self) {
        self.used.store(false, Ordering::Release);
    }

    /// Takes the stores since the last call, by offset, and leaves zeroes, so that the same value
    /// is noticed when it is stored again: a queue rings the same doorbells again after a reset.
    /// Software never stores zero to a register.
    pub fn take(&self) -> Vec<(usize, [u8; 8])> {
        let mut stored = Vec::new();
        for offset in (0..PAGE).step_by(8) {
            let word = self.part(offset, 8).cast::<u64>();
            // SAFETY: an aligned word of the model's mapping, which is never unmapped. The program
            // may write the page meanwhile, through another mapping.
            let word = unsafe { AtomicU64::from_ptr(word) };
            if word.load(Ordering::Acquire) != 0 {
                stored.push((offset, word.swap(0, Ordering::AcqRel).to_ne_bytes()));
            }
        }
        stored
    }
}

impl Target for Page {
    /// Executes stores of the program to the page, in one entry into the engine. If signals are blocked,
    /// as in a handler, the stores are left to the engine's thread. If the device is busy, the store that
    /// is not done must be repeated.
    fn store(&'static self, stores: &mut dyn Stores, in_handler: bool) -> bool {
        let deferred = in_handler.then(|| self.engine.defer(self.function, self, stores)).flatten();
        let made = deferred.or_else(|| {
            self.engine.enter_from_fault(self.function, |card| {
                loop {
                    let (offset, bytes) = stores.store();
                    self.make(card, offset, bytes);
                    if !stores.done() {
                        break;
                    }
                }
                self.clock.keep(card);
            })
        });
        if made.is_some() {
            crate::stores::faulted();
        }
        true
    }

    fn is_read(&self) -> bool {
        self.reads_clock
    }

    /// Returns the value of the program's load from the clock. `None` if the device is busy and the load
    /// must be repeated.
    fn load(&self, offset: usize, length: usize) -> Option<u64> {
        let now = match self.time {
            Some((start, profile)) => profile.ticks(start.elapsed().as_nanos() as u64),
            None => self.engine.enter_from_fault(self.function, |card| card.read_clock())?,
        };
        let now = now.to_be_bytes();
        let mut bytes = [0; 8];
        for (at, byte) in bytes.iter_mut().enumerate().take(length) {
            *byte = now.get(offset + at).copied().unwrap_or(0);
        }
        Some(u64::from_le_bytes(bytes))
    }
}

impl crate::engine::Registers for Page {
    fn execute(&self, card: &mut Card, offset: usize, bytes: &[u8]) {
        self.make(card, offset, bytes);
        self.clock.keep(card);
    }
}

impl Page {
    /// Reads what was stored last, as a device does that reaches the page by a dma-buf.
    ///
    /// # Panics
    /// If the bytes are not inside the page.
    pub fn read(&self, offset: usize, to: &mut [u8]) {
        let part = self.part(offset, to.len());
        for (index, byte) in to.iter_mut().enumerate() {
            // SAFETY: `part` has as many bytes as `to`, of a mapping that is never unmapped. The program may
            // write the page meanwhile, through another mapping: the load is volatile.
            *byte = unsafe { part.add(index).read_volatile() };
        }
    }

    /// Takes a write of a device, which reaches the page by a dma-buf. It arrives in words, but in pieces of
    /// 64 bytes where WQEs are copied to. The caller is in a device, maybe in this one, so the stores are
    /// executed behind it; where stores are not trapped, as those of the program.
    ///
    /// # Panics
    /// If the bytes are not inside the page.
    pub fn write(&'static self, offset: usize, from: &[u8]) {
        let mut done = 0;
        while done < from.len() {
            let at = offset + done;
            let piece = if blueflame_end(at).is_some() { 64 } else { 8 };
            let length = (piece - at % piece).min(from.len() - done);
            let bytes = &from[done..done + length];
            done += length;
            match self.mode {
                Mode::Trapped => self.engine.leave_store(self.function, self, at, bytes),
                Mode::Polled | Mode::Manual => self.put(at, bytes),
            }
        }
    }

    /// Puts bytes on the page.
    fn put(&self, offset: usize, bytes: &[u8]) {
        let part = self.part(offset, bytes.len());
        if let (0, Ok(word)) = (offset % 8, <[u8; 8]>::try_from(bytes)) {
            // SAFETY: an aligned word of the model's mapping, which is never unmapped. The program may write
            // the page meanwhile, through another mapping.
            let place = unsafe { AtomicU64::from_ptr(part.cast()) };
            return place.store(u64::from_ne_bytes(word), Ordering::Release);
        }
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: `part` has as many bytes as `bytes`, of a mapping that is never unmapped. The
            // program may read the page meanwhile, through another mapping: the store is volatile.
            unsafe { part.add(index).write_volatile(*byte) };
        }
    }

    /// Makes a store to the device's register.
    fn make(&self, card: &mut Card, offset: usize, bytes: &[u8]) {
        let uar = self.uar.load(Ordering::Acquire);
        crate::stores::made(uar, offset, bytes);
        self.put(offset, bytes);
        card.store(uar, offset, bytes);
    }
}

/// All register pages of the process.
pub(crate) struct Registers {
    /// The file of all pages.
    pub file: c_int,
    pages: Mutex<Vec<&'static Page>>,
    /// The pages of clocks, which are in no file.
    clocks: Mutex<Vec<&'static Page>>,
}

impl Registers {
    /// No pages yet.
    pub fn new() -> Result<Self> {
        // SAFETY: the call reads the name, a C string.
        let file = unsafe { system::memfd_create(c"mlx5-uar".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(last());
        }
        Ok(Self { file: aside(file)?, pages: Mutex::default(), clocks: Mutex::default() })
    }

    /// Returns a page for a UAR of a device that the thread `opener` has opened: a free one, or a new one.
    pub fn page(
        &self,
        function: &Function,
        (opener, mode): (pid_t, Mode),
        uar: u32,
    ) -> Result<&'static Page> {
        let (engine, clock, function) = (function.engine(), &function.clock, function.index);
        let mut pages = lock(&self.pages);
        let again = pages.iter().find(|page| {
            page.function == function
                && page.mode == mode
                && !page.used.swap(true, Ordering::AcqRel)
        });
        if let Some(page) = again {
            // SAFETY: the range is the whole of the model's mapping, which is never unmapped and
            // which no reference covers.
            unsafe { page.part(0, PAGE).write_bytes(0, PAGE) };
            page.uar.store(uar, Ordering::Release);
            page.opener.store(opener, Ordering::Release);
            return Ok(page);
        }
        let index = pages.len() as u64;
        // SAFETY: the file is the model's, and grows. The kernel chooses where the new mapping is.
        let alias = unsafe {
            if system::ftruncate(self.file, (index as off_t + 1) * PAGE as off_t) != 0 {
                return Err(last());
            }
            system::mmap(
                std::ptr::null_mut(),
                PAGE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                self.file,
                index as off_t * PAGE as off_t,
            )
        };
        if alias == libc::MAP_FAILED {
            return Err(last());
        }
        let page: &'static Page = Box::leak(Box::new(Page {
            uar: AtomicU32::new(uar),
            function,
            mode,
            opener: AtomicI32::new(opener),
            alias: alias as usize,
            index,
            used: AtomicBool::new(true),
            engine: engine.clone(),
            entry: OnceLock::new(),
            reads_clock: false,
            clock: clock.clone(),
            time: None,
        }));
        pages.push(page);
        Ok(page)
    }

    /// Returns the page of a device's clock.
    pub fn clock(&self, function: &Function) -> &'static Page {
        let mut clocks = lock(&self.clocks);
        if let Some(page) = clocks.iter().find(|page| page.function == function.index) {
            return page;
        }
        let page = Page::of_clock(function.index, function.engine(), &function.clock);
        let page: &'static Page = Box::leak(Box::new(page));
        clocks.push(page);
        page
    }

    /// Returns the pages in use whose stores are noticed in this way.
    pub fn of(&self, mode: Mode) -> Vec<&'static Page> {
        lock(&self.pages)
            .iter()
            .filter(|page| page.mode == mode && page.used.load(Ordering::Acquire))
            .copied()
            .collect()
    }

    /// Returns the pages in use of the devices that this thread opened in manual mode.
    pub fn of_this_thread(&self) -> Vec<&'static Page> {
        // SAFETY: the call has no arguments.
        let thread = system::thread();
        let mut pages = self.of(Mode::Manual);
        pages.retain(|page| page.opener.load(Ordering::Acquire) == thread);
        pages
    }
}

#[cfg(test)]
mod tests;
