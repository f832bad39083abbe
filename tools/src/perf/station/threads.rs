//! Threads of one side: started, supervised, and ended together.

use std::thread;

use super::place;
use crate::bed;
use crate::outcome::{Error, Result};
use crate::perf::loops::{Runner, Signals, Task};
use crate::perf::path::Stop;
use crate::perf::plan::Plan;

/// The settings of a side's threads.
#[derive(Clone, Copy, Debug)]
pub struct Crew<'a> {
    /// The plan that they execute.
    pub plan: &'a Plan,
    /// The signals between them.
    pub signals: &'a Signals,
    /// CPUs, taken in turn; if empty, the system places the threads.
    pub cpus: &'a [usize],
}

impl Crew<'_> {
    /// Runs `work` on a thread for each path, and `watch` on this thread until all are done. If
    /// either fails, it makes all threads give up.
    ///
    /// # Errors
    /// Returns the first error.
    pub fn run<O: Send>(
        &self,
        paths: &mut [Box<dyn Runner>],
        work: impl Fn(&mut dyn Runner, &Task<'_>) -> Result<O, Stop> + Sync,
        mut watch: impl FnMut() -> Result<()>,
    ) -> Result<Vec<O>> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        // The model's HCA is a thread, too.
        let yields = bed::is_model() || cores <= self.plan.threads as usize;
        let Crew { plan, signals, cpus } = *self;
        let work = &work;
        thread::scope(|scope| {
            let mut handles = Vec::with_capacity(paths.len());
            for (thread, path) in paths.iter_mut().enumerate() {
                let body = move || -> Result<O, Stop> {
                    let done = pinned(cpus, thread)
                        .and_then(|()| work(&mut **path, &Task { plan, signals, thread, yields }));
                    if done.is_err() {
                        signals.abandon();
                    }
                    done
                };
                let named = thread::Builder::new().name(format!("perf-{thread}"));
                let spawned = named.spawn_scoped(scope, body).map_err(|error| {
                    signals.abandon();
                    Error::Told(format!("no thread can be made: {error}"))
                });
                handles.push(spawned?);
            }
            let mut watched = Ok(());
            while !handles.iter().all(|handle| handle.is_finished()) {
                if watched.is_err() {
                    // The threads check the signals soon.
                    thread::yield_now();
                    continue;
                }
                watched = watch();
                if watched.is_err() {
                    signals.abandon();
                }
            }
            let mut outcomes = Vec::with_capacity(handles.len());
            let mut failed = None;
            for handle in handles {
                match handle.join() {
                    Ok(Ok(outcome)) => outcomes.push(outcome),
                    Ok(Err(Stop::Abandoned)) => {}
                    Ok(Err(stop)) => failed = Some(Error::Told(stop.to_string())),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            match (failed, watched) {
                (Some(failed), _) => Err(failed),
                (None, Err(error)) => Err(error),
                (None, Ok(())) => Ok(outcomes),
            }
        })
    }
}

fn pinned(cpus: &[usize], thread: usize) -> Result<(), Stop> {
    match cpus {
        [] => Ok(()),
        cpus => {
            place::pin(&[cpus[thread % cpus.len()]]).map_err(|error| Stop::Told(error.to_string()))
        }
    }
}
