//! The input: files, standard input, or the arguments themselves, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal as _, Read};
use std::os::fd::{AsRawFd as _, RawFd};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::outcome::{Error, Result};
use crate::output::{Output, say};

/// Longest line that is read in one piece.
const LONGEST: u64 = 1 << 20;

/// Time between two looks at a file that may grow.
const PAUSE: Duration = Duration::from_millis(250);

/// The action at the end of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtEnd {
    /// It is the end.
    Stop,
    /// More may come: wait for it.
    Wait,
}

/// The next piece of an input.
#[derive(Debug)]
pub(super) enum Next {
    /// A line with its end, or the last one without.
    Line(Vec<u8>),
    /// Nothing has come for a while.
    Idle,
    /// The end.
    End,
}

/// A source of text.
pub(super) struct Input {
    /// Its name for records, if there are several.
    pub(super) name: Option<String>,
    what: String,
    reader: BufReader<Box<dyn Read>>,
    /// The descriptor of a pipe, which tells whether more has come.
    pipe: Option<RawFd>,
    at_end: AtEnd,
    partial: Vec<u8>,
}

impl Input {
    fn new(what: String, reader: Box<dyn Read>, at_end: AtEnd) -> Input {
        let reader = BufReader::with_capacity(1 << 16, reader);
        Input { name: None, what, reader, pipe: None, at_end, partial: Vec::new() }
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> Error + use<> {
        let what = format!("cannot read {}", self.what);
        move |error| Error::File { what, error }
    }

    /// Reads the next line.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn next(&mut self) -> Result<Next> {
        if self.at_end == AtEnd::Wait && self.reader.buffer().is_empty() {
            if let Some(pipe) = self.pipe {
                if !is_ready(pipe) {
                    return Ok(Next::Idle);
                }
            }
        }
        let mut limited = self.reader.by_ref().take(LONGEST);
        let read = limited.read_until(b'\n', &mut self.partial);
        let read = read.map_err(self.failed())?;
        if self.partial.ends_with(b"\n") || self.partial.len() as u64 >= LONGEST {
            return Ok(Next::Line(std::mem::take(&mut self.partial)));
        }
        match (self.at_end, self.pipe) {
            // A file may grow. The start of a line waits for its end.
            (AtEnd::Wait, None) => {
                thread::sleep(PAUSE);
                Ok(Next::Idle)
            }
            (AtEnd::Wait, Some(_)) if read > 0 => Ok(Next::Idle),
            _ if self.partial.is_empty() => Ok(Next::End),
            _ => Ok(Next::Line(std::mem::take(&mut self.partial))),
        }
    }

    /// Reads all that is left.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(super) fn rest(&mut self) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        self.reader.read_to_end(&mut all).map_err(self.failed())?;
        Ok(all)
    }
}

/// Returns whether a read of a pipe would not wait.
fn is_ready(pipe: RawFd) -> bool {
    let mut entry = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
    // SAFETY: the entry is valid for reads and writes, and there is one of them.
    let count = unsafe { libc::poll(&mut entry, 1, PAUSE.as_millis() as libc::c_int) };
    // An error is reported by the read.
    count != 0
}

/// Opens the files, else the arguments as text, else standard input.
///
/// # Errors
/// [`Error::File`]: a file cannot be opened.
pub(super) fn open(arguments: &[String], at_end: AtEnd, output: &Output) -> Result<Vec<Input>> {
    if arguments.is_empty() || arguments == ["-"] {
        if io::stdin().is_terminal() && !output.is_json() {
            say!("paste what was printed, then press Ctrl-D");
        }
        let input = Input::new("standard input".to_owned(), Box::new(io::stdin()), at_end);
        return Ok(vec![Input { pipe: Some(io::stdin().as_raw_fd()), ..input }]);
    }
    // A single word that looks like a file name names a missing file.
    let is_missing = match arguments {
        [only] => !only.contains(char::is_whitespace) && only.contains(['/', '.']),
        _ => false,
    };
    if !is_missing && !arguments.iter().any(|argument| Path::new(argument).exists()) {
        let text = arguments.join(" ").into_bytes();
        return Ok(vec![Input::new(
            "the arguments".to_owned(),
            Box::new(Cursor::new(text)),
            AtEnd::Stop,
        )]);
    }
    let each = |path: &String| {
        let failed = |error| Error::File { what: format!("cannot read {path}"), error };
        let file = File::open(path).map_err(failed)?;
        let name = (arguments.len() > 1).then(|| path.clone());
        Ok(Input { name, ..Input::new(path.clone(), Box::new(file), at_end) })
    };
    arguments.iter().map(each).collect()
}
