//! Tests of the two versions of RoCE.

use std::cell::RefCell;
use std::rc::Rc;

use super::datagram::{datagram, datagrams};
use super::side::{Post, Side};
use super::traffic::noise;
use super::{Pair, Setup};
use crate::card::Link;
use crate::clock::Random;
use crate::wire::RoceVersion::{self, V1, V2};

const WRITE: u8 = 0x08;
/// Offset in the region that data goes to.
const TO: u64 = 256 << 10;
const GRH: usize = 40;

/// Two sides, each with a GID of this version.
fn pair(setup: Setup, versions: [RoceVersion; 2]) -> Pair {
    let mut sides = [0, 1].map(|index| {
        let mut side = Side::new(setup, index);
        side.rig.card.identity.gids[0].version = versions[index];
        side
    });
    Pair::connect(&mut sides, [setup; 2]);
    Pair::between(sides)
}

/// Posts a datagram to the other side. Returns the kind of header in the CQE and the room for the header,
/// if it arrives.
fn arrives(versions: [RoceVersion; 2]) -> Option<(u32, Vec<u8>)> {
    let setup = Setup { link: Link::Roce, ..datagrams() };
    let mut pair = pair(setup, versions);
    let post = datagram(&pair, setup, 8);
    let [own, peer] = &mut pair.sides;
    peer.receive(&[(TO, 100, peer.key)]);
    let index = own.post(&post);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    let cqe = pair.sides[1].poll(1)?;
    Some((cqe.source.1 >> 24 & 0xf, pair.sides[1].get(TO, GRH)))
}

#[test]
fn packets_of_version_1_have_a_grh_behind_the_ethernet_header() {
    let setup = Setup { link: Link::Roce, ..Setup::default() };
    let mut pair = pair(setup, [V1; 2]);
    let frames = Rc::new(RefCell::new(Vec::new()));
    let seen = frames.clone();
    pair.drop = Box::new(move |_, frame| {
        seen.borrow_mut().push(frame.clone());
        false
    });
    let bytes = noise(&mut Random::seeded(3), 3000);
    let [own, peer] = &mut pair.sides;
    own.put(0, &bytes);
    let mut write = Post::new(WRITE);
    write.remote = (Side::address(TO), peer.key);
    write.data = vec![(0, 3000, own.key)];
    let index = own.post(&write);
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    assert_eq!(pair.sides[1].get(TO, 3000), bytes);
    let frames = frames.borrow();
    assert_eq!(frames.len(), 4, "three packets and an acknowledge");
    for frame in &*frames {
        assert_eq!(frame.0[12..14], [0x89, 0x15]);
        assert!(frame.is_transport(Link::Roce));
        let grh = &frame.0[14..14 + GRH];
        // Version of IP, no mark of congestion, bytes that follow, what follows.
        assert_eq!((grh[0] >> 4, grh[1] & 0x30), (6, 0));
        assert_eq!(u16::from_be_bytes([grh[4], grh[5]]) as usize, frame.0.len() - 14 - GRH);
        assert_eq!(grh[6], 0x1b);
    }
}

#[test]
fn a_datagram_of_version_1_shows_its_grh() {
    let (kind, header) = arrives([V1; 2]).expect("arrives");
    assert_eq!((kind, header[6]), (0, 0x1b));
    let (kind, header) = arrives([V2; 2]).expect("arrives");
    assert_eq!((kind, header[6]), (1, 17));
}

#[test]
fn a_port_drops_packets_of_the_version_that_its_gid_is_not_of() {
    assert_eq!(arrives([V1, V2]), None);
    assert_eq!(arrives([V2, V1]), None);
}
