//! RoCEv2 over UDP between two hosts: programs of perftest.

#[path = "support/mod.rs"]
mod support;

mod network;

use mlx5_model as _;
use network::ROCE;
use network::world::{self, Host, World};
use support::role::play;
use support::{LIMIT, port};

#[test]
fn role() {
    play(&[("programs", programs), ("full", full)]);
}

/// Runs a verbs program as server on one host and as client on the other, and returns what the
/// client printed.
fn pair(world: &World, program: &str, arguments: &[&str]) -> String {
    let port = port::free();
    let side = |host: &Host, peer: Option<&str>| {
        let mut command = host.command(ROCE.command(program));
        command.args(["-p", &port]).args(arguments).args(peer);
        support::process::Process::start(program, command)
    };
    let mut server = side(&world.here, None);
    server.wait_until_it_listens(&port, LIMIT);
    let client = side(&world.there, Some(&world.here.address)).finish(LIMIT);
    let server = server.finish(LIMIT);
    for side in [&server, &client] {
        side.assert_success();
        assert!(!side.stderr.contains("ompletion with error"), "{side}");
        assert!(!side.stderr.contains("mlx5-model:"), "{side}");
    }
    client.stdout
}

/// perftest between hosts, over addresses of every kind.
fn programs() -> i32 {
    let world = World::joined();
    let run = |gid: &str, program: &str, arguments: &[&str]| {
        let arguments = [&["-F", "-x", gid], arguments].concat();
        let text = pair(&world, program, &arguments);
        assert!(text.contains(&format!("GID index       : {gid}")), "{text}");
    };
    // Of RoCE v2: the MAC's link-local address, IPv4, IPv6.
    for gid in ["1", "3", "5"] {
        run(gid, "ib_write_bw", &["-n", "100", "-s", "65536"]);
        run(gid, "ib_send_bw", &["-c", "UD", "-n", "200", "-s", "1024"]);
    }
    run("3", "ib_send_lat", &["-n", "100", "-s", "5000"]);
    run("3", "ib_read_bw", &["-n", "100", "-s", "65536"]);
    run("3", "ib_atomic_lat", &["-n", "100"]);
    run("3", "ib_write_bw", &["-n", "50", "-s", "8192", "-q", "8", "-b"]);
    0
}

#[test]
fn programs_of_two_hosts_reach_each_other() {
    world::play("programs");
}

/// Senders wait while a slow interface has no room.
fn full() -> i32 {
    let world = World::joined();
    // 20 Mbit/s, and a queue that holds more than a socket's buffer.
    world.here.slow_down("20mbit");
    let text =
        pair(&world, "ib_write_bw", &["-F", "-x", "1", "-n", "30", "-s", "65536", "-q", "4"]);
    assert!(text.contains("65536"), "{text}");
    assert_eq!(world.here.dropped(), 0);
    0
}

#[test]
fn full_interface_makes_senders_wait() {
    world::play("full");
}
