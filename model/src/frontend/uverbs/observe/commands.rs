//! The firmware commands that `mlx5_ib` makes of a program's requests, with the fields that a program
//! knows. The device's own answers are known as far as the kernel passes them on.

use mlx5_sys::ifc::{
    Field, alloc_pd_in, alloc_pd_out, alloc_uar_in, alloc_uar_out, cqc, create_cq_in,
    create_cq_out, create_mkey_in, create_mkey_out, create_qp_in, create_qp_out, create_rmp_in,
    create_rmp_out, create_rq_in, create_rq_out, create_sq_in, create_sq_out, create_umem_in,
    create_umem_out, dealloc_pd_in, dealloc_uar_in, destroy_cq_in, destroy_mkey_in, destroy_qp_in,
    destroy_rmp_in, destroy_rq_in, destroy_sq_in, destroy_umem_in, mkc, modify_cq_in, opcode, qpc,
    rmpc, rqc, rst2init_qp_in, sqc, umem, wq,
};

use super::super::driver::command::Command;
use super::super::objects::devx::KINDS;
use super::super::objects::mr::access;
use super::super::objects::qp::{self, Asked, Parents, Receives};
use super::super::objects::qp_modify::{self, Present};
use super::super::request::abi::{CreateCqDriver, CreateQpDriver, ModifyQp, QpDestination, RegMr};
use super::queues::{Object, Qp};
use crate::card::Link;
use crate::wire;

/// A command and its reply.
#[derive(Clone)]
pub(super) struct Told {
    pub input: Vec<u8>,
    pub reply: Vec<u8>,
}

/// Bytes of a reply that is a status alone.
const STATUS: usize = 0x10;
/// log2 of the longest message of a queue pair.
const LOG_MAX_MSG: u32 = 30;

/// A command that succeeded, and the number that its reply has.
fn made(mut command: Command, size: usize, (field, number): (Field, u32)) -> Told {
    let mut reply = vec![0; size];
    put(&mut reply, field, number);
    Told { input: std::mem::take(command.bytes()), reply }
}

fn done(mut command: Command) -> Told {
    Told { input: std::mem::take(command.bytes()), reply: vec![0; STATUS] }
}

/// Sets a field to as many bits of a value as it has: what a program gave may be too large.
fn put(bytes: &mut [u8], field: Field, value: impl Into<u64>) {
    let most = u64::MAX >> (64 - field.width().min(64));
    field.set(bytes, value.into() & most);
}

/// A command with these fields.
fn command(code: u16, size: usize, reply: usize, fields: &[(Field, u64)]) -> Command {
    let mut command = Command::new(code, size, reply);
    for (field, value) in fields {
        put(command.bytes(), *field, *value);
    }
    command
}

pub(super) fn alloc_pd(number: u32) -> Told {
    let command = command(opcode::ALLOC_PD, alloc_pd_in::SIZE, STATUS, &[]);
    made(command, alloc_pd_out::SIZE, (alloc_pd_out::PD, number))
}

pub(super) fn alloc_uar(number: u32) -> Told {
    let command = command(opcode::ALLOC_UAR, alloc_uar_in::SIZE, STATUS, &[]);
    made(command, alloc_uar_out::SIZE, (alloc_uar_out::UAR, number))
}

pub(super) fn create_umem(length: u64, number: u32) -> Told {
    const PAGE: u64 = 4096;
    let pages = umem::NUM_OF_MTT.within(create_umem_in::UMEM);
    let fields = [(pages, length.div_ceil(PAGE))];
    let command = command(opcode::CREATE_UMEM, create_umem_in::SIZE, STATUS, &fields);
    made(command, create_umem_out::SIZE, (create_umem_out::UMEM_ID, number))
}

pub(super) fn create_mkey(asked: &RegMr, pdn: u32, key: u32) -> Told {
    let has = |flag: u32| u64::from(asked.access_flags & flag != 0);
    let fields = [
        (mkc::A, has(access::REMOTE_ATOMIC)),
        (mkc::RW, has(access::REMOTE_WRITE)),
        (mkc::RR, has(access::REMOTE_READ)),
        (mkc::LW, has(access::LOCAL_WRITE)),
        (mkc::LR, 1),
        (mkc::RELAXED_ORDERING_WRITE, has(access::RELAXED_ORDERING)),
        (mkc::RELAXED_ORDERING_READ, has(access::RELAXED_ORDERING)),
        (mkc::QPN, 0xff_ffff),
        (mkc::MKEY_7_0, u64::from(key & 0xff)),
        (mkc::PD, u64::from(pdn)),
        (mkc::START_ADDR, asked.hca_va),
        (mkc::LEN, asked.length),
    ]
    .map(|(field, value)| (field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value));
    let command = command(opcode::CREATE_MKEY, create_mkey_in::SIZE, STATUS, &fields);
    made(command, create_mkey_out::SIZE, (create_mkey_out::MKEY_INDEX, key >> 8))
}

pub(super) fn create_cq(given: &CreateCqDriver, entries: u32, flags: u32, number: u32) -> Told {
    const IGNORE_OVERRUN: u32 = 2;
    let fields = [
        (cqc::CQE_SZ, u64::from(given.cqe_size == 128)),
        (cqc::OI, u64::from(flags & IGNORE_OVERRUN != 0)),
        (cqc::CQE_COMP_EN, u64::from(given.cqe_comp_en != 0)),
        (cqc::LOG_CQ_SIZE, u64::from(entries.max(1).ilog2())),
        (cqc::UAR_PAGE, u64::from(given.uar_page_index)),
        (cqc::DBR_ADDR, given.db_addr),
    ]
    .map(|(field, value)| (field.within(create_cq_in::CQ_CONTEXT), value));
    let command = command(opcode::CREATE_CQ, create_cq_in::SIZE, STATUS, &fields);
    made(command, create_cq_out::SIZE, (create_cq_out::CQN, number))
}

pub(super) fn resize_cq(number: u32, entries: u32) -> Told {
    const RESIZE: u64 = 1;
    let size = cqc::LOG_CQ_SIZE.within(modify_cq_in::CQ_CONTEXT);
    let fields = [
        (modify_cq_in::OP_MOD, RESIZE),
        (modify_cq_in::CQN, u64::from(number)),
        (size, u64::from(entries.max(1).ilog2())),
    ];
    done(command(opcode::MODIFY_CQ, modify_cq_in::SIZE, STATUS, &fields))
}

/// An SRQ that queue pairs share: a receive memory pool.
pub(super) fn create_rmp(pdn: u32, wqes: u32, stride: u32, number: u32) -> Told {
    let fields = [
        (wq::LOG_WQ_STRIDE, u64::from(stride.max(1).ilog2())),
        (wq::LOG_WQ_SZ, u64::from(wqes.max(1).ilog2())),
        (wq::PD, u64::from(pdn)),
    ]
    .map(|(field, value)| (field.within(rmpc::WQ).within(create_rmp_in::CTX), value));
    let command = command(opcode::CREATE_RMP, create_rmp_in::SIZE, STATUS, &fields);
    made(command, create_rmp_out::SIZE, (create_rmp_out::RMPN, number))
}

/// The commands that make a queue pair: one, or those of the queues of one for packets.
pub(super) fn create_qp(
    qp: &Qp,
    asked: &Asked,
    given: &CreateQpDriver,
    parents: &Parents,
) -> Vec<Told> {
    if qp.kind == qp::Kind::RawPacket {
        return create_queues(qp, given);
    }
    let receives = Receives::of(qp.kind, asked, given);
    // The sizes are the program's. The kernel accepts more of them than a context has fields for.
    let is_power = |count: u32| count == 0 || count.is_power_of_two();
    let is_stride = receives.wqes == 0 || (4..=11).contains(&receives.shift);
    if !is_power(given.sq_wqe_count) || !is_power(receives.wqes) || !is_stride {
        return Vec::new();
    }
    let mut command = Command::new(opcode::CREATE_QP, create_qp_in::SIZE, STATUS);
    let mut context = |field: Field, value: u64| {
        put(command.bytes(), field.within(create_qp_in::QPC), value);
    };
    qp::describe(&mut context, qp.kind, asked, given, parents, receives);
    context(qpc::DBR_ADDR, given.db_addr);
    vec![made(command, create_qp_out::SIZE, (create_qp_out::QPN, qp.number))]
}

fn create_queues(qp: &Qp, given: &CreateQpDriver) -> Vec<Told> {
    let mut told = Vec::new();
    if given.sq_wqe_count.is_power_of_two() {
        let size = u64::from(given.sq_wqe_count.ilog2());
        let fields = [
            (sqc::CQN, u64::from(qp.send_cq)),
            (wq::PD.within(sqc::WQ), u64::from(qp.pdn)),
            (wq::LOG_WQ_STRIDE.within(sqc::WQ), 6),
            (wq::LOG_WQ_SZ.within(sqc::WQ), size),
        ]
        .map(|(field, value)| (field.within(create_sq_in::CTX), value));
        let command = command(opcode::CREATE_SQ, create_sq_in::SIZE, STATUS, &fields);
        told.push(made(command, create_sq_out::SIZE, (create_sq_out::SQN, qp.sqn)));
    }
    if given.rq_wqe_count.is_power_of_two() {
        let size = u64::from(given.rq_wqe_count.ilog2());
        let fields = [
            (rqc::CQN, u64::from(qp.recv_cq)),
            (wq::PD.within(rqc::WQ), u64::from(qp.pdn)),
            (wq::LOG_WQ_STRIDE.within(rqc::WQ), u64::from(given.rq_wqe_shift)),
            (wq::LOG_WQ_SZ.within(rqc::WQ), size),
        ]
        .map(|(field, value)| (field.within(create_rq_in::CTX), value));
        let command = command(opcode::CREATE_RQ, create_rq_in::SIZE, STATUS, &fields);
        told.push(made(command, create_rq_out::SIZE, (create_rq_out::RQN, qp.rqn)));
    }
    told
}

/// The command of a transition; `None` if the kernel needs none.
pub(super) fn modify_qp(qp: &Qp, to: u8, asked: &ModifyQp, link: Link) -> Option<Told> {
    if qp.kind == qp::Kind::RawPacket {
        return None;
    }
    let code = qp_modify::command(qp.state, to).filter(|_| qp.state != to || to != 0)?;
    let mut command = Command::new(code, rst2init_qp_in::SIZE, STATUS);
    put(command.bytes(), rst2init_qp_in::QPN, qp.number);
    let (kind, access, depth) = (qp.kind, qp.access, qp.depth);
    let mac = wire::mac(&asked.destination.dgid);
    let present = Present { kind, access, depth, link, mac, log_max_msg: LOG_MAX_MSG };
    let mut context = vec![0; rst2init_qp_in::QPC.bytes().len()];
    qp_modify::attributes(&mut context, &present, &fitting(asked));
    let at = rst2init_qp_in::QPC.bytes();
    command.bytes()[at].copy_from_slice(&context);
    for (field, value) in
        [(qpc::PD, qp.pdn), (qpc::CQN_SND, qp.send_cq), (qpc::CQN_RCV, qp.recv_cq)]
    {
        put(command.bytes(), field.within(rst2init_qp_in::QPC), value);
    }
    Some(done(command))
}

/// Returns attributes that fit the fields of a context. The kernel accepts any value of most of them, and
/// leaves out the bits that have no place.
fn fitting(asked: &ModifyQp) -> ModifyQp {
    /// The largest depth that the fields express: 2^7.
    const DEEPEST: u8 = 1 << 7;
    let rate = |path: QpDestination| QpDestination { static_rate: path.static_rate & 0x1f, ..path };
    ModifyQp {
        destination: rate(asked.destination),
        alternate: rate(asked.alternate),
        dest_qp_num: asked.dest_qp_num & 0xff_ffff,
        path_mtu: asked.path_mtu & 7,
        max_rd_atomic: asked.max_rd_atomic.min(DEEPEST),
        max_dest_rd_atomic: asked.max_dest_rd_atomic.min(DEEPEST),
        min_rnr_timer: asked.min_rnr_timer & 31,
        timeout: asked.timeout & 31,
        retry_cnt: asked.retry_cnt & 7,
        rnr_retry: asked.rnr_retry & 7,
        alt_timeout: asked.alt_timeout & 31,
        ..*asked
    }
}

/// The commands that destroy an object.
pub(super) fn destroy(object: &Object) -> Vec<Told> {
    let of = |code: u16, size: usize, field: Field, number: u32| {
        done(command(code, size, STATUS, &[(field, u64::from(number))]))
    };
    match object {
        Object::Pd(pd) => vec![of(opcode::DEALLOC_PD, dealloc_pd_in::SIZE, dealloc_pd_in::PD, *pd)],
        Object::Mr(key) => {
            let index = destroy_mkey_in::MKEY_INDEX;
            vec![of(opcode::DESTROY_MKEY, destroy_mkey_in::SIZE, index, key >> 8)]
        }
        Object::Cq(cq, _) => {
            vec![of(opcode::DESTROY_CQ, destroy_cq_in::SIZE, destroy_cq_in::CQN, *cq)]
        }
        Object::Pair(qp) if qp.kind == qp::Kind::RawPacket => {
            let parts = [
                (opcode::DESTROY_RQ, destroy_rq_in::SIZE, destroy_rq_in::RQN, qp.rqn),
                (opcode::DESTROY_SQ, destroy_sq_in::SIZE, destroy_sq_in::SQN, qp.sqn),
            ];
            let parts = parts.into_iter().filter(|(.., number)| *number != 0);
            parts.map(|(code, size, field, number)| of(code, size, field, number)).collect()
        }
        Object::Pair(qp) => {
            vec![of(opcode::DESTROY_QP, destroy_qp_in::SIZE, destroy_qp_in::QPN, qp.number)]
        }
        Object::Srq(srq) => {
            vec![of(opcode::DESTROY_RMP, destroy_rmp_in::SIZE, destroy_rmp_in::RMPN, *srq)]
        }
        Object::Uar(uar) => {
            vec![of(opcode::DEALLOC_UAR, dealloc_uar_in::SIZE, dealloc_uar_in::UAR, *uar)]
        }
        Object::Umem { number, .. } => {
            let id = destroy_umem_in::UMEM_ID;
            vec![of(opcode::DESTROY_UMEM, destroy_umem_in::SIZE, id, *number)]
        }
        Object::Devx { made, number } => KINDS
            .iter()
            // The commands that destroy flow tables and the like name more than a number.
            .filter(|kind| kind.create == *made && kind.repeated.is_empty())
            .map(|kind| of(kind.destroy, STATUS, kind.destroyed, *number))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
