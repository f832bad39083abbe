//! Tells apart commands that were executed, refused by the HCA, and withheld by the kernel.

use mlx5_sys::ifc::cmd_in;

use super::command::{Command, outcome};
use crate::error::{Asked, CommandError, Errno, Error, Result, WithheldCommand};

/// Returns the contents of a command, for errors.
fn asked(command: &Command) -> Asked {
    let bytes = command.as_bytes();
    let op_mod = match bytes.len() >= cmd_in::OP_MOD.bytes().end {
        true => cmd_in::OP_MOD.get(bytes) as u16,
        false => 0,
    };
    Asked::new(command.opcode(), op_mod, command.sent().to_vec(), bytes)
}

/// Tells whether a command was executed, refused by the HCA, or withheld by the kernel.
/// libmlx5 may turn a refusal into an errno of its own, so the reply is checked first.
pub(super) fn judge(
    command: &Command,
    call: &'static str,
    result: libc::c_int,
    reply: &[u8],
) -> Result<()> {
    let (status, syndrome) = outcome(reply);
    if status != 0 {
        let asked = asked(command);
        return Err(Error::Refused(Box::new(CommandError { asked, status, syndrome })));
    }
    let errno = match result {
        0 => return Ok(()),
        errno if errno > 0 => Errno(errno),
        _ => Errno::last(),
    };
    Err(withheld(command, call, errno))
}

/// Returns the error of a call without a reply of the HCA.
pub(super) fn withheld(command: &Command, call: &'static str, errno: Errno) -> Error {
    Error::Withheld(Box::new(WithheldCommand { asked: asked(command), call, errno }))
}

#[cfg(test)]
mod tests;
