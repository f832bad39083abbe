//! Answers to queries of an id: addresses, paths, and the attributes of its queue pair.

use mlx5_sys::verbs::ibv_qp_attr_mask as bit;
use zerocopy::IntoBytes;

use super::super::uverbs::process::errno::{Errno, Result};
use super::abi::{
    AhAttr, PathData, PathRec, QpAttr, QueryAddrReply, QueryRouteReply, SOCKADDR6, STORAGE, qp_type,
};
use super::address::{Address, ib};
use super::state::{Id, State};
use crate::card::Link;
use crate::management::Phase;
use crate::management::subnet::{Path, RATE};

/// Kinds of `QUERY` (`RDMA_USER_CM_QUERY_*`).
const ADDRESS: u32 = 0;
const PATH: u32 = 1;
const GID: u32 = 2;

/// States of a queue pair (`enum ib_qp_state`).
mod qp_state {
    pub const INIT: u32 = 1;
    pub const RTR: u32 = 2;
    pub const RTS: u32 = 3;
}

/// The access that peers get: writes, and reads and atomics if any may be outstanding.
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ_AND_ATOMIC: u32 = 1 << 2 | 1 << 3;

/// Returns the destination in the form of address handles.
pub(super) fn destination(link: Link, path: &Path, index: usize) -> AhAttr {
    let roce = link == Link::Roce;
    AhAttr {
        dgid: path.destination,
        flow_label: path.flow_label,
        sgid_index: index as u8,
        hop_limit: path.hop_limit,
        traffic_class: path.traffic_class,
        dlid: path.destination_lid,
        sl: path.level,
        is_global: u8::from(roce || path.hop_limit > 1),
        port_num: 1,
        ..AhAttr::default()
    }
}

impl State {
    /// `INIT_QP_ATTR`: the attributes with which a queue pair goes to a state.
    pub fn queue_pair(&mut self, file: u64, number: u32, state: u32) -> Result<QpAttr> {
        let id = self.id(file, number)?;
        let place = id.place.ok_or(Errno::EINVAL)?;
        let mut attr =
            QpAttr { qp_state: state, qp_attr_mask: bit::IBV_QP_STATE.0, ..QpAttr::default() };
        let local = id.connection.filter(|_| !id.is_datagram());
        let Some(local) = local else {
            // No connection yet: only a port.
            attr.port_num = 1;
            attr.qp_attr_mask |= (bit::IBV_QP_PKEY_INDEX | bit::IBV_QP_PORT).0;
            if id.is_datagram() {
                attr.qkey = id.q_key;
                attr.qp_attr_mask |= bit::IBV_QP_QKEY.0;
            } else {
                attr.qp_attr_mask |= bit::IBV_QP_ACCESS_FLAGS.0;
            }
            return Ok(attr);
        };
        let timeout = id.ack_timeout.unwrap_or(id.attributes.timeout);
        let (known, path, kind) = (id.attributes, id.path, id.qp_type);
        let phase = self.links.get(&local).map(|link| link.connection.phase);
        let phase = phase.ok_or(Errno::EINVAL)?;
        let may = |least: Phase| match phase {
            Phase::Requesting => least == Phase::Requesting,
            Phase::Requested | Phase::Replying | Phase::Replied | Phase::Established => true,
            _ => false,
        };
        match state {
            qp_state::INIT if may(Phase::Requesting) => {
                attr.port_num = 1;
                attr.qp_access_flags = REMOTE_WRITE;
                if known.responder_resources > 0 {
                    attr.qp_access_flags |= REMOTE_READ_AND_ATOMIC;
                }
                attr.qp_attr_mask |=
                    (bit::IBV_QP_ACCESS_FLAGS | bit::IBV_QP_PKEY_INDEX | bit::IBV_QP_PORT).0;
            }
            qp_state::RTR if may(Phase::Replied) => {
                let path = path.ok_or(Errno::EINVAL)?;
                attr.ah_attr = self.destination(&path, &place);
                attr.path_mtu = known.mtu.into();
                attr.dest_qp_num = known.remote_qp;
                attr.rq_psn = known.receive_psn;
                attr.qp_attr_mask |= (bit::IBV_QP_AV
                    | bit::IBV_QP_PATH_MTU
                    | bit::IBV_QP_DEST_QPN
                    | bit::IBV_QP_RQ_PSN)
                    .0;
                if matches!(kind, qp_type::RC | qp_type::XRC_TGT) {
                    attr.max_dest_rd_atomic = known.responder_resources;
                    attr.qp_attr_mask |=
                        (bit::IBV_QP_MAX_DEST_RD_ATOMIC | bit::IBV_QP_MIN_RNR_TIMER).0;
                }
            }
            qp_state::RTS if may(Phase::Replied) => {
                attr.sq_psn = known.send_psn;
                attr.qp_attr_mask |= bit::IBV_QP_SQ_PSN.0;
                if matches!(kind, qp_type::RC | qp_type::XRC_INI) {
                    attr.retry_cnt = known.retry_count;
                    attr.rnr_retry = known.rnr_retry_count;
                    attr.max_rd_atomic = known.initiator_depth;
                    attr.qp_attr_mask |= (bit::IBV_QP_RETRY_CNT
                        | bit::IBV_QP_RNR_RETRY
                        | bit::IBV_QP_MAX_QP_RD_ATOMIC)
                        .0;
                }
                if kind != qp_type::UC {
                    attr.timeout = timeout;
                    attr.qp_attr_mask |= bit::IBV_QP_TIMEOUT.0;
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(attr)
    }

    /// `QUERY`.
    pub fn query(&mut self, file: u64, number: u32, option: u32) -> Result<Vec<u8>> {
        self.id(file, number)?;
        let Some(id) = self.known(number) else { return Err(Errno::ENOENT) };
        let (place, path) = (id.place, id.path);
        let (source, destination) = (id.source, id.destination);
        let services = (id.own_service(), id.peer_service());
        let guid = place.map_or(0, |place| self.ports()[place.card].node_guid);
        let mut reply = QueryAddrReply {
            node_guid: guid.to_be(),
            port_num: u8::from(place.is_some()),
            ..QueryAddrReply::default()
        };
        if place.is_some() {
            reply.pkey = 0xffff_u16.to_be();
        }
        match option {
            ADDRESS => {
                let (bytes, length) = encoded(source);
                (reply.src_addr, reply.src_size) = (bytes, length);
                let (bytes, length) = encoded(destination);
                (reply.dst_addr, reply.dst_size) = (bytes, length);
                Ok(reply.as_bytes().to_vec())
            }
            PATH => {
                let records: Vec<u8> = path
                    .iter()
                    .flat_map(|path| {
                        // IB_PATH_GMP, IB_PATH_PRIMARY, IB_PATH_BIDIRECTIONAL
                        let data =
                            PathData { flags: 1 | 2 | 8 | 32, reserved: 0, record: path.record() };
                        data.as_bytes().to_vec()
                    })
                    .collect();
                let count = u32::from(path.is_some()).to_ne_bytes();
                Ok([&count[..], &[0; 4], &records].concat())
            }
            GID => {
                let own = place.map_or([0; 16], |place| place.gid(self.ports()));
                let there = path.map_or([0; 16], |path| path.destination);
                let size = 48;
                reply.src_addr = ib(&own, 0xffff, (services.0, u64::MAX));
                reply.dst_addr = ib(&there, 0xffff, (services.1, u64::MAX));
                (reply.src_size, reply.dst_size) = (size, size);
                Ok(reply.as_bytes().to_vec())
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    /// `QUERY_ROUTE`: the same for programs that know IP addresses only.
    pub fn query_route(&mut self, file: u64, number: u32) -> Result<QueryRouteReply> {
        let id = self.id(file, number)?;
        let (place, path) = (id.place, id.path);
        let (source, destination) = (encoded(id.source).0, encoded(id.destination).0);
        let mut reply = QueryRouteReply::default();
        reply.src_addr.copy_from_slice(&source[..SOCKADDR6]);
        reply.dst_addr.copy_from_slice(&destination[..SOCKADDR6]);
        if let Some(place) = place {
            reply.node_guid = self.ports()[place.card].node_guid.to_be();
            reply.port_num = 1;
        }
        if let Some(path) = path {
            reply.num_paths = 1;
            reply.route[0] = PathRec {
                dgid: path.destination,
                sgid: path.source,
                dlid: path.destination_lid.to_be(),
                slid: path.source_lid.to_be(),
                flow_label: path.flow_label.to_be(),
                reversible: 1,
                mtu: path.mtu.into(),
                pkey: path.p_key.to_be(),
                hop_limit: path.hop_limit,
                traffic_class: path.traffic_class,
                numb_path: 1,
                sl: path.level,
                mtu_selector: 2,
                rate_selector: 2,
                rate: RATE,
                packet_life_time_selector: 2,
                packet_life_time: path.life_time,
                ..PathRec::default()
            };
        }
        Ok(reply)
    }
}

impl Id {
    fn own_service(&self) -> u64 {
        self.source.map_or(0, |source| self.service_of(&source))
    }

    fn peer_service(&self) -> u64 {
        self.destination.map_or(0, |destination| self.service_of(&destination))
    }
}

fn encoded(address: Option<Address>) -> ([u8; STORAGE], u16) {
    let (bytes, length) = address.map_or(([0; STORAGE], 0), |address| address.encode());
    (bytes, length as u16)
}
