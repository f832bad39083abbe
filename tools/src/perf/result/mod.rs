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
use crate::perf::limit::Compared;

/// The kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Latency of one message.
    Lat,
    /// Bytes per second.
    Bw,
    /// Messages per second.
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
    /// Returns the name of its command.
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
    /// Returns the name on the command line.
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

pub use crate::output::counted;

/// A complete measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The kind of measurement.
    pub kind: Kind,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Its start: seconds since 1970, UTC.
    pub began: f64,
    /// The environment of the side that prints.
    pub environment: Environment,
    /// The environment of the other side; `None` in a loop.
    pub peer: Option<Environment>,
    /// All settings by option name, in the options' order, including defaults.
    pub configuration: Vec<Setting>,
    /// One point per size and [`Via`], in the order of measurement.
    pub points: Vec<Point>,
    /// The comparison, where both ways were measured in turn.
    pub comparison: Option<Comparison>,
    /// The limits that were asked for, compared with each point.
    #[serde(default)]
    pub limits: Vec<Compared>,
    /// Whether Ctrl-C ended it early.
    #[serde(default)]
    pub interrupted: bool,
    /// Remarks on these figures, one sentence each.
    pub notes: Vec<String>,
}

impl Run {
    /// Checks whether figures from a file can be those of a measurement.
    ///
    /// # Errors
    /// Returns in words which figure is impossible.
    pub fn check(&self) -> Result<(), String> {
        for point in &self.points {
            let wrong =
                |what: &str| Err(format!("of {} bytes by {}, {what}", point.size, point.via));
            let back = point.back.map_or(0.0, |back| back.seconds);
            if !(point.seconds >= 0.0 && point.began >= 0.0 && back >= 0.0) {
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

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The option, without dashes: `inline`.
    pub name: String,
    /// Its value, with its unit: `64 bytes`.
    pub value: String,
}

impl Setting {
    /// Creates a setting from a printable value.
    pub fn new(name: &str, value: impl fmt::Display) -> Setting {
        Setting { name: name.to_owned(), value: value.to_string() }
    }
}

/// The measurement of messages of one size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The code that posts and polls.
    pub via: Via,
    /// Bytes of a message.
    pub size: u64,
    /// Its start: seconds after the start of the run.
    pub began: f64,
    /// Its duration in seconds, without warming up.
    pub seconds: f64,
    /// Messages completed in that time; in a ping-pong, both ways.
    pub messages: u64,
    /// Scheduled messages per second, in an open loop.
    pub planned_per_second: Option<f64>,
    /// The messages that the server sent at the same time, if both sides send.
    #[serde(default)]
    pub back: Option<Flow>,
    /// Events of the CQ for which this side slept; `None` if it polled.
    #[serde(default)]
    pub events: Option<u64>,
    /// The latency of messages.
    pub latency: Option<Latency>,
    /// The times between the packets of each queue pair that arrived at the other side, by the clock of
    /// its HCA: streams of Ethernet packets alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<Latency>,
    /// The slowest messages, the slowest first.
    #[serde(default)]
    pub slowest: Vec<Slow>,
    /// The CPU cost at this side.
    pub cpu: Option<Cpu>,
    /// The time per phase of posts and polls, in a build with the feature `phases`.
    pub phases: Vec<Phase>,
    /// Counters of the HCA that changed or were requested.
    pub counters: Vec<Counter>,
    /// Messages whose content was checked, if checks were enabled.
    pub validated: Option<u64>,
}

/// The messages of one direction, measured by the side that sends them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Messages completed in that time.
    pub messages: u64,
    /// Its duration in seconds, without warming up.
    pub seconds: f64,
}

impl Flow {
    /// Returns messages per second.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.messages as f64 / self.seconds } else { 0.0 }
    }
}

/// A message that took long.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slow {
    /// Its time in nanoseconds, as [`Latency`] counts it.
    pub ns: u64,
    /// Its end: seconds after the first message of the point.
    pub at: f64,
}

impl Slow {
    /// Sorts messages, the slowest first, and keeps so many.
    pub fn keep(all: &mut Vec<Slow>, most: usize) {
        all.sort_by(|one, other| other.ns.cmp(&one.ns).then(one.at.total_cmp(&other.at)));
        all.truncate(most);
    }
}

impl Point {
    /// Returns what this side sends.
    #[must_use]
    pub fn there(&self) -> Flow {
        Flow { messages: self.messages, seconds: self.seconds }
    }

    /// Returns messages per second, of both directions together.
    #[must_use]
    pub fn messages_per_second(&self) -> f64 {
        let back = self.back.map_or(0.0, |back| back.messages_per_second());
        self.there().messages_per_second() + back
    }

    /// Returns gigabits (10⁹ bits) of payload per second, of both directions together.
    #[must_use]
    pub fn gigabits_per_second(&self) -> f64 {
        self.gigabits(self.messages_per_second())
    }

    /// Returns the gigabits of payload of so many messages.
    #[must_use]
    pub fn gigabits(&self, messages: f64) -> f64 {
        messages * self.size as f64 * 8.0 / 1e9
    }
}

/// The CPU cost at this side, in ticks of its constant-rate counter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Ticks per second.
    pub hertz: f64,
    /// Calls that posted.
    pub posts: Calls,
    /// Polls that found a completion; empty polls are left out.
    pub polls: Calls,
}

/// Calls that were timed one by one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// The number of calls.
    pub calls: u64,
    /// Messages that they posted, or completions that they found.
    pub messages: u64,
    /// The median of a call's ticks.
    pub median_ticks: f64,
}

impl Calls {
    /// Returns ticks per message, or per completion, in the median call.
    #[must_use]
    pub fn ticks_per_message(&self) -> Option<f64> {
        (self.messages > 0).then(|| self.median_ticks * self.calls as f64 / self.messages as f64)
    }
}

impl Cpu {
    /// Returns the ticks of posts and polls together, per posted message.
    #[must_use]
    pub fn ticks_per_message(&self) -> Option<f64> {
        let all = |calls: &Calls| calls.median_ticks * calls.calls as f64;
        let ticks = all(&self.posts) + all(&self.polls);
        (self.posts.messages > 0).then(|| ticks / self.posts.messages as f64)
    }

    /// Returns the nanoseconds of posts and polls together, per posted message.
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
    /// The number of times it was run through.
    pub count: u64,
    /// The shortest.
    pub min: u64,
    /// The median.
    pub median: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The longest.
    pub max: u64,
    /// The median, in nanoseconds.
    pub median_ns: f64,
}

/// A counter of the HCA or of its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// Its name in sysfs or in the HCA's interface.
    pub name: String,
    /// Whether it belongs to the other side.
    pub peer: bool,
    /// Its value before the first message, including warming up.
    pub before: u64,
    /// Its value after the last message.
    pub after: u64,
}

impl Counter {
    /// Returns the increase. Counters may be 32 bits wide and wrap; then this is 0.
    #[must_use]
    pub fn difference(&self) -> u64 {
        self.after.saturating_sub(self.before)
    }
}

/// Both ways, measured in turn: a block of messages by one, then by the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// A description of the comparison, in a sentence.
    pub what: String,
    /// Messages per block; 0 where a block is limited by time.
    pub block: u64,
    /// One ratio per size and figure.
    pub ratios: Vec<Ratio>,
}

/// One figure by both ways. Each pair of neighbouring blocks gives a ratio; these are the medians
/// and quartiles of all pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Bytes of a message.
    pub size: u64,
    /// The figure: `post`, `poll`.
    pub figure: String,
    /// Its unit: `ticks per message`.
    pub unit: String,
    /// Pairs of blocks.
    pub pairs: u64,
    /// Median, directly.
    pub direct: f64,
    /// Median, by verbs.
    pub verbs: f64,
    /// Median of verbs / direct: above 1, the direct way takes less.
    pub ratio: f64,
    /// The lower quartile of the ratios.
    pub low: f64,
    /// The upper quartile of the ratios.
    pub high: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {}

    #[test]
    fn rates_follow_from_counts() {
        let point = Point {
            via: Via::Direct,
            size: 125,
            began: 0.0,
            seconds: 2.0,
            messages: 2_000_000,
            planned_per_second: None,
            back: None,
            gaps: None,
            events: None,
            latency: None,
            slowest: vec![],
            cpu: None,
            phases: vec![],
            counters: vec![],
            validated: None,
        };
        assert_eq!(point.messages_per_second(), 1e6);
        assert_eq!(point.gigabits_per_second(), 1.0);
        let back = Some(Flow { messages: 500_000, seconds: 1.0 });
        let both = Point { back, ..point.clone() };
        assert_eq!((both.messages_per_second(), both.gigabits_per_second()), (1.5e6, 1.5));
        assert_eq!(both.there().messages_per_second(), 1e6);
        let empty = Point { seconds: 0.0, messages: 0, ..point };
        assert_eq!(empty.gigabits_per_second(), 0.0);
    }
}
