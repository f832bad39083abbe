//! The entry that each message takes, and the form of every completion.

use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::expert::TagCapacity;
use mlx5::expert::{Rendezvous, Tag, TagHeader, TagKind};
use mlx5::expert::{TagCompletion, TagConfig, TagError, TagReceive, TmSrq};
use mlx5::ring::{CqReader, PostError, ReceiveConfig, RegisterUse, SendConfig, SendQueue};
use mlx5::verbs::attr::CqeSize;
use mlx5::verbs::{QueuePair, SharedReceiveQueue};
use mlx5::wqe::{Inline, RdmaRead, SendImm, SendMessage, Sge};
use mlx5_model::Mode;

use super::{CAPACITY, ENTRIES, Lines, Matcher, ROOM, Sender};
use rig::{Rig, wait};

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
    let long = Sge { length: (1 << 31) + 1, ..matcher.memory.sge(0, 1).unwrap() };
    // SAFETY: refused.
    let refused = unsafe { matcher.tags.append(1, TagReceive::new(Tag::any(), long)) };
    let expected = PostError::SgeTooLong { bytes: (1 << 31) + 1 };
    assert_eq!(refused, Err(TagError::Post(expected)));
    assert_eq!(matcher.tags.entries(), 0);
}

#[test]
fn a_long_message_is_told_of_twice() {
    let mut lines = Lines::new(1);
    let Lines { matcher, senders, .. } = &mut lines;
    let body: Vec<u8> = (0..30_000u32).map(|at| (at % 251) as u8).collect();
    senders[0].memory.write(0, &body);
    let into = matcher.memory.sge(1 << 18, 40_000).unwrap();
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
    assert_eq!(matcher.memory.to_vec(1 << 18, 30_000), body);
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
        let entry =
            TagReceive::new(Tag::exact(9), matcher.memory.sge(ENTRIES, ROOM).unwrap()).signaled();
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
        assert_eq!((arrival.id, matcher.memory.to_vec(ENTRIES, 6)), (52, b"fourth".to_vec()));
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
    assert_eq!(matcher.memory.to_vec(ROOM, 5), b"short");
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
    let answer = sender.memory.sge(100_000, 64).unwrap();
    // SAFETY: the memory lives to the end.
    unsafe { sender.receive.post(5, answer) }.unwrap();
    let into = matcher.memory.sge(1 << 18, 50_000).unwrap();
    // SAFETY: the memory lives as long as the queue, and is read only after its completion.
    unsafe { matcher.tags.append(6, TagReceive::new(Tag::exact(3), into)) }.unwrap();
    let from = sender.memory.remote(0).unwrap();
    let offer = Rendezvous { from, length: 50_000 }.offer(3, 0x77);
    // SAFETY: inline; the memory is not written until it is fetched.
    unsafe { sender.send.post(1, SendMessage::new(offer).signaled()) }.unwrap();
    let TagCompletion::Matched(matched) = matcher.wait() else { panic!() };
    assert_eq!((matched.id, matched.header), (6, Some(TagHeader::rendezvous(3).context(0x77))));
    let TagCompletion::Arrived(arrival) = matcher.wait() else { panic!() };
    assert_eq!((arrival.id, arrival.byte_len), (6, 50_000));
    assert_eq!(matcher.memory.to_vec(1 << 18, 50_000), body);
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
    let answer = sender.memory.sge(4096, 64).unwrap();
    let from = sender.memory.remote(0).unwrap();
    let offer = Rendezvous { from, length: 19 }.offer(9, 1);
    // SAFETY: the memory lives to the end; no code writes it until it is fetched.
    unsafe {
        sender.receive.post(5, answer).unwrap();
        sender.send.post(1, SendMessage::new(offer).signaled()).unwrap();
    }
    let (_, header, rest) = matcher.unexpected();
    assert_eq!(header, TagHeader::rendezvous(9).context(1));
    let from = Rendezvous::parse(&rest).unwrap();
    let into = matcher.memory.sge(1 << 18, from.length as usize).unwrap();
    // SAFETY: the memory lives to the end, and is read only after the READ. The answer waits for
    // it.
    unsafe {
        send.post(1, RdmaRead::new(into, from.from)).unwrap();
        send.post(2, SendMessage::new(header.finished().alone()).signaled().fenced()).unwrap();
    }
    let Completion::Send(done) = wait(&mut reads, &mut send) else { panic!() };
    assert_eq!((done.id, matcher.memory.to_vec(1 << 18, 19)), (2, b"fetched by software".to_vec()));
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
    let full = TagError::ListFull { entries: CAPACITY.tags };
    assert_eq!(matcher.append(99, Tag::any()), Err(full));
    senders[0].eager(TagHeader::eager(4), b"room");
    assert_eq!(matcher.append(99, Tag::any()), Err(full), "nobody has seen it");
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
    assert!(
        matches!(full, TagError::Post(PostError::QueueFull { .. } | PostError::CqFull { .. })),
        "{full:?}"
    );
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
    let changes = SendConfig { requests: 16, register: RegisterUse::Shared, ..Default::default() };
    let config = TagConfig { receives: ReceiveConfig { receives: 4 }, changes };
    let mut tags = TmSrq::new(&srq, &mut completions, config).unwrap();
    assert_eq!(tags.capacity(), 6);
    let entry = TagReceive::new(Tag::any(), Sge::new(0, 0, 0));
    for id in 0..6 {
        // SAFETY: the request names no memory.
        unsafe { tags.append(id, entry) }.unwrap();
    }
    // SAFETY: the request names no memory.
    assert_eq!(unsafe { tags.append(6, entry) }, Err(TagError::ListFull { entries: 6 }));
}
