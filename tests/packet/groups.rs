//! Multicast groups: rule and membership.

use std::net::{IpAddr, SocketAddr};

use mlx5::packet::{Group, Membership, PacketPort, PacketReceiver};
use mlx5::wqe::{EthSend, Inline};

use crate::rig;

/// A packet of UDP to a group, the checksum left out.
fn udp(from: [u8; 4], to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let IpAddr::V4(group) = to.ip() else { panic!("IPv4") };
    let mac = Group::mac_of(to.ip()).unwrap();
    let mut packet = [mac.as_slice(), &[2, 0, 0, 0, 0, 8], &[8, 0, 0x45, 0]].concat();
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
    let mut arrive = |receiver: &mut PacketReceiver, from, number, port| {
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

/// Bursts to all groups at once, more packets than one poll returns.
#[test]
fn packets_of_64_groups_come_with_the_tag_of_their_group_and_none_is_lost() {
    const GROUPS: u8 = 64;
    const ROUNDS: u64 = 100;
    let rig = rig();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let interface = port.interface().unwrap().name.clone();
    let [.., c, d] = std::process::id().to_be_bytes();
    let group = |number: u8| SocketAddr::new(IpAddr::from([238, c, d, number]), 9100);
    for builder in [port.receiver().slots(512), port.receiver().slots(16).striding(64, 64)] {
        let mut receiver = builder.build().unwrap();
        for number in 0..GROUPS {
            let group = Group::join(&interface, None, group(number).ip()).unwrap();
            receiver.join(group, 9100, 0x1000 + u32::from(number)).unwrap();
        }
        let mut sender = port.sender().build().unwrap();
        let mut seen = [0_u64; GROUPS as usize];
        for round in 0..ROUNDS {
            // Each round begins with another group.
            let first = round * 7;
            for number in (first..).take(GROUPS.into()).map(|at| (at % u64::from(GROUPS)) as u8) {
                let payload = [u64::from(number).to_be_bytes(), round.to_be_bytes()].concat();
                let packet = udp([10, 0, 0, 4], group(number), &payload);
                sender.post(0, EthSend::new(Inline(&packet)).signaled()).unwrap();
                sender.poll().for_each(|returned| drop(returned.unwrap()));
            }
            // Bursts grow, up to four rounds.
            if round % 4 < 3 {
                continue;
            }
            while let packets @ 1.. = take(&mut receiver, &mut seen) {
                assert!(packets <= 32);
            }
        }
        assert_eq!(seen, [ROUNDS; GROUPS as usize]);
        assert_eq!(receiver.losses().unwrap().packets, 0);
    }
}

/// Takes the packets of one poll, and returns how many they are. `seen` is the next number of each group.
fn take(receiver: &mut PacketReceiver, seen: &mut [u64]) -> usize {
    let mut packets = 0;
    for packet in receiver.poll(32) {
        let packet = packet.unwrap();
        let word = |at: usize| u64::from_be_bytes(packet[at..at + 8].try_into().unwrap());
        let (group, round) = (word(42), word(50));
        assert_eq!(u64::from(packet.info().flow_tag), 0x1000 + group);
        assert_eq!(round, seen[group as usize], "of group {group}, in order");
        seen[group as usize] += 1;
        packets += 1;
    }
    packets
}
