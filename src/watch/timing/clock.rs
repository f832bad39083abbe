//! A counter of constant rate, and its frequency.

use core::fmt;
use std::sync::OnceLock;
use std::time::Duration;

#[cfg(feature = "timing")]
use super::recorder::Recorder;

/// How long the counter is observed to measure or confirm its rate.
const WATCH: Duration = Duration::from_millis(10);

/// Reads the counter after all earlier instructions have executed.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE2's LFENCE and the counter. Linux lets user space read
    // it unless the process asked otherwise (PR_SET_TSC). LFENCE waits until earlier instructions
    // have executed; without it the counter could be read before they have.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(target_arch = "aarch64")]
    {
        let ticks: u64;
        // SAFETY: the code reads a counter that Linux makes readable. ISB waits for earlier
        // instructions.
        unsafe {
            core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) ticks, options(nostack));
        }
        ticks
    }
}

/// The source of a [`Clock`]'s rate.
///
/// See the example on [`Clock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// CPUID leaf 0x15: the ratio of the TSC to the crystal, and the crystal's frequency.
    Crystal,
    /// CPUID leaf 0x15's ratio of the TSC to the crystal. The crystal's frequency is derived from
    /// the base frequency of leaf 0x16, to which the TSC is assumed equal.
    BaseFrequency,
    /// Measured against `CLOCK_MONOTONIC_RAW` over 10 ms, because the processor states no rate, or
    /// states one that is more than 1% away from the measured one.
    Measured,
    /// CNTFRQ_EL0 (arm64; untested on hardware).
    CounterRegister,
}

/// The counter behind time stamps: the TSC on x86-64, CNTVCT_EL0 on arm64.
///
/// ```
/// use mlx5::timing::Clock;
///
/// let clock = Clock::get();
/// let start = Clock::now();
/// let ticks = Clock::now() - start;
/// assert!(clock.nanoseconds(ticks) >= 0.0 && clock.hertz() > 1e6);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    hertz: f64,
    source: Source,
    constant: bool,
    overhead: u64,
    /// Nanoseconds of a tick, times 2^32.
    scale: u64,
}

impl Clock {
    /// Returns the process's clock. The first call takes about 10 ms; the first report makes it.
    pub fn get() -> &'static Self {
        static CLOCK: OnceLock<Clock> = OnceLock::new();
        CLOCK.get_or_init(Self::calibrate)
    }

    fn calibrate() -> Self {
        let (hertz, source) = choose(stated(), measured());
        let scale = (1e9 / hertz * (1u64 << 32) as f64).round() as u64;
        Self { hertz, source, constant: constant_rate(), overhead: overhead(), scale }
    }

    /// Returns the counter's value after all earlier instructions have executed. x86-64 executes
    /// `lfence` and `rdtsc`, arm64 `isb` and `mrs cntvct_el0`. No system call.
    #[inline(always)]
    pub fn now() -> u64 {
        ticks()
    }

    /// Returns the ticks per second.
    pub fn hertz(&self) -> f64 {
        self.hertz
    }

    /// Returns the source of its rate.
    pub fn source(&self) -> Source {
        self.source
    }

    /// Returns whether the processor guarantees a constant rate (x86-64: CPUID leaf 0x80000007,
    /// "invariant TSC"). If not, tick counts are right, but nanoseconds may be wrong.
    pub fn is_constant(&self) -> bool {
        self.constant
    }

    /// Returns the cost of a stamp, in ticks: of a phase with the feature `timing`, otherwise
    /// between two consecutive calls of [`now`](Self::now).
    pub fn overhead(&self) -> u64 {
        self.overhead
    }

    /// Converts ticks to nanoseconds.
    pub fn nanoseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * 1e9 / self.hertz
    }

    /// Converts ticks to nanoseconds, rounded down, without floating point. It takes one
    /// multiplication, for use between two messages. The error is at most 2^-32 of a nanosecond per
    /// tick.
    #[inline(always)]
    pub fn whole_nanoseconds(&self, ticks: u64) -> u64 {
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as u64
    }

    /// Converts nanoseconds to ticks, rounded.
    pub fn ticks_of(&self, nanoseconds: f64) -> u64 {
        (nanoseconds * self.hertz / 1e9).round() as u64
    }
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counter = if cfg!(target_arch = "aarch64") { "CNTVCT_EL0" } else { "TSC" };
        let source = match self.source {
            Source::Crystal => "by CPUID leaf 0x15",
            Source::BaseFrequency => "by CPUID leaves 0x15 and 0x16",
            Source::Measured => "measured against CLOCK_MONOTONIC_RAW",
            Source::CounterRegister => "by CNTFRQ_EL0",
        };
        let constant = if self.constant { "constant rate" } else { "RATE NOT PROMISED CONSTANT" };
        let megahertz = self.hertz / 1e6;
        write!(f, "{counter}, {megahertz:.1} MHz {source}, {constant}")?;
        #[cfg(feature = "timing")]
        write!(f, "; {} ticks per stamp taken off", self.overhead)?;
        Ok(())
    }
}

/// Measures the cost of a stamp.
#[cfg(feature = "timing")]
fn overhead() -> u64 {
    Recorder::overhead()
}

/// Measures the cost of a stamp: the least median of several rounds, which excludes disturbed ones.
#[cfg(not(feature = "timing"))]
fn overhead() -> u64 {
    (0..8)
        .map(|_| {
            let mut gaps = [0; 129];
            let mut last = ticks();
            for gap in &mut gaps {
                let now = ticks();
                *gap = now - last;
                last = now;
            }
            gaps.sort_unstable();
            gaps[gaps.len() / 2]
        })
        .min()
        .unwrap_or(0)
}

/// Returns the stated rate if the measured one confirms it, otherwise the measured one.
fn choose(stated: Option<(f64, Source)>, measured: f64) -> (f64, Source) {
    match stated {
        Some((hertz, source)) if (hertz / measured - 1.0).abs() <= 0.01 => (hertz, source),
        _ => (measured, Source::Measured),
    }
}

/// Returns the rate that the processor states.
#[cfg(target_arch = "x86_64")]
fn stated() -> Option<(f64, Source)> {
    let [denominator, numerator, crystal, _] = cpuid(0x15);
    from_leaves([denominator, numerator, crystal], cpuid(0x16)[0] & 0xffff)
}

#[cfg(target_arch = "aarch64")]
fn stated() -> Option<(f64, Source)> {
    let hertz: u64;
    // SAFETY: the code reads a register that Linux makes readable.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack));
    }
    (hertz != 0).then_some((hertz as f64, Source::CounterRegister))
}

/// Returns the rate by CPUID leaf 0x15 (denominator, numerator, crystal in Hz) and the base
/// frequency of leaf 0x16 in MHz. Values of 0 are not stated. (Intel SDM volume 3, "Determining the
/// Processor Base Frequency"; Linux's `native_calibrate_tsc` does the same.)
#[cfg(target_arch = "x86_64")]
fn from_leaves([denominator, numerator, crystal]: [u32; 3], base: u32) -> Option<(f64, Source)> {
    if denominator == 0 || numerator == 0 {
        return None;
    }
    if crystal != 0 {
        let hertz = f64::from(crystal) * f64::from(numerator) / f64::from(denominator);
        return Some((hertz, Source::Crystal));
    }
    (base != 0).then(|| (f64::from(base) * 1e6, Source::BaseFrequency))
}

#[cfg(target_arch = "x86_64")]
fn constant_rate() -> bool {
    const INVARIANT_TSC: u32 = 1 << 8;
    cpuid(0x8000_0007)[3] & INVARIANT_TSC != 0
}

/// Returns EAX, EBX, ECX and EDX of a CPUID leaf; zeros if the processor does not have it.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe, reason = "newer Rusts than the oldest supported one call CPUID safe")]
fn cpuid(leaf: u32) -> [u32; 4] {
    use core::arch::x86_64::__cpuid;
    // SAFETY: every x86-64 processor has CPUID, and leaves 0 and 0x80000000, which return the last
    // leaf.
    let found = unsafe {
        let highest = __cpuid(leaf & 0x8000_0000).eax;
        (leaf <= highest).then(|| __cpuid(leaf))
    };
    found.map_or([0; 4], |leaf| [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx])
}

/// The architecture guarantees it.
#[cfg(target_arch = "aarch64")]
fn constant_rate() -> bool {
    true
}

/// Returns the nanoseconds of `CLOCK_MONOTONIC_RAW`, which is never adjusted.
fn raw_nanoseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` has space for the result.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut now) };
    assert_eq!(result, 0, "Linux has had CLOCK_MONOTONIC_RAW since 2.6.28");
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Reads both clocks at one moment: the fastest of several tries.
fn pair() -> (u64, u64) {
    let tries = (0..32).map(|_| {
        let before = ticks();
        let nanoseconds = raw_nanoseconds();
        let after = ticks();
        (
            after.wrapping_sub(before),
            before.wrapping_add(after.wrapping_sub(before) / 2),
            nanoseconds,
        )
    });
    let (_, ticks, nanoseconds) = tries.min().unwrap_or_default();
    (ticks, nanoseconds)
}

/// Returns the ticks per second, measured by the other clock.
fn measured() -> f64 {
    let (first_ticks, first) = pair();
    loop {
        let (last_ticks, last) = pair();
        if last - first >= WATCH.as_nanos() as u64 {
            return (last_ticks - first_ticks) as f64 * 1e9 / (last - first) as f64;
        }
    }
}

#[cfg(test)]
mod tests;
