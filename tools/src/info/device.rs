//! The report on a device.

use mlx5::devx::{Group, Uar, UarKind, ifc::cmd_hca_cap};
use mlx5::diag::sysfs::{PciFunction, PciLink};
use mlx5::verbs::{self, Context, Devx};
use serde::Serialize;
use serde_json::{Map, Value};

use super::Arguments;
use super::capabilities::{self, Capabilities};
use super::port::Port;
use crate::outcome::Result;
use crate::register::sensor::{PciLink as PciLinkSeen, Sensor};
use crate::register::settings::Settings;
use crate::register::{self, Told};

/// A device.
#[derive(Debug, Serialize)]
pub(super) struct Device {
    pub name: String,
    /// Its character device.
    pub node: String,
    /// Why it could not be opened; then the fields below are unknown.
    pub error: Option<String>,
    #[serde(flatten)]
    pub open: Option<Open>,
}

/// A device that was opened.
#[derive(Debug, Serialize)]
pub(super) struct Open {
    pub product: &'static str,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hardware_version: u32,
    pub firmware: String,
    pub board_id: Option<String>,
    pub node_guid: String,
    pub system_image_guid: String,
    pub completion_vectors: u32,
    pub pci: Option<Pci>,
    pub devx: DevxState,
    pub registers: Registers,
    /// Temperatures of the chip, by the firmware.
    pub temperatures: Told<Vec<Sensor>>,
    /// The PCI link, by the firmware.
    pub pci_link: Told<PciLinkSeen>,
    /// Settings in flash.
    pub settings: Told<Settings>,
    pub ports: Vec<Port>,
    /// `ibv_device_attr` and `ibv_device_attr_ex`, by the header's names.
    pub verbs: Map<String, Value>,
    /// The flags set in the fields that have flags.
    pub flags: Map<String, Value>,
    pub capabilities: Option<Capabilities>,
}

/// Whether firmware takes commands from programs.
#[derive(Debug, Serialize)]
pub(super) struct DevxState {
    pub open: bool,
    pub reason: Option<String>,
}

/// The doorbell registers that a program gets.
#[derive(Debug, Serialize)]
pub(super) struct Registers {
    /// Bytes of a BlueFlame register, of which each half takes a WQE; 0 without BlueFlame. `None`
    /// where the HCA may not be queried.
    pub blue_flame_bytes: Option<u64>,
    pub kinds: Vec<RegisterKind>,
}

#[derive(Debug, Serialize)]
pub(super) struct RegisterKind {
    pub kind: String,
    pub available: bool,
    /// Why it does not.
    pub reason: Option<String>,
}

/// The PCI slot.
#[derive(Debug, Serialize)]
pub(super) struct Pci {
    pub address: String,
    pub virtual_function: bool,
    pub driver: Option<String>,
    /// The link as it runs.
    pub link: Option<Link>,
    /// The fastest link that the device supports.
    pub device_limit: Option<Link>,
    /// The PCI port above it; `slot_limit` is the fastest link that it supports.
    pub slot: Option<String>,
    pub slot_limit: Option<Link>,
    /// Faults of the link, if any.
    pub remarks: Vec<String>,
    pub numa_node: Option<u32>,
    pub local_cpus: Option<String>,
    pub interrupts: Vec<u32>,
    pub interfaces: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Link {
    pub megatransfers: u32,
    pub lanes: u8,
    /// Bandwidth in one direction.
    pub mbps: u32,
    #[serde(skip)]
    pub text: String,
}

impl From<PciLink> for Link {
    fn from(link: PciLink) -> Link {
        Link {
            megatransfers: link.lane_mts,
            lanes: link.lanes,
            mbps: link.mbps(),
            text: link.to_string(),
        }
    }
}

impl Device {
    /// Queries an opened device.
    pub fn of(context: &Context, arguments: &Arguments) -> Result<Device> {
        let attributes = context.attributes()?;
        let registers = register::Registers::new(context);
        let ports: Vec<Port> = (1..=attributes.ports)
            .map(|number| Port::of(context, &registers, number, arguments.counters))
            .collect::<Result<_>>()?;
        let fastest = ports.iter().map(|port| port.mbps).max().unwrap_or(0);
        let verbs = context.verbs_capabilities()?;
        let capabilities = match &arguments.capabilities {
            Some(word) => Some(capabilities::find(context, word)?),
            None => None,
        };
        Ok(Device {
            name: context.name(),
            node: context.node_path().display().to_string(),
            error: None,
            open: Some(Open {
                product: attributes.product(),
                vendor_id: attributes.vendor_id,
                vendor_part_id: attributes.vendor_part_id,
                hardware_version: attributes.hardware_version,
                firmware: attributes.firmware,
                board_id: attributes.board_id,
                node_guid: attributes.node_guid.to_string(),
                system_image_guid: attributes.system_image_guid.to_string(),
                completion_vectors: context.completion_vectors(),
                pci: PciFunction::of(&context.sysfs_path())
                    .map(|function| Pci::of(&function, fastest)),
                devx: DevxState {
                    open: context.devx() == Devx::Open,
                    reason: match context.devx() {
                        Devx::Open => None,
                        refused => Some(refused.to_string()),
                    },
                },
                registers: Registers::of(context),
                temperatures: registers.temperatures(),
                pci_link: registers.pci_link(),
                settings: registers.settings(),
                ports,
                flags: verbs
                    .iter()
                    .filter_map(|(name, _)| Some((name.to_owned(), verbs.flags(name)?.into())))
                    .collect(),
                verbs: verbs.iter().map(|(name, value)| (name.to_owned(), value.into())).collect(),
                capabilities,
            }),
        })
    }

    /// Returns the report on a device that cannot be opened.
    pub fn closed(device: &verbs::Device, error: &mlx5::Error) -> Device {
        Device {
            name: device.name(),
            node: device.node_path().display().to_string(),
            error: Some(error.to_string()),
            open: None,
        }
    }
}

impl Registers {
    fn of(context: &Context) -> Registers {
        let kind = |kind: UarKind| {
            let reason = Uar::new(context, kind).err().map(|error| error.to_string());
            RegisterKind { kind: kind.to_string(), available: reason.is_none(), reason }
        };
        let capabilities = context.capabilities();
        let of = |field| capabilities.current(Group::General, field).ok().flatten();
        Registers {
            blue_flame_bytes: of(cmd_hca_cap::BF).map(|has| match has {
                0 => 0,
                _ => 1 << of(cmd_hca_cap::LOG_BF_REG_SIZE).unwrap_or(0),
            }),
            kinds: UarKind::ALL.into_iter().map(kind).collect(),
        }
    }
}

impl Pci {
    /// Queries a function whose fastest port runs at `fastest` Mbit/s.
    fn of(function: &PciFunction, fastest: u32) -> Pci {
        let slot = function.slot();
        let (link, limit) = (function.link(), function.link_limit());
        let slot_limit = slot.as_ref().and_then(PciFunction::link_limit);
        Pci {
            address: function.address(),
            virtual_function: function.is_virtual(),
            driver: function.driver(),
            link: link.map(Link::from),
            device_limit: limit.map(Link::from),
            slot: slot.as_ref().map(PciFunction::address),
            slot_limit: slot_limit.map(Link::from),
            remarks: remarks(link, limit, slot_limit, fastest),
            numa_node: function.numa_node(),
            local_cpus: function.local_cpus(),
            interrupts: function.interrupts(),
            interfaces: function.interfaces(),
        }
    }
}

/// Returns the faults of a link.
fn remarks(
    link: Option<PciLink>,
    limit: Option<PciLink>,
    slot: Option<PciLink>,
    port_mbps: u32,
) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(link) = link else { return remarks };
    if let (Some(limit), Some(slot)) = (limit, slot) {
        let could = limit.common(&slot);
        if could != limit {
            remarks.push(format!("the slot does {slot} at most, the device could do {limit}"));
        }
        if link.mbps() < could.mbps() {
            remarks.push(format!(
                "the link runs at {link}, device and slot could do {could}: reseat the device, and look \
                 for a riser, bifurcation or a speed limit in the firmware's set-up"
            ));
        }
    } else if let Some(limit) = limit.filter(|limit| link.mbps() < limit.mbps()) {
        remarks.push(format!(
            "the link runs at {link}, the device could do {limit}; what the slot could do is not told"
        ));
    }
    if link.mbps() < port_mbps {
        remarks.push(format!(
            "the link carries {} Gbit/s at most, less than the port's {} Gbit/s",
            link.mbps() / 1000,
            port_mbps / 1000
        ));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_less_than_it_could_be_is_remarked() {
        let link = |lane_mts, lanes| Some(PciLink { lane_mts, lanes });
        let full = link(16_000, 16);
        assert_eq!(remarks(full, full, full, 200_000), [""; 0]);
        let narrow = remarks(link(16_000, 8), full, full, 100_000).join("\n");
        assert!(narrow.contains("16.0 GT/s x8") && narrow.contains("reseat"), "{narrow}");
        let slot = remarks(link(8_000, 8), full, link(8_000, 8), 100_000);
        assert_eq!(slot.len(), 2);
        assert!(slot[0].contains("the slot does 8.0 GT/s x8 at most"), "{slot:?}");
        assert!(slot[1].contains("63 Gbit/s") && slot[1].contains("100 Gbit/s"), "{slot:?}");
        let alone = remarks(link(8_000, 16), full, None, 0);
        assert!(alone[0].contains("not told"), "{alone:?}");
        assert_eq!(remarks(None, full, full, 200_000), [""; 0]);
    }
}
