//! Errors of messages, entries and lists, refusals, and the queues beside a list.

use std::time::Instant;

use mlx5::cqe::{Completion, QueueKind, Status};
use mlx5::expert::{IncompleteReason, TagCompletion, TagConfig, TagError, TagReceive, TmSrq};
use mlx5::expert::{Rendezvous, Tag, TagHeader};
use mlx5::ring::{
    CqReader, PollError, PostError, QueueError, ReceiveConfig, ReceiveQueue, RegisterUse,
    SendConfig, SendQueue, Srq,
};
use mlx5::verbs::{QueuePair, SharedReceiveQueue};
use mlx5::wqe::{Inline, InlineGather, Remote, SendMessage, Sge};
use mlx5_sys::verbs::ibv_ops_flags;

use super::{CAPACITY, ENTRIES, Lines, Matcher, ROOM, Sender};
use rig::tags::{TagOperation, post_change};
use rig::{PATIENCE, refused};

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
    let sge = senders[0].memory.sge(0, 11).unwrap();
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
    let from = senders[1].memory.remote(0).unwrap();
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
    let into = Sge { lkey: 0xdead_be00, ..matcher.memory.sge(ENTRIES, ROOM).unwrap() };
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
    let into = Sge { lkey: 0xdead_be00, ..matcher.memory.sge(0, ROOM).unwrap() };
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
    let shared = SendConfig { register: RegisterUse::Shared, requests: 8, ..Default::default() };
    let mut send = SendQueue::new(&own, completions, shared).unwrap();
    let mut receive = ReceiveQueue::new(&peer, completions, ReceiveConfig { receives: 8 }).unwrap();
    let sge = matcher.memory.sge(1 << 18, 64).unwrap();
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
