//! Address handles. The device has no such object: each WQE carries the address.

use super::abi::{CreateAh, CreateAhDriverReply};
use super::errno::{Errno, Result};
use super::file::{CommandFile, Object};
use super::ioctl::Attributes;
use super::legacy::Request;
use super::path;
use super::pd::Pd;
use super::user;
use crate::card::Link;
use crate::engine::neighbour;

/// An address handle.
pub(super) struct Ah {
    /// Handle of its protection domain.
    pub pd: u32,
}

/// `CREATE_AH`.
pub(super) fn create(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: CreateAh = user::whole(&request.core)?;
    let mut state = file.state();
    state.get::<Pd>(asked.pd_handle)?;
    let destination = asked.attributes.destination();
    path::check(file, &destination)?;
    let mut reply = CreateAhDriverReply {
        response_length: request.driver_room().min(size_of::<CreateAhDriverReply>()) as u32,
        ..Default::default()
    };
    if file.function().device.link == Link::Roce {
        if destination.is_global == 0 {
            return Err(Errno::EINVAL);
        }
        reply.dmac = neighbour(&destination.dgid);
    }
    let handle = state.enter(Object::Ah(Ah { pd: asked.pd_handle }));
    request.reply(&handle.to_ne_bytes())?;
    request.reply_driver(&user::bytes(&reply))
}

/// `AH_DESTROY`.
pub(super) fn destroy(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    file.state().remove(attributes.handle(0)?, |_: &Ah| Ok(()))
}

/// `DESTROY_AH`, legacy.
pub(super) fn destroy_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    file.state().remove(request.word(0)?, |_: &Ah| Ok(()))
}
