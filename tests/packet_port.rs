//! A port that goes down and comes up again, under a receiver of packets. In a program of its own, since
//! every other test would notice the port.
#![forbid(unsafe_code)]

use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use mlx5::endpoint::SendEndpoint;
use mlx5::ib::{PortState, RawPacket};
use mlx5::packet::{Group, PacketPort, PacketReceiver};
use mlx5::verbs::{AsyncEvent, AsyncEventKind, AsyncEvents};
use mlx5::wqe::{EthSend, Inline};
use rig::PATIENCE;
use rig::ethernet::{address, rig};

const OWN: u32 = 7;
const OF_GROUP: u32 = 8;

/// Sends a packet to each rule of the receiver, and returns the tags of what arrives.
fn tags(
    receiver: &mut PacketReceiver,
    sender: &mut SendEndpoint<RawPacket>,
    packets: &[Vec<u8>],
) -> Vec<u32> {
    for packet in packets {
        sender.post(0, EthSend::new(Inline(packet)).signaled()).unwrap();
        for returned in sender.poll() {
            drop(returned.unwrap());
        }
    }
    receiver.poll(8).map(|packet| packet.unwrap().info().flow_tag).collect()
}

/// Returns the next event.
fn told(events: &mut AsyncEvents) -> AsyncEvent {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(event) = events.next() {
            return event.unwrap();
        }
        assert!(Instant::now() < deadline, "the port tells of its change");
        thread::yield_now();
    }
}

#[test]
fn flows_and_memberships_outlive_a_port_that_goes_down() {
    let rig = rig();
    let mut events = rig.context.async_events();
    let port = PacketPort::new(&rig.context, 1).unwrap();
    let name = port.interface().unwrap().name.clone();
    let mut receiver = port.receiver().build().unwrap();
    let mut sender = port.sender().build().unwrap();
    let to = address(1);
    receiver.steer(receiver.rule().destination(to).tag(OWN)).unwrap();
    let group = IpAddr::from([239, 7, 7, 7]);
    receiver.join(Group::join(&name, None, group).unwrap(), 9000, OF_GROUP).unwrap();

    let own = [to.as_slice(), &[2, 0, 0, 0, 0, 8, 0x88, 0xb5], &[0; 46]].concat();
    let mut of_group = [
        Group::mac_of(group).unwrap().as_slice(),
        &[2, 0, 0, 0, 0, 8, 8, 0],
        &[0x45, 0, 0, 46, 0, 0, 0, 0, 1, 17, 0, 0, 10, 0, 0, 4, 239, 7, 7, 7],
        &[0x1b, 0x58, 0x23, 0x28, 0, 26, 0, 0],
    ]
    .concat();
    of_group.resize(60, 0);
    let packets = [own, of_group];
    assert_eq!(tags(&mut receiver, &mut sender, &packets), [OWN, OF_GROUP]);

    let mut change = |up, kind, state| {
        assert!(mlx5_model::set_port(0, up));
        let event = told(&mut events);
        assert_eq!(event.kind(), kind);
        assert_eq!(rig.context.port(1).unwrap().state, state);
    };
    change(false, AsyncEventKind::PortError, PortState::Down);
    assert_eq!(tags(&mut receiver, &mut sender, &packets), [0; 0], "over a port that is down");
    assert!(!receiver.wait(Duration::ZERO).unwrap());
    change(true, AsyncEventKind::PortActive, PortState::Active);
    assert_eq!(tags(&mut receiver, &mut sender, &packets), [OWN, OF_GROUP]);
    assert_eq!(receiver.losses().unwrap().packets, 0, "the receiver lost none itself");
}
