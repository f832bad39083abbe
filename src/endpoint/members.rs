//! The connections of [`Endpoints`](super::Endpoints), found by key and by number.

use core::fmt;

use super::pair::Core;
use super::receiver::ReceiveHalf;
use super::shared_receiver::Loans;
use super::{Buffers, Outcome, Receiver, Returned};
use crate::cqe::{Failure, ReceiveDone};
use crate::ib::{INTERNAL, Transport};
use crate::ring::{Numbers, Queues, ReceiveSide, SendQueue, SendSide, Srq};

/// A connection of [`Endpoints`](super::Endpoints). Never given to another connection of the same
/// endpoints. See the example on [`Endpoints`](super::Endpoints).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionKey {
    at: u32,
    /// How many connections had the place before.
    generation: u32,
}

/// A queue pair with its requests in flight. `None` receives from the shared receive queue, or
/// nothing.
pub(super) type Connected<T> = Core<T, Option<Receiver>, SendQueue<T>>;

/// How far a connection is.
#[allow(clippy::large_enum_variant, reason = "every connection becomes the large one")]
pub(super) enum Stage<T: Transport> {
    /// It receives: by a receiver of its own, or from the shared receive queue.
    Attached(Option<Receiver>),
    /// It receives, if it does, and sends.
    Connected(Connected<T>),
    /// It was removed before it was connected. Its queue pair is in ERROR, where the HCA completes
    /// the shared receive that a message had begun to fill.
    Leaving,
}

/// A queue pair of the endpoints.
pub(super) struct Member<T: Transport> {
    pub(super) qpn: u32,
    /// Whether it takes from the shared receive queue.
    pub(super) shares: bool,
    pub(super) stage: Stage<T>,
}

struct Place<T: Transport> {
    generation: u32,
    member: Option<Member<T>>,
}

/// The queue pairs of the endpoints, with their shared receive queue.
pub(super) struct Members<T: Transport> {
    pub(super) shared: Option<Srq>,
    places: Vec<Place<T>>,
    pub(super) loans: Option<Loans>,
    /// Ids and memory of shared receives that connections had which [leave](Stage::Leaving).
    pub(super) late: Vec<(u64, Buffers)>,
    /// Numbers of the places without a connection.
    free: Vec<u32>,
    /// From the number of a queue pair to its place.
    numbers: Numbers,
    /// The place that a poll found last.
    last: u32,
}

impl<T: Transport> Member<T> {
    /// Returns the receiver of its own.
    #[inline]
    pub(super) fn receiver(&mut self) -> Option<&mut Receiver> {
        match &mut self.stage {
            Stage::Attached(receiver) => receiver.as_mut(),
            Stage::Connected(core) => core.receive.as_mut(),
            Stage::Leaving => None,
        }
    }

    /// Returns the queue pair with its requests, if it is connected.
    #[inline(always)]
    pub(super) fn core(&mut self) -> Option<&mut Connected<T>> {
        match &mut self.stage {
            Stage::Attached(_) | Stage::Leaving => None,
            Stage::Connected(core) => Some(core),
        }
    }

    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.stage, Stage::Leaving)
    }
}

impl<T: Transport> Members<T> {
    pub(super) fn new(shared: Option<(Srq, Loans)>) -> Self {
        let (shared, loans) = shared.unzip();
        let numbers = Numbers::new();
        let (places, free, late) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, places, loans, late, free, numbers, last: 0 }
    }

    /// Adds a connection whose number no other has.
    pub(super) fn insert(&mut self, member: Member<T>) -> ConnectionKey {
        let qpn = member.qpn;
        let at = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, member: None });
            self.places.len() as u32 - 1
        });
        let place = &mut self.places[at as usize];
        place.member = Some(member);
        let key = ConnectionKey { at, generation: place.generation };
        self.numbers.insert(qpn, at);
        key
    }

    /// Returns the key of the connection whose queue pair has this number.
    pub(super) fn key_of(&self, qpn: u32) -> Option<ConnectionKey> {
        let key = self.key_at(self.numbers.get(qpn)?);
        self.look(key).filter(|member| !member.is_leaving()).map(|_| key)
    }

    #[inline(always)]
    fn key_at(&self, at: u32) -> ConnectionKey {
        ConnectionKey { at, generation: self.places[at as usize].generation }
    }

    #[inline(always)]
    pub(super) fn get(&mut self, key: ConnectionKey) -> Option<&mut Member<T>> {
        let place = self.places.get_mut(key.at as usize)?;
        if place.generation == key.generation { place.member.as_mut() } else { None }
    }

    pub(super) fn look(&self, key: ConnectionKey) -> Option<&Member<T>> {
        let place = self.places.get(key.at as usize)?;
        if place.generation == key.generation { place.member.as_ref() } else { None }
    }

    /// Takes a connection out. Its key is never valid again.
    pub(super) fn remove(&mut self, key: ConnectionKey) -> Option<Member<T>> {
        self.get(key)?;
        let place = &mut self.places[key.at as usize];
        let member = place.member.take()?;
        self.numbers.remove(member.qpn);
        // A place whose generations are used up is not used again.
        if let Some(generation) = place.generation.checked_add(1) {
            place.generation = generation;
            self.free.push(key.at);
        }
        Some(member)
    }

    /// Returns the keys of all connections.
    pub(super) fn keys(&self) -> impl Iterator<Item = ConnectionKey> {
        (0..).zip(&self.places).filter_map(|(at, place)| {
            let key = ConnectionKey { at, generation: place.generation };
            place.member.as_ref().filter(|member| !member.is_leaving()).map(|_| key)
        })
    }

    /// Returns the connection whose send queue a poll found last.
    #[inline(always)]
    pub(super) fn sender(&mut self) -> Option<(ConnectionKey, &mut Connected<T>)> {
        let at = self.last;
        let place = self.places.get_mut(at as usize)?;
        let key = ConnectionKey { at, generation: place.generation };
        Some((key, place.member.as_mut()?.core()?))
    }

    /// Returns the receive that a poll has just found retired.
    #[inline]
    pub(super) fn received(&mut self, done: ReceiveDone) -> Option<(ConnectionKey, Returned)> {
        let (key, id, buffers) = self.take_received(done.id)?;
        let outcome = Outcome::Received(ReceiveDone { id, ..done });
        Some((key, Returned { id, buffers, outcome }))
    }

    /// Returns the receive that a poll has just found failed.
    pub(super) fn failed(&mut self, failure: Failure) -> Option<(ConnectionKey, Returned)> {
        let (key, id, buffers) = self.take_received(failure.id)?;
        let outcome = Outcome::Failed(Failure { id, ..failure });
        Some((key, Returned { id, buffers, outcome }))
    }

    /// Takes the memory of the receive that a poll has just retired. Its queue knows it by `id`.
    /// Returns nothing for a connection that leaves.
    #[inline]
    fn take_received(&mut self, id: u64) -> Option<(ConnectionKey, u64, Buffers)> {
        let key = self.key_at(self.last);
        let member = self.places[self.last as usize].member.as_mut()?;
        if let Some(receiver) = member.receiver() {
            return Some((key, id, receiver.take_retired(INTERNAL)));
        }
        let leaving = member.is_leaving();
        let (id, buffers) = self.loans.as_mut()?.take(id);
        if leaving {
            self.late.push((id, buffers));
            return None;
        }
        Some((key, id, buffers))
    }
}

impl<T: Transport> Queues for Members<T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        let at = self.numbers.get(qpn)?;
        let core = self.places.get_mut(at as usize)?.member.as_mut()?.core()?;
        core.mark();
        self.last = at;
        core.send.send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, qpn: u32) -> Option<ReceiveSide<'_>> {
        let at = self.numbers.get(qpn)?;
        let member = self.places.get_mut(at as usize)?.member.as_mut()?;
        self.last = at;
        if member.shares {
            return self.shared.as_mut()?.receive_side(qpn);
        }
        member.receiver()?.queue_mut(INTERNAL).receive_side(qpn)
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.places.get_mut(self.last as usize)?.member.as_mut()?.core()?.send.likely_send_side()
    }

    fn device_failed(&mut self) {
        self.shared.device_failed();
        for member in self.places.iter_mut().filter_map(|place| place.member.as_mut()) {
            if let Some(core) = member.core() {
                core.send.device_failed();
            }
            if let Some(receiver) = member.receiver() {
                receiver.queue_mut(INTERNAL).device_failed();
            }
        }
    }
}

impl<T: Transport> fmt::Debug for Members<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Members")
            .field("connections", &self.keys().count())
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}
