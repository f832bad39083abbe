//! Queue pairs: creating and destroying.

use std::sync::Arc;

use libc::c_int;
use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_qp_in, create_qp_out, destroy_qp_in, destroy_qp_out, opcode, qpc,
};
use zerocopy::IntoBytes;

use super::super::driver::command::{Caps, Command};
use super::super::driver::event::{EventQueue, Source};
use super::super::driver::umem::Umem;
use super::super::process::errno::{Errno, Result};
use super::super::process::{lock, user};
use super::super::request::abi::{
    Cap, CreateQp, CreateQpDriver, CreateQpDriverReply, CreateQpReply, ExCreateQp, ExCreateQpReply,
};
use super::super::request::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};
use super::super::request::legacy::Request;
use super::super::tree::privilege;
use super::file::{CommandFile, Object, State, Turn};
use super::path::Sender;
use super::pd::Pd;
use super::raw::{self, Raw};
use super::srq::Srq;
use super::uar;
use super::{cq, dct, multicast};

mod bare;

/// Transport of a queue pair (`ib_uverbs_qp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Rc,
    Uc,
    Ud,
    /// Sending side of an extended reliable connection.
    XrcInitiator,
    /// Receiving side of one.
    XrcTarget,
    /// Sending side of dynamic connections.
    DcInitiator,
    /// Receiving side of them.
    DcTarget,
    /// Frames of Ethernet.
    RawPacket,
}

impl Kind {
    /// The kind of a request's type and driver's flags.
    pub fn of(kind: u32, flags: u32) -> Option<Self> {
        Some(match kind {
            2 => Self::Rc,
            3 => Self::Uc,
            4 => Self::Ud,
            XRC_INITIATOR => Self::XrcInitiator,
            XRC_TARGET => Self::XrcTarget,
            DRIVER => match flags & (flag::TYPE_DCT | flag::TYPE_DCI) {
                flag::TYPE_DCT => Self::DcTarget,
                flag::TYPE_DCI => Self::DcInitiator,
                _ => return None,
            },
            RAW_PACKET => Self::RawPacket,
            _ => return None,
        })
    }

    /// Whether Linux finds the peer's port when the path is set (`is_qp_type_connected`).
    pub fn is_connected(self) -> bool {
        matches!(self, Self::Rc | Self::Uc | Self::XrcInitiator | Self::XrcTarget)
    }

    /// Service type in the context.
    pub fn service(self) -> u64 {
        match self {
            Self::Rc => 0,
            Self::Uc => 1,
            Self::Ud => 2,
            Self::XrcInitiator | Self::XrcTarget => 3,
            Self::DcInitiator => 5,
            Self::DcTarget => 6,
            // No context has it: the card has no such queue pair.
            Self::RawPacket => 0xff,
        }
    }
}

/// A queue pair.
pub(crate) struct Qp {
    /// The card's number.
    pub number: u32,
    /// User id that the card holds responsible for it; 0 for an XRC target, which contexts share.
    pub uid: u16,
    /// Transport.
    pub kind: Kind,
    /// Handle of its protection domain.
    pub pd: Option<u32>,
    /// Handle of the send queue's completion queue.
    pub send_cq: Option<u32>,
    /// Handle of the receive queue's completion queue.
    pub recv_cq: Option<u32>,
    /// Handle of the shared receive queue, if it takes from one.
    pub srq: Option<u32>,
    /// Handle of its XRC domain, if it is a target.
    pub xrcd: Option<u32>,
    /// Its queues, if it is for frames of Ethernet.
    pub raw: Option<Raw>,
    /// Handle of the table of receive queues that it leads to.
    pub table: Option<u32>,
    /// State as verbs last set it (`enum ib_qp_state`).
    pub state: u8,
    /// Port, once it was set.
    pub port: u8,
    /// Access flags as last set, and how deep the responder was made.
    pub access: u32,
    pub depth: u8,
    /// Whether every request is signaled.
    pub signal_all: bool,
    /// Receive queue: WQEs, and SGEs of each.
    pub receive: (u32, u32),
    /// Parameters of a target of dynamic connections, before and after its creation.
    pub target: Option<Box<dct::Target>>,
    /// Multicast groups that it is attached to.
    pub groups: Vec<multicast::Group>,
    /// The entry of the GID table that it sends from.
    pub sender: Option<Sender>,
    events: Option<(Arc<EventQueue>, u64)>,
    _buffer: Option<Umem>,
    _record: Option<Arc<Umem>>,
}

/// Parameters of a request to create a queue pair.
pub(crate) struct Asked {
    user_handle: u64,
    pub pd: Option<u32>,
    xrcd: Option<u32>,
    pub send_cq: Option<u32>,
    pub recv_cq: Option<u32>,
    pub srq: Option<u32>,
    cap: Cap,
    pub kind: u32,
    flags: u32,
    events: Option<c_int>,
    /// Handle of a table of receive queues.
    table: Option<u32>,
}

impl Asked {
    /// Reads the attributes of the ioctl form.
    pub fn of_attributes(attributes: &Attributes) -> Result<Self> {
        Ok(Self {
            xrcd: attributes.optional_handle(1)?,
            pd: attributes.optional_handle(2)?,
            srq: attributes.optional_handle(3)?,
            table: attributes.optional_handle(6)?,
            send_cq: attributes.optional_handle(4)?,
            recv_cq: attributes.optional_handle(5)?,
            user_handle: attributes.number(7)?,
            cap: user::lenient(&attributes.input(8)?),
            kind: attributes.number(9)? as u32,
            flags: attributes.number(10)? as u32,
            events: attributes.descriptor(12)?,
        })
    }

    /// Reads the structure of the extended form. The first legacy form has the beginning of it.
    /// Both have a field for each handle, whether the type has the object or not, and name the XRC
    /// domain where other types have their protection domain.
    pub fn of_structure(given: &ExCreateQp) -> Result<Self> {
        /// `IB_UVERBS_CREATE_QP_MASK_IND_TABLE`
        const TABLE: u32 = 1;
        if given.comp_mask & !TABLE != 0 || given.source_qpn != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let asked = Self {
            user_handle: given.user_handle,
            pd: Some(given.pd_handle),
            xrcd: None,
            send_cq: Some(given.send_cq_handle),
            recv_cq: Some(given.recv_cq_handle),
            srq: (given.is_srq != 0).then_some(given.srq_handle),
            cap: given.cap,
            kind: u32::from(given.qp_type),
            flags: given.create_flags | if given.sq_sig_all != 0 { SIGNAL_ALL } else { 0 },
            events: None,
            table: (given.comp_mask & TABLE != 0).then_some(given.rwq_ind_tbl_handle),
        };
        Ok(match asked.kind {
            XRC_INITIATOR => Self { recv_cq: None, srq: None, ..asked },
            XRC_TARGET => {
                let xrcd = asked.pd;
                Self { xrcd, pd: None, send_cq: None, recv_cq: None, srq: None, ..asked }
            }
            _ => asked,
        })
    }
}

/// Types (`ib_uverbs_qp_type`).
const RAW_PACKET: u32 = 8;
const XRC_INITIATOR: u32 = 9;
const XRC_TARGET: u32 = 10;
const DRIVER: u32 = 0xff;

/// `IB_UVERBS_QP_CREATE_SQ_SIG_ALL`
const SIGNAL_ALL: u32 = 1 << 12;
/// `IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK`
const BLOCK_LOOPBACK: u32 = 1 << 1;

/// `IB_UVERBS_QP_CREATE_CVLAN_STRIPPING`
const STRIPS: u32 = 1 << 9;

/// No register of the context's own (`MLX5_IB_INVALID_BFREG`).
const NO_REGISTER: u32 = 1 << 31;

/// Flags of the driver (`MLX5_QP_FLAG_*`).
pub(crate) mod flag {
    pub const SIGNATURE: u32 = 1 << 0;
    pub const SCATTER_CQE: u32 = 1 << 1;
    pub const TYPE_DCT: u32 = 1 << 4;
    pub const TYPE_DCI: u32 = 1 << 5;
    pub const ALLOW_SCATTER_CQE: u32 = 1 << 8;
    pub const PACKET_BASED_CREDIT_MODE: u32 = 1 << 9;
    pub const UAR_PAGE_INDEX: u32 = 1 << 10;
    pub const DCI_STREAM: u32 = 1 << 11;
    pub const KNOWN: u32 = SIGNATURE
        | SCATTER_CQE
        | TYPE_DCT
        | TYPE_DCI
        | ALLOW_SCATTER_CQE
        | PACKET_BASED_CREDIT_MODE
        | UAR_PAGE_INDEX
        | DCI_STREAM;
}

/// `QP_CREATE`.
pub(crate) fn create(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let asked = Asked::of_attributes(attributes)?;
    let driver = attributes.input(DRIVER_IN)?;
    let mut state = file.state();
    let (handle, number, reply) = make(file, &mut state, &asked, &driver)?;
    attributes.put(13, asked.cap.as_bytes())?;
    attributes.put(14, &number.to_ne_bytes())?;
    attributes.put(DRIVER_OUT, reply.as_bytes())?;
    attributes.put_handle(0, u64::from(handle))
}

/// `CREATE_QP`, legacy.
pub(crate) fn create_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    // An extended structure, in front of which is the address of the response.
    let given = request.core.get(8..size_of::<CreateQp>()).ok_or(Errno::ENOSPC)?;
    let (core, driver) = make_legacy(file, &user::lenient(given), &request.driver)?;
    request.reply(core.as_bytes())?;
    request.reply_driver(driver.as_bytes())
}

/// `CREATE_QP`, extended.
pub(crate) fn create_extended(file: &CommandFile, request: &Request) -> Result<()> {
    let (base, driver) = make_legacy(file, &user::whole(&request.core)?, &request.driver)?;
    let response_length = request.room().min(size_of::<ExCreateQpReply>()) as u32;
    request.reply_short(ExCreateQpReply { base, comp_mask: 0, response_length }.as_bytes())?;
    request.reply_driver(driver.as_bytes())
}

fn make_legacy(
    file: &CommandFile,
    given: &ExCreateQp,
    driver: &[u8],
) -> Result<(CreateQpReply, CreateQpDriverReply)> {
    let asked = Asked::of_structure(given)?;
    let (qp_handle, qpn, reply) = make(file, &mut file.state(), &asked, driver)?;
    Ok((CreateQpReply { qp_handle, qpn, cap: asked.cap, reserved: 0 }, reply))
}

fn kind(file: &CommandFile, kind: u32, flags: u32) -> Result<Kind> {
    let kind = Kind::of(kind, flags).ok_or(Errno::EINVAL)?;
    if kind == Kind::RawPacket {
        privilege::check_raw()?;
    }
    let cap = match kind {
        Kind::Rc => cmd_hca_cap::RC,
        Kind::Uc => cmd_hca_cap::UC,
        Kind::Ud => cmd_hca_cap::UD,
        Kind::XrcInitiator | Kind::XrcTarget => cmd_hca_cap::XRC,
        Kind::DcTarget | Kind::DcInitiator => cmd_hca_cap::DCT,
        Kind::RawPacket => cmd_hca_cap::ETH_NET_OFFLOADS,
    };
    if file.function().caps.has(cap) {
        return Ok(kind);
    }
    Err(Errno::EOPNOTSUPP.because(match kind {
        Kind::RawPacket => format_args!(
            "ibv_create_qp refused: IBV_QPT_RAW_PACKET needs a port that is Ethernet, and this one is \
             InfiniBand"
        ),
        _ => format_args!("ibv_create_qp refused: the device has no queue pairs of this qp_type"),
    }))
}

fn make(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    driver: &[u8],
) -> Result<(u32, u32, CreateQpDriverReply)> {
    let given: CreateQpDriver = user::lenient(driver);
    let caps = &file.function().caps;
    state.context()?;
    let kind = kind(file, asked.kind, given.flags)?;
    let known = SIGNAL_ALL | BLOCK_LOOPBACK | if kind == Kind::RawPacket { STRIPS } else { 0 };
    if asked.table.is_some() {
        return bare::spread(file, state, asked, driver);
    }
    if asked.flags & !known != 0
        || (asked.flags & BLOCK_LOOPBACK != 0 && !caps.has(cmd_hca_cap::BLOCK_LB_MC))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    if given.flags & !flag::KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    match kind {
        Kind::XrcTarget => return bare::target(file, state, asked, &given),
        Kind::DcTarget => return bare::dynamic_target(state, asked, &given),
        _ => {}
    }
    check_streams(caps, kind, &given)?;
    let parents = Parents::of(state, kind, asked)?;
    let receives = receives(caps, kind, asked, &given)?;
    if kind == Kind::RawPacket {
        return make_raw(file, state, asked, &given, &parents, receives);
    }
    let length = (u64::from(receives.wqes) << receives.shift) + u64::from(given.sq_wqe_count) * 64;
    let buffer = match (given.buf_addr, length) {
        (0, _) | (_, 0) => None,
        (address, length) => Some(Umem::pin(&file.running.pinned, address, length, false)?),
    };
    let record = Umem::pin_record(&file.running.pinned, given.db_addr)?;
    if given.flags & flag::UAR_PAGE_INDEX == 0 {
        return Err(Errno::EINVAL);
    }
    uar::check(state, given.bfreg_index)?;
    if given.uidx & !0xff_ffff != 0 {
        return Err(Errno::EINVAL);
    }

    let uid = state.context()?.uid;
    let mut command = Command::new(opcode::CREATE_QP, create_qp_in::SIZE, create_qp_out::SIZE);
    command.set(create_qp_in::UID, uid);
    command.set(create_qp_in::ECE, given.ece_options);
    let mut context = |field: Field, value: u64| {
        command.set(field.within(create_qp_in::QPC), value);
    };
    describe(&mut context, kind, asked, &given, &parents, receives);
    context(qpc::DBR_ADDR, record.bus(given.db_addr));
    if let Some(buffer) = &buffer {
        context(qpc::PAGE_OFFSET, buffer.offset()?);
    }
    if given.flags & flag::SCATTER_CQE != 0 {
        scatter(&mut context, caps, kind, asked, &given, &parents);
    }
    if let Some(buffer) = &buffer {
        command.pages(buffer.pages());
    }
    let events = cq::events(state, asked.events)?;
    let answer = file.function().run(command)?;
    let number = create_qp_out::QPN.get(&answer) as u32;
    file.function().enter(|card| card.expect_requests(number, asked.cap.max_send_wr));

    let source = Source::new(asked.user_handle);
    if let Some(queue) = &events {
        lock(file.function().listeners()).qps.insert(number, (queue.clone(), source));
    }
    let signature = u32::from(given.flags & flag::SIGNATURE != 0);
    let handle = state.enter(Qp {
        srq: asked.srq,
        receive: (receives.wqes, receives.segments().saturating_sub(signature)),
        events: events.map(|queue| (queue, source.id)),
        _buffer: buffer,
        _record: Some(record),
        ..parents.queue_pair(number, uid, kind, asked)
    });
    let reply = CreateQpDriverReply {
        bfreg_index: NO_REGISTER,
        ece_options: create_qp_out::ECE.get(&answer) as u32,
        ..Default::default()
    };
    Ok((handle, number, reply))
}

/// Checks the streams of a DC initiator.
fn check_streams(caps: &Caps, kind: Kind, given: &CreateQpDriver) -> Result<()> {
    if given.flags & flag::DCI_STREAM == 0 {
        return Ok(());
    }
    let most = [
        caps.get(cmd_hca_cap::LOG_MAX_DCI_STREAM_CHANNELS),
        caps.get(cmd_hca_cap::LOG_MAX_DCI_ERRORED_STREAMS),
    ];
    let streams = given.dci_streams.map(u32::from);
    let fits = kind == Kind::DcInitiator && streams[0] <= most[0] && streams[1] <= most[1];
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The objects that a new queue pair uses: handles, and the numbers that its context names.
pub(crate) struct Parents {
    pub pd: u32,
    pub send_cq: u32,
    pub recv_cq: Option<u32>,
    pub pdn: u32,
    /// Number and CQE size.
    pub send: (u32, u32),
    /// Number and CQE size.
    pub receive: Option<(u32, u32)>,
    pub srqn: Option<u32>,
}

impl Parents {
    fn of(state: &State, kind: Kind, asked: &Asked) -> Result<Self> {
        let (dynamic, initiator) = (kind == Kind::DcInitiator, kind == Kind::XrcInitiator);
        if dynamic && (asked.cap.max_recv_wr != 0 || asked.cap.max_recv_sge != 0) {
            return Err(Errno::EINVAL.because(format_args!(
                "ibv_create_qp refused: a DC initiator receives nothing, so max_recv_wr and max_recv_sge \
                 are 0"
            )));
        }
        let srq = asked.srq.map(|srq| state.get::<Srq>(srq)).transpose()?;
        let wrong = asked.xrcd.is_some()
            || srq.is_some_and(|srq| initiator || srq.xrcd.is_some())
            || (asked.recv_cq.is_none() && !initiator && !dynamic);
        let (pd, send_cq) = match (asked.pd, asked.send_cq) {
            (Some(pd), Some(send)) if !wrong => (pd, send),
            _ => return Err(Errno::EINVAL),
        };
        let recv_cq = asked.recv_cq.filter(|_| !initiator);
        let cq = |handle| state.get::<cq::Cq>(handle).map(|cq| (cq.number, cq.cqe_size));
        Ok(Self {
            pd,
            send_cq,
            recv_cq,
            pdn: state.get::<Pd>(pd)?.number,
            send: cq(send_cq)?,
            receive: recv_cq.map(cq).transpose()?,
            srqn: srq.map(|srq| srq.number),
        })
    }

    /// A queue pair in RESET that uses them, without memory and events.
    fn queue_pair(&self, number: u32, uid: u16, kind: Kind, asked: &Asked) -> Qp {
        Qp {
            number,
            uid,
            kind,
            pd: Some(self.pd),
            send_cq: Some(self.send_cq),
            recv_cq: self.recv_cq,
            srq: None,
            xrcd: None,
            raw: None,
            table: None,
            state: super::qp_modify::RESET,
            port: 0,
            access: 0,
            depth: 0,
            signal_all: asked.flags & SIGNAL_ALL != 0,
            target: None,
            receive: (0, 0),
            groups: Vec::new(),
            sender: None,
            events: None,
            _buffer: None,
            _record: None,
        }
    }
}

/// The receive queue of a queue pair, which is in front of the send queue in their memory.
#[derive(Clone, Copy)]
pub(crate) struct Receives {
    /// WQEs; 0 if it has none of its own.
    pub wqes: u32,
    /// Base 2 logarithm of the bytes of a WQE; 0 if it has none.
    pub shift: u32,
}

impl Receives {
    /// The sizes that a request gives, unchecked.
    pub fn of(kind: Kind, asked: &Asked, given: &CreateQpDriver) -> Self {
        let own = asked.srq.is_none() && !matches!(kind, Kind::XrcInitiator | Kind::DcInitiator);
        // Without receives the stride means nothing.
        let (wqes, shift) = match (asked.cap.max_recv_wr, given.rq_wqe_count) {
            (0, _) | (_, 0) => (0, 0),
            _ if !own => (0, 0),
            (_, count) => (count, given.rq_wqe_shift),
        };
        Self { wqes, shift }
    }

    /// Segments of a WQE.
    fn segments(self) -> u32 {
        if self.wqes == 0 { 0 } else { 1 << (self.shift - 4) }
    }
}

/// Checks the sizes of both queues. Returns the receive queue's.
fn receives(caps: &Caps, kind: Kind, asked: &Asked, given: &CreateQpDriver) -> Result<Receives> {
    let most = caps.power(cmd_hca_cap::LOG_MAX_QP_SZ);
    if asked.cap.max_recv_wr > most || given.sq_wqe_count > most {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_create_qp refused: max_recv_wr is {}, the send queue has {} blocks, and max_qp_wr of the \
             device is {most}",
            asked.cap.max_recv_wr, given.sq_wqe_count
        )));
    }
    let Receives { wqes, shift } = Receives::of(kind, asked, given);
    // Linux (`qp.c`, create_user_qp) compares the library's number with its own, which is 0 for a
    // queue pair without a receive queue.
    if wqes == 0 && given.rq_wqe_count != 0 {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_create_qp refused: a queue pair with an SRQ, or of this qp_type, has no receives of its own, \
             and this one has room for {}; max_recv_wr and max_recv_sge have to be 0",
            given.rq_wqe_count
        )));
    }
    let powers = [given.sq_wqe_count, wqes];
    if powers.iter().any(|count| *count != 0 && !count.is_power_of_two())
        || (wqes != 0 && !(4..=11).contains(&shift))
        || wqes > most
    {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_create_qp refused: the device has no queue of {wqes} receives of 2^{shift} bytes, or no \
             queue of {} blocks of sends",
            given.sq_wqe_count
        )));
    }
    Ok(Receives { wqes, shift })
}

/// Makes a raw packet queue pair.
fn make_raw(
    file: &CommandFile,
    state: &mut State,
    asked: &Asked,
    given: &CreateQpDriver,
    parents: &Parents,
    receives: Receives,
) -> Result<(u32, u32, CreateQpDriverReply)> {
    let uar = (given.flags & flag::UAR_PAGE_INDEX != 0).then_some(given.bfreg_index);
    uar.map(|uar| uar::check(state, uar)).transpose()?;
    if given.uidx & !0xff_ffff != 0 || parents.srqn.is_some() {
        return Err(Errno::EINVAL);
    }
    let uid = state.context()?.uid;
    let parts = raw::Parts {
        given,
        uid,
        domain: state.context()?.domain,
        pdn: parents.pdn,
        uar,
        send_cq: Some(state.get::<cq::Cq>(parents.send_cq)?),
        recv_cq: parents.recv_cq.map(|cq| state.get::<cq::Cq>(cq)).transpose()?,
        receives: (receives.wqes, receives.shift),
        strips: asked.flags & STRIPS != 0,
    };
    let (raw, number, reply) = raw::make(file, &parts)?;
    let handle = state.enter(Qp {
        raw: Some(raw),
        receive: (receives.wqes, receives.segments()),
        ..parents.queue_pair(number, uid, Kind::RawPacket, asked)
    });
    Ok((handle, number, CreateQpDriverReply { bfreg_index: NO_REGISTER, ..reply }))
}

/// Sets the fields of the context that do not depend on memory.
pub(crate) fn describe(
    context: &mut impl FnMut(Field, u64),
    kind: Kind,
    asked: &Asked,
    given: &CreateQpDriver,
    parents: &Parents,
    receives: Receives,
) {
    /// Path migration state: migrated.
    const MIGRATED: u64 = 3;
    /// `MLX5_SRQ_RQ`
    const SHARED_RECEIVES: u64 = 1;
    /// `MLX5_ZERO_LEN_RQ`
    const NO_RECEIVES: u64 = 3;

    context(qpc::ST, kind.service());
    context(qpc::PM_STATE, MIGRATED);
    context(qpc::PD, u64::from(parents.pdn));
    context(qpc::UAR_PAGE, u64::from(given.bfreg_index));
    context(qpc::USER_INDEX, u64::from(given.uidx));
    context(qpc::CQN_SND, u64::from(parents.send.0));
    context(qpc::CQN_RCV, parents.receive.map_or(0, |(number, _)| u64::from(number)));
    context(qpc::LATENCY_SENSITIVE, 1);
    context(qpc::WQ_SIGNATURE, u64::from(given.flags & flag::SIGNATURE != 0));
    context(qpc::BLOCK_LB_MC, u64::from(asked.flags & BLOCK_LOOPBACK != 0));
    if let Some(srqn) = parents.srqn {
        context(qpc::RQ_TYPE, SHARED_RECEIVES);
        context(qpc::SRQN_RMPN_XRQN, u64::from(srqn));
    } else if receives.wqes == 0 {
        context(qpc::RQ_TYPE, NO_RECEIVES);
    } else {
        context(qpc::LOG_RQ_STRIDE, u64::from(receives.shift - 4));
        context(qpc::LOG_RQ_SIZE, u64::from(receives.wqes.ilog2()));
    }
    if given.flags & flag::DCI_STREAM != 0 {
        let [channels, errored] = given.dci_streams.map(u64::from);
        context(qpc::LOG_NUM_DCI_STREAM_CHANNELS, channels);
        context(qpc::LOG_NUM_DCI_ERRORED_STREAMS, errored);
    }
    if given.sq_wqe_count == 0 {
        context(qpc::NO_SQ, 1);
    } else {
        context(qpc::LOG_SQ_SIZE, u64::from(given.sq_wqe_count.ilog2()));
    }
}

/// Sets the fields that put payload into CQEs, where the program asks for that and the device can.
fn scatter(
    context: &mut impl FnMut(Field, u64),
    caps: &Caps,
    kind: Kind,
    asked: &Asked,
    given: &CreateQpDriver,
    parents: &Parents,
) {
    let offered = match kind {
        Kind::Rc | Kind::Uc => caps.has(cmd_hca_cap::SCTR_DATA_CQE),
        Kind::DcInitiator => caps.has(cmd_hca_cap::DC_REQ_SCAT_DATA_CQE),
        _ => false,
    };
    if !offered {
        return;
    }
    // MLX5_RES_SCAT_DATA64_CQE, _DATA32_CQE
    if kind != Kind::DcInitiator {
        let wide = parents.receive.is_some_and(|(_, cqe_size)| cqe_size == 128);
        context(qpc::CS_RES, if wide { 2 } else { 1 });
    }
    let answers = kind != Kind::Uc;
    let wanted = asked.flags & SIGNAL_ALL != 0 || given.flags & flag::ALLOW_SCATTER_CQE != 0;
    if answers && wanted {
        // MLX5_REQ_SCAT_DATA64_CQE, _DATA32_CQE
        context(qpc::CS_REQ, if parents.send.1 == 128 { 0x22 } else { 0x11 });
    }
}

impl Object for Qp {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        let used = [self.pd, self.send_cq, self.recv_cq, self.srq, self.xrcd, self.table];
        used.into_iter().flatten().for_each(each);
    }

    fn turn(&self) -> Turn {
        Turn::QueuePairs
    }

    /// Refuses to while the queue pair is in multicast groups.
    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        if !self.groups.is_empty() {
            return Err(Errno::EBUSY.because(format_args!(
                "ibv_destroy_qp of {:#x} refused: it is attached to multicast groups, {} of them",
                self.number,
                self.groups.len()
            )));
        }
        let function = file.function();
        if self.kind == Kind::DcTarget {
            dct::destroy(function, self)?;
        } else if let Some(raw) = &self.raw {
            raw::destroy(file, raw)?;
        } else {
            let (input, output) = (destroy_qp_in::SIZE, destroy_qp_out::SIZE);
            let mut command = Command::new(opcode::DESTROY_QP, input, output);
            command.set(destroy_qp_in::UID, self.uid);
            command.set(destroy_qp_in::QPN, self.number);
            function.run(command)?;
            lock(function.listeners()).qps.remove(&self.number);
        }
        let read = self.events.as_ref().map_or(0, |(queue, id)| queue.retract(*id));
        Ok(read.to_ne_bytes().to_vec())
    }

    fn close(&mut self, file: &CommandFile, uid: u16) -> Result<()> {
        multicast::leave(file, self);
        self.destroy(file, uid).map(drop)
    }
}
