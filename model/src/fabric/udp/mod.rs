//! RoCEv2 over UDP: packets to and from ports that are not on this machine.
//!
//! - [`interface`] is where a port is: addresses and MTU of a network interface; [`changes`] tells when
//!   they have changed, and [`listing`] what they are then.
//! - [`socket`] sends and receives packets with known IP headers.
//! - [`share`] says which process of the machine receives for an address.
//!
//! A packet that leaves has an IP header whose source is an address of this machine's ports. It is
//! sent by a socket of its own process, bound to that address and to the packet's UDP source port,
//! so that routers see one flow for each connection. A process has at most [`FLOWS`] such sockets
//! for an address. Connections beyond that share them, with the socket's port in their packets.
//!
//! A full socket stops the queue pairs that send to the destinations that wait there. Packets that
//! the kernel refuses are lost, as on any network.
//!
//! Anything may arrive. The frames given to the engine are not checked, except for their length.

mod changes;
mod interface;
mod listing;
mod share;
mod socket;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

pub(crate) use changes::Changes;
pub(crate) use interface::{Addresses, Interface, Vlan};
use share::{AGAIN, ENDING, Share};
pub(crate) use socket::has_route;
use socket::{BATCH, Batch};

use super::Devices;
use super::local::socket::{self as local, Fd};
use super::wake::{self, unwatch};
use crate::card::Link;
use crate::object::Groups;
use crate::private::{OwnFd, complain, system};
use crate::wire::ethernet::HEADER;
use crate::wire::icrc::{ICRC, icrc};
use crate::wire::route::{GRH, IPV4};
use crate::wire::{Frame, Global, Header, LinkAddress, Route, Way, gid, mac};

/// Most sockets of a process that send from one address.
const FLOWS: u16 = 32;
/// Most frames that wait for one socket; further frames are lost.
const BACKLOG: usize = 8192;
/// Batches taken from one socket before the others have their turn.
const TURN: usize = 8;
/// Sockets served in one turn.
const EVENTS: usize = 32;
/// Ports that are tried for a flow when other sockets have the port of its packets.
const PORTS: u16 = 64;
/// UDP source ports of RoCEv2 are this and above.
const FIRST_PORT: u16 = 0xc000;

/// One address of this machine's ports.
struct Address {
    /// All zero if the interface no longer has it.
    gid: [u8; 16],
    /// The index of its device.
    card: usize,
    /// The Ethernet address of its port.
    mac: [u8; 6],
    /// The number of its interface.
    interface: u32,
    /// The name by which its processes find each other.
    name: String,
    /// `None` while the last receiver has ended, and no process has its port yet.
    share: Option<Share>,
    /// The time since which there is no share.
    lost: Option<Instant>,
    /// Sending sockets, by number.
    flows: HashMap<u16, Flow>,
}

/// A sending socket.
struct Flow {
    fd: Fd,
    port: u16,
    backlog: VecDeque<Frame>,
    /// Whether the last frame did not fit.
    full: bool,
    /// The ways whose senders are stopped.
    stopped: BTreeSet<Way>,
}

/// The meaning of a descriptor in the epoll set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Share(usize),
    Flow(usize, u16),
    Group(usize),
    Timer,
}

impl Token {
    fn encode(self) -> u64 {
        match self {
            Self::Timer => 0,
            Self::Share(address) => 1 << 56 | address as u64,
            Self::Flow(address, number) => 2 << 56 | u64::from(number) << 32 | address as u64,
            Self::Group(place) => 3 << 56 | place as u64,
        }
    }

    fn decode(token: u64) -> Self {
        let low = token as u32 as usize;
        match token >> 56 {
            1 => Self::Share(low),
            2 => Self::Flow(low, (token >> 32) as u16),
            3 => Self::Group(low),
            _ => Self::Timer,
        }
    }
}

/// A multicast group that queue pairs of a device are attached to.
struct Group {
    gid: [u8; 16],
    card: usize,
    /// `None` if it was left.
    fd: Option<Fd>,
}

/// Takes a frame that has arrived, with the device whose group it is for, if it is for a group.
pub(crate) type Deliver<'a> = dyn FnMut(&Frame, Option<usize>) + 'a;

/// The sockets of this process.
pub(crate) struct Udp {
    epoll: Fd,
    timer: Fd,
    /// The start of the names of addresses.
    names: String,
    addresses: Vec<Address>,
    /// The interface and the Ethernet address of each device's port.
    interfaces: Vec<(u32, [u8; 6])>,
    groups: Vec<Group>,
    /// Groups of devices that could not be joined.
    unjoined: BTreeSet<(usize, [u8; 16])>,
    /// The version of each device's groups at the last look.
    versions: Vec<u64>,
    /// Flows with new frames in their backlog.
    fresh: Vec<(usize, u16)>,
    batch: Batch,
}

impl Udp {
    /// Opens the ports of devices: one interface for each.
    ///
    /// # Errors
    /// - `AddrInUse` with a text if another program has UDP port 4791 of an address.
    /// - Any error of creating and binding a socket.
    pub(crate) fn new(domain: &str, ports: &[Interface]) -> io::Result<Self> {
        let (epoll, timer) = (wake::epoll()?, wake::timer()?);
        watch(&epoll, &timer, Token::Timer, libc::EPOLLIN)?;
        let mut udp = Self {
            epoll,
            timer,
            names: format!("{}{domain}/", local::user_names()),
            addresses: Vec::new(),
            interfaces: ports.iter().map(|port| (port.index, port.port_mac())).collect(),
            groups: Vec::new(),
            unjoined: BTreeSet::new(),
            versions: vec![0; ports.len()],
            fresh: Vec::new(),
            batch: Batch::new(),
        };
        for (card, port) in ports.iter().enumerate() {
            for gid in &port.gids {
                let index = udp.enter(card, gid);
                let address = &udp.addresses[index];
                let share = Share::first(&address.name, gid, port.index)?;
                udp.hold(index, share)?;
            }
        }
        Ok(udp)
    }

    /// Enters an address of a device's port, which is received by no process yet. Returns its place:
    /// tokens name places, so the others stay the same.
    fn enter(&mut self, card: usize, gid: &[u8; 16]) -> usize {
        let (interface, mac) = self.interfaces[card];
        let name = format!("{}{:032x}", self.names, u128::from_be_bytes(*gid));
        let (share, lost, flows) = (None, None, HashMap::new());
        let new = Address { gid: *gid, card, mac, interface, name, share, lost, flows };
        match self.addresses.iter().position(Address::is_gone) {
            Some(place) => {
                self.addresses[place] = new;
                place
            }
            None => {
                self.addresses.push(new);
                self.addresses.len() - 1
            }
        }
    }

    /// Takes part in receiving for an address.
    fn hold(&mut self, index: usize, share: Share) -> io::Result<()> {
        watch(&self.epoll, share.descriptor(), Token::Share(index), libc::EPOLLIN)?;
        let address = &mut self.addresses[index];
        (address.share, address.lost) = (Some(share), None);
        Ok(())
    }

    /// Changes the addresses of a device's port. Packets that wait at one that is gone are lost.
    pub(crate) fn set_addresses(
        &mut self,
        card: usize,
        addresses: &[[u8; 16]],
        cards: &dyn Devices,
    ) {
        for address in self.addresses.iter_mut().filter(|address| address.card == card) {
            if !address.is_gone() && !addresses.contains(&address.gid) {
                address.leave(&self.epoll, cards);
            }
        }
        for gid in addresses {
            let is_it = |address: &Address| address.card == card && address.gid == *gid;
            if !self.addresses.iter().any(is_it) {
                let index = self.enter(card, gid);
                self.take_over(index);
            }
        }
    }

    /// Returns a descriptor that is readable when [`Udp::receive`] has work.
    pub(crate) fn descriptor(&self) -> &OwnFd {
        &self.epoll
    }

    /// Returns whether an address is one of this machine's ports.
    pub(crate) fn is_here(&self, gid: &[u8; 16]) -> bool {
        self.place(gid).is_some()
    }

    fn place(&self, gid: &[u8; 16]) -> Option<usize> {
        self.addresses.iter().position(|address| !address.is_gone() && address.gid == *gid)
    }

    /// Queues a frame for the address in its IP header; [`Udp::flush`] sends it.
    pub(crate) fn send(&mut self, global: &Global, port: u16, frame: Frame) {
        let found = self.place(&global.source);
        let ipv4 = gid::is_ipv4(&global.source);
        let Some(index) = found.filter(|_| ipv4 == gid::is_ipv4(&global.destination)) else {
            tracing::debug!(?global, "no way from this address, packet dropped");
            return;
        };
        self.put(index, port, frame);
    }

    /// Queues a frame in the backlog of its flow.
    fn put(&mut self, index: usize, port: u16, mut frame: Frame) {
        let ipv4 = gid::is_ipv4(&self.addresses[index].gid);
        let number = (port ^ port >> 8) % FLOWS;
        let flow = match self.flow(index, number, port) {
            Ok(flow) => flow,
            Err(error) => {
                tracing::debug!(%error, "no socket to send from, packet dropped");
                return;
            }
        };
        if flow.port != port {
            readdress(&mut frame, ipv4, flow.port);
        }
        if flow.backlog.len() < BACKLOG {
            flow.backlog.push_back(frame);
            // Also where the socket is full: senders to a new destination are stopped.
            self.fresh.push((index, number));
        }
    }

    /// Returns a sending socket, made at the first call: from this port if it is free.
    fn flow(&mut self, index: usize, number: u16, port: u16) -> io::Result<&mut Flow> {
        let address = &mut self.addresses[index];
        if !address.flows.contains_key(&number) {
            let (gid, interface) = (address.gid, address.interface);
            let others = (1..PORTS).map(|n| FIRST_PORT | port.wrapping_add(n * 251) & 0x3fff);
            let mut bound = Err(ErrorKind::AddrInUse.into());
            for port in std::iter::once(port).chain(others) {
                bound = socket::sender(&gid, port, interface).map(|fd| (fd, port));
                if !matches!(&bound, Err(error) if error.kind() == ErrorKind::AddrInUse) {
                    break;
                }
            }
            let (fd, port) = bound?;
            let (backlog, stopped) = (VecDeque::new(), BTreeSet::new());
            address.flows.insert(number, Flow { fd, port, backlog, full: false, stopped });
        }
        address.flows.get_mut(&number).ok_or_else(|| ErrorKind::NotFound.into())
    }

    /// Sends the frames queued since the last flush.
    pub(crate) fn flush(&mut self, cards: &dyn Devices) {
        // One look at a socket is enough for all its new frames.
        self.fresh.sort_unstable();
        self.fresh.dedup();
        while let Some((index, number)) = self.fresh.pop() {
            self.drain(index, number, cards);
        }
    }

    /// Tries every backlog again.
    pub(crate) fn retry(&mut self, cards: &dyn Devices) {
        for index in 0..self.addresses.len() {
            let numbers: Vec<u16> = self.addresses[index].flows.keys().copied().collect();
            numbers.into_iter().for_each(|number| self.drain(index, number, cards));
        }
    }

    /// Returns the sockets for which frames wait.
    pub(crate) fn congested(&self) -> impl Iterator<Item = RawFd> {
        let flows = self.addresses.iter().flat_map(|address| address.flows.values());
        flows.filter(|flow| !flow.backlog.is_empty()).map(|flow| flow.fd.as_raw_fd())
    }

    /// Sends a flow's frames until its socket is full.
    fn drain(&mut self, index: usize, number: u16, cards: &dyn Devices) {
        let address = &mut self.addresses[index];
        let (ipv4, interface) = (gid::is_ipv4(&address.gid), address.interface);
        let Some(flow) = address.flows.get_mut(&number) else { return };
        while !flow.backlog.is_empty() {
            match socket::send(&flow.fd, ipv4, interface, flow.backlog.iter().take(BATCH)) {
                Ok(sent) => drop(flow.backlog.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let token = Token::Flow(index, number);
                    if !std::mem::replace(&mut flow.full, true) {
                        let _ = watch(&self.epoll, &flow.fd, token, libc::EPOLLOUT);
                    }
                    flow.stop(cards);
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "the kernel refuses a packet");
                    flow.backlog.pop_front();
                }
            }
        }
        if std::mem::take(&mut flow.full) {
            unwatch(&self.epoll, &flow.fd);
            for way in std::mem::take(&mut flow.stopped) {
                cards.set_congested(way, false);
            }
        }
    }

    /// Serves the sockets that are ready.
    pub(crate) fn receive(&mut self, cards: &dyn Devices, deliver: &mut Deliver<'_>) {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        // SAFETY: `events` holds the EVENTS events that the call may write.
        let count = unsafe {
            system::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), EVENTS as i32, 0)
        };
        for event in &events[..usize::try_from(count).unwrap_or(0)] {
            match Token::decode(event.u64) {
                Token::Timer => self.try_again(),
                Token::Flow(index, number) => self.drain(index, number, cards),
                Token::Group(place) => self.receive_group(place, deliver),
                Token::Share(index) => match self.addresses.get(index).map(|a| &a.share) {
                    Some(Some(Share::Receiver { .. })) => {
                        self.receive_address(index, deliver);
                    }
                    Some(Some(Share::Other { .. })) => self.take_over(index),
                    _ => {}
                },
            }
        }
    }

    fn receive_address(&mut self, index: usize, deliver: &mut Deliver<'_>) {
        let Some(Address { gid, mac, share: Some(Share::Receiver { socket, .. }), .. }) =
            self.addresses.get(index)
        else {
            return;
        };
        for _ in 0..TURN {
            match self.batch.receive(socket, gid, *mac) {
                Ok((frames, more)) => {
                    frames.for_each(|frame| deliver(frame, None));
                    if !more {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Takes in packets to a group. Those from this machine have come another way.
    fn receive_group(&mut self, place: usize, deliver: &mut Deliver<'_>) {
        let Some(Group { gid, card, fd: Some(fd) }) = self.groups.get(place) else { return };
        for _ in 0..TURN {
            let Ok((frames, more)) = self.batch.receive(fd, gid, mac(gid)) else { return };
            for frame in frames {
                let Ok(Route::Ethernet { global, .. }) = Route::decode(Link::Roce, &frame.0) else {
                    continue;
                };
                let is_own = |own: &Address| !own.is_gone() && own.gid == global.source;
                if !self.addresses.iter().any(is_own) {
                    deliver(frame, Some(*card));
                }
            }
            if !more {
                return;
            }
        }
    }

    /// The process that received for an address has ended. One of the others becomes the receiver.
    fn take_over(&mut self, index: usize) {
        let Some(address) = self.addresses.get_mut(index).filter(|it| !it.is_gone()) else {
            return;
        };
        // Closing a descriptor removes it from the epoll set only if no child of a fork has a copy.
        if let Some(share) = address.share.take() {
            unwatch(&self.epoll, share.descriptor());
        }
        let lost = *address.lost.get_or_insert_with(Instant::now);
        match Share::take(&address.name, &address.gid, address.interface) {
            Ok(share) => {
                if let Err(error) = self.hold(index, share) {
                    tracing::debug!(%error, "an address is not received");
                }
            }
            Err(error) => {
                static SAID: std::sync::Once = std::sync::Once::new();
                // An interface that is down may keep its address.
                if lost.elapsed() > ENDING && error.kind() != ErrorKind::AddrNotAvailable {
                    SAID.call_once(|| {
                        let address = share::text(&address.gid);
                        complain!("no packet reaches {address} any more: {error}");
                    });
                }
                wake::set_timer(&self.timer, AGAIN);
            }
        }
    }

    /// Tries again what failed.
    fn try_again(&mut self) {
        wake::clear(&self.timer);
        for index in 0..self.addresses.len() {
            if self.addresses[index].share.is_none() {
                self.take_over(index);
            }
        }
    }

    /// Joins the groups that queue pairs of a device are attached to, and leaves the others. Returns
    /// a text for each group that cannot be joined, once.
    #[must_use]
    pub(crate) fn join(&mut self, index: usize, groups: &Groups) -> Vec<String> {
        let mut complaints = Vec::new();
        let Some(version) = self.versions.get_mut(index) else { return complaints };
        if std::mem::replace(version, groups.version()) == groups.version() {
            return complaints;
        }
        // Places stay the same, since tokens name them.
        for group in self.groups.iter_mut().filter(|group| group.card == index) {
            if groups.of(&group.gid).is_empty() {
                group.fd = None;
            }
        }
        self.unjoined.retain(|(card, gid)| *card != index || !groups.of(gid).is_empty());
        for gid in groups.gids() {
            let is_it = |group: &Group| group.card == index && group.gid == *gid;
            if self.groups.iter().any(|group| is_it(group) && group.fd.is_some()) {
                continue;
            }
            let fd = match socket::member(gid, self.interfaces[index].0) {
                Ok(fd) => fd,
                Err(error) => {
                    if self.unjoined.insert((index, *gid)) {
                        let gid = share::text(gid);
                        complaints.push(format!("the group {gid} is not joined: {error}"));
                    }
                    continue;
                }
            };
            let free = |group: &Group| group.fd.is_none();
            let place = self.groups.iter().position(free).unwrap_or(self.groups.len());
            let _ = watch(&self.epoll, &fd, Token::Group(place), libc::EPOLLIN);
            self.unjoined.remove(&(index, *gid));
            let group = Group { gid: *gid, card: index, fd: Some(fd) };
            match self.groups.get_mut(place) {
                Some(free) => *free = group,
                None => self.groups.push(group),
            }
        }
        complaints
    }
}

impl Address {
    /// Whether the interface no longer has it.
    fn is_gone(&self) -> bool {
        self.gid == [0; 16]
    }

    /// Closes all sockets of an address that the interface no longer has.
    fn leave(&mut self, epoll: &Fd, cards: &dyn Devices) {
        if let Some(share) = self.share.take() {
            unwatch(epoll, share.descriptor());
        }
        for (_, flow) in self.flows.drain() {
            if flow.full {
                unwatch(epoll, &flow.fd);
            }
            flow.stopped.into_iter().for_each(|way| cards.set_congested(way, false));
        }
        (self.gid, self.lost) = ([0; 16], None);
    }
}

impl Flow {
    /// Stops the queue pairs that send to the destinations of the waiting frames.
    fn stop(&mut self, cards: &dyn Devices) {
        for frame in &self.backlog {
            let Some(way) = way(frame) else { continue };
            if self.stopped.insert(way) {
                cards.set_congested(way, true);
            }
        }
    }
}

/// Returns the way of a packet: its destination, as the transport knows it.
fn way(frame: &Frame) -> Option<Way> {
    let to = LinkAddress::of(Link::Roce, &frame.0)?;
    let (_, number) = Header::destination(Link::Roce, &frame.0)?;
    Some(super::local::way(to, number))
}

/// Gives a frame another UDP source port, which the ICRC covers.
fn readdress(frame: &mut Frame, ipv4: bool, port: u16) {
    let at = HEADER + if ipv4 { IPV4 } else { GRH };
    let Some(covered) = frame.0.len().checked_sub(ICRC) else { return };
    let Some(place) = frame.0.get_mut(at..at + 2) else { return };
    place.copy_from_slice(&port.to_be_bytes());
    if let Some(icrc) = icrc(Link::Roce, &frame.0[HEADER..covered]) {
        frame.0[covered..].copy_from_slice(&icrc);
    }
}

fn watch(epoll: &Fd, fd: &Fd, token: Token, events: libc::c_int) -> io::Result<()> {
    wake::watch(epoll, fd, token.encode(), events)
}
