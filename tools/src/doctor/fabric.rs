//! Handling of packets in a full network, as far as this machine's files tell.

use super::check::{Check, Group, Question};
use super::situation::Situation;

pub fn look(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} losses"),
        "/sys/class/net/*/ecn, /sys/class/net/*/qos",
        "RoCE that loses packets under load sends them again: latency in the tail, or retries \
         exceeded. Priority flow control or ECN on hosts and switches keeps it from that",
    );
    if !situation.is_ethernet(port) {
        return question.good("InfiniBand loses nothing for want of room: its links give credits");
    }
    if situation.model {
        return question.not_applicable("the model's wire waits for who is slow");
    }
    let interface = situation.interface(port);
    let name = interface.as_deref().unwrap_or("INTERFACE");
    // NVIDIA's own driver packages provide these files; the kernel's driver does not.
    let ecn = format!("sys/class/net/{name}/ecn/roce_np/enable");
    let on: Vec<String> = situation
        .tree
        .list(&ecn)
        .into_iter()
        .filter(|priority| situation.tree.number(&format!("{ecn}/{priority}")) == Some(1))
        .collect();
    if !on.is_empty() {
        return question.good(format!("ECN notification is on for priorities {}", on.join(", ")));
    }
    question.unknown(
        "the kernel's files do not tell whether the way is lossless",
        Some(format!(
            "dcb pfc show dev {name}; ethtool -a {name}    # or mlnx_qos -i {name}; and the switch"
        )),
    )
}
