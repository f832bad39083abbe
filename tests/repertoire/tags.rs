//! Tag matching: which entry each message takes, which messages are fetched, and how unmatched ones
//! are reported.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use mlx5::cqe::{Completion, QueueKind, ReceiveKind, Status};
use mlx5::ib::Rc;
use mlx5::ring::{
    CqReader, IncompleteReason, PollError, PostError, QueueError, ReceiveConfig, ReceiveQueue,
    RegisterUse, SendConfig, SendQueue, Srq, TagCompletion, TagConfig, TagError, TagHandle,
    TagReceive, TmSrq,
};
use mlx5::verbs::{
    CompletionQueue, CqeSize, MemoryRegion, QueuePair, Rts, ScatterToCqe, SharedReceiveQueue,
    TagCapacity,
};
use mlx5::wqe::{
    EncodeError, Inline, InlineGather, RdmaRead, Remote, Rendezvous, SendImm, SendMessage, Sge,
    Tag, TagHeader, TagKind,
};
use mlx5_model::Mode;
use mlx5_sys::verbs::ibv_ops_flags;

use crate::rig::random::Random;
use crate::rig::tags::{TagOperation, post_change};
use crate::rig::{PATIENCE, Rig, refused, wait};

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
        let sge = Sge::new(self.memory.address(), length, self.memory.lkey());
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

    fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge::new(self.memory.address() + offset as u64, length as u32, self.memory.lkey())
    }

    pub fn post(&mut self, id: u64) {
        let sge = self.sge(id as usize % 64 * ROOM, ROOM);
        // SAFETY: the memory lives as long as the queue, and is read only after its completion.
        unsafe { self.tags.post(id, sge) }.unwrap();
    }

    pub fn append(&mut self, id: u64, tag: Tag) -> Result<TagHandle, TagError> {
        self.append_of(id, tag, ROOM)
    }

    pub fn append_of(&mut self, id: u64, tag: Tag, room: usize) -> Result<TagHandle, TagError> {
        let into = self.sge(ENTRIES + id as usize % 64 * ROOM, room);
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

    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes);
        bytes
    }

    /// Returns the data that entry `id` received.
    pub fn entry(&self, id: u64, length: usize) -> Vec<u8> {
        self.bytes(ENTRIES + id as usize % 64 * ROOM, length)
    }

    /// Header and rest of what receive `id` got.
    pub fn receive(&self, id: u64, length: usize) -> (TagHeader, Vec<u8>) {
        let bytes = self.bytes(id as usize % 64 * ROOM, length);
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

    /// Has an entry removed, and waits: whether it was there.
    fn remove(&mut self, handle: TagHandle) -> bool {
        self.tags.remove(handle).unwrap();
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

#[test]
fn a_device_says_what_it_has() {
    let rig = Rig::new(Mode::Trapped);
    let caps = rig.context.tag_matching().unwrap().expect("the model matches tags");
    assert!(caps.max_tags >= 127 && caps.max_operations > 0 && caps.max_sge == 1, "{caps:?}");
    assert!(caps.rendezvous);
    let cq = rig.cq(63);
    for (tags, operations) in [(0, 1), (caps.max_tags + 1, 1), (1, 0)] {
        let srq = SharedReceiveQueue::builder(&rig.pd).tags(&cq, TagCapacity { tags, operations });
        let error = srq.build().unwrap_err();
        assert!(matches!(error, mlx5::Error::Attribute { .. }), "{error}");
    }
}

#[test]
fn a_message_goes_to_the_oldest_entry_that_takes_its_tag() {
    let mut lines = Lines::new(2);
    let Lines { matcher, senders, takers, .. } = &mut lines;
    matcher.append(1, Tag::exact(0x1234)).unwrap();
    matcher.append(2, Tag::masked(0x1200, 0xff00)).unwrap();
    matcher.append(3, Tag::any()).unwrap();
    matcher.append(4, Tag::exact(0x1234)).unwrap();
    assert_eq!(matcher.tags.entries(), 4);
    let header = TagHeader::eager(0x1299).context(0xfeed);
    senders[0].eager(header, b"by mask");
    let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
    assert_eq!((arrival.id, arrival.qpn), (2, takers[0].number()));
    assert_eq!((arrival.header, arrival.byte_len), (Some(header), 7));
    assert_eq!(arrival.kind, ReceiveKind::Send);
    assert_eq!(matcher.entry(2, 7), b"by mask");
    senders[1].eager(TagHeader::eager(0x1234), b"first");
    assert_eq!(matcher.arrived(), (1, b"first".to_vec()));
    senders[0].eager(TagHeader::eager(0x1234), b"any");
    assert_eq!(matcher.arrived(), (3, b"any".to_vec()));
    senders[1].eager(TagHeader::eager(0x1234), b"");
    assert_eq!(matcher.arrived(), (4, vec![]));
    assert_eq!((matcher.tags.entries(), matcher.poll()), (0, None));
}

#[test]
fn what_is_appended_can_be_reported_and_an_entry_may_have_no_memory() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let none = TagReceive::new(Tag::exact(5), Sge::new(0, 0, 0)).signaled();
    // SAFETY: the request names no memory.
    let handle = unsafe { matcher.tags.append(9, none) }.unwrap();
    assert_eq!(matcher.wait(), TagCompletion::Appended { id: 9, handle });
    let send = SendImm::new(TagHeader::eager(5).alone(), 0xabcd).signaled();
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(1, send) }.unwrap();
    let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
    assert_eq!((arrival.kind, arrival.byte_len), (ReceiveKind::SendImm(0xabcd), 0));
    let long = Sge { length: (1 << 31) + 1, ..matcher.sge(0, 1) };
    // SAFETY: refused.
    let refused = unsafe { matcher.tags.append(1, TagReceive::new(Tag::any(), long)) };
    assert_eq!(refused, Err(TagError::Post(PostError::Encode(EncodeError::SgeTooLong))));
    assert_eq!(matcher.tags.entries(), 0);
}

#[test]
fn a_long_message_is_told_of_twice() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let body: Vec<u8> = (0..30_000u32).map(|at| (at % 251) as u8).collect();
    senders[0].memory.write(0, &body);
    let into = matcher.sge(1 << 18, 40_000);
    // SAFETY: the memory lives as long as the queue, and is read only after its completion.
    let handle = unsafe { matcher.tags.append(6, TagReceive::new(Tag::exact(3), into)) }.unwrap();
    let header = TagHeader::eager(3).context(8);
    assert!(matches!(senders[0].gather(header, 30_000), Completion::Send(_)));
    let TagCompletion::Matched(matched) = matcher.wait() else { panic!() };
    assert_eq!((matched.id, matched.handle, matched.header), (6, handle, Some(header)));
    assert!(!matched.fetch);
    assert_eq!(matcher.tags.remove(handle), Err(TagError::Gone));
    let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
    assert_eq!((arrival.id, arrival.byte_len, arrival.header), (6, 30_000, None));
    assert_eq!(matcher.bytes(1 << 18, 30_000), body);
    assert_eq!(matcher.tags.entries(), 0);
}

#[test]
fn a_message_for_no_entry_takes_a_receive_and_is_counted() {
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        let mut lines = Lines::with(1, cqe_size);
        let Lines { matcher, senders, .. } = &mut lines;
        for id in 0..8 {
            matcher.post(id);
        }
        assert_eq!(matcher.tags.receives().outstanding(), 8);
        let header = TagHeader::eager(7).context(1);
        senders[0].eager(header, b"too early");
        // Software does not know of it: its entry waits, and would be wrong.
        let early = matcher.append(50, Tag::exact(7)).unwrap();
        assert_eq!(matcher.unexpected(), (0, header, b"too early".to_vec()));
        assert_eq!(matcher.tags.unexpected(), 1);
        assert!(matcher.remove(early));
        assert!(!matcher.tags.is_listed(early) && matcher.tags.needs_sync());
        // An entry that says that software knows of it is taken at once.
        matcher.append(51, Tag::exact(7)).unwrap();
        assert!(!matcher.tags.needs_sync());
        senders[0].eager(header, b"in time");
        assert_eq!(matcher.arrived(), (51, b"in time".to_vec()));
        // One that is for another message waits until software syncs.
        senders[0].eager(header, b"second");
        let entry = TagReceive::new(Tag::exact(9), matcher.sge(ENTRIES, ROOM)).signaled();
        // SAFETY: the memory lives as long as the queue, and is read only after its completion.
        let handle = unsafe { matcher.tags.append(52, entry) }.unwrap();
        assert_eq!(matcher.unexpected().0, 1);
        assert_eq!(matcher.wait(), TagCompletion::Appended { id: 52, handle });
        assert!(matcher.tags.needs_sync());
        senders[0].eager(TagHeader::eager(9), b"third");
        let (id, third, rest) = matcher.unexpected();
        assert_eq!((id, third.tag, &rest[..]), (2, 9, &b"third"[..]));
        assert!(matcher.tags.is_listed(handle) && matcher.tags.needs_sync());
        matcher.sync();
        assert!(!matcher.tags.needs_sync());
        senders[0].eager(TagHeader::eager(9), b"fourth");
        let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
        assert_eq!((arrival.id, matcher.bytes(ENTRIES, 6)), (52, b"fourth".to_vec()));
        assert_eq!(matcher.tags.receives().outstanding(), 5);
    }
}

#[test]
fn a_message_without_a_tag_is_no_ones_and_is_not_counted() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    for id in 0..8 {
        matcher.post(id);
    }
    matcher.append(1, Tag::any()).unwrap();
    senders[0].eager(TagHeader::untagged().context(4), b"plain");
    let TagCompletion::Untagged(done) = matcher.wait() else { panic!() };
    let (header, rest) = matcher.receive(done.id, done.byte_len as usize);
    assert_eq!((header, &rest[..]), (TagHeader::untagged().context(4), &b"plain"[..]));
    // A short one has no header at all.
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(1, SendMessage::new(Inline(b"short")).signaled()) }.unwrap();
    let TagCompletion::Untagged(done) = matcher.wait() else { panic!() };
    assert_eq!((done.id, done.byte_len), (1, 5));
    assert_eq!(matcher.bytes(ROOM, 5), b"short");
    assert_eq!(matcher.tags.unexpected(), 0);
    // Without a receive it waits.
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(1, SendMessage::new(Inline(b"patient")).signaled()) }.unwrap();
    assert_eq!(matcher.poll(), None);
    matcher.post(3);
    let TagCompletion::Untagged(done) = matcher.wait() else { panic!() };
    assert_eq!((done.id, done.byte_len), (3, 7));
}

#[test]
fn a_rendezvous_is_fetched_and_its_sender_told() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let sender = &mut senders[0];
    let body: Vec<u8> = (0..50_000u32).map(|at| (at % 239) as u8).collect();
    sender.memory.write(0, &body);
    let answer = Sge::new(sender.memory.address() + 100_000, 64, sender.memory.lkey());
    // SAFETY: the memory lives to the end.
    unsafe { sender.receive.post(5, answer) }.unwrap();
    let into = matcher.sge(1 << 18, 50_000);
    // SAFETY: the memory lives as long as the queue, and is read only after its completion.
    unsafe { matcher.tags.append(6, TagReceive::new(Tag::exact(3), into)) }.unwrap();
    let from = Remote::new(sender.memory.remote_address(), sender.memory.rkey());
    let offer = Rendezvous { from, length: 50_000 }.offer(3, 0x77);
    // SAFETY: inline; the memory is not written until it is fetched.
    unsafe { sender.send.post(1, SendMessage::new(offer).signaled()) }.unwrap();
    let TagCompletion::Matched(matched) = matcher.wait() else { panic!() };
    assert_eq!((matched.id, matched.header), (6, Some(TagHeader::rendezvous(3).context(0x77))));
    let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
    assert_eq!((arrival.id, arrival.byte_len), (6, 50_000));
    assert_eq!(matcher.bytes(1 << 18, 50_000), body);
    let (mut sent, mut finished) = (false, false);
    while !(sent && finished) {
        match sender.wait() {
            Completion::Send(done) => sent = done.id == 1,
            Completion::Receive(done) => {
                assert_eq!((done.id, done.byte_len), (5, 16));
                finished = true;
            }
            other => panic!("{other:?}"),
        }
    }
    let mut bytes = [0; 16];
    sender.memory.read(100_000, &mut bytes);
    let (header, _) = TagHeader::parse(&bytes).unwrap();
    assert_eq!(header, TagHeader::rendezvous(3).context(0x77).finished());
    assert_eq!(header.kind, TagKind::Finished);
}

#[test]
fn a_rendezvous_for_no_entry_is_fetched_by_software() {
    // Here the taker reads and answers by itself, so it has a send queue.
    let rig = Rig::new(Mode::Trapped);
    let mut matcher = Matcher::new(&rig, CqeSize::B64);
    let taker_cq = rig.cq(31);
    let taker = QueuePair::builder(&rig.pd, &taker_cq).receive_cq(&matcher.cq).max_inline_data(64);
    let taker = rig.init(taker.shared_receive_queue(&matcher.srq));
    matcher.tags.attach(&taker, &mut matcher.completions).unwrap();
    let cq = rig.cq(255);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(64));
    let (taker, qp) = rig.connect(taker, qp);
    let mut sender = Sender::new(&rig, &cq, qp);
    let mut reads = CqReader::new(&taker_cq).unwrap();
    let mut send = SendQueue::new(&taker, &mut reads, SendConfig::default()).unwrap();
    matcher.post(2);
    sender.memory.write(0, b"fetched by software");
    let answer = Sge::new(sender.memory.address() + 4096, 64, sender.memory.lkey());
    let from = Remote::new(sender.memory.remote_address(), sender.memory.rkey());
    let offer = Rendezvous { from, length: 19 }.offer(9, 1);
    // SAFETY: the memory lives to the end; no code writes it until it is fetched.
    unsafe {
        sender.receive.post(5, answer).unwrap();
        sender.send.post(1, SendMessage::new(offer).signaled()).unwrap();
    }
    let (_, header, rest) = matcher.unexpected();
    assert_eq!(header, TagHeader::rendezvous(9).context(1));
    let from = Rendezvous::parse(&rest).unwrap();
    let into = matcher.sge(1 << 18, from.length as usize);
    // SAFETY: the memory lives to the end, and is read only after the READ. The answer waits for
    // it.
    unsafe {
        send.post(1, RdmaRead::new(into, from.from)).unwrap();
        send.post(2, SendMessage::new(header.finished().alone()).signaled().fenced()).unwrap();
    }
    let Completion::Send(done) = wait(&mut reads, &mut send) else { panic!() };
    assert_eq!((done.id, matcher.bytes(1 << 18, 19)), (2, b"fetched by software".to_vec()));
    let mut told = None;
    while told.is_none() {
        if let Completion::Receive(done) = sender.wait() {
            told = Some(done.id);
        }
    }
    let mut bytes = [0; 16];
    sender.memory.read(4096, &mut bytes);
    assert_eq!((told, TagHeader::parse(&bytes).unwrap().0), (Some(5), header.finished()));
}

#[test]
fn an_entry_is_removed_or_a_message_has_taken_it() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    matcher.post(0);
    let first = matcher.append(1, Tag::exact(1)).unwrap();
    let second = matcher.append(2, Tag::exact(2)).unwrap();
    assert!(matcher.remove(first));
    assert_eq!(matcher.tags.remove(first), Err(TagError::Gone));
    senders[0].eager(TagHeader::eager(1), b"late");
    assert_eq!(matcher.unexpected().2, b"late");
    matcher.sync();
    // Taken, and removed before a poll has seen that.
    senders[0].eager(TagHeader::eager(2), b"taken");
    assert!(matcher.tags.is_listed(second));
    matcher.tags.remove(second).unwrap();
    assert_eq!(matcher.tags.remove(second), Err(TagError::Gone));
    assert_eq!(matcher.arrived(), (2, b"taken".to_vec()));
    assert_eq!(matcher.tags.entries(), 1, "an answer is still to come");
    let answer = TagCompletion::Removed { id: 2, handle: second, removed: false };
    assert_eq!(matcher.wait(), answer);
    // Handles of entries that are gone stay so when their places are used again.
    for id in 3..40 {
        let handle = matcher.append(id, Tag::exact(9)).unwrap();
        assert!(![first, second].contains(&handle));
        assert_eq!(matcher.tags.remove(second), Err(TagError::Gone));
        assert!(matcher.remove(handle));
    }
}

#[test]
fn a_full_list_refuses_and_so_does_a_full_queue_of_changes() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    assert_eq!(matcher.tags.capacity(), CAPACITY.tags);
    let mut handles = vec![];
    for id in 0..u64::from(CAPACITY.tags) {
        handles.push(matcher.append(id, Tag::exact(id)).unwrap());
    }
    assert_eq!(matcher.append(99, Tag::any()), Err(TagError::ListFull));
    senders[0].eager(TagHeader::eager(4), b"room");
    assert_eq!(matcher.append(99, Tag::any()), Err(TagError::ListFull), "nobody has seen it");
    assert_eq!(matcher.arrived(), (4, b"room".to_vec()));
    matcher.append(99, Tag::exact(99)).unwrap();
    // Changes without polls: at some point there is no place for more.
    let mut syncs = 0;
    let full = loop {
        match matcher.tags.sync(syncs) {
            Ok(()) => syncs += 1,
            Err(error) => break error,
        }
        assert!(syncs < 10_000);
    };
    assert!(matches!(full, TagError::Post(PostError::QueueFull | PostError::CqFull)), "{full:?}");
    assert_eq!(matcher.tags.remove(handles[0]), Err(full));
    for id in 0..syncs {
        assert_eq!(matcher.wait(), TagCompletion::Synced(id));
    }
    assert!(matcher.remove(handles[0]));
    // Unsignaled list changes free their places without a completion.
    for round in 0..2000 {
        let handle = matcher.append(7, Tag::exact(1 << 40)).unwrap();
        senders[0].eager(TagHeader::eager(1 << 40), &[]);
        assert_eq!(matcher.arrived().0, 7, "round {round}");
        assert!(!matcher.tags.is_listed(handle));
    }
    // With few CQEs there are few entries.
    let cq = lines.rig.cq(31);
    let srq = SharedReceiveQueue::builder(&lines.rig.pd).max_wr(4).tags(&cq, CAPACITY);
    let srq = srq.build().unwrap();
    let mut completions = CqReader::new(&cq).unwrap();
    let changes = SendConfig { signals: 16, register: RegisterUse::Shared, ..Default::default() };
    let config = TagConfig { receives: ReceiveConfig { receives: 4 }, changes };
    let mut tags = TmSrq::new(&srq, &mut completions, config).unwrap();
    assert_eq!(tags.capacity(), 6);
    let entry = TagReceive::new(Tag::any(), Sge::new(0, 0, 0));
    for id in 0..6 {
        // SAFETY: the request names no memory.
        unsafe { tags.append(id, entry) }.unwrap();
    }
    // SAFETY: the request names no memory.
    assert_eq!(unsafe { tags.append(6, entry) }, Err(TagError::ListFull));
}

fn failed(completion: Completion) -> (u64, Status) {
    match completion {
        Completion::Failed(failure) => (failure.id, failure.status),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_message_longer_than_its_entry_ends_its_connection_only() {
    let mut lines = Lines::new(2);
    let Lines { matcher, senders, .. } = &mut lines;
    let handle = matcher.append_of(1, Tag::exact(1), 10).unwrap();
    matcher.append(2, Tag::exact(2)).unwrap();
    let sge = Sge::new(senders[0].memory.address(), 11, senders[0].memory.lkey());
    let send = SendMessage::new((TagHeader::eager(1), sge)).signaled();
    // SAFETY: the memory lives to the end.
    unsafe { senders[0].send.post(4, send) }.unwrap();
    assert_eq!(failed(senders[0].wait()), (4, Status::RemoteInvalidRequest));
    let TagCompletion::Incomplete(incomplete) = matcher.wait() else { panic!() };
    assert_eq!((incomplete.id, incomplete.handle), (1, handle));
    assert_eq!((incomplete.reason, incomplete.header), (IncompleteReason::Canceled, None));
    assert_eq!((matcher.tags.entries(), matcher.entry(1, 11)), (1, vec![0; 11]));
    // The list is everybody's, and goes on.
    senders[1].eager(TagHeader::eager(2), b"others");
    assert_eq!(matcher.arrived(), (2, b"others".to_vec()));
    // One that is to be fetched and is too long takes no entry.
    let handle = matcher.append_of(3, Tag::exact(3), 10).unwrap();
    let from = Remote::new(senders[1].memory.remote_address(), senders[1].memory.rkey());
    let offer = Rendezvous { from, length: 11 }.offer(3, 0);
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[1].send.post(5, SendMessage::new(offer).signaled()) }.unwrap();
    assert_eq!(failed(senders[1].wait()), (5, Status::RemoteInvalidRequest));
    assert_eq!(matcher.poll(), None);
    assert!(matcher.remove(handle));
}

#[test]
fn what_cannot_be_fetched_is_incomplete() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    matcher.append(1, Tag::exact(1)).unwrap();
    let from = Remote::new(senders[0].memory.remote_address(), 0xdead_be00);
    let offer = Rendezvous { from, length: 100 }.offer(1, 0);
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(5, SendMessage::new(offer).signaled()) }.unwrap();
    let TagCompletion::Matched(matched) = matcher.wait() else { panic!() };
    assert_eq!(matched.id, 1);
    let TagCompletion::Incomplete(incomplete) = matcher.wait() else { panic!() };
    assert_eq!((incomplete.id, incomplete.reason), (1, IncompleteReason::Canceled));
    assert_eq!(matcher.tags.entries(), 0);
}

#[test]
fn an_entry_without_rights_ends_the_connection_that_takes_it() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let into = Sge { lkey: 0xdead_be00, ..matcher.sge(ENTRIES, ROOM) };
    // SAFETY: the key does not exist, so the entry reaches no memory.
    unsafe { matcher.tags.append(1, TagReceive::new(Tag::any(), into)) }.unwrap();
    let header = TagHeader::eager(1).to_bytes();
    let message = [&header[..], b"no way"];
    let send = SendMessage::new(InlineGather(&message)).signaled();
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(5, send) }.unwrap();
    assert_eq!(failed(senders[0].wait()), (5, Status::RemoteOperation));
    let TagCompletion::Incomplete(incomplete) = matcher.wait() else { panic!() };
    assert_eq!((incomplete.id, incomplete.reason), (1, IncompleteReason::Canceled));
    // A receive without rights completes as any other.
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let into = Sge { lkey: 0xdead_be00, ..matcher.sge(0, ROOM) };
    // SAFETY: the key does not exist, so the receive reaches no memory.
    unsafe { matcher.tags.post(8, into) }.unwrap();
    let header = TagHeader::eager(1).to_bytes();
    let message = [&header[..], b"no way"];
    let send = SendMessage::new(InlineGather(&message)).signaled();
    // SAFETY: the payload is copied into the WQE.
    unsafe { senders[0].send.post(5, send) }.unwrap();
    assert_eq!(failed(senders[0].wait()), (5, Status::RemoteOperation));
    let TagCompletion::Failed(failure) = matcher.wait() else { panic!() };
    assert_eq!((failure.id, failure.queue), (8, QueueKind::Receive));
    assert_eq!(failure.status, Status::LocalProtection);
}

#[test]
fn a_list_that_somebody_else_has_filled_fails_its_queue() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    // The model rounds a list up to a power of two, which is one more than was asked for.
    for _ in 0..CAPACITY.tags - 1 {
        let append = TagOperation::Append(Tag::exact(0), Sge::new(0, 0, 0));
        // SAFETY: the queue is alive; no memory is named.
        unsafe { post_change(matcher.srq.as_raw(), 0, append, ibv_ops_flags(0)) };
    }
    for id in 1..=5 {
        // From the third on there is no place.
        let _ = matcher.append(id, Tag::exact(id)).map_err(|error| {
            assert_eq!(error, TagError::Post(PostError::WrongState));
        });
    }
    let mut failures = vec![];
    while let Some(found) = matcher.poll() {
        let TagCompletion::Failed(failure) = found else { panic!("{found:?}") };
        assert_eq!(failure.qpn, matcher.tags.qpn());
        failures.push((failure.id, failure.queue, failure.status));
    }
    assert_eq!(failures[0], (3, QueueKind::Send, Status::LocalQpOperation));
    assert_eq!(failures[1], (4, QueueKind::Send, Status::Flushed));
    assert_eq!(matcher.append(9, Tag::any()), Err(TagError::Post(PostError::WrongState)));
    assert_eq!(matcher.tags.sync(1), Err(TagError::Post(PostError::WrongState)));
    // Those that were appended are, though the indices are no longer the ones that this side knows.
    assert_eq!(matcher.tags.entries(), 2);
    matcher.post(0);
    senders[0].eager(TagHeader::eager(3), b"none");
    assert_eq!(matcher.unexpected().2, b"none");
}

#[test]
fn a_queue_is_taken_over_again_where_its_list_was_left() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    for id in 0..5 {
        matcher.post(id);
    }
    for id in 0..3 {
        matcher.append(id, Tag::exact(id)).unwrap();
        senders[0].eager(TagHeader::eager(id), &[id as u8]);
        assert_eq!(matcher.arrived(), (id, vec![id as u8]));
        senders[0].eager(TagHeader::eager(99), b"none");
        matcher.unexpected();
    }
    senders[0].eager(TagHeader::untagged(), &[]);
    senders[0].eager(TagHeader::untagged(), &[]);
    let (_, _) = (matcher.wait(), matcher.wait());
    assert_eq!(matcher.tags.receives().outstanding(), 0);
    let config = TagConfig::default();
    let again = TmSrq::new(&matcher.srq, &mut matcher.completions, config);
    assert!(matches!(again, Err(mlx5::Error::QueueInUse { .. })));
    let Lines { matcher, takers, senders, .. } = lines;
    let Matcher { tags, mut completions, memory, srq, cq } = matcher;
    drop(tags);
    let mut tags = TmSrq::new(&srq, &mut completions, config).unwrap();
    tags.attach(&takers[0], &mut completions).unwrap();
    assert_eq!(tags.unexpected(), 3);
    let mut matcher = Matcher { tags, completions, memory, srq, cq };
    let mut senders = senders;
    for id in 0..40 {
        matcher.append(id, Tag::exact(id)).unwrap();
        senders[0].eager(TagHeader::eager(id), &[id as u8]);
        assert_eq!(matcher.arrived(), (id, vec![id as u8]));
    }
    // With an entry in the list it cannot be.
    matcher.append(1, Tag::any()).unwrap();
    let Matcher { tags, mut completions, srq, .. } = matcher;
    drop(tags);
    let error = TmSrq::new(&srq, &mut completions, config).unwrap_err();
    assert!(matches!(error, mlx5::Error::Queue(QueueError::NotIdle)), "{error}");
}

#[test]
fn what_belongs_elsewhere_is_refused() {
    let refused = |error: mlx5::Error, expected| match error {
        mlx5::Error::Queue(found) => assert_eq!(found, expected),
        other => panic!("{other}"),
    };
    let mut lines = Lines::new(1);
    let Lines { matcher, takers, rig, .. } = &mut lines;
    let config = TagConfig::default();
    let plain = SharedReceiveQueue::builder(&rig.pd).build().unwrap();
    let error = TmSrq::new(&plain, &mut matcher.completions, config).unwrap_err();
    refused(error, QueueError::NoTags);
    let cq = rig.cq(127);
    let mut completions = CqReader::new(&cq).unwrap();
    let build =
        |cq| SharedReceiveQueue::builder(&rig.pd).max_wr(4).tags(cq, CAPACITY).build().unwrap();
    let other = build(&cq);
    let error = Srq::new(&other, &mut completions, ReceiveConfig::default());
    refused(error.unwrap_err(), QueueError::Tagged);
    let error = TmSrq::new(&other, &mut matcher.completions, config).unwrap_err();
    refused(error, QueueError::CqMismatch);
    let second = build(&matcher.cq);
    let error = TmSrq::new(&second, &mut matcher.completions, config).unwrap_err();
    refused(error, QueueError::TagsElsewhere);
    // What was refused can be had later.
    let mut tags = TmSrq::new(&other, &mut completions, config).unwrap();
    let taker = QueuePair::builder(&rig.pd, &matcher.cq).shared_receive_queue(&matcher.srq);
    let taker = rig.init(taker);
    refused(tags.attach(&taker, &mut completions).unwrap_err(), QueueError::SrqMismatch);
    let elsewhere = QueuePair::builder(&rig.pd, &cq).shared_receive_queue(&matcher.srq);
    let elsewhere = rig.init(elsewhere);
    let error = matcher.tags.attach(&elsewhere, &mut matcher.completions).unwrap_err();
    refused(error, QueueError::CqMismatch);
    refused(matcher.tags.attach(&elsewhere, &mut completions).unwrap_err(), QueueError::CqMismatch);
    assert!(matcher.tags.detach(takers[0].number()));
    assert!(!matcher.tags.detach(takers[0].number()));
}

#[test]
fn other_queues_complete_beside_it_and_other_polls_do_not_know_it() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, rig, .. } = &mut lines;
    // A connection of its own on the same CQ.
    let own = rig.init(QueuePair::builder(&rig.pd, &matcher.cq).max_inline_data(64));
    let peer = rig.init(QueuePair::builder(&rig.pd, &matcher.cq));
    let (own, peer) = rig.connect(own, peer);
    let completions = &mut matcher.completions;
    let shared = SendConfig { register: RegisterUse::Shared, signals: 8, ..Default::default() };
    let mut send = SendQueue::new(&own, completions, shared).unwrap();
    let mut receive = ReceiveQueue::new(&peer, completions, ReceiveConfig { receives: 8 }).unwrap();
    let sge = matcher.sge(1 << 18, 64);
    // SAFETY: the memory lives as long as the queue, and is read only after its completion.
    unsafe { receive.post(3, sge) }.unwrap();
    matcher.append(1, Tag::exact(1)).unwrap();
    matcher.append(2, Tag::exact(2)).unwrap();
    senders[0].eager(TagHeader::eager(1), b"tagged");
    // SAFETY: the payload is copied into the WQE.
    unsafe { send.post(4, SendMessage::new(Inline(b"plain")).signaled()) }.unwrap();
    let mut found = vec![];
    let deadline = Instant::now() + PATIENCE;
    while found.len() < 3 {
        let mut others = (&mut send, &mut receive);
        match matcher.tags.poll(&mut matcher.completions, &mut others).unwrap() {
            Some(TagCompletion::Arrived(arrival)) => found.push(arrival.id),
            Some(TagCompletion::Other(Completion::Send(done))) => found.push(done.id),
            Some(TagCompletion::Other(Completion::Receive(done))) => found.push(done.id),
            Some(other) => panic!("{other:?}"),
            None => assert!(Instant::now() < deadline),
        }
    }
    found.sort_unstable();
    assert_eq!(found, [1, 3, 4]);
    // A poll that does not know the queue leaves its completions in the CQ.
    senders[0].eager(TagHeader::eager(2), b"kept");
    let not_given = refused(&mut matcher.completions, &mut send);
    assert!(matches!(not_given, PollError::QueueNotGiven { .. }), "{not_given}");
    let next = matcher.tags.poll(&mut matcher.completions, &mut send).unwrap();
    assert!(matches!(next, Some(TagCompletion::Arrived(_))), "{next:?}");
    assert_eq!(matcher.tags.entries(), 0);
    matcher.tags.sync(5).unwrap();
    let not_given = refused(&mut matcher.completions, &mut send);
    assert!(matches!(not_given, PollError::QueueNotGiven { .. }), "{not_given}");
    let next = matcher.tags.poll(&mut matcher.completions, &mut send).unwrap();
    assert!(matches!(next, Some(TagCompletion::Synced(5))), "{next:?}");
    // Another CQ's completions are that one's queues' alone.
    let Sender { send, completions, .. } = &mut senders[0];
    // SAFETY: the payload is copied into the WQE.
    unsafe { send.post(6, SendMessage::new(Inline(b"x")).signaled()) }.unwrap();
    matcher.post(0);
    let deadline = Instant::now() + PATIENCE;
    let done = loop {
        if let Some(found) = matcher.tags.poll(completions, send).unwrap() {
            break found;
        }
        assert!(Instant::now() < deadline);
    };
    assert!(matches!(done, TagCompletion::Other(Completion::Send(done)) if done.id == 6));
}

/// A software model of the tag list.
#[derive(Default)]
struct Reference {
    entries: VecDeque<(u64, Tag, TagHandle)>,
}

#[test]
fn any_order_of_changes_and_messages_matches_as_a_list_would() {
    let mut random = Random::new();
    let mut lines = Lines::new(3);
    let Lines { matcher, senders, .. } = &mut lines;
    let mut list = Reference::default();
    let mut receives = 0u64;
    let mut found: HashMap<&str, u32> = HashMap::new();
    for id in 0..4000u64 {
        while matcher.tags.receives().free() > 0 && matcher.tags.receives().outstanding() < 4 {
            matcher.post(receives);
            receives += 1;
        }
        match random.below(4) {
            0 | 1 => {
                let mask = [!0, 0x3, 0x1, 0][random.below(4) as usize];
                let tag = Tag::masked(random.below(4).into(), mask);
                match matcher.append(id, tag) {
                    Ok(handle) => list.entries.push_back((id, tag, handle)),
                    Err(error) => {
                        assert_eq!(error, TagError::ListFull);
                        assert_eq!(list.entries.len(), CAPACITY.tags as usize);
                        *found.entry("full").or_default() += 1;
                    }
                }
            }
            2 if !list.entries.is_empty() => {
                let at = random.below(list.entries.len() as u32) as usize;
                let (_, _, handle) = list.entries.remove(at).unwrap();
                assert!(matcher.remove(handle));
                *found.entry("removed").or_default() += 1;
            }
            _ => {
                let tag = u64::from(random.below(4));
                let sender = &mut senders[random.below(3) as usize];
                let length = random.below(100) as usize;
                let bytes = random.bytes(length);
                sender.eager(TagHeader::eager(tag), &bytes);
                let at = list.entries.iter().position(|(_, entry, _)| entry.matches(tag));
                match at.and_then(|at| list.entries.remove(at)) {
                    Some((id, ..)) => {
                        assert_eq!(matcher.arrived(), (id, bytes));
                        *found.entry("matched").or_default() += 1;
                    }
                    None => {
                        let (_, header, rest) = matcher.unexpected();
                        assert_eq!((header.tag, rest), (tag, bytes));
                        *found.entry("unexpected").or_default() += 1;
                        if matcher.tags.needs_sync() || random.below(2) == 0 {
                            matcher.sync();
                        }
                    }
                }
            }
        }
        assert_eq!(matcher.tags.entries() as usize, list.entries.len());
    }
    assert_eq!(matcher.poll(), None);
    assert_eq!(found.len(), 4, "{found:?}");
}
