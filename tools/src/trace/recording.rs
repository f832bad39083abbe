//! Reads streams: from a file, or live with a copy to a file.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::ops::ControlFlow;
use std::path::Path;

use mlx5_model::capture::{self, ExportError};
use mlx5_model::trace::{Detail, Header, ReadError, Reader};

use super::filter::Filter;
use super::line::{Place, Style};
use super::print::Printer;
use super::story::Story;
use crate::outcome::{Error, Outcome, Result};
use crate::output::{counted, say};

/// Opens a recording.
pub(crate) fn open(file: &Path) -> Result<Reader<BufReader<File>>> {
    let told = |error: ReadError| Error::Told(format!("{}: {error}", file.display()));
    let opened = File::open(file)
        .map_err(|error| Error::File { what: format!("cannot read {}", file.display()), error })?;
    Reader::new(BufReader::new(opened)).map_err(told)
}

/// Shows a recording.
pub(super) fn show(file: &Path, filter: &Filter, style: Style, mut printer: Printer) -> Result {
    let reader = open(file)?;
    if let Some(profile) = profile(reader.header()) {
        let file = file.display();
        say!("on the model, a software ConnectX ({profile}): {file} was recorded there");
    }
    let told = tell(reader, filter, style, |line| {
        printer.line(line);
        if printer.has_failed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    match told {
        Ok(()) => {}
        Err(error @ ReadError::Cut(_)) => say!("{}: {error}", file.display()),
        Err(error) => {
            printer.finish()?;
            return Err(Error::Told(format!("{}: {error}", file.display())));
        }
    }
    printer.finish()?;
    Ok(Outcome::Good)
}

/// Returns the profile of the model that was recorded, and where its values are from; `None` of a
/// recording of a device.
pub(crate) fn profile(header: &Header) -> Option<&'static str> {
    let card = header.cards.first().filter(|_| header.detail != Detail::Observed)?;
    Some(card.profile.summary())
}

/// Writes the packets of a recording to a pcapng file.
pub(super) fn export(file: &Path, to: &Path) -> Result {
    let reader = open(file)?;
    let failed =
        |error: io::Error| Error::File { what: format!("cannot write {}", to.display()), error };
    let mut output = BufWriter::new(File::create(to).map_err(failed)?);
    let exported = capture::export(reader, &mut output);
    output.flush().map_err(failed)?;
    match exported {
        Ok(count) => say!("{}: {}", to.display(), counted(count, "packet")),
        Err(ExportError::Write(error)) => return Err(failed(error)),
        // The packets before were written.
        Err(ExportError::Read(error @ ReadError::Cut(_))) => say!("{}: {error}", file.display()),
        Err(ExportError::Read(error)) => {
            return Err(Error::Told(format!("{}: {error}", file.display())));
        }
    }
    Ok(Outcome::Good)
}

/// Passes each line of a recording that the filter selects, until the recording ends or `line`
/// breaks.
///
/// # Errors
/// Fails if the recording cannot be read on. The lines before were passed.
pub(super) fn tell<R: Read>(
    reader: Reader<R>,
    filter: &Filter,
    style: Style,
    mut line: impl FnMut(&str) -> ControlFlow<()>,
) -> std::result::Result<(), ReadError> {
    let header = reader.header();
    let place = Place { process: header.process, is_one_of_several: false, begins: 0 };
    let mut story = Story::new(header.cards.iter().map(|card| card.link).collect(), style);
    story.tell_packets(filter.wants_packets());
    for event in reader.events() {
        let Some(told) = story.tell(&event?).filter(|line| filter.passes(line)) else { continue };
        if line(&told.render(place, style)).is_break() {
            break;
        }
    }
    Ok(())
}

/// A stream that is read and copied to a file.
pub(super) struct Copied<R> {
    from: R,
    to: Option<File>,
}

impl<R: Read> Copied<R> {
    pub fn new(from: R, to: Option<File>) -> Copied<R> {
        Copied { from, to }
    }
}

impl<R: Read> Read for Copied<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(bytes)?;
        if let Some(file) = &mut self.to {
            if let Err(error) = file.write_all(&bytes[..count]) {
                say!("the recording ends here: {error}");
                self.to = None;
            }
        }
        Ok(count)
    }
}
