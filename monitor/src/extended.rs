//! `ibv_wr_…`: requests that a program builds by the functions of an extended queue pair.
//!
//! `wr_start`, `wr_complete` and `wr_abort` stay libmlx5's own, which changes them when a queue pair moves
//! to RTS. So requests that `ibv_wr_complete` refuses, or that are aborted, count as posted, until a
//! later one is completed.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use mlx5_sys::verbs::ibv_wr_opcode::*;
use mlx5_sys::verbs::{ibv_ah, ibv_data_buf, ibv_qp_ex, ibv_sge};

use crate::cell::{Cell, FLAGS, KEY, KIND, REMOTE, Slot};
use crate::clock;
use crate::post::mark;
use crate::state::{self, FUNCTIONS, Local};

/// Notes a new request.
///
/// # Safety
/// The queue pair exists, and this thread builds a request of it.
#[inline(always)]
unsafe fn begin(local: &Local, qp: *mut ibv_qp_ex, opcode: u32, key: u64, remote: u64) {
    // SAFETY: a queue pair in the table has a cell, which stays mapped.
    let cell = unsafe { &*local.cell.load(Ordering::Relaxed) };
    let slot = cell.sends.slot(cell.sends.posted.fetch_add(1, Ordering::Relaxed));
    // SAFETY: the caller vouches for the queue pair.
    let (wr_id, flags) = unsafe { ((*qp).wr_id, (*qp).wr_flags) };
    let flags = flags | cell.always.load(Ordering::Relaxed);
    slot.mark.store(mark(wr_id, flags), Ordering::Relaxed);
    // A list of pieces has its number added.
    slot.request[KIND].store(u64::from(opcode) << 32 | 1, Ordering::Relaxed);
    slot.request[FLAGS].store(flags.into(), Ordering::Relaxed);
    slot.request[REMOTE].store(remote, Ordering::Relaxed);
    slot.request[KEY].store(key, Ordering::Relaxed);
    slot.piece[1].store(0, Ordering::Relaxed);
    slot.posted.store(clock::ticks(), Ordering::Relaxed);
    local.current.store(ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
}

/// The request that is being built.
#[inline(always)]
fn current(local: &Local) -> &'static Slot {
    // SAFETY: `replace` has set the pointer to a slot of a cell, which stays mapped, and so does `begin`.
    unsafe { &*local.current.load(Ordering::Relaxed) }
}

/// Notes memory of the request that is being built.
#[inline(always)]
fn note_piece(local: &Local, address: u64, length: u32, lkey: u32) {
    let slot = current(local);
    slot.piece[0].store(address, Ordering::Relaxed);
    slot.piece[1].store(u64::from(lkey) << 32 | u64::from(length), Ordering::Relaxed);
}

/// Notes that the request that is being built has several pieces of memory, or none.
fn note_pieces(local: &Local, count: usize) {
    let slot = current(local);
    let opcode = slot.request[KIND].load(Ordering::Relaxed) >> 32 << 32;
    slot.request[KIND].store(opcode | u64::from(count as u32), Ordering::Relaxed);
}

/// Defines functions that stand for libmlx5's: `field(arguments) note`, where the note has `local` and
/// `qp` at hand.
macro_rules! functions {
    ($($index:literal $field:ident($($argument:ident: $type:ty),*) |$local:ident, $qp:ident| $note:expr;)*) => {
        /// Queue pairs that lie elsewhere in the table, or were made before a fork.
        mod behind {
            use super::*;

            $(#[inline(never)]
            pub(super) unsafe extern "C" fn $field($qp: *mut ibv_qp_ex, $($argument: $type),*) {
                let $local = state::local($qp.cast());
                if let Some($local) = $local {
                    $note;
                }
                if let Some(known) = $local.or_else(|| state::inherited($qp.cast())) {
                    type Function = unsafe extern "C" fn(*mut ibv_qp_ex, $($type),*);
                    let real = known.real[$index].load(Ordering::Relaxed);
                    // SAFETY: `replace` has set it to the function of this type that the queue pair
                    // had. The arguments are the caller's.
                    unsafe {
                        std::mem::transmute::<*mut c_void, Function>(real)($qp, $($argument),*);
                    }
                }
            })*
        }

        $(unsafe extern "C" fn $field($qp: *mut ibv_qp_ex, $($argument: $type),*) {
            let (key, place) = state::by_address($qp.cast_const());
            let queues = state::queues();
            if !queues.has(key, place) {
                // SAFETY: the caller's own arguments.
                return unsafe { behind::$field($qp, $($argument),*) };
            }
            // SAFETY: it is there, and values of the table are never freed.
            let $local = unsafe { queues.at(place) };
            $note;
            type Function = unsafe extern "C" fn(*mut ibv_qp_ex, $($type),*);
            let real = $local.real[$index].load(Ordering::Relaxed);
            // SAFETY: `replace` has set it to the function of this type that the queue pair had. The
            // arguments are the caller's.
            unsafe { std::mem::transmute::<*mut c_void, Function>(real)($qp, $($argument),*) }
        })*

        /// Puts this library's functions in place of those of an extended queue pair.
        ///
        /// # Safety
        /// The pointer is null, or the queue pair exists. The caller holds the lock.
        pub(crate) unsafe fn replace(local: &Local, cell: &'static Cell, qp: *mut ibv_qp_ex) {
            local.current.store(ptr::from_ref(cell.sends.slot(0)).cast_mut(), Ordering::Release);
            if qp.is_null() {
                return;
            }
            $(
                // SAFETY: each field is one aligned word.
                let place = unsafe {
                    &*(&raw mut (*qp).$field).cast::<AtomicPtr<c_void>>()
                };
                let (found, own) = (place.load(Ordering::Relaxed), $field as *mut c_void);
                if !found.is_null() && found != own {
                    local.real[$index].store(found, Ordering::Release);
                    place.store(own, Ordering::Release);
                }
            )*
            const _: () = assert!([$($index),*].len() == FUNCTIONS);
        }
    };
}

/// `IBV_WR_ATOMIC_WRITE` (`verbs.h`).
const ATOMIC_WRITE: u32 = 15;

/// Notes a request, inside of [`functions`].
macro_rules! begin {
    ($local:ident, $qp:ident, $opcode:ident, $key:expr, $remote:expr) => {
        // SAFETY: the caller builds a request of a queue pair that exists.
        unsafe { begin($local, $qp, $opcode, u64::from($key), $remote) }
    };
}

functions! {
    0 wr_atomic_cmp_swp(rkey: u32, remote: u64, compare: u64, swap: u64)
        |local, qp| begin!(local, qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote);
    1 wr_atomic_fetch_add(rkey: u32, remote: u64, add: u64)
        |local, qp| begin!(local, qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote);
    2 wr_bind_mw(
        window: *mut mlx5_sys::verbs::ibv_mw,
        rkey: u32,
        info: *const mlx5_sys::verbs::ibv_mw_bind_info
    ) |local, qp| begin!(local, qp, IBV_WR_BIND_MW, rkey, 0);
    3 wr_local_inv(rkey: u32) |local, qp| begin!(local, qp, IBV_WR_LOCAL_INV, rkey, 0);
    4 wr_rdma_read(rkey: u32, remote: u64)
        |local, qp| begin!(local, qp, IBV_WR_RDMA_READ, rkey, remote);
    5 wr_rdma_write(rkey: u32, remote: u64)
        |local, qp| begin!(local, qp, IBV_WR_RDMA_WRITE, rkey, remote);
    6 wr_rdma_write_imm(rkey: u32, remote: u64, immediate: u32)
        |local, qp| begin!(local, qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote);
    7 wr_send() |local, qp| begin!(local, qp, IBV_WR_SEND, 0_u32, 0);
    8 wr_send_imm(immediate: u32) |local, qp| begin!(local, qp, IBV_WR_SEND_WITH_IMM, 0_u32, 0);
    9 wr_send_inv(rkey: u32) |local, qp| begin!(local, qp, IBV_WR_SEND_WITH_INV, rkey, 0);
    10 wr_send_tso(header: *mut c_void, length: u16, mss: u16)
        |local, qp| begin!(local, qp, IBV_WR_TSO, 0_u32, 0);
    11 wr_set_ud_addr(address: *mut ibv_ah, number: u32, qkey: u32)
        |local, qp| note_peer(local, number, qkey);
    12 wr_set_sge(lkey: u32, address: u64, length: u32)
        |local, qp| note_piece(local, address, length, lkey);
    13 wr_set_sge_list(count: usize, list: *const ibv_sge) |local, qp| {
        note_pieces(local, count);
        // SAFETY: the caller vouches for the list.
        if let Some(first) = unsafe { list.as_ref() }.filter(|_| count > 0) {
            note_piece(local, first.addr, first.length, first.lkey);
        }
    };
    14 wr_set_inline_data(address: *mut c_void, length: usize)
        |local, qp| note_piece(local, address.addr() as u64, length as u32, 0);
    15 wr_set_inline_data_list(count: usize, list: *const ibv_data_buf) |local, qp| {
        note_pieces(local, count);
        // SAFETY: the caller vouches for the list.
        if let Some(first) = unsafe { list.as_ref() }.filter(|_| count > 0) {
            note_piece(local, first.addr.addr() as u64, first.length as u32, 0);
        }
    };
    16 wr_atomic_write(rkey: u32, remote: u64, value: *const c_void)
        |local, qp| begin!(local, qp, ATOMIC_WRITE, rkey, remote);
}

/// Notes the destination of a datagram.
#[inline(always)]
fn note_peer(local: &Local, number: u32, qkey: u32) {
    let slot = current(local);
    slot.request[KEY].store(u64::from(qkey) << 32 | u64::from(number), Ordering::Relaxed);
}
