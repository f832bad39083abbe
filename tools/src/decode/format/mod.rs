//! What is read, by who prints it: a file each.
//!
//! A [`Format`] looks at a line, and at as many after it as it needs, and says what it found there and
//! how many lines that took. [`FORMATS`] lists them; the first that finds something has the lines. To
//! read another source, write a file here and enter it.

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

/// How one source prints.
#[derive(Clone, Copy)]
pub struct Format {
    /// Who prints it.
    pub name: &'static str,
    /// What is read of it, for hints and help.
    pub reads: &'static str,
    /// What begins at this line; `None` if nothing does.
    pub read: fn(&Lines<'_>, usize) -> Option<Reading>,
}

/// What a format found.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The line behind the last that was read.
    pub end: usize,
    /// What was there.
    pub records: Vec<Record>,
}

impl Reading {
    /// Records that end with the line at `last`.
    #[must_use]
    pub fn to(last: usize, records: Vec<Record>) -> Reading {
        Reading { end: last + 1, records }
    }
}

/// Every format, those that need more to be told first.
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
