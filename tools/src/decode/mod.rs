//! `mlx5 decode`: explains error output of drivers and programs.
//!
//! [`mlx5::diag::decode`] reads it. Here are the command line, the text for people (`show`), JSON
//! (`json`) and the table of all known codes (`table`).

mod input;
mod json;
mod show;
mod summary;
mod table;

use std::fmt;
use std::io::Write as _;
use std::path::Path;

use clap::{Args, ValueEnum};
use mlx5::diag::decode::{self, BytesKind, DecodedRecord, FORMATS, Options, Stream, WordOrder};
use mlx5::diag::explain::ExplainedCode;
use mlx5::diag::text::Addressing;
use mlx5_model::command::Refusal;
use serde::Serialize;

use self::input::{AtEnd, Input, Next};
use self::show::Shown;
use self::summary::Summary;
use self::table::Table;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{Form, Output, stdout};

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
    /// Files, the text itself, or bare codes such as 12 or 0x4bb88f [default: standard input]
    #[arg(value_name = "FILE|TEXT|CODE")]
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
    /// Print one entry for all errors that are alike: how often, of which host and queue pairs, when
    #[arg(short, long, conflicts_with_all = ["kind", "follow"])]
    summary: bool,
    /// Wait for more at the end of the input, as `tail -f` does
    #[arg(short, long, conflicts_with = "kind")]
    follow: bool,
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
  mlx5 decode 0x4bb88f
  mlx5 decode --summary job.*.log
  dmesg -w | mlx5 decode --follow
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

/// A record, with the name of its file if there are several.
#[derive(Clone, Debug)]
struct Found {
    file: Option<String>,
    record: DecodedRecord,
}

/// The records found in the input.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The records, in the order of the text.
    #[serde(serialize_with = "json::records")]
    records: Vec<Found>,
    /// The formats that could have been read, if no record was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reads: Vec<&'static str>,
    /// The lines that were looked at, if no record was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    looked: Option<Looked>,
}

/// Lines that were looked at.
#[derive(Clone, Debug, Default, Serialize)]
struct Looked {
    /// Their number.
    lines: usize,
    /// The first lines with a word of failure, with the name of their file if there are several.
    failing: Vec<String>,
}

/// Most lines with a word of failure that are named.
const NAMED: usize = 8;

/// Words of failure, in lower case.
const FAILED: [&str; 24] = [
    "error",
    "fail",
    "timeout",
    "timed out",
    "refused",
    "unable",
    "cannot",
    "couldn't",
    "could not",
    "can't",
    "not found",
    "no such",
    "not supported",
    "unsupported",
    "invalid",
    "denied",
    "reject",
    "abort",
    "missing",
    "unknown symbol",
    "disagrees",
    "panic",
    "bug:",
    "warning",
];

impl Looked {
    /// Adds the next line of an input, which has `number` in it.
    fn add(&mut self, file: Option<&str>, number: usize, line: &str) {
        self.lines += 1;
        if self.failing.len() == NAMED {
            return;
        }
        let lower = line.to_ascii_lowercase();
        if FAILED.iter().any(|word| lower.contains(word)) {
            let file = file.map(|file| format!("{file}:")).unwrap_or_default();
            self.failing.push(format!("{file}{number}"));
        }
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines {
            1 => write!(f, "1 line was read")?,
            lines => write!(f, "{lines} lines were read")?,
        }
        match &self.failing[..] {
            [] => write!(f, ", none with a word of failure."),
            failing => write!(f, "; words of failure are in: {}.", failing.join(", ")),
        }
    }
}

impl Report {
    /// Creates the report on the records of an input.
    #[must_use]
    pub fn new(records: Vec<DecodedRecord>) -> Report {
        Self::of(records.into_iter().map(|record| Found { file: None, record }).collect())
    }

    fn of(records: Vec<Found>) -> Report {
        let reads = match records.is_empty() {
            true => FORMATS.iter().map(|format| format.reads).collect(),
            false => Vec::new(),
        };
        Report { records, reads, looked: None }
    }

    /// Creates the report on lines without a record.
    fn nothing(looked: Looked) -> Report {
        Report { looked: Some(looked), ..Self::of(Vec::new()) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.records.is_empty() {
            match &self.looked {
                Some(looked) => writeln!(f, "Nothing was found that is known. {looked}")?,
                None => writeln!(f, "Nothing was found that is known.")?,
            }
            writeln!(f, "What is read:")?;
            for reads in &self.reads {
                writeln!(f, "  {reads}")?;
            }
            return write!(
                f,
                "Hex of anything else is read if its kind is given: --kind cqe, wqe, qpc …"
            );
        }
        let (mut text, mut shown) = (String::new(), Shown::default());
        for Found { file, record } in &self.records {
            shown.show(&mut text, file.as_deref(), std::slice::from_ref(record))?;
        }
        f.write_str(text.trim_end())
    }
}

/// The meanings of bare numbers.
#[derive(Debug, Serialize)]
struct Codes {
    codes: Vec<Code>,
}

#[derive(Debug, Serialize)]
struct Code {
    number: String,
    #[serde(serialize_with = "json::codes")]
    meanings: Vec<ExplainedCode>,
}

impl fmt::Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for Code { number, meanings } in &self.codes {
            text += &format!("{number}\n");
            if meanings.is_empty() {
                text += "   No public source was found about it.\n";
            }
            meanings.iter().try_for_each(|meaning| show::code(&mut text, meaning))?;
        }
        f.write_str(text.trim_end())
    }
}

/// Returns the value of an argument that is a bare code: `12` or `0x4bb88f`, and no file.
fn bare(argument: &String) -> Option<Code> {
    let value = match argument.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None if argument.starts_with('0')
            || !argument.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            return None;
        }
        None => argument.parse().ok()?,
    };
    let mut meanings = ExplainedCode::of_number(value);
    meanings.iter_mut().for_each(of_model);
    (!Path::new(argument).exists()).then(|| Code { number: argument.clone(), meanings })
}

/// Gives a syndrome of the model's own the sentence that the model has for it.
fn of_model(code: &mut ExplainedCode) {
    let number = code.code.rsplit_once("syndrome 0x").map(|(_, digits)| digits);
    let number = number.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    // Syndromes of devices are explained already, also where the model gives them.
    let own = number.filter(|number| number >> 16 == 0x5c).and_then(Refusal::from_syndrome);
    if let Some(refusal) = own {
        code.meaning = format!(
            "The model, a software ConnectX, refused: {refusal}. No device has this syndrome."
        );
    }
}

impl Arguments {
    /// Prints the records of the input.
    pub(crate) fn run(&self, output: &Output) -> Result {
        if self.table {
            output.report("decode", &Table::new())?;
            return Ok(Outcome::Good);
        }
        if self.follow && output.is_json() {
            return Err(Error::Told("--follow prints text: leave --json away".to_owned()));
        }
        if self.kind.is_none() && !self.input.is_empty() {
            if let Some(codes) = self.input.iter().map(bare).collect::<Option<Vec<Code>>>() {
                let known = codes.iter().any(|code| !code.meanings.is_empty());
                output.report("decode", &Codes { codes })?;
                return Ok(if known { Outcome::Good } else { Outcome::Bad });
            }
        }
        let at_end = if self.follow { AtEnd::Wait } else { AtEnd::Stop };
        let inputs = input::open(&self.input, at_end, output)?;
        match (self.kind, self.summary) {
            (Some(kind), _) => self.bytes(inputs, kind, output),
            (None, true) => self.summarize(inputs, output),
            (None, false) if output.is_json() => self.collect(inputs, output),
            (None, false) => self.print(inputs, output),
        }
    }

    fn options(&self) -> Options {
        Options {
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
        }
    }

    /// Decodes bytes of a given kind.
    fn bytes(&self, inputs: Vec<Input>, kind: BytesKind, output: &Output) -> Result {
        let mut all = Vec::new();
        for mut input in inputs {
            all.extend(input.rest()?);
        }
        let records = decode::bytes(&all, kind, self.options());
        let mut records = records.map_err(|error| Error::Told(error.to_string()))?;
        records.iter_mut().flat_map(|record| &mut record.findings).for_each(of_model);
        let report = Report::new(records);
        output.report("decode", &report)?;
        Ok(if report.records.is_empty() { Outcome::Bad } else { Outcome::Good })
    }

    /// Decodes the inputs one after the other, and gives each piece's records to `take`.
    fn decode(
        &self,
        inputs: Vec<Input>,
        mut take: impl FnMut(Option<&str>, Vec<DecodedRecord>) -> Result<()>,
    ) -> Result<Looked> {
        let mut looked = Looked::default();
        let mut take = |file: Option<&str>, mut records: Vec<DecodedRecord>| {
            let codes = records.iter_mut().flat_map(|record| &mut record.findings);
            codes.for_each(of_model);
            take(file, records)
        };
        for mut input in inputs {
            let mut stream = Stream::new(self.options());
            let mut number = 0;
            loop {
                let records = match input.next()? {
                    Next::Line(line) => {
                        let line = String::from_utf8_lossy(&line);
                        number += 1;
                        looked.add(input.name.as_deref(), number, &line);
                        stream.push(&line)
                    }
                    Next::Idle => stream.flush(),
                    Next::End => break,
                };
                take(input.name.as_deref(), records)?;
            }
            take(input.name.as_deref(), stream.flush())?;
        }
        Ok(looked)
    }

    /// Prints each piece's records as text, in memory that does not grow with the input.
    fn print(&self, inputs: Vec<Input>, output: &Output) -> Result {
        let mut shown = Shown::default();
        let mut outcome = Outcome::Bad;
        let looked = self.decode(inputs, |file, records| {
            if records.is_empty() {
                return Ok(());
            }
            outcome = Outcome::Good;
            let mut text = String::new();
            // Writing to a string cannot fail.
            let _ = shown.show(&mut text, file, &records);
            let mut out = stdout(Form::Text);
            out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Output)
        })?;
        if outcome == Outcome::Bad {
            output.report("decode", &Report::nothing(looked))?;
        }
        Ok(outcome)
    }

    /// Prints one JSON value of all records.
    fn collect(&self, inputs: Vec<Input>, output: &Output) -> Result {
        let mut all = Vec::new();
        let looked = self.decode(inputs, |file, records| {
            let file = file.map(str::to_owned);
            all.extend(records.into_iter().map(|record| Found { file: file.clone(), record }));
            Ok(())
        })?;
        let report = if all.is_empty() { Report::nothing(looked) } else { Report::of(all) };
        output.report("decode", &report)?;
        Ok(if report.records.is_empty() { Outcome::Bad } else { Outcome::Good })
    }

    /// Prints one entry for all errors that are alike.
    fn summarize(&self, inputs: Vec<Input>, output: &Output) -> Result {
        let mut summary = Summary::default();
        let looked = self.decode(inputs, |file, records| {
            summary.add(file, &records);
            Ok(())
        })?;
        if summary.is_empty() {
            output.report("decode", &Report::nothing(looked))?;
            return Ok(Outcome::Bad);
        }
        output.report("decode", &summary)?;
        Ok(Outcome::Good)
    }
}
