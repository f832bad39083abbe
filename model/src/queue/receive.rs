//! Taking from receive queues.

use super::{ReceiveWqe, Syndrome};
use crate::card::Card;

impl Card {
    /// Takes the next receive WQE of a queue pair (or of the SRQ behind it); `None` where nothing is
    /// posted.
    pub fn take_receive(&mut self, qp: u32) -> Result<Option<ReceiveWqe>, Syndrome> {
        todo!()
    }
}
