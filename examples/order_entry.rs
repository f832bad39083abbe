//! Tick to trade: an order is written ahead as a whole packet. A packet of the feed triggers it: price and
//! number are filled in, and one BlueFlame copy sends it. The HCA fills the checksums in.
//!
//! Trader and venue in this process: `cargo run --example order_entry [INTERFACE]`. With a venue elsewhere:
//! `order_entry INTERFACE GROUP:PORT VENUE:PORT VENUE_MAC`, the group of its feed, and the address and
//! Ethernet address to which orders go. On the model: `MLX5_MODEL_LINK=roce`. Times of the model say
//! nothing about a device.
#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, UdpSocket};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use etherparse::PacketBuilder;
use mlx5::cqe::Timestamp;
use mlx5::packet::{Group, PacketPort, PacketReceiver};
use mlx5::verbs::{Context, DeviceClock};
use mlx5::wqe::{EthSend, Field, Inline, InlineBytes};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TICKS: u64 = 1_000;
// ANCHOR: fields
/// Bytes of Ethernet, IPv4 and UDP, and of an order or a tick: number, price, quantity.
const HEADERS: usize = 42;
const LENGTH: usize = HEADERS + 24;
const NUMBER: Field<HEADERS, 8> = Field;
const PRICE: Field<{ HEADERS + 8 }, 8> = Field;
// ANCHOR_END: fields
const PATIENCE: Duration = Duration::from_secs(30);

/// Where ticks come from, and where orders go.
#[derive(Clone, Copy)]
struct Addresses {
    /// The trader's.
    mac: [u8; 6],
    ip: Ipv4Addr,
    /// The group of the feed.
    feed: SocketAddrV4,
    venue: SocketAddrV4,
    venue_mac: [u8; 6],
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let port = match arguments.first() {
        Some(name) => PacketPort::open(name)?,
        None => PacketPort::new(&Context::open_first()?, 1)?,
    };
    let mut times = match &arguments[..] {
        [] | [_] => with_own_venue(&port)?,
        [_, group, venue, venue_mac] => {
            let (feed, venue): (_, SocketAddrV4) = (group.parse()?, venue.parse()?);
            let addresses = Addresses {
                mac: port.mac()?,
                ip: source(venue)?,
                feed,
                venue,
                venue_mac: ethernet(venue_mac)?,
            };
            trade(&port, addresses, || println!("listening on {feed}"))?
        }
        _ => return Err("order_entry [INTERFACE [GROUP:PORT VENUE:PORT VENUE_MAC]]".into()),
    };
    times.sort_unstable();
    let median = times[times.len() / 2];
    println!("{TICKS} ticks, each answered by its order");
    println!("from the tick's arrival to the order's doorbell, median: {median} ns");
    Ok(())
}

/// Trades with a venue in this process, on the same port.
fn with_own_venue(port: &PacketPort) -> Result<Vec<u64>> {
    let mac = port.mac()?;
    // Runs beside each other have addresses of their own.
    let [_, b, c, d] = std::process::id().to_be_bytes();
    let offset = u16::from_be_bytes([c, d]) % 16_384;
    let addresses = Addresses {
        mac,
        ip: Ipv4Addr::new(192, 0, 2, 1),
        feed: SocketAddrV4::new(Ipv4Addr::new(239, b, c, d), 20_000 + offset),
        venue: SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 2), 40_000 + offset),
        venue_mac: mac,
    };
    let (ready, is_ready) = channel();
    let trader = port.clone();
    let ready = move || ready.send(()).expect("the venue waits");
    let trader = thread::spawn(move || trade(&trader, addresses, ready));
    // Without a trader there is nothing to publish for, and its error is returned.
    if is_ready.recv().is_ok() {
        publish(port, addresses)?;
    }
    trader.join().expect("the trader's thread panicked")
}

/// Returns this host's address on the way to the venue, which the kernel knows.
fn source(venue: SocketAddrV4) -> Result<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(venue)?;
    match socket.local_addr()?.ip() {
        IpAddr::V4(ip) => Ok(ip),
        IpAddr::V6(ip) => Err(format!("{ip} is no address of IPv4").into()),
    }
}

fn ethernet(text: &str) -> Result<[u8; 6]> {
    let bytes: std::result::Result<Vec<u8>, _> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect();
    bytes?.try_into().map_err(|_| format!("{text} is no Ethernet address").into())
}

/// A packet without a payload of its own: zeros.
fn template(from: ([u8; 6], Ipv4Addr), to: ([u8; 6], SocketAddrV4)) -> Result<[u8; LENGTH]> {
    let packet = PacketBuilder::ethernet2(from.0, to.0)
        .ipv4(from.1.octets(), to.1.ip().octets(), 8)
        .udp(7, to.1.port());
    let mut bytes = Vec::new();
    packet.write(&mut bytes, &[0; LENGTH - HEADERS])?;
    Ok(bytes.try_into().map_err(|_| "a packet of another length")?)
}

/// The next packet's number and price.
fn next(receiver: &mut PacketReceiver) -> Result<(u64, u64, Timestamp)> {
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

/// The trader: answers each tick with an order at its price, and calls `ready` before the first. Returns
/// the times in nanoseconds.
fn trade(port: &PacketPort, addresses: Addresses, ready: impl FnOnce()) -> Result<Vec<u64>> {
    let clock = DeviceClock::new(port.context())?;
    let reading = clock.read().ok_or("the clock cannot be read")?;
    let Addresses { mac, ip, feed, venue, venue_mac } = addresses;
    let name = &port.interface().ok_or("the port has no network interface")?.name;
    let mut ticks = port.receiver().slots(64).build()?;
    ticks.join(Group::join(name, None, IpAddr::V4(*feed.ip()))?, feed.port(), 0)?;
    // ANCHOR: prepare
    let order = template((mac, ip), (venue_mac, venue))?;
    let order = EthSend::new(InlineBytes(order)).checksums().signaled();
    let mut sender = port.sender().build()?.into_prepared();
    sender.prepare(0, order)?;
    // ANCHOR_END: prepare
    ready();
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
fn publish(port: &PacketPort, addresses: Addresses) -> Result<()> {
    let Addresses { mac, feed, venue, venue_mac, .. } = addresses;
    let mut entry = port.receiver().slots(64).build()?;
    entry.steer(entry.rule().destination(venue_mac).udp_port(venue.port()))?;
    let mut sender = port.sender().build()?;
    let group_mac = Group::mac_of(IpAddr::V4(*feed.ip())).ok_or("the feed is no group")?;
    let mut tick = template((mac, *venue.ip()), (group_mac, feed))?;
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
