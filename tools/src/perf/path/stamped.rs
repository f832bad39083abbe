//! A path around another that times each posting call and each poll that finds a completion: the
//! CPU cost of messages, independent of the HCA.
//!
//! A call is timed from stamp to stamp, minus the cost of a stamp. Stamps wait for earlier
//! instructions, so calls do not overlap; both ways pay for that alike. The figure is the median of
//! the calls: a thread that loses its core during one call would spoil any sum.

use std::time::Duration;

use hdrhistogram::Histogram;
use mlx5::timing::Clock;

use super::{Event, Message, Path, Stop};
use crate::perf::result::{Calls, Cpu, Phase};
use crate::perf::station::memory::Memory;

/// The longest call that is distinguished from longer ones, in ticks.
const LONGEST: u64 = 1 << 32;

/// A path that stamps the calls of `P`.
pub struct Stamped<P> {
    path: P,
    overhead: u64,
    posts: Stamps,
    polls: Stamps,
}

/// The cost of calls, in ticks.
struct Stamps {
    histogram: Histogram<u64>,
    messages: u64,
}

impl<P> Stamped<P> {
    /// Wraps a path.
    pub(super) fn new(path: P) -> Stamped<P> {
        Stamped {
            path,
            overhead: Clock::get().overhead(),
            posts: Stamps::new(),
            polls: Stamps::new(),
        }
    }
}

impl Stamps {
    fn new() -> Stamps {
        let histogram = Histogram::new_with_bounds(1, LONGEST, 3)
            .expect("the bounds are a histogram's: 1 < 2 × 1 < LONGEST, at most 5 digits");
        Stamps { histogram, messages: 0 }
    }

    /// Adds a call with its duration and its number of messages.
    #[inline(always)]
    fn add(&mut self, ticks: u64, messages: u64) {
        self.histogram.saturating_record(ticks);
        self.messages += messages;
    }

    fn clear(&mut self) {
        self.histogram.reset();
        self.messages = 0;
    }

    fn calls(&self) -> Calls {
        Calls {
            calls: self.histogram.len(),
            messages: self.messages,
            median_ticks: if self.histogram.is_empty() {
                0.0
            } else {
                self.histogram.value_at_quantile(0.5) as f64
            },
        }
    }
}

impl<P: Path> Path for Stamped<P> {
    #[inline(always)]
    fn queues(&self) -> usize {
        self.path.queues()
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post(&mut self, queue: usize, message: Message) -> Result<(), Stop> {
        let began = Clock::now();
        self.path.post(queue, message)?;
        self.posts.add((Clock::now() - began).saturating_sub(self.overhead), 1);
        Ok(())
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn post_batch(
        &mut self,
        queue: usize,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), Stop> {
        let mut count = 0;
        let began = Clock::now();
        self.path.post_batch(queue, messages.inspect(|_| count += 1))?;
        self.posts.add((Clock::now() - began).saturating_sub(self.overhead), count);
        Ok(())
    }

    #[inline(always)]
    fn receive(&mut self, queue: usize, slot: u64) -> Result<(), Stop> {
        self.path.receive(queue, slot)
    }

    #[cfg_attr(not(debug_assertions), inline(always))]
    fn poll(&mut self) -> Result<Option<Event>, Stop> {
        let began = Clock::now();
        let event = self.path.poll()?;
        if event.is_some() {
            self.polls.add((Clock::now() - began).saturating_sub(self.overhead), 1);
        }
        Ok(event)
    }

    fn sleep(&mut self, time: Duration) -> Result<(), Stop> {
        self.path.sleep(time)
    }

    fn events(&self) -> Option<u64> {
        self.path.events()
    }

    #[inline(always)]
    fn memory(&mut self) -> &mut Memory {
        self.path.memory()
    }

    fn phases(&self) -> Vec<Phase> {
        self.path.phases()
    }

    fn clear_phases(&mut self) {
        self.path.clear_phases();
        self.posts.clear();
        self.polls.clear();
    }

    fn cpu(&self) -> Option<Cpu> {
        let hertz = Clock::get().hertz();
        Some(Cpu { hertz, posts: self.posts.calls(), polls: self.polls.calls() })
    }
}
