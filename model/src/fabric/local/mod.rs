//! Frames to and from other processes of the machine.
//!
//! A frame finds its process in two steps. The address in its link header names the port. Processes
//! may share a port: the upper 16 bits of the destination's QP number, the *prefix*, then name the
//! process. This second step is private to this module: it hands out prefixes ([`Network::claim`]),
//! and the queue pairs of one prefix at one port are a [`way`].
//!
//! Each prefix at each address of a port has a listening socket named after user, domain, address
//! and prefix. A process with a frame for a prefix connects to it, once, and sends. Connections go
//! one way. Frames that do not fit wait in a backlog, and the queue pairs that send there are stopped
//! meanwhile. If a peer is gone, its frames on the way are lost, as on any network; the transport
//! repeats them or gives up. If no descriptor is free for a connection, packets wait until there is
//! one.
//!
//! Another user can bind any name, but can do nothing else: both ends check credentials. If another
//! user has bound the names of prefixes, a process adds a random end to the name of its prefix, and
//! senders search for it (see [`Network::claim`]).
//!
//! A peer is slow if it runs and has not read its packets yet, or if its packets wait here. The
//! transport counts no time-out against a slow peer. A peer that was stopped is not slow but
//! silent, and so is one that reads nothing for [`STALL`].
//!
//! Prefix 0 is that of QP0 and QP1, which all processes of a port are behind. Each process listens
//! for it under a name with a random end. A frame from another process arrives at one of them.
//!
//! A raw Ethernet frame, or a frame to a multicast group, goes to each process that has registered as
//! a listener (`hall`), which gives it to the ports that a switch would forward it to. The address of
//! the port that sent the frame follows it. A listener whose backlog is full loses frames, and no
//! sender waits for it.

mod bundle;
mod claim;
mod hall;
mod listeners;
mod names;
mod pace;
mod peers;
mod services;
pub(crate) mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::Devices;
use super::wake::{self, watch};
use crate::clock::Random;
use crate::private::{OwnFd, complain, system};
use crate::wire::{Frame, LinkAddress, MULTICAST, Way};
use bundle::{Buffers, Received};
use hall::Hall;
use names::Names;
pub(crate) use pace::{Activity, NAP, Pace, Rest};
use peers::Peer;
pub use services::{Listening, Reserved};
use socket::Fd;

/// Prefix of QP0 and QP1, the management queue pairs of a port.
pub(crate) const MANAGEMENT: u16 = 0;
/// Prefixes of QP numbers that no process has for itself: that of the management queue pairs, and
/// that of multicast.
pub(crate) const RESERVED: [u16; 2] = [MANAGEMENT, (MULTICAST >> 8) as u16];
/// System calls that take from one connection before the others have their turn.
const TURN: usize = 2;
/// Connections from which a program's entry takes packets.
const INTAKE: usize = 16;
/// Time after which an operation that failed for lack of a descriptor is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// Consecutive names in use after which another user is suspected.
const IN_USE: u32 = 256;
/// Prefixes to try after another user has bound their names.
const SQUATTED: u32 = 4096;

/// The descriptors the thread waits on. They outlive the network, so that it can stop the thread.
pub(crate) struct Waits {
    pub(crate) epoll: Fd,
    /// Eventfd, written once: stops the thread.
    stop: Fd,
    /// Eventfd, written for stores of signal handlers.
    bell: Fd,
    /// Whether the thread runs before the program's threads wherever it wakes up.
    pub(crate) raised: AtomicBool,
}

/// The meaning of a descriptor in the epoll set.
enum Source {
    Listener {
        fd: Fd,
        to: Recipient,
    },
    /// The socket at which new listeners announce themselves.
    Door {
        fd: Fd,
    },
    /// A connection from a process that is about to announce itself.
    Caller {
        fd: Fd,
    },
    Inbound {
        fd: Fd,
        to: Recipient,
        process: libc::pid_t,
    },
    Outbound {
        to: Remote,
    },
}

/// The recipient of a connection's frames.
#[derive(Clone, Copy)]
enum Recipient {
    /// One device, by index, at an address of its port.
    Port(usize, LinkAddress),
    /// The devices that a frame arrives at by its own address. The sending port's address follows it.
    All,
}

/// The destination of frames: a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Remote {
    /// By an address of a port, and the prefix of a queue pair's number.
    Process(Way),
    /// By the number that this process has assigned to a listener.
    Listener(u16),
}

/// Returns the way to a queue pair of a port: the queue pairs of one process.
pub(crate) fn way(to: LinkAddress, number: u32) -> Way {
    Way { to, first: number & !0xff, last: number | 0xff }
}

/// Returns the prefix of a QP number.
pub(crate) fn prefix(number: u32) -> u16 {
    (number >> 8) as u16
}

/// A port of this process, as other processes reach it.
#[derive(Default)]
struct Attached {
    addresses: BTreeSet<LinkAddress>,
    prefixes: Vec<u16>,
}

/// Returns the start of the names of a fabric. It has the user, who is asked for each time: a name is
/// needed to bind, connect or search, and not for packets.
fn fabric(domain: &str) -> String {
    format!("{}{domain}/", socket::user_names())
}

/// Returns a text if processes of this fabric have another format. They have other names, so neither
/// side reaches the other.
fn other_format(domain: &str) -> Option<String> {
    // If the list cannot be read, the first use of it reports that.
    let names = socket::names(&socket::names_of_all_formats()).ok()?;
    let mut formats = names.iter().filter_map(|name| {
        let (format, rest) = name.split_once('/')?;
        (rest.split('/').next() == Some(domain) && format != socket::FORMAT).then_some(format)
    });
    formats.next_back().map(|format| {
        format!(
            "processes here have format {format} of the fabric, and this one has {}: neither \
             reaches the other; start all with one build of the model",
            socket::FORMAT
        )
    })
}

/// Returns the start of an address's names in the fabric.
fn address_name(address: LinkAddress) -> String {
    match address {
        LinkAddress::Lid(lid) => format!("{lid:04x}/"),
        LinkAddress::Mac(mac) => {
            let mac = mac.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
            format!("{mac:012x}/")
        }
    }
}

/// The sockets of this process.
pub(crate) struct Network {
    domain: String,
    random: Random,
    pub(crate) waits: Arc<Waits>,
    timer: Fd,
    /// Timer for trying again operations that failed for lack of a descriptor.
    retry: Fd,
    /// Tokens of listeners whose connections cannot be accepted now.
    starved: Vec<u64>,
    /// Destinations that were absent or another user's, with the time of that result.
    refused: HashMap<Remote, (Instant, ErrorKind)>,
    /// Names with a random end, of peers.
    names: Names,
    /// Time at which the timer fires, in nanoseconds of the engine's time.
    armed: Option<u64>,
    sources: BTreeMap<u64, Source>,
    next: u64,
    peers: BTreeMap<Remote, Peer>,
    /// Destinations with new frames in their backlog.
    fresh: Vec<Remote>,
    /// The ports of this process, by the index of the device.
    ports: Vec<Attached>,
    /// The registry of listeners.
    hall: Hall,
    /// Whether any frame was sent since the last query.
    sent: bool,
    /// What has arrived since the last query.
    activity: Activity,
    /// Frames that were sent since the last query.
    spent: Vec<Frame>,
    buffers: Buffers,
}

const TIMER: u64 = 0;
const STOP: u64 = 1;
const BELL: u64 = 2;
const RETRY: u64 = 3;
/// Token of the descriptor that [`Network::watch_outside`] adds.
pub(crate) const OUTSIDE: u64 = 4;

impl Waits {
    /// Wakes the thread. Safe in a signal handler.
    pub(crate) fn ring(&self) {
        wake::signal(&self.bell);
    }
}

impl Network {
    pub(crate) fn new(domain: &str, seed: u64) -> io::Result<Self> {
        let epoll = wake::epoll()?;
        let (timer, stop, bell, retry) =
            (wake::timer()?, wake::event()?, wake::event()?, wake::timer()?);
        watch(&epoll, &timer, TIMER, libc::EPOLLIN)?;
        watch(&epoll, &retry, RETRY, libc::EPOLLIN)?;
        watch(&epoll, &stop, STOP, libc::EPOLLIN)?;
        watch(&epoll, &bell, BELL, libc::EPOLLIN)?;
        if let Some(complaint) = other_format(domain) {
            complain!("{complaint}");
        }
        Ok(Self {
            domain: domain.to_owned(),
            random: Random::seeded(seed),
            waits: Arc::new(Waits { epoll, stop, bell, raised: AtomicBool::new(false) }),
            timer,
            retry,
            starved: Vec::new(),
            refused: HashMap::new(),
            names: Names::new(domain),
            armed: None,
            sources: BTreeMap::new(),
            next: OUTSIDE + 1,
            peers: BTreeMap::new(),
            fresh: Vec::new(),
            ports: Vec::new(),
            hall: Hall::default(),
            sent: false,
            activity: Activity::default(),
            spent: Vec::new(),
            buffers: Buffers::new(),
        })
    }

    /// Returns a name in this fabric: the common start, then `rest`.
    pub(super) fn name(&self, rest: &str) -> String {
        fabric(&self.domain) + rest
    }

    /// Has the thread wake up for a descriptor of another network too, with the token [`OUTSIDE`].
    pub(crate) fn watch_outside(&self, fd: &OwnFd) -> io::Result<()> {
        watch(&self.waits.epoll, fd, OUTSIDE, libc::EPOLLIN)
    }

    fn add(&mut self, source: Source) -> io::Result<u64> {
        let token = self.next;
        if let Source::Listener { fd, .. }
        | Source::Door { fd }
        | Source::Caller { fd }
        | Source::Inbound { fd, .. } = &source
        {
            watch(&self.waits.epoll, fd, token, libc::EPOLLIN)?;
        }
        Ok(self.name_source(source))
    }

    /// Adds a source with the next token.
    fn name_source(&mut self, source: Source) -> u64 {
        let token = self.next;
        self.next += 1;
        self.sources.insert(token, source);
        token
    }

    /// Returns the name of a prefix at an address of a port.
    fn prefix_name(&self, address: LinkAddress, prefix: u16) -> String {
        self.name(&format!("{}{prefix:04x}", address_name(address)))
    }

    /// Returns whether a port of the machine has an address. A port that has got it in the last
    /// milliseconds may be missed.
    pub(crate) fn is_attached(&mut self, address: LinkAddress) -> bool {
        self.names.is_attached(address)
    }

    /// Has the thread try again soon what failed for lack of a descriptor.
    fn retry_later(&self) {
        wake::set_timer(&self.retry, RETRY_AFTER);
    }

    /// Stops polling a listener whose connections cannot be accepted: it would always be ready, and
    /// each accept would fail. Its peers' packets wait in the kernel.
    fn starve(&mut self, token: u64, error: &io::Error) {
        socket::complain_of_shortage(error);
        if !self.starved.contains(&token) {
            if let Some(Source::Listener { fd, .. } | Source::Door { fd }) =
                self.sources.get(&token)
            {
                wake::unwatch(&self.waits.epoll, fd);
                self.starved.push(token);
            }
        }
        self.retry_later();
    }

    /// Tries again what failed for lack of a descriptor.
    fn try_again(&mut self, cards: &dyn Devices) {
        for token in std::mem::take(&mut self.starved) {
            if let Some(Source::Listener { fd, .. } | Source::Door { fd }) =
                self.sources.get(&token)
            {
                let _ = watch(&self.waits.epoll, fd, token, libc::EPOLLIN);
            }
        }
        self.reach_again(cards);
    }

    /// Serves a ready descriptor of the epoll set. Frames go to the devices.
    pub(crate) fn ready(&mut self, token: u64, cards: &dyn Devices) {
        match token {
            TIMER => {
                wake::clear(&self.timer);
                self.armed = None;
                return;
            }
            BELL => return wake::clear(&self.waits.bell),
            RETRY => {
                wake::clear(&self.retry);
                return self.try_again(cards);
            }
            _ => {}
        }
        match self.sources.get(&token) {
            Some(Source::Listener { fd, to }) => {
                let to = *to;
                match socket::accept(fd) {
                    Ok(fd) => {
                        let process = socket::process(&fd).unwrap_or(0);
                        let _ = self.add(Source::Inbound { fd, to, process });
                    }
                    Err(error) if socket::is_shortage(&error) => self.starve(token, &error),
                    Err(error) => tracing::debug!(%error, "a peer could not connect"),
                }
            }
            Some(Source::Door { .. }) => self.hear_callers(),
            Some(Source::Caller { .. }) => self.hear(token),
            Some(Source::Inbound { fd, to, .. }) => {
                let to = *to;
                for _ in 0..TURN {
                    let received = self.buffers.receive(fd, |frame| {
                        self.activity.frames += 1;
                        match to {
                            Recipient::Port(card, _) => cards.deliver(card, frame),
                            Recipient::All => {
                                let Some(from) = listeners::take_sender(frame) else { return };
                                let mut is_attached = |to| self.names.is_attached(to);
                                cards.spread(from, frame, &mut is_attached);
                            }
                        }
                    });
                    match received {
                        Ok(Received::Some(bundles)) => self.activity.bundles += bundles,
                        Ok(Received::All(bundles)) => {
                            self.activity.bundles += bundles;
                            return;
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                        Ok(Received::End) | Err(_) => {
                            self.sources.remove(&token);
                            return;
                        }
                    }
                }
            }
            Some(Source::Outbound { to }) => {
                let to = *to;
                self.outbound_is_ready(to, cards);
            }
            None => {}
        }
    }

    /// Returns what has arrived since the last call. What the thread itself has sent does not count as
    /// sent by the next entry.
    pub(crate) fn take_activity(&mut self) -> Activity {
        self.sent = false;
        std::mem::take(&mut self.activity)
    }

    /// Returns the device that receives the frames of a descriptor, if that is one device. Frames are
    /// read only while the device can take them at once: the sender counts time-outs as soon as
    /// they are read.
    pub(crate) fn recipient(&self, token: u64) -> Option<usize> {
        match self.sources.get(&token) {
            Some(Source::Inbound { to: Recipient::Port(card, _), .. }) => Some(*card),
            _ => None,
        }
    }

    /// Takes some packets to a device from other processes without waiting: the thread's work, done
    /// by an entry that comes first. Timers and the packets to other devices are left to the thread.
    pub(crate) fn take_in(&mut self, card: usize, cards: &dyn Devices) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; INTAKE];
        // SAFETY: `events` holds the INTAKE events that the call may write.
        let count = unsafe {
            system::epoll_wait(self.waits.epoll.as_raw_fd(), events.as_mut_ptr(), INTAKE as i32, 0)
        };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let token = event.u64;
            if token > OUTSIDE && self.recipient(token).is_none_or(|to| to == card) {
                self.ready(token, cards);
            }
        }
    }

    /// Sets the timer, unless it fires by then anyway. The thread checks again whenever the timer
    /// fires, and most deadlines are moved before they come.
    pub(crate) fn arm(&mut self, now: u64, wait: u64) {
        let at = now + wait;
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        self.armed = Some(at);
        // A wait of zero would stop the timer.
        wake::set_timer(&self.timer, Duration::from_nanos(wait.max(1)));
    }

    /// Returns the time at which the timer fires, in nanoseconds of the engine's time.
    pub(crate) fn armed(&self) -> Option<u64> {
        self.armed
    }

    /// Tells the thread to stop.
    pub(crate) fn stop(&self) {
        wake::signal(&self.waits.stop);
    }

    /// Closes this process's copies of the parent's descriptors, in the child of a fork. The
    /// thread's share of [`Waits`] was not copied with a thread, so they are closed by hand.
    pub(crate) fn abandon(self) {
        for fd in [&self.waits.epoll, &self.waits.stop, &self.waits.bell] {
            crate::private::release(fd.as_raw_fd());
            // SAFETY: `waits` is forgotten below, so its count never reaches zero and its owners
            // never close the descriptors. The engine also holds a share of `waits`, but it is
            // detached and does not use the descriptors.
            unsafe { system::close(fd.as_raw_fd()) };
        }
        std::mem::forget(self.waits);
    }
}
