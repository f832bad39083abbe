//! Program memory that DevX commands name by number.

use mlx5_sys::ifc::{Field, create_umem_in, create_umem_out, destroy_umem_in, opcode, umem};

use super::super::dmabuf;
use super::super::file::{CommandFile, Object, Turn};
use crate::frontend::uverbs::driver::command::Command;
use crate::frontend::uverbs::driver::mapping::Mapping;
use crate::frontend::uverbs::driver::umem::{PAGE, Umem};
use crate::frontend::uverbs::process::errno::{Errno, Result};
use crate::frontend::uverbs::request::ioctl::Attributes;

/// `IBV_ACCESS_LOCAL_WRITE`, and with it what a peer may do.
const LOCAL_WRITE: u64 = 1 << 0;
const REMOTE_WRITE: u64 = 1 << 1;
const REMOTE_READ: u64 = 1 << 2;

/// Pinned memory that the card knows by number.
pub(crate) struct DevxUmem {
    number: u32,
    _memory: Memory,
}

/// The memory of a umem.
enum Memory {
    Pinned(Umem),
    Mapped(#[allow(dead_code, reason = "kept mapped")] Mapping),
}

/// Returns the shift of the largest allowed page of which whole ones make up the memory. `allowed`
/// has a bit for each page size. The smallest page, if it is allowed, fits any memory.
fn page_shift(start: u64, length: u64, allowed: u64) -> Option<u32> {
    /// The largest page that is reported to a card.
    const LARGEST: u32 = 30;
    let least = PAGE.ilog2();
    let whole = |shift: &u32| start % (1 << shift) == 0 && length % (1 << shift) == 0;
    let is_allowed = |shift: &u32| allowed >> shift & 1 == 1;
    let larger = (least + 1..=LARGEST).rev().filter(is_allowed).find(whole);
    larger.or_else(|| Some(least).filter(is_allowed))
}

/// `DEVX_UMEM_REG`.
pub(crate) fn register(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
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
    let sizes = if attributes.has(0x1005) { attributes.number(0x1005)? } else { u64::MAX };
    let (memory, start) = match attributes.descriptor(0x1006)? {
        None => {
            let pinned =
                Umem::pin(&file.running.pinned, address, length, access & LOCAL_WRITE != 0)?;
            (Memory::Pinned(pinned), address)
        }
        Some(fd) if dmabuf::is_export(fd) => {
            return Err(Errno::EOPNOTSUPP.because(format_args!(
                "mlx5dv_devx_umem_reg_ex refused: a dma-buf of UARs or device memory cannot be pinned; \
                 register it by ibv_reg_dmabuf_mr"
            )));
        }
        Some(fd) => {
            let mapping = Mapping::new(fd, address, length)?;
            let start = mapping.start;
            (Memory::Mapped(mapping), start)
        }
    };
    let shift = page_shift(start, length, sizes).ok_or(Errno::EINVAL)?;
    let (page, first) = (1u64 << shift, start >> shift << shift);
    let bus = |address: u64| match &memory {
        Memory::Pinned(pinned) => pinned.bus(address),
        Memory::Mapped(_) => address,
    };
    let pages = (first..start + length).step_by(page as usize).map(bus);
    let mut command =
        Command::new(opcode::CREATE_UMEM, create_umem_in::SIZE, create_umem_out::SIZE);
    command.set(create_umem_in::UID, uid);
    let mut field = |field: Field, value| {
        command.set(field.within(create_umem_in::UMEM), value);
    };
    field(umem::LOG_PAGE_SIZE, u64::from(shift - PAGE.ilog2()));
    field(umem::PAGE_OFFSET, start - first);
    field(umem::NUM_OF_MTT, pages.clone().count() as u64);
    command.pages(pages);
    let number = create_umem_out::UMEM_ID.get(&file.function().run(command)?) as u32;
    attributes.put(0x1004, &number.to_ne_bytes())?;
    let handle = state.enter(DevxUmem { number, _memory: memory });
    attributes.put_handle(0x1000, u64::from(handle))
}

impl Object for DevxUmem {
    fn turn(&self) -> Turn {
        Turn::Pages
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        let mut command = Command::new(opcode::DESTROY_UMEM, destroy_umem_in::SIZE, 0x10);
        command.set(destroy_umem_in::UID, uid);
        command.set(destroy_umem_in::UMEM_ID, self.number);
        file.function().run(command).map(|_| Vec::new())
    }
}

#[cfg(test)]
mod tests;
