//! Market data: two multicast streams, A and B, carry the same numbered messages. The first copy of a
//! number is handled, whichever stream it comes by. A message that comes too early is kept where it
//! arrived, until the other stream brings the one before it. What neither brings is a gap.
//!
//! `cargo run --example feed 239.1.1.1 239.1.1.2 9000 [INTERFACE]`, and then `feed_publisher` with the same
//! arguments. On the model: `MLX5_MODEL_LINK=roce`, and no interface. Times of the model say nothing
//! about a device.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::error::Error;
use std::net::IpAddr;
use std::time::Duration;

use mlx5::packet::{Group, KeptPacket, Membership, PacketPort};
use mlx5::verbs::{Context, DeviceClock};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes before a message: Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;
/// The number of the message that ends a stream.
const END: u64 = u64::MAX;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [a, b, udp_port, interface @ ..] = &arguments[..] else {
        return Err("feed GROUP_A GROUP_B UDP_PORT [INTERFACE]".into());
    };
    let port = match interface {
        [name] => PacketPort::open(name)?,
        _ => PacketPort::new(&Context::open_first()?, 1)?,
    };
    // ANCHOR: clock
    let clock = DeviceClock::new(port.context())?;
    // Counts of the HCA's clock are nanoseconds only of some devices.
    let reading = clock.read().ok_or("the clock cannot be read")?;
    // ANCHOR_END: clock
    let name = port.interface().ok_or("the port has no network interface")?.name.clone();
    // ANCHOR: join
    // Room for a burst of 32,768 short packets: two strides of 64 bytes for each.
    let mut receiver = port.receiver().striding(64, 512).slots(128).build()?;
    for (stream, group) in [a, b].into_iter().enumerate() {
        let group = Group::join(&name, None, group.parse::<IpAddr>()?)?;
        if group.membership() == Membership::NoInterface {
            eprintln!("switches are not told of {}", group.address());
        }
        receiver.join(group, udp_port.parse()?, stream as u32)?;
    }
    // ANCHOR_END: join
    println!("listening on {a} and {b}");

    let (mut feed, mut times) = (Feed::default(), Vec::new());
    while feed.ended != [true; 2] {
        let mut found = false;
        // ANCHOR: poll
        for packet in receiver.poll(32) {
            let packet = packet?;
            found = true;
            if packet.fault().is_some() || packet.len() < HEADERS + 8 {
                continue;
            }
            let stream = packet.info().flow_tag as usize;
            let number = u64::from_be_bytes(packet[HEADERS..HEADERS + 8].try_into()?);
            feed.take(stream, number, || packet.keep())?;
            let came = packet.info().timestamp;
            times.extend(clock.count().map(|now| reading.between(came, now)));
        }
        // ANCHOR_END: poll
        // A trading program polls on. This one shares its processor.
        if !found && !receiver.wait(PATIENCE)? {
            return Err("no packet came".into());
        }
    }
    let lost = receiver.losses()?;
    println!("{} messages, {} by A and {} by B", feed.next, feed.by[0], feed.by[1]);
    println!("{} kept for a while, missing in both: {:?}", feed.early, feed.gaps);
    println!("lost here: {} ({:?})", lost.packets, lost.scope);
    times.sort_unstable();
    // There are none where the clock cannot be read.
    let last = times.len().saturating_sub(1);
    for (name, part) in [("median", 50), ("99 %", 99), ("most", 100)] {
        if let Some(time) = times.get((times.len() * part / 100).min(last)) {
            println!("from the wire to the program, {name}: {} ns", time.as_nanos());
        }
    }
    Ok(())
}

/// The arbitration of both streams.
#[derive(Default)]
struct Feed {
    /// The number of the next message.
    next: u64,
    /// Messages that came before their turn.
    waiting: BTreeMap<u64, (usize, KeptPacket)>,
    /// The number behind the last message of each stream.
    passed: [u64; 2],
    ended: [bool; 2],
    /// Messages that were handled, by stream.
    by: [u64; 2],
    early: u64,
    gaps: Vec<u64>,
}

impl Feed {
    /// Takes a message of a stream, and keeps it if its turn has not come.
    fn take(
        &mut self,
        stream: usize,
        number: u64,
        keep: impl FnOnce() -> Option<KeptPacket>,
    ) -> Result<()> {
        if number == END {
            self.ended[stream] = true;
            self.passed[stream] = self.passed.into_iter().max().unwrap_or_default();
        } else {
            self.passed[stream] = number + 1;
            match number {
                number if number == self.next => self.handle(stream),
                number if number > self.next && !self.waiting.contains_key(&number) => {
                    self.early += 1;
                    let kept = keep().ok_or("too many packets wait for a missing one")?;
                    self.waiting.insert(number, (stream, kept));
                }
                // The other stream was first.
                _ => {}
            }
        }
        loop {
            if let Some((stream, packet)) = self.waiting.remove(&self.next) {
                assert_eq!(packet[HEADERS..HEADERS + 8], self.next.to_be_bytes());
                self.handle(stream);
            } else if self.next < self.passed.into_iter().min().unwrap_or_default() {
                self.gaps.push(self.next);
                self.next += 1;
            } else {
                return Ok(());
            }
        }
    }

    /// Handles the next message: here a program would trade.
    fn handle(&mut self, stream: usize) {
        self.by[stream] += 1;
        self.next += 1;
    }
}
