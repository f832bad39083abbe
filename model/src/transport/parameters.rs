//! Fields of a queue pair's context that the transport uses.

use mlx5_sys::ifc::{Field, ads, qpc};

use super::p_key;
use super::rc::{Migration, WINDOW};
use super::timing::Schedule;
use crate::card::{Identity, Link, Timeouts};
use crate::clock::Random;
use crate::object::{Qp, Service, Special};
use crate::queue::Domain;
use crate::wire::{DcEth, Ecn, Global, RoceVersion, Route};
use crate::work::LOG_MAX_ATOMIC;

/// UDP source ports of RoCEv2 that no context chose lie here and above.
const PORT_BASE: u16 = 0xc000;

/// A queue pair's settings, as fast to read as the data path wants them.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// The queue pair itself.
    pub number: u32,
    /// The number that its datagrams name as their sender.
    pub source: u32,
    /// The special queue pair that it is, if it is one.
    pub special: Option<Special>,
    /// Transport service.
    pub service: Service,
    /// Whether it has no send queue, as a target of an extended reliable connection has none.
    pub is_target: bool,
    /// Protection domain.
    pub pd: u32,
    /// Bytes of a full packet's payload.
    pub mtu: u32,
    /// The peer's queue pair.
    pub remote: u32,
    /// The way to the peer.
    pub route: Route,
    /// Another way to the peer.
    pub alternate: Route,
    /// Whether the other way may be taken.
    pub migration: Migration,
    /// For a dynamic connection: the extension header of its packets.
    pub dynamic: Option<DcEth>,
    /// Partition key; 0 where the index names none.
    pub p_key: u16,
    /// Key that datagrams must show.
    pub q_key: u32,
    /// READs and atomics that may be outstanding.
    pub initiator_depth: u32,
    /// READs and atomics of the peer that may be.
    pub responder_depth: u32,
    /// Longest message.
    pub message: u64,
    /// Every so many packets of a message ask for an acknowledge, and the last one does.
    pub ack_interval: u32,
    /// The law of its timers.
    pub timeouts: Timeouts,
    /// Waits for an answer; `None` for ever.
    pub schedule: Option<Schedule>,
    /// Repetitions before a request fails.
    pub retries: u8,
    /// RNR NAKs before a request fails; 7 for any number.
    pub rnr_retries: u8,
    /// Timer code this side's RNR NAKs carry.
    pub rnr_timer: u8,
    /// Whether the peer may READ.
    pub remote_read: bool,
    /// Whether the peer may WRITE.
    pub remote_write: bool,
    /// Sizes of the atomics that the peer may do, in bytes, as the sum of their powers of two; 0
    /// where it may do none.
    pub atomic_sizes: u32,
    /// For an initiator with streams: the number of streams that may fail before it fails itself.
    pub streams: Option<usize>,
    /// Whether receives come from an SRQ.
    pub shared_receive: bool,
    /// PSN of the first request, where the context sets it.
    pub send_psn: u32,
    /// PSN of the first request expected.
    pub receive_psn: u32,
}

impl Parameters {
    /// Reads a context.
    pub fn of(qp: &Qp, identity: &Identity) -> Self {
        let path = |field: Field| qp.get(field.within(qpc::PRIMARY_ADDRESS_PATH));
        let own = 128 << qp.get(qpc::MTU).clamp(1, 5);
        Self {
            number: qp.number,
            source: match (qp.special().and_then(Special::wire_number), qp.get(qpc::DETH_SQPN)) {
                (Some(source), _) => source,
                (None, 0) => qp.number,
                (None, source) => source,
            },
            special: qp.special(),
            service: qp.service,
            is_target: qp.get(qpc::NO_SQ) == 1,
            pd: qp.get(qpc::PD),
            mtu: match qp.service {
                // For a datagram's path, only the MTU of its own port is known.
                Service::Ud => own.min(1 << identity.log_mtu()),
                Service::Rc | Service::Uc | Service::Xrc | Service::Dc | Service::Ethernet => own,
            },
            remote: qp.get(qpc::REMOTE_QPN),
            route: route(qp, identity, qpc::PRIMARY_ADDRESS_PATH),
            alternate: route(qp, identity, qpc::SECONDARY_ADDRESS_PATH),
            migration: Migration::of(qp.service, qp.get(qpc::PM_STATE)),
            dynamic: None,
            p_key: p_key(identity.link, path(ads::PKEY_INDEX)).unwrap_or(0),
            q_key: qp.get(qpc::Q_KEY),
            initiator_depth: 1 << qp.get(qpc::LOG_SRA_MAX),
            responder_depth: 1 << qp.get(qpc::LOG_RRA_MAX),
            message: qp.longest_message(),
            // Without an acknowledge from half a window on, the window is used up and nothing moves.
            ack_interval: 1 << qp.get(qpc::LOG_ACK_REQ_FREQ).min(WINDOW.ilog2() - 1),
            timeouts: identity.timeouts,
            schedule: Schedule::of(
                identity.timeouts,
                identity.link,
                path(ads::ACK_TIMEOUT),
                qp.get(qpc::RETRY_COUNT) as u8,
                Random::seeded(identity.seed ^ u64::from(qp.number)).draw(),
            ),
            retries: qp.get(qpc::RETRY_COUNT) as u8,
            rnr_retries: qp.get(qpc::RNR_RETRY) as u8,
            rnr_timer: qp.get(qpc::MIN_RNR_NAK) as u8,
            remote_read: qp.get(qpc::RRE) != 0,
            remote_write: qp.get(qpc::RWE) != 0,
            atomic_sizes: if qp.get(qpc::RAE) != 0 {
                atomic_sizes(qp.get(qpc::ATOMIC_MODE))
            } else {
                0
            },
            streams: streams(qp),
            shared_receive: qp.shared_receive().is_some(),
            send_psn: qp.get(qpc::NEXT_SEND_PSN),
            receive_psn: qp.get(qpc::NEXT_RCV_PSN),
        }
    }

    /// Returns the domain that keys are checked against.
    pub fn domain(&self) -> Domain {
        Domain { pd: self.pd, qp: self.number }
    }

    /// Packets a message of so many bytes takes; an empty one takes one too.
    pub fn packets(&self, length: u64) -> u32 {
        length.div_ceil(u64::from(self.mtu)).max(1) as u32
    }

    /// Whether a packet that came this way comes from the peer.
    pub fn is_peer(&self, from: &Route) -> bool {
        leads_back(&self.route, from)
    }

    /// Whether the alternate path leads to where a packet came from.
    pub fn leads_back(&self, from: &Route) -> bool {
        leads_back(&self.alternate, from)
    }
}

/// Whether one way leads to where the other comes from.
fn leads_back(to: &Route, from: &Route) -> bool {
    let same = |own: &Global, other: &Global| {
        own.destination == other.source && own.source == other.destination
    };
    match (to, from) {
        (
            Route::InfiniBand { destination, global, .. },
            Route::InfiniBand { source, global: other, .. },
        ) => match (global, other) {
            (Some(global), Some(other)) => same(global, other),
            // A GRH on one way only is nothing to object to.
            _ => destination == source,
        },
        (Route::Ethernet { global, .. }, Route::Ethernet { global: other, .. }) => {
            same(global, other) && (to.version(), to.vlan()) == (from.version(), from.vlan())
        }
        _ => false,
    }
}

/// Sizes that an `atomic_mode` (`qp.h`, `MLX5_ATOMIC_MODE_*`) allows: 1 and 2 are eight bytes alone,
/// and each greater mode is up to `1 << mode` bytes.
fn atomic_sizes(mode: u32) -> u32 {
    match mode {
        0 => 0,
        1 | 2 => 8,
        log => (4..=1 << log.min(LOG_MAX_ATOMIC)).filter(|size: &u32| size.is_power_of_two()).sum(),
    }
}

/// How many streams of an initiator may have failed before it does itself, if it has any.
fn streams(qp: &Qp) -> Option<usize> {
    let channels = qp.get(qpc::LOG_NUM_DCI_STREAM_CHANNELS);
    let errored = qp.get(qpc::LOG_NUM_DCI_ERRORED_STREAMS);
    let any = qp.service == Service::Dc && (channels | errored) != 0;
    any.then(|| 1 << errored.min(16))
}

fn route(qp: &Qp, identity: &Identity, which: Field) -> Route {
    let path = |field: Field| qp.get(field.within(which));
    let gid = ads::RGID_RIP.within(which).bit_offset() / 8;
    let mut destination = [0; 16];
    destination.copy_from_slice(&qp.context[gid..gid + 16]);
    let index = path(ads::SRC_ADDR_INDEX) as usize;
    let global = Global {
        traffic_class: path(ads::TCLASS) as u8,
        flow_label: path(ads::FLOW_LABEL),
        hop_limit: path(ads::HOP_LIMIT) as u8,
        source: identity.entry(index).gid,
        destination,
    };
    match identity.link {
        Link::InfiniBand => Route::InfiniBand {
            level: path(ads::SL) as u8,
            source: identity.lid,
            destination: path(ads::RLID) as u16,
            global: (path(ads::GRH) != 0).then_some(global),
        },
        Link::Roce => {
            // Its last four bytes are the next field.
            let mac = ads::RMAC_47_32.within(which).bit_offset() / 8;
            let source = identity.source_mac(index);
            // Software that connects queue pairs of one port by command may leave the MAC out, as
            // rdma-core's tests do.
            let destination = match std::array::from_fn(|byte| qp.context[mac + byte]) {
                [0, 0, 0, 0, 0, 0] => source,
                destination => destination,
            };
            let port = match (identity.entry(index).version, path(ads::UDP_SPORT) as u16) {
                (RoceVersion::V1, _) => None,
                (RoceVersion::V2, 0) => {
                    // As Linux's driver does (`rdma_calc_flow_label`): queue pairs that are made one
                    // after the other at both ends get different ports.
                    let both = u64::from(qp.number) * u64::from(qp.get(qpc::REMOTE_QPN));
                    let folded = both ^ both >> 20;
                    let mixed = (folded ^ folded >> 40) as u32 & 0xf_ffff ^ global.flow_label;
                    Some(PORT_BASE | (mixed ^ mixed >> 14) as u16 & 0x3fff)
                }
                (RoceVersion::V2, port) => Some(port),
            };
            let tag = identity.tag(index, path(ads::ETH_PRIO) as u8);
            Route::Ethernet { source, destination, tag, global, port }.with_ecn(Ecn::Capable)
        }
    }
}
