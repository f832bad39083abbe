//! State that the devices of a process share: the way to other processes and hosts, the addresses of the
//! ports, and the times of the engine.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use super::inbox::Note;
use super::{Engine, INTAKE, INTAKE_IN_NAP};
use crate::clock;
use crate::fabric::Devices;
use crate::fabric::local::{self, Network, RESERVED};
use crate::fabric::udp::Udp;
use crate::identity::Identity;
use crate::wire::{Frame, LinkAddress, Way};

/// The way out of the process.
pub(super) struct Outside {
    /// To other processes of the machine.
    pub(super) network: Option<Network>,
    /// To ports that are not on this machine.
    pub(super) udp: Option<Udp>,
}

/// The identities of the devices, by which frames find their device.
pub(super) struct Directory {
    ports: RwLock<Arc<[Identity]>>,
    /// Counts the changes.
    version: AtomicUsize,
}

impl Directory {
    pub(super) fn new(ports: Arc<[Identity]>) -> Self {
        Self { ports: RwLock::new(ports), version: AtomicUsize::new(0) }
    }

    pub(super) fn version(&self) -> usize {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn ports(&self) -> Arc<[Identity]> {
        self.ports.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the identity of a device.
    pub(super) fn publish(&self, card: usize, identity: &Identity) {
        let mut ports = self.ports.write().unwrap_or_else(PoisonError::into_inner);
        let new = ports.iter().enumerate();
        *ports = new.map(|(at, old)| if at == card { identity } else { old }).cloned().collect();
        self.version.fetch_add(1, Ordering::Release);
    }
}

/// Returns the device at an address that has a QP number. The management queue pairs are behind
/// every device at the address.
pub(super) fn owner(ports: &[Identity], to: LinkAddress, number: u32) -> Option<usize> {
    let prefix = local::prefix(number);
    ports.iter().position(|port| {
        port.has_address(to) && (prefix == local::MANAGEMENT || port.qpn_prefixes.contains(&prefix))
    })
}

/// Returns the devices at whose ports a frame arrives that the fabric forwards like a switch: those
/// with its address. A frame to a group arrives at all ports, and a frame to an address that no port
/// has at all but the port that sent it, `from`. A device gives back to its port only frames to that
/// port and to groups.
pub(super) fn reached(
    ports: &[Identity],
    from: LinkAddress,
    frame: &Frame,
    is_attached: impl FnOnce(LinkAddress) -> bool,
) -> Vec<usize> {
    let Some(to) = ports.first().and_then(|port| LinkAddress::of(port.link, &frame.0)) else {
        return Vec::new();
    };
    if to.is_group() {
        return (0..ports.len()).collect();
    }
    let select = |at: &dyn Fn(&Identity) -> bool| -> Vec<usize> {
        ports.iter().enumerate().filter(|(_, port)| at(port)).map(|(index, _)| index).collect()
    };
    let owners = select(&|port| port.has_address(to));
    if !owners.is_empty() || is_attached(to) {
        return owners;
    }
    select(&|port| !port.has_address(from))
}

/// Returns a prefix for devices that no other process can reach, unique in this process.
pub(super) fn next_prefix() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    loop {
        let prefix = NEXT.fetch_add(1, Ordering::Relaxed);
        if !RESERVED.contains(&prefix) {
            return prefix;
        }
    }
}

/// Times, in nanoseconds since the start of the engine.
pub(super) struct Times {
    epoch: Instant,
    /// Before this time no further timers fire.
    pub(super) rest: AtomicU64,
    /// From this time on entries take in packets from other processes again.
    pub(super) intake: AtomicU64,
    /// Whether the thread naps, and is not woken by packets.
    pub(super) naps: AtomicBool,
    /// Entries of the program that sent frames to other processes since the thread last looked.
    pub(super) entries: AtomicUsize,
    /// The time at which the thread wakes up; `u64::MAX` if it sleeps until a packet comes.
    armed: AtomicU64,
}

impl Times {
    pub(super) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            rest: AtomicU64::new(0),
            intake: AtomicU64::new(0),
            naps: AtomicBool::new(false),
            entries: AtomicUsize::new(0),
            armed: AtomicU64::new(u64::MAX),
        }
    }

    /// Returns the engine's time at an instant; 0 before the engine's start.
    pub(super) fn at(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.epoch).as_nanos() as u64
    }

    /// Returns the engine's time.
    pub(super) fn now(&self) -> u64 {
        clock::since(self.epoch)
    }
}

impl Engine {
    pub(super) fn outside(&self) -> MutexGuard<'_, Outside> {
        self.outside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a note for a device.
    pub(super) fn note(&self, card: usize, note: Note) {
        self.devices[card].work.inbox.put(note);
        self.notes.fetch_add(1, Ordering::Release);
    }

    /// Gives a frame to the port of another device. Returns a spent one, if there is any.
    pub(super) fn exchange(&self, card: usize, frame: Frame) -> Option<Frame> {
        let spent = self.devices[card].work.inbox.exchange(frame);
        self.notes.fetch_add(1, Ordering::Release);
        spent
    }

    /// Has the thread wake up at a time, unless it does before that. A thread that changes a
    /// deadline stores it before this call: either the call finds that the thread is awake, or the
    /// thread finds the deadline.
    pub(super) fn wake_at(&self, at: u64) {
        if at == u64::MAX || self.times.armed.load(Ordering::SeqCst) <= at {
            return;
        }
        let mut outside = self.outside();
        let Some(network) = &mut outside.network else { return };
        let now = self.times.now();
        network.arm(now, at.saturating_sub(now));
        self.times.armed.store(network.armed().unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Returns the devices whose frames come by descriptors: see [`Network::recipient`].
    pub(super) fn recipients(&self, tokens: &[u64]) -> Vec<Option<usize>> {
        let outside = self.outside();
        let network = outside.network.as_ref();
        tokens.iter().map(|token| network.and_then(|network| network.recipient(*token))).collect()
    }

    /// Serves descriptors that are ready, by their tokens. The devices find what has come in their
    /// inboxes.
    pub(super) fn serve(&self, tokens: impl Iterator<Item = u64>) {
        let mut outside = self.outside();
        for token in tokens {
            if let Some(network) = &mut outside.network {
                network.ready(token, self);
            }
            if token == local::OUTSIDE {
                self.take_in_from_outside(&mut outside);
            }
        }
        let armed = outside.network.as_ref().and_then(Network::armed);
        self.times.armed.store(armed.unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Takes in packets from other processes to a device that this thread is in, unless that was done
    /// just now or another thread is at it.
    pub(super) fn take_in(&self, card: usize) {
        let now = self.times.now();
        let early = now < self.times.intake.load(Ordering::Relaxed);
        if !self.runs() || early || self.devices.iter().any(|device| device.work.inbox.is_crowded())
        {
            return;
        }
        let Ok(mut outside) = self.outside.try_lock() else { return };
        let naps = self.times.naps.load(Ordering::Relaxed);
        let next = now + if naps { INTAKE_IN_NAP } else { INTAKE };
        self.times.intake.store(next, Ordering::Relaxed);
        if let Some(network) = &mut outside.network {
            network.take_in(card, self);
        }
        self.take_in_from_outside(&mut outside);
    }

    /// Gives the agent's datagrams to the devices that send them. Returns whether there were any.
    pub(super) fn send_management(&self) -> bool {
        let mut any = false;
        while let Some((card, frame)) = self.agent.get().and_then(|agent| agent.take_frame()) {
            self.note(card, Note::Send(frame));
            any = true;
        }
        any
    }
}

impl Devices for Engine {
    fn deliver(&self, card: usize, frame: &Frame) {
        self.devices[card].work.inbox.put_copy(frame);
        self.notes.fetch_add(1, Ordering::Release);
    }

    fn spread(
        &self,
        from: LinkAddress,
        frame: &Frame,
        is_attached: &mut dyn FnMut(LinkAddress) -> bool,
    ) {
        for index in reached(&self.directory.ports(), from, frame, is_attached) {
            self.deliver(index, frame);
        }
    }

    fn set_congested(&self, way: Way, full: bool) {
        for index in 0..self.devices.len() {
            self.note(index, Note::Congested { way, full });
        }
    }
}
