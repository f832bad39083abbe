//! Handling of packets in a full network: priority flow control (PFC), ECN, and the priorities of
//! DSCPs.

use super::check::{Check, Group, Question};
use super::congestion::{self, State, shown};
use super::dcb::{self, Dcb};
use super::situation::Situation;

pub fn look(situation: &Situation, port: u8) -> Vec<Check> {
    let state = congestion::ask(situation);
    vec![
        losses(situation, port, state.as_ref().ok()),
        congestion::look(situation, port, &state),
        priorities(situation, port),
    ]
}

/// What the machine tells of one way to lose nothing.
enum Way {
    /// It is on, in words.
    On(String),
    Off(String),
    Unknown,
}

fn losses(situation: &Situation, port: u8, state: Option<&State>) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} losses"),
        "/sys/class/net/*/ecn, netlink DCB_CMD_IEEE_GET, QUERY_CONG_STATUS",
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
    let congestion = match by_files(situation, name) {
        Way::Unknown => state.map_or(Way::Unknown, by_firmware),
        told => told,
    };
    let ways = [flow_control(dcb_of(situation, port).as_ref()), congestion];
    let mut on = Vec::new();
    let mut off = Vec::new();
    for way in ways {
        match way {
            Way::On(words) => on.push(words),
            Way::Off(words) => off.push(words),
            Way::Unknown => {}
        }
    }
    let cure = format!(
        "dcb pfc show dev {name}; ethtool -a {name}    # or mlnx_qos -i {name}; and the switch"
    );
    match (on.is_empty(), off.len()) {
        (false, _) => question.good(on.join("; ")),
        (true, 0) => question
            .unknown("the kernel's files do not tell whether the way is lossless", Some(cure)),
        (true, 1) => question
            .unknown(format!("{}; whether ECN is on is not told", off.join("; ")), Some(cure)),
        (true, _) => question.warning(
            off.join("; "),
            format!("dcb pfc set dev {name} prio-pfc 3:on    # or ECN, and the same on the switch"),
        ),
    }
}

/// Asks for the port's interface; `None` where there is nothing to ask, or the kernel refuses.
fn dcb_of(situation: &Situation, port: u8) -> Option<Dcb> {
    let own = situation.tree.is_own() && !situation.model;
    let interface = situation.interface(port).filter(|_| own)?;
    // A refusal means that the driver has no DCB, which the check reports as unknown.
    dcb::ask(&interface).ok()
}

fn flow_control(dcb: Option<&Dcb>) -> Way {
    match dcb.and_then(|dcb| dcb.flow_control) {
        None => Way::Unknown,
        Some(0) => Way::Off("PFC is off for all priorities".to_owned()),
        Some(mask) => {
            let on: Vec<u8> = (0..8).filter(|bit| mask >> bit & 1 != 0).collect();
            Way::On(format!("PFC is on for {}", shown(&on)))
        }
    }
}

/// Judges what the firmware tells of congestion control.
fn by_firmware(state: &State) -> Way {
    let State { notifies, reacts, .. } = state;
    match notifies.is_empty() && reacts.is_empty() {
        true => Way::Off("ECN is off for all priorities".to_owned()),
        false => Way::On(format!(
            "ECN notification is on for {}, reaction for {}",
            shown(notifies),
            shown(reacts)
        )),
    }
}

/// Reads the files of NVIDIA's own driver packages; the kernel's driver does not have them.
fn by_files(situation: &Situation, name: &str) -> Way {
    let tree = &situation.tree;
    let folder = format!("sys/class/net/{name}/ecn");
    let enabled = |side: &str| -> Option<Vec<u8>> {
        let path = format!("{folder}/{side}/enable");
        let names = tree.list(&path);
        let is_on = |priority: &u8| tree.number(&format!("{path}/{priority}")) == Some(1);
        (!names.is_empty()).then(|| (0..8).filter(is_on).collect())
    };
    let Some(notifies) = enabled("roce_np") else { return Way::Unknown };
    if notifies.is_empty() {
        return Way::Off("ECN notification is off for all priorities".to_owned());
    }
    let mut words = format!("ECN notification is on for {}", shown(&notifies));
    if let Some(reacts) = enabled("roce_rp") {
        words += &format!(", reaction for {}", shown(&reacts));
    }
    if let Some(dscp) = tree.number(&format!("{folder}/roce_np/cnp_dscp")) {
        words += &format!(", CNPs of DSCP {dscp}");
    }
    Way::On(words)
}

fn priorities(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} DSCPs"),
        "netlink DCB_CMD_IEEE_GET, /sys/class/infiniband/*/tc/*/traffic_class",
        "a packet gets the priority of its DSCP; of another than the switch's it is not lossless",
    );
    let Some(dcb) = dcb_of(situation, port) else {
        return question.not_applicable("the kernel does not tell");
    };
    let device = situation.device.as_ref().map_or("", |device| &device.folder);
    let default = situation.tree.number(&format!("{device}/tc/{port}/traffic_class"));
    let default = default.map_or(String::new(), |class| format!("; RoCE's default is {class}"));
    match dcb.dscps.is_empty() {
        true => question.good(format!("the VLAN's priority is trusted, not DSCPs{default}")),
        false => {
            let map = dcb.dscps.iter().map(|(dscp, priority)| format!("{dscp}→{priority}"));
            question.good(format!("{}{default}", map.collect::<Vec<_>>().join(" ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_control_is_told_by_priority() {
        let of = |mask| flow_control(Some(&Dcb { flow_control: Some(mask), ..Dcb::default() }));
        assert!(matches!(of(0b1000), Way::On(words) if words == "PFC is on for priority 3"));
        assert!(matches!(of(0b1001), Way::On(words) if words == "PFC is on for priorities 0, 3"));
        assert!(matches!(of(0), Way::Off(_)));
        assert!(matches!(flow_control(None), Way::Unknown));
    }
}
