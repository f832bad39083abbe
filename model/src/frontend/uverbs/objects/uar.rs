//! UARs: register pages that programs allocate.

use std::sync::Arc;

use mlx5_sys::ifc::{alloc_uar_in, alloc_uar_out, dealloc_uar_in, dealloc_uar_out, opcode};

use super::super::driver::command::Command;
use super::super::driver::exports::{Export, Exports, Shares, Target};
use super::super::driver::poll;
use super::super::driver::registers::Page;
use super::super::process::errno::{Errno, Result};
use super::super::process::trap::PAGE;
use super::super::request::ioctl::Attributes;
use super::super::tree::config::{Mode, Pages};
use super::super::tree::discovery::{Discovery, discovery};
use super::file::{CommandFile, Object, State, Turn};

/// First page offset of objects. Lower offsets encode a command.
const FIRST: u64 = 9 << 16;

/// A UAR of a file.
pub(crate) struct Uar {
    /// The device's number for it.
    pub number: u32,
    /// Its page.
    pub page: &'static Page,
    /// Its dma-bufs.
    shares: Shares,
}

/// The kinds of pages that programs get.
fn pages() -> Pages {
    match discovery() {
        Discovery::On(offer) => offer.config.pages,
        _ => Pages::All,
    }
}

/// Whether programs get write-combining pages.
pub(super) fn combining() -> bool {
    pages() != Pages::NonCached
}

/// `UAR_OBJ_ALLOC`.
pub(crate) fn allocate(file: &CommandFile, attributes: &mut Attributes) -> Result<()> {
    // BlueFlame and non-cached pages differ in how the processor maps them, which a process cannot.
    let given = match (attributes.number(0x1001)?, pages()) {
        (0, kinds) => kinds != Pages::NonCached,
        (1, _) => true,
        _ => false,
    };
    if !given {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let function = file.function();
    let mut command = Command::new(opcode::ALLOC_UAR, alloc_uar_in::SIZE, alloc_uar_out::SIZE);
    command.set(alloc_uar_in::UID, uid);
    let number = alloc_uar_out::UAR.get(&function.run(command)?) as u32;
    let owner = (file.opener, file.mode);
    let page = match file.running.registers.page(function, owner, number) {
        Ok(page) => page,
        Err(error) => {
            free(file, uid, number)?;
            return Err(error);
        }
    };
    if file.mode == Mode::Polled {
        poll::start(&file.running.registers);
    }
    let handle = state.enter(Uar { number, page, shares: Shares::default() });
    attributes.put(0x1002, &((FIRST + page.index) * PAGE as u64).to_ne_bytes())?;
    attributes.put(0x1003, &(PAGE as u32).to_ne_bytes())?;
    attributes.put(0x1004, &number.to_ne_bytes())?;
    attributes.put_handle(0x1000, u64::from(handle))
}

impl Object for Uar {
    fn turn(&self) -> Turn {
        Turn::Pages
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        self.shares.revoke();
        free(file, uid, self.number)?;
        self.page.free();
        Ok(Vec::new())
    }
}

fn free(file: &CommandFile, uid: u16, number: u32) -> Result<()> {
    let mut command =
        Command::new(opcode::DEALLOC_UAR, dealloc_uar_in::SIZE, dealloc_uar_out::SIZE);
    command.set(dealloc_uar_in::UID, uid);
    command.set(dealloc_uar_in::UAR, number);
    file.function().run(command).map(|_| ())
}

/// Returns the register page at a page offset of `mmap`, if it is one of this file's.
pub(super) fn at(state: &State, offset: u64) -> Option<&'static Page> {
    let index = offset.checked_sub(FIRST)?;
    state.find(|uar: &Uar| (uar.page.index == index).then_some(uar.page))
}

/// Exports the register page at a page offset of `mmap` as a dma-buf, if it is one of this file's.
pub(super) fn export(exports: &Arc<Exports>, state: &State, offset: u64) -> Option<Arc<Export>> {
    let index = offset.checked_sub(FIRST)?;
    state.find(|uar: &Uar| {
        let page = (uar.page.index == index).then_some(uar.page)?;
        let export = Arc::new(Export::new(exports, Target::Registers(page), PAGE as u64));
        uar.shares.add(&export);
        Some(export)
    })
}

/// Checks that a UAR number is one of this file's.
pub(super) fn check(state: &State, number: u32) -> Result<()> {
    let known = state.any(|uar: &Uar| uar.number == number);
    if known { Ok(()) } else { Err(Errno::EINVAL) }
}
