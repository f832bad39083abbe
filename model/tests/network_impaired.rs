//! RoCEv2 over UDP between two hosts: 100,000 messages each way between ports that lose, repeat
//! and reorder packets.

#[path = "support/mod.rs"]
mod support;

mod network;

use mlx5_model as _;
use network::MESSAGES;
use network::world::{self, Host, World};
use support::role::{Player, play};

#[test]
fn role() {
    play(&[("impaired", impaired), ("talker", network::talker)]);
}

/// The same faults, made by the devices themselves.
fn impaired() -> i32 {
    let world = World::joined();
    let talker = |host: &Host, seed: u32| {
        let mut command = host.command(Player::command("talker"));
        let rules = format!("seed {seed}; out loss 1%; out duplicate 5%; out reorder 10%");
        command.env("MLX5_MODEL_FAULTS", rules);
        Player::start(command)
    };
    let mut talkers = [talker(&world.here, 1), talker(&world.there, 2)];
    world::exchange(&mut talkers, MESSAGES);
    for talker in &mut talkers {
        talker.tell("faults");
        let text = talker.hear();
        let struck: Vec<u64> =
            text.split(' ').map(|count| count.parse().expect("a count")).collect();
        let [lost, duplicated, reordered] = struck[..] else { panic!("three rules: {text}") };
        assert!(lost > 1000 && duplicated > 5000 && reordered > 5000, "{text}");
    }
    talkers.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn messages_arrive_once_and_in_order_between_impaired_ports() {
    world::play("impaired");
}
