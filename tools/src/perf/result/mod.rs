//! The result of a measurement: the data of all outputs, and the content of the JSON files. Times
//! are a [`distribution`]; the machines measured on are an [`environment`].

pub mod distribution;
pub mod environment;
pub mod figures;
pub(super) mod raw;

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use self::distribution::Latency;
use self::environment::Environment;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// How long one message takes.
    Lat,
    /// How many bytes go through in a second.
    Bw,
    /// How many messages go through in a second.
    Rate,
}

/// Whose code posts and polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Via {
    /// This crate's: the program writes WQEs, rings, and reads CQEs itself
    #[default]
    Direct,
    /// libmlx5's, by ibv_post_send and ibv_poll_cq
    Verbs,
}

impl Kind {
    /// The name of its command.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lat => "lat",
            Kind::Bw => "bw",
            Kind::Rate => "rate",
        }
    }
}

impl Via {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Via::Direct => "direct",
            Via::Verbs => "verbs",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One measurement, whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was measured.
    pub kind: Kind,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// When it began: seconds since 1970, UTC.
    pub began: f64,
    /// What the side that prints ran on.
    pub environment: Environment,
    /// What the other side ran on; `None` in a loop.
    pub peer: Option<Environment>,
    /// What was chosen, by the options' names, in their order; also what no option was given for.
    pub configuration: Vec<Setting>,
    /// One per size and [`Via`], in the order in which they were measured.
    pub points: Vec<Point>,
    /// Where both ways were measured in turn.
    pub comparison: Option<Comparison>,
    /// What a reader has to know of these figures, a sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// Whether figures that come from a file can be those of a measurement.
    ///
    /// # Errors
    /// What cannot be, in words.
    pub fn check(&self) -> Result<(), String> {
        for point in &self.points {
            let wrong =
                |what: &str| Err(format!("of {} bytes by {}, {what}", point.size, point.via));
            if !(point.seconds >= 0.0 && point.began >= 0.0) {
                return wrong("a time is negative");
            }
            let Some(latency) = &point.latency else { continue };
            if let Err(what) = latency.histogram() {
                return wrong(&what);
            }
            if latency.min_ns > latency.max_ns {
                return wrong("the shortest time is longer than the longest");
            }
            if !latency.percentiles.iter().all(|asked| (0.0..=100.0).contains(&asked.percent)) {
                return wrong("a percentile is not between 0 and 100");
            }
        }
        Ok(())
    }
}

/// One thing that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The option, without dashes: `inline`.
    pub name: String,
    /// Its value, with its unit: `64 bytes`.
    pub value: String,
}

impl Setting {
    /// Of anything that can be printed.
    pub fn new(name: &str, value: impl fmt::Display) -> Setting {
        Setting { name: name.to_owned(), value: value.to_string() }
    }
}

/// What was measured of messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Whose code.
    pub via: Via,
    /// Bytes of a message.
    pub size: u64,
    /// When it began: seconds after the run.
    pub began: f64,
    /// How long it took, without warming up.
    pub seconds: f64,
    /// Messages that were completed in that time; of a ping-pong, both ways.
    pub messages: u64,
    /// Messages a second that were to be sent, in an open loop.
    pub planned_per_second: Option<f64>,
    /// How long messages took, each.
    pub latency: Option<Latency>,
    /// What this side's CPU did for it.
    pub cpu: Option<Cpu>,
    /// Where the time of posts and polls went, in a build with the feature `phases`.
    pub phases: Vec<Phase>,
    /// Counters of the card that changed, or were looked at.
    pub counters: Vec<Counter>,
    /// Messages whose content was looked at, where it was.
    pub validated: Option<u64>,
}

impl Point {
    /// Messages a second.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.messages as f64 / self.seconds } else { 0.0 }
    }

    /// Gigabits (10⁹ bits) of payload a second.
    #[must_use]
    pub fn gigabits_per_second(&self) -> f64 {
        self.messages_per_second() * self.size as f64 * 8.0 / 1e9
    }
}

/// What the CPU of this side did, in ticks of its constant-rate counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Ticks a second.
    pub hertz: f64,
    /// Calls that posted.
    pub posts: Calls,
    /// Polls that found something; those that found nothing are left out.
    pub polls: Calls,
}

/// Calls that were timed, each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// How many.
    pub calls: u64,
    /// Messages that they posted, or completions that they found.
    pub messages: u64,
    /// Half of the calls took no longer.
    pub median_ticks: f64,
}

impl Calls {
    /// Ticks of a message, or of a completion, in the median call.
    #[must_use]
    pub fn ticks_per_message(&self) -> Option<f64> {
        (self.messages > 0).then(|| self.median_ticks * self.calls as f64 / self.messages as f64)
    }
}

impl Cpu {
    /// Ticks that posts and polls took together, by messages that were posted.
    #[must_use]
    pub fn ticks_per_message(&self) -> Option<f64> {
        let all = |calls: &Calls| calls.median_ticks * calls.calls as f64;
        let ticks = all(&self.posts) + all(&self.polls);
        (self.posts.messages > 0).then(|| ticks / self.posts.messages as f64)
    }

    /// The same in nanoseconds.
    #[must_use]
    pub fn ns_per_message(&self) -> Option<f64> {
        let ticks = self.ticks_per_message()?;
        (self.hertz > 0.0).then(|| ticks * 1e9 / self.hertz)
    }
}

/// One phase of posts or polls, in ticks of the CPU's constant-rate counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `send`, `receive` or `completions`.
    pub queue: String,
    /// Its name.
    pub name: String,
    /// How often it was run through.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// Half of all took no longer.
    pub median: u64,
    /// 99 of 100 took no longer.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// The median, in nanoseconds.
    pub median_ns: f64,
}

/// A counter of the card, or of its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name, as sysfs or the card's interface has it.
    pub name: String,
    /// Whether it is the other side's.
    pub peer: bool,
    /// Before the first message, warming up included.
    pub before: u64,
    /// After the last.
    pub after: u64,
}

impl Counter {
    /// What was added. Counters may be 32 bits wide and begin anew; then this is 0.
    #[must_use]
    pub fn difference(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

/// Both ways, measured in turn: a block of messages by one, then by the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// What was compared, in a sentence.
    pub what: String,
    /// Messages of a block; 0 where a block is as many as go in a time.
    pub block: u64,
    /// One per size and figure.
    pub ratios: Vec<Ratio>,
}

/// One figure by both ways. Of each pair of neighbouring blocks the ratio is taken; these are the
/// medians and quartiles of all pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Bytes of a message.
    pub size: u64,
    /// What: `post`, `poll`.
    pub figure: String,
    /// Its unit: `ticks per message`.
    pub unit: String,
    /// Pairs of blocks.
    pub pairs: u64,
    /// Median, directly.
    pub direct: f64,
    /// Median, by verbs.
    pub verbs: f64,
    /// Median of verbs / direct: above 1, direct takes less.
    pub ratio: f64,
    /// A quarter of the pairs have no larger ratio.
    pub low: f64,
    /// A quarter of the pairs have no smaller ratio.
    pub high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_follow_from_counts() {
        let point = Point {
            via: Via::Direct,
            size: 125,
            began: 0.0,
            seconds: 2.0,
            messages: 2_000_000,
            planned_per_second: None,
            latency: None,
            cpu: None,
            phases: vec![],
            counters: vec![],
            validated: None,
        };
        assert_eq!(point.messages_per_second(), 1e6);
        assert_eq!(point.gigabits_per_second(), 1.0);
        let empty = Point { seconds: 0.0, messages: 0, ..point };
        assert_eq!(empty.gigabits_per_second(), 0.0);
    }
}
