//! The device's boundary: every input to the device enters here, so that a tap sees it. The frames
//! that pass the port are captured here.

use std::fmt::Display;
use std::sync::Arc;

use super::Card;
use crate::capture::{Capture, Capturing, Direction};
use crate::clock::Clock;
use crate::trace::{Call, Complaints, Mistake, Observed, Record, Tap, Tapped, TappedClock};
use crate::wire::Frame;

/// A card's own share of a tap.
#[derive(Clone, Debug)]
pub(crate) struct Tapping {
    pub(crate) tap: Arc<Tap>,
    /// Which card of the process it is.
    card: u8,
}

impl Card {
    /// Reports every action of this card to a tap, and takes memory and time from the tap.
    pub(crate) fn tap(&mut self, tap: &Arc<Tap>, card: u8) {
        self.memory = Arc::new(Tapped::new(self.memory.clone(), tap.clone()));
        self.clock = Clock::Source(Arc::new(TappedClock::new(&self.clock, tap.clone())));
        self.tapping = Some(Tapping { tap: tap.clone(), card });
    }

    /// Something enters the card: `call` is what, `work` what it does about it. `idle` says of what
    /// it returned whether it found nothing to do.
    pub(crate) fn enter<'a, R>(
        &mut self,
        call: impl FnOnce() -> Call<'a>,
        work: impl FnOnce(&mut Self) -> R,
        idle: impl FnOnce(&R) -> bool,
    ) -> R {
        let Some(Tapping { tap, card }) = self.tapping.clone() else { return work(self) };
        if !tap.begin(card, call) {
            let result = work(self);
            tap.leave();
            return result;
        }
        let before = self.complaints;
        let result = work(self);
        self.tell_mistakes(&tap, before);
        tap.end(&Record::End, idle(&result));
        result
    }

    /// The same of a command, which ends with its reply.
    pub(crate) fn enter_command(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        work: impl FnOnce(&mut Self, &mut [u8]),
    ) {
        let Some(Tapping { tap, card }) = self.tapping.clone() else { return work(self, output) };
        if !tap.begin(card, || Call::Command(input.into())) {
            work(self, output);
            return tap.leave();
        }
        let before = self.complaints;
        work(self, output);
        self.tell_mistakes(&tap, before);
        tap.end(&Record::Reply((&*output).into()), false);
    }

    /// Writes every frame that passes the port to a capture.
    pub(crate) fn capture(&mut self, capture: &Arc<Capture>, card: usize) {
        self.capturing = Some(Capturing { capture: capture.clone(), card });
    }

    /// Writes a frame that passed the port to the capture, if there is one, with the reason for
    /// which the device dropped it.
    pub(crate) fn captured(
        &self,
        direction: Direction,
        frame: &Frame,
        dropped: Option<&dyn Display>,
    ) {
        if let Some(Capturing { capture, card }) = &self.capturing {
            capture.frame(*card, direction, frame, dropped);
        }
    }

    fn tell_mistakes(&self, tap: &Tap, before: Complaints) {
        for (mistake, count) in Mistake::between(before, self.complaints) {
            tap.observe(Observed::Mistake { mistake, count });
        }
    }
}
