//! Connected queue pairs made by command, for tests of features that only they have.

use std::ops::Deref;

use mlx5::devx::Firmware;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Reset, Rts};
use mlx5_model::Mode;
use rig::Rig;

/// The rig, whose queue pairs and CQs are made by command.
pub struct Device(Rig);

impl Deref for Device {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.0
    }
}

impl Device {
    pub fn new() -> Self {
        Self(Rig::new(Mode::Trapped))
    }

    pub fn cq(&self, entries: u32) -> CompletionQueue<Firmware> {
        CompletionQueue::by_command(&self.context, entries).build().unwrap()
    }

    pub fn builder(&self, cq: &CompletionQueue<Firmware>) -> QueuePairBuilder<Rc, Firmware> {
        QueuePairBuilder::by_command(&self.pd, cq).max_inline_data(64)
    }

    /// Memory that peers may read only.
    pub fn read_only(&self, length: usize) -> MemoryRegion {
        self.pd.allocate(length, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap()
    }

    /// Both ends of a connection, in RTS.
    pub fn connect(
        &self,
        first: QueuePair<Rc, Reset, Firmware>,
        second: QueuePair<Rc, Reset, Firmware>,
    ) -> [QueuePair<Rc, Rts, Firmware>; 2] {
        self.0.connect(self.to_init(first), self.to_init(second)).into()
    }

    /// A queue pair that is connected to itself: what it sends itself needs no second one.
    pub fn alone(&self, qp: QueuePair<Rc, Reset, Firmware>) -> QueuePair<Rc, Rts, Firmware> {
        self.looped(self.to_init(qp))
    }
}

pub fn sends(qp: &QueuePair<Rc, Rts, Firmware>, completions: &mut CqReader) -> SendQueue<Rc> {
    SendQueue::new(qp, completions, SendConfig::default()).unwrap()
}

pub fn receives(qp: &QueuePair<Rc, Rts, Firmware>, completions: &mut CqReader) -> ReceiveQueue {
    ReceiveQueue::new(qp, completions, ReceiveConfig::default()).unwrap()
}
