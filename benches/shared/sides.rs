//! This crate's queues: shared, exclusive in a mutex, and exclusive.

use std::hint::black_box;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, Producer, Queues, Retirer, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote, Sge};

use crate::{Kind, Side, now};
use rig::Rig;

/// Room for every burst.
pub const REQUESTS: u32 = 512;

/// A connected queue pair, of a device of its own: so its register is not shared with another side.
pub struct Line {
    pub qp: QueuePair<Rc, Rts>,
    pub cq: CompletionQueue,
    pub memory: MemoryRegion,
    _peer: QueuePair<Rc, Rts>,
    pub rig: Rig,
}

impl Line {
    pub fn new(rig: Rig) -> Self {
        let (cq, peer_cq) = (rig.cq(REQUESTS), rig.cq(REQUESTS));
        let shape = |cq| {
            let builder = QueuePair::builder(&rig.pd, cq).max_send_wr(REQUESTS).max_send_sge(1);
            rig.init(builder.max_inline_data(64))
        };
        let (qp, peer) = rig.connect(shape(&cq), shape(&peer_cq));
        let memory = rig.memory(4096);
        Self { qp, cq, memory, _peer: peer, rig }
    }

    pub fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), 64, self.memory.lkey())
    }

    pub fn remote(&self) -> Remote {
        Remote::new(self.memory.remote_address() + 1024, self.memory.rkey())
    }
}

/// Calls a way to post for each id.
macro_rules! burst {
    ($line:expr, $kind:expr, $ids:expr, $go:expr, |$id:ident, $operation:ident| $post:expr) => {{
        let (sge, remote) = ($line.sge(), $line.remote());
        $go();
        let start = now();
        match $kind {
            Kind::Inline => {
                for $id in $ids {
                    let payload = InlineBytes(black_box($id).to_ne_bytes());
                    let $operation = RdmaWrite::new(payload, remote).signaled();
                    $post
                }
            }
            Kind::Pointer => {
                for $id in $ids {
                    let $operation = RdmaWrite::new(black_box(sge), remote).signaled();
                    $post
                }
            }
        }
        (start, now())
    }};
}

fn take(completions: &mut CqReader, queues: &mut impl Queues, ids: &mut Vec<u64>) {
    for completion in completions.poll_all(queues) {
        match completion {
            Ok(Completion::Send(done)) => ids.push(done.id),
            other => panic!("{other:?}"),
        }
    }
}

/// The shared queue.
pub struct Shared {
    producer: Producer,
    retirer: Mutex<(CqReader, Retirer)>,
    line: Line,
}

impl Shared {
    pub const NAME: &str = "mlx5, shared queue";

    pub fn new(rig: Rig) -> Self {
        let line = Line::new(rig);
        let mut completions = CqReader::new(&line.cq).unwrap();
        let queue = SendQueue::new(&line.qp, &mut completions, SendConfig::default()).unwrap();
        let (producer, retirer) = queue.share();
        Self { producer, retirer: Mutex::new((completions, retirer)), line }
    }
}

impl Side for Shared {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        let producer = self.producer.clone();
        burst!(self.line, kind, ids, go, |id, operation| {
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { producer.post(id, operation) }.unwrap();
        })
    }

    fn completed(&self, ids: &mut Vec<u64>) {
        let (completions, retirer) = &mut *self.retirer.lock().unwrap();
        take(completions, retirer, ids);
    }
}

/// The exclusive queue in a mutex.
pub struct Locked {
    queue: Mutex<SendQueue>,
    completions: Mutex<CqReader>,
    line: Line,
}

impl Locked {
    pub fn new(rig: Rig) -> Self {
        let line = Line::new(rig);
        let mut completions = CqReader::new(&line.cq).unwrap();
        let queue = SendQueue::new(&line.qp, &mut completions, SendConfig::default()).unwrap();
        Self { queue: Mutex::new(queue), completions: Mutex::new(completions), line }
    }

    fn queue(&self) -> MutexGuard<'_, SendQueue> {
        self.queue.lock().unwrap()
    }
}

impl Side for Locked {
    fn name(&self) -> &'static str {
        "mlx5, exclusive queue in a std Mutex"
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        burst!(self.line, kind, ids, go, |id, operation| {
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { self.queue().post(id, operation) }.unwrap();
        })
    }

    fn completed(&self, ids: &mut Vec<u64>) {
        take(&mut self.completions.lock().unwrap(), &mut *self.queue(), ids);
    }
}

/// The exclusive queue, of one thread.
pub struct Exclusive(Locked);

impl Exclusive {
    pub fn new(rig: Rig) -> Self {
        Self(Locked::new(rig))
    }
}

impl Side for Exclusive {
    fn name(&self) -> &'static str {
        "mlx5, exclusive queue"
    }

    fn threads(&self) -> usize {
        1
    }

    fn burst(&self, kind: Kind, ids: Range<u64>, go: &dyn Fn()) -> (u64, u64) {
        let mut queue = self.0.queue();
        burst!(self.0.line, kind, ids, go, |id, operation| {
            // SAFETY: the memory lives to the end, and the program does not access it.
            unsafe { queue.post(id, operation) }.unwrap();
        })
    }

    fn completed(&self, ids: &mut Vec<u64>) {
        self.0.completed(ids);
    }
}
