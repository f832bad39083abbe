//! Frames to other processes: connections, backlogs, and what to do when a peer does not read.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

use super::socket::{self, Fd};
use super::{Network, Remote, Source, bundle, prefix};
use crate::fabric::Devices;
use crate::fabric::wake::{rewatch, watch};
use crate::wire::{Frame, Way};

/// Most frames that wait for one peer; further frames are lost.
const BACKLOG: usize = 8192;
/// Most sent frames whose memory is kept for new ones.
const SPENT: usize = 256;
/// Time without reading after which a running peer is no longer slow but silent.
const STALL: Duration = Duration::from_secs(10);
/// Time for which a name bound by another user, or the names of an absent peer, are not tried
/// again.
const REFUSED_FOR: Duration = Duration::from_millis(50);

/// No event of a descriptor but that its other end is gone.
const NOTHING: libc::c_int = 0;

/// The connection to one other process.
pub(super) struct Peer {
    /// The socket. `None` until a descriptor is free to connect with.
    fd: Option<Fd>,
    token: u64,
    backlog: VecDeque<Frame>,
    /// Whether the last frame did not fit.
    full: bool,
    /// The process; 0 if it has no number in this process's PID namespace.
    process: libc::pid_t,
    /// The packets under way at the last look, and the time since which they have not changed.
    waiting: Option<(Underway, Instant)>,
}

impl Peer {
    fn new(token: u64) -> Self {
        let (backlog, full) = (VecDeque::new(), false);
        Self { fd: None, token, backlog, full, process: 0, waiting: None }
    }

    fn connected(&mut self, fd: Fd) {
        self.process = socket::process(&fd).unwrap_or(0);
        self.fd = Some(fd);
    }
}

/// Packets not yet read: by a peer from this process, and by this process from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Underway {
    /// Frames in the backlog.
    backlog: usize,
    /// Bytes in the kernel that the peer has not read, including the kernel's overhead.
    unread: usize,
    /// Bytes from the peer that wait here.
    unheard: usize,
}

impl Network {
    /// Queues a frame for the process at the end of a way; [`Network::flush`] sends it.
    pub(crate) fn send(&mut self, way: Way, frame: Frame) {
        self.put(Remote::Process(way), frame);
    }

    pub(super) fn put(&mut self, to: Remote, frame: Frame) {
        if !self.peers.contains_key(&to) {
            self.add_peer(to);
            match self.connected(to) {
                Ok(_) => {}
                Err(error) if self.is_passing(&error) => {}
                Err(error) => {
                    tracing::debug!(?to, %error, "no way to the peer, packet dropped");
                    self.forget(to);
                    return;
                }
            }
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        if peer.backlog.len() < BACKLOG {
            if !peer.full && peer.backlog.is_empty() {
                self.fresh.push(to);
            }
            peer.backlog.push_back(frame);
        }
    }

    /// Adds a peer that has no connection yet.
    fn add_peer(&mut self, to: Remote) {
        let token = self.name_source(Source::Outbound { to });
        self.peers.insert(to, Peer::new(token));
    }

    /// Adds a peer with its connection. If that cannot be watched, the first frame makes another.
    pub(super) fn add_connected(&mut self, to: Remote, fd: Fd) {
        self.add_peer(to);
        if let Err(error) = self.join(to, fd) {
            tracing::debug!(?to, %error, "the connection is not watched, and closed");
        }
    }

    /// Returns whether a failed connection may succeed later with no frame lost. It is tried again.
    pub(super) fn is_passing(&mut self, error: &io::Error) -> bool {
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
    fn reach(&mut self, to: Remote) -> io::Result<Fd> {
        let name = match to {
            Remote::Process(way) => self.prefix_name(way.to, prefix(way.first)),
            Remote::Listener(number) => {
                self.hall.name(number).ok_or(ErrorKind::ConnectionRefused)?.to_owned()
            }
        };
        let known = self.refused.get(&to).filter(|(since, _)| since.elapsed() < REFUSED_FOR);
        if let Some((_, ErrorKind::PermissionDenied)) = known {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let error = match socket::connect(&name) {
            Ok(fd) => return Ok(fd),
            Err(error) if known.is_some() || socket::is_shortage(&error) => return Err(error),
            Err(error) => error,
        };
        // If another user has bound the name, the peer has one with a random end.
        let fabric = self.name("");
        let start = name.strip_prefix(&fabric).unwrap_or_default();
        for end in self.names.after(&format!("{start}."))? {
            match socket::connect(&format!("{name}.{end}")) {
                Err(error) if socket::is_shortage(&error) => return Err(error),
                Err(_) => {}
                connected => return connected,
            }
        }
        self.refused.retain(|_, (since, _)| since.elapsed() < REFUSED_FOR);
        self.refused.insert(to, (Instant::now(), error.kind()));
        Err(error)
    }

    /// Drops a peer that is gone or absent.
    fn forget(&mut self, to: Remote) {
        if let Some(peer) = self.peers.remove(&to) {
            self.sources.remove(&peer.token);
        }
        if let Remote::Listener(number) = to {
            self.hall.leave(number);
        }
    }

    /// Sends the frames queued since the last flush.
    pub(crate) fn flush(&mut self, cards: &dyn Devices) {
        while let Some(to) = self.fresh.pop() {
            self.sent = true;
            self.drain(to, cards);
        }
    }

    /// Returns whether frames were sent since the last call.
    pub(crate) fn take_sent(&mut self) -> bool {
        std::mem::take(&mut self.sent)
    }

    /// Takes the frames that were sent since the last call, for their memory.
    pub(crate) fn take_spent(&mut self) -> impl Iterator<Item = Frame> + '_ {
        self.spent.drain(..)
    }

    /// Sends a peer's frames until its socket is full.
    pub(super) fn drain(&mut self, to: Remote, cards: &dyn Devices) {
        match self.send_waiting(to, cards) {
            Ok(()) => {}
            Err(error) if self.is_passing(&error) => {}
            Err(error) => {
                tracing::debug!(?to, %error, "no way to the peer, packets dropped");
                self.forget(to);
                congest(cards, to, false);
            }
        }
    }

    /// Serves a peer's socket that has room again, or whose other end is gone.
    pub(super) fn outbound_is_ready(&mut self, to: Remote, cards: &dyn Devices) {
        self.drain(to, cards);
        let Some(peer) = self.peers.get(&to) else { return };
        if peer.backlog.is_empty() && peer.fd.as_ref().is_some_and(|fd| socket::is_hung_up(fd)) {
            self.forget(to);
        }
    }

    /// Sends the frames that wait for a peer. The process may have ended since the last frame, and
    /// another one may have its prefix now: where a connection broke, a new one is tried once.
    ///
    /// # Errors
    /// The error of the connection or of the send. The frames still wait.
    fn send_waiting(&mut self, to: Remote, cards: &dyn Devices) -> io::Result<()> {
        let mut fresh = self.connected(to)?;
        loop {
            let Some(peer) = self.peers.get_mut(&to) else { return Ok(()) };
            let Some(fd) = &peer.fd else { return Ok(()) };
            if peer.backlog.is_empty() {
                if peer.full {
                    peer.full = false;
                    rewatch(&self.waits.epoll, fd, peer.token, NOTHING)?;
                    congest(cards, to, false);
                }
                return Ok(());
            }
            match bundle::send(fd, peer.backlog.iter()) {
                Ok(sent) => {
                    let room = SPENT.saturating_sub(self.spent.len());
                    self.spent.extend(peer.backlog.drain(..sent).take(room));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !peer.full {
                        peer.full = true;
                        rewatch(&self.waits.epoll, fd, peer.token, libc::EPOLLOUT)?;
                        congest(cards, to, true);
                    }
                    return Ok(());
                }
                Err(error) if fresh => return Err(error),
                Err(error) => {
                    tracing::debug!(?to, %error, "the peer is gone");
                    // Closing the socket removes it from the epoll set.
                    (peer.fd, peer.full) = (None, false);
                    congest(cards, to, false);
                    fresh = self.connected(to)?;
                }
            }
        }
    }

    /// Connects a peer that has no connection. Returns whether it had none.
    fn connected(&mut self, to: Remote) -> io::Result<bool> {
        if self.peers.get(&to).is_none_or(|peer| peer.fd.is_some()) {
            return Ok(false);
        }
        let fd = self.reach(to)?;
        self.join(to, fd)?;
        Ok(true)
    }

    /// Gives a peer its connection.
    fn join(&mut self, to: Remote, fd: Fd) -> io::Result<()> {
        if let Some(peer) = self.peers.get_mut(&to) {
            watch(&self.waits.epoll, &fd, peer.token, NOTHING)?;
            peer.connected(fd);
        }
        Ok(())
    }

    /// Returns whether the process at the end of a way runs and has not read this process's packets,
    /// or has packets waiting here.
    pub(crate) fn is_slow(&mut self, way: Way) -> bool {
        let Some(peer) = self.peers.get_mut(&Remote::Process(way)) else { return false };
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

    /// Returns the connections for which packets wait.
    pub(crate) fn congested(&self) -> Vec<RawFd> {
        let waiting = self.peers.values().filter(|peer| !peer.backlog.is_empty());
        waiting.filter_map(|peer| Some(peer.fd.as_ref()?.as_raw_fd())).collect()
    }

    /// Tries again to reach the peers that no descriptor was free for.
    pub(super) fn reach_again(&mut self, cards: &dyn Devices) {
        let parked = self.peers.iter().filter(|(_, peer)| peer.fd.is_none());
        let parked: Vec<Remote> = parked.map(|(to, _)| *to).collect();
        parked.into_iter().for_each(|to| self.drain(to, cards));
    }

    /// Tries every backlog again.
    pub(crate) fn retry(&mut self, cards: &dyn Devices) {
        let all: Vec<Remote> = self.peers.keys().copied().collect();
        all.into_iter().for_each(|to| self.drain(to, cards));
    }
}

/// Stops the queue pairs that send to a peer, or resumes them. Sends to listeners never stop.
fn congest(cards: &dyn Devices, to: Remote, congested: bool) {
    if let Remote::Process(way) = to {
        cards.set_congested(way, congested);
    }
}
