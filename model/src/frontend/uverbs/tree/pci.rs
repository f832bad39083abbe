//! The devices' functions among those of `/sys/bus/pci`.
//!
//! The folder lists the machine's functions through links. Programs that look for adapters there (DPDK,
//! hwloc, `lspci`) find the model's beside them. There is no `iommu_group`, as on a machine without an
//! IOMMU, and no `resource0`: no memory of a BAR is anywhere.

use super::folder::Entry;
use super::identity::{BUS, Device};
use crate::identity::pci;
use crate::private::system;

/// The folder that lists functions.
pub(super) const FUNCTIONS: &str = "sys/bus/pci/devices";
/// The driver's folder, to which `driver` leads.
pub(super) const DRIVER: &str = "sys/bus/pci/drivers/mlx5_core";
/// Bus address of the first function's BAR, beyond all memory of a machine.
const BAR: u64 = 0x6d35 << 32;
/// The kind of resource that BAR 0 is (`IORESOURCE_MEM`, `_PREFETCH`, `_SIZEALIGN`, `_MEM_64`).
const KIND: u64 = 0x14_220c;
/// Lines of `resource`: six BARs, the ROM, and those of virtual functions.
const RESOURCES: usize = 13;
/// The first interrupt. A machine has none of these numbers, so a program that sets affinities by them
/// changes no interrupt of another device.
const INTERRUPT: usize = 0x6d_3500;

/// Returns the folder of a function.
pub(super) fn folder(device: &Device) -> String {
    format!("sys/devices/{BUS}/{}", device.pci)
}

/// The function of device number `index`.
pub(super) fn describe(entries: &mut Vec<(String, Entry)>, index: usize, device: &Device) {
    let folder = folder(device);
    let part = device.profile.device();
    let mut file = |name: &str, text: String| {
        entries.push((format!("{folder}/{name}"), Entry::text(&text)));
    };
    let (vendor, board, class) = (pci::VENDOR, pci::SUBSYSTEM, pci::class(device.link));
    let alias = format!(
        "pci:v{vendor:08X}d{part:08X}sv{vendor:08X}sd{board:08X}bc{:02X}sc{:02X}i{:02X}",
        class >> 16,
        class >> 8 & 0xff,
        class & 0xff
    );
    for (name, text) in [
        ("vendor", format!("{vendor:#06x}")),
        ("device", format!("{part:#06x}")),
        ("subsystem_vendor", format!("{vendor:#06x}")),
        ("subsystem_device", format!("{board:#06x}")),
        ("class", format!("{class:#08x}")),
        ("revision", "0x00".into()),
        ("numa_node", "-1".into()),
        ("local_cpus", cpu_mask()),
        ("local_cpulist", cpu_list()),
        ("current_link_speed", "16.0 GT/s PCIe".into()),
        ("current_link_width", "16".into()),
        ("max_link_speed", "16.0 GT/s PCIe".into()),
        ("max_link_width", "16".into()),
        ("ari_enabled", "0".into()),
        ("broken_parity_status", "0".into()),
        ("consistent_dma_mask_bits", "64".into()),
        ("dma_mask_bits", "64".into()),
        ("d3cold_allowed", "1".into()),
        ("driver_override", "(null)".into()),
        ("enable", "1".into()),
        ("irq", "0".into()),
        ("msi_bus", "1".into()),
        ("power_state", "D0".into()),
        ("resource", resources(index)),
        ("modalias", alias.clone()),
    ] {
        file(name, text);
    }
    file(
        "uevent",
        format!(
            "DRIVER=mlx5_core\nPCI_CLASS={class:X}\nPCI_ID={vendor:04X}:{part:04X}\n\
             PCI_SUBSYS_ID={vendor:04X}:{board:04X}\nPCI_SLOT_NAME={}\nMODALIAS={alias}",
            device.pci
        ),
    );
    // One for commands and events, and one for each vector of completions.
    for vector in 0..=system::processors().min(pci::VECTORS - 1) {
        let number = INTERRUPT + index * pci::VECTORS + vector;
        file(&format!("msi_irqs/{number}"), "msix".into());
    }
    let header = pci::header(part, device.link);
    entries.push((format!("{folder}/config"), Entry::File(header.to_vec())));
    for (path, target) in [
        (format!("{folder}/driver"), "../../../bus/pci/drivers/mlx5_core".into()),
        (format!("{folder}/subsystem"), "../../../bus/pci".into()),
        (format!("{FUNCTIONS}/{}", device.pci), format!("../../../../{folder}")),
        (format!("{DRIVER}/{}", device.pci), format!("../../../../../{folder}")),
    ] {
        entries.push((path, Entry::Link(target)));
    }
}

/// First and last address, and kind, of each resource.
fn resources(index: usize) -> String {
    let first = BAR + index as u64 * pci::BAR_SIZE;
    let bar = format!("{first:#018x} {:#018x} {KIND:#018x}", first + pci::BAR_SIZE - 1);
    let none = format!("{0:#018x} {0:#018x} {0:#018x}", 0);
    let lines: Vec<String> =
        std::iter::once(bar).chain(std::iter::repeat(none)).take(RESOURCES).collect();
    lines.join("\n")
}

fn cpu_list() -> String {
    format!("0-{}", system::processors() - 1)
}

/// One bit for each processor, in words of 32, the highest first.
fn cpu_mask() -> String {
    let cpus = system::processors();
    let words: Vec<String> = (0..cpus.div_ceil(32))
        .rev()
        .map(|word| {
            let bits = (cpus - word * 32).min(32);
            format!("{:08x}", u32::MAX >> (32 - bits))
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests;
