//! Packets to and from other processes of the machine.
//!
//! Each QP number prefix has a listening socket named after domain and prefix. Whoever has a packet
//! for it connects, once, and sends; connections go one way. What does not fit waits in a backlog,
//! and the queue pairs that send there are stopped meanwhile. A peer that is gone loses what was on
//! its way, as on any network; the transport repeats or gives up.
//!
//! A peer that runs and has not read its packets yet, or whose packets wait here, is slow: the
//! transport counts no time-out against it. A peer that was stopped is not slow but silent, and so is
//! one that reads nothing for [`STALL`].
//!
//! What goes to whoever listens, on an Ethernet or to a multicast group, goes to each process that
//! has said so by a name of its own. A listener whose backlog is full loses frames, and nobody waits. Who has is looked up whenever something is sent: the kernel's
//! list of names is the one that cannot be out of date.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::RESERVED;
use super::socket::{self, BATCH, Batch};
use crate::card::Card;
use crate::clock::Random;
use crate::wire::Frame;

/// Frames that may wait for one peer; more are lost.
const BACKLOG: usize = 8192;
/// Batches taken from one connection before the others have their turn.
const TURN: usize = 8;
/// Connections that an entry of a program takes packets from.
const INTAKE: usize = 16;
/// A peer that runs but takes nothing for so long is not slow any more.
const STALL: Duration = Duration::from_secs(10);

/// What the thread waits on. It outlives the network, so that the thread can be told of its end.
pub(super) struct Waits {
    pub(super) epoll: OwnedFd,
    /// Written to once: the end.
    stop: OwnedFd,
    /// Written to for stores of signal handlers.
    bell: OwnedFd,
    /// Whether the thread goes before those of the program wherever it wakes up.
    pub(super) raised: AtomicBool,
}

/// What a descriptor in the epoll set is.
enum Source {
    Listener { fd: OwnedFd, to: Recipient },
    Inbound { fd: OwnedFd, to: Recipient, process: libc::pid_t },
    Outbound { way: Way },
}

/// Whose the frames of a connection are.
#[derive(Clone, Copy)]
enum Recipient {
    /// One card's, by index.
    Card(usize),
    /// Every card's.
    All,
}

/// The way to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Way {
    /// By the prefix of a queue pair's number.
    Prefix(u16),
    /// By the number that it listens under for what goes to all.
    Listener(u16),
}

/// The way to one other process.
struct Peer {
    fd: OwnedFd,
    token: u64,
    backlog: VecDeque<Frame>,
    /// Whether the last frame did not fit.
    full: bool,
    /// The process; 0 where it has no number in this one's namespace.
    process: libc::pid_t,
    /// What was under way when it was last looked at, and since when that has not changed.
    waiting: Option<(Underway, Instant)>,
}

/// Packets that a peer has not read, and that were not read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Underway {
    /// Frames in the backlog.
    backlog: usize,
    /// Bytes of the kernel that the peer has not read, with the kernel's own.
    unread: usize,
    /// Bytes from the process that wait here.
    unheard: usize,
}

/// Sockets of this process.
pub(super) struct Network {
    domain: String,
    random: Random,
    pub(super) waits: Arc<Waits>,
    timer: OwnedFd,
    /// When the timer will fire, in nanoseconds of the engine's time.
    armed: Option<u64>,
    sources: HashMap<u64, Source>,
    next: u64,
    peers: HashMap<Way, Peer>,
    /// Peers whose backlog has something new.
    fresh: Vec<Way>,
    /// The number that this process listens under, if it does.
    listener: Option<u16>,
    /// Whether anything was sent since that was last asked.
    sent: bool,
    batch: Batch,
    /// A descriptor to do without when there are no more, so that a peer can be told.
    reserve: Option<OwnedFd>,
}

const TIMER: u64 = 0;
const STOP: u64 = 1;
const BELL: u64 = 2;

impl Waits {
    /// Wakes the thread. Safe in a signal handler.
    pub(super) fn ring(&self) {
        add_one(&self.bell);
    }
}

impl Network {
    pub(super) fn new(domain: &str, seed: u64) -> io::Result<Self> {
        // SAFETY: none of these passes memory.
        let epoll = socket::own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: the same.
        let timer = socket::own(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the same.
        let event = || unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let (stop, bell) = (socket::own(event())?, socket::own(event())?);
        watch(&epoll, libc::EPOLL_CTL_ADD, &timer, TIMER, libc::EPOLLIN)?;
        watch(&epoll, libc::EPOLL_CTL_ADD, &stop, STOP, libc::EPOLLIN)?;
        watch(&epoll, libc::EPOLL_CTL_ADD, &bell, BELL, libc::EPOLLIN)?;
        // Prefixes that were just used by a process that is gone should not come back at once: its
        // peers may still be repeating packets to them.
        let entropy = u64::from(std::process::id()) << 32 ^ start_time();
        Ok(Self {
            domain: domain.to_owned(),
            random: Random::seeded(seed ^ entropy),
            waits: Arc::new(Waits { epoll, stop, bell, raised: AtomicBool::new(false) }),
            reserve: socket::duplicate(&timer).ok(),
            timer,
            armed: None,
            sources: HashMap::new(),
            next: BELL + 1,
            peers: HashMap::new(),
            fresh: Vec::new(),
            listener: None,
            sent: false,
            batch: Batch::new(),
        })
    }

    fn name(&self, way: Way) -> String {
        match way {
            Way::Prefix(prefix) => format!("mlx5-model/{}/{prefix:04x}", self.domain),
            Way::Listener(number) => format!("{}{number:04x}", self.listeners()),
        }
    }

    /// What the names of listeners begin with.
    fn listeners(&self) -> String {
        format!("mlx5-model/{}/all/", self.domain)
    }

    fn add(&mut self, source: Source) -> io::Result<u64> {
        let token = self.next;
        self.next += 1;
        if let Source::Listener { fd, .. } | Source::Inbound { fd, .. } = &source {
            watch(&self.waits.epoll, libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)?;
        }
        self.sources.insert(token, source);
        Ok(token)
    }

    /// Claims a prefix of QP numbers for a card.
    pub(super) fn claim(&mut self, card: usize) -> io::Result<u16> {
        self.claim_name(Way::Prefix, Recipient::Card(card))
    }

    /// Makes this process one of those that what goes to all is sent to.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        if self.listener.is_none() {
            self.listener = Some(self.claim_name(Way::Listener, Recipient::All)?);
        }
        Ok(())
    }

    fn claim_name(&mut self, way: fn(u16) -> Way, to: Recipient) -> io::Result<u16> {
        let start = self.random.draw() as u16;
        for step in 0..=u16::MAX {
            let number = start.wrapping_add(step);
            if RESERVED.contains(&number) {
                continue;
            }
            match socket::listen(&self.name(way(number))) {
                Ok(fd) => {
                    self.add(Source::Listener { fd, to })?;
                    return Ok(number);
                }
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    /// Puts a frame on the way to the process with this prefix; [`Network::flush`] sends it.
    pub(super) fn send(&mut self, prefix: u16, frame: Frame) {
        self.put(Way::Prefix(prefix), frame);
    }

    /// Puts a frame on the way to every other process that listens.
    pub(super) fn send_to_all(&mut self, frame: &Frame) {
        for number in self.others() {
            self.put(Way::Listener(number), frame.clone());
        }
    }

    /// The numbers that other processes listen under now.
    fn others(&self) -> BTreeSet<u16> {
        // Each line ends with the name, whose first byte, zero, is shown as "@"; connections that
        // were accepted have the name of their listener.
        let list = match fs::read_to_string("/proc/net/unix") {
            Ok(list) => list,
            Err(error) => {
                tracing::error!(%error, "cannot see who listens");
                return BTreeSet::new();
            }
        };
        let start = format!(" @{}", self.listeners());
        list.lines()
            .filter_map(|line| line.split_once(&start))
            .filter_map(|(_, number)| u16::from_str_radix(number, 16).ok())
            .filter(|number| Some(*number) != self.listener)
            .collect()
    }

    fn put(&mut self, way: Way, frame: Frame) {
        if !self.peers.contains_key(&way) {
            match self.connect(way) {
                Ok(peer) => {
                    self.peers.insert(way, peer);
                }
                Err(error) => {
                    tracing::debug!(?way, %error, "no way to the peer, packet dropped");
                    return;
                }
            }
        }
        let Some(peer) = self.peers.get_mut(&way) else { return };
        if peer.backlog.len() < BACKLOG {
            peer.backlog.push_back(frame);
            if !peer.full {
                self.fresh.push(way);
            }
        }
    }

    fn connect(&mut self, way: Way) -> io::Result<Peer> {
        let fd = socket::connect(&self.name(way))?;
        let process = socket::process(&fd)?;
        let token = self.add(Source::Outbound { way })?;
        Ok(Peer { fd, token, backlog: VecDeque::new(), full: false, process, waiting: None })
    }

    /// Sends what was put on its way since.
    pub(super) fn flush(&mut self, cards: &mut [Card]) {
        while let Some(way) = self.fresh.pop() {
            self.sent = true;
            self.drain(way, cards);
        }
    }

    /// Whether whoever has sent should let others run. The peer's thread has often been woken on
    /// this very processor, where a program that polls for the answer would make it wait until the
    /// scheduler's next tick; where threads may be raised, it does not.
    pub(super) fn owes_a_turn(&mut self) -> bool {
        std::mem::take(&mut self.sent) && !self.waits.raised.load(Ordering::Relaxed)
    }

    /// Sends as much to a peer as there is room for.
    fn drain(&mut self, way: Way, cards: &mut [Card]) {
        let Some(peer) = self.peers.get_mut(&way) else { return };
        while !peer.backlog.is_empty() {
            match socket::send(&peer.fd, peer.backlog.iter().take(BATCH)) {
                Ok(sent) => {
                    peer.backlog.drain(..sent);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !peer.full {
                        peer.full = true;
                        let _ = watch(
                            &self.waits.epoll,
                            libc::EPOLL_CTL_ADD,
                            &peer.fd,
                            peer.token,
                            libc::EPOLLOUT,
                        );
                        congest(cards, way, true);
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!(?way, %error, "the peer is gone");
                    if let Some(peer) = self.peers.remove(&way) {
                        self.sources.remove(&peer.token);
                    }
                    congest(cards, way, false);
                    return;
                }
            }
        }
        if peer.full {
            peer.full = false;
            let _ = watch(&self.waits.epoll, libc::EPOLL_CTL_DEL, &peer.fd, peer.token, 0);
            congest(cards, way, false);
        }
    }

    /// A descriptor of the epoll set is ready; frames go to `deliver`.
    pub(super) fn ready(
        &mut self,
        token: u64,
        cards: &mut [Card],
        deliver: &mut dyn FnMut(&mut Card, &Frame),
    ) {
        if token == TIMER || token == BELL {
            let fd = if token == TIMER { &self.timer } else { &self.waits.bell };
            let mut count = [0u8; 8];
            // SAFETY: the buffer has the eight bytes asked for.
            unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            if token == TIMER {
                self.armed = None;
            }
            return;
        }
        match self.sources.get(&token) {
            Some(Source::Listener { fd, to }) => {
                let to = *to;
                match socket::accept(fd) {
                    Ok(fd) => {
                        let process = socket::process(&fd).unwrap_or(0);
                        let _ = self.add(Source::Inbound { fd, to, process });
                    }
                    Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
                        // It would be ready, and fail, for ever: the peer is let in and sent away.
                        self.reserve = None;
                        drop(socket::accept(fd));
                        self.reserve = socket::duplicate(&self.timer).ok();
                        tracing::warn!("a peer was sent away: too many open files");
                    }
                    Err(error) => tracing::debug!(%error, "a peer could not connect"),
                }
            }
            Some(Source::Inbound { fd, to, .. }) => {
                let to = match *to {
                    Recipient::Card(card) => card..card + 1,
                    Recipient::All => 0..cards.len(),
                };
                for _ in 0..TURN {
                    match self.batch.receive(fd) {
                        Ok([]) => {
                            self.sources.remove(&token);
                            return;
                        }
                        Ok(frames) => {
                            let whole = frames.len() == BATCH;
                            for frame in frames {
                                for card in &mut cards[to.clone()] {
                                    deliver(card, frame);
                                }
                            }
                            if !whole {
                                return;
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                        Err(_) => {
                            self.sources.remove(&token);
                            return;
                        }
                    }
                }
            }
            Some(Source::Outbound { way }) => {
                let way = *way;
                self.drain(way, cards);
            }
            None => {}
        }
    }

    /// Takes some of what other processes have sent, without waiting: what the thread does, done by
    /// an entry that comes first. Timers are left to the thread.
    pub(super) fn take_in(&mut self, cards: &mut [Card]) {
        // SAFETY: all zeros is a valid value.
        let mut events: [libc::epoll_event; INTAKE] = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for so many events.
        let count = unsafe {
            libc::epoll_wait(self.waits.epoll.as_raw_fd(), events.as_mut_ptr(), INTAKE as i32, 0)
        };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let token = event.u64;
            if token > BELL {
                self.ready(token, cards, &mut |card, frame| card.receive(frame));
            }
        }
    }

    /// Whether the process with this prefix runs and has packets of this one to read, or its packets
    /// wait here to be read.
    pub(super) fn is_slow(&mut self, prefix: u16) -> bool {
        let Some(peer) = self.peers.get_mut(&Way::Prefix(prefix)) else { return false };
        let from_it = self.sources.values().filter_map(|source| match source {
            Source::Inbound { fd, process, .. } if *process == peer.process => Some(fd),
            _ => None,
        });
        let underway = Underway {
            backlog: peer.backlog.len(),
            unread: socket::unsent(&peer.fd),
            unheard: from_it.map(socket::unread).sum(),
        };
        if underway == (Underway { backlog: 0, unread: 0, unheard: 0 }) {
            peer.waiting = None;
            return false;
        }
        let since = match peer.waiting {
            Some((before, since)) if before == underway => since,
            _ => Instant::now(),
        };
        peer.waiting = Some((underway, since));
        since.elapsed() < STALL && !socket::is_stopped(peer.process)
    }

    /// The connections for which packets wait.
    pub(super) fn congested(&self) -> Vec<RawFd> {
        let waiting = self.peers.values().filter(|peer| !peer.backlog.is_empty());
        waiting.map(|peer| peer.fd.as_raw_fd()).collect()
    }

    /// Tries every backlog again.
    pub(super) fn retry(&mut self, cards: &mut [Card]) {
        let ways: Vec<Way> = self.peers.keys().copied().collect();
        ways.into_iter().for_each(|way| self.drain(way, cards));
    }

    /// Sets the timer, if it would not fire by then anyway: the thread looks again whenever it
    /// does, and most deadlines are moved before they come.
    pub(super) fn arm(&mut self, now: u64, wait: u64) {
        let at = now + wait;
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        self.armed = Some(at);
        // A wait of zero would stop the timer.
        let wait = wait.max(1);
        let value = libc::timespec {
            tv_sec: (wait / 1_000_000_000) as libc::time_t,
            tv_nsec: (wait % 1_000_000_000) as libc::c_long,
        };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: once, it_value: value };
        // SAFETY: the setting is there, and no old one is asked for.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &setting, std::ptr::null_mut());
        }
    }

    /// Tells the thread that there will be nothing more to wait for.
    pub(super) fn stop(&self) {
        add_one(&self.waits.stop);
    }

    /// In the child of a fork: closes this process's copies of the parent's descriptors. The
    /// thread's share of [`Waits`] was not copied with a thread, so they are closed by hand.
    pub(super) fn abandon(self) {
        for fd in [&self.waits.epoll, &self.waits.stop, &self.waits.bell] {
            // SAFETY: the owner is forgotten below, so nobody closes it again.
            unsafe { libc::close(fd.as_raw_fd()) };
        }
        std::mem::forget(self.waits);
    }
}

/// Stops the queue pairs that send to a peer, or lets them go on. Nobody waits for a listener.
fn congest(cards: &mut [Card], way: Way, congested: bool) {
    if let Way::Prefix(prefix) = way {
        cards.iter_mut().for_each(|card| card.set_congested(prefix.into(), congested));
    }
}

/// Adds one to an eventfd.
fn add_one(event: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight bytes are there.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

fn watch(
    epoll: &OwnedFd,
    operation: libc::c_int,
    fd: &OwnedFd,
    token: u64,
    events: libc::c_int,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the event is there.
    let result =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Nanoseconds of the day the process started its network in: entropy, not time.
fn start_time() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}
