//! Times the ways of copying WQEs to a BlueFlame register, on the register itself.

use core::fmt;
use std::time::{Duration, Instant};

use crate::cqe::{Completion, SendDone};
use crate::doorbell::Lent;
use crate::ib::Transport;
use crate::ring::{BlueFlameCopy, CqReader, ProbeError, SendQueue};
use crate::wqe::{Nop, PostOn};

/// How long a NOP may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The times of one way of copying: medians over the rounds.
///
/// See the example on [`CopyProbe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyTime {
    /// The way of copying.
    pub copy: BlueFlameCopy,
    /// From before the doorbell record's store until the register's stores were flushed, in
    /// nanoseconds, the clock's own time subtracted.
    pub post: u64,
    /// From there until the NOP's completion was polled, in nanoseconds. It shows how much faster
    /// this way reaches the HCA.
    pub completion: u64,
}

/// The measurements of [`SendQueue::probe_copies`]. Prints as a table.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// let probe = sends.probe_copies(&mut reader, 10)?;
/// sends.set_copy(probe.fastest())?;
/// assert!(probe.times().iter().any(|time| time.copy == probe.fastest()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyProbe {
    times: Vec<CopyTime>,
    rounds: u32,
}

impl CopyProbe {
    /// Returns the times of each way that was timed, narrowest stores first.
    pub fn times(&self) -> &[CopyTime] {
        &self.times
    }

    /// Returns the way whose NOPs completed soonest. Of several, the one with the narrowest stores.
    ///
    /// One probe does not show whether it is faster by more than the medians vary between probes.
    /// That takes several probes.
    pub fn fastest(&self) -> BlueFlameCopy {
        let fastest = self.times.iter().min_by_key(|time| time.completion);
        fastest.map_or_else(BlueFlameCopy::default, |time| time.copy)
    }
}

impl fmt::Display for CopyProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:14} {:>8} {:>14}   medians of {}",
            "copy", "post", "completion", self.rounds
        )?;
        for CopyTime { copy, post, completion } in &self.times {
            writeln!(f, "{:14} {post:5} ns {completion:11} ns", copy.name())?;
        }
        Ok(())
    }
}

impl<T: Transport> SendQueue<T>
where
    Nop: PostOn<T>,
{
    /// Times every way of copying that this processor has ([`BlueFlameCopy::available`]; not
    /// [`BlueFlameCopy::St64b`], which could end the program). NOPs are copied to this queue's
    /// register in turns, `rounds` for each way. The queue's own way of copying does not change.
    ///
    /// The NOPs are real requests: the HCA executes them, and the call waits for each. Nothing is
    /// sent to the peer. Call this at start-up, on a queue pair created for it. The result holds
    /// for queues whose registers are on the same HCA, for threads on the same socket.
    ///
    /// ```no_run
    /// # use mlx5::ring::{CqReader, SendQueue};
    /// # fn example(
    /// #     queue: &mut SendQueue,
    /// #     completions: &mut CqReader,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let probe = queue.probe_copies(completions, 1000)?;
    /// print!("{probe}");
    /// queue.set_copy(probe.fastest())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ProbeError`]. After [`ProbeError::Failed`] or [`ProbeError::Lost`] the queue pair does not
    /// recover without a reset.
    pub fn probe_copies(
        &mut self,
        completions: &mut CqReader,
        rounds: u32,
    ) -> Result<CopyProbe, ProbeError> {
        let Some(own) = self.copy().filter(|_| self.ring.doorbell.copies_block()) else {
            return Err(ProbeError::NoBlueFlame);
        };
        if !self.is_idle() {
            return Err(ProbeError::NotIdle);
        }
        if self.ring.cq != completions.id() || !completions.is_reserved_for(&self.ring.cq_slots) {
            return Err(ProbeError::SharedCq);
        }
        let copies = BlueFlameCopy::available().filter(|&copy| copy != BlueFlameCopy::St64b);
        let mut samples: Vec<_> = copies.map(|copy| (copy, vec![], vec![])).collect();
        let clock = clock_overhead();
        let count = samples.len();
        let mut result = Ok(());
        'rounds: for round in 0..rounds as usize {
            // The order of the ways changes from round to round.
            for turn in 0..count {
                let (copy, posts, waits) = &mut samples[(round + turn) % count];
                match self.nop(completions, *copy) {
                    Ok([post, wait]) => {
                        posts.push(post.saturating_sub(clock).as_nanos() as u64);
                        waits.push(wait.as_nanos() as u64);
                    }
                    Err(error) => {
                        result = Err(error);
                        break 'rounds;
                    }
                }
            }
        }
        // `set_copy` refuses neither this way nor those above: they are available.
        let set = self.set_copy(own);
        debug_assert!(set.is_ok());
        result?;
        let time = |(copy, posts, waits): (_, Vec<_>, Vec<_>)| CopyTime {
            copy,
            post: median(posts),
            completion: median(waits),
        };
        Ok(CopyProbe { times: samples.into_iter().map(time).collect(), rounds })
    }

    /// Posts a NOP by `copy`, which the processor has, and waits for it. Returns the time of the
    /// post, and the rest.
    fn nop(
        &mut self,
        completions: &mut CqReader,
        copy: BlueFlameCopy,
    ) -> Result<[Duration; 2], ProbeError> {
        let set = self.set_copy(copy);
        debug_assert!(set.is_ok());
        let ring = &mut self.ring;
        let nop = Nop::new().signaled();
        let (end, last) = ring.encode::<T, Nop>(ring.end(), 0, &nop)?;
        let start = Instant::now();
        // SAFETY: the NOP was written, and names no memory.
        unsafe { ring.commit_copied(Lent::promised(), end, &last) };
        let posted = Instant::now();
        ring.refill();
        loop {
            match completions.poll(self)? {
                Some(Completion::Send(SendDone { id: 0, .. })) => break,
                Some(_) => return Err(ProbeError::Failed),
                None if posted.elapsed() > PATIENCE => return Err(ProbeError::Lost),
                None => core::hint::spin_loop(),
            }
        }
        Ok([posted - start, posted.elapsed()])
    }
}

/// Returns the time between two consecutive readings of the clock.
fn clock_overhead() -> Duration {
    let between = || {
        let start = Instant::now();
        Instant::now() - start
    };
    (0..100).map(|_| between()).min().unwrap_or_default()
}

fn median(mut samples: Vec<u64>) -> u64 {
    samples.sort_unstable();
    samples.get(samples.len() / 2).copied().unwrap_or_default()
}
