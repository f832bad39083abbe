//! Event queues.

use mlx5_sys::ifc::{Field, eqc};

use super::Pages;

/// An event queue.
#[derive(Clone, Debug)]
pub struct Eq {
    /// User context that made it.
    pub uid: u16,
    /// The EQ context as commands have set it.
    pub context: Box<[u8; eqc::SIZE]>,
    /// The ring of 64-byte EQEs.
    pub pages: Pages,
    /// EQEs in the ring, a power of two.
    pub entries: u32,
    /// Event types it listens for, by number.
    pub events: [u64; 4],
    /// Counter (24 bits) of the next EQE to write.
    pub producer: u32,
    /// Counter (24 bits) of the first EQE not yet taken, as last stored to the register.
    pub consumer: u32,
    /// Whether the next EQE raises the interrupt.
    pub armed: bool,
    /// Whether it overran: nothing is written any more.
    pub failed: bool,
}

impl Eq {
    /// A field of the context.
    pub fn get(&self, field: Field) -> u32 {
        field.get(&self.context[..]) as u32
    }

    /// Whether it listens for asynchronous events of a type.
    pub fn listens(&self, event: u8) -> bool {
        self.events[usize::from(event >> 6)] >> (event & 63) & 1 == 1
    }

    /// Returns the context with the fields that the device changes by itself.
    pub fn query(&self) -> [u8; eqc::SIZE] {
        let mut context = *self.context;
        eqc::STATUS.set(&mut context, if self.failed { 0xa } else { 0 });
        eqc::ST.set(&mut context, if self.armed { 0x9 } else { 0xa });
        eqc::PRODUCER_COUNTER.set(&mut context, self.producer.into());
        eqc::CONSUMER_COUNTER.set(&mut context, self.consumer.into());
        context
    }
}
