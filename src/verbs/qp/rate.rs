//! Limits of the rate at which queue pairs send.

use mlx5_sys::verbs::{ibv_modify_qp_rate_limit, ibv_qp_rate_limit_attr};

use super::{QueuePair, Rts};
use crate::error::{Cause, Error, Result, check};
use crate::ib::Transport;
use crate::verbs::Context;
use crate::verbs::zeroed::Zeroed;

/// A limit of the rate at which a queue pair sends (packet pacing): in kbit/s, with the longest burst
/// and the usual length of its packets.
///
/// See the example on [`QueuePair::set_rate_limit`].
#[doc(alias = "ibv_qp_rate_limit_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    kbps: u32,
    burst: u32,
    packet: u16,
}

impl RateLimit {
    /// No limit: removes one.
    pub const NONE: RateLimit = RateLimit { kbps: 0, burst: 0, packet: 0 };

    /// A limit of `kbps` kilobits (1,000 bits) a second.
    pub const fn new(kbps: u32) -> RateLimit {
        RateLimit { kbps, burst: 0, packet: 0 }
    }

    /// Sets how many bytes may leave at once after a pause. Default: 0, the device's choice.
    #[must_use]
    pub const fn max_burst(mut self, bytes: u32) -> RateLimit {
        self.burst = bytes;
        self
    }

    /// Sets the usual length of a packet in bytes, by which the device paces. Default: 0, the device's
    /// choice.
    #[must_use]
    pub const fn typical_packet(mut self, bytes: u16) -> RateLimit {
        self.packet = bytes;
        self
    }
}

/// The rates that a device offers for send queues.
///
/// See the example on [`QueuePair::set_rate_limit`].
#[doc(alias = "ibv_packet_pacing_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateRange {
    /// The lowest rate in kbit/s.
    pub min_kbps: u32,
    /// The highest rate in kbit/s; 0 if the device limits no rates.
    pub max_kbps: u32,
    /// The types of queue pairs whose rates it limits, as bits `1 << ibv_qp_type`.
    qp_types: u32,
}

impl RateRange {
    /// Returns whether the device limits the rates of queue pairs of transport `T`. Linux does so for
    /// raw packets alone.
    pub fn has<T: Transport>(&self) -> bool {
        self.max_kbps != 0 && self.qp_types.checked_shr(T::QP_TYPE).unwrap_or(0) & 1 == 1
    }
}

impl Context {
    /// Queries the rates that send queues can be limited to. One call into the kernel.
    ///
    /// # Errors
    /// [`Error::Call`].
    #[doc(alias = "ibv_query_device_ex")]
    pub fn rate_range(&self) -> Result<RateRange> {
        let caps = self.extended_attributes()?.packet_pacing_caps;
        Ok(RateRange {
            min_kbps: caps.qp_rate_limit_min,
            max_kbps: caps.qp_rate_limit_max,
            qp_types: caps.supported_qpts,
        })
    }
}

impl<T: Transport> QueuePair<T, Rts> {
    /// Limits the rate at which the queue pair sends, from the next request on. The limit ends with
    /// RTS. Queue pairs of one limit share an entry of a table of the device.
    ///
    /// # Errors
    /// - [`Error::Attribute`]: the device limits no rates of this transport, or not to this one, or a
    ///   burst or length is given without a rate.
    /// - [`Error::Call`]: the device takes no burst or length (EINVAL), or its table is full (ENOSPC).
    ///
    /// ```
    /// # // SAFETY: no other thread runs yet.
    /// # unsafe { std::env::set_var("MLX5_MODEL_LINK", "roce") };
    /// # use mlx5_model as _;
    /// # let context = mlx5::verbs::Context::open_first()?;
    /// # let pd = mlx5::verbs::ProtectionDomain::new(&context)?;
    /// # let cq = mlx5::verbs::CompletionQueue::new(&context, 256)?;
    /// use mlx5::ib::RawPacket;
    /// use mlx5::verbs::{QueuePairBuilder, RateLimit};
    ///
    /// let qp = QueuePairBuilder::<RawPacket>::new(&pd, &cq).build()?.init(1)?.rtr()?.rts()?;
    /// if context.rate_range()?.has::<RawPacket>() {
    ///     // 2 Gbit/s, of which 3 packets may leave at once.
    ///     let limit = RateLimit::new(2_000_000).max_burst(4_500).typical_packet(1_500);
    ///     qp.set_rate_limit(limit)?;
    ///     qp.set_rate_limit(RateLimit::NONE)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("ibv_modify_qp_rate_limit", "IBV_QP_RATE_LIMIT"))]
    pub fn set_rate_limit(&self, limit: RateLimit) -> Result<()> {
        let range = self.context().rate_range()?;
        if !range.has::<T>() {
            let rule = format!("the device limits no rates of {} queue pairs", T::NAME);
            return Err(Error::attribute("rate limit", limit.kbps, rule));
        }
        let RateRange { min_kbps, max_kbps, .. } = range;
        if limit.kbps != 0 && !(min_kbps..=max_kbps).contains(&limit.kbps) {
            let rule = format!("{min_kbps} to {max_kbps} kbit/s on this device, or 0 for no limit");
            return Err(Error::attribute("rate limit", limit.kbps, rule));
        }
        if limit.kbps == 0 && limit != RateLimit::NONE {
            let rule = "a burst and a usual length belong to a rate";
            return Err(Error::attribute("rate limit", limit.kbps, rule));
        }
        let mut attr = ibv_qp_rate_limit_attr::zeroed();
        attr.rate_limit = limit.kbps;
        attr.max_burst_sz = limit.burst;
        attr.typical_pkt_sz = limit.packet;
        // SAFETY: the queue pair is alive, and the attributes live through the call.
        let result = unsafe { ibv_modify_qp_rate_limit(self.as_raw().as_ptr(), &mut attr) };
        check("ibv_modify_qp_rate_limit", result).map_err(|error| {
            let cause = match error.errno().map(|errno| errno.0) {
                Some(libc::EINVAL) if limit.burst != 0 || limit.packet != 0 => {
                    Some(Cause::Known("the device takes no burst or usual length with a rate"))
                }
                Some(libc::ENOSPC) => Some(Cause::Known(
                    "all entries of the device's table of rates are taken: use fewer different limits",
                )),
                _ => None,
            };
            error.because(cause)
        })
    }
}
