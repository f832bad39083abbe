//! What a device answers to the questions of the project's ledger of evidence.
//!
//! A [`Question`] asks for one fact: the bytes of an error CQE, how far a counter moved, how long a
//! device waited, a capability. [`Run::evidence`](crate::Run::evidence) asks, and [`Evidence`] is
//! printed as the file that an owner of a device can publish. The file has no name of a host or of a
//! device, no address, no GUID, LID or serial number, and no text that a device or a system made up:
//! texts in it are from closed lists, or hold digits and separators only.

mod doorbell;
mod fault;
mod question;
mod ring;
mod source;
mod text;

use std::time::{Duration, Instant};

use mlx5::verbs::attr::LinkLayer;

use crate::bench::Bench;
use crate::report::Bed;
use crate::verdict::{Stop, Verdict};
use fault::{Fault, Outcome};

pub use question::{Question, questions};
pub use source::{Device, System};

/// The version of the file's format.
pub const FORMAT: u32 = 1;

/// The time that questions may take together, unless the user says otherwise.
pub const BUDGET: Duration = Duration::from_secs(60);

/// The values that a device gave: one for each trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Bytes in the order of memory.
    Bytes(Vec<Vec<u8>>),
    /// Numbers, and their unit.
    Numbers(Vec<u64>, Unit),
}

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// How many.
    Count,
    /// Microseconds.
    Microseconds,
    /// Thousands of cycles in a second.
    Kilohertz,
}

/// An answer to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The name of the question.
    pub question: &'static str,
    /// The id of the fact that it asks about.
    pub fact: &'static str,
    /// What was seen.
    pub seen: Seen,
}

/// Why a question has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The device, the port or a permission lacks what the question needs.
    NotApplicable,
    /// The time that was given is too short for it.
    Budget,
    /// The device or the driver did something else on the way.
    Failed,
}

/// The answers of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The device that was asked.
    pub device: Device,
    /// The device of the passive side, if it is another.
    pub peer: Option<Device>,
    /// The software around the device.
    pub system: System,
    /// In the order of the questions.
    pub answers: Vec<Answer>,
    /// Questions without an answer, with the reason.
    pub unanswered: Vec<(&'static str, Unanswered)>,
}

impl Evidence {
    /// Returns whether a device was asked, and not the model.
    #[must_use]
    pub fn is_of_device(&self) -> bool {
        self.device.bed == Bed::Device
    }
}

/// The time in which questions that take none of their own are asked, however little is given.
const LEAST: Duration = Duration::from_secs(30);

/// What questions have cost and shown so far.
#[derive(Debug)]
pub(crate) struct Interview {
    /// What is left of the time, by what questions take at most.
    left: Duration,
    /// When no further question is asked, whatever is left: questions that fail take longer.
    end: Instant,
    /// Faults that were caused, and what came of each trial.
    caused: Vec<(Fault, Vec<Outcome>)>,
}

impl Interview {
    pub(crate) fn new(budget: Duration) -> Self {
        let end = Instant::now() + budget.max(LEAST);
        Self { left: budget, end, caused: Vec::new() }
    }

    /// Takes the time of a question from what is left, and returns whether that is enough. A fault that
    /// another question has caused takes no more time.
    pub(crate) fn has_time(&mut self, question: &Question, link: LinkLayer) -> bool {
        let is_caused = |fault: Fault| self.caused.iter().any(|(known, _)| *known == fault);
        let takes = match question.fault().is_some_and(is_caused) {
            true => question.takes_again(),
            false => question.takes(link),
        };
        let left = self.left.checked_sub(takes).filter(|_| Instant::now() < self.end);
        self.left = left.unwrap_or(self.left);
        left.is_some()
    }

    /// Causes a fault, once for all questions about it.
    fn cause(&mut self, fault: Fault, bench: &mut Bench<'_>) -> Verdict<&[Outcome]> {
        let at = match self.caused.iter().position(|(known, _)| *known == fault) {
            Some(at) => at,
            None => {
                let trials = (0..fault.trials()).map(|_| fault.cause(bench));
                self.caused.push((fault, trials.collect::<Verdict<_>>()?));
                self.caused.len() - 1
            }
        };
        Ok(&self.caused[at].1)
    }
}

impl From<&Stop> for Unanswered {
    fn from(stop: &Stop) -> Self {
        match stop {
            Stop::NotApplicable(_) => Self::NotApplicable,
            Stop::Failed(_) => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests;
