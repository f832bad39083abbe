//! Compressed CQEs through this crate, and the same CQEs, uncompressed, through libmlx5, which knows
//! no compressed ones: the same completions, and the same consumer record after each.
//!
//! Both sides post the same requests, which nothing executes (the model waits until it is told to
//! run). The test then writes CQEs as a card could: to libmlx5's ring one by one, to the other as
//! titles and mini CQEs, laid out as Linux (`en_rx.c`, `mlx5e_decompress_cqes_start`) and DPDK
//! (`mlx5_rx.c`, `mlx5_rx_poll_len`) read them: both agree that a block of n takes n slots, that its
//! mini CQEs are in the second slot, and then in each eighth from the first, and that what is between
//! them is not written.

use std::collections::VecDeque;
use std::mem::zeroed;

use mlx5::cqe::{Completion, ReceiveKind, SendOperation};
use mlx5::ib::CqeCompression;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{CqeSize, ScatterToCqe};
use mlx5::verbs::{CompletionQueue, QueuePair};
use mlx5::wqe::{RdmaRead, RdmaWrite, SendMessage};
use mlx5_sys::cqe::{Cqe64, FORMAT_COMPRESSED, FORMAT_SHIFT, opcode as cqe_opcode};
use mlx5_sys::verbs::{
    ibv_cq_ex, ibv_end_poll, ibv_next_poll, ibv_poll_cq_attr, ibv_start_poll, ibv_wc,
    ibv_wc_flags as flag, ibv_wc_opcode as wc, ibv_wc_read_opcode, ibv_wc_status,
    ibv_wr_opcode as wr,
};
use mlx5_sys::wqe::opcode;
use rig::random::Random;
use rig::verbs::{CqMemory, Request};
use rig::{Rig, verbs};
use zerocopy::IntoBytes;

const CASES: usize = 40;
const CQES: u32 = 64;
const FORMATS: [CqeCompression; 3] =
    [CqeCompression::Hash, CqeCompression::Checksum, CqeCompression::ChecksumStride];

/// A completion in the terms that both sides have in common.
#[derive(Debug, PartialEq)]
struct Common {
    id: u64,
    opcode: u32,
    /// The rest, where the interface that libmlx5 is asked by says it.
    rest: Option<Rest>,
}

#[derive(Debug, PartialEq, Default)]
struct Rest {
    byte_len: u32,
    imm: Option<u32>,
    source: Option<(u32, u16, u8, u8, bool)>,
}

fn from_verbs(done: &ibv_wc) -> Common {
    assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
    let mut rest = Rest::default();
    let receive = done.opcode & wc::IBV_WC_RECV != 0;
    if receive || done.opcode == wc::IBV_WC_RDMA_READ {
        rest.byte_len = done.byte_len;
    }
    if receive {
        let has = |bit: flag| done.wc_flags & bit.0 != 0;
        // SAFETY: an integer in each view of the union.
        let imm = unsafe { u32::from_be(done.imm_data_invalidated_rkey_union.imm_data) };
        rest.imm = has(flag::IBV_WC_WITH_IMM).then_some(imm);
        let grh = has(flag::IBV_WC_GRH);
        rest.source = Some((done.src_qp, done.slid, done.sl, done.dlid_path_bits, grh));
    }
    Common { id: done.wr_id, opcode: done.opcode, rest: Some(rest) }
}

fn from_ours(completion: Completion, whole: bool) -> Common {
    let (id, opcode, rest) = match completion {
        Completion::Send(done) => {
            let opcode = match done.operation {
                SendOperation::Send => wc::IBV_WC_SEND,
                SendOperation::Write => wc::IBV_WC_RDMA_WRITE,
                SendOperation::Read => wc::IBV_WC_RDMA_READ,
                other => panic!("{other:?}"),
            };
            (done.id, opcode, Rest { byte_len: done.byte_len, ..Rest::default() })
        }
        Completion::Receive(done) => {
            let (opcode, imm) = match done.kind {
                ReceiveKind::Send => (wc::IBV_WC_RECV, None),
                ReceiveKind::SendImm(imm) => (wc::IBV_WC_RECV, Some(imm)),
                ReceiveKind::WriteImm(imm) => (wc::IBV_WC_RECV_RDMA_WITH_IMM, Some(imm)),
                other => panic!("{other:?}"),
            };
            let source = (done.src_qp, done.slid, done.sl, done.dlid_path_bits, done.grh);
            (done.id, opcode, Rest { byte_len: done.byte_len, imm, source: Some(source) })
        }
        other => panic!("{other:?}"),
    };
    Common { id, opcode, rest: whole.then_some(rest) }
}

/// A ring as the card sees it.
struct Ring {
    entries: CqMemory,
    produced: u32,
    user_index: [u8; 4],
    qpn: u32,
}

impl Ring {
    /// Writes the 64 bytes of a CQE, or of mini CQEs.
    fn write(&self, index: u32, bytes: &[u8]) {
        let mut entry = vec![0xcc; self.entries.dv.cqe_size as usize - 64];
        entry.extend(bytes);
        self.entries.write((index % CQES) as usize, &entry);
    }

    fn own(&self, mut cqe: Cqe64, index: u32) -> Cqe64 {
        cqe.srqn_uidx = u32::from_be_bytes(self.user_index).into();
        cqe.sop_drop_qpn = (cqe.sop_drop_qpn.get() & 0xff00_0000 | self.qpn).into();
        cqe.op_own = cqe.op_own & !1 | (index / CQES % 2) as u8;
        cqe
    }

    fn single(&mut self, cqe: Cqe64) {
        self.write(self.produced, self.own(cqe, self.produced).as_bytes());
        self.produced += 1;
    }

    fn block(&mut self, cqes: &[Cqe64], format: CqeCompression) {
        for (at, eight) in cqes.chunks(8).enumerate() {
            let mut slot = [0x55; 64];
            for (mini, cqe) in slot.chunks_exact_mut(8).zip(eight) {
                let counter = cqe.wqe_counter.to_bytes();
                let sum = cqe.check_sum.to_bytes();
                let word = match (cqe.opcode(), format) {
                    (cqe_opcode::REQ, _) => {
                        [counter[0], counter[1], cqe.sop_drop_qpn.to_bytes()[0], 0]
                    }
                    (_, CqeCompression::Hash) => cqe.rss_hash_result.to_bytes(),
                    (_, CqeCompression::Checksum) => [sum[0], sum[1], 0x77, 0x77],
                    _ => [sum[0], sum[1], counter[0], counter[1]],
                };
                mini[..4].copy_from_slice(&word);
                mini[4..].copy_from_slice(&cqe.byte_cnt.to_bytes());
            }
            let ahead = if at == 0 { 1 } else { at as u32 * 8 };
            self.write(self.produced + ahead, &slot);
        }
        let mut title = self.own(cqes[0], self.produced);
        title.byte_cnt = (cqes.len() as u32).into();
        title.op_own |= FORMAT_COMPRESSED << FORMAT_SHIFT;
        self.write(self.produced, title.as_bytes());
        self.produced += cqes.len() as u32;
    }
}

/// Takes up to `most` completions from libmlx5, by one of its interfaces.
fn libmlx5(cq: &CompletionQueue, most: usize, extended: bool) -> Vec<Common> {
    let mut found = Vec::new();
    let cq = cq.as_raw();
    if !extended {
        while found.len() < most {
            // SAFETY: the CQ is alive, and libmlx5's.
            let Some(done) = unsafe { verbs::poll(cq) }.unwrap() else { break };
            found.push(from_verbs(&done));
        }
        return found;
    }
    let cq = cq.cast::<ibv_cq_ex>().as_ptr();
    // SAFETY: the CQ is alive, libmlx5's, and an extended one. It is read between start and end
    // only.
    unsafe {
        let mut attributes: ibv_poll_cq_attr = zeroed();
        if ibv_start_poll(cq, &mut attributes) != 0 {
            return found;
        }
        loop {
            assert_eq!((*cq).status, ibv_wc_status::IBV_WC_SUCCESS);
            let opcode = ibv_wc_read_opcode(cq);
            found.push(Common { id: (*cq).wr_id, opcode, rest: None });
            if found.len() == most || ibv_next_poll(cq) != 0 {
                break;
            }
        }
        ibv_end_poll(cq);
    }
    found
}

fn case(rig: &Rig, random: &mut Random, number: usize) -> u32 {
    let (format, size) = (FORMATS[number % 3], [CqeSize::B64, CqeSize::B128][number % 2]);
    let make = |compressed: bool| {
        let mut cq = CompletionQueue::builder(&rig.context, CQES - 1).cqe_size(size);
        if compressed {
            cq = cq.compression(format);
        }
        let cq = cq.build().unwrap();
        let builder = QueuePair::builder(&rig.pd, &cq).max_send_wr(32).max_recv_wr(32);
        (rig.init(builder.scatter_to_cqe(ScatterToCqe::Receives)), cq)
    };
    let ((theirs, their_cq), (ours, our_cq)) = (make(false), make(true));
    let (theirs, ours) = rig.connect(theirs, ours);
    let memory = rig.memory(4096);
    let sge = memory.sge(0, 64).unwrap();
    let request = |id, opcode| Request {
        id,
        opcode,
        list: vec![sge],
        inline: false,
        signaled: true,
        solicited: false,
        fenced: false,
        remote: (memory.remote_address(), memory.rkey()),
        imm: 0,
        compare: 0,
        swap_add: 0,
    };

    // The card writes the first completions: they show the user index, and bring CQs and queues to
    // the same random place.
    let warm = 1 + random.below(2 * CQES);
    let mut rings = [(&theirs, &their_cq), (&ours, &our_cq)].map(|(qp, cq)| {
        // SAFETY: the CQ lives to the end of the function.
        let entries = unsafe { CqMemory::new(cq.as_raw()) };
        Ring { entries, produced: 0, user_index: [0; 4], qpn: qp.number() }
    });
    for _ in 0..warm {
        for (ring, (qp, cq)) in rings.iter_mut().zip([(&theirs, &their_cq), (&ours, &our_cq)]) {
            let write = request(0, wr::IBV_WR_RDMA_WRITE);
            // SAFETY: QP, CQ and memory live to the end; the CQ is libmlx5's so far.
            unsafe {
                verbs::post_send(qp.as_raw(), &[write]).unwrap();
                mlx5_model::run();
                verbs::poll(cq.as_raw()).unwrap().expect("a completion");
            }
            let entry = ring.entries.entry((ring.produced % CQES) as usize);
            ring.user_index = entry[entry.len() - 32..][..4].try_into().unwrap();
            ring.produced += 1;
        }
    }
    let [mut their_ring, mut our_ring] = rings;

    let mut completions = CqReader::new(&our_cq).unwrap();
    let config = ReceiveConfig { receives: 32 };
    let mut receive = ReceiveQueue::new(&ours, &mut completions, config).unwrap();
    let mut send = SendQueue::new(&ours, &mut completions, SendConfig::default()).unwrap();

    let (mut sends, mut receives, mut received) = (VecDeque::new(), 0u32, 0u16);
    let (mut counter, mut id, mut compared) = (warm, 0, 0);
    for _ in 0..40 {
        while sends.len() < 32 {
            id += 1;
            let (code, verb) = [
                (opcode::SEND, wr::IBV_WR_SEND),
                (opcode::RDMA_WRITE, wr::IBV_WR_RDMA_WRITE),
                (opcode::RDMA_READ, wr::IBV_WR_RDMA_READ),
            ][random.below(3) as usize];
            let remote = memory.remote(0).unwrap();
            // SAFETY: nothing executes the requests; the memory lives to the end of the function.
            unsafe {
                verbs::post_send(theirs.as_raw(), &[request(id, verb)]).unwrap();
                match code {
                    opcode::SEND => send.post(id, SendMessage::new(sge).signaled()),
                    opcode::RDMA_WRITE => send.post(id, RdmaWrite::new(sge, remote).signaled()),
                    _ => send.post(id, RdmaRead::new(sge, remote).signaled()),
                }
                .unwrap();
            }
            sends.push_back((code, counter));
            counter += 1;
        }
        while receives < 32 {
            id += 1;
            // SAFETY: nothing executes the requests; the memory lives to the end of the function.
            unsafe {
                verbs::post_receive(theirs.as_raw(), id, &[sge]).unwrap();
                receive.post(id, sge).unwrap();
            }
            receives += 1;
        }
        for _ in 0..1 + random.below(4) {
            let of_send = random.one_in(2);
            let most = if of_send { sends.len() as u32 } else { receives };
            let length = random.below(most + 1);
            let mut common = Cqe64::default();
            common.as_mut_bytes().copy_from_slice(&random.bytes(64));
            let kind = if of_send {
                cqe_opcode::REQ
            } else {
                let kinds =
                    [cqe_opcode::RESP_SEND, cqe_opcode::RESP_SEND_IMM, cqe_opcode::RESP_WR_IMM];
                kinds[random.below(3) as usize]
            };
            // Not of tag matching, which a queue pair has not.
            common.app = 0;
            common.op_own = kind << 4 | common.op_own & 2;
            let cqes: Vec<_> = (0..length)
                .map(|_| {
                    let mut cqe = common;
                    cqe.byte_cnt = random.below(1 << 30).into();
                    cqe.check_sum = (random.below(1 << 16) as u16).into();
                    if of_send {
                        let (code, counter) = sends.pop_front().unwrap();
                        cqe.sop_drop_qpn = (u32::from(code) << 24).into();
                        cqe.wqe_counter = (counter as u16).into();
                    } else {
                        receives -= 1;
                        cqe.wqe_counter = received.into();
                        received = received.wrapping_add(1);
                    }
                    cqe
                })
                .collect();
            for cqe in &cqes {
                their_ring.single(*cqe);
            }
            match cqes.len() {
                0 => {}
                2.. if !random.one_in(5) => our_ring.block(&cqes, format),
                _ => cqes.iter().for_each(|cqe| our_ring.single(*cqe)),
            }
        }
        let extended = random.one_in(2);
        loop {
            let most = 1 + random.below(6) as usize;
            let expected = libmlx5(&their_cq, most, extended);
            let found: Vec<_> = completions
                .poll_all(&mut (&mut send, &mut receive))
                .take(most)
                .map(|completion| from_ours(completion.unwrap(), !extended))
                .collect();
            assert_eq!(found, expected, "{format:?}, {size:?}");
            assert_eq!(our_ring.entries.record()[..4], their_ring.entries.record()[..4]);
            if found.is_empty() {
                break;
            }
            compared += found.len() as u32;
        }
    }
    compared
}

#[test]
fn compressed_completions_are_what_libmlx5_reports_of_the_same_uncompressed() {
    let rig = crate::open(mlx5_model::Mode::Manual);
    let mut random = Random::new();
    let compared: u32 = (0..CASES).map(|number| case(&rig, &mut random, number)).sum();
    println!("{compared} completions");
    assert!(compared > 10_000);
}
