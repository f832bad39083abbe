//! `mlx5 lint`: reports defects of WQEs.
//!
//! The checks are the library's ([`mlx5::diag::lint`]). `source` supplies the WQEs from one of
//! three inputs: the bytes of a ring, with options that describe the queue; a dump of the flight
//! recorder; or a recording of a program (`recording`). A recording describes its
//! queues itself, as does a program that `live` runs. `report` prints the findings.

mod live;
mod recording;
mod report;
mod source;

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use mlx5::diag::lint::{Facts, Transport};
use mlx5_model::trace::{ReadError, Reader};
use serde::Serialize;

use self::report::Report;
use crate::options::Subject;
use crate::outcome::{Error, Outcome, Result};
use crate::output::Output;

/// Check a send queue's WQEs: captured from a ring, recorded, or of a program that it runs
///
/// A device that refuses a WQE says little more than that it did, and of many mistakes it says nothing:
/// it reads another address, takes a stale WQE for a new one, or never completes. This looks at the
/// bytes instead: opcodes and the transport, sizes and segments, indices and wraps, inline data and
/// lengths, fences, completions and the ring's size, doorbells. A finding names WQE, segment and byte,
/// what was expected, what was found, and the cure. A defect is what no device executes as it was meant;
/// what is suspicious is executed.
///
/// The input is a ring's bytes, binary or as hex (`dump binary memory` of gdb, a hex dump), a log with
/// dumps of the flight recorder, or a recording of `mlx5 trace --record`. Recordings and dumps tell of
/// their queues; of a ring's bytes, say what is known of the queue. What is not known is not checked.
///
/// With a program behind --, that program runs on a device of this machine, or on the model with --model.
/// Each WQE is checked when the program rings the device for it. Findings are said on standard error at
/// once, and the report follows when the program has ended. A program that does not end by itself may be
/// ended with a signal, as by Ctrl-C.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The file [default: standard input]
    #[arg(value_name = "FILE", conflicts_with = "program")]
    input: Option<PathBuf>,
    #[command(flatten)]
    queue: Queue,
    /// The doorbell register was given this after the last WQE: eight bytes, as hex, in the order of
    /// memory
    #[arg(long, value_name = "HEX", value_parser = word)]
    doorbell: Option<u64>,
    /// Show each WQE that something is wrong with
    #[arg(short, long)]
    verbose: bool,
    /// Fail also if something is only suspicious
    #[arg(long)]
    pedantic: bool,
    /// The library to preload into the program: model and observer [default: this command's own]
    #[arg(long, value_name = "FILE", env = "MLX5_MODEL_LIBRARY")]
    library: Option<PathBuf>,
    /// A program to run, and its arguments
    #[arg(last = true)]
    program: Vec<OsString>,
}

/// The known facts of the queue.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Of a ring")]
struct Queue {
    /// Transport: rc, uc, ud, xrc, dci or raw
    #[arg(short, long, default_value = "rc", value_name = "NAME")]
    transport: Transport,
    /// Size of the ring in 64-byte blocks, if the input has more
    #[arg(short, long, value_name = "BLOCKS", value_parser = number)]
    wqes: Option<u32>,
    /// Counter of the first WQE to look at, modulo 2^16 [default: that in the ring's first block]
    #[arg(long, value_name = "COUNTER", value_parser = number)]
    first: Option<u32>,
    /// The doorbell record's send counter: look up to there [default: as far as indices go on]
    #[arg(long, value_name = "COUNTER", value_parser = number)]
    record: Option<u32>,
    /// Number of the queue pair [default: the first WQE's]
    #[arg(long, value_name = "NUMBER", value_parser = number)]
    qpn: Option<u32>,
    /// Bytes of inline data that the queue takes (max_inline_data)
    #[arg(long, value_name = "BYTES", value_parser = number)]
    inline: Option<u32>,
    /// Scatter/gather entries that the queue takes (max_send_sge)
    #[arg(long, value_name = "COUNT", value_parser = number)]
    sge: Option<u32>,
    /// Largest WQE that the queue takes, in 16-byte units
    #[arg(long, value_name = "UNITS", value_parser = number)]
    ds: Option<u32>,
    /// CQEs that the WQEs of the ring may have outstanding at once
    #[arg(long, value_name = "COUNT", value_parser = number)]
    cqes: Option<u32>,
    /// Bytes of a frame that must be in the WQE: 18 on devices before ConnectX-5
    #[arg(long, value_name = "BYTES", value_parser = number)]
    header: Option<u32>,
    /// The queue pair was made to signal every request (sq_sig_all)
    #[arg(long)]
    signal_all: bool,
    /// The queue pair was made to check signatures of WQEs
    #[arg(long)]
    signatures: bool,
    /// Say also which bytes are left of earlier WQEs that no device looks at
    #[arg(long)]
    strict: bool,
}

const EXAMPLES: &str = "\
Examples:
  mlx5 lint --transport ud --inline 64 --record 0x1f ring.bin
  (gdb) dump binary memory ring.bin qp->buf.buf qp->buf.buf+qp->sq.wqe_cnt*64
  mlx5 trace --record run.trace -- ./program && mlx5 lint run.trace
  mlx5 lint -- ./program
  journalctl | mlx5 lint                      dumps of the flight recorder in it

Exit status: 1 if there is a defect.";

/// Parses a number, decimal or with 0x.
fn number(text: &str) -> std::result::Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a number, decimal or hexadecimal with 0x".to_owned())
}

fn word(text: &str) -> std::result::Result<u64, String> {
    let digits: String = text.trim_start_matches("0x").split_whitespace().collect();
    let parsed = u64::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 16);
    parsed.ok_or_else(|| "eight bytes are sixteen digits".to_owned())
}

impl Queue {
    fn facts(&self) -> Facts {
        let facts = Facts::new(self.transport);
        Facts {
            qpn: self.qpn,
            max_sge: self.sge,
            max_inline: self.inline,
            max_ds: self.ds.unwrap_or(facts.max_ds),
            cqes: self.cqes,
            min_header: self.header.unwrap_or(facts.min_header),
            signal_all: self.signal_all,
            signatures: self.signatures,
            strict: self.strict,
            ..facts
        }
    }
}

impl Arguments {
    /// What the command runs on.
    pub(crate) fn subject(&self) -> Subject {
        if self.program.is_empty() { Subject::Texts } else { Subject::Device }
    }

    /// Prints the defects found.
    pub(crate) fn run(&self, output: &Output) -> Result {
        let mut report = Report::new(self.verbose);
        let without_wqes = if self.program.is_empty() {
            let input = source::read(self.input.as_deref())?;
            source::lint(&input, self, &mut report)?;
            "nothing was written, or what is told of the ring is wrong (--first, --wqes, --qpn)"
                .to_owned()
        } else {
            let (library, strict) = (self.library.as_deref(), self.queue.strict);
            let status = live::lint(&self.program, library, strict, &mut report)?;
            match status.success() {
                true => "the program opened a device and posted nothing".to_owned(),
                false => format!("the program ended with {status} before it posted any"),
            }
        };
        if report.is_empty() {
            return Err(Error::Told(format!("no WQE was found: {without_wqes}")));
        }
        output.report("lint", &report)?;
        let bad = report.defects() != 0 || self.pedantic && report.suspicious() != 0;
        Ok(if bad { Outcome::Bad } else { Outcome::Good })
    }
}

/// Returns the output of `mlx5 lint --verbose` for a recording, and why it could not be read to its
/// end.
///
/// # Errors
/// Fails if the bytes are not a recording.
pub fn recorded<R: Read>(
    recording: R,
    strict: bool,
) -> Result<(impl fmt::Display + Serialize, Option<ReadError>), ReadError> {
    let mut report = Report::new(true);
    let read = recording::lint(Reader::new(recording)?, strict, &mut report);
    Ok((report, read.err()))
}
