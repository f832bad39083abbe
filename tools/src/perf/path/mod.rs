//! What loops ask of a way to the card.
//!
//! A loop is written once, for any [`Path`], and compiled for each: what posts and polls is called
//! directly and inlined, so that a loop over [`Direct`](direct::Direct) is what a program that uses
//! `mlx5` would write by hand. The other ways are libmlx5's ([`verbs`]), and either one [`stamped`];
//! [`request`] has what they post, and [`poster`] how the direct one does.

pub mod direct;
pub mod operation;
pub mod poster;
pub mod request;
pub mod stamped;
pub mod verbs;

use std::fmt;
use std::time::Duration;

use mlx5::cqe::{Failure, Unclaimed};
use mlx5::ring::{PollError, PostError};

use crate::perf::result::{Cpu, Phase};
use crate::perf::station::memory::Memory;

/// A request to post.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Its number on its queue pair, from 0: decides where it lies at both sides. Less than 2^48.
    pub sequence: u64,
    /// Whether it has a completion.
    pub signaled: bool,
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is done, and all before it on that queue pair.
    Sent {
        /// The queue pair, from 0.
        queue: usize,
        /// The request's number.
        sequence: u64,
    },
    /// A receive is done.
    Received {
        /// The queue pair, from 0.
        queue: usize,
        /// The slot that it was posted with.
        slot: u64,
        /// Bytes of the message.
        length: usize,
        /// What came along.
        immediate: Option<u32>,
    },
}

/// The queues of one thread, in RTS, and their memory.
pub trait Path: Send {
    /// How many queue pairs there are.
    fn queues(&self) -> usize;

    /// Posts one request and rings.
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

    /// Posts a receive into that slot.
    ///
    /// # Errors
    /// [`Stop`].
    fn receive(&mut self, queue: usize, slot: u64) -> Result<(), Stop>;

    /// What has happened, if anything: the oldest first.
    ///
    /// # Errors
    /// [`Stop`].
    fn poll(&mut self) -> Result<Option<Event>, Stop>;

    /// What has happened, all of it.
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

    /// The memory.
    fn memory(&mut self) -> &mut Memory;

    /// Where the time of posts and polls went, if that is recorded.
    fn phases(&self) -> Vec<Phase> {
        Vec::new()
    }

    /// What calls took, if they are stamped.
    fn cpu(&self) -> Option<Cpu> {
        None
    }

    /// Forgets what was recorded, after warming up.
    fn clear_phases(&mut self) {}
}

/// Why a loop ended early.
#[derive(Debug)]
pub enum Stop {
    /// Nothing could be posted.
    Post(PostError),
    /// Nothing could be polled.
    Poll(PollError),
    /// A request or a receive failed.
    Failed(Failure),
    /// A completion of no queue.
    Unclaimed(Unclaimed),
    /// Nothing happened for so long.
    Silent(&'static str, Duration),
    /// Another thread, or the peer, gave up.
    Abandoned,
    /// Something else, in words.
    Told(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Post(error) => write!(f, "a request could not be posted: {error}"),
            Stop::Poll(error) => error.fmt(f),
            Stop::Failed(failure) => failure.fmt(f),
            Stop::Unclaimed(unclaimed) => {
                write!(f, "a completion that belongs to no queue: {unclaimed:?}")
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
