//! Commands on device memory, and the keys that no command makes.

use mlx5_sys::ifc::{
    alloc_memic_in, alloc_memic_out, dealloc_memic_in, mkc, query_special_contexts_out,
};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::{Memic, Run, Translation};
use crate::queue::{DUMP_FILL, NULL, RESERVED};

pub fn alloc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let length = u64::from(get(input, alloc_memic_in::MEMIC_SIZE));
    let start = alloc_memic_in::RANGE_START_ADDR.get(input);
    let room = u64::from(get(input, alloc_memic_in::RANGE_SIZE));
    if length == 0 || length % Memic::GRAIN != 0 {
        return Err(Refusal::MemicSize);
    }
    let window = Memic::WINDOW..Memic::WINDOW + (Memic::PAGES << 12);
    let range = start..start.checked_add(room).ok_or(Refusal::MemicRange)?;
    if !card.memic.is_there() || range.start < window.start || range.end > window.end {
        return Err(Refusal::MemicRange);
    }
    // Counted from the smallest alignment.
    let alignment = get(input, alloc_memic_in::LOG_MEMIC_ADDR_ALIGNMENT) + Memic::GRAIN.ilog2();
    if alignment > Memic::LOG_ALIGNMENT {
        return Err(Refusal::MemicAlignment);
    }
    let run = Run { uid: uid(input), length };
    let at = card.memic.take(range, 1 << alignment, run).ok_or(Refusal::MemicExhausted)?;
    alloc_memic_out::MEMIC_START_ADDR.set(output, at);
    Ok(())
}

pub fn dealloc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let start = dealloc_memic_in::MEMIC_START_ADDR.get(input);
    let run = *card.memic.get(start).ok_or(Refusal::NoMemic)?;
    if run.length != u64::from(get(input, dealloc_memic_in::MEMIC_SIZE)) {
        return Err(Refusal::NoMemic);
    }
    owned(run.uid, uid(input))?;
    let used = card.objects.mkeys.iter().any(|(_, mkey)| {
        let at = mkc::START_ADDR.get(&mkey.context[..]);
        matches!(mkey.translation, Translation::Memic(_))
            && (start..start + run.length).contains(&at)
    });
    if used {
        return Err(Refusal::MemicBusy);
    }
    card.memic.give(start);
    Ok(())
}

/// QUERY_SPECIAL_CONTEXTS: returns keys that no command creates.
pub fn query_special_contexts(_: &mut Card, _: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_special_contexts_out as r;
    for (field, key) in
        [(r::DUMP_FILL_MKEY, DUMP_FILL), (r::RESD_LKEY, RESERVED), (r::NULL_MKEY, NULL)]
    {
        field.set(output, key.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
