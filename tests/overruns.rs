//! A million packets to a receiver that cannot take all. In a program of its own, since the deep tier
//! runs it.
#![forbid(unsafe_code)]

use mlx5::endpoint::SendEndpoint;
use mlx5::ib::RawPacket;
use mlx5::packet::{LossScope, PacketPort, PacketReceiver};
use mlx5::wqe::{EthSend, Inline};
use rig::ethernet::{address, rig};
use rig::random::Random;

const PACKETS: u64 = 1_000_000;
/// Rules of the receiver, which tell packets apart by their tag.
const RULES: usize = 4;
/// The largest burst, and four times as many packets as there is memory for.
const BURST: u32 = 256;
const SLOTS: u32 = 64;

/// Sends packets of random rules and lengths, which carry a number.
struct Source {
    sender: SendEndpoint<RawPacket>,
    random: Random,
    sent: [u64; RULES],
}

impl Source {
    fn total(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// Sends a burst, whose last request is signaled.
    fn burst(&mut self, count: u64) {
        let mut bytes = [0; 128];
        bytes[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 8, 0x88, 0xb5]);
        let mut batch = self.sender.batch();
        for at in 1..=count {
            let rule = self.random.below(RULES as u32) as usize;
            bytes[..6].copy_from_slice(&address(rule as u8));
            bytes[14..22].copy_from_slice(&self.sent[rule].to_be_bytes());
            self.sent[rule] += 1;
            let length = 60 + self.random.below(69) as usize;
            let request = EthSend::new(Inline(&bytes[..length]));
            batch.append(0, request.signaled_if(at == count)).unwrap();
        }
        batch.ring();
        while !self.sender.send_queue().is_idle() {
            self.sender.poll().for_each(|returned| drop(returned.unwrap()));
        }
    }
}

/// What arrived of each rule.
#[derive(Default)]
struct Sink {
    arrived: [u64; RULES],
    /// The number behind the last one that arrived.
    next: [u64; RULES],
}

impl Sink {
    /// Takes the packets of one poll, and returns how many they are.
    fn take(&mut self, receiver: &mut PacketReceiver, most: usize) -> usize {
        let mut packets = 0;
        for packet in receiver.poll(most) {
            let packet = packet.unwrap();
            let rule = packet.info().flow_tag as usize;
            let number = u64::from_be_bytes(packet[14..22].try_into().unwrap());
            assert!(number >= self.next[rule], "twice, or out of order: {number} of {rule}");
            self.next[rule] = number + 1;
            self.arrived[rule] += 1;
            packets += 1;
        }
        packets
    }
}

/// Sends a million packets in bursts, and checks after each hundredth burst, and in the end, that
/// arrivals and losses are all that was sent.
fn overrun(receiver: &mut PacketReceiver, sender: SendEndpoint<RawPacket>) {
    for rule in 0..RULES {
        let description = receiver.rule().destination(address(rule as u8)).tag(rule as u32);
        receiver.steer(description).unwrap();
    }
    let random = Random::new();
    let (mut source, mut sink) = (Source { sender, random, sent: [0; RULES] }, Sink::default());
    let mut bursts = 0_u64;
    while source.total() < PACKETS {
        let burst = 1 + u64::from(source.random.below(BURST));
        source.burst(burst.min(PACKETS - source.total()));
        let most = source.random.below(BURST) as usize;
        sink.take(receiver, most);
        bursts += 1;
        if bursts % 100 == 0 || source.total() == PACKETS {
            while sink.take(receiver, 64) > 0 {}
            let losses = receiver.losses().unwrap();
            assert_eq!(losses.scope, LossScope::Receiver);
            let arrived: u64 = sink.arrived.iter().sum();
            assert_eq!(arrived + losses.packets, source.total(), "after {bursts} bursts");
        }
    }
    let losses = receiver.losses().unwrap().packets;
    assert!(losses > PACKETS / 10 && losses < PACKETS * 9 / 10, "{losses} lost");
    for rule in 0..RULES {
        assert!(0 < sink.arrived[rule] && sink.arrived[rule] < source.sent[rule]);
    }
}

#[test]
fn arrivals_and_losses_of_a_million_packets_are_all_that_were_sent() {
    let port = PacketPort::new(&rig().context, 1).unwrap();
    let sender = || port.sender().requests(512).build().unwrap();
    let builder = port.receiver().slots(SLOTS).spare_slots(0).slot_bytes(256);
    overrun(&mut builder.build().unwrap(), sender());
    // Slots of 1,024 bytes, each for eight packets or more.
    let builder = port.receiver().slots(SLOTS / 8).spare_slots(0).striding(64, 16);
    overrun(&mut builder.build().unwrap(), sender());
}
