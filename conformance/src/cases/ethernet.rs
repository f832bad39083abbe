//! Raw Ethernet packets.

use mlx5::cqe::{Completion, SendOperation, Status};
use mlx5::expert::Dump;
use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, Prepared};
use mlx5::verbs::{QueuePairBuilder, RateLimit};
use mlx5::wqe::{
    EthMultiPacket, EthSend, EthTso, Field, Inline, InlineBytes, MixedPacket, Nop, Sge,
};

use crate::bed::mac;
use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrival, Kind, PacketDoor, Shape};
use crate::side::{Receive, Side, wait};
use crate::verdict::{Verdict, failed, holds, lacking, same};

pub(super) const NEEDS: &[Need] = &[Need::Ethernet, Need::RawPackets];

pub(crate) const CASES: &[Case] = &[
    Case::new("ethernet.pointer", "A packet in memory, in pieces, arrives by its flow.", pointer)
        .needs(NEEDS),
    Case::new(
        "ethernet.inline",
        "A packet in the WQE arrives, with its header apart or not.",
        inline,
    )
    .needs(NEEDS),
    Case::new(
        "ethernet.checksums",
        "The device computes checksums where it is asked, and reports wrong ones.",
        checksums,
    )
    .needs(NEEDS),
    Case::new("ethernet.vlan", "The device inserts a VLAN tag.", vlan).needs(NEEDS),
    Case::new(
        "ethernet.large-send",
        "A large send arrives in packets of the segment size.",
        large_send,
    )
    .needs(NEEDS),
    Case::new(
        "ethernet.multi-packet",
        "Several packets of one WQE arrive in their order, with one completion.",
        multi_packet,
    )
    .needs(NEEDS),
    Case::new(
        "ethernet.prepared",
        "A packet that was written ahead leaves when it is fired, with its fields of then.",
        prepared,
    )
    .needs(NEEDS),
    Case::new("ethernet.rate", "Packets of a queue pair whose rate is limited arrive.", rate)
        .needs(NEEDS),
    Case::new("ethernet.other", "A packet that no flow wants does not arrive.", other).needs(NEEDS),
    Case::new("ethernet.nop", "NOP and DUMP complete and send nothing.", nop).needs(NEEDS),
    Case::new("ethernet.local-length", "A packet beyond the MTU is IBV_WC_LOC_LEN_ERR.", too_long)
        .needs(NEEDS),
    Case::new(
        "ethernet.local-protection",
        "A packet with a wrong lkey is IBV_WC_LOC_PROT_ERR.",
        wrong_lkey,
    )
    .needs(NEEDS),
];

pub(super) struct Line {
    pub(super) side: Side<RawPacket>,
    to: PacketDoor,
    from: [u8; 6],
}

pub(super) fn connect(bench: &mut Bench) -> Verdict<Line> {
    let (base, shape) = (&bench.base, Shape { inline: 100, ..Shape::default() });
    let port = base.local.attributes().port;
    let from = mac(&base.context, port)?;
    let (cq, receive_cq) = (base.cq(&shape)?, base.cq(&shape)?);
    let builder = QueuePairBuilder::<RawPacket>::new(&base.pd, &cq)
        .receive_cq(&receive_cq)
        .max_send_wr(shape.send_wr)
        .max_send_sge(shape.sge)
        .max_inline_data(shape.inline)
        .max_tso_header(66);
    let qp = builder.build()?.init(port).map_err(|refused| refused.error)?;
    let qp = qp.rtr().map_err(|refused| refused.error)?;
    let qp = qp.rts().map_err(|refused| refused.error)?;
    let completions = CqReader::new(&cq)?;
    let side = Side::of(base, &shape, cq, completions, Receive::None, qp)?;
    let door = bench.peer.open(Kind::Ethernet, &Shape::default())?;
    let to = door.packets.ok_or_else(|| failed("the peer does not say where it gets packets"))?;
    Ok(Line { side, to, from })
}

impl Line {
    /// A packet of UDP over IPv4 to the peer, without checksums.
    pub(super) fn udp(&self, payload: &[u8]) -> Vec<u8> {
        self.udp_to(self.to.udp_port, payload)
    }

    fn udp_to(&self, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = [self.to.mac, self.from].concat();
        packet.extend_from_slice(&[8, 0, 0x45, 0]);
        packet.extend_from_slice(&(28 + payload.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0x20]);
        packet.extend_from_slice(&port.to_be_bytes());
        packet.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(payload);
        packet
    }

    /// Headers of UDP over IPv4, for a large send.
    fn header(&self) -> Vec<u8> {
        self.udp(b"")
    }
}

/// Waits for a packet, and returns whether its checksums fit.
pub(super) fn arrives(bench: &mut Bench, id: u64, length: usize) -> Verdict<bool> {
    match bench.peer.next()? {
        Arrival::Packet { id: met, length: bytes, checksums_ok } => {
            same("the peer's packet", (met, bytes as usize), (id, length))?;
            Ok(checksums_ok)
        }
        other => Err(failed(format!("instead of a packet, the peer has {other:?}"))),
    }
}

fn pointer(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let packet = line.udp(b"a payload of some bytes, in pieces");
    let n = packet.len();
    line.side.memory.write(0, &packet);
    bench.peer.receive_into(1, &[(0, 20), (100, 2000)])?;
    let pieces = [line.side.sge(0, 25), line.side.sge(25, n - 25)];
    line.side.post(2, EthSend::new(pieces).signaled())?;
    line.side.sent(2, SendOperation::Send)?;
    arrives(bench, 1, n)?;
    bench.peer.has(0, &packet[..20])?;
    bench.peer.has(100, &packet[20..])
}

fn inline(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let packet = line.udp(b"in the WQE, all of it.");
    let (start, rest) = packet.split_at(18);
    for id in 0..2 {
        bench.peer.fill(0, 200, 0)?;
        bench.peer.receive(id, 0, 2000)?;
        match id {
            0 => line.side.post(5, EthSend::new(Inline(&packet)).signaled())?,
            _ => line.side.post(5, EthSend::new(Inline(rest)).header(start).signaled())?,
        }
        line.side.sent(5, SendOperation::Send)?;
        arrives(bench, id, packet.len())?;
        bench.peer.has(0, &packet[..64])?;
    }
    Ok(())
}

fn checksums(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let packet = line.udp(b"summed up by the device");
    bench.peer.receive(1, 0, 2000)?;
    line.side.post(2, EthSend::new(Inline(&packet)).checksums().signaled())?;
    line.side.sent(2, SendOperation::Send)?;
    holds(arrives(bench, 1, packet.len())?, "the device's own checksums do not fit")?;
    bench.peer.has(0, &packet[..24])?;
    // Without the device's help, the checksum of the IPv4 header is missing.
    bench.peer.receive(3, 0, 2000)?;
    line.side.post(4, EthSend::new(Inline(&packet)).signaled())?;
    line.side.sent(4, SendOperation::Send)?;
    holds(!arrives(bench, 3, packet.len())?, "a missing checksum is reported as right")
}

fn vlan(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let packet = line.udp(b"tagged");
    bench.peer.receive(1, 0, 2000)?;
    line.side.post(2, EthSend::new(Inline(&packet)).vlan(0x6005).signaled())?;
    line.side.sent(2, SendOperation::Send)?;
    arrives(bench, 1, packet.len() + 4)?;
    bench.peer.has(12, &[0x81, 0, 0x60, 5, 8, 0])
}

fn large_send(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    // TCP: the header of UDP up to the ports, then sequence numbers and flags.
    let mut header = line.header();
    header[23] = 6;
    header.truncate(34);
    header.extend_from_slice(&[0x10, 0x20]);
    header.extend_from_slice(&line.to.tcp_port.to_be_bytes());
    header.extend_from_slice(&[0, 0, 0, 100, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    bench.peer.listen_tcp()?;
    let payload: Vec<u8> = crate::message::pattern(5000, 4).collect();
    line.side.memory.write(0, &payload);
    for id in 0..4 {
        bench.peer.receive(id, 2000 * id as u32, 2000)?;
    }
    let pieces = [line.side.sge(0, 3000), line.side.sge(3000, 2000)];
    line.side.post(9, EthTso::new(&header, 1400, pieces).checksums().signaled())?;
    line.side.sent(9, SendOperation::LargeSend)?;
    for piece in 0..4usize {
        let length = [1400, 1400, 1400, 800][piece];
        let fits = arrives(bench, piece as u64, 54 + length)?;
        holds(fits, format!("the checksums of packet {piece} do not fit"))?;
        let at = 2000 * piece as u32;
        bench.peer.has(at + 54, &payload[1400 * piece..1400 * piece + 64])?;
        let sequence = 100 + 1400 * piece as u32;
        bench.peer.has(at + 38, &sequence.to_be_bytes())?;
    }
    Ok(())
}

fn multi_packet(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    if line.side.send()?.limits().max_packets == 0 {
        return Err(lacking("the device takes one packet by a WQE"));
    }
    let packets: Vec<_> = (0..5u8).map(|at| line.udp(&vec![at; 18 + usize::from(at)])).collect();
    for id in 0..packets.len() {
        bench.peer.receive(id as u64, 2000 * id as u32, 2000)?;
    }
    line.side.memory.write(0, &packets[1]);
    line.side.memory.write(200, &packets[4]);
    let burst = [
        MixedPacket::Inline(&packets[0]),
        MixedPacket::Memory(line.side.sge(0, packets[1].len())),
        MixedPacket::Inline(&packets[2]),
        MixedPacket::Inline(&packets[3]),
        MixedPacket::Memory(line.side.sge(200, packets[4].len())),
    ];
    line.side.post(7, EthMultiPacket::new(burst).checksums().signaled())?;
    line.side.sent(7, SendOperation::MultiPacket)?;
    for (id, packet) in packets.iter().enumerate() {
        let fits = arrives(bench, id as u64, packet.len())?;
        holds(fits, format!("the checksums of packet {id} do not fit"))?;
        bench.peer.has(2000 * id as u32 + 42, &packet[42..])?;
    }
    line.side.is_quiet()
}

/// A number in the payload, behind the headers.
const NUMBER: Field<42, 8> = Field;

fn prepared(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let packet: [u8; 90] = line.udp(&[7; 48]).try_into().map_err(|_| failed("not 90 bytes"))?;
    let mut prepared = Prepared::new(line.side.take_send()?);
    for id in 0..10_u64 {
        bench.peer.receive(id, 0, 2000)?;
        prepared.prepare(id, EthSend::new(InlineBytes(packet)).checksums().signaled())?;
        bench.peer.is_quiet()?;
        prepared.fire(NUMBER.with(id.to_be_bytes()))?;
        let patience = line.side.patience();
        match wait(&mut line.side.completions, &mut prepared, patience)? {
            Completion::Send(done) => same("fired packet", done.id, id)?,
            other => return Err(failed(format!("instead of packet {id}: {other:?}"))),
        }
        holds(arrives(bench, id, packet.len())?, "the device's checksums do not fit")?;
        bench.peer.has(42, &id.to_be_bytes())?;
        bench.peer.has(50, &[7; 40])?;
    }
    Ok(())
}

fn rate(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let range = bench.base.context.rate_range()?;
    if !range.has::<RawPacket>() {
        return Err(lacking("the device limits no rates of raw packets"));
    }
    for (id, kbps) in [range.min_kbps.max(100_000), range.max_kbps, 0].into_iter().enumerate() {
        line.side.qp()?.set_rate_limit(RateLimit::new(kbps))?;
        let bytes = line.udp(&[id as u8; 1400]);
        bench.peer.receive(id as u64, 0, 2000)?;
        line.side.memory.write(0, &bytes);
        let send = EthSend::new(line.side.sge(0, bytes.len()));
        line.side.post(id as u64, send.signaled())?;
        line.side.sent(id as u64, SendOperation::Send)?;
        arrives(bench, id as u64, bytes.len())?;
        bench.peer.has(42, &bytes[42..106])?;
    }
    Ok(())
}

fn other(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    bench.peer.receive(1, 0, 2000)?;
    let unwanted = line.udp_to(line.to.unwanted, b"to nobody");
    line.side.post(2, EthSend::new(Inline(&unwanted)).signaled())?;
    line.side.sent(2, SendOperation::Send)?;
    let wanted = line.udp(b"to the peer");
    line.side.post(3, EthSend::new(Inline(&wanted)).signaled())?;
    line.side.sent(3, SendOperation::Send)?;
    arrives(bench, 1, wanted.len())?;
    bench.peer.has(42, b"to the peer")?;
    bench.peer.is_quiet()
}

fn nop(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    bench.peer.receive(1, 0, 2000)?;
    line.side.post(2, Nop::new().signaled())?;
    line.side.sent(2, SendOperation::Nop)?;
    let packet = line.udp(b"read and kept by the device");
    line.side.memory.write(0, &packet);
    line.side.post(3, Dump::new(line.side.sge(0, packet.len())).signaled())?;
    line.side.sent(3, SendOperation::Dump)?;
    bench.peer.is_quiet()
}

fn too_long(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    // More than the largest MTU of an Ethernet port of these devices, 10,240 bytes.
    line.side.post(1, EthSend::new(line.side.sge(0, 12_000)).signaled())?;
    line.side.send_fails(1, Status::LocalLength)
}

fn wrong_lkey(bench: &mut Bench) -> Verdict {
    let mut line = connect(bench)?;
    let sge = Sge { lkey: line.side.memory.lkey() ^ 0x5500, ..line.side.sge(0, 60) };
    line.side.post(1, EthSend::new(sge).signaled())?;
    line.side.send_fails(1, Status::LocalProtection)
}
