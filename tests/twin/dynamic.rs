//! Dynamic connections: this crate beside `ibv_wr_*` with `mlx5dv_wr_set_dc_addr` and
//! `mlx5dv_wr_set_dc_addr_stream`, the only way that libmlx5 has for them.
//!
//! Compared are, after each post, the bytes of its WQEs, the records, and what is stored to the
//! register, but for the queue pair's number, the padding of inline data, and two fields that
//! `ibv_wr_*` leaves as the ring had them, and are zero here: the immediate of requests without one,
//! and what fetch-and-add would compare with. Of requests that change a window's key, the bytes are
//! compared that libmlx5 writes, and the keys of each twin with what they should be.

use mlx5::cqe::Completion;
use mlx5::ib::{Dci, Dct};
use mlx5::ring::{Batch, CqReader, PostError, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::DctRtrAttributes;
use mlx5::verbs::{AddressHandle, MemoryRegion, QueuePair, Rtr, SharedReceiveQueue};
use mlx5::wqe::{
    CompareSwap, DcAddress, FetchAdd, Inline, InlineBytes, LocalInvalidate, PostOn, RdmaRead,
    RdmaWrite, RdmaWriteImm, Remote, SendImm, SendInvalidate, SendMessage, Sge, Word,
};
use mlx5_sys::dv;
use mlx5_sys::verbs::ibv_qp_create_send_ops_flags as with;
use mlx5_sys::verbs::ibv_wr_opcode as wr;
use mlx5_sys::verbs::*;
use rig::stores;

use crate::bytes::{stored, wqe};
use crate::grants::{self, Chooser, Giver, Grants};
use crate::keys::{What, same};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};
use rig::process::on_roce;
use rig::random::Random;
use rig::verbs::{self, QpMemory};

const MEMORY: usize = 1 << 14;
const POSTS: u32 = 500;
const KEY: u64 = 0x1122_3344_5566_7788;
const TARGETS: usize = 2;

/// A request, and where it goes.
#[derive(Clone, Debug)]
struct Request {
    id: u64,
    opcode: wr::Type,
    /// Its change of a key, if any.
    change: Option<What>,
    sge: Sge,
    inline: bool,
    signaled: bool,
    solicited: bool,
    fenced: bool,
    remote: (u64, u32),
    imm: u32,
    operands: (u64, u64),
    target: usize,
    stream: Option<u16>,
}

impl Request {
    /// `bytes`: the source of inline payloads, which is never written.
    fn new(
        id: u64,
        signaled: bool,
        random: &mut Random,
        memory: &MemoryRegion,
        bytes: &[u8],
        chooser: &mut Chooser,
    ) -> Self {
        let change = if random.one_in(3) { chooser.next(random, MEMORY as u32) } else { None };
        let opcode = [
            wr::IBV_WR_SEND,
            wr::IBV_WR_SEND_WITH_IMM,
            wr::IBV_WR_RDMA_WRITE,
            wr::IBV_WR_RDMA_WRITE_WITH_IMM,
            wr::IBV_WR_RDMA_READ,
            wr::IBV_WR_ATOMIC_CMP_AND_SWP,
            wr::IBV_WR_ATOMIC_FETCH_AND_ADD,
        ][random.below(7) as usize];
        let opcode = match change {
            None => opcode,
            Some(What::SendInvalidate(_)) => wr::IBV_WR_SEND_WITH_INV,
            Some(What::Invalidate(_)) => wr::IBV_WR_LOCAL_INV,
            Some(_) => wr::IBV_WR_BIND_MW,
        };
        let atomic = is_atomic(opcode);
        let inline =
            !atomic && !stays(opcode) && opcode != wr::IBV_WR_RDMA_READ && random.one_in(2);
        let length = match () {
            () if atomic || random.one_in(3) => 8,
            () if inline => 1 + random.below(64),
            () => 1 + random.below(300),
        };
        let offset = random.below(MEMORY as u32 / 16) * 8;
        let from = match inline {
            true => bytes.as_ptr().expose_provenance() as u64 + u64::from(random.below(512)),
            false => memory.address() + u64::from(offset),
        };
        let sge = Sge::new(from, length, memory.lkey());
        let remote = memory.remote_address() + u64::from(8192 + random.below(900) * 8);
        let solicits = matches!(
            opcode,
            wr::IBV_WR_SEND
                | wr::IBV_WR_SEND_WITH_INV
                | wr::IBV_WR_SEND_WITH_IMM
                | wr::IBV_WR_RDMA_WRITE_WITH_IMM
        );
        Self {
            id,
            opcode,
            change,
            sge,
            inline,
            signaled,
            solicited: solicits && random.one_in(3),
            fenced: random.one_in(4),
            remote: (remote, memory.rkey()),
            imm: random.next() as u32,
            operands: (random.next(), random.next()),
            target: random.below(TARGETS as u32) as usize,
            stream: random.one_in(3).then(|| random.next() as u16),
        }
    }

    fn has_immediate(&self) -> bool {
        matches!(self.opcode, wr::IBV_WR_SEND_WITH_IMM | wr::IBV_WR_RDMA_WRITE_WITH_IMM)
    }

    /// Whether it takes a receive.
    fn receives(&self) -> bool {
        self.has_immediate() || matches!(self.opcode, wr::IBV_WR_SEND | wr::IBV_WR_SEND_WITH_INV)
    }

    /// 16-byte units before its data.
    fn before(&self) -> usize {
        match self.opcode {
            wr::IBV_WR_SEND | wr::IBV_WR_SEND_WITH_IMM | wr::IBV_WR_SEND_WITH_INV => 4,
            opcode if is_atomic(opcode) => 6,
            _ => 5,
        }
    }

    /// Bytes of its WQE that are written.
    fn written(&self) -> usize {
        match self.opcode {
            wr::IBV_WR_BIND_MW => return 192,
            wr::IBV_WR_LOCAL_INV => return 128,
            _ => {}
        }
        self.before() * 16 + if self.inline { 4 + self.sge.length as usize } else { 16 }
    }

    /// Removes the bytes that differ in libmlx5's WQEs.
    fn settle(&self, bytes: &mut [u8]) {
        if !self.has_immediate() {
            bytes[12..16].fill(0);
        }
        if self.opcode == wr::IBV_WR_ATOMIC_FETCH_AND_ADD {
            bytes[88..96].fill(0);
        }
    }

    /// Takes out of the bytes what is each twin's own, which is checked.
    fn settle_keys(&self, bytes: &mut [u8], key: Option<u32>, qpn: u32) {
        let (Some(what), Some(key)) = (&self.change, key) else { return };
        assert_eq!(bytes[12..16], key.to_be_bytes(), "{self:?}");
        bytes[12..16].fill(0);
        if let What::SendInvalidate(_) = what {
            return;
        }
        if let What::Bind2(..) = what {
            assert_eq!(bytes[68..71], qpn.to_be_bytes()[1..], "{self:?}");
        }
        let same = same(what, bytes.len() / 16);
        for (byte, _) in bytes.iter_mut().zip(same).filter(|(_, same)| !same) {
            *byte = 0;
        }
    }
}

/// Whether it changes a key of its own side, and goes nowhere.
fn stays(opcode: wr::Type) -> bool {
    matches!(opcode, wr::IBV_WR_BIND_MW | wr::IBV_WR_LOCAL_INV)
}

/// The objects that the requests of a twin use.
struct Own<'a> {
    grants: Grants,
    memory: &'a MemoryRegion,
    qpn: u32,
}

fn is_atomic(opcode: wr::Type) -> bool {
    matches!(opcode, wr::IBV_WR_ATOMIC_CMP_AND_SWP | wr::IBV_WR_ATOMIC_FETCH_AND_ADD)
}

/// By libmlx5.
///
/// # Safety
/// The memory that the requests name lives until they are complete.
unsafe fn post(
    qp: &ExtendedQp,
    requests: &[Request],
    handle: &AddressHandle,
    targets: &[Target],
    own: &mut Own<'_>,
) {
    let ex = qp.ex().as_ptr();
    // SAFETY: the caller upholds the conditions; the fields are used under the lock that
    // `ibv_wr_start` takes.
    unsafe {
        let direct = dv::mlx5dv_qp_ex_from_ibv_qp_ex(ex);
        ibv_wr_start(ex);
        for request in requests {
            let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
            (*ex).wr_id = request.id;
            (*ex).wr_flags = flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
                | flag(request.solicited, ibv_send_flags::IBV_SEND_SOLICITED)
                | flag(request.fenced, ibv_send_flags::IBV_SEND_FENCE);
            let ((address, key), (one, other)) = (request.remote, request.operands);
            let named = request.change.as_ref().map_or(0, |what| own.grants.key(what));
            if let Some(what) = &request.change {
                let bind = matches!(what, What::Bind2(..));
                if let Some(bind) = bind.then(|| own.grants.bind_mw(what, own.memory)) {
                    ibv_wr_bind_mw(ex, bind.mw, bind.rkey, &bind.bind_info);
                }
                if let What::Invalidate(_) = what {
                    ibv_wr_local_inv(ex, named);
                }
                own.grants.posted(what);
            }
            if stays(request.opcode) {
                continue;
            }
            match request.opcode {
                wr::IBV_WR_SEND => ibv_wr_send(ex),
                wr::IBV_WR_SEND_WITH_INV => ibv_wr_send_inv(ex, named),
                wr::IBV_WR_SEND_WITH_IMM => ibv_wr_send_imm(ex, request.imm.to_be()),
                wr::IBV_WR_RDMA_WRITE => ibv_wr_rdma_write(ex, key, address),
                wr::IBV_WR_RDMA_WRITE_WITH_IMM => {
                    ibv_wr_rdma_write_imm(ex, key, address, request.imm.to_be());
                }
                wr::IBV_WR_RDMA_READ => ibv_wr_rdma_read(ex, key, address),
                wr::IBV_WR_ATOMIC_CMP_AND_SWP => {
                    ibv_wr_atomic_cmp_swp(ex, key, address, one, other);
                }
                _ => ibv_wr_atomic_fetch_add(ex, key, address, one),
            }
            let (handle, number) = (handle.as_raw().as_ptr(), targets[request.target].qp.number());
            match request.stream {
                None => dv::mlx5dv_wr_set_dc_addr(direct, handle, number, KEY),
                Some(stream) => {
                    dv::mlx5dv_wr_set_dc_addr_stream(direct, handle, number, KEY, stream);
                }
            }
            let sge = request.sge;
            if request.inline {
                ibv_wr_set_inline_data(ex, sge.addr as *mut _, sge.length as usize);
            } else {
                ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
            }
        }
        assert_eq!(ibv_wr_complete(ex), 0);
    }
}

/// By this crate.
fn append(
    batch: &mut Batch<'_, Dci>,
    request: &Request,
    targets: &[Target],
    own: &Own<'_>,
) -> Result<(), PostError> {
    fn put<O: PostOn<Dci>>(batch: &mut Batch<'_, Dci>, id: u64, o: O) -> Result<(), PostError> {
        batch.append(id, o)
    }
    let Request { id, sge, imm, operands: (one, other), .. } = *request;
    let remote = Remote::new(request.remote.0, request.remote.1);
    let to = match request.stream {
        None => targets[request.target].address,
        Some(stream) => targets[request.target].address.on_stream(stream),
    };
    macro_rules! flagged {
        ($operation:expr) => {{
            let operation = $operation.signaled_if(request.signaled);
            if request.fenced { operation.fenced() } else { operation }
        }};
        (solicited $operation:expr) => {{
            let operation = flagged!($operation);
            if request.solicited { operation.solicited() } else { operation }
        }};
    }
    // In the most special form that it has.
    macro_rules! payload {
        (|$payload:ident| $operation:expr) => {{
            let length = sge.length as usize;
            // SAFETY: the memory is the test's, and no code writes it now.
            let bytes = unsafe { std::slice::from_raw_parts(sge.addr as *const u8, length) };
            match (request.inline, sge.length) {
                (true, 8) => {
                    let $payload = InlineBytes::<8>(bytes.try_into().unwrap());
                    put(batch, id, $operation.to(&to))
                }
                (true, _) => {
                    let $payload = Inline(bytes);
                    put(batch, id, $operation.to(to))
                }
                (false, ..20) => {
                    let $payload = [sge];
                    put(batch, id, $operation.to(to))
                }
                (false, _) => {
                    let $payload = sge;
                    put(batch, id, $operation.to(&to))
                }
            }
        }};
    }
    let old = Word::new(sge.addr, sge.lkey);
    let named = request.change.as_ref().map_or(0, |what| own.grants.key(what));
    match request.opcode {
        wr::IBV_WR_LOCAL_INV => put(batch, id, flagged!(LocalInvalidate::new(named))),
        wr::IBV_WR_BIND_MW => {
            let what = request.change.as_ref().expect("of a window");
            put(batch, id, flagged!(own.grants.bind(what, own.memory, own.qpn)))
        }
        wr::IBV_WR_SEND_WITH_INV => {
            payload!(|payload| flagged!(solicited SendInvalidate::new(payload, named)))
        }
        wr::IBV_WR_SEND => payload!(|payload| flagged!(solicited SendMessage::new(payload))),
        wr::IBV_WR_SEND_WITH_IMM => {
            payload!(|payload| flagged!(solicited SendImm::new(payload, imm)))
        }
        wr::IBV_WR_RDMA_WRITE => payload!(|payload| flagged!(RdmaWrite::new(payload, remote))),
        wr::IBV_WR_RDMA_WRITE_WITH_IMM => {
            payload!(|payload| flagged!(solicited RdmaWriteImm::new(payload, remote, imm)))
        }
        wr::IBV_WR_RDMA_READ => put(batch, id, flagged!(RdmaRead::new(sge, remote)).to(&to)),
        wr::IBV_WR_ATOMIC_CMP_AND_SWP => {
            put(batch, id, flagged!(CompareSwap::new(old, remote, one, other)).to(&to))
        }
        _ => put(batch, id, flagged!(FetchAdd::new(old, remote, one)).to(to)),
    }
}

struct Target {
    shared: Srq,
    completions: CqReader,
    qp: QueuePair<Dct, Rtr>,
    address: DcAddress,
}

/// A target, and the way to it by a handle of this side's own.
fn target(rig: &Rig) -> (Target, AddressHandle) {
    let cq = rig.cq(255);
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let qp = QueuePair::dc_target(&rig.pd, &cq, &srq, KEY).build().unwrap();
    let qp = qp.init(&rig.local.init()).unwrap();
    let mut way = rig.local.address(&rig.local.connection_data(&qp));
    let qp = qp.rtr(&DctRtrAttributes::new(way)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let config = ReceiveConfig::default();
    let mut shared = Srq::new(&srq, &mut completions, config).unwrap();
    shared.attach(&qp, &mut completions).unwrap();
    if let Some(route) = &mut way.global {
        // Without one, each handle has a UDP source port by chance.
        (route.flow_label, route.traffic_class) = (0xabcde, 0x68);
    }
    let handle = AddressHandle::new(&rig.pd, &way).unwrap();
    let address = DcAddress::new(&handle, qp.number(), KEY);
    (Target { shared, completions, qp, address }, AddressHandle::new(&rig.pd, &way).unwrap())
}

#[test]
fn requests_to_targets_leave_the_same_bytes_as_libmlx5() {
    let _turn = crate::turn();
    let rig = crate::open(mlx5_model::Mode::Trapped);
    let _recording = stores::record();
    let mut random = Random::new();
    let memory = grants::memory(&rig, MEMORY);
    let mut giver = Giver::new(&rig);
    let mut chooser = Chooser::default();
    let bytes = random.bytes(1024);
    let operations = with::IBV_QP_EX_WITH_SEND
        | with::IBV_QP_EX_WITH_SEND_WITH_IMM
        | with::IBV_QP_EX_WITH_SEND_WITH_INV
        | with::IBV_QP_EX_WITH_BIND_MW
        | with::IBV_QP_EX_WITH_LOCAL_INV
        | with::IBV_QP_EX_WITH_RDMA_WRITE
        | with::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM
        | with::IBV_QP_EX_WITH_RDMA_READ
        | with::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
        | with::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    let shape = Shape::new(ibv_qp_type::IBV_QPT_DRIVER, 32, operations.0.into());
    let cqs = [rig.cq(512), rig.cq(512)];
    let [theirs, ours] = cqs.each_ref().map(|cq| ExtendedQp::looped(&rig, cq, &shape));
    let (mut targets, handles): (Vec<_>, Vec<_>) = (0..TARGETS).map(|_| target(&rig)).unzip();
    let mut completions = CqReader::new(&cqs[1]).unwrap();
    // SAFETY: the QP lives to the end of the function, in RTS; no other code posts to it, and its
    // register is its own as long as it posts.
    let mut queue: SendQueue<Dci> =
        unsafe { SendQueue::from_raw(ours.qp(), &mut completions, SendConfig::default()).unwrap() };
    // SAFETY: the QPs live to the end of the function.
    let [their_rings, our_rings] = [&theirs, &ours].map(|qp| unsafe { QpMemory::new(qp.qp()) });
    assert_eq!(our_rings.dv.bf.size, their_rings.dv.bf.size);
    let [mut their_own, mut our_own] = [&theirs, &ours].map(|qp| Own {
        grants: Grants::new(&rig),
        memory: &memory,
        // SAFETY: the QP is alive.
        qpn: unsafe { qp.qp().as_ref() }.qp_num,
    });
    let (mut head, mut unsignaled, mut id) = (0u32, 0, 0);
    stores::take();
    for post in 0..POSTS {
        let count = if random.one_in(2) { 1 } else { 1 + random.below(4) };
        chooser.begin();
        let posted: Vec<Request> = (0..count)
            .map(|_| {
                (id, unsignaled) = (id + 1, unsignaled + 1);
                let signaled = unsignaled > 4 || random.one_in(3);
                if signaled {
                    unsignaled = 0;
                }
                Request::new(id, signaled, &mut random, &memory, &bytes, &mut chooser)
            })
            .collect();
        for request in posted.iter().filter(|request| request.receives()) {
            let into = memory.sge(15 * 1024, 512).unwrap();
            for _ in 0..2 {
                // SAFETY: the memory lives to the end.
                unsafe { targets[request.target].shared.post(request.id, into).unwrap() };
            }
        }
        // Of each request, and both twins.
        let keys: Vec<_> = posted
            .iter()
            .map(|request| {
                let what = request.change.as_ref()?;
                let both = [&our_own, &their_own].map(|own| {
                    giver.give(&own.grants, what, &memory);
                    own.grants.key(what)
                });
                Some(both)
            })
            .collect();
        stores::take();
        // SAFETY: memory and QPs live to the end; inline data is copied.
        unsafe { self::post(&theirs, &posted, &handles[0], &targets, &mut their_own) };
        let their_log = stores::take();
        let mut batch = queue.batch();
        for request in &posted {
            append(&mut batch, request, &targets, &our_own).unwrap();
            if let Some(what) = &request.change {
                our_own.grants.posted(what);
            }
        }
        // SAFETY: memory and QPs live to the end; inline data is copied.
        unsafe { batch.ring() };
        let our_log = stores::take();

        assert_eq!(our_rings.record()[4..], their_rings.record()[4..], "record, post {post}");
        let (mine, libs) = (our_rings.send_ring(), their_rings.send_ring());
        let mut last = 0;
        for (request, keys) in posted.iter().zip(keys) {
            let written = request.written();
            let (mut ours, mut theirs) = (wqe(&mine, head, written), wqe(&libs, head, written));
            request.settle_keys(&mut ours, keys.map(|keys| keys[0]), our_own.qpn);
            request.settle_keys(&mut theirs, keys.map(|keys| keys[1]), their_own.qpn);
            request.settle(&mut theirs);
            assert_eq!(ours, theirs, "post {post}, {request:?}");
            // Stream, target and key are where `mlx5dv.h` has them, too.
            if !stays(request.opcode) {
                ours.drain(..8);
                assert_eq!(ours[1..3], request.stream.unwrap_or(0).to_be_bytes());
                assert_eq!(ours[8..16], KEY.to_be_bytes());
            }
            last = head;
            head = head.wrapping_add(written.div_ceil(64) as u32);
        }
        let written = posted.last().unwrap().written();
        let [ours, theirs] = [(our_log, &mine), (their_log, &libs)].map(|(log, ring)| {
            let mut bytes = stored(log);
            let length = bytes.len();
            bytes.truncate(written);
            assert_eq!(bytes, wqe(ring, last, bytes.len()), "it is the last WQE, post {post}");
            length
        });
        assert_eq!(ours, theirs, "bytes stored to the register, post {post}");

        let mut ids = Vec::new();
        // SAFETY: the CQ is alive, and libmlx5's.
        while let Some(wc) = unsafe { verbs::poll(cqs[0].as_raw()) }.unwrap() {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS, "post {post}, {posted:?}");
            ids.push(wc.wr_id);
        }
        let done: Vec<_> = completions
            .poll_all(&mut queue)
            .map(|completion| match completion.unwrap() {
                Completion::Send(done) => done.id,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(done, ids, "post {post}");
        for Target { shared, completions, .. } in &mut targets {
            for completion in completions.poll_all(shared) {
                assert!(matches!(completion, Ok(Completion::Receive(_))), "{completion:?}");
            }
            assert_eq!(shared.outstanding(), 0);
        }
    }
}

#[test]
fn and_so_they_do_on_roce() {
    if let Some(text) = on_roce(&["dynamic::requests_to_targets"]) {
        assert!(text.contains("1 passed"), "{text}");
    }
}
