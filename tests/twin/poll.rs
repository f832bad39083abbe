//! The same CQEs through `ibv_poll_cq` and through this crate: the same completions, the same bytes
//! in memory where data came inside the CQE, the same consumer record.
//!
//! Both sides post the same requests, which nothing executes (the model waits until it is told to
//! run); the test then writes the CQEs that a card could have written, with random contents in
//! everything that is not fixed by what they say. Left out, because libmlx5 44 gets it wrong: data
//! of a READ or atomic in a 128-byte CQE, where it looks one byte before the CQE; and data that
//! overflows a receive whose list is shorter than the queue's longest, where it goes on in entries
//! behind the terminator.

use std::collections::VecDeque;

use mlx5::cqe::{Completion, QueueKind, ReceiveKind, SendOperation};
use mlx5::diag::text;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{CqeSize, ScatterToCqe};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{
    FetchAdd, Inline, RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendMessage, Sge,
};
use mlx5_sys::cqe::{Cqe64, opcode as cqe_opcode};
use mlx5_sys::verbs::{
    ibv_wc, ibv_wc_flags as flag, ibv_wc_opcode as wc, ibv_wc_status, ibv_wr_opcode as wr,
};
use mlx5_sys::wqe::opcode;
use rig::random::Random;
use rig::verbs::{CqMemory, Request};
use rig::{Rig, verbs};
use zerocopy::IntoBytes;

const CASES: u32 = 60;
const MEMORY: usize = 1 << 13;
const CQES: u32 = 64;

/// A completion in the terms that both sides have in common.
#[derive(Debug, PartialEq)]
struct Common {
    id: u64,
    qpn_is_own: bool,
    status: u32,
    vendor_error: u32,
    /// The fields below are set only for success.
    opcode: Option<u32>,
    byte_len: u32,
    imm: Option<u32>,
    invalidated: Option<u32>,
    /// Source QP, SLID, SL, path bits, GRH.
    source: Option<(u32, u16, u8, u8, bool)>,
}

fn from_verbs(done: &ibv_wc, qpn: u32) -> Common {
    let mut common = Common {
        id: done.wr_id,
        qpn_is_own: done.qp_num == qpn,
        status: done.status,
        vendor_error: 0,
        opcode: None,
        byte_len: 0,
        imm: None,
        invalidated: None,
        source: None,
    };
    if done.status != ibv_wc_status::IBV_WC_SUCCESS {
        common.vendor_error = done.vendor_err;
        return common;
    }
    common.opcode = Some(done.opcode);
    let receive = done.opcode & wc::IBV_WC_RECV != 0;
    let fetches =
        matches!(done.opcode, wc::IBV_WC_RDMA_READ | wc::IBV_WC_COMP_SWAP | wc::IBV_WC_FETCH_ADD);
    if receive || fetches {
        common.byte_len = done.byte_len;
    }
    if receive {
        let has = |bit: flag| done.wc_flags & bit.0 != 0;
        // SAFETY: both views of the union are integers.
        let (imm, rkey) = unsafe {
            let union = &done.imm_data_invalidated_rkey_union;
            (u32::from_be(union.imm_data), union.invalidated_rkey)
        };
        common.imm = has(flag::IBV_WC_WITH_IMM).then_some(imm);
        common.invalidated = has(flag::IBV_WC_WITH_INV).then_some(rkey);
        let grh = has(flag::IBV_WC_GRH);
        common.source = Some((done.src_qp, done.slid, done.sl, done.dlid_path_bits, grh));
    }
    common
}

fn from_ours(completion: &Completion, own: u32) -> Common {
    let common = |id, qpn: u32, status, vendor_error| Common {
        id,
        qpn_is_own: qpn == own,
        status,
        vendor_error,
        opcode: None,
        byte_len: 0,
        imm: None,
        invalidated: None,
        source: None,
    };
    match completion {
        Completion::Send(done) => Common {
            opcode: Some(match done.operation {
                SendOperation::Send | SendOperation::SendImm => wc::IBV_WC_SEND,
                SendOperation::Write | SendOperation::WriteImm => wc::IBV_WC_RDMA_WRITE,
                SendOperation::Read => wc::IBV_WC_RDMA_READ,
                SendOperation::CompareSwap => wc::IBV_WC_COMP_SWAP,
                SendOperation::FetchAdd => wc::IBV_WC_FETCH_ADD,
                other => panic!("{other:?}"),
            }),
            byte_len: done.byte_len,
            ..common(done.id, done.qpn, ibv_wc_status::IBV_WC_SUCCESS, 0)
        },
        Completion::Receive(done) => {
            let (opcode, imm, invalidated) = match done.kind {
                ReceiveKind::Send => (wc::IBV_WC_RECV, None, None),
                ReceiveKind::SendImm(imm) => (wc::IBV_WC_RECV, Some(imm), None),
                ReceiveKind::SendInvalidate(rkey) => (wc::IBV_WC_RECV, None, Some(rkey)),
                ReceiveKind::WriteImm(imm) => (wc::IBV_WC_RECV_RDMA_WITH_IMM, Some(imm), None),
            };
            let source = (done.src_qp, done.slid, done.sl, done.dlid_path_bits, done.grh);
            Common {
                opcode: Some(opcode),
                byte_len: done.byte_len,
                imm,
                invalidated,
                source: Some(source),
                ..common(done.id, done.qpn, ibv_wc_status::IBV_WC_SUCCESS, 0)
            }
        }
        Completion::Failed(failure) => {
            let (status, vendor) = (failure.status.wc_status(), failure.vendor_error.into());
            common(failure.id, failure.qpn, status, vendor)
        }
        Completion::UnexpectedCqe(unexpected) => panic!("{unexpected:?}"),
    }
}

/// A queue pair, its CQ and memory that its requests name.
struct Twin {
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    entries: CqMemory,
    /// The user index in its CQEs.
    index: [u8; 4],
    produced: u32,
}

impl Twin {
    fn produce(&mut self, mut cqe: Cqe64, before: &[u8; 64]) -> String {
        let own = u32::from_be_bytes(self.index);
        cqe.srqn_uidx = own.into();
        cqe.sop_drop_qpn = (cqe.sop_drop_qpn.get() & 0xff00_0000 | self.qp.number()).into();
        cqe.op_own = cqe.op_own & !1 | (self.produced / CQES % 2) as u8;
        let slot = (self.produced % CQES) as usize;
        let mut entry = match self.entries.dv.cqe_size {
            64 => vec![],
            _ => before.to_vec(),
        };
        entry.extend(cqe.as_bytes());
        self.entries.write(slot, &entry);
        self.produced += 1;
        text::Cqe(cqe.as_bytes().try_into().unwrap()).to_string()
    }

    fn bytes(&self) -> Vec<u8> {
        self.memory.to_vec(0, MEMORY)
    }
}

/// A send request that is outstanding on both sides.
struct Posted {
    counter: u32,
    opcode: u8,
    length: u32,
}

fn case(rig: &Rig, random: &mut Random) -> u32 {
    let cqe_size = [CqeSize::B64, CqeSize::B128][random.below(2) as usize];
    let (max_send_sge, max_recv_sge) = (1 + random.below(6), 1 << random.below(3));
    let make = || {
        let cq = CompletionQueue::builder(&rig.context, CQES - 1).cqe_size(cqe_size);
        let cq = cq.build().unwrap();
        assert_eq!(cq.capacity() + 1, CQES);
        let builder = QueuePair::builder(&rig.pd, &cq)
            .max_send_wr(16)
            .max_recv_wr(16)
            .max_send_sge(max_send_sge)
            .max_recv_sge(max_recv_sge)
            .max_inline_data(60)
            .scatter_to_cqe(ScatterToCqe::Receives);
        (rig.init(builder), cq)
    };
    let ((theirs, their_cq), (ours, our_cq)) = (make(), make());
    let (theirs, ours) = rig.connect(theirs, ours);
    let [mut theirs, mut ours] = [(theirs, their_cq), (ours, our_cq)].map(|(qp, cq)| {
        // SAFETY: the CQ lives to the end of the function.
        let entries = unsafe { CqMemory::new(cq.as_raw()) };
        Twin { qp, cq, memory: rig.memory(MEMORY), entries, index: [0; 4], produced: 0 }
    });

    // The card writes the first completions: they show the user index, and bring both CQs and SQs
    // to the same random place.
    let warm = 1 + random.below(2 * CQES);
    for _ in 0..warm {
        for twin in [&mut theirs, &mut ours] {
            let request = Request {
                id: 0,
                opcode: wr::IBV_WR_RDMA_WRITE,
                list: vec![],
                inline: false,
                signaled: true,
                solicited: false,
                fenced: false,
                remote: (twin.memory.remote_address(), twin.memory.rkey()),
                imm: 0,
                compare: 0,
                swap_add: 0,
            };
            // SAFETY: the QP lives to the end of the function; no memory is named.
            unsafe { verbs::post_send(twin.qp.as_raw(), &[request]) }.unwrap();
            mlx5_model::run();
            // SAFETY: the CQ lives to the end of the function and is libmlx5's so far.
            let done = unsafe { verbs::poll(twin.cq.as_raw()) }.unwrap().expect("a completion");
            assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS);
            let entry = twin.entries.entry((twin.produced % CQES) as usize);
            let cqe = &entry[entry.len() - 64..];
            twin.index = cqe[32..36].try_into().unwrap();
            twin.produced += 1;
        }
    }

    let mut completions = CqReader::new(&ours.cq).unwrap();
    let config = ReceiveConfig { receives: 16 };
    let mut receive = ReceiveQueue::new(&ours.qp, &mut completions, config).unwrap();
    let mut send = SendQueue::new(&ours.qp, &mut completions, SendConfig::default()).unwrap();

    let mut sends: VecDeque<Posted> = VecDeque::new();
    // Lengths of receives, and whether their lists are as long as the queue allows.
    let mut receives: VecDeque<(u32, bool)> = VecDeque::new();
    let (mut counter, mut id, mut compared) = (warm, 0, 0);
    // The index of the next receive that a CQE names: libmlx5 goes by it since rdma-core 55, and by
    // the order of completion before, which are the same on a queue pair without out-of-order
    // placement.
    let mut received: u16 = 0;
    let mut send_failed = false;
    let rounds = 30;
    for round in 0..=rounds {
        // In the last round the send queue fails, and everything outstanding is flushed.
        let last = round == rounds;
        while !last && sends.len() < 12 && !random.one_in(4) {
            id += 1;
            let entries = random.below(max_send_sge + 1);
            let offsets: Vec<_> = (0..entries)
                .map(|_| (random.below(MEMORY as u32 - 64), random.below(20)))
                .collect();
            let list = |twin: &Twin| -> Vec<Sge> {
                let sge = |&(offset, length): &(u32, u32)| {
                    let address = twin.memory.address() + u64::from(offset);
                    Sge::new(address, length, twin.memory.lkey())
                };
                offsets.iter().map(sge).collect()
            };
            let (code, verb) = [
                (opcode::SEND, wr::IBV_WR_SEND),
                (opcode::SEND_IMM, wr::IBV_WR_SEND_WITH_IMM),
                (opcode::RDMA_WRITE, wr::IBV_WR_RDMA_WRITE),
                (opcode::RDMA_WRITE_IMM, wr::IBV_WR_RDMA_WRITE_WITH_IMM),
                (opcode::RDMA_READ, wr::IBV_WR_RDMA_READ),
                (opcode::ATOMIC_FA, wr::IBV_WR_ATOMIC_FETCH_AND_ADD),
            ][random.below(6) as usize];
            let word = random.below(MEMORY as u32 / 8) * 8;
            let request = Request {
                id,
                opcode: verb,
                list: match code {
                    opcode::ATOMIC_FA => {
                        let address = theirs.memory.address() + u64::from(word);
                        vec![Sge::new(address, 8, theirs.memory.lkey())]
                    }
                    _ => list(&theirs),
                },
                inline: false,
                signaled: true,
                solicited: false,
                fenced: false,
                remote: (8, 9),
                imm: 10,
                compare: 0,
                swap_add: 0,
            };
            let mine = list(&ours);
            let (mine, remote) = (mine.as_slice(), Remote::new(8, 9));
            // SAFETY: nothing executes the requests; the memory lives to the end of the function.
            unsafe {
                verbs::post_send(theirs.qp.as_raw(), &[request]).unwrap();
                let old = ours.memory.word(word as usize).unwrap();
                match code {
                    opcode::SEND => send.post(id, SendMessage::new(mine).signaled()),
                    opcode::SEND_IMM => send.post(id, SendImm::new(mine, 10).signaled()),
                    opcode::RDMA_WRITE => send.post(id, RdmaWrite::new(mine, remote).signaled()),
                    opcode::RDMA_WRITE_IMM => {
                        send.post(id, RdmaWriteImm::new(mine, remote, 10).signaled())
                    }
                    opcode::RDMA_READ => send.post(id, RdmaRead::new(mine, remote).signaled()),
                    _ => send.post(id, FetchAdd::new(old, remote, 0).signaled()),
                }
                .unwrap();
            }
            let length: u32 = offsets.iter().map(|&(_, length)| length).sum();
            sends.push_back(Posted { counter, opcode: code, length });
            let pieces = offsets.iter().filter(|&&(_, length)| length != 0).count() as u32;
            let ds = match code {
                opcode::SEND | opcode::SEND_IMM => 1 + pieces,
                opcode::ATOMIC_FA => 4,
                _ => 2 + pieces,
            };
            counter += ds.div_ceil(4);
        }
        while receives.len() < 12 && !random.one_in(4) {
            id += 1;
            let entries = random.below(max_recv_sge + 1);
            let offsets: Vec<_> = (0..entries)
                .map(|_| (random.below(MEMORY as u32 - 64), random.below(40)))
                .collect();
            let list = |twin: &Twin| -> Vec<Sge> {
                let sge = |&(offset, length): &(u32, u32)| {
                    let address = twin.memory.address() + u64::from(offset);
                    Sge::new(address, length, twin.memory.lkey())
                };
                offsets.iter().map(sge).collect()
            };
            // SAFETY: nothing executes the requests; the memory lives to the end of the function.
            unsafe {
                verbs::post_receive(theirs.qp.as_raw(), id, &list(&theirs)).unwrap();
                receive.post(id, list(&ours).as_slice()).unwrap();
            }
            let pieces = offsets.iter().filter(|&&(_, length)| length != 0).count() as u32;
            let length = offsets.iter().map(|&(_, length)| length).sum();
            receives.push_back((length, pieces == max_recv_sge));
        }

        // CQEs of random contents, of either queue.
        let mut texts = Vec::new();
        let mut room = 30;
        loop {
            let which = match (sends.is_empty(), receives.is_empty()) {
                (true, true) => break,
                (false, true) => QueueKind::Send,
                (true, false) => QueueKind::Receive,
                _ if random.one_in(2) => QueueKind::Send,
                _ => QueueKind::Receive,
            };
            if room == 0 || (!last && random.one_in(8)) {
                break;
            }
            room -= 1;
            let mut cqe = Cqe64::default();
            cqe.as_mut_bytes().copy_from_slice(&random.bytes(64));
            let before: [u8; 64] = random.bytes(64).try_into().unwrap();
            let mut format = 0;
            let fail;
            let kind = match which {
                QueueKind::Send => {
                    // A card may complete any request; those before it were unsignaled to it.
                    let skip = if last { 0 } else { random.below(3).min(sends.len() as u32 - 1) };
                    let posted = sends.drain(..=skip as usize).next_back().unwrap();
                    cqe.wqe_counter = (posted.counter as u16).into();
                    cqe.sop_drop_qpn = (u32::from(posted.opcode) << 24).into();
                    fail = last;
                    send_failed |= fail;
                    let fetches = matches!(posted.opcode, opcode::RDMA_READ | opcode::ATOMIC_FA);
                    cqe.byte_cnt = posted.length.into();
                    let small = posted.opcode == opcode::ATOMIC_FA || posted.length <= 32;
                    if fetches && small && cqe_size == CqeSize::B64 && random.one_in(2) {
                        format = 1;
                    }
                    if fail { cqe_opcode::REQ_ERR } else { cqe_opcode::REQ }
                }
                QueueKind::Receive => {
                    let (length, full) = receives.pop_front().unwrap();
                    cqe.wqe_counter = received.into();
                    received = received.wrapping_add(1);
                    let longest = if cqe_size == CqeSize::B128 { 64 } else { 32 };
                    let overflow = full && random.one_in(3);
                    let mut arrived = random.below(length + 1);
                    if random.one_in(2) {
                        arrived = if overflow { length + 1 } else { arrived }.min(longest);
                        // With format 1 a 128-byte CQE has 32 bytes, too.
                        format = if arrived <= 32 && random.one_in(2) { 1 } else { 2 };
                        if cqe_size == CqeSize::B64 {
                            format = 1;
                        }
                    }
                    cqe.byte_cnt = arrived.into();
                    fail = random.one_in(4);
                    match random.below(4) {
                        _ if fail => cqe_opcode::RESP_ERR,
                        0 => cqe_opcode::RESP_SEND,
                        1 => cqe_opcode::RESP_SEND_IMM,
                        2 => cqe_opcode::RESP_SEND_INV,
                        _ => cqe_opcode::RESP_WR_IMM,
                    }
                }
            };
            if fail {
                format = 0;
            }
            cqe.op_own = kind << 4 | format << 2 | (cqe.op_own & 2);
            texts.push(theirs.produce(cqe, &before));
            let code = (cqe.sop_drop_qpn.get() >> 24) as u8;
            if which == QueueKind::Send && format != 0 && code == opcode::ATOMIC_FA {
                // libmlx5 copies the answer as it is, and this crate turns the number around.
                cqe.as_mut_bytes()[..8].reverse();
            }
            ours.produce(cqe, &before);
        }

        let mut expected = Vec::new();
        // SAFETY: the CQ lives to the end of the function, and is libmlx5's.
        while let Some(done) = unsafe { verbs::poll(theirs.cq.as_raw()) }.unwrap() {
            expected.push(from_verbs(&done, theirs.qp.number()));
        }
        let found: Vec<_> = completions
            .poll_all(&mut (&mut send, &mut receive))
            .map(|completion| from_ours(&completion.unwrap(), ours.qp.number()))
            .collect();
        assert_eq!(expected.len(), texts.len(), "libmlx5 takes them all");
        for (at, text) in texts.iter().enumerate() {
            assert_eq!(found.get(at), expected.get(at), "{text}");
        }
        assert_eq!(found.len(), expected.len());
        assert!(ours.bytes() == theirs.bytes(), "data from CQEs: {texts:#?}");
        assert_eq!(ours.entries.record()[..4], theirs.entries.record()[..4], "consumer index");
        compared += found.len() as u32;
    }
    assert!(sends.is_empty());
    // SAFETY: the payload is copied into the WQE.
    let refused = unsafe { send.post(0, SendMessage::new(Inline(b"x"))) };
    assert_eq!(refused.is_err(), send_failed, "after a failure nothing is posted");
    compared
}

#[test]
fn completions_are_what_ibv_poll_cq_reports() {
    let rig = crate::open(mlx5_model::Mode::Manual);
    let mut random = Random::new();
    let compared: u32 = (0..CASES).map(|_| case(&rig, &mut random)).sum();
    println!("{compared} completions");
    assert!(compared > 2000);
}
