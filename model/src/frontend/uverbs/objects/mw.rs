//! Memory windows: keys that are free until a send queue binds them to a part of a region.

use mlx5_sys::ifc::{
    Field, cmd_hca_cap, create_mkey_in, create_mkey_out, destroy_mkey_in, destroy_mkey_out, mkc,
    opcode,
};

use super::super::driver::command::Command;
use super::super::process::errno::{Errno, Result};
use super::super::process::user;
use super::super::request::abi::{AllocMw, AllocMwDriver, AllocMwDriverReply, AllocMwReply};
use super::super::request::legacy::Request;
use super::file::{CommandFile, Object, Turn};
use super::mr;
use super::pd::Pd;

/// A memory window.
pub(crate) struct Mw {
    /// Handle of its protection domain.
    pub pd: u32,
    /// Index of its key; the low byte changes with each binding.
    index: u32,
}

/// Types (`enum ib_uverbs_mw_type`).
const TYPE_1: u8 = 1;
const TYPE_2: u8 = 2;

/// `ALLOC_MW`.
pub(crate) fn allocate(file: &CommandFile, request: &Request) -> Result<()> {
    /// Entries of a window's translation come in fours.
    const GROUP: u32 = 4;
    /// `MLX5_MKC_ACCESS_MODE_KLMS`
    const KLMS: u64 = 2;
    let asked: AllocMw = user::whole(&request.core)?;
    let driver: AllocMwDriver = user::lenient(&request.driver);
    if !file.function().caps.has(cmd_hca_cap::IMAICL) {
        return Err(Errno::EOPNOTSUPP);
    }
    if !matches!(asked.mw_type, TYPE_1 | TYPE_2) {
        return Err(Errno::EINVAL);
    }
    if driver.comp_mask != 0 || driver.reserved1 != 0 || driver.reserved2 != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut state = file.state();
    let uid = state.context()?.uid;
    let pdn = state.get::<Pd>(asked.pd_handle)?.number;
    let entries = u32::from(driver.num_klms).max(1).next_multiple_of(GROUP);
    let variant = mr::variant();
    let mut command =
        Command::new(opcode::CREATE_MKEY, create_mkey_in::SIZE, create_mkey_out::SIZE);
    command.set(create_mkey_in::UID, uid);
    let mut context = |field: Field, value: u64| {
        command.set(field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), value);
    };
    context(mkc::FREE, 1);
    context(mkc::TRANSLATIONS_OCTWORD_SIZE, u64::from(entries));
    context(mkc::PD, u64::from(pdn));
    context(mkc::UMR_EN, 1);
    context(mkc::LR, 1);
    context(mkc::ACCESS_MODE_1_0, KLMS);
    context(mkc::EN_RINVAL, u64::from(asked.mw_type == TYPE_2));
    context(mkc::QPN, 0xff_ffff);
    context(mkc::MKEY_7_0, u64::from(variant));
    let reply = file.function().run(command)?;
    let index = create_mkey_out::MKEY_INDEX.get(&reply) as u32;
    let mw_handle = state.enter(Mw { pd: asked.pd_handle, index });
    let rkey = index << 8 | u32::from(variant);
    request.reply(&user::bytes(&AllocMwReply { mw_handle, rkey }))?;
    let response_length = request.driver_room().min(size_of::<AllocMwDriverReply>()) as u32;
    request.reply_driver(&user::bytes(&AllocMwDriverReply { comp_mask: 0, response_length }))
}

impl Object for Mw {
    fn each_used(&self, each: &mut dyn FnMut(u32)) {
        each(self.pd);
    }

    fn turn(&self) -> Turn {
        Turn::Users
    }

    fn destroy(&self, file: &CommandFile, uid: u16) -> Result<Vec<u8>> {
        let mut command =
            Command::new(opcode::DESTROY_MKEY, destroy_mkey_in::SIZE, destroy_mkey_out::SIZE);
        command.set(destroy_mkey_in::UID, uid);
        command.set(destroy_mkey_in::MKEY_INDEX, self.index);
        file.function().run(command).map(|_| Vec::new())
    }
}
