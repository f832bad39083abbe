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
            // It moves after 4 ms, and a time-out after half a second or more (evidence F056, E077).
            (
                "roce_adp_retrans",
                "adaptive repetitions, the first sign of a loss: most that heal show here alone",
            ),
            ("out_of_sequence", "packets out of sequence"),
            ("packet_seq_err", "NAKs for packets out of sequence"),
            ("local_ack_timeout_err", "ACKs that did not come in time, half a second or more"),
            ("implied_nak_seq_err", "ACKs beyond a lost response"),
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
            // It did not move in 110 refusals of ConnectX-5 and ConnectX-6 (evidence E061).
            (
                "resp_remote_access_errors",
                "requests refused for a key or rights; most devices count them at the requester alone",
            ),
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
    ports
        .flat_map(|port| {
            [
                Some(transport(situation, port)),
                notifications(situation, port),
                Some(interface(situation, port)),
            ]
        })
        .flatten()
        .collect()
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
        "retransmission hides losses from programs; only their latency and these counters tell. A device \
         that refuses a request counts nothing: look at the requester's. Queue pairs made by command \
         (DevX) count in none of them",
    );
    judge(question, &TRANSPORT, |name| count(situation, port, name))
}

/// Returns a counter of the transport.
fn count(situation: &Situation, port: u8, name: &str) -> Option<u64> {
    let text = situation.port_file(port, &format!("hw_counters/{name}"))?;
    u64::try_from(number(&text)?).ok()
}

/// Tells notifications of congestion from those that a sender counts for its own repetitions: a
/// ConnectX-6 adds one for each, but for the last time-out of a request that it gives up (evidence E056,
/// E070).
fn notifications(situation: &Situation, port: u8) -> Option<Check> {
    let count = |name| count(situation, port, name);
    let handled = count("rp_cnp_handled").filter(|handled| *handled > 0)?;
    let question = Question::new(
        Group::Ports,
        format!("port {port} congestion"),
        format!("/sys/class/infiniband/*/ports/{port}/hw_counters"),
        "a peer that does not answer raises rp_cnp_handled as congestion does; the peer's np_cnp_sent \
         tells how many notifications it has sent",
    );
    let of = |name| count(name).unwrap_or(0);
    let (adaptive, regular) = (of("roce_adp_retrans"), of("local_ack_timeout_err"));
    let repetitions =
        (adaptive + regular).saturating_sub(of("req_transport_retries_exceeded")).min(handled);
    let own = format!(
        "rp_cnp_handled {handled}: {repetitions} for repetitions of this port (roce_adp_retrans \
         {adaptive}, local_ack_timeout_err {regular})"
    );
    Some(match handled - repetitions {
        0 => question
            .good(format!("{own}, so no congestion; peers did not answer, or packets were lost")),
        congestion => question
            .good(format!("{own}, and {congestion} for congestion, at which senders slow down")),
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
        // Losses that heal show there alone, and first (evidence E069, F056).
        let healed = only("roce_adp_retrans", 9);
        assert_eq!(healed.verdict, Verdict::Warning);
        assert!(healed.found.contains("roce_adp_retrans 9"), "{}", healed.found);
        let both = judge(question(), &TRANSPORT, |_| Some(1));
        let place = |name| both.found.find(name).expect("a counter");
        assert!(place("roce_adp_retrans") < place("local_ack_timeout_err"), "{}", both.found);
    }
}
