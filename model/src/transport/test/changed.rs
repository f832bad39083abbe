//! WQEs that change behind their doorbell.

use mlx5_sys::ifc::qpc;

use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::clock::Random;
use crate::object::Qp;

const OLD: u8 = 0x11;
const NEW: u8 = 0x22;
/// Payload of WQEs of three blocks.
const LENGTH: usize = 100;

/// A WRITE of these bytes, which are in the WQE.
fn write(byte: u8, key: u32) -> Post {
    let mut post = Post::new(0x08);
    post.inline = Some(vec![byte; LENGTH]);
    post.remote = (Side::address(0), key);
    post
}

/// Rings the doorbell of a WRITE, and changes the WQE before its turn comes. Returns the bytes that
/// arrive.
fn changed(seed: Option<u64>, prepare: impl FnOnce(&mut Qp)) -> u8 {
    let mut pair = Pair::new(Setup::default());
    let [own, peer] = &mut pair.sides;
    let card = &mut own.rig.card;
    card.prefetch = seed.map(Random::seeded);
    prepare(card.objects.qps.get_mut(&own.qp).expect("a queue pair"));
    let index = own.post(&write(OLD, peer.key));
    own.sent = index;
    own.write(&write(NEW, peer.key));
    pair.settle();
    assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
    let bytes = pair.sides[1].get(0, LENGTH);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a WQE of one version: {bytes:?}");
    bytes[0]
}

/// Devices read WQEs ahead (evidence E164).
#[test]
fn a_wqe_that_changes_behind_its_doorbell_is_executed_in_either_version_by_seed() {
    assert_eq!(changed(None, |_| ()), NEW);
    let versions = || (0..16).map(|seed| changed(Some(seed), |_| ())).collect::<Vec<u8>>();
    let first = versions();
    assert!(first.contains(&OLD) && first.contains(&NEW), "{first:?}");
    assert_eq!(first, versions());
}

#[test]
fn the_wqes_of_a_steered_queue_are_read_when_they_are_enabled() {
    for seed in 0..16 {
        let steer = |qp: &mut Qp| {
            qpc::CD_SLAVE_SEND.set(&mut qp.context[..], 1);
            qp.sq.enabled = 8;
        };
        assert_eq!(changed(Some(seed), steer), NEW);
    }
}

#[test]
fn wqes_that_do_not_change_are_executed_as_ever() {
    let mut pair = Pair::new(Setup::default());
    pair.sides[0].rig.card.prefetch = Some(Random::seeded(0));
    // Twice round the ring. WQEs of three blocks go over its end.
    for round in 0..48 {
        let [own, peer] = &mut pair.sides;
        let index = own.post(&write(round, peer.key));
        pair.settle();
        assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
        assert_eq!(pair.sides[1].get(0, LENGTH), [round; LENGTH]);
        let own = &pair.sides[0];
        assert!(own.rig.card.objects.qps[&own.qp].sq.prefetched.len() <= 3);
    }
}
