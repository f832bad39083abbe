//! Posts that change a memory window's key, which the window is told of.

use super::{MemoryWindow, Type2, WindowType};
use crate::ib::Transport;
use crate::ring::{PostError, SendQueue};
use crate::wqe::{BindWindow, LocalInvalidate, PostOn};

impl<T: Transport> SendQueue<T> {
    /// Posts the binding of a window, as [`post`](Self::post), and tells the window its new key,
    /// which is returned: what `ibv_bind_mw` does. The key is good for requests that follow this
    /// one here, and for peers when the binding is complete.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then, and the window has the key that it had.
    ///
    /// # Panics
    /// If the request is one of another window.
    ///
    /// # Safety
    /// As long as the window is bound, no reference to the memory behind it exists that the access
    /// which the binding grants to peers would contradict.
    pub unsafe fn bind<K: WindowType>(
        &mut self,
        id: u64,
        window: &mut MemoryWindow<K>,
        request: BindWindow,
    ) -> Result<u32, PostError>
    where
        BindWindow: PostOn<T>,
    {
        assert_eq!(request.rkey() >> 8, window.rkey() >> 8, "a request of another window");
        // SAFETY: the HCA reads and writes no memory for a binding; what peers may do afterwards is
        // the contract of this function.
        unsafe { self.post(id, request)? };
        window.set_rkey(request.rkey());
        Ok(request.rkey())
    }

    /// Posts the invalidation of a window, as [`post`](Self::post) with
    /// [`signaled`](LocalInvalidate::signaled), and tells the window its new key, by which it can
    /// be bound anew. Requests of peers that use the key fail from then on.
    ///
    /// # Errors
    /// [`PostError`]; nothing is posted then, and the window has the key that it had.
    pub fn unbind(&mut self, id: u64, window: &mut MemoryWindow<Type2>) -> Result<(), PostError>
    where
        LocalInvalidate: PostOn<T>,
    {
        // SAFETY: the request names no memory.
        unsafe { self.post(id, window.invalidate().signaled())? };
        window.set_rkey(window.rkey() & !0xff);
        Ok(())
    }
}
