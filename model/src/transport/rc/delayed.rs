//! Requests whose key was destroyed a moment ago: the responder drops them for a while, then refuses
//! them.
//!
//! Measured on ConnectX-6 with RoCE (evidence E103), where WRITEs were under way. Dynamic connections
//! were not measured, and refuse at once.

use super::responder::{Incoming, Refused, Responder};
use crate::card::Card;
use crate::clock::Random;
use crate::transport::timing;
use crate::wire::{Header, NakCode};

/// A request that will be refused. Until then, the responder drops all requests of its peer.
#[derive(Debug)]
pub(super) struct Delayed {
    /// The time at which it is refused.
    pub(super) until: u64,
    pub(super) refused: Refused,
}

impl Responder {
    /// Returns the time at which a request that is refused now is answered, if that is later: its key was
    /// destroyed a moment ago.
    pub(super) fn delayed_until(
        &self,
        card: &Card,
        header: &Header,
        refused: &Refused,
    ) -> Option<u64> {
        if refused.code != NakCode::RemoteAccess {
            return None;
        }
        let key = match (header.reth, header.atomic, &self.incoming) {
            (Some(reth), ..) => reth.key,
            (_, Some(atomic), _) => atomic.key,
            (.., Incoming::Write(write)) => write.key(),
            _ => return None,
        };
        card.port.delayed_until(key).filter(|until| *until > card.clock.now())
    }

    /// Takes the request that is to be refused by now.
    pub(super) fn take_delayed(&mut self, now: u64) -> Option<Refused> {
        self.delayed.take_if(|delayed| delayed.until <= now).map(|delayed| delayed.refused)
    }
}

impl Card {
    /// Notes that a key was destroyed. The seed of the device and the key decide when its responders
    /// refuse it.
    pub(crate) fn key_destroyed(&mut self, key: u32) {
        let (timeouts, link) = (self.identity.timeouts, self.identity.link);
        let draw = Random::seeded(self.identity.seed ^ u64::from(key)).draw();
        if let Some(delay) = timing::nak_delay(timeouts, link, draw) {
            let now = self.clock.now();
            self.port.delay_refusal(key, now, now + delay);
        }
    }
}
