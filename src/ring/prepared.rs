//! Prepared WQEs: written ahead, each in its block of the send ring, and posted later.
//!
//! Until then the doorbell record does not cover the WQE, so the HCA does not read it.

use core::marker::PhantomData;
use core::ptr::NonNull;

use mlx5_sys::wqe::{SEGMENT_SIZE, WQEBB_SIZE};

use super::send_ring::SendRing;
use super::slots::Last;
use super::{PostError, Queues, ReceiveSide, SendQueue, SendSide};
use crate::doorbell::Units;
use crate::ib::{Counter, Rc, Transport};
use crate::watch::timing::Phase;
use crate::wqe::{
    Code, InlineBytes, Operation, PostOn, RdmaWrite, RdmaWriteImm, SendImm, SendMessage, Unit,
};

/// A send queue with requests of one type that are written to its ring and not yet posted.
///
/// `O` is a SEND or RDMA WRITE, with or without immediate, of [`InlineBytes`]. Its WQE must fit one
/// 64-byte block: up to 44 bytes of a SEND, 28 of a WRITE. [`prepare`](Self::prepare) checks
/// everything that could fail: free blocks in the ring, free CQ slots, limits.
/// [`fire`](Self::fire) stores the payload and rings.
///
/// ```no_run
/// # use mlx5::ring::{CqReader, Prepared, SendQueue};
/// # use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};
/// # fn example(
/// #     queue: SendQueue, completions: &mut CqReader, remote: Remote, price: u64,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// let mut prepared = Prepared::new(queue);
/// for id in 0..4 {
///     prepared.prepare(id, RdmaWrite::new(InlineBytes([0; 8]), remote).signaled())?;
/// }
/// // … and when it matters:
/// prepared.fire(price.to_le_bytes())?;
/// // Completions are polled with the queue as it is.
/// let done = completions.poll(&mut prepared)?;
/// # Ok(())
/// # }
/// ```
///
/// Requests are fired in the order of preparing, each once. The value owns the queue, so no other
/// request comes between them. Requests by pointer, or longer than a block, do not compile:
///
/// ```compile_fail,E0277
/// # use mlx5::{ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<RdmaWrite<Sge>>::new;
/// ```
/// ```compile_fail,E0080
/// # use mlx5::{ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<RdmaWrite<InlineBytes<29>>>::new;
/// ```
///
/// [`into_queue`](Self::into_queue) returns the queue. Requests that were not fired by then are
/// never posted, and their ids do not come back. The same holds if the value is dropped or leaked.
///
/// When a request has failed, the HCA flushes those fired after it: each completes with an error and
/// its id, even if unsignaled. From the poll that returns the first error on, firing returns
/// [`PostError::WrongState`]. Recover as for every queue: take the QP through RESET,
/// [restart](SendQueue::restart) the queue, and prepare again.
#[derive(Debug)]
pub struct Prepared<O, T: Transport = Rc> {
    queue: SendQueue<T>,
    /// The head after the last prepared WQE.
    until: Counter,
    operation: PhantomData<fn(O)>,
}

impl<O: PostOn<T> + Patch, T: Transport> Prepared<O, T> {
    /// Takes a queue, without prepared requests.
    pub fn new(mut queue: SendQueue<T>) -> Self {
        const { assert!(O::USUAL_DS != 0, "the WQE is empty or longer than a block of 64 bytes") };
        let ring = &mut queue.ring;
        // Until `into_queue`: the entries of prepared WQEs must not look posted to polls.
        ring.open();
        ring.ready.left = 0;
        let until = ring.cursor.head();
        Self { queue, until, operation: PhantomData }
    }

    /// Writes a request behind those already prepared. Its payload is a placeholder. `id` comes
    /// back with its completion.
    ///
    /// # Errors
    /// The errors of [`Batch::append`](super::Batch::append). Nothing is prepared then.
    pub fn prepare(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        // Phases are recorded when the request is fired.
        ring.doorbell.timing.end();
        // The WQE has one block, so posting it changes no count but the head.
        (self.until, ..) = ring.encode::<T, O>(self.until, ring.slack, id, &operation)?;
        self.make_ready();
        Ok(())
    }

    /// Posts the oldest prepared request with this payload, `[u8; N]` for `InlineBytes<N>`:
    /// `docs/ordering.md`, "Prepared". If the register takes WQEs word by word, the WQE goes by
    /// BlueFlame: in four stores of 16 bytes, with two fences, and about 25 instructions in all. On
    /// another register, it is rung like any single WQE. The call is safe, because the request names
    /// no memory of this side that would have to stay registered.
    ///
    /// # Errors
    /// Nothing is posted then, and the request stays prepared.
    /// - [`PostError::NothingPrepared`].
    /// - [`PostError::WrongState`]: the queue has seen an error completion.
    /// - [`PostError::DeviceFailed`].
    /// - `PostError::Refused`, with the feature `lint`: the WQE has a defect.
    #[inline(always)]
    pub fn fire(&mut self, payload: O::Bytes) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        ring.doorbell.timing.begin();
        // Counted first, and checked then: one instruction does both.
        let (left, none) = ring.ready.left.overflowing_sub(1);
        ring.ready.left = left;
        if none {
            return self.fire_otherwise(payload);
        }
        let Ready { block, record, .. } = ring.ready;
        // SAFETY: the block of the WQE at the head, which is an `O` and not posted.
        let units = unsafe { patch::<O>(block, &payload) };
        ring.doorbell.timing.stamp(Phase::Encode);
        if let Err(refusal) = ring.inspect(ring.cursor.head().plus(1)) {
            ring.ready.left += 1;
            return Err(refusal.into());
        }
        // SAFETY: `units` are the WQE at the head as it lies in the ring. It names no memory. WQEs
        // are only ready if the register takes them.
        unsafe { ring.doorbell.fire(record, units) };
        ring.doorbell.turn();
        // Each is one instruction, if the compiler does not keep the value in a register.
        // SAFETY: at most the ring's end.
        ring.ready.block = unsafe { ring.ready.block.add(WQEBB_SIZE) };
        ring.ready.record = ring.ready.record.wrapping_add(1_u32.to_be());
        ring.cursor.publish(ring.cursor.head().plus(1));
        ring.rang(ring.cursor.head());
        Ok(())
    }

    /// Fires a WQE that is not ready.
    #[cold]
    #[inline(never)]
    fn fire_otherwise(&mut self, payload: O::Bytes) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        ring.ready.left = 0;
        let head = ring.cursor.head();
        if ring.stopped {
            return Err(ring.why_stopped());
        }
        if head == self.until {
            return Err(PostError::NothingPrepared);
        }
        if ring.doorbell.fires() {
            return self.fire_next(payload);
        }
        // SAFETY: the block of the WQE at the head, which is an `O` and not posted.
        unsafe { patch::<O>(ring.slots().block(head), &payload) };
        ring.doorbell.timing.stamp(Phase::Encode);
        let ctrl = ring.names.ctrl(head, Code::new(O::OPCODE), O::USUAL_DS);
        let last = Last { doorbell: ctrl.to_be() };
        // SAFETY: `prepare` wrote the WQE at the head, which begins with these bytes. It has one
        // block, names no memory, and changes no count but the head.
        unsafe { ring.commit(head.plus(1), ring.slack, &last, true)? };
        Ok(())
    }

    /// Makes WQEs ready again, and fires the first. Not inlined: it would cost registers where the
    /// doorbell is rung.
    #[cold]
    #[inline(never)]
    fn fire_next(&mut self, payload: O::Bytes) -> Result<(), PostError> {
        self.make_ready();
        self.fire(payload)
    }

    /// Makes the WQEs ready that can be fired one after another, if the register takes them: from
    /// the head on, up to the ring's end or where the high byte of the record's counter changes.
    fn make_ready(&mut self) {
        let ring = &mut self.queue.ring;
        let (head, shape) = (ring.cursor.head(), ring.cursor.shape());
        let record = head.plus(1).low16();
        let to_ring_end = shape.entries() - shape.slot(head) as u32;
        let to_high_byte = 0x100 - u32::from(record & 0xff);
        let prepared = if ring.doorbell.fires() { self.until.since(head) } else { 0 };
        ring.ready = Ready {
            left: prepared.min(to_ring_end).min(to_high_byte),
            block: ring.slots().block(head),
            record: u32::from(record).to_be(),
        };
    }

    /// Returns the queue. Requests that are still prepared are not posted. Costs a store per
    /// block of the ring.
    pub fn into_queue(mut self) -> SendQueue<T> {
        self.queue.ring.refill();
        self.queue
    }
}

impl<O, T: Transport> Prepared<O, T> {
    /// Returns the number of prepared requests.
    pub fn len(&self) -> u32 {
        self.until.since(self.queue.ring.cursor.head())
    }

    /// Returns whether no request is prepared.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the queue.
    pub fn queue(&self) -> &SendQueue<T> {
        &self.queue
    }

    /// Returns the ring, for an owner of memory that returns retired requests one by one.
    #[inline(always)]
    pub(crate) fn ring(&mut self) -> &mut SendRing {
        &mut self.queue.ring
    }
}

/// Completions can be polled while requests are prepared.
impl<O, T: Transport> Queues for Prepared<O, T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queue.send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }

    fn device_failed(&mut self) {
        self.queue.device_failed();
    }
}

/// The prepared WQEs that need no further checks, from the cursor's head on. In the ring's state,
/// so that an error completion can end them.
pub(super) struct Ready {
    /// Their number.
    pub(super) left: u32,
    /// The block of the next one.
    block: NonNull<u8>,
    /// The doorbell record's value after the next one, in memory order.
    record: u32,
}

impl Ready {
    pub(super) const NONE: Self = Self { left: 0, block: NonNull::dangling(), record: 0 };
}

mod sealed {
    use super::Unit;

    /// A request whose payload is inline, and the last part of its WQE.
    #[diagnostic::on_unimplemented(message = "`{Self}` is not a SEND or WRITE of `InlineBytes`")]
    pub trait Patch {
        /// The payload: an array of bytes.
        type Bytes;
        /// Number of 16-byte units before the payload's header.
        const BEFORE: usize;
        /// Returns unit `at` of header and payload.
        fn unit(bytes: &Self::Bytes, at: usize) -> Unit;
    }
}
pub(crate) use sealed::Patch;

macro_rules! patch {
    ($($type:ident behind $units:literal),*) => { $(
        impl<const N: usize> Patch for $type<InlineBytes<N>> {
            type Bytes = [u8; N];
            const BEFORE: usize = $units;

            #[inline(always)]
            fn unit(bytes: &[u8; N], at: usize) -> Unit {
                InlineBytes::unit(bytes, at)
            }
        }
    )* };
}

patch!(SendMessage behind 1, SendImm behind 1, RdmaWrite behind 2, RdmaWriteImm behind 2);

/// Stores the payload to a WQE of one block, and returns the block. Behind the WQE's end, the last
/// unit is repeated: it is at hand, and the HCA does not read it.
///
/// # Safety
/// The block is aligned to 16 and has a WQE of type `O`, which only the caller reads and writes.
#[inline(always)]
unsafe fn patch<O: Operation + Patch>(block: NonNull<u8>, payload: &O::Bytes) -> Units {
    // SAFETY: aligned units of the block.
    unsafe {
        let mut units = [Unit::load(block); 4];
        for at in 1..4 {
            let place = block.add(at * SEGMENT_SIZE);
            if at < O::BEFORE {
                units[at] = Unit::load(place);
            } else if at < O::USUAL_DS as usize {
                units[at] = O::unit(payload, at - O::BEFORE);
                units[at].store(place);
            } else {
                units[at] = units[at - 1];
            }
        }
        units
    }
}
