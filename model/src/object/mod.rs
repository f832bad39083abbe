//! Objects: what firmware commands make, each with its context, pages and translation.
//!
//! [`Objects`] holds every table. An object is entered and removed by `command/` alone; the queues
//! and the transport look it up by number each time, so a number that is gone is simply not found.

mod pages;
mod qp;

use std::collections::HashMap;

pub use pages::Pages;
pub use qp::{Qp, ReceiveQueue, SendQueue, Service, State};

/// Every object of one card, by number.
#[derive(Default)]
pub struct Objects {
    /// Queue pairs by 24-bit number.
    pub qps: HashMap<u32, Qp>,
}
