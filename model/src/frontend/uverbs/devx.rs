//! Commands that a program gives the card itself.

use mlx5_sys::ifc::{cmd_in, opcode};

use super::errno::{Errno, Result};
use super::file::CommandFile;
use super::ioctl::Attributes;

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

/// `DEVX_OTHER`: a command that makes nothing. What the card answers goes back as it is, even if
/// it refuses: the program reads status and syndrome itself.
pub(super) fn other(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let mut command = attributes.input(0x1000)?;
    let uid = file.state().context()?.uid;
    if uid == 0 {
        return Err(Errno::EINVAL);
    }
    if command.len() < cmd_in::SIZE {
        return Err(Errno::EINVAL);
    }
    let code = cmd_in::OPCODE.get(&command) as u16;
    if !GENERAL.contains(&code) {
        return Err(Errno::EINVAL);
    }
    // The second word names who is responsible.
    command[2..4].copy_from_slice(&uid.to_be_bytes());
    let mut reply = vec![0; attributes.room(0x1001).max(SHORTEST)];
    file.function().enter(|card| card.execute(&command, &mut reply));
    attributes.put(0x1001, &reply)?;
    // MLX5_CMD_STAT_OK
    if reply[0] == 0 { Ok(()) } else { Err(Errno::EREMOTEIO) }
}

/// `DEVX_QUERY_EQN`: number of the event queue behind a completion vector.
pub(super) fn query_eqn(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let vector = attributes.number(0x1000)? as u32;
    let eqn = file.function().eqn(vector)?;
    attributes.put(0x1001, &eqn.to_ne_bytes())
}
