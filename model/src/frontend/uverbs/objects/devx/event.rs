//! DevX event subscriptions: to events of objects that the program created by command, and of the
//! device.
//!
//! Each event goes to a file that the program reads, or to an eventfd. The file gives the cookie of
//! the subscription and the EQE as the device wrote it; a file opened for cookies alone gives no
//! EQE. Events already in a file stay there when their object is destroyed, as in the kernel.
//! Closing the device removes all events of its files.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{c_int, c_void, size_t, ssize_t};
use mlx5_sys::ifc::{cq_error, device_event_cap, eqe, opcode, qp_events, query_hca_cap_in};

use super::super::file::CommandFile;
use super::object::Devx;
use crate::card::Card;
use crate::frontend::uverbs::driver::command::{Caps, Command};
use crate::frontend::uverbs::driver::event::{EventQueue, Source};
use crate::frontend::uverbs::driver::function::{Function, event};
use crate::frontend::uverbs::process::descriptors::{self, Descriptor, aside};
use crate::frontend::uverbs::process::errno::{Errno, Result, last, set_errno};
use crate::frontend::uverbs::process::lock;
use crate::frontend::uverbs::request::ioctl::Attributes;
use crate::private::system;

/// `MLX5_IB_UAPI_DEVX_CR_EV_CH_FLAGS_OMIT_DATA`
const OMIT_DATA: u64 = 1;
/// Most types of events in one subscription.
const MOST_TYPES: usize = 16;
/// Bytes of the cookie before an EQE.
const COOKIE: usize = 8;

/// Kinds of queues in events (`enum mlx5_event_queue_type`), by the command that creates one.
fn queue_type(create: u16) -> u8 {
    match create {
        opcode::CREATE_RQ => 1,
        opcode::CREATE_SQ => 2,
        opcode::CREATE_DCT => 6,
        _ => 0,
    }
}

/// An event file.
pub(in crate::frontend::uverbs) struct EventFile {
    queue: Arc<EventQueue>,
    /// Whether it gives cookies only, and only one of each subscription at a time.
    omits: bool,
    function: &'static Function,
    /// The command file that opened it.
    by: usize,
}

/// `DEVX_ASYNC_EVENT_FD_ALLOC`.
pub(in crate::frontend::uverbs) fn create(
    file: &CommandFile,
    attributes: &mut Attributes,
) -> Result<()> {
    let flags = attributes.number(0x1001)?;
    if flags & !OMIT_DATA != 0 {
        return Err(Errno::EINVAL);
    }
    let omits = flags & OMIT_DATA != 0;
    let mut state = file.state();
    state.context()?;
    let size = if omits { COOKIE } else { COOKIE + eqe::SIZE };
    let (function, by) = (file.function(), file.identity());
    let mut made = None;
    let (_, fd) = EventQueue::subscribed(file.running, size, |queue| {
        let file = Arc::new(EventFile { queue, omits, function, by });
        made = Some(Arc::downgrade(&file));
        Descriptor::Subscribed(file)
    })?;
    state.event_files.retain(|file| file.strong_count() > 0);
    state.event_files.extend(made);
    attributes.put_handle(0x1000, fd as u64)
}

impl EventFile {
    /// Handles the close of the program's last descriptor.
    pub fn close(self: &Arc<Self>) {
        self.queue.abandon();
        lock(self.function.listeners()).subscriptions.leave(self);
    }

    /// Handles the close of the command file that it belongs to.
    pub fn hang_up(self: &Arc<Self>) {
        lock(self.function.listeners()).subscriptions.leave(self);
        self.queue.hang_up();
    }

    /// Serves `read` of its descriptor: returns one event, or an errno that the kernel's file has
    /// and a socket has not.
    ///
    /// # Safety
    /// `to` is valid for writes of `length` bytes.
    pub unsafe fn read(&self, fd: c_int, to: *mut c_void, length: size_t) -> ssize_t {
        let refused = |errno: Errno| {
            set_errno(errno.0);
            -1
        };
        if self.queue.take_overflow() {
            return refused(Errno::EOVERFLOW);
        }
        // A read with too short a buffer takes no event out.
        let flags = libc::MSG_PEEK | libc::MSG_TRUNC;
        // SAFETY: with a length of 0 the call writes no byte.
        let next = unsafe { system::recv(fd, std::ptr::null_mut(), 0, flags) };
        match usize::try_from(next) {
            Err(_) => next,
            Ok(0) => {
                // SAFETY: F_GETFL passes no memory.
                let flags = unsafe { system::fcntl(fd, libc::F_GETFL, 0) };
                let waits = flags & libc::O_NONBLOCK == 0;
                refused(if waits { Errno::EIO } else { Errno::EAGAIN })
            }
            Ok(size) if size > length => refused(Errno::EINVAL),
            // SAFETY: the caller guarantees that `to` is valid for writes of `length` bytes.
            Ok(_) => unsafe { system::read(fd, to, length) },
        }
    }
}

/// The event types that programs may subscribe to: of objects, and of the device.
#[derive(Clone, Copy, Default)]
pub(in crate::frontend::uverbs) struct Offered {
    affiliated: [u64; 4],
    unaffiliated: [u64; 4],
}

impl Offered {
    /// Queries a device.
    pub fn query(card: &mut Card) -> Result<Self> {
        // Group of capabilities (`MLX5_CAP_DEV_EVENT`), current values.
        const GROUP: u32 = 0x14;
        let mut command = Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE, 0x110);
        command.set(query_hca_cap_in::OP_MOD, GROUP << 1 | 1);
        let reply = command.run(card)?;
        let group = &reply[0x10..];
        let mask = |field: mlx5_sys::ifc::Field| {
            std::array::from_fn(|word| {
                let at = field.bit_offset() / 8 + word * 8;
                group[at..at + 8].iter().fold(0, |mask, byte| mask << 8 | u64::from(*byte))
            })
        };
        Ok(Self {
            affiliated: mask(device_event_cap::USER_AFFILIATED_EVENTS),
            unaffiliated: mask(device_event_cap::USER_UNAFFILIATED_EVENTS),
        })
    }

    /// Returns whether a device has any events to subscribe to.
    pub fn by(caps: &Caps, card: &mut Card) -> Result<Self> {
        match caps.has(mlx5_sys::ifc::cmd_hca_cap::EVENT_CAP) {
            true => Self::query(card),
            false => Ok(Self::default()),
        }
    }

    fn has(&self, of_object: bool, event: u16) -> bool {
        let mask = if of_object { &self.affiliated } else { &self.unaffiliated };
        let word = mask.get(usize::from(event >> 6));
        // The device does not list completions.
        of_object && event == u16::from(event::COMPLETION)
            || word.is_some_and(|word| word >> (event & 63) & 1 == 1)
    }
}

/// The source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    event: u8,
    /// Kind of queue and number; `None` for the device.
    object: Option<(u8, u32)>,
}

/// A subscription to one type of event.
struct Subscription {
    source: Source,
    /// The object: the command that created it, and its number.
    object: Option<(u16, u32)>,
    file: Arc<EventFile>,
    signal: Option<Signal>,
}

/// All subscriptions to events of a device.
#[derive(Default)]
pub(in crate::frontend::uverbs) struct Subscriptions(HashMap<Key, Vec<Subscription>>);

/// `DEVX_SUBSCRIBE_EVENT`.
pub(in crate::frontend::uverbs) fn subscribe(
    file: &CommandFile,
    attributes: &mut Attributes,
) -> Result<()> {
    let state = file.state();
    if state.context()?.uid == 0 {
        return Err(Errno::EINVAL);
    }
    let descriptor = attributes.descriptor(0x1000)?.ok_or(Errno::EINVAL)?;
    let events = match file.running.descriptors.get(descriptor) {
        Some(Descriptor::Subscribed(events)) if events.by == file.identity() => events,
        _ => return Err(Errno::EBADF),
    };
    let object = match attributes.optional_handle(0x1001)? {
        Some(handle) => Some(state.get::<Devx>(handle)?.created()),
        None => None,
    };
    let redirect = attributes.has(0x1003).then(|| attributes.number(0x1003)).transpose()?;
    if redirect.is_some() && attributes.has(0x1004) {
        return Err(Errno::EINVAL);
    }
    let list = attributes.input(0x1002)?;
    if list.len() % 2 != 0 || list.len() / 2 > MOST_TYPES {
        return Err(Errno::EINVAL);
    }
    let types: Vec<u16> =
        list.chunks_exact(2).map(|event| u16::from_ne_bytes([event[0], event[1]])).collect();
    let offered = file.function().events;
    if !types.iter().all(|event| offered.has(object.is_some(), *event)) {
        return Err(Errno::EINVAL);
    }
    let mut made = Vec::new();
    for event in types {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let key = Key {
            event: event as u8,
            object: object.map(|(create, number)| (queue_type(create), number)),
        };
        let source = Source { user_handle: attributes.number(0x1004)?, id };
        let signal = redirect.map(|fd| Signal::new(fd as c_int)).transpose()?;
        made.push((key, Subscription { source, object, file: events.clone(), signal }));
    }
    let mut listeners = lock(file.function().listeners());
    for (key, subscription) in made {
        listeners.subscriptions.0.entry(key).or_default().push(subscription);
    }
    Ok(())
}

impl Subscriptions {
    /// Reports an event to its subscribers.
    pub fn tell(&self, eqe: &[u8; eqe::SIZE]) {
        let data = &eqe[eqe::EVENT_DATA.bytes()];
        let kind = eqe::EVENT_TYPE.get(eqe) as u8;
        let object = match kind {
            event::PORT_CHANGE => None,
            event::CQ_ERROR => Some((0, cq_error::CQN.get(data) as u32)),
            event::COMPLETION => Some((0, qp_events::QPN_RQN_SQN.get(data) as u32)),
            event::TARGET_DRAINED | event::TARGET_KEY_VIOLATION => {
                Some((queue_type(opcode::CREATE_DCT), qp_events::QPN_RQN_SQN.get(data) as u32))
            }
            _ => Some((qp_events::TYPE.get(data) as u8, qp_events::QPN_RQN_SQN.get(data) as u32)),
        };
        for subscription in self.0.get(&Key { event: kind, object }).into_iter().flatten() {
            subscription.tell(eqe);
        }
    }

    /// Removes the subscriptions of a file without readers.
    fn leave(&mut self, file: &Arc<EventFile>) {
        self.keep(|subscription| !Arc::ptr_eq(&subscription.file, file));
    }

    /// Removes the subscriptions to a destroyed object.
    pub fn forget(&mut self, object: (u16, u32)) {
        self.keep(|subscription| subscription.object != Some(object));
    }

    fn keep(&mut self, which: impl Fn(&Subscription) -> bool) {
        self.0.retain(|_, subscriptions| {
            subscriptions.retain(&which);
            !subscriptions.is_empty()
        });
    }
}

impl Subscription {
    fn tell(&self, eqe: &[u8; eqe::SIZE]) {
        if let Some(signal) = &self.signal {
            return signal.raise();
        }
        let mut bytes = self.source.user_handle.to_ne_bytes().to_vec();
        if !self.file.omits {
            bytes.extend(eqe);
        }
        self.file.queue.post_subscribed(self.source, bytes, self.file.omits);
    }
}

/// A duplicate of a program's eventfd, which stays open as long as the subscription.
struct Signal(c_int);

impl Signal {
    fn new(fd: c_int) -> Result<Self> {
        // SAFETY: F_DUPFD_CLOEXEC passes no memory.
        let copy = unsafe { system::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            return Err(last());
        }
        let signal = Self(aside(copy).inspect_err(|_| {
            // SAFETY: `fcntl` has just created the descriptor, so it has no other owner.
            unsafe { system::close(copy) };
        })?);
        let path = format!("/proc/self/fd/{}\0", signal.0);
        let mut target = [0u8; 32];
        // SAFETY: the call reads the path, a C string, and writes at most the length of `target`.
        let length = unsafe {
            let (path, to) = (path.as_ptr().cast(), target.as_mut_ptr().cast());
            system::readlinkat(libc::AT_FDCWD, path, to, target.len())
        };
        let target = &target[..usize::try_from(length).map_err(|_| last())?];
        if target == b"anon_inode:[eventfd]" { Ok(signal) } else { Err(Errno::EINVAL) }
    }

    /// Adds one, unless that would block until a reader comes.
    fn raise(&self) {
        let mut room = libc::pollfd { fd: self.0, events: libc::POLLOUT, revents: 0 };
        let one = 1u64;
        // SAFETY: the calls access one pollfd and the eight bytes of `one`.
        unsafe {
            if system::poll(&mut room, 1, 0) == 1 && room.revents & libc::POLLOUT != 0 {
                system::write(self.0, (&raw const one).cast(), size_of_val(&one));
            }
        }
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        // SAFETY: `new` has created the descriptor for this value, which does not use it after
        // this.
        unsafe { descriptors::shut(self.0) };
    }
}
