//! A capture: writes the packets of a port to a pcapng file, with the times at which the HCA received
//! them.
//!
//! `cargo run --example capture FILE COUNT [INTERFACE]`. On the model: `MLX5_MODEL_LINK=roce`. A thread of
//! its own writes the file: it gets the packets where they arrived, and copies none.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use mlx5::packet::{KeptPacket, PacketPort};
use mlx5::verbs::{ClockReading, Context, DeviceClock};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The clock of a reading converts counts of the next minutes.
const OFTEN: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, count, interface @ ..] = &arguments[..] else {
        return Err("capture FILE COUNT [INTERFACE]".into());
    };
    let count: u64 = count.parse()?;
    let port = match interface {
        [name] => PacketPort::open(name)?,
        _ => PacketPort::new(&Context::open_first()?, 1)?,
    };
    let clock = DeviceClock::new(port.context())?;
    // The writer holds spare slots, so that as many as ever are posted.
    let mut receiver = port.receiver().slots(1024).spare_slots(4096).build()?;
    // A copy of all that the port sends and receives.
    receiver.steer(receiver.rule().sniffer())?;
    let (packets, queue) = channel();
    let file = BufWriter::new(File::create(file)?);
    let writer = thread::spawn(move || write(file, &queue));
    println!("listening on port {}", port.number());

    let (mut taken, mut late) = (0, 0_u64);
    while taken < count {
        let reading = clock.read().ok_or("the clock cannot be read")?;
        // ANCHOR: keep
        for packet in receiver.poll(64).take((count - taken).min(64) as usize) {
            let packet = packet?;
            taken += 1;
            match packet.keep() {
                Some(packet) => packets.send((packet, reading))?,
                // The writer is behind by all spare slots.
                None => late += 1,
            }
        }
        // ANCHOR_END: keep
        receiver.wait(OFTEN)?;
    }
    let losses = receiver.losses()?;
    drop(packets);
    let written = writer.join().expect("the writer's thread panicked")?;
    println!("{written} packets, {late} not written in time");
    println!("lost by the port: {} ({:?})", losses.packets, losses.scope);
    Ok(())
}

/// Writes packets until there are no more, and returns how many.
fn write(file: BufWriter<File>, packets: &Receiver<(KeptPacket, ClockReading)>) -> Result<u64> {
    let mut writer = PcapNgWriter::new(file)?;
    writer.write_pcapng_block(InterfaceDescriptionBlock {
        linktype: DataLink::ETHERNET,
        snaplen: 0,
        // Times in nanoseconds.
        options: vec![InterfaceDescriptionOption::IfTsResol(9)],
    })?;
    let mut written = 0;
    for (packet, reading) in packets {
        let time = reading.time(packet.info().timestamp).duration_since(UNIX_EPOCH)?;
        writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: 0,
            timestamp: time,
            original_len: packet.len() as u32,
            data: Cow::Borrowed(&packet[..]),
            options: Vec::new(),
        })?;
        written += 1;
    }
    Ok(written)
}
