//! Unreliable connections and datagrams: what arrives where, and what does not.

use mlx5::cqe::{Completion, ReceiveDone, ReceiveKind, SendOperation};
use mlx5::ring::{Completions, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Connected, MemoryRegion, QueuePair, QueuePairBuilder, Receives,
    RtrAttributes, Rts, RtsAttributes, Transport, Uc, Ud, UdInitAttributes, UdRtsAttributes,
};
use mlx5::wqe::{Inline, Nop, Remote, Send, SendImm, Sge, UdAddress, Write, WriteImm};

use crate::rig::{Rig, wait};

/// One side: a queue pair with its queues and memory.
pub struct Side<T: Transport> {
    pub memory: MemoryRegion,
    pub send: SendQueue<T>,
    pub receive: ReceiveQueue,
    pub completions: Completions,
    pub qp: QueuePair<T, Rts>,
}

/// Bytes of each side's memory.
const MEMORY: usize = 1 << 16;
/// The Q_Key of the datagram queue pairs here.
pub const QKEY: u32 = 0x1ee7_5eed;

impl<T: Transport> Side<T> {
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        assert!(offset + length <= MEMORY);
        Sge::new(self.memory.address() + offset as u64, length as u32, self.memory.lkey())
    }

    pub fn remote(&self, offset: usize) -> Remote {
        Remote::new(self.memory.remote_address() + offset as u64, self.memory.rkey())
    }

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut (&mut self.send, &mut self.receive))
    }

    pub fn received(&mut self) -> ReceiveDone {
        match self.wait() {
            Completion::Receive(done) => done,
            other => panic!("{other:?}"),
        }
    }

    pub fn sent(&mut self) -> (u64, SendOperation) {
        match self.wait() {
            Completion::Send(done) => (done.id, done.operation),
            other => panic!("{other:?}"),
        }
    }

    pub fn is_quiet(&mut self) {
        let queues = &mut (&mut self.send, &mut self.receive);
        assert_eq!(self.completions.poll(queues), Ok(None));
    }
}

fn shape<T: Receives>(rig: &Rig, cq: &CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(&rig.pd, cq).max_send_sge(4).max_recv_sge(4).max_inline_data(200)
}

/// Two unreliable connections to each other.
fn connections(rig: &Rig) -> [Side<Uc>; 2] {
    connected(rig)
}

/// Two connections to each other.
pub fn connected<T>(rig: &Rig) -> [Side<T>; 2]
where
    T: Receives + Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
{
    let cqs = [(); 2].map(|()| rig.cq(256));
    let qps = cqs.each_ref().map(|cq| rig.init(shape::<T>(rig, cq)));
    let mut readers = cqs.map(|cq| Completions::new(&cq).unwrap());
    let mut receives = Vec::new();
    for (qp, reader) in qps.iter().zip(&mut readers) {
        receives.push(ReceiveQueue::new(qp, reader, ReceiveConfig::default()).unwrap());
    }
    let [first, second] = qps;
    let (first, second) = rig.connect(first, second);
    let mut receives = receives.into_iter();
    let mut readers = readers.into_iter();
    [first, second].map(|qp| {
        let (mut completions, receive) = (readers.next().unwrap(), receives.next().unwrap());
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        Side { memory: rig.memory(MEMORY), send, receive, completions, qp }
    })
}

/// A datagram queue pair.
pub fn datagrams(rig: &Rig) -> Side<Ud> {
    let cq = rig.cq(256);
    let qp = shape::<Ud>(rig, &cq).build().unwrap();
    let qp = qp.init(&UdInitAttributes::new(1, QKEY)).unwrap();
    let mut completions = Completions::new(&cq).unwrap();
    let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
    let qp = qp.rtr().unwrap().rts(&UdRtsAttributes::default()).unwrap();
    let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    Side { memory: rig.memory(MEMORY), send, receive, completions, qp }
}

/// The address of that side, as others send to it.
pub fn address(rig: &Rig, to: &Side<Ud>, qkey: u32) -> UdAddress {
    let way = rig.local.address(&rig.local.endpoint(&to.qp));
    UdAddress::new(&AddressHandle::new(&rig.pd, &way).unwrap(), to.qp.number(), qkey)
}

#[test]
fn a_connection_sends_and_writes() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let [mut a, mut b] = connections(&rig);
    // SAFETY: memory lives to the end, and is only touched when what was posted on it is complete.
    unsafe {
        a.memory.write(0, b"sent by entries");
        b.receive.post(1, [b.sge(100, 4), b.sge(200, 60)]).unwrap();
        a.send.post(2, Send::new([a.sge(0, 5), a.sge(5, 10)]).signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (1, ReceiveKind::Send, 15));
        assert_eq!(a.sent(), (2, SendOperation::Send));
        assert_eq!((b.bytes(100, 4), b.bytes(200, 11)), (b"sent".into(), b" by entries".into()));

        b.receive.post(3, b.sge(300, 100)).unwrap();
        a.send.post(4, SendImm::new(Inline(b"inline"), 0x1234_5678).signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind), (3, ReceiveKind::SendImm(0x1234_5678)));
        assert_eq!((a.sent(), b.bytes(300, 6)), ((4, SendOperation::SendImm), b"inline".into()));

        // Several packets, and the receive that follows: the connection keeps the order.
        a.memory.write(1000, &[0x5a; 5000]);
        b.receive.post(5, b.sge(0, 0)).unwrap();
        a.send.post(6, Write::new(a.sge(1000, 5000), b.remote(2000)).signaled()).unwrap();
        a.send.post(7, WriteImm::new(Inline(&[7; 150]), b.remote(9000), 99).signaled()).unwrap();
        a.send.post(8, Nop::new().signaled()).unwrap();
        let done = b.received();
        assert_eq!((done.id, done.kind, done.byte_len), (5, ReceiveKind::WriteImm(99), 150));
        assert_eq!(b.bytes(1999, 5002), [&[0][..], &[0x5a; 5000], &[0]].concat());
        assert_eq!(b.bytes(9000, 150), [7; 150]);
        assert_eq!(a.sent(), (6, SendOperation::Write));
        assert_eq!(a.sent(), (7, SendOperation::WriteImm));
        assert_eq!(a.sent(), (8, SendOperation::Nop));
    }
    a.is_quiet();
    b.is_quiet();
}

#[test]
fn datagrams_reach_whom_each_is_addressed_to() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let mut a = datagrams(&rig);
    let mut others = [datagrams(&rig), datagrams(&rig)];
    let addresses = others.each_ref().map(|other| address(&rig, other, QKEY));
    // SAFETY: as above.
    unsafe {
        for other in &mut others {
            for id in 1..3 {
                other.receive.post(id, other.sge(id as usize * 1000, 500)).unwrap();
            }
        }
        a.memory.write(0, b"hello 0hello 1");
        let mut batch = a.send.batch();
        let at = Sge::new(a.memory.address(), 7, a.memory.lkey());
        for (id, to) in (0..).zip(&addresses) {
            let part = Sge { addr: at.addr + 7 * id, ..at };
            batch.append(id, Send::new(part).signaled().to(to)).unwrap();
        }
        batch.append(2, Nop::new().signaled()).unwrap();
        batch.ring();
        for (id, other) in others.iter_mut().enumerate() {
            let done = other.received();
            // The first 40 bytes are kept for a global route header.
            assert_eq!((done.id, done.kind, done.byte_len), (1, ReceiveKind::Send, 47));
            assert_eq!(done.src_qp, a.qp.number());
            assert_eq!(other.bytes(1040, 7), format!("hello {id}").into_bytes());
        }
        for id in 0..2 {
            assert_eq!(a.sent(), (id, SendOperation::Send));
        }
        assert_eq!(a.sent(), (2, SendOperation::Nop));

        let request = SendImm::new(Inline(b"inline"), 77).signaled().to(addresses[1]);
        a.send.post(3, request).unwrap();
        let done = others[1].received();
        assert_eq!((done.id, done.kind, done.byte_len), (2, ReceiveKind::SendImm(77), 46));
        assert_eq!(others[1].bytes(2040, 6), b"inline");
        assert_eq!(a.sent(), (3, SendOperation::SendImm));
    }
    a.is_quiet();
    others.iter_mut().for_each(Side::is_quiet);
}

/// This file's tests, and those of multicast, on RoCE: in a process of their own, since the model has
/// one link for all cards that are opened by name.
#[test]
fn all_this_is_so_on_roce() {
    if std::env::var_os("MLX5_MODEL_LINK").is_some() {
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["unreliable::", "multicast::"])
        .envs([("MLX5_MODEL", "always"), ("MLX5_MODEL_LINK", "roce")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("datagrams_reach_whom_each_is_addressed_to ... ok"), "{text}");
    assert!(text.contains("every_member_gets_its_copy_and_nobody_else ... ok"), "{text}");
}
