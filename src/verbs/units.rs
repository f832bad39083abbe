//! Units that verbs encode in a few bits: the path MTU and two kinds of timer.

use std::fmt;
use std::time::Duration;

use mlx5_diag::explain::causes::Fabric;
use mlx5_diag::explain::timeout::dead_peer_after;

use super::LinkLayer;
use crate::error::{Error, Result};

/// A path MTU: how many bytes of payload one packet carries.
///
/// ```
/// use mlx5::verbs::attr::Mtu;
///
/// assert_eq!(Mtu::from_bytes(4096)?, Mtu::Mtu4096);
/// assert_eq!((Mtu::Mtu1024.bytes(), Mtu::Mtu1024.code()), (1024, 3));
/// assert!(Mtu::Mtu1024 < Mtu::Mtu4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ibv_mtu")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes: what RoCE takes of an Ethernet MTU of 1500.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes: the usual MTU of InfiniBand, and of RoCE over jumbo frames.
    Mtu4096 = 5,
}

impl Mtu {
    /// Payload bytes per packet.
    pub const fn bytes(self) -> usize {
        128 << self as u8
    }

    /// `enum ibv_mtu`, 1 to 5.
    #[doc(alias = "ibv_mtu")]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// From `enum ibv_mtu`.
    pub const fn from_code(code: u8) -> Option<Mtu> {
        Some(match code {
            1 => Mtu::Mtu256,
            2 => Mtu::Mtu512,
            3 => Mtu::Mtu1024,
            4 => Mtu::Mtu2048,
            5 => Mtu::Mtu4096,
            _ => return None,
        })
    }

    /// From a number of bytes, which must be one of the five.
    pub fn from_bytes(bytes: usize) -> Result<Mtu> {
        (1..=5).filter_map(Mtu::from_code).find(|mtu| mtu.bytes() == bytes).ok_or_else(|| {
            Error::attribute("path MTU", bytes, "it is one of 256, 512, 1024, 2048 and 4096")
        })
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.bytes())
    }
}

/// The local ACK timeout: how long a requester waits for an answer before it sends again.
///
/// The specification allows the HCA to wait between one and four times the value (InfiniBand
/// 9.7.6.1.3). Measured devices wait twice the value, and at least 537 ms: the codes 1 to 16 differ in
/// nothing. [`dead_peer_after`](Self::dead_peer_after) has the time until a dead peer is noticed.
///
/// ```
/// use std::time::Duration;
/// use mlx5::verbs::attr::{AckTimeout, LinkLayer};
///
/// // The device has steps: 4.096 µs times a power of two.
/// let timeout = AckTimeout::at_least(Duration::from_millis(50));
/// assert_eq!(timeout.duration(), Some(Duration::from_nanos(4096 << 14)));
/// assert_eq!(AckTimeout::from_code(14)?, timeout);
/// // With seven retries, a dead peer is noticed after 3.66 s, not after eight times 67 ms.
/// let noticed = timeout.dead_peer_after(7, LinkLayer::Ethernet).unwrap();
/// assert_eq!(noticed.as_millis(), 3661);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "timeout")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// Wait for ever: a lost packet is never noticed.
    pub const INFINITE: AckTimeout = AckTimeout(0);

    /// From the code, 0 to 31: 4.096 µs · 2^code, 0 meaning for ever.
    pub fn from_code(code: u8) -> Result<AckTimeout> {
        match code {
            0..=31 => Ok(AckTimeout(code)),
            _ => Err(Error::attribute("timeout", code, "its code has 5 bits, 0 to 31")),
        }
    }

    /// The shortest timeout that is at least `duration`; beyond 8,796 seconds, the longest.
    pub fn at_least(duration: Duration) -> AckTimeout {
        (1..=31)
            .map(AckTimeout)
            .find(|timeout| timeout.duration().is_some_and(|value| value >= duration))
            .unwrap_or(AckTimeout(31))
    }

    /// Returns the code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the timeout, or `None` for ever.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            code => Some(Duration::from_nanos(4096 << code)),
        }
    }

    /// Returns the time until a request to a peer that does not answer fails, as measured on devices
    /// with the settings that they are delivered with. `None` is for ever.
    ///
    /// `retry_cnt` is that of [`RtsAttributes`](super::RtsAttributes). A device waits for intervals of
    /// 2 · 4.096 µs · 2^max(code, 16):
    ///
    /// | link | time | measured on |
    /// |---|---|---|
    /// | InfiniBand | `retry_cnt` + 1 intervals | ConnectX-2 ([numbers](https://github.com/Chester-Gillon/ibv_message_passing)) |
    /// | Ethernet (RoCE) | `retry_cnt` intervals, less 96 ms, or 365 ms from code 17 on. Before the first, a device repeats 4 to 11 times at growing distances | ConnectX-6 ([numbers](https://github.com/unionxic/rdma-fault-characterization)) |
    /// | Ethernet, `retry_cnt` 0 | eight transmissions: 2.05 s up to code 16 | ConnectX-6 |
    ///
    /// Single runs differ by up to 5 %, and with `retry_cnt` 0 or 1 by half.
    pub const fn dead_peer_after(self, retry_cnt: u8, link: LinkLayer) -> Option<Duration> {
        let fabric = match link {
            LinkLayer::InfiniBand | LinkLayer::Unspecified => Fabric::InfiniBand,
            LinkLayer::Ethernet => Fabric::Roce,
        };
        dead_peer_after(self.0, retry_cnt, fabric)
    }
}

impl Default for AckTimeout {
    /// Code 14: 67 ms by the specification, 537 ms on devices.
    fn default() -> Self {
        AckTimeout(14)
    }
}

impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(duration) => write!(f, "{duration:?} (code {})", self.0),
            None => write!(f, "infinite (code 0)"),
        }
    }
}

/// The RNR NAK timer: how long a responder without a posted receive asks the sender to wait.
///
/// The specification lets the sender wait longer, and devices do: see
/// [`device_wait`](Self::device_wait).
///
/// ```
/// use std::time::Duration;
/// use mlx5::verbs::attr::RnrTimer;
///
/// // The code 12 of verbs.
/// let timer = RnrTimer::from_code(12)?;
/// assert_eq!(timer.duration(), Duration::from_micros(640));
/// assert_eq!(RnrTimer::at_least(Duration::from_micros(600)), timer);
/// // A device waits so long before it sends again.
/// assert_eq!(timer.device_wait(), Duration::from_nanos(16 * 131_072));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "min_rnr_timer")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Microseconds of each code (InfiniBand table 45).
const RNR_MICROSECONDS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

impl RnrTimer {
    /// From the code, 0 to 31. Code 0 is the longest, 655 ms; codes 1 to 31 grow from 10 µs to
    /// 492 ms.
    pub fn from_code(code: u8) -> Result<RnrTimer> {
        match code {
            0..=31 => Ok(RnrTimer(code)),
            _ => Err(Error::attribute("min_rnr_timer", code, "its code has 5 bits, 0 to 31")),
        }
    }

    /// The shortest timer that is at least `duration`; beyond 655 ms, the longest.
    pub fn at_least(duration: Duration) -> RnrTimer {
        (1..=31).map(RnrTimer).find(|timer| timer.duration() >= duration).unwrap_or(RnrTimer(0))
    }

    /// Returns the code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns the time.
    pub const fn duration(self) -> Duration {
        Duration::from_micros(RNR_MICROSECONDS[self.0 as usize] as u64)
    }

    /// Returns the time that a device waits before it sends again, as measured: two to three times as
    /// long as [`duration`](Self::duration).
    ///
    /// Devices wait for ticks of 131 µs, and as many for two codes: 8 for 10 and 11, 16 for 12 and 13,
    /// up to 8,192 for 30 and 31, and 16,384 (2.1 s) for code 0. The codes 1 to 3 wait some 0.17 ms.
    /// All codes were measured on ConnectX-2
    /// ([numbers](https://github.com/Chester-Gillon/ibv_message_passing)), and code 12 on ConnectX-6.
    pub const fn device_wait(self) -> Duration {
        const TICK: u64 = 131_072;
        let nanoseconds = match self.0 as u64 {
            0 => 16_384 * TICK,
            code @ 1..=3 => 154_000 + 10_000 * code,
            code @ 4..=9 => code / 2 * TICK - 16_000,
            code => (8 << ((code - 10) / 2)) * TICK,
        };
        Duration::from_nanos(nanoseconds)
    }
}

impl Default for RnrTimer {
    /// Code 12: 640 µs by the specification, 2.1 ms on devices.
    fn default() -> Self {
        RnrTimer(12)
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} (code {})", self.duration(), self.0)
    }
}

#[cfg(test)]
mod tests;
