//! Shared receive queues: basic SRQs, which are RMPs of the device, SRQs of XRC domains, and XRQs,
//! which have tag matching.

use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{
    Field, arm_xrc_srq_in, arm_xrc_srq_out, arm_xrq_in, arm_xrq_out, cmd_hca_cap, create_rmp_in,
    create_rmp_out, create_xrc_srq_in, create_xrc_srq_out, create_xrq_in, create_xrq_out,
    destroy_rmp_in, destroy_rmp_out, destroy_xrc_srq_in, destroy_xrc_srq_out, destroy_xrq_in,
    destroy_xrq_out, modify_rmp_in, modify_rmp_out, opcode, query_rmp_in, query_rmp_out,
    query_xrc_srq_in, query_xrc_srq_out, query_xrq_in, query_xrq_out, rmp_bitmask, rmpc,
    tag_matching_topology_context as topology, wq, xrc_srqc, xrqc,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::driver::event::{EventQueue, Source};
use super::super::driver::function::Function;
use super::super::driver::umem::Umem;
use super::super::process::errno::{Errno, Result};
use super::super::process::{lock, user};
use super::super::request::abi::{
    CreateSrq, CreateSrqDriver, CreateSrqDriverReply, CreateSrqReply, CreateXsrq, ModifySrq,
    QuerySrq, QuerySrqReply,
};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::request::legacy::Request;
use super::cq;
use super::file::{CommandFile, Object, State, Turn};
use super::pd::Pd;
use super::xrcd::Xrcd;

/// A shared receive queue.
pub(crate) struct Srq {
    /// The card's number.
    pub number: u32,
    /// Handle of its protection domain.
    pub pd: u32,
    /// Handles of the XRC domain and of the completion queue that it has as one of XRC.
    pub xrcd: Option<u32>,
    pub cq: Option<u32>,
    /// Whether it matches tags.
    tags: bool,
    wqes: u32,
    sges: u32,
    events: Option<(Arc<EventQueue>, u64)>,
    _buffer: Umem,
    _record: Arc<Umem>,
}

impl Srq {
    /// The command that made it.
    pub fn made_by(&self) -> u16 {
        match (self.xrcd, self.tags) {
            (Some(_), _) => opcode::CREATE_XRC_SRQ,
            (None, true) => opcode::CREATE_XRQ,
            (None, false) => opcode::CREATE_RMP,
        }
    }

    /// Its kind (`enum ib_uverbs_srq_type`).
    pub fn kind(&self) -> u8 {
        let kind = match (self.xrcd, self.tags) {
            (Some(_), _) => XRC,
            (None, true) => TAGS,
            (None, false) => BASIC,
        };
        kind as u8
    }
}

/// Kinds (`enum ib_uverbs_srq_type`).
const BASIC: u64 = 0;
const XRC: u64 = 1;
const TAGS: u64 = 2;

/// State of a receive memory pool (`MLX5_RMPC_STATE_RDY`).
const READY: u32 = 1;

/// Parameters of a request to create a shared receive queue.
struct Asked {
    user_handle: u64,
    pd: u32,
    max_wr: u32,
    max_sge: u32,
    events: Option<c_int>,
    /// Handles of XRC domain and completion queue, for a queue of XRC.
    xrc: Option<(u32, u32)>,
    /// Handle of the completion queue and how many tags, for one that matches them.
    tags: Option<(u32, u32)>,
}

/// `SRQ_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let asked = Asked {
        pd: attributes.handle(1)?,
        user_handle: attributes.number(4)?,
        max_wr: attributes.number(5)? as u32,
        max_sge: attributes.number(6)? as u32,
        events: attributes.descriptor(10)?,
        xrc: match attributes.number(9)? {
            BASIC | TAGS => None,
            XRC => Some((attributes.handle(2)?, attributes.handle(3)?)),
            _ => return Err(Errno::EOPNOTSUPP),
        },
        tags: match attributes.number(9)? {
            TAGS => Some((attributes.handle(3)?, attributes.number(8)? as u32)),
            _ => None,
        },
    };
    let driver = attributes.input(DRIVER_IN)?;
    let mut state = file.state();
    let reply = make(file, &mut state, &asked, &driver)?;
    attributes.put(11, &reply.max_wr.to_ne_bytes())?;
    attributes.put(12, &reply.max_sge.to_ne_bytes())?;
    let driver = CreateSrqDriverReply { srqn: reply.srqn, reserved: 0 };
    if asked.xrc.is_some() {
        attributes.put(13, &reply.srqn.to_ne_bytes())?;
    }
    attributes.put(DRIVER_OUT, driver.as_bytes())?;
    attributes.put_handle(0, u64::from(reply.srq_handle))
}

/// `CREATE_SRQ`, legacy: a basic SRQ.
pub(crate) fn create_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    let given: CreateSrq = user::whole(&request.core)?;
    let CreateSrq { user_handle, pd_handle, max_wr, max_sge, .. } = given;
    let basic = CreateXsrq { user_handle, pd_handle, max_wr, max_sge, ..CreateXsrq::default() };
    make_legacy(file, request, &basic)
}

/// `CREATE_XSRQ`, legacy.
pub(crate) fn create_extended(file: &CommandFile, request: &Request) -> Result<()> {
    make_legacy(file, request, &user::whole(&request.core)?)
}

fn make_legacy(file: &CommandFile, request: &Request, given: &CreateXsrq) -> Result<()> {
    let asked = Asked {
        user_handle: given.user_handle,
        pd: given.pd_handle,
        max_wr: given.max_wr,
        max_sge: given.max_sge,
        events: None,
        xrc: match u64::from(given.srq_type) {
            BASIC | TAGS => None,
            XRC => Some((given.xrcd_handle, given.cq_handle)),
            _ => return Err(Errno::EOPNOTSUPP),
        },
        tags: (u64::from(given.srq_type) == TAGS).then_some((given.cq_handle, given.max_num_tags)),
    };
    let reply = make(file, &mut file.state(), &asked, &request.driver)?;
    // Only a program that made the SRQ for XRC is told its number.
    let srqn = if asked.xrc.is_some() { reply.srqn } else { 0 };
    request.reply(CreateSrqReply { srqn, ..reply }.as_bytes())?;
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
    if asked.max_wr >= most {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_create_srq refused: max_wr is {}, and max_srq_wr of the device is {}",
            asked.max_wr,
            most - 1
        )));
    }
    if given.reserved0 != 0 || given.reserved1 != 0 {
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
    let buffer = Umem::pin(&file.running.pinned, given.buf_addr, length, false)?;
    let record = Umem::pin_record(&file.running.pinned, given.db_addr)?;
    let events = cq::events(state, asked.events)?;

    let memory = Memory {
        uid,
        pdn,
        wqes,
        stride,
        signature: u64::from(given.flags & SIGNATURE != 0),
        offset: buffer.offset()?,
        buffer: &buffer,
        record: record.bus(given.db_addr),
        user_index: given.uidx,
    };
    let (number, xrcd, cq) = match (asked.xrc, asked.tags) {
        (None, Some((completions, tags))) => {
            let cqn = state.get::<cq::Cq>(completions)?.number;
            (memory.matching_tags(function, cqn, tags)?, None, Some(completions))
        }
        (None, None) => (memory.plain(function)?, None, None),
        (Some((domain, completions)), _) => {
            let xrcdn = state.get::<Xrcd>(domain)?.number;
            let cqn = state.get::<cq::Cq>(completions)?.number;
            if given.db_addr & 3 != 0 {
                return Err(Errno::EINVAL);
            }
            (memory.of_domain(function, xrcdn, cqn)?, Some(domain), Some(completions))
        }
    };

    let source = Source::new(asked.user_handle);
    if let Some(queue) = &events {
        lock(function.listeners()).srqs.insert(number, (queue.clone(), source));
    }
    let srq_handle = state.enter(Srq {
        number,
        pd: asked.pd,
        xrcd,
        cq,
        tags: asked.tags.is_some(),
        wqes,
        sges: asked.max_sge,
        events: events.map(|queue| (queue, source.id)),
        _buffer: buffer,
        _record: record,
    });
    Ok(CreateSrqReply { srq_handle, max_wr: wqes - 1, max_sge: asked.max_sge, srqn: number })
}

/// The memory of a new queue, as the three commands that create one describe it.
struct Memory<'a> {
    uid: u16,
    /// Number of the protection domain.
    pdn: u32,
    wqes: u32,
    /// Bytes of a WQE.
    stride: u32,
    /// Whether WQEs are signed: 0 or 1.
    signature: u64,
    /// Offset in the first page, in the unit of the contexts.
    offset: u64,
    buffer: &'a Umem,
    /// Bus address of the doorbell record.
    record: u64,
    user_index: u32,
}

impl Memory<'_> {
    /// Checks that a structure `wq` can describe it.
    fn check(&self) -> Result<()> {
        let fits = self.offset < 1 << wq::PAGE_OFFSET.width()
            && self.stride.ilog2() < 1 << wq::LOG_WQ_STRIDE.width();
        if fits { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// Checks that the user index has 24 bits.
    fn check_index(&self) -> Result<()> {
        if self.user_index & !0xff_ffff == 0 { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The fields of a structure `wq`.
    fn fields(&self) -> [(Field, u64); 6] {
        [
            (wq::WQ_SIGNATURE, self.signature),
            (wq::LOG_WQ_STRIDE, u64::from(self.stride.ilog2())),
            (wq::LOG_WQ_SZ, u64::from(self.wqes.ilog2())),
            (wq::PAGE_OFFSET, self.offset),
            (wq::PD, u64::from(self.pdn)),
            (wq::DBR_ADDR, self.record),
        ]
    }

    /// Creates a queue that matches up to `tags` tags (`CREATE_XRQ`). Returns its number.
    fn matching_tags(&self, function: &Function, cqn: u32, tags: u32) -> Result<u32> {
        /// `MLX5_XRQC_TOPOLOGY_TAG_MATCHING`, `MLX5_XRQC_OFFLOAD_RNDV`
        const TAG_MATCHING: u32 = 1;
        const RENDEZVOUS: u32 = 1;
        // Enough for the requested tags and one more, which software keeps free.
        let log_tags = tags.checked_ilog2().map_or(0, |log| log + 1);
        if !function.caps.has(cmd_hca_cap::TAG_MATCHING)
            || log_tags > function.caps.get(cmd_hca_cap::LOG_TAG_MATCHING_LIST_SZ)
        {
            return Err(Errno::EINVAL);
        }
        self.check()?;
        self.check_index()?;
        let mut command =
            Command::new(opcode::CREATE_XRQ, create_xrq_in::SIZE, create_xrq_out::SIZE);
        command.set(create_xrq_in::UID, self.uid);
        let mut context = |field: Field, value: u64| {
            command.set(field.within(create_xrq_in::XRQ_CONTEXT), value);
        };
        context(xrqc::TOPOLOGY, TAG_MATCHING.into());
        context(xrqc::OFFLOAD, RENDEZVOUS.into());
        context(xrqc::USER_INDEX, u64::from(self.user_index));
        context(xrqc::CQN, u64::from(cqn));
        let tags = topology::LOG_MATCHING_LIST_SZ;
        context(tags.within(xrqc::TAG_MATCHING_TOPOLOGY_CONTEXT), log_tags.into());
        for (field, value) in self.fields() {
            context(field.within(xrqc::WQ), value);
        }
        command.pages(self.buffer.pages());
        Ok(create_xrq_out::XRQN.get(&function.run(command)?) as u32)
    }

    /// Creates a queue of queue pairs (`CREATE_RMP`). Returns its number.
    fn plain(&self, function: &Function) -> Result<u32> {
        self.check()?;
        let mut command =
            Command::new(opcode::CREATE_RMP, create_rmp_in::SIZE, create_rmp_out::SIZE);
        command.set(create_rmp_in::UID, self.uid);
        command.set(rmpc::STATE.within(create_rmp_in::CTX), READY);
        for (field, value) in self.fields() {
            command.set(field.within(rmpc::WQ).within(create_rmp_in::CTX), value);
        }
        command.pages(self.buffer.pages());
        Ok(create_rmp_out::RMPN.get(&function.run(command)?) as u32)
    }

    /// Creates a queue of an XRC domain (`CREATE_XRC_SRQ`). Returns its number.
    fn of_domain(&self, function: &Function, xrcdn: u32, cqn: u32) -> Result<u32> {
        // The stride counts from 16 bytes.
        let log_stride = u64::from(self.stride.ilog2() - 4);
        if log_stride >= 1 << xrc_srqc::LOG_RQ_STRIDE.width() {
            return Err(Errno::EINVAL);
        }
        self.check_index()?;
        // Contexts share the queue, so it belongs to no user.
        let mut command =
            Command::new(opcode::CREATE_XRC_SRQ, create_xrc_srq_in::SIZE, create_xrc_srq_out::SIZE);
        for (field, value) in [
            (xrc_srqc::WQ_SIGNATURE, self.signature),
            (xrc_srqc::LOG_RQ_STRIDE, log_stride),
            (xrc_srqc::LOG_XRC_SRQ_SIZE, u64::from(self.wqes.ilog2())),
            (xrc_srqc::PAGE_OFFSET, self.offset),
            (xrc_srqc::PD, u64::from(self.pdn)),
            (xrc_srqc::XRCD, u64::from(xrcdn)),
            (xrc_srqc::CQN, u64::from(cqn)),
            (xrc_srqc::USER_INDEX, u64::from(self.user_index)),
            (xrc_srqc::DB_RECORD_ADDR_H, self.record >> 32),
            (xrc_srqc::DB_RECORD_ADDR_L, self.record >> 2 & 0x3fff_ffff),
        ] {
            command.set(field.within(create_xrc_srq_in::XRC_SRQ_CONTEXT_ENTRY), value);
        }
        command.pages(self.buffer.pages());
        Ok(create_xrc_srq_out::XRC_SRQN.get(&function.run(command)?) as u32)
    }
}

/// `MODIFY_SRQ`: arms the limit. Its size cannot change.
pub(crate) fn modify(file: &CommandFile, request: &Request) -> Result<()> {
    /// `enum ib_srq_attr_mask`
    const SIZE: u32 = 1;
    const LIMIT: u32 = 2;
    let asked: ModifySrq = user::whole(&request.core)?;
    let state = file.state();
    let uid = state.context()?.uid;
    let srq = state.get::<Srq>(asked.srq_handle)?;
    if asked.attr_mask & SIZE != 0 {
        return Err(Errno::EINVAL
            .because(format_args!("ibv_modify_srq refused: the size of an SRQ does not change")));
    }
    if asked.attr_mask & LIMIT == 0 {
        return Ok(());
    }
    if asked.srq_limit >= srq.wqes {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_modify_srq refused: srq_limit is {}, and the SRQ has {} receives",
            asked.srq_limit, srq.wqes
        )));
    }
    if srq.xrcd.is_some() {
        /// `MLX5_ARM_XRC_SRQ_IN_OP_MOD_XRC_SRQ`
        const XRC_SRQ: u32 = 1;
        let mut command =
            Command::new(opcode::ARM_XRC_SRQ, arm_xrc_srq_in::SIZE, arm_xrc_srq_out::SIZE);
        command.set(arm_xrc_srq_in::OP_MOD, XRC_SRQ);
        command.set(arm_xrc_srq_in::XRC_SRQN, srq.number);
        command.set(arm_xrc_srq_in::LWM, asked.srq_limit);
        return file.function().run(command).map(|_| ());
    }
    if srq.tags {
        let mut command = Command::new(opcode::ARM_XRQ, arm_xrq_in::SIZE, arm_xrq_out::SIZE);
        command.set(arm_xrq_in::XRQN, srq.number);
        command.set(arm_xrq_in::LWM, asked.srq_limit);
        return file.function().run(command).map(|_| ());
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
pub(crate) fn query(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: QuerySrq = user::whole(&request.core)?;
    let state = file.state();
    let srq = state.get::<Srq>(asked.srq_handle)?;
    let limit = if srq.xrcd.is_some() {
        let (input, output) = (query_xrc_srq_in::SIZE, query_xrc_srq_out::SIZE);
        let mut command = Command::new(opcode::QUERY_XRC_SRQ, input, output);
        command.set(query_xrc_srq_in::XRC_SRQN, srq.number);
        let context = query_xrc_srq_out::XRC_SRQ_CONTEXT_ENTRY;
        xrc_srqc::LWM.within(context).get(&file.function().run(command)?)
    } else if srq.tags {
        let mut command = Command::new(opcode::QUERY_XRQ, query_xrq_in::SIZE, query_xrq_out::SIZE);
        command.set(query_xrq_in::XRQN, srq.number);
        let context = wq::LWM.within(xrqc::WQ).within(query_xrq_out::XRQ_CONTEXT);
        context.get(&file.function().run(command)?)
    } else {
        let mut command = Command::new(opcode::QUERY_RMP, query_rmp_in::SIZE, query_rmp_out::SIZE);
        command.set(query_rmp_in::RMPN, srq.number);
        let context = wq::LWM.within(rmpc::WQ).within(query_rmp_out::RMP_CONTEXT);
        context.get(&file.function().run(command)?)
    };
    let reply = QuerySrqReply {
        max_wr: srq.wqes - 1,
        max_sge: srq.sges,
        srq_limit: limit as u32,
        reserved: 0,
    };
    request.reply(reply.as_bytes())
}

impl Object for Srq {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        [Some(self.pd), self.xrcd, self.cq].into_iter().flatten().for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        let function = file.function();
        if self.xrcd.is_some() {
            let (input, output) = (destroy_xrc_srq_in::SIZE, destroy_xrc_srq_out::SIZE);
            let mut command = Command::new(opcode::DESTROY_XRC_SRQ, input, output);
            command.set(destroy_xrc_srq_in::XRC_SRQN, self.number);
            function.run(command)?;
        } else if self.tags {
            let (input, output) = (destroy_xrq_in::SIZE, destroy_xrq_out::SIZE);
            let mut command = Command::new(opcode::DESTROY_XRQ, input, output);
            command.set(destroy_xrq_in::UID, uid);
            command.set(destroy_xrq_in::XRQN, self.number);
            function.run(command)?;
        } else {
            let mut command =
                Command::new(opcode::DESTROY_RMP, destroy_rmp_in::SIZE, destroy_rmp_out::SIZE);
            command.set(destroy_rmp_in::UID, uid);
            command.set(destroy_rmp_in::RMPN, self.number);
            function.run(command)?;
        }
        lock(function.listeners()).srqs.remove(&self.number);
        let read = self.events.as_ref().map_or(0, |(queue, id)| queue.retract(*id));
        Ok(read.to_ne_bytes().to_vec())
    }
}
