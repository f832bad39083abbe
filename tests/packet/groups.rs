//! Multicast groups: rule and membership.

use std::net::{IpAddr, SocketAddr};

use mlx5::packet::{Group, Membership, PacketPort};
use mlx5::wqe::{EthSend, Inline};

use crate::rig;

/// A packet of UDP to a group, the checksum left out.
fn udp(from: [u8; 4], to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let IpAddr::V4(group) = to.ip() else { panic!("IPv4") };
    let [_, b, c, d] = group.octets();
    let mut packet = vec![1, 0, 0x5e, b & 0x7f, c, d, 2, 0, 0, 0, 0, 8, 8, 0, 0x45, 0];
    packet.extend_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 0, 1, 17, 0, 0]);
    packet.extend_from_slice(&from);
    packet.extend_from_slice(&group.octets());
    packet.extend_from_slice(&7000_u16.to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    packet
}

#[test]
fn packets_of_groups_come_as_long_as_they_are_joined() {
    let rig = rig();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let interface = port.interface().unwrap().name.clone();
    let mut receiver = port.receiver().build().unwrap();
    let mut sender = port.sender().build().unwrap();
    let [.., c, d] = std::process::id().to_be_bytes();
    // 64 groups on one queue, told apart by their tags.
    let group = |number: u8| IpAddr::from([239, c, d, number]);
    let join = |number: u8, source: Option<IpAddr>| {
        let group = Group::join(&interface, source, group(number)).unwrap();
        assert_eq!(group.membership(), Membership::NoInterface, "of the model alone");
        group
    };
    let rules: Vec<_> = (0..64)
        .map(|number| receiver.join(join(number, None), 9000, number.into()).unwrap())
        .collect();
    let source = IpAddr::from([10, 0, 0, 5]);
    receiver.join(join(64, Some(source)), 9000, 64).unwrap();
    let mut arrive = |receiver: &mut mlx5::packet::PacketReceiver, from, number, port| {
        let packet = udp(from, SocketAddr::new(group(number), port), &[number; 20]);
        sender.post(0, EthSend::new(Inline(&packet)).signaled()).unwrap();
        sender.poll().for_each(|returned| drop(returned.unwrap()));
        let tags: Vec<u32> =
            receiver.poll(8).map(|packet| packet.unwrap().info().flow_tag).collect();
        tags
    };
    for number in 0..64 {
        assert_eq!(arrive(&mut receiver, [10, 0, 0, 4], number, 9000), [u32::from(number)]);
        assert_eq!(arrive(&mut receiver, [10, 0, 0, 4], number, 9001), []);
    }
    assert_eq!(arrive(&mut receiver, [10, 0, 0, 4], 64, 9000), [], "another source");
    assert_eq!(arrive(&mut receiver, [10, 0, 0, 5], 64, 9000), [64]);
    assert!(receiver.remove(rules[7]));
    assert_eq!(arrive(&mut receiver, [10, 0, 0, 4], 7, 9000), []);
    assert_eq!(arrive(&mut receiver, [10, 0, 0, 4], 8, 9000), [8]);
}
