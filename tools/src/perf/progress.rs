//! A progress bar on standard error, for interactive use.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{Output, is_stderr_terminal};
use crate::perf::plan::{Amount, Plan};

/// The bar of one point.
pub struct Progress {
    bar: ProgressBar,
    /// The time limit in nanoseconds, where the measurement is limited by time.
    time: Option<u64>,
}

impl Progress {
    /// Creates a bar, shown only where standard error is a terminal and standard output is not for
    /// programs.
    #[must_use]
    pub fn new(plan: &Plan, output: &Output) -> Progress {
        let (length, time) = match plan.amount {
            Amount::Messages(count) => ((count + plan.warm_up) * u64::from(plan.threads), None),
            Amount::Nanoseconds(time) => (time / 1_000_000, Some(time)),
        };
        let watched = is_stderr_terminal() && !output.is_json();
        let bar = if watched { ProgressBar::new(length) } else { ProgressBar::hidden() };
        let text = match time {
            None => "{msg} {wide_bar} {human_pos}/{human_len} messages, {eta} left",
            Some(_) => "{msg} {wide_bar} {elapsed}, {eta} left",
        };
        if let Ok(style) = ProgressStyle::with_template(text) {
            bar.set_style(style);
        }
        bar.set_message(format!("{} {} bytes", plan.operation, plan.size));
        Progress { bar, time }
    }

    /// Shows the number of completed messages.
    pub fn show(&self, messages: u64) {
        match self.time {
            None => self.bar.set_position(messages),
            Some(time) => {
                let elapsed = self.bar.elapsed().min(Duration::from_nanos(time));
                self.bar.set_position(elapsed.as_millis() as u64);
            }
        }
    }

    /// Removes the bar before the result is printed.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
