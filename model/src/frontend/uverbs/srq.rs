//! Shared receive queues.

use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_rmp_in, create_rmp_out, destroy_rmp_in, destroy_rmp_out,
    modify_rmp_in, modify_rmp_out, opcode, query_rmp_in, query_rmp_out, rmp_bitmask, rmpc, wq,
};
use zerocopy::IntoBytes;

use super::abi::{
    CreateSrq, CreateSrqDriver, CreateSrqDriverReply, CreateSrqReply, ModifySrq, QuerySrq,
    QuerySrqReply,
};
use super::command::Command;
use super::errno::{Errno, Result};
use super::event::EventQueue;
use super::file::{self, CommandFile, Object, State};
use super::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::legacy::Request;
use super::pd::Pd;
use super::qp::Qp;
use super::umem::Umem;
use super::{cq, lock, user};

/// A shared receive queue.
pub(super) struct Srq {
    /// The card's number.
    pub number: u32,
    /// Handle of its protection domain.
    pub pd: u32,
    wqes: u32,
    sges: u32,
    events: Option<(Arc<EventQueue>, u64)>,
    _buffer: Umem,
    _record: Arc<Umem>,
}

/// Kinds (`enum ib_uverbs_srq_type`).
const BASIC: u64 = 0;

/// State of a receive memory pool (`MLX5_RMPC_STATE_RDY`).
const READY: u32 = 1;

/// What a queue is asked for with.
struct Asked {
    user_handle: u64,
    pd: u32,
    max_wr: u32,
    max_sge: u32,
    events: Option<c_int>,
}

/// `SRQ_CREATE`.
pub(super) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let asked = Asked {
        pd: attributes.handle(1)?,
        user_handle: attributes.number(4)?,
        max_wr: attributes.number(5)? as u32,
        max_sge: attributes.number(6)? as u32,
        events: attributes.descriptor(10)?,
    };
    if attributes.number(9)? != BASIC {
        return Err(Errno::EOPNOTSUPP);
    }
    let driver = attributes.input(DRIVER_IN)?;
    let mut state = file.state();
    let reply = make(file, &mut state, &asked, &driver)?;
    attributes.put(11, &reply.max_wr.to_ne_bytes())?;
    attributes.put(12, &reply.max_sge.to_ne_bytes())?;
    let driver = CreateSrqDriverReply { srqn: reply.srqn, reserved: 0 };
    attributes.put(DRIVER_OUT, driver.as_bytes())?;
    attributes.put_handle(0, u64::from(reply.srq_handle))
}

/// `CREATE_SRQ`, legacy.
pub(super) fn create_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    let given: CreateSrq = user::whole(&request.core)?;
    let asked = Asked {
        user_handle: given.user_handle,
        pd: given.pd_handle,
        max_wr: given.max_wr,
        max_sge: given.max_sge,
        events: None,
    };
    let reply = make(file, &mut file.state(), &asked, &request.driver)?;
    // The number is told to those alone that made it for XRC.
    request.reply(CreateSrqReply { srqn: 0, ..reply }.as_bytes())?;
    request.reply_driver(CreateSrqDriverReply { srqn: reply.srqn, reserved: 0 }.as_bytes())
}

/// Makes a queue. The reply's number is the card's.
fn make(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    driver: &[u8],
) -> Result<CreateSrqReply> {
    /// `MLX5_SRQ_FLAG_SIGNATURE`
    const SIGNATURE: u32 = 1 << 0;
    /// The segment that names the next WQE, and one of memory.
    const SEGMENT: u32 = 16;
    const LEAST_STRIDE: u32 = 32;

    let uid = state.context()?.uid;
    let function = file.function();
    let given: CreateSrqDriver = user::lenient(driver);
    let pdn = state.get::<Pd>(asked.pd)?.number;
    let most = function.caps.power(cmd_hca_cap::LOG_MAX_SRQ_SZ);
    if given.reserved0 != 0 || given.reserved1 != 0 || asked.max_wr >= most {
        return Err(Errno::EINVAL);
    }
    let wqes = (asked.max_wr + 1).next_power_of_two();
    let stride = asked
        .max_sge
        .checked_add(1)
        .and_then(|segments| segments.checked_mul(SEGMENT))
        .and_then(u32::checked_next_power_of_two)
        .ok_or(Errno::EINVAL)?
        .max(LEAST_STRIDE);
    let length = u64::from(wqes) * u64::from(stride);
    let buffer = Umem::pin(file.running, given.buf_addr, length, false)?;
    let record = Umem::pin_record(file.running, given.db_addr)?;
    let events = cq::events(file, state, asked.events)?;

    let mut command = Command::new(opcode::CREATE_RMP, create_rmp_in::SIZE, create_rmp_out::SIZE);
    command.set(create_rmp_in::UID, uid);
    let offset = buffer.offset()?;
    if offset >= 1 << wq::PAGE_OFFSET.width() {
        return Err(Errno::EINVAL);
    }
    command.set(rmpc::STATE.within(create_rmp_in::CTX), READY);
    let mut context = |field: Field, value: u64| {
        command.set(field.within(rmpc::WQ).within(create_rmp_in::CTX), value);
    };
    context(wq::WQ_SIGNATURE, u64::from(given.flags & SIGNATURE != 0));
    if stride.ilog2() >= 1 << wq::LOG_WQ_STRIDE.width() {
        return Err(Errno::EINVAL);
    }
    context(wq::LOG_WQ_STRIDE, u64::from(stride.ilog2()));
    context(wq::LOG_WQ_SZ, u64::from(wqes.ilog2()));
    context(wq::PAGE_OFFSET, offset);
    context(wq::PD, u64::from(pdn));
    context(wq::DBR_ADDR, given.db_addr);
    command.pages(buffer.pages());
    let number = create_rmp_out::RMPN.get(&function.run(command)?) as u32;

    let source = file::source(asked.user_handle);
    if let Some(queue) = &events {
        lock(function.listeners()).srqs.insert(number, (queue.clone(), source));
    }
    let srq_handle = state.enter(Object::Srq(Srq {
        number,
        pd: asked.pd,
        wqes,
        sges: asked.max_sge,
        events: events.map(|queue| (queue, source.id)),
        _buffer: buffer,
        _record: record,
    }));
    Ok(CreateSrqReply { srq_handle, max_wr: wqes - 1, max_sge: asked.max_sge, srqn: number })
}

/// `MODIFY_SRQ`: arms the limit. Its size cannot change.
pub(super) fn modify(file: &CommandFile, request: &Request) -> Result<()> {
    /// `enum ib_srq_attr_mask`
    const SIZE: u32 = 1;
    const LIMIT: u32 = 2;
    let asked: ModifySrq = user::whole(&request.core)?;
    let state = file.state();
    let uid = state.context()?.uid;
    let srq = state.get::<Srq>(asked.srq_handle)?;
    if asked.attr_mask & SIZE != 0 {
        return Err(Errno::EINVAL);
    }
    if asked.attr_mask & LIMIT == 0 {
        return Ok(());
    }
    if asked.srq_limit >= srq.wqes {
        return Err(Errno::EINVAL);
    }
    let mut command = Command::new(opcode::MODIFY_RMP, modify_rmp_in::SIZE, modify_rmp_out::SIZE);
    command.set(modify_rmp_in::UID, uid);
    command.set(modify_rmp_in::RMPN, srq.number);
    command.set(modify_rmp_in::RMP_STATE, READY);
    command.set(rmp_bitmask::LWM.within(modify_rmp_in::BITMASK), 1u32);
    command.set(rmpc::STATE.within(modify_rmp_in::CTX), READY);
    let limit = wq::LWM.within(rmpc::WQ).within(modify_rmp_in::CTX);
    command.set(limit, asked.srq_limit);
    file.function().run(command).map(|_| ())
}

/// `QUERY_SRQ`.
pub(super) fn query(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: QuerySrq = user::whole(&request.core)?;
    let state = file.state();
    let srq = state.get::<Srq>(asked.srq_handle)?;
    let mut command = Command::new(opcode::QUERY_RMP, query_rmp_in::SIZE, query_rmp_out::SIZE);
    command.set(query_rmp_in::RMPN, srq.number);
    let answer = file.function().run(command)?;
    let limit = wq::LWM.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT).get(&answer);
    let reply = QuerySrqReply {
        max_wr: srq.wqes - 1,
        max_sge: srq.sges,
        srq_limit: limit as u32,
        reserved: 0,
    };
    request.reply(reply.as_bytes())
}

/// A queue goes. Gives how many of its events were read.
pub(super) fn destroy(file: &CommandFile, uid: u16, srq: &Srq) -> Result<u32> {
    let function = file.function();
    let mut command =
        Command::new(opcode::DESTROY_RMP, destroy_rmp_in::SIZE, destroy_rmp_out::SIZE);
    command.set(destroy_rmp_in::UID, uid);
    command.set(destroy_rmp_in::RMPN, srq.number);
    function.run(command)?;
    lock(function.listeners()).srqs.remove(&srq.number);
    Ok(srq.events.as_ref().map_or(0, |(queue, id)| queue.retract(*id)))
}

fn remove(file: &CommandFile, handle: u32) -> Result<u32> {
    let mut state = file.state();
    let uid = state.context()?.uid;
    let used = state.any(|qp: &Qp| qp.srq == Some(handle));
    state.remove(handle, |srq: &Srq| if used { Err(Errno::EBUSY) } else { destroy(file, uid, srq) })
}

/// `SRQ_DESTROY`.
pub(super) fn destroy_handle(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let events = remove(file, attributes.handle(0)?)?;
    attributes.put(1, &events.to_ne_bytes())
}

/// `DESTROY_SRQ`, legacy.
pub(super) fn destroy_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    request.reply(&remove(file, request.word(8)?)?.to_ne_bytes())
}
