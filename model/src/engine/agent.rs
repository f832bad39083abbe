//! The management agent of the ports, and the way of management datagrams to it.
//!
//! All processes of a machine are the same ports, so a datagram to queue pair 1 of a port has to
//! find the process that it concerns. It names a communication id, whose upper 16 bits are a prefix
//! of QP numbers of its owner, or a service id. A listening process binds a local socket named
//! after the service. So there is one listener of a service on the machine, and its name vanishes
//! with the process. A request for a service without listener is refused by the process at which it
//! came to the port.

use std::io;
use std::sync::Arc;

use super::device::Inside;
use super::{Engine, Shield};
pub use crate::fabric::local::{Listening, Reserved};
use crate::management::{Addressee, Mad};
use crate::wire::{Frame, LinkAddress};

/// The process's communication manager. It is called by threads that are in a device, and must not
/// enter the engine.
pub trait Agent: Send + Sync {
    /// Takes a datagram of the communication manager that has arrived at the port of the device with this
    /// index.
    fn receive(&self, card: usize, frame: &Frame);
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

impl Engine {
    /// Gives the ports their management agent, once.
    pub fn manage(&self, agent: Arc<dyn Agent>) {
        let _ = self.agent.set(agent);
    }

    /// Reserves a service for this process. Returns `None` if the devices reach no other process.
    ///
    /// # Errors
    /// `AddrInUse` if a process has it; the errors of binding a local socket.
    pub fn reserve(&self, service: u64) -> io::Result<Option<Reserved>> {
        let _shield = Shield::new();
        self.outside().network.as_ref().map(|network| network.reserve(service)).transpose()
    }

    /// Starts to listen for a service: its requests come to the agent.
    ///
    /// # Errors
    /// The errors of listening on a local socket.
    pub fn listen(&self, reserved: Option<Reserved>) -> io::Result<Option<Listening>> {
        let _shield = Shield::new();
        let mut outside = self.outside();
        let network = outside.network.as_mut();
        network.zip(reserved).map(|(network, reserved)| network.serve(reserved)).transpose()
    }

    /// Stops to listen for a service.
    pub fn withdraw(&self, listening: &Listening) {
        let _shield = Shield::new();
        if let Some(network) = &mut self.outside().network {
            network.withdraw(listening);
        }
    }
}

impl Inside<'_> {
    /// Gives the agent the datagrams that have arrived for it. Returns whether there were any.
    pub(super) fn manage(&mut self) -> bool {
        let Some(agent) = self.engine.agent.get() else { return false };
        let mut any = false;
        while let Some(frame) = self.seat.card.take_managed() {
            agent.receive(self.index, &frame);
            any = true;
        }
        any
    }

    /// Carries a management datagram to the process that it concerns. Returns false if it is none
    /// of the communication manager's.
    pub(super) fn carry_management(&mut self, to: LinkAddress, frame: &Frame) -> bool {
        let engine = self.engine;
        let Some(agent) = engine.agent.get() else { return false };
        let link = self.seat.card.identity.link;
        let Some((route, mad)) = Mad::of_frame(link, frame) else { return false };
        let here = self.seat.ports.iter().position(|port| port.is_for_port(&route));
        match mad.addressee() {
            // Communication ids have the prefix in place of a QP number's.
            Addressee::Connection(id) => self.carry_to(to, id >> 8, frame.clone()),
            Addressee::Service(service) => {
                let Some(here) = here else { return true };
                if !self.offer(here, service, frame) {
                    agent.refuse(here, frame);
                }
            }
        }
        true
    }

    /// Gives a request to the process that listens for its service. Returns false if there is none.
    fn offer(&mut self, at: usize, service: u64, frame: &Frame) -> bool {
        let engine = self.engine;
        if engine.agent.get().is_some_and(|agent| agent.serves(service)) {
            self.put(at, frame.clone());
            return true;
        }
        let from = self.seat.card.identity.own_address();
        match engine.outside().network.as_ref().map(|network| network.ask(service, from, frame)) {
            None => false,
            Some(Ok(())) => true,
            // After other errors the peer asks again.
            Some(Err(error)) => !matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::PermissionDenied
            ),
        }
    }
}
