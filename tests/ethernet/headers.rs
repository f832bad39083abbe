//! Rules that change headers, and rules on packets that are sent.

use mlx5::Error;
use mlx5::devx::FlowCounter;

use mlx5::ring::{Packet, PacketEvent};
use mlx5::verbs::FlowDirection::{Received, Sent};
use mlx5::verbs::{FieldChange, Flow, HeaderAction};
use mlx5::wqe::{EthSend, Inline};
use mlx5_sys::dv::MLX5DV_FLOW_TABLE_TYPE_NIC_TX;
use mlx5_sys::ifc::{
    Field, alloc_modify_header_context_in, alloc_modify_header_context_out,
    alloc_packet_reformat_context_in, alloc_packet_reformat_context_out, create_flow_group_in,
    create_flow_group_out, create_flow_table_in, create_flow_table_out, flow_context,
    flow_table_context, opcode, packet_reformat_context_in, set_action_in, set_fte_in,
};
use rig::Rig;

use crate::tables::{Commanded, LedToTable};
use crate::{Side, address, rig, udp};

/// A side that sends and one that receives.
struct Pair {
    rig: Rig,
    sender: Side,
    receiver: Side,
}

impl Pair {
    fn new() -> Self {
        let rig = rig();
        let (sender, receiver) = (Side::new(&rig), Side::new(&rig));
        let mut pair = Self { rig, sender, receiver };
        pair.receiver.provide(1);
        pair
    }

    /// Sends a packet whose checksums the HCA fills in. Returns what arrives.
    fn arrives(&mut self, frame: &[u8]) -> Option<(Vec<u8>, Packet)> {
        let request = EthSend::new(Inline(frame)).checksums().signaled();
        // SAFETY: all of it is in the WQE.
        unsafe { self.sender.send.post(1, request).unwrap() };
        self.sender.sent_well(1);
        match self.receiver.frames.poll().unwrap() {
            Some(PacketEvent::Packet(done)) => {
                let bytes = self.receiver.memory.to_vec(0, done.byte_len as usize);
                self.receiver.provide(1);
                Some((bytes, done))
            }
            Some(other) => panic!("{other:?}"),
            None => None,
        }
    }
}

/// Clears the checksums of a packet of UDP over IPv4.
fn without_checksums(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].fill(0);
    frame[40..42].fill(0);
    frame
}

#[test]
fn fields_change_in_packets_of_both_directions() {
    let mut pair = Pair::new();
    let (before, after, other) = (address(0xa1), address(0xa2), address(0xa3));
    let changes = [
        FieldChange::Destination(after),
        FieldChange::Source([2, 9, 8, 7, 6, 5]),
        FieldChange::SourceIp([10, 9, 9, 1].into()),
        FieldChange::DestinationIp([10, 9, 9, 2].into()),
        FieldChange::Ttl(7),
        FieldChange::Dscp(46),
        FieldChange::UdpSourcePort(6001),
        FieldChange::UdpPort(6002),
        // Fields that the packet lacks.
        FieldChange::TcpPort(1),
        FieldChange::HopLimit(1),
        FieldChange::Vlan(9),
    ];
    let context = &pair.rig.context;
    let [sent, received] = [Sent, Received]
        .map(|direction| HeaderAction::change(context, direction, &changes).unwrap());
    let of_sent = Flow::builder(1).sent().destination(before).action(&sent).pass(context).unwrap();
    let arriving =
        Flow::builder(1).destination(after).udp_port(6002).build(&pair.receiver.qp).unwrap();
    let rule = Flow::builder(1).destination(other).action(&received).tag(5);
    let of_received = rule.build(&pair.receiver.qp).unwrap();
    // Rules keep their actions.
    drop((sent, received));
    let mut expected = udp(after, 6002, b"changed");
    expected[6..12].copy_from_slice(&[2, 9, 8, 7, 6, 5]);
    (expected[15], expected[22]) = (46 << 2, 7);
    expected[26..34].copy_from_slice(&[10, 9, 9, 1, 10, 9, 9, 2]);
    expected[34..36].copy_from_slice(&6001_u16.to_be_bytes());
    for (to, tag) in [(before, 0), (other, 5)] {
        let (bytes, done) = pair.arrives(&udp(to, 4000, b"changed")).unwrap();
        assert_eq!(without_checksums(bytes), expected);
        assert!(done.info().checksums_ok());
        assert_eq!(done.info().flow_tag, tag);
    }
    drop((of_sent, of_received));
    assert!(pair.arrives(&udp(before, 4000, b"as it was")).is_none());
    drop(arriving);
}

/// Ethernet, IPv4 and what follows it, to an address; lengths and checksums are left to the HCA.
fn tunnel(to: [u8; 6], protocol: u8, above: &[u8]) -> Vec<u8> {
    let mut headers = [to, [2, 0, 0, 0, 0, 1]].concat();
    headers.extend_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 0, 0, 0, 32, protocol, 0, 0]);
    headers.extend_from_slice(&[172, 16, 0, 1, 172, 16, 0, 2]);
    headers.extend_from_slice(above);
    headers
}

/// UDP and VXLAN.
const VXLAN: [u8; 16] = [0xc0, 0, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 42, 0];
/// GRE with a packet of IPv4.
const GRE: [u8; 4] = [0, 0, 8, 0];

#[test]
fn packets_go_into_tunnels_and_come_out() {
    let mut pair = Pair::new();
    let context = &pair.rig.context;
    let [to_l2, to_l3, via_l2, via_l3, plain] = [0xa4, 0xa5, 0xa6, 0xa7, 0xa8].map(address);
    let link = [plain, [2, 0, 0, 0, 0, 7]].concat();
    let link = [&link[..], &[0x81, 0, 0, 9, 8, 0]].concat();
    let outer = tunnel(via_l2, 17, &VXLAN);
    let into = HeaderAction::encapsulate(context, &outer).unwrap();
    let into_l3 = HeaderAction::encapsulate_packet(context, &tunnel(via_l3, 47, &GRE)).unwrap();
    let _sent = [(to_l2, &into), (to_l3, &into_l3)].map(|(to, action)| {
        Flow::builder(1).sent().destination(to).action(action).pass(context).unwrap()
    });
    let qp = &pair.receiver.qp;
    let frame = udp(to_l2, 4000, b"in a tunnel");
    // As it is between.
    let seen = Flow::builder(1).destination(via_l2).udp_port(4789).build(qp).unwrap();
    let (bytes, done) = pair.arrives(&frame).unwrap();
    assert!(done.info().checksums_ok());
    assert_eq!(bytes.len(), outer.len() + frame.len());
    assert_eq!(bytes[..16], outer[..16]);
    assert_eq!(bytes[16..18], (bytes.len() as u16 - 14).to_be_bytes());
    assert_eq!(without_checksums(bytes[outer.len()..].to_vec()), frame);
    drop(seen);
    // Out of it again.
    let out = HeaderAction::decapsulate(&pair.rig.context).unwrap();
    let out_l3 = HeaderAction::decapsulate_packet(&pair.rig.context, &link).unwrap();
    let qp = &pair.receiver.qp;
    let _received = [(via_l2, &out), (via_l3, &out_l3)]
        .map(|(to, action)| Flow::builder(1).destination(to).action(action).build(qp).unwrap());
    let (bytes, done) = pair.arrives(&frame).unwrap();
    assert_eq!(without_checksums(bytes), frame);
    assert!(done.info().checksums_ok());
    let frame = udp(to_l3, 4000, b"in a tunnel of IP");
    let (bytes, done) = pair.arrives(&frame).unwrap();
    assert!(done.info().checksums_ok());
    assert_eq!(bytes[..18], link);
    let without_tag = [&bytes[..12], &bytes[16..]].concat();
    assert_eq!(without_checksums(without_tag)[14..], frame[14..]);
}

#[test]
fn sent_packets_are_discarded_and_counted() {
    let mut pair = Pair::new();
    let to = address(0xa9);
    let _received = Flow::builder(1).destination(to).build(&pair.receiver.qp).unwrap();
    let counter = FlowCounter::new(&pair.rig.context).unwrap();
    let rule = || Flow::builder(1).sent().destination(to).udp_port(4001).counter(&counter);
    let rule = rule().discard(&pair.rig.context).unwrap();
    let (dropped, passed) = (udp(to, 4001, b"not wanted"), udp(to, 4002, b"wanted"));
    assert!(pair.arrives(&dropped).is_none());
    assert!(pair.arrives(&passed).is_some());
    let counts = counter.read().unwrap();
    assert_eq!((counts.packets, counts.bytes), (1, dropped.len() as u64));
    drop(rule);
    assert!(pair.arrives(&dropped).is_some());
}

#[test]
fn what_rules_cannot_do_is_refused() {
    let (pair, other) = (Pair::new(), rig());
    let (context, qp) = (&pair.rig.context, &pair.receiver.qp);
    let refused = |refused: Result<Flow, Error>, attribute: &str| match refused.unwrap_err() {
        Error::Attribute { attribute: met, .. } => assert_eq!(met, attribute),
        other => panic!("{other}"),
    };
    let errno = |refused: Result<Flow, Error>| refused.unwrap_err().errno().map(|errno| errno.0);
    let change = |direction, change| HeaderAction::change(context, direction, &[change]);
    let sent = change(Sent, FieldChange::Ttl(1)).unwrap();
    let received = change(Received, FieldChange::Ttl(1)).unwrap();
    let rule = || Flow::builder(1).destination(address(0xaa));
    refused(rule().action(&sent).build(qp), "action");
    refused(rule().sent().action(&received).pass(context), "action");
    let foreign = HeaderAction::change(&other.context, Received, &[FieldChange::Ttl(1)]).unwrap();
    refused(rule().action(&foreign).build(qp), "action");
    refused(rule().sent().build(qp), "target");
    refused(rule().pass(context), "target");
    refused(Flow::builder(1).sniffer().action(&received).build(qp), "rule");
    for value in [FieldChange::Vlan(4096), FieldChange::Dscp(64)] {
        assert!(matches!(change(Sent, value).unwrap_err(), Error::Attribute { .. }));
    }
    // Two of one kind, and another change of the same packets.
    assert_eq!(errno(rule().action(&received).action(&received).build(qp)), Some(libc::EINVAL));
    let _first = rule().action(&received).build(qp).unwrap();
    let _second = rule().action(&received).build(&pair.sender.qp).unwrap();
    let hops = change(Received, FieldChange::Ttl(2)).unwrap();
    assert_eq!(errno(rule().action(&hops).build(qp)), Some(libc::EEXIST));
    // More than the HCA takes, and none.
    let many = [FieldChange::SourceIp("fd00::1".parse().unwrap()); 5];
    for changes in [&many[..], &[]] {
        assert!(HeaderAction::change(context, Sent, changes).is_err());
    }
    assert!(HeaderAction::encapsulate(context, &[0; 129]).is_err());
    assert!(HeaderAction::decapsulate_packet(context, &[0; 15]).is_err());
}

/// `MLX5_FLOW_CONTEXT_ACTION_ALLOW`, `_PACKET_REFORMAT`, `_MOD_HDR`, `_VLAN_POP` and `_VLAN_PUSH`
const ALLOW: u32 = 1;
const REFORMAT: u32 = 0x10;
const MODIFY: u32 = 0x40;
const POP: u32 = 0x80;
const PUSH: u32 = 0x100;

/// A table of sent packets, a group of it, and contexts for an entry, all made by command.
struct Made {
    table: Commanded,
    group: Commanded,
    modify: Commanded,
    reformat: Commanded,
    /// Numbers of table, group and contexts.
    numbers: [u32; 4],
}

impl Made {
    fn new(rig: &Rig) -> Self {
        use alloc_modify_header_context_in as m;
        use packet_reformat_context_in as r;
        let number = |reply: [u8; 16], field: Field| field.get(&reply) as u32;
        let context = |field: Field| field.within(create_flow_table_in::FLOW_TABLE_CONTEXT);
        let fields = [
            (create_flow_table_in::TABLE_TYPE, 1),
            (context(flow_table_context::LEVEL), 64),
            (context(flow_table_context::REFORMAT_EN), 1),
        ];
        let size = create_flow_table_in::SIZE;
        let (table, reply) = Commanded::new(rig, opcode::CREATE_FLOW_TABLE, size, &fields).unwrap();
        let of_table = number(reply, create_flow_table_out::TABLE_ID);
        let fields =
            [(create_flow_group_in::TABLE_TYPE, 1), (create_flow_group_in::TABLE_ID, of_table)];
        let size = create_flow_group_in::SIZE;
        let (group, reply) = Commanded::new(rig, opcode::CREATE_FLOW_GROUP, size, &fields).unwrap();
        let of_group = number(reply, create_flow_group_out::GROUP_ID);
        let action = |field: Field| field.within(Field::new(m::SIZE, 31, 64));
        let fields = [
            (m::TABLE_TYPE, 1),
            (m::NUM_OF_ACTIONS, 1),
            (action(set_action_in::ACTION_TYPE), 1),
            (action(set_action_in::FIELD), 0x0a),
            (action(set_action_in::LENGTH), 8),
        ];
        let (code, size) = (opcode::ALLOC_MODIFY_HEADER_CONTEXT, m::SIZE + set_action_in::SIZE);
        let (modify, reply) = Commanded::new(rig, code, size, &fields).unwrap();
        let of_modify = number(reply, alloc_modify_header_context_out::MODIFY_HEADER_ID);
        let context =
            |field: Field| field.within(alloc_packet_reformat_context_in::PACKET_REFORMAT_CONTEXT);
        let fields = [(context(r::REFORMAT_TYPE), 2), (context(r::REFORMAT_DATA_SIZE), 50)];
        let (code, size) = (opcode::ALLOC_PACKET_REFORMAT_CONTEXT, 0x60);
        let (reformat, reply) = Commanded::new(rig, code, size, &fields).unwrap();
        let of_reformat = number(reply, alloc_packet_reformat_context_out::PACKET_REFORMAT_ID);
        Self {
            table,
            group,
            modify,
            reformat,
            numbers: [of_table, of_group, of_modify, of_reformat],
        }
    }

    /// Creates an entry that names the contexts.
    fn entry(&self, rig: &Rig) -> Result<Commanded, i32> {
        self.entry_with(rig, ALLOW | REFORMAT | MODIFY)
    }

    fn entry_with(&self, rig: &Rig, actions: u32) -> Result<Commanded, i32> {
        let [table, group, modify, reformat] = self.numbers;
        let context = |field: Field| field.within(set_fte_in::FLOW_CONTEXT);
        let fields = [
            (set_fte_in::TABLE_TYPE, 1),
            (set_fte_in::TABLE_ID, table),
            (context(flow_context::GROUP_ID), group),
            (context(flow_context::ACTION), actions),
            (context(flow_context::PUSH_VLAN), 0x8100_2005),
            (context(flow_context::MODIFY_HEADER_ID), modify),
            (context(flow_context::PACKET_REFORMAT_ID), reformat),
        ];
        let code = opcode::SET_FLOW_TABLE_ENTRY;
        Commanded::new(rig, code, set_fte_in::SIZE, &fields).map(|(entry, _)| entry)
    }
}

#[test]
fn contexts_by_command_last_as_long_as_entries_name_them() {
    let rig = rig();
    let made = Made::new(&rig);
    let entry = made.entry(&rig).unwrap();
    let busy = [&made.modify, &made.reformat, &made.group].map(Commanded::destroy);
    assert_eq!(busy, [libc::EREMOTEIO; 3]);
    let order = [&entry, &made.modify, &made.reformat, &made.group, &made.table];
    assert_eq!(order.map(Commanded::destroy), [0; 5]);
}

/// VLAN tags have actions in commands alone.
#[test]
fn a_table_by_command_changes_what_a_flow_leads_to_it() {
    let mut pair = Pair::new();
    let to = address(0xab);
    let _received = Flow::builder(1).destination(to).build(&pair.receiver.qp).unwrap();
    let made = Made::new(&pair.rig);
    let entry = made.entry_with(&pair.rig, ALLOW | POP | MODIFY | PUSH).unwrap();
    let led = LedToTable::new(&pair.rig, to, MLX5DV_FLOW_TABLE_TYPE_NIC_TX, &made.table);
    let plain = udp(to, 4000, b"with a tag");
    let mut tagged = plain.clone();
    tagged.splice(12..12, [0x81, 0, 0, 9]);
    let (bytes, done) = pair.arrives(&tagged).unwrap();
    assert!(done.info().checksums_ok());
    assert_eq!(bytes[12..18], [0x81, 0, 0x20, 5, 8, 0]);
    let mut expected = plain.clone();
    // The context sets the time to live to zero.
    expected[22] = 0;
    let without_tag = [&bytes[..12], &bytes[16..]].concat();
    assert_eq!(without_checksums(without_tag), expected);
    drop((led, entry));
    assert_eq!(without_checksums(pair.arrives(&plain).unwrap().0), plain);
}

#[test]
fn contexts_by_command_are_of_one_user_context() {
    let (own, other) = (rig(), rig());
    let made = Made::new(&own);
    let others = Made::new(&other);
    let [.., modify, reformat] = made.numbers;
    let theirs = others.numbers;
    let naming = |numbers: [u32; 4]| Made { numbers, ..Made::new(&other) }.entry(&other).err();
    let [table, group, of_modify, of_reformat] = theirs;
    assert_eq!(naming([table, group, modify, of_reformat]), Some(libc::EREMOTEIO));
    assert_eq!(naming([table, group, of_modify, reformat]), Some(libc::EREMOTEIO));
    assert_eq!(others.entry(&other).err(), None);
}
