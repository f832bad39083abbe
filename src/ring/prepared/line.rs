//! The bookkeeping of the WQEs in the ring, from the head on.

use super::FireError;
use crate::ib::{Counter, Rc, Shape};
use crate::ring::send_ring::SendRing;
use crate::ring::slots::Last;
use crate::ring::variable::Place;
use crate::watch::lint::Refusal;
use crate::watch::timing::Phase;
use crate::wqe::Nop;

/// A request that was written ahead.
#[derive(Clone, Copy, Default)]
pub(super) struct Slot {
    pub(super) id: u64,
    /// The data for its doorbell: of its WQE, or of the last of the NOPs that it became.
    pub(super) last: Last,
    pub(super) blocks: u32,
    /// The queue's slack, as it was counted, before and after it.
    pub(super) slack: u32,
    pub(super) after: u32,
    /// The kind of its form.
    pub(super) kind: u8,
    /// Whether it brings a CQE.
    pub(super) signaled: bool,
    /// Whether it may be in a line of WQEs that are ready.
    pub(super) fast: bool,
    /// Whether it is still prepared, not a NOP.
    pub(super) prepared: bool,
}

/// The bookkeeping of the prepared requests.
pub(super) struct Line {
    /// Indexed by the slot of a request's first block.
    slots: Box<[Slot]>,
    shape: Shape,
    /// The head after the last request, and the queue's slack.
    until: Counter,
    slack: u32,
    /// Number of requests that are not `fast`, or cancelled.
    odd: u32,
}

impl Line {
    pub(super) fn new(ring: &mut SendRing) -> Self {
        ring.open();
        ring.ready.clear();
        let shape = ring.cursor.shape();
        let slots = vec![Slot::default(); shape.entries() as usize].into();
        Self { slots, shape, until: ring.cursor.head(), slack: ring.slack, odd: 0 }
    }

    pub(super) fn until(&self) -> Counter {
        self.until
    }

    pub(super) fn slack(&self) -> u32 {
        self.slack
    }

    fn slot(&self, counter: Counter) -> &Slot {
        &self.slots[self.shape.slot(counter)]
    }

    /// Adds the request that was written at [`until`](Self::until), up to `end`.
    pub(super) fn push(&mut self, ring: &mut SendRing, end: Counter, slot: Slot) {
        self.odd += u32::from(!slot.fast);
        self.slots[self.shape.slot(self.until)] = slot;
        (self.until, self.slack) = (end, slot.after);
        if self.odd == 0 || ring.ready.is_empty() && ring.ready.plain() == 0 {
            self.draw(ring);
        }
    }

    /// Returns the number of blocks of a request.
    fn blocks(&self, counter: Counter) -> u32 {
        self.slot(counter).blocks
    }

    /// Returns the requests in the ring, from the head on.
    fn requests<'a>(&'a self, ring: &SendRing) -> impl Iterator<Item = Counter> + use<'a> {
        let mut next = ring.cursor.head();
        core::iter::from_fn(move || {
            let at = next;
            (at != self.until).then(|| {
                next = at.plus(self.blocks(at));
                at
            })
        })
    }

    /// Returns the next prepared request.
    fn next_prepared(&self, ring: &SendRing) -> Option<Counter> {
        self.requests(ring).find(|&at| self.slot(at).prepared)
    }

    pub(super) fn len(&self, ring: &SendRing) -> u32 {
        if self.odd == 0 {
            return self.until.since(ring.cursor.head());
        }
        self.requests(ring).filter(|&at| self.slot(at).prepared).count() as u32
    }

    /// Starts the line of ready WQEs, as far as the requests from the head on are ready.
    fn draw(&self, ring: &mut SendRing) {
        let head = ring.cursor.head();
        let end = if self.odd == 0 {
            self.until
        } else {
            let is_odd = |at: &Counter| !self.slot(*at).fast || !self.slot(*at).prepared;
            self.requests(ring).find(is_odd).unwrap_or(self.until)
        };
        ring.draw_line(end.since(head));
    }

    /// Starts a new line after the end of the old one, if a request may be fired. Returns whether a
    /// WQE is in it.
    #[cold]
    #[inline(never)]
    pub(super) fn aim(&self, ring: &mut SendRing) -> Result<bool, FireError> {
        if ring.stopped {
            return Err(FireError::WrongState);
        }
        if ring.ready.plain() != 0 {
            return Ok(false);
        }
        self.draw(ring);
        if self.until == ring.cursor.head() {
            // All written WQEs are posted: polls may take the fast path again.
            ring.close();
        }
        let ready = !ring.ready.is_empty();
        if !ready && ring.ready.plain() == 0 && self.next_prepared(ring).is_none() {
            return Err(FireError::NothingPrepared);
        }
        Ok(ready)
    }

    /// Returns the kind of the next request's form. There is a next request.
    #[inline(always)]
    pub(super) fn kind(&self, ring: &SendRing) -> u8 {
        let head = ring.cursor.head();
        if !ring.ready.is_empty() {
            // SAFETY: a slot is less than the number of entries, which is the length.
            return unsafe { self.slots.get_unchecked(self.shape.slot(head)) }.kind;
        }
        self.next_prepared(ring).map_or(0, |at| self.slot(at).kind)
    }

    /// Returns the first eight bytes of the ctrl segment of the request at the head.
    #[inline(always)]
    pub(super) fn ctrl(&self, ring: &SendRing) -> u64 {
        self.slot(ring.cursor.head()).last.doorbell
    }

    /// Posts the next prepared request, of any form, and the NOPs before it. `patch` fills in its
    /// fields.
    ///
    /// # Safety
    /// Until each request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn fire_any(
        &mut self,
        ring: &mut SendRing,
        patch: impl FnOnce(&Place),
    ) -> Result<(), Refusal> {
        // `aim` has found one, and since then only the holder of [`Next`](super::Next) could use
        // the queue.
        let Some(at) = self.next_prepared(ring) else { return Ok(()) };
        patch(&ring.place(at));
        ring.doorbell.timing.stamp(Phase::Encode);
        // SAFETY: the caller upholds this function's contract, which is the callee's.
        unsafe { self.post(ring, at) }
    }

    /// Posts the WQEs in the ring up to, and including, the request at `at`.
    ///
    /// # Safety
    /// Until each request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    unsafe fn post(&mut self, ring: &mut SendRing, at: Counter) -> Result<(), Refusal> {
        let head = ring.cursor.head();
        let end = at.plus(self.blocks(at));
        let passed = self.requests(ring).take_while(|&other| other.since(head) <= at.since(head));
        let odd =
            passed.filter(|&other| !self.slot(other).fast || !self.slot(other).prepared).count();
        let Slot { last, after, prepared, .. } = *self.slot(at);
        let single = at == head && prepared;
        // SAFETY: `prepare` and `cancel` wrote the WQEs before `end`, and `last` is the last. At
        // most one is not a NOP. The caller guarantees its memory by this function's contract.
        unsafe { ring.commit(end, after, &last, single)? };
        self.odd -= odd as u32;
        self.draw(ring);
        Ok(())
    }

    pub(super) fn cancel(&mut self, ring: &mut SendRing, position: u32) -> Option<u64> {
        let prepared = self.requests(ring).filter(|&at| self.slot(at).prepared);
        let at = { prepared }.nth(position as usize)?;
        let blocks = self.blocks(at);
        let mut slot = *self.slot(at);
        let mut slack = slot.slack;
        for block in 0..blocks {
            let last = block + 1 == blocks;
            let nop = Nop::new().signaled_if(slot.signaled && last);
            // It has as many blocks as before, and no more CQEs, so it fits, unless an error was
            // seen. Then no part of it is ever posted.
            let written = ring.encode_any::<Rc, Nop>(at.plus(block), slack, slot.id, &nop);
            let Ok((_, after, last, _)) = written else { break };
            (slack, slot.last) = (after, last);
        }
        self.odd += u32::from(slot.fast);
        slot.prepared = false;
        self.slots[self.shape.slot(at)] = slot;
        self.draw(ring);
        Some(slot.id)
    }

    pub(super) fn ring_cancelled(&mut self, ring: &mut SendRing) -> u32 {
        let nops = self.requests(ring).take_while(|&at| !self.slot(at).prepared);
        let (count, last) = nops.fold((0, None), |(count, _), at| (count + 1, Some(at)));
        if let Some(at) = last.filter(|_| !ring.stopped) {
            // SAFETY: NOPs name no memory.
            if let Err(refusal) = unsafe { self.post(ring, at) } {
                ring.guard.keep(refusal);
                return 0;
            }
            return count;
        }
        0
    }
}
