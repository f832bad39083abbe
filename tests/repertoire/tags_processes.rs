//! Tag matching between two processes: eager, fetched and unmatched messages, in both directions at
//! a time.

use std::time::Instant;

use mlx5::connect::Connection;
use mlx5::cqe::Completion;
use mlx5::expert::{Rendezvous, Tag, TagHeader, TagKind};
use mlx5::expert::{TagCompletion, TagReceive};
use mlx5::verbs::QueuePair;
use mlx5::verbs::attr::CqeSize;
use mlx5::wqe::{InlineGather, SendMessage};

use super::processes::with_peer;
use super::tags::{Matcher, Sender};
use rig::{PATIENCE, Rig};

const MESSAGES: u64 = 60;
/// Bytes of a message that is fetched.
const LONG: usize = 20_000;

fn pattern(message: u64) -> Vec<u8> {
    (0..LONG as u64).map(|at| (at * 7 + message) as u8).collect()
}

/// Runs in both processes at the same time: each matches the messages of the other.
fn both(rig: &Rig, connection: &mut Connection) {
    let mut matcher = Matcher::new(rig, CqeSize::B64);
    let taker = QueuePair::builder(&rig.pd, &matcher.cq).max_send_wr(0);
    let taker = rig.init(taker.shared_receive_queue(&matcher.srq));
    matcher.tags.attach(&taker, &mut matcher.completions).unwrap();
    let cq = rig.cq(255);
    let qp = rig.init(QueuePair::builder(&rig.pd, &cq).max_inline_data(128));
    // Each one's sender meets the other one's taker.
    let (mine, own) = (rig.local.connection_data(&taker), rig.local.connection_data(&qp));
    let their_taker = connection.exchange(&mine).unwrap();
    let their_sender = connection.exchange(&own).unwrap();
    let taker = taker.rtr(&rig.local.rtr(&mine, &their_sender)).unwrap();
    let _taker = taker.rts(&rig.local.rts(&mine, &their_sender)).unwrap();
    let qp = qp.rtr(&rig.local.rtr(&own, &their_taker)).unwrap();
    let qp = qp.rts(&rig.local.rts(&own, &their_taker)).unwrap();
    let mut sender = Sender::new(rig, &cq, qp);
    for id in 0..8 {
        matcher.post(id);
    }
    for id in 0..8 {
        let answer = sender.memory.sge(100_000 + id as usize * 64, 64).unwrap();
        // SAFETY: the memory lives to the end.
        unsafe { sender.receive.post(id, answer) }.unwrap();
    }
    connection.barrier(1).unwrap();
    let into = matcher.memory.sge(1 << 18, LONG).unwrap();
    for message in 0..MESSAGES {
        // The turns of both are the same: the entry is there before its message is sent.
        let fetched = message % 3 == 2;
        if message % 3 != 0 {
            let entry = TagReceive::new(Tag::exact(message), into);
            // SAFETY: the memory lives to the end, and is read only when the message is there.
            unsafe { matcher.tags.append(message, entry) }.unwrap();
        }
        connection.barrier(2 * message as u8 + 2).unwrap();
        let header = TagHeader::eager(message).context(message as u32);
        // SAFETY: inline, or written again when the peer has told that it has it.
        unsafe {
            if fetched {
                sender.memory.write(0, &pattern(message));
                let from = sender.memory.remote(0).unwrap();
                let offer = Rendezvous { from, length: LONG as u32 };
                let offer = offer.offer(message, message as u32);
                sender.send.post(message, SendMessage::new(offer).signaled()).unwrap();
            } else {
                let (header, text) = (header.to_bytes(), format!("message {message}"));
                let bytes = [&header[..], text.as_bytes()];
                sender
                    .send
                    .post(message, SendMessage::new(InlineGather(&bytes)).signaled())
                    .unwrap();
            }
        }
        let (mut sent, mut told) = (false, !fetched);
        while !(sent && told) {
            match sender.wait() {
                Completion::Send(done) => sent = done.id == message,
                Completion::Receive(done) => {
                    let at = 100_000 + done.id as usize * 64;
                    let mut bytes = [0; 16];
                    sender.memory.read(at, &mut bytes);
                    let (header, _) = TagHeader::parse(&bytes).unwrap();
                    assert_eq!((header.kind, header.tag), (TagKind::Finished, message));
                    let answer = sender.memory.sge(at, 64).unwrap();
                    // SAFETY: the memory lives to the end.
                    unsafe { sender.receive.post(done.id, answer) }.unwrap();
                    told = true;
                }
                other => panic!("{other:?}"),
            }
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline);
            match matcher.wait() {
                TagCompletion::Matched(matched) => {
                    assert!(fetched && matched.id == message);
                    let header = TagHeader::rendezvous(message).context(message as u32);
                    assert_eq!(matched.header, Some(header));
                }
                TagCompletion::Arrived(arrival) => {
                    assert_eq!(arrival.id, message);
                    let bytes = matcher.memory.to_vec(1 << 18, arrival.byte_len as usize);
                    if fetched {
                        assert_eq!(bytes, pattern(message));
                    } else {
                        assert_eq!(bytes, format!("message {message}").into_bytes());
                        assert_eq!(arrival.header, Some(header));
                    }
                    break;
                }
                TagCompletion::Unexpected(done) => {
                    assert_eq!(message % 3, 0);
                    let (found, rest) = matcher.receive(done.id, done.byte_len as usize);
                    assert_eq!(found, header);
                    assert_eq!(rest, format!("message {message}").into_bytes());
                    matcher.post(done.id);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        connection.barrier(2 * message as u8 + 3).unwrap();
    }
    assert_eq!((matcher.tags.entries(), matcher.poll()), (0, None));
}

#[test]
fn two_processes_match_each_others_messages() {
    let both = |rig: Rig, mut connection| both(&rig, &mut connection);
    with_peer(two_processes_match_each_others_messages, both, both);
}
