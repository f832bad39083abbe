//! `mlx5 decode`: explains error output of drivers and programs.
//!
//! Text is read line by line by the formats of [`format`](mod@format); bytes of a given kind are
//! read by [`raw`]. Both return [`Record`]s: fields, and codes with meanings, causes and cures.
//! [`join`] then links completions to the WQEs that they name. Input is untrusted: fields without a
//! known meaning are shown as they are, and unreadable input yields no record.

mod command;
mod completion;
mod finding;
pub mod format;
pub mod hex;
mod join;
pub mod lines;
pub mod raw;
pub mod record;
pub mod scan;
mod show;
mod table;
mod words;
mod wqe;

use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use clap::{Args, ValueEnum};
use mlx5::diag::text::Addressing;
use serde::Serialize;

use self::format::FORMATS;
use self::lines::{Lines, Options};
use self::raw::RawKind;
use self::record::Record;
use self::table::Table;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Output, say};

/// Explain error CQEs, WQEs, commands and contexts that other programs have printed
///
/// Paste or pipe a log: what libmlx5, the kernel, DPDK, UCX, NCCL, perftest and others print of failed
/// completions and commands is found in the text around it, and shown field by field with its meaning,
/// likely causes, and what helps. A completion and the WQE that it names are brought together. Where
/// nothing is publicly known of a code, that is said. No device is needed.
///
/// Bytes alone say little of what they are: give their kind with --kind.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// A file, or the text itself [default: standard input]
    #[arg(value_name = "FILE|TEXT")]
    input: Vec<String>,
    /// The input is hex (or binary) of this kind: wqe, recv-wqe, cqe, eqe, qp-dbr, cq-dbr, command, reply,
    /// reply:NAME, or a structure of mlx5_ifc.h (qpc, cqc, mkc, srqc, create_qp_in …)
    #[arg(short, long, value_name = "KIND", value_parser = kind)]
    kind: Option<RawKind>,
    /// The transport that WQEs are of, which their bytes do not say [default: rc, of network drivers eth]
    #[arg(short, long, value_enum)]
    transport: Option<Transport>,
    /// In which order dumps of 32-bit words show bytes: be as libmlx5 and the kernel, le as a debugger on
    /// x86
    #[arg(long, value_enum, default_value_t = Words::Be, value_name = "ORDER")]
    words: Words,
    /// Print all codes that are known, with their sources, and read nothing
    #[arg(long)]
    table: bool,
}

const EXAMPLES: &str = "\
Examples:
  dmesg | mlx5 decode
  mlx5 decode /var/log/dpdk_mlx5_port_0_txq_0_index_0_1234
  mlx5 decode 'Failed status 12: wr_id 0 syndrom 0x81'
  echo '00000000 00008813 10012abe 0dd0c1d3' | mlx5 decode
  mlx5 decode --kind qpc qpc.hex
  mlx5 decode --kind wqe --transport ud < wqe.bin
  mlx5 decode --table

Exit status: 0 if something was found, 1 if not.";

fn kind(name: &str) -> std::result::Result<RawKind, String> {
    RawKind::named(name)
}

/// The transport, which determines the segments between a WQE's ctrl segment and its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Transport {
    /// RC and UC: nothing
    #[value(alias = "uc")]
    Rc,
    /// UD: an address
    Ud,
    /// Dynamic connections: an address
    #[value(alias = "dci")]
    Dc,
    /// XRC: a shared receive queue
    Xrc,
    /// Frames of Ethernet
    Eth,
}

/// Order of bytes in printed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Words {
    /// Most significant byte first
    Be,
    /// Least significant byte first
    Le,
}

/// The records found in the input.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The records, in the order of the text.
    pub records: Vec<Record>,
    /// The formats that could have been read, if no record was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<&'static str>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.records.is_empty() {
            writeln!(f, "Nothing was found that is known. What is read:")?;
            for reads in &self.reads {
                writeln!(f, "  {reads}")?;
            }
            return write!(
                f,
                "Hex of anything else is read if its kind is given: --kind cqe, wqe, qpc …"
            );
        }
        f.write_str(show::Shown(&self.records).to_string().trim_end())
    }
}

/// Finds the records in a text.
#[must_use]
pub fn text(text: &str, options: Options) -> Report {
    let lines = Lines::new(text, options);
    let mut records = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let found = FORMATS.iter().find_map(|format| Some((format, (format.read)(&lines, at)?)));
        let Some((format, reading)) = found else {
            at += 1;
            continue;
        };
        // A format that found a record has read at least this line, and no more lines than there
        // are.
        let end = reading.end.clamp(at + 1, lines.len());
        records.extend(reading.records.into_iter().map(|record| Record {
            format: format.name,
            lines: Some((at + 1, end)),
            ..record
        }));
        at = end;
    }
    finish(records)
}

/// Finds the records in bytes of a given kind: binary, or hex in a text.
///
/// # Errors
/// Returns which input is missing.
pub fn bytes(input: &[u8], kind: RawKind, options: Options) -> std::result::Result<Report, String> {
    // Text has no zero bytes; memory dumps do.
    let text = std::str::from_utf8(input).ok().filter(|text| !text.contains('\0'));
    let (bytes, format) = match text {
        Some(text) => (hex::all(&Lines::new(text, options)), "hex"),
        None => (input.to_vec(), "binary"),
    };
    let addressing = options.addressing.unwrap_or_default();
    let records = kind.records(&bytes, addressing)?;
    Ok(finish(records.into_iter().map(|record| Record { format, ..record }).collect()))
}

fn finish(records: Vec<Record>) -> Report {
    let mut records = join::once(records);
    join::join(&mut records);
    let reads = match records.is_empty() {
        true => FORMATS.iter().map(|format| format.reads).collect(),
        false => Vec::new(),
    };
    Report { records, reads }
}

impl Arguments {
    /// Prints the records of the input.
    pub(crate) fn run(&self, output: &Output) -> Result {
        if self.table {
            output.report("decode", &Table::new())?;
            return Ok(Outcome::Good);
        }
        let input = self.read(output)?;
        let options = Options {
            addressing: self.transport.map(|transport| match transport {
                Transport::Rc => Addressing::Connected,
                Transport::Ud | Transport::Dc => Addressing::Datagram,
                Transport::Xrc => Addressing::Xrc,
                Transport::Eth => Addressing::Ethernet,
            }),
            little_endian_words: self.words == Words::Le,
        };
        let report = match self.kind {
            Some(kind) => bytes(&input, kind, options).map_err(Error::Told)?,
            None => text(&String::from_utf8_lossy(&input), options),
        };
        output.report("decode", &report)?;
        Ok(if report.records.is_empty() { Outcome::Bad } else { Outcome::Good })
    }

    /// Reads the files one after the other, else the arguments themselves, else standard input.
    fn read(&self, output: &Output) -> Result<Vec<u8>> {
        let failed = |what: &str| {
            let what = format!("cannot read {what}");
            move |error| Error::File { what, error }
        };
        if self.input.is_empty() || self.input == ["-"] {
            if io::stdin().is_terminal() && !output.is_json() {
                say!("paste what was printed, then press Ctrl-D");
            }
            let mut input = Vec::new();
            io::stdin().read_to_end(&mut input).map_err(failed("standard input"))?;
            return Ok(input);
        }
        if !self.input.iter().any(|input| Path::new(input).exists()) {
            // A single word that looks like a file name names a missing file.
            if let [only] = &self.input[..] {
                if !only.contains(char::is_whitespace) && only.contains(['/', '.']) {
                    return Err(failed(only)(io::ErrorKind::NotFound.into()));
                }
            }
            return Ok(self.input.join(" ").into_bytes());
        }
        let mut all = Vec::new();
        for input in &self.input {
            all.extend(fs::read(input).map_err(failed(input))?);
        }
        Ok(all)
    }
}
