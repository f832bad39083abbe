//! Tests of engines that exchange packets through sockets, in one process and across two.

mod delivery;
mod sending;
mod threads;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mlx5_sys::ifc::{
    modify_nic_vport_context_in, modify_nic_vport_field_select, nic_vport_context, opcode,
};

use super::Engine;
use crate::card::{Card, Link, Sort, Timeouts};
use crate::clock::Clock;
use crate::command::test::{Command as FirmwareCommand, Rig};
use crate::fabric::Carrier;
use crate::fabric::local::socket;
use crate::fabric::udp::Interface;
use crate::identity::Identity;
use crate::transport::test::Setup;
use crate::transport::test::side::{Cqe, Post, Side};
use crate::wire::{Frame, Global, Header, Opcode, RoceVersion, Route, mac};

/// A peer that does not come within this time never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// Tells the test that plays the other process which domain to join, and what to do there.
const PEER: &str = "MLX5_MODEL_TEST_PEER";

/// A domain that no other test and no other run of this one uses.
fn domain() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An engine with one card and a queue pair on it.
struct Station {
    engine: Arc<Engine>,
    side: Side,
}

impl Station {
    fn new(domain: &str, setup: Setup) -> Self {
        Self::at(domain, setup, 7)
    }

    /// At a port whose addresses end with a byte.
    fn at(domain: &str, setup: Setup, end: u8) -> Self {
        let mut identity = crate::command::test::identity(setup.link);
        identity.lid = end.into();
        identity.gids[0].gid[15] = end;
        identity.mac = mac(&identity.gids[0].gid);
        Self::on(setup, identity, |cards, interrupt| Engine::connected(domain, cards, interrupt))
    }

    /// At a port with an identity, on an engine that `start` makes.
    fn on(
        setup: Setup,
        mut identity: Identity,
        start: impl FnOnce(Vec<Card>, super::Interrupt) -> std::io::Result<Arc<Engine>>,
    ) -> Self {
        let mut rig = Rig::on(setup.link);
        identity.qpn_prefixes.clear();
        rig.card.identity = identity;
        rig.card.clock = Clock::real();
        // The engine has the card; commands are given to it as if the rig had.
        let stand_in = Card::new(
            crate::command::test::identity(setup.link),
            rig.memory.clone(),
            Clock::real(),
        );
        let card = std::mem::replace(&mut rig.card, stand_in);
        let engine = start(vec![card], Box::new(|_, _, _| {})).unwrap();
        let side = engine.enter(0, |card| {
            std::mem::swap(card, &mut rig.card);
            let mut side = Side::with(rig, setup);
            std::mem::swap(card, &mut side.rig.card);
            side
        });
        Self { engine, side }
    }

    fn connect(&mut self, setup: Setup, peer: u32) {
        let gid = self.engine.enter(0, |card| card.identity.gids[0].gid);
        self.connect_to(setup, (peer, gid));
    }

    fn connect_to(&mut self, setup: Setup, (peer, gid): (u32, [u8; 16])) {
        let side = &mut self.side;
        self.engine.enter(0, |card| {
            std::mem::swap(card, &mut side.rig.card);
            let lid = side.rig.card.identity.lid;
            side.connect(setup, (peer, lid, gid), [7, 7]);
            std::mem::swap(card, &mut side.rig.card);
        });
    }

    fn post(&mut self, post: &Post) -> u16 {
        let index = self.side.write(post);
        let control = self.side.doorbell(index);
        let uar = self.side.rig.uar;
        self.engine.enter(0, |card| card.store(uar, 0x800, &control));
        index
    }

    fn wait(&mut self, queue: usize) -> Cqe {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(cqe) = self.side.poll(queue) {
                return cqe;
            }
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }

    fn write(&self, length: u32, key: u32) -> Post {
        let mut post = Post::new(0x08);
        post.data = vec![(0, length, self.side.key)];
        post.remote = (Side::address(0), key);
        post
    }
}

fn stations(setup: Setup) -> [Station; 2] {
    let domain = domain();
    let mut stations = [Station::new(&domain, setup), Station::new(&domain, setup)];
    let numbers = [stations[0].side.qp, stations[1].side.qp];
    assert_ne!(numbers[0] >> 8, numbers[1] >> 8);
    stations[0].connect(setup, numbers[1]);
    stations[1].connect(setup, numbers[0]);
    stations
}

#[test]
fn engines_of_one_domain_reach_each_other() {
    for link in [Link::InfiniBand, Link::Roce] {
        let [mut one, mut other] = stations(Setup { link, mtu: 4096, ..Setup::default() });
        let bytes: Vec<u8> = (0..300_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        one.side.put(0, &bytes);
        let started = Instant::now();
        for _ in 0..50 {
            let post = one.write(bytes.len() as u32, other.side.key);
            one.post(&post);
            assert_eq!(one.wait(0).syndrome, 0);
        }
        let rate = 50.0 * bytes.len() as f64 / started.elapsed().as_secs_f64() / 1e6;
        println!("{rate:.0} MB/s");
        assert_eq!(other.side.get(0, bytes.len()), bytes);

        other.side.receive(&[(0, 100, other.side.key)]);
        let mut post = Post::new(0x0b);
        post.immediate = 77;
        post.data = vec![(50, 100, one.side.key)];
        one.post(&post);
        assert_eq!(other.wait(1).immediate, [0, 0, 0, 77]);
        assert_eq!(one.wait(0).syndrome, 0);

        let mut post = Post::new(0x10);
        post.data = vec![(0, 200_000, other.side.key)];
        post.remote = (Side::address(100_000), one.side.key);
        other.post(&post);
        assert_eq!(other.wait(0).syndrome, 0);
        assert_eq!(other.side.get(0, 200_000), bytes[100_000..]);
    }
}

/// Fact F063.
#[test]
fn a_port_loops_its_own_packets_whatever_its_virtual_port_says() {
    let setup = Setup { link: Link::Roce, ..Setup::default() };
    let mut station = Station::new(&domain(), setup);
    let off =
        FirmwareCommand::new(opcode::MODIFY_NIC_VPORT_CONTEXT, modify_nic_vport_context_in::SIZE)
            .set(
                modify_nic_vport_field_select::DISABLE_UC_LOCAL_LB
                    .within(modify_nic_vport_context_in::FIELD_SELECT),
                1u64,
            )
            .set(
                nic_vport_context::DISABLE_UC_LOCAL_LB
                    .within(modify_nic_vport_context_in::NIC_VPORT_CONTEXT),
                1u64,
            );
    let mut reply = [0; 16];
    station.engine.enter(0, |card| card.execute(&off.0, &mut reply));
    assert_eq!(reply[0], 0, "it is accepted");
    let own = station.side.qp;
    station.connect(setup, own);
    let post = station.write(64, station.side.key);
    station.post(&post);
    assert_eq!(station.wait(0).syndrome, 0);
}

#[test]
fn a_receiver_that_comes_later_is_waited_for() {
    let [mut one, mut other] = stations(Setup { rnr_timer: 16, ..Setup::default() });
    let mut post = Post::new(0x0a);
    post.data = vec![(0, 64, one.side.key)];
    let started = Instant::now();
    one.post(&post);
    while started.elapsed() < Duration::from_millis(8) {
        assert_eq!(one.side.poll(0), None);
        std::thread::yield_now();
    }
    other.side.receive(&[(0, 64, other.side.key)]);
    assert_eq!(other.wait(1).syndrome, 0);
    assert_eq!(one.wait(0).syndrome, 0);
}

#[test]
fn a_peer_that_is_gone_is_noticed() {
    let setup =
        Setup { timeout: 12, retries: 2, timeouts: Timeouts::SPECIFICATION, ..Setup::default() };
    let [mut one, other] = stations(setup);
    let key = other.side.key;
    drop(other);
    let post = one.write(64, key);
    one.post(&post);
    assert_eq!(one.wait(0).syndrome, 0x15);
}

#[test]
fn a_peer_that_has_not_run_yet_is_waited_for() {
    // Given up after 50 ms without an answer.
    let setup =
        Setup { timeout: 12, retries: 2, timeouts: Timeouts::SPECIFICATION, ..Setup::default() };
    let [mut one, other] = stations(setup);
    let held = other.engine.stop();
    let post = one.write(64, other.side.key);
    one.post(&post);
    let posted = Instant::now();
    while posted.elapsed() < Duration::from_millis(400) {
        assert_eq!(one.side.poll(0), None, "the peer has not read the request");
        std::thread::yield_now();
    }
    drop(held);
    assert_eq!(one.wait(0).syndrome, 0);
}

#[test]
fn prefixes_are_claimed_as_numbers_run_out_and_are_free_again_after() {
    let domain = domain();
    let station = Station::new(&domain, Setup::default());
    let Station { engine, mut side } = station;
    let mut create = None;
    for _ in 0..600 {
        engine.enter(0, |card| {
            std::mem::swap(card, &mut side.rig.card);
            let create = create.get_or_insert_with(|| {
                let cq = side.rig.cq();
                side.rig.create_qp(cq, cq)
            });
            side.rig.number(create, mlx5_sys::ifc::create_qp_out::QPN);
            std::mem::swap(card, &mut side.rig.card);
        });
    }
    let prefixes = engine.enter(0, |card| card.identity.qpn_prefixes.clone());
    assert_eq!(prefixes.len(), 3);
    let name = |prefix: u16| format!("{}{domain}/0007/{prefix:04x}", socket::user_names());
    for prefix in &prefixes {
        let error = socket::listen(&name(*prefix)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    }
    drop(engine);
    // Its thread lets go of the last share when it wakes up.
    let end = Instant::now() + PATIENCE;
    while socket::listen(&name(prefixes[0])).is_err() {
        assert!(Instant::now() < end);
        std::thread::yield_now();
    }
}

#[test]
fn descriptors_stay_out_of_the_way() {
    let station = Station::new(&domain(), Setup::default());
    let outside = station.engine.outside();
    let network = outside.network.as_ref().expect("connected");
    assert!(network.waits.epoll.as_raw_fd() >= 512);
    assert!(socket::connect("mlx5-model/nobody").is_err());
}

/// The route from a port to another one.
fn route(from: &Identity, to: &Identity) -> Route {
    let global = Global {
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 1,
        source: from.gids[0].gid,
        destination: to.gids[0].gid,
    };
    match from.link {
        Link::InfiniBand => {
            Route::InfiniBand { level: 0, source: from.lid, destination: to.lid, global: None }
        }
        Link::Roce => {
            let port = Some(0xc001);
            Route::Ethernet { source: from.mac, destination: to.mac, tag: None, global, port }
        }
    }
}

/// A packet from a port to a queue pair of another port.
fn packet(from: &Identity, to: &Identity, number: u32) -> Frame {
    Header::new(route(from, to), Opcode::SendOnly, 0xffff, number, 0).bare()
}

/// The packets to queue pairs that a device's port has received.
fn received(card: &Card) -> u64 {
    card.traffic.received[Sort::Unicast as usize].packets
}

#[test]
fn frame_reaches_the_port_of_its_address_and_there_the_process_of_its_number() {
    for link in [Link::InfiniBand, Link::Roce] {
        let domain = domain();
        let setup = Setup { link, ..Setup::default() };
        // The last two are processes at one port.
        let stations = [7, 8, 8].map(|end| Station::at(&domain, setup, end));
        let [one, two, three] = &stations;
        let identity = |station: &Station| station.engine.enter(0, |card| card.identity.clone());
        let send = |to: &Identity, number: u32| {
            let frame = packet(&identity(one), to, number);
            one.engine.enter(0, |card| card.outbox.push_back(frame));
        };
        let count =
            || [one, two, three].map(|station| station.engine.enter(0, |card| received(card)));
        let wait = |all: [u64; 3]| {
            let end = Instant::now() + PATIENCE;
            while count() != all {
                assert!(Instant::now() < end, "{:?} and not {all:?}", count());
                std::thread::yield_now();
            }
        };
        let port = identity(two);
        // The right number at another address, or at one that no port has.
        send(&identity(one), two.side.qp);
        let mut nobody = port.clone();
        (nobody.lid, nobody.mac[5]) = (9, 9);
        send(&nobody, two.side.qp);
        send(&port, one.side.qp);
        send(&port, two.side.qp);
        wait([0, 1, 0]);
        send(&port, three.side.qp);
        send(&port, three.side.qp ^ 1);
        wait([0, 1, 2]);
        send(&identity(one), one.side.qp);
        wait([1, 1, 2]);

        // The management queue pairs are behind each process of the port.
        let before: u64 = count().iter().sum();
        send(&port, 0);
        send(&port, 1);
        let end = Instant::now() + PATIENCE;
        while count().iter().sum::<u64>() != before + 2 {
            assert!(Instant::now() < end, "{:?}", count());
            std::thread::yield_now();
        }
        assert_eq!(count()[0], 1);
        send(&identity(one), 1);
        assert_eq!(count()[0], 2, "its own port is in this process");
    }
}

#[test]
fn devices_of_a_process_may_have_the_same_qp_numbers() {
    for link in [Link::InfiniBand, Link::Roce] {
        let cards = [1, 2].map(|end| {
            let mut card = Rig::on(link).card;
            let identity = &mut card.identity;
            (identity.lid, identity.gids[0].gid[15]) = (end.into(), end);
            identity.mac = mac(&identity.gids[0].gid);
            card
        });
        let identities = cards.each_ref().map(|card| card.identity.clone());
        let number = u32::from(identities[0].qpn_prefixes[0]) << 8;
        assert_eq!(identities[0].qpn_prefixes, identities[1].qpn_prefixes);
        let engine = Engine::new(cards.into(), Box::new(|_, _, _| {}));
        for (at, to) in identities.iter().enumerate() {
            for (from, identity) in identities.iter().enumerate() {
                let frame = packet(identity, to, number);
                engine.enter(from, |card| card.outbox.push_back(frame));
            }
            assert_eq!(engine.enter(at, |card| received(card)), 2);
        }
    }
}

#[test]
fn interrupts_are_delivered_with_their_card() {
    let seen = Arc::new(AtomicUsize::new(0));
    let log = seen.clone();
    let cards = (0..2).map(|_| Rig::on(Link::InfiniBand).card).collect();
    let interrupt = move |index: usize, card: &mut Card, vector: u32| {
        assert_eq!(card.identity.lid, 7);
        log.store(index << 16 | vector as usize, Ordering::Relaxed);
    };
    let engine = Engine::new(cards, Box::new(interrupt));
    engine.enter(1, |card| card.interrupts.push_back(5));
    assert_eq!(seen.load(Ordering::Relaxed), 1 << 16 | 5);
    assert_eq!(engine.cards(), 2);
}

#[test]
fn the_child_of_a_fork_lets_go_of_the_parents_sockets() {
    let setup = Setup::default();
    let [mut one, mut other] = stations(setup);
    let post = one.write(64, other.side.key);
    one.post(&post);
    assert_eq!(one.wait(0).syndrome, 0);
    // SAFETY: the child uses only this test's engines, which `pthread_atfork` keeps whole, and leaves by
    // `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let alone = one.engine.is_detached() && other.engine.is_detached();
        // Goes nowhere, and does not hang.
        one.post(&post);
        let fresh = std::panic::catch_unwind(|| stations(setup));
        let works = fresh.is_ok_and(|[mut one, mut other]| {
            let post = one.write(64, other.side.key);
            one.post(&post);
            let sent = one.wait(0).syndrome == 0;
            let post = other.write(64, one.side.key);
            other.post(&post);
            sent && other.wait(0).syndrome == 0
        });
        // SAFETY: `_exit` passes no memory.
        unsafe { libc::_exit(if alone && works { 0 } else { 1 }) };
    }
    // The parent's go on as before.
    assert!(!one.engine.is_detached());
    let post = other.write(64, one.side.key);
    other.post(&post);
    assert_eq!(other.wait(0).syndrome, 0);
    let mut status = 0;
    // SAFETY: the call writes one int, `status`.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's own engines work");
}

/// Plays the other process of the tests below: not a test unless it is started by one.
#[test]
fn peer() {
    let Ok(order) = std::env::var(PEER) else { return };
    let (domain, rounds) = order.split_once(' ').expect("domain and rounds");
    let setup = Setup::default();
    let mut station = Station::new(domain, setup);
    println!("\npeer {} {}", station.side.qp, station.side.key);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a line");
    station.connect(setup, line.trim().parse().expect("a number"));
    let side = &mut station.side;
    side.receive(&[(0, 4096, side.key)]);
    println!("\npeer ready");
    for _ in 0..rounds.parse().expect("a number") {
        assert_eq!(station.wait(1).syndrome, 0);
        station.side.receive(&[(0, 4096, station.side.key)]);
    }
    // Nothing of this process runs any more once the last message is seen.
    // SAFETY: `_exit` passes no memory.
    unsafe { libc::_exit(0) };
}

fn start_peer(domain: &str, rounds: usize) -> (std::process::Child, impl FnMut(&str) -> String) {
    let mut child = Command::new(std::env::current_exe().expect("a path"))
        .args(["--exact", "engine::test::peer", "--nocapture"])
        .env(PEER, format!("{domain} {rounds}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let said = move |prefix: &str| loop {
        let line = lines.next().expect("a line").expect("text");
        if let Some(rest) = line.strip_prefix(prefix) {
            return rest.trim().to_owned();
        }
    };
    (child, said)
}

#[test]
fn what_a_process_saw_before_it_died_is_acknowledged() {
    for round in 0..5 {
        let domain = domain();
        let setup = Setup {
            timeout: 12,
            retries: 7,
            rnr_timer: 10,
            timeouts: Timeouts::SPECIFICATION,
            ..Setup::default()
        };
        let mut own = Station::new(&domain, setup);
        let (mut child, mut said) = start_peer(&domain, 3);
        let numbers = said("peer");
        let (qp, key) = numbers.split_once(' ').expect("two numbers");
        let key: u32 = key.parse().expect("a number");
        own.connect(setup, qp.parse().expect("a number"));
        let mut stdin = child.stdin.take().expect("piped");
        writeln!(stdin, "{}", own.side.qp).expect("written");
        assert_eq!(said("peer"), "ready");
        for _ in 0..3 {
            let mut post = Post::new(0x0a);
            post.data = vec![(0, 4000, own.side.key)];
            own.post(&post);
            assert_eq!(own.wait(0).syndrome, 0, "round {round}");
        }
        assert!(child.wait().expect("an end").success());
        let post = own.write(64, key);
        own.post(&post);
        assert_eq!(own.wait(0).syndrome, 0x15, "it is gone");
    }
}

/// Engines whose ports are on addresses of the loopback interface: one machine each.
#[test]
fn engines_on_udp_reach_each_other_by_address() {
    let setup = Setup { link: Link::Roce, mtu: 4096, ..Setup::default() };
    let [.., high, low] = std::process::id().to_be_bytes();
    let mut machines = [11, 12].map(|last| {
        let interface = Interface::find(&format!("127.{high}.{low}.{last}"), Carrier::Udp).unwrap();
        // Two processes of each machine: the first one receives for both.
        let domain = domain();
        [(); 2].map(|()| {
            let mut identity = interface.applied_to(crate::command::test::identity(setup.link));
            // RoCE v1 stays on the machine.
            identity.gids.retain(|entry| entry.version == RoceVersion::V2);
            Station::on(setup, identity, |cards, interrupt| {
                Engine::on_network(&domain, std::slice::from_ref(&interface), cards, interrupt)
            })
        })
    });
    let [near, far] = &mut machines;
    for (one, other) in near.iter_mut().zip(far) {
        let addresses = [&*one, &*other].map(|station| {
            let gid = station.engine.enter(0, |card| card.identity.gids[0].gid);
            (station.side.qp, gid)
        });
        one.connect_to(setup, addresses[1]);
        other.connect_to(setup, addresses[0]);
        let bytes: Vec<u8> = (0..100_000u32).map(|n| ((n * 7) >> 3) as u8).collect();
        one.side.put(0, &bytes);
        for _ in 0..10 {
            let post = one.write(bytes.len() as u32, other.side.key);
            one.post(&post);
            assert_eq!(one.wait(0).syndrome, 0);
        }
        assert_eq!(other.side.get(0, bytes.len()), bytes);
        let post = other.write(64, one.side.key);
        other.post(&post);
        assert_eq!(other.wait(0).syndrome, 0);
    }
    // The receivers end, and their neighbours take over.
    let [[first, one], [second, other]] = machines;
    drop((first, second));
    let mut rest = [one, other];
    for _ in 0..2 {
        let key = rest[1].side.key;
        let post = rest[0].write(5000, key);
        rest[0].post(&post);
        assert_eq!(rest[0].wait(0).syndrome, 0);
        rest.reverse();
    }
}
