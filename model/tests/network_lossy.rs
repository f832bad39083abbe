//! RoCEv2 over UDP between two hosts: 100,000 messages each way over a wire that loses, repeats
//! and reorders packets.

#[path = "support/mod.rs"]
mod support;

mod network;

use mlx5_model as _;
use network::MESSAGES;
use network::wire::{Faults, Wire};
use network::world::{self, World};
use support::role::{Player, play};

#[test]
fn role() {
    play(&[("lossy", lossy), ("talker", network::talker)]);
}

/// The faults that the transport repairs.
fn lossy() -> i32 {
    let world = World::apart();
    let faults = Faults { loss: 10, duplicate: 50, reorder: 100, mark: 0, vlan: None };
    let wire = Wire::between(&world, faults, 1);
    let mut talkers = [world.here.talker(), world.there.talker()];
    world::exchange(&mut talkers, MESSAGES);
    let seen = wire.end();
    assert!(seen.lost > 1000 && seen.duplicated > 5000 && seen.reordered > 5000, "{seen:?}");
    talkers.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn messages_arrive_once_and_in_order_over_a_lossy_wire() {
    world::play("lossy");
}
