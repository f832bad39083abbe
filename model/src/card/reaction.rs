//! A port's reaction to congestion, by the rules of DCQCN (Zhu et al., SIGCOMM 2015).
//!
//! The port tells senders of marked packets, at most once in an interval. It keeps a rate for each
//! destination that has told it of congestion, and every queue pair that sends there obeys that rate by
//! itself. Each notification reduces the rate by a share that grows with their frequency; time and bytes
//! that pass without one let it recover.
//!
//! The parameters are the defaults of devices (`evidence/tables/congestion-defaults.csv`). That the
//! interval is the port's and the rate the destination's was measured on ConnectX-5 and ConnectX-6 Dx
//! (evidence E126 and E128).

use std::collections::BTreeMap;

/// The parameters, with the names of QUERY_CONG_PARAMS. Times are in microseconds, rates in Mb/s.
pub mod parameter {
    /// Least time between notifications.
    pub const MIN_TIME_BETWEEN_CNPS: u64 = 4;
    /// Class of service of notifications.
    pub const CNP_DSCP: u64 = 48;
    /// Priority of notifications.
    pub const CNP_802P_PRIO: u64 = 6;
    /// Time after which a rate grows.
    pub const RPG_TIME_RESET: u64 = 300;
    /// Bytes after which a rate grows.
    pub const RPG_BYTE_RESET: u64 = 32_767;
    /// Growths by time or bytes before the target grows as well.
    pub const RPG_THRESHOLD: u64 = 1;
    /// Growth of the target.
    pub const RPG_AI_RATE: u64 = 5;
    /// Growth of the target where both time and bytes are past the threshold.
    pub const RPG_HAI_RATE: u64 = 50;
    /// log2 of the divisor of the share by which a rate is reduced.
    pub const RPG_GD: u64 = 11;
    /// The rest of a rate that a reduction leaves at least, in percent.
    pub const RPG_MIN_DEC_FAC: u64 = 50;
    /// The least rate.
    pub const RPG_MIN_RATE: u64 = 1;
    /// What remains of the share when it is updated, in 1024ths.
    pub const DCE_TCP_G: u64 = 1019;
    /// Time between updates of the share.
    pub const DCE_TCP_RTT: u64 = 1;
    /// Least time between two reductions.
    pub const RATE_REDUCE_MONITOR_PERIOD: u64 = 4;
    /// The share at first, in 1024ths.
    pub const INITIAL_ALPHA_VALUE: u64 = 1023;
    /// Whether a notification makes the rate the target, if time has let it grow before.
    pub const CLAMP_TGT_RATE_AFTER_TIME_INC: u64 = 1;
}
use parameter as p;

/// What the share is counted in.
const WHOLE: u64 = 1024;
/// Updates after which nothing is left of a share.
const FORGOTTEN: u64 = 2_000;

/// Destinations at most whose rates are limited.
const DESTINATIONS: usize = 1024;

/// A destination: its GID, or its LID.
pub type Destination = [u8; 16];

/// The reaction of a port.
#[derive(Debug, Default)]
pub struct Reaction {
    /// Time of the last notification.
    notified: Option<u64>,
    /// Rates towards destinations, where they are limited.
    rates: BTreeMap<Destination, Rate>,
}

impl Reaction {
    /// Returns whether a notification may be sent now, and notes that it is.
    pub fn may_notify(&mut self, now: u64) -> bool {
        let until = |last: u64| last + p::MIN_TIME_BETWEEN_CNPS * 1000;
        if self.notified.is_some_and(|last| now < until(last)) {
            return false;
        }
        self.notified = Some(now);
        true
    }

    /// Applies a notification. Of more than [`DESTINATIONS`], the one that was reduced the longest time
    /// ago is forgotten: anybody can send notifications, from ever new addresses.
    pub fn slow_down(&mut self, destination: Destination, now: u64) {
        if self.rates.len() >= DESTINATIONS && !self.rates.contains_key(&destination) {
            let oldest = self.rates.iter().min_by_key(|(_, rate)| rate.reduced);
            let oldest = oldest.map(|(destination, _)| *destination);
            oldest.and_then(|destination| self.rates.remove(&destination));
        }
        self.rates.entry(destination).or_insert_with(|| Rate::full(now)).reduce(now);
    }

    /// Returns whether the rate towards any destination may be limited.
    pub fn is_limiting(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Returns the rate towards a destination, in bytes per second, if it is limited.
    pub fn rate(&mut self, destination: &Destination, now: u64) -> Option<u64> {
        let rate = self.rates.get_mut(destination)?;
        rate.pass_to(now);
        if rate.current < Rate::FULL {
            return Some(rate.current);
        }
        self.rates.remove(destination);
        None
    }

    /// Accounts for bytes that are sent to a destination.
    pub fn sent(&mut self, destination: &Destination, bytes: u64) {
        if let Some(rate) = self.rates.get_mut(destination) {
            rate.send(bytes);
        }
    }
}

/// A rate, in bytes per second.
#[derive(Clone, Debug)]
struct Rate {
    /// The rate now.
    current: u64,
    /// The rate that it returns to.
    target: u64,
    /// The share by which the next notification reduces it (`alpha`), in 1024ths.
    share: u64,
    /// The time to which the share was updated.
    updated: u64,
    /// The time of the last reduction.
    reduced: Option<u64>,
    /// Start of the current period of time, and periods since the last reduction.
    since: u64,
    periods: u64,
    /// Bytes of the current period of bytes, and periods since the last reduction.
    bytes: u64,
    fills: u64,
}

impl Rate {
    /// The link's rate, 100 Gb/s.
    const FULL: u64 = 12_500_000_000;

    /// Converts Mb/s.
    const fn megabits(rate: u64) -> u64 {
        rate * 1_000_000 / 8
    }

    fn full(now: u64) -> Self {
        Self {
            current: Self::FULL,
            target: Self::FULL,
            share: p::INITIAL_ALPHA_VALUE,
            updated: now,
            reduced: None,
            since: now,
            periods: 0,
            bytes: 0,
            fills: 0,
        }
    }

    /// Applies a notification.
    fn reduce(&mut self, now: u64) {
        self.pass_to(now);
        let apart = p::RATE_REDUCE_MONITOR_PERIOD * 1000;
        if self.reduced.is_some_and(|last| now < last + apart) {
            return;
        }
        self.share = (self.share * p::DCE_TCP_G + WHOLE * (WHOLE - p::DCE_TCP_G)) / WHOLE;
        // By default, `CLAMP_TGT_RATE_AFTER_TIME_INC` is on.
        if self.periods > 0 {
            self.target = self.current;
        }
        let share = u128::from(self.current) * u128::from(self.share);
        let less = (share >> p::RPG_GD) as u64;
        let least = (self.current * p::RPG_MIN_DEC_FAC / 100).max(Self::megabits(p::RPG_MIN_RATE));
        self.current = (self.current - less).max(least);
        self.reduced = Some(now);
        (self.since, self.periods, self.bytes, self.fills) = (now, 0, 0, 0);
    }

    /// Applies the time that has passed.
    fn pass_to(&mut self, now: u64) {
        let updates = now.saturating_sub(self.updated) / (p::DCE_TCP_RTT * 1000);
        self.updated += updates * p::DCE_TCP_RTT * 1000;
        for _ in 0..updates.min(FORGOTTEN) {
            self.share = self.share * p::DCE_TCP_G / WHOLE;
        }
        while self.since + p::RPG_TIME_RESET * 1000 <= now && self.current < Self::FULL {
            self.since += p::RPG_TIME_RESET * 1000;
            self.periods += 1;
            self.grow();
        }
    }

    fn send(&mut self, bytes: u64) {
        self.bytes += bytes;
        while self.bytes >= p::RPG_BYTE_RESET {
            self.bytes -= p::RPG_BYTE_RESET;
            self.fills += 1;
            self.grow();
        }
    }

    /// Grows by one step: half of the way to the target, which grows too once the first steps are over.
    fn grow(&mut self) {
        let threshold = p::RPG_THRESHOLD;
        let step = if self.periods.min(self.fills) > threshold {
            Self::megabits(p::RPG_HAI_RATE)
        } else if self.periods.max(self.fills) >= threshold {
            Self::megabits(p::RPG_AI_RATE)
        } else {
            0
        };
        self.target = (self.target + step).min(Self::FULL);
        self.current = (self.current + self.target).div_ceil(2).min(Self::FULL);
    }
}

#[cfg(test)]
mod tests;
