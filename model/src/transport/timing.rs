//! Waits that contexts and packets hold as codes: for an acknowledge, and after an RNR NAK. The wait of a
//! responder whose key was destroyed.
//!
//! A [`Law`] has all numbers of a mode. What is measured comes from two sources. Neither has shown a
//! difference between generations, so all profiles have the same laws:
//!
//! - RoCE: ConnectX-6 with firmware 20.43 (evidence E071 to E091 and E103,
//!   github.com/unionxic/rdma-fault-characterization).
//! - InfiniBand, and RNR waits: ConnectX-2 (evidence F001 to F015,
//!   github.com/Chester-Gillon/ibv_message_passing).

use crate::card::{Link, Timeouts};

/// The unit of time-outs in nanoseconds: that of code 0.
const NOMINAL: u64 = 4096;
/// The unit of adaptive repetitions, in nanoseconds: the time-out of code 10.
const STEP: u64 = NOMINAL << 10;
/// Time-outs of a request with retry count 0 on RoCE, adaptive ones included.
const WITHOUT_RETRIES: u32 = 8;

/// The numbers of a mode.
#[derive(Debug)]
struct Law {
    /// Code of the shortest interval.
    floor: u8,
    /// Nominal time-outs in an interval.
    factor: u64,
    /// What differs from one interval after the other.
    early: Early,
    /// Nanoseconds from the last time-out to the error.
    given_up: u64,
    /// Waits after RNR NAKs.
    rnr: Rnr,
    /// Nanoseconds from an RNR NAK to the error, if no retry is left.
    never_ready: u64,
    /// Least and most nanoseconds after a key was destroyed until a responder refuses it, if that is not
    /// at once.
    nak_delay: Option<(u64, u64)>,
}

/// What a request's first time-outs are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Early {
    /// Like the others.
    Regular,
    /// With retry count 0, three quarters of an interval at these codes.
    Shortened(&'static [u8]),
    /// Adaptive repetitions before the first regular one. Together they cost one retry.
    Adaptive,
    /// A shorter one, which is counted and repeats nothing.
    Silent,
}

/// How codes of RNR timers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rnr {
    /// As IBA 1.3, table 45, has them.
    Table,
    /// In ticks of 131.072 µs.
    Ticks,
}

/// ConnectX-2. The error comes with the last time-out.
const INFINIBAND: Law = Law {
    floor: 16,
    factor: 2,
    early: Early::Shortened(&[22, 23, 25, 26, 27]),
    given_up: 0,
    rnr: Rnr::Ticks,
    never_ready: 0,
    nak_delay: None,
};

/// ConnectX-6.
const ROCE: Law = Law {
    floor: 16,
    factor: 2,
    early: Early::Adaptive,
    given_up: 178_000,
    rnr: Rnr::Ticks,
    never_ready: 250_000,
    nak_delay: Some((1_000_000, 2_200_000)),
};

/// ConnectX-6 with `min_ack_timeout_limit_disabled`.
const ROCE_FLOOR_OFF: Law = Law { floor: 0, factor: 1, early: Early::Silent, ..ROCE };

/// IBA 1.3, 9.7.6.1.3, without the additional time that it allows.
const SPECIFICATION: Law = Law {
    floor: 0,
    factor: 1,
    early: Early::Regular,
    given_up: 0,
    rnr: Rnr::Table,
    never_ready: 0,
    nak_delay: None,
};

fn law(timeouts: Timeouts, link: Link) -> &'static Law {
    match (timeouts, link) {
        (Timeouts::Specification { .. }, _) => &SPECIFICATION,
        (Timeouts::Measured | Timeouts::FloorOff, Link::InfiniBand) => &INFINIBAND,
        (Timeouts::Measured, Link::Roce) => &ROCE,
        (Timeouts::FloorOff, Link::Roce) => &ROCE_FLOOR_OFF,
    }
}

/// What a time-out is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular one.
    Regular,
    /// An adaptive repetition of RoCE, which costs no retry.
    Adaptive,
    /// The last of the adaptive repetitions, which costs one for all of them.
    LastAdaptive,
    /// The first of RoCE without a floor, which repeats nothing.
    Silent,
}

/// Waits of a requester that follow an answer, until the request is given up.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    law: &'static Law,
    /// Nanoseconds of a regular wait.
    interval: u64,
    /// For adaptive repetitions: how many of the first are left out, and how many remain.
    skipped: u32,
    adaptive: u32,
    /// Whether the retry count is 0.
    without_retries: bool,
}

impl Schedule {
    /// Returns the schedule of a queue pair with this time-out code and retry count; `None` where it
    /// waits for ever. `draw` is a random number, which decides how many adaptive repetitions there are.
    pub fn of(timeouts: Timeouts, link: Link, code: u32, retries: u8, draw: u64) -> Option<Self> {
        if code == 0 {
            return None;
        }
        let law = law(timeouts, link);
        let floor = match timeouts {
            Timeouts::Specification { floor } => floor,
            Timeouts::Measured | Timeouts::FloorOff => law.floor,
        };
        let mut interval = (law.factor * NOMINAL) << code.max(floor.into()).min(31);
        let without_retries = retries == 0;
        if let (Early::Shortened(codes), true) = (law.early, without_retries) {
            if codes.iter().any(|short| u32::from(*short) == code) {
                interval = interval / 4 * 3;
            }
        }
        let (mut skipped, mut adaptive) = (0, 0);
        if law.early == Early::Adaptive {
            let all = repetitions(interval);
            skipped = left_out(interval, all, without_retries, draw);
            adaptive = all - skipped;
        }
        Some(Self { law, interval, skipped, adaptive, without_retries })
    }

    /// Returns the nanoseconds until the next time-out, after `passed` others. `retries` are left.
    pub fn wait(&self, passed: u32, retries: u8) -> u64 {
        let wait = match self.kind(passed) {
            Kind::Regular => self.interval,
            Kind::Silent => self.interval - lost(self.interval) * STEP,
            Kind::Adaptive | Kind::LastAdaptive => {
                let index = self.skipped + passed;
                let before = if passed == 0 { 0 } else { repetition(index - 1, self.interval) };
                (repetition(index, self.interval) - before) * STEP
            }
        };
        wait + if self.gives_up(passed, retries) { self.law.given_up } else { 0 }
    }

    /// Returns what the time-out after `passed` others is.
    pub fn kind(&self, passed: u32) -> Kind {
        match self.law.early {
            Early::Silent if passed == 0 => Kind::Silent,
            Early::Adaptive if passed + 1 < self.adaptive => Kind::Adaptive,
            Early::Adaptive if passed + 1 == self.adaptive => Kind::LastAdaptive,
            _ => Kind::Regular,
        }
    }

    /// Returns whether the request is given up at the time-out after `passed` others. `retries` are
    /// left.
    pub fn gives_up(&self, passed: u32, retries: u8) -> bool {
        match (self.law.early, self.kind(passed)) {
            (Early::Adaptive, _) if self.without_retries => passed + 1 >= WITHOUT_RETRIES,
            // One retry less than the count says: the adaptive repetitions have cost it.
            (Early::Adaptive, Kind::Regular | Kind::LastAdaptive) => retries <= 1,
            (_, Kind::Regular) => retries == 0,
            (_, Kind::Adaptive | Kind::LastAdaptive | Kind::Silent) => false,
        }
    }

    /// Returns whether the device counts the time-out at which it gives up, and slows a queue pair down
    /// that repeats ("slow restart"). Both were seen on RoCE alone.
    pub fn is_roce(&self) -> bool {
        matches!(self.law.early, Early::Adaptive | Early::Silent)
    }
}

/// Returns the steps by which timers of this length come early: a quarter of each of these lengths that
/// it contains.
fn lost(interval: u64) -> u64 {
    [4, 8, 16, 64, 256].iter().filter(|length| **length * STEP <= interval).sum::<u64>() / 4
}

/// Returns the steps from the first packet to an adaptive repetition. The last one is as much before the
/// end of a regular interval as such timers come early.
fn repetition(index: u32, interval: u64) -> u64 {
    const FIRST: [u64; 8] = [3, 5, 9, 17, 33, 57, 105, 233];
    let steps = match FIRST.get(index as usize) {
        Some(steps) => *steps,
        None => (512 << (index - 8)) - 87,
    };
    steps.min(interval / STEP - lost(interval))
}

/// Returns how many adaptive repetitions there are at most before intervals of this length.
fn repetitions(interval: u64) -> u32 {
    let end = interval / STEP - lost(interval);
    1 + (0..).take_while(|index| repetition(*index, u64::MAX) < end).count() as u32
}

/// Draws how many of the first adaptive repetitions are left out: of the `all` before intervals of
/// this length, 4 to 7 were seen up to code 16, 5 to 7 at 17, 6 to 9 at 18, and 10 to 11 at 20. With
/// retry count 0 there are 5 to 7, in most runs 5.
fn left_out(interval: u64, all: u32, without_retries: bool, draw: u64) -> u32 {
    if without_retries {
        const SEEN: [u32; 8] = [7, 6, 5, 5, 5, 5, 5, 5];
        return all - SEEN[draw as usize % SEEN.len()];
    }
    let (least, most) = match interval / STEP {
        256 => (1, 3),
        ..=1024 => (0, 3),
        _ => (0, 1),
    };
    least + (draw % u64::from(most - least + 1u32)) as u32
}

/// Waits that RNR timer codes stand for, in units of 10 µs (IBA 1.3, table 45).
const RNR: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// Returns the nanoseconds to wait after an RNR NAK with this timer code, of five bits.
pub fn rnr_wait(timeouts: Timeouts, link: Link, code: u8) -> u64 {
    /// Nanoseconds of a tick.
    const TICK: u64 = 32 * NOMINAL;
    /// By so much a wait ends before its last tick.
    const EARLY: u64 = 16_000;
    /// What is added to a wait that is shorter than a tick.
    const SHORTEST: u64 = 154_000;
    let code = code % 32;
    let nominal = u64::from(RNR[usize::from(code)]) * 10_000;
    match (law(timeouts, link).rnr, code) {
        (Rnr::Table, _) => nominal,
        (Rnr::Ticks, 1..=3) => SHORTEST + nominal,
        (Rnr::Ticks, 4..=9) => u64::from(code / 2) * TICK - EARLY,
        (Rnr::Ticks, 0) => 16384 * TICK - EARLY,
        (Rnr::Ticks, _) => (8 << ((code - 10) / 2)) * TICK - EARLY,
    }
}

/// Returns the nanoseconds from an RNR NAK to the error, if no retry is left.
pub fn never_ready(timeouts: Timeouts, link: Link) -> u64 {
    law(timeouts, link).never_ready
}

/// Returns the nanoseconds after a key was destroyed until a responder refuses it; `None` where it does
/// so at once. `draw` is a random number, which decides how many there are.
pub fn nak_delay(timeouts: Timeouts, link: Link, draw: u64) -> Option<u64> {
    let (least, most) = law(timeouts, link).nak_delay?;
    Some(least + draw % (most - least + 1))
}

#[cfg(test)]
mod tests;
