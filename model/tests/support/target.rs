//! The peer of most tests between processes: a role that holds stations and executes commands.

use super::role::{Player, hear, say};
use super::verbs::{Address, Device, LENGTH, Station, Timing};

/// Makes stations as asked (`make`, `make-on-demand`), connects them (`connect INDEX ADDRESS`), and is written to;
/// writes until it is killed (`stream INDEX`), takes a buffer away (`unmap INDEX`).
pub fn target() -> i32 {
    let device = Device::open(0);
    let mut stations: Vec<Station> = Vec::new();
    let mut peers: Vec<Option<Address>> = Vec::new();
    while let Some(line) = hear() {
        let mut words = line.split_whitespace();
        let order = words.next().unwrap_or_default();
        let rest: Vec<&str> = words.collect();
        match order {
            "make" | "make-on-demand" => {
                let make = if order == "make" { Station::new } else { Station::on_demand };
                let station = make(device);
                say(station.address());
                stations.push(station);
                peers.push(None);
            }
            "connect" => {
                let index: usize = rest[0].parse().expect("an index");
                let peer: Address = rest[1..].join(" ").parse().expect("an address");
                stations[index].connect(peer, Timing::PATIENT);
                peers[index] = Some(peer);
                say("connected");
            }
            // Until it is killed.
            "stream" => {
                let index: usize = rest[0].parse().expect("an index");
                let (station, peer) = (&stations[index], peers[index].expect("connected"));
                for turn in 1..=u64::MAX {
                    station.put(0, &turn.to_ne_bytes());
                    station.write(turn, 0, 16384, peer);
                    station.expect(turn);
                }
            }
            "unmap" => {
                let index: usize = rest[0].parse().expect("an index");
                stations[index].remap(0..LENGTH, false);
                say("unmapped");
            }
            other => panic!("no such order: {other}"),
        }
    }
    0
}

/// A new station of a player, and what this process needs to speak to it.
pub fn make(player: &mut Player) -> Address {
    player.tell("make");
    player.hear().parse().expect("an address")
}

/// Connects a station of this process with one of a player.
pub fn meet(station: &Station, player: &mut Player, index: usize, timing: Timing) -> Address {
    let peer = make(player);
    introduce(station, player, (index, peer), timing)
}

/// The same with a station whose buffer is registered on demand.
pub fn meet_on_demand(
    station: &Station,
    player: &mut Player,
    index: usize,
    timing: Timing,
) -> Address {
    player.tell("make-on-demand");
    let peer = player.hear().parse().expect("an address");
    introduce(station, player, (index, peer), timing)
}

/// Connects a station of this process with one that the player has.
pub fn introduce(
    station: &Station,
    player: &mut Player,
    (index, peer): (usize, Address),
    timing: Timing,
) -> Address {
    player.tell(format_args!("connect {index} {}", station.address()));
    assert_eq!(player.hear(), "connected");
    station.connect(peer, timing);
    peer
}

/// WRITEs and READs back.
#[track_caller]
pub fn reach(station: &Station, peer: Address) {
    let message: Vec<u8> = (0..5000u32).map(|n| ((n * 11) >> 2) as u8).collect();
    station.put(0, &message);
    station.write(1, 0, message.len(), peer);
    station.expect(1);
    station.put(0, &vec![0; message.len()]);
    station.read(2, 0, message.len(), peer);
    station.expect(2);
    assert_eq!(station.get(0, message.len()), message);
}
