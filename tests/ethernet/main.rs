//! Ethernet packets, on the model with an Ethernet port: the same requests through libmlx5 and
//! through this crate, delivery, the form of each error, and two processes.

mod contexts;
mod counters;
mod devx;
mod headers;
mod multi_packet;
mod processes;
mod rules;
mod striding;
mod tables;
mod times;
mod traffic;
mod twin;

use mlx5::ib::RawPacket;
use mlx5::ring::{PacketRq, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::{Flow, MemoryRegion, QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::Sge;
use rig::Rig;
use rig::ethernet::{address, rig};

/// Bytes of each side's memory.
const MEMORY: usize = 1 << 16;

/// One side: a queue pair with queues and memory. Sends complete on one CQ, receives on another.
struct Side {
    memory: MemoryRegion,
    send: SendQueue<RawPacket>,
    sent: mlx5::ring::CqReader,
    frames: PacketRq,
    qp: QueuePair<RawPacket, Rts>,
}

impl Side {
    fn new(rig: &Rig) -> Self {
        Self::with(rig, |builder| builder)
    }

    fn with(
        rig: &Rig,
        change: impl FnOnce(QueuePairBuilder<RawPacket>) -> QueuePairBuilder<RawPacket>,
    ) -> Self {
        let (send_cq, receive_cq) = (rig.cq(128), rig.cq(128));
        let builder = QueuePairBuilder::<RawPacket>::new(&rig.pd, &send_cq)
            .receive_cq(&receive_cq)
            .max_send_sge(3)
            .max_recv_sge(2)
            .max_inline_data(100)
            .max_tso_header(66);
        let qp = change(builder).build().unwrap().init(1).unwrap();
        let early = PacketRq::new(&qp, &receive_cq, ReceiveConfig::default());
        assert!(early.unwrap_err().to_string().contains("first call rtr"));
        let qp = qp.rtr().unwrap().rts().unwrap();
        let frames = PacketRq::new(&qp, &receive_cq, ReceiveConfig::default()).unwrap();
        let mut sent = mlx5::ring::CqReader::new(&send_cq).unwrap();
        let send = SendQueue::new(&qp, &mut sent, SendConfig::default()).unwrap();
        Self { memory: rig.memory(MEMORY), send, sent, frames, qp }
    }

    fn flow(&self, destination: [u8; 6]) -> Flow {
        Flow::builder(1).destination(destination).tag(0x77).build(&self.qp).unwrap()
    }

    fn sge(&self, offset: usize, length: usize) -> Sge {
        self.memory.sge(offset, length).unwrap()
    }
}

/// A frame with a UDP packet of IPv4, its checksums left out.
fn udp(to: [u8; 6], port: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [to, address(0xff)].concat();
    frame.extend_from_slice(&[8, 0, 0x45, 0]);
    frame.extend_from_slice(&(28 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0x20]);
    frame.extend_from_slice(&port.to_be_bytes());
    frame.extend_from_slice(&(8 + payload.len() as u16).to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(payload);
    frame
}

/// The headers of a TCP segment over IPv4, 54 bytes.
fn tcp_header(to: [u8; 6]) -> Vec<u8> {
    let mut frame = [to, address(0xff)].concat();
    frame.extend_from_slice(&[8, 0, 0x45, 0, 0, 0, 0, 7, 0, 0, 64, 6, 0, 0]);
    frame.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2, 0x10, 0x20, 0x30, 0x40]);
    frame.extend_from_slice(&[0, 0, 0, 100, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame
}
