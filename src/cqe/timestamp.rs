//! The time in a CQE.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that the HCA has written into a CQE: 64 bits in the format of the queue that completes.
///
/// | format | the 64 bits | converted by |
/// |---|---|---|
/// | free running | a count of the [HCA's clock](crate::verbs::DeviceClock) | [`ClockReading`](crate::verbs::ClockReading) |
/// | real time | seconds and nanoseconds of the port's PTP clock | [`real_time`](Self::real_time) |
///
/// A CQE of a failure has no time: the HCA writes the syndrome in its place.
///
/// ```
/// # use std::time::Duration;
/// use mlx5::cqe::Timestamp;
/// use mlx5::verbs::{ClockReading, DeviceClock};
///
/// /// The age of a completion.
/// fn age(clock: &DeviceClock, reading: &ClockReading, completed: Timestamp) -> Option<Duration> {
///     Some(reading.between(completed, clock.count()?))
/// }
/// let (first, second) = (Timestamp::from_raw(1_000), Timestamp::from_raw(1_250));
/// assert!(first < second && second.counts_since(first) == 250);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// The format of the times in the CQEs of a queue (`ts_format`).
///
/// Queues made by verbs have free-running times, where the device has that format. Queues made by
/// command get the format that their builder is told, such as
/// [`QueuePairBuilder::timestamps`](crate::verbs::QueuePairBuilder::timestamps). The HCA's context of
/// any queue reports it: `ObjectContext::timestamp_format` of the module `devx`.
///
/// ```
/// # use mlx5::cqe::{Timestamp, TimestampFormat};
/// # use mlx5::verbs::ClockReading;
/// # use std::time::SystemTime;
/// /// The time of a completion, if its queue's format is known.
/// fn time(format: TimestampFormat, reading: &ClockReading, stamp: Timestamp) -> Option<SystemTime> {
///     match format {
///         TimestampFormat::FreeRunning => Some(reading.time(stamp)),
///         TimestampFormat::RealTime => Some(stamp.real_time()?.system_time()),
///         TimestampFormat::Default => None,
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampFormat {
    /// Counts of the HCA's clock.
    FreeRunning,
    /// The one of the other two that the device is configured for (`REAL_TIME_CLOCK_ENABLE` of
    /// mlxconfig).
    Default,
    /// Seconds and nanoseconds of the port's PTP clock.
    RealTime,
}

impl Timestamp {
    /// Creates the value of 64 bits, in the host's byte order.
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the 64 bits, in the host's byte order.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the counts of the HCA's clock from `earlier` to this time, both free running; 0 if
    /// `earlier` is later.
    pub const fn counts_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time of a queue with real-time format. `None` for 64 bits that are no such time:
    /// they are of a queue with another format then. Not every count is told apart so.
    #[doc(alias = "ibv_wc_read_completion_wallclock_ns")]
    pub const fn real_time(self) -> Option<RealTime> {
        let nanoseconds = self.0 as u32;
        if nanoseconds >= 1_000_000_000 {
            return None;
        }
        Some(RealTime { seconds: (self.0 >> 32) as u32, nanoseconds })
    }
}

/// A time of a port's PTP clock, from a CQE in real-time format.
///
/// Its scale is that of the PTP clock: TAI where a PTP daemon sets the clock by a grandmaster, UTC
/// where it is set by the system's clock. TAI is 37 s ahead of UTC since 2017. The CQE does not tell
/// the scale.
///
/// ```
/// use mlx5::cqe::{RealTime, Timestamp};
///
/// let time = Timestamp::from_raw(1_700_000_000 << 32 | 250).real_time();
/// let time: RealTime = time.ok_or("of another format")?;
/// assert_eq!((time.seconds(), time.nanoseconds()), (1_700_000_000, 250));
/// // After subtracting the seconds by which the clock is ahead of UTC.
/// let utc = time.system_time() - std::time::Duration::from_secs(37);
/// # drop(utc);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RealTime {
    seconds: u32,
    nanoseconds: u32,
}

impl RealTime {
    /// Returns the whole seconds since the clock's 1970: the low 32 bits of them.
    pub const fn seconds(self) -> u32 {
        self.seconds
    }

    /// Returns the nanoseconds of the second, less than 1,000,000,000.
    pub const fn nanoseconds(self) -> u32 {
        self.nanoseconds
    }

    /// Returns the time since the clock's 1970.
    pub const fn since_epoch(self) -> Duration {
        Duration::new(self.seconds as u64, self.nanoseconds)
    }

    /// Returns the time as if the PTP clock had the scale of the system's, which is UTC.
    pub fn system_time(self) -> SystemTime {
        UNIX_EPOCH + self.since_epoch()
    }
}

#[cfg(test)]
mod tests;
