//! Entries that change headers, of packets that arrive and of packets that are sent.

use mlx5_sys::ifc::{
    alloc_flow_counter_in, alloc_flow_counter_out, alloc_modify_header_context_in,
    alloc_modify_header_context_out, alloc_packet_reformat_context_in,
    alloc_packet_reformat_context_out, flow_counter_list, fte_match_set_misc2,
    packet_reformat_context_in, set_action_in,
};

use super::*;
use crate::object::{NIC_RX, NIC_TX, SNIFFER_TX};
use crate::wire::ethernet::{HEADER, tunnel};

/// Actions (`MLX5_FLOW_CONTEXT_ACTION_*`).
const ALLOW: u64 = 1;
const DROP: u64 = 2;
const FORWARD: u64 = 4;
const COUNT: u64 = 8;
const REFORMAT: u64 = 0x10;
const DECAP: u64 = 0x20;
const MODIFY: u64 = 0x40;
const POP: u64 = 0x80;
const PUSH: u64 = 0x100;
const POP_2: u64 = 0x400;
const PUSH_2: u64 = 0x800;

/// A field of criteria or values, and the value to match.
type Matched = Option<(Field, u64)>;

/// Destinations: type and number.
const TABLE: u64 = 1;
const TIR: u64 = 2;

/// The upper bytes of the destination address.
fn upper_dmac() -> Field {
    fte_match_set_lyr_2_4::DMAC_47_16.within(fte_match_param::OUTER_HEADERS)
}

fn of_entry(field: Field) -> Field {
    field.within(set_fte_in::FLOW_CONTEXT)
}

impl Side {
    /// Creates a table whose entries may act on tunnels as far as the type allows.
    fn table_of(&mut self, kind: u8, level: u64) -> u32 {
        let field = |field: Field| field.within(create_flow_table_in::FLOW_TABLE_CONTEXT);
        let create = Command::new(opcode::CREATE_FLOW_TABLE, create_flow_table_in::SIZE)
            .set(create_flow_table_in::TABLE_TYPE, kind)
            .set(field(flow_table_context::LEVEL), level)
            .set(field(flow_table_context::LOG_SIZE), 4u64)
            .set(field(flow_table_context::REFORMAT_EN), u64::from(kind <= NIC_TX))
            .set(field(flow_table_context::DECAP_EN), u64::from(kind == NIC_RX));
        self.rig.number(&create, create_flow_table_out::TABLE_ID)
    }

    /// Creates a table where packets start.
    fn root(&mut self, kind: u8) -> u32 {
        let table = self.table_of(kind, 0);
        let root = Command::new(opcode::SET_FLOW_TABLE_ROOT, set_flow_table_root_in::SIZE)
            .set(set_flow_table_root_in::TABLE_TYPE, kind)
            .set(set_flow_table_root_in::TABLE_ID, table);
        self.rig.run(&root).unwrap();
        table
    }

    /// Returns the command for an entry of a group of its own, with actions and destinations.
    fn rule(
        &mut self,
        (kind, table, index): (u8, u32, u32),
        matched: Matched,
        action: u64,
        destinations: &[(u64, u32)],
    ) -> Command {
        let mut group = Command::new(opcode::CREATE_FLOW_GROUP, create_flow_group_in::SIZE)
            .set(create_flow_group_in::TABLE_TYPE, kind)
            .set(create_flow_group_in::TABLE_ID, table)
            .set(create_flow_group_in::START_FLOW_INDEX, index)
            .set(create_flow_group_in::END_FLOW_INDEX, index);
        let mut entry = Command::new(opcode::SET_FLOW_TABLE_ENTRY, set_fte_in::SIZE)
            .set(set_fte_in::TABLE_TYPE, kind)
            .set(set_fte_in::TABLE_ID, table)
            .set(set_fte_in::FLOW_INDEX, index)
            .set(of_entry(flow_context::FLOW_TAG), 0x77u64)
            .set(of_entry(flow_context::ACTION), action)
            .set(of_entry(flow_context::DESTINATION_LIST_SIZE), destinations.len() as u64);
        if let Some((field, value)) = matched {
            let outer = fte_match_param::OUTER_HEADERS.bytes().contains(&(field.bit_offset() / 8));
            let mask = u64::MAX >> (64 - field.width());
            group = group
                .set(create_flow_group_in::MATCH_CRITERIA_ENABLE, if outer { 1u64 } else { 8 })
                .set(field.within(create_flow_group_in::MATCH_CRITERIA), mask);
            entry = entry.set(field.within(of_entry(flow_context::MATCH_VALUE)), value);
        }
        let group = self.rig.number(&group, create_flow_group_out::GROUP_ID);
        for (kind, number) in destinations {
            let mut destination = [0; dest_format_struct::SIZE];
            dest_format_struct::DESTINATION_TYPE.set(&mut destination, *kind);
            dest_format_struct::DESTINATION_ID.set(&mut destination, (*number).into());
            entry.0.extend_from_slice(&destination);
        }
        entry.set(of_entry(flow_context::GROUP_ID), group)
    }

    fn enter(&mut self, entry: &Command) {
        self.rig.run(entry).unwrap();
    }

    /// Creates a context that sets fields, each to a value.
    fn modify_header(&mut self, kind: u8, fields: &[(u64, u64)]) -> u32 {
        use alloc_modify_header_context_in as a;
        let mut command = Command::new(opcode::ALLOC_MODIFY_HEADER_CONTEXT, a::SIZE)
            .set(a::TABLE_TYPE, kind)
            .set(a::NUM_OF_ACTIONS, fields.len() as u64);
        for (field, value) in fields {
            let mut action = [0; set_action_in::SIZE];
            set_action_in::ACTION_TYPE.set(&mut action, 1);
            set_action_in::FIELD.set(&mut action, *field);
            let length = match field {
                0x0a => 8,
                0x17 => 12,
                0x0c | 0x09 => 16,
                _ => 0,
            };
            set_action_in::LENGTH.set(&mut action, length);
            set_action_in::DATA.set(&mut action, *value);
            command.0.extend_from_slice(&action);
        }
        self.rig.number(&command, alloc_modify_header_context_out::MODIFY_HEADER_ID)
    }

    /// Creates a context of reformatting. `at` is the offset of what is put in or taken off.
    fn reformat(&mut self, kind: u64, at: u64, size: u64, data: &[u8]) -> u32 {
        use packet_reformat_context_in as r;
        let field =
            |field: Field| field.within(alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT);
        let start = field(r::REFORMAT_DATA).bytes().start;
        let code = opcode::ALLOC_PACKET_REFORMAT_CONTEXT;
        let mut command = Command::new(code, alloc_packet_reformat_context_in::SIZE)
            .set(field(r::REFORMAT_TYPE), kind)
            .set(field(r::REFORMAT_PARAM_0), 1u64)
            .set(field(r::REFORMAT_PARAM_1), at)
            .set(field(r::REFORMAT_DATA_SIZE), size);
        command.0.truncate(start);
        command.0.extend_from_slice(data);
        command.0.resize(command.0.len().max(alloc_packet_reformat_context_in::SIZE), 0);
        self.rig.number(&command, alloc_packet_reformat_context_out::PACKET_REFORMAT_ID)
    }

    /// Leads every packet that arrives to the receive queue.
    fn receive_all(&mut self) {
        let table = self.root(NIC_RX);
        let tir = self.tir;
        let entry = self.rule((NIC_RX, table, 0), None, FORWARD, &[(TIR, tir)]);
        self.enter(&entry);
    }

    /// Sends a frame, and returns what is received for it: the bytes, and which checksums are right.
    fn exchange(&mut self, flags: u8, frame: &[u8]) -> Option<(Vec<u8>, u8)> {
        let number = self.taken();
        self.receive(number, 0x400, 0x400);
        self.send(flags, frame);
        let cqe = self.received(u64::from(number));
        if cqe[63] == UNWRITTEN {
            return None;
        }
        let length = u32::from_be_bytes([cqe[44], cqe[45], cqe[46], cqe[47]]) as usize;
        let bytes = self.rig.read::<0x400>(self.page + 0x400);
        Some((bytes[..length].to_vec(), cqe[28]))
    }

    /// How many receives are used up.
    fn taken(&self) -> u16 {
        (0..8).find(|slot| self.received(*slot)[63] == UNWRITTEN).unwrap() as u16
    }
}

/// A TCP packet with right checksums, to 02:00:00:00:<address>.
fn right(address: u16, payload: usize) -> Vec<u8> {
    let mut frame = tcp(address, payload);
    let headers = Headers::of(&frame).unwrap();
    headers.fill_network(&mut frame);
    headers.fill_transport(&mut frame);
    frame
}

/// Headers of VXLAN to the destination 02:00:00:00:<address>.
fn vxlan(address: u16) -> Vec<u8> {
    let mut outer = vec![2, 0, 0, 0];
    outer.extend_from_slice(&address.to_be_bytes());
    outer.extend_from_slice(&[2, 0, 0, 0, 8, 8, 8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0]);
    outer.extend_from_slice(&[172, 16, 0, 1, 172, 16, 0, 2, 0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0]);
    outer.extend_from_slice(&[8, 0, 0, 0, 0, 0, 42, 0]);
    outer
}

fn tagged(mut frame: Vec<u8>, kind: u16, tag: u16) -> Vec<u8> {
    tunnel::push_tag(&mut frame, kind, tag);
    frame
}

/// Which checksums a CQE calls right: those of Ethernet, IP, and TCP or UDP.
const ALL_RIGHT: u8 = 7;

/// The order is that of Linux's `dr_action.c`. Were a tag taken off before the tunnel, or added before
/// fields change, the frame would be another.
#[test]
fn an_entry_changes_packets_in_the_order_of_devices() {
    let mut side = Side::new();
    let table = side.root(NIC_RX);
    let modify = side.modify_header(NIC_RX, &[(0x0a, 9), (0x17, 0xfff), (0x16, 0x0a00_0063)]);
    let outer = vxlan(0x0505);
    let encapsulation = side.reformat(2, 0, outer.len() as u64, &outer);
    let tir = side.tir;
    let actions = FORWARD | DECAP | POP | POP_2 | MODIFY | PUSH | PUSH_2 | REFORMAT;
    let entry = side
        .rule((NIC_RX, table, 0), None, actions, &[(TIR, tir)])
        .set(of_entry(flow_context::MODIFY_HEADER_ID), modify)
        .set(of_entry(flow_context::PACKET_REFORMAT_ID), encapsulation)
        .set(of_entry(flow_context::PUSH_VLAN), 0x8100_2005u64)
        .set(of_entry(flow_context::PUSH_VLAN_2), 0x88a8_0006u64);
    side.enter(&entry);
    let plain = right(0x0101, 30);
    let inner = tagged(tagged(plain.clone(), 0x8100, 1), 0x88a8, 2);
    let sent = tagged(tunnel::encapsulate(&vxlan(0x0202), &inner).unwrap(), 0x8100, 3);
    let (met, checksums) = side.exchange(0, &sent).unwrap();
    let mut changed = plain;
    changed[22] = 9;
    changed[33] = 99;
    let headers = Headers::of(&changed).unwrap();
    headers.fill_network(&mut changed);
    headers.fill_transport(&mut changed);
    let changed = tagged(tagged(changed, 0x8100, 0x2005), 0x88a8, 6);
    assert_eq!(met, tunnel::encapsulate(&outer, &changed).unwrap());
    assert_eq!(checksums, ALL_RIGHT);
}

#[test]
fn the_next_table_sees_the_packet_as_it_is_then() {
    let mut side = Side::new();
    let (first, second, third) =
        (side.root(NIC_RX), side.table_of(NIC_RX, 1), side.table_of(NIC_RX, 2));
    let (tir, address) = (side.tir, dmac_field());
    let entry =
        side.rule((NIC_RX, first, 0), Some((address, 0x0202)), FORWARD | DECAP, &[(TABLE, second)]);
    side.enter(&entry);
    // The registers go along.
    let modify = side.modify_header(NIC_RX, &[(0x52, 0x1234_5678)]);
    let entry = side
        .rule((NIC_RX, second, 0), Some((address, 0x0101)), FORWARD | MODIFY, &[(TABLE, third)])
        .set(of_entry(flow_context::MODIFY_HEADER_ID), modify);
    side.enter(&entry);
    let register = fte_match_set_misc2::METADATA_REG_C_1.within(fte_match_param::MISC_PARAMETERS_2);
    let matched = Some((register, 0x1234_5678));
    let entry = side.rule((NIC_RX, third, 0), matched, FORWARD, &[(TIR, tir)]);
    side.enter(&entry);
    let inner = right(0x0101, 30);
    let sent = tunnel::encapsulate(&vxlan(0x0202), &inner).unwrap();
    assert_eq!(side.exchange(0, &sent), Some((inner.clone(), ALL_RIGHT)));
    // Neither without the tunnel nor with another inside of it.
    assert_eq!(side.exchange(0, &inner), None);
    let other = tunnel::encapsulate(&vxlan(0x0202), &right(0x0102, 30)).unwrap();
    assert_eq!(side.exchange(0, &other), None);
}

/// The lower bytes of the destination address.
fn dmac_field() -> Field {
    fte_match_set_lyr_2_4::DMAC_15_0.within(fte_match_param::OUTER_HEADERS)
}

#[test]
fn a_wrong_checksum_is_reported_behind_a_change_too() {
    let mut side = Side::new();
    let table = side.root(NIC_RX);
    let modify = side.modify_header(NIC_RX, &[(0x0a, 9), (0x16, 0x0a00_0063)]);
    let tir = side.tir;
    let entry = side
        .rule((NIC_RX, table, 0), None, FORWARD | MODIFY, &[(TIR, tir)])
        .set(of_entry(flow_context::MODIFY_HEADER_ID), modify);
    side.enter(&entry);
    let mut frame = right(0x0101, 30);
    assert_eq!(side.exchange(0, &frame).unwrap().1, ALL_RIGHT);
    frame[60] ^= 4;
    // That of Ethernet is right, and that of IP.
    assert_eq!(side.exchange(0, &frame).unwrap().1, 3);
}

#[test]
fn packets_of_ip_come_out_of_tunnels_and_bytes_are_put_in_and_taken_off() {
    let mut side = Side::new();
    let table = side.root(NIC_RX);
    let tir = side.tir;
    let plain = right(0x0101, 30);
    let link = [&plain[..12], &[0x81, 0, 0, 7, 8, 0]].concat();
    let from_tunnel = side.reformat(3, 0, link.len() as u64, &link);
    let insert = side.reformat(0xf, 12, 4, &[0x88, 0xa8, 0, 9]);
    let remove = side.reformat(0x10, 12, 8, &[]);
    let gre = [&vxlan(0x0202)[..HEADER], &[0x45, 0, 0, 0, 0, 0, 0, 0, 64, 47, 0, 0]].concat();
    let gre = [&gre[..], &[172, 16, 0, 1, 172, 16, 0, 2, 0, 0, 8, 0]].concat();
    let in_gre = tunnel::encapsulate(&gre, &plain[HEADER..]).unwrap();
    let with_link = [&link[..], &plain[HEADER..]].concat();
    let twice = tagged(tagged(plain.clone(), 0x8100, 1), 0x88a8, 2);
    for (index, context, sent, expected) in [
        (0, from_tunnel, in_gre, with_link),
        (1, insert, plain.clone(), tagged(plain.clone(), 0x88a8, 9)),
        (2, remove, twice, plain.clone()),
    ] {
        let entry = side
            .rule((NIC_RX, table, index), None, FORWARD | REFORMAT, &[(TIR, tir)])
            .set(of_entry(flow_context::PACKET_REFORMAT_ID), context);
        side.enter(&entry);
        assert_eq!(side.exchange(0, &sent), Some((expected, ALL_RIGHT)), "{index}");
        let delete = Command::new(opcode::DELETE_FLOW_TABLE_ENTRY, delete_fte_in::SIZE)
            .set(delete_fte_in::TABLE_ID, table)
            .set(delete_fte_in::FLOW_INDEX, index);
        side.rig.run(&delete).unwrap();
    }
}

fn counter(side: &mut Side) -> u32 {
    let alloc = Command::new(opcode::ALLOC_FLOW_COUNTER, alloc_flow_counter_in::SIZE);
    side.rig.number(&alloc, alloc_flow_counter_out::FLOW_COUNTER_ID)
}

/// Has an entry count its packets.
fn counted(mut entry: Command, counter: u32) -> Command {
    entry.0.extend_from_slice(&[0; flow_counter_list::SIZE]);
    let last = entry.0.len() - flow_counter_list::SIZE;
    flow_counter_list::FLOW_COUNTER_ID.set(&mut entry.0[last..], counter.into());
    entry.set(of_entry(flow_context::FLOW_COUNTER_LIST_SIZE), 1u64)
}

#[test]
fn a_packet_that_cannot_be_changed_is_counted_and_lost() {
    let mut side = Side::new();
    let table = side.root(NIC_RX);
    let (tir, counter) = (side.tir, counter(&mut side));
    let entry = side.rule((NIC_RX, table, 0), None, FORWARD | DECAP | COUNT, &[(TIR, tir)]);
    side.enter(&counted(entry, counter));
    let frame = right(0x0101, 30);
    assert_eq!(side.exchange(0, &frame), None, "it is in no tunnel");
    let counter = side.rig.card.objects.flow_counters.get(counter).unwrap();
    assert_eq!((counter.packets, counter.octets), (1, frame.len() as u64));
}

#[test]
fn sent_packets_leave_as_the_entries_have_changed_them() {
    let mut side = Side::new();
    side.receive_all();
    let (first, second) = (side.root(NIC_TX), side.table_of(NIC_TX, 1));
    let modify = side.modify_header(NIC_TX, &[(0x16, 0x0a00_0063), (0x09, 77)]);
    let outer = vxlan(0x0505);
    let encapsulation = side.reformat(2, 0, outer.len() as u64, &outer);
    let entry = side
        .rule(
            (NIC_TX, first, 0),
            Some((dmac_field(), 0x0101)),
            FORWARD | MODIFY | PUSH,
            &[(TABLE, second)],
        )
        .set(of_entry(flow_context::MODIFY_HEADER_ID), modify)
        .set(of_entry(flow_context::PUSH_VLAN), 0x8100_2005u64);
    side.enter(&entry);
    let entry = side
        .rule((NIC_TX, second, 0), Some((upper_dmac(), 0x0200_0000)), ALLOW | REFORMAT, &[])
        .set(of_entry(flow_context::PACKET_REFORMAT_ID), encapsulation);
    side.enter(&entry);
    // The WQE's checksums are filled in before, and stay right.
    let (met, checksums) = side.exchange(CHECKSUMS, &tcp(0x0101, 30)).unwrap();
    assert_eq!(checksums, ALL_RIGHT);
    let mut inner = right(0x0101, 30);
    inner[33] = 99;
    inner[36..38].copy_from_slice(&[0, 77]);
    let headers = Headers::of(&inner).unwrap();
    headers.fill_network(&mut inner);
    headers.fill_transport(&mut inner);
    let inner = tagged(inner, 0x8100, 0x2005);
    assert_eq!(met, tunnel::encapsulate(&outer, &inner).unwrap());
    // What no entry matches leaves as it is.
    let other = right(0x0102, 30);
    assert_eq!(side.exchange(0, &other), Some((other, ALL_RIGHT)));
}

#[test]
fn sent_packets_are_dropped_and_counted() {
    let mut side = Side::new();
    side.receive_all();
    let (table, dropped, allowed) = (side.root(NIC_TX), counter(&mut side), counter(&mut side));
    let drop = side.rule((NIC_TX, table, 0), Some((dmac_field(), 0x0101)), DROP | COUNT, &[]);
    side.enter(&counted(drop, dropped));
    let allow = side.rule((NIC_TX, table, 1), Some((dmac_field(), 0x0102)), ALLOW | COUNT, &[]);
    side.enter(&counted(allow, allowed));
    assert_eq!(side.exchange(0, &right(0x0101, 30)), None);
    let frame = right(0x0102, 50);
    assert_eq!(side.exchange(0, &frame), Some((frame, ALL_RIGHT)));
    for (counter, octets) in [(dropped, 84), (allowed, 104)] {
        let counter = side.rig.card.objects.flow_counters.get(counter).unwrap();
        assert_eq!((counter.packets, counter.octets), (1, octets));
    }
    assert_eq!(side.sent(0)[63] >> 4, 0, "the WQE was executed");
}

#[test]
fn a_sent_packet_that_becomes_longer_than_the_port_allows_is_lost() {
    let mut side = Side::new();
    side.receive_all();
    let table = side.root(NIC_TX);
    let outer = vxlan(0x0505);
    let encapsulation = side.reformat(2, 0, outer.len() as u64, &outer);
    let entry = side
        .rule((NIC_TX, table, 0), None, ALLOW | REFORMAT, &[])
        .set(of_entry(flow_context::PACKET_REFORMAT_ID), encapsulation);
    side.enter(&entry);
    // IP, UDP, VXLAN and the inner Ethernet header.
    let fits = right(0x0101, 30).len() - HEADER + outer.len();
    // The limit counts a header, a tag and a checksum.
    assert!(side.rig.card.function.limit.set(fits as u64 + 22));
    assert_eq!(side.exchange(0, &right(0x0101, 31)), None);
    assert_eq!(side.sent(0)[63] >> 4, 0, "the WQE was executed");
    assert!(side.exchange(0, &right(0x0101, 30)).is_some());
}

/// Sniffers of sent packets see what leaves. A port with entries for sent packets alone listens to none.
#[test]
fn a_sniffer_sees_packets_as_they_leave() {
    let mut side = Side::new();
    let table = side.root(NIC_TX);
    let entry = side
        .rule((NIC_TX, table, 0), None, ALLOW | PUSH, &[])
        .set(of_entry(flow_context::PUSH_VLAN), 0x88a8_2005u64);
    side.enter(&entry);
    assert!(!side.rig.card.listens_to_all());
    let (table, tir) = (side.root(SNIFFER_TX), side.tir);
    let entry = side.rule((SNIFFER_TX, table, 0), None, FORWARD, &[(TIR, tir)]);
    side.enter(&entry);
    let frame = right(0x0101, 30);
    let (met, _) = side.exchange(0, &frame).unwrap();
    assert_eq!(met, tagged(frame, 0x88a8, 0x2005));
}
