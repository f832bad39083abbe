//! Random operations under random faults, each from a seed: nothing is lost, doubled or invented,
//! unless a fault explains it. Data of odd seeds becomes visible out of order.
//!
//! `MLX5_SEED=n` replays one seed, `MLX5_SEEDS=n` tries the first n.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::rc::Rc;

use super::datagram::{datagram, datagrams};
use super::side::{Cqe, Post, REGION, Side};
use super::{Pair, Setup, dynamic, xrc};
use crate::card::{Link, Placement};
use crate::clock::Random;
use crate::object::Service;

const WRITE: u8 = 0x08;
const WRITE_IMMEDIATE: u8 = 0x09;
const SEND: u8 = 0x0a;
const SEND_IMMEDIATE: u8 = 0x0b;
const READ: u8 = 0x10;
const FAA: u8 = 0x12;
const CQE_SEND: u8 = 2;

const FLUSHED: u8 = 0x05;
const NO_ANSWER: u8 = 0x15;
const ABORTED: u8 = 0x22;

const MS: u64 = 1_000_000;
/// Seeds tried without `MLX5_SEEDS`.
const SEEDS: u64 = 1_000;
/// Messages of a run.
const MESSAGES: usize = 16;
/// Each message has a place in each area of the region.
const ROOM: u64 = 4096;
const SENDS: u64 = 128 << 10;
const WRITES: u64 = 256 << 10;
const RESULTS: u64 = 384 << 10;
const COUNTER: u64 = REGION as u64 - 8;
/// Bytes in front of a datagram.
const GRH: u64 = 40;

/// Draws of a seed.
struct Dice(Random);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0.draw() % count
    }

    fn one<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Rules for faults, and what they may lead to.
struct Rules {
    text: String,
    /// Rules that lose packets for long enough to end a connection.
    outages: usize,
}

fn rules(seed: u64, dice: &mut Dice) -> Rules {
    let mut rules = Rules { text: format!("seed {seed}"), outages: 0 };
    for _ in 0..dice.below(5) {
        let side = dice.one(&["", "in ", "out ", "device 0 ", "device 1 out "]);
        let at = dice.below(4000);
        let percent = dice.one(&["0.5%", "1%", "2%", "5%"]);
        let n = 1 + dice.below(60);
        let rule = match dice.below(14) {
            0 | 1 => format!("loss {percent}"),
            2 => format!("packet {n}-{} loss", n + dice.below(4)),
            3 | 4 => format!("duplicate {percent}"),
            5 => format!("corrupt {percent}"),
            6 | 7 => format!("reorder {} {percent}", 1 + dice.below(7)),
            8 => format!("mark {percent}"),
            9 => format!("delay {}us", dice.below(3000)),
            10 => format!("delay 3ms jitter {}us", dice.below(3000)),
            11 => format!("rate {}Mbit", 200 + dice.below(5000)),
            12 => format!("pause at {at}us for {}ms", 1 + dice.below(20)),
            _ => {
                rules.outages += 1;
                match dice.below(3) {
                    0 => format!("loss at {at}us"),
                    1 => {
                        let length = 1 + dice.below(2000);
                        rules.text += &format!("\ndevice 0 flap at {at}us for {length}ms");
                        continue;
                    }
                    _ => {
                        rules.text += &format!("\ndevice 1 flap at {at}us");
                        continue;
                    }
                }
            }
        };
        rules.text += &format!("\n{side}{rule}");
    }
    rules
}

/// A message, and its place.
struct Message {
    number: u32,
    opcode: u8,
    bytes: Vec<u8>,
    add: u64,
    index: u16,
}

impl Message {
    fn place(&self, area: u64) -> u64 {
        area + u64::from(self.number) * ROOM
    }

    fn takes_receive(&self) -> bool {
        matches!(self.opcode, SEND | SEND_IMMEDIATE | WRITE_IMMEDIATE)
    }
}

/// One run: its sides, what was posted, and what was completed.
struct Run {
    setup: Setup,
    pair: Pair,
    rules: Rules,
    /// Target of dynamic connections.
    target: u32,
    messages: Vec<Message>,
    sent: Vec<Cqe>,
    received: Vec<Cqe>,
    frames: Rc<RefCell<DefaultHasher>>,
}

/// Names the seed if its run fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("MLX5_SEED={} repeats this failure", self.0);
        }
    }
}

impl Run {
    fn new(seed: u64, dice: &mut Dice) -> Self {
        let services = [Service::Rc, Service::Uc, Service::Ud, Service::Xrc, Service::Dc];
        let service = dice.one(&services);
        let base = match service {
            Service::Ud => datagrams(),
            Service::Dc => dynamic::setup(),
            _ => Setup { service, shared_receive: dice.below(2) == 0, ..Setup::default() },
        };
        let setup = Setup {
            link: dice.one(&[Link::InfiniBand, Link::Roce]),
            mtu: dice.one(&[256, 512, 1024]),
            psn: [dice.one(&[0, 7, 0xff_fffa]), dice.one(&[0, 0xff_fff0])],
            shared_receive: base.shared_receive && service != Service::Xrc,
            ..base
        };
        let (mut pair, target) = match service {
            Service::Dc => dynamic::pair(setup),
            Service::Xrc => (xrc::pair(setup), 0),
            _ => (Pair::new(setup), 0),
        };
        let rules = rules(seed, dice);
        pair.set_faults(&rules.text);
        if seed % 2 == 1 {
            for side in &mut pair.sides {
                side.rig.card.placement = Some(Placement::seeded(seed));
            }
        }
        let frames = Rc::new(RefCell::new(DefaultHasher::new()));
        let log = frames.clone();
        pair.drop = Box::new(move |side, frame| {
            (side, &frame.0).hash(&mut *log.borrow_mut());
            false
        });
        let (messages, sent, received) = (vec![], vec![], vec![]);
        Self { setup, pair, rules, target, messages, sent, received, frames }
    }

    fn is_reliable(&self) -> bool {
        !matches!(self.setup.service, Service::Uc | Service::Ud)
    }

    fn post(&mut self, dice: &mut Dice) {
        let opcode = match self.setup.service {
            Service::Ud => dice.one(&[SEND, SEND_IMMEDIATE]),
            Service::Uc => dice.one(&[WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE]),
            _ => dice.one(&[WRITE, WRITE_IMMEDIATE, SEND, SEND_IMMEDIATE, READ, FAA]),
        };
        let most = if self.setup.service == Service::Ud { self.setup.mtu.into() } else { 4000 };
        let number = self.messages.len() as u32;
        let length = if opcode == FAA { 8 } else { 4 + dice.below(most - 3) };
        // No byte is zero, as untouched memory is. The first ones are the number.
        let mut bytes: Vec<u8> = (0..length).map(|_| 1 + dice.below(255) as u8).collect();
        bytes[..4].copy_from_slice(&[1, 1, 1, 1 + number as u8]);
        let mut message = Message { number, opcode, bytes, add: dice.below(1 << 40), index: 0 };
        let mut post = match self.setup.service {
            Service::Ud => datagram(&self.pair, self.setup, length as u32),
            Service::Dc => dynamic::request(&self.pair, opcode, length as u32, self.target),
            Service::Xrc => {
                let [own, _] = &self.pair.sides;
                xrc::request(own, opcode, length as u32, xrc::srq(&self.pair))
            }
            _ => Post::new(opcode),
        };
        let [own, peer] = &mut self.pair.sides;
        (post.opcode, post.immediate, post.operands) = (opcode, number, (message.add, 0));
        let (from, to) = match opcode {
            READ => (message.place(RESULTS), message.place(0)),
            FAA => (message.place(RESULTS), COUNTER),
            _ => (message.place(0), message.place(WRITES)),
        };
        post.data = vec![(from, length as u32, own.key)];
        post.remote = (Side::address(to), peer.key);
        let source = if opcode == READ { &*peer } else { &*own };
        source.put(message.place(0), &message.bytes);
        if message.takes_receive() {
            // The place of a receive is that of its own number.
            let place = SENDS + u64::from(peer.received) * ROOM;
            peer.receive(&[(place, ROOM as u32, peer.key)]);
        }
        message.index = own.post(&post);
        self.messages.push(message);
    }

    fn collect(&mut self) {
        let [own, peer] = &mut self.pair.sides;
        self.sent.extend(own.drain(0));
        self.received.extend(peer.drain(1));
    }

    /// Lets time pass.
    fn wait(&mut self, time: u64) {
        let end = self.pair.now() + time;
        let next =
            |pair: &Pair| pair.sides.iter().filter_map(|side| side.rig.card.deadline()).min();
        while next(&self.pair).is_some_and(|deadline| deadline <= end) {
            self.pair.tick();
            self.collect();
        }
        for side in &mut self.pair.sides {
            let clock = &mut side.rig.card.clock;
            clock.advance(end.saturating_sub(clock.now()));
        }
        self.pair.settle();
        self.collect();
    }

    /// Faults of both devices, by the word of the rule.
    fn struck(&self, words: &[&str]) -> u64 {
        let lines = self.rules.text.lines().skip(1);
        let tallies = self.pair.sides.iter().map(|side| side.rig.card.fault_tallies());
        let tallies: Vec<_> = tallies.collect();
        lines
            .enumerate()
            .filter(|(_, line)| words.iter().any(|word| line.contains(word)))
            .flat_map(|(index, _)| tallies.iter().filter_map(move |all| all.get(index)))
            .map(|tally| tally.struck)
            .sum()
    }

    /// Each request completes once, in order; with an error only if packets were lost. Returns how
    /// many succeeded.
    fn check_sends(&self) -> usize {
        let posted: Vec<u16> = self.messages.iter().map(|message| message.index).collect();
        let completed: Vec<u16> = self.sent.iter().map(|cqe| cqe.wqe).collect();
        assert_eq!(completed, posted, "each request completes once");
        let good = self.sent.iter().take_while(|cqe| cqe.syndrome == 0).count();
        if let [first, rest @ ..] = &self.sent[good..] {
            assert!(self.is_reliable());
            assert_eq!(first.syndrome, NO_ANSWER);
            assert!(rest.iter().all(|cqe| cqe.syndrome == FLUSHED));
            // A try and seven more.
            let explained = self.rules.outages > 0 || self.struck(&["loss", "corrupt"]) >= 8;
            assert!(explained, "no fault explains a lost connection");
        }
        good
    }

    /// Each arrived message is one that was sent, whole. Reliable services deliver each once and in
    /// order; others may repeat or reorder where a fault does.
    fn check_receives(&self, good: usize) {
        let lead = if self.setup.service == Service::Ud { GRH } else { 0 };
        let mut got = vec![];
        for (position, cqe) in self.received.iter().enumerate() {
            assert_eq!(usize::from(cqe.wqe), position, "{cqe:?}");
            if cqe.syndrome == ABORTED {
                self.check_abort(position, got.len(), good);
                continue;
            }
            assert_eq!(cqe.syndrome, 0, "{cqe:?}");
            let place = SENDS + position as u64 * ROOM + lead;
            let peer = &self.pair.sides[1];
            let number = match cqe.opcode {
                CQE_SEND => u32::from(peer.get(place + 3, 1)[0]) - 1,
                _ => u32::from_be_bytes(cqe.immediate),
            };
            let message = self.messages.get(number as usize).expect("it was sent");
            assert!(message.takes_receive());
            assert_eq!(
                u64::from(cqe.length),
                message.bytes.len() as u64 + lead * u64::from(message.opcode != WRITE_IMMEDIATE)
            );
            if message.opcode != WRITE_IMMEDIATE {
                assert!(peer.get(place, message.bytes.len()) == message.bytes, "message {number}");
            }
            got.push(number);
        }
        let takers = self.messages.iter().filter(|message| message.takes_receive());
        let all: Vec<u32> = takers.map(|message| message.number).collect();
        if self.is_reliable() {
            assert_eq!(got, all[..got.len()], "each once and in order");
            assert!(all.iter().filter(|number| (**number as usize) < good).count() <= got.len());
            return;
        }
        if self.struck(&["duplicate"]) == 0 {
            assert_eq!(
                got.iter().collect::<BTreeSet<_>>().len(),
                got.len(),
                "none doubled: {got:?}"
            );
        }
        if self.struck(&["duplicate", "reorder", "jitter"]) == 0 {
            assert!(got.is_sorted(), "in order: {got:?}");
        }
        let harmless = self.struck(&["loss", "corrupt", "duplicate", "reorder", "jitter"]) == 0;
        if harmless && self.rules.outages == 0 {
            assert_eq!(got, all, "nothing lost without a fault");
        }
    }

    /// A target aborts the receive of a message that will never be whole: the last one that came, of
    /// an initiator that has given up. `got` messages came before it.
    fn check_abort(&self, position: usize, got: usize, good: usize) {
        assert_eq!(self.setup.service, Service::Dc);
        assert_eq!(position + 1, self.received.len(), "nothing comes after it");
        let mut takers = self.messages.iter().filter(|message| message.takes_receive());
        let message = takers.nth(got).expect("it was sent");
        assert!(message.number as usize >= good, "it has not succeeded");
        let parts = message.bytes.len().div_ceil(self.setup.mtu as usize);
        assert!(message.opcode != WRITE_IMMEDIATE && parts > 1, "a part of it is missing");
    }

    /// Memory has what succeeded, nothing that was not sent, and nothing beyond a message.
    fn check_memory(&self, good: usize) {
        let [own, peer] = &self.pair.sides;
        let mut counter: Range<u64> = 0..0;
        for (position, message) in self.messages.iter().enumerate() {
            let (side, area) = match message.opcode {
                WRITE | WRITE_IMMEDIATE => (peer, WRITES),
                READ => (own, RESULTS),
                FAA => {
                    if position < good {
                        let before = own.get(message.place(RESULTS), 8);
                        assert_eq!(before, counter.start.to_le_bytes(), "FAA {position}");
                        counter.start += message.add;
                    }
                    counter.end += message.add;
                    continue;
                }
                _ => continue,
            };
            let done = position < good && self.is_reliable();
            let got = side.get(message.place(area), ROOM as usize);
            let (inside, beyond) = got.split_at(message.bytes.len());
            let right = inside.iter().zip(&message.bytes);
            let right = right.filter(|(got, _)| done || **got != 0).all(|(got, sent)| got == sent);
            assert!(right, "memory of message {position}");
            assert!(beyond.iter().all(|byte| *byte == 0), "beyond message {position}");
        }
        let counted = u64::from_le_bytes(peer.get(COUNTER, 8).try_into().unwrap());
        assert!((counter.start..=counter.end).contains(&counted), "each FAA is done once");
    }
}

/// What a seed has led to.
struct Report {
    /// Hash of all frames and completions.
    hash: u64,
    service: Service,
    lost_connection: bool,
    /// The kinds of faults that happened.
    faults: BTreeSet<&'static str>,
}

/// Faults of frames, as rules name them.
const FAULTS: [&str; 9] =
    ["loss", "duplicate", "corrupt", "reorder", "mark", "delay", "jitter", "rate", "pause"];

/// Runs a seed.
fn run(seed: u64) -> Report {
    let _named = Named(seed);
    let mut dice = Dice(Random::seeded(seed));
    let mut run = Run::new(seed, &mut dice);
    while run.messages.len() < MESSAGES {
        for _ in 0..=dice.below(4).min((MESSAGES - run.messages.len() - 1) as u64) {
            run.post(&mut dice);
        }
        let time = dice.one(&[0, 0, MS / 10, MS, 5 * MS]);
        run.wait(time);
    }
    // Longer than all tries of a request take.
    run.wait(20_000 * MS);
    let good = run.check_sends();
    run.check_receives(good);
    run.check_memory(good);
    let mut hash = run.frames.borrow().clone();
    for cqe in run.sent.iter().chain(&run.received) {
        (cqe.opcode, cqe.syndrome, cqe.wqe, cqe.length, cqe.immediate).hash(&mut hash);
    }
    Report {
        hash: hash.finish(),
        service: run.setup.service,
        lost_connection: good < run.messages.len(),
        faults: FAULTS.into_iter().filter(|fault| run.struck(&[fault]) > 0).collect(),
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

#[test]
fn no_fault_loses_doubles_or_invents_a_message() {
    let seeds = match number("MLX5_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("MLX5_SEEDS").unwrap_or(SEEDS),
    };
    let reports: Vec<Report> = seeds.map(run).collect();
    // Enough seeds meet everything.
    if reports.len() as u64 >= SEEDS {
        let faults: BTreeSet<_> = reports.iter().flat_map(|report| &report.faults).collect();
        assert!(FAULTS.iter().all(|fault| faults.contains(fault)), "{faults:?}");
        for service in [Service::Rc, Service::Xrc, Service::Dc] {
            let mut runs = reports.iter().filter(|report| report.service == service);
            assert!(runs.any(|report| report.lost_connection), "{service:?}");
        }
    }
}

#[test]
fn a_seed_is_repeated_bit_for_bit() {
    let all: BTreeSet<u64> = (0..20)
        .map(|seed| {
            let first = run(seed).hash;
            assert_eq!(first, run(seed).hash, "seed {seed}");
            first
        })
        .collect();
    assert_eq!(all.len(), 20, "seeds differ");
}
