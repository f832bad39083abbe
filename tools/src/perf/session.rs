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

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use serde::Deserialize;

pub use self::lines::{Account, Back, End, Say, account, endpoints, fits, invitation};

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

/// A connection to the other side.
#[derive(Debug)]
pub struct Session {
    stream: TcpStream,
    peer: SocketAddr,
    /// The received part of the next line.
    heard: Vec<u8>,
    /// The time limit of the other side for one step.
    patience: Duration,
    /// Whether the other side closed the connection between two lines.
    over: bool,
}

impl Session {
    /// Connects to a server.
    ///
    /// # Errors
    /// Returns which address does not answer, and what to do.
    pub fn connect(host: &str, port: u16) -> Result<Session> {
        let cannot = |error: io::Error| {
            let cure = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    "; nobody listens there: is `mlx5 perf server` running?"
                }
                _ => "",
            };
            Error::Told(format!("cannot connect to {host} port {port}: {error}{cure}"))
        };
        let mut last = io::ErrorKind::NotFound.into();
        for address in (host, port).to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(stream) => return Session::new(stream, address, PATIENCE),
                Err(error) => last = error,
            }
        }
        Err(cannot(last))
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

    fn new(stream: TcpStream, peer: SocketAddr, patience: Duration) -> Result<Session> {
        // Short lines in turn: coalescing writes would cost 40 ms each.
        stream.set_nodelay(true).map_err(broken)?;
        keep_alive(&stream, patience).map_err(broken)?;
        Ok(Session { stream, peer, heard: Vec::new(), patience, over: false })
    }

    /// Returns the time limit of the other side for one step.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Returns the other side's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
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
        self.tell(&Say::Hello { version: VERSION, environment: Box::new(mine.clone()) })?;
        let line = self.line(self.patience)?.ok_or_else(|| self.silent("greeting"))?;
        // In another version, only the version number has a known meaning.
        #[derive(Deserialize)]
        struct Greeting {
            version: u32,
        }
        if let Ok(Say::Refused { why }) = serde_json::from_slice(&line) {
            return Err(gave_up(&why));
        }
        let greeting: Greeting = serde_json::from_slice(&line).map_err(|_| {
            Error::Told(format!("{} does not speak as `mlx5 perf` does", self.peer))
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
        self.write(&line)
    }

    /// Reports that messages still flow. Allocates nothing.
    ///
    /// # Errors
    /// Fails if the other side is gone.
    pub fn going(&mut self) -> Result<()> {
        self.write(GOING_LINE)
    }

    /// Writes a line, which the other side must accept within its time limit.
    fn write(&mut self, mut line: &[u8]) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        while !line.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Told(format!(
                    "the peer took no line within {:?}: is it stopped?",
                    self.patience
                )));
            }
            self.stream.set_write_timeout(Some(left)).map_err(broken)?;
            match self.stream.write(line) {
                Ok(0) => return Err(gone()),
                Ok(count) => line = &line[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Receives one line.
    ///
    /// # Errors
    /// Returns why the other side refused, or that it is gone or did not answer in time.
    pub fn hear(&mut self, what: &str) -> Result<Say> {
        self.hear_within(self.patience)?.ok_or_else(|| self.silent(what))
    }

    /// Returns the error for a missing line.
    #[must_use]
    pub fn silent(&self, what: &str) -> Error {
        Error::Told(format!("no {what} from the peer within {:?}: is it stopped?", self.patience))
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
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.stream.set_read_timeout(Some(left)).map_err(broken)?;
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    self.over = self.heard.is_empty();
                    return Err(gone());
                }
                Ok(count) => self.heard.extend(&bytes[..count]),
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
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

/// Makes the kernel detect a dead peer machine within about `patience`.
fn keep_alive(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    // The first probe is sent after a third of it, the second and last after another third.
    let seconds = (patience.as_secs() / 3).clamp(1, 3600) as libc::c_int;
    // Later than this side's own limit, whose error is more specific.
    let milliseconds = (2 * patience.as_millis()).min(i32::MAX as u128) as libc::c_int;
    for (level, option, value) in [
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, seconds),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, seconds),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 2),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, milliseconds),
    ] {
        let length = size_of_val(&value) as libc::socklen_t;
        // SAFETY: the value is an `int` of the given size.
        let set = unsafe {
            libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const value).cast(), length)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn gone() -> Error {
    Error::Told(
        "the peer closed the connection in the middle: it ended or was killed; its own message \
         says why"
            .to_owned(),
    )
}

fn broken(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => gone(),
        _ => Error::Told(format!("the connection to the peer broke: {error}")),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests;
