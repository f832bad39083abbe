//! Endpoints that several threads post to.

use core::cell::UnsafeCell;
use core::fmt;
use core::mem::{ManuallyDrop, replace, take};
use core::ptr;
use std::sync::Arc;

use super::flight::{Flight, InFlight};
use super::operation::accepts;
use super::pair::{Core, SendHalf};
use super::receiver::ReceiveHalf;
use super::{Buffers, Endpoint, Owned, Receiver, Refused};
use crate::doorbell::Lent;
use crate::ib::{Counter, Internal, Rc, Shape, Transport};
use crate::ring::send::Place;
use crate::ring::send::SendState;
use crate::ring::source::{DomainId, QueueOwner};
use crate::ring::{Producer, Queues, ReceiveSide, Retirer, SendSide};
use crate::wqe::PostOn;

/// Posts to an endpoint that several threads share. Each posting thread uses a clone or a
/// reference. Made by [`Endpoint::share`].
///
/// ```no_run
/// # use mlx5::endpoint::{Endpoint, EndpointProducer, MrSlice};
/// # use mlx5::wqe::{Remote, RdmaWrite};
/// # fn example(endpoint: Endpoint, slices: [MrSlice; 2], remote: Remote) -> mlx5::Result<()> {
/// let (producer, mut retirer) = endpoint.share();
/// std::thread::scope(|scope| {
///     for (id, slice) in (1..).zip(slices) {
///         let producer = producer.clone();
///         let write = RdmaWrite::new(slice, remote.offset(4096 * id)).signaled();
///         scope.spawn(move || producer.post(id, write).expect("there is room for two"));
///     }
/// });
/// // The slices come back to the thread that polls.
/// while let Some(returned) = retirer.poll_one()? {
///     println!("request {}: {:?}", returned.id, returned.buffers.one());
/// }
/// # Ok(())
/// # }
/// ```
pub struct EndpointProducer<T: Transport = Rc> {
    line: Arc<Line<T>>,
}

/// The polling half of an [endpoint that threads share](Endpoint::share): it polls, receives, and
/// returns the memory of the requests that the [`EndpointProducer`]s have posted.
pub type SharedEndpoint<T = Rc, R = Receiver> = Endpoint<T, R, SharedSends<T>>;

/// The send half of a [`SharedEndpoint`]. See the example on [`EndpointProducer`].
#[derive(Debug)]
pub struct SharedSends<T: Transport = Rc>(Retirer<T>);

/// What producers and the retiring thread share.
struct Line<T: Transport> {
    producer: Producer<T>,
    flight: SharedFlight,
}

/// The memory of requests in flight in a ring that threads share: a slot for each of the ring's.
///
/// A slot belongs to the thread that has reserved the WQE's blocks, until it has marked the WQE as
/// written. Then it belongs to the retiring thread, until that has released the blocks. The
/// sequencer of the ring orders both.
struct SharedFlight {
    slots: Box<[UnsafeCell<Buffers>]>,
    shape: Shape,
    domain: DomainId,
    owner: Arc<dyn QueueOwner>,
}

// SAFETY: each slot is used by one thread at a time, and the sequencer makes what one thread has
// written visible to the next, as the comment on the type says. Buffers may move between threads.
unsafe impl Sync for SharedFlight {}

impl SharedFlight {
    fn new(mut flight: Flight) -> Self {
        let slots = take(&mut flight.slots).into_iter().map(UnsafeCell::new).collect();
        let owner = Arc::clone(&flight.owner);
        Self { slots, shape: flight.shape, domain: flight.domain, owner }
    }

    /// Moves the memory to a flight of one thread.
    fn take_flight(&mut self) -> Flight {
        let slots = take(&mut self.slots).into_iter().map(UnsafeCell::into_inner).collect();
        let owner = Arc::clone(&self.owner);
        Flight { slots, shape: self.shape, domain: self.domain, owner }
    }

    /// Replaces the memory in the slot of the request whose WQE begins at this counter.
    ///
    /// # Safety
    /// The slot is the caller's: it has reserved the WQE and not marked it as written, or it is the
    /// retiring thread, and the WQE is retired and not released.
    #[inline(always)]
    unsafe fn swap(&self, at: Counter, buffers: Buffers) -> Buffers {
        let slot = self.slots[self.shape.slot(at)].get();
        // SAFETY: by this function's contract, no other thread uses the slot.
        replace(unsafe { &mut *slot }, buffers)
    }
}

impl Drop for SharedFlight {
    fn drop(&mut self) {
        drop(self.take_flight());
    }
}

/// The retiring thread's access to the memory in flight. There is one.
pub struct Landing<T: Transport>(Arc<Line<T>>);

impl<T: Transport> InFlight for Landing<T> {
    #[inline(always)]
    fn take(&mut self, at: Counter) -> Buffers {
        // SAFETY: the owner of this value retires the requests, and takes the memory of one that is
        // retired before it releases the request's blocks.
        unsafe { self.0.flight.swap(at, Buffers::None) }
    }

    #[inline(always)]
    unsafe fn take_at(&mut self, place: Place) -> Buffers {
        let first = self.0.flight.slots.as_ptr().cast_mut();
        // SAFETY: there is a slot for each of the ring's blocks. No other thread uses this one, as
        // for `take`.
        take(unsafe { &mut *UnsafeCell::raw_get(place.among(first)) })
    }
}

impl<T: Transport> fmt::Debug for Landing<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Landing").finish_non_exhaustive()
    }
}

impl<T: Transport> Queues for SharedSends<T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        if self.0.qpn() == qpn { self.0.held_side() } else { None }
    }

    #[inline(always)]
    fn likely_send_side(&mut self) -> Option<SendSide<'_>> {
        self.0.held_side()
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn device_failed(&mut self) {
        self.0.device_failed();
    }
}

impl<T: Transport> SendHalf for SharedSends<T> {
    type Flight = Landing<T>;

    #[inline(always)]
    fn state_mut(&mut self, _: Internal) -> &mut SendState {
        let side = self.0.held_side().expect("only the owner of a retirer takes its queue out");
        side.into_state()
    }

    #[inline(always)]
    fn release(&mut self, _: Internal) {
        self.0.release();
    }
}

impl<T: Transport> EndpointProducer<T> {
    /// Number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.line.producer.qpn()
    }

    /// Posts a request, see [`Producer::post`]. Its memory is returned by a poll of the
    /// [`SharedEndpoint`], with its completion or with that of a later request.
    ///
    /// # Errors
    /// [`Refused`], which returns the operation. The queue is as it was.
    /// [`PostError::QueueFull`](crate::ring::PostError::QueueFull) also if retired requests have
    /// not been returned yet, [`PostError::PdMismatch`](crate::ring::PostError::PdMismatch) for
    /// memory of another protection domain or device,
    /// [`PostError::NoLocalWrite`](crate::ring::PostError::NoLocalWrite) for a READ or an atomic into
    /// memory without that right.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<O: PostOn<T> + Owned>(&self, id: u64, operation: O) -> Result<(), Refused<O>> {
        let Line { producer, flight } = &*self.line;
        if !accepts(flight.domain, &operation) {
            return Err(Refused::memory(operation));
        }
        // Moved out by `keep`, if that is called.
        let operation = ManuallyDrop::new(operation);
        let keep = |at| {
            // SAFETY: `post_keeping` calls this at most once, does not use the operation from then
            // on, and succeeds. So below it is not used either.
            let owned = unsafe { ptr::read(&*operation) };
            // SAFETY: `post_keeping` calls this while the caller holds the ticket of the WQE: it
            // has reserved the WQE's blocks and not marked it as written.
            drop(unsafe { flight.swap(at, owned.into_buffers()) });
        };
        // SAFETY: all memory that the request names is in slices, which the flight owns before the
        // HCA can know the request: nothing else reads, writes or borrows it. The poll that retires
        // the request returns them. A dropped flight gives them to the queue pair.
        let lent = unsafe { Lent::promised() };
        match producer.post_keeping(lent, id, &*operation, keep) {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { error, operation: ManuallyDrop::into_inner(operation) }),
        }
    }
}

impl<T: Transport> Clone for EndpointProducer<T> {
    fn clone(&self) -> Self {
        Self { line: Arc::clone(&self.line) }
    }
}

impl<T: Transport> fmt::Debug for EndpointProducer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointProducer").field(&self.line.producer).finish()
    }
}

impl<T: Transport, R: ReceiveHalf> Endpoint<T, R> {
    /// Converts the endpoint so that several threads can post to it, by clones of the
    /// [`EndpointProducer`] or references to it. The other half polls, and receives. Requests that
    /// are outstanding stay so. Allocates, and drops the memory of batches that were leaked.
    /// [`unshare`](SharedEndpoint::unshare) converts it back.
    pub fn share(mut self) -> (EndpointProducer<T>, SharedEndpoint<T, R>) {
        // Its destructor is the program's and may panic, while a producer holds a ticket.
        self.drop_leaked();
        let (core, readers) = self.into_parts();
        let Core { qp, send, receive, flight, before, retired } = core;
        let (producer, retirer) = send.share();
        let line = Arc::new(Line { producer, flight: SharedFlight::new(flight) });
        let flight = Landing(Arc::clone(&line));
        let core = Core { qp, send: SharedSends(retirer), receive, flight, before, retired };
        let polling = Endpoint::of_parts(core, readers);
        (EndpointProducer { line }, polling)
    }
}

impl<T: Transport, R: ReceiveHalf> SharedEndpoint<T, R> {
    /// Converts it back to an endpoint of one thread. Requests that are outstanding stay so.
    ///
    /// # Errors
    /// The endpoint itself, if a producer still exists.
    pub fn unshare(self) -> Result<Endpoint<T, R>, Self> {
        let (core, readers) = self.into_parts();
        let Core { qp, send, receive, flight, before, retired } = core;
        let Line { producer, mut flight } = match Arc::try_unwrap(flight.0) {
            Ok(line) => line,
            Err(line) => {
                let flight = Landing(line);
                let core = Core { qp, send, receive, flight, before, retired };
                return Err(Self::of_parts(core, readers));
            }
        };
        drop(producer);
        let send = send.0.unshare().expect("the last producer was just dropped");
        let flight = flight.take_flight();
        Ok(Endpoint::of_parts(Core { qp, send, receive, flight, before, retired }, readers))
    }
}
