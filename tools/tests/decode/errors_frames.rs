//! Errors of Ethernet frames.

use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, PacketEvent, PacketRq, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::Rts;
use mlx5::verbs::{CompletionQueue, Flow, MemoryRegion, QueuePair, QueuePairBuilder};
use mlx5::wqe::{EthSend, EthTso, Sge};
use mlx5_sys::verbs::ibv_wc_status::*;

use crate::errors::{Expected, Seen, failures, polled, receive, send};
use ::rig::Rig;

/// One side. Sends complete on one CQ, receives on another.
struct Side {
    memory: MemoryRegion,
    send: SendQueue<RawPacket>,
    sent: CqReader,
    frames: PacketRq,
    qp: QueuePair<RawPacket, Rts>,
    cqs: [CompletionQueue; 2],
}

impl Side {
    fn new(rig: &Rig) -> Self {
        let cqs = [rig.cq(255), rig.cq(255)];
        let builder = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cqs[0]).receive_cq(&cqs[1]);
        let qp = builder.max_tso_header(66).build().unwrap().init(1).unwrap();
        let qp = qp.rtr().unwrap().rts().unwrap();
        let frames = PacketRq::new(&qp, &cqs[1], ReceiveConfig::default()).unwrap();
        let mut sent = CqReader::new(&cqs[0]).unwrap();
        let send = SendQueue::new(&qp, &mut sent, SendConfig::default()).unwrap();
        Self { memory: rig.memory(4096), send, sent, frames, qp, cqs }
    }

    fn sge(&self, length: usize) -> Sge {
        self.memory.sge(0, length).unwrap()
    }
}

pub fn frames(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    // Of a TCP segment over IPv4.
    let mut header = [0; 54];
    for (at, byte) in [(0, 2), (6, 2), (12, 8), (14, 0x45), (22, 64), (23, 6), (46, 0x50)] {
        header[at] = byte;
    }
    type Post = fn(&mut Side, &[u8]);
    // SAFETY: of every post here: the memory lives until the request is complete, or does not
    // exist, which the HCA has to detect.
    let rows: [(&str, Post, Expected); 4] = [
        (
            "frame of a wrong lkey",
            |a, _| {
                let sge = Sge { lkey: a.memory.lkey() ^ 0x5500, ..a.sge(60) };
                // SAFETY: the memory lives until the request is complete, or does not exist, which
                // the HCA has to detect.
                unsafe { a.send.post(1, EthSend::new(sge)) }.unwrap();
            },
            send(IBV_WC_LOC_PROT_ERR, "SEND"),
        ),
        (
            "frame beyond the MTU",
            // SAFETY: the memory lives until the request is complete, or does not exist, which the
            // HCA has to detect.
            |a, _| unsafe { a.send.post(1, EthSend::new(a.sge(1515))) }.unwrap(),
            send(IBV_WC_LOC_LEN_ERR, "SEND"),
        ),
        (
            "large send beyond the MTU",
            |a, header| {
                let pieces = EthTso::new(header, 1461, a.sge(1461));
                // SAFETY: the memory lives until the request is complete, or does not exist, which
                // the HCA has to detect.
                unsafe { a.send.post(1, pieces) }.unwrap();
            },
            send(IBV_WC_LOC_LEN_ERR, "TSO"),
        ),
        (
            "large send whose header is cut off",
            |a, header| {
                let cut = EthTso::new(&header[..40], 100, a.sge(60));
                // SAFETY: the memory lives until the request is complete, or does not exist, which
                // the HCA has to detect.
                unsafe { a.send.post(1, cut) }.unwrap();
            },
            send(IBV_WC_LOC_QP_OP_ERR, "TSO"),
        ),
    ];
    for (name, post, expected) in rows {
        let mut a = Side::new(&rig);
        post(&mut a, &header);
        let ends = [failures(a.cqs[0].as_raw(), &mut a.sent, &mut a.send, 1)];
        seen.hold(name, "eth", &ends, &[a.qp.as_raw()], &[expected]);
    }

    // A receive that is shorter than the frame.
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let own = std::process::id().to_be_bytes();
    // A group: a frame to one other station would not come back to this port.
    let to = [3, own[0], own[1], own[2], own[3], 1];
    let _flow: Flow = Flow::builder(1).destination(to).build(&b.qp).unwrap();
    let mut frame = [0; 60];
    frame[..6].copy_from_slice(&to);
    frame[6..12].copy_from_slice(&[2, own[0], own[1], own[2], own[3], 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    a.memory.write(0, &frame);
    // SAFETY: the memory lives to the end.
    unsafe {
        b.frames.post(1, b.sge(59)).unwrap();
        b.frames.post(2, b.sge(2000)).unwrap();
        a.send.post(3, EthSend::new(a.sge(60))).unwrap();
    }
    let mut failed = Vec::new();
    let deadline = std::time::Instant::now() + ::rig::PATIENCE;
    while failed.len() < 2 {
        match b.frames.poll().unwrap() {
            Some(PacketEvent::Failed(failure)) => failed.push(failure),
            Some(other) => panic!("{other:?}"),
            None => assert!(std::time::Instant::now() < deadline, "no completion"),
        }
    }
    let ends = [polled(b.cqs[1].as_raw(), failed)];
    let expected = [receive(IBV_WC_LOC_LEN_ERR), receive(IBV_WC_WR_FLUSH_ERR)];
    seen.hold("receive shorter than the frame", "eth", &ends, &[], &expected);
}
