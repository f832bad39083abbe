//! Queue pairs: queries.

use mlx5_sys::ifc::{ads, opcode, qpc, query_qp_in, query_qp_out};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{Cap, QueryQp, QueryQpReply};
use super::super::request::legacy::Request;
use super::file::CommandFile;
use super::qp::{Kind, Qp};
use super::{dct, path};

/// `QUERY_QP`.
pub(crate) fn query(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: QueryQp = user::whole(&request.core)?;
    let mut state = file.state();
    let qp = state.get_mut::<Qp>(asked.qp_handle)?;
    if qp.kind == Kind::DcTarget {
        return request.reply(dct::query(file.function(), qp, asked.attr_mask)?.as_bytes());
    }
    let reply = attributes(file, qp)?;
    qp.state = reply.qp_state;
    request.reply(reply.as_bytes())
}

/// Returns the attributes of a queue pair that is no target of dynamic connections.
pub(crate) fn attributes(file: &CommandFile, qp: &Qp) -> Result<QueryQpReply> {
    /// Remote write, read, atomic (`ib_uverbs_access_flags`).
    const RIGHTS: [u32; 3] = [1 << 1, 1 << 2, 1 << 3];
    let function = file.function();
    let link = function.device.link;
    if let Some(raw) = &qp.raw {
        /// A send queue that stopped while the receive queue goes on.
        const SQE: u8 = 5;
        let qp_state = if raw.sends_failed(file)? { SQE } else { qp.state };
        return Ok(QueryQpReply {
            cap: Cap {
                max_recv_wr: qp.receive.0,
                max_recv_sge: qp.receive.1,
                ..Default::default()
            },
            qp_state,
            cur_qp_state: qp_state,
            port_num: qp.port,
            sq_sig_all: qp.signal_all.into(),
            ..Default::default()
        });
    }
    let mut command = Command::new(opcode::QUERY_QP, query_qp_in::SIZE, query_qp_out::SIZE);
    command.set(query_qp_in::QPN, qp.number);
    let answer = function.run(command)?;
    let context = &answer[query_qp_out::QPC.bytes()];
    let get = |field: mlx5_sys::ifc::Field| field.get(context) as u32;
    let primary = |field: mlx5_sys::ifc::Field| get(field.within(qpc::PRIMARY_ADDRESS_PATH));
    let alternate = |field: mlx5_sys::ifc::Field| get(field.within(qpc::SECONDARY_ADDRESS_PATH));

    // `enum ib_qp_state` swaps the last but one two states with the card's numbering.
    let (qp_state, draining) = match get(qpc::STATE) {
        state @ 0..=3 => (state as u8, 0),
        4 => (5, 0),
        5 => (4, 0),
        // Draining.
        7 => (4, 1),
        6 => (6, 0),
        _ => return Err(Errno::EIO),
    };
    let mut rights = 0;
    for (field, right) in [qpc::RWE, qpc::RRE, qpc::RAE].into_iter().zip(RIGHTS) {
        if get(field) != 0 {
            rights |= right;
        }
    }
    Ok(QueryQpReply {
        destination: path::decode(context, qpc::PRIMARY_ADDRESS_PATH, link),
        alternate: path::decode(context, qpc::SECONDARY_ADDRESS_PATH, link),
        // The library itself knows more of send queues.
        cap: Cap { max_recv_wr: qp.receive.0, max_recv_sge: qp.receive.1, ..Default::default() },
        qkey: get(qpc::Q_KEY),
        rq_psn: get(qpc::NEXT_RCV_PSN),
        sq_psn: get(qpc::NEXT_SEND_PSN),
        dest_qp_num: get(qpc::REMOTE_QPN),
        qp_access_flags: rights,
        pkey_index: primary(ads::PKEY_INDEX) as u16,
        alt_pkey_index: alternate(ads::PKEY_INDEX) as u16,
        qp_state,
        cur_qp_state: qp_state,
        path_mtu: get(qpc::MTU) as u8,
        path_mig_state: match get(qpc::PM_STATE) {
            3 => 0,
            1 => 1,
            _ => 2,
        },
        sq_draining: draining,
        max_rd_atomic: 1u8.checked_shl(get(qpc::LOG_SRA_MAX)).unwrap_or(u8::MAX),
        max_dest_rd_atomic: 1u8.checked_shl(get(qpc::LOG_RRA_MAX)).unwrap_or(u8::MAX),
        min_rnr_timer: get(qpc::MIN_RNR_NAK) as u8,
        port_num: primary(ads::VHCA_PORT_NUM) as u8,
        timeout: primary(ads::ACK_TIMEOUT) as u8,
        retry_cnt: get(qpc::RETRY_COUNT) as u8,
        rnr_retry: get(qpc::RNR_RETRY) as u8,
        alt_port_num: alternate(ads::VHCA_PORT_NUM) as u8,
        alt_timeout: alternate(ads::ACK_TIMEOUT) as u8,
        sq_sig_all: u8::from(qp.signal_all),
        reserved: [0; 5],
    })
}
