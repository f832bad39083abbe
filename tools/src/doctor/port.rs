//! Ports: link state and why a link is down, MTU, partitions, and errors.

use mlx5::verbs::attr::{AckTimeout, LinkLayer, Mtu};

use super::check::{Check, Group, Question};
use super::situation::Situation;
use super::tree::number;

pub fn look(situation: &Situation) -> Vec<Check> {
    let Some(device) = &situation.device else { return Vec::new() };
    let ports = situation.ports();
    // One port that carries traffic is enough, unless the user asked for another.
    let any = ports.iter().any(|&port| situation.is_active(port));
    let mut checks = Vec::new();
    for port in ports {
        if !device.ports.contains(&port) {
            checks.push(missing(situation, port));
            continue;
        }
        checks.push(link(situation, port, any));
        checks.push(mtu(situation, port));
        if situation.arguments.peer_mtu.is_some() {
            checks.push(peer_mtu(situation, port));
        }
        checks.push(partitions(situation, port));
        checks.push(errors(situation, port));
        checks.extend(super::gid::look(situation, port));
        checks.extend(super::fabric::look(situation, port));
        checks.push(dead_peer(situation, port));
    }
    checks
}

/// Says when a queue pair of the port reports a peer that does not answer.
fn dead_peer(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} dead peer"),
        "the port's link layer; times that were measured on devices with the settings that they are \
         delivered with",
        "a request to a peer that does not answer fails only then. timeout and retry_cnt of the queue \
         pair decide, and a device waits 537 ms at least for each answer",
    );
    let link = match situation.is_ethernet(port) {
        true => LinkLayer::Ethernet,
        false => LinkLayer::InfiniBand,
    };
    let after = |code, retries| {
        let time = AckTimeout::from_code(code).ok()?.dead_peer_after(retries, link)?;
        Some(format!("{:.2} s", time.as_secs_f64()))
    };
    let after = |code, retries| after(code, retries).unwrap_or_else(|| "no time".to_owned());
    let found = format!(
        "devices notice it after {} with timeout 14 and retry_cnt 7; {} with retry_cnt 0, {} with timeout 17, {} \
         with timeout 20",
        after(14, 7),
        after(14, 0),
        after(17, 7),
        after(20, 7)
    );
    question.good(match link {
        LinkLayer::Ethernet => {
            format!("{found}; before that, adaptive retransmission repeats (roce_adp_retrans)")
        }
        _ => found,
    })
}

fn missing(situation: &Situation, port: u8) -> Check {
    let device = situation.device.as_ref().map_or("", |device| &device.name);
    let ports = situation.device.as_ref().map_or(0, |device| device.ports.len());
    Question::new(
        Group::Ports,
        format!("port {port} link"),
        "/sys/class/infiniband/*/ports",
        "the port that was asked for",
    )
    .broken(format!("{device} has no port {port}: it has {ports}"), "mlx5 doctor --port 1")
}

fn link(situation: &Situation, port: u8, any_active: bool) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} link"),
        format!(
            "/sys/class/infiniband/*/ports/{port}/{{state,phys_state,link_layer,lid,sm_lid,rate}}"
        ),
        "only an active port carries messages",
    );
    let file = |name: &str| situation.port_file(port, name).unwrap_or_default();
    let (state, physical) = (file("state"), file("phys_state"));
    let name = |text: &str| text.split_once(": ").map_or(text, |(_, name)| name).to_owned();
    let shown = format!("{}, physically {}", name(&state), name(&physical));
    let ethernet = situation.is_ethernet(port);
    if state.starts_with("4:") {
        let address = if ethernet {
            match situation.interface(port) {
                Some(interface) => format!(", Ethernet, interface {interface}"),
                None => ", Ethernet".to_owned(),
            }
        } else {
            format!(", InfiniBand, LID {}", number(&file("lid")).unwrap_or(0))
        };
        return question.good(format!("{}{address}, {}", name(&state), file("rate")));
    }
    if state.is_empty() {
        return question.unknown("the kernel does not tell the port's state", None);
    }
    let (why, cure) = if ethernet {
        ethernet_down(situation, port)
    } else {
        down(situation, port, &state, &physical)
    };
    let found = format!("{shown}: {why}");
    if any_active { question.warning(found, cure) } else { question.broken(found, cure) }
}

/// Explains why an InfiniBand port is not active, by its state and physical state (PortInfo).
fn down(situation: &Situation, port: u8, state: &str, physical: &str) -> (String, String) {
    let device = situation.device.as_ref().map_or("", |device| &device.name);
    let (why, cure) = match (number_of(state), number_of(physical)) {
        (2, _) => (
            "the link is up, and no subnet manager has configured it",
            format!(
                "start one on any host of the fabric: systemctl start opensm    # is there one? \
                     sminfo -C {device} -P {port}"
            ),
        ),
        (3, _) => (
            "the subnet manager has configured it and not made it active yet",
            format!(
                "wait for it: watch ibstat {device} {port}; then read the subnet manager's log"
            ),
        ),
        (_, 2) => (
            "no signal from another port",
            format!(
                "plug in the cable, or try another; is the other end switched on? ibstat {device} {port}; \
                     mlxlink -d {device} -p {port}"
            ),
        ),
        (_, 3) => (
            "switched off by an administrator",
            format!(
                "ibportstate -C {device} -P {port} -D 0 {port} enable    # or the switch's port"
            ),
        ),
        (_, 1) => ("asleep", format!("mlxlink -d {device} -p {port} --port_state UP")),
        (_, 4) => (
            "the two ends do not agree on speed and width",
            format!(
                "mlxlink -d {device} -p {port}    # a cable that both ends support? the same speeds enabled?"
            ),
        ),
        (_, 6) => (
            "the link broke down and is recovering",
            format!("mlxlink -d {device} -p {port} -c    # bit errors? try another cable"),
        ),
        _ => ("for a reason that the port does not tell", format!("mlxlink -d {device} -p {port}")),
    };
    (why.to_owned(), cure)
}

fn number_of(text: &str) -> i64 {
    text.split(':').next().and_then(number).unwrap_or(0)
}

/// Explains why an Ethernet port is down: it follows its network interface.
fn ethernet_down(situation: &Situation, port: u8) -> (String, String) {
    let Some(interface) = situation.interface(port) else {
        return (
            "the kernel names no network interface of it".to_owned(),
            "ip link    # then: ip link set dev INTERFACE up; is the cable plugged in?".to_owned(),
        );
    };
    let file = |name: &str| situation.tree.read(&format!("sys/class/net/{interface}/{name}"));
    let up = file("flags").and_then(|flags| number(&flags)).is_some_and(|flags| flags & 1 != 0);
    if !up {
        return (
            format!("its interface {interface} is administratively down"),
            format!("ip link set dev {interface} up"),
        );
    }
    match file("carrier").as_deref() {
        Some("1") => (
            format!("its interface {interface} is up and has a carrier"),
            format!("ip link set dev {interface} down; ip link set dev {interface} up"),
        ),
        _ => (
            format!("its interface {interface} has no carrier"),
            format!("plug in the cable; is the switch's port enabled? ethtool {interface}"),
        ),
    }
}

/// Returns the RDMA MTU that fits into an Ethernet MTU: the largest that leaves space for the
/// longest headers (`iboe_get_mtu` of Linux: GRH 40, UDP 8, BTH 12, XRC 4, masked atomics 28, ICRC
/// 4).
fn rdma_mtu(ethernet: i64) -> Option<Mtu> {
    let payload = usize::try_from(ethernet - 96).ok()?;
    (1..=5).rev().filter_map(Mtu::from_code).find(|mtu| mtu.bytes() <= payload)
}

/// Returns the MTU in use: the HCA's value where it can be queried, else derived from the
/// interface.
fn active_mtu(situation: &Situation, port: u8) -> Option<(Mtu, Option<Mtu>)> {
    if let Some(Ok(attributes)) = situation.context().map(|context| context.port(port)) {
        return Some((attributes.active_mtu, Some(attributes.max_mtu)));
    }
    let interface = situation.interface(port)?;
    let ethernet = situation.tree.number(&format!("sys/class/net/{interface}/mtu"))?;
    Some((rdma_mtu(ethernet)?, None))
}

fn mtu(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} MTU"),
        "ibv_query_port, /sys/class/net/*/mtu",
        "the path MTU of a connection is at most the smaller of the two ports'; with a small one more \
         packets carry the same message",
    );
    let Some((active, most)) = active_mtu(situation, port) else {
        return question
            .unknown(situation.why_not_open(), Some("ibv_devinfo | grep mtu".to_owned()));
    };
    let most = most.map_or_else(String::new, |most| format!(" of at most {most}"));
    let interface = situation.interface(port).filter(|_| situation.is_ethernet(port));
    let ethernet = interface.and_then(|name| {
        let mtu = situation.tree.number(&format!("sys/class/net/{name}/mtu"))?;
        Some((name, mtu))
    });
    let found = match &ethernet {
        Some((name, mtu)) => format!("{active} bytes{most}, as {name} has {mtu}"),
        None => format!("{active} bytes{most}"),
    };
    if active < Mtu::Mtu1024 {
        let cure = match ethernet {
            Some((name, _)) => format!("ip link set dev {name} mtu 4200    # and on the switch"),
            None if situation.is_ethernet(port) => "ip link set dev INTERFACE mtu 4200".to_owned(),
            None => "the subnet manager's partitions.conf: mtu=5 (4096)".to_owned(),
        };
        return question.warning(found, cure);
    }
    question.good(found)
}

fn peer_mtu(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} peer's MTU"),
        "--peer-mtu, ibv_query_port",
        "with a path MTU above that of the other side, short messages arrive and long ones do not \
         (transport retries exceeded)",
    );
    let peer = situation.arguments.peer_mtu.and_then(|bytes| Mtu::from_bytes(bytes).ok());
    let (Some(peer), Some((active, _))) = (peer, active_mtu(situation, port)) else {
        return question.unknown(situation.why_not_open(), None);
    };
    compare_mtus(question, active, peer)
}

/// Judges the MTUs of both sides.
pub fn compare_mtus(question: Question, active: Mtu, peer: Mtu) -> Check {
    if peer == active {
        return question.good(format!("{peer} on both sides"));
    }
    let smaller = peer.min(active);
    question.warning(
        format!("mismatch: {active} here, {peer} there; the path MTU must be {smaller}"),
        format!(
            "perftest: -m {smaller}; a program: path_mtu {smaller}; or the same MTU on both sides: ip \
             link set dev INTERFACE mtu 4200"
        ),
    )
}

/// Returns the P_Key table of a port, in order. Entries that are not in use are 0.
pub fn partitions_of(situation: &Situation, port: u8) -> Vec<u16> {
    let folder = situation.device.as_ref().map_or("", |device| &device.folder);
    let folder = format!("{folder}/ports/{port}/pkeys");
    let indices = situation.tree.list(&folder).into_iter();
    let keys = indices.filter_map(|index| situation.tree.number(&format!("{folder}/{index}")));
    keys.filter_map(|key| u16::try_from(key).ok()).collect()
}

fn partitions(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} P_Keys"),
        "/sys/class/infiniband/*/ports/*/pkeys/*",
        "ports talk where they have a partition in common, and two limited members of it do not",
    );
    let mut keys = partitions_of(situation, port);
    keys.retain(|key| key & 0x7fff != 0);
    let shown = keys.iter().map(|key| format!("{key:#06x}")).collect::<Vec<_>>().join(", ");
    if keys.is_empty() {
        return question.unknown("the table is empty, or cannot be read", None);
    }
    match keys.iter().any(|key| key & 0x8000 != 0) {
        true => question.good(shown),
        false => question.warning(
            format!(
                "{shown}: a limited member of every partition, which reaches full members only"
            ),
            "the subnet manager's partitions.conf: make this port's GUID =full",
        ),
    }
}

/// Counters that stay zero on a sound link.
const ERRORS: [&str; 9] = [
    "symbol_error",
    "link_error_recovery",
    "link_downed",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
];

fn errors(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} errors"),
        format!("/sys/class/infiniband/*/ports/{port}/counters"),
        "bit errors cost retries, of which only latency tells",
    );
    let counted: Vec<(&str, i64)> = ERRORS
        .iter()
        .filter_map(|name| {
            let value = situation.port_file(port, &format!("counters/{name}"))?;
            Some((*name, number(&value)?))
        })
        .collect();
    if counted.is_empty() {
        return question.not_applicable("the kernel shows no counters of it");
    }
    let wrong: Vec<String> = counted
        .iter()
        .filter(|(_, value)| *value != 0)
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    if wrong.is_empty() {
        return question.good("none counted");
    }
    question.warning(
        wrong.join(", "),
        "perfquery -R, then look again under load: growing numbers mean cable, transceiver or port",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_leaves_the_mtu_that_linux_finds() {
        let bytes = |mtu| rdma_mtu(mtu).map(Mtu::bytes);
        assert_eq!(bytes(1500), Some(1024));
        assert_eq!(bytes(4200), Some(4096));
        assert_eq!(bytes(4191), Some(2048));
        assert_eq!(bytes(9000), Some(4096));
        assert_eq!(bytes(300), None);
        assert_eq!(bytes(-1), None);
    }
}
