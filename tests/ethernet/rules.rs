//! What flow rules compare: each field alone and together, in the form of verbs and in that of a matcher.

use std::net::{IpAddr, SocketAddr};

use mlx5::devx::FlowCounter;
use mlx5::ring::PacketEvent;
use mlx5::verbs::{Flow, FlowBuilder};
use mlx5::wqe::{EthSend, Inline};
use rig::Rig;

use crate::{Side, rig};

/// A packet of UDP or TCP, the fields of which a test chooses.
#[derive(Clone, Copy)]
struct Sent {
    protocol: u8,
    from: SocketAddr,
    to: SocketAddr,
}

const UDP: u8 = 17;
const TCP: u8 = 6;

impl Sent {
    /// Returns the frame, to the Ethernet address `mac`.
    fn frame(&self, mac: [u8; 6]) -> Vec<u8> {
        let mut frame = [mac, [2, 0, 0, 0, 0, 9]].concat();
        let length: u16 = if self.protocol == UDP { 8 } else { 20 };
        match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend_from_slice(&[8, 0, 0x45, 0]);
                frame.extend_from_slice(&(20 + length).to_be_bytes());
                frame.extend_from_slice(&[0, 0, 0, 0, 64, self.protocol, 0, 0]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&length.to_be_bytes());
                frame.extend_from_slice(&[self.protocol, 64]);
                frame.extend_from_slice(&from.octets());
                frame.extend_from_slice(&to.octets());
            }
            _ => panic!("addresses of two versions"),
        }
        let mut header = [0; 20];
        header[..2].copy_from_slice(&self.from.port().to_be_bytes());
        header[2..4].copy_from_slice(&self.to.port().to_be_bytes());
        match self.protocol {
            UDP => header[4..6].copy_from_slice(&length.to_be_bytes()),
            _ => header[12] = 5 << 4,
        }
        frame.extend_from_slice(&header[..usize::from(length)]);
        frame
    }

    /// Returns packets that differ from this one in one field each.
    fn near(self) -> [Sent; 5] {
        let other = |socket: SocketAddr, ip: bool| match (socket.ip(), ip) {
            (IpAddr::V4(address), true) => {
                SocketAddr::new(IpAddr::from((u32::from(address) ^ 1).to_be_bytes()), socket.port())
            }
            (IpAddr::V6(address), true) => SocketAddr::new(
                // The first bytes: what an address of IPv4 does not reach.
                IpAddr::from((u128::from(address) ^ 1 << 96).to_be_bytes()),
                socket.port(),
            ),
            (ip, false) => SocketAddr::new(ip, socket.port() ^ 1),
        };
        [
            Sent { protocol: self.protocol ^ UDP ^ TCP, ..self },
            Sent { from: other(self.from, true), ..self },
            Sent { from: other(self.from, false), ..self },
            Sent { to: other(self.to, true), ..self },
            Sent { to: other(self.to, false), ..self },
        ]
    }
}

/// A side that receives, and one that sends.
struct Pair {
    rig: Rig,
    sender: Side,
    receiver: Side,
}

impl Pair {
    fn new() -> Self {
        let rig = rig();
        let (sender, mut receiver) = (Side::new(&rig), Side::new(&rig));
        receiver.provide(1);
        Self { rig, sender, receiver }
    }

    /// Returns whether the receiver gets a packet.
    fn arrives(&mut self, frame: &[u8]) -> bool {
        // SAFETY: all of it is in the WQE.
        unsafe { self.sender.send.post(1, EthSend::new(Inline(frame)).signaled()).unwrap() };
        self.sender.sent_well(1);
        match self.receiver.frames.poll().unwrap() {
            Some(PacketEvent::Packet(done)) => {
                assert_eq!(done.byte_len as usize, frame.len());
                self.receiver.provide(1);
                true
            }
            Some(other) => panic!("{other:?}"),
            None => false,
        }
    }

    /// Checks a rule in both forms: that it leads `sent`, and of the packets near to it those alone
    /// whose number is in `others`.
    fn check(&mut self, rule: &FlowBuilder, mac: [u8; 6], sent: Sent, others: &[usize]) {
        let counter = FlowCounter::new(&self.rig.context).unwrap();
        for rule in [rule.clone(), rule.clone().counter(&counter)] {
            let flow = rule.build(&self.receiver.qp).unwrap();
            assert!(self.arrives(&sent.frame(mac)));
            for (at, near) in sent.near().into_iter().enumerate() {
                let expected = others.contains(&at);
                assert_eq!(self.arrives(&near.frame(mac)), expected, "packet {at}");
            }
            drop(flow);
            assert!(!self.arrives(&sent.frame(mac)));
        }
        assert_eq!(counter.read().unwrap().packets, 1 + others.len() as u64);
    }
}

fn socket(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

const PAIRS: [[&str; 2]; 2] =
    [["10.0.0.2:7000", "10.0.0.4:7002"], ["[fd00::2]:7000", "[fd00::4]:7002"]];

#[test]
fn a_connection_is_matched_by_all_five_fields() {
    let mut pair = Pair::new();
    for (number, [from, to]) in PAIRS.into_iter().enumerate() {
        let (from, to) = (socket(from), socket(to));
        for (protocol, number) in [(UDP, 0x60 + number as u8), (TCP, 0x62 + number as u8)] {
            let mac = crate::address(number);
            let rule = Flow::builder(1).destination(mac);
            let rule = if protocol == UDP { rule.udp(from, to) } else { rule.tcp(from, to) };
            pair.check(&rule, mac, Sent { protocol, from, to }, &[]);
        }
    }
}

#[test]
fn each_field_is_matched_alone() {
    let mut pair = Pair::new();
    for (number, [from, to]) in PAIRS.into_iter().enumerate() {
        let sent = Sent { protocol: UDP, from: socket(from), to: socket(to) };
        let mac = crate::address(0x64 + number as u8);
        let rule = || Flow::builder(1).destination(mac);
        pair.check(&rule().source_ip(sent.from.ip()), mac, sent, &[0, 2, 3, 4]);
        pair.check(&rule().destination_ip(sent.to.ip()), mac, sent, &[0, 1, 2, 4]);
        pair.check(&rule().udp_source_port(7000), mac, sent, &[1, 3, 4]);
        pair.check(&rule().udp_port(7002), mac, sent, &[1, 2, 3]);
        let sent = Sent { protocol: TCP, ..sent };
        pair.check(&rule().tcp_source_port(7000), mac, sent, &[1, 3, 4]);
        pair.check(&rule().tcp_port(7002), mac, sent, &[1, 2, 3]);
    }
}

#[test]
fn a_group_is_matched_by_both_of_its_addresses() {
    let mut pair = Pair::new();
    // Tests of other processes use other groups.
    let [a, b, c, d] = std::process::id().to_be_bytes();
    let v4 = (IpAddr::from([239, c & 0x7f, d, b]), [1, 0, 0x5e, c & 0x7f, d, b]);
    let mut v6 = [0; 16];
    (v6[0], v6[1], v6[12], v6[13], v6[14], v6[15]) = (0xff, 0x15, a, b, c, d);
    let v6 = (IpAddr::from(v6), [0x33, 0x33, a, b, c, d]);
    for (group, mac) in [v4, v6] {
        let from = SocketAddr::new(
            if group.is_ipv4() { IpAddr::from([10, 0, 0, 2]) } else { socket(PAIRS[1][0]).ip() },
            1,
        );
        let sent = Sent { protocol: UDP, from, to: SocketAddr::new(group, 9000) };
        let rule = Flow::builder(1).group(group).udp_port(9000);
        // Groups share Ethernet addresses: that of IP decides.
        pair.check(&rule, mac, sent, &[1, 2]);
        let _flow = rule.build(&pair.receiver.qp).unwrap();
        assert!(!pair.arrives(&sent.frame(crate::address(0x66))));
    }
    let refused = Flow::builder(1).group(IpAddr::from([10, 0, 0, 1])).build(&pair.receiver.qp);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("group") && text.contains("224.0.0.0/4"), "{text}");
}

#[test]
fn discarded_packets_reach_no_queue_and_are_counted() {
    let mut pair = Pair::new();
    let mac = crate::address(0x67);
    let [from, to] = PAIRS[0].map(socket);
    let sent = Sent { protocol: UDP, from, to };
    let counter = FlowCounter::new(&pair.rig.context).unwrap();
    let all = Flow::builder(1).destination(mac).priority(1);
    let _flow = all.build(&pair.receiver.qp).unwrap();
    let described = Flow::builder(1).destination(mac).udp(from, to).counter(&counter);
    let discarding = described.discard(&pair.rig.context).unwrap();
    assert!(!pair.arrives(&sent.frame(mac)));
    assert!(pair.arrives(&sent.near()[2].frame(mac)));
    assert_eq!(counter.read().unwrap().packets, 1);
    drop(discarding);
    assert!(pair.arrives(&sent.frame(mac)));
    let refused = Flow::builder(1).rest().discard(&pair.rig.context).unwrap_err();
    assert!(refused.to_string().contains("rest or sniffer"), "{refused}");
}

#[test]
fn a_tag_of_25_bits_is_refused_by_name() {
    let rig = rig();
    let side = Side::new(&rig);
    let rule = Flow::builder(1).destination(crate::address(0x68));
    let refused = rule.clone().tag(1 << 24).build(&side.qp).unwrap_err();
    assert!(refused.to_string().contains("tag"), "{refused}");
    drop(rule.tag((1 << 24) - 1).build(&side.qp).unwrap());
}
