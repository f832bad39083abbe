//! Ports on interfaces of the machine: addresses that come and go, and a VLAN that does not match.

#[path = "support/mod.rs"]
mod support;

mod network;

use std::fs;
use std::net::Ipv6Addr;
use std::process::Command;

use mlx5_model as _;
use mlx5_sys::verbs::*;
use network::wire::{Faults, Wire};
use network::world::{self, Host, World};
use support::LIMIT;
use support::role::{Player, hear, play, say};
use support::verbs::{Address, Device, Station, Timing};

#[test]
fn role() {
    play(&[
        ("same-vlan", same_vlan),
        ("other-vlan", other_vlan),
        ("prober", prober),
        ("moves", moves),
        ("mover", mover),
        ("ends", ends),
        ("watcher", watcher),
    ]);
}

/// A peer that does not answer is given up after 2.1 s. On a busy machine it may wait for a processor for more
/// than a second.
const TIMING: Timing = Timing { code: 16, retries: 7 };
const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";

/// Connects from the GID of an index to the peer's, and writes to its memory. Says how that ends.
fn prober() -> i32 {
    let device = Device::open(0);
    while let Some(line) = hear() {
        let index: u8 = line.parse().expect("an index");
        let station = Station::new(device);
        say(format!("{}|{}", station.address(), world::hex(&world::gid(device, index.into()))));
        let peer = hear().expect("a peer");
        let (address, gid) = peer.split_once('|').expect("address and GID");
        let address: Address = address.parse().expect("an address");
        station.connect_over(address, TIMING, Some((index, world::unhex(gid))));
        say("ready");
        if hear().as_deref() == Some("write") {
            station.write(1, 0, 64, address);
            say(station.wait().status);
        }
        station.destroy();
    }
    0
}

/// Has the first of two processes write to the second one's memory. Returns how that ends.
fn probe(ends: &mut [Player; 2], index: u8) -> ibv_wc_status::Type {
    ends.iter_mut().for_each(|end| end.tell(index));
    let addresses = ends.each_mut().map(Player::hear);
    let [one, other] = &mut *ends;
    one.tell(&addresses[1]);
    other.tell(&addresses[0]);
    ends.iter_mut().for_each(|end| assert_eq!(end.hear(), "ready"));
    let [one, other] = ends;
    one.tell("write");
    let status = one.hear_within(LIMIT).parse().expect("a status");
    other.tell("end");
    status
}

/// Two hosts of which each gets the other's packets with the tag of a VLAN, if one is given. They have no
/// interface of a VLAN.
fn meet(vlan: Option<u16>) -> ibv_wc_status::Type {
    let world = World::apart();
    let faults = Faults { loss: 0, duplicate: 0, reorder: 0, mark: 0, vlan };
    let wire = Wire::between(&world, faults, 1);
    let prober = |host: &Host| Player::start(host.command(Player::command("prober")));
    let mut ends = [prober(&world.here), prober(&world.there)];
    let status = probe(&mut ends, 3);
    ends.into_iter().for_each(Player::end_well);
    wire.end();
    status
}

fn same_vlan() -> i32 {
    assert_eq!(meet(None), ibv_wc_status::IBV_WC_SUCCESS);
    0
}

fn other_vlan() -> i32 {
    assert_eq!(meet(Some(5)), ibv_wc_status::IBV_WC_RETRY_EXC_ERR);
    0
}

#[test]
fn hosts_of_different_vlans_do_not_reach_each_other() {
    world::play("same-vlan");
    world::play("other-vlan");
}

/// Waits until the GID table has this address, or has not, and returns its index of RoCE v2. The device
/// tells of each change.
fn await_gid(device: Device, address: &str, there: bool) -> Option<u8> {
    let address: Ipv6Addr = address.parse().expect("an address");
    let text = |path: String| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    loop {
        let found = (0..16u8).find(|index| {
            let is_it = text(format!("{PORT}/gids/{index}")).parse() == Ok(address);
            is_it && text(format!("{PORT}/gid_attrs/types/{index}")) == "RoCE v2"
        });
        if found.is_some() == there {
            return found;
        }
        assert_eq!(event(device), (ibv_event_type::IBV_EVENT_GID_CHANGE, 1));
    }
}

/// Waits for the next event of a device: its type, and its port.
fn event(device: Device) -> (ibv_event_type, i32) {
    // SAFETY: the context is open. All zeros is a valid event, which the call fills, and which is acknowledged
    // once.
    unsafe {
        let fd = (*device.context).async_fd;
        let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut wait, 1, LIMIT.as_millis() as i32), 1, "no event");
        let mut event: ibv_async_event = std::mem::zeroed();
        assert_eq!(ibv_get_async_event(device.context, &mut event), 0);
        ibv_ack_async_event(&mut event);
        (event.event_type, event.element.port_num)
    }
}

fn ip(arguments: &str) {
    let mut command = Command::new("ip");
    let status = command.args(arguments.split_whitespace()).status().expect("iproute2");
    assert!(status.success(), "ip {arguments}");
}

/// Changes the addresses of its interface, and waits for the port to follow. Then it is a prober.
fn mover() -> i32 {
    let device = Device::open(0);
    let interface = hear().expect("an interface");
    let number = hear().expect("a number");
    let refused = mlx5_model::set_addresses(0, &[]).unwrap_err();
    assert!(refused.to_string().contains(&interface), "{refused}");
    let own = format!("::ffff:10.77.0.{number}");
    assert_eq!(await_gid(device, &own, true), Some(3));
    ip(&format!("address add 192.0.2.{number}/24 dev {interface}"));
    let index = await_gid(device, &format!("::ffff:192.0.2.{number}"), true);
    // Behind the link-local, the first IPv4 and the IPv6 address.
    assert_eq!(index, Some(7));
    ip(&format!("address del 10.77.0.{number}/24 dev {interface}"));
    assert_eq!(await_gid(device, &own, false), None);
    assert!(!std::path::Path::new(&format!("{PORT}/gid_attrs/types/3")).exists());
    say("moved");
    prober()
}

/// Two hosts whose interfaces get other addresses while processes use them.
fn moves() -> i32 {
    let world = World::joined();
    let hosts = [(&world.here, 1), (&world.there, 2)];
    let mut ends = hosts.map(|(host, number)| {
        let mut end = Player::start(host.command(Player::command("mover")));
        end.tell(host.interface);
        end.tell(number);
        assert_eq!(end.hear_within(LIMIT), "moved");
        end
    });
    assert_eq!(probe(&mut ends, 7), ibv_wc_status::IBV_WC_SUCCESS);
    ends.into_iter().for_each(Player::end_well);
    0
}

#[test]
fn a_port_follows_the_addresses_of_its_interface() {
    world::play("moves");
}

/// Waits until the port has lost all its GIDs, with its interface.
fn watcher() -> i32 {
    let device = Device::open(0);
    let default = fs::read_to_string(format!("{PORT}/gids/1")).expect("a table");
    say("there");
    await_gid(device, default.trim(), false);
    let gids = (0..16).map(|index| fs::read_to_string(format!("{PORT}/gids/{index}")));
    for gid in gids {
        assert_eq!(gid.expect("a table").trim().parse(), Ok(Ipv6Addr::UNSPECIFIED));
    }
    0
}

/// An interface that is deleted.
fn ends() -> i32 {
    let world = World::joined();
    let mut end = Player::start(world.here.command(Player::command("watcher")));
    assert_eq!(end.hear(), "there");
    ip("link delete left");
    end.end_well();
    0
}

#[test]
fn a_port_loses_its_gids_with_its_interface() {
    world::play("ends");
}
