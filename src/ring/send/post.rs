//! The paths of a single post, of any request but a key change. The table of [`send`](super) says
//! which one a post takes.

use super::own::{InRing, Place};
use super::queue::SendQueue;
use super::wqes::changes_keys;
use crate::ib::Transport;
use crate::ring::PostError;
use crate::watch::lint::Refusal;
use crate::wqe::PostOn;

impl<T: Transport> SendQueue<T> {
    /// Posts an operation given by reference; see [`post`](Self::post).
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(crate) unsafe fn post_ref<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        self.ring.doorbell.timing.begin();
        if changes_keys(operation.code().opcode) {
            // SAFETY: passed on.
            return unsafe { self.post_key_change_ref(id, operation) };
        }
        // SAFETY: passed on.
        unsafe {
            if self.post_clear(id, operation, &mut Place::default())? {
                return Ok(());
            }
            self.post_rest(id, operation)
        }
    }

    /// Posts a request for an owner of its memory like [`post`](Self::post), if its WQE is short and
    /// the head is clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(crate) unsafe fn post_owned<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        self.ring.doorbell.timing.begin();
        // SAFETY: passed on.
        unsafe { self.post_clear(id, operation, place) }
    }

    /// Posts a request if its WQE fits one block (or a BlueFlame buffer, if its size is known) and
    /// the head is clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    pub(super) unsafe fn post_clear<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
        place: &mut Place,
    ) -> Result<bool, Refusal> {
        if O::LONG_DS != 0 {
            // SAFETY: passed on.
            return unsafe { self.post_long(id, operation, place) };
        }
        // `post_words` and `post_plain` ask this again. Asking first lets the compiler evaluate
        // once what is the same for every post.
        if O::USUAL_DS != 0 && !operation.is_usual(&self.ring.limits) {
            return Ok(false);
        }
        // SAFETY: passed on.
        unsafe {
            Ok(self.post_words(id, operation, place)? || self.post_plain(id, operation, place)?)
        }
    }

    /// Posts a request if its WQE fits one block, goes by BlueFlame word by word, and the head is
    /// clear. Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_words<O: PostOn<T>>(
        &mut self,
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
        // SAFETY: passed on.
        unsafe { ring.commit_block(at.at.plus(1), image)? };
        Ok(true)
    }

    /// Posts a usual request to a register that takes no WQEs word by word, if the head is clear.
    /// Returns whether it did, and stores where.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[inline(always)]
    unsafe fn post_plain<O: PostOn<T>>(
        &mut self,
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
        // SAFETY: passed on.
        unsafe {
            if ring.doorbell.rings_plain() {
                ring.commit_plain(at.at.plus(1), last)?;
            } else {
                ring.commit_other(at.at.plus(1), last)?;
            }
        }
        Ok(true)
    }

    /// Posts any request, whatever its size and the state of the queue.
    ///
    /// # Safety
    /// Until the request is retired, the memory that it names stays registered and nothing else
    /// uses it.
    #[cold]
    #[inline(never)]
    pub(super) unsafe fn post_rest<O: PostOn<T>>(
        &mut self,
        id: u64,
        operation: &O,
    ) -> Result<(), PostError> {
        let ring = &mut self.ring;
        let clear = ring.state.clear();
        if let Some((end, last)) = ring.encode_sized::<T, O>(ring.end(), clear, id, operation) {
            // SAFETY: `encode_sized` wrote the WQE before `end`; `last` is it. The contract of this
            // function covers its memory.
            unsafe { ring.commit(end, &last, true)? };
            ring.grant(clear);
            return Ok(());
        }
        ring.refill();
        // SAFETY: passed on.
        if unsafe { O::LONG_DS != 0 || !self.post_words(id, operation, &mut Place::default())? } {
            let mut batch = self.batch();
            batch.append_ref(id, operation)?;
            // SAFETY: passed on.
            unsafe { batch.try_ring()? }
        }
        // If this request is signaled, no block has to be kept for one any more.
        self.ring.grant_most();
        Ok(())
    }
}
