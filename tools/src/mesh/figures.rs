//! The figures of one kind of traffic on one link.

use serde::{Deserialize, Serialize};

use crate::perf::client::Link;
use crate::perf::limit::Compared;
use crate::perf::result::{Counter, Kind};

/// Counters that tell of missing packets, as Linux's driver names them.
const LOST: &[&str] = &[
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_sequence",
    "packet_seq_err",
    "rx_icrc_encapsulated",
];
/// Counters of packets that were repeated: after a loss, or since the answer took long.
const REPEATED: &[&str] = &["duplicate_request", "roce_adp_retrans", "roce_slow_restart"];

/// The figures of one kind of traffic on one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// The place of the traffic among the kinds of the run.
    pub traffic: usize,
    /// Median time of a message in nanoseconds.
    pub median_ns: f64,
    /// The time that 99 of 100 messages took at most; 0 if there were too few.
    pub p99_ns: f64,
    /// The longest time.
    pub max_ns: f64,
    /// Gigabits of payload in a second, of both directions together.
    pub gbps: f64,
    /// Messages in a second.
    pub per_second: f64,
    /// Messages that were measured.
    pub messages: u64,
    /// Events of missing packets, by the counters of both ports.
    pub lost: u64,
    /// Losses, missed limits and remarks, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<Box<More>>,
}

/// Data that few links have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct More {
    /// Counters of missing and repeated packets that rose, with their increase. Those of the rank that
    /// served have `peer.` before the name.
    pub counters: Vec<(String, u64)>,
    /// Limits that were missed, in words.
    pub missed: Vec<String>,
    /// Messages with wrong content.
    pub wrong: u64,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Figures {
    /// Takes the figures of a measured link.
    #[must_use]
    pub fn of(traffic: usize, link: &Link, limits: &[Compared]) -> Figures {
        let Link { point, wrong, notes } = link;
        let latency = point.latency.as_ref();
        let ns = |percent| {
            let asked = latency.and_then(|latency| latency.asked(percent));
            asked.map_or(0.0, |ns| ns as f64)
        };
        // A set of a queue's own counts what the port's set counts, too, where there is one.
        let own = point.counters.iter().any(|counter| counter.name.starts_with("queue."));
        let named = |counter: &Counter, names: &[&str]| {
            let name = counter.name.rsplit('.').next().unwrap_or_default();
            names.contains(&name) && (!own || counter.name.starts_with("queue."))
        };
        let rose = || point.counters.iter().filter(|counter| counter.difference() > 0);
        let lost = rose().filter(|counter| named(counter, LOST)).map(Counter::difference).sum();
        let counters: Vec<(String, u64)> = rose()
            .filter(|counter| named(counter, LOST) || named(counter, REPEATED))
            .map(|counter| {
                let side = if counter.peer { "peer." } else { "" };
                (format!("{side}{}", counter.name), counter.difference())
            })
            .collect();
        let missed = limits.iter().filter(|limit| !limit.kept).map(ToString::to_string).collect();
        let more = More { counters, missed, wrong: *wrong, notes: notes.clone() };
        Figures {
            traffic,
            median_ns: ns(50.0),
            p99_ns: ns(99.0),
            max_ns: latency.map_or(0.0, |latency| latency.max_ns as f64),
            gbps: point.gigabits_per_second(),
            per_second: point.messages_per_second(),
            messages: point.messages,
            lost,
            more: (more != More::default()).then(|| Box::new(more)),
        }
    }

    /// Returns the figure by which links are compared, in its unit.
    #[must_use]
    pub fn main(&self, kind: Kind) -> f64 {
        match kind {
            Kind::Lat => self.median_ns / 1000.0,
            Kind::Bw => self.gbps,
            Kind::Rate => self.per_second / 1e6,
        }
    }
}

/// Returns the name of the figure by which links are compared, with its unit.
#[must_use]
pub fn unit(kind: Kind) -> &'static str {
    match kind {
        Kind::Lat => "µs",
        Kind::Bw => "Gbit/s",
        Kind::Rate => "M/s",
    }
}
