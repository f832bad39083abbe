//! The objects of all processes, as the kernel lists them by netlink, and what their slices of the ports have
//! counted. A process tells of its own, and asks every process for those of all.

use std::collections::BTreeSet;
use std::io;

use super::super::driver::counters;
use super::super::driver::function::Function;
use super::super::driver::running::Running;
use super::super::objects::cq::Cq;
use super::super::objects::file::{CommandFile, Object, State};
use super::super::objects::mr::Mr;
use super::super::objects::pd::Pd;
use super::super::objects::qp::{Kind, Qp};
use super::super::objects::qp_query;
use super::super::objects::srq::Srq;
use super::super::process::descriptors::Descriptors;
use super::super::request::netlink::{Attributes, attribute, command};
use super::guest::connect;
use super::message::{Reader, Writer, ask};
use super::names;
use crate::fabric::local::socket::{self, Fd};

/// Objects in one answer, which is far shorter than the longest message.
const PAGE: usize = 4096;
/// The longest description of an object.
const LONGEST: usize = 512;
/// Most objects of a process that are listed.
const MOST: usize = 1 << 20;

/// An object of a process.
pub(crate) struct Resource {
    /// The process.
    pub process: u32,
    /// The number of its device.
    pub device: u32,
    /// Its attributes, as the kernel reports them.
    pub attributes: Vec<u8>,
}

/// Writes the part of this process's objects that a message asks for.
pub(super) fn write(running: &Running, asked: &mut Reader, to: &mut Writer) -> io::Result<()> {
    let (kind, from) = (asked.number()? as u16, asked.number()? as usize);
    let all = own(running, kind);
    let part = all.get(from..).unwrap_or_default();
    let part = &part[..part.len().min(PAGE)];
    to.number(part.len() as u32);
    for (device, attributes) in part {
        to.number(*device).bytes(attributes);
    }
    Ok(())
}

/// Returns this process's objects of a kind, which is that of the command that lists them.
fn own(running: &Running, kind: u16) -> Vec<(u32, Vec<u8>)> {
    if kind == command::STAT_GET {
        let counts = |of: &Function| counters::transport(of).flat_map(u64::to_ne_bytes).collect();
        return running.functions.iter().map(|of| (of.index as u32, counts(of))).collect();
    }
    let mut all = Vec::new();
    for file in Descriptors::own().all::<CommandFile>() {
        let described = described(&file, &file.state(), kind);
        all.extend(described.into_iter().map(|one| (file.device() as u32, one.into_bytes())));
    }
    all
}

fn described(file: &CommandFile, state: &State, kind: u16) -> Vec<Attributes> {
    let Ok(context) = state.context() else { return Vec::new() };
    let context = context.domain;
    match kind {
        command::RES_CTX_GET => {
            let mut told = Attributes::default();
            told.u32(attribute::RES_CTXN, context);
            vec![told]
        }
        command::RES_PD_GET => each(state, |handle, pd: &Pd, told| {
            told.u32(attribute::RES_PDN, pd.number)
                .u64(attribute::RES_USECNT, state.users(handle).into())
                .u32(attribute::RES_CTXN, context);
        }),
        command::RES_CQ_GET => each(state, |handle, cq: &Cq, told| {
            told.u32(attribute::RES_CQN, cq.number)
                .u32(attribute::RES_CQE, cq.most())
                .u64(attribute::RES_USECNT, state.users(handle).into())
                .u32(attribute::RES_CTXN, context);
        }),
        command::RES_MR_GET => each(state, |_, mr: &Mr, told| {
            told.u32(attribute::RES_MRN, mr.key() >> 8).u64(attribute::RES_MRLEN, mr.length());
            domain(state, Some(mr.pd), told);
        }),
        command::RES_SRQ_GET => each(state, |_, srq: &Srq, told| {
            told.u32(attribute::RES_SRQN, srq.number).u8(attribute::RES_TYPE, srq.kind());
            domain(state, Some(srq.pd), told);
            if let Some(cq) = srq.cq.and_then(|handle| state.get::<Cq>(handle).ok()) {
                told.u32(attribute::RES_CQN, cq.number);
            }
        }),
        // Targets of dynamic connections are left out: the kernel's mlx5_ib keeps them out (`create_qp` in
        // qp.c).
        command::RES_QP_GET => state
            .list::<Qp>()
            .filter(|(_, qp)| qp.kind != Kind::DcTarget)
            .filter_map(|(_, qp)| queue_pair(file, state, qp))
            .collect(),
        _ => Vec::new(),
    }
}

fn each<T: Object>(state: &State, tell: impl Fn(u32, &T, &mut Attributes)) -> Vec<Attributes> {
    let one = |(handle, object)| {
        let mut told = Attributes::default();
        tell(handle, object, &mut told);
        told
    };
    state.list().map(one).collect()
}

fn domain(state: &State, pd: Option<u32>, told: &mut Attributes) {
    if let Some(pd) = pd.and_then(|handle| state.get::<Pd>(handle).ok()) {
        told.u32(attribute::RES_PDN, pd.number);
    }
}

/// Tells of a queue pair as the kernel does, which queries it for that. `None` if the device does not answer.
fn queue_pair(file: &CommandFile, state: &State, qp: &Qp) -> Option<Attributes> {
    let now = qp_query::attributes(file, qp).ok()?;
    let mut told = Attributes::default();
    if now.port_num != 0 {
        told.u32(attribute::PORT_INDEX, now.port_num.into());
    }
    told.u32(attribute::RES_LQPN, qp.number);
    if matches!(qp.kind, Kind::Rc | Kind::Uc) {
        told.u32(attribute::RES_RQPN, now.dest_qp_num).u32(attribute::RES_RQ_PSN, now.rq_psn);
    }
    told.u32(attribute::RES_SQ_PSN, now.sq_psn);
    if qp.kind.is_connected() {
        told.u8(attribute::RES_PATH_MIG_STATE, now.path_mig_state);
    }
    told.u8(attribute::RES_TYPE, qp_type(qp.kind)).u8(attribute::RES_STATE, now.qp_state);
    domain(state, qp.pd, &mut told);
    Some(told)
}

/// `enum ib_qp_type`
fn qp_type(kind: Kind) -> u8 {
    match kind {
        Kind::Rc => 2,
        Kind::Uc => 3,
        Kind::Ud => 4,
        Kind::RawPacket => 8,
        Kind::XrcInitiator => 9,
        Kind::XrcTarget => 10,
        Kind::DcInitiator | Kind::DcTarget => 0xff,
    }
}

/// Returns the objects of these kinds, kind by kind, of every process that answers.
pub(crate) fn all<const N: usize>(kinds: [u16; N]) -> [Vec<Resource>; N] {
    let ends = socket::names(&names()).unwrap_or_default();
    let number = |end: &String| end.split_once('.')?.0.parse().ok();
    let hosts: BTreeSet<u32> = ends.iter().filter_map(number).collect();
    let mut all = [const { Vec::new() }; N];
    for process in hosts {
        // One that is gone, or does not answer, is not asked for the next kind.
        let told = connect(process).and_then(|host| {
            for (all, kind) in all.iter_mut().zip(kinds) {
                all.extend(of(&host, process, kind)?);
            }
            Ok(())
        });
        if let Err(error) = told {
            tracing::debug!(process, %error, "not listed");
        }
    }
    all
}

fn of(host: &Fd, process: u32, kind: u16) -> io::Result<Vec<Resource>> {
    let mut found = Vec::new();
    while found.len() < MOST {
        let mut question = Writer::default();
        question.number(ask::RESOURCES).number(kind.into()).number(found.len() as u32);
        question.send(&mut &**host)?;
        let mut reply = Reader::receive(&mut &**host)?;
        let count = reply.number()?;
        for _ in 0..count {
            let (device, attributes) = (reply.number()?, reply.bytes()?);
            if attributes.len() > LONGEST {
                return Err(io::ErrorKind::InvalidData.into());
            }
            found.push(Resource { process, device, attributes });
        }
        if count < PAGE as u32 {
            break;
        }
    }
    Ok(found)
}
