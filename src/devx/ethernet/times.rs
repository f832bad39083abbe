//! Sending at times.

use std::time::Duration;

use mlx5_sys::ifc::cmd_hca_cap;

use crate::Result;
use crate::cqe::Timestamp;
use crate::devx::{Capabilities, Group};
use crate::verbs::Context;
use crate::wqe::WaitUntil;

/// The capability of an HCA to send packets at times (`wait_on_time`, ConnectX-7 on), with the format of its
/// clock.
///
/// ```
/// # use mlx5::devx::SendTimes;
/// # use mlx5::packet::PacketPort;
/// # use mlx5::verbs::{Context, DeviceClock};
/// # use mlx5::wqe::{EthSend, Inline};
/// # use std::time::Duration;
/// # mlx5_model::run();
/// # rig::ethernet::choose();
/// let port = PacketPort::new(&Context::open_first()?, 1)?;
/// let clock = DeviceClock::new(port.context())?;
/// let reading = clock.read().ok_or("the clock cannot be read")?;
/// let times = SendTimes::free_running(port.context())?;
///
/// // A packet that leaves 20 ms from now.
/// let mut sender = port.sender().build()?;
/// let now = clock.count().ok_or("the clock cannot be read")?;
/// let later = reading.after(now, Duration::from_millis(20));
/// sender.post(1, times.until(later))?;
/// sender.post(2, EthSend::new(Inline(&[2; 60])).signaled())?;
/// # while !sender.send_queue().is_idle() { for returned in sender.poll() { returned?; } }
/// assert!(clock.count() >= Some(later));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("wait_on_time", "RTE_ETH_TX_OFFLOAD_SEND_ON_TIMESTAMP"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTimes {
    mask: u64,
}

impl SendTimes {
    /// The farthest time ahead. One beyond it has come, and so has one of the past.
    pub const AHEAD: Duration = Duration::from_secs(WaitUntil::ROUND / 2);

    /// Asks the HCA, for queues whose [timestamps](crate::cqe::TimestampFormat) are free running, as those
    /// of all queues made by verbs.
    ///
    /// # Errors
    /// [`Error::NoCapability`](crate::Error::NoCapability) if send queues of the HCA wait for no time.
    /// [`Error::Withheld`](crate::Error::Withheld) if this kernel lets no program ask.
    pub fn free_running(context: &Context) -> Result<SendTimes> {
        let field = cmd_hca_cap::DEVICE_FREQUENCY_KHZ;
        let khz = capability(context)?.require_at_least(Group::General, field, 1, WHAT)?;
        Ok(SendTimes { mask: WaitUntil::free_running_mask(khz) })
    }

    /// Asks the HCA, for queues whose timestamps are in real-time format.
    ///
    /// # Errors
    /// Those of [`free_running`](Self::free_running).
    pub fn real_time(context: &Context) -> Result<SendTimes> {
        capability(context).map(|_| SendTimes { mask: (WaitUntil::ROUND << 32) - 1 })
    }

    /// Returns the request that waits until a time, at most [`AHEAD`](Self::AHEAD) from now.
    pub const fn until(&self, time: Timestamp) -> WaitUntil {
        WaitUntil::new(time.raw(), self.mask)
    }
}

const WHAT: &str = "a send queue that waits for a time";

fn capability(context: &Context) -> Result<Capabilities<'_>> {
    let capabilities = context.capabilities();
    capabilities.require(Group::General, cmd_hca_cap::WAIT_ON_TIME, WHAT)?;
    Ok(capabilities)
}
