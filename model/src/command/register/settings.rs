//! MNVDA: settings in flash, with the values of a new device. There are no virtual
//! functions.

use mlx5_sys::ifc::{
    mnvda_reg, nv_global_pci_cap, nv_global_pci_conf, nv_sw_offload_conf as offload,
};

use super::{Access, read_only};
use crate::card::Card;
use crate::command::Refusal;

/// Class of the settings of the whole device, and its groups (`lib/nv_param.c` of mlx5_core).
const GLOBAL: u64 = 0;
const PCI: u64 = 0x80;
const PCI_CAPABILITIES: u64 = 0x81;
const OFFLOADS: u64 = 0x10a;

/// The UDP port of VXLAN.
const VXLAN: u64 = 4789;

/// Reads a group of settings. Its size has to be known to the driver.
pub fn read(_: &mut Card, access: Access, data: &mut [u8]) -> Result<(), Refusal> {
    read_only(access)?;
    let group = mnvda_reg::PARAMETER_INDEX.get(data);
    let (size, values) = match (mnvda_reg::TYPE_CLASS.get(data), group) {
        (GLOBAL, PCI) => (nv_global_pci_conf::SIZE, vec![(nv_global_pci_conf::SRIOV_VALID, 1)]),
        (GLOBAL, PCI_CAPABILITIES) => (nv_global_pci_cap::SIZE, Vec::new()),
        (GLOBAL, OFFLOADS) => (
            offload::SIZE,
            vec![
                (offload::IP_OVER_VXLAN_PORT, VXLAN),
                (offload::UCTX_EN, 1),
                (offload::AR_ENABLE, 1),
            ],
        ),
        _ => return Err(Refusal::RegisterValue),
    };
    if mnvda_reg::LENGTH.get(data) != size as u64 {
        return Err(Refusal::RegisterValue);
    }
    let content = &mut data[mnvda_reg::CONFIGURATION_ITEM_DATA.bytes()];
    content.fill(0);
    for (field, value) in values {
        field.set(content, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
