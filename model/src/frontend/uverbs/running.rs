//! The devices of this process, from the first open of a device on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering};

use super::config::Config;
use super::descriptors::{self, Descriptors};
use super::discovery::{Discovery, discovery};
use super::errno::{Errno, Result};
use super::function::{Function, Interrupts};
use super::pins::{Bus, Pins};
use super::uar::Registers;
use super::umem::Records;
use super::{trap, visitor};
use crate::card::{Card, Identity, Link};
use crate::clock::Clock;
use crate::engine::{Engine, Shield, identities};
use crate::memory::ProcessMemory;
use crate::trace::{self, Header, Sink, Tap};

/// Everything of a process that has opened a device. Made once and never freed; a forked child
/// starts over with its own.
pub(super) struct Running {
    /// Process it belongs to.
    process: libc::pid_t,
    /// The cards.
    pub engine: Arc<Engine>,
    /// What the kernel's driver keeps of each card.
    pub functions: Vec<Function>,
    /// Open files.
    pub descriptors: Descriptors,
    /// Register pages.
    pub registers: Registers,
    /// Pages that are pinned, against the limit of locked memory.
    pub pinned: AtomicU64,
    /// Those of doorbell records.
    pub records: Records,
    /// Where pinned pages are.
    pub pins: Arc<Pins>,
}

static RUNNING: AtomicPtr<Running> = AtomicPtr::new(std::ptr::null_mut());
/// The process of which some thread is about to make it, or 0. A child that was forked meanwhile
/// sees that it is not the one.
static STARTING: AtomicI32 = AtomicI32::new(0);

impl Running {
    /// What runs in this process, if anything does.
    pub fn current() -> Option<&'static Self> {
        // SAFETY: null, or from a box that `get` has leaked.
        let running = unsafe { RUNNING.load(Ordering::Acquire).as_ref() }?;
        (running.process == own_process()).then_some(running)
    }

    /// What runs in this process, starting it at the first call.
    pub fn get() -> Result<&'static Self> {
        loop {
            if let Some(running) = Self::current() {
                return Ok(running);
            }
            // Whoever starts it holds up all others until it is done.
            let _shield = Shield::new();
            let process = own_process();
            let starting = STARTING.load(Ordering::Relaxed);
            if starting == process
                || STARTING
                    .compare_exchange(starting, process, Ordering::Acquire, Ordering::Relaxed)
                    .is_err()
            {
                std::thread::yield_now();
                continue;
            }
            let made = match Self::current() {
                Some(_) => Ok(()),
                None => Self::start().map(|running| {
                    RUNNING.store(Box::into_raw(Box::new(running)), Ordering::Release);
                }),
            };
            STARTING.store(0, Ordering::Release);
            made?;
        }
    }

    fn start() -> Result<Self> {
        let Discovery::On(offer) = discovery() else { return Err(Errno::ENODEV) };
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.swap(true, Ordering::AcqRel) {
            // SAFETY: `forked` has the type asked for, and takes no lock: it stores to atomics and closes
            // descriptors.
            unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        }
        let guarded = trap::installed() || trap::install();
        let pins = Arc::new(Pins::default());
        // SAFETY: the handlers of `trap` ask `recover`, and stay. The addresses are those of memory that
        // the program has registered, which no reference covers while a card may access it.
        let memory = unsafe { ProcessMemory::new(guarded) };
        let memory = Arc::new(Bus { memory, pins: pins.clone() });
        let identities: Vec<Identity> = identities(offer.devices.len(), offer.config.link, seed())
            .into_iter()
            .map(|identity| offer.config.applied_to(identity))
            .collect();
        let tap = tap(&offer.config, &identities)?;
        let make = |(index, identity): (usize, Identity)| {
            let mut card = Card::new(identity, memory.clone(), Clock::real());
            if let Some(tap) = &tap {
                card.tap(tap, index as u8);
            }
            card
        };
        let cards = identities.into_iter().enumerate().map(make).collect();
        let interrupts: Arc<Vec<Interrupts>> =
            Arc::new(offer.devices.iter().map(|_| Interrupts::default()).collect());
        let serve = interrupts.clone();
        // Cards of different links cannot reach each other, so they do not try.
        let domain = match offer.config.link {
            Link::InfiniBand => "infiniband",
            Link::Roce => "roce",
        };
        let engine = Engine::connected(
            domain,
            cards,
            Box::new(move |index, card, vector| {
                if let Some(interrupts) = serve.get(index) {
                    interrupts.serve(card, vector);
                }
            }),
        )
        .map_err(|error| {
            eprintln!("mlx5-model: the cards cannot reach other processes: {error}");
            Errno(error.raw_os_error().unwrap_or(libc::EIO))
        })?;
        let functions = offer
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| Function::probe(&engine, index, device, interrupts.clone()))
            .collect::<Result<Vec<_>>>()
            .inspect_err(|error| {
                eprintln!(
                    "mlx5-model: a card cannot be initialized: {}",
                    std::io::Error::from_raw_os_error(error.0)
                );
            })?;
        Ok(Self {
            process: own_process(),
            engine,
            functions,
            descriptors: Descriptors::default(),
            registers: Registers::new()?,
            pinned: AtomicU64::new(0),
            records: Records::default(),
            pins,
        })
    }
}

/// The number of this process.
pub(super) fn own_process() -> libc::pid_t {
    std::process::id() as libc::pid_t
}

/// Begins the stream of what the cards do, where one is asked for. What cannot be written is said, and
/// no device is opened: a program that runs without is not what was asked for.
fn tap(config: &Config, cards: &[Identity]) -> Result<Option<Arc<Tap>>> {
    let Some((name, replayable)) = &config.trace else { return Ok(None) };
    let aside =
        |fd| descriptors::aside(fd).map_err(|error| std::io::Error::from_raw_os_error(error.0));
    let sink = Sink::open(name, aside).map_err(|error| {
        eprintln!("mlx5-model: MLX5_MODEL_TRACE is {name}: {error}");
        Errno(error.raw_os_error().unwrap_or(libc::EBUSY))
    })?;
    let header = Header::of_this_process(cards.to_vec(), *replayable);
    Ok(Some(Tap::recording(sink, &header)))
}

/// What sets the cards of this process apart from those of others.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // SAFETY: the buffer has the length given. Where the kernel has no randomness yet, the process
    // number has to do: the cards' randomness is for numbering.
    let got = unsafe { libc::getrandom(seed.as_mut_ptr().cast(), seed.len(), libc::GRND_NONBLOCK) };
    if got == seed.len() as isize {
        u64::from_ne_bytes(seed)
    } else {
        u64::from(std::process::id())
    }
}

/// In the child of a fork: the cards, files and threads are the parent's.
extern "C" fn forked() {
    RUNNING.store(std::ptr::null_mut(), Ordering::Release);
    STARTING.store(0, Ordering::Release);
    descriptors::forget();
    trap::forget();
    visitor::forget();
    crate::stores::forget();
    trace::forget();
}
