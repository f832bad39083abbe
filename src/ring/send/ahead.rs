//! Requests of any type that are written ahead, in a queue that stays where it is.

use core::mem::offset_of;
use core::ptr::NonNull;

use mlx5_sys::wqe::{EthSeg, INLINE_SEG, SEGMENT_SIZE, WQEBB_SIZE, opcode};

use super::ring::SendRing;
use super::state::Point;
use super::wqes::{Last, UNITS};
use crate::doorbell::Lent;
use crate::ib::{Counter, Transport, TransportKind};
use crate::ring::{PostError, SendQueue};
use crate::watch::timing::Phase;
use crate::wqe::{Change, HEADER_IN_SEGMENT, InlinePart, PostOn};

/// Words of eight bytes in a block.
const WORDS: usize = WQEBB_SIZE / 8;

/// Requests that are written to the ring of a send queue and not yet posted, each of any type.
///
/// [`Prepared`](crate::ring::Prepared) owns its queue, and its requests have one type, so the
/// compiler checks them. This type stands beside a queue that belongs to others, a
/// [`QueueTable`](crate::ring::QueueTable) for example. Its requests may have any type and length,
/// and name memory. [`new`](Self::new) and [`fire`](Self::fire) state what the caller then answers
/// for.
///
/// ```
/// # let rig::Link { mut reader, mut sends, memory, remote, .. } = rig::link()?;
/// use mlx5::expert::{Ahead, Change};
/// use mlx5::wqe::{Inline, RdmaWrite};
///
/// // SAFETY: only `ahead` uses the queue.
/// let mut ahead = unsafe { Ahead::new() };
/// let order = RdmaWrite::new(Inline(b"price: ?"), remote).signaled();
/// ahead.prepare(&mut sends, 1, order)?;
/// // SAFETY: the request names no memory.
/// unsafe { ahead.fire(&mut sends, [Change::new(7, b"9")])? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // `remote` is byte 64 of the peer's memory, which here is this side's.
/// let mut written = [0; 8];
/// memory.read(64, &mut written);
/// assert_eq!(&written, b"price: 9");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Requests are fired in the order of preparing, each once. Completions can be polled meanwhile.
/// When the last one is fired, the queue takes posts again; before, after
/// [`cancel`](Self::cancel). If the value is dropped or leaked, its requests are never posted.
#[derive(Debug)]
pub struct Ahead {
    /// The point behind the last request; of no meaning without one.
    until: Point,
    count: u32,
}

impl Ahead {
    /// Creates a value without requests.
    ///
    /// # Safety
    /// - Its methods are called with one queue, always the same.
    /// - While it has requests, nothing else posts to the queue, appends to a batch of it, prepares
    ///   in it, recovers or restarts it.
    pub const unsafe fn new() -> Self {
        let until = Point { at: Counter::new(0), silent: 0 };
        Self { until, count: 0 }
    }

    /// Writes a request behind those already prepared in the queue. `id` comes back with its
    /// completion. Checks everything that could fail: free blocks in the ring, free CQ slots,
    /// limits.
    ///
    /// # Errors
    /// The errors of [`Batch::append`](crate::ring::Batch::append). Nothing is prepared then.
    pub fn prepare<T: Transport, O: PostOn<T>>(
        &mut self,
        queue: &mut SendQueue<T>,
        id: u64,
        operation: O,
    ) -> Result<(), PostError> {
        let ring = &mut queue.ring;
        // Phases are recorded when the request is fired.
        ring.doorbell.timing.end();
        if self.count == 0 {
            ring.state.open();
            self.until = ring.end();
        }
        let written = ring.encode::<T, O>(self.until, id, &operation);
        match written {
            Ok((end, _)) => {
                self.until = end;
                self.count += 1;
            }
            // Nothing was written.
            Err(_) if self.count == 0 => ring.state.close(),
            Err(_) => {}
        }
        written.map(|_| ())
    }

    /// Posts the oldest prepared request, with other bytes in some parts of its inline payload. If
    /// parts overlap, the later one counts. It is rung as a single WQE of its size is
    /// (`docs/ordering.md`, "Prepared").
    ///
    /// # Errors
    /// Nothing is posted then, and the request stays prepared.
    /// - [`PostError::NothingPrepared`].
    /// - [`PostError::OutsidePayload`]: a change reaches past the inline payload, or the request has
    ///   none. Nothing is changed, either.
    /// - [`PostError::WrongState`]: the queue has seen an error completion.
    /// - [`PostError::DeviceFailed`].
    /// - `PostError::Refused`, with the feature `lint`: the WQE has a defect.
    ///
    /// # Safety
    /// The HCA works on the request from now on: until it is retired,
    /// [its memory](crate::ring#the-memory-of-requests) is the HCA's.
    #[inline]
    pub unsafe fn fire<'c, T: Transport, C: IntoIterator<Item = Change<'c>>>(
        &mut self,
        queue: &mut SendQueue<T>,
        changes: C,
    ) -> Result<(), PostError>
    where
        C::IntoIter: Clone,
    {
        let ring = &mut queue.ring;
        ring.doorbell.timing.begin();
        ring.state.check_running()?;
        let Some(left) = self.count.checked_sub(1) else {
            return Err(PostError::NothingPrepared);
        };
        let at = ring.end();
        // SAFETY: `prepare` wrote a WQE there, by the contract of `new`.
        let last = unsafe { first_words(ring, at.at) };
        let (code, ds) = last.code_and_ds();
        let changes = changes.into_iter();
        if changes.clone().next().is_some() {
            // SAFETY: the WQE lies at the head.
            unsafe { change::<T>(ring, at.at, code.opcode, ds, changes)? };
        }
        ring.doorbell.timing.stamp(Phase::Encode);
        // SAFETY: `prepare` wrote the WQE at the head, which begins with these bytes and has so many
        // units. Its memory is the HCA's, by this function's contract.
        unsafe { commit(ring, Lent::promised(), last, ds)? };
        // The head may have passed what was granted before.
        ring.state.grant_none();
        if left == 0 {
            ring.state.close();
        }
        self.count = left;
        Ok(())
    }

    /// Forgets all prepared requests: none is posted, and their ids do not come back. The queue
    /// takes posts again. Costs a store per block of the ring.
    pub fn cancel<T: Transport>(&mut self, queue: &mut SendQueue<T>) {
        if self.count != 0 {
            queue.ring.refill();
            self.count = 0;
        }
    }

    /// Brings what the next [`fire`](Self::fire) reads and writes into the processor's caches: its
    /// WQE, the doorbell record, and the queue's state. Posts and changes nothing. No register is
    /// read.
    pub fn warm<T: Transport>(&self, queue: &mut SendQueue<T>) {
        let ring = &mut queue.ring;
        let (wqes, head) = (ring.wqes(), ring.head());
        // SAFETY: the head is a block of the ring, whatever lies there.
        let (_, ds) = unsafe { first_words(ring, head) }.code_and_ds();
        for block in 0..ds.div_ceil(UNITS) {
            // SAFETY: a byte of a block of the ring, which lives as long as the queue.
            unsafe { wqes.block(head.plus(block)).read_volatile() };
        }
        ring.doorbell.record().read();
    }

    /// Returns the number of prepared requests.
    #[inline(always)]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether no request is prepared.
    #[inline(always)]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Returns the first eight bytes of the block at `at`.
///
/// # Safety
/// Nothing else writes the block.
#[inline(always)]
unsafe fn first_words(ring: &SendRing, at: Counter) -> Last {
    // SAFETY: a block of the ring, aligned to 64.
    Last { doorbell: unsafe { ring.wqes().block(at).cast().read() } }
}

/// Posts the WQE at the head, of `ds` units, which begins with `last`.
///
/// # Safety
/// It lies there.
#[inline(always)]
unsafe fn commit(ring: &mut SendRing, lent: Lent, last: Last, ds: u32) -> Result<(), PostError> {
    let at = ring.end();
    if (2..=UNITS).contains(&ds) && ring.doorbell.takes_words() {
        let block = ring.wqes().block(at.at).cast();
        // SAFETY: this function's contract. The register takes more than one unit word by word.
        unsafe { ring.commit_words(lent, at.at.plus(1), [None; WORDS], block)? };
        return Ok(());
    }
    // SAFETY: this function's contract.
    unsafe { ring.commit(lent, at.behind(ds.div_ceil(UNITS)), &last, true)? };
    Ok(())
}

/// Changes parts of the inline payload of the WQE at `at`.
///
/// # Safety
/// A WQE of this opcode and of `ds` units lies there, that only the caller reads and writes.
#[inline(always)]
unsafe fn change<'c, T: Transport>(
    ring: &SendRing,
    at: Counter,
    opcode: u8,
    ds: u32,
    changes: impl Iterator<Item = Change<'c>> + Clone,
) -> Result<(), PostError> {
    let (wqes, shape) = (ring.wqes(), ring.shape());
    if shape.slot(at) + ds.div_ceil(UNITS) as usize <= shape.entries() as usize {
        let wqe = wqes.block(at);
        // SAFETY: this function's contract, for a WQE whose units follow each other.
        return unsafe { fill::<T>(opcode, ds, changes, |unit| wqe.add(unit * SEGMENT_SIZE)) };
    }
    // SAFETY: this function's contract.
    unsafe { fill::<T>(opcode, ds, changes, |unit| wqes.unit(at, unit)) }
}

/// Changes parts of the inline payload of a WQE. `unit` returns the address of one of its units.
///
/// # Safety
/// The WQE is one of this opcode and of `ds` units, that only the caller reads and writes.
#[inline(always)]
unsafe fn fill<'c, T: Transport>(
    opcode: u8,
    ds: u32,
    changes: impl Iterator<Item = Change<'c>> + Clone,
    unit: impl Fn(usize) -> NonNull<u8>,
) -> Result<(), PostError> {
    // SAFETY: this function's contract.
    let part = unsafe { payload::<T>(opcode, ds as usize, &unit) };
    for change in changes.clone() {
        part.check(&change)?;
    }
    for change in changes {
        // An iterator may return others than its clone.
        part.check(&change)?;
        // SAFETY: the change lies in the payload, which lies in the WQE. Two words are a unit.
        unsafe { part.store(&change, |word| unit(word / 2).cast::<u64>().add(word % 2)) }
    }
    Ok(())
}

/// Returns where the inline payload of a WQE lies. `unit` returns the address of one of its units.
///
/// # Safety
/// The WQE is one of this opcode and of `ds` units, and can be read.
#[inline(always)]
unsafe fn payload<T: Transport>(
    opcode: u8,
    ds: usize,
    unit: impl Fn(usize) -> NonNull<u8>,
) -> InlinePart {
    let before = units_before::<T>(opcode).filter(|before| *before < ds);
    let Some(before) = before else { return InlinePart::NONE };
    // SAFETY: the units lie in the WQE.
    unsafe {
        if T::TRANSPORT_KIND == TransportKind::RawPacket {
            const SIZE: usize = offset_of!(EthSeg, inline_hdr_sz);
            let size = u16::from_be(unit(before - 1).add(SIZE).cast::<u16>().read());
            // A longer header lies in the units behind the segment. The highest bit is no part of
            // the size.
            if usize::from(size & 0x7fff) > HEADER_IN_SEGMENT {
                return InlinePart::NONE;
            }
        }
        let header = u32::from_be(unit(before).cast::<u32>().read());
        match header & INLINE_SEG {
            0 => InlinePart::NONE,
            _ => InlinePart::new(before, (header & !INLINE_SEG) as usize, ds),
        }
    }
}

/// Returns the number of 16-byte units before the payload of a request that may have inline bytes.
const fn units_before<T: Transport>(opcode: u8) -> Option<usize> {
    let longest = T::UNITS_BEFORE_PAYLOAD as usize;
    match opcode {
        opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM => Some(longest),
        // A datagram's longest request is a SEND. All others have one with a remote address, or with
        // a header of its own.
        opcode::SEND | opcode::SEND_IMM | opcode::SEND_INVAL => match T::TRANSPORT_KIND {
            TransportKind::Ud => Some(longest),
            _ => Some(longest - 1),
        },
        _ => None,
    }
}
