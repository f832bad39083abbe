//! Several contexts, devices and processes at once, with many queue pairs; processes that die or
//! stop, and the effect on the others.

mod support;

use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use mlx5_model as _;
use mlx5_sys::verbs::{ibv_qp_state, ibv_wc_status};
use support::Model;
use support::port::{self, Port};
use support::process::Process;
use support::role::{Player, hear, play, say};
use support::target::{meet, reach, target};
use support::verbs::{Address, Device, PATIENCE, Station, Timing, connect, exchange, poll};
use support::{LIMIT, namespace, sockets};

#[test]
fn role() {
    play(&[
        ("devices", devices),
        ("target", target),
        ("crowd", crowd),
        ("of another format", of_another_format),
    ]);
}

/// Several contexts of several devices, each exchanging with each.
fn devices() -> i32 {
    assert_eq!(Device::count(), 3);
    let contexts: Vec<Device> = [0, 0, 1, 1, 2].into_iter().map(Device::open).collect();
    let lids: Vec<u16> = contexts.iter().map(|device| device.lid()).collect();
    assert_eq!(lids[0], lids[1]);
    assert_ne!(lids[0], lids[2]);
    assert_ne!(lids[2], lids[4]);
    for one in &contexts {
        for other in &contexts {
            let (one, other) = (Station::new(*one), Station::new(*other));
            connect(&one, &other);
            exchange(&one, &other);
            exchange(&other, &one);
            one.destroy();
            other.destroy();
        }
    }
    // All at once, from a thread each.
    std::thread::scope(|scope| {
        for (index, one) in contexts.iter().enumerate() {
            let other = contexts[(index + 1) % contexts.len()];
            let pair = (Station::new(*one), Station::new(other));
            scope.spawn(move || {
                let (one, other) = pair;
                connect(&one, &other);
                for _ in 0..50 {
                    exchange(&one, &other);
                }
                one.destroy();
                other.destroy();
            });
        }
    });
    // The others go on when one is closed.
    let (one, other) = (Station::new(contexts[0]), Station::new(contexts[4]));
    connect(&one, &other);
    contexts[1].close();
    contexts[2].close();
    exchange(&one, &other);
    one.destroy();
    other.destroy();
    0
}

#[test]
fn contexts_and_devices_of_one_process_reach_each_other() {
    let mut command = Player::command("devices");
    command.env("MLX5_MODEL_DEVICES", "3");
    Player::start(command).end_well();
}

#[test]
fn pairs_of_programs_run_side_by_side() {
    const PAIRS: usize = 4;
    let model = Model::default();
    let start = |name: &str, arguments: &[&str]| {
        let mut command = model.command("ibv_rc_pingpong");
        command.args(["-n", "100", "-s", "4096"]).args(arguments);
        Process::start(name, command)
    };
    let servers: Vec<(Port, Process)> = (0..PAIRS)
        .map(|pair| {
            let port = port::free();
            // Half of them sleep on events.
            let events: &[&str] = if pair % 2 == 0 { &[] } else { &["-e"] };
            let server = start("server", &[&["-p", &port], events].concat());
            (port, server)
        })
        .collect();
    let pairs: Vec<(Process, Process)> = servers
        .into_iter()
        .map(|(port, mut server)| {
            server.wait_until_it_listens(&port, LIMIT);
            (server, start("client", &["-p", &port, "127.0.0.1"]))
        })
        .collect();
    for (server, client) in pairs {
        for side in [client.finish(LIMIT), server.finish(LIMIT)] {
            side.assert_success();
            assert!(side.stdout.contains("100 iters in "), "{side}");
        }
    }
}

/// Queue pairs of each of two processes that have many.
const CROWD: usize = 1100;

/// Queue pairs of [`CROWD`], with everything else shared.
fn assemble() -> (Station, Vec<Station>) {
    let first = Station::with_completions(Device::open(0), 4096);
    let stations: Vec<Station> = (0..CROWD).map(|_| first.another(4)).collect();
    (first, stations)
}

/// Says the addresses of many queue pairs and connects each with one of the peer's.
fn crowd() -> i32 {
    let (first, stations) = assemble();
    for station in &stations {
        say(station.address());
    }
    for station in &stations {
        let peer = hear().expect("an address").parse().expect("an address");
        station.connect(peer, Timing::PATIENT);
        station.receive(7, 0, 4096);
    }
    say("connected");
    for _ in 0..CROWD {
        first.expect(7);
    }
    say("received");
    assert_eq!(hear(), None);
    0
}

#[test]
fn a_thousand_queue_pairs_of_two_processes_speak() {
    let mut player = Player::of("crowd");
    let (first, stations) = assemble();
    let numbers: std::collections::BTreeSet<u32> =
        stations.iter().map(|station| station.address().qpn).collect();
    assert_eq!(numbers.len(), CROWD, "every number is given once");
    let prefixes: std::collections::BTreeSet<u32> = numbers.iter().map(|qpn| qpn >> 8).collect();
    assert!(prefixes.len() > CROWD / 256, "{prefixes:x?}");
    let peers: Vec<Address> =
        stations.iter().map(|_| player.hear().parse().expect("an address")).collect();
    for station in &stations {
        player.tell(station.address());
    }
    assert_eq!(player.hear(), "connected");
    for (station, peer) in stations.iter().zip(&peers) {
        assert!(!prefixes.contains(&(peer.qpn >> 8)), "{peer:x?}");
        station.connect(*peer, Timing::PATIENT);
    }
    // One message over each, all under way at once.
    first.put(0, b"to each of many");
    for (index, station) in stations.iter().enumerate() {
        station.send(index as u64, 0, 15);
    }
    let mut sent = vec![false; CROWD];
    for _ in 0..CROWD {
        let done = first.wait();
        assert_eq!(done.status, ibv_wc_status::IBV_WC_SUCCESS, "{done:?}");
        assert!(!std::mem::replace(&mut sent[done.id as usize], true), "{done:?} again");
    }
    assert_eq!(player.hear(), "received");
    player.end_well();
    stations.into_iter().for_each(Station::destroy);
    first.destroy();
}

#[test]
fn process_of_another_format_is_named_on_standard_error() {
    // In a network namespace of its own: other processes that start meanwhile would name it as well.
    let mut command = Player::command("of another format");
    namespace::isolate(&mut command);
    Player::start(command).end_well();
}

fn of_another_format() -> i32 {
    let name = format!("{}v0/infiniband/0001/0001", sockets::names_of_all_formats());
    let address = SocketAddr::from_abstract_name(name).expect("a short name");
    let other = UnixListener::bind_addr(&address).expect("a free name");
    let run = || Model::default().run("ibv_devinfo", &["-d", "mlx5_0"]);
    let output = run();
    let said = "processes here have format v0 of the fabric, and this one has v2";
    assert!(output.assert_success().stderr.contains(said), "{output}");
    drop(other);
    let output = run();
    assert!(!output.assert_success().stderr.contains("format"), "{output}");
    0
}

/// Names of the model's sockets that this network namespace has.
fn names() -> Vec<String> {
    let table = fs::read_to_string("/proc/net/unix").expect("the kernel's table");
    let start = format!("@{}", sockets::names());
    table
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix(&start))
        .map(str::to_owned)
        .collect()
}

fn name(address: Address) -> String {
    format!("infiniband/{:04x}/{:04x}", address.lid, address.qpn >> 8)
}

/// Short, so that a peer's death is known soon, and long enough for a peer that lives.
const SHORT: Timing = Timing { code: 15, retries: 2 };
/// The time that a busy machine may add to any wait.
const BUSY: Duration = Duration::from_secs(20);

/// Posts a WRITE to a peer that is gone, and holds the answer to what was configured.
#[track_caller]
fn given_up(station: &Station, peer: Address) {
    let posted = Instant::now();
    station.write(90, 0, 64, peer);
    let done = station.wait();
    let waited = posted.elapsed();
    assert_eq!((done.id, done.status), (90, ibv_wc_status::IBV_WC_RETRY_EXC_ERR), "{done:?}");
    assert!(waited >= SHORT.least(), "given up after {waited:?}");
    assert!(waited <= 4 * SHORT.least() + BUSY, "given up only after {waited:?}");
    assert_eq!(station.state(), ibv_qp_state::IBV_QPS_ERR);
}

#[test]
fn a_process_that_is_killed_is_given_up_and_the_others_go_on() {
    let device = Device::open(0);
    let (mut victim, mut bystander) = (Player::of("target"), Player::of("target"));
    let streaming = Station::new(device);
    let idle = Station::new(device);
    let other = Station::new(device);
    let to_streaming = meet(&streaming, &mut victim, 0, SHORT);
    let to_idle = meet(&idle, &mut victim, 1, SHORT);
    let to_other = meet(&other, &mut bystander, 0, Timing::PATIENT);
    for (station, peer) in [(&streaming, to_streaming), (&idle, to_idle), (&other, to_other)] {
        reach(station, peer);
        sockets::find(&(sockets::names() + &name(peer)));
    }

    // Traffic both ways at the moment of death.
    victim.tell("stream 0");
    let turn = || u64::from_ne_bytes(streaming.get(0, 8).try_into().expect("eight bytes"));
    streaming.put(0, &[0; 8]);
    let end = Instant::now() + PATIENCE;
    while turn() < 20 {
        assert!(Instant::now() < end, "no stream");
        std::thread::yield_now();
    }
    for id in 0..32 {
        streaming.write(id, 32768, 32768, to_streaming);
    }
    victim.kill();
    let killed = Instant::now();
    let mut next = 0;
    let mut failed = false;
    while next < 32 {
        // The bystander is served all the time.
        reach(&other, to_other);
        let Some(done) = streaming.poll() else {
            assert!(killed.elapsed() < 4 * SHORT.least() + BUSY, "never given up");
            continue;
        };
        assert_eq!(done.id, next, "{done:?}");
        next += 1;
        let expected = match done.status {
            ibv_wc_status::IBV_WC_SUCCESS if !failed => continue,
            _ if !failed => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
            _ => ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
        };
        assert_eq!(done.status, expected, "{done:?}");
        failed = true;
    }
    if !failed {
        // All of them had arrived before.
        given_up(&streaming, to_streaming);
    }
    given_up(&idle, to_idle);
    assert_eq!(streaming.state(), ibv_qp_state::IBV_QPS_ERR);
    assert_eq!(other.state(), ibv_qp_state::IBV_QPS_RTS);
    let left = names();
    assert!(!left.contains(&name(to_streaming)), "{left:?} has the name of a process that is gone");
    assert!(left.contains(&name(to_other)), "{left:?}");

    // A new process takes the place of the dead one.
    let mut successor = Player::of("target");
    let to_streaming = meet(&streaming, &mut successor, 0, Timing::PATIENT);
    reach(&streaming, to_streaming);
    reach(&other, to_other);
    successor.end_well();
    bystander.end_well();
    [streaming, idle, other].into_iter().for_each(Station::destroy);
}

#[test]
fn a_process_that_stands_still_does_not_hold_up_the_others() {
    let device = Device::open(0);
    let (mut still, mut bystander) = (Player::of("target"), Player::of("target"));
    let (one, other) = (Station::new(device), Station::new(device));
    let to_still = meet(&one, &mut still, 0, SHORT);
    let to_other = meet(&other, &mut bystander, 0, Timing::PATIENT);
    reach(&one, to_still);
    let process = still.child.id() as libc::pid_t;
    // SAFETY: stops and continues a child of this process that was not waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(process, signal) }, 0);
    signal(libc::SIGSTOP);
    // More than the way to it has room for.
    for id in 0..support::verbs::DEPTH.into() {
        one.write(id, 0, support::verbs::LENGTH, to_still);
    }
    let stopped = Instant::now();
    let mut next = 0;
    let mut failed = false;
    while next < support::verbs::DEPTH.into() {
        reach(&other, to_other);
        let Some(done) = one.poll() else {
            assert!(stopped.elapsed() < 4 * SHORT.least() + BUSY, "never given up");
            continue;
        };
        assert_eq!(done.id, next, "{done:?}");
        next += 1;
        // What was received before it stopped may still have been acknowledged.
        let expected = match done.status {
            ibv_wc_status::IBV_WC_SUCCESS if !failed => continue,
            _ if !failed => ibv_wc_status::IBV_WC_RETRY_EXC_ERR,
            _ => ibv_wc_status::IBV_WC_WR_FLUSH_ERR,
        };
        assert_eq!(done.status, expected, "{done:?}");
        failed = true;
    }
    assert!(failed, "everything was answered by a process that stands still");
    // It wakes up with a heap of old packets before it, and is spoken to again on a new connection.
    signal(libc::SIGCONT);
    let again = meet(&one, &mut still, 1, Timing::PATIENT);
    reach(&one, again);
    reach(&other, to_other);
    assert_eq!(poll(one.cq), None);
    still.end_well();
    bystander.end_well();
    one.destroy();
    other.destroy();
}
