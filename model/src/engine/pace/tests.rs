//! What requests of a queue pair that is connected to itself cost in virtual time.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_sys::ifc::qpc;

use crate::card::{Card, Timeouts};
use crate::clock::Clock;
use crate::cost::devices::{CHOSEN, CONNECTX5};
use crate::cost::{Parameters, VirtualTime};
use crate::engine::Engine;
use crate::engine::deferred::{Registers, Store};
use crate::fabric::Devices as _;
use crate::object::{Qp, Service};
use crate::transport::test::Setup;
use crate::transport::test::extended::wait;
use crate::transport::test::side::{Cqe, Post, Side};
use crate::wire::Frame;

/// A completion that does not come within this time never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// Picoseconds of a nanosecond.
const NANOSECOND: u64 = 1_000;

/// How a request is told to the device.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Doorbell,
    BlueFlame,
}

/// A device with virtual time and a queue pair.
struct Machine {
    engine: Arc<Engine>,
    side: Side,
}

impl Machine {
    fn new(costs: Parameters) -> Self {
        Self::with(costs, Setup { mtu: 4096, ..Setup::default() }, None, |cards| {
            Engine::new(cards, Box::new(|_, _, _| {}))
        })
    }

    /// With another peer than itself, and on an engine that `start` makes.
    fn with(
        costs: Parameters,
        setup: Setup,
        peer: Option<u32>,
        start: impl FnOnce(Vec<Card>) -> Arc<Engine>,
    ) -> Self {
        let mut side = Side::new(setup, 0);
        side.rig.card.identity.timeouts = Timeouts::Specification { floor: 0 };
        side.rig.card.keep_virtual_time(&Arc::<VirtualTime>::default(), costs);
        let identity = side.rig.card.identity.clone();
        let own = (peer.unwrap_or(side.qp), identity.lid, identity.gids[0].gid);
        side.connect(setup, own, [7, 7]);
        let stand_in = Card::new(identity, side.rig.memory.clone(), Clock::real());
        let card = std::mem::replace(&mut side.rig.card, stand_in);
        Self { engine: start(vec![card]), side }
    }

    /// The program's time in nanoseconds, once the CQEs that it has taken are seen.
    fn now(&self) -> u64 {
        self.engine.enter(0, |card| card.port.pace.host())
    }

    /// Works with the context of the queue pair.
    fn with_qp<R>(&self, work: impl FnOnce(&mut Qp) -> R) -> R {
        let number = self.side.qp;
        self.engine.enter(0, |card| work(card.objects.qps.get_mut(&number).expect("it lives")))
    }

    /// Returns the first block of a WQE.
    fn block(&self, index: u16) -> [u8; 64] {
        let ring = self.side.places().1;
        let at = ring.start + u64::from(index) * 64 % (ring.end - ring.start);
        self.side.rig.read(at)
    }

    fn ring(&self, index: u16, by: By) {
        let block = self.block(index);
        let bytes = if by == By::BlueFlame { &block[..] } else { &block[..8] };
        self.engine.enter(0, |card| card.store(self.side.rig.uar, 0x800, bytes));
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

    /// Posts requests, tells of all by one store, and returns the time until the last completion is
    /// seen, in nanoseconds.
    fn time(&mut self, posts: &[Post], by: By) -> u64 {
        let begun = self.now();
        for post in posts {
            if post.opcode == 0x0a {
                self.side.receive(&[(0, 4096, self.side.key)]);
            }
        }
        let indices: Vec<u16> = posts.iter().map(|post| self.side.write(post)).collect();
        self.ring(*indices.last().unwrap(), by);
        for _ in posts.iter().filter(|post| post.signaled) {
            assert_eq!(self.wait(0).syndrome, 0);
        }
        self.now() - begun
    }
}

/// A request with payload by pointer.
fn pointer(opcode: u8, length: u32, machine: &Machine) -> Post {
    let mut post = Post::new(opcode);
    post.data = vec![(0, length, machine.side.key)];
    post.remote = (Side::address(0), machine.side.key);
    post
}

fn inline(length: usize, machine: &Machine) -> Post {
    let mut post = pointer(0x08, 0, machine);
    post.data.clear();
    post.inline = Some(vec![3; length]);
    post
}

/// The time of one request, on a device of its own.
fn one(costs: Parameters, by: By, post: impl FnOnce(&Machine) -> Post) -> u64 {
    let mut machine = Machine::new(costs);
    let post = post(&machine);
    machine.time(&[post], by)
}

fn batch(costs: Parameters, requests: usize) -> u64 {
    let mut machine = Machine::new(costs);
    let posts = vec![inline(8, &machine); requests];
    machine.time(&posts, By::Doorbell)
}

fn write(length: u32) -> impl FnOnce(&Machine) -> Post {
    move |machine| pointer(0x08, length, machine)
}

fn short(machine: &Machine) -> Post {
    inline(8, machine)
}

#[test]
fn a_request_takes_the_sum_of_its_steps() {
    let costs = CHOSEN;
    // A WQE of 48 bytes and a CQE of 64, in a PCIe packet each; a WRITE of 8 bytes (LRH, BTH, RETH,
    // payload, ICRC, VCRC) and its acknowledge (LRH, BTH, AETH, ICRC, VCRC).
    let (wqe, cqe) = ((48 + 24) * costs.bus_byte, (64 + 24) * costs.bus_byte);
    let (packet, ack) = (8 + 12 + 16 + 8 + 4 + 2, 8 + 12 + 4 + 4 + 2);
    let after_fetch =
        (packet + ack) * costs.wire_byte + 2 * costs.flight + cqe + costs.posted + costs.memory;
    let copied = costs.blueflame + costs.posted + after_fetch;
    let rung = costs.doorbell + costs.posted + costs.read + wqe + after_fetch;
    // Packets arrive at whole nanoseconds.
    assert!(one(costs, By::BlueFlame, short).abs_diff(copied / NANOSECOND) <= 2);
    assert!(one(costs, By::Doorbell, short).abs_diff(rung / NANOSECOND) <= 2);
    let gathered = rung + costs.read + (8 + 24) * costs.bus_byte;
    assert!(one(costs, By::Doorbell, write(8)).abs_diff(gathered / NANOSECOND) <= 2);
}

/// An order that a device shows, and the cost that it comes from.
struct Order {
    name: &'static str,
    holds: fn(Parameters) -> bool,
    without: fn(&mut Parameters),
}

const ORDERS: &[Order] = &[
    Order {
        name: "BlueFlame saves the fetch of the WQE",
        holds: |costs| one(costs, By::BlueFlame, short) < one(costs, By::Doorbell, short),
        without: |costs| costs.read = 0,
    },
    Order {
        name: "a copy costs the program more than a doorbell",
        holds: |costs| {
            let fetch = Parameters { read: 0, bus_byte: 0, ..costs };
            one(fetch, By::BlueFlame, short) > one(fetch, By::Doorbell, short) + 50
        },
        without: |costs| costs.blueflame = 0,
    },
    Order {
        name: "inline saves the read of the payload",
        holds: |costs| one(costs, By::BlueFlame, short) + 100 < one(costs, By::BlueFlame, write(8)),
        without: |costs| costs.read = 0,
    },
    Order {
        name: "a SEND waits for the receive WQE, a WRITE does not",
        holds: |costs| {
            let send = one(costs, By::Doorbell, |machine| pointer(0x0a, 8, machine));
            one(costs, By::Doorbell, write(8)) + 100 < send
        },
        without: |costs| costs.receive = 0,
    },
    Order {
        name: "a READ waits for the responder's memory, an inline WRITE does not",
        holds: |costs| {
            let read = one(costs, By::Doorbell, |machine| pointer(0x10, 8, machine));
            one(costs, By::Doorbell, short) + 100 < read
        },
        without: |costs| costs.read = 0,
    },
    Order {
        name: "an atomic waits for the responder's memory",
        holds: |costs| {
            let add = one(costs, By::Doorbell, |machine| pointer(0x12, 8, machine));
            one(costs, By::Doorbell, short) + 100 < add
        },
        without: |costs| costs.read = 0,
    },
    Order {
        name: "requests behind one doorbell share the latencies",
        holds: |costs| batch(costs, 32) < 2 * batch(costs, 1),
        without: |costs| (costs.read, costs.flight, costs.posted, costs.memory) = (0, 0, 0, 0),
    },
    Order {
        name: "the device begins requests at a limited rate",
        holds: |costs| batch(costs, 32) > batch(costs, 16) + 16 * 9,
        without: |costs| costs.request = 0,
    },
    Order {
        name: "one doorbell for 32 requests is cheaper than 32",
        holds: |costs| {
            let costs = Parameters { request: 0, bus_byte: 0, wire_byte: 0, ..costs };
            let mut machine = Machine::new(costs);
            let begun = machine.now();
            let post = short(&machine);
            for _ in 0..32 {
                let index = machine.side.write(&post);
                machine.ring(index, By::Doorbell);
            }
            for _ in 0..32 {
                assert_eq!(machine.wait(0).syndrome, 0);
            }
            machine.now() - begun > batch(costs, 32) + 31 * 19
        },
        without: |costs| costs.doorbell = 0,
    },
    Order {
        name: "large messages are limited by the link",
        holds: |costs| {
            let (small, large) = (write(4096), write(128 << 10));
            let time = one(costs, By::Doorbell, large) - one(costs, By::Doorbell, small);
            time > (124 << 10) * 79 / 1000
        },
        without: |costs| costs.wire_byte = 0,
    },
    Order {
        name: "payload passes PCIe before it passes the link",
        holds: |costs| {
            let (small, large) = (write(8), write(4096));
            let time = one(costs, By::Doorbell, large) - one(costs, By::Doorbell, small);
            time > (4096 - 8) * (80 + 60) / 1000
        },
        without: |costs| costs.bus_byte = 0,
    },
    Order {
        name: "a request and its acknowledge cross the network",
        holds: |costs| one(costs, By::BlueFlame, short) > 2 * 380,
        without: |costs| costs.flight = 0,
    },
    Order {
        name: "a store and a CQE cross PCIe",
        holds: |costs| {
            let costs = Parameters { blueflame: 0, memory: 0, flight: 0, ..costs };
            one(costs, By::BlueFlame, short) > 2 * 139
        },
        without: |costs| costs.posted = 0,
    },
    Order {
        name: "a CQE is seen after its way into memory",
        holds: |costs| {
            let costs = Parameters { blueflame: 0, posted: 0, flight: 0, ..costs };
            one(costs, By::BlueFlame, short) > 240
        },
        without: |costs| costs.memory = 0,
    },
];

#[test]
fn each_order_comes_from_its_cost() {
    for order in ORDERS {
        let mut costs = CHOSEN;
        assert!((order.holds)(costs), "{}", order.name);
        (order.without)(&mut costs);
        assert!(!(order.holds)(costs), "{}, whatever it costs", order.name);
    }
}

/// A machine whose queue may wait for CQs and enable WQEs.
fn master() -> Machine {
    let machine = Machine::new(CONNECTX5);
    machine.with_qp(|qp| qpc::CD_MASTER.set(&mut qp.context[..], 1));
    machine
}

/// Returns the nanoseconds that each of 16 further steps of a queue takes on a ConnectX-5. `queue`
/// returns the requests of so many steps.
fn step(queue: impl Fn(&Machine, u32) -> Vec<Post>) -> f64 {
    let [one, all] = [1, 17].map(|steps| {
        let mut machine = master();
        let posts = queue(&machine, steps);
        machine.time(&posts, By::Doorbell)
    });
    (all - one) as f64 / 16.0
}

/// Returns whether a time is that of a device but for a tenth.
fn is_near(time: f64, measured: f64) -> bool {
    (time - measured).abs() <= 0.1 * measured
}

/// Measured on ConnectX-5: 0.17 µs for each NOP, and 0.19 µs if each waits for the CQE of the one before
/// (evidence E162, E163).
#[test]
fn nops_that_wait_for_each_other_take_a_little_longer() {
    let nops = step(|_, steps| vec![Post::new(0x00); steps as usize]);
    assert!(is_near(nops, 170.0), "{nops}");
    let waiting = step(|machine, steps| chain(machine, 1..=steps));
    assert!(is_near(waiting, 190.0) && waiting > nops, "{waiting}");
}

/// NOPs, each with a request behind it that waits for the CQE. CQEs are counted from 1.
fn chain(machine: &Machine, cqes: RangeInclusive<u32>) -> Vec<Post> {
    let cq = machine.with_qp(|qp| qp.get(qpc::CQN_SND));
    cqes.flat_map(|cqe| [Post::new(0x00), Post { signaled: false, ..wait(cq, cqe) }]).collect()
}

/// Devices count so (evidence E165). The rings have 64 entries each.
#[test]
fn a_request_that_waits_counts_cqes_beyond_the_end_of_the_ring() {
    let mut machine = master();
    for round in 0..5 {
        let posts = chain(&machine, round * 17 + 1..=round * 17 + 17);
        machine.time(&posts, By::Doorbell);
    }
}

/// Measured on ConnectX-5: 0.54 µs for each WQE, since the device fetches them one by one (evidence
/// E163). The queue steers itself.
#[test]
fn a_queue_that_is_enabled_step_by_step_fetches_step_by_step() {
    let enabled = step(|machine, steps| {
        machine.with_qp(|qp| {
            qpc::CD_SLAVE_SEND.set(&mut qp.context[..], 1);
            qp.sq.enabled = 1;
        });
        let enable =
            |step| Post { opcode: 0x17, signaled: false, ..wait(machine.side.qp, step + 2) };
        (0..steps).map(enable).chain([Post::new(0x00)]).collect()
    });
    assert!(is_near(enabled, 540.0), "{enabled}");
}

#[test]
fn the_same_requests_take_the_same_time() {
    let run = || {
        let mut machine = Machine::new(CHOSEN);
        let mut times = Vec::new();
        for length in [8, 100, 5000, 200_000] {
            for opcode in [0x08, 0x10] {
                let post = pointer(opcode, length, &machine);
                times.push(machine.time(&[post.clone(), post], By::Doorbell));
            }
        }
        times
    };
    assert_eq!(run(), run());
}

#[test]
fn a_frame_of_another_process_leaves_the_work_at_hand_its_time() {
    let time = |stranger: bool| {
        let mut machine = Machine::new(CHOSEN);
        let post = short(&machine);
        let begun = machine.now();
        let index = machine.side.write(&post);
        if stranger {
            machine.engine.deliver(0, &Frame::new(vec![0; 64]));
        }
        machine.ring(index, By::BlueFlame);
        assert_eq!(machine.wait(0).syndrome, 0);
        machine.now() - begun
    };
    assert_eq!(time(true), time(false));
}

/// A page of registers of the machine's side.
struct Page(u32);

impl Registers for Page {
    fn execute(&self, card: &mut Card, offset: usize, bytes: &[u8]) {
        card.store(self.0, offset, bytes);
    }
}

#[test]
fn stores_that_waited_for_the_device_have_times_of_their_own() {
    let time = |waits: bool| {
        let mut machine = Machine::new(CHOSEN);
        let page: &Page = Box::leak(Box::new(Page(machine.side.rig.uar)));
        let post = short(&machine);
        let begun = machine.now();
        for _ in 0..2 {
            let index = machine.side.write(&post);
            if waits {
                let store = Store::new(page, 0x800, &machine.block(index)).unwrap();
                assert!(machine.engine.devices[0].work.deferred.put(store));
            } else {
                machine.ring(index, By::BlueFlame);
            }
        }
        // Enters the device.
        machine.now();
        for _ in 0..2 {
            assert_eq!(machine.wait(0).syndrome, 0);
        }
        machine.now() - begun
    };
    assert_eq!(time(true), time(false));
}

#[test]
fn a_message_that_is_still_under_way_counts_as_lost_by_no_timer() {
    // The first answer comes when 400,000 bytes have passed the link: the timeout is 8 µs.
    let setup = Setup { mtu: 4096, timeout: 1, retries: 0, ..Setup::default() };
    let mut machine =
        Machine::with(CHOSEN, setup, None, |cards| Engine::new(cards, Box::new(|_, _, _| {})));
    let post = pointer(0x08, 400_000, &machine);
    let posts = vec![post; 10];
    assert!(machine.time(&posts, By::Doorbell) > 300_000);
}

/// Measured on ConnectX-6 (evidence E022, E016, E017).
#[test]
fn error_cqes_come_at_the_pace_of_a_device() {
    let mut machine = Machine::new(CHOSEN);
    let begun = machine.now();
    let mut refused = pointer(0x08, 8, &machine);
    refused.data[0].2 ^= 0x100;
    machine.side.write(&refused);
    let others: Vec<u16> = (0..63).map(|_| machine.side.write(&Post::new(0x00))).collect();
    machine.ring(others[62], By::Doorbell);
    let times: Vec<u64> = (0..64)
        .map(|_| {
            assert_ne!(machine.wait(0).syndrome, 0);
            machine.now() - begun
        })
        .collect();
    assert!((222_000..=230_000).contains(&times[0]), "{times:?}");
    let pauses: Vec<u64> = times.windows(2).map(|two| two[1] - two[0]).collect();
    assert!((58_000..=66_000).contains(&pauses[0]), "{pauses:?}");
    assert!(pauses[1..].iter().all(|pause| (9_240..=9_770).contains(pause)), "{pauses:?}");
    // All 63 take about 640 µs.
    assert!((630_000..=650_000).contains(&(times[63] - times[0])), "{times:?}");
}

/// A device whose queue pair is connected to itself, with rules for faults.
fn faulty(setup: Setup, rules: &str) -> Machine {
    let machine =
        Machine::with(CHOSEN, setup, None, |cards| Engine::new(cards, Box::new(|_, _, _| {})));
    let rules = rules.parse().expect("rules");
    machine.engine.enter(0, |card| card.set_faults(&rules, 0));
    machine
}

/// Measured on ConnectX-5 and -6 Dx (evidence E118): a lost packet is sent again 4 to 8 µs later.
#[test]
fn a_lost_packet_costs_its_nak_and_the_reaction() {
    let time = |rules: &str| {
        let mut machine = faulty(Setup { mtu: 256, ..Setup::default() }, rules);
        let post = pointer(0x08, 1024, &machine);
        machine.time(&[post], By::Doorbell)
    };
    // Two crossings of the network and a read of memory come to it.
    let later = time("out packet 2 loss") - time("out packet 99 loss");
    assert!((6_000..8_500).contains(&later), "{later} ns");
}

/// Measured on ConnectX-5 (evidence E122): 20 µs, once.
#[test]
fn a_gap_costs_an_unreliable_connection_its_slow_path_once() {
    let time = |rules: &str| {
        let mut machine = faulty(Setup { service: Service::Uc, ..Setup::default() }, rules);
        let post = pointer(0x0a, 8, &machine);
        [(); 3].map(|()| {
            let begun = machine.now();
            machine.side.receive(&[(0, 64, machine.side.key)]);
            let index = machine.side.write(&post);
            machine.ring(index, By::Doorbell);
            assert_eq!(machine.wait(0).syndrome, 0);
            while machine.side.poll(1).is_some() {}
            machine.now() - begun
        })
    };
    let ([_, behind, next], [_, ordinary, last]) =
        (time("out packet 1 loss"), time("out packet 99 loss"));
    assert!((behind - ordinary).abs_diff(20_000) <= 100, "{behind}, without a gap {ordinary}");
    assert!(next.abs_diff(last) <= 100, "{next}, without a gap {last}");
}

#[test]
fn a_clock_that_is_read_costs_a_round_trip() {
    let machine = Machine::new(CHOSEN);
    let read = || machine.engine.enter(0, |card| card.read_clock());
    let (first, second) = (read(), read());
    assert!((second - first).abs_diff(CHOSEN.read / NANOSECOND) <= 1);
}

/// Runs a request whose peer does not exist until its retries are used up, and returns the time.
fn give_up(name: &str) -> u64 {
    let setup = Setup { timeout: 8, retries: 3, ..Setup::default() };
    let domain = format!("pace-{name}-{}", std::process::id());
    let mut machine = Machine::with(CHOSEN, setup, Some(0x12_ffff), |cards| {
        Engine::connected(&domain, cards, Box::new(|_, _, _| {})).unwrap()
    });
    let begun = machine.now();
    let post = short(&machine);
    let index = machine.side.write(&post);
    machine.ring(index, By::Doorbell);
    assert_ne!(machine.wait(0).syndrome, 0);
    machine.now() - begun
}

#[test]
fn timeouts_pass_in_virtual_time() {
    let time = give_up("one");
    // 4.096 µs · 2^8, four times.
    assert!((4_194_304..4_200_000).contains(&time), "{time}");
    assert_eq!(time, give_up("other"));
}

#[test]
fn a_receive_that_comes_later_is_waited_for() {
    let setup = Setup { rnr_timer: 1, ..Setup::default() };
    let domain = format!("pace-later-{}", std::process::id());
    let mut machine = Machine::with(CHOSEN, setup, None, |cards| {
        Engine::connected(&domain, cards, Box::new(|_, _, _| {})).unwrap()
    });
    let post = pointer(0x0a, 8, &machine);
    let index = machine.side.write(&post);
    machine.ring(index, By::Doorbell);
    assert_eq!(machine.side.poll(0), None, "the program can still post the receive");
    machine.side.receive(&[(0, 64, machine.side.key)]);
    assert_eq!(machine.wait(1).syndrome, 0);
    assert_eq!(machine.wait(0).syndrome, 0);
    // The shortest wait is 10 µs.
    assert!(machine.now() > 10_000);
}

/// Two devices of one engine, each with a queue pair that is connected to the other's, or to a number
/// at the other's port.
fn pair(
    setup: Setup,
    peers: Option<u32>,
    start: impl FnOnce(Vec<Card>) -> Arc<Engine>,
) -> (Arc<Engine>, [Side; 2]) {
    let host = Arc::<VirtualTime>::default();
    let mut sides = [0, 1].map(|end| Side::new(setup, end));
    let ends = sides.each_ref().map(|side| {
        let identity = &side.rig.card.identity;
        (peers.unwrap_or(side.qp), identity.lid, identity.gids[0].gid)
    });
    let mut cards = Vec::new();
    for (side, peer) in sides.iter_mut().zip([ends[1], ends[0]]) {
        side.rig.card.identity.timeouts = Timeouts::Specification { floor: 0 };
        side.rig.card.keep_virtual_time(&host, CHOSEN);
        side.connect(setup, peer, [7, 7]);
        let identity = side.rig.card.identity.clone();
        let stand_in = Card::new(identity, side.rig.memory.clone(), Clock::real());
        cards.push(std::mem::replace(&mut side.rig.card, stand_in));
    }
    (start(cards), sides)
}

/// Posts an inline WRITE of 8 bytes to the peer by BlueFlame.
fn post_write(engine: &Engine, card: usize, side: &mut Side, key: u32) {
    let mut post = Post::new(0x08);
    post.remote = (Side::address(0), key);
    post.inline = Some(vec![3; 8]);
    let index = side.write(&post);
    let ring = side.places().1;
    let block: [u8; 64] =
        side.rig.read(ring.start + u64::from(index) * 64 % (ring.end - ring.start));
    let uar = side.rig.uar;
    engine.enter(card, |card| card.store(uar, 0x800, &block));
}

#[test]
fn a_request_to_another_device_takes_as_long_as_to_the_own_one() {
    let alone = one(CHOSEN, By::BlueFlame, short);
    let setup = Setup { mtu: 4096, ..Setup::default() };
    let start = |cards| Engine::new(cards, Box::new(|_, _, _| {}));
    let (engine, mut sides) = pair(setup, None, start);
    let now = |card: usize| engine.enter(card, |card| card.port.pace.host());
    for card in [0, 1, 0] {
        let key = sides[1 - card].key;
        // The CQE was taken from one device, and the time is the other one's as well.
        let begun = now(1 - card);
        post_write(&engine, card, &mut sides[card], key);
        assert_eq!(sides[card].poll(0).expect("done when the store returns").syndrome, 0);
        assert!((now(1 - card) - begun).abs_diff(alone) <= 2, "{alone}");
    }
}

#[test]
fn threads_in_virtual_time_do_what_follows_from_each_store_before_the_next() {
    const ROUNDS: usize = 300;
    let start = |cards| Engine::new(cards, Box::new(|_, _, _| {}));
    let (engine, sides) = pair(Setup { mtu: 4096, ..Setup::default() }, None, start);
    let keys = sides.each_ref().map(|side| side.key);
    std::thread::scope(|scope| {
        for (card, mut side) in sides.into_iter().enumerate() {
            let (engine, key) = (&engine, keys[1 - card]);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    post_write(engine, card, &mut side, key);
                    let cqe = side.poll(0).expect("done when the store returns");
                    assert_eq!(cqe.syndrome, 0);
                }
            });
        }
    });
    assert!(!engine.devices.iter().any(|device| device.work.is_there()));
}

#[test]
fn timers_of_all_devices_pass_in_one_virtual_time() {
    let domain = format!("pace-timers-{}", std::process::id());
    let start = |cards| Engine::connected(&domain, cards, Box::new(|_, _, _| {})).unwrap();
    // Nobody has the number of the peers: four timeouts of 4.096 µs · 2^8.
    let setup = Setup { timeout: 8, retries: 3, ..Setup::default() };
    let (engine, mut sides) = pair(setup, Some(0x12_ffff), start);
    let begun = engine.enter(0, |card| card.port.pace.host());
    for (card, side) in sides.iter_mut().enumerate() {
        post_write(&engine, card, side, 0);
    }
    let end = Instant::now() + PATIENCE;
    for side in &mut sides {
        while side.poll(0).is_none() {
            assert!(Instant::now() < end, "no completion");
            std::thread::yield_now();
        }
    }
    let time = engine.enter(0, |card| card.port.pace.host()) - begun;
    assert!((4_194_304..4_200_000).contains(&time), "the times overlap: {time}");
}
