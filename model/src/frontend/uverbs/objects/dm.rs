//! Device memory: memory of the device, in a window that the program maps.
//!
//! The window of each device is an anonymous file. The device reaches it through a mapping of the
//! model's, the program through mappings of the pages that it was given.

use std::sync::Arc;

use libc::{c_int, c_void, off_t, size_t};
use mlx5_sys::ifc::{alloc_memic_in, alloc_memic_out, dealloc_memic_in, dealloc_memic_out, opcode};

use super::super::driver::command::Command;
use super::super::driver::exports::{Export, Shares, Target};
use super::super::process::errno::{Errno, Result, last};
use super::super::request::ioctl::Attributes;
use super::file::{CommandFile, Object, State, Turn};
use crate::object::Memic;
use crate::private::system;

const PAGE: u64 = 4096;
/// `MLX5_IB_UAPI_DM_TYPE_MEMIC`
const MEMIC: u64 = 0;
/// `MLX5_IB_MMAP_DEVICE_MEM`, in the second byte of a page offset.
const COMMAND: u64 = 8;

/// Device memory that a file was given.
pub(crate) struct Dm {
    /// Address in the BAR.
    pub start: u64,
    /// Bytes asked for.
    pub length: u64,
    /// Its dma-bufs.
    shares: Shares,
}

impl Dm {
    /// Bytes that the card counts.
    fn whole(length: u64) -> u64 {
        length.next_multiple_of(Memic::GRAIN)
    }

    /// Its first page in the window.
    fn page(&self) -> u64 {
        (self.start - Memic::WINDOW) / PAGE
    }

    /// How many pages it has.
    fn pages(&self) -> u64 {
        (self.start % PAGE + self.length).div_ceil(PAGE)
    }
}

/// `DM_ALLOC`.
pub(crate) fn allocate(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let length = attributes.number(1)?;
    let alignment = attributes.number(2)?;
    // What steering keeps in device memory is not offered.
    if attributes.number(0x1002)? != MEMIC {
        return Err(Errno::EOPNOTSUPP);
    }
    if length == 0 || length > Memic::SIZE {
        return Err(Errno::EINVAL);
    }
    let smallest = u64::from(Memic::GRAIN.ilog2());
    if alignment > u64::from(Memic::LOG_ALIGNMENT) {
        return Err(Errno::EINVAL);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let whole = Dm::whole(length);
    let pages = whole.div_ceil(PAGE);
    // Each allocation gets whole pages of the window, so a mapping shows no other allocation.
    let taken = |page: u64| {
        file.function().enter(|card| {
            card.memic.runs().any(|(start, run)| {
                let first = (start - Memic::WINDOW) / PAGE;
                let last = (start + run.length - 1 - Memic::WINDOW) / PAGE;
                page <= last && first < page + pages
            })
        })
    };
    let page = (0..=Memic::PAGES - pages).find(|page| !taken(*page)).ok_or(Errno::ENOMEM)?;
    let mut command =
        Command::new(opcode::ALLOC_MEMIC, alloc_memic_in::SIZE, alloc_memic_out::SIZE);
    command.set(alloc_memic_in::UID, uid);
    command.set(alloc_memic_in::RANGE_START_ADDR, Memic::WINDOW + page * PAGE);
    command.set(alloc_memic_in::RANGE_SIZE, pages * PAGE);
    command.set(alloc_memic_in::MEMIC_SIZE, whole);
    command.set(alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT, alignment.saturating_sub(smallest));
    // EAGAIN is the kernel's word for no free memory here. There is none elsewhere either.
    let reply = file.function().run(command).map_err(|error| match error {
        Errno::EAGAIN => Errno::ENOMEM,
        other => other,
    })?;
    let start = alloc_memic_out::MEMIC_START_ADDR.get(&reply);
    let dm = Dm { start, length, shares: Shares::default() };
    attributes.put(0x1000, &(start % PAGE).to_ne_bytes())?;
    attributes.put(0x1001, &(dm.page() as u16).to_ne_bytes())?;
    let handle = state.enter(dm);
    attributes.put_handle(0, u64::from(handle))
}

impl Object for Dm {
    fn turn(&self) -> Turn {
        Turn::Domains
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        self.shares.revoke();
        let mut command =
            Command::new(opcode::DEALLOC_MEMIC, dealloc_memic_in::SIZE, dealloc_memic_out::SIZE);
        command.set(dealloc_memic_in::UID, uid);
        command.set(dealloc_memic_in::MEMIC_START_ADDR, self.start);
        command.set(dealloc_memic_in::MEMIC_SIZE, Dm::whole(self.length));
        file.function().run(command).map(|_| Vec::new())
    }
}

/// `DM_QUERY`: for who imports it.
pub(crate) fn query(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    let state = file.state();
    let dm = state.get::<Dm>(attributes.handle(0x1000)?)?;
    attributes.put(0x1001, &(dm.start % PAGE).to_ne_bytes())?;
    attributes.put(0x1002, &(dm.page() as u16).to_ne_bytes())?;
    attributes.put(0x1003, &dm.length.to_ne_bytes())
}

/// Page of the window that a page offset of `mmap` names, if it names one.
pub(super) fn page(offset: u64) -> Option<u64> {
    (offset >> 8 & 0xff == COMMAND).then_some(offset & 0xff | offset >> 16 << 8)
}

/// Exports the device memory of the file that begins on a page of the window as a dma-buf.
pub(super) fn export(file: &CommandFile, state: &State, page: u64) -> Option<Arc<Export>> {
    state.find(|dm: &Dm| {
        let first = file.function().window().address + page * PAGE;
        let own = (dm.page() == page)
            .then(|| Export::new(&file.running.exports, Target::Memory(first), dm.pages() * PAGE));
        let export = Arc::new(own?);
        dm.shares.add(&export);
        Some(export)
    })
}

/// Maps pages of the window that all belong to one allocation of the file.
///
/// # Safety
/// With MAP_FIXED, nothing uses the replaced mapping from `address` on any more.
pub(super) unsafe fn map(
    file: &CommandFile,
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    page: u64,
) -> Result<*mut c_void> {
    let pages = (length as u64).div_ceil(PAGE);
    let own = |dm: &Dm| dm.page() == page && pages <= dm.pages();
    if !file.state().any(own) {
        return Err(Errno::EINVAL);
    }
    let window = file.function().window();
    // SAFETY: the caller guarantees that the replaced range is no longer used. The pages are inside
    // the model's file.
    let at = unsafe {
        system::mmap(address, length, protection, flags, window.file, (page * PAGE) as off_t)
    };
    if at == libc::MAP_FAILED {
        return Err(last());
    }
    // As with a card's pages, they do not follow into a forked child.
    // SAFETY: MADV_DONTFORK changes no byte of the pages, which were mapped above.
    unsafe { system::madvise(at, length, libc::MADV_DONTFORK) };
    Ok(at)
}
