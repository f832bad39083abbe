//! The report that a client sends to the server of a bandwidth test, which prints it.

use crate::perf::loops::{self, Measured};
use crate::perf::plan::Plan;

/// The result of a bandwidth test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Report {
    /// Bytes of a message.
    size: u64,
    /// Messages of all queue pairs.
    messages: u64,
    seconds: f64,
}

impl Report {
    /// Returns the report of all threads.
    pub(super) fn of(plan: &Plan, threads: &[Measured]) -> Report {
        let (began, ended) = loops::span(threads);
        Report {
            size: plan.size,
            messages: threads.iter().map(|thread| thread.messages).sum(),
            seconds: mlx5::timing::Clock::get().nanoseconds(ended - began) / 1e9,
        }
    }

    /// Returns names and bytes of the fields, in their order.
    pub(super) fn fields(&self) -> [(&'static str, [u8; 8]); 5] {
        let rate = match self.seconds {
            0.0 => 0.0,
            seconds => self.messages as f64 / seconds,
        };
        // In MiB and in millions, a second. There is no peak: perftest's `--noPeak` sends 0, too.
        let bandwidth = rate * self.size as f64 / f64::from(1 << 20);
        [
            ("size", self.size.to_be_bytes()),
            ("iterations", self.messages.to_be_bytes()),
            ("peak bandwidth", 0f64.to_be_bytes()),
            ("average bandwidth", bandwidth.to_be_bytes()),
            ("message rate", (rate / 1e6).to_be_bytes()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_in_units_of_perftest() {
        let report = Report { size: 1 << 20, messages: 3_000_000, seconds: 2.0 };
        let [size, messages, peak, bandwidth, rate] = report.fields().map(|(_, bytes)| bytes);
        assert_eq!((u64::from_be_bytes(size), u64::from_be_bytes(messages)), (1 << 20, 3_000_000));
        let [peak, bandwidth, rate] = [peak, bandwidth, rate].map(f64::from_be_bytes);
        assert_eq!((peak, bandwidth, rate), (0.0, 1.5e6, 1.5));
    }

    #[test]
    fn a_run_that_was_interrupted_at_once_has_no_rate() {
        let report = Report { size: 8, messages: 0, seconds: 0.0 };
        assert_eq!(report.fields()[4].1, [0; 8]);
    }
}
