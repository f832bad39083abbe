//! The report on a port.

use mlx5::diag::sysfs::{self, PortCounters};
use mlx5::ib::PortState;
use mlx5::verbs::{Context, GidEntry};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::outcome::Result;
use crate::register::link::Link;
use crate::register::module::Module;
use crate::register::{Registers, Told};

/// A port.
#[derive(Debug, Serialize)]
pub(super) struct Port {
    pub port: u8,
    pub link_layer: String,
    pub state: String,
    pub physical_state: u8,
    pub physical_state_name: &'static str,
    /// The obstacle to traffic on the port, and the cure.
    pub remark: Option<&'static str>,
    pub mbps: u32,
    pub lanes: u8,
    pub lane_mbps: u32,
    pub active_mtu: usize,
    pub max_mtu: usize,
    pub lid: u16,
    pub lid_mask_bits: u8,
    pub sm_lid: u16,
    pub sm_service_level: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub virtual_lanes: u8,
    pub max_message: u32,
    pub bad_pkeys: u32,
    pub qkey_violations: u32,
    pub grh_required: bool,
    pub capabilities: u32,
    pub capabilities2: u16,
    pub capability_names: Vec<String>,
    pub gid_table_length: u32,
    pub gids: Vec<Gid>,
    pub pkey_table_length: u16,
    /// Entries that are not empty.
    pub pkeys: Vec<Pkey>,
    /// What the firmware knows of the link.
    pub link: Link,
    /// The cable or module.
    pub module: Told<Module>,
    pub counters: Option<Counters>,
}

/// An entry of the GID table.
#[derive(Debug, Serialize)]
pub(super) struct Gid {
    pub index: u32,
    pub gid: String,
    /// `IB`, `RoCE v1` or `RoCE v2`.
    pub kind: String,
    /// The network interface of the entry.
    pub interface: Option<Interface>,
}

#[derive(Debug, Serialize)]
pub(super) struct Interface {
    pub name: String,
    pub up: bool,
    pub mtu: Option<u32>,
    pub mac: Option<String>,
    pub addresses: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Pkey {
    pub index: u16,
    pub pkey: u16,
}

/// Counters by name.
#[derive(Debug, Serialize)]
pub(super) struct Counters {
    pub port: Map<String, Value>,
    pub transport: Map<String, Value>,
    /// Counters of the function's virtual port, by firmware command: packets and bytes; or why not.
    pub vport: std::result::Result<Vec<String>, String>,
}

impl Port {
    /// Queries a port.
    pub fn of(
        context: &Context,
        registers: &Registers<'_>,
        number: u8,
        counters: bool,
    ) -> Result<Port> {
        let port = context.port(number)?;
        let gids = context.gids(number)?;
        let mut pkeys = Vec::new();
        for index in 0..port.pkey_table_length {
            let pkey = context.pkey(number, index)?;
            if pkey != 0 {
                pkeys.push(Pkey { index, pkey });
            }
        }
        Ok(Port {
            port: number,
            remark: remark(port.state, port.physical_state, port.is_ethernet()),
            link_layer: port.link_layer.to_string(),
            state: port.state.to_string(),
            physical_state: port.physical_state,
            physical_state_name: port.physical_state_name(),
            mbps: port.mbps(),
            lanes: port.lanes,
            lane_mbps: port.lane_mbps,
            active_mtu: port.active_mtu.bytes(),
            max_mtu: port.max_mtu.bytes(),
            lid: port.lid,
            lid_mask_bits: port.lid_mask_bits,
            sm_lid: port.sm_lid,
            sm_service_level: port.sm_service_level,
            subnet_timeout: port.subnet_timeout,
            init_type_reply: port.init_type_reply,
            virtual_lanes: port.virtual_lanes,
            max_message: port.max_message,
            bad_pkeys: port.bad_pkeys,
            qkey_violations: port.qkey_violations,
            grh_required: port.grh_required,
            capabilities: port.capabilities,
            capabilities2: port.capabilities2,
            capability_names: port.capability_names(),
            gid_table_length: port.gid_table_length,
            gids: gids.iter().map(|entry| Gid::of(context, entry)).collect(),
            pkey_table_length: port.pkey_table_length,
            pkeys,
            link: registers.link(number),
            module: registers.module(number),
            counters: counters.then(|| Counters::of(context, number)),
        })
    }
}

/// Returns what prevents traffic on a port.
fn remark(state: PortState, physical: u8, ethernet: bool) -> Option<&'static str> {
    match (state, physical) {
        (PortState::Active | PortState::ActiveDefer, _) => None,
        (PortState::Down, 3) if ethernet => {
            Some("disabled: `ip link set INTERFACE up` enables its interface")
        }
        (PortState::Down, 3) => Some("disabled: `ibportstate -D 0 PORT enable` enables it"),
        (PortState::Down, 2) => Some("no signal: look at the cable and the other end"),
        (PortState::Down, _) => Some("no link: look at the cable and the other end"),
        (PortState::Init | PortState::Armed, _) => {
            Some("the link is up, but no subnet manager has configured it: start `opensm`")
        }
        (PortState::Unknown(_), _) => None,
    }
}

/// Returns the network interface of a GID table entry; `None` on InfiniBand, or if the interface is
/// in another network namespace.
fn behind(context: &Context, entry: &GidEntry) -> Option<sysfs::Interface> {
    if entry.interface != 0 {
        return sysfs::Interface::numbered(entry.interface);
    }
    // For a kernel without the entry query.
    sysfs::Interface::of_gid(&context.sysfs_path(), entry.port, entry.index)
}

impl Gid {
    fn of(context: &Context, entry: &GidEntry) -> Gid {
        let interface = behind(context, entry).map(|interface| Interface {
            name: interface.name,
            up: interface.up,
            mtu: interface.mtu,
            mac: interface.mac,
            addresses: interface.addresses.iter().map(ToString::to_string).collect(),
        });
        Gid {
            index: entry.index,
            gid: entry.gid.to_string(),
            kind: entry.kind.to_string(),
            interface,
        }
    }
}

impl Counters {
    fn of(context: &Context, port: u8) -> Counters {
        let counters = PortCounters::read(&context.sysfs_path(), port);
        let map = |of: Vec<(String, u64)>| {
            of.into_iter().map(|(name, value)| (name, value.into())).collect()
        };
        Counters {
            port: map(counters.port),
            transport: map(counters.transport),
            vport: context
                .vport_counters()
                .map(|counters| counters.to_string().lines().map(str::to_owned).collect())
                .map_err(|error| error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_not_active_is_remarked() {
        assert_eq!(remark(PortState::Active, 5, false), None);
        for (state, physical, ethernet, cure) in [
            (PortState::Init, 5, false, "opensm"),
            (PortState::Down, 2, true, "cable"),
            (PortState::Down, 3, true, "ip link set"),
            (PortState::Down, 3, false, "ibportstate"),
        ] {
            assert!(remark(state, physical, ethernet).unwrap().contains(cure));
        }
    }
}
