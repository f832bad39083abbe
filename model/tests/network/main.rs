//! RoCEv2 over UDP between two network namespaces joined by virtual Ethernet, as between two hosts.
//!
//! The tests run in a namespace that they make ([`world`]); with no right to make one, they fail
//! and say what to allow. [`wire`] is a wire of the test's own, which loses, repeats and reorders
//! packets, and looks at each.

#[path = "../support/mod.rs"]
mod support;
mod wire;
mod world;

use std::time::Duration;

use mlx5_model as _;
use support::role::{Player, hear, play, say};
use support::verbs::{Address, Device, LENGTH, Station, Timing};
use support::{LIMIT, Model, port};
use wire::{Faults, Wire};
use world::{Host, World};

const ROCE: Model = Model { roce: true, mode: None };

#[test]
fn role() {
    play(&[
        ("programs", programs),
        ("full", full),
        ("lossy", lossy),
        ("impaired", impaired),
        ("pure", pure),
        ("shared", shared),
        ("taken", taken),
        ("talker", talker),
    ]);
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
    // The MAC's link-local address, IPv4, IPv6.
    for gid in ["0", "1", "2"] {
        run(gid, "ib_write_bw", &["-n", "100", "-s", "65536"]);
        run(gid, "ib_send_bw", &["-c", "UD", "-n", "200", "-s", "1024"]);
    }
    run("1", "ib_send_lat", &["-n", "100", "-s", "5000"]);
    run("1", "ib_read_bw", &["-n", "100", "-s", "65536"]);
    run("1", "ib_atomic_lat", &["-n", "100"]);
    run("1", "ib_write_bw", &["-n", "50", "-s", "8192", "-q", "8", "-b"]);
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

/// Messages each way over the lossy wire.
const MESSAGES: usize = 100_000;

/// The faults that the transport repairs.
fn lossy() -> i32 {
    let world = World::apart();
    let faults = Faults { loss: 10, duplicate: 50, reorder: 100, mark: 0 };
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

/// The wire sees what the kernel sends: the IP header that the ICRC covers.
fn pure() -> i32 {
    let world = World::apart();
    // A mark on one packet in ten is answered by notifications.
    let faults = Faults { loss: 0, duplicate: 0, reorder: 0, mark: 100 };
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

/// Bytes of a message, more than one packet.
const MESSAGE: usize = 1500;
/// Messages on the way.
const DEPTH: usize = 16;

/// The bytes of a message, which no other has.
fn content(number: usize) -> Vec<u8> {
    let word = |n: usize| (number.wrapping_mul(0x9e37_79b9) ^ n.wrapping_mul(0x85eb_ca6b)) as u32;
    let words = (0..MESSAGE / 4).map(|n| if n == 0 { number as u32 } else { word(n) });
    words.flat_map(u32::to_ne_bytes).collect()
}

/// Sends numbered messages to another process, and checks those that it gets.
fn talker() -> i32 {
    let device = Device::open(0);
    let mut index = 1;
    while let Some(line) = hear() {
        if line == "ipv6" {
            index = 2;
            continue;
        }
        if line == "faults" {
            let tallies = mlx5_model::fault_tallies(0);
            let struck: Vec<String> =
                tallies.iter().map(|tally| tally.struck.to_string()).collect();
            say(struck.join(" "));
            continue;
        }
        let messages: usize = line.parse().expect("a number of messages");
        let station = Station::new(device);
        say(format!("{}|{}", station.address(), world::hex(&world::gid(device, index))));
        let peer = hear().expect("a peer");
        let (address, gid) = peer.split_once('|').expect("address and GID");
        let address: Address = address.parse().expect("an address");
        // 268 ms, so that a lost acknowledge does not take long. The peer is given up after 2.1 s: on a
        // busy machine it may wait for a processor for more than a second.
        let timing = Timing { code: 16, retries: 7 };
        station.connect_over(address, timing, Some((index as u8, world::unhex(gid))));
        for number in 0..DEPTH {
            station.receive(number as u64, number * MESSAGE, MESSAGE);
        }
        say("ready");
        assert_eq!(hear().as_deref(), Some("go"));
        talk(&station, messages);
        say("done");
        // The peer may still wait for acknowledges.
        assert_eq!(hear().as_deref(), Some("both done"));
        station.destroy();
    }
    0
}

/// Identifiers of sends are above those of receives.
const SEND: u64 = 1 << 32;

fn talk(station: &Station, messages: usize) {
    let out = DEPTH * MESSAGE;
    assert!(2 * out <= LENGTH);
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    while sent < messages || received < messages {
        while posted < messages && posted < sent + DEPTH {
            let at = out + posted % DEPTH * MESSAGE;
            station.put(at, &content(posted));
            station.send(SEND + posted as u64, at, MESSAGE);
            posted += 1;
        }
        let done = station.wait();
        assert_eq!(done.status, 0, "{done:?} after {sent} sent and {received} received");
        if done.id >= SEND {
            assert_eq!(done.id, SEND + sent as u64, "completions are in order");
            sent += 1;
            continue;
        }
        assert_eq!((done.id, done.length), (received as u64, MESSAGE as u32));
        let at = received % DEPTH * MESSAGE;
        assert_eq!(station.get(at, MESSAGE), content(received), "message {received}");
        received += 1;
        station.receive((received + DEPTH - 1) as u64, at, MESSAGE);
    }
}

/// How long a test may take in all.
const PATIENCE: Duration = Duration::from_secs(600);
