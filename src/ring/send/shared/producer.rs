//! The posting half of a shared send queue.

use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::WQEBB_SIZE;

use super::sequencer::{Refusal, Turn};
use super::{Note, Shared, counter};
use crate::doorbell::Lent;
use crate::doorbell::{Blocks, fence};
use crate::ib::{Counter, Rc, Transport};
use crate::ring::PostError;
use crate::ring::send::wqes::{Posted, UNITS, is_signaled};
use crate::wqe::{Limits, PostOn};

/// Posts to a send queue that several threads share.
///
/// Each posting thread uses a clone or a reference. The queue pair stays taken over as long as a
/// producer or the [`Retirer`](super::Retirer) lives.
///
/// ```no_run
/// # use mlx5::ring::{Producer, PostError};
/// # use mlx5::wqe::{InlineBytes, Remote, RdmaWrite};
/// # fn example(producer: Producer, remote: Remote) -> Result<(), PostError> {
/// std::thread::scope(|scope| {
///     let posts = [1u64, 2].map(|id| {
///         let producer = producer.clone();
///         scope.spawn(move || {
///             let write = RdmaWrite::new(InlineBytes(id.to_ne_bytes()), remote.offset(8 * id));
///             // SAFETY: the payload is copied; no memory is named.
///             unsafe { producer.post(id, write.signaled()) }
///         })
///     });
///     posts.into_iter().try_for_each(|post| post.join().expect("no panic"))
/// })
/// # }
/// ```
pub struct Producer<T: Transport = Rc> {
    shared: Arc<Shared<T>>,
}

impl<T: Transport> Producer<T> {
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        Self { shared }
    }

    /// Returns the number of the queue pair.
    pub fn qpn(&self) -> u32 {
        self.shared.wqes.qpn()
    }

    /// Returns the limits of a request: entries and inline bytes.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Posts one request. Requests of one thread are executed in the order of its calls. Requests
    /// of several threads are executed in the order in which they reserved their blocks.
    ///
    /// When it returns, the request is known to the HCA, or a thread in a call of its own will make
    /// it known: a thread that reserved its blocks earlier and is still writing, or the thread that
    /// rings. The call does not wait for them. But if the system preempts such a thread, requests
    /// posted after its own wait until it continues.
    ///
    /// The thread that rings also rings for the others before it returns, as long as it finds more
    /// written WQEs. It polls WQEs that are being written a bounded number of times. So calls are
    /// short if threads post now and then. If others post without a pause, some calls are long.
    ///
    /// Costs the stores of the WQE, two atomic read-modify-writes, and for the ringing thread the
    /// cost of every post ([`SendQueue::post`](crate::ring::SendQueue::post)). A request that is
    /// rung alone goes by BlueFlame if the register allows it. Several requests are rung by one
    /// doorbell.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then, and the queue is as it was. While other threads post,
    /// [`PostError::QueueFull`] or [`PostError::CqFull`] may stand for
    /// [`PostError::NothingSignaled`]: their requests may be signaled.
    ///
    /// # Safety
    /// The HCA works on the request from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub unsafe fn post<O: PostOn<T>>(&self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: this function's contract.
        self.post_keeping(unsafe { Lent::promised() }, id, &operation, |_| {})
    }

    /// Posts one request, see [`post`](Self::post). Calls `keep` with the counter of its WQE while
    /// this thread alone has the WQE's blocks: after the operation was used for the last time, and
    /// before the HCA can know the request. Does not call it, or returns success.
    #[inline(always)]
    pub(crate) fn post_keeping<O: PostOn<T>>(
        &self,
        lent: Lent,
        id: u64,
        operation: &O,
        keep: impl FnOnce(Counter),
    ) -> Result<(), PostError> {
        let limits = &self.shared.limits;
        if O::USUAL_DS != 0 && limits.max_sge != 0 && operation.is_usual(limits) {
            // SAFETY: a usual operation passes its check.
            return unsafe { self.post_sized(lent, id, operation, O::USUAL_DS, keep) };
        }
        self.post_any(lent, id, operation, keep)
    }

    /// Posts any request, see [`post`](Self::post). Not inlined, so that other paths do not need
    /// the operation in memory.
    #[inline(never)]
    fn post_any<O: PostOn<T>>(
        &self,
        lent: Lent,
        id: u64,
        operation: &O,
        keep: impl FnOnce(Counter),
    ) -> Result<(), PostError> {
        operation.check(&self.shared.limits)?;
        // SAFETY: the operation has passed its check.
        unsafe { self.post_sized(lent, id, operation, 1 + operation.body_ds(), keep) }
    }

    /// Posts a request of `ds` units that passed its check, see [`post`](Self::post).
    ///
    /// # Safety
    /// The request has passed its check, and has `ds` units.
    #[inline(always)]
    unsafe fn post_sized<O: PostOn<T>>(
        &self,
        lent: Lent,
        id: u64,
        operation: &O,
        ds: u32,
        keep: impl FnOnce(Counter),
    ) -> Result<(), PostError> {
        let shared = &*self.shared;
        let flags = operation.flags() | shared.signal_all();
        let signaled = is_signaled(flags);
        let ticket = match shared.sequencer.reserve(ds.div_ceil(UNITS), signaled) {
            Ok(ticket) => ticket,
            Err(refusal) => return Err(shared.error(refusal)),
        };
        let head = counter(ticket.position());
        // SAFETY: the ticket gives this call the blocks and the note. Their former WQE is retired,
        // and nothing reads them before they are rung. The operation passed its check.
        unsafe {
            let last = shared.wqes.put(head, operation, flags, ds);
            let note = shared.sequencer.note(ticket.position());
            note.0.get().write(Posted { id, last, signaled });
        }
        keep(head);
        // Orders the WQE before its stamp for the HCA, whichever thread rings.
        fence::wqe_then_record();
        if let Some(turn) = shared.sequencer.written(ticket, ds) {
            shared.ring(lent, turn);
        }
        Ok(())
    }
}

impl<T: Transport> Shared<T> {
    /// Rings while this thread holds the turn: also what others wrote, each with a promise of its
    /// own.
    #[inline]
    fn ring(&self, lent: Lent, turn: Turn<'_, Note>) {
        let mut next = Some(turn);
        while let Some(turn) = next {
            // SAFETY: the turn's holder is the only one to use the doorbell. WQEs of the run are
            // written, and cannot complete, so stay as they are, until `publish`.
            unsafe { self.ring_run(lent, &turn) };
            next = turn.pass();
        }
    }

    /// # Safety
    /// The turn's run is written, and not published; only its holder calls this.
    #[inline(always)]
    unsafe fn ring_run(&self, lent: Lent, turn: &Turn<'_, Note>) {
        // SAFETY: the turn's holder alone uses the doorbell's cell, and only it calls this.
        let doorbell = unsafe { &mut *self.doorbell.0.get() };
        let (last, ds) = turn.last();
        // SAFETY: its WQE is written, and not rung.
        let ctrl = unsafe { (*self.sequencer.note(last).0.get()).last.doorbell() };
        let (last, end, single) = (counter(last), counter(turn.end()).low16(), turn.is_single());
        // From `publish` on the WQE may complete, and its blocks be written anew: what goes to the
        // register is read before.
        if single && ds > 1 && ds <= UNITS && doorbell.takes_words() {
            // SAFETY: a block of the ring; all of it was written at some time, by the library if
            // not by a WQE. It goes by BlueFlame.
            unsafe {
                let block = self.wqes.block(last).cast::<u64>();
                let words = core::array::from_fn(|word| Some(block.add(word).read()));
                turn.publish();
                doorbell.ring_block(lent, end, words, block);
            }
        } else if ds.div_ceil(UNITS) <= BLOCKS as u32 && doorbell.takes(ds, single) {
            // A small ring, in which the WQE's blocks have the slots of their index.
            let mut copy = [[0u64; WORDS]; BLOCKS];
            for block in 0..ds.div_ceil(UNITS) {
                let at = last.plus(block);
                // SAFETY: a block of the ring, all of which was written at some time. It is the
                // turn holder's to read until `publish`.
                let words = unsafe { self.wqes.block(at).cast::<[u64; WORDS]>().read() };
                copy[usize::from(at.low16()) % BLOCKS] = words;
            }
            turn.publish();
            let ring = Blocks { start: NonNull::from(&copy).cast(), count: BLOCKS as u32 };
            // SAFETY: the last WQE's, and the WQE, which is no longer than the small ring.
            unsafe { doorbell.ring(lent, end, ctrl, single, ring) };
        } else {
            turn.publish();
            let ring = Blocks { start: self.wqes.block(last).cast(), count: 1 };
            // SAFETY: the last WQE's. It does not go by BlueFlame, so nothing is read.
            unsafe { doorbell.ring(lent, end, ctrl, single, ring) };
        }
    }

    #[inline(always)]
    fn signal_all(&self) -> u8 {
        if self.signal_all { mlx5_sys::wqe::CE_ALWAYS } else { 0 }
    }

    #[cold]
    fn error(&self, refusal: Refusal) -> PostError {
        match refusal {
            // A post that races with the report may return either error.
            Refusal::Stopped if self.device_failed.load(Ordering::Relaxed) => {
                PostError::DeviceFailed
            }
            Refusal::Stopped => PostError::WrongState,
            Refusal::Blocks { free } => PostError::QueueFull { free },
            Refusal::NothingSignaled { outstanding } => PostError::NothingSignaled { outstanding },
            Refusal::Slots { slots } => PostError::CqFull { slots },
        }
    }
}

/// Blocks of the largest BlueFlame buffer, and words of a block.
const BLOCKS: usize = BF_BUFFER_SIZE / WQEBB_SIZE;
const WORDS: usize = WQEBB_SIZE / 8;

impl<T: Transport> Clone for Producer<T> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl<T: Transport> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Producer").field(&self.shared).finish()
    }
}
