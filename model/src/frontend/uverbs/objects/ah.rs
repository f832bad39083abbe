//! Address handles. The device has no such object: each WQE carries the address.

use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{CreateAh, CreateAhDriverReply};
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object, Turn};
use super::path::{self, Sender};
use super::pd::Pd;
use crate::card::Link;

/// An address handle.
pub(crate) struct Ah {
    /// Handle of its protection domain.
    pub pd: u32,
    _sender: Option<Sender>,
}

/// `CREATE_AH`.
pub(crate) fn create(file: &CommandFile, request: &Request) -> Result<()> {
    let asked: CreateAh = user::whole(&request.core)?;
    let mut state = file.state();
    state.get::<Pd>(asked.pd_handle)?;
    let destination = asked.attributes.destination();
    let sender = path::check(file, &destination)?;
    path::resolve(file, sender.as_ref(), &destination)?;
    let mut reply = CreateAhDriverReply {
        response_length: request.driver_room().min(size_of::<CreateAhDriverReply>()) as u32,
        ..Default::default()
    };
    if file.function().device.link == Link::Roce {
        if destination.is_global == 0 {
            return Err(Errno::EINVAL);
        }
        reply.dmac = path::mac_of(file, sender.as_ref(), &destination);
    }
    let handle = state.enter(Ah { pd: asked.pd_handle, _sender: sender });
    request.reply(&handle.to_ne_bytes())?;
    request.reply_driver(&user::bytes(&reply))
}

impl Object for Ah {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        each(self.pd);
    }

    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, _file: &CommandFile, _uid: u16) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }
}
