//! Tag matching: which entry each message takes, which messages are fetched, and how unmatched ones
//! are reported.

mod errors;
mod messages;
mod random;

use std::time::Instant;

use mlx5::cqe::Completion;
use mlx5::expert::TagCapacity;
use mlx5::expert::{Tag, TagHeader};
use mlx5::expert::{TagCompletion, TagConfig, TagError, TagHandle, TagReceive, TmSrq};
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{CqeSize, ScatterToCqe};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts, SharedReceiveQueue};
use mlx5::wqe::{InlineGather, SendMessage};
use mlx5_model::Mode;

use rig::{PATIENCE, Rig, wait};

/// Bytes of each receive's memory, and of each entry's.
pub const ROOM: usize = 256;
/// Offset of the entries' memory; the memory of receives is before it.
const ENTRIES: usize = 64 * ROOM;

/// One that sends messages with tags.
pub struct Sender {
    pub send: SendQueue<Rc>,
    pub receive: ReceiveQueue,
    pub completions: CqReader,
    pub memory: MemoryRegion,
}

/// One that matches them.
pub struct Matcher {
    pub tags: TmSrq,
    pub completions: CqReader,
    pub memory: MemoryRegion,
    pub srq: SharedReceiveQueue,
    pub cq: CompletionQueue,
}

pub struct Lines {
    pub matcher: Matcher,
    pub takers: Vec<QueuePair<Rc, Rts>>,
    pub senders: Vec<Sender>,
    pub rig: Rig,
}

pub const CAPACITY: TagCapacity = TagCapacity { tags: 15, operations: 16 };

impl Sender {
    pub fn new(rig: &Rig, cq: &CompletionQueue, qp: QueuePair<Rc, Rts>) -> Self {
        let mut completions = CqReader::new(cq).unwrap();
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
        let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default()).unwrap();
        let memory = rig.memory(1 << 17);
        Self { send, receive, completions, memory }
    }

    pub fn wait(&mut self) -> Completion {
        wait(&mut self.completions, &mut (&mut self.send, &mut self.receive))
    }

    /// Sends a message that is inline, and waits until it is sent.
    fn eager(&mut self, header: TagHeader, bytes: &[u8]) {
        let header = header.to_bytes();
        let parts = [&header, bytes];
        let message = InlineGather(&parts);
        // SAFETY: the payload is copied.
        unsafe { self.send.post(1, SendMessage::new(message).signaled()) }.unwrap();
        let Completion::Send(done) = self.wait() else { panic!() };
        assert_eq!(done.id, 1);
    }

    /// Sends `length` bytes of the memory's start behind a header, and waits until they are sent.
    fn gather(&mut self, header: TagHeader, length: u32) -> Completion {
        let sge = self.memory.sge(0, length as usize).unwrap();
        let send = SendMessage::new((header, sge)).signaled();
        // SAFETY: the memory lives to the end.
        unsafe { self.send.post(2, send) }.unwrap();
        self.wait()
    }
}

impl Matcher {
    pub fn new(rig: &Rig, cqe_size: CqeSize) -> Self {
        let cq = CompletionQueue::builder(&rig.context, 511).cqe_size(cqe_size).build().unwrap();
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(31).tags(&cq, CAPACITY);
        let srq = srq.build().unwrap();
        let mut completions = CqReader::new(&cq).unwrap();
        let tags = TmSrq::new(&srq, &mut completions, TagConfig::default()).unwrap();
        let memory = rig.memory(1 << 19);
        Self { tags, completions, memory, srq, cq }
    }

    pub fn post(&mut self, id: u64) {
        let sge = self.memory.sge(id as usize % 64 * ROOM, ROOM).unwrap();
        // SAFETY: the memory lives as long as the queue, and is read only after its completion.
        unsafe { self.tags.post(id, sge) }.unwrap();
    }

    pub fn append(&mut self, id: u64, tag: Tag) -> Result<TagHandle, TagError> {
        self.append_of(id, tag, ROOM)
    }

    pub fn append_of(&mut self, id: u64, tag: Tag, room: usize) -> Result<TagHandle, TagError> {
        let into = self.memory.sge(ENTRIES + id as usize % 64 * ROOM, room).unwrap();
        // SAFETY: the memory lives as long as the queue, and is read only after its completion.
        unsafe { self.tags.append(id, TagReceive::new(tag, into)) }
    }

    pub fn poll(&mut self) -> Option<TagCompletion> {
        self.tags.poll(&mut self.completions, &mut ()).unwrap()
    }

    pub fn wait(&mut self) -> TagCompletion {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = self.poll() {
                return found;
            }
            assert!(Instant::now() < deadline, "no completion of {:?}", self.tags);
            std::thread::yield_now();
        }
    }

    /// Returns the data that entry `id` received.
    pub fn entry(&self, id: u64, length: usize) -> Vec<u8> {
        self.memory.to_vec(ENTRIES + id as usize % 64 * ROOM, length)
    }

    /// Header and rest of what receive `id` got.
    pub fn receive(&self, id: u64, length: usize) -> (TagHeader, Vec<u8>) {
        let bytes = self.memory.to_vec(id as usize % 64 * ROOM, length);
        let (header, rest) = TagHeader::parse(&bytes).expect("a header");
        (header, rest.to_vec())
    }

    /// The next completion, which is of a message in an entry: id and bytes.
    pub fn arrived(&mut self) -> (u64, Vec<u8>) {
        match self.wait() {
            TagCompletion::Arrived(arrival) => {
                (arrival.id, self.entry(arrival.id, arrival.byte_len as usize))
            }
            other => panic!("{other:?}"),
        }
    }

    /// The next completion, which is of a message for no entry: id of the receive, header and bytes.
    fn unexpected(&mut self) -> (u64, TagHeader, Vec<u8>) {
        match self.wait() {
            TagCompletion::Unexpected(done) => {
                let (header, rest) = self.receive(done.id, done.byte_len as usize);
                (done.id, header, rest)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Has an entry removed, and waits: whether it was there. If all slots of the CQ are in use, it is by
    /// reports of appends in succession, of which polls tell nothing.
    fn remove(&mut self, handle: TagHandle) -> bool {
        let mut asked = self.tags.remove(handle);
        if let Err(TagError::Post(PostError::CqFull { .. })) = asked {
            assert_eq!(self.poll(), None);
            asked = self.tags.remove(handle);
        }
        asked.unwrap();
        match self.wait() {
            TagCompletion::Removed { handle: of, removed, .. } => {
                assert_eq!(of, handle);
                removed
            }
            other => panic!("{other:?}"),
        }
    }

    fn sync(&mut self) {
        self.tags.sync(77).unwrap();
        assert_eq!(self.wait(), TagCompletion::Synced(77));
    }
}

impl Lines {
    pub fn new(senders: usize) -> Self {
        Self::with(senders, CqeSize::B64)
    }

    fn with(senders: usize, cqe_size: CqeSize) -> Self {
        let rig = Rig::new(Mode::Trapped);
        let mut matcher = Matcher::new(&rig, cqe_size);
        let (mut takers, mut all) = (vec![], vec![]);
        for _ in 0..senders {
            let taker = QueuePair::builder(&rig.pd, &matcher.cq).max_send_wr(0);
            let taker = taker.shared_receive_queue(&matcher.srq);
            let taker = rig.init(taker.scatter_to_cqe(ScatterToCqe::Receives));
            matcher.tags.attach(&taker, &mut matcher.completions).unwrap();
            let cq = rig.cq(255);
            let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(128));
            let (taker, qp) = rig.connect(taker, qp);
            takers.push(taker);
            all.push(Sender::new(&rig, &cq, qp));
        }
        Self { matcher, takers, senders: all, rig }
    }
}
