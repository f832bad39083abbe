//! The text formats that `mlx5 decode` reads, one file per printing program.
//!
//! A [`Format`] reads a line, and as many lines after it as it needs. It returns the records it
//! found and the line after them. [`FORMATS`] lists the formats; the first one that finds a record
//! takes the lines. To read another source, add a file here and list it.

mod dpdk;
mod flight;
mod gpu;
mod hex;
mod kernel_command;
mod kernel_cqe;
mod kernel_ethernet;
mod kernel_health;
mod libmlx5;
mod programs;
mod ucx;
mod words;

use super::lines::Lines;
use super::record::Record;

/// The output format of one source.
#[derive(Clone, Copy)]
pub struct Format {
    /// The printing program.
    pub name: &'static str,
    /// A description of the input it reads, for hints and help.
    pub reads: &'static str,
    /// Reads the records that begin at this line; `None` if there are none.
    pub read: fn(&Lines<'_>, usize) -> Option<Reading>,
}

/// The records that a format found.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The line after the last one read.
    pub end: usize,
    /// The records found.
    pub records: Vec<Record>,
}

impl Reading {
    /// Returns a reading of records that end with the line at `last`.
    #[must_use]
    pub fn to(last: usize, records: Vec<Record>) -> Reading {
        Reading { end: last + 1, records }
    }
}

/// All formats. Those that need more evidence come first.
pub const FORMATS: &[Format] = &[
    flight::FORMAT,
    libmlx5::FORMAT,
    kernel_ethernet::FORMAT,
    kernel_cqe::FORMAT,
    kernel_command::FORMAT,
    kernel_health::FORMAT,
    dpdk::FORMAT,
    ucx::FORMAT,
    gpu::FORMAT,
    programs::FORMAT,
    words::FORMAT,
    hex::FORMAT,
];
