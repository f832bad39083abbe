//! Subscriptions of programs to events of a device, as the device writes them.

use std::collections::HashMap;
use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{cq_error, device_event_cap, eqe, opcode, qp_events, query_hca_cap_in};

use super::super::process::descriptors::{self, aside};
use super::super::process::errno::{Errno, Result, last};
use super::command::{Caps, Command};
use super::event::{EventQueue, Source, kind};
use crate::card::Card;
use crate::private::system;

/// Kinds of queues in events (`enum mlx5_event_queue_type`), by the command that creates one.
fn queue_type(create: u16) -> u8 {
    match create {
        opcode::CREATE_RQ => 1,
        opcode::CREATE_SQ => 2,
        opcode::CREATE_DCT => 6,
        _ => 0,
    }
}

/// The event types that programs may subscribe to: of objects, and of the device.
#[derive(Clone, Copy, Default)]
pub(crate) struct Offered {
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

    /// Returns whether a program may subscribe to events of a type: of objects, or of the device.
    pub fn has(&self, of_object: bool, event: u16) -> bool {
        let mask = if of_object { &self.affiliated } else { &self.unaffiliated };
        let word = mask.get(usize::from(event >> 6));
        // The device does not list completions.
        of_object && event == u16::from(kind::COMPLETION)
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
pub(crate) struct Subscription {
    /// The object: the command that created it, and its number.
    pub object: Option<(u16, u32)>,
    /// The cookie, and a number of its own.
    pub source: Source,
    /// Where events go, and whether as cookies alone, one at a time.
    pub queue: Arc<EventQueue>,
    pub omits: bool,
    /// An eventfd of the program, which events go to instead.
    pub signal: Option<Signal>,
}

/// All subscriptions to events of a device.
#[derive(Default)]
pub(crate) struct Subscriptions(HashMap<Key, Vec<Subscription>>);

impl Subscriptions {
    /// Reports an event to its subscribers.
    pub fn tell(&self, eqe: &[u8; eqe::SIZE]) {
        let data = &eqe[eqe::EVENT_DATA.bytes()];
        let event = eqe::EVENT_TYPE.get(eqe) as u8;
        let object = match event {
            kind::PORT_CHANGE => None,
            kind::CQ_ERROR => Some((0, cq_error::CQN.get(data) as u32)),
            kind::COMPLETION => Some((0, qp_events::QPN_RQN_SQN.get(data) as u32)),
            kind::TARGET_DRAINED | kind::TARGET_KEY_VIOLATION => {
                Some((queue_type(opcode::CREATE_DCT), qp_events::QPN_RQN_SQN.get(data) as u32))
            }
            _ => Some((qp_events::TYPE.get(data) as u8, qp_events::QPN_RQN_SQN.get(data) as u32)),
        };
        for subscription in self.0.get(&Key { event, object }).into_iter().flatten() {
            subscription.tell(eqe);
        }
    }

    /// Adds a subscription to a type of event.
    pub fn add(&mut self, event: u16, subscription: Subscription) {
        let object = subscription.object.map(|(create, number)| (queue_type(create), number));
        self.0.entry(Key { event: event as u8, object }).or_default().push(subscription);
    }

    /// Removes the subscriptions of a file without readers, by its queue.
    pub fn leave(&mut self, queue: &Arc<EventQueue>) {
        self.keep(|subscription| !Arc::ptr_eq(&subscription.queue, queue));
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
        if !self.omits {
            bytes.extend(eqe);
        }
        self.queue.post_subscribed(self.source, bytes, self.omits);
    }
}

/// A duplicate of a program's eventfd, which stays open as long as the subscription.
pub(crate) struct Signal(c_int);

impl Signal {
    /// Duplicates a descriptor.
    ///
    /// # Errors
    /// `EINVAL` if it is none of an eventfd.
    pub fn new(fd: c_int) -> Result<Self> {
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
