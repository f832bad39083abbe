//! The table of all legacy commands.

use super::super::objects::ah::Ah;
use super::super::objects::cq::Cq;
use super::super::objects::file::{CommandFile, destroy_legacy};
use super::super::objects::mw::Mw;
use super::super::objects::pd::Pd;
use super::super::objects::qp::Qp;
use super::super::objects::srq::Srq;
use super::super::objects::xrcd::Xrcd;
use super::super::objects::{
    ah, cq, device, flow, mr, multicast, mw, pd, port, qp, qp_modify, qp_query, srq, wq, xrcd,
};
use super::super::process::errno::{Errno, Result};
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;

/// `IB_USER_VERBS_CMD_FLAG_EXTENDED`.
const EXTENDED: u32 = 0x8000_0000;

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
    Known(4, 4, 0, destroy_legacy::<Pd, 0>),
    Known(5, 56, 4, ah::create),
    Known(8, 4, 0, destroy_legacy::<Ah, 0>),
    Known(9, 40, 12, mr::register),
    Known(11, 48, 8, mr::reregister),
    Known(13, 4, 0, mr::deregister_legacy),
    Known(14, 16, 8, mw::allocate),
    Known(16, 4, 0, destroy_legacy::<Mw, 0>),
    Known(17, 8, 4, cq::create_channel),
    Known(18, 32, 8, cq::create_legacy),
    Known(19, 16, 8, cq::resize),
    Known(20, 16, 8, destroy_legacy::<Cq, 8>),
    Known(24, 56, 32, qp::create_legacy),
    Known(25, 16, 128, qp_query::query),
    Known(26, 112, 0, qp_modify::modify),
    Known(27, 16, 4, destroy_legacy::<Qp, 8>),
    Known(30, 24, 0, multicast::attach),
    Known(31, 24, 0, multicast::detach),
    Known(32, 32, 16, srq::create_legacy),
    Known(33, 16, 0, srq::modify),
    Known(34, 16, 16, srq::query),
    Known(35, 16, 4, destroy_legacy::<Srq, 8>),
    Known(37, 16, 4, xrcd::open),
    Known(38, 4, 0, destroy_legacy::<Xrcd, 0>),
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
pub(super) fn invoke(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let command = Request::command(attributes)?;
    if command & !(EXTENDED | 0xff) != 0 {
        return Err(Errno::EINVAL);
    }
    let known = COMMANDS.iter().find(|known| known.0 == command).ok_or(Errno::EOPNOTSUPP)?;
    let request = Request::read(attributes)?;
    if request.core.len() < known.1 || request.room() < known.2 {
        return Err(Errno::ENOSPC);
    }
    tracing::trace!(command, "a legacy request");
    (known.3)(file, &request).inspect_err(|error| {
        tracing::debug!(command, errno = error.0, "a legacy request was refused");
    })?;
    Request::filled(attributes)
}
