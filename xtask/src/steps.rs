//! Steps that all run, each with its time, and a summary at the end.

use std::time::{Duration, Instant};

use crate::Result;
use crate::disk;

/// The steps that have run so far.
#[derive(Default)]
pub struct Steps {
    done: Vec<Done>,
}

/// A step that was done.
pub struct Done {
    pub name: String,
    pub elapsed: Duration,
    pub outcome: Result,
    /// What it printed, if that was kept back.
    pub output: String,
}

impl Steps {
    /// Runs one step. A failure is kept for the summary, so that later steps still run.
    pub fn step(&mut self, name: &str, work: impl FnOnce() -> Result) {
        println!("\n== {name}");
        let started = Instant::now();
        let outcome = work();
        let (name, elapsed) = (name.to_owned(), started.elapsed());
        self.close(Done { name, elapsed, outcome, output: String::new() });
    }

    /// Adds a step that was run elsewhere, and prints what it printed.
    pub fn add(&mut self, done: Done) {
        println!("\n== {}\n{}", done.name, done.output.trim_end());
        self.close(done);
    }

    fn close(&mut self, done: Done) {
        let Done { name, elapsed, outcome, .. } = &done;
        let left = disk::left();
        match outcome {
            Ok(()) => println!("== {name}: ok, {elapsed:.1?}{}", disk::in_words(left)),
            Err(sentence) => {
                println!("== {name}: FAILED after {elapsed:.1?}: {sentence}");
                if let Some(cause) = disk::blame(left) {
                    println!("{cause}");
                }
            }
        }
        self.done.push(done);
    }

    /// Prints the summary; an error if any step failed.
    pub fn finish(self, task: &str) -> Result {
        println!("\n{task}:");
        for Done { name, elapsed, outcome, .. } in &self.done {
            let word = if outcome.is_ok() { "ok" } else { "FAILED" };
            println!("  {word:<6} {:>7.1} s  {name}", elapsed.as_secs_f64());
        }
        match self.done.iter().filter(|done| done.outcome.is_err()).count() {
            0 => Ok(()),
            failed => Err(format!("{failed} of {} steps failed", self.done.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_does_not_stop_the_others_but_counts() {
        let mut steps = Steps::default();
        let mut ran = 0;
        steps.step("first", || Err("broken".to_owned()));
        steps.step("second", || {
            ran += 1;
            Ok(())
        });
        assert_eq!(ran, 1);
        let (name, output) = ("third".to_owned(), "broken too".to_owned());
        let outcome = Err("exit status: 1".to_owned());
        steps.add(Done { name, elapsed: Duration::ZERO, outcome, output });
        assert_eq!(steps.finish("task").unwrap_err(), "2 of 3 steps failed");
        assert!(Steps::default().finish("nothing").is_ok());
    }
}
