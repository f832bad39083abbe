//! DCTs, the targets of dynamic connections. For verbs a DCT is a queue pair of the driver's own
//! type. For the device it is an object of its own, created when the queue pair becomes ready to
//! receive.

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_dct_in, create_dct_out, dctc, destroy_dct_in, destroy_dct_out,
    drain_dct_in, drain_dct_out, opcode, query_dct_in, query_dct_out,
};

use super::super::driver::command::Command;
use super::super::driver::function::Function;
use super::super::process::errno::{Errno, Result};
use super::super::request::abi::{Cap, CreateQpDriver, ModifyQp, QpDestination, QueryQpReply};
use super::cq::Cq;
use super::file::{CommandFile, State};
use super::path;
use super::pd::Pd;
use super::qp::{Asked, Qp, flag};
use super::qp_modify::{INIT, RESET, RTR, mask};
use super::srq::Srq;
use crate::card::Link;
use crate::work::LOG_MAX_ATOMIC;

/// The context of a target as far as it is known.
pub(crate) struct Target {
    context: [u8; dctc::SIZE],
}

impl Target {
    fn set(&mut self, field: Field, value: impl Into<u64>) {
        field.set(&mut self.context, value.into());
    }
}

/// Collects the parameters that are known when a target is made.
pub(super) fn prepare(state: &State, asked: &Asked, given: &CreateQpDriver) -> Result<Target> {
    let (Some(pd), Some(cq), Some(srq)) = (asked.pd, asked.recv_cq, asked.srq) else {
        return Err(Errno::EINVAL);
    };
    let srq = state.get::<Srq>(srq)?;
    if srq.xrcd.is_some()
        || given.uidx & !0xff_ffff != 0
        || given.flags & !(flag::TYPE_DCT | flag::SCATTER_CQE) != 0
    {
        return Err(Errno::EINVAL);
    }
    let cq = state.get::<Cq>(cq)?;
    let mut target = Target { context: [0; dctc::SIZE] };
    target.set(dctc::PD, state.get::<Pd>(pd)?.number);
    target.set(dctc::CQN, cq.number);
    target.set(dctc::SRQN_XRQN, srq.number);
    target.set(dctc::USER_INDEX, given.uidx);
    // The key shares its place with the address of a raw packet queue.
    target.set(dctc::DC_ACCESS_KEY, given.sq_buf_addr);
    target.set(dctc::ECE, given.ece_options);
    if given.flags & flag::SCATTER_CQE != 0 && cq.cqe_size == 128 {
        // MLX5_RES_SCAT_DATA64_CQE
        target.set(dctc::CS_RES, 2u32);
    }
    Ok(target)
}

/// Moves a target from state to state. Gives its number, once it has one, and the ECE options.
pub(super) fn modify(
    file: &CommandFile,
    state: &mut State,
    asked: &ModifyQp,
) -> Result<(u32, u32)> {
    use mask::{ACCESS_FLAGS, AV, MIN_RNR_TIMER, PATH_MTU, PKEY_INDEX, PORT, STATE};
    /// Remote write, read, atomic (`ib_uverbs_access_flags`).
    const RIGHTS: [(u32, Field); 3] =
        [(1 << 1, dctc::RWE), (1 << 2, dctc::RRE), (1 << 3, dctc::RAE)];
    let function = file.function();
    let qp = state.get_mut::<Qp>(asked.qp_handle)?;
    let (from, uid) = (qp.state, qp.uid);
    let target = qp.target.as_mut().ok_or(Errno::EINVAL)?;
    let (needed, to) = match (from, asked.qp_state) {
        (RESET, INIT) => (STATE | ACCESS_FLAGS | PKEY_INDEX | PORT, INIT),
        (INIT, RTR) => (STATE | MIN_RNR_TIMER | AV | PATH_MTU, RTR),
        _ => return Err(Errno::EINVAL),
    };
    if asked.attr_mask != needed {
        return Err(Errno::EINVAL);
    }
    let mut numbers = (0, 0);
    if to == INIT {
        let device = function.device;
        if asked.port_num != 1 || usize::from(asked.pkey_index) >= device.pkey_table_size() {
            return Err(Errno::EINVAL);
        }
        for (right, field) in RIGHTS {
            target.set(field, u64::from(asked.qp_access_flags & right != 0));
        }
        // Linux (`qp.c`, `atomic_size_to_mode`) allows the largest atomic that the card has.
        let atomics = asked.qp_access_flags & RIGHTS[2].0 != 0;
        if atomics && !function.caps.has(cmd_hca_cap::ATOMIC) {
            return Err(Errno::EOPNOTSUPP);
        }
        target.set(dctc::ATOMIC_MODE, u64::from(atomics) * u64::from(LOG_MAX_ATOMIC));
        target.set(dctc::PORT, asked.port_num);
        target.set(dctc::PKEY_INDEX, asked.pkey_index);
        qp.port = asked.port_num;
    } else {
        qp.sender = path::check(file, &asked.destination)?;
        if !(1..=5).contains(&asked.path_mtu) || asked.min_rnr_timer > 31 {
            return Err(Errno::EINVAL);
        }
        let path = &asked.destination;
        target.set(dctc::MIN_RNR_NAK, asked.min_rnr_timer);
        target.set(dctc::MTU, asked.path_mtu);
        target.set(dctc::TCLASS, path.traffic_class);
        target.set(dctc::FLOW_LABEL, path.flow_label & 0xf_ffff);
        target.set(dctc::MY_ADDR_INDEX, path.sgid_index);
        target.set(dctc::HOP_LIMIT, path.hop_limit);
        if function.device.link == Link::Roce {
            target.set(dctc::ETH_PRIO, path.sl & 7);
        }
        let mut command =
            Command::new(opcode::CREATE_DCT, create_dct_in::SIZE, create_dct_out::SIZE);
        command.set(create_dct_in::UID, uid);
        command.bytes()[create_dct_in::DCT_CONTEXT_ENTRY.bytes()].copy_from_slice(&target.context);
        let answer = function.run(command)?;
        qp.number = create_dct_out::DCTN.get(&answer) as u32;
        numbers = (qp.number, create_dct_out::ECE.get(&answer) as u32);
    }
    qp.state = to;
    Ok(numbers)
}

/// Queries the device for a target, which must be in RTR.
pub(super) fn query(function: &Function, qp: &Qp, asked: u32) -> Result<QueryQpReply> {
    use mask::{ACCESS_FLAGS, AV, MIN_RNR_TIMER, PATH_MTU, PKEY_INDEX, PORT, STATE};
    let known = STATE | ACCESS_FLAGS | PORT | MIN_RNR_TIMER | AV | PATH_MTU | PKEY_INDEX;
    if asked & !known != 0 || qp.state != RTR {
        return Err(Errno::EINVAL);
    }
    let mut command = Command::new(opcode::QUERY_DCT, query_dct_in::SIZE, query_dct_out::SIZE);
    command.set(query_dct_in::DCTN, qp.number);
    let answer = function.run(command)?;
    let context = &answer[query_dct_out::DCT_CONTEXT_ENTRY.bytes()];
    let get = |field: Field| field.get(context) as u32;
    Ok(QueryQpReply {
        destination: QpDestination {
            traffic_class: get(dctc::TCLASS) as u8,
            flow_label: get(dctc::FLOW_LABEL),
            sgid_index: get(dctc::MY_ADDR_INDEX) as u8,
            hop_limit: get(dctc::HOP_LIMIT) as u8,
            is_global: 1,
            port_num: get(dctc::PORT) as u8,
            ..Default::default()
        },
        cap: Cap::default(),
        qp_access_flags: get(dctc::RWE) << 1 | get(dctc::RRE) << 2 | get(dctc::RAE) << 3,
        pkey_index: get(dctc::PKEY_INDEX) as u16,
        qp_state: RTR,
        cur_qp_state: RTR,
        path_mtu: get(dctc::MTU) as u8,
        min_rnr_timer: get(dctc::MIN_RNR_NAK) as u8,
        port_num: get(dctc::PORT) as u8,
        ..Default::default()
    })
}

/// Destroys a target. It is drained first, so it accepts no new connections.
pub(super) fn destroy(function: &Function, qp: &Qp) -> Result<()> {
    if qp.number == 0 {
        return Ok(());
    }
    let mut command = Command::new(opcode::DRAIN_DCT, drain_dct_in::SIZE, drain_dct_out::SIZE);
    command.set(drain_dct_in::UID, qp.uid);
    command.set(drain_dct_in::DCTN, qp.number);
    function.run(command)?;
    // The kernel's driver waits for the event that reports the end of draining. Here a message that
    // has begun is given up, because its sender may be this very thread.
    let mut command =
        Command::new(opcode::DESTROY_DCT, destroy_dct_in::SIZE, destroy_dct_out::SIZE);
    command.set(destroy_dct_in::UID, qp.uid);
    command.set(destroy_dct_in::DCTN, qp.number);
    function.run(command).map(|_| ())
}
