//! Protection domains.

use mlx5_sys::ifc::{alloc_pd_in, alloc_pd_out, dealloc_pd_in, dealloc_pd_out, opcode};

use super::super::driver::command::Command;
use super::super::process::errno::Result;
use super::super::request::ioctl::Attributes;
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object};

/// A protection domain.
pub(in super::super) struct Pd {
    /// The card's number.
    pub number: u32,
}

/// `ALLOC_PD`.
pub(in super::super) fn allocate(file: &CommandFile, request: &Request) -> Result<()> {
    let mut state = file.state();
    let mut command = Command::new(opcode::ALLOC_PD, alloc_pd_in::SIZE, alloc_pd_out::SIZE);
    command.set(alloc_pd_in::UID, state.context()?.uid);
    let number = alloc_pd_out::PD.get(&file.function().run(command)?) as u32;
    let handle = state.enter(Object::Pd(Pd { number }));
    request.reply(&handle.to_ne_bytes())?;
    request.reply_driver(&number.to_ne_bytes())
}

/// A protection domain goes.
pub(super) fn destroy(file: &CommandFile, uid: u16, pd: &Pd) -> Result<()> {
    let mut command = Command::new(opcode::DEALLOC_PD, dealloc_pd_in::SIZE, dealloc_pd_out::SIZE);
    command.set(dealloc_pd_in::UID, uid);
    command.set(dealloc_pd_in::PD, pd.number);
    file.function().run(command).map(|_| ())
}

fn remove(file: &CommandFile, handle: u32) -> Result<()> {
    let mut state = file.state();
    let uid = state.context()?.uid;
    state.remove(handle, |pd: &Pd| destroy(file, uid, pd))
}

/// `PD_DESTROY`.
pub(in super::super) fn dealloc(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    remove(file, attributes.handle(0)?)
}

/// `DEALLOC_PD`, legacy.
pub(in super::super) fn dealloc_legacy(file: &CommandFile, request: &Request) -> Result<()> {
    remove(file, request.word(0)?)
}

/// `PD_QUERY`.
pub(in super::super) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let number = file.state().get::<Pd>(attributes.handle(0x1000)?)?.number;
    attributes.put(0x1001, &number.to_ne_bytes())
}
