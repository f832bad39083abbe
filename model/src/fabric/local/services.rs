//! Services of the communication manager: the sockets at which a listening process takes requests.
//!
//! Each service of the machine has a socket of its own name, which its listener binds. So there is
//! one listener of a service, and its name vanishes with the process.

use std::io;

use super::bundle;
use super::listeners::with_sender;
use super::socket::{self, Fd};
use super::{Network, Recipient, Source};
use crate::wire::{Frame, LinkAddress};

/// A service that this process has reserved and does not listen for yet.
pub struct Reserved(Fd);

/// A service that this process listens for.
#[derive(Debug)]
pub struct Listening(u64);

impl Network {
    fn service_name(&self, service: u64) -> String {
        self.name(&format!("cm/{service:016x}"))
    }

    /// Reserves a service for this process.
    ///
    /// # Errors
    /// - `AddrInUse` if a process has it.
    /// - Any other error of creating and binding a local socket.
    pub(crate) fn reserve(&self, service: u64) -> io::Result<Reserved> {
        socket::bind(&self.service_name(service)).map(Reserved)
    }

    /// Starts to listen for a service. Its requests are for all devices.
    ///
    /// # Errors
    /// Any error of listening on a local socket.
    pub(crate) fn serve(&mut self, reserved: Reserved) -> io::Result<Listening> {
        socket::start(&reserved.0)?;
        self.add(Source::Listener { fd: reserved.0, to: Recipient::All }).map(Listening)
    }

    /// Stops to listen for a service.
    pub(crate) fn withdraw(&mut self, listening: &Listening) {
        self.sources.remove(&listening.0);
    }

    /// Sends a request that has come through the port `from` to the listener of a service, over a
    /// connection of its own: the listener may be another process next time.
    ///
    /// # Errors
    /// `ConnectionRefused` if no process listens; any other error of connecting and sending.
    pub(crate) fn ask(&self, service: u64, from: LinkAddress, frame: &Frame) -> io::Result<()> {
        let fd = socket::connect(&self.service_name(service))?;
        bundle::send(&fd, std::iter::once(&with_sender(frame, from))).map(drop)
    }
}
