//! perftest's options that `mlx5 perf` does not have: each is answered with what to give instead.

use clap::Args;

use crate::outcome::{Error, Result};

/// Options of `ib_send_lat` and the like.
#[derive(Args, Clone, Copy, Debug)]
pub struct Perftest {
    #[arg(short = 'a', long, hide = true)]
    all: bool,
    #[arg(short = 'F', long = "CPU-freq", hide = true)]
    cpu_freq: bool,
    #[arg(short = 'H', long, hide = true)]
    report_histogram: bool,
    #[arg(short = 'U', long, hide = true)]
    report_unsorted: bool,
}

impl Perftest {
    /// Refuses these options.
    ///
    /// # Errors
    /// [`Error::Usage`], with the equivalent of the first one given.
    pub fn check(self) -> Result<()> {
        let answers = [
            (self.all, "-a", "give --sweep 2..8M"),
            (self.cpu_freq, "-F", "the CPU's frequency is not checked: leave it out"),
            (self.report_histogram, "-H", "give --hdr-log FILE, or --report FILE.html"),
            (self.report_unsorted, "-U", "give --raw-samples FILE"),
        ];
        match answers.into_iter().find(|(given, ..)| *given) {
            Some((_, option, answer)) => {
                Err(Error::Usage(format!("{option} is an option of perftest; here, {answer}")))
            }
            None => Ok(()),
        }
    }
}
