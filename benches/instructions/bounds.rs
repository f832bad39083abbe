//! Bounds on the cycles of rows: so many times the cycles of a floor, and of the record.
//!
//! Instruction counts do not show that a load waits for a store, and such a wait may take longer
//! than all instructions of a post. Cycles depend on the processor and on what else it does. So each
//! row is compared with a floor of hand-written stores, whose samples alternate with the row's in
//! one process.
//!
//! A block is [`BLOCK`] samples of each, and its value the sample below which a tenth of them lies.
//! The value of a row is the least one of its blocks, and so is that of the floor: other programs
//! only ever add cycles. Blocks are taken until the bound is kept, at least [`LEAST`] and at most
//! [`MOST`]. Rows that are still too slow are measured again after all others, [`PASSES`] times in
//! all, each time in other memory: what disturbs the machine may last longer than one row.

use crate::report::earlier::Earlier;
use crate::rows::{Row, column};

/// Samples of each side in a block.
pub const BLOCK: usize = 40;

/// Blocks of a row.
const LEAST: usize = 2;
const MOST: usize = 12;

/// How often a row that is too slow is measured.
pub const PASSES: usize = 6;

/// How many times its record a row may take, each divided by its floor. Where the compiler puts a
/// short loop changes its cycles by up to a fifth.
const GROWTH: f64 = 1.25;

/// A row may take so many times its floor more than its record in any case. The floors of short rows take
/// 12 cycles, and some cycles more or less are no change of the row: ratios from 0.82 to 1.18 were
/// measured with the same code.
const WOBBLE: f64 = 0.5;

/// The record's number on a row: its cycles, divided by those of its floor.
pub const TIMES: &str = "times the floor";

/// A bound on the cycles of a row.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// The side's column.
    pub column: &'static str,
    pub row: Row,
    /// The most cycles, as so many times those of the floor.
    times: f64,
    /// The row of the floor.
    pub floor: Row,
}

/// The raw layer takes at most so many times the floor of the same row.
const fn at_most(row: Row, times: f64) -> Bound {
    Bound { column: column::RAW, row, times, floor: row }
}

impl Bound {
    /// The floor of another row: this one has none.
    const fn floor_of(self, floor: Row) -> Self {
        Self { floor, ..self }
    }

    /// Of the owned layer.
    const fn owned(self) -> Self {
        Self { column: column::OWNED, ..self }
    }

    /// Its name in the record.
    pub fn text(&self) -> String {
        let layer = if self.column == column::RAW { "" } else { ", owned layer" };
        format!("{}{layer}", self.row.text())
    }

    /// The most cycles, as so many times those of the floor, and where that number is from.
    pub fn most(&self, record: Option<&Earlier>) -> (f64, &'static str) {
        let recorded = record.and_then(|record| record.rows.get(&self.text())?.get(TIMES));
        match recorded {
            Some(recorded) if grown(*recorded) < self.times => (grown(*recorded), "by the record"),
            _ => (self.times, "on any processor"),
        }
    }
}

/// The most that a row with this record may take.
fn grown(recorded: f64) -> f64 {
    (recorded * GROWTH).max(recorded + WOBBLE)
}

/// Single posts are held to 1.4 times their floor, but for the one by pointer, which takes up to 1.4 times
/// on EPYC. The other numbers are what the rows take on the processors that were seen (Xeon, family 6,
/// model 207; EPYC, family 25, model 17), and a third more. Floors of polls check and keep nothing, so they
/// are short. A row of another kind of request is held to the floor of a WRITE with as many blocks.
pub const BOUNDS: &[Bound] = {
    use Row::*;
    &[
        at_most(Inline, 1.4),
        at_most(Inline, 2.1).owned(),
        at_most(Pointer, 1.6),
        at_most(List, 1.8),
        at_most(Inline12, 1.4),
        at_most(Inline16, 1.4),
        at_most(Inline24, 1.4),
        at_most(Inline24, 1.8).owned(),
        at_most(Inline28, 1.4),
        at_most(Inline32, 1.4),
        at_most(Inline44, 1.4),
        at_most(Inline64, 1.4),
        at_most(Inline96, 1.4),
        at_most(RunTime, 2.3).floor_of(Inline),
        at_most(RunTime16, 2.0).floor_of(Inline16),
        at_most(RunTime28, 1.9).floor_of(Inline28),
        at_most(DoorbellInline, 2.1),
        at_most(DoorbellPointer, 2.2),
        at_most(Uncached, 2.6).floor_of(DoorbellPointer),
        at_most(Recordless, 2.5).floor_of(DoorbellPointer),
        at_most(Prepared, 1.4).floor_of(Inline),
        at_most(Prepared64, 1.4).floor_of(Inline64),
        at_most(Prepared128, 1.4).floor_of(Inline96),
        at_most(Prepared200, 1.8).floor_of(Inline96),
        at_most(PreparedField, 1.8).floor_of(Inline96),
        at_most(PreparedUd, 1.4).floor_of(Inline96),
        // One function that is not inlined. On the Xeon, the same instructions take 9.0 cycles in a program where
        // the function begins 48 bytes behind a line of the cache, and 15.8 where it begins at one.
        at_most(DoorbellPrepared, 3.6).floor_of(DoorbellInline),
        at_most(ListLast, 1.9).floor_of(List),
        at_most(UcPointer, 1.4).floor_of(Pointer),
        at_most(UdPointer, 1.6).floor_of(Inline64),
        at_most(UdInline, 1.6).floor_of(Inline64),
        at_most(UdInline24, 1.6).floor_of(Inline64),
        at_most(UdList, 2.7).floor_of(List),
        at_most(DcSend, 1.6).floor_of(Inline64),
        at_most(DcWrite, 1.6).floor_of(Inline64),
        at_most(Masked, 1.6).floor_of(Inline16),
        at_most(KeyList, 1.7).floor_of(Inline96),
        at_most(Bind, 1.7).floor_of(Inline96),
        at_most(Poll, 2.7),
        at_most(Empty, 3.1),
        at_most(PollQuiet, 3.2).floor_of(Poll),
        at_most(PollLater, 3.7),
        at_most(PollMany, 3.2),
        at_most(PollReceive, 3.0),
        at_most(PollWide, 2.6).floor_of(Poll),
        at_most(PollFolded, 4.6).floor_of(Poll),
        at_most(PollFoldedReceive, 4.5).floor_of(PollReceive),
        at_most(PollInside, 6.1).floor_of(PollReceive),
        at_most(PollReceives, 3.2),
        at_most(Receive, 2.8),
        at_most(ReceiveWide, 2.9),
        at_most(ReceiveList, 2.8),
        at_most(ReceiveShared, 3.6).floor_of(Receive),
        at_most(ReceiveSharedList, 4.5).floor_of(ReceiveList),
        at_most(PollShared, 4.2).floor_of(PollReceive),
        at_most(PollTable, 6.3).floor_of(PollReceive),
        at_most(TagAppend, 2.1).floor_of(Inline64),
        at_most(TagPoll, 6.3).floor_of(PollReceive),
    ]
};

/// The least values where there were no blocks yet.
pub const NONE: [f64; 2] = [f64::INFINITY; 2];

/// Takes blocks, whose values of the row and of its floor `block` returns, until the row takes at
/// most `most` times the floor, or there were enough. Returns the least values of both, also of
/// earlier blocks; none where the processor cannot execute the row.
pub fn least(
    most: f64,
    mut least: [f64; 2],
    mut block: impl FnMut() -> Option<[f64; 2]>,
) -> Option<[f64; 2]> {
    for taken in 1..=MOST {
        let values = block()?;
        least = [0, 1].map(|at| least[at].min(values[at]));
        if taken >= LEAST && least[0] <= most * least[1] {
            break;
        }
    }
    Some(least)
}
