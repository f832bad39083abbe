//! UAR pages: allocation, the program's mappings of them, and stores to them.
//!
//! All pages of a process lie in one anonymous file. The model writes to a page through its own
//! mapping. The program's mapping is read-only where stores trap, and writable where the model
//! polls.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use libc::{c_int, c_void, off_t, size_t};
use mlx5_sys::ifc::{alloc_uar_in, alloc_uar_out, dealloc_uar_in, dealloc_uar_out, opcode};

use super::super::driver::clock::Clock;
use super::super::driver::command::Command;
use super::super::driver::running::Running;
use super::super::driver::{clock, poll};
use super::super::process::descriptors::{Descriptor, aside};
use super::super::process::errno::{Errno, Result, last, set_errno};
use super::super::process::lock;
use super::super::process::trap::{self, PAGE};
use super::super::request::ioctl::Attributes;
use super::super::tree::config::{Mode, Pages};
use super::super::tree::discovery::{Discovery, discovery};
use super::file::{CommandFile, Object};
use super::{dm, mappings};
use crate::card::{Card, Profile};
use crate::engine::{Engine, Shield, Stores};
use crate::private::system;

/// First page offset of objects. Lower offsets encode a command.
const FIRST: u64 = 9 << 16;

/// A register page.
pub(in super::super) struct Page {
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
    /// Whether it is the device's clock, which is read and not stored to.
    pub reads_clock: bool,
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
    pub fn of_clock(function: usize, engine: &Arc<Engine>, clock: &Arc<Clock>) -> Self {
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
            reads_clock: true,
            clock: clock.clone(),
            time,
        }
    }

    /// Returns the value of the program's load from the clock: `length` bytes, in the low bytes.
    /// `None` if the device is busy and the load must be repeated.
    pub fn load(&self, offset: usize, length: usize) -> Option<u64> {
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

    /// Executes stores of the program to the page, in one entry into the engine. If signals are blocked,
    /// as in a handler, the stores are left to the engine's thread. `None` if the device is busy and
    /// the store that is not done must be repeated.
    pub fn store(&'static self, stores: &mut impl Stores, in_handler: bool) -> Option<()> {
        if in_handler {
            let deferred = self.engine.defer(self.function, self, stores);
            if deferred.is_some() {
                return deferred;
            }
        }
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

impl crate::engine::Registers for Page {
    fn execute(&self, card: &mut Card, offset: usize, bytes: &[u8]) {
        self.make(card, offset, bytes);
        self.clock.keep(card);
    }
}

impl Page {
    /// Makes a store to the device's register.
    fn make(&self, card: &mut Card, offset: usize, bytes: &[u8]) {
        let uar = self.uar.load(Ordering::Acquire);
        crate::stores::made(uar, offset, bytes);
        let part = self.part(offset, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: `part` has as many bytes as `bytes`, of a mapping that is never unmapped. The
            // program may read the page meanwhile, through another mapping: the store is volatile.
            unsafe { part.add(index).write_volatile(*byte) };
        }
        card.store(uar, offset, bytes);
    }
}

/// All register pages of the process.
pub(in super::super) struct Registers {
    file: c_int,
    pages: Mutex<Vec<&'static Page>>,
}

impl Registers {
    /// No pages yet.
    pub fn new() -> Result<Self> {
        // SAFETY: the call reads the name, a C string.
        let file = unsafe { system::memfd_create(c"mlx5-uar".as_ptr(), libc::MFD_CLOEXEC) };
        if file < 0 {
            return Err(last());
        }
        Ok(Self { file: aside(file)?, pages: Mutex::new(Vec::new()) })
    }

    /// Returns a page for a UAR of a file: a free one, or a new one.
    fn page(&self, file: &CommandFile, uar: u32) -> Result<&'static Page> {
        let (running, function, mode) = (file.running, file.function().index, file.mode);
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
            page.opener.store(file.opener, Ordering::Release);
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
            opener: AtomicI32::new(file.opener),
            alias: alias as usize,
            index,
            used: AtomicBool::new(true),
            engine: running.engine.clone(),
            reads_clock: false,
            clock: running.functions[function].clock.clone(),
            time: None,
        }));
        pages.push(page);
        Ok(page)
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

/// A UAR of a file.
pub(in super::super) struct Uar {
    /// The device's number for it.
    pub number: u32,
    /// Its page.
    pub page: &'static Page,
}

/// The kinds of pages that programs get.
fn pages() -> Pages {
    match discovery() {
        Discovery::On(offer) => offer.config.pages,
        _ => Pages::All,
    }
}

/// Whether programs get write-combining pages.
pub(super) fn combining() -> bool {
    pages() != Pages::NonCached
}

/// `UAR_OBJ_ALLOC`.
pub(in super::super) fn allocate(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    // BlueFlame and non-cached pages differ in how the processor maps them, which a process cannot.
    let given = match (attributes.number(0x1001)?, pages()) {
        (0, kinds) => kinds != Pages::NonCached,
        (1, _) => true,
        _ => false,
    };
    if !given {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let function = file.function();
    let mut command = Command::new(opcode::ALLOC_UAR, alloc_uar_in::SIZE, alloc_uar_out::SIZE);
    command.set(alloc_uar_in::UID, uid);
    let number = alloc_uar_out::UAR.get(&function.run(command)?) as u32;
    let page = match file.running.registers.page(file, number) {
        Ok(page) => page,
        Err(error) => {
            free(file, uid, number)?;
            return Err(error);
        }
    };
    if file.mode == Mode::Polled {
        poll::start(file.running);
    }
    let handle = state.enter(Object::Uar(Uar { number, page }));
    attributes.put(0x1002, &((FIRST + page.index) * PAGE as u64).to_ne_bytes())?;
    attributes.put(0x1003, &(PAGE as u32).to_ne_bytes())?;
    attributes.put(0x1004, &number.to_ne_bytes())?;
    attributes.put_handle(0x1000, u64::from(handle))
}

/// `UAR_OBJ_DESTROY`.
pub(in super::super) fn deallocate(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut state = file.state();
    let uid = state.context()?.uid;
    state.remove(attributes.handle(0x1000)?, |uar: &Uar| destroy(file, uid, uar))
}

/// Destroys a UAR.
pub(super) fn destroy(file: &CommandFile, uid: u16, uar: &Uar) -> Result<()> {
    free(file, uid, uar.number)?;
    uar.page.used.store(false, Ordering::Release);
    Ok(())
}

fn free(file: &CommandFile, uid: u16, number: u32) -> Result<()> {
    let mut command =
        Command::new(opcode::DEALLOC_UAR, dealloc_uar_in::SIZE, dealloc_uar_out::SIZE);
    command.set(dealloc_uar_in::UID, uid);
    command.set(dealloc_uar_in::UAR, number);
    file.function().run(command).map(|_| ())
}

/// Serves `mmap` of a command file.
///
/// # Safety
/// With MAP_FIXED, the program does not use the old mapping from `address` on any more.
pub(in super::super) unsafe fn map(
    running: &'static Running,
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let _shield = Shield::new();
    let Some(Descriptor::Command(file)) = running.descriptors.get(fd) else {
        set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
    };
    let mapped = (|| {
        if flags & libc::MAP_SHARED == 0 || offset % PAGE as off_t != 0 {
            return Err(Errno::EINVAL);
        }
        if let Some(page) = dm::page(offset as u64 / PAGE as u64) {
            // SAFETY: the caller guarantees that the replaced mapping is not used any more.
            return unsafe { dm::map(&file, address, length, protection, flags, page) };
        }
        if length > PAGE {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the caller guarantees that the replaced mapping is not used any more.
        if let Some(mapped) = unsafe { clock::map(&file, address, protection, flags, offset) } {
            return mapped;
        }
        let index = u64::try_from(offset / PAGE as off_t)
            .ok()
            .and_then(|number| number.checked_sub(FIRST))
            .ok_or(Errno::EINVAL)?;
        let page = file.state().page(index).ok_or(Errno::EINVAL)?;
        let trapped = page.mode == Mode::Trapped;
        let allowed = if trapped { libc::PROT_READ } else { protection | libc::PROT_READ };
        // SAFETY: the caller guarantees that the replaced mapping is not used any more. The page is
        // inside the model's file.
        let at = unsafe {
            system::mmap(
                address,
                PAGE,
                allowed,
                flags,
                running.registers.file,
                page.index as off_t * PAGE as off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(last());
        }
        if trapped {
            trap::unblock();
            trap::replaced(at as usize, PAGE);
            if !trap::mapped(at as usize, trap::Target::Card(page)) {
                // SAFETY: the page was mapped above, and the program does not know it yet.
                unsafe { system::munmap(at, PAGE) };
                return Err(Errno::ENOMEM);
            }
        }
        // Like a real device's registers, the page is not inherited by a forked child.
        // SAFETY: MADV_DONTFORK changes no byte of the page, which was mapped above.
        unsafe { system::madvise(at, PAGE, libc::MADV_DONTFORK) };
        Ok(at)
    })();
    let kept = mapped.and_then(|at| {
        // SAFETY: the page was mapped above, and the program does not know it yet.
        unsafe { keep(&file, at, length) }.map(|()| at)
    });
    kept.unwrap_or_else(|error| {
        set_errno(error.0);
        libc::MAP_FAILED
    })
}

/// Has a mapping that was just made keep the device open.
///
/// # Safety
/// The program does not know the mapping yet.
unsafe fn keep(file: &Arc<CommandFile>, at: *mut c_void, length: size_t) -> Result<()> {
    let length = length.next_multiple_of(PAGE);
    // What was mapped there was replaced.
    drop(mappings::leaving(at as usize, length));
    mappings::add(file, at as usize, length).inspect_err(|_| {
        trap::replaced(at as usize, length);
        // SAFETY: the caller guarantees that the program does not use the mapping.
        unsafe { system::munmap(at, length) };
    })
}

/// Unmaps memory of the program by a call that returns zero on success. Register pages in the range
/// are removed before the call, while their addresses cannot be reused yet, and restored if it
/// fails.
pub(in super::super) fn unmapping(
    start: usize,
    length: usize,
    unmap: impl FnOnce() -> c_int,
) -> c_int {
    trap::leaving(start, length);
    let leaving = mappings::leaving(start, length.next_multiple_of(PAGE));
    let result = unmap();
    if result == 0 {
        trap::unmapped(start, length);
        drop(leaving);
    } else {
        trap::staying(start, length);
        leaving.stay();
    }
    result
}

/// Removes the register pages in a range that the program is about to replace.
pub(in super::super) fn replacing(start: usize, length: usize) {
    trap::replaced(start, length);
    drop(mappings::leaving(start, length.next_multiple_of(PAGE)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::card::Link;
    use crate::command::test::Rig;
    use crate::engine::Registers as _;

    fn clock() -> (Page, Card) {
        let cards = vec![Rig::on(Link::InfiniBand).card];
        let engine = Engine::new(cards, Box::new(|_, _, _| {}));
        (Page::of_clock(0, &engine, &Arc::default()), Rig::on(Link::InfiniBand).card)
    }

    #[test]
    #[should_panic(expected = "no 4 bytes at 8 of a register page")]
    fn store_to_a_clock_which_has_no_mapping_is_refused() {
        let (page, mut card) = clock();
        page.execute(&mut card, 8, &[1; 4]);
    }

    #[test]
    #[should_panic(expected = "no 8 bytes at 0 of a register page")]
    fn stores_to_a_clock_which_has_no_mapping_are_not_looked_for() {
        clock().0.take();
    }
}
