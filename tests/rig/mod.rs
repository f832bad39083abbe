//! Code that test modules share: connected queue pairs in one process, on the model, and random
//! numbers with a seed.

#![allow(dead_code, reason = "no test uses all of it")]

pub mod extended;
pub mod lint;
pub mod made;
pub mod process;
pub mod random;
pub mod stores;
pub mod tags;
pub mod verbs;
pub mod waited;
pub mod written;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::Completion;
use mlx5::devx::ByCommand;
use mlx5::ib::{Access, HasQueues, Rc};
use mlx5::ring::{CqReader, PollError, Queues, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, Connected, Context, Init, MemoryRegion, Mkey, ProtectionDomain, QueuePair,
    QueuePairBuilder, Reset, RtrAttributes, Rts, RtsAttributes,
};
use mlx5::wqe::Sge;

use self::made::Qp;

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Everything: memory that both sides may read and write.
pub fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// An opened device of the model with a protection domain.
pub struct Rig {
    pub context: Context,
    pub local: LocalPort,
    pub pd: ProtectionDomain,
}

/// Opens the model, whose registers are noticed as `mode` says. Its timers are the specification's: with
/// those of devices, a peer that is gone is noticed after a second and more.
pub fn open(mode: mlx5_model::Mode) -> Context {
    // The mode is the process's, and tests of one process want different ones.
    static OPENING: Mutex<()> = Mutex::new(());
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    mlx5_model::set_mode(mode).expect("stores can be noticed so");
    assert!(mlx5_model::offered(), "these tests are about the model: set MLX5_MODEL=always");
    let context = Context::open_first().expect("a device");
    assert!(mlx5_model::set_timeouts(0, mlx5_model::Timeouts::SPECIFICATION), "a device is open");
    context
}

impl Rig {
    /// Opens the model, whose registers are noticed as `mode` says.
    pub fn new(mode: mlx5_model::Mode) -> Self {
        let context = open(mode);
        let local = LocalPort::new(&context, 1, None).expect("port 1");
        let pd = ProtectionDomain::new(&context).expect("a domain");
        Self { context, local, pd }
    }

    pub fn memory(&self, length: usize) -> MemoryRegion {
        self.pd.allocate(length, all_rights()).expect("memory")
    }

    pub fn cq(&self, entries: u32) -> CompletionQueue {
        CompletionQueue::new(&self.context, entries).expect("a CQ")
    }

    /// A queue pair in INIT.
    pub fn init<T: Connected + HasQueues>(
        &self,
        builder: QueuePairBuilder<T>,
    ) -> QueuePair<T, Init> {
        self.to_init(builder.build().expect("a queue pair"))
    }

    pub fn to_init<T: Connected>(&self, qp: QueuePair<T, Reset>) -> QueuePair<T, Init> {
        qp.init(&self.local.init()).map_err(|failed| failed.error).expect("INIT")
    }

    /// Connects two queue pairs to each other.
    pub fn connect<T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>>(
        &self,
        first: QueuePair<T, Init>,
        second: QueuePair<T, Init>,
    ) -> (QueuePair<T, Rts>, QueuePair<T, Rts>) {
        let ends = (self.local.connection_data(&first), self.local.connection_data(&second));
        let up = |qp: QueuePair<T, Init>, mine, theirs| {
            let qp = qp.rtr(&self.local.rtr(mine, theirs).into()).map_err(|failed| failed.error);
            let qp = qp.expect("RTR").rts(&self.local.rts(mine, theirs).into());
            qp.map_err(|failed| failed.error).expect("RTS")
        };
        (up(first, &ends.0, &ends.1), up(second, &ends.1, &ends.0))
    }

    /// The same, where both send so.
    pub fn connect_with(
        &self,
        first: QueuePair<Rc, Init>,
        second: QueuePair<Rc, Init>,
        rts: RtsAttributes,
    ) -> (QueuePair<Rc, Rts>, QueuePair<Rc, Rts>) {
        let ends = (self.local.connection_data(&first), self.local.connection_data(&second));
        let up = |qp: QueuePair<Rc, Init>, mine: &ConnectionData, theirs: &ConnectionData| {
            let qp = qp.rtr(&self.local.rtr(mine, theirs)).map_err(|failed| failed.error);
            let rts = RtsAttributes { sq_psn: mine.psn, ..rts };
            let qp = qp.expect("RTR").rts(&rts);
            qp.map_err(|failed| failed.error).expect("RTS")
        };
        (up(first, &ends.0, &ends.1), up(second, &ends.1, &ends.0))
    }
}

/// Connects two queue pairs to each other, created by either interface.
pub fn connect_made<T>(
    local: &LocalPort,
    first: Qp<T, Init>,
    second: Qp<T, Init>,
) -> (Qp<T, Rts>, Qp<T, Rts>)
where
    T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>> + ByCommand,
{
    let ends = [&first, &second].map(|qp| local.connection_data_of(qp.number()));
    let up = |qp: Qp<T, Init>, mine, theirs| {
        let qp = qp.rtr(&local.rtr(mine, theirs).into()).map_err(|failed| failed.1).expect("RTR");
        qp.rts(&local.rts(mine, theirs).into()).map_err(|failed| failed.1).expect("RTS")
    };
    (up(first, &ends[0], &ends[1]), up(second, &ends[1], &ends[0]))
}

/// Polls until there is a completion.
pub fn wait<Q: Queues + ?Sized>(completions: &mut CqReader, queues: &mut Q) -> Completion {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match completions.poll(queues) {
            Ok(Some(completion)) => return completion,
            Ok(None) => assert!(Instant::now() < deadline, "no completion"),
            Err(error) => panic!("{error}"),
        }
        std::thread::yield_now();
    }
}

/// Polls until a poll fails; nothing completes before.
pub fn refused<Q: Queues + ?Sized>(completions: &mut CqReader, queues: &mut Q) -> PollError {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match completions.poll(queues) {
            Ok(Some(completion)) => panic!("{completion:?}"),
            Ok(None) => assert!(Instant::now() < deadline, "no completion"),
            Err(error) => return error,
        }
        std::thread::yield_now();
    }
}

/// Has a key lead to a piece of memory, for reading and writing, by a connection that goes then: for
/// tests of transports that do not configure keys.
pub fn lead_to(rig: &Rig, key: &Mkey, piece: Sge) {
    let cq = rig.cq(64);
    let (qp, _peer) = {
        let [one, other] = [(); 2].map(|()| rig.init(QueuePair::<Rc, _>::builder(&rig.pd, &cq)));
        rig.connect(one, other)
    };
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let both = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let request = key.configure().access(both).layout([piece]);
    // SAFETY: no code holds a reference to the memory.
    unsafe { send.post(1, request.signaled()) }.unwrap();
    let done = wait(&mut completions, &mut send);
    assert!(matches!(done, Completion::Send(done) if done.id == 1), "{done:?}");
}
