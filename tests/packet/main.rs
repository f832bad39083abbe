//! Packets in safe code, on the model with a port of Ethernet.
#![forbid(unsafe_code)]

mod burst;
mod groups;
mod keep;
mod ports;
mod receive;
mod send;
mod times;

use mlx5::endpoint::SendEndpoint;
use mlx5::ib::RawPacket;
use mlx5::packet::{PacketPort, PacketReceiver, PacketReceiverBuilder};
use mlx5::wqe::{EthSend, Inline};
use rig::Rig;
use rig::ethernet::{address, rig};

/// A port with a receiver of the packets to one address, and a sender to it.
struct Pair {
    rig: Rig,
    port: PacketPort,
    receiver: PacketReceiver,
    sender: SendEndpoint<RawPacket>,
    to: [u8; 6],
    sent: u64,
}

impl Pair {
    fn new(number: u8, change: fn(PacketReceiverBuilder) -> PacketReceiverBuilder) -> Pair {
        let rig = rig();
        let port = PacketPort::new(&rig.context, 1).unwrap();
        let mut receiver = change(port.receiver()).build().unwrap();
        let to = address(number);
        receiver.steer(receiver.rule().destination(to).tag(0x77)).unwrap();
        let sender = port.sender().build().unwrap();
        Pair { rig, port, receiver, sender, to, sent: 0 }
    }

    /// A packet that carries a number, of so many bytes.
    fn packet(&self, number: u64, length: usize) -> Vec<u8> {
        let mut packet = [self.to.as_slice(), &[2, 0, 0, 0, 0, 8], &[0x88, 0xb5]].concat();
        packet.extend_from_slice(&number.to_be_bytes());
        packet.resize(length, number as u8);
        packet
    }

    /// Posts the slots of all packets that polls have returned.
    fn refill(&mut self) {
        drop(self.receiver.poll(0));
    }

    /// Sends the next packets, each of so many bytes.
    fn send(&mut self, count: u64, length: usize) {
        for _ in 0..count {
            let packet = self.packet(self.sent, length);
            self.sent += 1;
            self.sender.post(0, EthSend::new(Inline(&packet)).signaled()).unwrap();
            for returned in self.sender.poll() {
                drop(returned.unwrap());
            }
        }
    }
}

/// Returns the number that a packet carries.
fn number(packet: &[u8]) -> u64 {
    u64::from_be_bytes(packet[14..22].try_into().unwrap())
}
