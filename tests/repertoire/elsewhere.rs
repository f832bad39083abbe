//! Keys of memory that is not mapped at the address in the request. Short messages, and the results
//! of READs and atomics, still go to that memory.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use mlx5::cqe::Completion;
use mlx5::devx;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{ReceiveConfig, SendConfig, Srq};
use mlx5::verbs::attr::{Capacities, CqeSize};
use mlx5::verbs::{
    DeviceMemory, DmaBufRegion, MemoryRegion, Mkey, Pages, QueuePair, SharedReceiveQueue,
};
use mlx5::wqe::{CompareSwap, FetchAdd, Inline, RdmaRead, SendMessage, Sge, Word};

use rig::made::{ALIKE, Cq, queue_pair};
use rig::{Rig, connect_made, lead_to, wait};

/// An address at which no process has memory.
const NOWHERE: u64 = 0x1000;
const LENGTH: usize = 4096;

/// Copies memory at an address to a slice.
type Peek<'a> = Box<dyn Fn(u64, &mut [u8]) + 'a>;

/// Memory behind a key, and how it is looked at without that key.
struct Elsewhere<'a> {
    name: &'static str,
    address: u64,
    lkey: u32,
    read: Peek<'a>,
}

/// The memory that must outlive the keys.
struct Memory {
    file: std::fs::File,
    dmabuf: DmaBufRegion,
    umem: devx::Umem,
    direct: devx::DevxMkey,
    card: DeviceMemory,
    device: mlx5::verbs::DeviceRegion,
    behind: MemoryRegion,
    list: devx::DevxMkey,
    equal: devx::DevxMkey,
    configured: Mkey,
}

impl Memory {
    fn new(rig: &Rig) -> Self {
        let access = Access::LOCAL_WRITE;
        // Stands in for the memory of a GPU on the model.
        // SAFETY: a new descriptor of one's own.
        let fd = unsafe {
            let fd = libc::memfd_create(c"pages".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(fd, LENGTH as i64), 0);
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: only the model maps it into this process.
        let dmabuf = unsafe { rig.pd.register_dmabuf(fd.as_fd(), 0, LENGTH, NOWHERE, access) };
        let umem = devx::Umem::new(&rig.context, Pages::new(LENGTH).unwrap()).unwrap();
        let direct = devx::DevxMkey::builder(&rig.pd).access(access).address(NOWHERE);
        let direct = direct.direct(&umem, 0, LENGTH).unwrap();
        let card = DeviceMemory::allocate(&rig.context, LENGTH, 12).unwrap();
        let device = rig.pd.register_device(&card, 0, LENGTH, access).unwrap();
        let behind = rig.pd.allocate(3 * LENGTH, access).unwrap();
        let piece = |at: usize| behind.sge(at, 4096).unwrap();
        let entry = devx::Klm { addr: piece(LENGTH).addr, lkey: behind.lkey() };
        // SAFETY: the region lives longer than the keys, and is looked at by copies alone.
        let (list, equal) = unsafe {
            let builder = || devx::DevxMkey::builder(&rig.pd).access(access);
            (builder().list(&[piece(0)]), builder().equal(4096, 4096, &[entry]))
        };
        let configured = Mkey::new(&rig.pd, 4).unwrap();
        lead_to(rig, &configured, piece(2 * LENGTH));
        Self {
            file: fd.into(),
            dmabuf: dmabuf.unwrap(),
            umem,
            direct,
            card,
            device,
            list: list.unwrap(),
            equal: equal.unwrap(),
            behind,
            configured,
        }
    }

    fn keys(&self) -> [Elsewhere<'_>; 6] {
        let region = |offset: usize| {
            let read = move |at: u64, to: &mut [u8]| self.behind.read(offset + at as usize, to);
            Box::new(read) as Box<dyn Fn(u64, &mut [u8])>
        };
        let key = |name, address, lkey, read| Elsewhere { name, address, lkey, read };
        [
            key(
                "dma-buf",
                NOWHERE,
                self.dmabuf.lkey(),
                Box::new(|at, to| self.file.read_exact_at(to, at).unwrap()),
            ),
            key(
                "direct key at another address",
                NOWHERE,
                self.direct.lkey(),
                Box::new(|at, to| {
                    let start = self.umem.start().unwrap().as_ptr();
                    for (index, byte) in to.iter_mut().enumerate() {
                        // SAFETY: within the umem, which lives, and nothing is in flight.
                        *byte = unsafe { start.add(at as usize + index).read_volatile() };
                    }
                }),
            ),
            key(
                "device memory",
                0,
                self.device.lkey(),
                Box::new(|at, to| self.card.read(at as usize, to)),
            ),
            key("KLM list", 0, self.list.lkey(), region(0)),
            key("KSM list", 0, self.equal.lkey(), region(LENGTH)),
            key("UMR list", 0, self.configured.lkey(), region(2 * LENGTH)),
        ]
    }
}

impl Elsewhere<'_> {
    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge::new(self.address + offset, length, self.lkey)
    }

    fn word(&self, offset: u64) -> Word {
        Word::new(self.address + offset, self.lkey)
    }

    fn bytes<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut bytes = [0; N];
        (self.read)(offset, &mut bytes);
        bytes
    }
}

/// Every request is signaled, and CQEs have room: where nothing else is said when a queue pair is
/// made, this is when libmlx5 has most of the data come in CQEs.
#[test]
fn queue_pairs_put_no_data_into_cqes_unless_asked() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let memory = Memory::new(&rig);
    let mut near = rig.memory(LENGTH);
    let remote = near.remote(0).unwrap();
    let shape = Capacities {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 2,
        max_inline_data: 64,
    };
    for ([by, _], size) in ALIKE.iter().flat_map(|by| [(*by, CqeSize::B64), (*by, CqeSize::B128)]) {
        let cq = Cq::new(&rig.context, by, 255, size);
        let qps = [(); 2].map(|()| {
            let qp = queue_pair::<Rc>(by, &rig.pd, &cq, shape, true);
            qp.init(&rig.local.init()).unwrap()
        });
        let mut completions = cq.completions();
        let mut receive = qps[0].receive_queue(&mut completions, ReceiveConfig::default()).unwrap();
        let [first, second] = qps;
        let (first, second) = connect_made(&rig.local, first, second);
        let mut send = first.send_queue(&mut completions, SendConfig::default()).unwrap();
        let mut peer = second.send_queue(&mut completions, SendConfig::default()).unwrap();
        for key in memory.keys() {
            let shown = format!("{} by {by:?}, CQEs of {} bytes", key.name, size.bytes());
            near.write(0, &41_u64.to_ne_bytes());
            // SAFETY: the memory lives to the end, and is looked at when nothing is in flight.
            unsafe {
                receive.post(1, [key.sge(0, 4), key.sge(8, 64)]).unwrap();
                receive.post(2, key.sge(100, 64)).unwrap();
                peer.post(3, SendMessage::new(Inline(b"in parts")).signaled()).unwrap();
                peer.post(4, SendMessage::new(Inline(b"as whole")).signaled()).unwrap();
                send.post(5, RdmaRead::new(key.sge(200, 8), remote).signaled()).unwrap();
                send.post(6, FetchAdd::new(key.word(208), remote, 1).signaled()).unwrap();
                let swap = CompareSwap::new(key.word(216), remote, 42, 7);
                send.post(7, swap.signaled()).unwrap();
            }
            let mut ids: Vec<u64> = (0..7)
                .map(|_| {
                    let queues = &mut ((&mut send, &mut peer), &mut receive);
                    match wait(&mut completions, queues) {
                        Completion::Send(done) => done.id,
                        Completion::Receive(done) => done.id,
                        other => panic!("{shown}: {other:?}"),
                    }
                })
                .collect();
            ids.sort_unstable();
            assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7], "{shown}");
            assert_eq!((&key.bytes(0), &key.bytes(8)), (b"in p", b"arts"), "{shown}");
            assert_eq!(&key.bytes(100), b"as whole", "{shown}");
            let words = [200, 208, 216].map(|at| u64::from_ne_bytes(key.bytes(at)));
            assert_eq!(words, [41, 41, 42], "{shown}");
        }
    }
}

#[test]
fn receives_of_a_shared_queue_go_to_memory_elsewhere() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let memory = Memory::new(&rig);
    let cq = rig.cq(255);
    let srq = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let mut completions = mlx5::ring::CqReader::new(&cq).unwrap();
    let mut shared = Srq::new(&srq, &mut completions, ReceiveConfig { receives: 8 }).unwrap();
    let qp = QueuePair::<Rc, _>::builder(&rig.pd, &cq).shared_receive_queue(&srq);
    let qp = rig.init(qp);
    shared.attach(&qp, &mut completions).unwrap();
    let peer = rig.init(QueuePair::<Rc, _>::builder(&rig.pd, &cq).max_inline_data(64));
    let (_qp, peer) = rig.connect(qp, peer);
    let mut send =
        mlx5::ring::SendQueue::new(&peer, &mut completions, SendConfig::default()).unwrap();
    for key in memory.keys() {
        // SAFETY: the memory lives to the end, and is looked at when nothing is in flight.
        unsafe {
            shared.post(1, key.sge(300, 64)).unwrap();
            send.post(2, SendMessage::new(Inline(b"shared 8")).signaled()).unwrap();
        }
        for _ in 0..2 {
            let done = wait(&mut completions, &mut (&mut send, &mut shared));
            assert!(matches!(done, Completion::Send(_) | Completion::Receive(_)), "{done:?}");
        }
        assert_eq!(&key.bytes(300), b"shared 8", "{}", key.name);
    }
}
