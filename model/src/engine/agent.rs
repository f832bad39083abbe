//! The management agent of the ports, and the way of management datagrams to it.
//!
//! All processes of a machine are the same ports, so a datagram to queue pair 1 of a port has to
//! find the process that it concerns. It names a communication id, whose upper 16 bits are a prefix
//! of QP numbers of its owner, or a service id. A listening process binds a local socket named
//! after the service. So there is one listener of a service on the machine, and its name vanishes
//! with the process. A request for a service without listener is refused at once by the process at
//! which it came to the port.

use std::io;
use std::sync::Arc;

use super::network::Network;
use super::socket::{self, Fd};
use super::{Engine, State};
use crate::card::Card;
use crate::management::{Addressee, Mad, mad};
use crate::wire::{Frame, Header};

/// The process's communication manager. It is called under the engine's lock, and must not enter
/// the engine.
pub trait Agent: Send + Sync {
    /// Takes a datagram to queue pair 1 that has arrived at a device's port.
    fn receive(&self, card: &Card, frame: &Frame);
    /// Returns whether this process listens for a service.
    fn serves(&self, service: u64) -> bool;
    /// Answers a datagram for a service that no process listens for, which was to leave or to
    /// arrive at the device with this index.
    fn refuse(&self, card: usize, frame: &Frame);
    /// Takes a datagram to send, and the index of the device that sends it.
    fn take_frame(&self) -> Option<(usize, Frame)>;
    /// Returns the nanoseconds until [`Agent::expire`] has work.
    fn wait(&self) -> Option<u64>;
    /// Does what is due.
    fn expire(&self);
}

/// A service that this process has reserved and does not listen for yet.
pub struct Reserved(Option<Fd>);

/// A service that this process listens for.
#[derive(Debug)]
pub struct Listening(Option<u64>);

impl Engine {
    /// Gives the ports their management agent.
    pub fn manage(&self, agent: Arc<dyn Agent>) {
        self.lock().agent = Some(agent);
    }

    /// Reserves a service for this process.
    ///
    /// # Errors
    /// `AddrInUse` if a process has it; the errors of binding a local socket.
    pub fn reserve(&self, service: u64) -> io::Result<Reserved> {
        let state = self.lock();
        let name = state.network.as_ref().map(|network| network.service_name(service));
        name.map(|name| socket::bind(&name)).transpose().map(Reserved)
    }

    /// Starts to listen for a service: its requests come to the agent.
    ///
    /// # Errors
    /// The errors of listening on a local socket.
    pub fn listen(&self, reserved: Reserved) -> io::Result<Listening> {
        let mut state = self.lock();
        match (&mut state.network, reserved.0) {
            (Some(network), Some(fd)) => Ok(Listening(Some(network.serve(fd)?))),
            _ => Ok(Listening(None)),
        }
    }

    /// Stops to listen for a service.
    pub fn withdraw(&self, listening: Listening) {
        if let (Some(network), Some(token)) = (&mut self.lock().network, listening.0) {
            network.withdraw(token);
        }
    }
}

/// Gives a frame that has arrived at a port to the device or, if it is a management datagram, to
/// the agent.
pub(super) fn deliver(agent: Option<&Arc<dyn Agent>>, card: &mut Card, frame: &Frame) {
    let link = card.identity.link;
    let managed = || Header::destination(link, &frame.0).is_some_and(|to| to.1 == mad::QP);
    match agent {
        Some(agent) if managed() => {
            if card.passes(frame) {
                agent.receive(card, frame);
            }
        }
        _ => card.receive(frame),
    }
}

impl State {
    /// Carries a management datagram to the process that it concerns.
    pub(super) fn carry_management(&mut self, from: usize, frame: Frame) {
        let link = self.cards[from].identity.link;
        let Some((route, mad)) = Mad::of_frame(link, &frame) else { return };
        let Some(to) = self.cards.iter().position(|card| card.is_for_port(&route)) else { return };
        match mad.addressee() {
            Addressee::Connection(id) => {
                let prefix = (id >> 16) as u16;
                if self.cards.iter().any(|card| card.identity.qpn_prefixes.contains(&prefix)) {
                    self.inbox.push_back((to, frame));
                } else if let Some(network) = &mut self.network {
                    network.send(prefix, frame);
                }
            }
            Addressee::Service(service) => {
                let Some(agent) = &self.agent else { return };
                if agent.serves(service) {
                    self.inbox.push_back((to, frame));
                    return;
                }
                let told = self.network.as_ref().map(|network| network.ask(service, &frame));
                if !matches!(told, Some(Ok(()))) {
                    agent.refuse(to, &frame);
                }
            }
        }
    }

    /// Sends the agent's datagrams. Returns whether there were any.
    pub(super) fn send_management(&mut self) -> bool {
        let mut any = false;
        while let Some((card, frame)) = self.agent.as_ref().and_then(|agent| agent.take_frame()) {
            any = true;
            if self.cards.get(card).is_some_and(|card| card.passes(&frame)) {
                self.carry_management(card, frame);
            }
        }
        any
    }
}

impl Network {
    fn service_name(&self, service: u64) -> String {
        self.name(&format!("cm/{service:016x}"))
    }

    /// Sends a request to the listener of a service, over a connection of its own: the listener
    /// may be another process next time.
    fn ask(&self, service: u64, frame: &Frame) -> io::Result<()> {
        let fd = socket::connect(&self.service_name(service))?;
        socket::send(&fd, std::iter::once(frame)).map(drop)
    }
}
