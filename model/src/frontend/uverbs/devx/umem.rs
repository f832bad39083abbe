//! Memory that a program names in its own commands by number.

use mlx5_sys::ifc::{Field, create_umem_in, create_umem_out, destroy_umem_in, opcode, umem};

use super::super::command::Command;
use super::super::errno::{Errno, Result};
use super::super::file::{CommandFile, Object};
use super::super::ioctl::Attributes;
use super::super::umem::{PAGE, Umem};

/// `IBV_ACCESS_LOCAL_WRITE`, and with it what a peer may do.
const LOCAL_WRITE: u64 = 1 << 0;
const REMOTE_WRITE: u64 = 1 << 1;
const REMOTE_READ: u64 = 1 << 2;

/// Pinned memory that the card knows by number.
pub(in super::super) struct DevxUmem {
    number: u32,
    _pinned: Umem,
}

/// `DEVX_UMEM_REG`.
pub(in super::super) fn register(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let address = attributes.number(0x1001)?;
    let length = attributes.number(0x1002)?;
    let access = attributes.number(0x1003)?;
    if access & !(LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ) != 0
        || access & REMOTE_WRITE != 0 && access & LOCAL_WRITE == 0
    {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    if uid == 0 {
        return Err(Errno::EINVAL);
    }
    let pinned = Umem::pin(file.running, address, length, access & LOCAL_WRITE != 0)?;
    let mut command =
        Command::new(opcode::CREATE_UMEM, create_umem_in::SIZE, create_umem_out::SIZE);
    command.set(create_umem_in::UID, uid);
    let mut field = |field: Field, value| {
        command.set(field.within(create_umem_in::UMEM), value);
    };
    field(umem::PAGE_OFFSET, address % PAGE);
    field(umem::NUM_OF_MTT, pinned.pages().count() as u64);
    command.pages(pinned.pages());
    let number = create_umem_out::UMEM_ID.get(&file.function().run(command)?) as u32;
    attributes.put(0x1004, &number.to_ne_bytes())?;
    let handle = state.enter(Object::DevxUmem(DevxUmem { number, _pinned: pinned }));
    attributes.put_handle(0x1000, u64::from(handle))
}

/// `DEVX_UMEM_DEREG`.
pub(in super::super) fn deregister(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let handle = attributes.handle(0x1000)?;
    let mut state = file.state();
    let uid = state.context()?.uid;
    state.remove(handle, |umem: &DevxUmem| destroy(file, uid, umem))
}

/// The card forgets it.
pub(in super::super) fn destroy(file: &CommandFile, uid: u16, umem: &DevxUmem) -> Result<()> {
    let mut command = Command::new(opcode::DESTROY_UMEM, destroy_umem_in::SIZE, 0x10);
    command.set(destroy_umem_in::UID, uid);
    command.set(destroy_umem_in::UMEM_ID, umem.number);
    file.function().run(command).map(|_| ())
}
