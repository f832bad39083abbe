//! The exchange over TCP.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::message::{self, ConnectionData, HEADER, Kind};
use crate::error::ConnectError;
use crate::ring::deadline;
use crate::verbs::wait_readable;

type Result<T> = std::result::Result<T, ConnectError>;

/// Waits for peers.
///
/// See the example on [`Connection`].
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
}

impl Listener {
    /// Listens on an address; port 0 lets the system choose one, which
    /// [`local_address`](Self::local_address) tells.
    ///
    /// # Errors
    /// [`ConnectError::Listen`].
    pub fn bind(address: impl ToSocketAddrs + Display) -> Result<Listener> {
        let listen = |error| ConnectError::Listen { address: address.to_string(), error };
        let listener = TcpListener::bind(&address).map_err(listen)?;
        // Waiting is by poll with a timeout; a peer that is gone again must not block the accept.
        listener.set_nonblocking(true).map_err(listen)?;
        Ok(Listener { listener })
    }

    /// Returns the address, with the port that the system chose.
    ///
    /// # Errors
    /// [`ConnectError::Io`].
    pub fn local_address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(ConnectError::Io)
    }

    /// Waits for the next peer. `timeout` is for this, and for each exchange on the connection.
    ///
    /// # Errors
    /// [`ConnectError::TimedOut`], [`ConnectError::Io`]. The listener can accept again after any.
    pub fn accept(&self, timeout: Duration) -> Result<Connection> {
        let deadline = deadline(timeout);
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Connection::new(stream, timeout),
                Err(error) if is_timeout(&error) => {
                    let ready = wait_readable(self.listener.as_raw_fd(), deadline)
                        .map_err(|error| ConnectError::Io(io::Error::other(error)))?;
                    if !ready {
                        let waiting_for = "connection";
                        return Err(ConnectError::TimedOut { waiting_for, after: timeout });
                    }
                }
                // The peer gave up between the two calls.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(ConnectError::Io(error)),
            }
        }
    }
}

/// A connection to one peer, for exchanges in turn.
///
/// ```
/// use std::time::Duration;
/// use mlx5::connect::{Connection, Listener};
///
/// let timeout = Duration::from_secs(10);
/// let listener = Listener::bind("127.0.0.1:0")?;
/// let address = listener.local_address()?; // 192.0.2.1:7471 in a program of two hosts
/// # let client = std::thread::spawn(move || {
/// let mut client = Connection::connect(address, timeout)?;
/// # client.barrier(1)
/// # });
/// let mut server = listener.accept(timeout)?;
/// // Each side waits until the other one has reached step 1.
/// server.barrier(1)?;
/// # client.join().expect("the client panicked")?;
/// assert!(server.peer_address()?.ip().is_loopback());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    timeout: Duration,
}

impl Connection {
    /// Connects to a listener. `timeout` is for this, and for each exchange on the connection.
    ///
    /// # Errors
    /// - [`ConnectError::Address`]: the address cannot be resolved.
    /// - [`ConnectError::Refused`]: no program listens at the address.
    /// - [`ConnectError::TimedOut`], [`ConnectError::Io`].
    pub fn connect(address: impl ToSocketAddrs + Display, timeout: Duration) -> Result<Connection> {
        let deadline = deadline(timeout);
        let unknown = |error| ConnectError::Address { address: address.to_string(), error };
        let mut last = unknown(io::ErrorKind::NotFound.into());
        for address in address.to_socket_addrs().map_err(unknown)? {
            let timed_out = ConnectError::TimedOut { waiting_for: "connection", after: timeout };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out);
            }
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Connection::new(stream, timeout),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    last = ConnectError::Refused { address };
                }
                Err(error) if is_timeout(&error) => last = timed_out,
                Err(error) => last = ConnectError::Io(error),
            }
        }
        Err(last)
    }

    fn new(stream: TcpStream, timeout: Duration) -> Result<Connection> {
        // An accepted socket takes its mode from the listener on some systems.
        stream.set_nonblocking(false).map_err(ConnectError::Io)?;
        // Small messages in turn: waiting for more to send would cost 40 ms each.
        stream.set_nodelay(true).map_err(ConnectError::Io)?;
        Ok(Connection { stream, timeout })
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// [`ConnectError::Io`].
    pub fn peer_address(&self) -> Result<SocketAddr> {
        self.stream.peer_addr().map_err(ConnectError::Io)
    }

    /// Changes the timeout of the exchanges from here on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Sends `mine` to the peer and returns the peer's endpoint. Both sides call this at the same
    /// step.
    ///
    /// # Errors
    /// Any [`ConnectError`]; the connection is of no use afterwards.
    pub fn exchange(&mut self, mine: &ConnectionData) -> Result<ConnectionData> {
        let deadline = deadline(self.timeout);
        self.send(&mine.encode()?, Kind::ConnectionData, deadline)?;
        ConnectionData::decode(&self.receive(Kind::ConnectionData, deadline)?)
    }

    /// Sends up to 1024 bytes of the program to the peer and returns the peer's bytes. Both sides
    /// call this at the same step.
    ///
    /// # Errors
    /// Any [`ConnectError`]; the connection is of no use afterwards.
    pub fn exchange_data(&mut self, mine: &[u8]) -> Result<Vec<u8>> {
        let deadline = deadline(self.timeout);
        self.send(&message::encode_data(mine)?, Kind::Data, deadline)?;
        self.receive(Kind::Data, deadline)
    }

    /// Returns when both sides have called it, with the same number of the step.
    ///
    /// # Errors
    /// [`ConnectError::OutOfStep`] where the peer is elsewhere; any other [`ConnectError`].
    pub fn barrier(&mut self, step: u8) -> Result<()> {
        let deadline = deadline(self.timeout);
        self.send(&message::encode_barrier(step), Kind::Barrier, deadline)?;
        let theirs = self.receive(Kind::Barrier, deadline)?;
        if theirs == [step] {
            return Ok(());
        }
        Err(ConnectError::OutOfStep {
            waiting_for: format!("barrier {step}"),
            got: format!("barrier {}", theirs[0]),
        })
    }

    fn send(&mut self, bytes: &[u8], kind: Kind, deadline: Instant) -> Result<()> {
        let mut sent = 0;
        while sent < bytes.len() {
            let left = self.left(kind.name(), deadline)?;
            self.stream.set_write_timeout(Some(left)).map_err(ConnectError::Io)?;
            match self.stream.write(&bytes[sent..]) {
                Ok(0) => return Err(ConnectError::Io(io::ErrorKind::WriteZero.into())),
                Ok(count) => sent += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) if is_closed(&error) => {
                    let waiting_for = kind.name();
                    return Err(ConnectError::ClosedEarly { waiting_for, got: 0, wanted: HEADER });
                }
                Err(error) => return Err(ConnectError::Io(error)),
            }
        }
        Ok(())
    }

    fn receive(&mut self, kind: Kind, deadline: Instant) -> Result<Vec<u8>> {
        let mut header = [0; HEADER];
        self.fill(&mut header, kind.name(), deadline)?;
        let (got, length) = message::decode_header(&header)?;
        let mut body = vec![0; length];
        self.fill(&mut body, kind.name(), deadline)?;
        if got != kind {
            return Err(ConnectError::OutOfStep {
                waiting_for: kind.name().to_owned(),
                got: got.name().to_owned(),
            });
        }
        Ok(body)
    }

    /// Fills `buffer`. The deadline is for all of it, so that a peer that sends a byte now and then
    /// gains nothing.
    fn fill(
        &mut self,
        buffer: &mut [u8],
        waiting_for: &'static str,
        deadline: Instant,
    ) -> Result<()> {
        let wanted = buffer.len();
        let mut got = 0;
        while got < wanted {
            let left = self.left(waiting_for, deadline)?;
            self.stream.set_read_timeout(Some(left)).map_err(ConnectError::Io)?;
            let closed = ConnectError::ClosedEarly { waiting_for, got, wanted };
            match self.stream.read(&mut buffer[got..]) {
                Ok(0) => return Err(closed),
                Ok(count) => got += count,
                Err(error) if is_timeout(&error) => {}
                Err(error) if is_closed(&error) => return Err(closed),
                Err(error) => return Err(ConnectError::Io(error)),
            }
        }
        Ok(())
    }

    fn left(&self, waiting_for: &'static str, deadline: Instant) -> Result<Duration> {
        match deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(ConnectError::TimedOut { waiting_for, after: self.timeout }),
            left => Ok(left),
        }
    }
}

/// Returns whether a call came back without having done anything, to be judged by the deadline.
fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Returns whether the peer is gone.
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
