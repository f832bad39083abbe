//! Queue pairs: state transitions.

use mlx5_sys::ifc::{
    Field, ads, cmd_hca_cap, opcode, opt_param, qpc, rst2init_qp_in, rst2init_qp_out, sqd2rts_qp_in,
};
use zerocopy::IntoBytes;

use super::super::driver::command::Command;
use super::super::driver::rates::Asked as Rate;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{ModifyQp, ModifyQpDriver, ModifyQpDriverReply, QpDestination};
use super::super::request::legacy::Request;
use super::cq::Cq;
use super::dct;
use super::file::CommandFile;
use super::path::{self, Sender};
use super::pd::Pd;
use super::qp::{Kind, Qp};
use crate::card::Link;
use crate::work::LOG_MAX_ATOMIC;

/// States (`enum ib_qp_state`).
pub(crate) const RESET: u8 = 0;
pub(super) const INIT: u8 = 1;
pub(super) const RTR: u8 = 2;
pub(super) const RTS: u8 = 3;
const SQD: u8 = 4;
const SQE: u8 = 5;
pub(super) const ERR: u8 = 6;

pub(crate) mod mask;

use mask::{
    ACCESS_FLAGS, ALT_PATH, AV, CUR_STATE, DEST_QPN, EN_SQD_ASYNC_NOTIFY, MAX_DEST_RD_ATOMIC,
    MAX_QP_RD_ATOMIC, MIN_RNR_TIMER, PATH_MIG_STATE, PATH_MTU, PKEY_INDEX, PORT, QKEY, RETRY_CNT,
    RNR_RETRY, RQ_PSN, SQ_PSN, STATE, TIMEOUT,
};

/// Returns the attributes that may be given without effect: they are of the side that the queue
/// pair does not have.
fn ignored(kind: Kind) -> u32 {
    match kind {
        Kind::XrcInitiator => MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER,
        Kind::XrcTarget => MAX_QP_RD_ATOMIC | RETRY_CNT | RNR_RETRY,
        Kind::Rc | Kind::Uc | Kind::Ud | Kind::RawPacket => 0,
        Kind::DcInitiator | Kind::DcTarget => 0,
    }
}

/// Returns the attributes that a transition requires and the ones it allows besides, by the
/// InfiniBand specification's table of queue pair states (10.3.1). `None` if there is no such
/// transition.
fn transition(kind: Kind, from: u8, to: u8) -> Option<(u32, u32)> {
    if kind == Kind::DcInitiator {
        return initiator(from, to);
    }
    let by = |rc: u32, uc: u32, ud: u32| match kind {
        Kind::Rc => rc,
        Kind::Uc => uc,
        Kind::Ud => ud,
        Kind::XrcInitiator | Kind::XrcTarget => rc & !ignored(kind),
        Kind::DcInitiator | Kind::DcTarget => 0,
        // Only where it is attached to matters.
        Kind::RawPacket if (from, to) == (RESET, INIT) => PORT,
        Kind::RawPacket => 0,
    };
    let connected = ACCESS_FLAGS | ALT_PATH | PATH_MIG_STATE;
    // Their queues do not drain.
    if kind == Kind::RawPacket && (from == SQD || to == SQD) {
        return None;
    }
    Some(match (from, to) {
        (RESET..=ERR, RESET | ERR) => (0, 0),
        (RESET, INIT) => {
            let known = PKEY_INDEX | PORT;
            (by(known | ACCESS_FLAGS, known | ACCESS_FLAGS, known | QKEY), 0)
        }
        (INIT, INIT) => {
            let known = PKEY_INDEX | PORT;
            (0, by(known | ACCESS_FLAGS, known | ACCESS_FLAGS, known | QKEY))
        }
        (INIT, RTR) => {
            let unreliable = AV | PATH_MTU | DEST_QPN | RQ_PSN;
            let also = ALT_PATH | ACCESS_FLAGS | PKEY_INDEX;
            (
                by(unreliable | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER, unreliable, 0),
                by(also, also, PKEY_INDEX | QKEY),
            )
        }
        (RTR, RTS) => {
            let reliable = TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC;
            (
                by(reliable, SQ_PSN, SQ_PSN),
                by(CUR_STATE | connected | MIN_RNR_TIMER, CUR_STATE | connected, CUR_STATE | QKEY),
            )
        }
        (RTS | SQD, RTS) => {
            (0, by(CUR_STATE | connected | MIN_RNR_TIMER, CUR_STATE | connected, CUR_STATE | QKEY))
        }
        (RTS, SQD) => (0, EN_SQD_ASYNC_NOTIFY),
        (SQD, SQD) => {
            let path = AV | connected | PKEY_INDEX;
            let timing = TIMEOUT | RETRY_CNT | RNR_RETRY | MIN_RNR_TIMER;
            (
                0,
                by(
                    PORT | path | timing | MAX_QP_RD_ATOMIC | MAX_DEST_RD_ATOMIC,
                    path,
                    PKEY_INDEX | QKEY,
                ),
            )
        }
        (SQE, RTS) if matches!(kind, Kind::Uc | Kind::Ud) => {
            (0, by(0, CUR_STATE | ACCESS_FLAGS, CUR_STATE | QKEY))
        }
        _ => return None,
    })
}

/// The same of an initiator of dynamic connections, by the kernel's driver.
fn initiator(from: u8, to: u8) -> Option<(u32, u32)> {
    let known = PKEY_INDEX | PORT;
    Some(match (from, to) {
        (RESET..=ERR, RESET) | (INIT..=ERR, ERR) => (0, 0),
        (RESET, INIT) => (known, 0),
        (INIT, INIT) => (0, known),
        (INIT, RTR) => (PATH_MTU, PKEY_INDEX | AV),
        (RTR, RTS) => (TIMEOUT | RETRY_CNT | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC, MIN_RNR_TIMER),
        (RTS, RTS) => (0, MIN_RNR_TIMER),
        _ => return None,
    })
}

/// The optional parameters that the attributes amount to.
fn options(attributes: u32) -> u32 {
    const REMOTE: u32 = opt_param::RRE | opt_param::RAE | opt_param::RWE;
    let table = [
        (ACCESS_FLAGS, REMOTE),
        (PKEY_INDEX, opt_param::PKEY_INDEX),
        (PORT, opt_param::PRI_PORT),
        (QKEY, opt_param::Q_KEY),
        (AV, opt_param::PRIMARY_ADDR_PATH | opt_param::PRI_PORT),
        (TIMEOUT, opt_param::ACK_TIMEOUT),
        (RETRY_CNT, opt_param::RETRY_COUNT),
        (RNR_RETRY, opt_param::RNR_RETRY),
        (MAX_QP_RD_ATOMIC, opt_param::SRA_MAX),
        (ALT_PATH, opt_param::ALT_ADDR_PATH),
        (MIN_RNR_TIMER, opt_param::RNR_TIMEOUT),
        (MAX_DEST_RD_ATOMIC, opt_param::RRA_MAX | REMOTE),
        (PATH_MIG_STATE, opt_param::PM_STATE),
    ];
    table.iter().filter(|(bit, _)| attributes & bit != 0).fold(0, |all, (_, option)| all | option)
}

/// The optional parameters that the card takes in a transition; others are required there, or have
/// no meaning.
fn allowed(kind: Kind, from: u8, to: u8) -> u32 {
    use mlx5_sys::ifc::opt_param::{
        ALT_ADDR_PATH, PM_STATE, PRI_PORT, Q_KEY, RAE, RNR_TIMEOUT, RRE, RWE,
    };
    let pkey = opt_param::PKEY_INDEX;
    let pick = |rc: u32, uc: u32, ud: u32| match kind {
        Kind::Rc | Kind::XrcInitiator | Kind::XrcTarget => rc,
        Kind::Uc => uc,
        // None of what the others may change is theirs, but for these.
        Kind::DcInitiator => rc & (pkey | PRI_PORT | RNR_TIMEOUT),
        Kind::DcTarget => 0,
        Kind::Ud | Kind::RawPacket => ud,
    };
    let reliable = RRE | RAE | RWE;
    match (from, to) {
        (INIT, INIT) => {
            pick(reliable | pkey | PRI_PORT, RWE | pkey | PRI_PORT, pkey | Q_KEY | PRI_PORT)
        }
        (INIT, RTR) => {
            pick(ALT_ADDR_PATH | reliable | pkey, ALT_ADDR_PATH | RWE | pkey, pkey | Q_KEY)
        }
        (RTR, RTS) | (RTS, RTS) => pick(
            ALT_ADDR_PATH | reliable | PM_STATE | RNR_TIMEOUT,
            ALT_ADDR_PATH | RWE | PM_STATE,
            Q_KEY,
        ),
        (SQD | SQE, RTS) => pick(RNR_TIMEOUT | reliable, RWE, Q_KEY),
        _ => 0,
    }
}

/// The card's command for a transition.
pub(crate) fn command(from: u8, to: u8) -> Option<u16> {
    Some(match (from, to) {
        (_, RESET) => opcode::QP_2RST,
        (_, ERR) => opcode::QP_2ERR,
        (RESET, INIT) => opcode::RST2INIT_QP,
        (INIT, INIT) => opcode::INIT2INIT_QP,
        (INIT, RTR) => opcode::INIT2RTR_QP,
        (RTR, RTS) => opcode::RTR2RTS_QP,
        (RTS, RTS) => opcode::RTS2RTS_QP,
        (SQD, RTS) => opcode::SQD_RTS_QP,
        (SQE, RTS) => opcode::SQERR2RTS_QP,
        _ => return None,
    })
}

/// `MODIFY_QP`, legacy.
pub(crate) fn modify(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: ModifyQp = user::whole(&request.core)?;
    if asked.attr_mask & !mask::LEGACY != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let driver = user::lenient(&request.driver);
    change(file, &asked, &driver, 0).map(|_| ())
}

/// `MODIFY_QP`, extended.
pub(crate) fn modify_extended(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: ModifyQp = user::whole(&request.core)?;
    if asked.attr_mask & !mask::EXTENDED != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let rate = request.core.get(size_of::<ModifyQp>()..).and_then(|rest| rest.first_chunk());
    let rate = rate.map_or(0, |rate| u32::from_ne_bytes(*rate));
    let driver: ModifyQpDriver = user::lenient(&request.driver);
    if driver.comp_mask != 0 || driver.reserved != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let (dctn, ece_options) = change(file, &asked, &driver, rate)?;
    let response_length = request.room().min(8) as u32;
    request.reply_short(&[0u32.to_ne_bytes(), response_length.to_ne_bytes()].concat())?;
    let reply = ModifyQpDriverReply {
        response_length: request.driver_room().min(size_of::<ModifyQpDriverReply>()) as u32,
        dctn,
        ece_options,
        ..Default::default()
    };
    request.reply_driver(reply.as_bytes())
}

/// Refuses attributes that no queue pair can have. Returns the entry of the GID table that the request names.
fn check(file: &CommandFile, qp: &Qp, asked: &ModifyQp, to: u8) -> Result<Option<Sender>> {
    let mut sender = None;
    let caps = &file.function().caps;
    let device = file.function().device;
    let has = |bit: u32| asked.attr_mask & bit != 0;
    let number = qp.number;
    if has(AV) {
        sender = path::check(file, &asked.destination)?;
        if qp.kind.is_connected() {
            path::resolve(file, sender.as_ref(), &asked.destination)?;
        }
        if has(STATE) && to == RTR && qp.port != 0 && asked.destination.port_num != qp.port {
            return Err(Errno::EINVAL.because(format_args!(
                "ibv_modify_qp of {:#x} refused: ah_attr.port_num is {}, and INIT chose port {}",
                qp.number, asked.destination.port_num, qp.port
            )));
        }
    }
    if has(ALT_PATH) {
        let mut alternate = asked.alternate;
        alternate.port_num = asked.alt_port_num;
        path::check(file, &alternate)?;
        // Linux keeps alternate paths to InfiniBand.
        if device.link == Link::Roce {
            return Err(Errno::EINVAL.because(format_args!(
                "ibv_modify_qp of {number:#x} refused: alternate paths exist on InfiniBand alone"
            )));
        }
        let (pkey, keys) = (asked.alt_pkey_index, device.pkey_table_size());
        if usize::from(pkey) >= keys || asked.alt_timeout > 31 {
            return Err(Errno::EINVAL.because(format_args!(
                "ibv_modify_qp of {number:#x} refused: alt_pkey_index is {pkey} of {keys}, and alt_timeout {} of 0 \
                 to 31",
                asked.alt_timeout
            )));
        }
    }
    let power = |cap: Field| caps.power(cap);
    let (initiated, answered) =
        (power(cmd_hca_cap::LOG_MAX_RA_RES_QP), power(cmd_hca_cap::LOG_MAX_RA_REQ_QP));
    let mtu = if qp.kind == Kind::Ud { 1 } else { asked.path_mtu.into() };
    let limits = [
        (PORT, "port_num", asked.port_num.into(), (1, 1)),
        (
            PKEY_INDEX,
            "pkey_index",
            asked.pkey_index.into(),
            (0, device.pkey_table_size() as u32 - 1),
        ),
        (MAX_QP_RD_ATOMIC, "max_rd_atomic", asked.max_rd_atomic.into(), (0, initiated)),
        (MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", asked.max_dest_rd_atomic.into(), (0, answered)),
        (PATH_MTU, "path_mtu", mtu, (1, 5)),
        (TIMEOUT, "timeout", asked.timeout.into(), (0, 31)),
        (RETRY_CNT, "retry_cnt", asked.retry_cnt.into(), (0, 7)),
        (RNR_RETRY, "rnr_retry", asked.rnr_retry.into(), (0, 7)),
        (MIN_RNR_TIMER, "min_rnr_timer", asked.min_rnr_timer.into(), (0, 31)),
        (PATH_MIG_STATE, "path_mig_state", asked.path_mig_state.into(), (0, 2)),
        (DEST_QPN, "dest_qp_num", asked.dest_qp_num, (0, 0xff_ffff)),
    ];
    for (bit, name, value, (least, most)) in limits {
        if has(bit) && !(least..=most).contains(&value) {
            return Err(Errno::EINVAL.because(format_args!(
                "ibv_modify_qp of {number:#x} refused: {name} is {value}, and may be {least} to {most}"
            )));
        }
    }
    if has(mask::CAP) {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_modify_qp of {number:#x} refused: sizes of a queue pair do not change"
        )));
    }
    Ok(sender)
}

/// Returns the rate that a request sets; one of no kbit/s removes the limit.
fn rate(asked: &ModifyQp, driver: &ModifyQpDriver, kbps: u32) -> Option<Rate> {
    let rate = Rate { kbps, burst: driver.max_burst_sz, packet: driver.typical_pkt_sz };
    (asked.attr_mask & mask::RATE_LIMIT != 0).then_some(rate)
}

/// The name of a state, an `enum ibv_qp_state`.
fn state_name(state: u8) -> &'static str {
    const NAMES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];
    NAMES.get(usize::from(state)).copied().unwrap_or("a state that does not exist")
}

/// Changes a queue pair. Gives the number of a target of dynamic connections that has just been
/// made, and the ECE options that the card agreed to.
fn change(
    file: &CommandFile,
    asked: &ModifyQp,
    driver: &ModifyQpDriver,
    kbps: u32,
) -> Result<(u32, u32)> {
    let function = file.function();
    let mut state = file.state();
    state.context()?;
    let qp = state.get::<Qp>(asked.qp_handle)?;
    if qp.kind == Kind::DcTarget {
        return dct::modify(file, &mut state, asked);
    }
    let asked = &ModifyQp { attr_mask: asked.attr_mask & !ignored(qp.kind), ..*asked };
    let has = |bit: u32| asked.attr_mask & bit != 0;
    let from = if has(CUR_STATE) { asked.cur_qp_state } else { qp.state };
    let to = if has(STATE) { asked.qp_state } else { from };
    if has(CUR_STATE) && !matches!(from, RTR | RTS | SQD | SQE) {
        return Err(Errno::EINVAL.because(format_args!(
            "ibv_modify_qp of {:#x} refused: cur_qp_state is {}, and may be RTR, RTS, SQD or SQE",
            qp.number,
            state_name(from)
        )));
    }
    let moves = || {
        let number = qp.number;
        format!(
            "ibv_modify_qp of {number:#x} from {} to {} refused",
            state_name(from),
            state_name(to)
        )
    };
    let (needed, mut besides) = transition(qp.kind, from, to).ok_or_else(|| {
        Errno::EINVAL.because(format_args!("{}: no queue pair of its type may do it", moves()))
    })?;
    // Linux limits the rates of raw packet queues alone.
    if qp.kind == Kind::RawPacket && matches!((from, to), (RTR | RTS, RTS)) {
        besides |= mask::RATE_LIMIT;
    } else if has(mask::RATE_LIMIT) {
        return Err(Errno::EOPNOTSUPP.because(format_args!(
            "{}: IBV_QP_RATE_LIMIT is for raw packet queue pairs in RTS",
            moves()
        )));
    }
    let (missing, extra) =
        (needed & !asked.attr_mask, asked.attr_mask & !(needed | besides | STATE));
    if missing != 0 || extra != 0 {
        let lacks = (missing != 0).then(|| format!("lacks {}", mask::names(missing)));
        let has =
            (extra != 0).then(|| format!("has {}, which it does not take", mask::names(extra)));
        let both: Vec<String> = lacks.into_iter().chain(has).collect();
        return Err(Errno::EINVAL.because(format_args!(
            "{}: attr_mask {}",
            moves(),
            both.join(", and ")
        )));
    }
    let sender = check(file, qp, asked, to)?;
    if from == RESET && to == RESET {
        return Ok((0, 0));
    }
    if qp.raw.is_some() {
        let qp = state.get_mut::<Qp>(asked.qp_handle)?;
        if let Some(raw) = &mut qp.raw {
            raw.modify(file, (from, to), rate(asked, driver, kbps))?;
        }
        qp.state = to;
        if has(PORT) {
            qp.port = asked.port_num;
        }
        return Ok((0, 0));
    }
    let opcode = command(from, to).ok_or(Errno::EINVAL)?;

    // Every command of a transition is laid out like the first.
    let mut command = Command::new(opcode, rst2init_qp_in::SIZE, rst2init_qp_out::SIZE);
    command.set(rst2init_qp_in::UID, qp.uid);
    command.set(rst2init_qp_in::QPN, qp.number);
    command
        .set(rst2init_qp_in::OPT_PARAM_MASK, options(asked.attr_mask) & allowed(qp.kind, from, to));
    if opcode != opcode::SQERR2RTS_QP && opcode != opcode::SQD_RTS_QP {
        command.set(rst2init_qp_in::ECE, driver.ece_options);
    }
    let pdn = qp.pd.map_or(Ok(0), |pd| state.get::<Pd>(pd).map(|pd| pd.number))?;
    let number = |cq: Option<u32>| cq.map_or(Ok(0), |cq| state.get::<Cq>(cq).map(|cq| cq.number));
    let (send, receive) = (number(qp.send_cq)?, number(qp.recv_cq)?);
    let context = &mut command.bytes()[rst2init_qp_in::QPC.bytes()];
    let set = |context: &mut [u8], field: Field, value: u64| field.set(context, value);
    set(context, qpc::PD, u64::from(pdn));
    set(context, qpc::CQN_SND, u64::from(send));
    set(context, qpc::CQN_RCV, u64::from(receive));
    let present = Present {
        kind: qp.kind,
        access: qp.access,
        depth: qp.depth,
        link: function.device.link,
        mac: path::mac_of(file, sender.as_ref(), &asked.destination),
        log_max_msg: function.caps.get(cmd_hca_cap::LOG_MAX_MSG),
    };
    attributes(context, &present, asked);
    if (from, to) == (RESET, INIT) {
        set(context, qpc::COUNTER_SET_ID, u64::from(function.counters));
    }
    let answer = function.run(command)?;

    let qp = state.get_mut::<Qp>(asked.qp_handle)?;
    qp.state = to;
    if has(ACCESS_FLAGS) {
        qp.access = asked.qp_access_flags;
    }
    if has(MAX_DEST_RD_ATOMIC) {
        qp.depth = asked.max_dest_rd_atomic;
    }
    if has(PORT) {
        qp.port = asked.port_num;
    }
    if has(AV) {
        qp.sender = sender;
    }
    Ok((0, rst2init_qp_out::ECE.get(&answer) as u32))
}

/// The state on which a context's attributes depend, besides a request.
pub(crate) struct Present {
    pub kind: Kind,
    /// Access flags as last set, and how deep the responder was made.
    pub access: u32,
    pub depth: u8,
    pub link: Link,
    /// The Ethernet address of the peer's port, on RoCE.
    pub mac: [u8; 6],
    pub log_max_msg: u32,
}

/// Fills a queue pair's context with the attributes that are given.
pub(crate) fn attributes(context: &mut [u8], qp: &Present, asked: &ModifyQp) {
    /// A request that wants an acknowledgement comes at least so often: every 2^8 packets.
    const ACK_FREQUENCY: u64 = 8;
    const PRIMARY: Field = qpc::PRIMARY_ADDRESS_PATH;
    const ALTERNATE: Field = qpc::SECONDARY_ADDRESS_PATH;

    let link = qp.link;
    let has = |bit: u32| asked.attr_mask & bit != 0;
    let mut set = |field: Field, value: u64| field.set(context, value);
    set(qpc::ST, qp.kind.service());
    let migration = match asked.path_mig_state {
        _ if !has(PATH_MIG_STATE) => 3,
        // Migrated, rearm, armed.
        0 => 3,
        1 => 1,
        _ => 0,
    };
    set(qpc::PM_STATE, migration);
    if qp.kind == Kind::Ud {
        // 4096, and as much in a message.
        set(qpc::MTU, 5);
        set(qpc::LOG_MSG_MAX, 12);
    } else if has(PATH_MTU) {
        set(qpc::MTU, u64::from(asked.path_mtu));
        set(qpc::LOG_MSG_MAX, u64::from(qp.log_max_msg));
    }
    if has(DEST_QPN) {
        set(qpc::REMOTE_QPN, u64::from(asked.dest_qp_num));
    }
    if has(PORT) {
        set(ads::VHCA_PORT_NUM.within(PRIMARY), u64::from(asked.port_num));
    }
    if has(PKEY_INDEX) {
        set(ads::PKEY_INDEX.within(PRIMARY), u64::from(asked.pkey_index));
    }
    if has(TIMEOUT) {
        set(ads::ACK_TIMEOUT.within(PRIMARY), u64::from(asked.timeout));
    }
    set(qpc::LOG_ACK_REQ_FREQ, ACK_FREQUENCY);
    if has(RNR_RETRY) {
        set(qpc::RNR_RETRY, u64::from(asked.rnr_retry));
    }
    if has(RETRY_CNT) {
        set(qpc::RETRY_COUNT, u64::from(asked.retry_cnt));
    }
    let log = |depth: u8| u64::from(depth.max(1).next_power_of_two().ilog2());
    if has(MAX_QP_RD_ATOMIC) {
        set(qpc::LOG_SRA_MAX, log(asked.max_rd_atomic));
    }
    if has(SQ_PSN) {
        set(qpc::NEXT_SEND_PSN, u64::from(asked.sq_psn & 0xff_ffff));
    }
    if has(MAX_DEST_RD_ATOMIC) {
        set(qpc::LOG_RRA_MAX, log(asked.max_dest_rd_atomic));
    }
    if has(ACCESS_FLAGS) || has(MAX_DEST_RD_ATOMIC) {
        /// Remote write, read, atomic (`ib_uverbs_access_flags`).
        const RIGHTS: [u32; 3] = [1 << 1, 1 << 2, 1 << 3];
        let mut access = if has(ACCESS_FLAGS) { asked.qp_access_flags } else { qp.access };
        let depth = if has(MAX_DEST_RD_ATOMIC) { asked.max_dest_rd_atomic } else { qp.depth };
        if depth == 0 {
            access &= RIGHTS[0];
        }
        let [write, read, atomic] = RIGHTS.map(|right| u64::from(access & right != 0));
        set(qpc::RWE, write);
        set(qpc::RRE, read);
        set(qpc::RAE, atomic);
        // Linux (`qp.c`, `atomic_size_to_mode`) allows the largest atomic that the card has.
        set(qpc::ATOMIC_MODE, atomic * u64::from(LOG_MAX_ATOMIC));
    }
    if has(MIN_RNR_TIMER) {
        set(qpc::MIN_RNR_NAK, u64::from(asked.min_rnr_timer));
    }
    if has(RQ_PSN) {
        set(qpc::NEXT_RCV_PSN, u64::from(asked.rq_psn & 0xff_ffff));
    }
    if has(QKEY) {
        set(qpc::Q_KEY, u64::from(asked.qkey));
    }
    if has(AV) {
        path::encode(context, PRIMARY, link, qp.mac, &asked.destination);
    }
    if has(ALT_PATH) {
        let alternate = QpDestination { port_num: asked.alt_port_num, ..asked.alternate };
        path::encode(context, ALTERNATE, link, qp.mac, &alternate);
        let mut set = |field: Field, value: u64| field.within(ALTERNATE).set(context, value);
        set(ads::PKEY_INDEX, u64::from(asked.alt_pkey_index));
        set(ads::ACK_TIMEOUT, u64::from(asked.alt_timeout));
    }
}

// Commands of transitions differ in their names alone.
const _: () = assert!(sqd2rts_qp_in::SIZE == rst2init_qp_in::SIZE);

#[cfg(test)]
mod tests;
