//! The contexts of the process, and libmlx5's functions that they are called by.

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use mlx5_sys::verbs::ibv_context;

use crate::real::{self, CONTEXTS, POLL_CQ, POST_RECV, POST_SEND};
use crate::{poll, post};

static KNOWN: [AtomicPtr<ibv_context>; CONTEXTS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; CONTEXTS];
/// Queue pairs of each context.
static QUEUES: [AtomicU32; CONTEXTS] = [const { AtomicU32::new(0) }; CONTEXTS];

/// Why a context is not observed.
pub(crate) struct Foreign;

/// Puts this library's functions in place of libmlx5's. Returns the number of the context. The caller
/// holds the lock.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn replace(context: *mut ibv_context) -> Result<usize, Foreign> {
    // SAFETY: the context is open. Other threads may read its functions meanwhile: each is one aligned
    // word.
    unsafe {
        let send = &raw mut (*context).ops.post_send;
        let recv = &raw mut (*context).ops.post_recv;
        let poll = &raw mut (*context).ops.poll_cq;
        let is_replaced =
            (*send).is_some_and(|found| found as usize == post::post_send as *const () as usize);
        let functions = [
            (&POST_SEND, send.cast::<AtomicPtr<c_void>>(), post::post_send as *mut c_void),
            (&POST_RECV, recv.cast(), post::post_recv as *mut c_void),
        ];
        let polls = &*poll.cast::<AtomicPtr<c_void>>();
        if !is_replaced {
            let found = functions.map(|(real, place, _)| (real, (*place).load(Ordering::Relaxed)));
            let poll = (&POLL_CQ, polls.load(Ordering::Relaxed));
            let all = || found.iter().chain(std::iter::once(&poll));
            let accepted = all().all(|(real, found)| {
                let known = real.load(Ordering::Relaxed);
                if known.is_null() { is_libmlx5(*found) } else { known == *found }
            });
            if !accepted {
                return Err(Foreign);
            }
            for (real, found) in all().filter(|(real, _)| real.load(Ordering::Relaxed).is_null()) {
                real.store(*found, Ordering::Release);
            }
        }
        let index = enter(context).ok_or(Foreign)?;
        polls.store(poll::FUNCTIONS[index] as *mut c_void, Ordering::Release);
        if !is_replaced {
            for (_, place, own) in functions {
                (*place).store(own, Ordering::Release);
            }
        }
        Ok(index)
    }
}

/// Gives a context a number, if it has none: one that is free, or that of a context without queue pairs.
fn enter(context: *mut ibv_context) -> Option<usize> {
    let known = |wanted: *mut ibv_context| {
        KNOWN.iter().position(|known| known.load(Ordering::Relaxed) == wanted)
    };
    let unused = || QUEUES.iter().position(|queues| queues.load(Ordering::Relaxed) == 0);
    let index = known(context).or_else(|| known(ptr::null_mut())).or_else(unused)?;
    if !real::prepare(index) {
        return None;
    }
    KNOWN[index].store(context, Ordering::Release);
    Some(index)
}

/// Counts queue pairs of a context.
pub(crate) fn count(context: usize, more: i32) {
    if let Some(queues) = QUEUES.get(context) {
        queues.fetch_add(more as u32, Ordering::Relaxed);
    }
}

/// Whether a function is in libmlx5. Its objects have the layout that this library knows, and its codes
/// the meanings that the command knows.
fn is_libmlx5(function: *mut c_void) -> bool {
    // SAFETY: a zeroed structure is a valid one, which the call fills; texts are those of the loader.
    unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(function, &mut found) == 0 || found.dli_fname.is_null() {
            return false;
        }
        let path = CStr::from_ptr(found.dli_fname).to_bytes();
        let file = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        file.starts_with(b"libmlx5")
    }
}

/// Returns the link layer of a port, an `IBV_LINK_LAYER_…`; 0 if it cannot be read.
///
/// # Safety
/// The context is open.
pub(crate) unsafe fn link_layer(context: *mut ibv_context, port: u8) -> u32 {
    let mut text = [0_u8; 16];
    // SAFETY: the context is open, and its device's path ends with a zero. The buffer has the length.
    unsafe {
        let folder = CStr::from_ptr((&raw const (*(*context).device).ibdev_path).cast());
        let mut path = folder.to_bytes().to_vec();
        path.extend_from_slice(format!("/ports/{port}/link_layer\0").as_bytes());
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return 0;
        }
        libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
    }
    match text {
        _ if text.starts_with(b"Ethernet") => 2,
        _ if text.starts_with(b"InfiniBand") => 1,
        _ => 0,
    }
}
