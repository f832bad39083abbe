//! Multicast groups. The kernel keeps a list of each queue pair's groups, beside the device's own.

use std::net::Ipv6Addr;

use mlx5_sys::ifc::{attach_to_mcg_in, attach_to_mcg_out, opcode};

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::Multicast;
use super::super::request::legacy::Request;
use super::file::CommandFile;
use super::qp::{Kind, Qp};
use crate::card::Link;
use crate::wire::gid::is_multicast;

/// LID and GID of a group.
pub(super) type Group = (u16, [u8; 16]);

/// Gives a command of the card, which is the same for both.
fn command(file: &CommandFile, opcode: u16, qp: (u16, u32), gid: &[u8; 16]) -> Result<()> {
    let mut command = Command::new(opcode, attach_to_mcg_in::SIZE, attach_to_mcg_out::SIZE);
    command.set(attach_to_mcg_in::UID, qp.0);
    command.set(attach_to_mcg_in::QPN, qp.1);
    command.bytes()[attach_to_mcg_in::MULTICAST_GID.bytes()].copy_from_slice(gid);
    file.function().run(command).map(drop)
}

/// Checks a request: it needs a datagram queue pair, a multicast GID, and on InfiniBand a multicast
/// LID.
fn asked(file: &CommandFile, qp: &Qp, asked: &Multicast) -> Result<()> {
    let ethernet = file.function().device.link == Link::Roce;
    let lid = (0xc000..0xffff).contains(&asked.mlid);
    if qp.kind == Kind::Ud && is_multicast(&asked.gid) && (lid || ethernet) {
        return Ok(());
    }
    Err(Errno::EINVAL.because(format_args!(
        "attaching {:#x} to a group, or detaching it, refused: it takes a UD queue pair, a GID of ff00::/8, here \
         {}, and on InfiniBand an LID from 0xc000 to 0xfffe, here {:#x}",
        qp.number,
        Ipv6Addr::from(asked.gid),
        asked.mlid
    )))
}

/// `ATTACH_MCAST`. A second time it does nothing.
pub(crate) fn attach(file: &CommandFile, request: &Request) -> Result<()> {
    let given: Multicast = user::whole(&request.core)?;
    let mut state = file.state();
    let qp = state.get_mut::<Qp>(given.qp_handle)?;
    asked(file, qp, &given)?;
    let group = (given.mlid, given.gid);
    if qp.groups.contains(&group) {
        return Ok(());
    }
    command(file, opcode::ATTACH_TO_MCG, (qp.uid, qp.number), &given.gid)?;
    qp.groups.push(group);
    Ok(())
}

/// `DETACH_MCAST`.
pub(crate) fn detach(file: &CommandFile, request: &Request) -> Result<()> {
    let given: Multicast = user::whole(&request.core)?;
    let mut state = file.state();
    let qp = state.get_mut::<Qp>(given.qp_handle)?;
    asked(file, qp, &given)?;
    let group = (given.mlid, given.gid);
    let at = qp.groups.iter().position(|known| *known == group).ok_or_else(|| {
        let number = qp.number;
        Errno::EINVAL.because(format_args!(
            "ibv_detach_mcast of {number:#x} refused: the queue pair is not attached to this group"
        ))
    })?;
    command(file, opcode::DETACH_FROM_MCG, (qp.uid, qp.number), &given.gid)?;
    qp.groups.swap_remove(at);
    Ok(())
}

/// The file is closed: a queue pair leaves all its groups.
pub(super) fn leave(file: &CommandFile, qp: &mut Qp) {
    for (_, gid) in qp.groups.drain(..) {
        if let Err(error) = command(file, opcode::DETACH_FROM_MCG, (qp.uid, qp.number), &gid) {
            tracing::warn!(qp = qp.number, errno = error.0, "a queue pair stays in a group");
        }
    }
}
