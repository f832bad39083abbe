//! The agent that the engine gives management datagrams to.

use super::state::Manager;
use crate::engine::Agent;
use crate::management::{Mad, Reason};
use crate::wire::Frame;

impl Agent for &'static Manager {
    fn receive(&self, card: usize, frame: &Frame) {
        let mut state = self.lock();
        let Some(port) = state.ports().get(card) else { return };
        if let Some((route, mad)) = Mad::of_frame(port.link, frame) {
            state.arrived(card, &route, &mad);
        }
    }

    fn serves(&self, service: u64) -> bool {
        self.lock().listeners().any(|(_, id)| id.serves(service))
    }

    fn refuse(&self, card: usize, frame: &Frame) {
        let mut state = self.lock();
        let Some(port) = state.ports().get(card) else { return };
        if let Some((route, mad)) = Mad::of_frame(port.link, frame) {
            state.refuse(card, &route, &mad, Reason::INVALID_SERVICE);
        }
    }

    fn take_frame(&self) -> Option<(usize, Frame)> {
        if Manager::sends(self) { self.lock().outbox.pop_front() } else { None }
    }

    fn wait(&self) -> Option<u64> {
        Manager::wait(self)
    }

    fn expire(&self) {
        if Manager::wait(self) != Some(0) {
            return;
        }
        let mut state = self.lock();
        let now = state.now();
        while let Some((_, local)) = state.timers.first().copied().filter(|(at, _)| *at <= now) {
            if let Some(link) = state.links.get_mut(&local) {
                link.connection.expire(now);
            }
            state.settle(local);
        }
    }
}
