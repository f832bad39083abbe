//! Options that `lat`, `bw` and `rate` share, and the plans made from them.

mod parse;
mod settings;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mlx5::verbs::{Context, HugePageSize};

pub(super) use self::parse::scaled;
pub use self::parse::time;
use self::parse::{bytes, inline, percent, rate, sweep};
use crate::outcome::{Error, Result};
use crate::perf::cm;
use crate::perf::limit::{Bound, Compared, Limit};
use crate::perf::peer::perftest::{self, check};
use crate::perf::peer::{Peer, Program};
use crate::perf::perftest::Perftest;
use crate::perf::plan::{
    Amount, Arrivals, Carrier, Connecting, Direction, Header, Operation, Plan, ReceiveSource,
    Retransmission, Schedule, Stall, Waiting,
};
use crate::perf::result::{Kind, Point, Via};
use crate::perf::session::Session;
use crate::perf::station::Side;
use crate::perf::station::memory::{Origin, Source};
use crate::perf::station::place;

/// Largest payload that is inline by default, as in perftest's latency tests.
const INLINE: u64 = 220;

/// A side's port, threads and memory.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "This side")]
pub struct Local {
    /// The device's port
    #[arg(short, long, value_name = "N", default_value_t = 1)]
    pub ib_port: u8,
    /// The entry of the port's GID table to be addressed by [default: none on InfiniBand; on Ethernet
    /// the first of RoCE v2]
    #[arg(short = 'x', long, value_name = "N")]
    pub gid_index: Option<u8>,
    /// CPUs that threads run on, in turn, such as 2 or 2,4-6
    #[arg(long, value_name = "LIST", value_parser = place::cpus)]
    pub cpu: Option<std::vec::Vec<usize>>,
    /// Take memory of this NUMA node, and run there unless --cpu says otherwise
    #[arg(long, value_name = "NODE")]
    pub numa: Option<u32>,
    /// Take memory on huge pages: 2M or 1G
    #[arg(long, value_name = "SIZE", value_parser = place::huge)]
    pub huge: Option<HugePageSize>,
    /// Whose memory this side's messages are in; the other side chooses its own
    #[arg(long, value_enum, default_value = "host")]
    pub memory: Source,
}

impl Local {
    /// Creates the side.
    ///
    /// # Errors
    /// Those of [`Side::new`].
    pub fn side(&self, context: Context) -> Result<Side> {
        let origin = Origin { node: self.numa, huge: self.huge, source: self.memory };
        Side::new(context, self.ib_port, self.gid_index, origin)
    }

    /// Returns the CPUs that threads run on; empty if the system chooses.
    ///
    /// # Errors
    /// Fails if there is no such NUMA node.
    pub fn cpus(&self) -> Result<Vec<usize>> {
        match (&self.cpu, self.numa) {
            (Some(cpus), _) => Ok(cpus.clone()),
            (None, Some(node)) => place::cpus_of_node(node),
            (None, None) => Ok(Vec::new()),
        }
    }
}

/// The messages that are sent inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Inline {
    Auto,
    UpTo(u64),
}

/// Options of a measurement.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Host that runs `mlx5 perf server`, or perftest's server with --peer perftest
    #[arg(conflicts_with = "loopback")]
    pub host: Option<String>,
    /// Be both sides in this process: for one machine alone
    #[arg(long)]
    pub loopback: bool,
    /// The server's TCP port [default: 18517; perftest's 18515]
    #[arg(short, long, value_name = "PORT")]
    port: Option<u16>,
    /// The program that HOST runs
    #[arg(long, value_enum, default_value = "mlx5")]
    peer: Program,

    /// Operation of the requests
    #[arg(short, long, value_enum, default_value = "send", help_heading = "Messages")]
    operation: Operation,
    /// How queue pairs are connected
    #[arg(short = 'c', long, value_enum, default_value = "rc", help_heading = "Messages")]
    transport: Carrier,
    /// Multicast group that the client's packets go to, such as 239.1.1.1: raw alone
    #[arg(long, value_name = "ADDRESS", help_heading = "Messages")]
    group: Option<Ipv4Addr>,
    /// So many groups from that one on, to which the packets go in turn
    #[arg(long, value_name = "N", requires = "group", help_heading = "Messages")]
    groups: Option<u32>,
    /// Bytes of a message, such as 64 or 4K; give it more than once, or a list, for several points
    #[arg(short, long = "size", value_name = "BYTES", value_delimiter = ',',
          value_parser = bytes, help_heading = "Messages")]
    sizes: Vec<u64>,
    /// All powers of two from one size to another, such as 2..64K
    #[arg(long, value_name = "FIRST..LAST", value_parser = sweep, conflicts_with = "sizes",
          help_heading = "Messages")]
    sweep: Option<(u64, u64)>,
    /// Payloads that travel in the WQE: those up to so many bytes, or none with 0 [default: 220 for
    /// lat and rate, 0 for bw]
    #[arg(short = 'I', long, value_name = "auto|BYTES", default_value = "auto",
          value_parser = inline, hide_default_value = true, help_heading = "Messages")]
    inline: Inline,
    /// Messages to be measured, of each thread [default: 10000 for lat, 5000 for bw, 50000 for rate]
    #[arg(short = 'n', long, value_name = "N", help_heading = "Messages")]
    iterations: Option<u64>,
    /// Measure for so long instead, such as 5s or 300ms
    #[arg(short = 'D', long, value_name = "TIME", value_parser = time,
          conflicts_with = "iterations", help_heading = "Messages")]
    duration: Option<Duration>,
    /// Messages before those
    #[arg(short, long, value_name = "N", default_value_t = 100, help_heading = "Messages")]
    warm_up: u64,
    /// Whose code posts and polls, at both sides
    #[arg(long, value_enum, default_value = "direct", help_heading = "Ways")]
    via: Via,
    /// Measure both ways in turn, block by block, and print what libmlx5's calls take of the CPU for
    /// each of what direct ones take. Calls are stamped, which makes both slower alike
    #[arg(long, conflicts_with_all = ["via", "raw_samples"], help_heading = "Ways")]
    pub compare: bool,
    /// Pairs of blocks that a point is split into
    #[arg(long, value_name = "N", default_value_t = 16, requires = "compare",
          value_parser = clap::value_parser!(u64).range(1..=10_000), help_heading = "Ways")]
    pub pairs: u64,

    /// Have both sides send at the same time: bw and rate. The table has the sum, and each direction
    #[arg(short, long, conflicts_with = "compare", help_heading = "Messages")]
    bidirectional: bool,
    /// Sleep until the device tells of a completion, at both sides, in place of polling
    #[arg(short, long, help_heading = "Queues")]
    events: bool,
    /// Look at every byte of every message that arrives; what is wrong ends with status 1
    #[arg(long, help_heading = "Messages")]
    validate: bool,

    /// Requests rung by one doorbell [default: 1; 16 for rate]
    #[arg(short = 'l', long, visible_alias = "burst", value_name = "N", help_heading = "Queues")]
    batch: Option<u32>,
    /// Ask for a completion for every N-th request [default: 1 for lat and open loops, 16 for bw, 64
    /// for rate]
    #[arg(short = 'Q', long, value_name = "N", help_heading = "Queues")]
    signal_every: Option<u32>,
    /// Requests outstanding on a queue pair at most [default: 128; 16 for lat, 256 for rate]
    #[arg(short = 't', long, value_name = "N", help_heading = "Queues")]
    depth: Option<u32>,
    /// Queue pairs, of all threads together [default: one per thread]
    #[arg(short, long, value_name = "N", help_heading = "Queues")]
    qps: Option<u32>,
    /// Threads, each with queues, a CQ and memory of its own
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Queues")]
    threads: u32,
    /// Have the queue pairs of a thread take their receives from one shared queue: rc and ud. With
    /// xrc and dc they do so always
    #[arg(long, alias = "use-srq", help_heading = "Queues")]
    srq: bool,
    /// Connect queue pairs by rdma_cm, with the server's IP address: rc alone. Plans and results still
    /// go over TCP
    #[arg(short = 'R', long, alias = "rdma_cm", help_heading = "Queues")]
    cm: bool,
    /// Path MTU [default: the largest that both ports do]
    #[arg(short, long, value_name = "BYTES", help_heading = "Queues")]
    mtu: Option<u16>,
    /// Service level; on Ethernet the priority
    #[arg(short = 'S', long, value_name = "N", default_value_t = 0, help_heading = "Queues")]
    sl: u8,
    /// Index into the P_Key tables of both ports
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Queues")]
    pkey_index: u16,
    /// Traffic class of packets with an IP header or GRH: the DSCP in the upper six bits, so DSCP 26
    /// is 104 [default: 0]
    #[arg(short = 'T', long, aliases = ["tclass", "tos"], value_name = "N", help_heading = "Queues")]
    traffic_class: Option<u8>,
    /// Routers that such a packet may cross [default: 64]
    #[arg(short = 'L', long, value_name = "N", help_heading = "Queues")]
    hop_limit: Option<u8>,
    /// Time to wait for an acknowledgement: 4.096 µs times 2 to the power N, 0 for ever [default: 14]
    #[arg(short = 'u', long, alias = "qp-timeout", value_name = "N", help_heading = "Queues")]
    ack_timeout: Option<u8>,
    /// Retransmissions before a connection fails, 0 to 7 [default: 7]
    #[arg(long, alias = "retry_count", value_name = "N", help_heading = "Queues")]
    retries: Option<u8>,
    /// Retransmissions to a peer without a posted receive, 0 to 6, or 7 for ever [default: 7]
    #[arg(long, value_name = "N", help_heading = "Queues")]
    rnr_retries: Option<u8>,

    /// Send by a schedule of so many messages a second, such as 100k/s, whatever becomes of them, and
    /// time each from when it should have been sent (an open loop). Without it, a message is sent when
    /// there is room (a closed loop), and what stalls is hidden by the messages that it keeps from
    /// being sent
    #[arg(long, value_name = "RATE", value_parser = rate, help_heading = "Open loop")]
    rate: Option<f64>,
    /// How the messages of a schedule are spread
    #[arg(
        long,
        value_enum,
        default_value = "fixed",
        requires = "rate",
        help_heading = "Open loop"
    )]
    arrivals: Arrivals,
    /// Seed of the random numbers: the same seed gives the same schedule
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Open loop")]
    seed: u64,

    /// Pause before this message is answered (of lat with SEND or WRITE: at the server), or looked
    /// for: to see what the measurement makes of a stall
    #[arg(
        long,
        value_name = "N",
        requires = "stall_for",
        help_heading = "Checking the measurement"
    )]
    stall_at: Option<u64>,
    /// How long that pause is, such as 20ms
    #[arg(long, value_name = "TIME", value_parser = time, requires = "stall_at",
          help_heading = "Checking the measurement")]
    stall_for: Option<Duration>,
    /// Send this message wrong, to see that --validate finds it
    #[arg(long, value_name = "N", help_heading = "Checking the measurement")]
    corrupt_at: Option<u64>,

    /// Percentiles to report
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = percent,
          default_values_t = [50.0, 90.0, 99.0, 99.9, 99.99], help_heading = "Results")]
    pub percentiles: Vec<f64>,
    /// Figures that no size may exceed, such as p99=20us,max=1ms; otherwise the exit status is 1
    #[arg(long, value_name = "LIMITS", value_delimiter = ',', help_heading = "Results")]
    at_most: Vec<Limit>,
    /// Figures that each size must reach, such as bw=90Gbit/s,rate=1M/s; otherwise the exit status is 1
    #[arg(long, value_name = "LIMITS", value_delimiter = ',', help_heading = "Results")]
    at_least: Vec<Limit>,
    /// Write every measured time, one per line, in nanoseconds
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub raw_samples: Option<PathBuf>,

    #[command(flatten)]
    perftest: Perftest,
    #[command(flatten)]
    pub(super) local: Local,
}

impl Arguments {
    /// Makes the plans, one per size.
    ///
    /// # Errors
    /// Returns what cannot be measured, and what to choose instead.
    pub fn plans(&self, kind: Kind) -> Result<Vec<Plan>> {
        self.perftest.check()?;
        if self.host.is_none() && !self.loopback {
            return Err(Error::Usage(
                "name the HOST on which `mlx5 perf server` runs, or give --loopback to be both sides"
                    .to_owned(),
            ));
        }
        let plans: Vec<Plan> =
            self.sizes(kind).into_iter().map(|size| self.plan(kind, size)).collect();
        self.check_cm()?;
        self.check_peer(&plans)?;
        for plan in &plans {
            plan.check().map_err(Error::Usage)?;
            if self.compare {
                // libmlx5 may lack what the direct way has.
                Plan { via: Via::Verbs, ..plan.clone() }.check().map_err(Error::Usage)?;
            }
        }
        Ok(plans)
    }

    /// Checks whether the chosen program can be the other side.
    fn check_peer(&self, plans: &[Plan]) -> Result<()> {
        if self.peer == Program::Mlx5 {
            return Ok(());
        }
        if self.loopback {
            return Err(Error::Usage(
                "--loopback is without another program: leave --peer out, or name a HOST"
                    .to_owned(),
            ));
        }
        if self.compare {
            return Err(Error::Usage(
                "--compare measures many blocks, and perftest's server one: leave --compare out, or \
                 give --via verbs in another measurement"
                    .to_owned(),
            ));
        }
        check::check(plans).map_err(Error::Usage)
    }

    /// Connects to the server on that host.
    ///
    /// # Errors
    /// Returns which address does not answer, and what to do.
    pub fn connect(&self, host: &str, plans: &[Plan]) -> Result<Peer> {
        let port = self.port.unwrap_or_else(|| self.peer.port());
        match (self.peer, plans) {
            (Program::Perftest, [plan, ..]) => {
                Ok(Peer::Perftest(perftest::Perftest::connect(host, port, plan)?))
            }
            _ => Ok(Peer::Ours(Session::connect(host, port)?)),
        }
    }

    /// Checks whether rdma_cm can connect, as far as this side alone knows.
    fn check_cm(&self) -> Result<()> {
        if !self.cm {
            return Ok(());
        }
        if self.local.gid_index.is_some() {
            return Err(Error::Usage(
                "rdma_cm takes the GID of the IP address by which HOST is reached: leave \
                 --gid-index out"
                    .to_owned(),
            ));
        }
        cm::check_build()
    }

    fn sizes(&self, kind: Kind) -> Vec<u64> {
        match (self.sweep, &self.sizes[..]) {
            (Some((first, last)), _) => {
                let sizes = std::iter::successors(Some(first), |size| size.checked_mul(2));
                sizes.take_while(|size| *size <= last).collect()
            }
            (None, []) if self.operation.is_atomic() => vec![8],
            (None, []) => vec![match kind {
                Kind::Bw if matches!(self.transport, Carrier::Ud | Carrier::Raw) => 1024,
                Kind::Bw => 64 << 10,
                Kind::Lat | Kind::Rate => 8,
            }],
            (None, sizes) => sizes.to_vec(),
        }
    }

    fn amount(&self, kind: Kind) -> Amount {
        match (self.duration, self.iterations) {
            (Some(time), _) => Amount::Nanoseconds(nanoseconds(time)),
            (None, Some(count)) => Amount::Messages(count),
            (None, None) => Amount::Messages(match kind {
                Kind::Lat => 10_000,
                Kind::Bw => 5_000,
                Kind::Rate => 50_000,
            }),
        }
    }

    fn plan(&self, kind: Kind, size: u64) -> Plan {
        let depth = self.depth.unwrap_or(match kind {
            Kind::Lat => 16,
            Kind::Bw => 128,
            Kind::Rate => 256,
        });
        let open = self.rate.is_some();
        let batch = self.batch.unwrap_or(if kind == Kind::Rate && !open { 16 } else { 1 });
        let signal_every = self.signal_every.unwrap_or(match kind {
            Kind::Lat => 1,
            _ if open => 1,
            Kind::Bw => 16.min(depth.div_ceil(2)),
            Kind::Rate => 64.min(depth.div_ceil(2)),
        });
        let inline = match self.inline {
            Inline::Auto => kind != Kind::Bw && size <= INLINE && self.local.memory.is_host(),
            Inline::UpTo(most) => size <= most,
        };
        Plan {
            kind,
            operation: self.operation,
            carrier: self.transport,
            size,
            inline: inline && !self.operation.fetches(),
            batch,
            signal_every,
            depth,
            queue_pairs: self.qps.unwrap_or(self.threads),
            threads: self.threads,
            amount: self.amount(kind),
            warm_up: self.warm_up,
            schedule: self.rate.map(|per_second| Schedule {
                per_second,
                arrivals: self.arrivals,
                seed: self.seed,
            }),
            validate: self.validate,
            corrupt_at: self.corrupt_at,
            stall: self
                .stall_at
                .zip(self.stall_for)
                .map(|(at, time)| Stall { at, nanoseconds: nanoseconds(time) }),
            via: self.via,
            mtu: self.mtu,
            service_level: self.sl,
            pkey_index: self.pkey_index,
            header: Header { traffic_class: self.traffic_class, hop_limit: self.hop_limit },
            retransmission: Retransmission {
                ack_timeout: self.ack_timeout,
                retries: self.retries,
                rnr_retries: self.rnr_retries,
            },
            direction: if self.bidirectional { Direction::BothWays } else { Direction::OneWay },
            receives_from: if self.srq { ReceiveSource::Shared } else { ReceiveSource::Own },
            group: self.group,
            groups: self.groups.unwrap_or(1),
            connecting: if self.cm { Connecting::RdmaCm } else { Connecting::Told },
            waiting: if self.events { Waiting::Events } else { Waiting::Polling },
        }
    }

    /// Compares the limits with the points.
    #[must_use]
    pub fn compare(&self, points: &[Point]) -> Vec<Compared> {
        let limits = [(Bound::AtMost, &self.at_most), (Bound::AtLeast, &self.at_least)];
        let compare = |point| {
            limits.iter().flat_map(move |&(bound, limits)| {
                limits.iter().map(move |limit| limit.compare(bound, point))
            })
        };
        points.iter().flat_map(compare).collect()
    }

    /// Returns the threads of a side.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads as usize
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
