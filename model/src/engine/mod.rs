//! Runs devices: carries packets between them and to other processes, delivers interrupts, fires
//! timers.
//!
//! # What is done when an entry returns
//!
//! A thread of the program enters a device with [`Engine::enter`] or by a store. When the entry
//! returns, the work that it started in this process is complete:
//!
//! - All requests that it told the device of are executed, as far as they wait for no timer, no other
//!   process, and no further action of the program.
//! - All frames that follow are received by their devices, in whichever device of the process, and so
//!   are the answers, and so on. Their CQEs are written and their events raised.
//! - It does not matter which threads have done the work, or are in a device.
//!
//! After [`ENTRY`] frames, its own and those of others that it finds, the entry leaves the rest to the
//! engine's thread. Stores of signal handlers are executed later: see `deferred`.
//!
//! The engine's own thread waits for packets from other processes and for timers. It is started when
//! first needed, with every signal blocked except those of memory faults.
//!
//! # Locks
//!
//! Each device has a lock, and threads work in different devices at the same time. A thread takes
//! locks in this order:
//!
//! 1. the order (`pace`), if the devices are recorded or keep virtual time: the calls of all devices
//!    are one sequence;
//! 2. a device (`device`). A thread has several only if it stops all devices, which it takes by
//!    index, or has the order while it goes from one to the next;
//! 3. what devices share (`shared`): the sockets, or the agent's own lock;
//! 4. an inbox (`inbox`) or a queue of deferred stores (`deferred`), for the copy of one entry.
//!
//! A frame for another device of the process goes to that device's inbox. It counts as waiting there
//! until its consequences are complete, or wait in other devices. So the work of an entry is always
//! seen in some device. A thread that has left a device looks at all devices ([`Engine::attend`]):
//!
//! - It enters those with work that no thread is in, and does the work.
//! - If another thread is in a device with work, a thread whose entry has left frames for another
//!   device waits for the lock. It has no other device then, so no thread waits for it. It returns
//!   when it has seen all devices without work, and no frame was put into an inbox meanwhile.
//! - A thread that meets others at work several times stops all devices and does what waits in them.
//!   So it does not wait for ever for threads that go on.
//! - A thread whose entry has left nothing, and the engine's thread, leave the work to the thread in
//!   the device.
//!
//! Nothing is lost: a thread looks at the lock after it has left its work, and the owner of the lock
//! looks for work after it has released the lock.
//!
//! In virtual time the thread that has the order does all that its entry leads to, in whatever device
//! (`pace`). Its frames wait in the order, not in inboxes.
//!
//! # Bounds
//!
//! Without virtual time, time in a device is bounded. A thread leaves a device after [`TURN`] frames,
//! and enters again for the rest. An entry carries at most [`ENTRY`] frames, and a turn of the
//! engine's thread [`TURN`]. Work that sends no frame counts as well: a turn of a queue pair, and each
//! 4 KiB that the device copies or of a list that a UMR changes, count as a frame. Once the thread
//! runs, timers fire only in it, some at a time, and take at most half of its time. A lock is handed
//! over to threads that have waited (`lock`). An entry also takes in packets from other processes, so
//! that answers are seen even while the engine's thread waits for a processor, or naps.
//!
//! While a thread is inside, no signal handler of the program runs in it and it is not cancelled
//! (`shield`). A store that finds another thread in its device waits a bounded time. Then the
//! processor repeats it, with signals delivered in between. Once the store is executed, signals wait
//! until its entry returns: for at most [`ENTRY`] frames, and for the turns of threads in other
//! devices.
//!
//! All processes of one machine that share a *domain* hold slices of the same devices: the same
//! ports, with the same LIDs, MACs, GIDs and GUIDs. The fabric carries a frame to the port of its
//! address, and to the process that has the QP number there.

mod agent;
mod attend;
mod config;
mod deferred;
mod delivery;
mod device;
mod inbox;
mod lock;
mod neighbour;
mod outside;
mod pace;
mod process;
mod shared;
mod shield;
#[cfg(test)]
mod test;
mod thread;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

pub use agent::{Agent, Listening, Reserved};
pub use config::{DEVICES, identities};
pub(crate) use deferred::{Registers, Stores};
pub(crate) use neighbour::{Neighbours, Unresolved};
pub(crate) use shield::{Shield, Uncancelled, is_inside};
pub(crate) use thread::{be_brief, spawn};

use crate::card::Card;
use crate::fabric::Carrier;
use crate::fabric::local::{Network, Waits};
use crate::fabric::udp::{Interface, Udp};
use crate::identity::Identity;
use device::{Budget, Device, Inside, Seat, Worker};
use lock::{Guard, Lock};
use pace::Order;
use shared::{Directory, Outside, Times};

/// Delivers an MSI-X vector: the device's index, the device, the vector.
pub type Interrupt = Box<dyn Fn(usize, &mut Card, u32) + Send + Sync>;

/// QP numbers in a prefix.
const NUMBERS: usize = 256;
/// Another prefix is claimed when fewer numbers than this are free.
const SPARE: usize = 64;
/// Frames that one entry of a program carries; the thread carries the rest.
const ENTRY: usize = 1 << 16;
/// Frames that a thread carries before it leaves a device, and that the engine's thread carries in a
/// turn.
const TURN: usize = 1 << 10;
/// Longest time a store waits for a device before signals are delivered.
const STORE: Duration = Duration::from_millis(10);
/// Nanoseconds between the times at which entries take in packets from other processes.
const INTAKE: u64 = 1_000_000;
/// The same while the thread naps.
const INTAKE_IN_NAP: u64 = 20_000;

/// The devices of this process and the connections between them.
pub struct Engine {
    devices: Vec<Device>,
    /// Held in a device if the devices are recorded or keep virtual time.
    order: Option<Lock<Order>>,
    /// Whether the devices keep virtual time. All do, or none.
    is_virtual: bool,
    interrupt: Interrupt,
    /// The recipient of management datagrams.
    agent: OnceLock<Arc<dyn Agent>>,
    directory: Directory,
    outside: Mutex<Outside>,
    times: Times,
    /// Counts the notes that were left for devices.
    notes: AtomicUsize,
    /// The carrier of packets of ports that are on interfaces. `None` if they are on none.
    carrier: Option<Carrier>,
    /// The engine itself, for its thread.
    own: Weak<Self>,
    /// Set in the child of a fork: the devices are copies of the parent's, without wire and thread.
    detached: AtomicBool,
    /// The descriptors that wake the thread.
    waits: Option<Arc<Waits>>,
    /// Whether the thread runs.
    runs: AtomicBool,
}

/// Devices that no thread is in.
struct Stopped<'a> {
    // Dropped in this order.
    seats: Vec<Guard<'a, Seat>>,
    _order: Option<Guard<'a, Order>>,
}

impl Engine {
    /// Creates an engine for devices that reach only each other. They run only while a thread is
    /// inside [`Engine::enter`]: there is no engine thread, and a due timer fires at the next
    /// entry. Devices without QP number prefixes are given some.
    pub fn new(cards: Vec<Card>, interrupt: Interrupt) -> Arc<Self> {
        let engine = Self::with(cards, interrupt, None, None, None);
        let _ = engine.publish();
        engine
    }

    /// Creates an engine for devices that also reach those of other processes. These are the
    /// processes on this machine and in this network namespace that name the same domain. The
    /// engine claims prefixes of QP numbers for each device.
    ///
    /// # Errors
    /// - Any error of creating and binding a local socket.
    /// - `AddrInUse` if no prefix is free.
    pub fn connected(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        Self::start(domain, cards, interrupt, None, None)
    }

    /// Creates an engine like [`Engine::connected`], for devices whose ports are on network interfaces.
    ///
    /// # Errors
    /// Those of [`Engine::connected`].
    pub(crate) fn on_interfaces(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        Self::start(domain, cards, interrupt, Some(Carrier::Machine), None)
    }

    /// Creates an engine like [`Engine::connected`], for devices that also reach ports outside this
    /// machine, each on a network interface.
    ///
    /// # Errors
    /// - Any error of creating and binding a socket.
    /// - `AddrInUse` if no prefix is free, or another program has UDP port 4791 of an address.
    pub(crate) fn on_network(
        domain: &str,
        ports: &[Interface],
        cards: Vec<Card>,
        interrupt: Interrupt,
    ) -> io::Result<Arc<Self>> {
        let udp = Udp::new(domain, ports)?;
        Self::start(domain, cards, interrupt, Some(Carrier::Udp), Some(udp))
    }

    fn start(
        domain: &str,
        cards: Vec<Card>,
        interrupt: Interrupt,
        carrier: Option<Carrier>,
        udp: Option<Udp>,
    ) -> io::Result<Arc<Self>> {
        let mut seed = cards.first().map_or(0, |card| card.identity.seed);
        // Do not reuse at once the prefixes of a process that has just ended: its peers may still be
        // repeating packets to them. Virtual time repeats a run, with its prefixes.
        if !cards.iter().any(Card::keeps_virtual_time) {
            seed ^= u64::from(std::process::id()) << 32 ^ wall_clock();
        }
        let network = Network::new(domain, seed)?;
        if let Some(udp) = &udp {
            network.watch_outside(udp.descriptor())?;
        }
        let engine = Self::with(cards, interrupt, carrier, Some(network), udp);
        engine.publish()?;
        process::register(&engine);
        Ok(engine)
    }

    fn with(
        cards: Vec<Card>,
        interrupt: Interrupt,
        carrier: Option<Carrier>,
        network: Option<Network>,
        udp: Option<Udp>,
    ) -> Arc<Self> {
        let waits = network.as_ref().map(|network| Arc::clone(&network.waits));
        let recorded = cards.iter().any(|card| card.tapping.is_some());
        let is_virtual = cards.iter().any(Card::keeps_virtual_time);
        let ports: Arc<[Identity]> = cards.iter().map(|card| card.identity.clone()).collect();
        Arc::new_cyclic(|own| Self {
            devices: cards.into_iter().map(|card| Device::new(card, ports.clone())).collect(),
            order: (recorded || is_virtual).then(|| Lock::new(Order::default())),
            is_virtual,
            interrupt,
            agent: OnceLock::new(),
            directory: Directory::new(ports),
            carrier,
            outside: Mutex::new(Outside { network, udp }),
            times: Times::new(),
            notes: AtomicUsize::new(0),
            own: own.clone(),
            detached: AtomicBool::new(false),
            waits,
            runs: AtomicBool::new(false),
        })
    }

    /// Publishes all devices, each with a prefix of QP numbers.
    fn publish(&self) -> io::Result<()> {
        let _shield = Shield::new();
        (0..self.devices.len()).try_for_each(|index| self.inside(index).publish())
    }

    /// Calls `work` with a device, then executes its consequences until nothing is left to do in
    /// this process: packets between local devices are delivered, those for other processes are
    /// sent, interrupts are raised, the thread's next wake-up is set. After [`ENTRY`] frames the
    /// rest is left to the thread.
    ///
    /// Signals and cancellation wait until it returns. Must not be called inside `work` or from an
    /// interrupt.
    ///
    /// # Panics
    /// If there is no such device.
    pub fn enter<R>(&self, card: usize, work: impl FnOnce(&mut Card) -> R) -> R {
        let shield = Shield::new();
        let mut budget = self.budget();
        let mut inside = self.inside(card);
        inside.begin(&mut budget);
        let result = work(&mut inside.seat.card);
        if let Err(error) = inside.publish() {
            tracing::warn!(%error, "the device is not reached at all its addresses and numbers");
        }
        self.finish(inside, &mut budget);
        drop(shield);
        self.settle(&budget);
        result
    }

    /// Enters a device for stores or a load that faulted; the fault handler blocks signals and cancellation
    /// itself. Returns `None` if another thread kept the device for [`STORE`]. Then the handler
    /// returns, pending signals are delivered, and the processor tries again.
    pub(crate) fn enter_from_fault<R>(
        &self,
        card: usize,
        work: impl FnOnce(&mut Card) -> R,
    ) -> Option<R> {
        let inside = self.inside_within(card, STORE)?;
        Some(self.enter_with(inside, work))
    }

    /// Records stores of a signal handler, to be executed at the next entry, which is the engine
    /// thread's at the latest. Does not allocate. Returns `None` if that is not possible now for the
    /// store that is not done.
    pub(crate) fn defer(
        &self,
        card: usize,
        page: &'static dyn Registers,
        stores: &mut dyn Stores,
    ) -> Option<()> {
        let waits = self.waits.as_ref().filter(|_| self.runs())?;
        let all = self.devices[card].work.deferred.put_all(page, stores);
        waits.ring();
        all.then_some(())
    }

    /// Leaves a store for a device, at most [`deferred::LONGEST`] bytes. The caller is in a device: in this
    /// one or in another one. It executes the store before its entry returns, or another thread does that is
    /// in the device.
    ///
    /// # Panics
    /// If there is no such device, or the store is longer.
    pub(crate) fn leave_store(
        &self,
        card: usize,
        page: &'static dyn Registers,
        offset: usize,
        bytes: &[u8],
    ) {
        let store = deferred::Store::new(page, offset, bytes).expect("a store of a few words");
        self.devices[card].work.deferred.put_from_device(store);
    }

    /// Calls `work` while no thread is in any device.
    pub(crate) fn while_stopped<R>(&self, work: impl FnOnce() -> R) -> R {
        let shield = Shield::new();
        let mut stopped = self.stop();
        for (seat, device) in stopped.seats.iter_mut().zip(&self.devices) {
            // What the program has posted before, it has posted with this memory.
            while let Some(store) = device.work.deferred.take() {
                store.execute(&mut seat.card);
                device.work.set_unfinished(true);
            }
        }
        let result = work();
        drop(stopped);
        let mut budget = self.budget();
        self.attend(&mut budget);
        drop(shield);
        self.settle(&budget);
        result
    }

    /// Waits until no thread is in any device, and keeps threads out.
    fn stop(&self) -> Stopped<'_> {
        let order = self.order.as_ref().map(|order| order.lock());
        let seats = self.devices.iter().map(|device| device.lock.lock()).collect();
        Stopped { seats, _order: order }
    }

    /// Does a fault's work in a device, and its consequences.
    fn enter_with<R>(&self, mut inside: Inside<'_>, work: impl FnOnce(&mut Card) -> R) -> R {
        let mut budget = self.budget();
        inside.begin(&mut budget);
        let result = work(&mut inside.seat.card);
        self.finish(inside, &mut budget);
        self.settle(&budget);
        result
    }

    /// Executes the consequences of the work of a thread in a device, and leaves it.
    fn finish(&self, mut inside: Inside<'_>, budget: &mut Budget) {
        self.take_in(inside.index);
        let runs = self.runs();
        if let (false, Some(agent)) = (runs, self.agent.get()) {
            agent.expire();
        }
        inside.attend(budget);
        let index = inside.index;
        drop(inside);
        if !runs && !self.is_virtual {
            // Timers of the other devices: no thread fires them.
            for other in (0..self.devices.len()).filter(|other| *other != index) {
                if let Some(mut inside) = self.inside_within(other, Duration::ZERO) {
                    inside.attend(budget);
                }
            }
        }
        self.attend(budget);
    }

    /// Returns what a thread of the program may do at most in an entry.
    fn budget(&self) -> Budget {
        let frames = if self.runs() { ENTRY } else { usize::MAX };
        Budget::new(Worker::Program, frames)
    }

    /// Returns whether ports that are not on this machine can be reached.
    fn is_on_network(&self) -> bool {
        self.carrier == Some(Carrier::Udp)
    }

    /// Changes the addresses of a device's interface, from and at which packets are sent and received
    /// outside this machine.
    pub(crate) fn set_addresses(&self, card: usize, addresses: &[[u8; 16]]) {
        let _shield = Shield::new();
        if let Some(udp) = &mut self.outside().udp {
            udp.set_addresses(card, addresses, self);
        }
    }

    fn start_thread(&self) {
        let Some(waits) = self.waits.as_ref().filter(|_| !self.is_detached()) else { return };
        // One thread at a time is here.
        let _outside = self.outside();
        if self.runs() {
            return;
        }
        match thread::start(self.own.clone(), Arc::clone(waits)) {
            Ok(()) => self.runs.store(true, Ordering::Release),
            // The next entry tries again.
            Err(error) => tracing::error!(%error, "cannot start the engine's thread"),
        }
    }

    /// Returns whether the engine's thread runs.
    fn runs(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// Returns the number of devices.
    pub fn cards(&self) -> usize {
        self.devices.len()
    }

    /// Returns whether this is a forked child's copy of the engine. Then no packet reaches other
    /// processes and no timer fires. A device opened now needs a new engine.
    pub fn is_detached(&self) -> bool {
        self.detached.load(Ordering::Relaxed)
    }
}

/// Returns the wall-clock nanoseconds: entropy, not time.
fn wall_clock() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(network) = &self.outside().network {
            network.stop();
        }
    }
}
