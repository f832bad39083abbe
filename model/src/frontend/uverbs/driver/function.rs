//! One device as the kernel's driver holds it after probing: capabilities, event queues, register
//! page, and the recipients of its events.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::collections::{BTreeSet, HashMap};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::{
    Field, alloc_pd_in, alloc_pd_out, alloc_q_counter_in, alloc_q_counter_out, alloc_uar_in,
    alloc_uar_out, create_eq_in, create_eq_out, eqc, opcode, query_hca_cap_in, query_hca_cap_out,
};

use super::super::process::errno::{Errno, Result};
use super::super::process::lock;
use super::super::tree::identity::Device;
use super::super::tree::table::{GidTable, interface_of};
use super::boot::boot;
use super::clock::Clock;
use super::command::{Caps, Command};
use super::event::{EventQueue, Source, kind};
use super::gids::{Change, Gids};
use super::rates::Rates;
use super::steering::{Flows, Run};
use super::subscriptions::{Offered, Subscriptions};
use super::window::Window;
use crate::card::{Card, GidEntry};
use crate::engine::Engine;
use crate::fabric::udp::Addresses;
use crate::object::Memic;

/// The uid of an object that queues of all user contexts may name (Linux,
/// `MLX5_SHARED_RESOURCE_UID`).
const FOR_ALL: u64 = 0xffff;

/// Entries in each event queue.
const EQES: usize = 1 << 12;
/// Bytes of an EQE.
const EQE: usize = 64;
/// Bytes of a page of an event queue's buffer.
const PAGE: usize = 4096;

/// Event types an asynchronous event queue listens for (`device.h`, `MLX5_EVENT_TYPE_*`).
const ASYNC_EVENTS: [u8; 15] = [
    kind::PATH_MIGRATED,
    kind::COMMUNICATION_ESTABLISHED,
    kind::SEND_QUEUE_DRAINED,
    kind::CQ_ERROR,
    kind::QP_CATASTROPHIC,
    kind::PATH_MIGRATION_FAILED,
    kind::PORT_CHANGE,
    kind::QP_INVALID_REQUEST,
    kind::QP_ACCESS_ERROR,
    kind::SRQ_CATASTROPHIC,
    kind::SRQ_LAST_WQE,
    kind::SRQ_LIMIT,
    kind::TARGET_DRAINED,
    kind::TARGET_KEY_VIOLATION,
    kind::GENERAL,
];

/// A file: device and inode.
pub(crate) type FileId = (u64, u64);

/// XRC domains by the files behind them, and how many contexts have each open.
pub(crate) type Domains = HashMap<FileId, (u32, usize)>;

/// One device.
pub(crate) struct Function {
    /// Index of the device in its engine.
    pub index: usize,
    /// Identity.
    pub device: &'static Device,
    /// Current capabilities.
    pub caps: Caps,
    /// Events that programs may subscribe to.
    pub events: Offered,
    /// Numbers of the completion event queues, by vector.
    pub eqns: Vec<u32>,
    /// The driver's own protection domain, for queue pairs without another one.
    pub pdn: u32,
    /// The port's set of counters, which verbs queue pairs name.
    pub counters: u32,
    engine: Arc<Engine>,
    interrupts: Arc<Vec<Interrupts>>,
    /// The device's clock, as programs see it.
    pub clock: Arc<Clock>,
    gids: Mutex<Gids>,
    domains: Mutex<Domains>,
    window: Window,
    flows: Mutex<Flows>,
    rates: Mutex<Rates>,
}

impl Function {
    /// Starts a device as the kernel's driver does: the HCA, capabilities, a register page of its own, one
    /// asynchronous event queue, and one completion event queue for each processor.
    pub fn probe(
        engine: &Arc<Engine>,
        index: usize,
        device: &'static Device,
        interrupts: Arc<Vec<Interrupts>>,
    ) -> Result<Self> {
        let run = |command: Command| engine.enter(index, |card| command.run(card));
        engine.enter(index, boot)?;
        let window = Window::new()?;
        engine.enter(index, |card| card.set_memic(Memic::at(window.address)));
        let caps = engine.enter(index, Caps::query)?;
        let events = engine.enter(index, |card| Offered::by(&caps, card))?;
        let reply = run(Command::new(opcode::ALLOC_UAR, alloc_uar_in::SIZE, alloc_uar_out::SIZE))?;
        let uar = alloc_uar_out::UAR.get(&reply) as u32;
        let reply = run(Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE, alloc_pd_out::SIZE))?;
        let pdn = alloc_pd_out::PD.get(&reply) as u32;
        let (size, reply) = (alloc_q_counter_in::SIZE, alloc_q_counter_out::SIZE);
        let mut command = Command::new(opcode::ALLOC_Q_COUNTER, size, reply);
        command.set(alloc_q_counter_in::UID, FOR_ALL);
        let reply = run(command)?;
        let counters = alloc_q_counter_out::COUNTER_SET_ID.get(&reply) as u32;
        let vectors = crate::private::system::processors().min(64);
        let mut eqns = Vec::new();
        for vector in 0..=vectors {
            let buffer = Ring::new();
            let mut command =
                Command::new(opcode::CREATE_EQ, create_eq_in::SIZE, create_eq_out::SIZE);
            command.set(eqc::LOG_EQ_SIZE.within(create_eq_in::EQ_CONTEXT_ENTRY), EQES.ilog2());
            command.set(eqc::UAR_PAGE.within(create_eq_in::EQ_CONTEXT_ENTRY), uar);
            command.set(eqc::INTR.within(create_eq_in::EQ_CONTEXT_ENTRY), vector as u32);
            if vector == 0 {
                let mask = ASYNC_EVENTS.iter().fold(0u64, |mask, event| mask | 1 << event);
                command.set(create_eq_in::EVENT_BITMASK, mask);
            }
            command
                .pages((0..EQES * EQE / PAGE).map(|page| buffer.address() + (page * PAGE) as u64));
            let reply = run(command)?;
            let eqn = create_eq_out::EQ_NUMBER.get(&reply) as u32;
            let mut queues = lock(&interrupts[index].queues);
            queues.push(EventRing { ring: buffer, eqn, uar, consumer: 0 });
            if vector > 0 {
                eqns.push(eqn);
            }
        }
        // Arms every queue for its first event.
        engine.enter(index, |card| {
            for queue in lock(&interrupts[index].queues).iter() {
                queue.update(card);
            }
        });
        let (engine, domains) = (engine.clone(), Mutex::default());
        let mac = engine.enter(index, |card| card.identity.mac);
        let gids = Gids::new(&device.table, device.gid_table_size(), device.default_gid, mac);
        for change in gids.of_vlans() {
            run(change.command(mac))?;
        }
        Ok(Self {
            index,
            device,
            caps,
            events,
            eqns,
            pdn,
            counters,
            engine,
            interrupts,
            gids: Mutex::new(gids),
            domains,
            window,
            flows: Mutex::default(),
            rates: Mutex::default(),
            clock: Arc::default(),
        })
    }

    /// Enters the device.
    pub fn enter<R>(&self, work: impl FnOnce(&mut Card) -> R) -> R {
        self.engine.enter(self.index, |card| {
            let result = work(card);
            self.clock.keep(card);
            result
        })
    }

    /// Returns the engine that runs the device.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Executes a command and returns its reply.
    pub fn run(&self, command: Command) -> Result<Vec<u8>> {
        self.enter(|card| command.run(card))
    }

    /// Returns an entry of the port's GID table. The holder keeps its place taken. `None` where it is empty.
    pub fn gid(&self, index: usize) -> Option<Arc<GidEntry>> {
        lock(&self.gids).get(index).cloned()
    }

    /// Returns the port's GID table, with its empty entries.
    pub fn gids(&self) -> GidTable {
        lock(&self.gids).table()
    }

    /// Returns the addresses that the entries of the port's GID table are of.
    pub fn addresses(&self) -> Addresses {
        lock(&self.gids).addresses().clone()
    }

    /// Returns the number of the network interface that has the address of an entry; 0 for none.
    pub fn interface_of(&self, entry: &GidEntry) -> u32 {
        let gids = lock(&self.gids);
        let vlans = &gids.addresses().vlans;
        interface_of(entry, self.device.netdev.as_ref(), vlans).map_or(0, |(_, number)| number)
    }

    /// Gives the port a default GID and addresses, in its table and in the device. Returns the number of
    /// events that tell of it: one for each entry that has changed (`dispatch_gid_change_event`), but one for
    /// all entries of an interface that is gone (`ib_cache_gid_del_all_netdev_gids`).
    pub fn set_gids(&self, default: Option<[u8; 16]>, addresses: Addresses) -> usize {
        let mut gids = lock(&self.gids);
        let mut left: BTreeSet<Option<u16>> =
            addresses.vlans.iter().map(|vlan| Some(vlan.id)).collect();
        if default.is_some() || self.device.default_gid.is_none() {
            left.insert(None);
        }
        let changes = gids.follow(default, addresses);
        for change in &changes {
            let written = self.enter(|card| change.command(card.identity.mac).run(card));
            if let Err(error) = written {
                tracing::warn!(?change, errno = error.0, "the device does not take the GID");
            }
        }
        let of = |change: &Change| change.before.vlan.or(change.entry.vlan);
        let gone: BTreeSet<Option<u16>> =
            changes.iter().map(of).filter(|interface| !left.contains(interface)).collect();
        let single = changes.iter().filter(|change| left.contains(&of(change)));
        single.count() + gone.len()
    }

    /// Tells programs of changes of the GID table by so many events.
    pub fn tell_gids(&self, events: usize) {
        let listeners = lock(self.listeners());
        for _ in 0..events {
            listeners.tell_all(kind::GID_CHANGE);
        }
    }

    /// Returns its device memory.
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the XRC domains behind files.
    pub fn domains(&self) -> &Mutex<Domains> {
        &self.domains
    }

    /// A field of a group of capabilities, current values; 0 where the card has no such group.
    pub fn group(&self, group: u32, field: Field) -> Result<u64> {
        let mut command =
            Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE, query_hca_cap_out::SIZE);
        command.set(query_hca_cap_in::OP_MOD, group << 1 | 1);
        match self.run(command) {
            Ok(reply) => Ok(field.get(&reply[query_hca_cap_out::CAPABILITY.bytes()])),
            Err(Errno::EINVAL) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// The table of rates of send queues.
    pub fn rates(&self) -> &Mutex<Rates> {
        &self.rates
    }

    /// Changes the flows of Ethernet queue pairs, by commands.
    pub fn steer<R>(&self, change: impl FnOnce(&mut Flows, Run<'_>) -> R) -> R {
        change(&mut lock(&self.flows), &|command| self.run(command))
    }

    /// Returns the recipients of this device's events.
    pub fn listeners(&self) -> &Mutex<Listeners> {
        &self.interrupts[self.index].listeners
    }
}

/// The recipients of a device's events.
#[derive(Default)]
pub(crate) struct Listeners {
    /// CQs by number, with the destinations of completion events and asynchronous events.
    pub cqs: HashMap<u32, CqListener>,
    /// Queue pairs by number.
    pub qps: HashMap<u32, (Arc<EventQueue>, Source)>,
    /// Shared receive queues by number.
    pub srqs: HashMap<u32, (Arc<EventQueue>, Source)>,
    /// Files that receive port events.
    pub ports: Vec<Arc<EventQueue>>,
    /// DevX event subscriptions.
    pub subscriptions: Subscriptions,
}

/// The destinations of a CQ's events.
pub(crate) struct CqListener {
    /// The completion channel, if it has one.
    pub channel: Option<(Arc<EventQueue>, Source)>,
    /// The asynchronous event file.
    pub events: Option<(Arc<EventQueue>, Source)>,
}

/// The handlers of a device's interrupts.
#[derive(Default)]
pub(crate) struct Interrupts {
    queues: Mutex<Vec<EventRing>>,
    listeners: Mutex<Listeners>,
}

impl Interrupts {
    /// Serves an interrupt: takes every EQE of the vector's queue, passes its event on, and arms
    /// the queue again.
    pub fn serve(&self, card: &mut Card, vector: u32) {
        let mut queues = lock(&self.queues);
        let Some(queue) = queues.get_mut(vector as usize) else { return };
        let listeners = lock(&self.listeners);
        while let Some(eqe) = queue.next() {
            listeners.tell(&eqe);
            listeners.subscriptions.tell(&eqe);
        }
        if card.is_stopped() {
            listeners.tell_fatal();
        }
        queue.update(card);
    }
}

impl Listeners {
    /// Reports `IBV_EVENT_DEVICE_FATAL` to all files.
    fn tell_fatal(&self) {
        self.tell_all(kind::DEVICE_FATAL);
    }

    /// Reports an event of the only port, or of the device (`enum ib_event_type`), to all files.
    fn tell_all(&self, event: u32) {
        for queue in &self.ports {
            queue.post_async(Source { user_handle: 1, id: 0 }, event);
        }
    }

    fn tell(&self, eqe: &[u8; EQE]) {
        let word = |at: usize| u32::from_be_bytes([eqe[at], eqe[at + 1], eqe[at + 2], eqe[at + 3]]);
        // Reports an event (`enum ib_event_type`) of a queue pair.
        let of_qp = |event: u32| {
            if let Some((queue, source)) = self.qps.get(&(word(0x38) & 0xff_ffff)) {
                queue.post_async(*source, event);
            }
        };
        let of_srq = |event: u32| {
            if let Some((queue, source)) = self.srqs.get(&(word(0x38) & 0xff_ffff)) {
                queue.post_async(*source, event);
            }
        };
        match eqe[1] {
            kind::COMPLETION => {
                if let Some(cq) = self.cqs.get(&(word(0x38) & 0xff_ffff)) {
                    if let Some((channel, source)) = &cq.channel {
                        channel.post_completion(*source);
                    }
                }
            }
            kind::CQ_ERROR => {
                if let Some(cq) = self.cqs.get(&(word(0x20) & 0xff_ffff)) {
                    if let Some((events, source)) = &cq.events {
                        events.post_async(*source, 0);
                    }
                }
            }
            kind::QP_CATASTROPHIC => of_qp(1),
            kind::QP_INVALID_REQUEST => of_qp(2),
            kind::QP_ACCESS_ERROR => of_qp(3),
            kind::COMMUNICATION_ESTABLISHED => of_qp(4),
            kind::SEND_QUEUE_DRAINED => of_qp(5),
            kind::PATH_MIGRATED => of_qp(6),
            kind::PATH_MIGRATION_FAILED => of_qp(7),
            kind::SRQ_CATASTROPHIC => of_srq(14),
            kind::SRQ_LIMIT => of_srq(15),
            kind::SRQ_LAST_WQE => of_qp(16),
            kind::PORT_CHANGE => {
                // Subtype 1 is down, 4 active; the port is in the upper half of its byte.
                let event = match eqe[3] {
                    1 => 10,
                    4 => 9,
                    _ => return,
                };
                for queue in &self.ports {
                    queue.post_async(
                        Source { user_handle: u64::from(eqe[0x28] >> 4), id: 0 },
                        event,
                    );
                }
            }
            _ => {}
        }
    }
}

/// An event queue of the device, in memory of this process.
struct EventRing {
    ring: Ring,
    eqn: u32,
    uar: u32,
    consumer: u32,
}

impl EventRing {
    /// Returns the next EQE, if the device has written it: its owner bit is the parity of the lap.
    fn next(&mut self) -> Option<[u8; EQE]> {
        let at = (self.consumer as usize & (EQES - 1)) * EQE;
        let turn = (self.consumer >> EQES.ilog2() & 1) as u8;
        let owner = self.ring.load(at + EQE - 1) & 1;
        if owner != turn {
            return None;
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        let mut eqe = [0; EQE];
        for (offset, byte) in eqe.iter_mut().enumerate() {
            *byte = self.ring.load(at + offset);
        }
        self.consumer = self.consumer.wrapping_add(1);
        Some(eqe)
    }

    /// Writes the consumer index to the device, and arms the queue for its next event.
    fn update(&self, card: &mut Card) {
        let word = self.eqn << 24 | self.consumer & 0xff_ffff;
        card.store(self.uar, 0x40, &word.to_be_bytes());
    }
}

/// Page-aligned memory that the device writes and this process reads. It is never freed, because a
/// device may write to it until the process ends.
struct Ring(NonNull<u8>);

// SAFETY: this process accesses the memory only through the ring, and only by volatile loads. The
// memory is not bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    fn new() -> Self {
        let layout = match Layout::from_size_align(EQES * EQE, PAGE) {
            Ok(layout) => layout,
            Err(_) => unreachable!("the size is a constant multiple of the page"),
        };
        // SAFETY: the layout has EQES * EQE bytes, which is not zero.
        let Some(memory) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        for entry in 0..EQES {
            // The other owner's parity: nothing has been written yet.
            // SAFETY: inside the allocation, which no card knows yet.
            unsafe { memory.as_ptr().add(entry * EQE + EQE - 1).write(1) };
        }
        Self(memory)
    }

    fn address(&self) -> u64 {
        self.0.as_ptr() as u64
    }

    fn load(&self, at: usize) -> u8 {
        assert!(at < EQES * EQE);
        // SAFETY: the address is inside the allocation, by the check above. The device may write at
        // any time, so the load is volatile and no reference covers the memory.
        unsafe { self.0.as_ptr().add(at).read_volatile() }
    }
}

/// Event queues by completion vector, for `CREATE_CQ`.
impl Function {
    /// Returns the number of the event queue behind a completion vector.
    pub fn eqn(&self, vector: u32) -> Result<u32> {
        self.eqns.get(vector as usize).copied().ok_or_else(|| {
            let count = self.eqns.len();
            Errno::EINVAL.because(format_args!(
                "a completion vector refused: comp_vector is {vector}, and the device has {count}"
            ))
        })
    }
}
