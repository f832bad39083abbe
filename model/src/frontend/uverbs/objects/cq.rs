//! Completion channels and completion queues.

use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{
    cmd_hca_cap, cqc, create_cq_in, create_cq_out, destroy_cq_in, destroy_cq_out, modify_cq_in,
    modify_cq_out, opcode,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::driver::event::{Completions, EventQueue, Events, Source};
use super::super::driver::function::CqListener;
use super::super::driver::umem::Umem;
use super::super::process::descriptors::Descriptors;
use super::super::process::errno::{Errno, Result};
use super::super::process::{lock, user};
use super::super::request::abi::{
    CreateCq, CreateCqDriver, CreateCqDriverReply, CreateCqReply, DestroyCqReply, ExCreateCq,
    ExCreateCqReply, ExModifyCq, ResizeCq, ResizeCqDriver, ResizeCqReply,
};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object, State, Turn};
use super::uar;
use crate::object::MiniFormat;

/// A completion queue.
pub(crate) struct Cq {
    /// The card's number.
    pub number: u32,
    /// Bytes of a CQE.
    pub cqe_size: u32,
    entries: u32,
    channel: Option<(Arc<EventQueue>, u64)>,
    events: Option<(Arc<EventQueue>, u64)>,
    /// The ring and the doorbell record, pinned as long as the queue lives.
    buffer: Umem,
    _record: Arc<Umem>,
}

impl Cq {
    /// Returns how many completions it can hold.
    pub fn most(&self) -> u32 {
        self.entries - 1
    }
}

/// Parameters of a request to create a CQ.
struct Asked {
    user_handle: u64,
    cqe: u32,
    vector: u32,
    channel: Option<c_int>,
    flags: u32,
    events: Option<c_int>,
}

/// `CREATE_COMP_CHANNEL`.
pub(crate) fn create_channel(file: &CommandFile, request: &Request) -> Result<()> {
    file.state().context()?;
    let (_, fd) = EventQueue::completions()?;
    request.reply(&fd.to_ne_bytes())
}

/// `CQ_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let asked = Asked {
        cqe: attributes.number(1)? as u32,
        user_handle: attributes.number(2)?,
        channel: attributes.descriptor(3)?,
        vector: attributes.number(4)? as u32,
        flags: attributes.number(5)? as u32,
        events: attributes.descriptor(7)?,
    };
    let driver = attributes.input(DRIVER_IN)?;
    let mut state = file.state();
    let (handle, cqe, reply) = make(file, &mut state, &asked, &driver)?;
    attributes.put(6, &cqe.to_ne_bytes())?;
    attributes.put(DRIVER_OUT, reply.as_bytes())?;
    attributes.put_handle(0, u64::from(handle))
}

/// `CREATE_CQ`, legacy.
pub(crate) fn create_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: CreateCq = user::whole(&request.core)?;
    let asked = Asked {
        user_handle: asked.user_handle,
        cqe: asked.cqe,
        vector: asked.comp_vector,
        channel: (asked.comp_channel >= 0).then_some(asked.comp_channel),
        flags: 0,
        events: None,
    };
    let (cq_handle, cqe, reply) = make(file, &mut file.state(), &asked, &request.driver)?;
    request.reply(CreateCqReply { cq_handle, cqe }.as_bytes())?;
    request.reply_driver(reply.as_bytes())
}

/// `CREATE_CQ`, extended.
pub(crate) fn create_extended(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: ExCreateCq = user::whole(&request.core)?;
    if asked.comp_mask != 0 || asked.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let asked = Asked {
        user_handle: asked.user_handle,
        cqe: asked.cqe,
        vector: asked.comp_vector,
        channel: (asked.comp_channel >= 0).then_some(asked.comp_channel),
        flags: asked.flags,
        events: None,
    };
    let (cq_handle, cqe, reply) = make(file, &mut file.state(), &asked, &request.driver)?;
    let response_length = request.room().min(size_of::<ExCreateCqReply>()) as u32;
    let core = ExCreateCqReply { cq_handle, cqe, comp_mask: 0, response_length };
    request.reply_short(core.as_bytes())?;
    request.reply_driver(reply.as_bytes())
}

/// The queue an event descriptor stands for.
fn completions(fd: c_int) -> Result<Arc<EventQueue>> {
    let channel = Descriptors::own().get_as::<Completions>(fd);
    channel.map(|channel| channel.0.clone()).ok_or(Errno::EBADF)
}

/// Returns the event queue of an object: the queue of the file it names, or the context's.
pub(super) fn events(state: &State, fd: Option<c_int>) -> Result<Option<Arc<EventQueue>>> {
    match fd {
        None => Ok(state.context()?.events.clone()),
        Some(fd) => {
            let events = Descriptors::own().get_as::<Events>(fd).ok_or(Errno::EBADF)?;
            Ok(Some(events.0.clone()))
        }
    }
}

/// Entries of the ring for so many CQEs: EINVAL for more than the card has. `call` asked for them.
fn ring(file: &CommandFile, call: &str, cqe: u32) -> Result<u32> {
    let most = file.function().caps.power(cmd_hca_cap::LOG_MAX_CQ_SZ);
    let entries = cqe.checked_add(1).and_then(u32::checked_next_power_of_two);
    entries.filter(|entries| cqe != 0 && *entries <= most).ok_or_else(|| {
        let most = most - 1;
        Errno::EINVAL.because(format_args!("{call} refused: cqe is {cqe}, and may be 1 to {most}"))
    })
}

fn make(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    driver: &[u8],
) -> Result<(u32, u32, CreateCqDriverReply)> {
    const IGNORE_OVERRUN: u32 = 2;
    const PADDED: u16 = 1;
    const NUMBERED_UAR: u16 = 2;
    const REAL_TIME: u16 = 4;

    let uid = state.context()?.uid;
    let function = file.function();
    let caps = &function.caps;
    let given: CreateCqDriver = user::lenient(driver);
    if asked.flags & !3 != 0 || given.flags & !(PADDED | NUMBERED_UAR | REAL_TIME) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let eqn = function.eqn(asked.vector)?;
    let entries = ring(file, "ibv_create_cq", asked.cqe)?;
    let size_code = match given.cqe_size {
        64 => 0u32,
        128 if given.flags & PADDED == 0 => 1,
        128 if caps.has(cmd_hca_cap::CQE_128_ALWAYS) => 2,
        128 => return Err(Errno::EOPNOTSUPP),
        _ => return Err(Errno::EINVAL),
    };
    if given.cqe_comp_en != 0 {
        let able = match given.cqe_size {
            64 => caps.has(cmd_hca_cap::CQE_COMPRESSION),
            _ => caps.has(cmd_hca_cap::CQE_COMPRESSION_128),
        };
        if !able {
            return Err(Errno::EOPNOTSUPP);
        }
    }
    let mini_format = match MiniFormat::from_verbs(given.cqe_comp_res_format) {
        _ if given.cqe_comp_en == 0 => 0,
        Some(MiniFormat::ChecksumStride) if !caps.has(cmd_hca_cap::MINI_CQE_RESP_STRIDE_INDEX) => {
            return Err(Errno::EOPNOTSUPP);
        }
        Some(format) => format.in_context(),
        None => return Err(Errno::EINVAL),
    };
    // A context without dynamic register pages does not exist here.
    if given.flags & NUMBERED_UAR == 0 {
        return Err(Errno::EINVAL);
    }
    let uar = u32::from(given.uar_page_index);
    uar::check(state, uar)?;
    let channel = asked.channel.map(completions).transpose()?;
    let events = events(state, asked.events)?;
    let length = u64::from(entries) * u64::from(given.cqe_size);
    let buffer = Umem::pin(&file.running.pinned, given.buf_addr, length, true)?;
    let record = Umem::pin_record(&file.running.pinned, given.db_addr)?;

    let mut command = Command::new(opcode::CREATE_CQ, create_cq_in::SIZE, create_cq_out::SIZE);
    command.set(create_cq_in::UID, uid);
    let offset = buffer.offset()?;
    let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
        command.set(field.within(create_cq_in::CQ_CONTEXT), value);
    };
    context(cqc::CQE_SZ, u64::from(size_code));
    context(cqc::OI, u64::from(asked.flags & IGNORE_OVERRUN != 0));
    if given.cqe_comp_en != 0 {
        context(cqc::CQE_COMP_EN, 1);
        context(cqc::MINI_CQE_RES_FORMAT, u64::from(mini_format));
    }
    context(cqc::PAGE_OFFSET, offset);
    context(cqc::LOG_CQ_SIZE, u64::from(entries.ilog2()));
    context(cqc::UAR_PAGE, u64::from(uar));
    context(cqc::C_EQN_OR_APU_ELEMENT, u64::from(eqn));
    context(cqc::DBR_ADDR, record.bus(given.db_addr));
    command.pages(buffer.pages());
    let number = create_cq_out::CQN.get(&function.run(command)?) as u32;

    let source = Source::new(asked.user_handle);
    let listener = CqListener {
        channel: channel.clone().map(|queue| (queue, source)),
        events: events.clone().map(|queue| (queue, source)),
    };
    lock(function.listeners()).cqs.insert(number, listener);
    let handle = state.enter(Cq {
        number,
        cqe_size: given.cqe_size,
        entries,
        channel: channel.map(|queue| (queue, source.id)),
        events: events.map(|queue| (queue, source.id)),
        buffer,
        _record: record,
    });
    Ok((handle, entries - 1, CreateCqDriverReply { cqn: number, reserved: 0 }))
}

impl Object for Cq {
    fn turn(&self) -> Turn {
        Turn::CompletionQueues
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        let function = file.function();
        let mut command =
            Command::new(opcode::DESTROY_CQ, destroy_cq_in::SIZE, destroy_cq_out::SIZE);
        command.set(destroy_cq_in::UID, uid);
        command.set(destroy_cq_in::CQN, self.number);
        function.run(command)?;
        lock(function.listeners()).cqs.remove(&self.number);
        let read = |queue: &Option<(Arc<EventQueue>, u64)>| {
            queue.as_ref().map_or(0, |(queue, id)| queue.retract(*id))
        };
        let reply = DestroyCqReply {
            comp_events_reported: read(&self.channel),
            async_events_reported: read(&self.events),
        };
        Ok(user::bytes(&reply))
    }
}

/// `RESIZE_CQ`: the card goes on in a new ring, and the library carries over what is in the old.
pub(crate) fn resize(file: &CommandFile, request: &Request) -> Result<()> {
    /// `MLX5_MODIFY_CQ_MASK_LOG_SIZE`, `_PG_OFFSET`, `_PG_SIZE`
    const RING: u32 = 7;
    /// `MLX5_CQ_OPMOD_RESIZE`
    const RESIZE: u32 = 1;
    let asked: ResizeCq = user::whole(&request.core)?;
    let given: ResizeCqDriver = user::whole(&request.driver)?;
    let function = file.function();
    if !function.caps.has(cmd_hca_cap::CQ_RESIZE) {
        return Err(Errno::EOPNOTSUPP);
    }
    if given.reserved0 != 0 || given.reserved1 != 0 {
        return Err(Errno::EINVAL);
    }
    let entries = ring(file, "ibv_resize_cq", asked.cqe)?;
    let mut state = file.state();
    let uid = state.context()?.uid;
    let cq = state.get_mut::<Cq>(asked.cq_handle)?;
    if entries != cq.entries {
        if u32::from(given.cqe_size) != cq.cqe_size {
            return Err(Errno::EINVAL);
        }
        let length = u64::from(entries) * u64::from(cq.cqe_size);
        let buffer = Umem::pin(&file.running.pinned, given.buf_addr, length, true)?;
        let mut command = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE, modify_cq_out::SIZE);
        command.set(modify_cq_in::UID, uid);
        command.set(modify_cq_in::OP_MOD, RESIZE);
        command.set(modify_cq_in::CQN, cq.number);
        command.set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, RING);
        let offset = buffer.offset()?;
        let mut context = |field: mlx5_sys::ifc::Field, value: u64| {
            command.set(field.within(modify_cq_in::CQ_CONTEXT), value);
        };
        context(cqc::CQE_SZ, u64::from(cq.cqe_size == 128));
        context(cqc::PAGE_OFFSET, offset);
        context(cqc::LOG_CQ_SIZE, u64::from(entries.ilog2()));
        command.pages(buffer.pages());
        function.run(command)?;
        cq.buffer = buffer;
        cq.entries = entries;
    }
    request.reply(ResizeCqReply { cqe: cq.entries - 1, reserved: 0 }.as_bytes())
}

/// `MODIFY_CQ`, extended: moderation.
pub(crate) fn moderate(file: &CommandFile, request: &Request) -> Result<()> {
    /// `IB_CQ_MODERATE`
    const MODERATE: u32 = 1;
    /// `MLX5_CQ_MODIFY_PERIOD`, `_COUNT`
    const PERIOD_AND_COUNT: u32 = 3;
    let asked: ExModifyCq = user::whole(&request.core)?;
    if asked.attr_mask != MODERATE || asked.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let function = file.function();
    if !function.caps.has(cmd_hca_cap::CQ_MODERATION) {
        return Err(Errno::EOPNOTSUPP);
    }
    if asked.period > 0xfff {
        return Err(Errno::EINVAL);
    }
    let state = file.state();
    let mut command = Command::new(opcode::MODIFY_CQ, modify_cq_in::SIZE, modify_cq_out::SIZE);
    command.set(modify_cq_in::UID, state.context()?.uid);
    command.set(modify_cq_in::CQN, state.get::<Cq>(asked.cq_handle)?.number);
    command.set(modify_cq_in::MODIFY_FIELD_SELECT_RESIZE_FIELD_SELECT, PERIOD_AND_COUNT);
    command.set(cqc::CQ_PERIOD.within(modify_cq_in::CQ_CONTEXT), asked.period);
    command.set(cqc::CQ_MAX_COUNT.within(modify_cq_in::CQ_CONTEXT), asked.count);
    function.run(command).map(|_| ())
}
