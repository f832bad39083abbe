//! Requests on extended reliable connections by `ibv_post_send`, by `ibv_wr_*` with
//! `ibv_wr_set_xrc_srqn`, and by this crate: the same bytes of each WQE, the same doorbell record, and
//! the same stores to the register.
//!
//! In the segment that names the shared receive queue, libmlx5 writes the first four bytes, and
//! leaves the other bytes as they were in the ring. Here they are zero. The HCA does not read them.
//! As elsewhere, padding of inline data is not written, and neither is `compare` of a fetch-and-add
//! by libmlx5. `ibv_wr_*` writes an immediate only where there is one. Of requests that change a
//! window's key, the bytes that libmlx5 writes are compared, and the keys of each twin are compared
//! with the expected keys.

use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::diag::text;
use mlx5::ib::{XrcRecv, XrcSend};
use mlx5::ring::{Batch, CqReader, PostError, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rts, SharedReceiveQueue,
    ThreadDomain, XrcDomain,
};
use mlx5::wqe::{
    CompareSwap, FetchAdd, Inline, LocalInvalidate, RdmaRead, RdmaWrite, RdmaWriteImm, Remote,
    SendImm, SendInvalidate, SendMessage, Sge, Word, XrcAddress,
};
use mlx5_sys::verbs::*;
use rig::stores::{self, Store};

use crate::grants::{self, Chooser, Giver, Grants};
use crate::keys::{What, same};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape, connect_to};
use rig::random::Random;
use rig::verbs::{self, QpMemory, Request};

const MEMORY: usize = 1 << 14;
const INLINE: u32 = 200;
const REQUESTS: u32 = 32;

/// A request, and what it does to a key, if it does.
#[derive(Debug)]
struct Posted {
    request: Request,
    change: Option<What>,
}

/// The objects that the requests of a twin use.
struct Own<'a> {
    grants: &'a mut Grants,
    memory: &'a MemoryRegion,
    qpn: u32,
}

/// One request of libmlx5 as this crate's operation.
fn append(
    batch: &mut Batch<'_, XrcSend>,
    Posted { request, change }: &Posted,
    to: XrcAddress,
    own: &Own<'_>,
) -> Result<(), PostError> {
    let id = request.id;
    macro_rules! change {
        ($op:expr) => {{
            let op = $op.signaled_if(request.signaled);
            batch.append(id, if request.fenced { op.fenced() } else { op })
        }};
    }
    let key = change.as_ref().map_or(0, |what| own.grants.key(what));
    if let Some(what @ What::Bind2(..)) = change {
        return change!(own.grants.bind(what, own.memory, own.qpn));
    }
    if let Some(What::Invalidate(_)) = change {
        return change!(LocalInvalidate::new(key));
    }
    let remote = Remote::new(request.remote.0, request.remote.1);
    let [sge] = request.list[..] else { unreachable!("one entry") };
    macro_rules! post {
        ($op:expr) => {{
            let op = $op.signaled_if(request.signaled);
            match request.fenced {
                true => batch.append(id, op.fenced().to(to)),
                false => batch.append(id, op.to(&to)),
            }
        }};
        (solicited $op:expr) => {
            if request.solicited { post!($op.solicited()) } else { post!($op) }
        };
    }
    macro_rules! payload {
        (|$payload:ident| $op:expr) => {
            if request.inline {
                // SAFETY: inline requests name memory of the test that no code writes.
                let $payload = Inline(unsafe {
                    std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
                });
                $op
            } else {
                let $payload = sge;
                $op
            }
        };
    }
    let word = Word::new(sge.addr, sge.lkey);
    match request.opcode {
        ibv_wr_opcode::IBV_WR_SEND => {
            payload!(|payload| post!(solicited SendMessage::new(payload)))
        }
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => {
            payload!(|payload| post!(solicited SendInvalidate::new(payload, key)))
        }
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => {
            payload!(|payload| post!(solicited SendImm::new(payload, request.imm)))
        }
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => {
            payload!(|payload| post!(RdmaWrite::new(payload, remote)))
        }
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
            payload!(|payload| post!(solicited RdmaWriteImm::new(payload, remote, request.imm)))
        }
        ibv_wr_opcode::IBV_WR_RDMA_READ => post!(RdmaRead::new(sge, remote)),
        ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => {
            post!(CompareSwap::new(word, remote, request.compare, request.swap_add))
        }
        ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
            post!(FetchAdd::new(word, remote, request.swap_add))
        }
        other => unreachable!("opcode {other}"),
    }
}

/// The same by `ibv_post_send`.
///
/// # Safety
/// The QP is in RTS, and what the requests name is alive.
unsafe fn post(qp: NonNull<ibv_qp>, posted: &[Posted], srq: u32, own: &mut Own<'_>) {
    let requests: Vec<_> = posted.iter().map(|posted| posted.request.clone()).collect();
    let say = |at: usize, wr: &mut ibv_send_wr| {
        wr.qp_type.xrc.remote_srqn = srq;
        match &posted[at].change {
            None => {}
            Some(what @ What::Bind2(..)) => {
                wr.bind_mw_tso_union.bind_mw = own.grants.bind_mw(what, own.memory);
            }
            Some(what) => {
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = own.grants.key(what)
            }
        }
    };
    // SAFETY: the caller upholds the conditions of this function.
    unsafe { verbs::post_send_with(qp, &requests, say) }.unwrap();
    for what in posted.iter().filter_map(|posted| posted.change.as_ref()) {
        own.grants.posted(what);
    }
}

/// The same by the extended interface.
///
/// # Safety
/// The QP is in RTS, and what the requests name is alive.
unsafe fn post_extended(qp: &ExtendedQp, posted: &[Posted], srq: u32, own: &mut Own<'_>) {
    let ex = qp.ex().as_ptr();
    // SAFETY: the caller upholds the conditions of this function.
    unsafe {
        ibv_wr_start(ex);
        for Posted { request, change } in posted {
            (*ex).wr_id = request.id;
            let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
            (*ex).wr_flags = flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
                | flag(request.solicited, ibv_send_flags::IBV_SEND_SOLICITED)
                | flag(request.fenced, ibv_send_flags::IBV_SEND_FENCE);
            let (address, rkey) = request.remote;
            let imm = request.imm.to_be();
            let key = change.as_ref().map_or(0, |what| own.grants.key(what));
            if let Some(what) = change {
                let bind = matches!(what, What::Bind2(..));
                if let Some(bind) = bind.then(|| own.grants.bind_mw(what, own.memory)) {
                    ibv_wr_bind_mw(ex, bind.mw, bind.rkey, &bind.bind_info);
                }
                if let What::Invalidate(_) = what {
                    ibv_wr_local_inv(ex, key);
                }
                own.grants.posted(what);
            }
            // What changes a key of this side has neither data nor destination.
            if request.list.is_empty() {
                continue;
            }
            match request.opcode {
                ibv_wr_opcode::IBV_WR_SEND_WITH_INV => ibv_wr_send_inv(ex, key),
                ibv_wr_opcode::IBV_WR_SEND => ibv_wr_send(ex),
                ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => ibv_wr_send_imm(ex, imm),
                ibv_wr_opcode::IBV_WR_RDMA_WRITE => ibv_wr_rdma_write(ex, rkey, address),
                ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
                    ibv_wr_rdma_write_imm(ex, rkey, address, imm);
                }
                ibv_wr_opcode::IBV_WR_RDMA_READ => ibv_wr_rdma_read(ex, rkey, address),
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => {
                    ibv_wr_atomic_cmp_swp(ex, rkey, address, request.compare, request.swap_add);
                }
                _ => ibv_wr_atomic_fetch_add(ex, rkey, address, request.swap_add),
            }
            // Before the data or after it: both are allowed.
            let sge = request.list[0];
            if request.id % 2 == 0 {
                ibv_wr_set_xrc_srqn(ex, srq);
            }
            if request.inline {
                ibv_wr_set_inline_data(ex, sge.addr as *mut _, sge.length as usize);
            } else {
                ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
            }
            if request.id % 2 != 0 {
                ibv_wr_set_xrc_srqn(ex, srq);
            }
        }
        assert_eq!(ibv_wr_complete(ex), 0);
    }
}

/// The answering side of all lines.
struct Answer {
    targets: Vec<QueuePair<XrcRecv, Rts>>,
    srq: SharedReceiveQueue,
    number: u32,
    cq: CompletionQueue,
    domain: XrcDomain,
}

impl Answer {
    fn new(rig: &Rig) -> Self {
        let domain = XrcDomain::new(&rig.context).unwrap();
        let cq = rig.cq(255);
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(127).xrc(&domain, &cq);
        let srq = srq.build().unwrap();
        let number = srq.number().unwrap();
        Self { targets: vec![], srq, number, cq, domain }
    }

    /// Connects an end that is in RESET.
    fn connect(&mut self, rig: &Rig, qp: NonNull<ibv_qp>) {
        let target = rig.to_init(QueuePair::target(&self.domain).unwrap());
        connect_to(rig, qp, ibv_qp_type::IBV_QPT_XRC_SEND, target.number());
        let own = rig.local.connection_data(&target);
        // SAFETY: the QP is alive.
        let number = unsafe { qp.as_ref() }.qp_num;
        let theirs = mlx5::connect::ConnectionData { qpn: number, psn: 0, ..own };
        let target = target.rtr(&rig.local.rtr(&own, &theirs)).unwrap();
        self.targets.push(target.rts(&rig.local.rts(&own, &theirs).into()).unwrap());
    }

    /// Posts receives, and polls the completions of earlier ones.
    fn refill(&self, receives: usize, memory: &MemoryRegion) {
        let sge = memory.sge(0, 4096).unwrap();
        let list: Vec<_> = (0..receives as u64).map(|id| (id, vec![sge])).collect();
        // SAFETY: SRQ, CQ and memory live to the end.
        unsafe {
            while let Some(wc) = verbs::poll(self.cq.as_raw()).unwrap() {
                assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            }
            if !list.is_empty() {
                verbs::post_shared(self.srq.as_raw(), &list).unwrap();
            }
        }
    }
}

struct Case<'a> {
    random: &'a mut Random,
    memory: &'a MemoryRegion,
    bytes: &'a [u8],
    next: u64,
}

impl Case<'_> {
    fn posted(&mut self, signaled: bool, chooser: &mut Chooser) -> Posted {
        let change =
            if self.random.one_in(3) { chooser.next(self.random, MEMORY as u32) } else { None };
        Posted { request: self.request(signaled, change.as_ref()), change }
    }

    fn request(&mut self, signaled: bool, change: Option<&What>) -> Request {
        let opcode = [
            ibv_wr_opcode::IBV_WR_SEND,
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
            ibv_wr_opcode::IBV_WR_RDMA_WRITE,
            ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
            ibv_wr_opcode::IBV_WR_RDMA_READ,
            ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP,
            ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD,
        ][self.random.below(7) as usize];
        let opcode = match change {
            None => opcode,
            Some(What::SendInvalidate(_)) => ibv_wr_opcode::IBV_WR_SEND_WITH_INV,
            Some(What::Invalidate(_)) => ibv_wr_opcode::IBV_WR_LOCAL_INV,
            Some(_) => ibv_wr_opcode::IBV_WR_BIND_MW,
        };
        let stays =
            matches!(opcode, ibv_wr_opcode::IBV_WR_LOCAL_INV | ibv_wr_opcode::IBV_WR_BIND_MW);
        let atomic = opcode == ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP
            || opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD;
        let carries = !atomic && !stays && opcode != ibv_wr_opcode::IBV_WR_RDMA_READ;
        let inline = carries && self.random.one_in(2);
        let length = if atomic { 8 } else { 1 + self.random.below(INLINE) };
        let list = if stays {
            vec![]
        } else if inline {
            let at = self.random.below(self.bytes.len() as u32 - length) as usize;
            vec![Sge::new(self.bytes[at..].as_ptr().expose_provenance() as u64, length, 0)]
        } else {
            let offset = self.random.below((MEMORY as u32 - length) / 8) * 8;
            let address = self.memory.address() + u64::from(offset);
            vec![Sge::new(address, length, self.memory.lkey())]
        };
        let remote = self.random.below((MEMORY as u32 - 4096) / 8) * 8;
        let solicits = carries && opcode != ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        self.next += 1;
        Request {
            id: self.next,
            opcode,
            list,
            inline,
            signaled,
            solicited: solicits && self.random.one_in(3),
            fenced: self.random.one_in(4),
            remote: (self.memory.remote_address() + u64::from(remote), self.memory.rkey()),
            imm: self.random.next() as u32,
            compare: self.random.next(),
            swap_add: self.random.next(),
        }
    }
}

fn has_immediate(request: &Request) -> bool {
    matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    )
}

fn takes_receive(request: &Request) -> bool {
    matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_SEND
            | ibv_wr_opcode::IBV_WR_SEND_WITH_INV
            | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM
            | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    )
}

/// The bytes of a WQE that are written, with what differs by nature set to zero. Returns its size in
/// blocks, too.
fn wqe(
    ring: &[u8],
    block: usize,
    Posted { request, change }: &Posted,
    key: Option<u32>,
) -> (Vec<u8>, usize) {
    let byte = |at: usize| ring[(block * 64 + at) % ring.len()];
    let ds = usize::from(byte(7) & 0x3f);
    let named = matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    );
    let end = match request.inline {
        true => 32 + usize::from(named) * 16 + 4 + request.list[0].length as usize,
        false => ds * 16,
    };
    let mut bytes: Vec<u8> = (0..end).map(byte).collect();
    if let Some(key) = key {
        assert_eq!(bytes[12..16], key.to_be_bytes(), "{request:?}");
        bytes[12..16].fill(0);
    }
    if let Some(what @ (What::Bind2(..) | What::Invalidate(_))) = change {
        if let What::Bind2(..) = what {
            assert_eq!(bytes[68..71], bytes[4..7], "it is for the queue pair that it is posted on");
        }
        for (byte, same) in bytes.iter_mut().zip(same(what, ds)) {
            *byte = if same { *byte } else { 0 };
        }
        return (bytes, ds.div_ceil(4));
    }
    bytes[4..7].fill(0);
    bytes[20..32].fill(0);
    if request.opcode == ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD {
        bytes[56..64].fill(0);
    }
    (bytes, ds.div_ceil(4))
}

/// Widths of the stores to a register. Their bytes are those of the ring, from where the last WQE is.
fn widths(log: Vec<Store>, ring: &[u8], block: usize) -> Vec<usize> {
    let mut at = block * 64;
    log.into_iter()
        .map(|store| {
            for byte in &store.bytes {
                assert_eq!(*byte, ring[at % ring.len()]);
                at += 1;
            }
            store.bytes.len()
        })
        .collect()
}

fn end(rig: &Rig, cq: &CompletionQueue, domain: bool) -> QueuePair<XrcSend, mlx5::verbs::Reset> {
    let builder =
        QueuePairBuilder::<XrcSend>::new(&rig.pd, cq).max_send_wr(REQUESTS).max_inline_data(INLINE);
    let builder = match domain {
        true => builder.thread_domain(&ThreadDomain::new(&rig.context).unwrap()),
        false => builder,
    };
    builder.build().unwrap()
}

#[test]
fn requests_leave_the_same_bytes_as_libmlx5() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = grants::memory(&rig, MEMORY);
    let bytes = random.bytes(4096);
    let mut giver = Giver::new(&rig);
    for round in 0..6 {
        let mut answer = Answer::new(&rig);
        let cqs = [(); 3].map(|()| rig.cq(127));
        let theirs = end(&rig, &cqs[0], false);
        let ours = end(&rig, &cqs[1], round % 2 == 0);
        let mut shape = Shape::new(ibv_qp_type::IBV_QPT_XRC_SEND, REQUESTS, {
            use ibv_qp_create_send_ops_flags as flag;
            (flag::IBV_QP_EX_WITH_SEND
                | flag::IBV_QP_EX_WITH_SEND_WITH_INV
                | flag::IBV_QP_EX_WITH_BIND_MW
                | flag::IBV_QP_EX_WITH_LOCAL_INV
                | flag::IBV_QP_EX_WITH_SEND_WITH_IMM
                | flag::IBV_QP_EX_WITH_RDMA_WRITE
                | flag::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
                | flag::IBV_QP_EX_WITH_RDMA_READ
                | flag::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
                | flag::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)
                .0
                .into()
        });
        (shape.max_recv_wr, shape.max_inline_data) = (0, INLINE);
        let extended = ExtendedQp::new(&rig, &cqs[2], &shape);
        for qp in [theirs.as_raw(), ours.as_raw(), extended.qp()] {
            answer.connect(&rig, qp);
        }
        let mut completions = CqReader::new(&cqs[1]).unwrap();
        // SAFETY: the QP lives as long as the queue; no other code posts to it. Its register is
        // used by this thread alone, and one post after the other.
        let queue = unsafe {
            SendQueue::<XrcSend>::from_raw(ours.as_raw(), &mut completions, SendConfig::default())
        };
        let mut queue = queue.unwrap();
        // SAFETY: the QPs live as long as these are used.
        let rings =
            unsafe { [theirs.as_raw(), ours.as_raw(), extended.qp()].map(|qp| QpMemory::new(qp)) };
        let mut case = Case { random: &mut random, memory: &memory, bytes: &bytes, next: 0 };
        let (mut head, mut unsignaled) = (0usize, 0);
        let mut chooser = Chooser::default();
        let mut grants = [(); 3].map(|()| Grants::new(&rig));
        stores::take();
        for post in 0..150 {
            let count = if case.random.one_in(2) { 1 } else { 1 + case.random.below(4) };
            chooser.begin();
            let requests: Vec<_> = (0..count)
                .map(|at| {
                    unsignaled += 1;
                    let must = unsignaled + count - at >= REQUESTS / 4;
                    let signaled = must || case.random.one_in(3);
                    if signaled {
                        unsignaled = 0;
                    }
                    case.posted(signaled, &mut chooser)
                })
                .collect();
            let taken = requests.iter().filter(|posted| takes_receive(&posted.request)).count();
            answer.refill(3 * taken, &memory);
            for grants in &grants {
                for what in requests.iter().filter_map(|posted| posted.change.as_ref()) {
                    giver.give(grants, what, &memory);
                }
            }
            // Of each request, and each twin.
            let keys: Vec<_> = requests
                .iter()
                .map(|posted| {
                    grants.each_ref().map(|own| posted.change.as_ref().map(|what| own.key(what)))
                })
                .collect();
            let [mut their_own, our_own, mut extended_own] = {
                let qpns = [theirs.as_raw(), ours.as_raw(), extended.qp()];
                let mut grants = grants.iter_mut();
                qpns.map(|qp| Own {
                    grants: grants.next().unwrap(),
                    memory: &memory,
                    // SAFETY: the QP is alive.
                    qpn: unsafe { qp.as_ref() }.qp_num,
                })
            };
            stores::take();
            // SAFETY: QPs and memory live to the end; inline data is copied.
            unsafe { self::post(theirs.as_raw(), &requests, answer.number, &mut their_own) };
            let first = stores::take();
            let mut batch = queue.batch();
            for request in &requests {
                append(&mut batch, request, XrcAddress::new(answer.number), &our_own).unwrap();
                if let Some(what) = &request.change {
                    our_own.grants.posted(what);
                }
            }
            // SAFETY: QPs and memory live to the end; inline data is copied.
            unsafe { batch.ring() };
            let second = stores::take();
            // SAFETY: QPs and memory live to the end; inline data is copied.
            unsafe { post_extended(&extended, &requests, answer.number, &mut extended_own) };
            let third = stores::take();

            let lists = rings.map(|ring| ring.send_ring());
            let (mut block, mut last) = (head, head);
            for (request, keys) in requests.iter().zip(keys) {
                let [first, second, third] =
                    [0, 1, 2].map(|which| wqe(&lists[which], block, request, keys[which]));
                let what = || {
                    format!(
                        "post {post}: {request:#?}\n{}",
                        text::SendWqe::new(&second.0, text::Addressing::Xrc)
                    )
                };
                assert_eq!(second, first, "ibv_post_send, {}", what());
                let (mut bytes, blocks) = second.clone();
                let (mut theirs, their_blocks) = third;
                if !has_immediate(&request.request) {
                    bytes[12..16].fill(0);
                    theirs[12..16].fill(0);
                }
                assert_eq!((bytes, blocks), (theirs, their_blocks), "ibv_wr, {}", what());
                last = block;
                block += second.1;
            }
            head = block;
            for ring in &rings {
                assert_eq!(ring.record()[4..], (head as u16 as u32).to_be_bytes());
            }
            let stores = [(first, 0), (second, 1), (third, 2)]
                .map(|(log, which)| widths(log, &lists[which], last));
            assert_eq!(stores[1], stores[0], "stores of post {post}");
            assert_eq!(stores[1], stores[2], "stores of post {post}");

            // All three complete, with the same ids.
            let ids: Vec<u64> = completions
                .poll_all(&mut queue)
                .map(|completion| match completion.unwrap() {
                    Completion::Send(done) => done.id,
                    other => panic!("{other:?}"),
                })
                .collect();
            for cq in [&cqs[0], &cqs[2]] {
                let mut theirs = vec![];
                // SAFETY: the CQ is alive, and libmlx5's.
                while let Some(wc) = unsafe { verbs::poll(cq.as_raw()) }.unwrap() {
                    assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
                    theirs.push(wc.wr_id);
                }
                assert_eq!(theirs, ids);
            }
        }
        drop(queue);
    }
}
