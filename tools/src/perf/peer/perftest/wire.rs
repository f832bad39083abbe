//! The steps of perftest's exchange: so many bytes there, and as many back.

use std::time::{Duration, Instant};

use crate::outcome::{Error, Result};
use crate::perf::session::stream::{Received, Stream, gone};

/// How long the server is listened to while messages flow, before the threads are looked at again.
const TURN: Duration = Duration::from_millis(10);

/// A connection to a server of perftest.
#[derive(Debug)]
pub(super) struct Wire {
    stream: Stream,
    program: &'static str,
}

impl Wire {
    /// Connects to the server, which has to be this program.
    pub(super) fn connect(host: &str, port: u16, program: &'static str) -> Result<Wire> {
        Ok(Wire::on(Stream::connect(host, port, program)?, program))
    }

    /// Speaks on a connection.
    pub(super) fn on(stream: Stream, program: &'static str) -> Wire {
        Wire { stream, program }
    }

    /// Writes bytes, and reads as many.
    pub(super) fn exchange<const N: usize>(
        &mut self,
        mine: &[u8; N],
        what: &str,
    ) -> Result<[u8; N]> {
        self.stream.write(mine).map_err(|error| self.missing(what, 0, N, &error))?;
        self.read(what)
    }

    /// Reads bytes.
    fn read<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        match self.fill(&mut bytes, what)? {
            there if there == N => Ok(bytes),
            there => Err(self.missing(what, there, N, &gone())),
        }
    }

    /// Reads the last bytes before the end of the connection, `N` at most. Returns their number, too.
    pub(super) fn read_last<const N: usize>(&mut self, what: &str) -> Result<([u8; N], usize)> {
        let mut bytes = [0; N];
        let there = self.fill(&mut bytes, what)?;
        Ok((bytes, there))
    }

    /// Fills the buffer, unless the connection ends earlier. Returns the number of bytes.
    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<usize> {
        let deadline = Instant::now() + self.stream.patience();
        let wanted = bytes.len();
        let mut there = 0;
        while there < wanted {
            let received = self.stream.read(&mut bytes[there..], deadline);
            match received.map_err(|error| self.missing(what, there, wanted, &error))? {
                Received::Bytes(count) => there += count,
                Received::End => break,
                Received::Nothing => {
                    let silent = format!("silent for {:?}", self.stream.patience());
                    return Err(self.missing(what, there, wanted, &Error::Told(silent)));
                }
            }
        }
        Ok(there)
    }

    /// Fails if the server says something, or is gone.
    pub(super) fn stays_silent(&mut self) -> Result<()> {
        let mut byte = [0];
        match self.stream.read(&mut byte, Instant::now() + TURN)? {
            Received::Nothing => Ok(()),
            Received::End => Err(gone()),
            Received::Bytes(_) => Err(self.wrong("it says something while messages flow")),
        }
    }

    /// Returns the error for an answer that is wrong.
    pub(super) fn wrong(&self, why: &str) -> Error {
        let (peer, program) = (self.stream.peer(), self.program);
        Error::Told(format!("{peer} does not speak as {program} of perftest does: {why}"))
    }

    /// Returns the error for an answer that is missing.
    fn missing(&self, what: &str, there: usize, wanted: usize, error: &Error) -> Error {
        let (peer, program) = (self.stream.peer(), self.program);
        Error::Told(format!(
            "{peer} told {there} of the {wanted} bytes of its {what}: {error}; the server has to be \
             {program}, with the same -q and without -R, -b and -c, and with -x only where this side \
             uses a GID"
        ))
    }
}
