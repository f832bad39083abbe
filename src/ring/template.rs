//! Requests that differ in a few fields: the common part is written once per slot.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

use mlx5_sys::wqe::{CE_ALWAYS, CE_MASK, SEGMENT_SIZE, WQEBB_SIZE};

use super::send_ring::SendRing;
use super::shadow::{self, Entry, Marks};
use super::slots::ctrl_segment;
use super::variable::{Place, Variable};
use super::{HasSendQueue, PostError, Queues, ReceiveSide, SendQueue, SendSide};
use crate::ib::{Counter, Rc, Transport};
use crate::watch::lint::Refusal;
use crate::watch::timing::Phase;
use crate::wqe::{Code, Encode, EncodeError, Limits, Linear, Operation, PostOn, Segments, Unit};

/// A send queue that posts one request repeatedly, with new values in the fields `V`.
///
/// `Q` is the queue: `&mut SendQueue`, or a [`SendQueue`] itself. It posts nothing else meanwhile.
/// In its first lap around the ring, the template writes the complete request to each slot ahead.
/// From then on a post stores the ctrl segment, which has the WQE's index, and the 16-byte units
/// that hold variable fields. It copies the WQE to the BlueFlame register from registers and from
/// private memory, or in the way that the register takes it. Requests of more than one block of 64
/// bytes, or of a size known only at run time, are written completely in each post.
///
/// ```no_run
/// # use mlx5::ring::{PostError, SendQueue, Template, variable::{Bytes, Offset}};
/// # use mlx5::wqe::{InlineBytes, Remote, RdmaWrite};
/// # fn example(queue: &mut SendQueue, remote: Remote) -> Result<(), PostError> {
/// let quote = RdmaWrite::new(InlineBytes([0; 8]), remote);
/// let mut quotes = Template::<_, _, (Bytes, Offset)>::new(queue, quote)?;
/// // SAFETY: an inline payload names no memory of this side.
/// unsafe {
///     quotes.post(1, (1234_u64.to_le_bytes(), 0))?;
///     quotes.post_signaled(2, (1235_u64.to_le_bytes(), 64))?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// An unsignaled request counts as a signaled one while more than one CQ slot is free, like a
/// request of [`Armed`](super::Armed). Dropping or leaking a template changes nothing for the
/// queue.
pub struct Template<Q, O, V = (), T: Transport = Rc> {
    queue: Q,
    operation: O,
    state: State,
    form: PhantomData<(fn(V), T)>,
}

/// The state of a template besides the queue.
struct State {
    /// The first eight bytes of the ctrl segment of the WQE at the head, in memory order, and its
    /// shadow entry. Valid while a line is drawn.
    word: u64,
    entry: NonNull<Entry>,
    /// The WQE with the operation's own flags, and signaled.
    looks: [Look; 2],
    /// The WQE, with blank variable fields and an index of 0.
    units: [Unit; 4],
    /// The slots before this one have been written completely; and the number of slots that have
    /// not.
    written: Counter,
    left: u32,
}

// SAFETY: `entry` points into the shadow of the template's queue, and is used only while that queue
// is borrowed. `HasSendQueue` is sealed: the template holds one queue, by value or by the only
// reference, so the pointer moves to another thread together with the queue.
unsafe impl Send for State {}

/// The parts of a WQE that depend on whether it is signaled.
#[derive(Clone, Copy)]
struct Look {
    /// The last eight bytes of the ctrl segment, in memory order.
    ctrl: u64,
    marks: Marks,
}

/// One step of a ctrl segment's index, as long as the index's high byte does not change.
const STEP: u64 = u64::from_ne_bytes([0, 0, 1, 0, 0, 0, 0, 0]);

/// `CE_ALWAYS` in the last eight bytes of a ctrl segment.
const SIGNALED: u64 = u64::from_ne_bytes([0, 0, 0, CE_ALWAYS, 0, 0, 0, 0]);

/// Checks that a template can be sent to another thread, as its queue can.
const _: () = {
    const fn may_be_sent<S: Send>() {}
    may_be_sent::<Template<SendQueue, crate::wqe::Nop>>();
    may_be_sent::<Template<&mut SendQueue, crate::wqe::Nop>>();
};

impl<Q: HasSendQueue<T>, O: PostOn<T>, V: Variable<O>, T: Transport> Template<Q, O, V, T> {
    /// Creates a template from a queue and a request. The request's values in variable fields are
    /// ignored, except for the remote address, which an [`Offset`](super::variable::Offset) is
    /// added to. Allocates nothing.
    ///
    /// # Errors
    /// [`PostError`]: the queue can never take such a request.
    pub fn new(mut queue: Q, operation: O) -> Result<Self, PostError> {
        let ring = &mut queue.queue_mut().ring;
        operation.check(&ring.limits)?;
        // Clears entries that others wrote ahead. Polls do not notice entries written here until
        // they are posted.
        ring.open();
        ring.close();
        ring.ready.clear();
        let state = State::new::<T, O, V>(ring, &operation);
        Ok(Self { queue, operation, state, form: PhantomData })
    }

    /// Posts the request with these values. `id` comes back with its completion.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes the memory that a SEND or WRITE reads. Nothing reads, writes or holds a
    ///   reference to the memory that a READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic
    ///   writes is mapped, writable, in this process at the address in the entry.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue, or when the QP has been moved to RESET or destroyed. Inline payload names no memory.
    #[inline(always)]
    pub unsafe fn post(&mut self, id: u64, values: V::Values) -> Result<(), PostError> {
        // SAFETY: passed on.
        unsafe { self.post_as::<false>(id, values) }
    }

    /// Posts the request with these values, signaled even if the operation is not.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then.
    ///
    /// # Safety
    /// The HCA works on the request from now on. Until the request is retired:
    /// - The memory of its entries stays allocated, and registered under the `lkey` given.
    /// - Nothing writes the memory that a SEND or WRITE reads. Nothing reads, writes or holds a
    ///   reference to the memory that a READ or atomic writes.
    /// - If the QP may put payload into CQEs ([`ScatterToCqe`](crate::verbs::ScatterToCqe): not by
    ///   default, but QPs that libmlx5 made for other code may), the memory that a READ or atomic
    ///   writes is mapped, writable, in this process at the address in the entry.
    ///
    /// A request is retired when a poll returns its completion or that of a later request of this
    /// queue, or when the QP has been moved to RESET or destroyed. Inline payload names no memory.
    #[inline(always)]
    pub unsafe fn post_signaled(&mut self, id: u64, values: V::Values) -> Result<(), PostError> {
        // SAFETY: passed on.
        unsafe { self.post_as::<true>(id, values) }
    }

    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_as<const CE: bool>(
        &mut self,
        id: u64,
        values: V::Values,
    ) -> Result<(), PostError> {
        let ring = &mut self.queue.queue_mut().ring;
        ring.doorbell.timing.begin();
        if O::USUAL_DS == 0 || ring.ready.is_empty() {
            if O::USUAL_DS != 0 && ring.ready.plain() != 0 {
                // SAFETY: passed on.
                unsafe { self.state.post_plain::<O, V, CE>(ring, id, &values)? };
                return Ok(());
            }
            // SAFETY: passed on.
            return unsafe { self.post_rest::<CE>(id, values) };
        }
        // SAFETY: the caller guarantees the memory by this function's contract. `is_empty` returned
        // false, so a WQE is in the line.
        unsafe { self.state.post::<O, V, CE>(ring, id, &values)? };
        Ok(())
    }

    /// Posts the request if the line is used up.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[cold]
    #[inline(never)]
    unsafe fn post_rest<const CE: bool>(
        &mut self,
        id: u64,
        values: V::Values,
    ) -> Result<(), PostError> {
        let ring = &mut self.queue.queue_mut().ring;
        if O::USUAL_DS != 0 && self.operation.is_usual(&ring.limits) {
            self.state.draw::<O>(ring);
            if !ring.ready.is_empty() {
                // SAFETY: passed on.
                unsafe { self.state.post::<O, V, CE>(ring, id, &values)? };
                return Ok(());
            }
            if ring.ready.plain() != 0 {
                // SAFETY: passed on.
                unsafe { self.state.post_plain::<O, V, CE>(ring, id, &values)? };
                return Ok(());
            }
        }
        let (head, slack) = (ring.cursor.head(), ring.slack);
        let (end, slack, last, clear) = if CE {
            ring.encode_any::<T, _>(head, slack, id, &Signaled(&self.operation))?
        } else {
            ring.encode_any::<T, O>(head, slack, id, &self.operation)?
        };
        let place = ring.place(head);
        // SAFETY: `encode_any` has just written the WQE at `head`, of an `O`, and it is not posted.
        // Its memory meets this function's contract.
        unsafe {
            V::blank(&place);
            V::patch(&values, &place);
            ring.commit(end, slack, &last, true)?;
        }
        ring.set_clear(clear);
        Ok(())
    }

    /// Returns the queue.
    pub fn queue(&self) -> &SendQueue<T> {
        self.queue.queue()
    }

    /// Clears the times recorded so far, see [`SendQueue::clear_timing`].
    #[cfg(feature = "timing")]
    pub fn clear_timing(&mut self) {
        self.queue.queue_mut().clear_timing();
    }

    /// Returns the queue.
    pub fn into_queue(self) -> Q {
        self.queue
    }
}

impl State {
    fn new<T: Transport, O: PostOn<T>, V: Variable<O>>(ring: &SendRing, operation: &O) -> Self {
        #[repr(align(64))]
        struct Block([u8; WQEBB_SIZE]);
        let mut block = Block([0; WQEBB_SIZE]);
        let at = NonNull::from(&mut block.0).cast::<u8>();
        let mut units = [Unit::from_words(0, 0); 4];
        if O::USUAL_DS != 0 && operation.is_usual(&ring.limits) {
            // SAFETY: a block on this function's stack, which the WQE fits.
            unsafe {
                let mut writer = Linear::new(at.as_ptr());
                let ctrl = ring.names.ctrl(Counter::default(), operation.code(), O::USUAL_DS);
                writer.put(ctrl_segment(
                    ctrl,
                    operation.code(),
                    ring.flags(operation),
                    operation.immediate(),
                ));
                operation.put(&mut writer);
                V::blank(&Place { ring: at, size: WQEBB_SIZE, offset: 0 });
                units = core::array::from_fn(|unit| Unit::load(at.add(unit * SEGMENT_SIZE)));
            }
        }
        let look = Look { ctrl: 0, marks: Marks::default() };
        Self {
            word: 0,
            entry: NonNull::dangling(),
            looks: [look; 2],
            units,
            written: ring.cursor.head(),
            left: ring.cursor.shape().entries(),
        }
    }

    /// Starts a new line, and writes those of its slots that have not been written.
    fn draw<O: Operation>(&mut self, ring: &mut SendRing) {
        let head = ring.cursor.head();
        // The high byte of the index stays the same within a line.
        let same_high_byte = 0x100 - u32::from(head.low16() & 0xff);
        // All WQEs in the line count as if they brought a CQE. The last CQ slot is kept for a
        // signaled WQE, which retires all others.
        let all_but_one = ring.clear_from(head, ring.slack).since(head).saturating_sub(1);
        let length = ring.draw_line(same_high_byte.min(all_but_one));
        // WQEs posted since then were written completely.
        let ahead = self.written.since(head);
        if ahead > ring.cursor.shape().entries() {
            self.left = self.left.saturating_sub(head.since(self.written));
            self.written = head;
        }
        let end = head.plus(length);
        while self.left != 0 && self.written != end && end.since(self.written) <= length {
            let slot = ring.cursor.shape().slot(self.written);
            for (at, unit) in self.units.iter().enumerate().take(O::USUAL_DS as usize).skip(1) {
                // SAFETY: a block of the ring, which is free, since it is in the line.
                unsafe { unit.store(ring.buffer.add(slot * WQEBB_SIZE + at * SEGMENT_SIZE)) }
            }
            self.written = self.written.plus(1);
            self.left -= 1;
        }
        self.word = ring.names.ctrl(head, Code::new(O::OPCODE), O::USUAL_DS).to_be();
        self.entry = ring.shadow.place(head);
        let as_it_is = self.units[0].high();
        self.looks = [as_it_is, as_it_is | SIGNALED].map(|ctrl| {
            let [.., flags, _, _, _, _] = ctrl.to_ne_bytes();
            let signaled = flags & CE_MASK == CE_ALWAYS;
            let marks = if signaled && shadow::may_be_plain(O::OPCODE, 0, O::USUAL_DS) {
                Marks::plain(ring.names.key, O::OPCODE)
            } else {
                Marks::other(O::OPCODE, O::USUAL_DS, ring.slack)
            };
            Look { ctrl, marks }
        });
    }

    /// Posts the WQE at the head, which is in the line.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post<O: Operation, V: Variable<O>, const CE: bool>(
        &mut self,
        ring: &mut SendRing,
        id: u64,
        values: &V::Values,
    ) -> Result<(), Refusal> {
        ring.doorbell.timing.stamp(Phase::Reserve);
        let (block, record) = ring.ready.next();
        // SAFETY: the block of the head's slot.
        let units = unsafe { self.write::<O, V, CE>(block, id, values) };
        ring.doorbell.timing.stamp(Phase::Encode);
        ring.inspect_next()?;
        // SAFETY: the WQE at the head is written, since its slot is in the line, and the line is
        // only drawn where the register takes it. Its memory meets this function's contract.
        unsafe { ring.doorbell.fire(record, units) };
        ring.step();
        self.step();
        Ok(())
    }

    /// Posts the WQE at the head on a register that does not support firing.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_plain<O: Operation, V: Variable<O>, const CE: bool>(
        &mut self,
        ring: &mut SendRing,
        id: u64,
        values: &V::Values,
    ) -> Result<(), Refusal> {
        ring.doorbell.timing.stamp(Phase::Reserve);
        // SAFETY: the block of the head's slot.
        unsafe { self.write::<O, V, CE>(ring.plain_block(), id, values) };
        ring.doorbell.timing.stamp(Phase::Encode);
        // SAFETY: passed on.
        unsafe { ring.post_plain(self.word)? };
        self.step();
        Ok(())
    }

    /// Moves on to the next WQE.
    #[inline(always)]
    fn step(&mut self) {
        self.word = self.word.wrapping_add(STEP);
        // SAFETY: at most the entry behind that of the line's last WQE; there is one.
        self.entry = unsafe { self.entry.add(1) };
    }

    /// Writes the parts of the WQE at the head that are not in its slot, and its shadow entry.
    /// Returns the WQE.
    ///
    /// # Safety
    /// `block` is the block of the head's slot, which is in the line.
    #[inline(always)]
    unsafe fn write<O: Operation, V: Variable<O>, const CE: bool>(
        &self,
        block: NonNull<u8>,
        id: u64,
        values: &V::Values,
    ) -> [Unit; 4] {
        let look = &self.looks[usize::from(CE)];
        let word = self.word;
        let unit = |at: usize| {
            let old = if at == 0 { Unit::from_words(word, look.ctrl) } else { self.units[at] };
            if at != 0 && V::UNITS >> at & 1 == 0 {
                return old;
            }
            let unit = V::unit(values, at, old);
            // SAFETY: a block of the ring, whose WQE is not posted.
            unsafe { unit.store(block.add(at * SEGMENT_SIZE)) };
            unit
        };
        let mut units = [unit(0); 4];
        for at in 1..4 {
            // Behind its end, the last unit is repeated.
            units[at] = if at < O::USUAL_DS as usize { unit(at) } else { units[at - 1] };
        }
        // SAFETY: the entry of the head's slot.
        unsafe { self.entry.write(Entry { id, key: look.marks.key(word) }) };
        units
    }
}

/// Wraps an operation to make it signaled.
struct Signaled<'a, O>(&'a O);

impl<O: Operation> Operation for Signaled<'_, O> {
    const OPCODE: u8 = O::OPCODE;

    #[inline(always)]
    fn code(&self) -> Code {
        self.0.code()
    }
}

impl<T: Transport, O: PostOn<T>> PostOn<T> for Signaled<'_, O> {}

impl<O: Operation> Encode for Signaled<'_, O> {
    fn body_ds(&self) -> u32 {
        self.0.body_ds()
    }

    fn check(&self, limits: &Limits) -> Result<(), EncodeError> {
        self.0.check(limits)
    }

    fn flags(&self) -> u8 {
        self.0.flags() | CE_ALWAYS
    }

    fn immediate(&self) -> u32 {
        self.0.immediate()
    }

    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        // SAFETY: this operation has the size of the one inside, so the writer has space for it.
        unsafe { self.0.put(writer) }
    }
}

/// Completions can be polled while the template exists.
impl<Q: HasSendQueue<T>, O, V, T: Transport> Queues for Template<Q, O, V, T> {
    #[inline(always)]
    fn send_side(&mut self, qpn: u32) -> Option<SendSide<'_>> {
        self.queue.queue_mut().send_side(qpn)
    }

    #[inline(always)]
    fn receive_side(&mut self, _: u32) -> Option<ReceiveSide<'_>> {
        None
    }
}

impl<Q: HasSendQueue<T>, O: Operation, V, T: Transport> fmt::Debug for Template<Q, O, V, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("opcode", &O::OPCODE)
            .field("queue", self.queue.queue())
            .finish()
    }
}
