//! Errors of unreliable connections and datagrams.

use mlx5::ib::{Receives, Transport, Uc, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Connected, MemoryRegion, QueuePair, QueuePairBuilder,
    RtrAttributes, Rts, RtsAttributes, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::wqe::{Inline, RawWqe, Remote, SendMessage, Sge, UdAddress};
use mlx5_sys::verbs::ibv_wc_status::*;

use ::rig::Rig;
use crate::errors::{Polled, Seen, failures, receive, send};

/// The Q_Key of the datagram queue pairs here.
const QKEY: u32 = 0x1ee7_5eed;

/// One side: a queue pair with its queues and memory.
pub struct Side<T: Transport> {
    pub memory: MemoryRegion,
    pub send: SendQueue<T>,
    pub receive: ReceiveQueue,
    pub completions: CqReader,
    pub qp: QueuePair<T, Rts>,
    pub cq: CompletionQueue,
}

impl<T: Transport> Side<T> {
    pub fn sge(&self, length: usize) -> Sge {
        self.memory.sge(0, length).unwrap()
    }

    /// Memory by a key that there is not.
    pub fn wrong(&self, length: usize) -> Sge {
        Sge { lkey: self.memory.lkey() ^ 0x5500, ..self.sge(length) }
    }

    pub fn remote(&self) -> Remote {
        self.memory.remote(0).unwrap()
    }

    pub fn fails(&mut self, count: usize) -> Polled {
        let queues = &mut (&mut self.send, &mut self.receive);
        failures(self.cq.as_raw(), &mut self.completions, queues, count)
    }
}

fn shape<T: Receives>(rig: &Rig, cq: &CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(&rig.pd, cq).max_send_sge(4).max_inline_data(200)
}

/// Two connections to each other.
pub fn connected<T>(rig: &Rig) -> [Side<T>; 2]
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    let cqs = [(); 2].map(|()| rig.cq(255));
    let [first, second] = cqs.each_ref().map(|cq| rig.init(shape::<T>(rig, cq)));
    let mut ends = Vec::new();
    for (qp, cq) in [&first, &second].into_iter().zip(cqs) {
        let mut completions = CqReader::new(&cq).unwrap();
        let receive = ReceiveQueue::new(qp, &mut completions, ReceiveConfig::default()).unwrap();
        ends.push((completions, receive, cq));
    }
    let (first, second) = rig.connect(first, second);
    let mut ends = ends.into_iter();
    [first, second].map(|qp| {
        let (mut completions, receive, cq) = ends.next().unwrap();
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Side { memory: rig.memory(1 << 16), send, receive, completions, qp, cq }
    })
}

/// A datagram queue pair.
fn datagrams(rig: &Rig) -> Side<Ud> {
    let cq = rig.cq(255);
    let qp = shape::<Ud>(rig, &cq).build().unwrap();
    let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr().unwrap().rts(&UnreliableRtsAttributes::default()).unwrap();
    let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    Side { memory: rig.memory(1 << 16), send, receive, completions, qp, cq }
}

/// A WQE of that opcode and these segments, without index and queue pair number.
pub fn bytes(opcode: u8, segments: &[[u8; 16]]) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, opcode, 0, 0, 0, 1 + segments.len() as u8];
    bytes.extend([0; 8]);
    bytes.extend(segments.concat());
    bytes
}

pub fn unreliable(seen: &mut Seen) {
    let rig = Rig::new(mlx5_model::Mode::Trapped);

    // A send queue that stops alone: SQE.
    let [mut a, _b] = connected::<Uc>(&rig);
    let (wrong, right) = (a.wrong(64), a.sge(64));
    let mut batch = a.send.batch();
    batch.append(1, SendMessage::new(wrong)).unwrap();
    batch.append(2, SendMessage::new(right)).unwrap();
    // SAFETY: of every post here: the memory lives to the end, or does not exist, which the HCA has
    // to detect.
    unsafe { batch.ring() };
    let expected = [send(IBV_WC_LOC_PROT_ERR, "SEND"), send(IBV_WC_WR_FLUSH_ERR, "SEND")];
    let ends = [a.fails(2)];
    seen.hold("UC: wrong lkey stops the send queue", "uc", &ends, &[a.qp.as_raw()], &expected);

    let [mut a, mut b] = connected::<Uc>(&rig);
    // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
    unsafe {
        b.receive.post(1, b.sge(10)).unwrap();
        b.receive.post(2, b.sge(10)).unwrap();
        a.send.post(3, SendMessage::new(a.sge(11))).unwrap();
    }
    let expected = [receive(IBV_WC_LOC_LEN_ERR), receive(IBV_WC_WR_FLUSH_ERR)];
    seen.hold("UC: receive too short", "uc", &[b.fails(2)], &[], &expected);

    let longest = rig.local.attributes().active_mtu.bytes() as u32;
    let to = |b: &Side<Ud>| {
        let way = rig.local.address(&rig.local.connection_data(&b.qp));
        UdAddress::new(&AddressHandle::new(&rig.pd, &way).unwrap(), b.qp.number(), QKEY)
    };
    let mut b = datagrams(&rig);
    for (name, long, status) in [
        ("UD: wrong lkey", false, IBV_WC_LOC_PROT_ERR),
        ("UD: longer than a packet", true, IBV_WC_LOC_LEN_ERR),
    ] {
        let mut a = datagrams(&rig);
        let sge = if long { a.sge((longest + 1) as usize) } else { a.wrong(8) };
        // SAFETY: the memory lives to the end, or does not exist, which the HCA has to detect.
        unsafe { a.send.post(1, SendMessage::new(sge).to(to(&b))) }.unwrap();
        let ends = [a.fails(1)];
        seen.hold(name, "ud", &ends, &[a.qp.as_raw()], &[send(status, "SEND")]);
    }
    let mut a = datagrams(&rig);
    let read = bytes(0x10, &[[0; 16], [0; 16]]);
    // SAFETY: the request names no memory.
    unsafe { a.send.post(1, RawWqe::new(&read).unwrap()) }.unwrap();
    let ends = [a.fails(1)];
    let expected = [send(IBV_WC_LOC_QP_OP_ERR, "RDMA_READ")];
    seen.hold("UD: a READ", "ud", &ends, &[a.qp.as_raw()], &expected);

    let mut a = datagrams(&rig);
    // SAFETY: the memory lives to the end, and the inline payload is copied.
    unsafe {
        b.receive.post(1, b.sge(42)).unwrap();
        b.receive.post(2, b.sge(100)).unwrap();
        a.send.post(3, SendMessage::new(Inline(b"abc")).to(to(&b))).unwrap();
    }
    let expected = [receive(IBV_WC_LOC_LEN_ERR), receive(IBV_WC_WR_FLUSH_ERR)];
    seen.hold("UD: no room for the header", "ud", &[b.fails(2)], &[], &expected);
}
