//! The other side of the example `feed`: publishes numbered messages in two multicast streams, each of
//! which leaves some out. Two are in neither.
//!
//! `cargo run --example feed_publisher 239.1.1.1 239.1.1.2 9000 [INTERFACE]`
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv4Addr;

use etherparse::PacketBuilder;
use mlx5::endpoint::SendEndpoint;
use mlx5::ib::RawPacket;
use mlx5::packet::{Group, PacketPort};
use mlx5::ring::PostError;
use mlx5::verbs::Context;
use mlx5::wqe::{EthSend, Inline};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Messages of a whole stream.
const MESSAGES: u64 = 5_000;

/// Whether a message is in a stream.
fn is_in(stream: usize, number: u64) -> bool {
    let in_neither = number == 4_000 || number == 4_001;
    !in_neither && number % 100 != [17, 71][stream]
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [a, b, udp_port, interface @ ..] = &arguments[..] else {
        return Err("feed_publisher GROUP_A GROUP_B UDP_PORT [INTERFACE]".into());
    };
    let port = match interface {
        [name] => PacketPort::open(name)?,
        _ => PacketPort::new(&Context::open_first()?, 1)?,
    };
    let groups = [a.parse::<Ipv4Addr>()?, b.parse()?];
    let udp_port = udp_port.parse()?;
    let mut sender = port.sender().build()?;
    for number in (0..MESSAGES).chain([u64::MAX]) {
        for (stream, group) in groups.into_iter().enumerate() {
            if number == u64::MAX || is_in(stream, number) {
                send(&mut sender, number, &message(group, udp_port, number)?)?;
            }
        }
    }
    // ANCHOR: end
    while !sender.send_queue().is_idle() {
        sender.reclaim(0)?;
        for returned in sender.poll() {
            drop(returned?);
        }
    }
    // ANCHOR_END: end
    println!("{MESSAGES} messages");
    Ok(())
}

/// A packet with a number.
fn message(group: Ipv4Addr, udp_port: u16, number: u64) -> Result<Vec<u8>> {
    let mac = Group::mac_of(group.into()).ok_or("a multicast address is needed")?;
    let packet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 9], mac)
        .ipv4([192, 0, 2, 9], group.octets(), 1)
        .udp(9000, udp_port);
    let payload = [number.to_be_bytes().as_slice(), &[0x5a; 24]].concat();
    let mut bytes = Vec::with_capacity(packet.size(payload.len()));
    packet.write(&mut bytes, &payload)?;
    Ok(bytes)
}

/// Sends a packet inside its WQE, and waits while the queue is full. Every sixteenth request is signaled,
/// whose completion stands for those before it.
fn send(sender: &mut SendEndpoint<RawPacket>, number: u64, packet: &[u8]) -> Result<()> {
    // ANCHOR: send
    let request = EthSend::new(Inline(packet)).signaled_if(number % 16 == 0);
    while let Err(refused) = sender.post(number, request) {
        if !matches!(refused.error, PostError::QueueFull { .. } | PostError::CqFull { .. }) {
            return Err(refused.into());
        }
        for returned in sender.poll() {
            drop(returned?);
        }
    }
    // ANCHOR_END: send
    Ok(())
}
