//! XRC domains: private ones, or one behind a file, which every context of the process shares as
//! long as the domain is open.

use libc::c_int;
use mlx5_sys::ifc::{
    alloc_xrcd_in, alloc_xrcd_out, cmd_hca_cap, dealloc_xrcd_in, dealloc_xrcd_out, opcode,
};

use super::super::driver::command::Command;
use super::super::driver::function::{FileId, Function};
use super::super::process::errno::{Errno, Result, last};
use super::super::process::{lock, user};
use super::super::request::abi::OpenXrcd;
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object, Turn};
use crate::private::system;

/// An XRC domain.
pub(crate) struct Xrcd {
    /// The card's number.
    pub number: u32,
    /// The file behind it.
    file: Option<FileId>,
}

/// Returns the file that a descriptor refers to.
fn identify(fd: c_int) -> Result<FileId> {
    // SAFETY: integers, for which zeros are values.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one `stat`.
    if unsafe { system::fstat(fd, &mut status) } != 0 {
        return Err(last());
    }
    Ok((status.st_dev, status.st_ino))
}

fn allocate(function: &Function) -> Result<u32> {
    // Domains are shared between contexts, so they belong to none.
    let command = Command::new(opcode::ALLOC_XRCD, alloc_xrcd_in::SIZE, alloc_xrcd_out::SIZE);
    Ok(alloc_xrcd_out::XRCD.get(&function.run(command)?) as u32)
}

fn deallocate(function: &Function, number: u32) -> Result<()> {
    let mut command =
        Command::new(opcode::DEALLOC_XRCD, dealloc_xrcd_in::SIZE, dealloc_xrcd_out::SIZE);
    command.set(dealloc_xrcd_in::XRCD, number);
    function.run(command).map(|_| ())
}

/// `OPEN_XRCD`.
pub(crate) fn open(file: &CommandFile, request: &Request) -> Result<()> {
    const CREATE: u32 = libc::O_CREAT as u32;
    const EXCLUSIVE: u32 = libc::O_EXCL as u32;
    let asked: OpenXrcd = user::whole(&request.core)?;
    let function = file.function();
    if !function.caps.has(cmd_hca_cap::XRC) {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    state.context()?;
    let behind = if asked.fd == u32::MAX { None } else { Some(identify(asked.fd as c_int)?) };
    let number = match behind {
        None => allocate(function)?,
        Some(id) => {
            let mut domains = lock(function.domains());
            match domains.get_mut(&id) {
                Some(_) if asked.flags & EXCLUSIVE != 0 => return Err(Errno::EINVAL),
                Some((number, users)) => {
                    *users += 1;
                    *number
                }
                None if asked.flags & CREATE == 0 => return Err(Errno::EAGAIN),
                None => {
                    let number = allocate(function)?;
                    domains.insert(id, (number, 1));
                    number
                }
            }
        }
    };
    let handle = state.enter(Xrcd { number, file: behind });
    request.reply(&handle.to_ne_bytes())
}

impl Object for Xrcd {
    fn turn(&self) -> Turn {
        Turn::Domains
    }

    /// Another context may have it open, too.
    fn destroy(&self, file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        let function = file.function();
        let Some(id) = self.file else {
            return deallocate(function, self.number).map(|()| Vec::new());
        };
        let mut domains = lock(function.domains());
        match domains.get_mut(&id) {
            Some((_, users)) if *users > 1 => *users -= 1,
            _ => {
                deallocate(function, self.number)?;
                domains.remove(&id);
            }
        }
        Ok(Vec::new())
    }
}
