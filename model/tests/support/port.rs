//! TCP ports for programs that take a port as an argument and do not report when they listen.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Deref;
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// A TCP port that no other socket gets while the value exists. It reads as the argument of a program.
///
/// A socket is bound to it and does not listen, so connections are refused. Servers that set
/// `SO_REUSEADDR`, as nearly all do, may listen on it all the same; the kernel gives it to no socket
/// that asks for any port.
pub struct Port {
    number: u16,
    argument: String,
    _held: Socket,
}

/// Returns a port without a listener, different at each call.
pub fn free() -> Port {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a TCP socket");
    socket.set_reuse_address(true).expect("an option of every socket");
    socket.bind(&SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0).into()).expect("a port is free");
    let address = socket.local_addr().expect("it is bound").as_socket_ipv4();
    let number = address.expect("an IPv4 socket").port();
    Port { number, argument: number.to_string(), _held: socket }
}

impl Deref for Port {
    type Target = str;

    fn deref(&self) -> &str {
        &self.argument
    }
}

impl Port {
    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Waits until a program listens on the port, it `has_ended`, or `limit` is over; returns whether
    /// one listens.
    #[must_use]
    pub fn is_listened_on_within(
        &self,
        limit: Duration,
        mut has_ended: impl FnMut() -> bool,
    ) -> bool {
        let started = Instant::now();
        loop {
            if self.is_listened_on() {
                return true;
            }
            if has_ended() || started.elapsed() > limit {
                return false;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The kernel's socket tables tell, since a connection made to find out would be taken for the
    /// client.
    fn is_listened_on(&self) -> bool {
        let local = format!(":{:04X}", self.number);
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
            let table = fs::read_to_string(table).unwrap_or_default();
            table.lines().skip(1).any(|line| {
                let mut fields = line.split_whitespace().skip(1);
                let address = fields.next().unwrap_or_default();
                // The remote address lies between; 0A is TCP_LISTEN.
                address.ends_with(&local) && fields.nth(1) == Some("0A")
            })
        })
    }
}
