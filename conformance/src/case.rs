//! Cases and what they need.

use mlx5::devx::Group;
use mlx5::devx::ifc::Field;
use mlx5::verbs::Devx;

use crate::bench::Bench;
use crate::verdict::{Verdict, lacking};

/// A requirement of a case beyond a port that carries traffic.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    /// Atomics.
    Atomics,
    /// A port of Ethernet.
    Ethernet,
    /// Raw packet queue pairs, which need the capability CAP_NET_RAW.
    RawPackets,
    /// Firmware commands of programs.
    Commands,
    /// A capability of at least this value. It is read by a firmware command.
    Capability(Group, Field, u64),
}

impl Need {
    /// Ends a case whose need is not met.
    pub(crate) fn check(self, bench: &Bench) -> Verdict {
        let base = &bench.base;
        match self {
            Need::Atomics if !base.atomics => Err(lacking("the device has no atomics")),
            Need::Ethernet if !base.local.attributes().is_ethernet() => {
                Err(lacking("the port is not an Ethernet port"))
            }
            Need::Commands => match base.context.devx() {
                Devx::Open => Ok(()),
                other => Err(lacking(format!("no firmware commands: {other}"))),
            },
            Need::RawPackets => raw_packets(),
            Need::Capability(group, field, least) => {
                let name = field.name().unwrap_or("a capability");
                let value = base.context.capabilities().current(group, field);
                match value {
                    Ok(Some(value)) if value >= least => Ok(()),
                    Ok(_) => Err(lacking(format!("the device lacks {name}"))),
                    Err(error) => Err(lacking(format!("{name} cannot be read: {error}"))),
                }
            }
            _ => Ok(()),
        }
    }
}

/// The bit of CAP_NET_RAW in a process's effective capabilities.
const CAP_NET_RAW: u64 = 1 << 13;

fn raw_packets() -> Verdict {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    match mask {
        Some(mask) if mask & CAP_NET_RAW == 0 => {
            Err(lacking("the process lacks CAP_NET_RAW, which raw packets need"))
        }
        _ => Ok(()),
    }
}

/// One case: written once, for every bed.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name: a group and a word.
    pub name: &'static str,
    /// A sentence: what it shows.
    pub shows: &'static str,
    /// Its requirements.
    pub needs: &'static [Need],
    /// Runs it.
    pub(crate) run: fn(&mut Bench) -> Verdict,
}

impl Case {
    /// Makes a case that needs no more than a port.
    pub(crate) const fn new(
        name: &'static str,
        shows: &'static str,
        run: fn(&mut Bench) -> Verdict,
    ) -> Case {
        Case { name, shows, needs: &[], run }
    }

    /// Says what it needs.
    pub(crate) const fn needs(self, needs: &'static [Need]) -> Case {
        Case { needs, ..self }
    }
}
