//! Counters of ports, interfaces and functions: what each counts, and what to check if it grows.
//!
//! `Documentation/ABI/stable/sysfs-class-infiniband`, NVIDIA's "Understanding mlx5 Linux Counters",
//! `Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst`, and `devlink.rst` of
//! the same folder for counters of a virtual port.

use super::{ExplainedCode, Knowledge};

/// The place of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The RDMA transport: `hw_counters`, `rdma statistic`.
    Transport,
    /// A network interface: `ethtool -S`.
    Interface,
    /// A port, as every RDMA device has it: `counters`.
    Port,
    /// A function's virtual port: devlink's reporter vnic, and debugfs.
    Function,
}

/// The normal values of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Normal {
    /// It stays where it is, at best at zero.
    Still,
    /// It grows with traffic, and its growth is judged beside other counters.
    Grows,
}

/// A counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counter {
    /// Its place.
    pub place: Place,
    /// Its name. `#` stands for the number of a priority, lane or queue.
    pub name: &'static str,
    /// What it counts.
    pub counts: &'static str,
    /// Its normal values.
    pub normal: Normal,
    /// What to check first if it grows.
    pub check: &'static str,
}

const LOSS: &str = "packets are lost on the way: look at port discards of the switch, PFC and ECN";
const SLOW: &str = "the receiver posts too few receives, or polls too late";
const RIGHTS: &str = "a program names a wrong key or range: mlx5 decode its completion errors";
const PAUSE: &str =
    "a receiver or a switch stops this port: look for a slow receiver (PCI, memory)";
const CABLE: &str = "clean and reseat the cable, then replace it";
const PCI: &str = "look at the PCI link above, and at IOMMU and NUMA placement";
const CONGESTED: &str = "how many a second under load: look at ECN marks of the switches, and at the peer's CNP counters";
const FIRST_ERROR: &str = "look for the first completion with an error in the programs' logs";
const PARTITIONS: &str = "compare the P_Keys of both ends, and the routes of the switch";
const FILTER: &str = "ethtool -u; tc filter show";
const MEMORY: &str = "look at free memory of the host, and at ring lengths (`ethtool -g`)";
const EVENTS: &str = "a queue was too short, or its interrupts came too late: look for CQ errors in the kernel's log";

macro_rules! counters {
    ($table:ident: $($place:ident $normal:ident $check:expr; { $($name:literal $counts:literal,)* })*) => {
        const $table: &[Counter] = &[$($(Counter {
            place: Place::$place,
            name: $name,
            counts: $counts,
            normal: Normal::$normal,
            check: $check,
        },)*)*];
    };
}

// Counters that a check of a live device judges, in the order of its report.
counters! { JUDGED:
    Transport Still LOSS; {
        // It moves after 4 ms, and a time-out after half a second or more (evidence F056, E077).
        "roce_adp_retrans" "adaptive repetitions, the first sign of a loss: most that heal show here alone",
        "out_of_sequence" "packets out of sequence",
        "packet_seq_err" "NAKs for packets out of sequence",
        "local_ack_timeout_err" "ACKs that did not come in time, half a second or more",
        "implied_nak_seq_err" "ACKs beyond a lost response",
        "roce_slow_restart" "slow restarts after a loss",
    }
    Transport Still SLOW; {
        "rnr_nak_retry_err" "RNR NAKs: the peer had no receive",
        "out_of_buffer" "packets dropped for want of a receive",
    }
    Transport Still RIGHTS; {
        "req_remote_access_errors" "refusals by the peer for its key or rights",
        // It did not move in 110 refusals of ConnectX-5 and ConnectX-6 (evidence E061).
        "resp_remote_access_errors" "requests refused for a key or rights; most devices count them at the requester alone",
        "req_remote_invalid_request" "requests that the peer calls invalid",
        "resp_local_length_error" "messages longer than their receive",
    }
    Transport Still CABLE; {
        "rx_icrc_encapsulated" "RoCE packets with a wrong ICRC",
    }
    Interface Still PAUSE; {
        "rx_discards_phy" "received packets dropped for want of room in the port",
        "tx_discards_phy" "packets dropped before they left",
    }
    Interface Still SLOW; {
        "rx_out_of_buffer" "packets without a receive buffer of the kernel",
    }
    Interface Still FILTER; {
        "rx_steer_missed_packets" "packets that no rule takes",
    }
    Interface Still PCI; {
        "tx_pause_storm_warning_events" "receivers that stall the port",
        "tx_pause_storm_error_events" "receivers that stalled the port for long",
        "outbound_pci_stalled_wr" "percent of time without PCI credits to write",
        "outbound_pci_buffer_overflow" "packets dropped for PCI back-pressure",
        "rx_pci_signal_integrity" "PCI receive errors",
    }
    Interface Still CABLE; {
        "rx_crc_errors_phy" "frames with a wrong checksum",
        "rx_symbol_err_phy" "symbols that FEC did not correct",
        "link_down_events_phy" "times that the link went down",
        "module_bus_stuck" "times that the module's bus was stuck",
        "module_bad_shorted" "shorts of the module",
    }
    Interface Still "look at the airflow"; {
        "module_high_temp" "times that the module was too hot",
    }
}

// Other counters that listings have.
counters! { MORE:
    Transport Still LOSS; {
        "duplicate_request" "requests that a peer sent again: it did not see the answer",
        "req_transport_retries_exceeded" "requests given up without an answer",
        "roce_adp_retrans_to" "adaptive repetitions that ended in a time-out",
        "roce_slow_restart_cnps" "notifications of congestion at a slow restart",
        "roce_slow_restart_trans" "slow restarts that were entered",
        "rx_dct_connect_resync" "connections of DC that were made anew",
    }
    Transport Still SLOW; {
        "req_rnr_retries_exceeded" "requests given up because the peer had no receive",
        "resp_rnr_nak" "RNR NAKs sent: this end had no receive",
    }
    Transport Still FIRST_ERROR; {
        "req_cqe_error" "requests that completed with an error",
        "resp_cqe_error" "receives that completed with an error",
        "req_cqe_flush_error" "requests that were flushed when their queue pair failed or ended",
        "resp_cqe_flush_error" "receives that were flushed when their queue pair failed or ended",
    }
    Transport Grows CONGESTED; {
        "np_cnp_sent" "notifications of congestion sent: marked packets came here",
        "np_ecn_marked_roce_packets" "packets that a switch marked as congested",
        "rp_cnp_handled" "notifications of congestion received: this port slowed down, or repeated requests itself",
        "rp_cnp_ignored" "notifications of congestion that this port ignored",
    }
    Transport Grows "nothing: it is traffic, or a setting"; {
        "rx_write_requests" "WRITE requests received",
        "rx_read_requests" "READ requests received",
        "rx_atomic_requests" "atomic requests received",
        "rx_dct_connect" "connections of DC received",
        "lifespan" "milliseconds for which the kernel keeps the shown values: a setting, no counter",
    }
    Port Still CABLE; {
        "symbol_error" "symbols with errors on a lane",
        "link_error_recovery" "times that the link recovered",
        "link_downed" "times that the link went down",
        "port_rcv_errors" "packets received with an error",
        "port_rcv_remote_physical_errors" "packets that the other end marked as bad",
        "local_link_integrity_errors" "times that errors of the link were above the limit",
        "excessive_buffer_overrun_errors" "overruns of the port's buffer",
    }
    Port Still PARTITIONS; {
        "port_rcv_constraint_errors" "packets refused on receive, as by P_Key",
        "port_xmit_constraint_errors" "packets refused on send, as by P_Key",
        "port_rcv_switch_relay_errors" "packets that a switch could not forward",
        "VL15_dropped" "management packets dropped for want of room",
    }
    Port Still PAUSE; {
        "port_xmit_discards" "packets dropped before they left: the port was blocked, or down",
    }
    Port Grows "compare with port_xmit_data: a large share of waiting means congestion or a slow receiver"; {
        "port_xmit_wait" "ticks in which data waited for credits or a pause to end",
    }
    Interface Grows PAUSE; {
        "rx_pause_ctrl_phy" "pause frames received: the other end stops this port",
        "tx_pause_ctrl_phy" "pause frames sent: this port stops the other end",
        "rx_prio#_pause" "PFC pause frames received for a priority",
        "tx_prio#_pause" "PFC pause frames sent for a priority",
        "rx_prio#_pause_duration" "microseconds for which the other end was stopped",
        "tx_prio#_pause_duration" "microseconds for which this port was stopped",
        "rx_global_pause" "pause frames received: the other end stops this port",
        "tx_global_pause" "pause frames sent: this port stops the other end",
    }
    Interface Still PAUSE; {
        "rx_prio#_discards" "packets of a priority dropped for want of room in the port",
        "rx_prio#_buf_discard" "packets of a priority dropped for want of room in a buffer",
        "rx_prio#_cong_discard" "packets of a priority dropped for congestion",
        "rx_prio#_pause_transition" "times that pausing began for a priority",
    }
    Interface Still CABLE; {
        "rx_pcs_symbol_err_phy" "symbols with errors",
        "rx_err_lane_#_phy" "errors of a lane",
        "rx_in_range_len_errors_phy" "frames whose length is not as they say",
        "rx_out_of_range_len_phy" "frames with a length that is not allowed",
        "rx_undersize_pkts_phy" "frames that are too short",
        "rx_fragments_phy" "frames that are too short and damaged",
        "rx_jabbers_phy" "frames that are too long and damaged",
        "rx_unsupported_op_phy" "control frames that are not known",
    }
    Interface Grows "nothing while it is steady: FEC corrects these"; {
        "rx_corrected_bits_phy" "bits that FEC corrected",
        "rx_bits_phy" "bits received",
    }
    Interface Still "compare the MTU of both ends and of the switch"; {
        "rx_oversize_pkts_phy" "frames longer than the port takes",
        "rx_oversize_pkts_buffer" "frames longer than the interface's MTU",
        "rx_oversize_pkts_sw_drop" "frames longer than the interface's buffers",
    }
    Interface Still MEMORY; {
        "rx_buff_alloc_err" "receive buffers that the kernel could not allocate",
        "rx_oom" "receive buffers that the kernel could not allocate",
        "rx_mpwqe_filler_cqes" "parts of receive buffers that stayed unused",
    }
    Interface Still "look for error CQEs and \"TX timeout\" in the kernel's log; `devlink health show`"; {
        "tx_cqe_err" "send requests of the interface that failed",
        "rx_wqe_err" "receives of the interface that failed",
        "tx_recover" "times that a send queue was recovered",
        "rx_recover" "times that a receive queue was recovered",
        "ch_eq_rearm" "times that a lost interrupt was made good",
    }
    Interface Grows "compare with tx_packets: often means that the ring is too short, or the link is slower than the sender"; {
        "tx_queue_stopped" "times that a send queue was full",
        "tx_queue_dropped" "packets that the kernel dropped before a send queue",
    }
    Interface Still "bring the interface up"; {
        "rx_if_down_packets" "packets that came while the interface was down",
    }
    Function Still EVENTS; {
        "total_error_queues" "queues in the error state",
        "total_q_under_processor_handle" "queues whose errors are being handled",
        "cq_overrun" "completion queues that overran",
        "async_eq_overrun" "event queues that overran: asynchronous events were lost",
        "comp_eq_overrun" "event queues that overran: completion events were lost",
        "send_queue_priority_update_flow" "send queues whose priority was changed on the way",
    }
    Function Still "look for refused commands in the kernel's log"; {
        "quota_exceeded_command" "commands refused for a quota",
        "invalid_command" "commands that are not valid",
    }
    Function Still FILTER; {
        "nic_receive_steering_discard" "packets that no rule takes",
        "generated_pkt_steering_fail" "packets of the device's own that no rule takes",
        "handled_pkt_steering_fail" "packets that failed in steering",
    }
}

/// Names of `perfquery` for counters of a port.
const PERFQUERY: &[(&str, &str)] = &[
    ("SymbolErrorCounter", "symbol_error"),
    ("LinkErrorRecoveryCounter", "link_error_recovery"),
    ("LinkDownedCounter", "link_downed"),
    ("PortRcvErrors", "port_rcv_errors"),
    ("PortRcvRemotePhysicalErrors", "port_rcv_remote_physical_errors"),
    ("PortRcvSwitchRelayErrors", "port_rcv_switch_relay_errors"),
    ("PortXmitDiscards", "port_xmit_discards"),
    ("PortXmitConstraintErrors", "port_xmit_constraint_errors"),
    ("PortRcvConstraintErrors", "port_rcv_constraint_errors"),
    ("LocalLinkIntegrityErrors", "local_link_integrity_errors"),
    ("ExcessiveBufferOverrunErrors", "excessive_buffer_overrun_errors"),
    ("VL15Dropped", "VL15_dropped"),
    ("PortXmitWait", "port_xmit_wait"),
];

/// Returns the counter of this name. A number within the name, as of a priority, does not count.
#[must_use]
pub fn find(name: &str) -> Option<&'static Counter> {
    let of_query = PERFQUERY.iter().find(|(query, _)| *query == name);
    let name = of_query.map_or(name, |(_, name)| name);
    all().find(|counter| is_named(counter.name, name))
}

/// Returns every counter of a place that a live check judges, in the order of a report.
pub fn judged(place: Place) -> impl Iterator<Item = &'static Counter> {
    JUDGED.iter().filter(move |counter| counter.place == place)
}

fn all() -> impl Iterator<Item = &'static Counter> {
    JUDGED.iter().chain(MORE)
}

/// Returns whether a name is that of a pattern, in which `#` stands for digits.
fn is_named(pattern: &str, name: &str) -> bool {
    let Some((before, behind)) = pattern.split_once('#') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let digits = rest.len() - rest.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
    digits > 0 && &rest[digits..] == behind
}

impl ExplainedCode {
    /// Explains a counter.
    #[must_use]
    pub fn counter(name: &str, counter: &Counter) -> ExplainedCode {
        ExplainedCode {
            code: name.to_owned(),
            name: None,
            meaning: sentence(counter.counts),
            knowledge: Knowledge::Named,
            source: None,
            causes: Vec::new(),
            check: Some(counter.check),
        }
    }
}

/// Returns the text with a full stop, from its first capital letter on.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_stands_once_and_says_what_to_check() {
        let mut names = std::collections::HashSet::new();
        for counter in all() {
            assert!(names.insert(counter.name), "{} stands twice", counter.name);
            assert!(!counter.counts.ends_with('.') && !counter.check.ends_with('.'), "{counter:?}");
        }
    }

    #[test]
    fn numbers_within_a_name_do_not_count() {
        assert_eq!(find("rx_prio3_pause").map(|counter| counter.name), Some("rx_prio#_pause"));
        assert_eq!(find("rx_prio_pause"), None);
        assert_eq!(find("out_of_sequence").map(|counter| counter.place), Some(Place::Transport));
        assert_eq!((find(""), find("rx_prio3")), (None, None));
    }
}
