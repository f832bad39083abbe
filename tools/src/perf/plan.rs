//! The plan of a measured point: chosen by the client, sent to the server, checked by both.

mod check;
mod layout;

use std::fmt;
use std::net::Ipv4Addr;

use clap::ValueEnum;
use mlx5::wqe::Limits;
use serde::{Deserialize, Serialize};

pub use self::layout::Layout;
use crate::perf::path::operation::named_as_on_the_command_line;
pub use crate::perf::path::operation::{Carrier, Operation};
use crate::perf::result::distribution::Timed;
use crate::perf::result::{Kind, Via};

/// The longest message in bytes: the limit of ports on all devices so far.
pub const LONGEST_MESSAGE: u64 = 1 << 30;
/// Most queue pairs of one side.
pub const MOST_QUEUE_PAIRS: u32 = 256;
/// Most multicast groups of one queue pair.
pub const MOST_GROUPS: u32 = 64;
/// Most threads of one side.
pub const MOST_THREADS: u32 = 64;
/// Most memory for messages of one side, in bytes.
pub const MOST_MEMORY: u64 = 8 << 30;

/// When messages of an open loop are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// At equal distances
    Fixed,
    /// As a Poisson process: distances are distributed exponentially
    Poisson,
}

named_as_on_the_command_line!(Arrivals);

/// The schedule of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Messages a second, of all threads together.
    pub per_second: f64,
    /// The distribution of arrivals.
    pub arrivals: Arrivals,
    /// Seed of the random arrivals.
    pub seed: u64,
}

/// A deliberate pause, to see its effect on the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stall {
    /// The pause precedes the answer or check of this message of each thread, counted from 0 over
    /// the measured ones.
    pub at: u64,
    /// Its duration in nanoseconds.
    pub nanoseconds: u64,
}

/// The number of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// This many messages of each thread.
    Messages(u64),
    /// As many messages as fit into this many nanoseconds.
    Nanoseconds(u64),
}

/// Which sides send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// The client sends. In a ping-pong, the server answers.
    #[default]
    OneWay,
    /// Both sides send at the same time, and each measures what it sends.
    BothWays,
}

/// The queues that receives are taken from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReceiveSource {
    /// Each has a queue of its own.
    #[default]
    Own,
    /// Those of a thread share one queue.
    Shared,
}

/// How queue pairs find their peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connecting {
    /// Each side tells its numbers and addresses over TCP.
    #[default]
    Told,
    /// By rdma_cm, from the server's IP address.
    RdmaCm,
}

/// How a thread waits for completions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// It polls the CQ.
    #[default]
    Polling,
    /// It sleeps until the completion channel has an event.
    Events,
}

/// One point of a measurement.
///
/// A field that the text of a plan lacks has its default, if it is marked so: plans in the corpus
/// of the fuzz target are older than these fields, and cover the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The kind of measurement.
    pub kind: Kind,
    /// The operation of requests.
    pub operation: Operation,
    /// The transport of queue pairs.
    pub carrier: Carrier,
    /// Bytes of a message.
    pub size: u64,
    /// Whether payloads are inline in the WQE.
    pub inline: bool,
    /// Requests per doorbell.
    pub batch: u32,
    /// One in this many requests is signaled.
    pub signal_every: u32,
    /// Most outstanding requests of a queue pair.
    pub depth: u32,
    /// Queue pairs of all threads together.
    pub queue_pairs: u32,
    /// Threads.
    pub threads: u32,
    /// The number of measured messages.
    pub amount: Amount,
    /// Messages of each thread before the measured ones.
    pub warm_up: u64,
    /// The schedule of messages; `None`: each is sent when earlier ones are done.
    pub schedule: Option<Schedule>,
    /// Whether every message's content is checked.
    pub validate: bool,
    /// A message that is sent with wrong content, to show that validation finds it: its number from
    /// 0, over the measured ones, of each thread.
    pub corrupt_at: Option<u64>,
    /// A deliberate pause.
    pub stall: Option<Stall>,
    /// The code that posts and polls, at both sides.
    pub via: Via,
    /// Path MTU; `None`: the largest that both ports support.
    pub mtu: Option<u16>,
    /// Service level, or priority on Ethernet.
    pub service_level: u8,
    /// Index into each side's P_Key table.
    pub pkey_index: u16,
    /// Fields of the packets' IP header or GRH.
    #[serde(default)]
    pub header: Header,
    /// Retransmission of a reliable connection.
    #[serde(default)]
    pub retransmission: Retransmission,
    /// Which sides send.
    #[serde(default)]
    pub direction: Direction,
    /// How threads wait for completions, at both sides.
    #[serde(default)]
    pub waiting: Waiting,
    /// The queues that receives are taken from, if the transport leaves a choice.
    #[serde(default)]
    pub receives_from: ReceiveSource,
    /// The multicast group that the client's Ethernet packets go to; `None`: to the server alone.
    #[serde(default)]
    pub group: Option<Ipv4Addr>,
    /// That many groups, whose addresses follow each other. Packets go to them in turn.
    #[serde(default = "one")]
    pub groups: u32,
    /// How queue pairs find their peers.
    #[serde(default)]
    pub connecting: Connecting,
}

fn one() -> u32 {
    1
}

/// Fields of the header that routers read: the IP header on RoCE, the GRH on InfiniBand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// Traffic class: the DSCP in its upper six bits.
    pub traffic_class: Option<u8>,
    /// Routers that a packet may cross.
    pub hop_limit: Option<u8>,
}

/// Retransmission of a reliable connection; `None`: the driver's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retransmission {
    /// Code of the time to wait for an acknowledgement: 4.096 µs × 2^code, 0 for ever.
    pub ack_timeout: Option<u8>,
    /// Retransmissions before the connection fails.
    pub retries: Option<u8>,
    /// Retransmissions to a peer without a posted receive; 7 is for ever.
    pub rnr_retries: Option<u8>,
}

impl Plan {
    /// Returns what the latencies measure.
    #[must_use]
    pub fn timed(&self) -> Timed {
        match (self.schedule, self.kind) {
            (Some(_), _) => Timed::Planned,
            (None, Kind::Lat) if self.operation.fetches() => Timed::RoundTrip,
            (None, Kind::Lat) => Timed::HalfRoundTrip,
            (None, _) => Timed::Completion,
        }
    }

    /// Returns the queue pairs of one thread.
    #[must_use]
    pub fn queues_per_thread(&self) -> usize {
        (self.queue_pairs / self.threads) as usize
    }

    /// Returns whether the peer answers each message with another.
    #[must_use]
    pub fn is_echoed(&self) -> bool {
        self.kind == Kind::Lat && !self.operation.fetches()
    }

    /// Returns whether the server's program takes part in each message, beyond its memory.
    #[must_use]
    pub fn needs_server(&self) -> bool {
        self.is_echoed() || self.operation.takes_receives()
    }

    /// Returns whether the arrival of a WRITE is detected by its last byte.
    #[must_use]
    pub fn polls_memory(&self) -> bool {
        self.kind == Kind::Lat && self.operation == Operation::Write
    }

    /// Returns the bytes of inline payload that a queue must support.
    #[must_use]
    pub fn max_inline(&self) -> u32 {
        if self.inline { self.size as u32 } else { 0 }
    }

    /// Returns the groups that the client's packets go to, in turn; none if they go to the server alone.
    pub fn group_addresses(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let Plan { group, groups, .. } = *self;
        let first = group.into_iter().map(u32::from);
        first.flat_map(move |first| {
            (0..groups).map(move |at| Ipv4Addr::from(first.wrapping_add(at)))
        })
    }

    /// Returns the queues that receives are taken from.
    #[must_use]
    pub fn receive_source(&self) -> ReceiveSource {
        match self.carrier {
            Carrier::Xrc | Carrier::Dc => ReceiveSource::Shared,
            Carrier::Rc | Carrier::Uc | Carrier::Ud | Carrier::Raw => self.receives_from,
        }
    }

    /// Returns the receives that a queue pair posts ahead.
    #[must_use]
    pub fn receives(&self) -> u32 {
        match self.is_echoed() {
            true => 4,
            false => (2 * self.depth).clamp(512, 1 << 14),
        }
    }

    /// Checks whether a queue supports the plan's payloads.
    ///
    /// # Errors
    /// Returns what is too long, and for what.
    pub fn check_limits(&self, limits: Limits) -> Result<(), String> {
        if self.max_inline() > limits.max_inline {
            return Err(format!(
                "--inline: {} bytes do not fit the WQE, the queue pair takes {}",
                self.size, limits.max_inline
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests;
