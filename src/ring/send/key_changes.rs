//! The fast path of key changes that follow each other directly. WQEs have several blocks, of a
//! size that the compiler may know, and are copied to the register as they were stored to the ring,
//! 16 bytes at once.
//!
//! A request after a key change is never posted without further checks, so for these the head is
//! never clear. A separate limit tells how far blocks and CQ slots suffice, see
//! [`SendState`](super::state::SendState).

use core::mem::MaybeUninit;

use mlx5_sys::doorbell::BF_BUFFER_SIZE;
use mlx5_sys::wqe::{FENCE_INITIATOR_SMALL, FENCE_MASK, FENCE_NONE, SEGMENT_SIZE, WQEBB_SIZE};

use super::ring::SendRing;
use super::shadow::{Entry, Key};
use super::wqes::{UNITS, ctrl_segment};
use crate::doorbell::Lent;
use crate::ib::Transport;
use crate::ring::{PostError, SendQueue};
use crate::watch::lint::Refusal;
use crate::watch::timing::Phase;
use crate::wqe::{Kept, PostOn, Segments, Units};

/// Most 16-byte units of such a WQE: the size of a BlueFlame buffer.
const LONGEST: u32 = (BF_BUFFER_SIZE / SEGMENT_SIZE) as u32;

impl<T: Transport> SendQueue<T> {
    /// Posts a request that changes keys. The next request takes the path that checks its
    /// predecessor.
    // By value, so that the compiler can optimize it alone, before it inlines it.
    #[inline]
    pub(super) fn post_key_change<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: O,
    ) -> Result<(), PostError> {
        if self.ring.post_in_run::<T, O>(lent, id, &operation)? {
            return Ok(());
        }
        // Moved, so that only this path needs the operation in memory.
        let rest = operation;
        self.ring.begin_run::<T, O>(lent, id, &rest)
    }

    /// Posts a request that changes keys, see [`post_key_change`](Self::post_key_change).
    #[inline(always)]
    pub(super) fn post_key_change_ref<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        if self.ring.post_in_run::<T, O>(lent, id, operation)? {
            return Ok(());
        }
        self.ring.begin_run::<T, O>(lent, id, operation)
    }
}

impl SendRing {
    /// Posts a key change directly after another, if its blocks are contiguous and it goes by
    /// BlueFlame word by word. Otherwise does nothing.
    #[inline(always)]
    fn post_in_run<T: Transport, O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
    ) -> Result<bool, Refusal> {
        if !self.state.is_in_run() || operation.check(&self.limits).is_err() {
            return Ok(false);
        }
        let head = self.head();
        let ds = 1 + operation.body_ds();
        let blocks = ds / UNITS;
        let slot = self.shape().slot(head);
        if ds % UNITS != 0 || blocks < 2 || blocks > self.state.run_room() || ds > LONGEST {
            return Ok(false);
        }
        let mut flags = self.flags(operation);
        if flags & FENCE_MASK == FENCE_NONE {
            flags |= FENCE_INITIATOR_SMALL;
        }
        self.doorbell.timing.stamp(Phase::Reserve);
        let code = operation.code();
        let first = self.names.ctrl(head, code, ds);
        let ctrl = ctrl_segment(first, code, flags, operation.immediate());
        let end = self.state.take_in_run(blocks);
        let mut units: Units = [MaybeUninit::uninit(); LONGEST as usize];
        // SAFETY: two to four free, contiguous blocks. The HCA does not read them before the
        // producer index covers them, and nothing else writes them (`from_parts`), nor their shadow
        // entries. `check` passed.
        unsafe {
            let place = self.state.entries().add(slot);
            let wqe = self.buffer.add(slot * WQEBB_SIZE);
            let mut writer = Kept::new(wqe.as_ptr(), &mut units);
            writer.put(ctrl);
            operation.put(&mut writer);
            place.write(Entry { id, key: Key::other(code.opcode, ds, end.silent) });
            const { assert!(LONGEST == 4 * UNITS) };
            Entry::write_inside(place.add(1), code.opcode, end.silent);
            if blocks > 2 {
                Entry::write_inside(place.add(2), code.opcode, end.silent);
            }
            if blocks > 3 {
                Entry::write_inside(place.add(3), code.opcode, end.silent);
            }
        }
        self.doorbell.timing.stamp(Phase::Encode);
        if let Err(refusal) = self.inspect(end.at) {
            self.state.leave_run(blocks);
            return Err(refusal);
        }
        self.state.posted_in_run(end.at);
        // SAFETY: the units of the WQE were just kept, and the register takes it.
        unsafe { self.doorbell.ring_kept(lent, end.at.low16(), &units, blocks) }
        self.state.continue_run(end.at);
        self.rang(end.at);
        Ok(true)
    }

    /// Posts any key change.
    #[cold]
    #[inline(never)]
    fn begin_run<T: Transport, O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        self.state.abandon();
        let (end, last) = self.encode::<T, O>(self.end(), id, operation)?;
        // SAFETY: `encode` wrote the WQE before `end`, and `last` is it.
        unsafe { self.commit(lent, end, &last, true)? };
        self.state.grant_none();
        self.state.end_run();
        if self.doorbell.takes_long(LONGEST) {
            self.state.begin_run();
        }
        Ok(())
    }
}
