//! The addresses of a session, and the reservation of its local port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use socket2::{Domain, Socket, Type};

use crate::kernel;

/// The addresses of a TCP session: both ends, and the Ethernet address of the next hop.
///
/// It reserves the local port: as long as it exists, the kernel gives the port to no other program, and
/// does not use it itself.
///
/// See the example on [the crate](crate).
#[derive(Debug)]
pub struct Session {
    local: SocketAddr,
    remote: SocketAddr,
    next_hop: [u8; 6],
    /// Has the port. It neither listens nor connects.
    _port: Socket,
}

impl Session {
    /// Prepares a session to an IPv4 address, by the kernel's tables: its route gives the local address and
    /// the next hop, and its neighbour entry the Ethernet address. The kernel resolves that first, if it
    /// has none.
    ///
    /// # Errors
    /// - No route, or no local address.
    /// - `NotFound` if the next hop does not answer within a second.
    /// - `Unsupported` for an IPv6 address: give the next hop to [`new`](Self::new).
    pub fn to(remote: SocketAddr) -> io::Result<Session> {
        let SocketAddr::V4(to) = remote else {
            let text = "the next hop of an IPv6 address is not looked up: give it to Session::new";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        };
        // The kernel chooses the local address. Nothing is sent yet.
        let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        probe.connect(to)?;
        let local = SocketAddr::new(probe.local_addr()?.ip(), 0);
        let next_hop = kernel::next_hop(&probe, *to.ip())?;
        Session::new(local, remote, next_hop)
    }

    /// Prepares a session between two addresses, of the same IP version, by that next hop. Port 0 of `local`
    /// stands for any free port.
    ///
    /// # Errors
    /// `AddrInUse` if the port is taken, `AddrNotAvailable` for an address that no interface has.
    pub fn new(local: SocketAddr, remote: SocketAddr, next_hop: [u8; 6]) -> io::Result<Session> {
        let port = Socket::new(Domain::for_address(local), Type::STREAM, None)?;
        port.bind(&local.into())?;
        let bound = port.local_addr()?.as_socket().unwrap_or(local);
        Ok(Session { local: bound, remote, next_hop, _port: port })
    }

    /// Returns the local end.
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the remote end.
    pub fn remote(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the Ethernet address to which packets are sent.
    pub fn next_hop(&self) -> [u8; 6] {
        self.next_hop
    }
}
