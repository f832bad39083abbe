//! A device of [smoltcp] over Ethernet packets of a ConnectX port: TCP past the kernel.
//!
//! A [`SessionDevice`] carries the packets of one TCP session. A flow rule steers them to it, so that
//! the kernel sees none of them. The kernel keeps the interface, its addresses, routes and neighbours,
//! and the session's local port, which a socket reserves ([`Session`]).
//!
//! Packets go to smoltcp as IP packets ([`Medium::Ip`]). The device adds the Ethernet header, so smoltcp
//! needs no ARP. The HCA fills in the checksums of what is sent. It has checked those of what arrives, and
//! a packet with a wrong one is dropped and [counted](SessionDevice::damaged).
//!
//! ```no_run
//! use mlx5::packet::PacketPort;
//! use mlx5_smoltcp::{Session, SessionDevice};
//! use smoltcp::iface::{Config, Interface, SocketSet};
//! use smoltcp::socket::tcp;
//! use smoltcp::time::Instant;
//! use smoltcp::wire::{HardwareAddress, IpCidr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let port = PacketPort::open("eth0")?;
//! let session = Session::to("192.0.2.7:7000".parse()?)?;
//! let (local, remote) = (session.local(), session.remote());
//! let mut device = SessionDevice::new(&port, session)?;
//!
//! let mut interface =
//!     Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::now());
//! interface.update_ip_addrs(|all| {
//!     all.push(IpCidr::new(local.ip().into(), 0)).expect("room for one address");
//! });
//! let buffer = || tcp::SocketBuffer::new(vec![0; 65536]);
//! let mut sockets = SocketSet::new(Vec::new());
//! let handle = sockets.add(tcp::Socket::new(buffer(), buffer()));
//! sockets.get_mut::<tcp::Socket>(handle).connect(interface.context(), remote, local)?;
//! loop {
//!     interface.poll(Instant::now(), &mut device, &mut sockets);
//!     device.check()?;
//!     // … send and receive on the socket.
//! #   break;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`Medium::Ip`]: smoltcp::phy::Medium::Ip
#![forbid(unsafe_code)]

mod device;
mod kernel;
mod session;

pub use device::{RxToken, SessionDevice, TxToken};
pub use session::Session;
