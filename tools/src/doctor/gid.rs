//! A port's GIDs: which one to use, and whether a requested one is right.

use std::net::Ipv6Addr;

use super::RoceVersion;
use super::check::{Check, Group, Question};
use super::situation::Situation;
use super::vlan::Vlan;

/// An entry of a GID table, as sysfs shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    index: u32,
    address: Ipv6Addr,
    /// `None` on InfiniBand.
    version: Option<RoceVersion>,
    interface: Option<String>,
    vlan: Option<Vlan>,
}

impl Entry {
    fn shown(&self) -> String {
        let address = match self.address.to_ipv4_mapped() {
            Some(address) => address.to_string(),
            None => self.address.to_string(),
        };
        let version = self.version.map_or(String::new(), |version| format!(", {version}"));
        let interface = self.interface.as_ref().map_or(String::new(), |name| format!(", {name}"));
        let vlan = self.vlan.map_or(String::new(), |vlan| format!(", {vlan}"));
        format!("{} ({address}{version}{interface}{vlan})", self.index)
    }

    fn is_link_local(&self) -> bool {
        self.address.segments()[0] & 0xffc0 == 0xfe80
    }
}

pub fn look(situation: &Situation, port: u8) -> Vec<Check> {
    let mut checks = vec![choice(situation, port)];
    checks.extend(situation.arguments.gid_index.map(|index| asked(situation, port, index)));
    checks
}

/// Returns the entries in use, and the size of the table.
fn table(situation: &Situation, port: u8) -> (Vec<Entry>, usize) {
    let Some(device) = &situation.device else { return (Vec::new(), 0) };
    let folder = format!("{}/ports/{port}", device.folder);
    let tree = &situation.tree;
    let indices = tree.list(&format!("{folder}/gids"));
    let ethernet = situation.is_ethernet(port);
    let entries = indices.iter().filter_map(|index| {
        let address: Ipv6Addr = tree.read(&format!("{folder}/gids/{index}"))?.parse().ok()?;
        if address.is_unspecified() {
            return None;
        }
        let kind = tree.read(&format!("{folder}/gid_attrs/types/{index}"));
        let version = match kind.as_deref() {
            Some("RoCE v2") => Some(RoceVersion::V2),
            Some(_) if ethernet => Some(RoceVersion::V1),
            _ => None,
        };
        let interface =
            tree.read(&format!("{folder}/gid_attrs/ndevs/{index}")).filter(|name| !name.is_empty());
        let vlan = interface.as_deref().and_then(|name| Vlan::of(tree, name));
        Some(Entry { index: index.parse().ok()?, address, version, interface, vlan })
    });
    (entries.collect(), indices.len())
}

/// Returns the entry to use: of the requested version, else version 2; IPv4 addresses first.
fn best(entries: &[Entry], version: RoceVersion) -> Option<&Entry> {
    let of_version = || entries.iter().filter(|entry| entry.version == Some(version));
    let routable = || of_version().find(|entry| !entry.is_link_local());
    of_version()
        .find(|entry| entry.address.to_ipv4_mapped().is_some())
        .or_else(routable)
        .or_else(|| of_version().next())
}

fn wanted(situation: &Situation) -> RoceVersion {
    situation.arguments.roce.unwrap_or(RoceVersion::V2)
}

/// Returns what helps where no entry is of a version: the other one, if the table has it. The versions
/// are those of the device and its driver, and no setting adds one.
fn cure(entries: &[Entry], version: RoceVersion) -> String {
    let other = match version {
        RoceVersion::V1 => RoceVersion::V2,
        RoceVersion::V2 => RoceVersion::V1,
    };
    match best(entries, other) {
        Some(entry) => format!(
            "use {other} on both sides: GID index {} here    # this port offers no {version}",
            entry.index
        ),
        None => "ip address add ADDRESS/24 dev INTERFACE".to_owned(),
    }
}

fn choice(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} GIDs"),
        format!("/sys/class/infiniband/*/ports/{port}/{{gids,gid_attrs}}"),
        "on Ethernet a connection is addressed by GID alone, and both sides need the same RoCE version",
    );
    let (entries, size) = table(situation, port);
    if entries.is_empty() {
        return match situation.is_ethernet(port) {
            true => question.broken(
                "the table is empty: the network interface is down, or not there",
                "ip link set dev INTERFACE up; ip address add ADDRESS/24 dev INTERFACE",
            ),
            false => question.unknown("the table is empty, or cannot be read", None),
        };
    }
    if !situation.is_ethernet(port) {
        return question.good(format!(
            "index {}; connections within the subnet need none",
            entries[0].shown()
        ));
    }
    let version = wanted(situation);
    let list = || entries.iter().map(Entry::shown).collect::<Vec<_>>().join("; ");
    match best(&entries, version) {
        None if situation.arguments.roce.is_some() => question
            .broken(format!("none is of {version}; there are {}", list()), cure(&entries, version)),
        None => question.warning(
            format!("none is of {version}, which routers pass on; there are {}", list()),
            "mlx5 doctor --roce 1    # where the peer speaks version 1, too",
        ),
        Some(entry) if entry.is_link_local() => question.warning(
            format!(
                "use {}: link-local, so peers of another subnet are not reached",
                entry.shown()
            ),
            format!(
                "ip address add ADDRESS/24 dev {}",
                entry.interface.as_deref().unwrap_or("INTERFACE")
            ),
        ),
        Some(entry) => {
            question.good(format!("use {}; {} of {size} in use", entry.shown(), entries.len()))
        }
    }
}

fn asked(situation: &Situation, port: u8, index: u32) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} GID {index}"),
        format!(
            "/sys/class/infiniband/*/ports/{port}/{{gids,gid_attrs/types,gid_attrs/ndevs}}/{index}"
        ),
        "a wrong index is refused when the queue pair goes to RTR, or leads to no peer",
    );
    let (entries, size) = table(situation, port);
    let better = match situation.is_ethernet(port) {
        true => best(&entries, wanted(situation)),
        false => entries.first(),
    };
    let cure = match better {
        Some(entry) => format!("use GID index {}", entry.shown()),
        None => cure(&entries, wanted(situation)),
    };
    let Some(entry) = entries.iter().find(|entry| entry.index == index) else {
        let why = if (index as usize) < size {
            "is empty".to_owned()
        } else {
            format!("is beyond the table, which has {size} entries")
        };
        let used: Vec<String> = entries.iter().map(|entry| entry.index.to_string()).collect();
        return question.broken(format!("index {index} {why}; in use: {}", used.join(", ")), cure);
    };
    match (entry.version, situation.arguments.roce) {
        (Some(version), Some(wanted)) if version != wanted => {
            return question.broken(
                format!("{} is of {version}, and {wanted} is asked for", entry.shown()),
                cure,
            );
        }
        (Some(RoceVersion::V1), None) => {
            return question.warning(
                format!(
                    "{} is of RoCE v1: not routed, and not heard by peers of v2",
                    entry.shown()
                ),
                cure,
            );
        }
        _ => {}
    }
    if let Some(interface) = &entry.interface {
        let state = situation.tree.read(&format!("sys/class/net/{interface}/operstate"));
        if state.as_deref() == Some("down") {
            return question.broken(
                format!("{}: the interface is down", entry.shown()),
                format!("ip link set dev {interface} up"),
            );
        }
    }
    question.good(entry.shown())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, address: &str, version: RoceVersion) -> Entry {
        let (address, version) = (address.parse().unwrap(), Some(version));
        Entry { index, address, version, interface: None, vlan: None }
    }

    #[test]
    fn the_best_gid_is_of_the_version_and_has_an_ipv4_address() {
        use RoceVersion::{V1, V2};
        let entries = [
            entry(0, "fe80::1", V1),
            entry(1, "fe80::1", V2),
            entry(2, "2001:db8::1", V2),
            entry(4, "::ffff:192.0.2.1", V1),
            entry(5, "::ffff:192.0.2.1", V2),
        ];
        let best = |entries: &[Entry], version| best(entries, version).map(|entry| entry.index);
        assert_eq!(best(&entries, V2), Some(5));
        assert_eq!(best(&entries[..4], V2), Some(2));
        assert_eq!(best(&entries[..2], V2), Some(1));
        assert_eq!(best(&entries, V1), Some(4));
        assert_eq!(best(&entries[..1], V2), None);
    }
}
