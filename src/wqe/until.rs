//! Requests that wait for a time.

use mlx5_sys::wqe::{WAIT_CYCLIC_SMALLER, WaitSeg, opcode};

use super::encode::setters;
use super::error::PostError;
use super::{Code, Encode, Limits, Operation, PostOn, Segment, Segments};
use crate::ib::RawPacket;

/// Waits until the HCA's clock has reached a time. Requests posted behind it wait, too: so a packet is sent
/// at a time.
///
/// The HCA has to have the capability `wait_on_time`, which
/// [`SendTimes`](crate::devx::SendTimes) asks for: others fail the request with a local QP operation error.
/// Only queues of Ethernet packets wait.
///
/// ```
/// use mlx5::wqe::WaitUntil;
///
/// // A count of the clock, of which 33 bits are compared.
/// let wait = WaitUntil::new(0x1_2345_6789, (1 << 33) - 1).signaled();
/// assert_eq!((wait.time(), wait.mask()), (0x1_2345_6789, 0x1_ffff_ffff));
/// ```
#[doc(alias("MLX5_OPCODE_WAIT", "MLX5_OPC_MOD_WAIT_TIME", "wait_on_time"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct WaitUntil {
    time: u64,
    mask: u64,
    flags: u8,
}

impl WaitUntil {
    /// Waits until the clock has reached `time`, in the format of the queue's
    /// [timestamps](crate::cqe::Timestamp). Only the bits of `mask` are compared, the lowest ones. The clock
    /// wraps around in them: a time that is more than half of that ahead has been reached.
    pub const fn new(time: u64, mask: u64) -> Self {
        Self { time, mask, flags: 0 }
    }

    /// Returns the bits to compare in free-running times, of a clock of so many kHz (`hca_core_clock` of
    /// `ibv_query_device_ex`): times repeat after 8 seconds or more, as those of DPDK do
    /// (`MLX5_TS_MASK_SECS`).
    ///
    /// ```
    /// use mlx5::wqe::WaitUntil;
    ///
    /// assert_eq!(WaitUntil::free_running_mask(1_000_000), (1 << 33) - 1);
    /// ```
    pub const fn free_running_mask(khz: u64) -> u64 {
        match (Self::ROUND * 1000).checked_mul(khz) {
            Some(counts) => match counts.checked_next_power_of_two() {
                Some(round) => round - 1,
                None => u64::MAX,
            },
            None => u64::MAX,
        }
    }

    /// Seconds after which times repeat, at least.
    pub(crate) const ROUND: u64 = 8;

    setters!(signaled);

    /// Returns the time.
    pub const fn time(&self) -> u64 {
        self.time
    }

    /// Returns the bits of the clock that are compared.
    pub const fn mask(&self) -> u64 {
        self.mask
    }
}

impl Operation for WaitUntil {
    const OPCODE: u8 = opcode::WAIT;

    #[inline(always)]
    fn code(&self) -> Code {
        Code::modified(Self::OPCODE, opcode::OPMOD_WAIT_TIME)
    }
}

impl Encode for WaitUntil {
    #[inline(always)]
    fn body_ds(&self) -> u32 {
        2
    }

    #[inline(always)]
    fn check(&self, _: &Limits) -> Result<(), PostError> {
        Ok(())
    }

    #[inline(always)]
    fn flags(&self) -> u8 {
        self.flags
    }

    #[inline(always)]
    unsafe fn put<W: Segments>(&self, writer: &mut W) {
        let segments: [Segment; 2] = zerocopy::transmute!(WaitSeg {
            operation: WAIT_CYCLIC_SMALLER.into(),
            lkey: 0.into(),
            addr: 0.into(),
            value: self.time.into(),
            mask: self.mask.into(),
        });
        // SAFETY: `body_ds` counts both.
        unsafe { segments.into_iter().for_each(|segment| writer.put(segment)) };
    }
}

impl PostOn<RawPacket> for WaitUntil {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wqe::Linear;

    /// DPDK, `mlx5_tx_wseg_init` in `drivers/net/mlx5/mlx5_tx.h`.
    #[test]
    fn the_segment_is_that_of_dpdk() {
        let mut body = [0u64; 4];
        let wait = WaitUntil::new(0x1234_5678_09ab_cdef, 0x7_ffff_ffff);
        // SAFETY: two segments fit.
        unsafe { wait.put(&mut Linear::new((&raw mut body).cast())) };
        let words = [5 << 32, 0, 0x1234_5678_09ab_cdef, 0x7_ffff_ffff];
        assert_eq!(body, words.map(u64::to_be));
        assert_eq!((wait.body_ds(), wait.code().modifier), (2, 2));
    }
}
