//! Checks a running program: each WQE is checked when the model fetches it, or when the program rings a
//! device of this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc::Receiver;

use mlx5_model::trace::ReadError;

use super::recording::Stream;
use super::report::Report;
use crate::bed;
use crate::outcome::{Error, Result};
use crate::output::say;
use crate::program::{Program, Stdout};
use crate::trace::run::{Message, Traced};

/// Runs the program and checks the WQEs that it posts. Findings go to standard error at once, as
/// does a failure of the program. The report is filled when the program ends. Returns its status.
pub(super) fn lint(
    words: &[OsString],
    named: Option<&Path>,
    strict: bool,
    report: &mut Report,
) -> Result<ExitStatus> {
    // The program's output must not mix with the report.
    let (bed, stdout) = (bed::of_programs()?, Stdout::Aside);
    let program = Program { words, library: named, bed, stdout };
    let traced = Traced { program, record: None };
    let (status, followed) = traced.run(|messages, _| follow(&messages, strict, report))?;
    if !status.success() {
        say!("the program ended with {status}");
    }
    match followed? {
        0 => Err(Error::Told(
            "the program opened no device; one that is linked statically, or has privileges of \
             its own (setuid), cannot be looked at"
                .to_owned(),
        )),
        processes => {
            report.of_processes(processes);
            Ok(status)
        }
    }
}

/// Checks the messages of all streams to their end. Returns the number of processes.
///
/// # Errors
/// Returns the first stream that cannot be read. The other streams are still checked.
fn follow(messages: &Receiver<Message>, strict: bool, report: &mut Report) -> Result<usize> {
    let mut streams: BTreeMap<usize, Stream> = BTreeMap::new();
    let mut processes = BTreeSet::new();
    let mut unreadable = Ok(());
    for message in messages {
        match message {
            Message::Began { stream, header, is_foreign } => {
                let process = header.process;
                if is_foreign {
                    say!("process {process} has another build of the model linked in");
                }
                processes.insert(process);
                streams.insert(stream, Stream::live(process, strict));
            }
            Message::Event { stream, event } => {
                if let Some(stream) = streams.get_mut(&stream) {
                    stream.event(event, report);
                }
            }
            Message::Ended { process, error } => {
                say!("process {process}: {error}");
                // A process that was killed while it wrote its stream, or before.
                let was_killed = matches!(error, ReadError::NoTrace | ReadError::Cut(_));
                if !was_killed && unreadable.is_ok() {
                    unreadable = Err(Error::Told(format!("process {process}: {error}")));
                }
            }
            Message::Recording(file, error) => {
                say!("cannot write {}: {error}", file.display());
            }
        }
    }
    for stream in streams.into_values() {
        stream.end(report);
    }
    unreadable.map(|()| processes.len())
}
