//! The devices after a fork: in the child, and in a program that the child executes.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use mlx5_model as _;
use mlx5_sys::verbs::ibv_wc_status;
use support::role::{Player, hear, play, say};
use support::sockets;
use support::target::{meet, reach, target};
use support::verbs::{Address, Device, PATIENCE, Station, Timing, connect, exchange};

#[test]
fn role() {
    play(&[
        ("target", target),
        ("parent", parent),
        ("mortal", mortal),
        ("nested", nested),
        ("busy", busy),
        ("executor", executor),
    ]);
}

/// Two ends of a pipe, to read lines from and to write to.
fn pipe() -> (BufReader<File>, File) {
    let mut ends = [0; 2];
    // SAFETY: the array holds the two descriptors, which have no other owner.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (BufReader::new(File::from_raw_fd(ends[0])), File::from_raw_fd(ends[1]))
    }
}

fn line(from: &mut BufReader<File>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("a line");
    line.trim().to_owned()
}

/// Forks; the child does `work` and ends with 0, or with another status if that panics.
fn fork(work: impl FnOnce()) -> libc::pid_t {
    // SAFETY: the C library keeps its own state whole, and the model its own; the child uses
    // nothing of other threads.
    let child = unsafe { libc::fork() };
    assert!(child >= 0);
    if child == 0 {
        let worked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_ok();
        // By `exit`, so that what the parent registered for its end runs here too.
        std::process::exit(if worked { 0 } else { 1 });
    }
    child
}

/// Whether the child has ended; with 0, or this panics.
fn ended(child: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: the status is there.
    let waited = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
    assert!(waited >= 0);
    assert_eq!(status, 0, "the child ends well");
    waited == child
}

/// Forks in the middle of everything.
fn parent() -> i32 {
    let mut outside = Player::of("target");
    let device = Device::open(0);
    let (one, other) = (Station::new(device), Station::new(device));
    let peer = meet(&one, &mut outside, 0, Timing::PATIENT);
    reach(&one, peer);
    // A connection of which the child will know nothing, and one that it will have.
    let to_child = Station::new(device);
    let (mut from_child, mut tell_parent) = pipe();
    let (mut from_parent, mut tell_child) = pipe();
    let third = Station::new(device);
    connect(&other, &third);

    let child = fork(|| {
        let device = Device::open(0);
        let stations: Vec<Station> = (0..4).map(|_| Station::new(device)).collect();
        connect(&stations[0], &stations[1]);
        exchange(&stations[0], &stations[1]);
        for station in &stations[2..] {
            writeln!(tell_parent, "{}", station.address()).expect("written");
            let peer: Address = line(&mut from_parent).parse().expect("an address");
            assert_ne!(peer.qpn >> 8, station.address().qpn >> 8, "numbers of its own");
            station.connect(peer, Timing::PATIENT);
            for _ in 0..20 {
                reach(station, peer);
            }
        }
        stations.into_iter().for_each(Station::destroy);
        device.close();
    });
    let address: Address = line(&mut from_child).parse().expect("an address");
    outside.tell("make");
    let meeting = outside.hear();
    outside.tell(format_args!("connect 1 {address}"));
    assert_eq!(outside.hear(), "connected");
    writeln!(tell_child, "{meeting}").expect("written");
    let address: Address = line(&mut from_child).parse().expect("an address");
    to_child.connect(address, Timing::PATIENT);
    writeln!(tell_child, "{}", to_child.address()).expect("written");

    let end = Instant::now() + PATIENCE;
    loop {
        let gone = ended(child);
        reach(&one, peer);
        exchange(&other, &third);
        if gone {
            break;
        }
        assert!(Instant::now() < end, "the child does not end");
    }
    outside.end_well();
    [one, other, third, to_child].into_iter().for_each(Station::destroy);
    device.close();
    0
}

#[test]
fn a_child_has_cards_of_its_own_and_the_parents_connections_go_on() {
    Player::of("parent").end_well();
}

/// Forks a child that stays behind, and says when it is there.
fn mortal() -> i32 {
    let device = Device::open(0);
    let station = Station::new(device);
    say(station.address());
    let peer = hear().expect("an address").parse().expect("an address");
    station.connect(peer, Timing::PATIENT);
    let child = fork(|| {
        // Lives until the test closes the pipe.
        assert_eq!(hear(), None);
    });
    say(child);
    loop {
        std::thread::park();
    }
}

#[test]
fn a_child_does_not_keep_its_dead_parent_reachable() {
    let mut player = Player::of("mortal");
    let station = Station::new(Device::open(0));
    let peer: Address = player.hear().parse().expect("an address");
    player.tell(station.address());
    let child: libc::pid_t = player.hear().parse().expect("a process");
    station.connect(peer, Timing { code: 14, retries: 1 });
    reach(&station, peer);
    // To wait for the parent would close the pipe, on whose end the child waits.
    let pipe = player.child.stdin.take().expect("a pipe");
    player.kill();
    // SAFETY: signal 0 only asks whether the process is there.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives");
    station.write(1, 0, 64, peer);
    let done = station.wait();
    assert_eq!(done.status, ibv_wc_status::IBV_WC_RETRY_EXC_ERR, "{done:?}");
    // No process listens on the names, so they are free for others.
    let names = std::fs::read_to_string("/proc/net/unix").expect("the kernel's table");
    let name = format!("@{}infiniband/{:04x}/{:04x}", sockets::names(), peer.lid, peer.qpn >> 8);
    assert!(!names.lines().any(|line| line.ends_with(&name)), "{name} in\n{names}");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::kill(child, 0) }, 0, "the child lives to the end");
    drop(pipe);
    station.destroy();
}

/// Children of children, each with cards, each generation in the middle of the one before.
fn nested() -> i32 {
    fn generation(left: u32) {
        let device = Device::open(0);
        let (one, other) = (Station::new(device), Station::new(device));
        connect(&one, &other);
        exchange(&one, &other);
        if left > 0 {
            let child = fork(|| generation(left - 1));
            let end = Instant::now() + PATIENCE;
            while !ended(child) {
                exchange(&one, &other);
                assert!(Instant::now() < end, "a child does not end");
            }
        }
        exchange(&other, &one);
    }
    generation(4);
    0
}

#[test]
fn generations_of_children_have_cards() {
    Player::of("nested").end_well();
}

/// Forks again and again while other threads post, and make and destroy objects.
fn busy() -> i32 {
    let device = Device::open(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let post = || {
            let (one, other) = (Station::new(device), Station::new(device));
            connect(&one, &other);
            while !done.load(Ordering::Relaxed) {
                exchange(&one, &other);
            }
        };
        let make = || {
            while !done.load(Ordering::Relaxed) {
                Station::new(device).destroy();
            }
        };
        scope.spawn(post);
        scope.spawn(make);
        let children = (0..30).map(|_| {
            fork(|| {
                let device = Device::open(0);
                let (one, other) = (Station::new(device), Station::new(device));
                connect(&one, &other);
                exchange(&one, &other);
            })
        });
        for child in children {
            let end = Instant::now() + PATIENCE;
            while !ended(child) {
                assert!(Instant::now() < end, "a child does not end");
                std::thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    0
}

#[test]
fn children_have_cards_whatever_other_threads_were_doing() {
    Player::of("busy").end_well();
}

/// Executes programs with devices, channels and sockets open, and looks what they have open.
fn executor() -> i32 {
    let mut outside = Player::of("target");
    let device = Device::open(0);
    let station = Station::new(device);
    let peer = meet(&station, &mut outside, 0, Timing::PATIENT);
    reach(&station, peer);
    // SAFETY: the context is open.
    let channel = unsafe { mlx5_sys::verbs::ibv_create_comp_channel(device.context) };
    assert!(!channel.is_null());
    let list = || {
        let mut command = Command::new("/bin/ls");
        command.args(["-l", "/proc/self/fd"]);
        command
    };
    // By a fork, and by what the C library does instead where it can.
    let mut forked = list();
    // SAFETY: the closure does nothing.
    unsafe { forked.pre_exec(|| Ok(())) };
    for mut command in [forked, list()] {
        let output = command.output().expect("ls");
        assert!(output.status.success());
        let listed = String::from_utf8(output.stdout).expect("text");
        let open: Vec<&str> =
            listed.lines().filter_map(|line| Some(line.split_once(" -> ")?.1)).collect();
        assert!(open.len() >= 4, "{listed}");
        for target in &open {
            let foreign = ["socket:", "memfd", "/dev/full", "anon_inode", "infiniband"];
            assert!(!foreign.iter().any(|part| target.contains(part)), "{listed}");
        }
        reach(&station, peer);
    }
    outside.end_well();
    0
}

#[test]
fn programs_that_are_executed_inherit_no_descriptor() {
    Player::of("executor").end_well();
}
