//! The CPU's counter.

use std::time::{Duration, Instant};

/// Returns the CPU's counter: TSC of x86-64, CNTVCT of arm64.
#[inline(always)]
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads a register only.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: the instruction reads a register that Linux lets programs read.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack));
        }
        ticks
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the structure.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// The rate of the counter.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    megahertz: u64,
}

impl Rate {
    /// Measures the rate for a time, to the nearest MHz. 10 ms are enough.
    #[must_use]
    pub fn measure(time: Duration) -> Rate {
        let (began, from) = (Instant::now(), ticks());
        std::thread::sleep(time);
        let (passed, counted) = (began.elapsed(), ticks().wrapping_sub(from));
        let microseconds = (passed.as_nanos() as u64 / 1000).max(1);
        Rate { megahertz: ((counted + microseconds / 2) / microseconds).max(1) }
    }

    /// Returns a span of ticks as a time.
    #[must_use]
    pub fn time(self, ticks: u64) -> Duration {
        let nanoseconds = u128::from(ticks) * 1000 / u128::from(self.megahertz);
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_of_ticks_is_a_time() {
        let rate = Rate { megahertz: 2500 };
        assert_eq!(rate.time(2500), Duration::from_micros(1));
        assert_eq!(rate.time(u64::MAX).as_secs(), u64::MAX / 2500 / 1_000_000);
        let rate = Rate::measure(Duration::from_millis(1));
        assert!(ticks() > 0 && rate.megahertz > 0);
    }
}
