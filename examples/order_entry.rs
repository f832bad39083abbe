//! Tick to trade: an order is written ahead as a whole packet. A packet of the feed triggers it: price and
//! number are filled in, and one BlueFlame copy sends it. The HCA fills the checksums in.
//!
//! Trader and venue in this process: `cargo run --example order_entry [INTERFACE]`. On the model:
//! `MLX5_MODEL_LINK=roce`. Times of the model say nothing about a device.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use etherparse::PacketBuilder;
use mlx5::packet::{PacketPort, PacketReceiver};
use mlx5::verbs::{Context, DeviceClock};
use mlx5::wqe::{EthSend, Field, Inline, InlineBytes};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TICKS: u64 = 1_000;
/// Bytes of Ethernet, IPv4 and UDP, and of an order or a tick: number, price, quantity.
const HEADERS: usize = 42;
const LENGTH: usize = HEADERS + 24;
const NUMBER: Field<HEADERS, 8> = Field;
const PRICE: Field<{ HEADERS + 8 }, 8> = Field;
/// UDP ports of the feed and of the venue, from which those of this process follow.
const PORTS: (u16, u16) = (20_000, 40_000);
const PATIENCE: Duration = Duration::from_secs(30);

/// Group, its Ethernet address, and UDP ports of feed and venue.
type Addresses = ([u8; 4], [u8; 6], u16, u16);

fn main() -> Result<()> {
    let port = match std::env::args().nth(1) {
        Some(name) => PacketPort::open(&name)?,
        None => PacketPort::new(&Context::open_first()?, 1)?,
    };
    let mac = port.mac()?;
    // Runs beside each other have addresses of their own.
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let offset = u16::from_be_bytes([c, d]) % 16_384;
    let addresses =
        ([239, b, c, d], [1, 0, 0x5e, b & 0x7f, c, d], PORTS.0 + offset, PORTS.1 + offset);
    let (ready, traders) = channel();
    let trader = port.clone();
    let trader = thread::spawn(move || trade(&trader, mac, addresses, &ready));
    publish(&port, mac, addresses, &traders)?;
    let mut times = trader.join().expect("the trader's thread panicked")?;
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!("{TICKS} ticks, each answered by its order");
    println!("from the tick's arrival to the order's doorbell, median: {median} ns");
    Ok(())
}

/// A packet without a payload of its own: zeros.
fn template(from: [u8; 6], to: [u8; 6], ip: [u8; 4], udp_port: u16) -> Result<[u8; LENGTH]> {
    let packet = PacketBuilder::ethernet2(from, to).ipv4([192, 0, 2, 1], ip, 8).udp(7, udp_port);
    let mut bytes = Vec::new();
    packet.write(&mut bytes, &[0; LENGTH - HEADERS])?;
    Ok(bytes.try_into().map_err(|_| "a packet of another length")?)
}

/// The next packet's number and price.
fn next(receiver: &mut PacketReceiver) -> Result<(u64, u64, u64)> {
    loop {
        if let Some(packet) = receiver.poll(1).next() {
            let packet = packet?;
            if let Some(fault) = packet.fault() {
                return Err(format!("a damaged packet: {fault:?}").into());
            }
            let word = |at: usize| packet[at..at + 8].try_into().map(u64::from_be_bytes);
            return Ok((word(HEADERS)?, word(HEADERS + 8)?, packet.info().timestamp));
        }
        // A trading program polls on. This one shares its processor.
        if !receiver.wait(PATIENCE)? {
            return Err("no packet came".into());
        }
    }
}

/// The trader: answers each tick with an order at its price. Returns the times in nanoseconds.
fn trade(
    port: &PacketPort,
    venue: [u8; 6],
    (group, _, feed, orders): Addresses,
    ready: &Sender<()>,
) -> Result<Vec<u64>> {
    let clock = DeviceClock::new(port.context())?;
    let reading = clock.read().ok_or("the clock cannot be read")?;
    let mut ticks = port.receiver().slots(64).build()?;
    ticks.steer(ticks.rule().group(group.into()).udp_port(feed))?;
    // ANCHOR: prepare
    let order = template(venue, venue, [192, 0, 2, 2], orders)?;
    let order = EthSend::new(InlineBytes(order)).checksums().signaled();
    let mut sender = port.sender().build()?.into_prepared();
    sender.prepare(0, order)?;
    // ANCHOR_END: prepare
    ready.send(())?;
    let mut times = Vec::new();
    for _ in 0..TICKS {
        let (number, price, arrived) = next(&mut ticks)?;
        // ANCHOR: fire
        sender.fire((NUMBER.with(number.to_be_bytes()), PRICE.with(price.to_be_bytes())))?;
        // ANCHOR_END: fire
        let fired = clock.count().unwrap_or(arrived);
        times.push(reading.nanoseconds(fired) - reading.nanoseconds(arrived));
        for returned in sender.poll() {
            drop(returned?);
        }
        // While nothing hurries, the next order is written.
        sender.prepare(number + 1, order)?;
    }
    Ok(times)
}

/// The venue: publishes ticks, each when the last one's order has come.
fn publish(
    port: &PacketPort,
    mac: [u8; 6],
    (group, group_mac, feed, orders): Addresses,
    traders: &Receiver<()>,
) -> Result<()> {
    let mut entry = port.receiver().slots(64).build()?;
    entry.steer(entry.rule().destination(mac).udp_port(orders))?;
    let mut sender = port.sender().build()?;
    let mut tick = template(mac, group_mac, group, feed)?;
    traders.recv()?;
    for number in 0..TICKS {
        let price = 10_000 + number * 7919 % 500;
        tick[HEADERS..HEADERS + 8].copy_from_slice(&number.to_be_bytes());
        tick[HEADERS + 8..HEADERS + 16].copy_from_slice(&price.to_be_bytes());
        sender.post(number, EthSend::new(Inline(&tick)).checksums().signaled())?;
        let (answered, at, _) = next(&mut entry)?;
        assert_eq!((answered, at), (number, price), "an order for each tick, at its price");
        for returned in sender.poll() {
            drop(returned?);
        }
    }
    Ok(())
}
