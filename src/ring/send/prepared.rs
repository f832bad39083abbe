//! Prepared WQEs: written ahead, each in its blocks of the send ring, and posted later.
//!
//! Until then the doorbell record does not cover the WQE, so the HCA does not read it.

use core::marker::PhantomData;
use core::ptr::NonNull;

use mlx5_sys::wqe::SEGMENT_SIZE;

use super::ready::Ready;
use super::ring::SendRing;
use super::state::{Point, SendState};
use super::wqes::Last;
use crate::doorbell::Lent;
use crate::doorbell::Wqe;
use crate::ib::{Rc, Transport};
use crate::ring::{PostError, SendQueue};
use crate::watch::timing::Phase;
use crate::wqe::{Code, Fill, FillUnits, MOST_UNITS, Patch, PostOn, Unit};

/// A send queue with requests of one type that are written to its ring and not yet posted.
///
/// `O` is a SEND or RDMA WRITE, with or without immediate, of [`InlineBytes`], with its address on
/// transports whose requests carry one, or an [`EthSend`] of a whole packet of them. Its WQE must
/// fit the 256 bytes that a BlueFlame register takes: 236 bytes of payload in a SEND, 220 in a WRITE
/// and in a packet; 48 fewer behind the address of a datagram or of a dynamic connection.
/// [`prepare`](Self::prepare) checks everything that could fail: free blocks in the ring, free CQ
/// slots, limits. [`fire`](Self::fire) stores the payload, or [fields](crate::wqe::Field) of it, and
/// rings.
///
/// ```no_run
/// # use mlx5::ring::{CqReader, Prepared, SendQueue};
/// # use mlx5::wqe::{Field, InlineBytes, RdmaWrite, Remote};
/// # fn example(
/// #     queue: SendQueue, completions: &mut CqReader, remote: Remote, order: [u8; 128], price: u64,
/// # ) -> Result<(), Box<dyn std::error::Error>> {
/// const PRICE: Field<40, 8> = Field;
///
/// let mut prepared = Prepared::new(queue);
/// for id in 0..4 {
///     prepared.prepare(id, RdmaWrite::new(InlineBytes(order), remote).signaled())?;
/// }
/// // … and when it matters:
/// prepared.fire(PRICE.with(price.to_le_bytes()))?;
/// // Completions are polled with the queue as it is.
/// let done = completions.poll(&mut prepared)?;
/// # Ok(())
/// # }
/// ```
///
/// Requests are fired in the order of preparing, each once. The value owns the queue, so no other
/// request comes between them. A program that chooses late between payloads keeps them as arrays,
/// and fires the chosen one. Requests by pointer, or longer than 256 bytes, do not compile:
///
/// ```compile_fail,E0277
/// # use mlx5::{ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<RdmaWrite<Sge>>::new;
/// ```
/// ```compile_fail,E0080
/// # use mlx5::{ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<RdmaWrite<InlineBytes<221>>>::new;
/// ```
/// ```compile_fail,E0080
/// # use mlx5::{ib::Ud, ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<To<SendMessage<InlineBytes<189>>, UdAddress>, Ud>::new;
/// ```
///
/// The longest ones do:
/// ```
/// # use mlx5::{ib::Ud, ring::*, wqe::*};
/// let new: fn(_) -> _ = Prepared::<RdmaWrite<InlineBytes<220>>>::new;
/// let new: fn(_) -> _ = Prepared::<To<SendMessage<InlineBytes<188>>, UdAddress>, Ud>::new;
/// ```
///
/// [`into_queue`](Self::into_queue) returns the queue. Requests that were not fired by then are
/// never posted, and their ids do not come back. The same holds if the value is dropped or leaked.
///
/// When a request has failed, the HCA flushes those fired after it: each completes with an error and
/// its id, even if unsignaled. From the poll that returns the first error on, firing returns
/// [`PostError::WrongState`]. Recover as for every queue: take the QP through RESET,
/// [restart](SendQueue::restart) the queue, and prepare again.
///
/// [`InlineBytes`]: crate::wqe::InlineBytes
/// [`EthSend`]: crate::wqe::EthSend
/// [`Field`]: crate::wqe::Field
#[derive(Debug)]
pub struct Prepared<O, T: Transport = Rc> {
    queue: SendQueue<T>,
    /// The point behind the last prepared WQE.
    until: Point,
    operation: PhantomData<fn(O)>,
}

impl<O: PostOn<T> + Patch, T: Transport> Prepared<O, T> {
    /// Takes a queue, without prepared requests.
    pub fn new(mut queue: SendQueue<T>) -> Self {
        const {
            assert!(
                O::UNITS != 0 && O::UNITS <= MOST_UNITS,
                "the WQE is empty or longer than the 256 bytes that a BlueFlame register takes"
            );
        }
        let ring = &mut queue.ring;
        // Until `into_queue`: the entries of prepared WQEs must not look posted to polls.
        ring.state.open();
        ring.state.ready().end();
        let until = ring.end();
        Self { queue, until, operation: PhantomData }
    }

    /// Writes a request behind those already prepared. `id` comes back with its completion. Bytes
    /// of its payload that `fire` does not change are sent as they are here.
    ///
    /// # Errors
    /// The errors of [`Batch::append`](crate::ring::Batch::append), and [`PostError::HeaderPrepared`].
    /// Nothing is prepared then.
    pub fn prepare(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // Only a packet can have something else between its segments than its type says.
        if 1 + operation.body_ds() as usize != O::UNITS {
            return Err(PostError::HeaderPrepared);
        }
        let ring = &mut self.queue.ring;
        // Phases are recorded when the request is fired.
        ring.doorbell.timing.end();
        (self.until, _) = ring.encode::<T, O>(self.until, id, &operation)?;
        self.make_ready();
        Ok(())
    }

    /// Posts the oldest prepared request: with this payload, `[u8; N]` for `InlineBytes<N>`; with
    /// other bytes in some [fields](crate::wqe::Field); or, with `()`, as it was prepared. If the
    /// register takes WQEs word by word, the WQE goes by BlueFlame, in stores of 16 bytes, with two
    /// fences: about 25 instructions in all for eight bytes in one block. On another register, and
    /// once per lap of the ring if the WQE wraps around its end, it is rung like any single WQE:
    /// `docs/ordering.md`, "Prepared". The call is safe, because the request names no memory of this
    /// side that would have to stay registered.
    ///
    /// # Errors
    /// Nothing is posted then, and the request stays prepared.
    /// - [`PostError::NothingPrepared`].
    /// - [`PostError::WrongState`]: the queue has seen an error completion.
    /// - [`PostError::DeviceFailed`].
    /// - `PostError::Refused`, with the feature `lint`: the WQE has a defect.
    #[inline(always)]
    pub fn fire<F: Fill<O::Bytes>>(&mut self, payload: F) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        ring.doorbell.timing.begin();
        let Some((wqe, record)) = ring.state.ready().take() else {
            return self.fire_otherwise(payload);
        };
        // SAFETY: the WQE at the head, which is an `O` in contiguous blocks and not posted.
        let filled = unsafe { fill::<O, F>(wqe, &payload) };
        ring.doorbell.timing.stamp(Phase::Encode);
        if let Err(refusal) = ring.inspect(ring.head().plus(Self::BLOCKS)) {
            ring.state.ready().put_back();
            return Err(refusal.into());
        }
        // SAFETY: the WQE at the head with its units, no more than `MOST_UNITS` (`new`). It names no
        // memory. WQEs are only ready if the register takes them.
        unsafe { ring.doorbell.fire(Lent::promised(), record, filled) };
        ring.doorbell.turn();
        // SAFETY: the WQE was taken above.
        unsafe { ring.state.ready().pass(Self::BLOCKS) };
        ring.state.posted(ring.end().behind(Self::BLOCKS));
        ring.rang(ring.head());
        Ok(())
    }

    /// Brings what the next [`fire`](Self::fire) reads and writes into the processor's caches: its
    /// WQE, the doorbell record, and the queue's state. Posts and changes nothing.
    ///
    /// For a program that waits long between two decisions, and calls this now and then. The code of
    /// `fire` is part of the function that calls it, so it stays cold. No register is read.
    pub fn warm(&mut self) {
        let ring = &mut self.queue.ring;
        let (wqes, head) = (ring.wqes(), ring.head());
        for block in 0..Self::BLOCKS {
            // SAFETY: a byte of a block of the ring, which lives as long as the queue.
            unsafe { wqes.block(head.plus(block)).read_volatile() };
        }
        ring.doorbell.record().read();
    }

    /// Blocks of a WQE.
    const BLOCKS: u32 = O::BLOCKS as u32;

    /// Fires a WQE that is not ready.
    #[cold]
    #[inline(never)]
    fn fire_otherwise<F: Fill<O::Bytes>>(&mut self, payload: F) -> Result<(), PostError> {
        let ring = &mut self.queue.ring;
        ring.state.ready().end();
        ring.state.check_running()?;
        let at = ring.end();
        if at == self.until {
            return Err(PostError::NothingPrepared);
        }
        if ring.doorbell.fires() && Self::before_end(ring) != 0 {
            return self.fire_next(payload);
        }
        let wqes = ring.wqes();
        for unit in O::BEFORE..O::UNITS {
            if changes::<O, F>() >> unit & 1 != 0 {
                // SAFETY: an aligned unit of the WQE at the head, which is an `O` and not posted.
                unsafe {
                    let place = wqes.unit(at.at, unit);
                    payload.unit(unit - O::BEFORE, place).store(place);
                }
            }
        }
        ring.doorbell.timing.stamp(Phase::Encode);
        let ctrl = ring.names.ctrl(at.at, Code::new(O::OPCODE), O::UNITS as u32);
        let last = Last { doorbell: ctrl.to_be() };
        // SAFETY: `prepare` wrote the WQE at the head, which begins with these bytes and has so many
        // blocks. It names no memory.
        unsafe { ring.commit(Lent::promised(), at.behind(Self::BLOCKS), &last, true)? };
        // Those behind one that went on at the ring's start.
        if ring.doorbell.fires() {
            self.make_ready();
        }
        Ok(())
    }

    /// Makes WQEs ready again, and fires the first. Not inlined: it would cost registers where the
    /// doorbell is rung.
    #[cold]
    #[inline(never)]
    fn fire_next<F: Fill<O::Bytes>>(&mut self, payload: F) -> Result<(), PostError> {
        self.make_ready();
        self.fire(payload)
    }

    /// Makes the WQEs ready that can be fired one after another, if the register takes them: from
    /// the head on, as far as they do not reach past the ring's end, or to where the high byte of
    /// the record's counter changes.
    fn make_ready(&mut self) {
        let ring = &mut self.queue.ring;
        let head = ring.head();
        let record = head.plus(Self::BLOCKS).low16();
        let to_high_byte = (0x100 - u32::from(record & 0xff)).div_ceil(Self::BLOCKS);
        let prepared = self.until.at.since(head) / Self::BLOCKS;
        let most = if ring.doorbell.fires() { prepared } else { 0 };
        let left = most.min(Self::before_end(ring)).min(to_high_byte);
        let ready = Ready::new(left, ring.wqes().block(head), record);
        ring.state.make_ready(ready);
    }

    /// Returns how many WQEs there are space for between the head and the ring's end.
    fn before_end(ring: &SendRing) -> u32 {
        let shape = ring.shape();
        (shape.entries() - shape.slot(ring.head()) as u32) / Self::BLOCKS
    }

    /// Returns the queue. Requests that are still prepared are not posted. Costs a store per
    /// block of the ring.
    pub fn into_queue(mut self) -> SendQueue<T> {
        self.queue.ring.refill();
        self.queue
    }

    /// Returns the number of prepared requests.
    pub fn len(&self) -> u32 {
        self.until.at.since(self.queue.ring.head()) / Self::BLOCKS
    }
}

impl<O, T: Transport> Prepared<O, T> {
    /// Returns whether no request is prepared.
    pub fn is_empty(&self) -> bool {
        self.until == self.queue.ring.end()
    }

    /// Returns the queue.
    pub fn queue(&self) -> &SendQueue<T> {
        &self.queue
    }

    /// Returns the queue, by which polls retire its requests.
    #[inline(always)]
    pub(in crate::ring) fn queue_mut(&mut self) -> &mut SendQueue<T> {
        &mut self.queue
    }

    /// Returns the state of the queue, for an owner of the memory of its requests.
    #[inline(always)]
    pub(crate) fn state_mut(&mut self) -> &mut SendState {
        self.queue.state_mut()
    }
}

/// Returns the units of a WQE that change, as bits.
const fn changes<O: Patch, F: FillUnits<O::Bytes>>() -> u32 {
    F::UNITS << O::BEFORE
}

/// Stores the payload to a WQE, and returns the WQE.
///
/// # Safety
/// The WQE is an `O` in contiguous blocks, aligned to 16, that only the caller reads and writes.
#[inline(always)]
unsafe fn fill<O: Patch, F: FillUnits<O::Bytes>>(wqe: NonNull<u8>, payload: &F) -> Wqe {
    let known = const { changes::<O, F>() };
    let mut units = [Unit::from_words(0, 0); MOST_UNITS];
    // Written out, so that the compiler sees which units there are.
    macro_rules! fill {
        ($($at:literal)*) => { $(
            if known >> $at & 1 != 0 {
                // SAFETY: an aligned unit of the WQE: those that change are its payload's.
                unsafe {
                    let place = wqe.add($at * SEGMENT_SIZE);
                    units[$at] = payload.unit($at - O::BEFORE, place);
                    units[$at].store(place);
                }
            }
        )* };
    }
    const { assert!(MOST_UNITS == 16) };
    fill!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    Wqe { place: wqe, ds: O::UNITS, known, units }
}
