//! XRC domains, without a file behind them.

use mlx5_sys::ifc::{
    alloc_xrcd_in, alloc_xrcd_out, cmd_hca_cap, dealloc_xrcd_in, dealloc_xrcd_out, opcode,
};

use super::abi::OpenXrcd;
use super::command::Command;
use super::errno::{Errno, Result};
use super::file::{CommandFile, Object};
use super::ioctl::Attributes;
use super::legacy::Request;
use super::user;

/// An XRC domain.
pub(super) struct Xrcd {
    /// The card's number.
    pub number: u32,
}

/// `OPEN_XRCD`.
pub(super) fn open(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: OpenXrcd = user::whole(&request.core)?;
    if !file.function().caps.has(cmd_hca_cap::XRC) {
        return Err(Errno::EOPNOTSUPP);
    }
    // A file would share the domain with other processes, whose cards are others.
    if asked.fd != u32::MAX {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    let mut command = Command::new(opcode::ALLOC_XRCD, alloc_xrcd_in::SIZE, alloc_xrcd_out::SIZE);
    command.set(alloc_xrcd_in::UID, state.context()?.uid);
    let number = alloc_xrcd_out::XRCD.get(&file.function().run(command)?) as u32;
    let handle = state.enter(Object::Xrcd(Xrcd { number }));
    request.reply(&handle.to_ne_bytes())
}

/// An XRC domain goes.
pub(super) fn destroy(file: &CommandFile, uid: u16, xrcd: &Xrcd) -> Result<()> {
    let mut command =
        Command::new(opcode::DEALLOC_XRCD, dealloc_xrcd_in::SIZE, dealloc_xrcd_out::SIZE);
    command.set(dealloc_xrcd_in::UID, uid);
    command.set(dealloc_xrcd_in::XRCD, xrcd.number);
    file.function().run(command).map(|_| ())
}

/// `XRCD_DESTROY`.
pub(super) fn close(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    remove(file, attributes.handle(0)?)
}

/// `CLOSE_XRCD`, legacy.
pub(super) fn close_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    remove(file, request.word(0)?)
}

fn remove(file: &CommandFile, handle: u32) -> Result<()> {
    let mut state = file.state();
    let uid = state.context()?.uid;
    state.remove(handle, |xrcd: &Xrcd| destroy(file, uid, xrcd))
}
