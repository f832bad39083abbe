//! The devices of this process, from the first open of a device on.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::super::process::descriptors;
use super::super::process::errno::{self, Errno, Result};
use super::super::process::trap;
use super::super::process::{in_children, lock, own_process};
use super::super::tree::config::{Config, Time};
use super::super::tree::discovery::{Discovery, discovery};
use super::super::tree::table::GidTable;
use super::exports::Exports;
use super::function::{Function, Interrupts};
use super::pins::Bus;
use super::registers::Registers;
use super::umem::Pinned;
use super::watch;
use crate::capture::Capture;
use crate::card::{Card, Explaining, Identity};
use crate::clock::Clock;
use crate::cost::VirtualTime;
use crate::engine::{Engine, Interrupt, Shield};
use crate::fabric::Carrier;
use crate::fabric::udp::Addresses;
use crate::frontend::cm::Manager;
use crate::memory::ProcessMemory;
use crate::private::{complain, system};
use crate::trace::{self, Header, Sink, Tap};

/// The state of a process that has opened a device. Created once and never freed; a forked child
/// starts with its own.
pub(crate) struct Running {
    /// Process it belongs to.
    process: libc::pid_t,
    /// The engine of the devices.
    pub engine: Arc<Engine>,
    /// The kernel driver's state of each device.
    pub functions: Vec<Function>,
    /// Register pages.
    pub registers: Registers,
    /// Memory that the devices may reach.
    pub pinned: Pinned,
    /// Pages of the devices that programs have exported.
    pub exports: Arc<Exports>,
    /// Held while the addresses of ports change, to the end.
    addresses: Mutex<()>,
    /// Connections, once an event channel was opened.
    manager: OnceLock<&'static Manager>,
}

static RUNNING: AtomicPtr<Running> = AtomicPtr::new(std::ptr::null_mut());
/// The process in which a thread is creating this state, or 0. A child forked meanwhile finds that
/// it is not this process.
static STARTING: AtomicI32 = AtomicI32::new(0);

impl Running {
    /// Returns this process's state, if there is one.
    pub fn current() -> Option<&'static Self> {
        // SAFETY: the pointer is null, or it comes from a box that `get` has leaked.
        let running = unsafe { RUNNING.load(Ordering::Acquire).as_ref() }?;
        (running.process == own_process()).then_some(running)
    }

    /// Returns this process's state, creating it at the first call.
    pub fn get() -> Result<&'static Self> {
        loop {
            if let Some(running) = Self::current() {
                return Ok(running);
            }
            // The thread that creates it blocks all others until it is done.
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
                    watch::start();
                }),
            };
            STARTING.store(0, Ordering::Release);
            made?;
        }
    }

    /// Returns the process's connections, and makes the process an agent of the ports.
    pub fn manager(&self) -> &'static Manager {
        self.manager.get_or_init(|| {
            // Like this state, it is there until the process ends.
            let manager: &'static Manager =
                Box::leak(Box::new(Manager::new(self.engine.neighbours())));
            self.engine.manage(Arc::new(manager));
            // SAFETY: `exiting` has the required type.
            unsafe { libc::atexit(exiting) };
            manager
        })
    }

    /// Gives a device's port a default GID, and changes its addresses: in the device, in the GID table and the
    /// files that show it, and for connections. Then tells programs. Without a default GID the port has lost
    /// its interface. An entry of an address that the port still has stays as it is.
    pub fn change_addresses(
        &self,
        index: usize,
        default: Option<[u8; 16]>,
        change: impl FnOnce(&mut Addresses),
    ) -> Result<()> {
        let Discovery::On(offer) = discovery() else { return Err(Errno::ENODEV) };
        let function = self.functions.get(index).ok_or(Errno::ENODEV)?;
        let _turn = lock(&self.addresses);
        let before = function.addresses();
        let mut addresses = before.clone();
        change(&mut addresses);
        // An interface of a VLAN may have another name alone.
        let is_renamed = before.vlans != addresses.vlans;
        let events = function.set_gids(default, addresses);
        if events == 0 && !is_renamed {
            return Ok(());
        }
        if let Some(manager) = self.manager.get() {
            manager.set_neighbours(self.engine.neighbours());
        }
        let tables: Vec<GidTable> = self.functions.iter().map(Function::gids).collect();
        let tables: Vec<&GidTable> = tables.iter().collect();
        if let Err(error) = offer.tree.renew(&offer.devices, &tables, offer.config.node) {
            complain!("files of sysfs show the GIDs of before: {error}; free space in the folder");
        }
        function.tell_gids(events);
        Ok(())
    }

    fn start() -> Result<Self> {
        let Discovery::On(offer) = discovery() else { return Err(Errno::ENODEV) };
        // The parent of a fork may have changed addresses.
        offer.tree.reset();
        static ASKED: AtomicBool = AtomicBool::new(false);
        in_children(&ASKED, forked);
        let guarded = trap::installed() || trap::install();
        let pinned = Pinned::default();
        // SAFETY: the handlers of `trap` call `recover`, and are never removed. The addresses are
        // those of memory that the program has registered. No reference covers that memory while a
        // device may access it.
        let memory = unsafe { ProcessMemory::new(guarded) };
        let exports = Arc::<Exports>::default();
        let memory = Arc::new(Bus { memory, pins: pinned.pins.clone(), exports: exports.clone() });
        let host = (offer.config.time == Time::Virtual).then(Arc::<VirtualTime>::default);
        // Virtual time repeats a run, with all its numbers.
        let seed = if host.is_some() { 0 } else { seed() };
        let identities: Vec<Identity> = offer.identities(seed).collect();
        let tap = tap(&offer.config, &identities, host.as_ref())?;
        let capture = capture(&offer.config, &identities)?;
        let explaining: Option<&Explaining> =
            offer.config.explains.then(|| &*Box::leak(Box::default()));
        if let Some(explaining) = explaining {
            errno::explain_to(explaining);
        }
        let make = |(index, identity): (usize, Identity)| {
            let mut card = Card::new(identity, memory.clone(), Clock::real());
            if let Some(host) = &host {
                let costs = card.identity.profile.costs();
                card.keep_virtual_time(host, costs);
            }
            if let Some(tap) = &tap {
                card.tap(tap, index as u8);
            }
            if let Some(capture) = &capture {
                card.capture(capture, index);
            }
            if let Some(explaining) = explaining {
                card.explain_to(explaining, index);
            }
            card
        };
        let cards = identities.into_iter().enumerate().map(make).collect();
        let interrupts: Arc<Vec<Interrupts>> =
            Arc::new(offer.devices.iter().map(|_| Interrupts::default()).collect());
        let serve = interrupts.clone();
        // Devices of different links cannot reach each other, so they do not try.
        let domain = offer.config.network.domain(offer.config.link);
        let interrupt: Interrupt = Box::new(move |index, card, vector| {
            if let Some(interrupts) = serve.get(index) {
                interrupts.serve(card, vector);
            }
        });
        let engine = match offer.config.network.carrier {
            Carrier::Machine if offer.interfaces.is_empty() => {
                Engine::connected(&domain, cards, interrupt)
            }
            Carrier::Machine => Engine::on_interfaces(&domain, cards, interrupt),
            Carrier::Udp => Engine::on_network(&domain, &offer.interfaces, cards, interrupt),
        }
        .map_err(|error| {
            complain!("the cards cannot reach other processes: {error}");
            Errno(error.raw_os_error().unwrap_or(libc::EIO))
        })?;
        let functions = offer
            .devices
            .iter()
            .enumerate()
            .map(|(index, device)| Function::probe(&engine, index, device, interrupts.clone()))
            .collect::<Result<Vec<_>>>()
            .inspect_err(|error| {
                complain!(
                    "a card cannot be initialized: {}",
                    std::io::Error::from_raw_os_error(error.0)
                );
            })?;
        // The driver's own start is over: faults count the program's commands.
        for function in &functions {
            function.enter(|card| card.set_faults(&offer.config.faults, function.index));
        }
        Ok(Self {
            process: own_process(),
            engine,
            functions,
            registers: Registers::new()?,
            pinned,
            exports,
            addresses: Mutex::default(),
            manager: OnceLock::new(),
        })
    }
}

/// Starts the recording, if one is requested. If it cannot be written, reports that and fails, so
/// that no device is opened: the user asked for a recorded run.
fn tap(
    config: &Config,
    cards: &[Identity],
    host: Option<&Arc<VirtualTime>>,
) -> Result<Option<Arc<Tap>>> {
    let Some((name, detail)) = &config.trace else { return Ok(None) };
    let sink =
        Sink::open(name, aside).map_err(|error| refused("MLX5_MODEL_TRACE", name, &error))?;
    let header = Header::of_this_process(cards.to_vec(), *detail);
    Ok(Some(match host {
        Some(host) => Tap::recording(sink, &header.repeatable(), Clock::Source(host.clone())),
        None => Tap::recording(sink, &header, Clock::real()),
    }))
}

/// Starts the capture, if one is requested. If it cannot be written, reports that and fails, so
/// that no device is opened: the user asked for a captured run.
fn capture(config: &Config, cards: &[Identity]) -> Result<Option<Arc<Capture>>> {
    let Some(name) = &config.capture else { return Ok(None) };
    let capture = Sink::create(name, aside).and_then(|sink| Capture::start(sink, cards));
    capture.map(Some).map_err(|error| refused("MLX5_MODEL_CAPTURE", name, &error))
}

/// Moves a descriptor out of the way of the program's own.
fn aside(fd: i32) -> std::io::Result<i32> {
    descriptors::aside(fd).map_err(|error| std::io::Error::from_raw_os_error(error.0))
}

/// Reports why an output cannot be written.
fn refused(variable: &str, name: &str, error: &std::io::Error) -> Errno {
    complain!("{variable} is {name}: {error}");
    Errno(error.raw_os_error().unwrap_or(libc::EBUSY))
}

/// Returns a seed that distinguishes this process's devices from those of others.
fn seed() -> u64 {
    let mut seed = [0; 8];
    // SAFETY: `seed` has the length given. If the kernel has no randomness yet, the process number
    // is enough: the devices' randomness is for numbering.
    let got =
        unsafe { system::getrandom(seed.as_mut_ptr().cast(), seed.len(), libc::GRND_NONBLOCK) };
    if got == seed.len() as isize {
        u64::from_ne_bytes(seed)
    } else {
        u64::from(std::process::id())
    }
}

/// Runs when the program exits: ends its connections, so that their peers need no time-out. A
/// program that is killed ends without.
extern "C" fn exiting() {
    let Some(running) = Running::current() else { return };
    if let Some(manager) = running.manager.get() {
        running.engine.enter(0, |_| manager.end());
    }
}

/// Runs in the child of a fork: drops the devices, files and threads, which are the parent's.
extern "C" fn forked() {
    RUNNING.store(std::ptr::null_mut(), Ordering::Release);
    STARTING.store(0, Ordering::Release);
    trap::forget();
    crate::stores::forget();
    trace::forget();
    errno::forget();
}
