//! Which frames reach the function, and which are counted.

use mlx5_sys::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, flow_counter_list, set_l2_table_entry_in,
};

use super::*;
use crate::function::List;
use crate::wire::Frame;

/// Returns whether a frame to an address passes the port's settings.
fn passes(side: &Side, to: [u8; 6]) -> bool {
    let mut frame = tcp(0, 30);
    frame[..6].copy_from_slice(&to);
    side.rig.card.admits(&frame)
}

const OWN: [u8; 6] = [2, 0, 0, 0, 1, 1];
const OTHER: [u8; 6] = [2, 0, 0, 0, 1, 2];
const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];
const BROADCAST: [u8; 6] = [0xff; 6];

#[test]
fn the_lists_of_the_virtual_port_say_which_frames_pass() {
    let mut side = Side::new();
    let all = [OWN, OTHER, GROUP, BROADCAST];
    assert_eq!(all.map(|to| passes(&side, to)), [true; 4], "the driver has set nothing");
    let vport = &mut side.rig.card.function.vport;
    assert!(vport.set_list(List::Vlan, vec![5]));
    assert_eq!(all.map(|to| passes(&side, to)), [true; 4], "VLANs are not filtered");
    let vport = &mut side.rig.card.function.vport;
    assert!(vport.set_list(List::Unicast, vec![0x0200_0000_0101]));
    assert_eq!(all.map(|to| passes(&side, to)), [true, false, false, false]);
    let vport = &mut side.rig.card.function.vport;
    assert!(vport.set_list(List::Multicast, vec![0xffff_ffff_ffff]));
    assert_eq!(all.map(|to| passes(&side, to)), [true, false, false, true]);
    for (kinds, expected) in [
        ([true, false, false], [true, true, false, true]),
        ([false, true, false], [true, false, true, true]),
        ([false, false, true], [true; 4]),
        ([false; 3], [true, false, false, true]),
    ] {
        side.rig.card.function.vport.set_promiscuous(kinds);
        assert_eq!(all.map(|to| passes(&side, to)), expected, "{kinds:?}");
    }
}

/// Fact F069. Whether broadcast passes without an entry is not known; Linux's driver lists it.
#[test]
fn a_neighbour_is_found_by_its_group_or_by_all_groups() {
    const SOLICITED: [u8; 6] = [0x33, 0x33, 0xff, 0, 1, 1];
    let mut side = Side::new();
    let vport = &mut side.rig.card.function.vport;
    assert!(vport.set_list(List::Unicast, vec![0x0200_0000_0101]));
    assert!(vport.set_list(List::Multicast, vec![0xffff_ffff_ffff]));
    assert_eq!([SOLICITED, BROADCAST].map(|to| passes(&side, to)), [false, true]);
    side.rig.card.function.vport.set_promiscuous([false, true, false]);
    assert!(passes(&side, SOLICITED));
    let vport = &mut side.rig.card.function.vport;
    vport.set_promiscuous([false; 3]);
    assert!(vport.set_list(List::Multicast, vec![0xffff_ffff_ffff, 0x3333_ff00_0101]));
    assert!(passes(&side, SOLICITED));
}

/// Fact F068.
#[test]
fn a_port_that_wants_all_frames_receives_none_without_a_rule() {
    let mut side = Side::new();
    side.receive(0, 0x400, 256);
    side.rig.card.function.vport.set_promiscuous([true; 3]);
    let frame = Frame::new(tcp(0x0101, 30));
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63], UNWRITTEN, "nothing has arrived");
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63] >> 4, 2);
}

#[test]
fn the_table_of_addresses_lets_frames_of_a_vlan_pass() {
    let mut side = Side::new();
    use set_l2_table_entry_in as q;
    let set =
        Command::new(opcode::SET_L2_TABLE_ENTRY, q::SIZE).set(q::MAC_ADDRESS, 0x0200_0000_0101u64);
    side.rig.run(&set).unwrap();
    assert_eq!([OWN, OTHER].map(|to| passes(&side, to)), [true, false]);
    side.rig.run(&set.set(q::VLAN_VALID, 1u64).set(q::VLAN, 5u64)).unwrap();
    assert!(!passes(&side, OWN), "the frame has no tag");
    let mut frame = tcp(0x0101, 30);
    frame.splice(12..12, [0x81, 0, 0xe0, 5]);
    assert!(side.rig.card.admits(&frame), "VLAN 5 of priority 7");
    frame[15] = 6;
    assert!(!side.rig.card.admits(&frame));
}

#[test]
fn a_frame_that_is_filtered_reaches_no_flow() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive(0, 0x400, 256);
    side.rig.card.function.vport.set_promiscuous([false; 3]);
    let frame = Frame::new(tcp(0x0101, 30));
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63], UNWRITTEN);
    side.rig.card.function.vport.set_promiscuous([true, false, false]);
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63] >> 4, 2);
}

#[test]
fn a_flow_that_forwards_counts_its_packets() {
    let mut side = Side::new();
    let alloc = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE);
    let counter = side.rig.number(&alloc, alloc_flow_counter_out::FLOW_COUNTER_ID);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    // The entry again, with a counter behind its destination.
    let field = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
    let mut change = side.entry(0, 0x0101, &[tir], 1);
    let mut named = [0; flow_counter_list::SIZE];
    flow_counter_list::FLOW_COUNTER_ID.set(&mut named, counter.into());
    change.0.extend_from_slice(&named);
    let change = |mask: u64| {
        change
            .clone()
            .set(set_fte_in::OP_MOD, 1u64)
            .set(set_fte_in::MODIFY_ENABLE_MASK, mask)
            .set(field(flow_context::ACTION), 4u64 | 8)
            .set(field(flow_context::FLOW_COUNTER_LIST_SIZE), 1u64)
    };
    // Action, without and with the list of counters.
    side.rig.run(&change(1)).unwrap();
    side.rig.card.receive(&Frame::new(tcp(0x0101, 20)));
    side.rig.run(&change(1 | 8)).unwrap();
    side.receive(0, 0x400, 256);
    side.rig.card.receive(&Frame::new(tcp(0x0101, 30)));
    side.rig.card.receive(&Frame::new(tcp(0x0101, 40)));
    side.rig.card.receive(&Frame::new(tcp(0x0102, 50)));
    side.rig.card.settle();
    assert_eq!(side.received(0)[63] >> 4, 2, "it is forwarded as well");
    let counted = side.rig.card.objects.flow_counters.get(counter).unwrap();
    assert_eq!((counted.packets, counted.octets), (2, 84 + 94));
}
