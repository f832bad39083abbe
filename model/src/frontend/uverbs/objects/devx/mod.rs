//! DevX: firmware commands issued by the program itself.
//!
//! This module decides, by the kernel's rules, whether a program may issue a command, and it runs
//! queries that need no object. The other modules:
//!
//! - `object` creates, modifies, queries and destroys the program's objects, whose kinds are one
//!   table in `kinds`.
//! - `target` decides which objects a command may name.
//! - `umem` is memory that such commands name by number.
//! - `event` reports events, and `answer` returns the answers of asynchronous commands.

pub(crate) mod answer;
pub(crate) mod event;
mod kinds;
pub(crate) mod object;
mod target;
pub(crate) mod umem;

use mlx5_sys::ifc::{cmd_in, opcode};

use super::super::driver::command::submit;
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::file::{CommandFile, State};
pub(crate) use kinds::KINDS;
use target::Does;

/// Shortest reply: status and syndrome.
const SHORTEST: usize = 8;

/// Query commands that a program may give without making an object, in the order of the kernel's
/// own list. The card refuses the commands that the model does not implement.
const GENERAL: &[u16] = &[
    opcode::QUERY_HCA_CAP,
    opcode::QUERY_HCA_VPORT_CONTEXT,
    opcode::QUERY_ESW_VPORT_CONTEXT,
    opcode::QUERY_VPORT_STATE,
    opcode::QUERY_ADAPTER,
    opcode::QUERY_ISSI,
    opcode::QUERY_NIC_VPORT_CONTEXT,
    opcode::QUERY_ROCE_ADDRESS,
    opcode::QUERY_VNIC_ENV,
    opcode::QUERY_VPORT_COUNTER,
    opcode::GET_DROPPED_PACKET_LOG,
    opcode::NOP,
    opcode::QUERY_CONG_STATUS,
    opcode::QUERY_CONG_PARAMS,
    opcode::QUERY_CONG_STATISTICS,
    opcode::QUERY_LAG,
];

/// Opcodes that are the firmware's to judge.
const GENERAL_RANGE: std::ops::Range<u16> = 0xb00..0xd00;

/// Commands that change a queue pair. All have its number in the same field.
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

/// Commands that contexts without DevX may give as well.
const ANYONES: &[u16] =
    &[opcode::QUERY_HCA_CAP, opcode::QUERY_HCA_VPORT_CONTEXT, opcode::QUERY_ESW_VPORT_CONTEXT];

/// Returns the user id that the device is to hold responsible for a command, if it is allowed.
fn allowed(state: &State, command: &[u8]) -> Result<u16> {
    let uid = state.context()?.uid;
    if command.len() < cmd_in::SIZE {
        return Err(Errno::EINVAL);
    }
    let anyones = ANYONES.contains(&(cmd_in::OPCODE.get(command) as u16));
    if uid == 0 && !anyones { Err(Errno::EINVAL) } else { Ok(uid) }
}

/// `DEVX_OBJ_MODIFY`: of an object that the program made, or that verbs made.
pub(crate) fn modify(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    on_object(file, attributes, Does::Changes)
}

/// `DEVX_OBJ_QUERY`: of an object that the program made, or that verbs made.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    on_object(file, attributes, Does::Asks)
}

/// Gives the card a command on an object: the one that it names must be the handle's.
fn on_object(file: &CommandFile, attributes: &mut Attributes, does: Does) -> Result<()> {
    let command = attributes.input(0x1001)?;
    let state = file.state();
    let uid = allowed(&state, &command)?;
    target::check(&state, attributes.handle(0x1000)?, &command, does)?;
    execute(file, uid, attributes, command, 0x1002)
}

/// Gives the card a command in the name of a user context. The reply goes back unchanged, even if
/// the card refuses: the program reads status and syndrome itself.
fn execute(
    file: &CommandFile,
    uid: u16,
    attributes: &mut Attributes,
    mut command: Vec<u8>,
    reply_to: u16,
) -> Result<()> {
    // The second word has the user id that is held responsible.
    command[2..4].copy_from_slice(&uid.to_be_bytes());
    let mut reply = vec![0; attributes.room(reply_to).max(SHORTEST)];
    file.function().enter(|card| submit(card, &command, &mut reply))?;
    attributes.put(reply_to, &reply)?;
    // MLX5_CMD_STAT_OK
    if reply[0] == 0 { Ok(()) } else { Err(Errno::EREMOTEIO) }
}

/// `DEVX_OTHER`: a command that makes nothing.
pub(crate) fn other(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let command = attributes.input(0x1000)?;
    let uid = allowed(&file.state(), &command)?;
    let code = cmd_in::OPCODE.get(&command) as u16;
    if !GENERAL.contains(&code) && !GENERAL_RANGE.contains(&code) {
        return Err(Errno::EINVAL);
    }
    execute(file, uid, attributes, command, 0x1001)
}

/// `DEVX_QUERY_EQN`: number of the event queue behind a completion vector.
pub(crate) fn query_eqn(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let vector = attributes.number(0x1000)? as u32;
    let eqn = file.function().eqn(vector)?;
    attributes.put(0x1001, &eqn.to_ne_bytes())
}
