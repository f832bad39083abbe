//! Posts that change a memory window's key, which the window is told of.

use super::{MemoryWindow, Type2, WindowType};
use crate::ib::Transport;
use crate::ring::{PostError, SendQueue};
use crate::wqe::{BindWindow, LocalInvalidate, PostOn};

impl<T: Transport> SendQueue<T> {
    /// Posts the binding of a window by [`post`](Self::post), stores the new key in the window and
    /// returns it, like `ibv_bind_mw`. Later requests of this queue may use the key at once, peers
    /// when the binding is complete.
    ///
    /// # Errors
    /// [`PostError`]: nothing is posted, and the window keeps its key.
    ///
    /// # Panics
    /// If the request is one of another window.
    ///
    /// # Safety
    /// As long as the window is bound, no reference to its memory exists that conflicts with the
    /// access that the binding grants to peers.
    #[doc(alias("ibv_bind_mw", "ibv_wr_bind_mw"))]
    #[inline]
    pub unsafe fn bind<K: WindowType>(
        &mut self,
        id: u64,
        window: &mut MemoryWindow<K>,
        request: BindWindow,
    ) -> Result<u32, PostError>
    where
        BindWindow: PostOn<T>,
    {
        assert!(request.rkey() >> 8 == window.rkey() >> 8, "a request of another window");
        // SAFETY: the HCA reads and writes no memory for a binding; what peers may do afterwards is
        // the contract of this function.
        unsafe { self.post(id, request)? };
        window.store_rkey(request.rkey());
        Ok(request.rkey())
    }

    /// Posts the [signaled](LocalInvalidate::signaled) invalidation of a window by
    /// [`post`](Self::post), and stores in the window the key with which it can be bound again.
    /// Requests of peers that use the old key fail from then on.
    ///
    /// # Errors
    /// [`PostError`]: nothing is posted, and the window keeps its key.
    #[doc(alias = "ibv_wr_local_inv")]
    pub fn unbind(&mut self, id: u64, window: &mut MemoryWindow<Type2>) -> Result<(), PostError>
    where
        LocalInvalidate: PostOn<T>,
    {
        // SAFETY: the request names no memory.
        unsafe { self.post(id, window.invalidate().signaled())? };
        window.store_rkey(window.rkey() & !0xff);
        Ok(())
    }
}
