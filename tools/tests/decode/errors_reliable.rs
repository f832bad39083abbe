//! Errors of reliable connections: plain, extended and dynamic ones.

use mlx5::expert::RawWqe;
use mlx5::ib::{Access, Dci, Rc, XrcSend};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{DctRtrAttributes, InitAttributes, Mtu, RtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, MemoryRegion, MemoryWindow, Mkey, QueuePair, QueuePairBuilder,
    Rts, SharedReceiveQueue, Type2, XrcDomain,
};
use mlx5::wqe::{
    Bits, CompareSwap, DcAddress, FetchAdd, Inline, ListAt, MaskedCompareSwap, MaskedFetchAdd,
    RdmaRead, RdmaWrite, RdmaWriteImm, Remote, SendImm, SendInvalidate, SendMessage, Sge, Word,
    XrcAddress,
};
use mlx5_sys::verbs::ibv_wc_status::{self, *};

use crate::errors::{Expected, Seen, failures, receive, send};
use crate::errors_unreliable::{bytes, fails, wrong};
use ::rig::{Rig, Side};

type Post = fn(&Rig, &mut Side<Rc>, &mut Side<Rc>);

/// The requests that `a` posts to `b`, the error at `a`, and the error at `b`.
type Row = (&'static str, Post, Expected, Option<Expected>);

const ACCESS: ibv_wc_status::Type = IBV_WC_REM_ACCESS_ERR;

/// The peer's memory by a key that there is not.
fn astray(b: &Side<Rc>) -> Remote {
    Remote { rkey: b.memory.rkey() ^ 0x5500, ..b.remote(0) }
}

fn word(a: &Side<Rc>) -> Word {
    a.memory.word(0).unwrap()
}

/// Posts by `a`.
macro_rules! post {
    ($end:expr, $request:expr) => {{
        let request = $request;
        // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
        unsafe { $end.post(1, request) }.unwrap()
    }};
}

const ROWS: &[Row] = &[
    (
        "SEND with immediate of a wrong lkey",
        |_, a, _| post!(a.send, SendImm::new(wrong(a, 8), 5)),
        send(IBV_WC_LOC_PROT_ERR, "SEND_IMM"),
        None,
    ),
    (
        "READ into a wrong lkey",
        |_, a, b| post!(a.send, RdmaRead::new(wrong(a, 8), b.remote(0))),
        send(IBV_WC_LOC_PROT_ERR, "RDMA_READ"),
        None,
    ),
    (
        "WRITE by a wrong rkey",
        |_, a, b| post!(a.send, RdmaWrite::new(a.sge(0, 8), astray(b))),
        send(ACCESS, "RDMA_WRITE"),
        None,
    ),
    (
        "WRITE with immediate by a wrong rkey",
        |_, a, b| {
            post!(b.receive, b.sge(0, 8));
            post!(a.send, RdmaWriteImm::new(a.sge(0, 8), astray(b), 5));
        },
        send(ACCESS, "RDMA_WRITE_IMM"),
        Some(receive(IBV_WC_WR_FLUSH_ERR)),
    ),
    (
        "READ by a wrong rkey",
        |_, a, b| post!(a.send, RdmaRead::new(a.sge(0, 8), astray(b))),
        send(ACCESS, "RDMA_READ"),
        None,
    ),
    (
        "compare and swap by a wrong rkey",
        |_, a, b| post!(a.send, CompareSwap::new(word(a), astray(b), 0, 1)),
        send(ACCESS, "ATOMIC_CS"),
        None,
    ),
    (
        "fetch and add by a wrong rkey",
        |_, a, b| post!(a.send, FetchAdd::new(word(a), astray(b), 1)),
        send(ACCESS, "ATOMIC_FA"),
        None,
    ),
    (
        "atomic at an odd address",
        |_, a, b| post!(a.send, FetchAdd::new(word(a), b.remote(0).offset(4), 1)),
        send(IBV_WC_REM_INV_REQ_ERR, "ATOMIC_FA"),
        None,
    ),
    (
        "receive too short",
        |_, a, b| {
            post!(b.receive, b.sge(0, 63));
            post!(a.send, SendMessage::new(a.sge(0, 64)));
        },
        send(IBV_WC_REM_INV_REQ_ERR, "SEND"),
        Some(receive(IBV_WC_LOC_LEN_ERR)),
    ),
    (
        "receive of a wrong lkey",
        |_, a, b| {
            post!(b.receive, wrong(b, 64));
            post!(a.send, SendImm::new(a.sge(0, 64), 5));
        },
        send(IBV_WC_REM_OP_ERR, "SEND_IMM"),
        Some(receive(IBV_WC_LOC_PROT_ERR)),
    ),
    (
        "SEND that invalidates what it may not",
        |_, a, b| {
            post!(b.receive, b.sge(0, 64));
            post!(a.send, SendInvalidate::new(Inline(b"?"), b.memory.rkey()));
        },
        send(ACCESS, "SEND_INVAL"),
        Some(receive(IBV_WC_LOC_ACCESS_ERR)),
    ),
    (
        "message longer than the transport carries",
        |_, a, _| post!(a.send, SendMessage::new([Sge { length: 1 << 30, ..a.sge(0, 0) }; 3])),
        send(IBV_WC_LOC_LEN_ERR, "SEND"),
        None,
    ),
    (
        "window that is not bound, invalidated",
        |rig, a, _| {
            let window = MemoryWindow::<Type2>::new(&rig.pd).unwrap();
            post!(a.send, window.invalidate());
            // It has to be there until the card has refused.
            std::mem::forget(window);
        },
        send(IBV_WC_MW_BIND_ERR, "UMR"),
        None,
    ),
    (
        "memory key from a list that cannot be read",
        |rig, a, _| {
            let key = Mkey::new(&rig.pd, 4).unwrap();
            let layout = ListAt { entries: wrong(a, 4096), length: 64 };
            post!(a.send, key.configure().access(Access::LOCAL_WRITE).layout(layout));
            // The key has to be there until the card has refused.
            std::mem::forget(key);
        },
        send(IBV_WC_LOC_PROT_ERR, "UMR"),
        None,
    ),
    (
        "WAIT of a queue pair that may not",
        |_, a, _| {
            let wait = bytes(0x0f, &[[0; 16]]);
            // SAFETY: the request names no memory.
            let wait = unsafe { RawWqe::new(&wait) };
            post!(a.send, wait.unwrap());
        },
        send(IBV_WC_LOC_QP_OP_ERR, "WAIT"),
        None,
    ),
    (
        "opcode that no HCA knows",
        |_, a, _| {
            let unknown = bytes(0x3e, &[]);
            // SAFETY: the request names no memory.
            let unknown = unsafe { RawWqe::new(&unknown) };
            post!(a.send, unknown.unwrap());
        },
        send(IBV_WC_LOC_QP_OP_ERR, "opcode 0x3e"),
        None,
    ),
    (
        "masked compare and swap by a wrong rkey",
        |_, a, b| {
            post!(
                a.send,
                MaskedCompareSwap::new(word(a), astray(b), Bits::all(0_u64), Bits::all(1_u64))
            );
        },
        send(ACCESS, "ATOMIC_MASKED_CS"),
        None,
    ),
    (
        "masked fetch and add by a wrong rkey",
        |_, a, b| post!(a.send, MaskedFetchAdd::new(word(a), astray(b), 1_u64)),
        send(ACCESS, "ATOMIC_MASKED_FA"),
        None,
    ),
];

pub fn reliable(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    for (name, post, own, peer) in ROWS {
        let [mut a, mut b] = rig.pair::<Rc>().entries(255).sides();
        post(&rig, &mut a, &mut b);
        let mut ends = vec![fails(&mut a, 1)];
        let mut expected = vec![*own];
        if let Some(peer) = peer {
            ends.push(fails(&mut b, 1));
            expected.push(*peer);
        }
        seen.hold(&format!("RC: {name}"), "rc", &ends, &[a.qp.as_raw()], &expected);
    }

    // What follows a request that failed.
    let [mut a, b] = rig.pair::<Rc>().entries(255).sides();
    post!(a.receive, a.sge(0, 64));
    let (sge, right, wrong) = (a.sge(0, 64), b.remote(0), astray(&b));
    let mut batch = a.send.batch();
    for remote in [right, wrong, right] {
        batch.append(1, RdmaWrite::new(sge, remote)).unwrap();
    }
    // SAFETY: the memory lives to the end.
    unsafe { batch.ring() };
    let ends = [fails(&mut a, 3)];
    let expected = [
        send(ACCESS, "RDMA_WRITE"),
        send(IBV_WC_WR_FLUSH_ERR, "RDMA_WRITE"),
        receive(IBV_WC_WR_FLUSH_ERR),
    ];
    seen.hold("RC: flushed", "rc", &ends, &[a.qp.as_raw()], &expected);

    // No receive posted, and no such queue pair.
    for (name, there, status) in [
        ("RC: no receive", true, IBV_WC_RNR_RETRY_EXC_ERR),
        ("RC: nobody there", false, IBV_WC_RETRY_EXC_ERR),
    ] {
        let cqs = [rig.cq(255), rig.cq(255)];
        let [one, other] =
            cqs.each_ref().map(|cq| rig.init(QueuePair::<Rc, _>::builder(&rig.pd, cq)));
        let (one, other) = rig.connect_with(one, other, impatient());
        let other = there.then_some(other);
        let mut completions = CqReader::new(&cqs[0]).unwrap();
        let mut queue = SendQueue::new(&one, &mut completions, SendConfig::default()).unwrap();
        let memory = rig.memory(4096);
        post!(queue, SendMessage::new(memory.sge(0, 64).unwrap()));
        let ends = [failures(cqs[0].as_raw(), &mut completions, &mut queue, 1)];
        seen.hold(name, "rc", &ends, &[one.as_raw()], &[send(status, "SEND")]);
        drop(other);
    }
}

/// Gives up after one more try.
fn impatient() -> RtsAttributes {
    RtsAttributes { retry_cnt: 1, rnr_retry: 1, ..RtsAttributes::default() }
}

/// A shared receive queue with a CQ.
struct Shared {
    receives: Srq,
    completions: CqReader,
    number: u32,
    cq: CompletionQueue,
    _srq: SharedReceiveQueue,
}

impl Shared {
    fn of_domain(rig: &Rig, domain: &XrcDomain) -> Self {
        let cq = rig.cq(255);
        let srq = SharedReceiveQueue::builder(&rig.pd).xrc(domain, &cq).build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let receives = Srq::new(&srq, &mut completions, ReceiveConfig::default());
        let number = srq.number().unwrap();
        Self { receives: receives.unwrap(), completions, number, cq, _srq: srq }
    }
}

pub fn extended(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let domain = XrcDomain::new(&rig.context).unwrap();
    let memory = rig.memory(4096);
    let sge = |length| memory.sge(0, length).unwrap();
    let astray = Remote::new(memory.remote_address(), memory.rkey() ^ 0x5500);
    let wrong = Sge { lkey: memory.lkey() ^ 0x5500, ..sge(8) };
    for (name, own, peer) in [
        ("queue that there is not", send(IBV_WC_REM_INV_REQ_ERR, "SEND"), None),
        (
            "receive too short",
            send(IBV_WC_REM_INV_REQ_ERR, "SEND"),
            Some(receive(IBV_WC_LOC_LEN_ERR)),
        ),
        (
            "receive of a wrong lkey",
            send(IBV_WC_REM_OP_ERR, "SEND"),
            Some(receive(IBV_WC_LOC_PROT_ERR)),
        ),
        ("wrong rkey", send(ACCESS, "RDMA_WRITE"), None),
        ("wrong lkey", send(IBV_WC_LOC_PROT_ERR, "SEND"), None),
    ] {
        let mut shared = Shared::of_domain(&rig, &domain);
        let cq = rig.cq(255);
        let qp = rig.init(QueuePairBuilder::<XrcSend>::new(&rig.pd, &cq));
        let target = rig.to_init(QueuePair::target(&domain).unwrap());
        let ends = (rig.local.connection_data(&qp), rig.local.connection_data(&target));
        let target = target.rtr(&rig.local.rtr(&ends.1, &ends.0)).unwrap();
        let target = target.rts(&rig.local.rts(&ends.1, &ends.0).into()).unwrap();
        let qp = qp.rtr(&rig.local.rtr(&ends.0, &ends.1).into()).unwrap();
        let qp: QueuePair<XrcSend, Rts> = qp.rts(&rig.local.rts(&ends.0, &ends.1)).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let mut queue = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        let to = XrcAddress::new(shared.number);
        match name {
            "queue that there is not" => {
                post!(queue, SendMessage::new(sge(8)).to(XrcAddress::new(0xab_cdef)));
            }
            "receive too short" => {
                post!(shared.receives, sge(7));
                post!(queue, SendMessage::new(sge(8)).to(to));
            }
            "receive of a wrong lkey" => {
                post!(shared.receives, wrong);
                post!(queue, SendMessage::new(sge(8)).to(to));
            }
            "wrong rkey" => post!(queue, RdmaWrite::new(sge(8), astray).to(to)),
            _ => post!(queue, SendMessage::new(wrong).to(to)),
        }
        let mut ends = vec![failures(cq.as_raw(), &mut completions, &mut queue, 1)];
        let mut expected = vec![own];
        if let Some(peer) = peer {
            let Shared { receives, completions, cq, .. } = &mut shared;
            ends.push(failures(cq.as_raw(), completions, receives, 1));
            expected.push(peer);
        }
        seen.hold(&format!("XRC: {name}"), "xrc", &ends, &[qp.as_raw()], &expected);
        drop(target);
    }
}

/// The access key of the target.
const KEY: u64 = 0x0dc0_ffee_1234_5678;

/// An initiator.
struct Initiator {
    send: SendQueue<Dci>,
    completions: CqReader,
    qp: QueuePair<Dci, Rts>,
    cq: CompletionQueue,
}

impl Initiator {
    fn new(rig: &Rig) -> Self {
        let cq = rig.cq(255);
        let qp = QueuePairBuilder::<Dci>::new(&rig.pd, &cq).max_send_sge(4).build().unwrap();
        let qp = qp.init(&InitAttributes::new(rig.local.attributes().port)).unwrap();
        let qp = qp.rtr(Mtu::Mtu1024).unwrap().rts(&impatient()).unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Self { send, completions, qp, cq }
    }
}

pub fn dynamic(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let memory: MemoryRegion = rig.memory(1 << 16);
    let sge = |length| memory.sge(0, length).unwrap();
    let wrong = Sge { lkey: memory.lkey() ^ 0x5500, ..sge(8) };
    let right = memory.remote(0).unwrap();
    let astray = Remote { rkey: memory.rkey() ^ 0x5500, ..right };
    let invalid = IBV_WC_REM_INV_REQ_ERR;
    for (name, own, peer) in [
        ("wrong access key", send(invalid, "RDMA_WRITE"), None),
        ("wrong rkey", send(ACCESS, "RDMA_WRITE"), None),
        ("wrong rkey of a READ", send(ACCESS, "RDMA_READ"), None),
        ("wrong lkey", send(IBV_WC_LOC_PROT_ERR, "SEND"), None),
        ("receive too short", send(invalid, "SEND"), Some(receive(IBV_WC_LOC_LEN_ERR))),
        (
            "invalidates what it may not",
            send(ACCESS, "SEND_INVAL"),
            Some(receive(IBV_WC_LOC_ACCESS_ERR)),
        ),
        (
            "message that does not come to its end",
            send(IBV_WC_LOC_PROT_ERR, "SEND"),
            Some(receive(IBV_WC_REM_ABORT_ERR)),
        ),
        ("no receive", send(IBV_WC_RNR_RETRY_EXC_ERR, "SEND"), None),
        ("nobody there", send(IBV_WC_RETRY_EXC_ERR, "SEND"), None),
    ] {
        let cq = rig.cq(255);
        let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
        let target = QueuePair::dc_target(&rig.pd, &cq, &srq, KEY).build().unwrap();
        let target = target.init(&rig.local.init()).unwrap();
        let way = |number| rig.local.address(&rig.local.connection_data_of(number));
        let target = target.rtr(&DctRtrAttributes::new(way(0))).unwrap();
        let mut received = CqReader::new(&cq).unwrap();
        let config = ReceiveConfig::default();
        let mut shared = Srq::new(&srq, &mut received, config).unwrap();
        shared.attach(&target, &mut received).unwrap();
        let to = |number, key| {
            let handle = AddressHandle::new(&rig.pd, &way(number)).unwrap();
            DcAddress::new(&handle, number, key)
        };
        let there = to(target.number(), KEY);
        let mut a = Initiator::new(&rig);
        match name {
            "wrong access key" => {
                post!(a.send, RdmaWrite::new(sge(8), right).to(to(target.number(), !KEY)))
            }
            "wrong rkey" => post!(a.send, RdmaWrite::new(sge(8), astray).to(there)),
            "wrong rkey of a READ" => post!(a.send, RdmaRead::new(sge(8), astray).to(there)),
            "wrong lkey" => post!(a.send, SendMessage::new(wrong).to(there)),
            "receive too short" => {
                post!(shared, sge(7));
                post!(a.send, SendMessage::new(sge(8)).to(there));
            }
            "invalidates what it may not" => {
                post!(shared, sge(8));
                post!(a.send, SendInvalidate::new(sge(8), memory.rkey()).to(there));
            }
            "message that does not come to its end" => {
                post!(shared, sge(8192));
                post!(a.send, SendMessage::new([sge(4096), wrong]).to(there));
            }
            "no receive" => post!(a.send, SendMessage::new(sge(8)).to(there)),
            _ => post!(a.send, SendMessage::new(sge(8)).to(to(0xab_cdef, KEY))),
        }
        let mut ends = vec![failures(a.cq.as_raw(), &mut a.completions, &mut a.send, 1)];
        let mut expected = vec![own];
        if let Some(peer) = peer {
            ends.push(failures(cq.as_raw(), &mut received, &mut shared, 1));
            expected.push(peer);
        }
        seen.hold(&format!("DC: {name}"), "dc", &ends, &[a.qp.as_raw()], &expected);
    }
}
