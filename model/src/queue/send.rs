//! Fetching from send queues.

use super::Fetch;
use crate::card::Card;

impl Card {
    /// Takes the next send WQE of a queue pair: looks at the producer counter, reading the doorbell
    /// record again, and moves the fetch counter past it.
    pub fn fetch_send(&mut self, qp: u32) -> Fetch {
        todo!()
    }
}
