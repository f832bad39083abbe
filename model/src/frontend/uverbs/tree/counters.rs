//! Counters of a port in sysfs: the folders `counters` and `hw_counters`.
//!
//! The files of the tree say that a counter is not available. Where a program opens one by its whole
//! path, it finds the count of that moment instead, in a file of its own: the tree is shared by
//! processes, and each counts its own slice of the port. The counts are what the kernel's driver
//! shows: `counters` from QUERY_VPORT_COUNTER (`mad.c`), `hw_counters` from the counter set of the
//! port, which verbs queue pairs name from INIT on (`counters.c`).

use mlx5_sys::ifc::{Field, query_q_counter_out, query_vport_counter_out as vport};

/// The text of a counter that is not available, in the kernel's words.
pub(super) const ABSENT: &str = "N/A (no PMA)";

/// The source of a counter of `counters`.
#[derive(Clone, Copy)]
pub(crate) enum Source {
    /// Packets of these kinds of traffic.
    Packets(&'static [Field]),
    /// Their bytes, in words of four.
    Words(&'static [Field]),
    /// Nothing that the model has.
    Never,
}

const SENT: &[Field] = &[vport::TRANSMITTED_IB_UNICAST, vport::TRANSMITTED_IB_MULTICAST];
const RECEIVED: &[Field] = &[vport::RECEIVED_IB_UNICAST, vport::RECEIVED_IB_MULTICAST];

/// The files of `counters`.
pub(super) const PORT: &[(&str, Source)] = &[
    ("port_xmit_data", Source::Words(SENT)),
    ("port_rcv_data", Source::Words(RECEIVED)),
    ("port_xmit_packets", Source::Packets(SENT)),
    ("port_rcv_packets", Source::Packets(RECEIVED)),
    ("unicast_xmit_packets", Source::Packets(&[vport::TRANSMITTED_IB_UNICAST])),
    ("unicast_rcv_packets", Source::Packets(&[vport::RECEIVED_IB_UNICAST])),
    ("multicast_xmit_packets", Source::Packets(&[vport::TRANSMITTED_IB_MULTICAST])),
    ("multicast_rcv_packets", Source::Packets(&[vport::RECEIVED_IB_MULTICAST])),
    ("port_rcv_errors", Source::Packets(&[vport::RECEIVED_ERRORS])),
    ("symbol_error", Source::Never),
    ("link_error_recovery", Source::Never),
    ("link_downed", Source::Never),
    ("port_rcv_remote_physical_errors", Source::Never),
    ("port_rcv_switch_relay_errors", Source::Never),
    ("port_xmit_discards", Source::Never),
    ("port_xmit_constraint_errors", Source::Never),
    ("port_rcv_constraint_errors", Source::Never),
    ("local_link_integrity_errors", Source::Never),
    ("excessive_buffer_overrun_errors", Source::Never),
    ("VL15_dropped", Source::Never),
    ("port_xmit_wait", Source::Never),
];

/// The files of `hw_counters`, but for those of congestion control, which the model has not.
pub(crate) const TRANSPORT: &[(&str, Field)] = &[
    ("rx_write_requests", query_q_counter_out::RX_WRITE_REQUESTS),
    ("rx_read_requests", query_q_counter_out::RX_READ_REQUESTS),
    ("rx_atomic_requests", query_q_counter_out::RX_ATOMIC_REQUESTS),
    ("rx_dct_connect", query_q_counter_out::RX_DCT_CONNECT),
    ("out_of_buffer", query_q_counter_out::OUT_OF_BUFFER),
    ("out_of_sequence", query_q_counter_out::OUT_OF_SEQUENCE),
    ("duplicate_request", query_q_counter_out::DUPLICATE_REQUEST),
    ("rnr_nak_retry_err", query_q_counter_out::RNR_NAK_RETRY_ERR),
    ("packet_seq_err", query_q_counter_out::PACKET_SEQ_ERR),
    ("implied_nak_seq_err", query_q_counter_out::IMPLIED_NAK_SEQ_ERR),
    ("local_ack_timeout_err", query_q_counter_out::LOCAL_ACK_TIMEOUT_ERR),
    ("resp_local_length_error", query_q_counter_out::RESP_LOCAL_LENGTH_ERROR),
    ("resp_cqe_error", query_q_counter_out::RESP_CQE_ERROR),
    ("req_cqe_error", query_q_counter_out::REQ_CQE_ERROR),
    ("req_remote_invalid_request", query_q_counter_out::REQ_REMOTE_INVALID_REQUEST),
    ("req_remote_access_errors", query_q_counter_out::REQ_REMOTE_ACCESS_ERRORS),
    ("resp_remote_access_errors", query_q_counter_out::RESP_REMOTE_ACCESS_ERRORS),
    ("resp_cqe_flush_error", query_q_counter_out::RESP_CQE_FLUSH_ERROR),
    ("req_cqe_flush_error", query_q_counter_out::REQ_CQE_FLUSH_ERROR),
    ("req_transport_retries_exceeded", query_q_counter_out::REQ_TRANSPORT_RETRIES_EXCEEDED),
    ("req_rnr_retries_exceeded", query_q_counter_out::REQ_RNR_RETRIES_EXCEEDED),
    ("roce_adp_retrans", query_q_counter_out::ROCE_ADP_RETRANS),
    ("roce_adp_retrans_to", query_q_counter_out::ROCE_ADP_RETRANS_TO),
    ("roce_slow_restart", query_q_counter_out::ROCE_SLOW_RESTART),
    ("roce_slow_restart_cnps", query_q_counter_out::ROCE_SLOW_RESTART_CNPS),
    ("roce_slow_restart_trans", query_q_counter_out::ROCE_SLOW_RESTART_TRANS),
];

/// One counter.
#[derive(Clone, Copy)]
pub(crate) enum Counter {
    Port(Source),
    Transport(Field),
}

impl Counter {
    /// The device, by its name, and the counter that a path leads to.
    pub fn at(path: &str) -> Option<(&str, Self)> {
        let mut parts = path.rsplit('/');
        let (name, folder) = (parts.next()?, parts.next()?);
        let counter = match folder {
            "counters" => Self::Port(PORT.iter().find(|(known, _)| *known == name)?.1),
            "hw_counters" => Self::Transport(TRANSPORT.iter().find(|(known, _)| *known == name)?.1),
            _ => return None,
        };
        let is_port = parts.next()? == "1" && parts.next()? == "ports";
        let device = parts.next()?;
        is_port.then_some((device, counter))
    }
}

#[cfg(test)]
mod tests;
