use std::ffi::CString;
use std::sync::atomic::Ordering;

use mlx5_sys::verbs::{ibv_wc_opcode, ibv_wc_status, ibv_wr_opcode};

use crate::board::{Board, View, state};
use crate::cell::{BUCKETS, Cell, FLAGS, KIND, OPERATIONS, SENDS, SIGNALED, Side, store};
use crate::post::mark;
use crate::settle::{Seen, completed};

/// A board with a cell of this process.
struct Bed {
    board: Board,
    view: View,
    cell: &'static Cell,
}

impl Bed {
    fn new() -> Bed {
        let board = Board::create().unwrap();
        let view = View::open(&CString::new(board.path()).unwrap()).unwrap();
        let index = view.header.claim().unwrap();
        let cell = view.cell(index).unwrap();
        store(&cell.device, b"mlx5_0");
        view.header.set(index, state::LIVE);
        Bed { board, view, cell }
    }

    fn post(&self, wr_id: u64, flags: u32) {
        let ring = &self.cell.sends;
        let slot = ring.slot(ring.posted.fetch_add(1, Ordering::Relaxed));
        slot.mark.store(mark(wr_id, flags), Ordering::Relaxed);
        slot.posted.store(1000, Ordering::Relaxed);
        let opcode = u64::from(ibv_wr_opcode::IBV_WR_RDMA_WRITE);
        slot.request[KIND].store(opcode << 32, Ordering::Relaxed);
        slot.request[FLAGS].store(flags.into(), Ordering::Relaxed);
    }

    fn poll(&self, wr_id: u64, status: u32) {
        let opcode = ibv_wc_opcode::IBV_WC_RDMA_WRITE;
        completed(self.cell, &Seen { wr_id, status, opcode, bytes: 0, vendor: 0x88, now: 1004 });
    }

    fn outstanding(&self) -> u64 {
        self.cell.sends.posted() - self.cell.sends.completed()
    }

    /// Latencies of WRITE.
    fn count(&self) -> u64 {
        self.cell.latencies(1).0.iter().sum()
    }
}

const SUCCESS: u32 = ibv_wc_status::IBV_WC_SUCCESS;
const REFUSED: u32 = ibv_wc_status::IBV_WC_REM_ACCESS_ERR;
const FLUSHED: u32 = ibv_wc_status::IBV_WC_WR_FLUSH_ERR;

#[test]
fn a_completion_covers_the_unsignaled_requests_before_its_own() {
    let bed = Bed::new();
    // All have one name.
    for signaled in [false, false, true, true] {
        bed.post(7, if signaled { SIGNALED } else { 0 });
    }
    bed.poll(7, SUCCESS);
    assert_eq!((bed.outstanding(), bed.count()), (1, 3));
    bed.poll(7, SUCCESS);
    assert_eq!((bed.outstanding(), bed.count()), (0, 4));
    let (buckets, sum) = bed.cell.latencies(1);
    assert_eq!((buckets[2], sum), (4, 16), "4 ticks each");
    let requests = bed.cell.sends.last(10);
    assert!(requests.iter().all(|request| request.wr_id == 7 && request.completed == 1004));
}

#[test]
fn more_requests_than_are_kept_lose_latencies_and_no_more() {
    let bed = Bed::new();
    let count = SENDS as u64 + 100;
    (0..count).for_each(|wr_id| bed.post(wr_id, SIGNALED));
    (0..count).for_each(|wr_id| bed.poll(wr_id, SUCCESS));
    assert_eq!(bed.outstanding(), 0);
    assert_eq!(bed.count() + bed.cell.unmatched(), count);
    assert!(bed.count() >= SENDS as u64 - 100, "{}", bed.count());
    bed.post(1, SIGNALED);
    bed.poll(1, SUCCESS);
    assert_eq!(bed.outstanding(), 0);
}

#[test]
fn the_first_failure_since_a_reset_is_kept() {
    let bed = Bed::new();
    assert!(bed.cell.failure().is_none());
    (0..3).for_each(|wr_id| bed.post(wr_id, SIGNALED));
    bed.poll(0, SUCCESS);
    let wakes = bed.board.wakes();
    bed.poll(1, REFUSED);
    bed.poll(2, FLUSHED);
    let failure = bed.cell.failure().unwrap();
    assert_eq!((failure.serial, failure.status, failure.vendor), (1, REFUSED, 0x88));
    assert_eq!((failure.side, failure.outstanding, failure.last_success), (Side::Send, 2, 1004));
    assert_eq!(failure.request.unwrap().wr_id, 1);
    assert_eq!(bed.cell.failures(FLUSHED as usize), 1);
    // No process of this test is attached, so none wakes the command.
    assert_eq!(bed.board.wakes(), wakes);
    bed.cell.incident.claim.store(0, Ordering::Relaxed);
    bed.poll(9, REFUSED);
    let failure = bed.cell.failure().unwrap();
    assert_eq!((failure.serial, failure.side), (2, Side::Unknown));
    assert!(failure.request.is_none());
}

#[test]
fn flushes_after_the_programs_own_move_to_error_are_no_failure() {
    let bed = Bed::new();
    bed.post(1, SIGNALED);
    bed.cell.is_closing.store(1, Ordering::Relaxed);
    bed.poll(1, FLUSHED);
    assert!(bed.cell.failure().is_none());
    assert_eq!(bed.cell.failures(FLUSHED as usize), 1);
}

#[test]
fn a_cell_is_free_again_once_its_end_was_read() {
    let bed = Bed::new();
    let seen = |bed: &Bed| -> Vec<(usize, String, bool)> {
        let cells = bed.board.cells();
        cells.map(|(index, cell, is_live)| (index, cell.device(), is_live)).collect()
    };
    assert_eq!(seen(&bed), [(0, "mlx5_0".to_owned(), true)]);
    bed.board.free(0);
    assert_eq!(seen(&bed).len(), 1, "it is in use");
    bed.view.header.set(0, state::ENDED);
    assert_eq!(seen(&bed), [(0, "mlx5_0".to_owned(), false)]);
    assert_eq!(bed.view.header.claim(), Some(1));
    bed.board.free(0);
    assert_eq!(bed.view.header.claim(), Some(0));
}

#[test]
fn any_bytes_of_a_cell_can_be_read() {
    let bed = Bed::new();
    let mut number = 0x9e37_79b9_7f4a_7c15_u64;
    let words = size_of::<Cell>() / 8;
    for round in 0..20 {
        for index in 0..words {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            let word = if round % 2 == 0 { number } else { u64::MAX };
            // SAFETY: a cell consists of atomics, and the index is within it.
            unsafe { (&raw const *bed.cell).cast_mut().cast::<u64>().add(index).write(word) };
        }
        let _ = (bed.cell.failure(), bed.cell.device(), bed.cell.received(), bed.cell.timeout());
        assert!(bed.cell.sends.last(u64::MAX).len() <= SENDS);
        let rows = (0..OPERATIONS + 2).map(|operation| bed.cell.latencies(operation).0.len());
        assert!(rows.into_iter().all(|length| length == BUCKETS - 1));
        // Nothing is out of bounds, whatever the indices are.
        bed.poll(number, SUCCESS);
        bed.poll(number, REFUSED);
    }
}

#[test]
fn a_file_that_is_no_board_is_refused() {
    assert!(View::open(c"/dev/null").is_none());
    assert!(View::open(c"/nowhere").is_none());
}

#[test]
fn no_process_can_cut_the_board_under_the_command() {
    let board = Board::create().unwrap();
    let file = std::fs::File::options().write(true).open(board.path()).unwrap();
    file.set_len(0).unwrap_err();
    file.set_len(1 << 40).unwrap_err();
    assert_eq!(board.cells().count(), 0);
}
