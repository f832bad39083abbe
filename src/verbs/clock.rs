//! The HCA's clock, which stamps CQEs, and the conversion of its counts to time of day.

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlx5_sys::dv::{MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK, mlx5dv_context, mlx5dv_query_device};

use super::Context;
use crate::cqe::Timestamp;
use crate::error::{Errno, Error, Result, check};

/// `struct mlx5_ib_clock_info` of `rdma/mlx5-abi.h`: a page that the kernel writes and programs
/// read.
#[repr(C)]
struct Page {
    /// Odd while the other fields are written, and changed afterwards.
    sign: AtomicU32,
    reserved: u32,
    nsec: AtomicU64,
    cycles: AtomicU64,
    frac: AtomicU64,
    mult: AtomicU32,
    shift: AtomicU32,
    mask: AtomicU64,
    overflow_period: AtomicU64,
}

/// `MLX5_IB_CLOCK_INFO_KERNEL_UPDATING`
const UPDATING: u32 = 1;

/// The page's offset in the device's file, in pages: `MLX5_IB_MMAP_CLOCK_INFO` of
/// `rdma/mlx5-abi.h`, with the version of the page below (`MLX5_IB_MMAP_CMD_SHIFT` of rdma-core's
/// `mlx5.h`).
const OFFSET: libc::off_t = 7 << 8;

/// Most attempts to read a page while it is being written, which takes the kernel some nanoseconds.
const TRIES: u32 = 1 << 16;

/// The clock of a device.
///
/// CQEs of queues with free-running times carry its counts, which
/// [timed polls](crate::ring::CqReader::poll_timed) return. [`read`](Self::read) returns the conversion
/// to time of day, without a system call. The kernel keeps the conversion in a page, which it updates
/// now and then, following its own clock.
///
/// ```no_run
/// # fn show() -> mlx5::Result<()> {
/// use mlx5::verbs::{DeviceClock, Context};
///
/// let context = Context::open_first()?;
/// let clock = DeviceClock::new(&context)?;
/// if let (Some(count), Some(reading)) = (clock.count(), clock.read()) {
///     println!("{count:?} is {} ns after 1970", reading.nanoseconds(count));
/// }
/// # Ok(())
/// # }
/// ```
#[doc(alias = "mlx5dv_clock_info")]
pub struct DeviceClock {
    page: NonNull<Page>,
    page_size: usize,
    /// The register: two big-endian words, the upper first.
    register: Option<NonNull<u32>>,
    /// Keeps the register mapped.
    _context: Context,
}

// SAFETY: the page and the register are only read, by atomic and volatile loads.
unsafe impl Send for DeviceClock {}
// SAFETY: page and register are only read, by atomic and volatile loads, which threads may do at
// once.
unsafe impl Sync for DeviceClock {}

impl DeviceClock {
    /// Maps the clock's page.
    ///
    /// # Errors
    /// [`Error::Call`] for `mmap` if the kernel's driver has no such page (before Linux 4.15).
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn new(context: &Context) -> Result<DeviceClock> {
        // SAFETY: sysconf has no preconditions.
        let page_size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page_size = usize::try_from(page_size).map_err(|_| Error::last("sysconf"))?;
        // SAFETY: the context is open, and the field does not change.
        let fd = unsafe { (*context.as_raw().as_ptr()).cmd_fd };
        // SAFETY: the call makes a new mapping, at an address that the kernel chooses.
        let page = unsafe {
            let offset = OFFSET * page_size as libc::off_t;
            libc::mmap(
                std::ptr::null_mut(),
                page_size,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                offset,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Error::last("mmap"));
        }
        let page = NonNull::new(page.cast()).ok_or_else(|| Error::from_errno("mmap", Errno(0)))?;
        let mut clock = DeviceClock { page, page_size, register: None, _context: context.clone() };
        clock.register = register(context)?;
        Ok(clock)
    }

    /// Returns the present conversion of counts to time of day. `None` if the page is being written
    /// all the time, which the kernel does not do. About a dozen loads.
    pub fn read(&self) -> Option<ClockReading> {
        // SAFETY: the page is mapped as long as `self` and readable. Zeroes, and what the kernel
        // wrote, are values of the atomics.
        let page = unsafe { self.page.as_ref() };
        read(page)
    }

    /// Returns the clock's present count, by an access to the HCA of about a microsecond. `None` if
    /// the kernel does not let programs read the register.
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn count(&self) -> Option<Timestamp> {
        let register = self.register?;
        // SAFETY: both words lie in the register, which the context keeps mapped.
        let word = |at: usize| u64::from(u32::from_be(unsafe { register.add(at).read_volatile() }));
        let mut high = word(0);
        loop {
            let low = word(1);
            let again = word(0);
            // Otherwise the lower word has passed zero between the two reads.
            if high == again {
                return Some(Timestamp::from_raw(high << 32 | low));
            }
            high = again;
        }
    }
}

/// Returns a consistent reading, during which the page was not written.
fn read(page: &Page) -> Option<ClockReading> {
    for _ in 0..TRIES {
        let before = page.sign.load(Ordering::Acquire);
        if before & UPDATING != 0 {
            std::hint::spin_loop();
            continue;
        }
        let reading = ClockReading {
            nsec: page.nsec.load(Ordering::Relaxed),
            cycles: page.cycles.load(Ordering::Relaxed),
            frac: page.frac.load(Ordering::Relaxed),
            mult: page.mult.load(Ordering::Relaxed),
            shift: page.shift.load(Ordering::Relaxed) & 63,
            mask: page.mask.load(Ordering::Relaxed),
            overflow_period: page.overflow_period.load(Ordering::Relaxed),
        };
        // If a load has seen part of a write, that write follows a store to the sign, which the
        // next load then sees.
        fence(Ordering::Acquire);
        if page.sign.load(Ordering::Relaxed) == before {
            return Some(reading);
        }
    }
    None
}

/// Returns the address at which libmlx5 has mapped the register.
fn register(context: &Context) -> Result<Option<NonNull<u32>>> {
    let mut attributes = MaybeUninit::<mlx5dv_context>::zeroed();
    // SAFETY: the structure has integers and pointers, for which zeroes are values. The context is
    // open.
    unsafe {
        let attributes = attributes.assume_init_mut();
        attributes.comp_mask = MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK as u64;
        check("mlx5dv_query_device", mlx5dv_query_device(context.as_raw().as_ptr(), attributes))?;
        let has = attributes.comp_mask & MLX5DV_CONTEXT_MASK_HCA_CORE_CLOCK as u64 != 0;
        Ok(NonNull::new(attributes.hca_core_clock.cast()).filter(|_| has))
    }
}

impl Drop for DeviceClock {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the page, and it is unmapped once, here.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.page_size) };
    }
}

impl fmt::Debug for DeviceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceClock").field("reading", &self.read()).finish_non_exhaustive()
    }
}

/// The state of a clock at one moment, from the kernel: a count, its time of day, and the duration
/// of a count.
///
/// See the example on [`DeviceClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    nsec: u64,
    cycles: u64,
    frac: u64,
    mult: u32,
    shift: u32,
    mask: u64,
    overflow_period: u64,
}

impl ClockReading {
    /// Converts a count, such as a CQE's free-running time, before or after the reading, to
    /// nanoseconds since 1970.
    /// The accuracy is that of the kernel's clock, and decreases with the age of the reading. The
    /// HCA's counter wraps: a count more than half a round away is taken for one of another round.
    #[doc(alias = "mlx5dv_ts_to_ns")]
    pub fn nanoseconds(&self, count: Timestamp) -> u64 {
        let count = count.raw();
        let after = count.wrapping_sub(self.cycles) & self.mask;
        let scaled = |counts: u64| u128::from(counts) * u128::from(self.mult);
        if after <= self.mask / 2 {
            let nsec = (scaled(after) + u128::from(self.frac)) >> self.shift;
            self.nsec.wrapping_add(nsec as u64)
        } else {
            let before = self.cycles.wrapping_sub(count) & self.mask;
            let nsec = scaled(before).saturating_sub(self.frac.into()) >> self.shift;
            self.nsec.wrapping_sub(nsec as u64)
        }
    }

    /// Returns the time between two counts; zero if `later` is before `earlier`.
    pub fn between(&self, earlier: Timestamp, later: Timestamp) -> Duration {
        let (earlier, later) = (self.nanoseconds(earlier), self.nanoseconds(later));
        Duration::from_nanos(later.saturating_sub(earlier))
    }

    /// Returns the count at a time after another count, or the first one after it.
    pub fn after(&self, count: Timestamp, time: Duration) -> Timestamp {
        let scaled = time.as_nanos().min(u64::MAX.into()) << self.shift;
        let counts = scaled.div_ceil(u128::from(self.mult.max(1)));
        Timestamp::from_raw(count.raw().wrapping_add(counts as u64) & self.mask)
    }

    /// Converts a count to a time of the system.
    pub fn time(&self, count: Timestamp) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.nanoseconds(count))
    }

    /// Returns the longest interval between the kernel's writes of the page. With an older reading,
    /// counts may be taken for those of another round.
    pub fn longest_use(&self) -> Duration {
        Duration::from_nanos(self.overflow_period)
    }
}

#[cfg(test)]
mod tests;
