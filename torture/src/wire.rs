//! The interface of the oracle to either data path.

use mlx5::wqe::{Remote, Sge};

use crate::plan::Operation;

/// A failure of the episode, as a sentence.
pub type Result<T = ()> = std::result::Result<T, String>;

/// An operation with the memory that it is posted with.
#[derive(Debug)]
pub struct Request {
    pub id: u64,
    pub operation: Operation,
    pub list: Vec<Sge>,
    pub remote: Remote,
}

/// A completion, in a form independent of the data path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request is complete.
    Sent { id: u64, what: &'static str, length: Option<u32> },
    /// A receive is complete.
    Received { qpn: u32, id: u64, length: u32, imm: Option<u32>, written: bool },
    /// A request or a receive failed.
    Failed { id: u64, flushed: bool, text: String },
}

/// A data path: the queues of one process.
pub trait Wire {
    /// Posts the requests in one batch to the queue pair `qp`. With `drops`, prepares the batch and
    /// drops it unrung. Returns how many requests were posted: as many as fit.
    fn post(&mut self, qp: usize, requests: &[Request], drops: Drops) -> Result<usize>;

    /// Posts receives in one batch, to the shared receive queue or to that of `queue`. Returns how
    /// many were posted.
    fn receive(&mut self, queue: usize, receives: &[(u64, Vec<Sge>)]) -> Result<usize>;

    /// Takes completions in the way that `how` chooses.
    fn poll(&mut self, how: u32, into: &mut Vec<Event>) -> Result;

    /// Checks that no request is outstanding.
    fn idle(&self) -> Result;

    /// Describes the queues, for a report.
    fn describe(&self) -> String;
}

/// The fate of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drops {
    /// It is rung.
    No,
    /// It is dropped before it is rung.
    Yes,
}
