//! Commands that a program gives the card itself.
//!
//! Here is what decides whether a program may give a command, as the kernel decides it, and what is
//! done on objects that verbs made; `object` makes, changes, shows and destroys those that a program
//! makes itself, of the `kinds` in one table; `umem` is memory that such commands name by number; `event` is what tells a program
//! of what happens to them.

pub(super) mod event;
mod kinds;
pub(super) mod object;
pub(super) mod umem;

use mlx5_sys::ifc::{cmd_in, opcode, query_qp_in, query_rmp_in, query_xrc_srq_in};

use super::errno::{Errno, Result};
use super::file::CommandFile;
use super::ioctl::Attributes;
use super::qp::{Kind, Qp};
use super::srq::Srq;
use object::Devx;

/// Shortest reply: status and syndrome.
const SHORTEST: usize = 8;

/// Commands that only ask: what a program may give without making an object.
const GENERAL: &[u16] = &[
    opcode::QUERY_HCA_CAP,
    opcode::QUERY_HCA_VPORT_CONTEXT,
    opcode::QUERY_HCA_VPORT_GID,
    opcode::QUERY_HCA_VPORT_PKEY,
    opcode::QUERY_ROCE_ADDRESS,
    opcode::QUERY_ADAPTER,
    opcode::QUERY_ISSI,
    opcode::NOP,
];

/// Commands that change a queue pair. They name it at the same place.
pub(super) const QP_CHANGES: &[u16] = &[
    opcode::RST2INIT_QP,
    opcode::INIT2INIT_QP,
    opcode::INIT2RTR_QP,
    opcode::RTR2RTS_QP,
    opcode::RTS2RTS_QP,
    opcode::SQD_RTS_QP,
    opcode::SQERR2RTS_QP,
    opcode::QP_2ERR,
    opcode::QP_2RST,
];

/// `DEVX_OBJ_MODIFY` of a queue pair that verbs made, or of an object that the program made.
pub(super) fn modify(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let made = file.state().get::<Devx>(attributes.handle(0x1000)?).is_ok();
    if made {
        return object::modify(file, attributes);
    }
    on_qp(file, attributes, |_, code| QP_CHANGES.contains(&code))
}

/// `DEVX_OBJ_QUERY` of one, of a shared receive queue, or of an object that the program made.
pub(super) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let handle = attributes.handle(0x1000)?;
    if file.state().get::<Devx>(handle).is_ok() {
        return object::query(file, attributes);
    }
    let srq = file.state().get::<Srq>(handle).map(|srq| (srq.xrcd.is_some(), srq.number));
    if let Ok((xrc, number)) = srq {
        return query_srq(file, attributes, xrc, number);
    }
    on_qp(file, attributes, |kind, code| {
        let target = kind == Kind::DcTarget;
        code == if target { opcode::QUERY_DCT } else { opcode::QUERY_QP }
    })
}

/// Has the card show a shared receive queue, if the command asks for that and names it.
fn query_srq(
    file: &CommandFile,
    attributes: &mut Attributes,
    xrc: bool,
    number: u32,
) -> Result<()> {
    let command = attributes.input(0x1001)?;
    let (code, field) = match xrc {
        true => (opcode::QUERY_XRC_SRQ, query_xrc_srq_in::XRC_SRQN),
        false => (opcode::QUERY_RMP, query_rmp_in::RMPN),
    };
    let asks = command.len() >= cmd_in::SIZE && cmd_in::OPCODE.get(&command) == u64::from(code);
    if !asks || command.len() < field.bytes().end || field.get(&command) != u64::from(number) {
        return Err(Errno::EINVAL);
    }
    execute(file, attributes, command, 0x1002)
}

/// Gives the card a command on a queue pair, if the command is one of those and names it.
fn on_qp(
    file: &CommandFile,
    attributes: &mut Attributes,
    may: impl FnOnce(Kind, u16) -> bool,
) -> Result<()> {
    let command = attributes.input(0x1001)?;
    let (kind, number) = {
        let state = file.state();
        let qp = state.get::<Qp>(attributes.handle(0x1000)?)?;
        (qp.kind, qp.number)
    };
    if command.len() < cmd_in::SIZE
        || !may(kind, cmd_in::OPCODE.get(&command) as u16)
        || query_qp_in::QPN.get(&command) != u64::from(number)
    {
        return Err(Errno::EINVAL);
    }
    execute(file, attributes, command, 0x1002)
}

/// Gives the card a command in the name of the program's user context.
pub(super) fn execute(
    file: &CommandFile,
    attributes: &mut Attributes,
    mut command: Vec<u8>,
    reply_to: u16,
) -> Result<()> {
    let uid = file.state().context()?.uid;
    if uid == 0 {
        return Err(Errno::EINVAL);
    }
    // The second word names who is responsible.
    command[2..4].copy_from_slice(&uid.to_be_bytes());
    let mut reply = vec![0; attributes.room(reply_to).max(SHORTEST)];
    file.function().enter(|card| card.execute(&command, &mut reply));
    attributes.put(reply_to, &reply)?;
    // MLX5_CMD_STAT_OK
    if reply[0] == 0 { Ok(()) } else { Err(Errno::EREMOTEIO) }
}

/// `DEVX_OTHER`: a command that makes nothing. What the card answers goes back as it is, even if
/// it refuses: the program reads status and syndrome itself.
pub(super) fn other(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let command = attributes.input(0x1000)?;
    if file.state().context()?.uid == 0 || command.len() < cmd_in::SIZE {
        return Err(Errno::EINVAL);
    }
    if !GENERAL.contains(&(cmd_in::OPCODE.get(&command) as u16)) {
        return Err(Errno::EINVAL);
    }
    execute(file, attributes, command, 0x1001)
}

/// `DEVX_QUERY_EQN`: number of the event queue behind a completion vector.
pub(super) fn query_eqn(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let vector = attributes.number(0x1000)? as u32;
    let eqn = file.function().eqn(vector)?;
    attributes.put(0x1001, &eqn.to_ne_bytes())
}
