//! Counters that speak of faults: of the RDMA transport (sysfs), and of the network interface
//! (`ethtool -S`).

use super::check::{Check, Group, Question};
use super::ethtool;
use super::situation::Situation;
use super::tree::number;

/// A counter that stays zero on a sound network, what it counts, and where to look.
struct Counter {
    name: &'static str,
    counts: &'static str,
    cure: &'static str,
}

const fn counter(name: &'static str, counts: &'static str, cure: &'static str) -> Counter {
    Counter { name, counts, cure }
}

const LOSS: &str = "packets are lost on the way: look at port discards of the switch, PFC and ECN";
const SLOW: &str = "the receiver posts too few receives, or polls too late";
const RIGHTS: &str = "a program names a wrong key or range: mlx5 decode its completion errors";
const PAUSE: &str =
    "a receiver or a switch stops this port: look for a slow receiver (PCI, memory)";
const CABLE: &str = "clean and reseat the cable, then replace it";
const PCI: &str = "look at the PCI link above, and at IOMMU and NUMA placement";

/// Counters of the transport (`Documentation/ABI/stable/sysfs-class-infiniband`, and NVIDIA's
/// "Understanding mlx5 Linux Counters").
const TRANSPORT: [Counter; 12] = [
    counter("out_of_sequence", "packets out of sequence", LOSS),
    counter("packet_seq_err", "NAKs for packets out of sequence", LOSS),
    counter("local_ack_timeout_err", "ACKs that did not come in time", LOSS),
    counter("implied_nak_seq_err", "ACKs beyond a lost response", LOSS),
    counter("roce_slow_restart", "slow restarts after a loss", LOSS),
    counter("rnr_nak_retry_err", "RNR NAKs: the peer had no receive", SLOW),
    counter("out_of_buffer", "packets dropped for want of a receive", SLOW),
    counter("req_remote_access_errors", "refusals by the peer for its key or rights", RIGHTS),
    counter("resp_remote_access_errors", "requests refused for a key or rights", RIGHTS),
    counter("req_remote_invalid_request", "requests that the peer calls invalid", RIGHTS),
    counter("resp_local_length_error", "messages longer than their receive", RIGHTS),
    counter("rx_icrc_encapsulated", "RoCE packets with a wrong ICRC", CABLE),
];

/// Statistics of the interface (`Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
/// counters.rst`).
const INTERFACE: [Counter; 15] = [
    counter("rx_discards_phy", "received packets dropped for want of room in the port", PAUSE),
    counter("tx_discards_phy", "packets dropped before they left", PAUSE),
    counter("rx_out_of_buffer", "packets without a receive buffer of the kernel", SLOW),
    counter("rx_steer_missed_packets", "packets that no rule takes", "ethtool -u; tc filter show"),
    counter("tx_pause_storm_warning_events", "receivers that stall the port", PCI),
    counter("tx_pause_storm_error_events", "receivers that stalled the port for long", PCI),
    counter("rx_crc_errors_phy", "frames with a wrong checksum", CABLE),
    counter("rx_symbol_err_phy", "symbols that FEC did not correct", CABLE),
    counter("link_down_events_phy", "times that the link went down", CABLE),
    counter("module_bus_stuck", "times that the module's bus was stuck", CABLE),
    counter("module_high_temp", "times that the module was too hot", "look at the airflow"),
    counter("module_bad_shorted", "shorts of the module", CABLE),
    counter("outbound_pci_stalled_wr", "percent of time without PCI credits to write", PCI),
    counter("outbound_pci_buffer_overflow", "packets dropped for PCI back-pressure", PCI),
    counter("rx_pci_signal_integrity", "PCI receive errors", PCI),
];

pub fn look(situation: &Situation) -> Vec<Check> {
    let ports = situation.ports().into_iter();
    ports.flat_map(|port| [transport(situation, port), interface(situation, port)]).collect()
}

/// Judges the counters of a list, of which `read` returns the values.
fn judge(question: Question, list: &[Counter], read: impl Fn(&str) -> Option<u64>) -> Check {
    let known: Vec<(&Counter, u64)> =
        list.iter().filter_map(|counter| Some((counter, read(counter.name)?))).collect();
    if known.is_empty() {
        return question.not_applicable("the kernel shows no counters of it");
    }
    let wrong: Vec<&(&Counter, u64)> = known.iter().filter(|(_, value)| *value != 0).collect();
    let Some((first, _)) = wrong.first() else {
        return question.good(match known.len() {
            1 => "1 counter, and it is zero".to_owned(),
            count => format!("{count} counters, and all are zero"),
        });
    };
    let words = wrong
        .iter()
        .map(|(counter, value)| format!("{} {value} ({})", counter.name, counter.counts));
    question.warning(
        words.collect::<Vec<_>>().join(", "),
        format!("look again under load: what grows counts. {}: {}", first.name, first.cure),
    )
}

fn transport(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} transport"),
        format!("/sys/class/infiniband/*/ports/{port}/hw_counters"),
        "retransmission hides losses from programs; only their latency and these counters tell",
    );
    judge(question, &TRANSPORT, |name| {
        let text = situation.port_file(port, &format!("hw_counters/{name}"))?;
        u64::try_from(number(&text)?).ok()
    })
}

fn interface(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Ports,
        format!("port {port} interface"),
        "ethtool -S, by the ioctl of ETHTOOL_GSTATS; of a sosreport, its file",
        "drops and pauses of the Ethernet port hit RDMA as well",
    );
    let name = situation.interface(port).filter(|_| situation.is_ethernet(port));
    let Some(name) = name else {
        return question.not_applicable("the port has no network interface");
    };
    if situation.model {
        return question.not_applicable("the model's interface has no statistics");
    }
    let statistics = match situation.tree.is_own() {
        true => ethtool::statistics(&name),
        false => situation
            .tree
            .text(&format!("sos_commands/networking/ethtool_-S_{name}"))
            .map(|text| ethtool::printed(&text)),
    };
    match statistics {
        Ok(statistics) => judge(question, &INTERFACE, |name| {
            statistics.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
        }),
        Err(_) if !situation.tree.is_own() => {
            question.not_applicable("the copy has no output of ethtool -S")
        }
        Err(error) => question.unknown(
            format!("{name}: {error}"),
            Some(format!("ethtool -S {name}    # in the network namespace of the interface")),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Verdict;
    use super::*;

    #[test]
    fn counters_that_grew_are_named_with_their_meaning() {
        let question = || Question::new(Group::Ports, "check", "place", "why");
        let only = |wanted: &'static str, value| {
            judge(question(), &TRANSPORT, move |name| (name == wanted).then_some(value))
        };
        assert_eq!(only("out_of_sequence", 0).verdict, Verdict::Good);
        assert_eq!(only("none", 0).verdict, Verdict::NotApplicable);
        let wrong = only("rnr_nak_retry_err", 7);
        assert_eq!(wrong.verdict, Verdict::Warning);
        assert_eq!(wrong.found, "rnr_nak_retry_err 7 (RNR NAKs: the peer had no receive)");
        assert!(wrong.cure.unwrap().contains("too few receives"));
    }
}
