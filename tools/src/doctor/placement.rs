//! NUMA placement of the HCA, and the CPUs of its interrupts.

use super::check::{Check, Group, Question};
use super::situation::Situation;
use super::tree::cpus;

const NODES: &str = "sys/devices/system/node";

pub fn look(situation: &Situation) -> Vec<Check> {
    if situation.function().is_none() {
        return Vec::new();
    }
    vec![node(situation), interrupts(situation)]
}

fn node(situation: &Situation) -> Check {
    let tree = &situation.tree;
    let question = Question::new(
        Group::Placement,
        "NUMA node",
        "/sys/class/infiniband/*/device/numa_node, /proc/self/status, /sys/devices/system/node",
        "doorbells, WQEs and CQEs of another node cross the link between the sockets",
    );
    let folder = situation.function().map_or("", |function| &function.folder);
    let nodes: Vec<String> =
        tree.list(NODES).into_iter().filter(|name| node_number(name).is_some()).collect();
    let Some(node) = tree.number(&format!("{folder}/numa_node")) else {
        return question.unknown("the kernel does not tell the device's node", None);
    };
    if nodes.is_empty() && !tree.is_own() {
        return question.unknown(
            format!("the copied files have no {NODES}"),
            Some(format!("copy /{NODES} as well")),
        );
    }
    if nodes.len() < 2 {
        return question.good("the machine has one node");
    }
    if node < 0 {
        return question.warning(
            format!(
                "the machine has {} nodes, and its firmware does not tell the device's",
                nodes.len()
            ),
            "enable NUMA (ACPI SRAT, _PXM) in the firmware's setup; lstopo shows what is known",
        );
    }
    let local = cpus(&tree.read(&format!("{NODES}/node{node}/cpulist")).unwrap_or_default());
    let status = tree.read("proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let Some(allowed) = allowed.map(cpus) else {
        return question.unknown("there is no /proc/self/status", None);
    };
    let near = allowed.iter().filter(|cpu| local.contains(cpu)).count();
    let pin = format!("numactl --cpunodebind={node} --membind={node} PROGRAM    # or taskset -c");
    if near == allowed.len() {
        return question.good(format!("node {node}, where all CPUs of this process are"));
    }
    if near == 0 {
        return question.warning(
            format!(
                "remote: the device is at node {node}, and no CPU of this process is{}",
                farthest(situation, node, &allowed)
            ),
            pin,
        );
    }
    question.warning(
        format!(
            "the device is at node {node}; {near} of this process's {} CPUs are",
            allowed.len()
        ),
        pin,
    )
}

fn node_number(name: &str) -> Option<u32> {
    name.strip_prefix("node")?.parse().ok()
}

/// Describes the distance from the process's first CPU to the HCA's node, in the firmware's measure
/// (10 is near).
fn farthest(situation: &Situation, node: i64, allowed: &[u32]) -> String {
    let tree = &situation.tree;
    let own = tree.list(NODES).into_iter().find_map(|name| {
        let list = tree.read(&format!("{NODES}/{name}/cpulist"))?;
        let first = allowed.first()?;
        if cpus(&list).contains(first) { node_number(&name) } else { None }
    });
    let distance = own.and_then(|own| {
        let row = tree.read(&format!("{NODES}/node{own}/distance"))?;
        let column = row.split_whitespace().nth(usize::try_from(node).ok()?)?.to_owned();
        Some(format!(" (they are at node {own}, distance {column})"))
    });
    distance.unwrap_or_default()
}

fn interrupts(situation: &Situation) -> Check {
    let tree = &situation.tree;
    let question = Question::new(
        Group::Placement,
        "interrupts",
        "/sys/class/infiniband/*/device/msi_irqs, /proc/irq/*/effective_affinity_list",
        "events (not polling) are delivered by interrupts; of another node, or moved about by \
         irqbalance, they are late",
    );
    if situation.model {
        return question.not_applicable("the model has no interrupts of this machine");
    }
    let folder = situation.function().map_or("", |function| &function.folder);
    let irqs = tree.list(&format!("{folder}/msi_irqs"));
    if irqs.is_empty() {
        return question.not_applicable("the function has no interrupts that are shown");
    }
    let local = cpus(&tree.read(&format!("{folder}/local_cpulist")).unwrap_or_default());
    let balancing = tree.list("proc").iter().any(|process| {
        process.bytes().all(|byte| byte.is_ascii_digit())
            && tree.read(&format!("proc/{process}/comm")).as_deref() == Some("irqbalance")
    });
    let mut remote = 0;
    let mut seen = 0;
    for irq in &irqs {
        let affinity = tree
            .read(&format!("proc/irq/{irq}/effective_affinity_list"))
            .or_else(|| tree.read(&format!("proc/irq/{irq}/smp_affinity_list")));
        let Some(affinity) = affinity else { continue };
        seen += 1;
        remote += usize::from(!cpus(&affinity).iter().any(|cpu| local.contains(cpu)));
    }
    if seen == 0 {
        return question.unknown("/proc/irq does not show where they go", None);
    }
    let balance = if balancing { "; irqbalance runs" } else { "" };
    let found = format!("{seen} vectors, {remote} of them at CPUs of other nodes{balance}");
    if remote > 0 || balancing {
        return question.warning(
            found,
            "systemctl stop irqbalance; set_irq_affinity_bynode.sh NODE INTERFACE    # or write CPUs to \
             /proc/irq/N/smp_affinity_list",
        );
    }
    question.good(found)
}
