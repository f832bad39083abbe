//! UC and UD: this crate beside `ibv_post_send`, `ibv_wr_*` and `ibv_post_recv`.
//!
//! Compared are, after each post, the bytes of its WQEs, the records, and what is stored to the
//! register, but for the queue pair's number, the padding of inline data, and the immediate of requests
//! without one: `ibv_wr_*` leaves there what the ring had, and it is zero here. How wide the stores are
//! differs where a WQE of two blocks is known in size (`docs/ordering.md`).

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use mlx5::cqe::Completion;
use mlx5::ib::{HasQueues, Receives, Transport, Uc, Ud};
use mlx5::ring::{Batch, CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Init, MemoryRegion, QueuePair, QueuePairBuilder, Rts,
};
use mlx5::wqe::{
    Inline, InlineBytes, PostOn, RdmaWrite, RdmaWriteImm, SendImm, SendMessage, Sge, UdAddress,
};
use mlx5_sys::verbs::*;
use rig::stores;

use crate::bytes::{stored, wqe};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};
use rig::process::on_roce;
use rig::random::Random;
use rig::verbs::{self, QpMemory, Request};

const MEMORY: usize = 1 << 14;
const POSTS: u32 = 400;
const QKEY: u32 = 0x1111_1111;
const MAX_SGE: u32 = 3;
const MAX_INLINE: u32 = 64;

/// The properties of a transport that the comparison needs.
trait Twin: HasQueues + Receives {
    const OPCODES: &'static [ibv_wr_opcode::Type];
    /// 16-byte units before the payload of a request with that opcode.
    fn before(opcode: ibv_wr_opcode::Type) -> usize;
    fn init(rig: &Rig, builder: QueuePairBuilder<Self>) -> QueuePair<Self, Init>
    where
        Self: Sized;
    /// Ready to send to itself.
    fn up(rig: &Rig, qp: QueuePair<Self, Init>) -> QueuePair<Self, Rts>
    where
        Self: Sized;
    fn append(
        batch: &mut Batch<'_, Self>,
        request: &Request,
        to: Option<&UdAddress>,
    ) -> Result<(), PostError>
    where
        Self: Sized;
}

/// Appends an operation of the payload that the request has, in its most special form.
macro_rules! append {
    ($batch:ident, $request:ident, |$payload:ident| $operation:expr) => {{
        // SAFETY: inline requests name memory of the test that no code writes.
        let bytes = |sge: &Sge| unsafe {
            std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize)
        };
        match (&*$request.list, $request.inline) {
            ([one], true) if one.length == 8 => {
                let $payload = InlineBytes::<8>(bytes(one).try_into().unwrap());
                put($batch, $request, $operation)
            }
            ([one], true) => {
                let $payload = Inline(bytes(one));
                put($batch, $request, $operation)
            }
            ([one], false) => {
                let $payload = *one;
                put($batch, $request, $operation)
            }
            (list, _) => {
                let $payload = list;
                put($batch, $request, $operation)
            }
        }
    }};
}

fn put<T: Transport, O: PostOn<T>>(
    batch: &mut Batch<'_, T>,
    request: &Request,
    operation: O,
) -> Result<(), PostError> {
    batch.append(request.id, operation)
}

/// With the setters that a request asks for.
macro_rules! flagged {
    ($request:ident, $operation:expr) => {{
        let mut operation = $operation.signaled_if($request.signaled);
        if $request.fenced {
            operation = operation.fenced();
        }
        operation
    }};
    (solicited $request:ident, $operation:expr) => {{
        let operation = flagged!($request, $operation);
        if $request.solicited { operation.solicited() } else { operation }
    }};
}

impl Twin for Uc {
    const OPCODES: &'static [ibv_wr_opcode::Type] = &[
        ibv_wr_opcode::IBV_WR_SEND,
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM,
    ];

    fn before(opcode: ibv_wr_opcode::Type) -> usize {
        match opcode {
            ibv_wr_opcode::IBV_WR_SEND | ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => 1,
            _ => 2,
        }
    }

    fn init(rig: &Rig, builder: QueuePairBuilder<Uc>) -> QueuePair<Uc, Init> {
        rig.init(builder)
    }

    fn up(rig: &Rig, qp: QueuePair<Uc, Init>) -> QueuePair<Uc, Rts> {
        rig.looped(qp)
    }

    fn append(
        batch: &mut Batch<'_, Uc>,
        request: &Request,
        _: Option<&UdAddress>,
    ) -> Result<(), PostError> {
        let remote = mlx5::wqe::Remote::new(request.remote.0, request.remote.1);
        let imm = request.imm;
        match request.opcode {
            ibv_wr_opcode::IBV_WR_SEND => {
                append!(
                    batch,
                    request,
                    |payload| flagged!(solicited request, SendMessage::new(payload))
                )
            }
            ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => append!(batch, request, |payload| flagged!(
                solicited request,
                SendImm::new(payload, imm)
            )),
            ibv_wr_opcode::IBV_WR_RDMA_WRITE => {
                append!(batch, request, |payload| flagged!(
                    request,
                    RdmaWrite::new(payload, remote)
                ))
            }
            _ => append!(batch, request, |payload| flagged!(
                solicited request,
                RdmaWriteImm::new(payload, remote, imm)
            )),
        }
    }
}

impl Twin for Ud {
    const OPCODES: &'static [ibv_wr_opcode::Type] =
        &[ibv_wr_opcode::IBV_WR_SEND, ibv_wr_opcode::IBV_WR_SEND_WITH_IMM];

    fn before(_: ibv_wr_opcode::Type) -> usize {
        4
    }

    fn init(_: &Rig, builder: QueuePairBuilder<Ud>) -> QueuePair<Ud, Init> {
        builder.build().unwrap().init(&UdInitAttributes::new(1, QKEY)).unwrap()
    }

    fn up(_: &Rig, qp: QueuePair<Ud, Init>) -> QueuePair<Ud, Rts> {
        qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap()
    }

    fn append(
        batch: &mut Batch<'_, Ud>,
        request: &Request,
        to: Option<&UdAddress>,
    ) -> Result<(), PostError> {
        let to = to.unwrap();
        let imm = request.imm;
        match request.opcode {
            ibv_wr_opcode::IBV_WR_SEND => append!(batch, request, |payload| flagged!(
                solicited request,
                SendMessage::new(payload)
            )
            .to(to)),
            _ => append!(batch, request, |payload| flagged!(
                solicited request,
                SendImm::new(payload, imm)
            )
            .to(*to)),
        }
    }
}

/// How libmlx5 is asked.
enum Theirs<T: Transport> {
    Classic(QueuePair<T, Rts>),
    Extended(ExtendedQp),
}

impl<T: Twin> Theirs<T> {
    fn qp(&self) -> NonNull<ibv_qp> {
        match self {
            Self::Classic(qp) => qp.as_raw(),
            Self::Extended(qp) => qp.qp(),
        }
    }

    /// # Safety
    /// The memory that the requests name lives until they are complete.
    unsafe fn post(&self, requests: &[Request], to: Option<(&AddressHandle, u32, u32)>) {
        // SAFETY: the caller upholds the same conditions.
        unsafe {
            match (self, to) {
                (Self::Classic(qp), None) => verbs::post_send(qp.as_raw(), requests).unwrap(),
                (Self::Classic(qp), Some(to)) => post_datagrams(qp.as_raw(), requests, to),
                (Self::Extended(qp), to) => post_extended(qp.ex(), requests, to),
            }
        }
    }
}

fn flags(request: &Request) -> u32 {
    let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
    flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
        | flag(request.solicited, ibv_send_flags::IBV_SEND_SOLICITED)
        | flag(request.fenced, ibv_send_flags::IBV_SEND_FENCE)
}

/// # Safety
/// The memory that the requests name lives until they are complete.
unsafe fn post_datagrams(
    qp: NonNull<ibv_qp>,
    requests: &[Request],
    (handle, number, key): (&AddressHandle, u32, u32),
) {
    let mut lists: Vec<Vec<ibv_sge>> = requests
        .iter()
        .map(|request| {
            let sge = |sge: &Sge| ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey };
            request.list.iter().map(sge).collect()
        })
        .collect();
    let mut chain: Vec<ibv_send_wr> = requests
        .iter()
        .zip(&mut lists)
        .map(|(request, list)| {
            // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
            // valid.
            let mut wr: ibv_send_wr = unsafe { zeroed() };
            wr.wr_id = request.id;
            wr.sg_list = list.as_mut_ptr();
            wr.num_sge = list.len() as i32;
            wr.opcode = request.opcode;
            let inline = if request.inline { ibv_send_flags::IBV_SEND_INLINE.0 } else { 0 };
            wr.send_flags = flags(request) | inline;
            wr.imm_data_invalidated_rkey_union.imm_data = request.imm.to_be();
            wr.wr.ud.ah = handle.as_raw().as_ptr();
            wr.wr.ud.remote_qpn = number;
            wr.wr.ud.remote_qkey = key;
            wr
        })
        .collect();
    for at in 1..chain.len() {
        chain[at - 1].next = &raw mut chain[at];
    }
    let mut bad = null_mut();
    // SAFETY: the chain lives through the call; the caller upholds the other conditions.
    assert_eq!(unsafe { ibv_post_send(qp.as_ptr(), chain.as_mut_ptr(), &mut bad) }, 0);
}

/// # Safety
/// The memory that the requests name lives until they are complete.
unsafe fn post_extended(
    ex: NonNull<ibv_qp_ex>,
    requests: &[Request],
    to: Option<(&AddressHandle, u32, u32)>,
) {
    let ex = ex.as_ptr();
    // SAFETY: the caller upholds the conditions.
    unsafe {
        ibv_wr_start(ex);
        for request in requests {
            (*ex).wr_id = request.id;
            (*ex).wr_flags = flags(request);
            let (address, key) = request.remote;
            match request.opcode {
                ibv_wr_opcode::IBV_WR_SEND => ibv_wr_send(ex),
                ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => ibv_wr_send_imm(ex, request.imm.to_be()),
                ibv_wr_opcode::IBV_WR_RDMA_WRITE => ibv_wr_rdma_write(ex, key, address),
                _ => ibv_wr_rdma_write_imm(ex, key, address, request.imm.to_be()),
            }
            if let Some((handle, number, key)) = to {
                ibv_wr_set_ud_addr(ex, handle.as_raw().as_ptr(), number, key);
            }
            let sge = request.list[0];
            if request.inline {
                ibv_wr_set_inline_data(ex, sge.addr as *mut _, sge.length as usize);
            } else {
                ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
            }
        }
        assert_eq!(ibv_wr_complete(ex), 0);
    }
}

fn has_immediate(request: &Request) -> bool {
    matches!(
        request.opcode,
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM | ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM
    )
}

/// Random requests that both sides can post.
struct Requests<'a> {
    random: &'a mut Random,
    memory: &'a MemoryRegion,
    bytes: &'a [u8],
    lists: bool,
    unsignaled: u32,
    next: u64,
}

impl Requests<'_> {
    fn sge(&mut self) -> Sge {
        let length = 1 + self.random.below(200);
        let offset = self.random.below(MEMORY as u32 - length);
        self.memory.sge(offset as usize, length as usize).unwrap()
    }

    fn next(&mut self, opcodes: &[ibv_wr_opcode::Type]) -> Request {
        let opcode = opcodes[self.random.below(opcodes.len() as u32) as usize];
        let inline = self.random.one_in(2);
        let list = if inline {
            let length = if self.random.one_in(2) { 8 } else { 1 + self.random.below(MAX_INLINE) };
            let offset = self.random.below(self.bytes.len() as u32 - length) as usize;
            vec![Sge::new(self.bytes[offset..].as_ptr().expose_provenance() as u64, length, 0)]
        } else if self.lists && self.random.one_in(3) {
            (0..self.random.below(MAX_SGE + 1)).map(|_| self.sge()).collect()
        } else {
            vec![self.sge()]
        };
        self.unsignaled += 1;
        let signaled = self.unsignaled > 4 || self.random.one_in(3);
        if signaled {
            self.unsignaled = 0;
        }
        let write = opcode == ibv_wr_opcode::IBV_WR_RDMA_WRITE;
        let remote = self.random.below(MEMORY as u32 - 1000);
        self.next += 1;
        Request {
            id: self.next,
            opcode,
            list,
            inline,
            signaled,
            solicited: !write && self.random.one_in(3),
            fenced: self.random.one_in(4),
            remote: (self.memory.remote_address() + u64::from(remote), self.memory.rkey()),
            imm: self.random.next() as u32,
            compare: 0,
            swap_add: 0,
        }
    }
}

fn twins<T: Twin>(rig: &Rig, random: &mut Random, extended: bool) {
    let memory = rig.memory(MEMORY);
    let bytes = random.bytes(1024);
    let (their_cq, cq) = (rig.cq(512), rig.cq(512));
    let shape = |cq: &CompletionQueue| {
        let builder = QueuePairBuilder::<T>::new(&rig.pd, cq).max_send_wr(32);
        builder.max_send_sge(MAX_SGE).max_recv_sge(MAX_SGE).max_inline_data(MAX_INLINE)
    };
    let theirs = if extended {
        let operations = (ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_IMM)
            .0
            | if T::OPCODES.len() > 2 {
                (ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE
                    | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM)
                    .0
            } else {
                0
            };
        let shape = Shape::new(T::QP_TYPE, 32, operations.into());
        Theirs::Extended(ExtendedQp::looped(rig, &their_cq, &shape))
    } else {
        Theirs::Classic(T::up(rig, T::init(rig, shape(&their_cq))))
    };
    let qp = T::init(rig, shape(&cq));
    let mut completions = CqReader::new(&cq).unwrap();
    let mut receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = T::up(rig, qp);
    let mut queue = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    // SAFETY: the QPs live to the end of the function.
    let (their_rings, our_rings) =
        unsafe { (QpMemory::new(theirs.qp()), QpMemory::new(qp.as_raw())) };

    // Receives first, of which the ring is compared whole.
    if let Theirs::Classic(their_qp) = &theirs {
        for id in 0..16 {
            let list: Vec<_> = (0..random.below(MAX_SGE + 1))
                .map(|_| memory.sge(0, random.below(100) as usize).unwrap())
                .collect();
            // SAFETY: memory and QPs live to the end.
            unsafe {
                verbs::post_receive(their_qp.as_raw(), id, &list).unwrap();
                receive.post(id, list.as_slice()).unwrap();
            }
            assert_eq!(their_rings.receive_ring(), our_rings.receive_ring(), "receive ring");
            assert_eq!(their_rings.record(), our_rings.record(), "receive record");
        }
    }

    // An unassigned destination: the receives stay.
    let mut way = rig.local.address(&rig.local.connection_data(&qp));
    if let Some(route) = &mut way.global {
        // Without one, each handle has a UDP source port by chance.
        (route.flow_label, route.traffic_class) = (0xabcde, 0x68);
    }
    let handles = [(); 2].map(|()| AddressHandle::new(&rig.pd, &way).unwrap());
    let (number, key) = (0x3, random.next() as u32);
    let datagrams = T::QP_TYPE == ibv_qp_type::IBV_QPT_UD;
    let address = datagrams.then(|| UdAddress::new(&handles[1], number, key));
    let to = datagrams.then_some((&handles[0], number, key));
    let opcodes = match &theirs {
        // On UC the receives that are posted would be used up.
        Theirs::Classic(_) if !datagrams => &[ibv_wr_opcode::IBV_WR_RDMA_WRITE],
        _ => T::OPCODES,
    };
    let mut requests = Requests {
        random,
        memory: &memory,
        bytes: &bytes,
        lists: !extended,
        unsignaled: 0,
        next: 0,
    };
    let mut head = 0u32;
    stores::take();
    for post in 0..POSTS {
        let count = if requests.random.one_in(2) { 1 } else { 1 + requests.random.below(4) };
        let posted: Vec<_> = (0..count).map(|_| requests.next(opcodes)).collect();
        // SAFETY: memory and QPs live to the end; inline data is copied.
        unsafe { theirs.post(&posted, to) };
        let their_log = stores::take();
        let mut batch = queue.batch();
        for request in &posted {
            T::append(&mut batch, request, address.as_ref()).unwrap();
        }
        // SAFETY: memory and QPs live to the end; inline data is copied.
        unsafe { batch.ring() };
        let our_log = stores::take();

        assert_eq!(our_rings.record()[4..], their_rings.record()[4..], "record, post {post}");
        let (mine, libs) = (our_rings.send_ring(), their_rings.send_ring());
        let mut last = (0, 0, 0);
        for request in &posted {
            let ds = usize::from(mine[(head as usize * 64 + 7) % mine.len()] & 0x3f);
            // Padding of inline data is left as it was.
            let length: u32 = request.list.iter().map(|sge| sge.length).sum();
            let written = match request.inline {
                true => T::before(request.opcode) * 16 + 4 + length as usize,
                false => ds * 16,
            };
            let (ours, mut theirs) = (wqe(&mine, head, written), wqe(&libs, head, written));
            if extended && !has_immediate(request) {
                theirs[12..16].fill(0);
            }
            assert_eq!(ours, theirs, "post {post}, {request:?}");
            last = (head, written, ds);
            head = head.wrapping_add(ds.div_ceil(4) as u32);
        }
        let (mut ours, mut theirs) = (stored(our_log), stored(their_log));
        assert_eq!(ours.len(), theirs.len(), "bytes stored to the register, post {post}");
        ours.truncate(last.1);
        theirs.truncate(last.1);
        if extended && ours.len() > 8 && !posted.last().is_some_and(has_immediate) {
            theirs[12..16].fill(0);
        }
        assert_eq!(ours, theirs, "what is stored to the register, post {post}");
        assert_eq!(ours, wqe(&mine, last.0, ours.len()), "which is the last WQE");

        let mut ids = Vec::new();
        // SAFETY: the CQ is alive, and libmlx5's.
        while let Some(wc) = unsafe { verbs::poll(their_cq.as_raw()) }.unwrap() {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS);
            ids.push(wc.wr_id);
        }
        let done: Vec<_> = completions
            .poll_all(&mut (&mut queue, &mut receive))
            .map(|completion| match completion.unwrap() {
                Completion::Send(done) => done.id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(done, ids, "post {post}");
    }
}

#[test]
fn connections_and_datagrams_leave_the_same_bytes_as_libmlx5() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    for extended in [false, true] {
        twins::<Uc>(&rig, &mut random, extended);
        twins::<Ud>(&rig, &mut random, extended);
    }
}

#[test]
fn and_so_they_do_on_roce() {
    if let Some(text) = on_roce(&["unreliable::connections_and_datagrams"]) {
        assert!(text.contains("1 passed"), "{text}");
    }
}
