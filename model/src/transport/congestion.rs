//! Congestion: receivers tell senders of marked packets, and senders slow down.
//!
//! - On Ethernet (IBA 1.3, A17.9; RFC 3168), the network marks packets in the IP header. The
//!   receiver's queue pair answers with a notification (CNP), at most one in [`INTERVAL`] to each
//!   sender.
//! - On InfiniBand (IBA 1.3, annex A10), switches set FECN. The responder of a reliable connection
//!   sets BECN in its next response.
//!
//! Either makes the sender reduce its [`Rate`], by the rules of DCQCN (Zhu et al., SIGCOMM 2015):
//! each notification reduces the rate by a share that grows with their frequency, and without
//! notifications the rate recovers. Requests leave no faster than the rate. Responses are not
//! limited. The parameters are the paper's; those of devices are settings that differ.

use std::collections::BTreeMap;

use super::Parameters;
use crate::card::Card;
use crate::wire::{Ecn, Header, MULTICAST, Opcode, Route};

/// Nanoseconds between notifications to one sender.
const INTERVAL: u64 = 50_000;
/// Class of notifications: DSCP 48.
const CLASS: u8 = 48 << 2;
/// Bytes after the BTH of a notification, all zero.
const RESERVED: usize = 16;

/// The constants of the reaction to congestion, as QUERY_CONG_PARAMS shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Microseconds between notifications to one sender.
    pub interval: u64,
    /// DSCP of notifications.
    pub dscp: u64,
    /// Microseconds of a period.
    pub period: u64,
    /// Periods in which only the current rate grows.
    pub recovery: u64,
    /// The full rate in Mb/s.
    pub full: u64,
    /// The least rate in Mb/s.
    pub least: u64,
    /// Growth of the target rate in a period, in Mb/s.
    pub step: u64,
}

impl Settings {
    /// Returns the settings, which are the same for all devices and do not change.
    pub fn of_model() -> Self {
        let megabits = |bytes: u64| bytes * 8 / 1_000_000;
        Self {
            interval: INTERVAL / 1000,
            dscp: u64::from(CLASS >> 2),
            period: Rate::PERIOD / 1000,
            recovery: Rate::RECOVERY.into(),
            full: megabits(Rate::FULL),
            least: megabits(Rate::LEAST),
            step: megabits(Rate::STEP),
        }
    }
}

/// The reaction of a queue pair to congestion.
#[derive(Clone, Debug, Default)]
pub(super) struct Congestion {
    /// Time of the last notification to each sender, by its address and queue pair; older ones than
    /// [`INTERVAL`] are forgotten.
    told: BTreeMap<([u8; 16], u32), u64>,
    /// Whether the next response tells of congestion.
    echoes: bool,
    /// The rate of requests, if it is limited.
    rate: Option<Rate>,
}

impl Congestion {
    /// Looks at a packet that the queue pair accepts: tells the sender if it met congestion, and
    /// slows down if it tells of congestion itself. Returns whether it was a notification, which
    /// has no other content.
    pub fn look_at(&mut self, card: &mut Card, own: &Parameters, header: &Header) -> bool {
        if header.opcode == Opcode::CongestionNotification {
            card.congestion.handled += 1;
            self.slow_down(card.clock.now());
            return true;
        }
        match header.route {
            Route::Ethernet { global, .. } if global.met_congestion() => {
                card.congestion.marked += 1;
                // Many receivers' notifications would slow a multicast down too much.
                if header.destination != MULTICAST {
                    self.notify(card, own, header, global.source);
                }
            }
            Route::Ethernet { .. } => {}
            Route::InfiniBand { .. } => {
                self.echoes |= header.fecn && !header.opcode.is_response();
                if header.becn {
                    self.slow_down(card.clock.now());
                }
            }
        }
        false
    }

    /// Sends a notification to the sender of a packet, which came from the GID `from`.
    fn notify(&mut self, card: &mut Card, own: &Parameters, header: &Header, from: [u8; 16]) {
        let sender = header.datagram.map_or(own.remote, |datagram| datagram.source);
        let now = card.clock.now();
        self.told.retain(|_, at| now < *at + INTERVAL);
        if self.told.contains_key(&(from, sender)) {
            return;
        }
        self.told.insert((from, sender), now);
        card.congestion.sent += 1;
        let mut route = header.route.reverse();
        if let Route::Ethernet { global, .. } = &mut route {
            global.traffic_class = CLASS | Ecn::NotCapable as u8;
        }
        let opcode = Opcode::CongestionNotification;
        let header = Header { becn: true, ..Header::new(route, opcode, own.p_key, sender, 0) };
        let Ok(frame) = header.frame(RESERVED, |_| Ok::<_, std::convert::Infallible>(()));
        card.respond(frame);
    }

    fn slow_down(&mut self, now: u64) {
        self.rate.get_or_insert_with(|| Rate::full(now)).reduce(now);
    }

    /// Sets BECN, if it is due, in the first response that was put into the outbox behind the first
    /// `before` packets.
    pub fn echo(&mut self, card: &mut Card, before: usize) {
        if self.echoes {
            if let Some(response) = card.outbox.get_mut(before) {
                Header::set_becn(card.identity.link, response);
                self.echoes = false;
            }
        }
    }

    /// Returns whether the queue pair's rate is limited. Then it sends one request packet in a turn
    /// and [pays](Self::pay) for it.
    pub fn is_limited(&self) -> bool {
        self.rate.is_some()
    }

    /// Returns the time at which the next request packet may leave, if not now.
    pub fn wait(&mut self, card: &Card) -> Option<u64> {
        let rate = self.rate.as_mut()?;
        let now = card.clock.now();
        rate.recover(now);
        if rate.current >= Rate::FULL {
            self.rate = None;
            return None;
        }
        Some(rate.next).filter(|next| now < *next)
    }

    /// Accounts for the requests that were put into the outbox behind the first `before` packets.
    pub fn pay(&mut self, card: &Card, before: usize) {
        if let Some(rate) = &mut self.rate {
            let bytes: u64 = card.outbox.range(before..).map(|frame| frame.0.len() as u64).sum();
            rate.next = rate.next.max(card.clock.now()) + bytes * 1_000_000_000 / rate.current;
        }
    }
}

/// The rate of a queue pair's requests, in bytes per second.
#[derive(Clone, Debug)]
struct Rate {
    /// The rate now.
    current: u64,
    /// The rate that it returns to.
    target: u64,
    /// The share by which the next notification reduces it, in units of [`Rate::WHOLE`] / 2.
    share: u64,
    /// Start of the current period.
    since: u64,
    /// Periods since the last notification.
    periods: u32,
    /// The time at which the next packet may leave.
    next: u64,
}

impl Rate {
    /// The link's rate, 100 Gb/s.
    const FULL: u64 = 12_500_000_000;
    /// The least rate, 10 Mb/s.
    const LEAST: u64 = 1_250_000;
    /// Growth of the target in a period, 40 Mb/s.
    const STEP: u64 = 5_000_000;
    /// Nanoseconds of a period.
    const PERIOD: u64 = 55_000;
    /// Periods in which only the current rate grows.
    const RECOVERY: u32 = 5;
    const WHOLE: u64 = 1 << 16;
    /// The share moves by this part of its distance at once.
    const GAIN: u64 = 256;

    fn full(now: u64) -> Self {
        Self {
            current: Self::FULL,
            target: Self::FULL,
            share: Self::WHOLE,
            since: now,
            periods: 0,
            next: now,
        }
    }

    /// Applies a notification.
    fn reduce(&mut self, now: u64) {
        self.recover(now);
        self.target = self.current;
        let less = (u128::from(self.current) * u128::from(self.share) / 2) as u64 / Self::WHOLE;
        self.current = (self.current - less).max(Self::LEAST);
        self.share += (Self::WHOLE - self.share).div_ceil(Self::GAIN);
        (self.since, self.periods) = (now, 0);
    }

    /// Applies the periods that have passed. The full rate is reached after some 2,500.
    fn recover(&mut self, now: u64) {
        while self.since + Self::PERIOD <= now && self.current < Self::FULL {
            self.since += Self::PERIOD;
            self.periods += 1;
            self.share -= self.share / Self::GAIN;
            if self.periods > Self::RECOVERY {
                self.target = (self.target + Self::STEP).min(Self::FULL);
            }
            self.current = (self.current + self.target).div_ceil(2);
        }
    }
}

#[cfg(test)]
mod tests;
