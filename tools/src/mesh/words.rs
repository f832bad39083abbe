//! Messages between a rank and the meeting, one in a frame.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::facts::Facts;
use super::figures::Figures;
use crate::perf::result::Kind;

/// The version of this exchange. Another one is refused.
pub const VERSION: u32 = 1;

/// One kind of traffic of a link, as `mlx5 perf` takes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// The kind.
    pub kind: Kind,
    /// Options of `mlx5 perf`.
    pub options: String,
}

/// Counters by name.
pub type Values = Vec<(String, u64)>;

/// A reading of counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// Seconds since the rank began.
    pub at: f64,
    /// The values.
    pub values: Values,
}

/// A frame of a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Say {
    /// First: who it is.
    Here {
        /// [`VERSION`].
        version: u32,
        /// Its facts.
        facts: Box<Facts>,
        /// The TCP port at which it awaits the clients of measurements.
        port: u16,
        /// A first reading of its counters.
        counters: Reading,
    },
    /// It runs.
    Alive {},
    /// A measurement ended that it made.
    Measured {
        /// Its number.
        task: u64,
        /// The figures of each kind of traffic.
        figures: Vec<Figures>,
    },
    /// A measurement ended that it served.
    Served {
        /// Its number.
        task: u64,
    },
    /// A measurement failed.
    Failed {
        /// Its number.
        task: u64,
        /// Why.
        why: String,
    },
    /// Its counters, which were asked for.
    Counters {
        /// The reading.
        reading: Reading,
    },
}

/// A frame of the meeting.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Order {
    /// It runs.
    Alive {},
    /// The traffic of the run.
    Begin {
        /// The kinds of traffic, which tasks name by their place.
        traffic: Vec<Traffic>,
    },
    /// Read your counters.
    Count {},
    /// Measure a link.
    Measure {
        /// The number of the measurement.
        task: u64,
        /// The kinds of traffic.
        traffic: Vec<usize>,
        /// The other rank's address; `None` if it is that of the meeting.
        address: Option<IpAddr>,
        /// Its port.
        port: u16,
    },
    /// Serve a rank's measurement.
    Serve {
        /// The number of the measurement.
        task: u64,
        /// The rank that measures.
        from: u32,
    },
    /// The run is over, or over for this rank.
    End {
        /// Why this rank takes no part, if it does not.
        why: Option<String>,
    },
}
