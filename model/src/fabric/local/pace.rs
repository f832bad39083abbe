//! When the engine's thread naps instead of waiting to be woken.
//!
//! Waking a thread costs more than executing a packet. If packets of another process come one by
//! one but steadily, it is cheaper to sleep for a short, fixed time and take all that came by then:
//! meanwhile nobody wakes the thread. A nap delays a lone packet, so naps go on only while each ends
//! with several packets. After one that did not, the thread waits to be woken for a growing number
//! of times before it tries again.

use std::time::Duration;

/// Length of a nap.
pub(crate) const NAP: Duration = Duration::from_micros(50);
/// Frames by which a nap pays.
const PAYS: usize = 2;
/// Frames at a time for which waking costs little in comparison.
const MANY: usize = 32;
/// Most times that the thread waits to be woken before it tries a nap.
const LONGEST: u32 = 1024;

/// What the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It waits to be woken.
    Wait,
    /// It sleeps for [`NAP`], then takes what has come.
    Nap,
}

/// The thread's choice between naps and waits.
#[derive(Debug)]
pub(crate) struct Pace {
    last: Rest,
    /// Waits that bring frames until the next attempt at a nap.
    left: u32,
    /// What `left` starts from after a nap that did not pay.
    interval: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { last: Rest::Wait, left: 1, interval: 1 }
    }

    /// Returns what the thread does after a rest during which so many frames came.
    pub(crate) fn next(&mut self, frames: usize) -> Rest {
        self.last = match self.last {
            Rest::Nap if frames < PAYS => {
                self.interval = (self.interval * 2).min(LONGEST);
                self.left = self.interval;
                Rest::Wait
            }
            Rest::Nap => {
                self.interval = 1;
                self.left = 1;
                if frames < MANY { Rest::Nap } else { Rest::Wait }
            }
            Rest::Wait if frames == 0 || frames >= MANY => Rest::Wait,
            Rest::Wait => {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 { Rest::Nap } else { Rest::Wait }
            }
        };
        self.last
    }
}

#[cfg(test)]
mod tests;
