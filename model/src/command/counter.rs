//! Commands on counters of queues.

use mlx5_sys::ifc::{
    alloc_q_counter_out, dealloc_q_counter_in, qpc, query_q_counter_in, query_q_counter_out,
};

use super::{Refusal, SHARED, UID, get, owned, uid};
use crate::card::{Card, CounterSets};
use crate::object::{Counters, Qp};

/// Whether a queue of user context `user` may be counted in a set: in one of its own, or in one that the
/// driver has made for all. Zero is none.
pub fn may_name(card: &Card, set: u32, user: u16) -> Result<(), Refusal> {
    let for_all = |counters: &Counters| counters.uid == SHARED;
    if set == 0 || card.objects.counters.get(set).is_some_and(for_all) {
        return Ok(());
    }
    find(card, set, user).map(|_| ())
}

fn find(card: &Card, set: u32, user: u16) -> Result<&Counters, Refusal> {
    let counters = card.objects.counters.get(set).ok_or(Refusal::NoCounters)?;
    owned(counters.uid, user)?;
    Ok(counters)
}

pub fn alloc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    // Measured on ConnectX-6: evidence E063.
    if uid(input) != 0 && card.identity.counter_sets == CounterSets::Refused {
        return Err(Refusal::CountersOfUser);
    }
    let owner = get(input, UID) as u16;
    let set = card.objects.counters.add(Counters::new(owner)).ok_or(Refusal::Exhausted)?;
    alloc_q_counter_out::COUNTER_SET_ID.set(output, set.into());
    Ok(())
}

pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    let set = get(input, query_q_counter_in::COUNTER_SET_ID);
    let shown = *find(card, set, uid(input))?.shown();
    output[..query_q_counter_out::SIZE].copy_from_slice(&shown);
    if get(input, query_q_counter_in::CLEAR) == 1 {
        if let Some(counters) = card.objects.counters.get_mut(set) {
            counters.clear();
        }
    }
    Ok(())
}

pub fn dealloc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let set = get(input, dealloc_q_counter_in::COUNTER_SET_ID);
    find(card, set, uid(input))?;
    let named = |qp: &Qp| qp.get(qpc::COUNTER_SET_ID) == set;
    if card.objects.qps.values().any(named) {
        return Err(Refusal::CountersBusy);
    }
    card.objects.counters.remove(set);
    Ok(())
}

#[cfg(test)]
mod tests;
