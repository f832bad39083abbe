//! Unit tests.

//! From a doorbell to both CQEs, with the transport between.

use mlx5_sys::ifc::{
    create_cq_out, create_mkey_in, create_qp_in, create_qp_out, mkc, opcode, qpc, rst2init_qp_in,
};

use crate::card::Complaints;
use crate::command::test::{Rig, ring};

/// Two queue pairs of one card, connected to each other, and a key over a page each.
struct Pair {
    rig: Rig,
    qps: [u32; 2],
    /// Receive rings; the send rings start 256 bytes on.
    rings: [u64; 2],
    records: [u64; 2],
    cqs: [u64; 2],
    key: u32,
    page: u64,
}

const START: u64 = 0x7000_0100;

impl Pair {
    fn new() -> Self {
        let mut rig = Rig::new();
        let (mut qps, mut rings, mut records, mut cqs) = ([0; 2], [0; 2], [0; 2], [0; 2]);
        for i in 0..2 {
            let cq = rig.create_cq();
            cqs[i] = ring(&cq);
            let cq = rig.number(&cq, create_cq_out::CQN);
            let create = rig.create_qp(cq, cq);
            records[i] = qpc::DBR_ADDR.within(create_qp_in::QPC).get(&create.0);
            rings[i] = ring(&create);
            qps[i] = rig.number(&create, create_qp_out::QPN);
        }
        for i in 0..2 {
            for step in [opcode::RST2INIT_QP, opcode::INIT2RTR_QP, opcode::RTR2RTS_QP] {
                let peer = qpc::REMOTE_QPN.within(rst2init_qp_in::QPC);
                let command = rig.transition(step, qps[i]).set(peer, qps[1 - i]);
                rig.run(&command).unwrap();
            }
        }
        let field = |f: mlx5_sys::ifc::Field| f.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let create = rig.create_mkey().set(field(mkc::LEN), 0xf00u64);
        let page = ring(&create) + 0x100;
        let key = rig.mkey(&create);
        Self { rig, qps, rings, records, cqs, key, page }
    }

    /// Posts a signaled WQE to queue pair 0's block and rings.
    fn post(&mut self, block: u16, opcode: u8, segments: &[[u8; 16]]) {
        let ds = segments.len() as u32 + 1;
        let mut wqe = vec![0, 0, block as u8, opcode];
        wqe.extend_from_slice(&(self.qps[0] << 8 | ds).to_be_bytes());
        wqe.extend_from_slice(&[0, 0, 0, 0x08, 0, 0, 0, 0x2a]);
        wqe.extend(segments.iter().flatten());
        self.rig.write(self.rings[0] + 256 + u64::from(block) * 64, &wqe);
        self.rig.write(self.records[0] + 4, &u32::from(block + 1).to_be_bytes());
        let uar = self.rig.uar;
        self.rig.card.store(uar, 0x800, &wqe[..8]);
        loop {
            let sent = self.rig.card.pump();
            let frames: Vec<_> = self.rig.card.outbox.drain(..).collect();
            for frame in &frames {
                self.rig.card.receive(frame);
            }
            let settled = self.rig.card.settle();
            if !sent && frames.is_empty() && !settled {
                break;
            }
        }
    }

    fn cqe(&self, side: usize, slot: u64) -> [u8; 64] {
        self.rig.read(self.cqs[side] + slot * 64)
    }
}

fn pointer(length: u32, key: u32, address: u64) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..4].copy_from_slice(&length.to_be_bytes());
    segment[4..8].copy_from_slice(&key.to_be_bytes());
    segment[8..].copy_from_slice(&address.to_be_bytes());
    segment
}

fn remote(address: u64, key: u32) -> [u8; 16] {
    let mut segment = [0; 16];
    segment[..8].copy_from_slice(&address.to_be_bytes());
    segment[8..12].copy_from_slice(&key.to_be_bytes());
    segment
}

#[test]
fn a_send_meets_its_receive() {
    let mut pair = Pair::new();
    pair.rig.write(pair.page, b"from here");
    let (key, receive) = (pair.key, [pointer(64, pair.key, START + 0x80), pointer(0, 0x100, 0)]);
    pair.rig.write(pair.rings[1], &receive.concat());
    pair.rig.write(pair.records[1], &1u32.to_be_bytes());
    pair.post(0, 0x0b, &[pointer(9, key, START)]);
    assert_eq!(&pair.rig.read::<9>(pair.page + 0x80), b"from here");
    let (sent, received) = (pair.cqe(0, 0), pair.cqe(1, 0));
    assert_eq!(sent[63], 0x00, "{sent:02x?}");
    assert_eq!(received[63], 0x30, "{received:02x?}");
    assert_eq!(received[36..40], [0, 0, 0, 0x2a]);
    assert_eq!(received[44..48], [0, 0, 0, 9]);
    assert_eq!(pair.rig.card.complaints, Complaints::default());
}

#[test]
fn writes_reads_and_atomics_reach_the_peers_memory() {
    let mut pair = Pair::new();
    let key = pair.key;
    pair.rig.write(pair.page, b"onesided");
    pair.post(0, 0x08, &[remote(START + 0x40, key), pointer(8, key, START)]);
    assert_eq!(&pair.rig.read::<8>(pair.page + 0x40), b"onesided");
    pair.post(1, 0x10, &[remote(START + 0x42, key), pointer(4, key, START + 0x60)]);
    assert_eq!(&pair.rig.read::<4>(pair.page + 0x60), b"esid");
    // Words are the host's, operands big-endian.
    pair.rig.write(pair.page + 0x80, &40u64.to_ne_bytes());
    let mut operands = [0; 16];
    operands[..8].copy_from_slice(&2u64.to_be_bytes());
    pair.post(2, 0x12, &[remote(START + 0x80, key), operands, pointer(8, key, START + 0x90)]);
    assert_eq!(pair.rig.read::<8>(pair.page + 0x80), 42u64.to_ne_bytes());
    assert_eq!(pair.rig.read::<8>(pair.page + 0x90), 40u64.to_ne_bytes());
    for (slot, opcode) in [(0, 0x08), (1, 0x10), (2, 0x12)] {
        let cqe = pair.cqe(0, slot);
        assert_eq!((cqe[56], cqe[61], cqe[63]), (opcode, slot as u8, 0), "{cqe:02x?}");
    }
}

#[test]
fn a_queue_runs_as_far_as_another_lets_it() {
    let mut pair = Pair::new();
    let [master, slave] = pair.qps;
    let set = |pair: &mut Pair, qp: u32, field: mlx5_sys::ifc::Field| {
        let qp = pair.rig.card.objects.qps.get_mut(&qp).unwrap();
        field.set(&mut qp.context[..], 1);
    };
    set(&mut pair, slave, qpc::CD_SLAVE_SEND);
    // Three NOPs, of which the doorbell starts none. The last one is not signaled yet.
    for block in 0..3u16 {
        let mut nop = vec![0, 0, block as u8, 0];
        nop.extend_from_slice(&(slave << 8 | 1).to_be_bytes());
        let signal = if block == 2 { 0 } else { 8 };
        nop.extend_from_slice(&[0, 0, 0, signal, 0, 0, 0, 0]);
        pair.rig.write(pair.rings[1] + 256 + u64::from(block) * 64, &nop);
        pair.rig.write(pair.records[1] + 4, &u32::from(block + 1).to_be_bytes());
        let uar = pair.rig.uar;
        pair.rig.card.store(uar, 0x800, &nop[..8]);
    }
    // Completions in a fresh ring of the test are zeros where none is.
    let done = |pair: &Pair| (0..4).filter(|slot| pair.cqe(1, *slot)[56..60] != [0; 4]).count();
    let enable = |upto: u32, qp: u32| {
        let mut segment = [0; 16];
        segment[8..12].copy_from_slice(&upto.to_be_bytes());
        segment[12..].copy_from_slice(&qp.to_be_bytes());
        segment
    };
    set(&mut pair, master, qpc::CD_MASTER);
    pair.post(0, 0x00, &[]);
    assert_eq!(done(&pair), 0);
    pair.post(1, 0x17, &[enable(2, slave)]);
    assert_eq!(done(&pair), 2);
    // A WQE is read when it is enabled, as on devices (evidence E164).
    pair.rig.write(pair.rings[1] + 256 + 2 * 64 + 11, &[8]);
    pair.post(2, 0x17, &[enable(3, slave)]);
    assert_eq!(done(&pair), 3);
    assert_eq!(pair.cqe(0, 2)[63], 0, "{:02x?}", pair.cqe(0, 2));
    // A queue that no other queue steers cannot be let run.
    pair.post(3, 0x17, &[enable(9, master)]);
    let cqe = pair.cqe(0, 3);
    assert_eq!((cqe[55], cqe[56], cqe[63]), (0x02, 0x17, 0xd2), "{cqe:02x?}");
}

#[test]
fn a_bad_remote_key_fails_both_sides() {
    let mut pair = Pair::new();
    let key = pair.key;
    pair.post(0, 0x08, &[remote(START, key ^ 1), pointer(8, key, START)]);
    let cqe = pair.cqe(0, 0);
    assert_eq!((cqe[54], cqe[55], cqe[63]), (0x88, 0x13, 0xd2), "{cqe:02x?}");
    for qp in pair.qps {
        assert_eq!(pair.rig.card.objects.qps[&qp].state, crate::object::State::Error);
    }
}

#[test]
fn a_malformed_request_fails_its_queue() {
    let mut pair = Pair::new();
    pair.post(0, 0x77, &[]);
    let cqe = pair.cqe(0, 0);
    assert_eq!((&cqe[52..57], cqe[63]), (&[0x1f, 0, 0x68, 0x02, 0x77][..], 0xd2), "{cqe:02x?}");
    pair.post(1, 0x0a, &[]);
    let flushed = pair.cqe(0, 1);
    assert_eq!((flushed[54], flushed[55], flushed[61]), (0xf9, 0x05, 1), "{flushed:02x?}");
}
