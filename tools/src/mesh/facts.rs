//! Facts of a rank before traffic: its host, device and port.

use std::fs;
use std::path::Path;

use mlx5::diag::sysfs::{Interface, PciFunction, PortCounters};
use mlx5::ib::PortState;
use mlx5::verbs::Context;
use serde::{Deserialize, Serialize};

use super::words::Values;
use crate::doctor::flow_control;
use crate::outcome::Result;
use crate::perf::result::environment::Environment;

/// The names of facts that are compared.
pub const NAMES: &[&str] = &[
    "state",
    "link",
    "speed",
    "width",
    "MTU",
    "GIDs",
    "firmware",
    "product",
    "board id",
    "driver",
    "PCI link",
    "NUMA node",
    "interface MTU",
    "PFC",
    "pause",
    "kernel",
    "libmlx5",
    "mlx5",
    "profile",
];

/// The facts of a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// The host's name.
    pub host: String,
    /// The number of its process.
    pub process: u32,
    /// The number of the rank among those of its host, where the launcher tells it.
    pub local: Option<u32>,
    /// The device's name.
    pub device: String,
    /// The port.
    pub port: u8,
    /// The port's LID; 0 on Ethernet.
    pub lid: u16,
    /// The MAC address of the port's interface, on Ethernet.
    pub mac: Option<String>,
    /// True if it is the model.
    pub model: bool,
    /// Why no link can be measured with this rank.
    pub obstacle: Option<String>,
    /// Facts that should be the same everywhere, with their names, in the order of a table.
    pub same: Vec<(String, String)>,
}

impl Facts {
    /// Reads the facts of a port. Some are files of Linux, and left out where there are none.
    ///
    /// # Errors
    /// Those of [`Environment::of`].
    pub fn of(
        context: &Context,
        port: u8,
        host: Option<&str>,
        local: Option<u32>,
    ) -> Result<Facts> {
        let environment = Environment::of(context, port)?;
        let attributes = context.port(port)?;
        let gids = context.gids(port)?;
        let path = context.sysfs_path();
        let first = gids.first().map_or(0, |entry| entry.index);
        let interface = Interface::of_gid(&path, port, first).filter(|_| attributes.is_ethernet());
        let mut kinds: Vec<String> = gids.iter().map(|entry| entry.kind.to_string()).collect();
        kinds.sort_unstable();
        let mut same: Vec<(&str, Option<String>)> = vec![
            ("state", Some(attributes.state.to_string())),
            ("link", Some(environment.link_layer)),
            ("speed", Some(format!("{} Gbit/s", attributes.mbps() / 1000))),
            ("width", Some(format!("x{}", attributes.lanes))),
            ("MTU", Some(attributes.active_mtu.bytes().to_string())),
            ("GIDs", Some(counts(&kinds))),
            ("firmware", Some(environment.firmware)),
            ("product", Some(environment.product)),
            ("board id", environment.board_id),
        ];
        same.extend(of_function(&path));
        same.extend(of_interface(interface.as_ref()));
        same.extend([
            ("kernel", environment.kernel),
            ("libmlx5", environment.libmlx5),
            ("mlx5", Some(environment.version)),
            ("profile", environment.profile),
        ]);
        debug_assert!(same.iter().all(|(name, _)| NAMES.contains(name)), "{same:?}");
        let known = same.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Ok(Facts {
            host: host.map(str::to_owned).or(environment.host).unwrap_or_default(),
            process: std::process::id(),
            local,
            device: environment.device,
            port,
            lid: attributes.lid,
            mac: interface.and_then(|interface| interface.mac),
            model: environment.model,
            obstacle: (!matches!(attributes.state, PortState::Active | PortState::ActiveDefer))
                .then(|| format!("port {port} is {}: `mlx5 doctor` says why", attributes.state)),
            same: known.collect(),
        })
    }

    /// Returns the facts of a rank whose device cannot be opened.
    #[must_use]
    pub fn without_device(host: Option<&str>, local: Option<u32>, why: String) -> Facts {
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Facts {
            host: host.unwrap_or(own.trim()).to_owned(),
            process: std::process::id(),
            local,
            device: "no device".to_owned(),
            port: 0,
            lid: 0,
            mac: None,
            model: false,
            obstacle: Some(why),
            same: Vec::new(),
        }
    }
}

/// Returns the number of each kind: `2 RoCE v1, 2 RoCE v2`. `sorted` are the kinds of all entries.
fn counts(sorted: &[String]) -> String {
    let groups = sorted.chunk_by(|one, other| one == other);
    let counted: Vec<String> =
        groups.map(|group| format!("{} {}", group.len(), group[0])).collect();
    if counted.is_empty() { "none".to_owned() } else { counted.join(", ") }
}

fn of_function(device: &Path) -> Vec<(&'static str, Option<String>)> {
    let Some(function) = PciFunction::of(device) else { return Vec::new() };
    vec![
        ("driver", function.driver()),
        ("PCI link", function.link().map(|link| link.to_string())),
        ("NUMA node", function.numa_node().map(|node| node.to_string())),
    ]
}

fn of_interface(interface: Option<&Interface>) -> Vec<(&'static str, Option<String>)> {
    let Some(interface) = interface else { return Vec::new() };
    let flow = flow_control(&interface.name);
    vec![
        ("interface MTU", interface.mtu.map(|mtu| mtu.to_string())),
        ("PFC", flow.priorities),
        ("pause", flow.pause),
    ]
}

/// Reads the counters of a port by name.
#[must_use]
pub fn counters(context: &Context, port: u8) -> Values {
    let PortCounters { port, transport, .. } = PortCounters::read(&context.sysfs_path(), port);
    port.into_iter().chain(transport).collect()
}
