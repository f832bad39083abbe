//! Counters that speak of faults: of the RDMA transport (sysfs), and of the network interface
//! (`ethtool -S`).

use super::check::{Check, Group, Question};
use super::ethtool;
use super::situation::Situation;
use super::tree::number;

/// Counters that stay zero on a sound network, and where to look if they do not.
struct Family {
    cure: &'static str,
    /// The name of each, and what it counts.
    counters: &'static [(&'static str, &'static str)],
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
const TRANSPORT: [Family; 4] = [
    Family {
        cure: LOSS,
        counters: &[
            ("out_of_sequence", "packets out of sequence"),
            ("packet_seq_err", "NAKs for packets out of sequence"),
            ("local_ack_timeout_err", "ACKs that did not come in time"),
            ("implied_nak_seq_err", "ACKs beyond a lost response"),
            ("roce_adp_retrans", "adaptive repetitions: most losses that heal show here alone"),
            ("roce_slow_restart", "slow restarts after a loss"),
        ],
    },
    Family {
        cure: SLOW,
        counters: &[
            ("rnr_nak_retry_err", "RNR NAKs: the peer had no receive"),
            ("out_of_buffer", "packets dropped for want of a receive"),
        ],
    },
    Family {
        cure: RIGHTS,
        counters: &[
            ("req_remote_access_errors", "refusals by the peer for its key or rights"),
            ("resp_remote_access_errors", "requests refused for a key or rights"),
            ("req_remote_invalid_request", "requests that the peer calls invalid"),
            ("resp_local_length_error", "messages longer than their receive"),
        ],
    },
    Family { cure: CABLE, counters: &[("rx_icrc_encapsulated", "RoCE packets with a wrong ICRC")] },
];

/// Statistics of the interface (`Documentation/networking/device_drivers/ethernet/mellanox/mlx5/
/// counters.rst`).
const INTERFACE: [Family; 6] = [
    Family {
        cure: PAUSE,
        counters: &[
            ("rx_discards_phy", "received packets dropped for want of room in the port"),
            ("tx_discards_phy", "packets dropped before they left"),
        ],
    },
    Family {
        cure: SLOW,
        counters: &[("rx_out_of_buffer", "packets without a receive buffer of the kernel")],
    },
    Family {
        cure: "ethtool -u; tc filter show",
        counters: &[("rx_steer_missed_packets", "packets that no rule takes")],
    },
    Family {
        cure: PCI,
        counters: &[
            ("tx_pause_storm_warning_events", "receivers that stall the port"),
            ("tx_pause_storm_error_events", "receivers that stalled the port for long"),
            ("outbound_pci_stalled_wr", "percent of time without PCI credits to write"),
            ("outbound_pci_buffer_overflow", "packets dropped for PCI back-pressure"),
            ("rx_pci_signal_integrity", "PCI receive errors"),
        ],
    },
    Family {
        cure: CABLE,
        counters: &[
            ("rx_crc_errors_phy", "frames with a wrong checksum"),
            ("rx_symbol_err_phy", "symbols that FEC did not correct"),
            ("link_down_events_phy", "times that the link went down"),
            ("module_bus_stuck", "times that the module's bus was stuck"),
            ("module_bad_shorted", "shorts of the module"),
        ],
    },
    Family {
        cure: "look at the airflow",
        counters: &[("module_high_temp", "times that the module was too hot")],
    },
];

pub fn look(situation: &Situation) -> Vec<Check> {
    let ports = situation.ports().into_iter();
    ports.flat_map(|port| [transport(situation, port), interface(situation, port)]).collect()
}

/// Judges the counters of a list, of which `read` returns the values.
fn judge(question: Question, list: &[Family], read: impl Fn(&str) -> Option<u64>) -> Check {
    let (mut known, mut wrong, mut cure) = (0, Vec::new(), None);
    for Family { cure: look, counters } in list {
        for (name, counts) in *counters {
            let Some(value) = read(name) else { continue };
            known += 1;
            if value != 0 {
                wrong.push(format!("{name} {value} ({counts})"));
                cure.get_or_insert_with(|| format!("{name}: {look}"));
            }
        }
    }
    match (cure, known) {
        (Some(cure), _) => question
            .warning(wrong.join(", "), format!("look again under load: what grows counts. {cure}")),
        (None, 0) => question.not_applicable("the kernel shows no counters of it"),
        (None, 1) => question.good("1 counter, and it is zero"),
        (None, count) => question.good(format!("{count} counters, and all are zero")),
    }
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
        // Losses that heal show there alone (evidence E069).
        let healed = only("roce_adp_retrans", 9);
        assert_eq!(healed.verdict, Verdict::Warning);
        assert!(healed.found.contains("roce_adp_retrans 9"), "{}", healed.found);
    }
}
