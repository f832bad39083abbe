//! The HCA on the PCI bus: its presence, its driver, and the speed of its link.

use super::check::{Check, Group, Question};
use super::situation::{Function, Situation};
use super::tree::Tree;
use crate::bed;

pub fn look(situation: &Situation) -> Vec<Check> {
    let mut checks = presence(situation);
    let Some(function) = situation.function() else { return checks };
    checks.push(link(situation, function));
    checks.push(requests(situation, function));
    checks.push(iommu(situation, function));
    checks.push(firmware(situation));
    checks
}

/// Checks whether a function is on the bus, and has its driver.
pub fn presence(situation: &Situation) -> Vec<Check> {
    let driver = situation.function().map(|function| driver(situation, function));
    [Some(present(situation)), driver].into_iter().flatten().collect()
}

fn present(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Pci,
        "function",
        "/sys/bus/pci/devices/*/vendor, /sys/class/infiniband/*/device",
        "without a function of vendor 15b3 (Mellanox, NVIDIA) on the bus there is nothing to drive",
    );
    if let Some(function) = situation.function() {
        let mut found = format!("{} (15b3:{:04x})", function.address, function.part);
        if let Some(context) = situation.context() {
            if let Ok(attributes) = context.attributes() {
                found += &format!(", {}", attributes.product());
            }
        }
        if let Some(device) = &situation.device {
            found += &format!(", {}", device.name);
        }
        if situation.device.is_none() && !situation.others.is_empty() {
            return question.broken(
                format!(
                    "no device of the name asked for; there are {}",
                    situation.others.join(", ")
                ),
                format!("mlx5 doctor --device {}", situation.others[0]),
            );
        }
        return question.good(found);
    }
    if !situation.tree.exists("sys/bus/pci") && !situation.tree.is_own() {
        return question.unknown(
            "the tree has no sys/bus/pci",
            Some("copy /sys/bus and /sys/devices as well".to_owned()),
        );
    }
    if let Some(reason) = bed::withheld().filter(|_| situation.tree.is_own()) {
        return question.broken(reason, "env | grep MLX5_MODEL    # correct or unset the variable");
    }
    question.broken(
        "no PCI function of NVIDIA (Mellanox), vendor 15b3",
        "lspci -d 15b3:    # also empty? reseat the device; in a virtual machine pass the function \
         through. Without a device, mlx5 doctor --model shows what a good one looks like",
    )
}

fn driver(situation: &Situation, function: &Function) -> Check {
    let question = Question::new(
        Group::Pci,
        "driver",
        format!("{}/driver", Tree::shown(&function.folder)),
        "mlx5_core brings the function up; mlx5_ib makes an RDMA device of it",
    );
    if situation.model {
        return question.not_applicable("the model needs no driver of the kernel");
    }
    let address = &function.address;
    match function.driver.as_deref() {
        Some("mlx5_core") if situation.device.is_some() => question.good("mlx5_core"),
        Some("mlx5_core") => question.broken(
            "mlx5_core, but there is no RDMA device",
            "modprobe mlx5_ib; dmesg | grep mlx5    # and devlink dev param show: enable_rdma",
        ),
        Some(other) => question.broken(
            format!("{address} is driven by {other}, so it is no RDMA device here"),
            format!(
                "echo {address} > /sys/bus/pci/drivers/{other}/unbind; \
                 echo {address} > /sys/bus/pci/drivers/mlx5_core/bind"
            ),
        ),
        None => question.broken(
            format!("no driver is bound to {address}"),
            "modprobe mlx5_core; dmesg | grep mlx5",
        ),
    }
}

/// Returns gigatransfers per second and lanes of one end of a link.
fn speed(tree: &Tree, folder: &str, which: &str) -> Option<(f64, u32)> {
    let text = tree.read(&format!("{folder}/{which}_link_speed"))?;
    let transfers: f64 = text.split_whitespace().next()?.parse().ok()?;
    let lanes = tree.number(&format!("{folder}/{which}_link_width"))?;
    Some((transfers, u32::try_from(lanes).ok()?))
}

fn link(situation: &Situation, function: &Function) -> Check {
    let tree = &situation.tree;
    let folder = &function.folder;
    let question = Question::new(
        Group::Pci,
        "PCI link",
        format!(
            "{}/{{current,max}}_link_{{speed,width}}, and of the port above",
            Tree::shown(folder)
        ),
        "a link with fewer lanes or a lower rate than the device has limits bandwidth and message rate",
    );
    let (Some(now), Some(card)) = (speed(tree, folder, "current"), speed(tree, folder, "max"))
    else {
        return question.unknown("the kernel does not tell the link's speed", None);
    };
    let slot = tree.parent(folder).and_then(|above| speed(tree, &above, "max"));
    let shown = |(transfers, lanes): (f64, u32)| format!("{transfers} GT/s x{lanes}");
    let possible = slot.map_or(card, |slot| (slot.0.min(card.0), slot.1.min(card.1)));
    if now.0 < possible.0 || now.1 < possible.1 {
        return question.warning(
            format!("degraded: {}, where device and slot can {}", shown(now), shown(possible)),
            format!("reseat the device, then: lspci -vvs {} | grep LnkSta", function.address),
        );
    }
    if possible.0 < card.0 || possible.1 < card.1 {
        return question.warning(
            format!("{}: all that the slot gives; the device can {}", shown(now), shown(card)),
            "put the device into a slot with that speed and width (dmidecode -t slot lists them)",
        );
    }
    question.good(shown(now))
}

/// Returns Device Control of the PCI Express capability (PCI Express Base Specification, 7.5.3.4).
fn device_control(config: &[u8]) -> Option<u16> {
    const CAPABILITIES: usize = 0x34;
    const EXPRESS: u8 = 0x10;
    let mut at = usize::from(*config.get(CAPABILITIES)? & !3);
    // 48 capabilities fill the space, so a longer list is a loop.
    for _ in 0..48 {
        if at == 0 {
            return None;
        }
        if *config.get(at)? == EXPRESS {
            let low = config.get(at + 8)?;
            return Some(u16::from_le_bytes([*low, *config.get(at + 9)?]));
        }
        at = usize::from(*config.get(at + 1)? & !3);
    }
    None
}

fn requests(situation: &Situation, function: &Function) -> Check {
    let path = format!("{}/config", function.folder);
    let question = Question::new(
        Group::Pci,
        "PCI requests",
        Tree::shown(&path),
        "small read requests (MaxReadReq) limit how fast the device fetches WQEs and payload",
    );
    if situation.model {
        return question.not_applicable("the model has no PCI configuration space");
    }
    let address = &function.address;
    let config = situation.tree.bytes(&path).unwrap_or_default();
    let Some(control) = device_control(&config) else {
        return question.unknown(
            format!("{} bytes of the configuration space can be read: it takes root", config.len()),
            Some(format!("sudo lspci -vvs {address} | grep -E 'MaxReadReq|RlxdOrd'")),
        );
    };
    let read = 128u32 << (control >> 12 & 7);
    let payload = 128u32 << (control >> 5 & 7);
    let relaxed = if control >> 4 & 1 != 0 { "on" } else { "off" };
    let found = format!("MaxReadReq {read}, MaxPayload {payload}, relaxed ordering {relaxed}");
    if read < 512 {
        let set = format!("setpci -s {address} CAP_EXP+8.w=5000:7000    # MaxReadReq 4096");
        return question.warning(found, set);
    }
    question.good(found)
}

fn iommu(situation: &Situation, function: &Function) -> Check {
    let path = format!("{}/iommu_group", function.folder);
    let question = Question::new(
        Group::Pci,
        "IOMMU",
        format!("{}, /sys/kernel/iommu_groups/*/type", Tree::shown(&path)),
        "where an IOMMU translates, each access of the device may miss in its cache of translations",
    );
    if situation.model {
        return question.not_applicable("the model reaches memory without a bus");
    }
    let Some(group) = situation.tree.link(&path) else {
        return question.good("none translates what this function reads and writes");
    };
    match situation.tree.read(&format!("sys/kernel/iommu_groups/{group}/type")).as_deref() {
        Some("identity") => question.good(format!("group {group}, passed through")),
        Some(kind) => question.warning(
            format!("group {group} is translated ({kind})"),
            "iommu=pt on the kernel's command line, where the device is given to no virtual machine",
        ),
        None => {
            question.unknown(format!("the kernel does not tell the type of group {group}"), None)
        }
    }
}

fn firmware(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Pci,
        "firmware",
        "/sys/class/infiniband/*/fw_ver",
        "what the device can do depends on it; drivers name the oldest that they were tested with",
    );
    let Some(device) = &situation.device else {
        return question.not_applicable("there is no RDMA device");
    };
    let read = |name: &str| situation.tree.read(&format!("{}/{name}", device.folder));
    match read("fw_ver") {
        Some(version) => {
            let board = read("board_id").map(|board| format!(", board {board}"));
            question.good(format!("{version}{}", board.unwrap_or_default()))
        }
        None => {
            question.unknown("the kernel does not tell it", Some("mlxfwmanager --query".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_control_is_found_in_the_list_of_capabilities() {
        let mut config = vec![0; 256];
        config[0x34] = 0x40;
        // Power management, then PCI Express.
        config[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
        config[0x60..0x62].copy_from_slice(&[0x10, 0x00]);
        config[0x68..0x6a].copy_from_slice(&0x2930_u16.to_le_bytes());
        assert_eq!(device_control(&config), Some(0x2930));
        // The part that an unprivileged user may read.
        assert_eq!(device_control(&config[..64]), None);
        // A loop in the list must end the search.
        config[0x61] = 0x40;
        config[0x60] = 0x05;
        assert_eq!(device_control(&config), None);
        assert_eq!(device_control(&[]), None);
    }
}
