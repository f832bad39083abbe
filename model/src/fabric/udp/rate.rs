//! The rate of a connection whose peer has told of congestion (DCQCN: Zhu et al., SIGCOMM 2015).
//!
//! The rate falls with each CNP, by half at most, and rises again by itself: first half way to what
//! it was, later beyond that in steps. A connection that never hears of congestion has no limit.

use std::time::{Duration, Instant};

/// Bytes per second from which the first CNP lowers, and at which there is no limit any more: about
/// what the model sends on its own.
const LINE: f64 = 125e6;
/// Lowest rate.
const LEAST: f64 = 125e3;
/// Share of the newest observation in the estimate of congestion.
const GAIN: f64 = 1.0 / 256.0;
/// Time without a CNP after which the estimate falls.
const CALM: Duration = Duration::from_micros(55);
/// Time between increases.
const RISE: Duration = Duration::from_micros(300);
/// Increases half way to the earlier rate, before steps begin.
const RECOVERY: u32 = 5;
/// Bytes per second of a step.
const STEP: f64 = 5e6 / 8.0;
/// Bytes that may be sent at once: the clock of timers is coarse.
const BURST: f64 = 16384.0;
/// Time without a CNP after which every rate has recovered.
const FORGET: Duration = Duration::from_secs(1);

/// The rate of one connection.
#[derive(Debug)]
pub(super) struct Rate {
    /// Bytes per second.
    current: f64,
    /// The rate before the last CNP.
    target: f64,
    /// Estimate of congestion, from 0 to 1.
    alpha: f64,
    notified: Instant,
    calmed: Instant,
    risen: Instant,
    /// Increases since the last CNP.
    rises: u32,
    /// Bytes that may be sent now.
    credit: f64,
    credited: Instant,
}

impl Rate {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            current: LINE,
            target: LINE,
            alpha: 1.0,
            notified: now,
            calmed: now,
            risen: now,
            rises: 0,
            credit: BURST,
            credited: now,
        }
    }

    /// Lowers the rate: a CNP has come.
    pub(super) fn lower(&mut self, now: Instant) {
        self.advance(now);
        self.target = self.current;
        self.current = (self.current * (1.0 - self.alpha / 2.0)).max(LEAST);
        self.alpha = (1.0 - GAIN) * self.alpha + GAIN;
        (self.notified, self.calmed, self.risen, self.rises) = (now, now, now, 0);
    }

    /// Raises the rate by what the time since the last call allows.
    fn advance(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.credited).as_secs_f64();
        self.credit = (self.credit + elapsed * self.current).min(BURST);
        self.credited = now;
        if now.saturating_duration_since(self.notified) > FORGET {
            self.current = LINE;
            return;
        }
        while now.saturating_duration_since(self.calmed) >= CALM {
            self.alpha *= 1.0 - GAIN;
            self.calmed += CALM;
        }
        while now.saturating_duration_since(self.risen) >= RISE {
            self.rises += 1;
            if self.rises > RECOVERY {
                self.target = (self.target + STEP).min(LINE);
            }
            self.current = f64::midpoint(self.current, self.target);
            self.risen += RISE;
        }
    }

    /// Takes the credit of a packet of so many bytes. Otherwise returns the time until there is
    /// enough.
    pub(super) fn take(&mut self, bytes: usize, now: Instant) -> Result<(), Duration> {
        self.advance(now);
        if self.credit > 0.0 {
            // One packet may overdraw: else a large one would never leave.
            self.credit -= bytes as f64;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - self.credit) / self.current))
    }

    /// Returns whether there is no limit any more.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.current > LINE * 0.99
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends packets for some time, and returns the bytes.
    fn sent(rate: &mut Rate, from: Instant, time: Duration) -> usize {
        let (mut now, mut bytes) = (from, 0);
        while now < from + time {
            match rate.take(1000, now) {
                Ok(()) => bytes += 1000,
                Err(wait) => now += wait.max(Duration::from_nanos(1)),
            }
        }
        bytes
    }

    #[test]
    fn rate_falls_with_each_notification_and_recovers() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        assert!(rate.is_over(start), "nothing limits yet");
        rate.lower(start);
        assert!((0.45..0.55).contains(&(rate.current / LINE)), "{}", rate.current);
        assert!(!rate.is_over(start));
        for n in 1..20 {
            rate.lower(start + n * Duration::from_micros(50));
        }
        let low = start + Duration::from_millis(1);
        assert!(rate.current <= LEAST, "{}", rate.current);
        let slow = sent(&mut rate, low, Duration::from_micros(100));
        assert!(slow <= BURST as usize + 2000, "{slow}");

        // Without further notifications it rises, first quickly, later in steps.
        let mut last = rate.current;
        for n in 1..100 {
            rate.advance(low + n * RISE);
            assert!(rate.current >= last);
            last = rate.current;
        }
        assert!(last > 0.1 * LINE && !rate.is_over(low + 100 * RISE), "{last}");
        assert!(rate.is_over(low + FORGET + RISE));
    }

    #[test]
    fn packets_leave_at_the_rate() {
        let start = Instant::now();
        let mut rate = Rate::new(start);
        for n in 0..3 {
            rate.lower(start + n * Duration::from_micros(1));
        }
        let before = rate.current;
        let bytes = sent(&mut rate, start, Duration::from_micros(250)) as f64;
        let expected = BURST + before * 250e-6;
        assert!((expected - 2000.0..expected + 3000.0).contains(&bytes), "{bytes} {expected}");
    }
}
