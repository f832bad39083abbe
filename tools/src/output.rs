//! Prints reports on standard output, and everything else on standard error.
//!
//! Much of the output comes from untrusted sources: peers, process names, recordings, system files.
//! So all output passes [`Filtered`], which replaces the characters that a terminal interprets. No
//! other module opens a standard stream; clippy enforces this (`clippy.toml`). [`Page`] puts the
//! command's own colours around filtered text.

use std::borrow::Cow;
use std::fmt::{self, Display, Write as _};
use std::io::{self, IsTerminal as _, Write};
use std::process::Stdio;

use serde::Serialize;

use crate::bed;
use crate::options::{Options, Subject};
use crate::outcome::{Error, Result};

/// The destination and form of reports.
#[derive(Clone, Debug)]
pub struct Output {
    json: bool,
    subject: Subject,
}

/// The JSON object around each report.
#[derive(Serialize)]
struct Envelope<'a, R> {
    command: &'a str,
    version: &'static str,
    /// The result of [`bed::runs_on`]; `None` for a command about texts.
    runs_on: Option<&'static str>,
    /// The profile of the model, and where its values are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'static str>,
    /// Why the command could not run, though there is a report.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    report: &'a R,
}

#[derive(Serialize)]
struct Failed {
    error: String,
}

impl Output {
    /// Creates an output by the options.
    #[must_use]
    pub fn new(options: &Options, subject: Subject) -> Output {
        Output { json: options.json, subject }
    }

    /// Returns whether the output is for programs: then nothing is printed before the report.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints the report of a command: its text, or JSON with the kind of device it ran on.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn report<R: Serialize + Display>(&self, command: &str, report: &R) -> Result<()> {
        if self.json {
            return self.enveloped(command, report, None);
        }
        let mut out = stdout(Form::Text);
        writeln!(out, "{report}").and_then(|()| out.flush()).map_err(Error::Output)
    }

    /// Begins reports on devices: if the devices are the model's, two lines say so, with its profile.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn begin(&self) -> Result<()> {
        let Some(profile) = bed::profile().filter(|_| !self.json) else { return Ok(()) };
        let line = "the model, a software ConnectX; this is no device of this machine";
        let mut out = stdout(Form::Text);
        writeln!(out, "{line}\n{profile}").and_then(|()| out.flush()).map_err(Error::Output)
    }

    /// Prints a report whose text has colours.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn page<R: Serialize>(&self, command: &str, report: &R, page: &Page) -> Result<()> {
        if self.json {
            return self.enveloped(command, report, None);
        }
        print_page(page)
    }

    /// Prints why the command could not run: the report on standard output, with the error in JSON,
    /// and the error on standard error.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub fn unable<R: Serialize>(
        &self,
        command: &str,
        report: &R,
        page: &Page,
        error: &Error,
    ) -> Result<()> {
        say!("{error}");
        match self.json {
            true => self.enveloped(command, report, Some(error.to_string())),
            false => print_page(page),
        }
    }

    fn enveloped<R: Serialize>(
        &self,
        command: &str,
        report: &R,
        error: Option<String>,
    ) -> Result<()> {
        self.json(&Envelope {
            command,
            version: env!("CARGO_PKG_VERSION"),
            runs_on: match self.subject {
                Subject::Texts => None,
                _ => bed::runs_on(),
            },
            profile: match self.subject {
                // A replay is on devices like the recorded ones, and says so itself.
                Subject::Texts | Subject::Model => None,
                Subject::Device | Subject::DeviceOrModel => bed::profile(),
            },
            error,
            report,
        })
    }

    /// Prints one JSON value on one line, or on several lines if a person may read it.
    fn json<T: Serialize>(&self, value: &T) -> Result<()> {
        write_json(value).map_err(Error::Output)
    }

    /// Reports why the command failed: on standard error, and in JSON on standard output too.
    pub fn failed(&self, error: &Error) {
        say!("{error}");
        if self.json {
            failed_in_json(&error.to_string());
        }
    }
}

/// Prints why the command failed, for programs. The caller prints the text.
pub fn failed_in_json(error: &str) {
    // The exit status reports the failure as well.
    let _ = write_json(&Failed { error: error.trim_end().to_owned() });
}

fn write_json<T: Serialize>(value: &T) -> io::Result<()> {
    let mut out = stdout(Form::Json);
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)?;
    out.flush()
}

/// The replacement of a character that a terminal interprets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// U+FFFD, which has the same width.
    Text,
    /// A JSON escape: programs get the original character.
    Json,
}

/// Returns whether a terminal interprets a character instead of showing it, or reorders others
/// because of it: controls except newline and tab, and controls of writing direction.
fn is_obeyed(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        other => other.is_control(),
    }
}

/// Returns text without characters that a terminal interprets.
pub fn plain(text: &str, form: Form) -> Cow<'_, str> {
    if !text.chars().any(is_obeyed) {
        return text.into();
    }
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        match form {
            _ if !is_obeyed(character) => plain.push(character),
            Form::Text => plain.push(char::REPLACEMENT_CHARACTER),
            // All of these characters are in the basic plane. Writing to a string cannot fail.
            Form::Json => _ = write!(plain, "\\u{:04x}", u32::from(character)),
        }
    }
    plain.into()
}

/// Returns a number with its noun: `1 message`, `2 messages`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Returns bytes in hex, for programs.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A stream that removes characters that a terminal interprets. Bytes that are not UTF-8 become
/// U+FFFD, since some terminals take them for controls.
#[derive(Debug)]
pub struct Filtered<W: Write> {
    to: W,
    form: Form,
    /// The start of a character whose other bytes were not written yet.
    begun: Vec<u8>,
}

impl<W: Write> Filtered<W> {
    /// Creates a filter that writes to `to`.
    pub fn new(to: W, form: Form) -> Filtered<W> {
        Filtered { to, form, begun: Vec::new() }
    }
}

impl<W: Write> Write for Filtered<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let all: Cow<'_, [u8]> = match self.begun.is_empty() {
            true => bytes.into(),
            false => [&std::mem::take(&mut self.begun), bytes].concat().into(),
        };
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.to.write_all(plain(chunk.valid(), self.form).as_bytes())?;
            let invalid = chunk.invalid();
            // Only an incomplete character at the end is an error without a length.
            let may_go_on = chunks.peek().is_none()
                && std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if may_go_on {
                self.begun = invalid.to_vec();
            } else if !invalid.is_empty() {
                self.to.write_all("\u{fffd}".as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

impl<W: Write> Drop for Filtered<W> {
    fn drop(&mut self) {
        if !self.begun.is_empty() {
            // A caller that must know whether this was written flushes first.
            let _ = self.to.write_all("\u{fffd}".as_bytes());
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the place")]
fn standard_output() -> io::Stdout {
    io::stdout()
}

#[expect(clippy::disallowed_methods, reason = "this is the place")]
fn standard_error() -> io::Stderr {
    io::stderr()
}

/// Opens standard output.
pub fn stdout(form: Form) -> Filtered<io::Stdout> {
    Filtered::new(standard_output(), form)
}

/// Opens standard error.
pub fn stderr(form: Form) -> Filtered<io::Stderr> {
    Filtered::new(standard_error(), form)
}

/// Returns standard error, for the output of a started program.
pub fn stderr_of_programs() -> Stdio {
    standard_error().into()
}

/// Returns whether standard output is a terminal.
pub fn is_stdout_terminal() -> bool {
    standard_output().is_terminal()
}

/// Returns the columns of the terminal that standard output is.
pub fn columns() -> Option<usize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call fills `size`.
    let failed = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) } != 0;
    // A terminal that does not know its size says 0.
    (!failed && size.ws_col != 0).then_some(size.ws_col.into())
}

/// Returns whether standard error is a terminal.
pub fn is_stderr_terminal() -> bool {
    standard_error().is_terminal()
}

/// Prints a line on standard error, after the command's name.
pub fn line(text: fmt::Arguments<'_>) {
    // Written in one piece, so that it does not mix with lines of others. A failure cannot be
    // reported.
    let _ = stderr(Form::Text).write_all(format!("mlx5: {text}\n").as_bytes());
}

/// Prints a line on standard error, by [`line`](crate::output::line).
macro_rules! say {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// Prints a page on standard output, in colours where a person reads.
fn print_page(page: &Page) -> Result<()> {
    let is_coloured =
        is_stdout_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    page.print(&mut standard_output(), is_coloured).map_err(Error::Output)
}

/// A text with colours.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Text, and parameters of SGR (ANSI), which are the command's own.
    pieces: Vec<(String, Option<&'static str>)>,
}

impl Page {
    /// Adds text.
    pub fn put(&mut self, text: impl Display) {
        self.pieces.push((text.to_string(), None));
    }

    /// Adds text in a colour.
    pub fn paint(&mut self, text: impl Display, color: &'static str) {
        self.pieces.push((text.to_string(), Some(color)));
    }

    /// Prints the text and a newline.
    fn print(&self, to: &mut impl Write, is_coloured: bool) -> io::Result<()> {
        for (text, color) in &self.pieces {
            let text = plain(text, Form::Text);
            match color.filter(|_| is_coloured) {
                Some(color) => write!(to, "\x1b[{color}m{text}\x1b[0m")?,
                None => write!(to, "{text}")?,
            }
        }
        writeln!(to)?;
        to.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filtered(pieces: &[&[u8]], form: Form) -> String {
        let mut out = Vec::new();
        let mut filter = Filtered::new(&mut out, form);
        pieces.iter().for_each(|piece| filter.write_all(piece).unwrap());
        drop(filter);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn controls_are_replaced_and_lines_and_tabs_are_not() {
        let text = "a\tb\n\u{1b}]0;x\u{7}\r\u{7f}\u{9b}31m\u{202e}é";
        assert_eq!(
            filtered(&[text.as_bytes()], Form::Text),
            "a\tb\n\u{fffd}]0;x\u{fffd}\u{fffd}\u{fffd}\u{fffd}31m\u{fffd}é"
        );
        let json = serde_json::to_string(text).unwrap();
        let json = filtered(&[json.as_bytes()], Form::Json);
        assert!(!json.chars().any(is_obeyed), "{json}");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }

    #[test]
    fn a_noun_is_plural_unless_it_is_one() {
        let shown = [0, 1, 2].map(|count| counted(count, "point"));
        assert_eq!(shown, ["0 points", "1 point", "2 points"]);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(filtered(&[b"a\x9b31m\xff", b"b"], Form::Text), "a\u{fffd}31m\u{fffd}b");
        assert_eq!(filtered(&[b"a\xe2\x82"], Form::Text), "a\u{fffd}");
    }

    #[test]
    fn colours_are_around_text_and_only_where_a_person_reads() {
        let mut page = Page::default();
        page.put("a\u{1b}[31m");
        page.paint("b\u{1b}", "32");
        let print = |is_coloured| {
            let mut out = Vec::new();
            page.print(&mut out, is_coloured).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(print(true), "a\u{fffd}[31m\u{1b}[32mb\u{fffd}\u{1b}[0m\n");
        assert_eq!(print(false), "a\u{fffd}[31mb\u{fffd}\n");
    }

    proptest! {
        #[test]
        fn however_text_is_cut_it_comes_out_the_same(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            text in ".{0,20}",
            cut in 0usize..60,
        ) {
            for bytes in [&bytes[..], text.as_bytes()] {
                let (first, second) = bytes.split_at(cut.min(bytes.len()));
                let whole = filtered(&[bytes], Form::Text);
                prop_assert!(!whole.chars().any(is_obeyed));
                prop_assert_eq!(filtered(&[first, second], Form::Text), whole);
            }
        }
    }
}
