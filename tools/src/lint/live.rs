//! A program that is checked: it runs on the model, and each WQE is gone over as the card fetches it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::mpsc::Receiver;

use mlx5_model::trace::ReadError;

use super::recording::Stream;
use super::report::Report;
use crate::outcome::{Error, Result};
use crate::output::say;
use crate::trace::library;
use crate::trace::run::{Message, Program};

/// Runs the program, and goes over what it posts. What is found is said on standard error at once, and
/// how the program ended, if not well; the report is filled to its end.
pub(super) fn lint(
    words: &[OsString],
    named: Option<&Path>,
    strict: bool,
    report: &mut Report,
) -> Result<()> {
    let library = library::find(named)?;
    // What the program prints is not the report.
    let program = Program { words, library: &library, record: None, is_aside: true };
    let (status, followed) = program.run(|messages, _| follow(&messages, strict, report))?;
    if !status.success() {
        say!("the program ended with {status}");
    }
    match followed? {
        0 => Err(Error::Told(
            "the program opened no device of the model; one that is linked statically, or has \
             privileges of its own (setuid), cannot be looked at"
                .to_owned(),
        )),
        processes => {
            report.of_processes(processes);
            Ok(())
        }
    }
}

/// Goes over what comes, to the end of all streams; says how many processes there were.
///
/// # Errors
/// The first stream that cannot be read; the others are gone over all the same.
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
                // One that was killed while it wrote, or before.
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
