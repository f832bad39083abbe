//! Commands by which the driver starts and stops the HCA, and gives it pages.

use mlx5_sys::ifc::{
    Field, disable_hca_in, enable_hca_in, init_hca_in, manage_pages_in, manage_pages_out,
    query_issi_out, query_pages_in, query_pages_out, set_issi_in, teardown_hca_in,
};

use super::capability::here;
use super::{OP_MOD, Refusal, get};
use crate::card::Card;
use crate::function::{ISSI, Life, Unasked, Unready};

/// The operations of MANAGE_PAGES, by op_mod (`pagealloc.c` of Linux).
mod manage {
    pub const CANNOT_GIVE: u32 = 0;
    pub const GIVE: u32 = 1;
    pub const TAKE: u32 = 2;
}

/// What QUERY_PAGES asks for, by op_mod.
mod query {
    pub const BOOT: u32 = 1;
    pub const INIT: u32 = 2;
    pub const REGULAR: u32 = 3;
}

/// States in which a command is accepted.
pub mod lives {
    use super::Life;

    pub const DISABLED: &[Life] = &[Life::Disabled];
    pub const ENABLED: &[Life] = &[Life::Enabled];
    pub const SINCE_ENABLED: &[Life] = &[Life::Enabled, Life::Running];
    pub const RUNNING: &[Life] = &[Life::Running];
}

/// Checks that a command is of the driver, and about this function.
fn of_driver(input: &[u8], of_others: Field, function: Field) -> Result<(), Refusal> {
    super::by_driver(input)?;
    here(input, of_others, function)
}

pub fn enable(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use enable_hca_in as q;
    of_driver(input, q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID)?;
    card.function.enable();
    Ok(())
}

pub fn disable(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    use disable_hca_in as q;
    of_driver(input, q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID)?;
    card.function.disable();
    Ok(())
}

pub fn query_issi(card: &mut Card, _: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    query_issi_out::CURRENT_ISSI.set(output, card.function.issi().into());
    query_issi_out::SUPPORTED_ISSI_DW0.set(output, 1 << ISSI);
    Ok(())
}

pub fn set_issi(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    super::by_driver(input)?;
    if get(input, set_issi_in::CURRENT_ISSI) != u32::from(ISSI) {
        return Err(Refusal::Issi);
    }
    card.function.set_issi(ISSI);
    Ok(())
}

pub fn query_pages(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_pages_in as q;
    of_driver(input, q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID)?;
    let pages = &card.function.pages;
    let count = match get(input, OP_MOD) {
        query::BOOT => pages.missing_to_boot(),
        query::INIT => pages.missing_to_start(),
        // Negative if pages are to be taken back.
        query::REGULAR => pages.wanted() as u32,
        _ => return Err(Refusal::OpModifier),
    };
    query_pages_out::NUM_PAGES.set(output, count.into());
    Ok(())
}

pub fn manage_pages(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use manage_pages_in as q;
    of_driver(input, q::EMBEDDED_CPU_FUNCTION, q::FUNCTION_ID)?;
    let count = get(input, q::INPUT_NUM_ENTRIES) as usize;
    match get(input, OP_MOD) {
        manage::CANNOT_GIVE => card.function.pages.give_up(),
        manage::GIVE => {
            let pages = listed(input, count)?;
            card.function.pages.give(&pages).map_err(|unasked| match unasked {
                Unasked::TooMany => Refusal::PagesUnasked,
                Unasked::Twice => Refusal::PagesTwice,
            })?;
        }
        manage::TAKE => {
            let count = count.min(card.function.spare_pages());
            let start = manage_pages_out::PAS.bytes().start;
            let room = output.get_mut(start..start + count * 8).ok_or(Refusal::OutputLength)?;
            for (entry, page) in room.chunks_exact_mut(8).zip(card.function.pages.take(count)) {
                entry.copy_from_slice(&page.to_be_bytes());
            }
            manage_pages_out::OUTPUT_NUM_ENTRIES.set(output, count as u64);
        }
        _ => return Err(Refusal::OpModifier),
    }
    Ok(())
}

/// Reads the list of pages at the end of a command.
fn listed(input: &[u8], count: usize) -> Result<Vec<u64>, Refusal> {
    let start = manage_pages_in::PAS.bytes().start;
    let list = count.checked_mul(8).and_then(|length| input.get(start..)?.get(..length));
    let list = list.ok_or(Refusal::InputLength)?;
    let pages = list.chunks_exact(8).map(|entry| {
        let address = entry.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        if address % 4096 == 0 { Ok(address) } else { Err(Refusal::PageAddress) }
    });
    pages.collect()
}

pub fn init(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    super::by_driver(input)?;
    // Capabilities of several functions that share objects, which are not reported.
    if get(input, init_hca_in::SW_VHCA_ID) != 0 {
        return Err(Refusal::OtherFunction);
    }
    card.function.start().map_err(|unready| match unready {
        Unready::Issi => Refusal::IssiUnset,
        Unready::Pages(_) => Refusal::PagesMissing,
    })
}

/// TEARDOWN_HCA: every object is destroyed.
pub fn teardown(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    /// The driver has closed what it opened (`mlx5_ifc.h`).
    const GRACEFUL: u32 = 0;
    super::by_driver(input)?;
    if get(input, teardown_hca_in::PROFILE) != GRACEFUL {
        return Err(Refusal::TeardownProfile);
    }
    card.clear();
    card.function.stop();
    Ok(())
}

#[cfg(test)]
pub mod tests;
