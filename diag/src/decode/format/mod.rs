//! The text formats, one file per printing program.
//!
//! A [`Format`] reads a line, and as many lines after it as it needs. It returns the records it
//! found and the line after them. [`FORMATS`] lists the formats; the first one that finds a record
//! takes the lines. To read another source, add a file here and list it.

mod async_event;
mod call;
mod call_words;
mod cm_event;
mod counters;
mod crash;
mod dpdk;
mod dpdk_driver;
mod flight;
mod gpu;
mod hex;
mod installation;
mod kernel_command;
mod kernel_cq;
mod kernel_cqe;
mod kernel_ethernet;
mod kernel_event;
mod kernel_health;
mod kernel_message;
mod kernel_qp;
mod libmlx5;
mod libraries;
mod mpi;
mod packets;
mod ports;
mod programs;
mod state;
mod storage;
mod syndrome;
mod ucx;
mod words;

use super::lines::Lines;
use super::record::DecodedRecord;

/// The output format of one source.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The printing program.
    pub name: &'static str,
    /// The program and the words by which its output is found, for hints and help.
    pub reads: &'static str,
    /// Reads the records that begin at this line; `None` if there are none.
    read: fn(&Lines<'_>, usize) -> Option<Reading>,
}

/// The records that a format found.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// The line after the last one read.
    pub(super) end: usize,
    /// The records found.
    pub(super) records: Vec<DecodedRecord>,
    /// Lines before the end that were passed over, in order: another format may read them.
    pub(super) between: Vec<usize>,
}

impl Reading {
    /// Returns a reading of records that end before the line at `end`.
    fn until(end: usize, records: Vec<DecodedRecord>) -> Reading {
        Reading { end, records, between: Vec::new() }
    }

    /// Returns a reading of records that end with the line at `last`.
    fn to(last: usize, records: Vec<DecodedRecord>) -> Reading {
        Self::until(last + 1, records)
    }

    /// Returns a reading of records that end with the line at `last`, and have the lines `own`, in order.
    /// Those between belong to others.
    fn of(own: &[usize], last: usize, records: Vec<DecodedRecord>) -> Reading {
        let first = own.first().copied().unwrap_or(last);
        let between = (first..last).filter(|line| own.binary_search(line).is_err()).collect();
        Reading { between, ..Self::to(last, records) }
    }

    /// Returns a reading of records whose message begins at this line and ends with the line that
    /// has `token`: mail programs wrap lines.
    fn wrapped(lines: &Lines<'_>, at: usize, token: &str, records: Vec<DecodedRecord>) -> Reading {
        let last = (at..at + 2).find(|line| lines.get(*line).contains(token)).unwrap_or(at + 1);
        Reading::to(last, records)
    }
}

/// Reads the records that begin at this line, by the first format that finds one.
pub(super) fn read(lines: &Lines<'_>, at: usize) -> Option<(&'static Format, Reading)> {
    FORMATS.iter().find_map(|format| Some((format, (format.read)(lines, at)?)))
}

/// All formats that [`text`](super::text) reads. Those that need more evidence come first.
pub const FORMATS: &[Format] = &[
    flight::FORMAT,
    libmlx5::FORMAT,
    kernel_ethernet::FORMAT,
    kernel_cqe::FORMAT,
    kernel_command::FORMAT,
    kernel_health::FORMAT,
    kernel_qp::FORMAT,
    kernel_cq::FORMAT,
    crash::FORMAT,
    kernel_event::FORMAT,
    installation::FORMAT,
    kernel_message::FORMAT,
    dpdk::FORMAT,
    ucx::FORMAT,
    gpu::FORMAT,
    mpi::FORMAT,
    storage::FORMAT,
    programs::FORMAT,
    libraries::FORMAT,
    packets::FORMAT,
    ports::FORMAT,
    state::FORMAT,
    counters::FORMAT,
    async_event::FORMAT,
    cm_event::FORMAT,
    words::FORMAT,
    dpdk_driver::FORMAT,
    call::FORMAT,
    syndrome::FORMAT,
    hex::FORMAT,
];
