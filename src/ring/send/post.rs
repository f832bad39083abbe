//! The paths of a single post, of any request but a key change. The table of [`send`](super) says
//! which one a post takes.

use super::own::{InRing, Place};
use super::queue::SendQueue;
use super::wqes::{changes_keys, is_signaled};
use crate::doorbell::Lent;
use crate::ib::Transport;
use crate::ring::PostError;
use crate::watch::lint::Refusal;
use crate::wqe::PostOn;

impl<T: Transport> SendQueue<T> {
    /// Posts an operation given by reference; see [`post`](Self::post).
    #[inline(always)]
    pub(crate) fn post_ref<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        self.ring.doorbell.timing.begin();
        if changes_keys(operation.code().opcode) {
            return self.post_key_change_ref(lent, id, operation);
        }
        if self.post_clear(lent, id, operation, &mut Place::default())? {
            return Ok(());
        }
        self.post_rest(lent, id, operation)
    }

    /// Posts a request for an owner of its memory like [`post`](Self::post), if its WQE is short and
    /// the head is clear. Returns whether it did, and stores where.
    #[inline(always)]
    pub(crate) fn post_owned<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        self.ring.doorbell.timing.begin();
        self.post_clear(lent, id, operation, place)
    }

    /// Posts a request if its WQE fits one block (or a BlueFlame buffer, if its size is known) and
    /// the head is clear. Returns whether it did, and stores where.
    #[inline(always)]
    pub(super) fn post_clear<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        if O::LONG_DS != 0 {
            return self.post_long(lent, id, operation, place);
        }
        // `post_words` and `post_plain` ask this again. Asking first lets the compiler evaluate
        // once what is the same for every post.
        if O::USUAL_DS != 0 && !operation.is_usual(&self.ring.limits) {
            return Ok(false);
        }
        Ok(self.post_words(lent, id, operation, place)?
            || self.post_plain(lent, id, operation, place)?)
    }

    /// Posts a request if its WQE fits one block, goes by BlueFlame word by word, and the head is
    /// clear. Returns whether it did, and stores where.
    #[inline(always)]
    fn post_words<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        let ring = &mut self.ring;
        if !ring.state.may_take_single() {
            return Ok(false);
        }
        let at = ring.end();
        // SAFETY: these are the ring's own.
        let encoded = unsafe { ring.encode_block::<T, O>(InRing, at, id, operation) };
        let Some((_, image)) = encoded else { return Ok(false) };
        *place = image.place;
        // SAFETY: the image of the WQE that was just encoded at the head, before `clear_single`.
        unsafe { ring.commit_block(lent, at.at.plus(1), image)? };
        Ok(true)
    }

    /// Posts a usual request to a register that takes no WQEs word by word, if the head is clear.
    /// Returns whether it did, and stores where.
    #[inline(always)]
    fn post_plain<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        let ring = &mut self.ring;
        if O::USUAL_DS == 0 || !ring.state.may_take() {
            return Ok(false);
        }
        let at = ring.end();
        // SAFETY: these are the ring's own.
        let encoded = unsafe { ring.encode_block::<T, O>(InRing, at, id, operation) };
        let Some((last, image)) = encoded else { return Ok(false) };
        *place = image.place;
        // SAFETY: the WQE was just encoded at the head, and `last` is it.
        unsafe {
            if ring.doorbell.rings_plain() {
                ring.commit_plain(lent, at.at.plus(1), last)?;
            } else {
                ring.commit_other(lent, at.at.plus(1), last)?;
            }
        }
        Ok(true)
    }

    /// Posts any request, whatever its size and the state of the queue.
    #[cold]
    #[inline(never)]
    pub(super) fn post_rest<O: PostOn<T>>(
        &mut self,
        lent: Lent,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        let ring = &mut self.ring;
        let clear = ring.state.clear();
        if let Some((end, last)) = ring.encode_sized::<T, O>(ring.end(), clear, id, operation) {
            // SAFETY: `encode_sized` wrote the WQE before `end`; `last` is it.
            unsafe { ring.commit(lent, end, &last, true)? };
            ring.grant(clear);
            return Ok(());
        }
        ring.settle();
        // A signaled request may take the last block and slot, which a queue of one request always
        // has to. While it is outstanding, none has to be kept for one.
        let signaled = is_signaled(ring.flags(operation));
        if signaled {
            ring.grant_all();
        } else {
            ring.grant_most();
        }
        let posted = self.post_clear(lent, id, operation, &mut Place::default());
        if let Ok(true) = posted {
            // It does not pass what was granted, and that stays right.
            return Ok(());
        }
        self.ring.grant_most();
        posted?;
        let mut batch = self.batch();
        batch.append_ref(id, operation)?;
        batch.commit(lent)?;
        // If this request is signaled, no block has to be kept for one any more.
        self.ring.grant_most();
        Ok(())
    }
}
