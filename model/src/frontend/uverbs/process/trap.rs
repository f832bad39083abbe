//! Trapped register pages: each store is seen, because the pages are read-only to the program. The
//! fault handler does what the store would have done.
//!
//! The handler belongs to the process until the process ends. A program's own handler of the same
//! signal is kept here and called for every fault that is not the model's. Accesses of the devices
//! to the program's memory may fault as well; the handler recovers those first of all.
//!
//! The page of a device's clock cannot even be read. Its loads are also executed here, so that the
//! clock advances.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use libc::{c_int, c_void, siginfo_t, sigset_t, ucontext_t};

use super::errno::{errno, set_errno};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::instruction::{self, Follower, Trapped};
use super::real;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::stack::off_the_signal_stack;
use crate::engine::{Stores, Uncancelled};
use crate::private::system;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::queue::blueflame_end;

/// Whether stores can be decoded on this processor.
pub(crate) const AVAILABLE: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

/// Bytes of a register page.
pub(crate) const PAGE: usize = 4096;

/// Register pages that may be mapped at once.
const MAPPED: usize = 4096;

/// A page that a program has mapped.
struct Region {
    start: AtomicUsize,
    /// The page's [`Entry`]; null for none.
    page: AtomicPtr<&'static dyn Target>,
}

/// A register page, on which faulting instructions of the program are done.
pub(crate) trait Target: Sync {
    /// Does stores that have faulted, or leaves the first that was not done to be repeated. Returns
    /// `false` if the page does not know of them: then the fault is the program's. `in_handler` says
    /// whether the program may be in a signal handler.
    fn store(&'static self, stores: &mut dyn Stores, in_handler: bool) -> bool;

    /// Returns whether loads fault as well, and only they.
    fn is_read(&self) -> bool {
        false
    }

    /// Returns what is loaded: `length` bytes, in the low bytes. `None` leaves the load to be repeated.
    fn load(&self, _offset: usize, _length: usize) -> Option<u64> {
        None
    }

    /// The program has unmapped the page.
    fn unmapped(&self) {}
}

/// A page in the table of regions. A fault reads it by one load, so it is a thin pointer to a wide one.
pub(crate) type Entry = &'static &'static dyn Target;

/// Creates the entry of a page. It is never freed: a thread may be reading it.
pub(crate) fn entry(page: &'static dyn Target) -> Entry {
    Box::leak(Box::new(page))
}

static REGIONS: [Region; MAPPED] =
    [const { Region { start: AtomicUsize::new(0), page: AtomicPtr::new(std::ptr::null_mut()) } };
        MAPPED];
/// No region at or behind this index has ever been used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Whether the handler is in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The program's actions for SIGSEGV and SIGBUS. Replaced ones are never freed: a thread may be
/// reading them.
static THEIRS: [AtomicPtr<libc::sigaction>; 2] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];

/// Place of a signal in [`THEIRS`]; `None` for signals the model has no interest in.
fn place(signal: c_int) -> Option<&'static AtomicPtr<libc::sigaction>> {
    match signal {
        libc::SIGSEGV => Some(&THEIRS[0]),
        libc::SIGBUS => Some(&THEIRS[1]),
        _ => None,
    }
}

/// Whether faults are handled here.
pub(crate) fn installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Puts the handler in place. Gives whether faults are handled from now on.
pub(crate) fn install() -> bool {
    if !AVAILABLE {
        return false;
    }
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    instruction::prepare();
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SA_NODEFER, and leaving the two signals out of the mask, lets a card's access to bad memory
        // fault inside the handler. Everything else waits, because a handler of the program could wait
        // for the card.
        // SAFETY: zeros are a value of sigaction, and the calls write and read the two of this block.
        // The handler has the type that SA_SIGINFO asks for, and is safe to call upon any fault.
        let installed = unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_fault;
            ours.sa_sigaction = handler as usize;
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
            libc::sigfillset(&mut ours.sa_mask);
            libc::sigdelset(&mut ours.sa_mask, libc::SIGSEGV);
            libc::sigdelset(&mut ours.sa_mask, libc::SIGBUS);
            let mut before: libc::sigaction = std::mem::zeroed();
            let asked = real::sigaction(signal, std::ptr::null(), &mut before);
            // Another thread's fault may come as soon as the handler is in place.
            if let Some(place) = place(signal) {
                if before.sa_sigaction != ours.sa_sigaction {
                    place.store(Box::into_raw(Box::new(before)), Ordering::Release);
                }
            }
            asked == 0 && real::sigaction(signal, &ours, std::ptr::null_mut()) == 0
        };
        if !installed {
            return false;
        }
    }
    INSTALLED.store(true, Ordering::Release);
    true
}

/// Takes a program's handler for a signal that is handled here, and gives the one before. `None`
/// if the signal is none of ours.
///
/// # Safety
/// `new` is null or points to a valid `sigaction`.
pub(crate) unsafe fn replace(
    signal: c_int,
    new: *const libc::sigaction,
) -> Option<libc::sigaction> {
    if !installed() {
        return None;
    }
    let place = place(signal)?;
    // SAFETY: `install` has stored an action before `installed` says so, and actions are never freed.
    let before = unsafe { *place.load(Ordering::Acquire) };
    if !new.is_null() {
        // SAFETY: not null, so the caller guarantees that it points to an action.
        let new = unsafe { *new };
        place.store(Box::into_raw(Box::new(new)), Ordering::Release);
    }
    Some(before)
}

/// Lets faults reach this thread.
pub(crate) fn unblock() {
    // SAFETY: a set is an array of integers, for which zeros are values. The calls write and read the one
    // of this block.
    unsafe {
        let mut set: sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGSEGV);
        libc::sigaddset(&mut set, libc::SIGBUS);
        system::signal_mask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}

/// Records that a program has mapped a register page read-only. Returns whether an entry was free.
pub(crate) fn mapped(start: usize, page: Entry) -> bool {
    for (index, region) in REGIONS.iter().enumerate() {
        let free = region.page.compare_exchange(
            std::ptr::null_mut(),
            std::ptr::from_ref(page).cast_mut(),
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if free.is_ok() {
            region.start.store(start, Ordering::Release);
            USED.fetch_max(index + 1, Ordering::AcqRel);
            return true;
        }
    }
    false
}

/// Marks the start of a region that is being unmapped. Regions start at pages, so the bit is free.
const LEAVING: usize = 1;

/// The regions, mapped or leaving, that start in this memory, and where.
fn within(start: usize, length: usize) -> impl Iterator<Item = (&'static Region, usize)> {
    let used = &REGIONS[..USED.load(Ordering::Acquire)];
    used.iter().filter_map(move |region| {
        let at = region.start.load(Ordering::Acquire);
        let page = at & !LEAVING;
        (page != 0 && page >= start && page - start < length).then_some((region, at))
    })
}

/// A program is about to unmap memory: the register pages in it are not found any more.
pub(crate) fn leaving(start: usize, length: usize) {
    for (region, at) in within(start, length) {
        region.start.store(at | LEAVING, Ordering::Release);
    }
}

/// The memory was not unmapped after all.
pub(crate) fn staying(start: usize, length: usize) {
    for (region, at) in within(start, length) {
        region.start.store(at & !LEAVING, Ordering::Release);
    }
}

/// The memory that was leaving is unmapped: its register pages are forgotten. A page that another
/// thread has mapped there since stays.
pub(crate) fn unmapped(start: usize, length: usize) {
    for (region, at) in within(start, length) {
        if at & LEAVING != 0 {
            region.start.store(0, Ordering::Release);
            let page = region.page.swap(std::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: null, or an entry that `mapped` was given, which is never freed.
            if let Some(page) = unsafe { page.as_ref() } {
                page.unmapped();
            }
        }
    }
}

/// A program has mapped something else over this memory: its register pages are forgotten.
pub(crate) fn replaced(start: usize, length: usize) {
    leaving(start, length);
    unmapped(start, length);
}

/// Forgets every register page, in the child of a fork, which does not inherit them.
pub(crate) fn forget() {
    for region in &REGIONS[..USED.load(Ordering::Acquire)] {
        region.start.store(0, Ordering::Release);
        region.page.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// The register page an address is on, and where it starts.
fn find(address: usize) -> Option<(usize, &'static dyn Target)> {
    REGIONS[..USED.load(Ordering::Acquire)].iter().find_map(|region| {
        let start = region.start.load(Ordering::Acquire);
        if start == 0 || start & LEAVING != 0 || address < start || address - start >= PAGE {
            return None;
        }
        // SAFETY: null, or an entry that `mapped` was given, which is never freed.
        unsafe { region.page.load(Ordering::Acquire).as_ref() }.map(|page| (start, *page))
    })
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let before = errno();
    // SAFETY: the kernel passes both pointers to a handler installed with SA_SIGINFO. They are on
    // the frame of this call, which nothing else refers to.
    let (details, frame) = unsafe { (&*info, &mut *context.cast::<ucontext_t>()) };
    if let Some(resume) = crate::memory::recover(instruction::counter(frame)) {
        instruction::resume(frame, resume);
        return;
    }
    // Only the kernel makes positive codes: such signals are faults, others were sent.
    if signal == libc::SIGSEGV && details.si_code > 0 {
        // SAFETY: the code says that the kernel raised this SIGSEGV, so it has set the address.
        let address = unsafe { details.si_addr() } as usize;
        if let Some((start, page)) = find(address) {
            let mut work = Work { frame, start, page, done: false };
            let uncancelled = Uncancelled::new();
            let signal = work.frame.uc_stack;
            let interrupted = instruction::stack_pointer(work.frame);
            // A PUSH stores below the stack pointer.
            let interrupted = Some(interrupted).filter(|at| find(at - 1).is_none());
            let run = &mut || emulate(&mut work);
            // SAFETY: all are of the frame of the signal that this thread handles.
            unsafe { off_the_signal_stack(context.addr(), signal, interrupted, run) };
            drop(uncancelled);
            if work.done {
                set_errno(before);
                return;
            }
        }
    }
    set_errno(before);
    chain(signal, info, context);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    chain(signal, info, context);
}

/// A store that faulted.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Work<'a> {
    frame: &'a mut ucontext_t,
    start: usize,
    page: &'static dyn Target,
    /// Whether the fault is dealt with: the program goes on behind the instruction or at it.
    done: bool,
}

/// Does what the faulting instruction would have done, and steps over it. If it begins or continues a
/// copy to a BlueFlame buffer, does the same of the instructions of the copy. If another thread does
/// not leave the card, it does nothing. The program then goes on at the same instruction, after the
/// pending signals are delivered.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn emulate(work: &mut Work<'_>) {
    if work.page.is_read() {
        return load(work);
    }
    // SAFETY: the frame is that of a fault which the instruction at its program counter has just made, so
    // the code is mapped. The kernel has written the rest of the frame. Faults come to `on_fault`.
    let trapped = match unsafe { instruction::decode(work.frame) } {
        Ok(trapped) => trapped,
        Err(unknown) => {
            eprintln!(
                "mlx5-model: cannot follow a store to a register page: instruction {unknown}; set \
                 MLX5_MODEL_MODE=polled"
            );
            return;
        }
    };
    let inside = (trapped.address as usize)
        .checked_sub(work.start)
        .filter(|offset| offset + trapped.bytes.len() <= PAGE);
    let Some(offset) = inside else {
        eprintln!(
            "mlx5-model: cannot follow a store of {} bytes at {:#x}, across the end of a register page",
            trapped.bytes.len(),
            trapped.address
        );
        return;
    };
    let in_handler = blocks_signals(&work.frame.uc_sigmask);
    // SAFETY: the kernel has written the frame, and faults come to `on_fault`.
    let follower = unsafe { Follower::new(work.frame) };
    let mut copy = Copying { follower, start: work.start, offset, trapped };
    work.done = work.page.store(&mut copy, in_handler);
}

/// A store, and those behind it that continue a copy to a BlueFlame buffer: the handler does them, too.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
struct Copying<'a> {
    follower: Follower<'a>,
    /// Where the page starts.
    start: usize,
    /// The store that is not done yet, and its place in the page.
    trapped: Trapped,
    offset: usize,
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
impl Stores for Copying<'_> {
    fn store(&self) -> (usize, &[u8]) {
        (self.offset, &self.trapped.bytes)
    }

    fn done(&mut self) -> bool {
        if self.trapped.next_part() {
            self.offset = self.trapped.address as usize - self.start;
            return true;
        }
        self.follower.step(&self.trapped);
        let next = self.offset + self.trapped.bytes.len();
        let Some(end) = blueflame_end(self.offset).filter(|&end| next < end) else { return false };
        let Some(trapped) = self.follower.next_store() else { return false };
        let continues = trapped.address == (self.start + next) as u64;
        if !continues || next + trapped.bytes.len() > end {
            return false;
        }
        (self.offset, self.trapped) = (next, trapped);
        true
    }
}

/// Whether a thread with this mask may be in a signal handler: while one runs, the kernel blocks at
/// least its own signal. Faults are never blocked.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn blocks_signals(mask: &sigset_t) -> bool {
    // The kernel fills only the first word of the set, a bit for each of its 64 signals.
    // SAFETY: a set is an array of words, aligned as such.
    unsafe { std::ptr::from_ref(mask).cast::<u64>().read() != 0 }
}

/// The same of a load from the clock.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn load(work: &mut Work<'_>) {
    let (page, start) = (work.page, work.start);
    let read = |address, length| page.load((address as usize).wrapping_sub(start), length);
    // SAFETY: the frame is that of a fault which the instruction at its program counter has just made, as
    // the kernel has written it.
    match unsafe { instruction::load(work.frame, read) } {
        Ok(()) => work.done = true,
        Err(unknown) => eprintln!(
            "mlx5-model: cannot follow a load from the device's clock: instruction {unknown}; load it \
             by mov"
        ),
    }
}

/// The default action. It replaces the action of a signal whose handler is called once. It is a
/// static because it is needed in a handler, which may have interrupted the allocator.
// SAFETY: integers, and a pointer to a function that may be none, for which zeros are values.
static DEFAULT: libc::sigaction = unsafe { std::mem::zeroed() };

/// Calls the program's action for a signal, as the kernel would have.
fn chain(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(place) = place(signal) else { return };
    // SAFETY: null, or an action that is never freed.
    let Some(theirs) = (unsafe { place.load(Ordering::Acquire).as_ref() }) else { return };
    // SAFETY: `on_fault` passes on the pointer that the kernel gave it, on the frame of the call.
    let fault = unsafe { (*info).si_code } > 0;
    match theirs.sa_sigaction {
        libc::SIG_IGN if !fault => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // Back at the faulting instruction the signal comes again, and now has its default
            // effect; one that was sent has to be sent again.
            // SAFETY: the call reads the action. `raise` passes no memory.
            unsafe {
                real::sigaction(signal, &DEFAULT, std::ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            }
        }
        handler => {
            if theirs.sa_flags & libc::SA_RESETHAND != 0 {
                place.store((&raw const DEFAULT).cast_mut(), Ordering::Release);
            }
            // SAFETY: the kernel gave the context. The program's handler has the type that its
            // flags name. It is called with the kernel's arguments, under the mask that it asked
            // for.
            unsafe {
                let mut mask = (*context.cast::<ucontext_t>()).uc_sigmask;
                for other in 1..=64 {
                    if libc::sigismember(&theirs.sa_mask, other) == 1 {
                        libc::sigaddset(&mut mask, other);
                    }
                }
                if theirs.sa_flags & libc::SA_NODEFER == 0 {
                    libc::sigaddset(&mut mask, signal);
                }
                system::signal_mask(libc::SIG_SETMASK, &mask, std::ptr::null_mut());
                if theirs.sa_flags & libc::SA_SIGINFO != 0 {
                    let call = std::mem::transmute::<
                        usize,
                        extern "C" fn(c_int, *mut siginfo_t, *mut c_void),
                    >(handler);
                    call(signal, info, context);
                } else {
                    let call = std::mem::transmute::<usize, extern "C" fn(c_int)>(handler);
                    call(signal);
                }
            }
        }
    }
}
