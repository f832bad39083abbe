//! Unit tests.

use mlx5_sys::ifc::opcode;

use super::super::test::{Command, Rig};
use super::*;
use crate::card::{Link, PortState};
use crate::wire::Frame;

#[test]
fn the_port_says_whether_it_is_up() {
    let mut rig = Rig::new();
    let query = Command::new(opcode::QUERY_VPORT_STATE, 0x10);
    for (kind, up) in [(OWN, true), (UPLINK, true), (OWN, false), (UPLINK, false)] {
        rig.card.port_state = if up { PortState::Active } else { PortState::Polling };
        let reply = rig.run(&query.clone().set(OP_MOD, kind)).unwrap();
        assert_eq!(query_vport_state_out::STATE.get(&reply), u64::from(up));
        assert_eq!(query_vport_state_out::ADMIN_STATE.get(&reply), 1);
    }
}

#[test]
fn packets_are_counted_by_what_they_are_sent_to_until_cleared() {
    let mut rig = Rig::on(Link::Roce);
    for (first, times) in [(0xffu8, 1), (0x01, 2), (0x02, 3)] {
        let mut frame = vec![first; 60];
        frame[5] = if first == 0xff { 0xff } else { 0x10 };
        for _ in 0..times {
            rig.card.count_sent(&Frame::new(frame.clone()));
        }
    }
    rig.card.count_sent(&Frame::new(vec![0; 3]));
    let query = Command::new(opcode::QUERY_VPORT_COUNTER, 0x20);
    let reply = rig.run(&query.clone().set(query_vport_counter_in::CLEAR, 1u64)).unwrap();
    use query_vport_counter_out as c;
    let read = |reply: &[u8], field: Field| {
        let get = |part: Field| part.within(field).get(reply);
        (get(traffic_counter::PACKETS), get(traffic_counter::OCTETS))
    };
    assert_eq!(read(&reply, c::TRANSMITTED_ETH_BROADCAST), (1, 60));
    assert_eq!(read(&reply, c::TRANSMITTED_ETH_MULTICAST), (2, 120));
    assert_eq!(read(&reply, c::TRANSMITTED_ETH_UNICAST), (3, 180));
    assert_eq!(read(&reply, c::RECEIVED_ETH_UNICAST), (0, 0));
    let reply = rig.run(&query).unwrap();
    assert_eq!(read(&reply, c::TRANSMITTED_ETH_UNICAST), (0, 0));
}
