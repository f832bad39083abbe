//! `ibv_post_send` and `ibv_post_recv`.
//!
//! A request is noted before libmlx5 posts it: its completion may be polled before the call returns.
//! Several threads may post to one queue. Each takes a position of its own, so their notes may have
//! another order than their WQEs. The completion then finds its request by `wr_id`.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use mlx5_sys::verbs::{ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wr_opcode};

use crate::cell::{Cell, FLAGS, KEY, KIND, SIGNALED, Slot};
use crate::state::Local;
use crate::{clock, real, state};

/// Returns the mark of a request with these flags.
#[inline(always)]
pub(crate) fn mark(wr_id: u64, flags: u32) -> u64 {
    wr_id ^ u64::from(flags & SIGNALED == 0).wrapping_neg()
}

/// Copies two words.
///
/// # Safety
/// Two words can be read at `FROM` bytes behind `from`, and written at `TO` bytes behind `to`, which are
/// atomics.
#[inline(always)]
unsafe fn copy<const FROM: usize, const TO: usize>(from: *const u8, to: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller vouches for both. The instructions are two relaxed stores at once.
    unsafe {
        core::arch::asm!(
            "movups {pair}, xmmword ptr [{from} + {FROM}]",
            "movups xmmword ptr [{to} + {TO}], {pair}",
            from = in(reg) from,
            to = in(reg) to,
            pair = out(xmm_reg) _,
            FROM = const FROM,
            TO = const TO,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for word in 0..2 {
        // SAFETY: the caller vouches for both.
        unsafe {
            let value = from.add(FROM).cast::<u64>().add(word).read_unaligned();
            (*to.add(TO).cast::<AtomicU64>().add(word)).store(value, Ordering::Relaxed);
        }
    }
}

/// The first of the four words of a request that are kept.
const WORDS: usize = offset_of!(ibv_send_wr, num_sge);
const REQUEST: usize = offset_of!(Slot, request);
const PIECE: usize = offset_of!(Slot, piece);

/// Notes the first piece of memory of a request.
///
/// # Safety
/// The list has this many entries.
#[inline(always)]
unsafe fn note_piece(slot: &Slot, list: *const ibv_sge, pieces: c_int) {
    if pieces > 0 {
        // SAFETY: the list has an entry, of 16 bytes.
        unsafe { copy::<0, PIECE>(list.cast(), ptr::from_ref(slot).cast_mut().cast()) };
    }
}

/// Posts to a send queue.
///
/// # Safety
/// The conditions of `ibv_post_send`.
pub(crate) unsafe extern "C" fn post_send(
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    let (key, place) = state::by_address(qp);
    let queues = state::queues();
    if !queues.has(key, place) || requests.is_null() {
        // SAFETY: the caller's own arguments.
        return unsafe { post_send_behind(qp, requests, bad) };
    }
    // SAFETY: it is there, and values of the table are never freed; the arguments are the caller's own.
    unsafe { note_and_post(queues.at(place), qp, requests, bad) }
}

/// Posts to a send queue that lies elsewhere in the table, or is not there.
///
/// # Safety
/// The conditions of `ibv_post_send`.
#[inline(never)]
unsafe extern "C" fn post_send_behind(
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        match state::local(qp).filter(|_| !requests.is_null()) {
            Some(local) => note_and_post(local, qp, requests, bad),
            None => real::post_send()(qp, requests, bad),
        }
    }
}

/// Notes requests, and posts them.
///
/// # Safety
/// The conditions of `ibv_post_send`. There is a request.
#[inline(always)]
unsafe fn note_and_post(
    local: &'static Local,
    qp: *mut ibv_qp,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair in the table has a cell, which stays mapped.
    let cell = unsafe { &*local.cell.load(Ordering::Relaxed) };
    let mut request = requests.cast_const();
    loop {
        let slot = cell.sends.slot(cell.sends.posted.fetch_add(1, Ordering::Relaxed));
        slot.posted.store(clock::ticks(), Ordering::Relaxed);
        // SAFETY: the caller vouches for the list of requests.
        unsafe {
            let from = &*request;
            let (source, to) = (request.cast::<u8>(), ptr::from_ref(slot).cast_mut().cast());
            copy::<WORDS, REQUEST>(source, to);
            copy::<{ WORDS + 16 }, { REQUEST + 16 }>(source, to);
            slot.mark.store(from.wr_id, Ordering::Relaxed);
            if from.send_flags & SIGNALED == 0 {
                note_unsignaled(cell, slot, from);
            }
            note_piece(slot, from.sg_list, from.num_sge);
            // Keys of atomics lie elsewhere. No later operation of this enumeration has one.
            if from.opcode >= ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP {
                slot.request[KEY].store(from.wr.atomic.rkey.into(), Ordering::Relaxed);
            }
            request = from.next;
        }
        if request.is_null() {
            break;
        }
    }
    // SAFETY: the caller's own arguments.
    let result = unsafe { real::post_send()(qp, requests, bad) };
    if result != 0 {
        // SAFETY: the caller's own arguments, after a call that has failed.
        return unsafe { refused(cell, requests, bad, result) };
    }
    result
}

/// Notes that a request has no completion of its own, unless all of its queue have.
#[inline(always)]
fn note_unsignaled(cell: &Cell, slot: &Slot, from: &ibv_send_wr) {
    if cell.always.load(Ordering::Relaxed) == 0 {
        slot.mark.store(!from.wr_id, Ordering::Relaxed);
    } else {
        let flags = from.send_flags | SIGNALED;
        slot.request[FLAGS].store(flags.into(), Ordering::Relaxed);
    }
}

/// Takes the notes of refused requests back, unless another thread has posted meanwhile. Their
/// positions then count as outstanding until a later request is completed.
///
/// # Safety
/// The conditions of `ibv_post_send`.
#[cold]
#[inline(never)]
unsafe extern "C" fn refused(
    cell: &Cell,
    requests: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    result: c_int,
) -> c_int {
    // SAFETY: the caller vouches for the list.
    let count = unsafe { count_refused(requests, bad, |request| (*request).next) };
    cell.sends.posted.fetch_sub(count, Ordering::Relaxed);
    // So that the caller does not keep it in a register of its own.
    std::hint::black_box(result)
}

/// Returns how many requests of a list were refused.
///
/// # Safety
/// The list can be read, and so can `bad`, after a call that has failed.
unsafe fn count_refused<T>(
    requests: *mut T,
    bad: *mut *mut T,
    next: unsafe fn(*mut T) -> *mut T,
) -> u64 {
    // SAFETY: the caller vouches for the list.
    unsafe {
        let first = if bad.is_null() { requests } else { *bad };
        let all = || {
            std::iter::successors(Some(requests), |request| {
                Some(next(*request)).filter(|next| !next.is_null())
            })
        };
        let posted = all().take_while(|request| *request != first).count();
        let count = all().count();
        // A list without the refused request tells nothing.
        if posted == count { count as u64 } else { (count - posted) as u64 }
    }
}

/// Posts to a receive queue.
///
/// # Safety
/// The conditions of `ibv_post_recv`.
pub(crate) unsafe extern "C" fn post_recv(
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    let (key, place) = state::by_address(qp);
    let queues = state::queues();
    if !queues.has(key, place) || requests.is_null() {
        // SAFETY: the caller's own arguments.
        return unsafe { post_recv_behind(qp, requests, bad) };
    }
    // SAFETY: it is there, and values of the table are never freed; the arguments are the caller's own.
    unsafe { note_and_post_recv(queues.at(place), qp, requests, bad) }
}

/// Posts to a receive queue that lies elsewhere in the table, or is not there.
///
/// # Safety
/// The conditions of `ibv_post_recv`.
#[inline(never)]
unsafe extern "C" fn post_recv_behind(
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller's own arguments.
    unsafe {
        match state::local(qp).filter(|_| !requests.is_null()) {
            Some(local) => note_and_post_recv(local, qp, requests, bad),
            None => real::post_recv()(qp, requests, bad),
        }
    }
}

/// Notes receives, and posts them.
///
/// # Safety
/// The conditions of `ibv_post_recv`. There is a request.
#[inline(always)]
unsafe fn note_and_post_recv(
    local: &'static Local,
    qp: *mut ibv_qp,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: a queue pair in the table has a cell, which stays mapped.
    let cell = unsafe { &*local.cell.load(Ordering::Relaxed) };
    let mut request = requests.cast_const();
    loop {
        let slot = cell.receives.slot(cell.receives.posted.fetch_add(1, Ordering::Relaxed));
        slot.posted.store(clock::ticks(), Ordering::Relaxed);
        // SAFETY: the caller vouches for the list of requests.
        unsafe {
            let from = &*request;
            slot.mark.store(from.wr_id, Ordering::Relaxed);
            slot.request[KIND].store(from.num_sge as u64, Ordering::Relaxed);
            slot.request[FLAGS].store(SIGNALED.into(), Ordering::Relaxed);
            note_piece(slot, from.sg_list, from.num_sge);
            request = from.next;
        }
        if request.is_null() {
            break;
        }
    }
    // SAFETY: the caller's own arguments.
    let result = unsafe { real::post_recv()(qp, requests, bad) };
    if result != 0 {
        // SAFETY: the caller's own arguments, after a call that has failed.
        return unsafe { refused_receives(cell, requests, bad, result) };
    }
    result
}

/// Takes the notes of refused receives back.
///
/// # Safety
/// The conditions of `ibv_post_recv`.
#[cold]
#[inline(never)]
unsafe extern "C" fn refused_receives(
    cell: &Cell,
    requests: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    result: c_int,
) -> c_int {
    // SAFETY: the caller vouches for the list.
    let count = unsafe { count_refused(requests, bad, |request| (*request).next) };
    cell.receives.posted.fetch_sub(count, Ordering::Relaxed);
    // So that the caller does not keep it in a register of its own.
    std::hint::black_box(result)
}
