//! Settings of the flight recorder: how much is recorded, and where dumps go.

use std::fs::OpenOptions;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use mlx5_sys::wqe::WQEBB_SIZE;

use mlx5_diag::flight::Record;

/// Most events of each kind.
const MOST_EVENTS: u32 = 1 << 16;
/// Most bytes of a WQE.
const MOST_BYTES: u32 = 256;

/// How many events a queue's recorder keeps.
///
/// ```
/// # let rig::Link { mut sends, .. } = rig::link()?;
/// use mlx5::flight::Config;
/// use mlx5::wqe::Nop;
///
/// // The last 16 of each kind, and of each WQE the first block.
/// sends.set_flight(Config { events: 16, wqe_bytes: 64 });
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new())? };
/// assert!(sends.flight_record().to_string().contains("NOP"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// WQEs, doorbells and CQEs: that many of each, rounded up to a power of two, at most 65536.
    /// Default: `MLX5_FLIGHT_EVENTS`, or 64.
    pub events: u32,
    /// Bytes of each WQE that are kept: 64, 128, 192 or 256. Other values are rounded up, or down
    /// to 256. Default: 256, enough for all WQEs except those with many entries or a long inline
    /// payload.
    pub wqe_bytes: u32,
}

impl Default for Config {
    fn default() -> Self {
        static EVENTS: OnceLock<u32> = OnceLock::new();
        let events = *EVENTS.get_or_init(|| events(std::env::var("MLX5_FLIGHT_EVENTS").ok()));
        Self { events, wqe_bytes: MOST_BYTES }
    }
}

/// Parses the variable `MLX5_FLIGHT_EVENTS`.
fn events(variable: Option<String>) -> u32 {
    const USUAL: u32 = 64;
    let Some(text) = variable else { return USUAL };
    let number = text.parse().ok();
    number.filter(|&events: &u32| events.is_power_of_two() && events <= MOST_EVENTS).unwrap_or_else(
        || {
            eprintln!(
                "mlx5: MLX5_FLIGHT_EVENTS is `{text}`, and not a power of two from 1 to \
                 {MOST_EVENTS}: {USUAL} events of each kind are recorded"
            );
            USUAL
        },
    )
}

impl Config {
    /// Returns the events of each kind, and the blocks of a WQE.
    pub(super) fn rooms(self) -> (usize, usize) {
        let events = self.events.clamp(1, MOST_EVENTS).next_power_of_two();
        let blocks = (self.wqe_bytes.clamp(1, MOST_BYTES) as usize).div_ceil(WQEBB_SIZE);
        (events as usize, blocks)
    }
}

/// The destination of records that an error CQE froze.
///
/// ```
/// use mlx5::flight::{Target, dump_errors_to};
///
/// // The first error of a queue appends its record to a file.
/// dump_errors_to(Target::File("/var/log/mlx5-errors".into()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// None: the program requests records itself.
    Nowhere,
    /// Standard error.
    Stderr,
    /// The end of this file, which is created if missing.
    File(PathBuf),
}

/// The destination that the program set; `None` if it set none.
static TARGET: Mutex<Option<Target>> = Mutex::new(None);

/// Sets where the record of a queue is written when an error CQE freezes it. Overrides
/// `MLX5_FLIGHT_DUMP`. It applies to all queues of the process, from the next error on. The poll
/// that takes the error CQE writes the record before it returns. That allocates and makes system
/// calls. The first time it also takes 10 ms to measure the counter's frequency.
pub fn dump_errors_to(target: Target) {
    *TARGET.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
}

fn target() -> Target {
    static ASKED: OnceLock<Target> = OnceLock::new();
    let said = TARGET.lock().unwrap_or_else(PoisonError::into_inner).clone();
    said.unwrap_or_else(|| {
        let asked = ASKED.get_or_init(|| match std::env::var_os("MLX5_FLIGHT_DUMP") {
            None => Target::Nowhere,
            Some(name) if name.is_empty() => Target::Nowhere,
            Some(name) if name == "stderr" => Target::Stderr,
            Some(name) => Target::File(name.into()),
        });
        asked.clone()
    })
}

/// Writes a record to the destination that the program or the environment sets.
#[cold]
pub(super) fn dump(record: impl FnOnce() -> Record) {
    match target() {
        Target::Nowhere => {}
        Target::Stderr => to_stderr(&record()),
        Target::File(path) => {
            let record = record();
            let file = OpenOptions::new().append(true).create(true).open(&path);
            if let Err(error) = file.and_then(|mut file| record.write_to(&mut file)) {
                // Only a person can be told, on standard error; the record itself is not lost.
                eprintln!(
                    "mlx5: the flight record cannot be written to {}: {error}",
                    path.display()
                );
                to_stderr(&record);
            }
        }
    }
}

fn to_stderr(record: &Record) {
    // Written at once, unlike `eprint`. If standard error is closed, the error cannot be reported.
    drop(record.write_to(&mut io::stderr()));
}

#[cfg(test)]
mod tests;
