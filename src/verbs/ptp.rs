//! The PTP clock of a device, and its offset to the system's clock.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Context;
use crate::cqe::RealTime;
use crate::error::{Error, Result};

/// `PTP_SYS_OFFSET_EXTENDED` of `linux/ptp_clock.h`, since Linux 5.0.
const SYS_OFFSET_EXTENDED: libc::c_ulong =
    3 << 30 | (size_of::<Readings>() as libc::c_ulong) << 16 | (b'=' as libc::c_ulong) << 8 | 9;
/// `PTP_MAX_SAMPLES`
const MOST: usize = 25;
/// Readings of a measurement. The closest counts.
const SAMPLES: u32 = 10;

/// `struct ptp_clock_time`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Time {
    sec: i64,
    nsec: u32,
    reserved: u32,
}

/// `struct ptp_sys_offset_extended`
#[repr(C)]
struct Readings {
    n_samples: u32,
    reserved: [u32; 3],
    /// The system's clock, the PTP clock, the system's clock.
    times: [[Time; 3]; MOST],
}

const _: () = assert!(size_of::<Readings>() == 16 + 3 * 16 * MOST);

impl Time {
    fn nanoseconds(self) -> i128 {
        i128::from(self.sec) * 1_000_000_000 + i128::from(self.nsec)
    }
}

/// A clock that has not reached this was never set: it counts from 1970, or from the start of the device.
/// Seconds since 1970, in September 2001.
const SET: u64 = 1_000_000_000;

/// The PTP clock of a device: times in [real-time format](crate::cqe::TimestampFormat) are its own.
///
/// What the clock shows depends on who sets it. A PTP daemon sets it to TAI or UTC, and follows a
/// grandmaster. Otherwise Linux's driver sets it once, to the system's time, and it runs away from that.
/// [`measure`](Self::measure) tells.
///
/// ```no_run
/// use std::time::Duration;
/// use mlx5::cqe::RealTime;
/// use mlx5::verbs::{Context, PtpClock};
///
/// # fn show(time: RealTime) -> mlx5::Result<()> {
/// let clock = PtpClock::new(&Context::open_first()?)?;
/// let first = clock.measure()?;
/// let second = clock.measure()?;
/// if second.is_set() && second.is_in_step_with(&first, Duration::from_micros(1)) {
///     println!("{} ns ahead: {:?}", second.nanoseconds(), second.system_time(time));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PtpClock {
    file: File,
    path: PathBuf,
}

impl PtpClock {
    /// Opens the PTP clock of a device, `/dev/ptpN`. The model has none.
    ///
    /// # Errors
    /// [`Error::Attribute`] if the device has none, or the program may not read it.
    pub fn new(context: &Context) -> Result<PtpClock> {
        let name = find(&context.sysfs_path().join("device/ptp"));
        let Some(name) = name else {
            let rule = "a device with a PTP clock: this one has none here. It needs a kernel with \
                        CONFIG_PTP_1588_CLOCK, and a function that Linux's driver gives a clock, which \
                        not every virtual function is";
            return Err(Error::attribute("device", context.name(), rule));
        };
        let path = Path::new("/dev").join(name);
        let file = File::open(&path).map_err(|error| {
            let rule = format!(
                "a clock that the program can open ({error}): pass the device node into the \
                 container, or grant read access by a udev rule"
            );
            Error::attribute("PTP clock", path.display(), rule)
        })?;
        Ok(PtpClock { file, path })
    }

    /// Returns the path of the clock's device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Measures the offset of the clock to the system's: ten readings by the kernel, of which the closest
    /// counts. A system call of some ten microseconds.
    ///
    /// # Errors
    /// [`Error::Call`] for `PTP_SYS_OFFSET_EXTENDED`, which Linux has since 5.0. [`Error::Attribute`] if
    /// the system's clock was set back during each reading.
    #[doc(alias = "PTP_SYS_OFFSET_EXTENDED")]
    pub fn measure(&self) -> Result<PtpOffset> {
        let times = [[Time::default(); 3]; MOST];
        let mut readings = Readings { n_samples: SAMPLES, reserved: [0; 3], times };
        // SAFETY: the file is open, and the kernel reads and writes one structure of this layout, which
        // lives through the call.
        let status = unsafe {
            libc::ioctl(self.file.as_raw_fd(), SYS_OFFSET_EXTENDED as _, &raw mut readings)
        };
        if status != 0 {
            return Err(Error::last("PTP_SYS_OFFSET_EXTENDED"));
        }
        let taken = readings.times.iter().take(readings.n_samples as usize);
        closest(taken.copied()).ok_or_else(|| {
            let rule =
                "a reading while the system's clock runs on: it was set back, so measure again";
            Error::attribute("PTP clock", self.path.display(), rule)
        })
    }
}

/// Returns the name of the clock in a device's folder of PTP clocks.
fn find(folder: &Path) -> Option<String> {
    let names =
        fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with("ptp")).min()
}

/// Returns the offset by the reading that took the least time. `None` if there are no readings.
fn closest(readings: impl Iterator<Item = [Time; 3]>) -> Option<PtpOffset> {
    let offset = |[before, clock, after]: [Time; 3]| {
        let [before, clock, after] = [before, clock, after].map(Time::nanoseconds);
        // A system clock that was set back in between makes a reading worthless.
        let apart = u64::try_from(after - before).ok()?;
        Some(PtpOffset {
            nanoseconds: i64::try_from(clock - (before + i128::from(apart / 2))).ok()?,
            uncertainty: Duration::from_nanos(apart.div_ceil(2)),
            clock: Duration::from_nanos(u64::try_from(clock).ok()?),
        })
    };
    readings.filter_map(offset).min_by_key(|offset| offset.uncertainty)
}

/// The offset of a [`PtpClock`] to the system's clock, when it was measured.
///
/// See the example on [`PtpClock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtpOffset {
    nanoseconds: i64,
    uncertainty: Duration,
    clock: Duration,
}

impl PtpOffset {
    /// Returns the nanoseconds by which the PTP clock is ahead of the system's. About 37 s if it shows
    /// TAI and the system UTC.
    pub fn nanoseconds(&self) -> i64 {
        self.nanoseconds
    }

    /// Returns the most by which the measurement can be wrong.
    pub fn uncertainty(&self) -> Duration {
        self.uncertainty
    }

    /// Returns whether the PTP clock was ever set: whether it shows a time after 2001. One that was not
    /// counts from 1970.
    pub fn is_set(&self) -> bool {
        self.clock.as_secs() >= SET
    }

    /// Returns whether the PTP clock is in step with the system's: whether the offset has changed by at
    /// most `bound` since `earlier`, apart from what both measurements can be wrong by.
    pub fn is_in_step_with(&self, earlier: &PtpOffset, bound: Duration) -> bool {
        let change = self.nanoseconds.abs_diff(earlier.nanoseconds);
        let doubt = self.uncertainty + earlier.uncertainty;
        Duration::from_nanos(change) <= bound.saturating_add(doubt)
    }

    /// Converts a time of the PTP clock to a time of the system, by this offset.
    pub fn system_time(&self, time: RealTime) -> SystemTime {
        let time = UNIX_EPOCH + time.since_epoch();
        let ahead = Duration::from_nanos(self.nanoseconds.unsigned_abs());
        if self.nanoseconds < 0 { time + ahead } else { time - ahead }
    }
}

#[cfg(test)]
mod tests;
