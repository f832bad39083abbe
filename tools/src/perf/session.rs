//! The session between client and server beside the measurement: lines of JSON over TCP.
//!
//! Each side sends [`Say::Hello`]. Then, for each point:
//! 1. The client sends its [`Plan`](crate::perf::plan::Plan).
//! 2. The server creates its queues and offers its endpoints, or refuses and says why.
//! 3. The client sends its endpoints, and the server reports that it is ready. With `--cm`, the client
//!    asks for connections by rdma_cm in between, where the server's offer invites it to.
//! 4. Messages flow. Every other second, the client reports that it still sends. Where both sides
//!    send, the server begins with the first of these reports.
//! 5. The client sends its number of messages, and the server the number that it saw. Where both
//!    sides send, the server stops then, and says what it has sent itself.
//!
//! The peer is not trusted. Lines have a length limit, unknown words are refused, every number is
//! checked where it is used, and every step has a time limit. TCP keepalive detects a peer whose
//! machine is gone.

mod lines;
pub mod stream;

use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde::Deserialize;

pub use self::lines::{Account, Back, End, Say, account, endpoints, fits, invitation};
use self::stream::{Received, Stream, gone};

use crate::outcome::{Error, Result};
use crate::output::say;
use crate::perf::result::environment::Environment;

/// The version of this exchange.
pub const VERSION: u32 = 5;
/// The longest line, in bytes.
const LIMIT: usize = 1 << 20;
/// Default time limit of the other side for one step.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two reports of a client that it still sends.
pub const GOING: Duration = Duration::from_secs(2);
/// [`Say::Going`], encoded.
const GOING_LINE: &[u8] = b"{\"say\":\"going\"}\n";

/// The cure of a client that met another kind of server.
const A_SERVER: &str = "; for a server of perftest, give `--peer perftest`";
/// The cure of a server that met another kind of client.
const A_CLIENT: &str = "; a client of perftest needs a server of perftest";

/// A connection to the other side.
#[derive(Debug)]
pub struct Session {
    stream: Stream,
    /// The received part of the next line.
    heard: Vec<u8>,
    /// Whether the other side closed the connection between two lines.
    over: bool,
    /// The cure if the other side is no `mlx5 perf` at all.
    otherwise: &'static str,
}

impl Session {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns which address does not answer, and what to do.
    pub fn connect(host: &str, port: u16) -> Result<Session> {
        Ok(Session::on(Stream::connect(host, port, "mlx5 perf server")?, A_SERVER))
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn accept(listener: &TcpListener, patience: Duration) -> Result<Session> {
        loop {
            match listener.accept() {
                // The client disconnected before it was accepted.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::Told(format!("cannot accept a connection: {error}")));
                }
                Ok((stream, peer)) => match Session::new(stream, peer, patience) {
                    Ok(session) => return Ok(session),
                    // Only this connection is broken.
                    Err(error) => say!("{peer}: {error}"),
                },
            }
        }
    }

    /// Takes over a connection.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new(stream: TcpStream, peer: SocketAddr, patience: Duration) -> Result<Session> {
        Ok(Session::on(Stream::new(stream, peer, patience)?, A_CLIENT))
    }

    fn on(stream: Stream, otherwise: &'static str) -> Session {
        Session { stream, heard: Vec::new(), over: false, otherwise }
    }

    /// Returns the time limit of the other side for one step.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.stream.patience()
    }

    /// Returns the other side's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.stream.peer()
    }

    /// Returns whether the other side closed the connection, without an incomplete line.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Exchanges greetings and environments.
    ///
    /// # Errors
    /// Fails if the peer does not speak this protocol, or is of another version.
    pub fn greet(&mut self, mine: &Environment) -> Result<Environment> {
        let hello = Say::Hello { version: VERSION, environment: Box::new(mine.clone()) };
        let first = self.tell(&hello).and_then(|()| self.line(self.patience()));
        let line = first
            .and_then(|line| line.ok_or_else(|| self.silent("greeting")))
            .map_err(|error| self.met_another(&error))?;
        // In another version, only the version number has a known meaning.
        #[derive(Deserialize)]
        struct Greeting {
            version: u32,
        }
        if let Ok(Say::Refused { why }) = serde_json::from_slice(&line) {
            return Err(gave_up(&why));
        }
        let greeting: Greeting = serde_json::from_slice(&line).map_err(|_| {
            self.met_another(&format!("{} does not speak as `mlx5 perf` does", self.peer()))
        })?;
        if greeting.version != VERSION {
            let why = format!(
                "the peer speaks version {} of the exchange, and this side {VERSION}: use the same \
                 build of `mlx5` on both",
                greeting.version
            );
            // The other side reports the same error.
            return Err(Error::Told(why));
        }
        match parse(&line)? {
            Say::Hello { environment, .. } => Ok(*environment),
            other => Err(unexpected(&other, "a greeting")),
        }
    }

    /// Adds to an error before the greeting what to do if the other side is a program of perftest.
    fn met_another(&self, error: &impl Display) -> Error {
        Error::Told(format!("{error}{}", self.otherwise))
    }

    /// Sends one line.
    ///
    /// # Errors
    /// Fails if the other side is gone.
    pub fn tell(&mut self, say: &Say) -> Result<()> {
        let mut line = serde_json::to_vec(say)
            .map_err(|error| Error::Told(format!("a line cannot be told: {error}")))?;
        line.push(b'\n');
        if line.len() > LIMIT {
            return Err(Error::Told("too many queue pairs to tell the peer of".to_owned()));
        }
        self.stream.write(&line)
    }

    /// Reports that messages still flow. Allocates nothing.
    ///
    /// # Errors
    /// Fails if the other side is gone.
    pub fn going(&mut self) -> Result<()> {
        self.stream.write(GOING_LINE)
    }

    /// Receives one line.
    ///
    /// # Errors
    /// Returns why the other side refused, or that it is gone or did not answer in time.
    pub fn hear(&mut self, what: &str) -> Result<Say> {
        self.hear_within(self.patience())?.ok_or_else(|| self.silent(what))
    }

    /// Returns the error for a missing line.
    #[must_use]
    pub fn silent(&self, what: &str) -> Error {
        Error::Told(format!("no {what} from the peer within {:?}: is it stopped?", self.patience()))
    }

    /// Receives one line, if one arrives within `time`.
    ///
    /// # Errors
    /// Returns why the other side refused, or that it is gone.
    pub fn hear_within(&mut self, time: Duration) -> Result<Option<Say>> {
        let Some(line) = self.line(time)? else { return Ok(None) };
        match parse(&line)? {
            Say::Refused { why } => Err(gave_up(&why)),
            say => Ok(Some(say)),
        }
    }

    fn line(&mut self, time: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Instant::now() + time;
        // The bytes before this index contain no line end.
        let mut looked = 0;
        loop {
            let end = self.heard[looked..].iter().position(|&byte| byte == b'\n');
            if let Some(end) = end.map(|end| looked + end) {
                let rest = self.heard.split_off(end + 1);
                self.heard.truncate(end);
                return Ok(Some(std::mem::replace(&mut self.heard, rest)));
            }
            looked = self.heard.len();
            if looked > LIMIT {
                return Err(Error::Told(format!(
                    "the peer's line is longer than {LIMIT} bytes: it is no `mlx5 perf`"
                )));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes, deadline)? {
                Received::Nothing => return Ok(None),
                Received::End => {
                    self.over = self.heard.is_empty();
                    return Err(gone());
                }
                Received::Bytes(count) => self.heard.extend(&bytes[..count]),
            }
        }
    }
}

fn parse(line: &[u8]) -> Result<Say> {
    serde_json::from_slice(line)
        .map_err(|error| Error::Told(format!("the peer says what nobody understands: {error}")))
}

fn gave_up(why: &str) -> Error {
    Error::Told(format!("the peer gave up: {why}"))
}

/// Returns the error for an unexpected line.
#[must_use]
pub fn unexpected(said: &Say, wanted: &str) -> Error {
    let said = match said {
        Say::Hello { .. } => "a greeting",
        Say::Plan { .. } => "a plan",
        Say::Ends { .. } => "its queue pairs",
        Say::Ready {} => "that it is ready",
        Say::Going {} => "that it still sends",
        Say::Finish { .. } => "that it is done",
        Say::Done { .. } => "what it saw",
        Say::Refused { .. } => "that it gives up",
    };
    Error::Told(format!("the peer tells {said}, and {wanted} is due"))
}

#[cfg(test)]
mod tests;
