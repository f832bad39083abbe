//! The ids, files and connections of a process.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use libc::c_int;
use zerocopy::IntoBytes;

use super::super::uverbs::process::errno::{Errno, Result};
use super::super::uverbs::process::lock;
use super::abi::{AhAttr, ConnParam, Ece, EventReply, UdParam, event, qp_type};
use super::address::{Address, Place};
use super::group::Group;
use crate::clock::Random;
use crate::engine::{Listening, Neighbours, Reserved, Shield};
use crate::identity::Identity;
use crate::management::Connection;
use crate::management::subnet::Path;
use crate::private::system;
use crate::wire::{Frame, Route};

/// The state under its lock, and what the engine asks at each entry.
pub(in super::super) struct Manager {
    state: Mutex<State>,
    /// Whether datagrams wait to be sent.
    sends: AtomicBool,
    /// The earliest deadline of a connection, by the state's clock; `u64::MAX` if there is none.
    deadline: AtomicU64,
    epoch: Instant,
}

/// The lock, held with signals and cancellation of the thread blocked: a signal handler may enter
/// the engine, whose agent needs the lock.
pub(super) struct Locked<'a> {
    state: MutexGuard<'a, State>,
    manager: &'a Manager,
    _shield: Shield,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.manager.sends.store(!self.state.outbox.is_empty(), Ordering::Release);
        let first = self.state.timers.first().map_or(u64::MAX, |(at, _)| *at);
        self.manager.deadline.store(first, Ordering::Release);
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// The ids, files and connections of a process.
pub(super) struct State {
    /// The machine's ports.
    pub neighbours: Neighbours,
    ids: BTreeMap<u32, Id>,
    /// Joins of multicast groups; they share the numbers of ids.
    pub groups: BTreeMap<u32, Group>,
    next: u32,
    /// Connections by communication id.
    pub links: BTreeMap<u32, Link>,
    next_link: u16,
    /// Datagrams to send, with the index of the device.
    pub outbox: VecDeque<(usize, Frame)>,
    files: BTreeMap<u64, Events>,
    random: Random,
    epoch: Instant,
    /// Deadlines of connections.
    pub timers: BTreeSet<(u64, u32)>,
}

/// The events of a file.
struct Events {
    signal: c_int,
    queue: VecDeque<Queued>,
}

/// An event that the program has not read.
pub(super) struct Queued {
    /// The id or join that it is counted for.
    counted: u32,
    reply: EventReply,
    /// The id that a connection request has made.
    child: Option<u32>,
}

/// A connection with its way to the peer.
pub(super) struct Link {
    pub connection: Connection,
    /// The id that is told of events.
    pub owner: Option<u32>,
    /// Index of the device.
    pub card: usize,
    pub route: Route,
    pub p_key: u16,
    /// The deadline that the state's timers have.
    pub timer: Option<u64>,
}

/// The stage that an id has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Idle,
    Bound,
    AddressResolved,
    RouteResolved,
    Listening,
    Connecting,
    Connected,
    Ended,
}

/// The attributes of a connection that queue pairs are set to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes {
    pub remote_qp: u32,
    pub receive_psn: u32,
    pub send_psn: u32,
    pub mtu: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub timeout: u8,
}

/// A communication identifier of the program (`rdma_cm_id`).
pub(super) struct Id {
    pub file: u64,
    /// The program's name for it; 0 before it has accepted the connection.
    pub uid: u64,
    pub space: u16,
    pub qp_type: u8,
    pub stage: Stage,
    pub source: Option<Address>,
    pub destination: Option<Address>,
    /// Port and GID.
    pub place: Option<Place>,
    pub path: Option<Path>,
    pub type_of_service: u8,
    pub ack_timeout: Option<u8>,
    pub reuse: bool,
    pub q_key: u32,
    pub reserved: Option<Reserved>,
    pub listening: Option<Listening>,
    /// Requests that may still wait for the program to read them.
    pub backlog: u32,
    /// Communication id.
    pub connection: Option<u32>,
    pub attributes: Attributes,
    /// Events that the program has read.
    pub reported: u32,
}

impl Id {
    pub fn new(file: u64, uid: u64, space: u16, qp_type: u8) -> Self {
        Self {
            file,
            uid,
            space,
            qp_type,
            stage: Stage::Idle,
            source: None,
            destination: None,
            place: None,
            path: None,
            type_of_service: 0,
            ack_timeout: None,
            reuse: false,
            q_key: 0,
            reserved: None,
            listening: None,
            backlog: 0,
            connection: None,
            attributes: Attributes::default(),
            reported: 0,
        }
    }

    pub fn is_datagram(&self) -> bool {
        self.qp_type == qp_type::UD
    }
}

/// The contents of an event.
pub(super) enum Contents {
    Nothing,
    Connection(Box<ConnParam>),
    Datagram(Box<UdParam>),
    /// The number that a program gave an event of its own.
    Argument(u64),
}

impl Contents {
    /// The event of a connection, with private data.
    pub fn connection(param: ConnParam, private: &[u8]) -> Self {
        let mut param = param;
        param.private_data[..private.len()].copy_from_slice(private);
        param.private_data_len = private.len() as u8;
        Self::Connection(Box::new(param))
    }

    /// The event of a datagram service, with private data.
    pub fn datagram(qp: u32, q_key: u32, to: AhAttr, private: &[u8]) -> Self {
        let mut param = UdParam { qp_num: qp, qkey: q_key, ah_attr: to, ..UdParam::default() };
        param.private_data[..private.len()].copy_from_slice(private);
        param.private_data_len = private.len() as u8;
        Self::Datagram(Box::new(param))
    }

    fn put(&self, reply: &mut EventReply) {
        let bytes = match self {
            Self::Nothing => return,
            Self::Connection(param) => param.as_bytes(),
            Self::Datagram(param) => param.as_bytes(),
            Self::Argument(argument) => argument.as_bytes(),
        };
        reply.param[..bytes.len()].copy_from_slice(bytes);
    }
}

impl Manager {
    /// Creates the state of a process with these ports.
    pub(in super::super) fn new(neighbours: Neighbours) -> Self {
        let seed = neighbours.ports().first().map_or(0, |port| port.seed);
        let epoch = Instant::now();
        let state = State {
            neighbours,
            ids: BTreeMap::new(),
            groups: BTreeMap::new(),
            next: 0,
            links: BTreeMap::new(),
            next_link: 0,
            outbox: VecDeque::new(),
            files: BTreeMap::new(),
            random: Random::seeded(seed ^ 0x636d),
            epoch,
            timers: BTreeSet::new(),
        };
        let deadline = AtomicU64::new(u64::MAX);
        Self { state: Mutex::new(state), sends: AtomicBool::new(false), deadline, epoch }
    }

    /// Takes notice of the ports' addresses of now.
    pub(in super::super) fn set_neighbours(&self, neighbours: Neighbours) {
        self.lock().neighbours = neighbours;
    }

    /// Ends all connections.
    pub(in super::super) fn end(&self) {
        self.lock().end();
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let shield = Shield::new();
        Locked { state: lock(&self.state), manager: self, _shield: shield }
    }

    /// Returns whether datagrams wait to be sent. One load.
    pub(super) fn sends(&self) -> bool {
        self.sends.load(Ordering::Acquire)
    }

    /// Returns the nanoseconds until a connection's deadline.
    pub(super) fn wait(&self) -> Option<u64> {
        let deadline = self.deadline.load(Ordering::Acquire);
        let left = || deadline.saturating_sub(self.epoch.elapsed().as_nanos() as u64);
        (deadline != u64::MAX).then(left)
    }

    /// Adds a file, whose eventfd is `signal`.
    pub(super) fn open(&self, file: u64, signal: c_int) {
        let events = Events { signal, queue: VecDeque::new() };
        self.lock().files.insert(file, events);
    }
}

impl State {
    /// Returns the machine's ports, by the index of their device.
    pub fn ports(&self) -> &[Identity] {
        self.neighbours.ports()
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Random bits.
    pub fn draw(&mut self) -> u64 {
        self.random.draw()
    }

    /// A number for an id or join.
    pub fn number(&mut self) -> u32 {
        loop {
            let number = self.next;
            self.next = self.next.wrapping_add(1) & 0x7fff_ffff;
            if !self.ids.contains_key(&number) && !self.groups.contains_key(&number) {
                return number;
            }
        }
    }

    pub fn insert(&mut self, id: Id) -> u32 {
        let number = self.number();
        self.ids.insert(number, id);
        number
    }

    /// Returns an id of a file.
    pub fn id(&mut self, file: u64, number: u32) -> Result<&mut Id> {
        self.ids.get_mut(&number).filter(|id| id.file == file).ok_or(Errno::ENOENT)
    }

    /// Returns an id that the state itself refers to.
    pub fn known(&mut self, number: u32) -> Option<&mut Id> {
        self.ids.get_mut(&number)
    }

    /// Returns an id, to look at it.
    pub fn peek(&self, number: u32) -> Option<&Id> {
        self.ids.get(&number)
    }

    /// Returns the ids that are bound, each with its address.
    pub fn sources(&self) -> impl Iterator<Item = (&Id, &Address)> {
        self.ids.values().filter_map(|id| Some((id, id.source.as_ref()?)))
    }

    /// Returns the listeners.
    pub fn listeners(&self) -> impl Iterator<Item = (u32, &Id)> {
        let listens = |id: &&Id| id.stage == Stage::Listening;
        self.ids.iter().map(|(number, id)| (*number, id)).filter(move |(_, id)| listens(id))
    }

    /// A communication id of a device.
    ///
    /// # Errors
    /// `ENOMEM` if all are in use.
    pub fn communication_id(&mut self, card: usize) -> Result<u32> {
        let prefix = self.ports()[card].qpn_prefixes.first().copied().ok_or(Errno::ENODEV)?;
        for _ in 0..=u16::MAX {
            self.next_link = self.next_link.wrapping_add(1);
            let id = u32::from(prefix) << 16 | u32::from(self.next_link);
            if !self.links.contains_key(&id) {
                return Ok(id);
            }
        }
        Err(Errno::ENOMEM)
    }

    /// Reports an event of an id. An id that the program has not named yet has none.
    pub fn report(&mut self, number: u32, event: u32, status: i32, contents: &Contents) {
        self.report_with(number, event, status, contents, Ece::default());
    }

    /// Reports an event of an id, with what the peer's device offers or has chosen.
    pub fn report_with(
        &mut self,
        number: u32,
        event: u32,
        status: i32,
        contents: &Contents,
        ece: Ece,
    ) {
        let Some(id) = self.ids.get(&number).filter(|id| id.uid != 0) else { return };
        let (file, uid) = (id.file, id.uid);
        let reply =
            EventReply { uid, id: number, event, status: status as u32, ece, ..Default::default() };
        self.queue(file, Queued { counted: number, reply, child: None }, contents);
    }

    /// Reports a connection request that has made the id `child`.
    pub fn report_request(&mut self, listener: u32, child: u32, contents: &Contents, ece: Ece) {
        let Some(id) = self.ids.get(&listener) else { return };
        let (file, uid) = (id.file, id.uid);
        let event = event::CONNECT_REQUEST;
        let reply = EventReply { uid, id: child, event, ece, ..Default::default() };
        self.queue(file, Queued { counted: listener, reply, child: Some(child) }, contents);
    }

    /// Reports the result of a join.
    pub fn report_join(&mut self, group: u32, status: i32, contents: &Contents) {
        let Some(joined) = self.groups.get(&group) else { return };
        let Some(id) = self.ids.get(&joined.id) else { return };
        let event = if status == 0 { event::MULTICAST_JOIN } else { event::MULTICAST_ERROR };
        let (file, uid, status) = (id.file, joined.uid, status as u32);
        let reply = EventReply { uid, id: group, event, status, ..Default::default() };
        self.queue(file, Queued { counted: group, reply, child: None }, contents);
    }

    fn queue(&mut self, file: u64, mut queued: Queued, contents: &Contents) {
        let Some(events) = self.files.get_mut(&file) else { return };
        contents.put(&mut queued.reply);
        events.queue.push_back(queued);
        events.signal();
    }

    /// Returns whether a file is open.
    pub fn has_file(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    /// Takes a file's oldest event.
    pub fn next_event(&mut self, file: u64) -> Option<EventReply> {
        let events = self.files.get_mut(&file)?;
        let queued = events.queue.pop_front();
        events.quiet();
        let queued = queued?;
        if let Some(id) = self.ids.get_mut(&queued.counted) {
            id.reported += 1;
            if queued.child.is_some() {
                id.backlog += 1;
            }
        } else if let Some(group) = self.groups.get_mut(&queued.counted) {
            group.reported += 1;
        }
        Some(queued.reply)
    }

    /// Drops the unread events of an id or join. Returns the ids that requests among them have made.
    pub fn drop_events(&mut self, counted: u32) -> Vec<u32> {
        let mut children = Vec::new();
        for events in self.files.values_mut() {
            events.queue.retain(|queued| {
                let other = queued.counted != counted;
                if !other {
                    children.extend(queued.child);
                }
                other
            });
            events.quiet();
        }
        children
    }

    /// Destroys an id. Returns the number of its events that were read, and the service that it
    /// listened for.
    pub fn destroy(&mut self, number: u32) -> (u32, Vec<Listening>) {
        let children = self.drop_events(number);
        let Some(id) = self.ids.remove(&number) else { return (0, Vec::new()) };
        for child in children {
            self.destroy(child);
        }
        let joined: Vec<u32> = self
            .groups
            .iter()
            .filter(|(_, group)| group.id == number)
            .map(|(group, _)| *group)
            .collect();
        for group in joined {
            self.drop_events(group);
            self.groups.remove(&group);
        }
        if let Some(local) = id.connection {
            let (transaction, now) = (self.draw(), self.now());
            if let Some(link) = self.links.get_mut(&local) {
                link.owner = None;
                link.connection.close(transaction, now);
            }
            self.settle(local);
        }
        (id.reported, id.listening.into_iter().collect())
    }

    /// Ends all connections, as the kernel does when a process exits. The ids stay.
    pub fn end(&mut self) {
        let all: Vec<u32> = self.links.keys().copied().collect();
        for local in all {
            let (transaction, now) = (self.draw(), self.now());
            if let Some(link) = self.links.get_mut(&local) {
                link.connection.close(transaction, now);
            }
            self.settle(local);
        }
    }

    /// Destroys a file's ids. Returns the services that they listened for.
    pub fn close(&mut self, file: u64) -> Vec<Listening> {
        let own: Vec<u32> =
            self.ids.iter().filter(|(_, id)| id.file == file).map(|(number, _)| *number).collect();
        let withdrawn = own.into_iter().flat_map(|number| self.destroy(number).1).collect();
        self.files.remove(&file);
        withdrawn
    }

    /// Moves an id to another file, with its joins and events. Also moves the ids of its connection
    /// requests that the program has not read. Returns the number of the id's events that were read.
    pub fn migrate(&mut self, number: u32, from: u64, to: u64) -> Result<u32> {
        let reported = self.id(from, number)?.reported;
        if !self.files.contains_key(&to) {
            return Err(Errno::EINVAL);
        }
        let Some(events) = self.files.get_mut(&from) else { return Err(Errno::EINVAL) };
        let groups = &self.groups;
        let is_moved = |queued: &Queued| {
            let join = groups.get(&queued.counted);
            queued.counted == number || join.is_some_and(|join| join.id == number)
        };
        let all = std::mem::take(&mut events.queue);
        let (moved, rest): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(is_moved);
        events.queue = rest;
        events.quiet();
        for moving in moved.iter().filter_map(|queued| queued.child).chain([number]) {
            if let Some(id) = self.ids.get_mut(&moving) {
                id.file = to;
            }
        }
        if let Some(events) = self.files.get_mut(&to) {
            events.queue.extend(moved);
            if !events.queue.is_empty() {
                events.signal();
            }
        }
        Ok(reported)
    }
}

impl Events {
    /// Makes the descriptor readable.
    fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the call reads the eight bytes of `one`.
        unsafe { system::write(self.signal, one.as_ptr().cast(), one.len()) };
    }

    /// Makes the descriptor unreadable if no event waits.
    fn quiet(&self) {
        if !self.queue.is_empty() {
            return;
        }
        let mut ready = libc::pollfd { fd: self.signal, events: libc::POLLIN, revents: 0 };
        let mut count = [0u8; 8];
        // The program's own reads and writes of the descriptor fail: only these reach it.
        // SAFETY: the calls read and write `ready` and `count`, with their lengths.
        unsafe {
            if system::poll(&mut ready, 1, 0) == 1 {
                system::read(self.signal, count.as_mut_ptr().cast(), count.len());
            }
        }
    }
}
