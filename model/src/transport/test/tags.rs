//! Tests of tagged messages: matching, fetching, and messages that match no tag.

use super::side::{Cqe, Post, Side};
use super::{Pair, Setup};
use crate::object::State;

const SEND: u8 = 0x0a;
const EAGER: u8 = 3;
const RENDEZVOUS: u8 = 1;

/// Events that CQEs report.
const CONSUMED: u8 = 1;
const EXPECTED: u8 = 2;
const UNEXPECTED: u8 = 3;
const NO_TAG: u8 = 4;
const APPEND: u8 = 5;
const REMOVE: u8 = 6;
const NOOP: u8 = 7;
const CONSUMED_MESSAGE: u8 = 10;
const CANCELED: u8 = 12;

const COUNT: u8 = 1 << 6;
const REPORT: u8 = 1 << 7;

fn tagged() -> Setup {
    Setup { shared_receive: true, tags: true, ..Setup::default() }
}

/// Side 0 sends to side 1, whose queue matches tags, with receives at `RECEIVE`.
fn pair(seed: u64, rate: u64, mtu: u32) -> Pair {
    let setups = [Setup { mtu, ..Setup::default() }, Setup { mtu, ..tagged() }];
    let mut pair = Pair::of(setups, seed, rate);
    let peer = &mut pair.sides[1];
    for slot in 0..8 {
        peer.receive(&[(RECEIVE + slot * 4096, 4096, peer.key)]);
    }
    pair
}

/// Offsets of the memory of receives and of entries.
const RECEIVE: u64 = 100 << 10;
const ENTRY: u64 = 200 << 10;

/// A request for the list: operation, flags, index, count, tag, mask.
fn ask(what: u8, flags: u8, index: u16, count: u16, tag: u64, mask: u64) -> Post {
    let mut post = Post::new(0x28);
    post.signaled = false;
    post.address = [
        &[what << 4, flags][..],
        &index.to_be_bytes(),
        &[0; 2],
        &count.to_be_bytes(),
        &[0; 8],
        &tag.to_be_bytes(),
        &mask.to_be_bytes(),
    ]
    .concat();
    post
}

/// Appends an entry with `length` bytes at [`ENTRY`]; `next` is the index of the one after it.
fn append(side: &mut Side, tag: u64, next: u16, length: u32, known: u16) {
    let mut post = ask(1, COUNT | REPORT, next, known, tag, !0);
    post.data = vec![(ENTRY, length, side.key)];
    side.post(&post);
}

fn header(kind: u8, tag: u64) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0xaa, 0xbb, 0xcc, 0xdd][..], &tag.to_be_bytes()].concat()
}

/// Sends `bytes` that lie at the region's start.
fn send(side: &mut Side, bytes: &[u8]) -> u16 {
    side.put(0, bytes);
    let mut post = Post::new(SEND);
    // An entry of no bytes would be one of 2 GiB.
    if !bytes.is_empty() {
        post.data = vec![(0, bytes.len() as u32, side.key)];
    }
    side.post(&post)
}

/// Runs the pair until the tag-matching queue has a completion, and returns it.
fn next(pair: &mut Pair) -> Cqe {
    let mut found = None;
    assert!(pair.run(2000, |pair| {
        found = found.take().or_else(|| pair.sides[1].poll(1));
        found.is_some()
    }));
    found.unwrap()
}

fn event(pair: &mut Pair) -> (u8, u16) {
    let cqe = next(pair);
    let (event, index, _) = cqe.tagged.unwrap_or_else(|| panic!("{cqe:?}"));
    (event, index)
}

#[test]
fn a_message_goes_to_the_entry_that_it_matches() {
    let mut pair = pair(1, 0, 1024);
    append(&mut pair.sides[1], 0x77, 1, 500, 0);
    assert_eq!(event(&mut pair), (APPEND, 0));
    append(&mut pair.sides[1], 0x88, 2, 500, 0);
    assert_eq!(event(&mut pair), (APPEND, 1));
    let message = [&header(EAGER, 0x88)[..], b"for the second"].concat();
    send(&mut pair.sides[0], &message);
    let cqe = next(&mut pair);
    assert_eq!((cqe.opcode, cqe.length), (2, 14));
    assert_eq!(cqe.tagged, Some((CONSUMED_MESSAGE, 1, header(EAGER, 0x88).try_into().unwrap())));
    assert_eq!(pair.sides[1].get(ENTRY, 14), b"for the second");
    // What was taken is there no more; what is taken out neither.
    pair.sides[1].post(&ask(2, REPORT, 1, 0, 0, 0));
    let cqe = next(&mut pair);
    assert_eq!((cqe.opcode, cqe.tagged.unwrap().0, cqe.tagged.unwrap().2[0]), (6, REMOVE, 0));
    pair.sides[1].post(&ask(2, REPORT, 0, 0, 0, 0));
    let cqe = next(&mut pair);
    assert_eq!((cqe.tagged.unwrap().1, cqe.tagged.unwrap().2[0]), (0, 0x80));
    let message = [&header(EAGER, 0x77)[..], b"late"].concat();
    send(&mut pair.sides[0], &message);
    assert_eq!(event(&mut pair).0, UNEXPECTED);
    assert_eq!(pair.sides[1].get(RECEIVE, message.len()), message);
    // No completion of a send queue says anything of the list.
    assert_eq!(pair.sides[1].drain(0), []);
}

#[test]
fn a_message_of_several_packets_is_told_of_twice() {
    for (seed, rate) in [(1, 0), (2, 60), (3, 60)] {
        let mut pair = pair(seed, rate, 256);
        append(&mut pair.sides[1], 5, 1, 2000, 0);
        assert_eq!(event(&mut pair), (APPEND, 0));
        let body: Vec<u8> = (0..1500u32).map(|at| (at % 253) as u8).collect();
        send(&mut pair.sides[0], &[header(EAGER, 5), body.clone()].concat());
        let first = next(&mut pair);
        assert_eq!((first.opcode, first.tagged.unwrap().0), (6, CONSUMED));
        let second = next(&mut pair);
        assert_eq!((second.opcode, second.length), (2, 1500));
        assert_eq!(second.tagged, Some((EXPECTED, 0, [0; 16])));
        assert_eq!(pair.sides[1].get(ENTRY, 1500), body);
        assert!(pair.run(2000, |pair| pair.sides[0].poll(0).is_some()));
    }
}

#[test]
fn messages_for_no_tag_stop_new_entries_until_software_knows() {
    let mut pair = pair(1, 0, 1024);
    send(&mut pair.sides[0], &header(EAGER, 1));
    assert_eq!(event(&mut pair), (UNEXPECTED, 0));
    // Appended by a software that does not know yet: it is told the count, and the entry waits.
    append(&mut pair.sides[1], 2, 1, 100, 0);
    let cqe = next(&mut pair);
    assert_eq!((cqe.tagged.unwrap().0, &cqe.tagged.unwrap().2[4..6]), (APPEND, &[0, 1][..]));
    send(&mut pair.sides[0], &header(EAGER, 2));
    assert_eq!(event(&mut pair).0, UNEXPECTED);
    pair.sides[1].post(&ask(0, COUNT | REPORT, 0, 2, 0, 0));
    assert_eq!(event(&mut pair).0, NOOP);
    send(&mut pair.sides[0], &header(EAGER, 2));
    assert_eq!(event(&mut pair), (CONSUMED_MESSAGE, 0));
    // What has no tag, or no room for one, is no such message.
    for bytes in [header(0, 2), vec![7; 15], vec![]] {
        send(&mut pair.sides[0], &bytes);
        let cqe = next(&mut pair);
        assert_eq!((cqe.tagged.unwrap().0, cqe.length), (NO_TAG, bytes.len() as u32));
    }
    append(&mut pair.sides[1], 3, 2, 100, 2);
    assert_eq!(event(&mut pair).0, APPEND);
    send(&mut pair.sides[0], &header(EAGER, 3));
    assert_eq!(event(&mut pair), (CONSUMED_MESSAGE, 1));
}

/// A message of `length` bytes at `at` of side 0, for the receiver to fetch.
fn offer(tag: u64, at: u64, length: u32, key: u32) -> Vec<u8> {
    [
        &header(RENDEZVOUS, tag)[..],
        &Side::address(at).to_be_bytes(),
        &key.to_be_bytes(),
        &length.to_be_bytes(),
    ]
    .concat()
}

#[test]
fn a_long_message_is_fetched_and_its_sender_told() {
    for (seed, rate) in [(1, 0), (4, 60), (5, 60)] {
        let mut pair = pair(seed, rate, 256);
        let own = &mut pair.sides[0];
        let key = own.key;
        own.receive(&[(RECEIVE, 64, key)]);
        let body: Vec<u8> = (0..20_000u32).map(|at| (at % 241) as u8).collect();
        own.put(ENTRY, &body);
        append(&mut pair.sides[1], 9, 1, 20_000, 0);
        assert_eq!(event(&mut pair), (APPEND, 0));
        let message = offer(9, ENTRY, 20_000, key);
        send(&mut pair.sides[0], &message);
        let first = next(&mut pair);
        assert_eq!(first.tagged, Some((CONSUMED, 0, header(RENDEZVOUS, 9).try_into().unwrap())));
        let second = next(&mut pair);
        assert_eq!((second.length, second.tagged), (20_000, Some((EXPECTED, 0, [0; 16]))));
        assert_eq!(pair.sides[1].get(ENTRY, 20_000), body);
        let mut end = None;
        assert!(pair.run(2000, |pair| {
            end = end.take().or_else(|| pair.sides[0].poll(1));
            end.is_some()
        }));
        // Finished, in the words of the message's own header.
        assert_eq!((end.unwrap().length, pair.sides[0].get(RECEIVE, 16)), (16, header(2, 9)));
    }
}

#[test]
fn what_cannot_be_fetched_is_canceled() {
    let mut pair = pair(1, 0, 1024);
    append(&mut pair.sides[1], 9, 1, 100, 0);
    assert_eq!(event(&mut pair), (APPEND, 0));
    let message = offer(9, ENTRY, 100, 0xdead_be00);
    send(&mut pair.sides[0], &message);
    assert_eq!(event(&mut pair), (CONSUMED, 0));
    assert_eq!(event(&mut pair), (CANCELED, 0));
    assert_eq!(pair.sides[1].state(), State::Error);
    assert_eq!(pair.sides[1].drain(0), []);
}

#[test]
fn messages_that_are_too_long_for_their_entry_are_refused() {
    for bytes in [
        [header(EAGER, 9), vec![1; 11]].concat(),
        // Cut short, and of more than the entry has.
        header(RENDEZVOUS, 9),
        [header(RENDEZVOUS, 9), vec![0; 12], 11u32.to_be_bytes().to_vec()].concat(),
    ] {
        let mut pair = pair(1, 0, 1024);
        append(&mut pair.sides[1], 9, 1, 10, 0);
        assert_eq!(event(&mut pair), (APPEND, 0));
        send(&mut pair.sides[0], &bytes);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(0, 0x12)]);
        assert_eq!(pair.sides[1].state(), State::Error);
        assert_eq!(pair.sides[1].get(ENTRY, 11), [0; 11]);
    }
}

#[test]
fn lists_are_of_queues_that_have_them_and_of_their_length() {
    // A ninth entry of eight.
    let mut pair = pair(1, 0, 1024);
    for index in 0..9 {
        append(&mut pair.sides[1], index, index as u16 + 1, 8, 0);
    }
    for index in 0..8 {
        assert_eq!(event(&mut pair), (APPEND, index));
    }
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(0), [(8, 0x02)]);
    // No queue that matches tags.
    let mut pair = Pair::new(Setup { shared_receive: true, ..Setup::default() });
    append(&mut pair.sides[1], 1, 1, 8, 0);
    pair.settle();
    assert_eq!(pair.sides[1].outcomes(0), [(0, 0x02)]);
}
