//! Commands on counters of flows.

use std::ops::Range;

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
/// Counters of a device.
pub const MAX_COUNTERS: u32 = 0xffff;
/// `flow_counter_bulk`: the sizes of a bulk that are offered, each a bit, and the counters that the
/// lowest bit stands for. A ConnectX-6 Dx offers the same (`evidence/tables/caps-cx6dx.csv`).
pub const BULK: u32 = 4;
const BULK_UNIT: u32 = 128;

/// ALLOC_FLOW_COUNTER: one counter, or a bulk with numbers in a row.
pub fn alloc(card: &mut Card, input: &[u8], output: &mut [u8]) -> Result<(), Refusal> {
    use alloc_flow_counter_in as q;
    let bulk = get(input, q::FLOW_COUNTER_BULK);
    if !matches!(bulk, 0 | BULK) || get(input, q::FLOW_COUNTER_BULK_LOG_SIZE) != 0 {
        return Err(Refusal::FlowCounterBulk);
    }
    let count = (bulk * BULK_UNIT).max(1);
    let counters = &mut card.objects.flow_counters;
    if counters.len() as u32 + count > MAX_COUNTERS {
        return Err(Refusal::Exhausted);
    }
    let first = counters.vacant_row(count).ok_or(Refusal::Exhausted)?;
    let counter = FlowCounter::new(uid(input), first);
    (first..first + count).for_each(|number| counters.insert(number, counter));
    alloc_flow_counter_out::FLOW_COUNTER_ID.set(output, first.into());
    Ok(())
}

/// The counters that one command created, by the number of the first.
fn made_with(card: &Card, first: u32) -> Range<u32> {
    let of_bulk = |number: &u32| {
        card.objects.flow_counters.get(*number).is_some_and(|counter| counter.first == first)
    };
    first..first + (first..).take_while(of_bulk).count() as u32
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
            *counter = FlowCounter::new(counter.uid, counter.first);
        }
    }
    Ok(())
}

pub fn dealloc(card: &mut Card, input: &[u8], _: &mut [u8]) -> Result<(), Refusal> {
    let number = get(input, dealloc_flow_counter_in::FLOW_COUNTER_ID);
    check(card, number, input)?;
    let counters = made_with(card, number);
    if counters.is_empty() {
        return Err(Refusal::FlowCounterBulk);
    }
    if card.objects.steering.uses_counter(&counters) {
        return Err(Refusal::FlowCounterBusy);
    }
    for number in counters {
        card.objects.flow_counters.remove(number);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
