//! Taking CQEs: the fast path of usual ones, and the paths of all others.

use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mlx5_sys::cqe::{FORMAT_INLINE_32, FORMAT_SHIFT, OPCODE_SHIFT, SOLICITED, opcode};

use crate::cqe::{
    Completion, CqeRef, QueueKind, ReceiveDone, ReceiveKind, SendDone, Timestamp, UnexpectedCqe,
    UnexpectedCqeReason,
};
use crate::ring::completion::reader::CqReader;
use crate::ring::{PollError, Queues};
use crate::watch::timing::Phase;

/// In the bits of a last byte: a message of up to 32 bytes is in the CQE.
const INSIDE: u32 = (FORMAT_INLINE_32 as u32) << FORMAT_SHIFT;

/// The result of looking for the next CQE.
pub(crate) enum Found {
    Nothing,
    /// The oldest request of the likely queue. It was plain, and no other request was retired. An
    /// owner of buffers takes them from that request's place.
    Send(SendDone),
    /// The oldest receive.
    Receive(ReceiveDone),
    /// A case that needs a closer look. Perhaps there is no CQE.
    Other,
}

/// Returns whether this is a responder's opcode of a success. Bits above those of opcodes are
/// other bits of a last byte.
#[inline(always)]
fn is_receive(code: u32) -> bool {
    const { assert!(opcode::REQ == 0 && opcode::RESP_WR_IMM == 1 && opcode::RESP_SEND_INV == 4) };
    code.wrapping_sub(1) < 4
}

impl CqReader {
    /// Takes the next completion, if there is one.
    ///
    /// # Errors
    /// [`PollError`]; nothing is taken then.
    // Always: as a call, with the result in memory, an empty poll would be four times as long.
    #[doc(alias = "ibv_poll_cq")]
    #[inline(always)]
    pub fn poll<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
    ) -> Result<Option<Completion>, PollError> {
        // SAFETY: `look_for` passes the place of the next CQE, which is not one to pause at.
        let take = |reader: &mut Self, at, _: &CqeRef<'_>| unsafe { reader.take_at(at) };
        match self.look_for::<true, Q>(queues, take) {
            Found::Nothing => Ok(None),
            Found::Send(done) => Ok(Some(Completion::Send(done))),
            Found::Receive(done) => Ok(Some(Completion::Receive(done))),
            Found::Other => {
                // A variable of its own, so that only this path needs a completion of any kind in
                // memory.
                let mut other = MaybeUninit::uninit();
                if !self.take_other(queues, &mut other)? {
                    return Ok(None);
                }
                // SAFETY: `take_other` returned true, so it wrote a completion.
                Ok(Some(unsafe { other.assume_init() }))
            }
        }
    }

    /// Takes the next completion, if there is one, with the time at which the HCA wrote its CQE.
    /// `None` instead of the time of a [`Failed`](Completion::Failed). Compressed CQEs have the time
    /// of their title. Costs two loads more than [`poll`](Self::poll).
    ///
    /// ```
    /// # let rig::Link { mut reader, mut sends, pd, .. } = rig::link()?;
    /// use mlx5::verbs::DeviceClock;
    /// use mlx5::wqe::Nop;
    ///
    /// let clock = DeviceClock::new(pd.context())?;
    /// // SAFETY: a NOP names no memory.
    /// unsafe { sends.post(7, Nop::new().signaled())? };
    /// let (completion, time) = loop {
    ///     if let Some(timed) = reader.poll_timed(&mut sends)? {
    ///         break timed;
    ///     }
    /// };
    /// if let (Some(time), Some(reading)) = (time, clock.read()) {
    ///     println!("{completion:?} at {:?}", reading.time(time));
    /// }
    /// # assert!(time.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PollError`]; nothing is taken then.
    #[doc(alias = "ibv_wc_read_completion_ts")]
    #[inline]
    pub fn poll_timed<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
    ) -> Result<Option<(Completion, Option<Timestamp>)>, PollError> {
        let mut time = None;
        let take = |reader: &mut Self, at, cqe: &CqeRef<'_>| {
            // Before the HCA gets the CQE back.
            time = Some(cqe.timestamp());
            // SAFETY: `look_for` passes the place of the next CQE, which is not one to pause at.
            unsafe { reader.take_at(at) };
        };
        let completion = match self.look_for::<true, Q>(queues, take) {
            Found::Nothing => return Ok(None),
            Found::Send(done) => Completion::Send(done),
            Found::Receive(done) => Completion::Receive(done),
            Found::Other => {
                let mut other = MaybeUninit::uninit();
                if !self.take_other_timed(queues, &mut other, &mut time)? {
                    return Ok(None);
                }
                // SAFETY: `take_other_timed` returned true, so it wrote a completion.
                unsafe { other.assume_init() }
            }
        };
        Ok(Some((completion, time)))
    }

    /// Returns an iterator over the completions that are there. Each step is a
    /// [`poll`](Self::poll), and publishes the consumer index. [`take`](Iterator::take) sets the
    /// maximum number of completions.
    ///
    /// ```
    /// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
    /// # use mlx5::wqe::Nop;
    /// // SAFETY: a NOP names no memory.
    /// unsafe { sends.post(7, Nop::new().signaled())? };
    /// let mut done = 0;
    /// while done == 0 {
    ///     // Up to 32 completions, like `ibv_poll_cq(cq, 32, wcs)`.
    ///     for completion in reader.poll_all(&mut sends).take(32) {
    ///         println!("{:?}", completion?);
    ///         done += 1;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll_all<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
    ) -> impl Iterator<Item = Result<Completion, PollError>> {
        core::iter::from_fn(|| self.poll(queues).transpose())
    }

    /// Finds the next CQE, if it is a usual one and not one to pause at. Retires the oldest request
    /// of its queue. The CQE is still to be taken.
    ///
    /// # Safety
    /// The likely send queue completes on this CQ: that is not looked at.
    #[inline(always)]
    pub(crate) unsafe fn find<Q: Queues + ?Sized>(&mut self, queues: &mut Q) -> Found {
        self.look_for::<false, Q>(queues, |_, _, _| {})
    }

    /// Finds the next CQE, if it is a usual one and not one to pause at. Retires its request in its
    /// queue, and calls `take` with the CQE and its address.
    ///
    /// With `ANY`, the CQE may be of any plain request of the likely queue, and may hold a short
    /// message. Otherwise it is of the queue's oldest request only, which completes on this CQ, and
    /// holds no message.
    #[inline(always)]
    fn look_for<const ANY: bool, Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        take: impl FnOnce(&mut Self, NonNull<u8>, &CqeRef<'_>),
    ) -> Found {
        self.timing.begin();
        let at = self.consumer.place();
        let op_own = self.consumer.op_own();
        if self.consumer.is_success(op_own) {
            // Checked first, so that no decision is left after the code below.
            if self.consumer.is_at_pause() {
                return Found::Other;
            }
            // SAFETY: `at` is the next CQE's address, and `op_own` its last byte. It equals `success`,
            // which has a valid opcode and the owner bit of this lap, so the HCA wrote the CQE and
            // software owns it.
            let cqe = unsafe { self.consumer.cqe(at, op_own) };
            self.timing.stamp_at(Phase::Sight, cqe.seen());
            if let Some(mut side) = queues.likely_send_side() {
                if let Some(entry) = side.retire_plain::<ANY>(self.id, &cqe) {
                    let done = side.done(&entry, &cqe);
                    self.timing.stamp(Phase::Decode);
                    self.flight.cqe(&cqe);
                    take(self, at, &cqe);
                    side.release();
                    return Found::Send(done);
                }
            }
            return Found::Other;
        }
        if self.consumer.is_stale(op_own) {
            return if self.consumer.idles() { Found::Other } else { Found::Nothing };
        }
        if self.consumer.is_at_pause() {
            return Found::Other;
        }
        self.look_for_receive::<ANY, Q>(queues, at, op_own, take)
    }

    /// Handles [`look_for`](Self::look_for) for a CQE at `at`, with the last byte `op_own`, that is
    /// not one to pause at, and neither a requester's plain success nor known to be none.
    #[inline(always)]
    fn look_for_receive<const ANY: bool, Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        at: NonNull<u8>,
        op_own: u32,
        take: impl FnOnce(&mut Self, NonNull<u8>, &CqeRef<'_>),
    ) -> Found {
        // A responder's success. The most frequent one is compared as a whole.
        let mut code = u32::from(opcode::RESP_SEND);
        if !self.consumer.is_arrived(op_own) {
            let kind = self.consumer.differs(op_own) & !u32::from(SOLICITED);
            code = kind.rotate_right(OPCODE_SHIFT);
            if !is_receive(code) {
                // With a short message in it.
                code ^= INSIDE.rotate_right(OPCODE_SHIFT);
                if !ANY || !is_receive(code) || !self.deliver(queues, op_own) {
                    return Found::Other;
                }
            }
        }
        // SAFETY: `at` is the next CQE's address, and `op_own` its last byte. The owner bit is that
        // of this lap and the opcode one of the responder's 1 to 4, so software owns the CQE.
        let cqe = unsafe { self.consumer.cqe(at, op_own) };
        self.timing.stamp_at(Phase::Sight, cqe.seen());
        let retired = match queues.likely_receive_queue() {
            Some(queue) => queue.retire_next(self.id, &cqe).map(|id| (id, queue.qpn())),
            None => self.retire_receive(queues, &cqe),
        };
        let Some((id, qpn)) = retired else { return Found::Other };
        let done = self.decode_receive(id, qpn, code, &cqe);
        take(self, at, &cqe);
        Found::Receive(done)
    }

    /// Retires the receive that a responder's success completes. Its message is in the receive's
    /// memory by now. Returns the receive's id and the queue pair's number. `None`, and nothing
    /// changes, if only [`take_any`](Self::take_any) finds the receive.
    #[inline(always)]
    fn retire_receive<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        cqe: &CqeRef<'_>,
    ) -> Option<(u64, u32)> {
        let qpn = cqe.qpn();
        let id = match queues.receive_side(qpn) {
            Some(mut side) => side.retire_plain(self.id, qpn, cqe)?,
            None => queues.indexed_side(cqe.user_index())?.retire_plain(self.id, qpn, cqe)?,
        };
        Some((id, qpn))
    }

    /// Returns the completion of a receive that a responder's success with this opcode retired.
    #[inline(always)]
    fn decode_receive(&mut self, id: u64, qpn: u32, code: u32, cqe: &CqeRef<'_>) -> ReceiveDone {
        let kind = ReceiveKind::success(code as u8, cqe);
        let done = ReceiveDone::decode(id, qpn, cqe, kind);
        self.timing.stamp(Phase::Decode);
        self.flight.cqe(cqe);
        done
    }

    /// Copies the message of up to 32 bytes that is in the next CQE, a responder's success with
    /// this last byte, to the memory of its receive. Returns false, and copies nothing, if the
    /// receive is not known at once, or is not one entry that is long enough.
    ///
    /// The receive is still to be retired.
    #[inline(never)]
    fn deliver<Q: Queues + ?Sized>(&mut self, queues: &mut Q, op_own: u32) -> bool {
        // SAFETY: `op_own` is the CQE's last byte, with the owner bit of this lap and one of the
        // responder's opcodes 1 to 4, so software owns the CQE.
        let cqe = unsafe { self.consumer.cqe(self.consumer.place(), op_own) };
        if let Some(queue) = queues.likely_receive_queue() {
            return queue.deliver_next(self.id, &cqe);
        }
        let qpn = cqe.qpn();
        match queues.receive_side(qpn) {
            Some(side) => side.deliver(self.id, qpn, &cqe),
            None => queues
                .indexed_side(cqe.user_index())
                .is_some_and(|side| side.deliver(self.id, qpn, &cqe)),
        }
    }

    /// Takes the next CQE, of any kind, writes its completion to `into`, and publishes the consumer
    /// index. Returns whether there was a CQE.
    ///
    /// This path is not only for rare cases. It handles successes of queues other than the likely
    /// one, and short messages in the CQE if the caller owns the memory.
    #[inline(never)]
    pub(crate) fn take_other<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        into: &mut MaybeUninit<Completion>,
    ) -> Result<bool, PollError> {
        let op_own = self.consumer.op_own();
        let kind = self.consumer.kind(op_own) & !u32::from(SOLICITED);
        if kind == 0 {
            // SAFETY: `op_own` is the CQE's last byte, with the opcode REQ and the owner bit of
            // this lap, so software owns the CQE.
            let cqe = unsafe { self.consumer.cqe(self.consumer.place(), op_own) };
            self.timing.stamp_at(Phase::Sight, cqe.seen());
            let qpn = cqe.qpn();
            if let Some(mut side) = queues.send_side(qpn) {
                if let Some(done) = side.complete_plain(self.id, qpn, &cqe) {
                    self.timing.stamp(Phase::Decode);
                    self.flight.cqe(&cqe);
                    self.pass();
                    side.release();
                    into.write(Completion::Send(done));
                    return Ok(true);
                }
            }
        }
        // A responder's success, also a solicited one, or with a short message in it.
        let inside = kind & INSIDE;
        let code = (kind ^ inside).rotate_right(OPCODE_SHIFT);
        if is_receive(code) && (inside == 0 || self.deliver(queues, op_own)) {
            // SAFETY: `op_own` is the CQE's last byte, with the owner bit of this lap and one of
            // the responder's opcodes 1 to 4, so software owns the CQE.
            let cqe = unsafe { self.consumer.cqe(self.consumer.place(), op_own) };
            self.timing.stamp_at(Phase::Sight, cqe.seen());
            if let Some((id, qpn)) = self.retire_receive(queues, &cqe) {
                let done = self.decode_receive(id, qpn, code, &cqe);
                self.pass();
                into.write(Completion::Receive(done));
                return Ok(true);
            }
        }
        self.take_any(queues, into)
    }

    /// Takes the next CQE like [`take_other`](Self::take_other), and writes its time to `time`.
    #[inline(never)]
    pub(crate) fn take_other_timed<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        into: &mut MaybeUninit<Completion>,
        time: &mut Option<Timestamp>,
    ) -> Result<bool, PollError> {
        match self.look_ahead() {
            // Software owns the CQE until it is taken, so `take_other` takes this one.
            Ok(Some(cqe)) => *time = cqe.time(),
            // A CQE that came in between would be taken without its time: the next poll takes it.
            Ok(None) => return Ok(false),
            Err(error) => {
                if error == PollError::DeviceFailed {
                    queues.device_failed();
                }
                return Err(error);
            }
        }
        self.take_other(queues, into)
    }

    /// Slow path of [`take_other`](Self::take_other): handles every CQE format.
    #[cold]
    #[inline(never)]
    fn take_any<Q: Queues + ?Sized>(
        &mut self,
        queues: &mut Q,
        into: &mut MaybeUninit<Completion>,
    ) -> Result<bool, PollError> {
        let Some(cqe) = self.consumer.look() else {
            return match self.find_nothing() {
                Ok(()) => Ok(false),
                Err(error) => {
                    if error == PollError::DeviceFailed {
                        queues.device_failed();
                    }
                    Err(error)
                }
            };
        };
        if cqe.compressed() {
            if !self.consumer.open() {
                return Err(PollError::Compressed);
            }
            // The CQEs that the block was expanded to are not compressed.
            return self.take_other(queues, into);
        }
        self.timing.stamp_at(Phase::Sight, cqe.seen());
        let unexpected = |reason| Completion::UnexpectedCqe(UnexpectedCqe::new(reason, &cqe));
        let mut sender = None;
        let completion = match cqe.queue() {
            Some(QueueKind::Send) => {
                sender = queues.send_side(cqe.qpn());
                sender.as_mut().map(|side| side.complete(self.id, &cqe))
            }
            Some(QueueKind::Receive) => match queues.receive_side(cqe.qpn()) {
                Some(side) => Some(side.complete(self.id, &cqe)),
                None => {
                    queues.indexed_side(cqe.user_index()).map(|side| side.complete(self.id, &cqe))
                }
            },
            None => Some(unexpected(UnexpectedCqeReason::UnknownOpcode)),
        };
        let completion =
            completion.unwrap_or_else(|| unexpected(UnexpectedCqeReason::UnknownQueue));
        if let Completion::UnexpectedCqe(UnexpectedCqe {
            reason: UnexpectedCqeReason::UnknownQueue | UnexpectedCqeReason::TagMatching,
            qpn,
            ..
        }) = completion
        {
            if self.members.as_ref().is_some_and(|members| members.has_queue_of(&cqe)) {
                let queue = cqe.queue().unwrap_or(QueueKind::Receive);
                return Err(PollError::QueueNotGiven { qpn, queue });
            }
        }
        self.timing.stamp(Phase::Decode);
        self.flight.cqe(&cqe);
        if matches!(completion, Completion::UnexpectedCqe(_)) {
            self.flight.unclaimed(&cqe);
        }
        self.pass();
        if let Some(side) = sender {
            side.release();
        }
        into.write(completion);
        Ok(true)
    }
}
