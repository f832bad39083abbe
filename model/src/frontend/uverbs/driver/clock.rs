//! A device's clock as programs see it: the counter register, and the page by which the kernel
//! tells how to convert counts to time of day.
//!
//! Programs read the page without a system call. So it has a sequence word, which is odd during an
//! update and has a new value afterwards. The model updates the page as the kernel does, by reading
//! both clocks anew now and then.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use libc::{c_int, off_t};

use super::super::process::errno::{Result, last};
use super::super::process::lock;
use super::super::process::trap::PAGE;
use super::super::tree::config::can_trap;
use crate::card::{Card, Profile};
use crate::private::system;

/// Returns whether the register can be read: its loads have to be noticed.
pub(crate) fn is_readable() -> bool {
    can_trap()
}

/// `MLX5_IB_CLOCK_INFO_V1`
pub(crate) const VERSION: u32 = 0;

/// How often the page is written anew, where the card is used.
const INTERVAL: Duration = Duration::from_millis(500);

/// A count is `mult` times `1 / 2^SHIFT` nanoseconds. As Linux has it (`MLX5_CYCLES_SHIFT`, in versions
/// before 6.7): the products of counts within an hour fit 64 bits, and 6.4 ns are exact to 10^-7.
const SHIFT: u32 = 23;

/// `struct mlx5_ib_clock_info`
#[repr(C)]
struct ClockInfo {
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

/// Longest time between two readings of the card's clock, in nanoseconds, for a reading in between
/// to count as simultaneous.
const CLOSE: u64 = 2_000;
/// Times that two clocks are read before the closest reading is taken.
const TRIES: usize = 32;

/// Reads the card's clock and the time of day so that both are of one time, in nanoseconds. A thread
/// may lose its processor for milliseconds between any two reads: so the card's clock is read before
/// and after, and the reading counts in which it moved least.
fn at_one_time(cycles: impl Fn() -> u64, day: impl Fn() -> u64) -> (u64, u64) {
    let mut closest = (u64::MAX, 0, 0);
    for _ in 0..TRIES {
        let before = cycles();
        let day = day();
        let apart = cycles().saturating_sub(before);
        if apart < closest.0 {
            closest = (apart, before + apart / 2, day);
        }
        if apart <= CLOSE {
            break;
        }
    }
    (closest.1, closest.2)
}

/// The page of a card, which programs map.
struct Info {
    file: c_int,
    info: &'static ClockInfo,
    /// When it was written.
    written: Mutex<Instant>,
}

/// A card's clock: the page of it that programs have mapped.
#[derive(Default)]
pub(crate) struct Clock {
    info: OnceLock<Info>,
}

impl Info {
    fn new(profile: Profile) -> Result<Self> {
        // SAFETY: the call reads the name, a C string. The kernel chooses where the new mapping is, of a
        // page that the file has.
        let (file, at) = unsafe {
            let file = system::memfd_create(c"mlx5-clock".as_ptr(), libc::MFD_CLOEXEC);
            if file < 0 || system::ftruncate(file, PAGE as off_t) != 0 {
                return Err(last());
            }
            let file = super::super::process::descriptors::aside(file)?;
            let rights = libc::PROT_READ | libc::PROT_WRITE;
            (file, system::mmap(std::ptr::null_mut(), PAGE, rights, libc::MAP_SHARED, file, 0))
        };
        if at == libc::MAP_FAILED {
            return Err(last());
        }
        // SAFETY: a page of zeros, a value of the structure, which is never unmapped. All that is written
        // afterwards are atomics. Programs map it for reading.
        let info = unsafe { &*at.cast::<ClockInfo>() };
        let mult = (1_000_000u64 << SHIFT) / u64::from(profile.clock_khz());
        info.mult.store(mult as u32, Ordering::Relaxed);
        info.shift.store(SHIFT, Ordering::Relaxed);
        info.mask.store(i64::MAX as u64, Ordering::Relaxed);
        info.overflow_period.store(INTERVAL.as_nanos() as u64, Ordering::Relaxed);
        Ok(Self { file, info, written: Mutex::new(Instant::now()) })
    }

    /// Writes both clocks, as they are at one time.
    fn write(&self, card: &Card) {
        let day = || {
            let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            day.as_nanos() as u64
        };
        let (now, day) = at_one_time(|| card.clock.now(), day);
        let cycles = card.identity.profile.ticks(now);
        let (info, sign) = (self.info, self.info.sign.load(Ordering::Relaxed));
        info.sign.store(sign | 1, Ordering::Relaxed);
        // What follows is seen after that.
        fence(Ordering::Release);
        info.nsec.store(day, Ordering::Relaxed);
        info.cycles.store(cycles, Ordering::Relaxed);
        info.sign.store((sign | 1).wrapping_add(1), Ordering::Release);
    }
}

impl Clock {
    /// Returns the file of the page, which is written when it is first asked for.
    pub fn file(&self, card: &Card) -> Result<c_int> {
        if let Some(info) = self.info.get() {
            return Ok(info.file);
        }
        let info = Info::new(card.identity.profile)?;
        info.write(card);
        Ok(self.info.get_or_init(|| info).file)
    }

    /// Keeps the clock page of a card up to date, if a program has mapped it. With virtual time it
    /// stays as it was first written: the two clocks do not go alike.
    pub fn keep(&self, card: &Card) {
        let Some(info) = self.info.get().filter(|_| !card.keeps_virtual_time()) else { return };
        // A thread that has entered a card is alone in it.
        let mut written = lock(&info.written);
        if written.elapsed() >= INTERVAL {
            info.write(card);
            *written = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
