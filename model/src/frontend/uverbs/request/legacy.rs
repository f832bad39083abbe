//! The older form of requests, wrapped in an ioctl: a command number, one structure in and one out,
//! and the driver's two structures.

use super::super::objects::file::CommandFile;
use super::super::objects::{
    ah, cq, device, flow, mr, multicast, mw, pd, port, qp, qp_modify, qp_query, srq, wq, xrcd,
};
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::ioctl::{Attributes, DRIVER_IN, DRIVER_OUT};

/// Attributes of `INVOKE_WRITE`.
const CORE_IN: u16 = 0;
const CORE_OUT: u16 = 1;
const COMMAND: u16 = 2;

/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u32 = 0x8000_0000;

/// A legacy request.
pub(in super::super) struct Request {
    /// The structure; other than for extended commands it begins with the address of a response.
    pub core: Vec<u8>,
    /// The driver's structure.
    pub driver: Vec<u8>,
    out: (u64, usize),
    driver_out: (u64, usize),
}

impl Request {
    /// A 32-bit word of the structure.
    pub fn word(&self, at: usize) -> Result<u32> {
        let bytes = self.core.get(at..at + 4).ok_or(Errno::ENOSPC)?;
        Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Room for the reply, in bytes.
    pub fn room(&self) -> usize {
        self.out.1
    }

    /// Room for the driver's reply, in bytes.
    pub fn driver_room(&self) -> usize {
        self.driver_out.1
    }

    /// Writes the reply, which has to fit.
    pub fn reply(&self, bytes: &[u8]) -> Result<()> {
        if bytes.len() > self.out.1 {
            return Err(Errno::ENOSPC);
        }
        user::write(self.out.0, bytes)
    }

    /// Writes the reply, truncated to the buffer of the caller.
    pub fn reply_short(&self, bytes: &[u8]) -> Result<()> {
        user::write(self.out.0, &bytes[..bytes.len().min(self.out.1)])
    }

    /// Writes the driver's reply, truncated to the buffer of the caller.
    pub fn reply_driver(&self, bytes: &[u8]) -> Result<()> {
        user::write(self.driver_out.0, &bytes[..bytes.len().min(self.driver_out.1)])
    }
}

/// The function that serves a command.
type Serve = fn(&CommandFile, &Request) -> Result<()>;

/// A legacy command: number, least lengths of structure and reply, and the function that serves it.
struct Known(u32, usize, usize, Serve);

/// Every command, sorted by number (`IB_USER_VERBS_CMD_*`).
const COMMANDS: &[Known] = &[
    Known(0, 8, 8, device::get_context_legacy),
    Known(1, 8, 176, device::query),
    Known(2, 16, 40, port::query_legacy),
    Known(3, 8, 4, pd::allocate),
    Known(4, 4, 0, pd::dealloc_legacy),
    Known(5, 56, 4, ah::create),
    Known(8, 4, 0, ah::destroy_legacy),
    Known(9, 40, 12, mr::register),
    Known(11, 48, 8, mr::reregister),
    Known(13, 4, 0, mr::deregister_legacy),
    Known(14, 16, 8, mw::allocate),
    Known(16, 4, 0, mw::deallocate_legacy),
    Known(17, 8, 4, cq::create_channel),
    Known(18, 32, 8, cq::create_legacy),
    Known(19, 16, 8, cq::resize),
    Known(20, 16, 8, cq::destroy_legacy),
    Known(24, 56, 32, qp::create_legacy),
    Known(25, 16, 128, qp_query::query),
    Known(26, 112, 0, qp_modify::modify),
    Known(27, 16, 4, qp::destroy_legacy),
    Known(30, 24, 0, multicast::attach),
    Known(31, 24, 0, multicast::detach),
    Known(32, 32, 16, srq::create_legacy),
    Known(33, 16, 0, srq::modify),
    Known(34, 16, 16, srq::query),
    Known(35, 16, 4, srq::destroy_legacy),
    Known(37, 16, 4, xrcd::open),
    Known(38, 4, 0, xrcd::close_legacy),
    Known(39, 48, 16, srq::create_extended),
    Known(EXTENDED | 1, 8, 176, device::query_extended),
    Known(EXTENDED | 18, 32, 8, cq::create_extended),
    Known(EXTENDED | 24, 64, 32, qp::create_extended),
    Known(EXTENDED | 26, 112, 0, qp_modify::modify_extended),
    Known(EXTENDED | 50, 24, 8, flow::create),
    Known(EXTENDED | 53, 24, 0, wq::modify),
    Known(EXTENDED | 55, 8, 16, wq::create_table),
    Known(EXTENDED | 57, 16, 0, cq::moderate),
];

/// `INVOKE_WRITE`.
pub(in super::super) fn invoke(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let command = attributes.number(COMMAND)? as u32;
    if command & !(EXTENDED | 0xff) != 0 {
        return Err(Errno::EINVAL);
    }
    let known = COMMANDS.iter().find(|known| known.0 == command).ok_or(Errno::EOPNOTSUPP)?;
    let request = Request {
        core: attributes.input(CORE_IN)?,
        driver: attributes.input(DRIVER_IN)?,
        out: attributes.target(CORE_OUT).unwrap_or((0, 0)),
        driver_out: attributes.target(DRIVER_OUT).unwrap_or((0, 0)),
    };
    if request.core.len() < known.1 || request.room() < known.2 {
        return Err(Errno::ENOSPC);
    }
    tracing::trace!(command, "a legacy request");
    (known.3)(file, &request).inspect_err(|error| {
        tracing::debug!(command, errno = error.0, "a legacy request was refused");
    })?;
    attributes.filled(CORE_OUT)?;
    attributes.filled(DRIVER_OUT)
}
