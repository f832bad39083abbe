//! Which process of the machine receives for an address.
//!
//! All processes share port 4791 of an address. One of them, the receiver, has the socket, and
//! forwards packets by the prefix of the destination queue pair over local sockets. The receiver is
//! the process that has bound the local socket of the address's name. The others keep a connection
//! to that name, which they neither write nor read. It ends when the receiver ends, and then the
//! first of them to bind the name becomes the receiver.

use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

use super::socket;
use crate::fabric::local::socket::{self as local, Fd};
use crate::private::system;
use crate::wire::route::ROCE_PORT;

/// Time in which a receiver that is ending closes its port after its name.
pub(super) const ENDING: Duration = Duration::from_millis(500);
/// Time after which a share that could not be taken is tried again.
pub(super) const AGAIN: Duration = Duration::from_millis(10);

/// This process's part in receiving for an address.
#[derive(Debug)]
pub(super) enum Share {
    /// This process receives.
    Receiver {
        /// The UDP socket.
        socket: Fd,
        /// The name. Connections to it are never accepted: they only have to end.
        _name: Fd,
    },
    /// Another process receives.
    Other {
        /// Ends with that process.
        end: Fd,
    },
}

impl Share {
    /// Takes a share, whichever is free.
    ///
    /// # Errors
    /// - `AddrInUse` if another program has the port, or the receiver is just ending.
    /// - `PermissionDenied` if another user has bound the name.
    pub(super) fn take(name: &str, gid: &[u8; 16], interface: u32) -> io::Result<Self> {
        match local::listen(name) {
            Ok(name) => {
                Ok(Self::Receiver { socket: socket::receiver(gid, interface)?, _name: name })
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => match local::connect(name) {
                Ok(end) => Ok(Self::Other { end }),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                    Err(ErrorKind::AddrInUse.into())
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    /// Takes a share at the start of a process, when a receiver may be ending.
    ///
    /// # Errors
    /// Those of [`Share::take`], with a text that says which address, and the cure.
    pub(super) fn first(name: &str, gid: &[u8; 16], interface: u32) -> io::Result<Self> {
        let end = Instant::now() + ENDING;
        loop {
            match Self::take(name, gid, interface) {
                Err(error) if error.kind() == ErrorKind::AddrInUse && Instant::now() < end => {
                    system::sleep(AGAIN);
                }
                taken => return taken.map_err(|error| explained(&error, gid)),
            }
        }
    }

    /// Returns the descriptor to wait for.
    pub(super) fn descriptor(&self) -> &Fd {
        match self {
            Self::Receiver { socket, .. } => socket,
            Self::Other { end } => end,
        }
    }
}

/// Returns an error with the address and a cure.
fn explained(error: &io::Error, gid: &[u8; 16]) -> io::Error {
    let address = text(gid);
    let cure = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program has it, or another user's, or one with another MLX5_MODEL_NETWORK or \
             build of the model: see `ss -ulpn sport = :{ROCE_PORT}`, and `rdma link` for rdma_rxe"
        ),
        ErrorKind::PermissionDenied => "another user's process receives there".into(),
        ErrorKind::AddrNotAvailable => "the interface no longer has it".into(),
        _ => error.to_string(),
    };
    io::Error::new(error.kind(), format!("UDP port {ROCE_PORT} of {address} is not free: {cure}"))
}

/// Returns a GID as an IP address.
pub(super) fn text(gid: &[u8; 16]) -> String {
    std::net::Ipv6Addr::from(*gid).to_canonical().to_string()
}
