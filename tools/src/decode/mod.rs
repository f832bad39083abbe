//! `mlx5 decode`: explains error output of drivers and programs.
//!
//! [`mlx5::diag::decode`] reads it. Here are the command line, the text for people (`show`), JSON
//! (`json`) and the table of all known codes (`table`).

mod json;
mod show;
mod table;

use std::fmt;
use std::fs;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::Path;

use clap::{Args, ValueEnum};
use mlx5::diag::decode::{self, BytesKind, DecodedRecord, FORMATS, Options, WordOrder};
use mlx5::diag::text::Addressing;
use serde::Serialize;

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
    #[arg(short, long, value_name = "KIND")]
    kind: Option<BytesKind>,
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
#[derive(Debug, Serialize)]
pub struct Report {
    /// The records, in the order of the text.
    #[serde(serialize_with = "json::records")]
    records: Vec<DecodedRecord>,
    /// The formats that could have been read, if no record was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reads: Vec<&'static str>,
}

impl Report {
    /// Creates the report on the records of an input.
    #[must_use]
    pub fn new(records: Vec<DecodedRecord>) -> Report {
        let reads = match records.is_empty() {
            true => FORMATS.iter().map(|format| format.reads).collect(),
            false => Vec::new(),
        };
        Report { records, reads }
    }
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
            words: match self.words {
                Words::Be => WordOrder::BigEndian,
                Words::Le => WordOrder::LittleEndian,
            },
        };
        let report = Report::new(match self.kind {
            Some(kind) => decode::bytes(&input, kind, options)
                .map_err(|error| Error::Told(error.to_string()))?,
            None => decode::text(&String::from_utf8_lossy(&input), options),
        });
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
