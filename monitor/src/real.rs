//! libmlx5's own functions, and the tables by which those that stand for them find cells.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mlx5_sys::verbs::{ibv_cq, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_wc};

use crate::cell::Cell;
use crate::table::Table;

pub(crate) type PostSend =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub(crate) type PostRecv =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub(crate) type PollCq = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;

/// Contexts that are observed at a time. Each has a function of its own that polls.
pub(crate) const CONTEXTS: usize = 16;

/// The functions of the first context. Contexts with others are left alone. Each is set once, before the
/// function that stands for it is called.
pub(crate) static POST_SEND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// See [`POST_SEND`].
pub(crate) static POST_RECV: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// See [`POST_SEND`].
pub(crate) static POLL_CQ: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// The queue pairs of each context, by their numbers.
static NUMBERS: [AtomicPtr<Table<Cell>>; CONTEXTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CONTEXTS];

/// Returns libmlx5's function.
#[inline(always)]
pub(crate) fn post_send() -> PostSend {
    // SAFETY: the pointer is set to a function of this type, once, before this library's function is
    // called in its place.
    unsafe { std::mem::transmute::<*mut c_void, PostSend>(POST_SEND.as_ptr().read()) }
}

/// Returns libmlx5's function.
#[inline(always)]
pub(crate) fn post_recv() -> PostRecv {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, PostRecv>(POST_RECV.as_ptr().read()) }
}

/// Returns libmlx5's function.
#[inline(always)]
pub(crate) fn poll_cq() -> PollCq {
    // SAFETY: as above.
    unsafe { std::mem::transmute::<*mut c_void, PollCq>(POLL_CQ.as_ptr().read()) }
}

/// Returns the key and the place of a number.
#[inline(always)]
pub(crate) fn by_number(number: u32) -> (u64, usize) {
    let key = u64::from(number) + 1;
    (key, (key & 0xffff) as usize)
}

/// Makes the table of a context, if it has none. Returns false if there is no memory.
pub(crate) fn prepare(context: usize) -> bool {
    if NUMBERS[context].load(Ordering::Relaxed).is_null() {
        let Some(table) = Table::map() else { return false };
        NUMBERS[context].store(ptr::from_ref(table).cast_mut(), Ordering::Release);
    }
    true
}

/// Returns the queue pairs of a context that is prepared, by their numbers.
#[inline(always)]
pub(crate) fn numbers(context: usize) -> &'static Table<Cell> {
    // SAFETY: `prepare` has set the pointer, for ever, before functions of the context are replaced.
    unsafe { &*NUMBERS[context].load(Ordering::Relaxed) }
}

/// Returns the cell of a queue pair of a context that is prepared.
pub(crate) fn cell(context: usize, number: u32) -> Option<&'static Cell> {
    let (key, place) = by_number(number);
    // SAFETY: cells stay mapped.
    unsafe { numbers(context).find(key, place).as_ref() }
}
