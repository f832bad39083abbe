//! RoCEv2 over UDP between two hosts: processes that share a port, ports that cannot be used, and
//! the headers of each packet.

#[path = "support/mod.rs"]
mod support;

mod network;

use mlx5_model as _;
use network::ROCE;
use network::wire::{Faults, Wire};
use network::world::{self, World};
use support::LIMIT;
use support::role::{Player, play};

#[test]
fn role() {
    play(&[("shared", shared), ("taken", taken), ("pure", pure), ("talker", network::talker)]);
}

/// Two processes of each host share the port, and one goes on when the other has ended.
fn shared() -> i32 {
    let world = World::joined();
    let mut first = [world.here.talker(), world.there.talker()];
    let mut second = [world.here.talker(), world.there.talker()];
    world::exchange(&mut first, 50);
    world::exchange(&mut second, 50);
    let [one, other] = first;
    // Without a farewell: a process that is killed.
    let mut one = one;
    one.kill();
    other.end_well();
    world::exchange(&mut second, 50);
    let [one, other] = second;
    one.end_well();
    other.end_well();
    0
}

#[test]
fn processes_share_a_port_and_survive_each_other() {
    world::play("shared");
}

/// Port 4791 belongs to another program.
fn taken() -> i32 {
    let world = World::joined();
    let address = world.here.address.as_str();
    let other = std::net::UdpSocket::bind((address, 4791)).expect("a free port");
    let mut command = world.here.command(ROCE.command("ibv_devinfo"));
    command.arg("-v");
    let output = support::process::Process::start("ibv_devinfo", command).finish(LIMIT);
    assert!(!output.status.success(), "{output}");
    for text in ["UDP port 4791 of", address, "ss -ulpn"] {
        assert!(output.stderr.contains(text), "{text}: {output}");
    }
    drop(other);
    for (network, text) in [
        ("udp:nowhere0", "no interface nowhere0"),
        ("udp:dummy", "is down: `ip link set dummy up`"),
        ("udp:bare", "has no IP address: `ip address add"),
    ] {
        let mut command = world.here.command(ROCE.command("ibv_devinfo"));
        command.env("MLX5_MODEL_NETWORK", network);
        let output = support::process::Process::start("ibv_devinfo", command).finish(LIMIT);
        assert!(output.stderr.contains(network) && output.stderr.contains(text), "{output}");
    }
    0
}

#[test]
fn unusable_interface_is_an_error_with_a_cure() {
    world::play("taken");
}

/// The wire sees what the kernel sends: the IP header that the ICRC covers.
fn pure() -> i32 {
    let world = World::apart();
    // A mark on one packet in ten is answered by notifications.
    let faults = Faults { loss: 0, duplicate: 0, reorder: 0, mark: 100, vlan: None };
    let wire = Wire::between(&world, faults, 2);
    let mut talkers = [world.here.talker(), world.there.talker()];
    world::exchange(&mut talkers, 500);
    talkers.each_mut().iter_mut().for_each(|talker| talker.tell("ipv6"));
    world::exchange(&mut talkers, 500);
    let seen = wire.end();
    assert!(seen.ipv4 > 1000 && seen.ipv6 > 1000, "{seen:?}");
    assert!(seen.marked > 100 && seen.notifications > 10, "{seen:?}");
    assert!(seen.ports.iter().all(|port| *port >= 0xc000), "{seen:?}");
    assert!(seen.ports.len() >= 2, "{seen:?}");
    talkers.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn packets_on_the_wire_have_the_headers_that_their_icrc_covers() {
    world::play("pure");
}
