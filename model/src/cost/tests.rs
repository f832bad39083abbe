//! Unit tests.

use std::sync::Arc;

use super::*;

const NONE: Parameters = Parameters {
    doorbell: 0,
    blueflame: 0,
    posted: 0,
    read: 0,
    receive: 0,
    memory: 0,
    bus_byte: 0,
    request: 0,
    queue: 0,
    nop: 0,
    wire_byte: 0,
    flight: 0,
    protection: 0,
    first_flush: 0,
    flush: 0,
    nak: 0,
    repetition: 0,
    jump: 0,
    answer: 0,
    atomic: 0,
    place: 0,
    commands: &[],
};

fn pace(parameters: Parameters) -> (Pace, Clock) {
    Pace::start(&Arc::default(), parameters)
}

#[test]
fn without_virtual_time_nothing_is_kept() {
    let pace = Pace::default();
    pace.stored(|| unreachable!("no store is looked at"));
    pace.sent(Side::Request, 100);
    pace.left();
    assert!(!pace.is_virtual());
    assert_eq!((pace.arrival(), pace.stamp(), pace.read_clock()), (0, 0, None));
}

#[test]
fn packets_leave_one_after_another_and_fly_together() {
    let (pace, clock) = pace(Parameters { wire_byte: 1_000, flight: 500_000, ..NONE });
    pace.timer(10);
    assert_eq!(clock.now(), 10);
    let arrivals: Vec<u64> = (0..3)
        .map(|_| pace.sent(Side::Request, 100))
        .map(|()| (pace.left(), pace.arrival()).1)
        .collect();
    assert_eq!(arrivals, [610, 710, 810]);
}

#[test]
fn packets_of_a_limited_queue_leave_at_its_rate() {
    // 100 bytes take 800 ns at 1 Gbit/s.
    for (burst, expected) in [(0, [10, 810, 1610, 2410]), (200, [10, 10, 10, 810])] {
        let (pace, _) = pace(NONE);
        pace.timer(10);
        let rate = Rate { kbps: 1_000_000, burst };
        let departures = [(); 4].map(|()| {
            pace.turn(1);
            pace.limited(1, 100, rate);
            pace.sent(Side::Request, 100);
            pace.left();
            pace.arrival()
        });
        assert_eq!(departures, expected, "a burst of {burst} bytes");
    }
}

#[test]
fn the_program_sees_a_cqe_when_it_has_taken_it() {
    let (pace, clock) = pace(Parameters { posted: 7_000, memory: 5_000, ..NONE });
    for (producer, at) in [(1, 100), (2, 200), (3, 300)] {
        pace.timer(at);
        pace.completes(9);
        pace.completed(9, producer, 4);
    }
    assert_eq!(clock.now(), 300);
    for (consumer, host) in [(0, 0), (2, 212), (2, 212), (3, 312)] {
        pace.take(|cq| (cq == 9).then_some(consumer));
        assert_eq!(pace.host(), host);
    }
}

#[test]
fn cqes_of_a_cq_that_is_gone_move_no_time() {
    let (pace, _) = pace(NONE);
    pace.timer(100);
    pace.completed(9, 1, 4);
    pace.take(|_| None);
    // Another CQ has its number, and has overrun.
    pace.completed(9, 0xff_ffff, 4);
    (0..6).for_each(|producer| pace.completed(9, producer, 4));
    pace.timer(50);
    pace.take(|_| Some(0xff_ffff));
    assert_eq!(pace.host(), 0);
    pace.take(|_| Some(5));
    assert_eq!(pace.host(), 100);
}

#[test]
fn a_wqe_that_came_with_the_store_is_not_fetched() {
    let copy = |newest| Store::Copy { blocks: 1, newest };
    for (store, took) in [
        (Store::Word, 400),
        (copy(Some((5, 8))), 0),
        // Of another queue, and behind others that were not fetched.
        (copy(Some((6, 8))), 400),
        (copy(None), 400),
    ] {
        let (pace, clock) = pace(Parameters { read: 400_000, ..NONE });
        pace.stored(|| store);
        pace.fetched((5, 8), 64, Request::Packets);
        assert_eq!(clock.now(), took, "{store:?}");
        pace.fetched((5, 9), 64, Request::Packets);
        assert_eq!(clock.now(), 400, "{store:?}: the next");
    }
}

#[test]
fn work_of_an_earlier_time_finds_the_gap_before_later_work() {
    let (pace, _) = pace(Parameters { wire_byte: 1_000, ..NONE });
    let sent = |qp, at, bytes| {
        pace.timer(at);
        pace.turn(qp);
        pace.sent(Side::Response, bytes);
        pace.left();
        pace.arrival()
    };
    assert_eq!(sent(1, 500, 100), 600);
    // Before it, between both, and behind all, where no gap is long enough.
    assert_eq!(sent(2, 100, 100), 200);
    assert_eq!(sent(3, 150, 300), 500);
    assert_eq!(sent(4, 90, 20), 620);
    assert_eq!(sent(5, 80, 20), 100);
    // Never before an older packet of the queue pair.
    assert_eq!(sent(1, 10, 10), 630);
}

#[test]
fn error_cqes_of_a_queue_pair_are_apart_and_leave_others_alone() {
    let costs = Parameters { protection: 200_000, first_flush: 50_000, flush: 10_000, ..NONE };
    let (pace, clock) = pace(costs);
    let time = |qp, cq, failure| {
        pace.timer(100);
        pace.fails(qp, cq, failure);
        clock.now()
    };
    assert_eq!(time(5, 9, Failure::Protection), 300);
    assert_eq!([350, 360, 370], [(); 3].map(|()| time(5, 9, Failure::Flush)));
    // Without a failure before it, the first one comes at once.
    assert_eq!([100, 110], [(); 2].map(|()| time(6, 8, Failure::Flush)));
    assert_eq!((time(7, 7, Failure::Other), time(7, 7, Failure::Flush)), (100, 150));
    pace.timer(100);
    pace.completes(6);
    assert_eq!(clock.now(), 100);
}

#[test]
fn a_cqe_is_behind_its_payload_and_behind_the_cqe_before_it() {
    let (pace, clock) = pace(Parameters { bus_byte: 1_000, ..NONE });
    pace.timer(100);
    pace.wrote(256);
    pace.completes(9);
    assert_eq!(clock.now(), 100 + 280 + 88);
    pace.timer(20);
    pace.completes(9);
    assert_eq!(clock.now(), 100 + 280 + 2 * 88);
    // Of another CQ.
    pace.timer(10);
    pace.completes(8);
    assert_eq!(clock.now(), 10 + 88);
}

fn begins(pace: &Pace, clock: &Clock, qp: u32, index: u16, request: Request) -> u64 {
    pace.fetched((qp, index), 64, request);
    clock.now()
}

#[test]
fn other_queue_pairs_begin_wqes_in_the_slots_that_one_leaves_free() {
    let (pace, clock) = pace(Parameters { request: 1_000, queue: 3_000, ..NONE });
    pace.timer(0);
    let three = |qp| [0, 1, 2].map(|at| begins(&pace, &clock, qp, at, Request::Packets));
    assert_eq!(three(1), [0, 3, 6]);
    assert_eq!(three(2), [1, 4, 7]);
    assert_eq!(three(3), [2, 5, 8]);
    // All slots up to there are taken.
    assert_eq!(three(4), [9, 12, 15]);
}

#[test]
fn a_nop_holds_its_own_queue_pair_up() {
    let (pace, clock) = pace(Parameters { nop: 5_000, ..NONE });
    pace.timer(10);
    assert_eq!(begins(&pace, &clock, 1, 0, Request::Nop), 10);
    assert_eq!(begins(&pace, &clock, 2, 0, Request::Packets), 10);
    assert_eq!(begins(&pace, &clock, 1, 1, Request::Packets), 15);
    assert_eq!(begins(&pace, &clock, 1, 2, Request::Packets), 15);
}

#[test]
fn an_enabled_wqe_is_fetched_when_it_was_enabled() {
    let (pace, clock) = pace(Parameters { read: 400_000, ..NONE });
    pace.timer(100);
    pace.enabled(5);
    pace.timer(20);
    assert_eq!(begins(&pace, &clock, 5, 0, Request::Packets), 500);
    assert_eq!(begins(&pace, &clock, 6, 0, Request::Packets), 420);
}

#[test]
fn a_wqe_behind_a_wait_begins_after_the_cqe() {
    let (pace, clock) = pace(NONE);
    pace.timer(300);
    pace.completes(9);
    pace.waited(5, 9);
    pace.timer(10);
    assert_eq!(begins(&pace, &clock, 5, 0, Request::Packets), 300);
    assert_eq!(begins(&pace, &clock, 6, 0, Request::Packets), 10);
}

#[test]
fn atomics_at_one_place_wait_for_each_other() {
    let (pace, clock) = pace(Parameters { atomic: 1_000, place: 10_000, ..NONE });
    let done = |address| {
        pace.timer(0);
        pace.atomic(address, 8);
        clock.now()
    };
    // The lower 12 bits are a place. The device begins an atomic every nanosecond.
    assert_eq!([0x1000, 0x1000, 0x2000, 0x1008].map(done), [0, 10, 20, 3]);
}

#[test]
fn an_answer_takes_longer_than_a_request() {
    let (pace, _) = pace(Parameters { answer: 7_000, ..NONE });
    pace.timer(1);
    let arrivals = [Side::Request, Side::Response].map(|side| {
        pace.sent(side, 100);
        pace.left();
        pace.arrival()
    });
    assert_eq!(arrivals, [1, 8]);
}

#[test]
fn a_command_takes_the_programs_time() {
    const COMMANDS: &[parameters::Command] =
        &[parameters::Command { opcode: 1, each: 5_000, byte: 2 }];
    let (pace, clock) = pace(Parameters { commands: COMMANDS, ..NONE });
    pace.commanded(|| (2, 500));
    assert_eq!(pace.host(), 0);
    pace.commanded(|| (1, 500));
    assert_eq!((pace.host(), clock.now()), (6, 6));
}

#[test]
fn the_limit_of_a_queue_pair_is_a_number_of_slots() {
    use devices::*;
    for costs in [CHOSEN, CONNECTX5, CONNECTX6, CONNECTX6_DX, CONNECTX7] {
        assert!(costs.queue == 0 || costs.queue % costs.request == 0, "{costs:?}");
    }
}
