//! Commands on counters of flows.

use mlx5_sys::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, dealloc_flow_counter_in, query_flow_counter_in,
    query_flow_counter_out, traffic_counter,
};

use super::{Refusal, get, owned, uid};
use crate::card::Card;
use crate::object::FlowCounter;

/// log2 of counters that one query shows.
pub const LOG_MAX_QUERIED: u32 = 10;
/// log2 of counters that an entry of a flow table names.
pub const LOG_MAX_COUNTERS: u32 = 2;

pub fn alloc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use alloc_flow_counter_in as q;
    if get(input, q::FLOW_COUNTER_BULK) != 0 || get(input, q::FLOW_COUNTER_BULK_LOG_SIZE) != 0 {
        return Err(Refusal::FlowCounterBulk);
    }
    let counter = FlowCounter::new(uid(input));
    let number = card.objects.flow_counters.add(counter).ok_or(Refusal::Exhausted)?;
    alloc_flow_counter_out::FLOW_COUNTER_ID.set(output, number.into());
    Ok(())
}

/// Checks that a command may touch a counter.
pub fn check(card: &Card, number: u32, input: &[u8]) -> Result<(), Refusal> {
    let counter = card.objects.flow_counters.get(number).ok_or(Refusal::NoFlowCounter)?;
    owned(counter.uid, uid(input))
}

/// QUERY_FLOW_COUNTER: one counter, or a range of numbers. Numbers of the range that are no counter's
/// show zero, because drivers begin a range at a multiple of four.
pub fn query(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use query_flow_counter_in as q;
    let (first, count) = (get(input, q::FLOW_COUNTER_ID), get(input, q::NUM_OF_COUNTERS));
    if get(input, q::DUMP_TO_MEMORY) == 1 || count > 1 << LOG_MAX_QUERIED {
        return Err(Refusal::FlowCounterBulk);
    }
    if count == 0 {
        check(card, first, input)?;
    }
    let numbers = first..first.saturating_add(count.max(1));
    for number in numbers.clone() {
        match check(card, number, input) {
            Ok(()) | Err(Refusal::NoFlowCounter) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let room = query_flow_counter_out::SIZE..;
    let room = output.get_mut(room).ok_or(Refusal::OutputLength)?;
    if room.len() < numbers.len() * traffic_counter::SIZE {
        return Err(Refusal::OutputLength);
    }
    for (number, shown) in numbers.zip(room.chunks_exact_mut(traffic_counter::SIZE)) {
        let Some(counter) = card.objects.flow_counters.get_mut(number) else { continue };
        traffic_counter::PACKETS.set(shown, counter.packets);
        traffic_counter::OCTETS.set(shown, counter.octets);
        if get(input, q::CLEAR) == 1 {
            *counter = FlowCounter::new(counter.uid);
        }
    }
    Ok(())
}

pub fn dealloc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_flow_counter_in::FLOW_COUNTER_ID);
    check(card, number, input)?;
    if card.objects.steering.uses_counter(number) {
        return Err(Refusal::FlowCounterBusy);
    }
    card.objects.flow_counters.remove(number);
    Ok(())
}

#[cfg(test)]
mod tests;
