//! The examined target: a device, its files, and the opened device if it can be opened.

use std::path::Path;

use mlx5::verbs::{Context, devices};

use super::Arguments;
use super::tree::Tree;
use crate::bed::is_model;
use crate::machine::Machine;

/// PCI vendor of the devices (Mellanox, now NVIDIA).
pub const VENDOR: i64 = 0x15b3;

/// A PCI function of that vendor.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its address, `0000:3b:00.0`.
    pub address: String,
    /// Its folder.
    pub folder: String,
    /// PCI device id.
    pub part: i64,
    /// Its driver.
    pub driver: Option<String>,
}

/// An RDMA device in sysfs.
#[derive(Clone, Debug)]
pub struct Device {
    /// `mlx5_0`.
    pub name: String,
    /// Its folder, `sys/class/infiniband/mlx5_0`.
    pub folder: String,
    /// Its character device, `uverbs0`, where the kernel names one.
    pub node: Option<String>,
    /// Its ports, from 1.
    pub ports: Vec<u8>,
}

/// The opened device, or why there is none.
#[derive(Debug)]
pub enum Live {
    /// The examined files are a copy, so there is no device.
    Copied,
    /// libmlx5 finds no device, or none with the requested name.
    Absent(String),
    /// The device cannot be opened.
    Closed(mlx5::Error),
    /// The opened device.
    Open(Context),
}

/// The examined target.
#[derive(Debug)]
pub struct Situation<'a> {
    pub arguments: &'a Arguments,
    pub tree: Tree,
    /// Whether the device is the model's.
    pub model: bool,
    /// All functions of the vendor.
    pub functions: Vec<Function>,
    /// The device that is examined.
    pub device: Option<Device>,
    /// The devices of the machine that are not examined here.
    pub others: Vec<String>,
    pub live: Live,
}

impl<'a> Situation<'a> {
    /// Finds the requested device, or all of them, and opens each. There is always one situation:
    /// without a device in it where there is none.
    pub fn find(machine: &Machine, arguments: &'a Arguments) -> Vec<Situation<'a>> {
        let tree = Tree::new(arguments.root.as_deref().unwrap_or(Path::new("/")));
        let names: Vec<String> = tree
            .list("sys/class/infiniband")
            .into_iter()
            .filter(|name| {
                tree.number(&format!("sys/class/infiniband/{name}/device/vendor")) == Some(VENDOR)
            })
            .collect();
        let chosen: Vec<Option<&str>> = match machine.device() {
            Some(asked) => vec![names.iter().map(String::as_str).find(|name| *name == asked)],
            None if names.is_empty() => vec![None],
            None => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        let situation = |chosen: Option<&str>| Situation {
            arguments,
            model: tree.is_own() && is_model(),
            functions: functions(&tree, &names),
            device: chosen.map(|name| describe(&tree, name)),
            others: names.iter().filter(|name| Some(name.as_str()) != chosen).cloned().collect(),
            live: match tree.is_own() {
                true => open(chosen.or_else(|| machine.device())),
                false => Live::Copied,
            },
            tree: tree.clone(),
        };
        chosen.into_iter().map(situation).collect()
    }

    /// Returns the function of the examined device, or the first function if there is no device.
    pub fn function(&self) -> Option<&Function> {
        let address = self.device.as_ref().and_then(|device| self.address(device));
        match address {
            Some(address) => self.functions.iter().find(|function| function.address == address),
            None => self.functions.first(),
        }
    }

    fn address(&self, device: &Device) -> Option<String> {
        self.tree.link(&format!("{}/device", device.folder))
    }

    /// Returns the open device.
    pub fn context(&self) -> Option<&Context> {
        match &self.live {
            Live::Open(context) => Some(context),
            _ => None,
        }
    }

    /// Returns why there is no open device.
    pub fn why_not_open(&self) -> &'static str {
        match &self.live {
            Live::Copied => "files that were copied are examined, not a device",
            Live::Absent(_) => "there is no device",
            Live::Closed(_) => "the device cannot be opened",
            Live::Open(_) => "the device is open",
        }
    }

    /// Returns the ports to examine.
    pub fn ports(&self) -> Vec<u8> {
        let all = self.device.as_ref().map(|device| device.ports.clone()).unwrap_or_default();
        match self.arguments.port {
            Some(port) => vec![port],
            None => all,
        }
    }

    /// Reads a file of a port.
    pub fn port_file(&self, port: u8, name: &str) -> Option<String> {
        let device = self.device.as_ref()?;
        self.tree.read(&format!("{}/ports/{port}/{name}", device.folder))
    }

    /// Returns whether a port's link layer is Ethernet.
    pub fn is_ethernet(&self, port: u8) -> bool {
        self.port_file(port, "link_layer").is_some_and(|layer| layer == "Ethernet")
    }

    /// Returns whether a port carries traffic.
    pub fn is_active(&self, port: u8) -> bool {
        self.port_file(port, "state").is_some_and(|state| state.starts_with("4:"))
    }

    /// Returns the network interface of a port: by its GIDs, or the device's only one.
    pub fn interface(&self, port: u8) -> Option<String> {
        let device = self.device.as_ref()?;
        let ndevs = format!("{}/ports/{port}/gid_attrs/ndevs", device.folder);
        let by_gid = self.tree.list(&ndevs).into_iter();
        by_gid
            .filter_map(|index| self.tree.read(&format!("{ndevs}/{index}")))
            .find(|name| !name.is_empty())
            .or_else(|| self.tree.list(&format!("{}/device/net", device.folder)).into_iter().next())
    }

    /// Returns the sign by which this is a container, if it is one.
    pub fn container(&self) -> Option<&'static str> {
        if self.tree.exists(".dockerenv") {
            return Some("/.dockerenv is there");
        }
        if self.tree.exists("run/.containerenv") {
            return Some("/run/.containerenv is there");
        }
        let groups = self.tree.read("proc/1/cgroup")?;
        ["docker", "kubepods", "containerd", "lxc", "libpod"]
            .iter()
            .any(|sign| groups.contains(sign))
            .then_some("/proc/1/cgroup names a container")
    }

    /// Returns whether this process has a capability, by its bit; `None` if that is not known.
    pub fn has_capability(&self, bit: u32) -> Option<bool> {
        let status = self.tree.read("proc/self/status")?;
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
        Some(mask >> bit & 1 != 0)
    }
}

/// Opens the device of that name, or the first.
fn open(name: Option<&str>) -> Live {
    let found = match devices() {
        Ok(found) => found,
        Err(error) => return Live::Absent(error.to_string()),
    };
    let wanted = match name {
        Some(name) => found.iter().find(|device| device.name() == name),
        None => found.iter().find(|device| device.is_mlx5()),
    };
    match wanted {
        None => {
            let names: Vec<String> = found.iter().map(|device| device.name()).collect();
            Live::Absent(match names.is_empty() {
                true => "libibverbs finds no device".to_owned(),
                false => format!("libibverbs finds {}", names.join(", ")),
            })
        }
        Some(device) => match device.open() {
            Ok(context) => Live::Open(context),
            Err(error) => Live::Closed(error),
        },
    }
}

fn describe(tree: &Tree, name: &str) -> Device {
    let folder = format!("sys/class/infiniband/{name}");
    let class = "sys/class/infiniband_verbs";
    let node = tree
        .list(class)
        .into_iter()
        .find(|node| tree.read(&format!("{class}/{node}/ibdev")).as_deref() == Some(name));
    let ports = tree.list(&format!("{folder}/ports"));
    let ports = ports.iter().filter_map(|port| port.parse().ok()).collect();
    Device { name: name.to_owned(), folder, node, ports }
}

/// Lists functions by the bus and by the devices, since no listed bus has the model's functions.
fn functions(tree: &Tree, devices: &[String]) -> Vec<Function> {
    let bus = "sys/bus/pci/devices";
    let on_bus = tree.list(bus).into_iter().map(|address| (format!("{bus}/{address}"), address));
    let of_devices = devices.iter().filter_map(|name| {
        let folder = format!("sys/class/infiniband/{name}/device");
        Some((folder.clone(), tree.link(&folder)?))
    });
    let mut functions: Vec<Function> = Vec::new();
    for (folder, address) in on_bus.chain(of_devices) {
        let known = functions.iter().any(|function| function.address == address);
        if known || tree.number(&format!("{folder}/vendor")) != Some(VENDOR) {
            continue;
        }
        let part = tree.number(&format!("{folder}/device")).unwrap_or(0);
        let driver = tree.link(&format!("{folder}/driver"));
        functions.push(Function { address, folder, part, driver });
    }
    functions
}
