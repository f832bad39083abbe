//! Connected queue pairs made by command, for tests of features that only they have.

use mlx5::connect::LocalPort;
use mlx5::devx::Firmware;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, QueuePairBuilder, Reset,
    Rts,
};

use super::rig::all_rights;

/// An opened device.
pub struct Device {
    pub context: Context,
    pub local: LocalPort,
    pub pd: ProtectionDomain,
}

impl Device {
    pub fn new() -> Self {
        assert!(mlx5_model::offered(), "these tests are about the model: set MLX5_MODEL=always");
        let context = Context::open_first().unwrap();
        let local = LocalPort::new(&context, 1, None).unwrap();
        let pd = ProtectionDomain::new(&context).unwrap();
        Self { context, local, pd }
    }

    pub fn cq(&self, entries: u32) -> CompletionQueue<Firmware> {
        CompletionQueue::by_command(&self.context, entries).build().unwrap()
    }

    pub fn builder(&self, cq: &CompletionQueue<Firmware>) -> QueuePairBuilder<Rc, Firmware> {
        QueuePairBuilder::by_command(&self.pd, cq).max_inline_data(64)
    }

    pub fn memory(&self, length: usize) -> MemoryRegion {
        self.pd.allocate(length, all_rights()).unwrap()
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
        let ends = (
            self.local.connection_data_of(first.number()),
            self.local.connection_data_of(second.number()),
        );
        let up = |qp: QueuePair<Rc, Reset, Firmware>, mine, theirs| {
            let qp = qp.init(&self.local.init()).unwrap();
            let qp = qp.rtr(&self.local.rtr(mine, theirs)).unwrap();
            qp.rts(&self.local.rts(mine, theirs)).unwrap()
        };
        [up(first, &ends.0, &ends.1), up(second, &ends.1, &ends.0)]
    }

    /// A queue pair that is connected to itself: what it sends itself needs no second one.
    pub fn alone(&self, qp: QueuePair<Rc, Reset, Firmware>) -> QueuePair<Rc, Rts, Firmware> {
        let end = self.local.connection_data_of(qp.number());
        let qp = qp.init(&self.local.init()).unwrap();
        qp.rtr(&self.local.rtr(&end, &end)).unwrap().rts(&self.local.rts(&end, &end)).unwrap()
    }
}

pub fn sends(qp: &QueuePair<Rc, Rts, Firmware>, completions: &mut CqReader) -> SendQueue<Rc> {
    SendQueue::new(qp, completions, SendConfig::default()).unwrap()
}

pub fn receives(qp: &QueuePair<Rc, Rts, Firmware>, completions: &mut CqReader) -> ReceiveQueue {
    ReceiveQueue::new(qp, completions, ReceiveConfig::default()).unwrap()
}
