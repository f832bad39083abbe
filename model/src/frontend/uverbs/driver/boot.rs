//! Start of a device by its driver, up to the first object: what mlx5_core of Linux does when it
//! probes a function (`mlx5_function_setup`).

use std::alloc::{Layout, alloc, handle_alloc_error};

use mlx5_sys::ifc::{
    enable_hca_in, init_hca_in, manage_pages_in, manage_pages_out, opcode, query_hca_cap_in,
    query_hca_cap_out, query_issi_in, query_issi_out, query_pages_in, query_pages_out,
    set_hca_cap_in, set_issi_in,
};

use super::super::process::errno::{Errno, Result};
use super::command::Command;
use crate::card::Card;

/// Bytes of a reply that is a status alone.
const STATUS: usize = 0x10;
/// Bytes of a page given to a device.
const PAGE: usize = 4096;
/// What QUERY_PAGES asks for (op_mod).
const BOOT: u32 = 1;
const INIT: u32 = 2;
/// What MANAGE_PAGES does (op_mod).
const GIVE: u32 = 1;
/// The version of the command interface that the driver knows.
const ISSI: u32 = 1;
/// Groups of capabilities that the driver sets: general and atomic ones.
const SET: [u32; 2] = [0, 3];

/// Resets a device and starts its HCA.
pub(super) fn boot(card: &mut Card) -> Result<()> {
    card.reset();
    Command::new(opcode::ENABLE_HCA, enable_hca_in::SIZE, STATUS).run(card)?;
    choose_interface(card)?;
    give_pages(card, BOOT)?;
    for group in SET {
        set_capabilities(card, group)?;
    }
    give_pages(card, INIT)?;
    Command::new(opcode::INIT_HCA, init_hca_in::SIZE, STATUS).run(card)?;
    Ok(())
}

fn choose_interface(card: &mut Card) -> Result<()> {
    let query = Command::new(opcode::QUERY_ISSI, query_issi_in::SIZE, query_issi_out::SIZE);
    let reply = query.run(card)?;
    if query_issi_out::SUPPORTED_ISSI_DW0.get(&reply) & 1 << ISSI == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let mut set = Command::new(opcode::SET_ISSI, set_issi_in::SIZE, STATUS);
    set.set(set_issi_in::CURRENT_ISSI, ISSI);
    set.run(card)?;
    Ok(())
}

/// Gives the device the pages that it asks for.
fn give_pages(card: &mut Card, stage: u32) -> Result<()> {
    let mut query = Command::new(opcode::QUERY_PAGES, query_pages_in::SIZE, query_pages_out::SIZE);
    query.set(query_pages_in::OP_MOD, stage);
    let count = query_pages_out::NUM_PAGES.get(&query.run(card)?);
    if count == 0 {
        return Ok(());
    }
    let first = pages(count as usize)?;
    let mut give =
        Command::new(opcode::MANAGE_PAGES, manage_pages_in::SIZE, manage_pages_out::SIZE);
    give.set(manage_pages_in::OP_MOD, GIVE);
    give.set(manage_pages_in::INPUT_NUM_ENTRIES, count);
    give.pages((0..count).map(|page| first + page * PAGE as u64));
    give.run(card)?;
    Ok(())
}

/// Returns the address of so many pages of memory. They are never freed, because the device has
/// them until the process ends.
fn pages(count: usize) -> Result<u64> {
    let bytes = count.checked_mul(PAGE).ok_or(Errno::ENOMEM)?;
    let layout = Layout::from_size_align(bytes, PAGE).map_err(|_| Errno::ENOMEM)?;
    // SAFETY: the layout has at least one page, because the caller asks for one at least.
    let memory = unsafe { alloc(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    Ok(memory as u64)
}

/// Sets a group of capabilities to what is current: the driver needs no others.
fn set_capabilities(card: &mut Card, group: u32) -> Result<()> {
    let mut query =
        Command::new(opcode::QUERY_HCA_CAP, query_hca_cap_in::SIZE, query_hca_cap_out::SIZE);
    query.set(query_hca_cap_in::OP_MOD, group << 1 | 1);
    let reply = query.run(card)?;
    let current = &reply[query_hca_cap_out::CAPABILITY.bytes()];
    let mut set = Command::new(opcode::SET_HCA_CAP, set_hca_cap_in::SIZE, STATUS);
    set.set(set_hca_cap_in::OP_MOD, group << 1);
    let start = set_hca_cap_in::CAPABILITY.bytes().start;
    set.bytes()[start..start + current.len()].copy_from_slice(current);
    set.run(card)?;
    Ok(())
}
