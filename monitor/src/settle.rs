//! What a completion says about the requests of its queue pair.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use mlx5_sys::verbs::{ibv_wc_status, ibv_wr_opcode};

use crate::cell::{BUCKETS, Cell, KIND, OPERATIONS, Ring, SENDS, STATUSES, Slot};
use crate::state;

/// A completion that was polled.
pub(crate) struct Seen {
    pub(crate) wr_id: u64,
    pub(crate) status: u32,
    pub(crate) opcode: u32,
    pub(crate) bytes: u32,
    pub(crate) vendor: u32,
    pub(crate) now: u64,
}

/// The bit of `enum ibv_wc_opcode` that receives have.
const RECEIVE: u32 = 1 << 7;
/// Rows that the opcodes of receives would have.
pub(crate) const RECEIVES: Range<usize> =
    RECEIVE as usize * BUCKETS..2 * RECEIVE as usize * BUCKETS;
/// Of completions whose requests are not kept any more, one in so many looks for its request.
const SELDOM: u64 = 64;

/// Adds one. Another thread that polls at the same time may take the place of this one's count.
#[inline(always)]
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

/// Counts a latency, in ticks, in a row of the histograms.
#[inline(always)]
pub(crate) fn count(cell: &Cell, row: usize, latency: u64) {
    if row >= OPERATIONS * BUCKETS {
        return;
    }
    add(&cell.latencies[row + BUCKETS - 1], latency);
    let bucket = (latency | 1).ilog2() as usize;
    add(&cell.latencies[row + bucket], 1);
}

/// Settles the completion of a signaled request, if that is the oldest one, in a row of the histograms.
/// The `wr_id` is handed over as a function: so its load is part of the comparison.
#[inline(always)]
pub(crate) fn oldest(cell: &Cell, row: usize, wr_id: impl FnOnce() -> u64, now: u64) -> bool {
    let slot = cell.sends.slot(cell.sends.completed.fetch_add(1, Ordering::Relaxed));
    let mark = slot.mark.load(Ordering::Relaxed);
    if mark != wr_id() {
        return give_back(cell);
    }
    slot.completed.store(now, Ordering::Relaxed);
    count(cell, row, now.wrapping_sub(slot.posted.load(Ordering::Relaxed)));
    true
}

/// Gives a position back that was taken from the ring. Returns false.
#[inline(always)]
fn give_back(cell: &Cell) -> bool {
    cell.sends.completed.fetch_sub(1, Ordering::Relaxed);
    false
}

/// Settles a completion.
pub(crate) fn completed(cell: &Cell, seen: &Seen) {
    if seen.status != ibv_wc_status::IBV_WC_SUCCESS {
        failed(cell, seen);
    } else if seen.opcode & RECEIVE != 0 {
        received(cell, seen.bytes, seen.now);
    } else {
        sent(cell, seen);
    }
}

/// Settles the completion of a receive. Those of a shared queue are posted elsewhere, and only counted.
#[inline(always)]
pub(crate) fn received(cell: &Cell, bytes: u32, now: u64) {
    let ring = &cell.receives;
    let completed = ring.completed.load(Ordering::Relaxed);
    ring.completed.store(completed.wrapping_add(1), Ordering::Relaxed);
    ring.slot(completed).completed.store(now, Ordering::Relaxed);
    add(&cell.received_bytes, bytes.into());
}

/// Whether a completion may be that of a receive: there is none outstanding that has another `wr_id`.
#[inline(always)]
pub(crate) fn may_be_receive(cell: &Cell, wr_id: u64) -> bool {
    let ring = &cell.receives;
    let (posted, completed) =
        (ring.posted.load(Ordering::Relaxed), ring.completed.load(Ordering::Relaxed));
    if posted == completed {
        return cell.is_shared.load(Ordering::Relaxed) != 0;
    }
    completed > posted || ring.slot(completed).mark.load(Ordering::Relaxed) == wr_id
}

/// Finds the request of a completion: the oldest one whose mark is one of these.
fn find<const N: usize>(ring: &Ring<N>, marks: [u64; 2]) -> Option<u64> {
    let posted = ring.posted.load(Ordering::Relaxed);
    let from = ring.completed.load(Ordering::Relaxed).max(posted.saturating_sub(N as u64));
    (from..posted)
        .find(|position| marks.contains(&ring.slot(*position).mark.load(Ordering::Relaxed)))
}

/// Settles a completion of a send queue. It covers the requests before its own.
fn sent(cell: &Cell, seen: &Seen) {
    let ring = &cell.sends;
    let completed = ring.completed.load(Ordering::Relaxed);
    let is_lost = ring.posted.load(Ordering::Relaxed).saturating_sub(completed) > SENDS as u64;
    let found = if is_lost && cell.unmatched.load(Ordering::Relaxed) % SELDOM != 0 {
        None
    } else {
        find(ring, [seen.wr_id; 2])
    };
    let Some(found) = found else {
        add(&cell.unmatched, 1);
        if is_lost {
            ring.completed.store(completed + 1, Ordering::Relaxed);
        }
        return;
    };
    for position in completed.max(found.saturating_sub(SENDS as u64 - 1))..=found {
        let slot = ring.slot(position);
        slot.completed.store(seen.now, Ordering::Relaxed);
        let latency = seen.now.wrapping_sub(slot.posted.load(Ordering::Relaxed));
        count(cell, row(slot), latency);
    }
    ring.completed.store(found + 1, Ordering::Relaxed);
}

/// The row of the histograms of a request: its `enum ibv_wc_opcode`.
#[inline(always)]
pub(crate) fn row(slot: &Slot) -> usize {
    const ROWS: [u16; 16] = {
        let mut rows = [0; 16];
        rows[ibv_wr_opcode::IBV_WR_RDMA_WRITE as usize] = 1;
        rows[ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM as usize] = 1;
        rows[ibv_wr_opcode::IBV_WR_RDMA_READ as usize] = 2;
        rows[ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP as usize] = 3;
        rows[ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD as usize] = 4;
        rows[ibv_wr_opcode::IBV_WR_BIND_MW as usize] = 5;
        rows[ibv_wr_opcode::IBV_WR_LOCAL_INV as usize] = 6;
        rows[ibv_wr_opcode::IBV_WR_TSO as usize] = 7;
        // IBV_WR_FLUSH and IBV_WR_ATOMIC_WRITE.
        rows[14] = 8;
        rows[15] = 9;
        rows
    };
    let opcode = (slot.request[KIND].load(Ordering::Relaxed) >> 32) as usize;
    usize::from(ROWS[opcode & 15]) * BUCKETS
}

/// The side of a completion with an error, whose opcode says nothing.
fn side(cell: &Cell, seen: &Seen) -> (u32, Option<u64>) {
    let ring = &cell.sends;
    let sent = find(ring, [seen.wr_id, !seen.wr_id]);
    let received = find(&cell.receives, [seen.wr_id; 2]);
    let responder = [ibv_wc_status::IBV_WC_LOC_ACCESS_ERR, ibv_wc_status::IBV_WC_LOC_LEN_ERR];
    let is_responder = responder.contains(&(seen.status));
    match (sent, received) {
        (Some(position), None) => (1, Some(position)),
        (Some(position), Some(_)) if !is_responder => (1, Some(position)),
        (_, Some(position)) => (2, Some(position)),
        // Of a shared receive queue: this status has no other.
        (None, None) if is_responder => (2, None),
        (None, None) => (0, None),
    }
}

#[cold]
#[inline(never)]
fn failed(cell: &Cell, seen: &Seen) {
    add(&cell.statuses[seen.status as usize % STATUSES], 1);
    let (side, position) = side(cell, seen);
    let is_flushed = seen.status == ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
    // A program that moves its queue pair to ERROR knows that it has.
    let is_expected = is_flushed && cell.is_closing.load(Ordering::Acquire) != 0;
    let of = &cell.incident;
    if !is_expected && of.claim.swap(1, Ordering::AcqRel) == 0 {
        let ring = &cell.sends;
        let completed = ring.completed.load(Ordering::Relaxed);
        let outstanding = ring.posted.load(Ordering::Relaxed).saturating_sub(completed);
        let last = completed.checked_sub(1).map(|position| ring.slot(position));
        let last = last.map_or(0, |slot| slot.completed.load(Ordering::Relaxed));
        of.status.store(seen.status, Ordering::Relaxed);
        of.vendor.store(seen.vendor, Ordering::Relaxed);
        of.outstanding.store(outstanding as u32, Ordering::Relaxed);
        of.at.store(seen.now, Ordering::Relaxed);
        of.last_success.store(last, Ordering::Relaxed);
        of.wr_id.store(seen.wr_id, Ordering::Relaxed);
        of.side.store(side, Ordering::Relaxed);
        of.has_request.store(position.is_some().into(), Ordering::Relaxed);
        match (side, position) {
            (1, Some(position)) => of.request.copy(ring.slot(position)),
            (2, Some(position)) => of.request.copy(cell.receives.slot(position)),
            _ => {}
        }
        of.serial.fetch_add(1, Ordering::Release);
        state::wake();
    }
    match (side, position) {
        (1, Some(position)) => cell.sends.completed.store(position + 1, Ordering::Relaxed),
        (2, Some(position)) => {
            cell.receives.completed.store(position + 1, Ordering::Relaxed);
            add(&cell.unreceived, 1);
        }
        _ => {}
    }
}
