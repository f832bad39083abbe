//! A TCP connection to the other side, on which every step has a time limit.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::outcome::{Error, Result};

/// A connection to the other side.
#[derive(Debug)]
pub struct Stream {
    pub(super) tcp: TcpStream,
    peer: SocketAddr,
    /// The time limit of the other side for one step.
    patience: Duration,
}

/// The outcome of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// The other side closed the connection.
    End,
    /// The time is over.
    Nothing,
}

impl Stream {
    /// Connects to a server. `program` is the one that should listen there.
    ///
    /// # Errors
    /// Returns which address does not answer, and what to do.
    pub fn connect(host: &str, port: u16, program: &str) -> Result<Stream> {
        let cannot = |error: io::Error| {
            let cure = match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    format!("; nobody listens there: is `{program}` running?")
                }
                _ => String::new(),
            };
            Error::Told(format!("cannot connect to {host} port {port}: {error}{cure}"))
        };
        let mut last = io::ErrorKind::NotFound.into();
        for address in (host, port).to_socket_addrs().map_err(cannot)? {
            match TcpStream::connect_timeout(&address, PATIENCE) {
                Ok(tcp) => return Stream::new(tcp, address, PATIENCE),
                Err(error) => last = error,
            }
        }
        Err(cannot(last))
    }

    /// Takes over a connection.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn new(tcp: TcpStream, peer: SocketAddr, patience: Duration) -> Result<Stream> {
        // Short lines in turn: coalescing writes would cost 40 ms each.
        tcp.set_nodelay(true).map_err(broken)?;
        keep_alive(&tcp, patience).map_err(broken)?;
        Ok(Stream { tcp, peer, patience })
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

    /// Writes bytes, which the other side must accept within its time limit. Allocates nothing.
    ///
    /// # Errors
    /// Fails if the other side is gone, or takes nothing.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let deadline = Instant::now() + self.patience;
        while !bytes.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Error::Told(format!(
                    "the peer took no line within {:?}: is it stopped?",
                    self.patience
                )));
            }
            self.tcp.set_write_timeout(Some(left)).map_err(broken)?;
            match self.tcp.write(bytes) {
                Ok(0) => return Err(gone()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Reads the bytes that are there, and waits for the first until `deadline`.
    ///
    /// # Errors
    /// Fails if the connection is broken.
    pub fn read(&mut self, into: &mut [u8], deadline: Instant) -> Result<Received> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Received::Nothing);
            }
            self.tcp.set_read_timeout(Some(left)).map_err(broken)?;
            match self.tcp.read(into) {
                Ok(0) => return Ok(Received::End),
                Ok(count) => return Ok(Received::Bytes(count)),
                Err(error) if is_timeout(&error) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(error)),
            }
        }
    }
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

/// Returns the error for a connection that ended.
pub fn gone() -> Error {
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
