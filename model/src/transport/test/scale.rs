//! The cost of queue pairs when there are many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mlx5_sys::ifc::{create_qp_out, destroy_qp_in, opcode, rst2init_qp_in};

use super::side::Side;
use super::{Pair, Setup};
use crate::command::test::{Command, Rig, thread_time};
use crate::memory::test::Flat;
use crate::memory::{Fault, Memory};
use crate::object::State;

const FLUSHED: u8 = 0x05;

/// Queue pairs that share rings and a doorbell record, which are never used.
struct Crowd {
    rig: Rig,
    create: Command,
}

impl Crowd {
    fn new(most: usize) -> Self {
        let mut rig = Rig::new();
        rig.card.identity.qpn_prefixes = (0x20..=0x20 + most as u16 / 256 + 1).collect();
        let cq = rig.cq();
        let create = rig.create_qp(cq, cq);
        Self { rig, create }
    }

    fn make(&mut self) -> u32 {
        self.rig.number(&self.create, create_qp_out::QPN)
    }

    fn run(&mut self, opcode: u16, qp: u32) {
        // DESTROY_QP has the number where the transitions have it.
        assert_eq!(rst2init_qp_in::QPN, destroy_qp_in::QPN);
        let command = Command::new(opcode, 0x10).set(rst2init_qp_in::QPN, qp);
        self.rig.run(&command).expect("accepted");
        while self.rig.card.pump() | self.rig.card.settle() {}
    }
}

/// Processor time for each of some queue pairs: to make them, to connect them, to move them to
/// Error, and to destroy them. The best of a few rounds, with so many others there.
fn costs(crowd: &mut Crowd) -> [Duration; 4] {
    const BATCH: u32 = 100;
    let mut best = [Duration::MAX; 4];
    for _ in 0..5 {
        let begin = thread_time();
        let batch: Vec<u32> = (0..BATCH).map(|_| crowd.make()).collect();
        let made = thread_time();
        batch.iter().for_each(|qp| crowd.rig.rts(*qp));
        let connected = thread_time();
        batch.iter().for_each(|qp| crowd.run(opcode::QP_2ERR, *qp));
        let failed = thread_time();
        batch.iter().for_each(|qp| crowd.run(opcode::DESTROY_QP, *qp));
        let destroyed = thread_time();
        let now = [made - begin, connected - made, failed - connected, destroyed - failed];
        for (best, now) in best.iter_mut().zip(now) {
            *best = (*best).min(now / BATCH);
        }
    }
    best
}

#[test]
fn a_queue_pair_costs_the_same_however_many_there_are() {
    const MANY: usize = 5_000;
    let mut few = Crowd::new(200);
    let alone = costs(&mut few);
    let mut many = Crowd::new(MANY + 200);
    for other in 0..MANY {
        let qp = many.make();
        many.rig.rts(qp);
        match other % 2 {
            0 => many.run(opcode::QP_2ERR, qp),
            _ => many.rig.card.port.set_timer(qp, 1 << 40 | other as u64),
        }
    }
    let crowded = costs(&mut many);
    for (what, (alone, crowded)) in
        ["create", "connect", "to Error", "destroy"].iter().zip(alone.iter().zip(crowded))
    {
        // A walk over the others takes ten times as long as the rest, and more.
        assert!(crowded < *alone * 4, "{what}: {alone:?} alone, {crowded:?} beside {MANY}");
    }
}

/// Memory that counts reads.
struct Counting {
    below: Arc<Flat>,
    reads: AtomicUsize,
}

impl Memory for Counting {
    fn read(&self, address: u64, to: &mut [u8]) -> Result<(), Fault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.below.read(address, to)
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.below.write(address, from)
    }

    fn update(
        &self,
        address: u64,
        change: &mut dyn FnMut([u8; 8]) -> [u8; 8],
    ) -> Result<[u8; 8], Fault> {
        self.below.update(address, change)
    }

    fn publish(&self, address: u64, from: &[u8]) -> Result<(), Fault> {
        self.below.publish(address, from)
    }
}

#[test]
fn queue_pairs_in_error_are_looked_at_rarely_when_nothing_happens() {
    const QPS: usize = 1_000;
    const SECONDS: u64 = 60;
    let mut crowd = Crowd::new(QPS);
    for _ in 0..QPS {
        let qp = crowd.make();
        crowd.rig.rts(qp);
        crowd.run(opcode::QP_2ERR, qp);
    }
    let below = Arc::clone(&crowd.rig.memory);
    let counting = Arc::new(Counting { below, reads: AtomicUsize::new(0) });
    let card = &mut crowd.rig.card;
    card.memory = Arc::clone(&counting) as Arc<dyn Memory>;
    let mut wakes = 0;
    while let Some(next) = card.deadline().filter(|at| *at < SECONDS * 1_000_000_000) {
        card.clock.advance(next.saturating_sub(card.clock.now()));
        card.expire();
        wakes += 1;
    }
    let reads = counting.reads.load(Ordering::Relaxed);
    assert!(wakes <= 2 * SECONDS, "{wakes} looks in {SECONDS} s");
    assert!(reads <= wakes as usize * QPS, "{reads} reads in {wakes} looks");
}

#[test]
fn a_receive_posted_in_error_is_flushed_whenever_that_is() {
    for register in [false, true] {
        let mut pair = Pair::new(Setup::default());
        pair.sides[1].break_off();
        assert_eq!(pair.sides[1].state(), State::Error);
        for _ in 0..40 {
            pair.tick();
        }
        let Side { key, .. } = pair.sides[1];
        let side = &mut pair.sides[1];
        let index = side.receive(&[(0, 8, key)]);
        let posted = side.rig.card.clock.now();
        if register {
            // An arm of no CQ: any store will do.
            side.rig.card.store(side.rig.uar, 0x20, &[0; 8]);
        }
        assert!(pair.run(10, |pair| pair.sides[1].outcomes(1) == [(index, FLUSHED)]));
        let waited = pair.sides[1].rig.card.clock.now() - posted;
        let most = if register { 500_000 } else { 256_000_000 };
        assert!(waited <= most, "{waited} ns, with a store: {register}");
    }
}
