//! Counters of queues.

use mlx5_sys::ifc::{Field, query_q_counter_out};

/// A set of counters, which queue pairs and receive queues name.
#[derive(Clone, Debug)]
pub struct Counters {
    /// User context that made it.
    pub uid: u16,
    /// The reply that shows them.
    shown: Box<[u8; query_q_counter_out::SIZE]>,
}

impl Counters {
    /// A set in which nothing is counted yet.
    pub fn new(uid: u16) -> Self {
        Self { uid, shown: Box::new([0; query_q_counter_out::SIZE]) }
    }

    /// Counts one more; after the greatest number comes zero.
    pub fn count(&mut self, counter: Field) {
        let more = (counter.get(&self.shown[..]) as u32).wrapping_add(1);
        counter.set(&mut self.shown[..], more.into());
    }

    /// The reply that shows them.
    pub fn shown(&self) -> &[u8; query_q_counter_out::SIZE] {
        &self.shown
    }

    /// Starts from zero.
    pub fn clear(&mut self) {
        self.shown.fill(0);
    }
}
