//! Two hosts for the tests of RoCEv2 over UDP: network namespaces joined by virtual Ethernet.
//!
//! The tests run in a namespace that they make ([`world`]). If none may be made, they fail and say
//! what to allow. [`wire`] is a wire of the test's own, which loses, repeats and reorders packets,
//! and looks at each.

#![allow(dead_code, reason = "each executable needs a part")]

pub mod wire;
pub mod world;

use std::time::Duration;

use crate::support::Model;
use crate::support::role::{hear, say};
use crate::support::verbs::{Address, Device, LENGTH, Station, Timing};

pub const ROCE: Model = Model { roce: true, mode: None };

/// Messages each way of the tests over a bad wire.
pub const MESSAGES: usize = 100_000;

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

/// Sends numbered messages to another process, and checks the messages that arrive.
pub fn talker() -> i32 {
    let device = Device::open(0);
    // Of RoCE v2: behind the link-local address.
    let mut index = 3;
    while let Some(line) = hear() {
        if line == "ipv6" {
            index = 5;
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
pub const PATIENCE: Duration = Duration::from_secs(600);
