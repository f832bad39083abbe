//! The plan of a measured point: chosen by the client, sent to the server, checked by both.

use std::fmt;

use clap::ValueEnum;
use mlx5::wqe::Limits;
use serde::{Deserialize, Serialize};

use crate::perf::path::operation::named_as_on_the_command_line;
pub use crate::perf::path::operation::{Carrier, Operation};
use crate::perf::result::distribution::Timed;
use crate::perf::result::{Kind, Via};

/// The longest message in bytes: the limit of ports on all devices so far.
pub const LONGEST_MESSAGE: u64 = 1 << 30;
/// Most queue pairs of one side.
pub const MOST_QUEUE_PAIRS: u32 = 256;
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

/// One point of a measurement.
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
    pub header: Header,
    /// Retransmission of a reliable connection.
    pub retransmission: Retransmission,
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
    /// Checks whether such a measurement is possible on any device.
    ///
    /// # Errors
    /// Returns what is impossible, and what to choose instead.
    pub fn check(&self) -> Result<(), String> {
        let Plan { operation, carrier, size, batch, signal_every, depth, .. } = self;
        match carrier {
            Carrier::Ud if *operation != Operation::Send => {
                return Err(format!("ud has SEND alone, not {operation}: choose --transport rc"));
            }
            Carrier::Uc if operation.fetches() => {
                return Err(format!("uc has no {operation}: choose --transport rc"));
            }
            _ => {}
        }
        range("size", *size, 1, LONGEST_MESSAGE)?;
        if operation.is_atomic() && *size != 8 {
            return Err(format!("{operation} works on 8 bytes, not {size}: leave --size out"));
        }
        if self.inline && operation.fetches() {
            return Err(format!("{operation} has no payload to be inline: leave --inline out"));
        }
        range("depth", u64::from(*depth), 1, 1 << 15)?;
        range("batch", u64::from(*batch), 1, u64::from(*depth))?;
        range("signal-every", u64::from(*signal_every), 1, u64::from(*depth))?;
        if batch + signal_every > depth + 1 {
            return Err(format!(
                "--batch {batch} and --signal-every {signal_every} do not go with --depth {depth}: \
                 a queue that is full of requests without a completion would never be seen to have \
                 room; take a depth of at least {}",
                batch + signal_every - 1
            ));
        }
        range("threads", u64::from(self.threads), 1, u64::from(MOST_THREADS))?;
        range("qps", u64::from(self.queue_pairs), 1, u64::from(MOST_QUEUE_PAIRS))?;
        if self.queue_pairs % self.threads != 0 {
            return Err(format!(
                "--qps {} cannot be shared among --threads {}: take a multiple",
                self.queue_pairs, self.threads
            ));
        }
        if self.kind == Kind::Lat {
            if self.queue_pairs != self.threads {
                return Err(
                    "lat has one message under way per thread: --qps has to be --threads".into()
                );
            }
            if *batch != 1 {
                return Err(
                    "lat sends one message at a time: leave --batch out, or measure bw".into()
                );
            }
            if operation.fetches() && *signal_every != 1 {
                return Err(format!(
                    "the latency of {operation} is that of its completion: leave --signal-every out"
                ));
            }
        }
        match self.amount {
            Amount::Messages(count) => range("iterations", count, 1, 1 << 40)?,
            Amount::Nanoseconds(time) => range("duration in ns", time, 1_000_000, 1 << 46)?,
        }
        range("warm-up", self.warm_up, 0, 1 << 40)?;
        if let Some(Schedule { per_second, .. }) = self.schedule {
            if !(per_second.is_finite() && (0.001..=1e9).contains(&per_second)) {
                return Err(format!("--rate {per_second}: it is 0.001 to 1e9 messages a second"));
            }
            if *batch != 1 {
                return Err(
                    "an open loop sends each message when it is due: leave --batch out".into()
                );
            }
        }
        if let Some(Stall { at, nanoseconds }) = self.stall {
            range("stall-at", at, 0, 1 << 40)?;
            range("stall-for in ns", nanoseconds, 0, 60_000_000_000)?;
        }
        if let Some(at) = self.corrupt_at {
            range("corrupt-at", at, 0, 1 << 40)?;
            if self.polls_memory() && *size < 2 {
                return Err(
                    "--corrupt-at: of one byte, by which its arrival is seen, none is left to \
                            be wrong; take --size 2"
                        .into(),
                );
            }
        }
        if self.mtu.is_some_and(|mtu| ![256, 512, 1024, 2048, 4096].contains(&mtu)) {
            return Err("--mtu is 256, 512, 1024, 2048 or 4096".into());
        }
        range("sl", u64::from(self.service_level), 0, 15)?;
        self.retransmission.check(*carrier)?;
        if self.corrupt_at.is_some() && !self.validate {
            return Err("--corrupt-at is noticed with --validate only".into());
        }
        self.layout().map(drop)
    }

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

    /// Returns the receives that a queue pair posts ahead.
    #[must_use]
    pub fn receives(&self) -> u32 {
        match self.is_echoed() {
            true => 4,
            false => (2 * self.depth).clamp(512, 1 << 14),
        }
    }

    /// Returns the layout of messages in memory, the same at both sides.
    ///
    /// # Errors
    /// Fails if the messages exceed the memory limit.
    pub fn layout(&self) -> Result<Layout, String> {
        /// Bytes of all slots together, where several messages share slots.
        const ENOUGH: u64 = 4 << 20;
        let stride = (self.size + Layout::HEADER as u64).next_multiple_of(64);
        // Checking contents needs a slot for each message in flight.
        let own = self.validate || self.polls_memory() || self.operation.is_atomic();
        let slots = |outstanding: u32| {
            let all = u64::from(outstanding).next_power_of_two();
            if own { all } else { all.min((ENOUGH / stride).max(1).next_power_of_two()) }
        };
        let (out, target) = (slots(self.depth), slots(self.depth.max(self.receives())));
        let bytes = (out + target).checked_mul(stride);
        let total = bytes.and_then(|bytes| bytes.checked_mul(u64::from(self.queue_pairs)));
        match total {
            Some(total) if total <= MOST_MEMORY => {
                Ok(Layout { size: self.size as usize, stride: stride as usize, out, target })
            }
            _ => Err(format!(
                "messages of {} bytes, {} outstanding on each of {} queue pairs, take more than {} \
                 GiB of memory: choose a smaller --depth or --size, or leave --validate out",
                self.size,
                self.depth,
                self.queue_pairs,
                MOST_MEMORY >> 30
            )),
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

impl Retransmission {
    fn check(&self, carrier: Carrier) -> Result<(), String> {
        let options = [
            ("ack-timeout", self.ack_timeout, 31),
            ("retries", self.retries, 7),
            ("rnr-retries", self.rnr_retries, 7),
        ];
        for (name, value, most) in options {
            let Some(value) = value else { continue };
            if carrier != Carrier::Rc {
                return Err(format!("{carrier} sends nothing again: leave --{name} out"));
            }
            range(name, u64::from(value), 0, most)?;
        }
        Ok(())
    }
}

/// The layout of a queue pair's messages in memory. Slots have equal size, and their numbers are
/// powers of two, so that a mask finds the slot of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a message.
    pub size: usize,
    /// Distance between slots, with space for the header of a datagram.
    pub stride: usize,
    /// Slots of outgoing messages, and of fetched data.
    pub out: u64,
    /// Slots of incoming messages, which the peer can access.
    pub target: u64,
}

impl Layout {
    /// Bytes of the header (GRH) that the HCA puts before a datagram.
    pub const HEADER: usize = 40;

    /// Returns the bytes of all outgoing slots of one queue pair.
    #[must_use]
    pub fn out_bytes(&self) -> usize {
        self.out as usize * self.stride
    }

    /// Returns the bytes of all incoming slots of one queue pair.
    #[must_use]
    pub fn target_bytes(&self) -> usize {
        self.target as usize * self.stride
    }
}

fn range(name: &str, value: u64, least: u64, most: u64) -> Result<(), String> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("--{name} {value}: it is {least} to {most}"))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A ping-pong of 64 bytes.
    pub fn plan() -> Plan {
        Plan {
            kind: Kind::Lat,
            operation: Operation::Send,
            carrier: Carrier::Rc,
            size: 64,
            inline: false,
            batch: 1,
            signal_every: 1,
            depth: 16,
            queue_pairs: 1,
            threads: 1,
            amount: Amount::Messages(10),
            warm_up: 0,
            schedule: None,
            validate: false,
            corrupt_at: None,
            stall: None,
            via: Via::Direct,
            mtu: None,
            service_level: 0,
            pkey_index: 0,
            header: Header::default(),
            retransmission: Retransmission::default(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_choose() {
        let refused = |change: fn(&mut Plan), words: &str| {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.check().unwrap_err();
            assert!(error.contains(words), "{error}");
        };
        plan().check().unwrap();
        refused(|plan| (plan.carrier, plan.operation) = (Carrier::Ud, Operation::Write), "rc");
        refused(|plan| (plan.carrier, plan.operation) = (Carrier::Uc, Operation::Read), "rc");
        refused(
            |plan| (plan.operation, plan.inline, plan.size) = (Operation::Cas, true, 8),
            "inline",
        );
        refused(|plan| plan.operation = Operation::Fadd, "8 bytes");
        refused(|plan| plan.size = 0, "--size 0");
        refused(
            |plan| (plan.kind, plan.batch, plan.signal_every) = (Kind::Bw, 8, 16),
            "at least 23",
        );
        refused(|plan| plan.queue_pairs = 2, "--threads");
        refused(|plan| (plan.kind, plan.queue_pairs, plan.threads) = (Kind::Bw, 3, 2), "multiple");
        refused(|plan| plan.batch = 2, "bw");
        refused(|plan| plan.amount = Amount::Messages(0), "iterations");
        refused(|plan| plan.mtu = Some(1500), "4096");
        refused(|plan| plan.retransmission.ack_timeout = Some(32), "0 to 31");
        refused(|plan| plan.retransmission.retries = Some(8), "0 to 7");
        refused(
            |plan| (plan.carrier, plan.retransmission.rnr_retries) = (Carrier::Uc, Some(1)),
            "leave --rnr-retries out",
        );
        refused(|plan| plan.corrupt_at = Some(1), "--validate");
        refused(
            |plan| (plan.corrupt_at, plan.validate, plan.warm_up) = (Some(u64::MAX), true, 1),
            "--corrupt-at",
        );
        refused(|plan| plan.stall = Some(Stall { at: u64::MAX, nanoseconds: 1 }), "--stall-at");
        refused(|plan| (plan.size, plan.validate, plan.depth) = (1 << 30, true, 1024), "GiB");
        refused(
            |plan| {
                let arrivals = Arrivals::Fixed;
                plan.schedule = Some(Schedule { per_second: f64::NAN, arrivals, seed: 0 });
            },
            "--rate",
        );
    }

    proptest! {
        /// Plans come from peers: for any numbers that pass the check, the layout must not
        /// overflow.
        #[test]
        fn numbers_of_a_stranger_are_refused_or_harmless(
            numbers in prop::array::uniform8(prop_oneof![0u64..300, any::<u64>()]),
            small in prop::array::uniform4(prop_oneof![0u32..40, any::<u32>()]),
            operation in 0usize..6,
            kind in prop_oneof![Just(Kind::Lat), Just(Kind::Bw)],
            validate: bool,
        ) {
            let [size, at, time, wrong, count, warm_up, rate, seed] = numbers;
            let [depth, batch, queue_pairs, threads] = small;
            let plan = Plan {
                kind,
                operation: Operation::value_variants()[operation],
                size,
                depth,
                batch,
                queue_pairs,
                threads,
                validate,
                amount: Amount::Messages(count),
                warm_up,
                stall: Some(Stall { at, nanoseconds: time }),
                corrupt_at: validate.then_some(wrong),
                schedule: (batch == 1).then_some(Schedule {
                    per_second: f64::from_bits(rate),
                    arrivals: Arrivals::Poisson,
                    seed,
                }),
                ..plan()
            };
            if plan.check().is_ok() {
                let layout = plan.layout().unwrap();
                prop_assert!(layout.out >= 1 && layout.target >= layout.out);
                let bytes = layout.out_bytes() + layout.target_bytes();
                prop_assert!(bytes as u64 * u64::from(plan.queue_pairs) <= MOST_MEMORY);
                prop_assert!(plan.queues_per_thread() >= 1);
                let entries = (plan.depth + plan.receives()) * plan.queues_per_thread() as u32;
                prop_assert!(entries >= 2 && warm_up + at < u64::MAX && warm_up + count < 1 << 42);
            }
        }
    }

    #[test]
    fn a_plan_survives_the_way_to_the_peer_and_nothing_else_is_taken_for_one() {
        let mut plan = plan();
        plan.stall = Some(Stall { at: 3, nanoseconds: 5 });
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert!(serde_json::from_str::<Plan>(&text.replacen('{', "{\"more\":1,", 1)).is_err());
    }
}
