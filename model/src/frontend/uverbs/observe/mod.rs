//! Observes a program on a device of the machine: requests to the kernel, doorbells, WQEs and CQEs.
//!
//! The device is the kernel's. Requests pass through to it, and what the program asked for and got is
//! read beside it (`requests`). The program gets protected memory in place of a register page. Each
//! store to it traps, is recorded and is made on the device's page (`page`). At each trap, each request
//! and from time to time (`scan`), the rings in the program's memory are read (`rings`).
//!
//! The recording is a stream as [`crate::trace`] describes. It has the firmware commands that
//! `mlx5_ib` makes of the requests, with the fields that a program knows (`commands`).
//!
//! A process may have several copies of this library: linked in, and preloaded. The first observes,
//! so that the next may be the model, whose devices are observed then.
//!
//! Locks are taken in this order: the queues, the tap. A thread that holds the lock of the queues has a
//! [`Shield`], or is in the handler of a trapped store: no handler of the program interrupts it.

mod commanded;
mod commands;
mod devices;
mod page;
mod queues;
mod requests;
mod rings;
mod scan;

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use libc::{off_t, size_t};

use super::process::errno::{errno, set_errno};
use super::process::{descriptors, lock, real, trap};
use super::process::{in_children, own_process};
use super::request::ioctl::RDMA_VERBS_IOCTL;
use super::tree::config::{self, Output};
use crate::clock::Clock;
use crate::engine::Shield;
use crate::memory::ProcessMemory;
use crate::trace::{Call, Detail, Header, Record, Sink, Tap};

use crate::private::complain;
use devices::Devices;
use queues::Queues;

/// Number of descriptors that can be distinguished. Others are not observed.
const LIMIT: usize = 1 << 16;

/// For each descriptor of a device, the device's number plus one; 0 for other descriptors.
static DEVICE: [AtomicU8; LIMIT] = [const { AtomicU8::new(0) }; LIMIT];
/// For each descriptor of a device, what file is behind it.
static FILE: [AtomicU64; LIMIT] = [const { AtomicU64::new(0) }; LIMIT];

/// The observer of this process, once it has opened a device. Never freed.
static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(std::ptr::null_mut());
/// The process in which a thread is creating the observer, or 0.
static STARTING: AtomicI32 = AtomicI32::new(0);

/// The record of a process's use of devices.
pub(super) struct Observer {
    process: libc::pid_t,
    tap: Arc<Tap>,
    memory: ProcessMemory,
    devices: Devices,
    queues: Mutex<Queues>,
}

impl Observer {
    /// Returns this process's observer, if there is one.
    fn current() -> Option<&'static Self> {
        // SAFETY: the pointer is null, or it comes from a box that `get` has leaked.
        let observer = unsafe { OBSERVER.load(Ordering::Acquire).as_ref() }?;
        (observer.process == own_process()).then_some(observer)
    }

    /// Returns this process's observer, creating it at the first call. `None` if the recording cannot
    /// be written.
    fn get() -> Option<&'static Self> {
        loop {
            if let Some(observer) = Self::current() {
                return Some(observer);
            }
            let process = own_process();
            let starting = STARTING.load(Ordering::Relaxed);
            let taken = starting == process
                || STARTING
                    .compare_exchange(starting, process, Ordering::Acquire, Ordering::Relaxed)
                    .is_err();
            if taken {
                std::thread::yield_now();
                continue;
            }
            let made = match Self::current() {
                Some(observer) => Some(observer),
                None => Self::start(),
            };
            STARTING.store(0, Ordering::Release);
            return made;
        }
    }

    fn start() -> Option<&'static Self> {
        let Output(name) = config::observed()?;
        if !config::can_trap() || !trap::installed() && !trap::install() {
            complain!("stores to registers cannot be trapped, so nothing is traced");
            return None;
        }
        let devices = Devices::of_the_machine();
        let sink = match Sink::open(&name, aside) {
            Ok(sink) => sink,
            Err(error) => {
                complain!("MLX5_MODEL_OBSERVE is {name}: {error}");
                return None;
            }
        };
        let header = Header::of_this_process(devices.identities(), Detail::Observed);
        // SAFETY: the handlers of `trap` call `recover`, and are never removed. The addresses are those
        // that the program has given the kernel for its rings. They are only read.
        let memory = unsafe { ProcessMemory::new(true) };
        let observer: &'static Self = Box::leak(Box::new(Self {
            process: own_process(),
            tap: Tap::recording(sink, &header, Clock::real()),
            memory,
            devices,
            queues: Mutex::default(),
        }));
        OBSERVER.store(std::ptr::from_ref(observer).cast_mut(), Ordering::Release);
        static ASKED: AtomicBool = AtomicBool::new(false);
        if !ASKED.load(Ordering::Acquire) {
            // SAFETY: `exiting` has the required type.
            unsafe { libc::atexit(exiting) };
        }
        in_children(&ASKED, forked);
        scan::start(observer);
        Some(observer)
    }

    /// Records a call and what it did.
    fn record(&self, card: u8, call: Call<'_>, work: impl FnOnce()) {
        let is_routine = matches!(call, Call::Look);
        self.tap.begin(card, || call);
        work();
        self.tap.end(&Record::End, is_routine);
    }

    /// Reads all rings, and writes the recording.
    fn look(&self) {
        let _shield = Shield::new();
        let mut queues = lock(&self.queues);
        queues.look(self);
        self.tap.flush();
    }
}

/// Moves a descriptor out of the way of the program's own.
fn aside(fd: i32) -> std::io::Result<i32> {
    descriptors::aside(fd).map_err(|error| std::io::Error::from_raw_os_error(error.0))
}

/// The device of a descriptor, if it is one that is observed.
fn device(fd: c_int) -> Option<u8> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < LIMIT)?;
    let card = DEVICE[fd].load(Ordering::Acquire).checked_sub(1)?;
    let file = descriptors::identity(fd as c_int);
    if file == Some(FILE[fd].load(Ordering::Acquire)) {
        return Some(card);
    }
    // The descriptor was closed, and is another file's now.
    DEVICE[fd].store(0, Ordering::Release);
    None
}

/// A request of the program to the kernel: passes it on, and reads what came of it.
///
/// # Safety
/// As for `ioctl` of the C library.
pub(super) unsafe fn ioctl(fd: c_int, argument: *mut c_void) -> c_int {
    let ticket = {
        let _shield = Shield::new();
        requests::asked(fd, argument as u64)
    };
    // SAFETY: the caller keeps the contract of the C library.
    let result = unsafe { real::ioctl(fd, RDMA_VERBS_IOCTL, argument) };
    let error = errno();
    {
        let _shield = Shield::new();
        requests::done(fd, argument as u64, if result == 0 { 0 } else { error }, ticket);
    }
    set_errno(error);
    result
}

/// The program maps a page of a file. Returns `None` if it is no register page of an observed device.
///
/// # Safety
/// With MAP_FIXED, the program does not use the old mapping from `address` on any more.
pub(super) unsafe fn map(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> Option<*mut c_void> {
    if protection & libc::PROT_WRITE == 0 {
        return None;
    }
    let (observer, card) = (Observer::current()?, device(fd)?);
    let _shield = Shield::new();
    let uar = lock(&observer.queues).register_page(fd, offset)?;
    if length != trap::PAGE {
        complain!("a register page of {length} bytes is not traced");
        return None;
    }
    // SAFETY: the caller guarantees that the replaced mapping is not used any more.
    Some(unsafe { page::map(address, protection, flags, fd, offset, (card, uar)) })
}

/// The program closes a descriptor.
pub(super) fn closing(fd: c_int) {
    let Some(observer) = Observer::current() else { return };
    if device(fd).is_some() {
        let _shield = Shield::new();
        let mut queues = lock(&observer.queues);
        queues.look(observer);
        queues.close(fd);
        DEVICE[fd as usize].store(0, Ordering::Release);
    }
}

/// Runs when the program exits: CQEs that were not seen yet are recorded.
extern "C" fn exiting() {
    if let Some(observer) = Observer::current() {
        observer.look();
    }
}

/// Runs in the child of a fork: the devices, the recording and the thread are the parent's.
extern "C" fn forked() {
    OBSERVER.store(std::ptr::null_mut(), Ordering::Release);
    STARTING.store(0, Ordering::Release);
    for device in &DEVICE {
        device.store(0, Ordering::Relaxed);
    }
    trap::forget();
    crate::trace::forget();
}
