//! The table of rates that send queues are limited to.

use mlx5_sys::ifc::{Field, set_pp_rate_limit_context as context, set_pp_rate_limit_in as q};

use super::{Refusal, by_driver, get};
use crate::card::Card;
use crate::cost::Rate;

/// Entries of the table, of which the first stands for no limit.
pub const RATES: u32 = 128;
/// The lowest and the highest rate, in kbit/s.
pub const RATE_RANGE: (u32, u32) = (1, 100_000_000);

/// SET_PP_RATE_LIMIT: sets an entry, or removes it by a rate of zero.
pub fn set(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    by_driver(input)?;
    let index = get(input, q::RATE_LIMIT_INDEX);
    if !(1..RATES).contains(&index) {
        return Err(Refusal::RateIndex);
    }
    let field = |field: Field| get(input, field.within(q::CTX));
    let kbps = field(context::RATE_LIMIT);
    if kbps > RATE_RANGE.1 {
        return Err(Refusal::RateRange);
    }
    if kbps == 0 {
        card.objects.rates.remove(&index);
        return Ok(());
    }
    let burst = field(context::BURST_UPPER_BOUND);
    card.objects.rates.insert(index, Rate { kbps, burst });
    Ok(())
}

/// Checks the index of a send queue's rate: zero, or that of an entry.
pub fn may_name(card: &Card, index: u32) -> Result<(), Refusal> {
    if index == 0 || card.objects.rates.contains_key(&index) {
        Ok(())
    } else {
        Err(Refusal::NoRate)
    }
}
