use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;
use crate::card::Link;

fn counter(rig: &mut Rig) -> u32 {
    let alloc = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE);
    rig.number(&alloc, alloc_flow_counter_out::FLOW_COUNTER_ID)
}

fn query(first: u32, count: u32) -> Command {
    Command::new(opcode::QUERY_FLOW_COUNTER, query_flow_counter_in::SIZE)
        .set(query_flow_counter_in::FLOW_COUNTER_ID, first)
        .set(query_flow_counter_in::NUM_OF_COUNTERS, count)
}

/// Packets and bytes of each counter in a reply.
fn shown(reply: &[u8]) -> Vec<(u64, u64)> {
    let counters = reply[query_flow_counter_out::SIZE..].chunks_exact(traffic_counter::SIZE);
    let read = |c: &[u8]| (traffic_counter::PACKETS.get(c), traffic_counter::OCTETS.get(c));
    counters.map(read).collect()
}

#[test]
fn both_links_have_counters_of_flows() {
    for link in [Link::InfiniBand, Link::Roce] {
        let mut rig = Rig::on(link);
        let number = counter(&mut rig);
        assert_eq!(shown(&rig.run_into(&query(number, 0), 0x20).unwrap()), [(0, 0)]);
    }
}

#[test]
fn a_query_shows_one_counter_or_a_range_and_may_clear() {
    let mut rig = Rig::on(Link::Roce);
    let first = counter(&mut rig);
    let second = counter(&mut rig);
    assert_eq!(second, first + 1);
    for bytes in [60, 100] {
        rig.card.objects.flow_counters.get_mut(second).unwrap().count(bytes);
    }
    let reply = rig.run_into(&query(second, 0), 0x20).unwrap();
    assert_eq!(shown(&reply), [(2, 160)]);
    // The number before is no counter's.
    let reply = rig.run_into(&query(first - 1, 3), 0x40).unwrap();
    assert_eq!(shown(&reply), [(0, 0), (0, 0), (2, 160)]);
    let short = rig.run_into(&query(first - 1, 3), 0x3f);
    assert_eq!(short.err(), Some(Refusal::OutputLength));
    let clear = query(second, 1).set(query_flow_counter_in::CLEAR, 1u64);
    for expected in [(2, 160), (0, 0)] {
        assert_eq!(shown(&rig.run_into(&clear, 0x20).unwrap()), [expected]);
    }
}

#[test]
fn a_range_with_a_counter_of_others_is_refused_to_a_user() {
    let mut rig = Rig::on(Link::Roce);
    let of_driver = counter(&mut rig);
    rig.become_user();
    let own = counter(&mut rig);
    assert!(rig.run(&query(own, 1)).is_ok());
    assert_eq!(rig.run(&query(of_driver, 2)).err(), Some(Refusal::Owner));
}

#[test]
fn a_bulk_has_numbers_in_a_row_and_goes_as_a_whole() {
    let mut rig = Rig::on(Link::Roce);
    let alone = counter(&mut rig);
    let bulk = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE)
        .set(alloc_flow_counter_in::FLOW_COUNTER_BULK, BULK);
    let first = rig.number(&bulk, alloc_flow_counter_out::FLOW_COUNTER_ID);
    let second = rig.number(&bulk, alloc_flow_counter_out::FLOW_COUNTER_ID);
    assert_eq!((first % 512, second), (0, first + 512));
    rig.card.objects.flow_counters.get_mut(first + 511).unwrap().count(60);
    let clear = query(first + 510, 2).set(query_flow_counter_in::CLEAR, 1u64);
    assert_eq!(shown(&rig.run_into(&clear, 0x30).unwrap()), [(0, 0), (1, 60)]);

    let free = |number: u32| {
        Command::new(opcode::DEALLOC_FLOW_COUNTER, dealloc_flow_counter_in::SIZE)
            .set(dealloc_flow_counter_in::FLOW_COUNTER_ID, number)
    };
    assert_eq!(rig.run(&free(first + 511)).err(), Some(Refusal::FlowCounterBulk));
    rig.run(&free(first)).unwrap();
    for number in [first, first + 511] {
        assert_eq!(rig.run(&free(number)).err(), Some(Refusal::NoFlowCounter));
    }
    assert_eq!(rig.card.objects.flow_counters.len(), 513);
    rig.run(&free(alone)).unwrap();
    rig.run(&free(second)).unwrap();
    assert!(rig.card.objects.flow_counters.is_empty());
}

#[test]
fn a_device_has_as_many_counters_as_it_says() {
    let mut rig = Rig::on(Link::Roce);
    let bulk = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE)
        .set(alloc_flow_counter_in::FLOW_COUNTER_BULK, BULK);
    for _ in 0..MAX_COUNTERS / 512 {
        rig.run(&bulk).unwrap();
    }
    assert_eq!(rig.run(&bulk).err(), Some(Refusal::Exhausted));
    counter(&mut rig);
}
