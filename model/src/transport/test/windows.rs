//! Tests of memory windows: bound by a send queue, used by the peer, invalidated from either side.

use mlx5_sys::ifc::{Field, create_mkey_in, mkc, opcode};

use super::side::{Post, REGION, Side};
use super::{Pair, Setup, dynamic, xrc};
use crate::command::test::Command;
use crate::object::{Service, State};

const WRITE: u8 = 0x08;
const SEND_INVALIDATE: u8 = 0x01;
const READ: u8 = 0x10;
const FAA: u8 = 0x12;
const UMR: u8 = 0x25;
/// CQE opcode of a SEND with invalidate.
const CQE_SEND_INVALIDATE: u8 = 4;

const LOCAL_OPERATION: u8 = 0x02;
const FLUSHED: u8 = 0x05;
const BIND_ERROR: u8 = 0x06;
const LOCAL_ACCESS: u8 = 0x11;
const REMOTE_ACCESS: u8 = 0x13;

/// Offset of the windows in the region, and their length.
pub const AT: u64 = 0x4000;
pub const LENGTH: u32 = 0x2000;

/// Makes a window of a side, free.
pub fn window(side: &mut Side) -> u32 {
    let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let create = Command::new(opcode::CREATE_MKEY, 0x110)
        .set(field(mkc::FREE), 1u64)
        .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 4u64)
        .set(field(mkc::PD), side.rig.pd)
        .set(field(mkc::UMR_EN), 1u64)
        .set(field(mkc::LR), 1u64)
        .set(field(mkc::ACCESS_MODE_1_0), 2u64)
        .set(field(mkc::EN_RINVAL), 1u64)
        .set(field(mkc::QPN), 0xff_ffffu64)
        .set(field(mkc::MKEY_7_0), 0x41u64);
    side.rig.mkey(&create)
}

/// A UMR: flags, fields that change, key, queue pair, context's first word, start, length, list.
struct Change {
    flags: u8,
    mask: u64,
    variant: u32,
    qp: u32,
    first: u32,
    start: u64,
    length: u64,
    klm: Option<(u32, u32, u64)>,
}

impl Change {
    fn post(&self, key: u32) -> Post {
        let mut bytes = vec![self.flags, 0, 0, 0];
        bytes.extend(if self.klm.is_some() { 4u16 } else { 0 }.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(self.mask.to_be_bytes());
        bytes.resize(48, 0);
        bytes.extend(self.first.to_be_bytes());
        bytes.extend((self.qp << 8 | self.variant).to_be_bytes());
        bytes.extend([0; 8]);
        bytes.extend(self.start.to_be_bytes());
        bytes.extend(self.length.to_be_bytes());
        bytes.resize(48 + 64, 0);
        if let Some((length, key, address)) = self.klm {
            bytes.extend(length.to_be_bytes());
            bytes.extend(key.to_be_bytes());
            bytes.extend(address.to_be_bytes());
            bytes.resize(48 + 128, 0);
        }
        let mut post = Post::new(UMR);
        post.address = bytes;
        post.immediate = key;
        post
    }
}

/// The WQE that libmlx5 posts to bind a type 2 window: read, write and atomics, for one queue pair.
pub fn bind(side: &Side, key: u32) -> Post {
    bind_to(side, key, side.key, (AT, LENGTH))
}

/// The same over bytes of a region: offset and length.
fn bind_to(side: &Side, key: u32, region: u32, (at, length): (u64, u32)) -> Post {
    Change {
        flags: 0xb0,
        mask: 1 | 1 << 6 | 1 << 13 | 1 << 14 | 0xf << 18 | 1 << 29,
        variant: (key & 0xff) + 1,
        qp: side.qp,
        first: 0x7800,
        start: Side::address(at),
        length: length.into(),
        klm: Some((length, region, Side::address(at))),
    }
    .post(key)
}

/// The WQE that libmlx5 posts to invalidate a window.
fn unbind(key: u32) -> Post {
    Change {
        flags: 0x98,
        mask: 1 << 13 | 1 << 14 | 1 << 29,
        variant: 0,
        qp: 0xff_ffff,
        first: 1 << 30,
        start: 0,
        length: 0,
        klm: None,
    }
    .post(key)
}

fn remote(side: &Side, opcode: u8, offset: u64, length: u32, key: u32) -> Post {
    let mut post = Post::new(opcode);
    post.data = vec![(0, length, side.key)];
    post.remote = (Side::address(offset), key);
    post
}

#[test]
fn a_peer_reaches_what_a_window_is_bound_to() {
    let mut pair = Pair::new(Setup::default());
    let [_, peer] = &mut pair.sides;
    let free = window(peer);
    let bound = free + 1;
    let index = peer.post(&bind(peer, free));
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.outcomes(0), [(index, 0)]);
    let bytes: Vec<u8> = (0..LENGTH).map(|i| (i % 251) as u8).collect();
    own.put(0, &bytes);
    own.post(&remote(own, WRITE, AT, LENGTH, bound));
    let mut read = remote(own, READ, AT + 100, 3000, bound);
    read.data = vec![(0x8000, 3000, own.key)];
    own.post(&read);
    let mut add = remote(own, FAA, AT + 8, 8, bound);
    add.operands = (1, 0);
    add.data = vec![(0x9000, 8, own.key)];
    own.post(&add);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert!(own.drain(0).iter().all(|cqe| cqe.syndrome == 0));
    assert_eq!(own.get(0x8000, 3000), bytes[100..3100]);
    assert_eq!(own.get(0x9000, 8), bytes[8..16]);
    assert_eq!(peer.get(AT, 8), bytes[..8]);
    assert_eq!(peer.get(AT + 16, LENGTH as usize - 16), bytes[16..]);
    let sum = u64::from_le_bytes(bytes[8..16].try_into().unwrap()) + 1;
    assert_eq!(peer.get(AT + 8, 8), sum.to_le_bytes());
    // Right behind the window.
    let last = own.post(&remote(own, WRITE, AT + 1, LENGTH, bound));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(last, REMOTE_ACCESS)]);
}

#[test]
fn a_window_that_was_invalidated_grants_nothing() {
    // By its own side, and by the peer.
    for from_afar in [false, true] {
        let mut pair = Pair::new(Setup { mtu: 256, ..Setup::default() });
        let [own, peer] = &mut pair.sides;
        let free = window(peer);
        let bound = free + 1;
        peer.post(&bind(peer, free));
        own.post(&remote(own, WRITE, AT, 8, bound));
        peer.receive(&[(0, 1024, peer.key)]);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        own.outcomes(0);
        peer.outcomes(0);
        if from_afar {
            let mut post = Post::new(SEND_INVALIDATE);
            post.data = vec![(0, 1000, own.key)];
            post.immediate = bound;
            own.post(&post);
        } else {
            peer.post(&unbind(bound));
        }
        pair.settle();
        let [own, peer] = &mut pair.sides;
        if from_afar {
            let cqe = peer.poll(1).expect("received");
            assert_eq!((cqe.opcode, cqe.length, cqe.syndrome), (CQE_SEND_INVALIDATE, 1000, 0));
            assert_eq!(cqe.immediate, bound.to_be_bytes());
            assert_eq!(own.outcomes(0).len(), 1);
        } else {
            assert_eq!(peer.outcomes(0).len(), 1);
        }
        // It may be bound again, under another key.
        let again = if from_afar { bound } else { bound & !0xff };
        peer.post(&bind(peer, again));
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(peer.drain(0).iter().map(|cqe| cqe.syndrome).collect::<Vec<_>>(), [0]);
        own.post(&remote(own, WRITE, AT, 8, again + 1));
        pair.settle();
        let [own, _] = &mut pair.sides;
        assert!(own.drain(0).iter().all(|cqe| cqe.syndrome == 0));
        let index = own.post(&remote(own, WRITE, AT, 8, bound + 7));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, REMOTE_ACCESS)]);
    }
}

#[test]
fn a_peer_may_not_invalidate_what_is_not_bound_to_its_queue_pair() {
    for which in 0..3 {
        let mut pair = Pair::new(Setup::default());
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(0, 64, peer.key)]);
        peer.receive(&[(0, 64, peer.key)]);
        let key = match which {
            // A region, an unknown key, and a window of another queue pair.
            0 => peer.key,
            1 => 0x0dea_d000,
            _ => {
                let free = window(peer);
                let mut post = bind(peer, free);
                post.address[48 + 6] ^= 1;
                peer.post(&post);
                free + 1
            }
        };
        let mut post = Post::new(SEND_INVALIDATE);
        post.data = vec![(0, 8, own.key)];
        post.immediate = key;
        pair.settle();
        let index = pair.sides[0].post(&post);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(index, REMOTE_ACCESS)]);
        assert_eq!(peer.outcomes(1), [(0, LOCAL_ACCESS), (1, FLUSHED)]);
        assert_eq!(peer.state(), State::Error);
    }
}

#[test]
fn a_binding_that_is_refused_fails_its_queue_pair() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    let free = window(own);
    let first = own.write_to(0, 64, peer.key);
    let second = own.post(&bind(own, free));
    // Bound already.
    let third = own.post(&bind(own, free + 1));
    let fourth = own.write_to(0, 64, peer.key);
    pair.settle();
    let [own, peer] = &mut pair.sides;
    let expected = [(first, 0), (second, 0), (third, BIND_ERROR), (fourth, FLUSHED)];
    assert_eq!(own.outcomes(0), expected);
    assert_eq!(own.state(), State::Error);
    assert_eq!(peer.state(), State::Rts);

    let mut pair = Pair::new(Setup::default());
    let mut malformed = bind(&pair.sides[0], 0x4100);
    malformed.address[0] |= 1;
    let index = pair.sides[0].post(&malformed);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, LOCAL_OPERATION)]);
}

/// Devices do not look at the region when they bind (evidence E150).
#[test]
fn a_window_beyond_its_region_or_rights_is_bound_and_grants_nothing_there() {
    const END: u64 = REGION as u64;
    let read_only = |side: &mut Side| {
        side.another_key(|key| {
            key.set(mkc::LW.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY), false)
        })
    };
    // What the window is over, and the bytes of a WRITE from its start that are granted.
    for (is_read_only, at, granted) in [(false, END - 64, 64), (true, AT, 0)] {
        let mut pair = Pair::new(Setup::default());
        let peer = &mut pair.sides[1];
        let free = window(peer);
        let region = if is_read_only { read_only(peer) } else { peer.key };
        let post = bind_to(peer, free, region, (at, 128));
        let index = peer.post(&post);
        pair.settle();
        assert_eq!(pair.sides[1].outcomes(0), [(index, 0)], "the binding");
        if granted > 0 {
            let index = pair.sides[0].write_to(at, granted, free + 1);
            pair.settle();
            assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
        }
        let index = pair.sides[0].write_to(at, granted + 1, free + 1);
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, REMOTE_ACCESS)]);
    }
}

#[test]
fn a_binding_happens_once_whatever_is_lost() {
    for seed in 0..20 {
        let mut pair = Pair::lossy(Setup { mtu: 256, ..Setup::default() }, seed, 60);
        let mut expected = [vec![], vec![]];
        for (index, expected) in expected.iter_mut().enumerate() {
            let (side, key) = (index, pair.sides[1 - index].key);
            let own = &mut pair.sides[side];
            let mut free = window(own);
            for _ in 0..3 {
                expected.push((own.write_to(0x8000, 3000, key), 0));
                expected.push((own.post(&bind(own, free)), 0));
                let mut read = remote(own, READ, 0x8000, 2000, key);
                read.data = vec![(0x1_0000, 2000, own.key)];
                expected.push((own.post(&read), 0));
                let mut end = unbind(free + 1);
                end.fence = 4;
                expected.push((own.post(&end), 0));
                free &= !0xff;
            }
        }
        let mut got = [vec![], vec![]];
        let done = pair.run(4000, |pair| {
            for (side, got) in pair.sides.iter_mut().zip(&mut got) {
                got.extend(side.outcomes(0));
            }
            got.iter().all(|got| got.len() == 12)
        });
        assert!(done, "seed {seed}: {got:?}");
        assert_eq!(got, expected, "seed {seed}");
    }
}

#[test]
fn a_fenced_change_waits_for_answers() {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    let free = window(own);
    own.post(&bind(own, free));
    own.rig.card.pump();
    // The answer comes to memory behind the window, which goes when it is there.
    let mut read = remote(own, READ, 0, 64, peer.key);
    read.data = vec![(AT, 64, free + 1)];
    own.post(&read);
    let mut end = unbind(free + 1);
    end.fence = 4;
    own.post(&end);
    peer.put(0, &[7; 64]);
    pair.settle();
    let [own, _] = &mut pair.sides;
    assert_eq!(own.outcomes(0).iter().map(|(_, syndrome)| *syndrome).collect::<Vec<_>>(), [0; 3]);
    assert_eq!(own.get(AT, 64), [7; 64]);
}

#[test]
fn unreliable_connections_bind_and_do_not_invalidate() {
    let setup = Setup { service: Service::Uc, ..Setup::default() };
    let mut pair = Pair::new(setup);
    let [own, peer] = &mut pair.sides;
    let free = window(peer);
    let index = peer.post(&bind(peer, free));
    own.put(0, b"through the window");
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.outcomes(0), [(index, 0)]);
    own.post(&remote(own, WRITE, AT, 18, free + 1));
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.get(AT, 18), b"through the window");
    own.drain(0);
    let index = peer.post(&bind(peer, free + 1));
    pair.settle();
    let [own, peer] = &mut pair.sides;
    assert_eq!(peer.outcomes(0), [(index, BIND_ERROR)]);
    assert_eq!(peer.state(), State::SqError);
    let mut post = Post::new(SEND_INVALIDATE);
    post.immediate = free + 1;
    let index = own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, LOCAL_OPERATION)]);
}

/// Makes a request of an opcode, with so many bytes.
type Ask = Box<dyn Fn(&Pair, u8, u32) -> Post>;

/// On extended reliable connections and dynamic ones: the pair, and requests that name the other side.
fn addressed() -> [(Pair, Ask); 2] {
    let setup = Setup { mtu: 256, ..Setup::default() };
    let dynamic = dynamic::pair(Setup { mtu: 256, ..dynamic::setup() });
    let (xrc, target) = (xrc::pair(setup), dynamic.1);
    let srq = xrc::srq(&xrc);
    [
        (xrc, Box::new(move |pair, code, size| xrc::request(&pair.sides[0], code, size, srq))),
        (dynamic.0, Box::new(move |pair, code, size| dynamic::request(pair, code, size, target))),
    ]
}

#[test]
fn requests_that_name_their_destination_invalidate_there() {
    for (mut pair, request) in addressed() {
        let invalidates = mkc::EN_RINVAL.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let key = pair.sides[1].another_key(|command| command.set(invalidates, 1u64));
        // In one packet and in several.
        for (size, key, syndrome) in [(100, key, 0), (1000, key, REMOTE_ACCESS)] {
            let mut write = request(&pair, WRITE, 8);
            write.remote = (Side::address(AT), key);
            let mut post = request(&pair, SEND_INVALIDATE, size);
            post.immediate = key;
            let [own, peer] = &mut pair.sides;
            peer.receive(&[(0, 1024, peer.key)]);
            if syndrome == 0 {
                own.post(&write);
            }
            let index = own.post(&post);
            pair.settle();
            let [own, peer] = &mut pair.sides;
            assert_eq!(own.outcomes(0).last(), Some(&(index, syndrome)));
            let cqe = peer.poll(1).expect("received");
            if syndrome != 0 {
                assert_eq!(cqe.syndrome, LOCAL_ACCESS);
                continue;
            }
            assert_eq!((cqe.opcode, cqe.length, cqe.syndrome), (CQE_SEND_INVALIDATE, size, 0));
            assert_eq!(cqe.immediate, key.to_be_bytes());
        }
    }
    for (mut pair, request) in addressed() {
        let invalidates = mkc::EN_RINVAL.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
        let key = pair.sides[1].another_key(|command| command.set(invalidates, 1u64));
        let mut post = request(&pair, SEND_INVALIDATE, 1000);
        post.immediate = key;
        let mut write = request(&pair, WRITE, 8);
        write.remote = (Side::address(AT), key);
        let [own, peer] = &mut pair.sides;
        peer.receive(&[(0, 1024, peer.key)]);
        let (first, second) = (own.post(&post), own.post(&write));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(first, 0), (second, REMOTE_ACCESS)]);
    }
}

#[test]
fn changes_of_keys_have_no_destination() {
    for (mut pair, request) in addressed() {
        let own = &mut pair.sides[0];
        let free = window(own);
        own.put(AT, b"by the window");
        let bound = own.post(&bind(own, free));
        let mut write = request(&pair, WRITE, 0);
        write.data = vec![(AT, 13, free + 1)];
        write.remote = (Side::address(AT), pair.sides[1].key);
        let own = &mut pair.sides[0];
        let used = own.post(&write);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(bound, 0), (used, 0)]);
        assert_eq!(peer.get(AT, 13), b"by the window");
        let ended = own.post(&unbind(free + 1));
        let again = own.post(&unbind(free & !0xff));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(ended, 0), (again, BIND_ERROR)]);
        assert_eq!(pair.sides[0].state(), State::Error);
    }
}
