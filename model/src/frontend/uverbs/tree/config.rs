//! Environment variables. Every variable the model reads is read here; the crate's documentation
//! lists them.

use super::super::process::{trap, valgrind};
use crate::card::{CounterSets, Identity, Link, PortState, Profile, Timeouts};
use crate::engine::DEVICES;
use crate::fabric::Carrier;
use crate::fault::Faults;
use crate::private::files;
use crate::trace::Detail;

/// When the model offers devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// If the kernel offers no mlx5 device.
    Auto,
    /// Always, whatever the kernel offers.
    Always,
    /// Never.
    Never,
}

/// How the device notices stores to its registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Every store traps: it is seen in order, and what it starts is executed inside it.
    Trapped,
    /// The registers are plain memory that a thread polls. Stores in quick succession may be seen
    /// as one, as behind a write-combining buffer.
    Polled,
    /// The registers are plain memory, and nothing happens until [`crate::run`] is called.
    Manual,
}

/// The state of the device node that a program opens, `/dev/infiniband/uverbs0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    /// Every user may open it.
    Open,
    /// It is missing, as in a container that shows the device but was not given its node.
    Missing,
    /// Only users who may override permissions may open it.
    Forbidden,
}

/// The kinds of register pages that the kernel gives programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// All kinds.
    All,
    /// No write-combining ones, so there is no BlueFlame.
    NonCached,
}

/// The network that the ports are on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub carrier: Carrier,
    /// The interface of each device, by its name or an address. Without any, interfaces are views.
    pub interfaces: Vec<String>,
}

impl Network {
    /// Returns the name of the fabric: devices of other fabrics are out of reach.
    pub fn domain(&self, link: Link) -> String {
        // Names of sockets are short.
        let hash = || crc32fast::hash(self.interfaces.join(",").as_bytes());
        match (self.carrier, link) {
            (Carrier::Udp, _) => format!("udp-{:08x}", hash()),
            (Carrier::Machine, Link::InfiniBand) => "infiniband".into(),
            (Carrier::Machine, Link::Roce) if self.interfaces.is_empty() => "roce".into(),
            (Carrier::Machine, Link::Roce) => format!("roce-{:08x}", hash()),
        }
    }

    /// The fabric of this machine, and views for interfaces.
    const MACHINE: Self = Self { carrier: Carrier::Machine, interfaces: Vec::new() };

    fn parse(text: &str) -> Option<Self> {
        if text == "machine" {
            return Some(Self::MACHINE);
        }
        let (carrier, names) = match text.split_once(':')? {
            ("machine", names) => (Carrier::Machine, names),
            ("udp", names) => (Carrier::Udp, names),
            _ => return None,
        };
        let interfaces: Vec<String> = names.split(',').map(str::to_owned).collect();
        let fine = interfaces.len() <= DEVICES && interfaces.iter().all(|name| !name.is_empty());
        fine.then_some(Self { carrier, interfaces })
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.carrier {
            Carrier::Machine => "machine",
            Carrier::Udp => "udp",
        })?;
        if self.interfaces.is_empty() {
            Ok(())
        } else {
            write!(f, ":{}", self.interfaces.join(","))
        }
    }
}

/// What a device's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Time {
    /// The machine's time.
    Real,
    /// What the work would cost in a model of a device.
    Virtual,
}

/// Whether a process needs the capabilities that Linux asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// It needs none.
    Granted,
    /// Without CAP_NET_RAW it gets no raw packet queue pair and no flow, as on Linux.
    Checked,
}

/// The output of the recording of what a program does with the kernel's devices.
pub(crate) struct Output(pub String);

/// Returns where the recording of the kernel's devices goes; `None` if they are not observed.
pub(crate) fn observed() -> Option<Output> {
    std::env::var("MLX5_MODEL_OBSERVE").ok().filter(|name| !name.is_empty()).map(Output)
}

/// The whole configuration from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub when: When,
    pub link: Link,
    pub network: Network,
    pub mode: Mode,
    pub time: Time,
    pub devices: usize,
    /// Whether firmware accepts commands from programs.
    pub user_contexts: bool,
    /// Whether programs get sets of queue counters.
    pub counter_sets: CounterSets,
    /// Output of the recording, and what it has.
    pub trace: Option<(String, Detail)>,
    /// Output of the capture.
    pub capture: Option<String>,
    /// Reasons of refusals and failures go to standard error.
    pub explains: bool,
    /// The generation that the devices stand for.
    pub profile: Profile,
    /// State of the ports.
    pub port: PortState,
    /// log2 of the links' MTU, if it is not the default.
    pub log_mtu: Option<u32>,
    /// The law of transport timers.
    pub timeouts: Timeouts,
    /// The seed with which WQEs that have changed are executed in either version.
    pub prefetch: Option<u64>,
    /// The seed with which data becomes visible in any order that the specification allows.
    pub placement: Option<u64>,
    /// Rules for faults of devices and frames.
    pub faults: Faults,
    /// Whether device nodes can be opened.
    pub node: Node,
    /// The kinds of register pages that programs get.
    pub pages: Pages,
    /// Whether a process needs the capabilities that Linux asks for.
    pub privilege: Privilege,
}

/// All variables of the model.
const VARIABLES: &[&str] = &[
    "MLX5_MODEL",
    "MLX5_MODEL_CAPTURE",
    "MLX5_MODEL_COUNTER_SETS",
    "MLX5_MODEL_DEVICES",
    "MLX5_MODEL_DEVX",
    "MLX5_MODEL_FAULTS",
    "MLX5_MODEL_LINK",
    "MLX5_MODEL_MODE",
    "MLX5_MODEL_MTU",
    "MLX5_MODEL_NETWORK",
    "MLX5_MODEL_NODE",
    "MLX5_MODEL_OBSERVE",
    "MLX5_MODEL_PLACEMENT",
    "MLX5_MODEL_PORT",
    "MLX5_MODEL_PREFETCH",
    "MLX5_MODEL_PRIVILEGE",
    "MLX5_MODEL_PROFILE",
    "MLX5_MODEL_REASONS",
    "MLX5_MODEL_TIME",
    "MLX5_MODEL_TIMEOUTS",
    "MLX5_MODEL_TRACE",
    "MLX5_MODEL_TRACE_DETAIL",
    "MLX5_MODEL_UAR",
];
/// Variables that are read elsewhere: by the command `mlx5`, by the build, and by tests.
const OTHERS: &[&str] = &["MLX5_MODEL_LIBRARY", "MLX5_MODEL_BUILD"];
const TESTS: &str = "MLX5_MODEL_TEST_";

/// Returns whether stores of this process can be trapped.
pub(crate) fn can_trap() -> bool {
    trap::AVAILABLE && !valgrind::is_running()
}

impl Config {
    /// Reads the environment. The error names the variable, its value and the allowed values.
    pub fn from_environment() -> Result<Self, String> {
        let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        known(names)?;
        let get = |name: &str| match std::env::var(name) {
            Ok(value) => Ok(Some(value)),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(error) => Err(format!("{name}: {error}")),
        };
        Self::from(&get, can_trap())
    }

    /// Returns the identity with the environment's settings.
    pub fn applied_to(&self, identity: Identity) -> Identity {
        Identity {
            user_contexts: self.user_contexts,
            counter_sets: self.counter_sets,
            profile: self.profile,
            port: self.port,
            log_mtu: self.log_mtu,
            timeouts: self.timeouts,
            prefetch: self.prefetch,
            placement: self.placement,
            ..identity
        }
    }

    /// Reads the variables that `get` returns. `traps` says whether stores can be trapped.
    fn from(
        get: &dyn Fn(&str) -> Result<Option<String>, String>,
        traps: bool,
    ) -> Result<Self, String> {
        let when = choose(
            get,
            "MLX5_MODEL",
            &[("auto", When::Auto), ("always", When::Always), ("never", When::Never)],
        )?;
        let link = choose(
            get,
            "MLX5_MODEL_LINK",
            &[("infiniband", Link::InfiniBand), ("roce", Link::Roce)],
        )?;
        let default = if traps { Mode::Trapped } else { Mode::Polled };
        let mode = choose(
            get,
            "MLX5_MODEL_MODE",
            &[("trapped", Mode::Trapped), ("polled", Mode::Polled), ("manual", Mode::Manual)],
        )?;
        if mode == Some(Mode::Trapped) && !traps {
            let why = match trap::AVAILABLE {
                true => "fails under valgrind, which cannot step over a store that faults",
                false => "is made for x86-64 and arm64 alone",
            };
            return Err(format!("MLX5_MODEL_MODE=trapped {why}; set MLX5_MODEL_MODE=polled"));
        }
        let devices = number(get, "MLX5_MODEL_DEVICES", 1, DEVICES)?;
        let timeouts = timeouts(get)?;
        let prefetch = seed(get, "MLX5_MODEL_PREFETCH")?;
        let placement = seed(get, "MLX5_MODEL_PLACEMENT")?;
        let network = network(get, link, devices)?;
        let (devices, link) = match network.interfaces.len() {
            0 => (devices.unwrap_or(1), link.unwrap_or(Link::InfiniBand)),
            interfaces => (interfaces, Link::Roce),
        };
        let mode = mode.unwrap_or(default);
        let time = time(get, mode, &network)?;
        let devx = choose(get, "MLX5_MODEL_DEVX", &[("allowed", true), ("refused", false)])?;
        let counter_sets = choose(
            get,
            "MLX5_MODEL_COUNTER_SETS",
            &[("refused", CounterSets::Refused), ("allowed", CounterSets::Allowed)],
        )?;
        let detail = choose(
            get,
            "MLX5_MODEL_TRACE_DETAIL",
            &[("replay", Detail::Replay), ("story", Detail::Story)],
        )?;
        let detail = detail.unwrap_or(Detail::Replay);
        let trace = file(get, "MLX5_MODEL_TRACE")?.map(|name| (name, detail));
        let capture = file(get, "MLX5_MODEL_CAPTURE")?;
        let explains = choose(get, "MLX5_MODEL_REASONS", &[("none", false), ("stderr", true)])?;
        let port = choose(
            get,
            "MLX5_MODEL_PORT",
            &[
                ("active", PortState::Active),
                ("armed", PortState::Armed),
                ("init", PortState::Init),
                ("polling", PortState::Polling),
                ("disabled", PortState::Disabled),
            ],
        )?
        .unwrap_or(PortState::Active);
        if link == Link::Roce && !matches!(port, PortState::Active | PortState::Disabled) {
            return Err("with MLX5_MODEL_LINK=roce MLX5_MODEL_PORT is active or disabled".into());
        }
        let profile = profile(get, link)?;
        let log_mtu = choose(
            get,
            "MLX5_MODEL_MTU",
            &[("256", 8), ("512", 9), ("1024", 10), ("2048", 11), ("4096", 12)],
        )?;
        let faults = faults(get)?;
        let node = choose(
            get,
            "MLX5_MODEL_NODE",
            &[("open", Node::Open), ("missing", Node::Missing), ("forbidden", Node::Forbidden)],
        )?;
        let pages =
            choose(get, "MLX5_MODEL_UAR", &[("all", Pages::All), ("noncached", Pages::NonCached)])?;
        let privilege = choose(
            get,
            "MLX5_MODEL_PRIVILEGE",
            &[("granted", Privilege::Granted), ("checked", Privilege::Checked)],
        )?;
        Ok(Self {
            when: when.unwrap_or(When::Auto),
            link,
            network,
            mode,
            time,
            devices,
            user_contexts: devx.unwrap_or(true),
            counter_sets: counter_sets.unwrap_or_default(),
            trace,
            capture,
            explains: explains.unwrap_or(false),
            profile,
            port,
            log_mtu,
            timeouts,
            prefetch,
            placement,
            faults,
            node: node.unwrap_or(Node::Open),
            pages: pages.unwrap_or(Pages::All),
            privilege: privilege.unwrap_or(Privilege::Granted),
        })
    }
}

/// Checks that every variable with the model's prefix is one that it knows.
///
/// # Errors
/// A sentence with the first unknown variable, and the known one that is most like it.
fn known(names: impl Iterator<Item = String>) -> Result<(), String> {
    let is_known =
        |name: &str| VARIABLES.contains(&name) || OTHERS.contains(&name) || name.starts_with(TESTS);
    let mut unknown: Vec<String> =
        names.filter(|name| name.starts_with("MLX5_MODEL_") && !is_known(name)).collect();
    // The environment has no order.
    unknown.sort();
    let Some(name) = unknown.first() else { return Ok(()) };
    let nearest =
        VARIABLES.iter().min_by_key(|known| distance(known, name)).unwrap_or(&"MLX5_MODEL");
    Err(format!(
        "{name} is no variable of the model: set {nearest}, which is the nearest, or unset it"
    ))
}

/// Returns how many letters have to be inserted, removed or replaced to turn one text into the other.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (at, with) in other.bytes().enumerate() {
            let replaced = diagonal + usize::from(letter != with);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}

fn number(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    name: &str,
    first: usize,
    last: usize,
) -> Result<Option<usize>, String> {
    let Some(text) = get(name)? else { return Ok(None) };
    let number = text.parse().ok().filter(|number| (first..=last).contains(number));
    let unknown = || format!("{name} is {text:?}, not a number from {first} to {last}");
    number.map(Some).ok_or_else(unknown)
}

fn file(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    variable: &str,
) -> Result<Option<String>, String> {
    match get(variable)? {
        Some(name) if name.is_empty() => Err(format!("{variable} names no file")),
        name => Ok(name),
    }
}

/// Reads the generation of ConnectX, which the link has to fit.
fn profile(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    link: Link,
) -> Result<Profile, String> {
    const NAME: &str = "MLX5_MODEL_PROFILE";
    let values = Profile::ALL.map(|profile| (profile.name(), profile));
    let profile = choose(get, NAME, &values)?.unwrap_or_default();
    if profile.carries(link) {
        return Ok(profile);
    }
    Err(format!("{NAME}={} has no InfiniBand ports: set MLX5_MODEL_LINK=roce", profile.name()))
}

/// Reads the law of transport timers.
fn timeouts(get: &dyn Fn(&str) -> Result<Option<String>, String>) -> Result<Timeouts, String> {
    let Some(text) = get("MLX5_MODEL_TIMEOUTS")? else { return Ok(Timeouts::default()) };
    Timeouts::named(&text).ok_or_else(|| {
        format!(
            "MLX5_MODEL_TIMEOUTS is {text:?}, not one of measured, floor-off, specification, \
             specification:CODE with the code of the shortest timeout, 0 to 31"
        )
    })
}

/// Reads the seed of a mode that is off without one.
fn seed(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    name: &str,
) -> Result<Option<u64>, String> {
    let Some(text) = get(name)? else { return Ok(None) };
    let seed = text.parse().map(Some);
    seed.map_err(|_| format!("{name} is {text:?}, not a seed: a number from 0 to {}", u64::MAX))
}

/// Reads the rules for faults: a value with a slash is the path of a file.
fn faults(get: &dyn Fn(&str) -> Result<Option<String>, String>) -> Result<Faults, String> {
    let Some(value) = get("MLX5_MODEL_FAULTS")? else { return Ok(Faults::default()) };
    let file = value.contains('/').then_some(&value);
    let text = match file {
        Some(path) => {
            files::text(path).map_err(|error| format!("MLX5_MODEL_FAULTS names {path}: {error}"))?
        }
        None => value.clone(),
    };
    text.parse().map_err(|error| match file {
        Some(path) => format!("MLX5_MODEL_FAULTS names {path}: {error}"),
        None => format!("MLX5_MODEL_FAULTS: {error}"),
    })
}

/// Reads the network, which the link and the number of devices have to fit.
fn network(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    link: Option<Link>,
    devices: Option<usize>,
) -> Result<Network, String> {
    let Some(text) = get("MLX5_MODEL_NETWORK")? else { return Ok(Network::MACHINE) };
    let network = Network::parse(&text).ok_or_else(|| {
        format!(
            "MLX5_MODEL_NETWORK is {text:?}, not \"machine\", or \"machine:\" or \"udp:\" and an interface \
             or address for each device"
        )
    })?;
    let interfaces = network.interfaces.len();
    if interfaces > 0 && link == Some(Link::InfiniBand) {
        return Err(format!("MLX5_MODEL_NETWORK={text} carries MLX5_MODEL_LINK=roce alone"));
    }
    if interfaces > 0 && devices.is_some_and(|devices| devices != interfaces) {
        return Err(format!(
            "MLX5_MODEL_NETWORK={text} has {interfaces} interfaces, one for each device: \
             MLX5_MODEL_DEVICES is another number"
        ));
    }
    Ok(network)
}

/// Reads what the clocks say. Virtual time needs every store, and the times of all packets.
fn time(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    mode: Mode,
    network: &Network,
) -> Result<Time, String> {
    let values = [("real", Time::Real), ("virtual", Time::Virtual)];
    let time = choose(get, "MLX5_MODEL_TIME", &values)?.unwrap_or(Time::Real);
    match (time, mode, network.carrier) {
        (Time::Real, ..) | (_, Mode::Trapped, Carrier::Machine) => Ok(time),
        (_, Mode::Trapped, Carrier::Udp) => Err("MLX5_MODEL_TIME=virtual is for devices of one \
             process: packets of MLX5_MODEL_NETWORK=udp carry no virtual time; leave one of them out"
            .into()),
        (_, Mode::Polled | Mode::Manual, _) => Err("MLX5_MODEL_TIME=virtual has to see every store: \
             it needs MLX5_MODEL_MODE=trapped, on x86-64 or arm64 and not under valgrind"
            .into()),
    }
}

fn choose<T: Copy>(
    get: &dyn Fn(&str) -> Result<Option<String>, String>,
    name: &str,
    values: &[(&str, T)],
) -> Result<Option<T>, String> {
    let Some(text) = get(name)? else { return Ok(None) };
    match values.iter().find(|(value, _)| *value == text) {
        Some((_, meaning)) => Ok(Some(*meaning)),
        None => {
            let known: Vec<&str> = values.iter().map(|(value, _)| *value).collect();
            Err(format!("{name} is {text:?}, not one of {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests;
