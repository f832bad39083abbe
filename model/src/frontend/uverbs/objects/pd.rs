//! Protection domains.

use mlx5_sys::ifc::{alloc_pd_in, alloc_pd_out, dealloc_pd_in, dealloc_pd_out, opcode};

use super::super::driver::command::Command;
use super::super::process::errno::Result;
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object, Turn};

/// A protection domain.
pub(crate) struct Pd {
    /// The card's number.
    pub number: u32,
}

/// `ALLOC_PD`.
pub(crate) fn allocate(file: &CommandFile, request: &Request) -> Result<()> {
    let mut state = file.state();
    let mut command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE, alloc_pd_out::SIZE);
    command.set(alloc_pd_in::UID, state.context()?.uid);
    let number = alloc_pd_out::PD.get(&file.function().run(command)?) as u32;
    let handle = state.enter(Pd { number });
    request.reply(&handle.to_ne_bytes())?;
    request.reply_driver(&number.to_ne_bytes())
}

impl Object for Pd {
    fn turn(&self) -> Turn {
        Turn::Domains
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        let mut command =
            Command::new(opcode::DEALLOC_PD, dealloc_pd_in::SIZE, dealloc_pd_out::SIZE);
        command.set(dealloc_pd_in::UID, uid);
        command.set(dealloc_pd_in::PD, self.number);
        file.function().run(command).map(|_| Vec::new())
    }
}

/// `PD_QUERY`.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let number = file.state().get::<Pd>(attributes.handle(0x1000)?)?.number;
    attributes.put(0x1001, &number.to_ne_bytes())
}
