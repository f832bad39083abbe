//! When the engine's thread naps instead of waiting to be woken.
//!
//! Waking a thread costs more than executing a packet. While packets of other processes come one by
//! one but steadily, it is cheaper to sleep for a short, fixed time and then take all that came:
//! meanwhile no sender wakes the thread. If this process sends steadily, its own entries take in the
//! answers.
//!
//! A nap delays a packet that a program waits for. So naps go on only while each ends with signs of
//! a stream: several packets for a process that sends nothing, or several entries that sent. A
//! program that waits for an answer before it sends again gives neither: the acknowledge and the
//! answer are two packets, but it has sent since the rest before. After a nap without such a
//! sign, the thread waits to be woken for a growing number of times before it tries again.

use std::time::Duration;

/// Length of a nap.
pub(crate) const NAP: Duration = Duration::from_micros(100);
/// Bundles, or entries, by which a nap pays.
const PAYS: usize = 2;
/// Frames at a time for which waking costs little in comparison.
const MANY: usize = 16;
/// Most times that the thread waits to be woken before it tries a nap.
const LONGEST: u32 = 1024;

/// Counts of events during a rest of the thread, and until its next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    /// Frames that arrived.
    pub(crate) frames: usize,
    /// Bundles that they arrived in.
    pub(crate) bundles: usize,
    /// Entries of the program that sent frames.
    pub(crate) entries: usize,
}

impl Activity {
    /// Returns whether packets come or go steadily, so that the thread need not be woken for each.
    /// `before` is the activity before it.
    fn is_stream(self, before: Self) -> bool {
        let passive = self.entries == 0 && before.entries == 0;
        let signs = if passive { self.bundles } else { self.entries };
        signs >= PAYS && self.frames < MANY
    }
}

/// The thread's next step.
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
    /// The last activity that was not nothing.
    before: Activity,
    /// Waits that bring a few frames until the next attempt at a nap.
    left: u32,
    /// What `left` starts from after a nap that did not pay.
    interval: u32,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { last: Rest::Wait, before: Activity::default(), left: 1, interval: 1 }
    }

    /// Returns what the thread does after a rest with this activity.
    pub(crate) fn next(&mut self, activity: Activity) -> Rest {
        self.last = match self.last {
            Rest::Nap if activity.is_stream(self.before) => {
                (self.interval, self.left) = (1, 1);
                Rest::Nap
            }
            Rest::Nap => {
                self.interval = (self.interval * 2).min(LONGEST);
                self.left = self.interval;
                Rest::Wait
            }
            Rest::Wait if activity.frames == 0 || activity.frames >= MANY => Rest::Wait,
            Rest::Wait => {
                self.left = self.left.saturating_sub(1);
                if self.left == 0 { Rest::Nap } else { Rest::Wait }
            }
        };
        if activity != Activity::default() {
            self.before = activity;
        }
        self.last
    }
}

#[cfg(test)]
mod tests;
