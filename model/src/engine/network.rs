//! Packets to and from other processes of the machine.
//!
//! Each QP number prefix has a listening socket named after user, domain and prefix. Whoever has a
//! packet for it connects, once, and sends; connections go one way. What does not fit waits in a
//! backlog, and the queue pairs that send there are stopped meanwhile. A peer that is gone loses what
//! was on its way, as on any network; the transport repeats or gives up. Without a descriptor for a
//! connection, packets wait until there is one.
//!
//! Another user can bind any name, and nothing more: credentials are checked at both ends. Where
//! another user has bound the names of prefixes, a process adds a random end to the name of its
//! prefix, and senders look for it (see [`Network::claim`]).
//!
//! A peer that runs and has not read its packets yet, or whose packets wait here, is slow: the
//! transport counts no time-out against it. A peer that was stopped is not slow but silent, and so is
//! one that reads nothing for [`STALL`].
//!
//! What goes to whoever listens, on an Ethernet or to a multicast group, goes to each process that
//! has said so (`hall`). A listener whose backlog is full loses frames, and nobody waits.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::RESERVED;
use super::hall::Hall;
use super::socket::{self, BATCH, Batch, Fd};
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
/// When what failed for want of a descriptor is tried again.
const RETRY_AFTER: Duration = Duration::from_millis(20);
/// How long a name that another user has bound is not tried again, and the names of a peer that is
/// not there are not looked through again.
const REFUSED_FOR: Duration = Duration::from_millis(50);
/// Names in a row that are in use before another user is suspected.
const IN_USE: u32 = 256;
/// Prefixes tried whose names another user has bound.
const SQUATTED: u32 = 4096;

/// What the thread waits on. It outlives the network, so that the thread can be told of its end.
pub(super) struct Waits {
    pub(super) epoll: Fd,
    /// Written to once: the end.
    stop: Fd,
    /// Written to for stores of signal handlers.
    bell: Fd,
    /// Whether the thread goes before those of the program wherever it wakes up.
    pub(super) raised: AtomicBool,
}

/// What a descriptor in the epoll set is.
enum Source {
    Listener {
        fd: Fd,
        to: Recipient,
    },
    /// Where processes that begin to listen tell so.
    Door {
        fd: Fd,
    },
    /// A process that is about to tell so.
    Caller {
        fd: Fd,
    },
    Inbound {
        fd: Fd,
        to: Recipient,
        process: libc::pid_t,
    },
    Outbound {
        way: Way,
    },
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
pub(super) enum Way {
    /// By the prefix of a queue pair's number.
    Prefix(u16),
    /// By the number that this process has given it as one that listens to what goes to all.
    Listener(u16),
}

/// The way to one other process.
struct Peer {
    /// None as long as there is no descriptor to connect with.
    fd: Option<Fd>,
    token: u64,
    backlog: VecDeque<Frame>,
    /// Whether the last frame did not fit.
    full: bool,
    /// The process; 0 where it has no number in this one's namespace.
    process: libc::pid_t,
    /// What was under way when it was last looked at, and since when that has not changed.
    waiting: Option<(Underway, Instant)>,
}

impl Peer {
    fn new(fd: Option<Fd>, token: u64) -> Self {
        let (backlog, full) = (VecDeque::new(), false);
        let mut peer = Self { fd: None, token, backlog, full, process: 0, waiting: None };
        if let Some(fd) = fd {
            peer.connected(fd);
        }
        peer
    }

    fn connected(&mut self, fd: Fd) {
        self.process = socket::process(&fd).unwrap_or(0);
        self.fd = Some(fd);
    }
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
    timer: Fd,
    /// Fires when what failed for want of a descriptor is to be tried again.
    retry: Fd,
    /// Listeners whose connections cannot be accepted now.
    starved: Vec<u64>,
    /// Ways that led nowhere or to another user, and when that was found.
    refused: HashMap<Way, (Instant, ErrorKind)>,
    /// When the timer will fire, in nanoseconds of the engine's time.
    armed: Option<u64>,
    sources: HashMap<u64, Source>,
    next: u64,
    peers: HashMap<Way, Peer>,
    /// Peers whose backlog has something new.
    fresh: Vec<Way>,
    /// Who listens to what goes to all.
    hall: Hall,
    /// Whether anything was sent since that was last asked.
    sent: bool,
    batch: Batch,
}

const TIMER: u64 = 0;
const STOP: u64 = 1;
const BELL: u64 = 2;
const RETRY: u64 = 3;

impl Waits {
    /// Wakes the thread. Safe in a signal handler.
    pub(super) fn ring(&self) {
        add_one(&self.bell);
    }
}

impl Network {
    pub(super) fn new(domain: &str, seed: u64) -> io::Result<Self> {
        // SAFETY: the call passes no memory, and makes the descriptor that `own` gets.
        let epoll = unsafe { socket::own(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
        let timer = || {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            // SAFETY: the call passes no memory, and makes the descriptor that `own` gets.
            unsafe { socket::own(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags)) }
        };
        let event = || {
            let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
            // SAFETY: the call passes no memory, and makes the descriptor that `own` gets.
            unsafe { socket::own(libc::eventfd(0, flags)) }
        };
        let (timer, stop, bell, retry) = (timer()?, event()?, event()?, timer()?);
        watch(&epoll, libc::EPOLL_CTL_ADD, &timer, TIMER, libc::EPOLLIN)?;
        watch(&epoll, libc::EPOLL_CTL_ADD, &retry, RETRY, libc::EPOLLIN)?;
        watch(&epoll, libc::EPOLL_CTL_ADD, &stop, STOP, libc::EPOLLIN)?;
        watch(&epoll, libc::EPOLL_CTL_ADD, &bell, BELL, libc::EPOLLIN)?;
        // Prefixes that were just used by a process that is gone should not come back at once: its
        // peers may still be repeating packets to them.
        let entropy = u64::from(std::process::id()) << 32 ^ start_time();
        Ok(Self {
            domain: domain.to_owned(),
            random: Random::seeded(seed ^ entropy),
            waits: Arc::new(Waits { epoll, stop, bell, raised: AtomicBool::new(false) }),
            timer,
            retry,
            starved: Vec::new(),
            refused: HashMap::new(),
            armed: None,
            sources: HashMap::new(),
            next: RETRY + 1,
            peers: HashMap::new(),
            fresh: Vec::new(),
            hall: Hall::default(),
            sent: false,
            batch: Batch::new(),
        })
    }

    /// What names of this fabric begin with, and go on with.
    fn name(&self, rest: &str) -> String {
        format!("{}{}/{rest}", socket::user_names(), self.domain)
    }

    fn add(&mut self, source: Source) -> io::Result<u64> {
        let token = self.next;
        self.next += 1;
        if let Source::Listener { fd, .. }
        | Source::Door { fd }
        | Source::Caller { fd }
        | Source::Inbound { fd, .. } = &source
        {
            watch(&self.waits.epoll, libc::EPOLL_CTL_ADD, fd, token, libc::EPOLLIN)?;
        }
        self.sources.insert(token, source);
        Ok(token)
    }

    /// Claims a prefix of QP numbers for a card.
    ///
    /// The name of a prefix can be known before, so another user may have bound it, even all of
    /// them. Then this process claims a prefix whose name another user has: no other process of this
    /// user can have that name, and the name is bound with a random end instead.
    pub(super) fn claim(&mut self, card: usize) -> io::Result<u16> {
        let start = self.random.draw() as u16;
        let mut in_use = 0;
        for number in (0..=u16::MAX).map(|step| start.wrapping_add(step)) {
            if RESERVED.contains(&number) {
                continue;
            }
            match socket::listen(&self.name(&format!("{number:04x}"))) {
                Ok(fd) => return self.claimed(number, card, fd),
                Err(error) if error.kind() == ErrorKind::AddrInUse => in_use += 1,
                Err(error) => return Err(error),
            }
            if in_use == IN_USE {
                if let Some((number, fd)) = self.claim_squatted()? {
                    return self.claimed(number, card, fd);
                }
            }
        }
        Err(ErrorKind::AddrInUse.into())
    }

    fn claimed(&mut self, number: u16, card: usize, fd: Fd) -> io::Result<u16> {
        self.add(Source::Listener { fd, to: Recipient::Card(card) })?;
        Ok(number)
    }

    /// A prefix whose name another user has, with a name that nobody else knew before.
    fn claim_squatted(&mut self) -> io::Result<Option<(u16, Fd)>> {
        for _ in 0..SQUATTED {
            let number = self.random.draw() as u16;
            if RESERVED.contains(&number) {
                continue;
            }
            let plain = self.name(&format!("{number:04x}"));
            match socket::connect(&plain).map_err(|error| error.kind()) {
                Err(ErrorKind::PermissionDenied) => {}
                // Free by now, or bound by somebody who does not listen, as no process of this user
                // does.
                Err(ErrorKind::ConnectionRefused) => {
                    if let Ok(fd) = socket::listen(&plain) {
                        return Ok(Some((number, fd)));
                    }
                }
                _ => continue,
            }
            let fd = socket::listen(&format!("{plain}.{}", socket::unguessable()?))?;
            // Of processes of this user that do so at the same time all see it, and try others.
            let own = socket::names(&format!("{plain}."))?;
            let trusted = |end: &&String| socket::connect(&format!("{plain}.{end}")).is_ok();
            if own.iter().filter(trusted).count() <= 1 {
                return Ok(Some((number, fd)));
            }
        }
        Ok(None)
    }

    /// Makes this process one of those that what goes to all is sent to, and tells the others.
    pub(super) fn listen(&mut self) -> io::Result<()> {
        if self.hall.listener.is_some() {
            return Ok(());
        }
        let name = self.name(&format!("all/{}", socket::unguessable()?));
        let fd = socket::listen(&name)?;
        self.add(Source::Listener { fd, to: Recipient::All })?;
        self.hall.listener = Some(name.clone());
        // What waits already is from this process.
        for door in socket::names(&self.name("from/"))? {
            let door = self.name(&format!("from/{door}"));
            if self.hall.door.as_ref() == Some(&door) {
                continue;
            }
            let told = socket::connect(&door).and_then(|fd| {
                socket::send(&fd, std::iter::once(&Frame(name.clone().into_bytes())))
            });
            if let Err(error) = told {
                tracing::debug!(%door, %error, "a sender is not told who listens");
            }
        }
        Ok(())
    }

    /// Puts a frame on the way to the process with this prefix; [`Network::flush`] sends it.
    pub(super) fn send(&mut self, prefix: u16, frame: Frame) {
        self.put(Way::Prefix(prefix), frame);
    }

    /// Puts a frame on the way to every other process that listens.
    pub(super) fn send_to_all(&mut self, frame: &Frame) {
        if let Err(error) = self.open_door() {
            tracing::warn!(%error, "cannot be told who listens, and looks again");
        }
        self.hear_callers();
        if self.hall.is_time_to_look() {
            self.look();
        }
        for number in self.hall.numbers() {
            self.put(Way::Listener(number), frame.clone());
        }
    }

    /// Makes this process one of those that are told who listens.
    fn open_door(&mut self) -> io::Result<()> {
        if self.hall.door.is_some() {
            return Ok(());
        }
        // Who has not told when the names were looked at has found this one.
        self.hall.suspect();
        let name = self.name(&format!("from/{}", socket::unguessable()?));
        let fd = socket::listen(&name)?;
        let token = self.add(Source::Door { fd })?;
        self.hall.door = Some(name);
        self.hall.door_token = Some(token);
        Ok(())
    }

    /// Lets in who is at the door, and hears what they tell: whoever has begun to listen has told
    /// before its call returned.
    fn hear_callers(&mut self) {
        /// So many at most for one frame.
        const MOST: usize = 64;
        let Some(door) = self.hall.door_token else { return };
        for _ in 0..MOST {
            let Some(Source::Door { fd }) = self.sources.get(&door) else { return };
            match socket::accept(fd) {
                Ok(fd) => {
                    if let Ok(token) = self.add(Source::Caller { fd }) {
                        self.hall.callers.push(token);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Another user at the door may have kept others away.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => self.hall.suspect(),
                Err(error) if socket::is_shortage(&error) => {
                    self.starve(door, &error);
                    self.hall.suspect();
                    break;
                }
                Err(_) => break,
            }
        }
        for token in std::mem::take(&mut self.hall.callers) {
            self.hear(token);
        }
    }

    /// Hears one who is at the door, and lets it go.
    fn hear(&mut self, token: u64) {
        let Some(Source::Caller { fd }) = self.sources.get(&token) else { return };
        match self.batch.receive(fd) {
            Ok(told) => {
                let names: Vec<String> = told
                    .iter()
                    .filter_map(|frame| String::from_utf8(frame.0.clone()).ok())
                    .collect();
                self.sources.remove(&token);
                names.into_iter().for_each(|name| self.meet(name));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.hall.callers.push(token),
            Err(_) => drop(self.sources.remove(&token)),
        }
    }

    /// Looks who listens by the names that there are.
    fn look(&mut self) {
        let start = self.name("all/");
        let names = match socket::names(&start) {
            Ok(names) => names.into_iter().map(|end| format!("{start}{end}")).collect(),
            Err(error) => {
                tracing::error!(%error, "cannot see who listens");
                return;
            }
        };
        self.hall.looked(&names);
        names.into_iter().for_each(|name| self.meet(name));
    }

    /// A process says, or its name does, that it listens to what goes to all.
    fn meet(&mut self, name: String) {
        if !name.starts_with(&self.name("all/")) || self.hall.knows(&name) {
            return;
        }
        match socket::connect(&name) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => self.hall.refuse(name),
            // It is gone again.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            // What else fails is tried again with the first frame.
            Err(_) => drop(self.hall.enter(name)),
            Ok(fd) => {
                let Some(number) = self.hall.enter(name) else { return };
                let way = Way::Listener(number);
                if let Ok(token) = self.add(Source::Outbound { way }) {
                    self.peers.insert(way, Peer::new(Some(fd), token));
                }
            }
        }
    }

    fn put(&mut self, way: Way, frame: Frame) {
        if !self.peers.contains_key(&way) {
            let fd = match self.reach(way) {
                Ok(fd) => Some(fd),
                Err(error) if self.is_passing(&error) => None,
                Err(error) => {
                    tracing::debug!(?way, %error, "no way to the peer, packet dropped");
                    self.forget(way);
                    return;
                }
            };
            let Ok(token) = self.add(Source::Outbound { way }) else { return };
            self.peers.insert(way, Peer::new(fd, token));
        }
        let Some(peer) = self.peers.get_mut(&way) else { return };
        if peer.backlog.len() < BACKLOG {
            peer.backlog.push_back(frame);
            if !peer.full {
                self.fresh.push(way);
            }
        }
    }

    /// Whether a connection that failed may succeed later, without anything lost. It is tried again.
    fn is_passing(&mut self, error: &io::Error) -> bool {
        let short = socket::is_shortage(error);
        if short {
            socket::complain_of_shortage(error);
        }
        let passing = short || error.kind() == ErrorKind::WouldBlock;
        if passing {
            self.retry_later();
        }
        passing
    }

    /// Connects to a peer.
    fn reach(&mut self, way: Way) -> io::Result<Fd> {
        let name = match way {
            Way::Prefix(prefix) => self.name(&format!("{prefix:04x}")),
            Way::Listener(number) => {
                self.hall.name(number).ok_or(ErrorKind::ConnectionRefused)?.to_owned()
            }
        };
        let known = self.refused.get(&way).filter(|(since, _)| since.elapsed() < REFUSED_FOR);
        if let Some((_, ErrorKind::PermissionDenied)) = known {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let error = match socket::connect(&name) {
            Ok(fd) => return Ok(fd),
            Err(error) if known.is_some() || socket::is_shortage(&error) => return Err(error),
            Err(error) => error,
        };
        // Where another user has the name, the peer has one with a random end.
        for end in socket::names(&format!("{name}."))? {
            match socket::connect(&format!("{name}.{end}")) {
                Err(error) if socket::is_shortage(&error) => return Err(error),
                Err(_) => {}
                connected => return connected,
            }
        }
        self.refused.retain(|_, (since, _)| since.elapsed() < REFUSED_FOR);
        self.refused.insert(way, (Instant::now(), error.kind()));
        Err(error)
    }

    /// A peer is gone, or not there.
    fn forget(&mut self, way: Way) {
        if let Some(peer) = self.peers.remove(&way) {
            self.sources.remove(&peer.token);
        }
        if let Way::Listener(number) = way {
            self.hall.leave(number);
        }
    }

    /// Has what failed for want of a descriptor tried again soon, by the thread.
    fn retry_later(&self) {
        let value = libc::timespec {
            tv_sec: RETRY_AFTER.as_secs() as libc::time_t,
            tv_nsec: RETRY_AFTER.subsec_nanos() as libc::c_long,
        };
        let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let setting = libc::itimerspec { it_interval: once, it_value: value };
        // SAFETY: the call reads `setting`, and null asks for no old one.
        unsafe {
            libc::timerfd_settime(self.retry.as_raw_fd(), 0, &setting, std::ptr::null_mut());
        }
    }

    /// Stops waiting for connections that cannot be accepted: the listener would be ready, and
    /// accepting would fail, all the time. What is sent by them waits in the kernel.
    fn starve(&mut self, token: u64, error: &io::Error) {
        socket::complain_of_shortage(error);
        if !self.starved.contains(&token) {
            if let Some(Source::Listener { fd, .. } | Source::Door { fd }) =
                self.sources.get(&token)
            {
                let _ = watch(&self.waits.epoll, libc::EPOLL_CTL_DEL, fd, token, 0);
                self.starved.push(token);
            }
        }
        self.retry_later();
    }

    /// Tries again what failed for want of a descriptor.
    fn try_again(&mut self, cards: &mut [Card]) {
        for token in std::mem::take(&mut self.starved) {
            if let Some(Source::Listener { fd, .. } | Source::Door { fd }) =
                self.sources.get(&token)
            {
                let add = libc::EPOLL_CTL_ADD;
                let _ = watch(&self.waits.epoll, add, fd, token, libc::EPOLLIN);
            }
        }
        let parked = self.peers.iter().filter(|(_, peer)| peer.fd.is_none());
        let parked: Vec<Way> = parked.map(|(way, _)| *way).collect();
        parked.into_iter().for_each(|way| self.drain(way, cards));
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
        if self.peers.get(&way).is_some_and(|peer| peer.fd.is_none()) {
            match self.reach(way) {
                Ok(fd) => {
                    if let Some(peer) = self.peers.get_mut(&way) {
                        peer.connected(fd);
                    }
                }
                Err(error) if self.is_passing(&error) => return,
                Err(error) => {
                    tracing::debug!(?way, %error, "no way to the peer, packets dropped");
                    self.forget(way);
                    return;
                }
            }
        }
        let Some(peer) = self.peers.get_mut(&way) else { return };
        let Some(fd) = &peer.fd else { return };
        while !peer.backlog.is_empty() {
            match socket::send(fd, peer.backlog.iter().take(BATCH)) {
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
                            fd,
                            peer.token,
                            libc::EPOLLOUT,
                        );
                        congest(cards, way, true);
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!(?way, %error, "the peer is gone");
                    self.forget(way);
                    congest(cards, way, false);
                    return;
                }
            }
        }
        if peer.full {
            peer.full = false;
            let _ = watch(&self.waits.epoll, libc::EPOLL_CTL_DEL, fd, peer.token, 0);
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
            // SAFETY: `count` has room for the eight bytes that the call may write.
            unsafe { libc::read(fd.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            if token == TIMER {
                self.armed = None;
            }
            return;
        }
        if token == RETRY {
            let mut count = [0u8; 8];
            // SAFETY: `count` has room for the eight bytes that the call may write.
            unsafe { libc::read(self.retry.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
            self.try_again(cards);
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
                    Err(error) if socket::is_shortage(&error) => self.starve(token, &error),
                    Err(error) => tracing::debug!(%error, "a peer could not connect"),
                }
            }
            Some(Source::Door { .. }) => self.hear_callers(),
            Some(Source::Caller { .. }) => self.hear(token),
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
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; INTAKE];
        // SAFETY: `events` has room for the INTAKE events that the call may write.
        let count = unsafe {
            libc::epoll_wait(self.waits.epoll.as_raw_fd(), events.as_mut_ptr(), INTAKE as i32, 0)
        };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            let token = event.u64;
            if token > RETRY {
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
            unread: peer.fd.as_ref().map_or(0, |fd| socket::unsent(fd)),
            unheard: from_it.map(|fd| socket::unread(fd)).sum(),
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
        waiting.filter_map(|peer| Some(peer.fd.as_ref()?.as_raw_fd())).collect()
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
        // SAFETY: the call reads `setting`, and null asks for no old one.
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
            crate::private::release(fd.as_raw_fd());
            // SAFETY: `waits` is forgotten below, so its count never reaches zero and its owners never
            // close the descriptors. The engine, which has a share of it, does not use them: it is
            // detached.
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
fn add_one(event: &Fd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: the call reads the eight bytes of `one`.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

fn watch(
    epoll: &Fd,
    operation: libc::c_int,
    fd: &Fd,
    token: u64,
    events: libc::c_int,
) -> io::Result<()> {
    let mut event = libc::epoll_event { events: events as u32, u64: token };
    // SAFETY: the call reads `event`, which lives through it.
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
