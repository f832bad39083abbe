//! The environment of a measurement: machine, device, versions, and the CPUs of the thread.

use std::fs;
use std::mem::MaybeUninit;
use std::path::Path;

use mlx5::verbs::Context;
use serde::{Deserialize, Serialize};

use crate::bed;
use crate::outcome::Result;

/// The environment of one side. Values that the system does not provide are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The machine's name.
    pub host: Option<String>,
    /// Name, family, model and stepping.
    pub cpu: Option<String>,
    /// Linux's release.
    pub kernel: Option<String>,
    /// CPUs that this thread may run on, as `0-3,8`.
    pub cpus_allowed: Option<String>,
    /// CPUs that Linux runs nothing else on (`isolcpus`).
    pub cpus_isolated: Option<String>,
    /// The frequency governor of the CPU that this thread is on: `performance`, `powersave`…
    pub governor: Option<String>,
    /// The device's name.
    pub device: String,
    /// The product, by its PCI number; for the model, the product that it claims to be.
    pub product: String,
    /// Whether it is the model, a software ConnectX: then times do not represent a real device.
    pub model: bool,
    /// The profile of the model, and where its values are from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The device's board id (PSID).
    pub board_id: Option<String>,
    /// Its firmware.
    pub firmware: String,
    /// Its NUMA node.
    pub numa_node: Option<i32>,
    /// The port.
    pub port: u8,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// The link's signalling speed, in Mbit/s; 0 where it is not known.
    pub link_mbps: u32,
    /// The link's MTU, in bytes.
    pub mtu: u32,
    /// The file of the loaded libibverbs, whose name has its version.
    pub libibverbs: Option<String>,
    /// The file of the loaded libmlx5, whose name has its version.
    pub libmlx5: Option<String>,
    /// Version of this command.
    pub version: String,
    /// Whether the command was built with optimizations; without them, its times are meaningless.
    pub optimized: bool,
}

impl Environment {
    /// Returns the environment of this thread and this port of an open device. Reads some files.
    ///
    /// # Errors
    /// Those of [`Context::attributes`] and [`Context::port`].
    pub fn of(context: &Context, port: u8) -> Result<Environment> {
        let attributes = context.attributes()?;
        let port = context.port(port)?;
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // SAFETY: the call takes no memory.
        let cpu = unsafe { libc::sched_getcpu() };
        Ok(Environment {
            host: host(),
            cpu: fs::read_to_string("/proc/cpuinfo").ok().and_then(|info| cpu_of(&info)),
            kernel: line("/proc/sys/kernel/osrelease"),
            cpus_allowed: fs::read_to_string("/proc/thread-self/status")
                .ok()
                .and_then(|status| field(&status, "Cpus_allowed_list")),
            cpus_isolated: line("/sys/devices/system/cpu/isolated").filter(|list| !list.is_empty()),
            governor: line(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")),
            product: attributes.product().to_owned(),
            model: bed::is_model(),
            profile: bed::profile().map(str::to_owned),
            board_id: attributes.board_id,
            firmware: attributes.firmware,
            numa_node: line(format!("/sys/class/infiniband/{}/device/numa_node", attributes.name))
                .and_then(|node| node.parse().ok())
                .filter(|&node| node >= 0),
            device: attributes.name,
            port: port.port,
            link_layer: port.link_layer.to_string(),
            link_mbps: port.mbps(),
            mtu: u32::try_from(port.active_mtu.bytes()).unwrap_or(0),
            libibverbs: library(&maps, "libibverbs"),
            libmlx5: library(&maps, "libmlx5"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            optimized: !cfg!(debug_assertions),
        })
    }

    /// Returns name and value of each known entry, for people.
    #[must_use]
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let Environment { device, product, .. } = self;
        let profile = self.profile.as_ref().map(|profile| format!(" ({profile})"));
        let what = match self.model {
            true => format!("the model, a software ConnectX{}", profile.unwrap_or_default()),
            false => product.clone(),
        };
        let link = match self.link_mbps {
            0 => self.link_layer.clone(),
            mbps => format!("{}, {} Gbit/s", self.link_layer, f64::from(mbps) / 1000.0),
        };
        let facts = [
            ("host", self.host.clone()),
            ("CPU", self.cpu.clone()),
            ("CPUs allowed", self.cpus_allowed.clone()),
            ("CPUs isolated", self.cpus_isolated.clone()),
            ("governor", self.governor.clone()),
            ("kernel", self.kernel.clone()),
            ("device", Some(format!("{device}: {what}"))),
            ("board id", self.board_id.clone()),
            ("firmware", Some(self.firmware.clone())),
            ("NUMA node", self.numa_node.map(|node| node.to_string())),
            ("port", Some(format!("{}: {link}, MTU {}", self.port, self.mtu))),
            ("libibverbs", self.libibverbs.clone()),
            ("libmlx5", self.libmlx5.clone()),
            ("mlx5", Some(self.version.clone())),
        ];
        facts.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn line(file: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(file).ok()?.lines().next()?.trim().to_owned())
}

/// Returns the value of a line `name: value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(found, _)| found.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

fn host() -> Option<String> {
    let mut name = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: zeros are valid in the structure (empty strings), and the call fills it.
    let name = unsafe {
        if libc::uname(name.as_mut_ptr()) != 0 {
            return None;
        }
        name.assume_init()
    };
    let bytes = name.nodename.iter().map(|&byte| byte as u8).take_while(|&byte| byte != 0);
    Some(String::from_utf8_lossy(&bytes.collect::<Vec<_>>()).into_owned())
}

/// Returns the CPU's name and numbers. Virtual machines often omit the number from the name.
fn cpu_of(info: &str) -> Option<String> {
    let name = field(info, "model name")?;
    let numbers = ["cpu family", "model", "stepping"].map(|name| field(info, name));
    Some(match numbers {
        [Some(family), Some(model), Some(stepping)] => {
            format!("{name}, family {family}, model {model}, stepping {stepping}")
        }
        _ => name,
    })
}

/// Returns the file behind a mapping, with links resolved: its name has the version.
fn library(maps: &str, name: &str) -> Option<String> {
    let path = maps.lines().filter_map(|line| line.split_whitespace().nth(5)).find(|path| {
        Path::new(path).file_name().is_some_and(|file| file.to_string_lossy().starts_with(name))
    })?;
    let real = fs::canonicalize(path).ok()?;
    Some(real.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_named_by_its_numbers_too() {
        let info = "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Intel(R) Xeon(R)\ncpu family\t: 6\nstepping\t: 2\n";
        assert_eq!(cpu_of(info).unwrap(), "Intel(R) Xeon(R), family 6, model 207, stepping 2");
        assert_eq!(cpu_of("model name : A64FX\n").unwrap(), "A64FX");
        assert_eq!(cpu_of(""), None);
    }

    #[test]
    fn libraries_are_named_by_the_file_that_is_mapped() {
        let libc = library(&fs::read_to_string("/proc/self/maps").unwrap(), "libc.so").unwrap();
        assert!(libc.starts_with("libc"), "{libc}");
        assert_eq!(library("", "libmlx5"), None);
    }

    #[test]
    fn this_thread_has_a_host_and_cpus() {
        let uname = std::process::Command::new("uname").arg("-n").output().unwrap();
        assert_eq!(host().unwrap(), String::from_utf8_lossy(&uname.stdout).trim());
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        assert!(!field(&status, "Cpus_allowed_list").unwrap().is_empty());
    }
}
