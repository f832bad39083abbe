//! `ibv_start_poll` and `ibv_next_poll`: completions of extended CQs, one at a time.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mlx5_sys::verbs::{ibv_cq_ex, ibv_poll_cq_attr};

use crate::cell::Cell;
use crate::settle::{self, Seen};
use crate::state::{self, Control, LocalCq};
use crate::{clock, real};

type StartPoll = unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
type NextPoll = unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int;

/// Defines a function that stands for libmlx5's, which makes the next completion the current one.
macro_rules! polls {
    ($name:ident, $behind:ident, $type:ty $(, $attr:ident: $of:ty)?) => {
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex $(, $attr: $of)?) -> c_int {
            let (key, place) = state::by_address(cq.cast_const());
            let cqs = state::cqs();
            if !cqs.has(key, place) {
                // SAFETY: the caller's own arguments.
                return unsafe { $behind(cq $(, $attr)?) };
            }
            // SAFETY: it is there, and values of the table are never freed.
            let local = unsafe { cqs.at(place) };
            let found = local.$name.load(Ordering::Relaxed);
            // SAFETY: `replace` has set it to the CQ's function of this type; the arguments are the
            // caller's.
            let result = unsafe { std::mem::transmute::<*mut c_void, $type>(found)(cq $(, $attr)?) };
            if result != 0 {
                return result;
            }
            // SAFETY: the CQ has a current completion.
            unsafe { settle_current(local, cq) }
        }

        /// The same for CQs that lie elsewhere in the table, or were made before a fork.
        #[inline(never)]
        unsafe extern "C" fn $behind(cq: *mut ibv_cq_ex $(, $attr: $of)?) -> c_int {
            let (key, place) = state::by_address(cq.cast_const());
            // SAFETY: values of the table are never freed.
            let observed = unsafe { state::cqs().find(key, place).as_ref() };
            let Some(local) = observed.or_else(|| state::inherited_cq(cq)) else { return libc::ENOENT };
            let found = local.$name.load(Ordering::Relaxed);
            // SAFETY: `replace` has set it to the CQ's function of this type; the arguments are the
            // caller's.
            let result = unsafe { std::mem::transmute::<*mut c_void, $type>(found)(cq $(, $attr)?) };
            match observed {
                // SAFETY: the CQ has a current completion.
                Some(local) if result == 0 => unsafe { settle_current(local, cq) },
                _ => result,
            }
        }
    };
}

polls!(start_poll, start_poll_behind, StartPoll, attr: *mut ibv_poll_cq_attr);
polls!(next_poll, next_poll_behind, NextPoll);

/// Settles the current completion. Returns 0, as the poll does. The usual one is that of the oldest
/// request of the only queue pair.
///
/// # Safety
/// The CQ exists and has one.
#[inline(always)]
unsafe fn settle_current(local: &'static LocalCq, cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: the pointer is null, or that of a cell, which stays mapped; the caller vouches for the CQ.
    unsafe {
        if let Some(cell) = local.only.load(Ordering::Relaxed).as_ref() {
            let has_receives = local.has_receives.load(Ordering::Relaxed) != 0;
            let is_send =
                (*cq).status == 0 && !(has_receives && settle::may_be_receive(cell, (*cq).wr_id));
            let row = settle::row(cell.sends.slot(cell.sends.completed()));
            if is_send && settle::oldest(cell, row, || (*cq).wr_id, clock::ticks()) {
                return 0;
            }
        }
        settle_other(local, cq)
    }
}

/// Settles any current completion. Returns 0.
///
/// # Safety
/// The CQ exists and has one.
#[inline(never)]
unsafe extern "C" fn settle_other(local: &'static LocalCq, cq: *mut ibv_cq_ex) -> c_int {
    let now = clock::ticks();
    // SAFETY: the caller vouches for the CQ, and its functions read its current completion. Those for
    // the opcode and the vendor syndrome are always there, the others where the program asked for them.
    // The pointer is null, or that of a cell, which stays mapped.
    unsafe {
        let only = local.only.load(Ordering::Relaxed);
        let cell = match (only.as_ref::<'static>(), (*cq).read_qp_num) {
            (Some(only), _) => Some(only),
            (None, Some(read)) => real::cell(local.context.load(Ordering::Relaxed), read(cq)),
            (None, None) => None,
        };
        let Some(cell) = cell else { return 0 };
        let status = (*cq).status;
        let is_good = status == 0;
        settle::completed(
            cell,
            &Seen {
                wr_id: (*cq).wr_id,
                status,
                opcode: (*cq).read_opcode.filter(|_| is_good).map_or(0, |read| read(cq)),
                bytes: (*cq).read_byte_len.filter(|_| is_good).map_or(0, |read| read(cq)),
                vendor: (*cq).read_vendor_err.filter(|_| !is_good).map_or(0, |read| read(cq)),
                now,
            },
        );
    }
    0
}

/// Puts this library's functions in place of those of a CQ, if it is an extended one.
///
/// # Safety
/// The CQ is null, or one of libmlx5's that exists: those have room for the functions of an extended one, which
/// are null in others. The caller holds the lock.
pub(crate) unsafe fn replace(
    control: &Control,
    cq: *mut ibv_cq_ex,
    cell: &'static Cell,
    context: usize,
    receives: u32,
) {
    if cq.is_null() {
        return;
    }
    // SAFETY: the caller vouches for the CQ; each field is one aligned word.
    let (start, next) = unsafe {
        (
            &*(&raw mut (*cq).start_poll).cast::<AtomicPtr<c_void>>(),
            &*(&raw mut (*cq).next_poll).cast::<AtomicPtr<c_void>>(),
        )
    };
    let (found, own) = (start.load(Ordering::Relaxed), start_poll as *mut c_void);
    if found.is_null() {
        return;
    }
    let (key, place) = state::by_address(cq);
    let own_cell = ptr::from_ref(cell).cast_mut();
    if found == own {
        // SAFETY: values of the table are never freed.
        if let Some(local) = unsafe { state::cqs().find(key, place).as_ref() } {
            if local.only.load(Ordering::Relaxed) != own_cell {
                local.only.store(ptr::null_mut(), Ordering::Release);
            }
            local.has_receives.fetch_or(receives, Ordering::Relaxed);
        }
        return;
    }
    let local = control.cq(cq);
    local.start_poll.store(found, Ordering::Relaxed);
    local.next_poll.store(next.load(Ordering::Relaxed), Ordering::Relaxed);
    local.only.store(own_cell, Ordering::Relaxed);
    local.has_receives.store(receives, Ordering::Relaxed);
    local.context.store(context, Ordering::Relaxed);
    if state::cqs().put(key, place, ptr::from_ref(local).cast_mut()) {
        start.store(own, Ordering::Release);
        next.store(next_poll as *mut c_void, Ordering::Release);
    }
}
