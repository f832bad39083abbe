//! `ibv_poll_cq`.

use std::ffi::c_int;

use mlx5_sys::verbs::{ibv_cq, ibv_wc};

use crate::cell::{BUCKETS, Cell, OPERATIONS};
use crate::real::{CONTEXTS, PollCq};
use crate::settle::{self, Seen};
use crate::{clock, real};

/// The functions that poll, one for each context.
pub(crate) const FUNCTIONS: [PollCq; CONTEXTS] = [
    poll_cq::<0>,
    poll_cq::<1>,
    poll_cq::<2>,
    poll_cq::<3>,
    poll_cq::<4>,
    poll_cq::<5>,
    poll_cq::<6>,
    poll_cq::<7>,
    poll_cq::<8>,
    poll_cq::<9>,
    poll_cq::<10>,
    poll_cq::<11>,
    poll_cq::<12>,
    poll_cq::<13>,
    poll_cq::<14>,
    poll_cq::<15>,
];

/// Polls a CQ of a context.
///
/// The usual poll takes one completion of a signaled request, the oldest one. It is settled here, with a
/// few loads and stores. Everything else goes to [`settle`]. Those functions are called last, so that
/// this one saves few registers.
///
/// # Safety
/// The conditions of `ibv_poll_cq`.
unsafe extern "C" fn poll_cq<const CONTEXT: usize>(
    cq: *mut ibv_cq,
    most: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    // SAFETY: the caller's own arguments.
    let count = unsafe { real::poll_cq()(cq, most, wc) };
    if count != 1 {
        if count <= 0 {
            return count;
        }
        // SAFETY: the call has filled that many.
        return unsafe { several::<CONTEXT>(count, wc) };
    }
    // SAFETY: the call has filled it.
    let wc = unsafe { &*wc };
    let now = clock::ticks();
    let (key, place) = real::by_number(wc.qp_num);
    let numbers = real::numbers(CONTEXT);
    if !numbers.has(key, place) {
        // SAFETY: the call has filled it.
        return unsafe { several::<CONTEXT>(1, wc) };
    }
    // SAFETY: it is there; cells stay mapped.
    let cell = unsafe { numbers.at(place) };
    // One comparison for both: a success, and an operation of a send queue.
    let row = row(wc);
    if row >= OPERATIONS * BUCKETS {
        return odd(cell, wc, now, row);
    }
    if !settle::oldest(cell, row, || wc.wr_id, now) {
        return behind(cell, wc, now);
    }
    1
}

/// The row of the histograms of a completion with success; of others a number past all opcodes.
#[inline(always)]
fn row(wc: &ibv_wc) -> usize {
    let what = u64::from(wc.status) | u64::from(wc.opcode) << 32;
    what.rotate_right(32 - BUCKETS.trailing_zeros()) as usize
}

/// Settles a completion that is not the one of the oldest request.
#[cold]
#[inline(never)]
extern "C" fn behind(cell: &Cell, wc: &ibv_wc, now: u64) -> c_int {
    settle::completed(cell, &Seen::of(wc, now));
    1
}

/// Settles any completion, with its row. The usual one is that of a receive.
#[inline(never)]
extern "C" fn odd(cell: &Cell, wc: &ibv_wc, now: u64, row: usize) -> c_int {
    if settle::RECEIVES.contains(&row) {
        settle::received(cell, wc.byte_len, now);
        return 1;
    }
    behind(cell, wc, now)
}

impl Seen {
    fn of(wc: &ibv_wc, now: u64) -> Seen {
        Seen {
            wr_id: wc.wr_id,
            status: wc.status,
            opcode: wc.opcode,
            bytes: wc.byte_len,
            vendor: wc.vendor_err,
            now,
        }
    }
}

/// Settles completions.
///
/// # Safety
/// That many completions can be read, at least one.
#[inline(never)]
unsafe extern "C" fn several<const CONTEXT: usize>(count: c_int, wc: *const ibv_wc) -> c_int {
    let now = clock::ticks();
    // SAFETY: the caller vouches for them.
    for wc in unsafe { std::slice::from_raw_parts(wc, count as usize) } {
        if let Some(cell) = real::cell(CONTEXT, wc.qp_num) {
            odd(cell, wc, now, row(wc));
        }
    }
    // So that the caller does not keep it in a register of its own.
    std::hint::black_box(count)
}
