//! The interface between the loops and a way to the HCA.
//!
//! Each loop is generic over the [`Path`] and compiled for each. Posts and polls are called
//! directly and inlined, so a loop over [`Direct`] is the code that a program using `mlx5` would
//! contain. The other ways are libmlx5's ([`verbs`]), and either way [`stamped`]. [`request`] defines
//! the posted requests. [`sleep`] waits for events in place of polling.
//!
//! Loops times paths are much code, so all other code takes a path with its loops as a [`Runner`]. A
//! build with debug assertions inlines neither posts nor polls: it is not measured, and each of them
//! is there once.

pub mod direct;
pub mod operation;
pub mod request;
mod sleep;
pub mod stamped;
pub mod verbs;

use std::fmt;
use std::time::Duration;

use mlx5::cqe::{Failure, UnexpectedCqe};
use mlx5::ring::{PollError, PostError};

use self::direct::Direct;
use self::request::{Requested, Requests, VisitRequests};
use self::stamped::Stamped;
use self::verbs::Verbs;
use crate::outcome::{Error, Result};
use crate::perf::loops::Runner;
use crate::perf::plan::Plan;
use crate::perf::result::{Cpu, Phase, Via};
use crate::perf::station::memory::Memory;
use crate::perf::station::{Connects, Station};

/// A request to post.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its number on its queue pair, from 0; selects its memory at both sides. Less than 2^48.
    pub sequence: u64,
    /// Whether it is signaled.
    pub signaled: bool,
}

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request completed, and all requests before it on that queue pair.
    Sent {
        /// The queue pair, from 0.
        queue: usize,
        /// The request's number.
        sequence: u64,
    },
    /// A receive completed.
    Received(Arrival),
}

/// A completed receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The queue pair, from 0, whose slot it was posted with.
    pub queue: usize,
    /// The queue pair at which the message arrived. Another one, if they share receives.
    pub from: usize,
    /// The slot that it was posted with.
    pub slot: u64,
    /// Immediate data of the message.
    pub immediate: Option<u32>,
    /// The time at which a packet arrived, by the HCA's clock: nanoseconds since 1970.
    pub at: Option<u64>,
}

/// The queues of one thread, in RTS, and their memory.
pub trait Path: Send {
    /// Returns the number of queue pairs.
    fn queues(&self) -> usize;

    /// Posts one request and rings the doorbell.
    ///
    /// # Errors
    /// [`Stop`].
    fn post(&mut self, queue: usize, message: Message) -> Result<(), Stop>;

    /// Posts requests with one doorbell.
    ///
    /// # Errors
    /// [`Stop`].
    fn post_batch(
        &mut self,
        queue: usize,
        messages: impl Iterator<Item = Message>,
    ) -> Result<(), Stop>;

    /// Posts a receive into that slot, on the queue pair or on the queue that all share.
    ///
    /// # Errors
    /// [`Stop`].
    fn receive(&mut self, queue: usize, slot: u64) -> Result<(), Stop>;

    /// Returns the oldest completion, if there is one.
    ///
    /// # Errors
    /// [`Stop`].
    fn poll(&mut self) -> Result<Option<Event>, Stop>;

    /// Passes all available completions.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline(always)]
    fn drain(&mut self, mut each: impl FnMut(Event)) -> Result<(), Stop> {
        while let Some(event) = self.poll()? {
            each(event);
        }
        Ok(())
    }

    /// Sleeps until the CQ's completion channel has an event, for `time` at most. The first call only
    /// requests the event. The caller polls before the next one, since a completion that came before
    /// the request raises none.
    ///
    /// # Errors
    /// [`Stop`].
    fn sleep(&mut self, time: Duration) -> Result<(), Stop>;

    /// Returns how many events of the CQ ended a sleep; `None` if the path does not wait for events.
    fn events(&self) -> Option<u64>;

    /// Returns the memory.
    fn memory(&mut self) -> &mut Memory;

    /// Returns the time per phase of posts and polls, if it is recorded.
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }

    /// Returns the cost of calls, if they are stamped.
    fn cpu(&self) -> Option<Cpu> {
        None
    }

    /// Clears the recorded times after warming up.
    fn clear_phases(&mut self) {}
}

/// Whether calls are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamping {
    /// No call is.
    Off,
    /// Each posting call and each poll that finds a completion is.
    Calls,
}

/// Makes the path of a thread by the plan's way, with its loops, without posting receives.
///
/// # Errors
/// Returns what prevents taking the queues over.
pub fn made<T: Requested>(
    station: Station<T>,
    plan: &Plan,
    stamping: Stamping,
) -> Result<Box<dyn Runner>> {
    match plan.via {
        Via::Direct => {
            let making = Making { station, plan, stamping };
            T::visit_requests(plan, making).map_err(Error::Told)?
        }
        Via::Verbs => Ok(runner(Verbs::new(station, plan)?, stamping)),
    }
}

/// The objects of a direct path whose kind of request is still to be found.
struct Making<'a, T: Connects> {
    station: Station<T>,
    plan: &'a Plan,
    stamping: Stamping,
}

impl<T: Connects> VisitRequests<T> for Making<'_, T> {
    type Output = Result<Box<dyn Runner>>;

    fn visit<R: Requests<T>>(self) -> Self::Output {
        let path = Direct::<T, R>::new(self.station, self.plan)?;
        Ok(runner(path, self.stamping))
    }
}

fn runner<P: Path + 'static>(path: P, stamping: Stamping) -> Box<dyn Runner> {
    match stamping {
        Stamping::Off => Box::new(path),
        Stamping::Calls => Box::new(Stamped::new(path)),
    }
}

/// Why a loop ended early.
#[derive(Debug)]
pub enum Stop {
    /// A post failed.
    Post(PostError),
    /// A poll failed.
    Poll(PollError),
    /// A request or a receive failed.
    Failed(Failure),
    /// A completion belongs to no queue.
    UnexpectedCqe(UnexpectedCqe),
    /// No event happened for this time.
    Silent(&'static str, Duration),
    /// Another thread, or the peer, gave up.
    Abandoned,
    /// Any other reason, in words.
    Told(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Post(error) => write!(f, "a request could not be posted: {error}"),
            Stop::Poll(error) => error.fmt(f),
            Stop::Failed(failure) => failure.fmt(f),
            Stop::UnexpectedCqe(unexpected) => {
                write!(f, "a completion that belongs to no queue: {unexpected:?}")
            }
            Stop::Silent(what, time) => write!(
                f,
                "no {what} within {time:?}: was a message lost (uc and ud do not tell), is the peer \
                 stopped, or is its port down?"
            ),
            Stop::Abandoned => f.write_str("given up, since the other side or another thread did"),
            Stop::Told(text) => f.write_str(text),
        }
    }
}

impl From<PostError> for Stop {
    #[cold]
    fn from(error: PostError) -> Stop {
        Stop::Post(error)
    }
}

impl From<PollError> for Stop {
    #[cold]
    fn from(error: PollError) -> Stop {
        Stop::Poll(error)
    }
}
