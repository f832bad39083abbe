//! Options of `mlx5 mesh`.

use std::net::ToSocketAddrs as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::facts::NAMES;
use super::launcher::{Launcher, Place, first_host};
use super::link::Limits;
use super::schedule::Pattern;
use super::traffic::Parsed;
use super::words::Traffic;
use crate::outcome::{Error, Result};
use crate::perf::arguments::{Local, time};
use crate::perf::result::Kind;

/// The default port of the meeting.
pub const PORT: u16 = 18519;

/// Most ranks of a run: rank 0 has a connection with each.
const MOST_RANKS: u32 = 16_384;

/// Most ranks of a page: its matrix has 4 bytes a pair and kind of traffic.
const MOST_OF_PAGE: u32 = 4096;

/// In which directions a stream is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Directions {
    /// In each direction, one after the other
    Each,
    /// In one direction of each link
    One,
}

/// Find the slow link of a cluster: measure all pairs of ranks, and name what stands out
///
/// Start it on all hosts by the launcher that is there: mpirun, mpiexec, srun, a job of Kubernetes, or
/// by ssh with `--hosts`. The ranks meet at one TCP address, and know each other by a shared secret.
/// Rank 0 conducts and prints. Before traffic it compares the ports, and names the odd one out. Each
/// rank is in one link at a time. Links that stand out are measured again, alone. A rank that comes late,
/// ends or hangs is told in the result; only rank 0 has to stay.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The rank of this process [default: as the launcher tells]
    #[arg(long, value_name = "N", help_heading = "Ranks")]
    pub(super) rank: Option<u32>,
    /// The number of ranks [default: as the launcher tells]
    #[arg(long, value_name = "N", help_heading = "Ranks")]
    pub(super) size: Option<u32>,
    /// The number of the rank among those of its host [default: as the launcher tells]
    #[arg(long, value_name = "N", help_heading = "Ranks")]
    pub(super) local: Option<u32>,
    /// Start the ranks by ssh: a file with a host a line, and a number of ranks behind it, if more than 1
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rank", "size"], help_heading = "Ranks")]
    pub(super) hosts: Option<PathBuf>,
    /// The program that starts a command on a host, with its options
    #[arg(
        long,
        value_name = "COMMAND",
        default_value = "ssh -o BatchMode=yes",
        requires = "hosts",
        help_heading = "Ranks"
    )]
    pub(super) ssh: String,
    /// The host of rank 0, to which the others connect [default: this host if all ranks are on it; with
    /// Slurm the first host of the step; the port 18519]
    #[arg(long, value_name = "HOST[:PORT]", env = "MLX5_MESH_MEET", help_heading = "Ranks")]
    pub(super) meet: Option<String>,
    /// The address at which rank 0 listens [default: all of IPv4, or of IPv6 if --meet has no other]
    #[arg(long, value_name = "ADDRESS", help_heading = "Ranks")]
    pub(super) listen: Option<String>,
    /// The secret that all ranks share [default: the variable MLX5_MESH_SECRET]
    #[arg(long, value_name = "FILE", help_heading = "Ranks")]
    pub(super) secret_file: Option<PathBuf>,
    /// How long rank 0 waits for the others
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", help_heading = "Ranks")]
    pub(super) wait: Duration,
    /// How long a rank may be silent in one step
    #[arg(long, value_name = "TIME", value_parser = patience, default_value = "10s",
          help_heading = "Ranks")]
    pub(super) patience: Duration,
    /// The devices of the ranks of a host, in their order [default: that of --device]
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Ranks")]
    pub(super) rails: Vec<String>,

    /// The links: all, ring, bisection, rails, `one:N` (rank N with each other), or pairs such as 0-1,2-3
    #[arg(long, value_name = "PATTERN", default_value = "all", value_parser = pattern,
          help_heading = "Links")]
    pub(super) pattern: Pattern,
    /// Measure latency, with these options of `mlx5 perf lat`; more than once for several
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", help_heading = "Links")]
    lat: Vec<String>,
    /// Measure bandwidth, with these options of `mlx5 perf bw`; without --lat, --bw and --rate, latency
    /// and bandwidth are measured
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", help_heading = "Links")]
    bw: Vec<String>,
    /// Measure message rate, with these options of `mlx5 perf rate`
    #[arg(long, value_name = "OPTIONS", num_args = 0..=1, require_equals = true,
          default_missing_value = "", help_heading = "Links")]
    rate: Vec<String>,
    /// The directions of streams; for both at once, give -b to --bw
    #[arg(long, value_enum, default_value = "each", help_heading = "Links")]
    pub(super) directions: Directions,
    /// End the messages of a link after this time, and take what was measured until then
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "30s",
          help_heading = "Links")]
    pub(super) link_limit: Duration,

    /// How many times worse than the median a link is that stands out
    #[arg(long, value_name = "RATIO", default_value = "1.5", value_parser = ratio,
          help_heading = "Results")]
    pub(super) apart: f64,
    /// Most links that are measured again, alone: the worst first
    #[arg(long, value_name = "N", default_value_t = 64, help_heading = "Results")]
    pub(super) again: usize,
    /// Facts that may differ between ranks, such as kernel,firmware
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Results")]
    pub(super) ignore: Vec<String>,
    /// The switch of each port: a file of lines such as `leaf1: 12 0x1f c17 b8:3f:d2:00:00:01`, with LIDs,
    /// MAC addresses or hosts
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) switches: Option<PathBuf>,
    /// Compare with an earlier run: what --json printed
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub(super) compare: Option<PathBuf>,
    /// Write one page with the matrix, for any browser; it needs no other file and no network
    #[arg(long, value_name = "FILE.html", help_heading = "Results")]
    pub(super) report: Option<PathBuf>,

    #[command(flatten)]
    pub(super) device: Local,
}

const EXAMPLES: &str = "\
Examples:
  export MLX5_MESH_SECRET=$(head -c 32 /dev/urandom | base64)
  mpirun -x MLX5_MESH_SECRET -np 16 ./mesh.sh --meet c01   # Open MPI, with the script of docs/fleet.md
  mpiexec -n 16 ./mesh.sh --meet c01                       # MPICH, the same
  srun -K0 -n 16 mlx5 mesh                                 # Slurm
  mlx5 mesh --hosts hosts.txt --report mesh.html           # ssh, without a secret of yours
  mlx5 mesh ... --pattern ring --lat='-s 64' --bw='-o write -s 1M --at-least bw=90Gbit/s'";

fn patience(text: &str) -> Result<Duration, String> {
    // Both sides of a link tell every other second that they go on.
    let shortest = Duration::from_secs(5);
    let time = limit(text)?;
    if time >= shortest { Ok(time) } else { Err("it is from 5s to 60min".to_owned()) }
}

fn limit(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_secs(3600);
    if allowed.contains(&time) { Ok(time) } else { Err("it is from 100ms to 60min".to_owned()) }
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio: &f64| (1.01..=1e6).contains(ratio));
    ratio.ok_or_else(|| "it is a ratio such as 1.5".to_owned())
}

fn pattern(text: &str) -> Result<Pattern, String> {
    let wrong = || "all, ring, bisection, rails, one:N, or pairs such as 0-1,2-3".to_owned();
    let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
    match text {
        "all" => Ok(Pattern::AllPairs),
        "ring" => Ok(Pattern::Ring),
        "bisection" => Ok(Pattern::Bisection),
        "rails" => Ok(Pattern::Rails),
        text => match text.strip_prefix("one:") {
            Some(rank) => number(rank).map(Pattern::OneToMany),
            None => {
                let pair = |text: &str| {
                    let (one, other) = text.split_once('-').ok_or_else(wrong)?;
                    match (number(one)?, number(other)?) {
                        (one, other) if one == other => Err(format!("{one}-{other} is no link")),
                        pair => Ok(pair),
                    }
                };
                text.split(',').map(pair).collect::<Result<_, String>>().map(Pattern::Pairs)
            }
        },
    }
}

impl Arguments {
    /// Returns the time limits.
    pub(super) fn limits(&self) -> Limits {
        Limits { patience: self.patience, link: self.link_limit }
    }

    /// Returns the kinds of traffic.
    pub(super) fn traffic(&self) -> Result<Vec<Parsed>> {
        let kinds = [(Kind::Lat, &self.lat), (Kind::Bw, &self.bw), (Kind::Rate, &self.rate)];
        let mut all: Vec<Traffic> = kinds
            .into_iter()
            .flat_map(|(kind, options)| {
                options.iter().map(move |options| Traffic { kind, options: options.clone() })
            })
            .collect();
        if all.is_empty() {
            let usual = |kind| Traffic { kind, options: String::new() };
            all = [Kind::Lat, Kind::Bw].map(usual).into();
        }
        all.iter().map(Parsed::new).collect()
    }

    /// Checks the number of ranks, ranks of the pattern, and names of facts.
    pub(super) fn check(&self, size: u32) -> Result<()> {
        if size > MOST_RANKS {
            return Err(Error::Usage(format!(
                "{size} ranks: a run has {MOST_RANKS} at most; start one run for each part of the cluster"
            )));
        }
        let named: Vec<u32> = match &self.pattern {
            Pattern::OneToMany(rank) => vec![*rank],
            Pattern::Pairs(pairs) => pairs.iter().flat_map(|(one, other)| [*one, *other]).collect(),
            _ => Vec::new(),
        };
        if self.report.is_some() && size > MOST_OF_PAGE {
            return Err(Error::Usage(format!(
                "--report: a page has {MOST_OF_PAGE} ranks at most, and the run {size}; --json has all"
            )));
        }
        if let Some(fact) = self.ignore.iter().find(|fact| !NAMES.contains(&fact.as_str())) {
            return Err(Error::Usage(format!(
                "--ignore {fact}: the facts are {}",
                NAMES.join(", ")
            )));
        }
        match named.iter().find(|rank| **rank >= size) {
            Some(rank) => Err(Error::Usage(format!(
                "--pattern: rank {rank} of {size} ranks: ranks are numbered from 0"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the place of this process.
    pub(super) fn place(&self) -> Result<Place> {
        let variable = |name: &str| std::env::var(name).ok();
        let mut place = Place::find(self.rank, self.size, variable).map_err(Error::Usage)?;
        place.local = self.local.or(place.local);
        Ok(place)
    }

    /// Returns the address at which rank 0 listens.
    pub(super) fn listen(&self, meeting: &(String, u16)) -> String {
        let mut found =
            (meeting.0.as_str(), meeting.1).to_socket_addrs().into_iter().flatten().peekable();
        let is_6 = found.peek().is_some() && found.all(|address| address.is_ipv6());
        let all = if is_6 { "::" } else { "0.0.0.0" };
        self.listen.clone().unwrap_or_else(|| all.to_owned())
    }

    /// Returns where the ranks meet.
    pub(super) fn meeting(&self, place: &Place) -> Result<(String, u16)> {
        if let Some(meet) = &self.meet {
            return address(meet);
        }
        let variable = |name: &str| std::env::var(name).ok();
        let all_here = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]
            .iter()
            .any(|name| variable(name) == Some(place.size.to_string()));
        let nodes = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
        let of_slurm = match place.launcher {
            Launcher::Slurm => nodes.iter().find_map(|name| first_host(&variable(name)?)),
            _ => None,
        };
        let here = (all_here || place.size == 1).then(|| "127.0.0.1".to_owned());
        let host = of_slurm.or(here).ok_or_else(|| {
            Error::Usage(
                "where do the ranks meet? give --meet HOST, or set MLX5_MESH_MEET: the host of rank 0"
                    .to_owned(),
            )
        })?;
        Ok((host, PORT))
    }
}

/// Parses a host with or without a port; an IPv6 address with a port is in brackets.
pub(super) fn address(text: &str) -> Result<(String, u16)> {
    let wrong =
        || Error::Usage(format!("--meet {text}: it is a host, or a host and a port: c01:18519"));
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':'))
        }
        None if text.matches(':').count() > 1 => (text, None),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map_or(Ok(PORT), |port| port.parse().map_err(|_| wrong()))?;
    if host.is_empty() { Err(wrong()) } else { Ok((host.to_owned(), port)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_addresses_are_those_of_the_help() {
        assert_eq!(pattern("one:3"), Ok(Pattern::OneToMany(3)));
        assert_eq!(pattern("0-1,2-3"), Ok(Pattern::Pairs(vec![(0, 1), (2, 3)])));
        for wrong in ["", "some", "one:x", "1", "0-1,2", "0-0"] {
            assert!(pattern(wrong).is_err(), "{wrong}");
        }
        let of = |text: &str| address(text).ok();
        assert_eq!(of("c01"), Some(("c01".to_owned(), PORT)));
        assert_eq!(of("c01:7"), Some(("c01".to_owned(), 7)));
        assert_eq!(of("fe80::1"), Some(("fe80::1".to_owned(), PORT)));
        assert_eq!(of("[fe80::1]:7"), Some(("fe80::1".to_owned(), 7)));
        assert_eq!((of(":7"), of("c01:x"), of("[::1")), (None, None, None));
    }
}
