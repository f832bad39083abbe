//! The same requests through libmlx5 and through this crate: WQEs, doorbell records and stores to
//! registers are equal but for the queue pair's number.
//!
//! Compared are the requests that libmlx5 emits for Ethernet on cards that want no header in the
//! WQE: `ibv_post_send` and `ibv_wr_send` of frames, by pointers and inline, and `ibv_wr_send_tso`
//! and `IBV_WR_TSO`. Other requests follow two other implementations that agree. Headers in the WQE
//! of a frame that is not cut are as in DPDK's `mlx5_tx.h` and in libmlx5's own code for older
//! cards. The tag to put in is as in DPDK's and Linux's `mlx5e` (`MLX5_ETH_WQE_INSERT_VLAN`).
//! `traffic.rs` has the card execute those requests.

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::QueuePairBuilder;
use mlx5::wqe::{EthSend, EthTso, InlineGather, Sge};
use mlx5_model::stores;
use mlx5_sys::verbs::*;

use crate::{rig, tcp_header};
use rig::Rig;
use rig::random::Random;
use rig::verbs::{self, QpMemory};

const TSO_HEADER: u16 = 96;
const MAX_WR: u32 = 32;
const POSTS: u32 = 600;

/// libmlx5's queue pair, in RTS.
fn theirs(rig: &Rig, cq: &mlx5::verbs::CompletionQueue) -> (NonNull<ibv_qp>, NonNull<ibv_qp_ex>) {
    use ibv_qp_init_attr_mask as given;
    // SAFETY: the structure consists of integers and pointers, so zeros are valid.
    let mut attributes: ibv_qp_init_attr_ex = unsafe { zeroed() };
    attributes.send_cq = cq.as_raw().as_ptr();
    attributes.recv_cq = cq.as_raw().as_ptr();
    attributes.cap.max_send_wr = MAX_WR;
    attributes.cap.max_recv_wr = 1;
    attributes.cap.max_send_sge = 3;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = 100;
    attributes.qp_type = ibv_qp_type::IBV_QPT_RAW_PACKET;
    attributes.pd = rig.pd.as_raw().as_ptr();
    attributes.max_tso_header = TSO_HEADER;
    attributes.comp_mask = given::IBV_QP_INIT_ATTR_PD.0
        | given::IBV_QP_INIT_ATTR_MAX_TSO_HEADER.0
        | given::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    attributes.send_ops_flags = u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0)
        | u64::from(ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_TSO.0);
    // SAFETY: context, domain and CQ are alive.
    let qp = unsafe { ibv_create_qp_ex(rig.context.as_raw().as_ptr(), &mut attributes) };
    let qp = NonNull::new(qp.unwrap_or(null_mut())).expect("a queue pair");
    for state in [ibv_qp_state::IBV_QPS_INIT, ibv_qp_state::IBV_QPS_RTR, ibv_qp_state::IBV_QPS_RTS]
    {
        // SAFETY: the structure consists of integers and pointers, so zeros are valid.
        let mut attributes: ibv_qp_attr = unsafe { zeroed() };
        attributes.qp_state = state;
        attributes.port_num = 1;
        let port = state == ibv_qp_state::IBV_QPS_INIT;
        let mask = ibv_qp_attr_mask::IBV_QP_STATE.0
            | if port { ibv_qp_attr_mask::IBV_QP_PORT.0 } else { 0 };
        // SAFETY: the queue pair is alive.
        assert_eq!(unsafe { ibv_modify_qp(qp.as_ptr(), &mut attributes, mask as i32) }, 0);
    }
    // SAFETY: made with functions for sending.
    (qp, NonNull::new(unsafe { ibv_qp_to_qp_ex(qp.as_ptr()) }).unwrap())
}

/// A request: a frame by pointers or inline, or a large send of that header and size of piece.
#[derive(Debug)]
struct Request {
    list: Vec<Sge>,
    inline: bool,
    checksums: bool,
    signaled: bool,
    large: Option<(Vec<u8>, u16)>,
    /// By `ibv_wr_*`, else by `ibv_post_send`.
    extended: bool,
}

fn request(random: &mut Random, memory: &mlx5::verbs::MemoryRegion, signaled: bool) -> Request {
    let large = random.one_in(3).then(|| {
        // TCP's header with options, so that all sizes come.
        let options = random.below(11) as usize;
        let mut header = tcp_header([2, 0, 0, 0, 0, 9]);
        header[46] = 0x50 + (options as u8) * 0x10;
        header.resize(54 + options * 4, 1);
        (header, 1 + random.below(1300) as u16)
    });
    let inline = large.is_none() && random.one_in(2);
    let pieces = 1 + random.below(3);
    let list = (0..pieces)
        .map(|_| {
            let length = if inline { 5 + random.below(28) } else { 14 + random.below(400) };
            let length = if inline { length.max(14) } else { length };
            let offset = u64::from(random.below(4096));
            memory.sge(offset as usize, length as usize).unwrap()
        })
        .collect();
    let (checksums, extended) = (random.one_in(2), random.one_in(2));
    Request { list, inline, checksums, signaled, large, extended }
}

/// # Safety
/// The queue pair is alive, and what the request names until it is complete.
unsafe fn post_theirs(qp: NonNull<ibv_qp>, ex: NonNull<ibv_qp_ex>, request: &Request) {
    let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
    let flags = flag(request.inline, ibv_send_flags::IBV_SEND_INLINE)
        | flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
        | flag(request.checksums, ibv_send_flags::IBV_SEND_IP_CSUM);
    let mut list: Vec<ibv_sge> = request
        .list
        .iter()
        .map(|sge| ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey })
        .collect();
    let mut header = request.large.as_ref().map(|(header, _)| header.clone()).unwrap_or_default();
    if request.extended {
        let raw = ex.as_ptr();
        // SAFETY: the caller's; everything lives through the calls.
        unsafe {
            ibv_wr_start(raw);
            (*raw).wr_flags = flags & !ibv_send_flags::IBV_SEND_INLINE.0;
            match &request.large {
                Some((_, mss)) => {
                    ibv_wr_send_tso(raw, header.as_mut_ptr().cast(), header.len() as u16, *mss);
                }
                None => ibv_wr_send(raw),
            }
            if request.inline {
                let buffers: Vec<ibv_data_buf> = list
                    .iter()
                    .map(|sge| ibv_data_buf {
                        addr: std::ptr::with_exposed_provenance_mut(sge.addr as usize),
                        length: sge.length as usize,
                    })
                    .collect();
                ibv_wr_set_inline_data_list(raw, buffers.len(), buffers.as_ptr());
            } else {
                ibv_wr_set_sge_list(raw, list.len(), list.as_ptr());
            }
            assert_eq!(ibv_wr_complete(raw), 0, "{request:?}");
        }
        return;
    }
    // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are valid.
    let mut wr: ibv_send_wr = unsafe { zeroed() };
    wr.sg_list = list.as_mut_ptr();
    wr.num_sge = list.len() as i32;
    wr.send_flags = flags;
    wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
    if let Some((_, mss)) = &request.large {
        wr.opcode = ibv_wr_opcode::IBV_WR_TSO;
        // SAFETY: the member of the union that large sends have, of integers and a pointer.
        unsafe {
            let tso = &raw mut wr.bind_mw_tso_union.tso;
            (*tso).hdr = header.as_mut_ptr().cast();
            (*tso).hdr_sz = header.len() as u16;
            (*tso).mss = *mss;
        }
    }
    let mut bad = null_mut();
    // SAFETY: the caller's; everything lives through the call.
    assert_eq!(unsafe { ibv_post_send(qp.as_ptr(), &mut wr, &mut bad) }, 0, "{request:?}");
}

fn post_ours(queue: &mut SendQueue<RawPacket>, request: &Request) {
    macro_rules! post {
        ($op:expr) => {{
            let op = $op.signaled_if(request.signaled);
            // SAFETY: the memory lives to the end of the test.
            let posted = unsafe {
                if request.checksums { queue.post(0, op.checksums()) } else { queue.post(0, op) }
            };
            posted.unwrap_or_else(|error| panic!("{error}: {request:?}"));
        }};
    }
    let list = request.list.as_slice();
    match &request.large {
        Some((header, mss)) => post!(EthTso::new(header, *mss, list)),
        None if request.inline => {
            // SAFETY: memory of the test that no code writes.
            let piece = |sge: &Sge| unsafe {
                let start = std::ptr::with_exposed_provenance(sge.addr as usize);
                std::slice::from_raw_parts(start, sge.length as usize)
            };
            let pieces: Vec<&[u8]> = list.iter().map(piece).collect();
            post!(EthSend::new(InlineGather(&pieces)));
        }
        None => match *list {
            [one] => post!(EthSend::new(one)),
            _ => post!(EthSend::new(list)),
        },
    }
}

/// Which bytes of a WQE are written: all but the padding of header and inline payload.
fn written(request: &Request, ds: usize) -> Vec<bool> {
    let mut written = vec![true; ds * 16];
    if let Some((header, _)) = &request.large {
        let end = 16 + 14 + header.len();
        written[end..end.next_multiple_of(16)].fill(false);
    }
    if request.inline {
        let payload: u32 = request.list.iter().map(|sge| sge.length).sum();
        written[16 + 16 + 4 + payload as usize..].fill(false);
    }
    // The queue pair's number, and what only operations with immediate data have: `ibv_wr_*` leave
    // there what was there before.
    written[4..7].fill(false);
    written[12..16].fill(!request.extended);
    written
}

/// The stores to the register of a queue pair since the last call: to its page, which is known from
/// the first doorbell that names it. Tests beside this one have contexts, and pages, of their own.
fn stores_of(number: u32, page: &mut Option<u32>) -> Vec<stores::Store> {
    let log = stores::take();
    let named = |store: &&stores::Store| {
        store.bytes.len() == 8 && store.bytes[4..7] == number.to_be_bytes()[1..]
    };
    let page = *page.get_or_insert_with(|| log.iter().find(named).expect("a doorbell").uar);
    log.into_iter().filter(|store| store.uar == page).collect()
}

#[test]
fn frames_leave_the_same_bytes_as_libmlx5() {
    let rig = rig();
    let _recording = stores::record();
    let mut random = Random::new();
    let mut memory = rig.memory(8192);
    memory.write(0, &random.bytes(8192));
    let (their_cq, our_cq) = (rig.cq(256), rig.cq(256));
    let (qp, ex) = theirs(&rig, &their_cq);
    let ours = QueuePairBuilder::<RawPacket>::new(&rig.pd, &our_cq)
        .max_send_wr(MAX_WR)
        .max_recv_wr(1)
        .max_send_sge(3)
        .max_inline_data(100)
        .max_tso_header(TSO_HEADER)
        .build()
        .unwrap();
    let ours = ours.init(1).unwrap().rtr().unwrap().rts().unwrap();
    let mut completions = CqReader::new(&our_cq).unwrap();
    let mut queue = SendQueue::new(&ours, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: the queue pairs live to the end.
    let (their_rings, our_rings) = unsafe { (QpMemory::new(qp), QpMemory::new(ours.as_raw())) };
    assert_eq!(our_rings.dv.sq.wqe_cnt, their_rings.dv.sq.wqe_cnt);
    let size = our_rings.send_ring().len();
    let (mut head, mut large) = (0usize, 0);
    let mut half: Option<(usize, usize)> = None;
    // SAFETY: the queue pair is alive.
    let their_number = unsafe { qp.as_ref() }.qp_num;
    let (mut their_page, mut our_page) = (None, None);
    for post in 0..POSTS {
        let mut request = request(&mut random, &memory, post % 4 == 3);
        // A header that goes on at the ring's start misleads libmlx5: it puts what follows 32 bytes
        // too far. `a_header_goes_on_at_the_rings_start` has this crate's.
        let end = |(header, _): &(Vec<u8>, u16)| head * 64 % size + 30 + header.len();
        if request.large.as_ref().is_some_and(|large| end(large) > size) {
            request.large = None;
        }
        large += u32::from(request.large.is_some());
        // SAFETY: queue pair and memory live to the end.
        unsafe { post_theirs(qp, ex, &request) };
        let their_log = stores_of(their_number, &mut their_page);
        post_ours(&mut queue, &request);
        let our_log = stores_of(ours.number(), &mut our_page);
        assert_eq!(our_rings.record(), their_rings.record(), "{request:?}");
        let take = |ring: Vec<u8>| -> Vec<u8> {
            (0..1024.min(size)).map(|at| ring[(head * 64 + at) % size]).collect()
        };
        let (mine, libs) = (take(our_rings.send_ring()), take(their_rings.send_ring()));
        let ds = usize::from(mine[7] & 0x3f);
        for (at, written) in written(&request, ds).into_iter().enumerate() {
            let (mine, libs) = (mine[at], libs[at]);
            assert!(!written || mine == libs, "byte {at:#x}: {mine:x}, not {libs:x}, {request:?}");
        }
        head += ds.div_ceil(4);
        // The same places, in order and width; registers of pages of their own.
        let (our_half, libs) = *half.get_or_insert((our_log[0].offset, their_log[0].offset));
        let places = |log: &[stores::Store], half: usize| -> Vec<(usize, usize)> {
            log.iter().map(|store| (store.offset ^ half, store.bytes.len())).collect()
        };
        assert_eq!(places(&our_log, our_half), places(&their_log, libs), "{request:?}");
        if request.signaled {
            // SAFETY: the CQ is alive, and libmlx5's.
            let wc = unsafe { verbs::poll(their_cq.as_raw()) }.unwrap().expect("a completion");
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS, "{request:?}");
            assert!(completions.poll(&mut queue).unwrap().is_some());
        }
    }
    assert!(large > POSTS / 6);
    drop(queue);
    // SAFETY: made here, and used no more.
    assert_eq!(unsafe { ibv_destroy_qp(qp.as_ptr()) }, 0);
}
