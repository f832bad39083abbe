//! The objects that a DevX command may name: those behind the handle given with the command,
//! whether the program created them by DevX or by verbs.

use mlx5_sys::ifc::{Field, cmd_in, opcode};

use super::super::cq::Cq;
use super::super::file::State;
use super::super::qp::{self, Qp};
use super::super::srq::Srq;
use super::super::wq::{IndirectionTable, Wq};
use super::kinds::KINDS;
use super::object::Devx;
use crate::frontend::uverbs::process::errno::{Errno, Result};

/// The effect of a command on the object that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Does {
    Asks,
    Changes,
}

/// An object of the card: the opcode of its creating command, and its number. The number alone is
/// ambiguous, since each kind has its own count.
type Target = (u16, u32);

/// Whether a command may be given on what a handle stands for: it must be one that does so to
/// objects of that kind, and name this one.
pub(super) fn check(state: &State, handle: u32, command: &[u8], does: Does) -> Result<()> {
    let behind = behind(state, handle)?;
    match named(command, does) {
        Some(target) if behind.contains(&target) => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Returns the device's objects behind a handle: each part, if it is a raw packet QP.
fn behind(state: &State, handle: u32) -> Result<Vec<Target>> {
    if let Ok(object) = state.get::<Devx>(handle) {
        return Ok(vec![object.created()]);
    }
    if let Ok(cq) = state.get::<Cq>(handle) {
        return Ok(vec![(opcode::CREATE_CQ, cq.number)]);
    }
    if let Ok(srq) = state.get::<Srq>(handle) {
        return Ok(vec![(srq.made_by(), srq.number)]);
    }
    if let Ok(wq) = state.get::<Wq>(handle) {
        return Ok(vec![(opcode::CREATE_RQ, wq.number)]);
    }
    if let Ok(table) = state.get::<IndirectionTable>(handle) {
        return Ok(vec![(opcode::CREATE_RQT, table.number)]);
    }
    let qp = match state.get::<Qp>(handle) {
        // An object of another kind, which no command can query.
        Err(_) if state.has(handle) => return Ok(Vec::new()),
        qp => qp?,
    };
    Ok(match (&qp.raw, qp.kind) {
        (Some(raw), _) => raw.parts(),
        (None, qp::Kind::RawPacket) => Vec::new(),
        (None, qp::Kind::DcTarget) => vec![(opcode::CREATE_DCT, qp.number)],
        (None, _) => vec![(opcode::CREATE_QP, qp.number)],
    })
}

/// The object that a command asks about or changes.
fn named(command: &[u8], does: Does) -> Option<Target> {
    if command.len() < cmd_in::SIZE {
        return None;
    }
    let code = cmd_in::OPCODE.get(command) as u16;
    // The command that creates an entry also changes one.
    if code == opcode::SET_FLOW_TABLE_ENTRY && cmd_in::OP_MOD.get(command) != 1 {
        return None;
    }
    KINDS.iter().find_map(|kind| {
        let field: Field = match does {
            Does::Asks => kind.query.filter(|(query, _)| *query == code)?.1,
            Does::Changes => kind.changes.filter(|(codes, _)| codes.contains(&code))?.1,
        };
        let whole = field.bit_offset() + field.width() <= command.len() * 8;
        whole.then(|| (kind.create, field.get(command) as u32))
    })
}
