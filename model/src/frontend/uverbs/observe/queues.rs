//! The contexts that a program has made, and the rings of its queues.

use std::collections::{BTreeMap, HashMap};
use std::ffi::c_int;

use libc::off_t;
use mlx5_sys::ifc::opcode;

use super::super::objects::qp::Kind;
use super::super::process::trap::PAGE;
use super::Observer;
use super::rings::{CqRing, Found, ReceiveRing, SendRing, SharedRing};
use crate::object::Service;
use crate::trace::{Call, Observed, Queue};

/// Registers of a page (`mlx5dv.h`, `device.h`).
const CQ_ARM: usize = 0x20;
const BLUEFLAME: usize = 0x800;
const HALF: usize = 0x100;

/// The objects of the program. Each queue is known by its device and number.
#[derive(Default)]
pub(super) struct Queues {
    pub contexts: HashMap<c_int, Context>,
    pub cqs: BTreeMap<(u8, u32), CqRing>,
    pub pairs: BTreeMap<(u8, u32), Pair>,
    pub shared: BTreeMap<(u8, u32), SharedRing>,
    /// The objects that the kernel is being asked to destroy.
    leaving: BTreeMap<Ticket, Leaving>,
    tickets: u64,
}

/// The number of a request that destroys an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// An object that the kernel is being asked to destroy: its device, descriptor and handle.
struct Leaving {
    card: u8,
    fd: c_int,
    handle: u32,
    object: Object,
}

/// The objects of a descriptor of a device.
#[derive(Default)]
pub(crate) struct Context {
    /// The objects, by handle.
    pub objects: HashMap<u32, Object>,
    /// Numbers of register pages, by their offset for `mmap`.
    pub pages: HashMap<off_t, u32>,
}

impl Context {
    /// Returns the address of a umem.
    pub fn address(&self, umem: u64) -> Option<u64> {
        self.objects.values().find_map(|object| match object {
            Object::Umem { number, address } if u64::from(*number) == umem => Some(*address),
            _ => None,
        })
    }
}

/// An object of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Object {
    Pd(u32),
    /// A memory region, by its key.
    Mr(u32),
    /// A CQ: its number, and the size of its CQEs.
    Cq(u32, u32),
    /// A queue pair.
    Pair(Qp),
    Srq(u32),
    Uar(u32),
    /// An object that was made by a command. `made` is the command.
    Devx {
        made: u16,
        number: u32,
    },
    /// Memory that commands name.
    Umem {
        number: u32,
        address: u64,
    },
}

impl Object {
    /// Returns the numbers that no other object of the device has, 0 for none, and the command that
    /// makes objects that are counted with this one.
    fn numbers(&self) -> (u16, [u32; 3]) {
        let one = |made: u16, number: u32| (made, [number, 0, 0]);
        match *self {
            Self::Pd(number) => one(opcode::ALLOC_PD, number),
            Self::Mr(key) => one(opcode::CREATE_MKEY, key >> 8),
            Self::Cq(number, _) => one(opcode::CREATE_CQ, number),
            Self::Pair(qp) => (opcode::CREATE_QP, [qp.number, qp.sqn, qp.rqn]),
            Self::Srq(number) => one(opcode::CREATE_RMP, number),
            Self::Uar(number) => one(opcode::ALLOC_UAR, number),
            Self::Devx { made: opcode::CREATE_SQ | opcode::CREATE_RQ, number } => {
                one(opcode::CREATE_QP, number)
            }
            Self::Devx { made, number } => one(made, number),
            Self::Umem { number, .. } => one(opcode::CREATE_UMEM, number),
        }
    }

    /// Returns whether the objects cannot exist at the same time on a device.
    fn excludes(&self, other: &Self) -> bool {
        let ((made, numbers), (other_made, others)) = (self.numbers(), other.numbers());
        made == other_made && numbers.iter().any(|number| *number != 0 && others.contains(number))
    }
}

/// A queue pair, as verbs see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Qp {
    pub number: u32,
    pub kind: Kind,
    pub pdn: u32,
    pub send_cq: u32,
    pub recv_cq: u32,
    /// State as verbs last set it.
    pub state: u8,
    /// Access flags as last set, and how deep the responder was made.
    pub access: u32,
    pub depth: u8,
    /// Numbers of the queues of a queue pair for packets.
    pub sqn: u32,
    pub rqn: u32,
}

/// The rings of a queue pair.
pub(super) struct Pair {
    /// The number that the recording names.
    pub number: u32,
    pub service: Service,
    pub send: Option<SendRing>,
    pub receive: Receive,
    /// Numbers of its CQs; 0 for none.
    pub cqs: [u32; 2],
}

/// The source of a queue pair's receives.
pub(super) enum Receive {
    None,
    Own(ReceiveRing),
    Shared(u32),
}

impl Queues {
    /// Returns the number of the register page that is mapped at an offset: one that the program has
    /// made, or one of the context's own, whose offset is a command and an index. `None` if something
    /// else is mapped there.
    pub fn register_page(&self, fd: c_int, offset: off_t) -> Option<u32> {
        /// `MLX5_IB_MMAP_REGULAR_PAGE`, `_WC_PAGE`, `_NC_PAGE`, `_ALLOC_WC`
        const COMMANDS: [u64; 4] = [0, 2, 3, ALLOCATE];
        const ALLOCATE: u64 = 6;
        if let Some(number) = self.contexts.get(&fd)?.pages.get(&offset) {
            return Some(*number);
        }
        let page = u64::try_from(offset).ok()? / PAGE as u64;
        let (high, command) = (page >> 16, page >> 8 & 0xff);
        // Only pages that are allocated by mapping them may have a longer index.
        let is_page = COMMANDS.contains(&command) && (high == 0 || command == ALLOCATE);
        is_page.then_some((high << 8 | page & 0xff) as u32)
    }

    /// Reads all rings.
    pub fn look(&mut self, observer: &Observer) {
        let Self { cqs, pairs, shared, .. } = self;
        for ((card, number), ring) in cqs {
            completed(observer, ring, pairs, shared, (*card, *number));
        }
        for pair in pairs.values_mut() {
            posted(observer, pair);
        }
    }

    /// Reads the CQs that a store to a register concerns.
    pub fn before_store(&mut self, observer: &Observer, card: u8, offset: usize, bytes: &[u8]) {
        let Self { cqs, pairs, shared, .. } = self;
        let numbers = match offset {
            CQ_ARM => [word(bytes, 4).unwrap_or(0), 0],
            _ => match rung(offset, bytes).and_then(|(number, _)| pairs.get(&(card, number))) {
                Some(pair) => pair.cqs,
                None => return,
            },
        };
        for number in numbers {
            if let Some(ring) = cqs.get_mut(&(card, number)) {
                completed(observer, ring, pairs, shared, (card, number));
            }
        }
    }

    /// Records the WQEs that a store to a register tells the device of.
    pub fn rung(&mut self, observer: &Observer, card: u8, offset: usize, bytes: &[u8]) {
        let Some((number, end)) = rung(offset, bytes) else { return };
        let Some(pair) = self.pairs.get_mut(&(card, number)) else { return };
        posted(observer, pair);
        let (qp, service) = (pair.number, pair.service);
        let Some(send) = &mut pair.send else { return };
        let looked = send.look(&observer.memory, end, |index, bytes| {
            observer.tap.observe(Observed::SendWqe { qp, index, service, bytes: bytes.into() });
        });
        // A ring that the program has unmapped has nothing to read.
        if let Ok(Some(mistake)) = looked {
            observer.tap.observe(Observed::Mistake { mistake, count: 1 });
        }
    }

    /// The kernel is about to be asked to destroy an object. The object stays until the answer is
    /// known. `None` if there is no object with this handle.
    pub fn leave(&mut self, (card, fd): (u8, c_int), handle: u32) -> Option<Ticket> {
        let object = *self.contexts.get(&fd)?.objects.get(&handle)?;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.leaving.insert(ticket, Leaving { card, fd, handle, object });
        Some(ticket)
    }

    /// The kernel has not destroyed the object.
    pub fn stay(&mut self, ticket: Ticket) {
        self.leaving.remove(&ticket);
    }

    /// The kernel has destroyed the object: forgets it and its rings. `None` if that was done before.
    pub fn left(&mut self, ticket: Ticket) -> Option<Object> {
        let Leaving { card, fd, handle, object } = self.leaving.remove(&ticket)?;
        // Another thread may have asked for the same, in vain.
        self.leaving.retain(|_, old| (old.fd, old.handle) != (fd, handle));
        self.contexts.get_mut(&fd)?.objects.remove(&handle);
        self.forget(card, &object);
        Some(object)
    }

    /// Returns an object that the kernel must have destroyed, since it has given its handle or number
    /// to `new`.
    pub fn displaced(&self, (card, fd): (u8, c_int), handle: u32, new: &Object) -> Option<Ticket> {
        let is_gone = |old: &Leaving| {
            (old.fd, old.handle) == (fd, handle) || old.card == card && old.object.excludes(new)
        };
        self.leaving.iter().find(|(_, old)| is_gone(old)).map(|(ticket, _)| *ticket)
    }

    /// A descriptor of a device is closed, and its objects with it.
    pub fn close(&mut self, fd: c_int) {
        self.leaving.retain(|_, old| old.fd != fd);
        let Some(context) = self.contexts.remove(&fd) else { return };
        let Some(card) = super::device(fd) else { return };
        for object in context.objects.values() {
            self.forget(card, object);
        }
    }

    /// Forgets the rings of an object.
    pub fn forget(&mut self, card: u8, object: &Object) {
        match object {
            Object::Cq(number, _) => drop(self.cqs.remove(&(card, *number))),
            Object::Pair(qp) => {
                for number in [qp.number, qp.sqn, qp.rqn] {
                    self.pairs.remove(&(card, number));
                }
            }
            Object::Srq(number) => drop(self.shared.remove(&(card, *number))),
            // Numbers of CQs and of shared receive queues are counted apart.
            Object::Devx { made: opcode::CREATE_CQ, number } => {
                self.cqs.remove(&(card, *number));
            }
            Object::Devx { made: opcode::CREATE_RMP, number } => {
                self.shared.remove(&(card, *number));
            }
            Object::Devx {
                made: opcode::CREATE_QP | opcode::CREATE_SQ | opcode::CREATE_RQ,
                number,
            } => drop(self.pairs.remove(&(card, *number))),
            Object::Devx { .. } => {}
            Object::Pd(_) | Object::Mr(_) | Object::Uar(_) | Object::Umem { .. } => {}
        }
    }
}

/// The number of the queue pair that a store rings, if it is a doorbell, and the counter behind the
/// last WQE.
fn rung(offset: usize, bytes: &[u8]) -> Option<(u32, u16)> {
    let is_doorbell = offset >= BLUEFLAME && offset % HALF == 0 && bytes.len() >= 8;
    let (first, second) = (word(bytes, 0)?, word(bytes, 4)?);
    let blocks = (second & 0x3f).div_ceil(4) as u16;
    is_doorbell.then(|| (second >> 8, ((first >> 8) as u16).wrapping_add(blocks)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|word| u32::from_be_bytes(*word))
}

/// Sees the receives that were posted.
fn posted(observer: &Observer, pair: &mut Pair) {
    if let Receive::Own(ring) = &mut pair.receive {
        // A ring that the program has unmapped has nothing to read.
        let _ = ring.look(&observer.memory);
    }
}

/// Records what was completed in a CQ.
fn completed(
    observer: &Observer,
    ring: &mut CqRing,
    pairs: &mut BTreeMap<(u8, u32), Pair>,
    shared: &BTreeMap<(u8, u32), SharedRing>,
    (card, cq): (u8, u32),
) {
    observer.record(card, Call::Look, || {
        let known: Vec<u32> = match ring.is_lost() {
            true => pairs.keys().filter(|(of, _)| *of == card).map(|(_, number)| *number).collect(),
            false => Vec::new(),
        };
        let looked = ring.look(&observer.memory, &known, |found| {
            let (index, bytes, compressed) = match found {
                Found::Missed(count) => {
                    observer.tap.observe(Observed::Missed { cq, count: count.into() });
                    return;
                }
                Found::Cqe(index, bytes) => (index, bytes, false),
                Found::Expanded(index, bytes) => (index, &bytes[..], true),
            };
            received(observer, pairs, shared, card, bytes);
            let bytes = bytes.into();
            observer.tap.observe(Observed::Cqe { cq, index, compressed, bytes });
        });
        // A ring that the program has unmapped has nothing to read.
        let _ = looked;
    });
}

/// Records the receive WQE that a CQE completes, if it is one of a receive.
fn received(
    observer: &Observer,
    pairs: &mut BTreeMap<(u8, u32), Pair>,
    shared: &BTreeMap<(u8, u32), SharedRing>,
    card: u8,
    cqe: &[u8],
) {
    /// Write with immediate, sends, and an error of the responder.
    const RECEIVES: [u8; 5] = [1, 2, 3, 4, 0xe];
    let Some(cqe) = cqe.last_chunk::<64>() else { return };
    if !RECEIVES.contains(&(cqe[63] >> 4)) {
        return;
    }
    let number = u32::from_be_bytes([0, cqe[57], cqe[58], cqe[59]]);
    let index = u16::from_be_bytes([cqe[60], cqe[61]]);
    let Some(pair) = pairs.get_mut(&(card, number)) else { return };
    let qp = number;
    match &mut pair.receive {
        Receive::None => {}
        Receive::Own(ring) => {
            if ring.wqe(index).is_none() {
                // A ring that the program has unmapped has nothing to read.
                let _ = ring.look(&observer.memory);
            }
            if let Some(bytes) = ring.wqe(index) {
                let (queue, bytes) = (Queue::Own, bytes.into());
                observer.tap.observe(Observed::ReceiveWqe { qp, queue, index, bytes });
            }
        }
        Receive::Shared(srq) => {
            let Some(ring) = shared.get(&(card, *srq)) else { return };
            let queue = Queue::Shared(*srq);
            // A ring that the program has unmapped has nothing to read.
            let _ = ring.wqe(&observer.memory, index, |bytes| {
                let bytes = bytes.into();
                observer.tap.observe(Observed::ReceiveWqe { qp, queue, index, bytes });
            });
        }
    }
}

#[cfg(test)]
mod tests;
