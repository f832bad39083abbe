//! How a device is shared and joined: virtual functions (SR-IOV), and bonds of its ports (LAG).

use super::check::{Check, Group, Question};
use super::debugfs;
use super::situation::{Function, Situation};
use super::tree::Tree;
use crate::output::counted;

pub fn look(situation: &Situation) -> Vec<Check> {
    let mut checks = Vec::new();
    checks.extend(situation.function().map(|function| functions(situation, function)));
    checks.extend(situation.ports().into_iter().filter_map(|port| bond(situation, port)));
    checks.push(joined(situation));
    checks
}

fn functions(situation: &Situation, function: &Function) -> Check {
    let folder = &function.folder;
    let question = Question::new(
        Group::Pci,
        "SR-IOV",
        format!("{}/{{sriov_*,physfn}}", Tree::shown(folder)),
        "virtual functions share the port and its rate; the physical function's driver sets them up",
    );
    if situation.model {
        return question.not_applicable("the model has no virtual functions");
    }
    if let Some(physical) = situation.tree.link(&format!("{folder}/physfn")) {
        return question.good(format!("a virtual function of {physical}"));
    }
    let count = |name: &str| situation.tree.number(&format!("{folder}/{name}"));
    match (count("sriov_numvfs"), count("sriov_totalvfs")) {
        (Some(0), Some(most)) => question.good(format!("no virtual functions, of at most {most}")),
        (Some(used), Some(most)) => {
            let used = counted(used.unsigned_abs(), "virtual function");
            question.good(format!("{used}, of at most {most}"))
        }
        _ => question.not_applicable("the function has no SR-IOV"),
    }
}

/// Modes by which mlx5 joins two ports to one RDMA device (`mlx5_lag_mode_is…`, `lag.c`).
const OFFLOADED: [&str; 3] = ["active-backup", "balance-xor", "802.3ad"];

/// Folder of the network interfaces.
const INTERFACES: &str = "sys/class/net";

/// Returns the bond that a port's interface belongs to, and its mode.
fn bond_of(situation: &Situation, port: u8) -> Option<(String, String)> {
    let interface = situation.interface(port).filter(|_| situation.is_ethernet(port))?;
    let tree = &situation.tree;
    // A port of a bond has a master; an RDMA device of the bond has the bond's own interface.
    let bond = match tree.link(&format!("{INTERFACES}/{interface}/master")) {
        Some(master) => master,
        None => interface,
    };
    let mode = tree.read(&format!("{INTERFACES}/{bond}/bonding/mode"))?;
    let word = mode.split_whitespace().next().unwrap_or_default().to_owned();
    Some((bond, word))
}

/// Checks the driver's own view: whether it has joined the ports (`lag/debugfs.c` of mlx5_core).
fn joined(situation: &Situation) -> Check {
    let question = Question::new(
        Group::Ports,
        "LAG",
        "/sys/kernel/debug/mlx5/*/lag",
        "the ports of a joined device share its queues; the driver decides whether it joins them",
    );
    let folder = match debugfs::folder(situation, "lag") {
        Ok(folder) => folder,
        Err(absent) => return absent.answer(question),
    };
    let values = debugfs::values(situation, &folder);
    let of = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    let Some(state) = of("state") else {
        return question.unknown(format!("/{folder}/state cannot be read"), None);
    };
    let details = values.iter().filter(|(name, _)| name != "state");
    let details = details.map(|(name, value)| format!("; {name} {value}")).collect::<String>();
    let found = format!("{state}{details}");
    let bond = situation.ports().into_iter().find_map(|port| bond_of(situation, port));
    match bond.filter(|(_, mode)| OFFLOADED.contains(&mode.as_str()) && state == "disabled") {
        Some((bond, mode)) => question.warning(
            format!("{found}, though {bond} is a bond of mode {mode}"),
            "sudo dmesg | grep -i lag    # why: all ports of the device must be in the bond",
        ),
        None => question.good(found),
    }
}

/// Checks the bond that a port's interface belongs to.
fn bond(situation: &Situation, port: u8) -> Option<Check> {
    let (bond, mode) = bond_of(situation, port)?;
    let tree = &situation.tree;
    let class = INTERFACES;
    let folder = format!("{class}/{bond}/bonding");
    let question = Question::new(
        Group::Ports,
        format!("port {port} bond"),
        format!("/{folder}, /{class}/*/operstate"),
        "the device joins its ports to one RDMA device in some modes of a bond alone",
    );
    let ports = tree.read(&format!("{folder}/slaves")).unwrap_or_default();
    let is_down = |name: &&str| {
        tree.read(&format!("{class}/{name}/operstate")).is_some_and(|state| state == "down")
    };
    let down: Vec<&str> = ports.split_whitespace().filter(is_down).collect();
    let found = format!("{bond}, mode {mode}, ports {ports}");
    Some(if !OFFLOADED.contains(&mode.as_str()) {
        question.warning(
            format!("{found}: RoCE is not joined in this mode"),
            format!("ip link set dev {bond} type bond mode 802.3ad    # as the switch is set up"),
        )
    } else if !down.is_empty() {
        question.warning(
            format!("{found}; down: {}", down.join(" ")),
            format!("ip link show dev {}; look at its cable", down[0]),
        )
    } else {
        question.good(found)
    })
}
