//! Queue pairs without queues of their own: receivers that take from shared queues, and TIRs that
//! spread packets over the receive queues of a table.

use mlx5_sys::ifc::{Field, create_qp_in, create_qp_out, opcode, qpc};

use super::super::file::{CommandFile, State};
use super::super::wq::IndirectionTable;
use super::super::xrcd::Xrcd;
use super::super::{cq, dct, qp_modify, raw};
use super::{
    Asked, BLOCK_LOOPBACK, CreateQpDriver, CreateQpDriverReply, Kind, NO_REGISTER, Qp, SIGNAL_ALL,
    kind,
};
use crate::frontend::uverbs::driver::command::Command;
use crate::frontend::uverbs::driver::event::Source;
use crate::frontend::uverbs::process::errno::{Errno, Result};
use crate::frontend::uverbs::process::lock;

impl Qp {
    /// In RESET, of nothing else yet.
    fn bare(kind: Kind, uid: u16) -> Self {
        Self {
            number: 0,
            uid,
            kind,
            pd: None,
            send_cq: None,
            recv_cq: None,
            srq: None,
            xrcd: None,
            raw: None,
            table: None,
            state: qp_modify::RESET,
            port: 0,
            access: 0,
            depth: 0,
            signal_all: false,
            receive: (0, 0),
            target: None,
            groups: Vec::new(),
            sender: None,
            events: None,
            _buffer: None,
            _record: None,
        }
    }
}

/// Makes a queue pair for frames of Ethernet that leads to the receive queues of a table.
pub(super) fn spread(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    driver: &[u8],
) -> Result<(u32, u32, CreateQpDriverReply)> {
    let context = state.context()?;
    let (uid, domain) = (context.uid, context.domain);
    let table = asked.table.ok_or(Errno::EINVAL)?;
    let rqtn = state.get::<IndirectionTable>(table)?.number;
    if kind(file, asked.kind, 0)? != Kind::RawPacket
        || asked.srq.is_some()
        || asked.cap.max_recv_wr != 0
        || asked.cap.max_send_wr != 0
        || asked.flags & !SIGNAL_ALL != 0
    {
        return Err(Errno::EINVAL);
    }
    let (raw, reply) = raw::make_rss(file, uid, domain, rqtn, driver)?;
    let qp =
        Qp { pd: asked.pd, raw: Some(raw), table: Some(table), ..Qp::bare(Kind::RawPacket, uid) };
    let handle = state.enter(qp);
    Ok((handle, 0, CreateQpDriverReply { bfreg_index: NO_REGISTER, ..reply }))
}

/// Makes the receiving side of an extended reliable connection: it has no queues of its own, and
/// the memory it reaches is that of the SRQs which requests name.
pub(super) fn target(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    given: &CreateQpDriver,
) -> Result<(u32, u32, CreateQpDriverReply)> {
    /// Path migration state: migrated.
    const MIGRATED: u64 = 3;
    /// `MLX5_SRQ_RQ`
    const SHARED_RECEIVES: u64 = 1;
    let function = file.function();
    let domain = asked.xrcd.ok_or(Errno::EINVAL)?;
    if asked.pd.is_some() || asked.send_cq.is_some() || asked.recv_cq.is_some() {
        return Err(Errno::EINVAL);
    }
    let xrcdn = state.get::<Xrcd>(domain)?.number;
    if given.uidx & !0xff_ffff != 0 {
        return Err(Errno::EINVAL);
    }
    let mut command = Command::new(opcode::CREATE_QP, create_qp_in::SIZE, create_qp_out::SIZE);
    command.set(create_qp_in::ECE, given.ece_options);
    let mut context = |field: Field, value: u64| {
        command.set(field.within(create_qp_in::QPC), value);
    };
    context(qpc::ST, Kind::XrcTarget.service());
    context(qpc::PM_STATE, MIGRATED);
    context(qpc::PD, u64::from(function.pdn));
    context(qpc::BLOCK_LB_MC, u64::from(asked.flags & BLOCK_LOOPBACK != 0));
    context(qpc::RQ_TYPE, SHARED_RECEIVES);
    context(qpc::NO_SQ, 1);
    context(qpc::XRCD, u64::from(xrcdn));
    context(qpc::USER_INDEX, u64::from(given.uidx));
    let events = cq::events(state, asked.events)?;
    let answer = function.run(command)?;
    let number = create_qp_out::QPN.get(&answer) as u32;
    let source = Source::new(asked.user_handle);
    if let Some(queue) = &events {
        lock(function.listeners()).qps.insert(number, (queue.clone(), source));
    }
    let handle = state.enter(Qp {
        number,
        xrcd: Some(domain),
        signal_all: asked.flags & SIGNAL_ALL != 0,
        events: events.map(|queue| (queue, source.id)),
        ..Qp::bare(Kind::XrcTarget, 0)
    });
    let reply = CreateQpDriverReply {
        bfreg_index: NO_REGISTER,
        ece_options: create_qp_out::ECE.get(&answer) as u32,
        ..Default::default()
    };
    Ok((handle, number, reply))
}

/// Makes the receiving side of dynamic connections. The card hears of it, and it has a number, only
/// when it becomes ready to receive.
pub(super) fn dynamic_target(
    state: &mut State,
    asked: &Asked,
    given: &CreateQpDriver,
) -> Result<(u32, u32, CreateQpDriverReply)> {
    let target = dct::prepare(state, asked, given)?;
    let events = cq::events(state, asked.events)?;
    let source = Source::new(asked.user_handle);
    let handle = state.enter(Qp {
        pd: asked.pd,
        recv_cq: asked.recv_cq,
        srq: asked.srq,
        target: Some(Box::new(target)),
        events: events.map(|queue| (queue, source.id)),
        ..Qp::bare(Kind::DcTarget, state.context()?.uid)
    });
    let reply = CreateQpDriverReply {
        bfreg_index: NO_REGISTER,
        ece_options: given.ece_options,
        ..Default::default()
    };
    Ok((handle, 0, reply))
}
