//! Connected queue pairs in one process, with their queues and memory, for tests, benchmarks and the
//! examples in the documentation of types. A failure is a panic that names the step.

pub mod ethernet;
pub mod extended;
pub mod host;
pub mod lint;
pub mod loopback;
pub mod made;
pub mod pair;
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
use mlx5::endpoint::MrSlice;
use mlx5::expert::Makes;
use mlx5::ib::{Access, HasQueues, Rc};
use mlx5::ring::{CqReader, PollError, Queues, SendConfig, SendQueue};
use mlx5::verbs::attr::{RtrAttributes, RtsAttributes};
use mlx5::verbs::{
    CompletionQueue, Connected, Context, Init, MemoryRegion, Mkey, ProtectionDomain, QueuePair,
    QueuePairBuilder, Reset, Rts,
};
use mlx5::wqe::Sge;

pub use self::loopback::{Link, Result, link, poll};
use self::made::Qp;
pub use self::pair::{Line, QKEY, Side};

/// How long anything may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Everything: memory that both sides may read and write.
pub fn all_rights() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// An opened device of the model with a protection domain.
pub struct Rig {
    /// The opened device.
    pub context: Context,
    /// Its port 1.
    pub local: LocalPort,
    /// A domain for all that is made here.
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
        Self::over(open(mode))
    }

    /// Uses port 1 of an opened device, which need not be the model's.
    pub fn over(context: Context) -> Self {
        let local = LocalPort::new(&context, 1, None).expect("port 1");
        let pd = ProtectionDomain::new(&context).expect("a domain");
        Self { context, local, pd }
    }

    /// Allocates memory with [`all_rights`].
    pub fn memory(&self, length: usize) -> MemoryRegion {
        self.pd.allocate(length, all_rights()).expect("memory")
    }

    /// Allocates memory with this content and [`all_rights`], for the safe layer.
    pub fn text(&self, text: &str) -> MrSlice {
        let mut slice = MrSlice::from(self.memory(text.len()));
        slice.write(0, text.as_bytes());
        slice
    }

    /// Creates a CQ by verbs.
    pub fn cq(&self, entries: u32) -> CompletionQueue {
        CompletionQueue::new(&self.context, entries).expect("a CQ")
    }

    /// Creates a queue pair, and moves it to INIT.
    pub fn init<T: Connected + HasQueues, B: Makes<T>>(
        &self,
        builder: QueuePairBuilder<T, B>,
    ) -> QueuePair<T, Init, B> {
        self.to_init(builder.build().expect("a queue pair"))
    }

    /// Moves a queue pair to INIT.
    pub fn to_init<T: Connected, B: Makes<T>>(
        &self,
        qp: QueuePair<T, Reset, B>,
    ) -> QueuePair<T, Init, B> {
        qp.init(&self.local.init()).expect("INIT")
    }

    /// Connects two queue pairs to each other.
    pub fn connect<T, B: Makes<T>>(
        &self,
        first: QueuePair<T, Init, B>,
        second: QueuePair<T, Init, B>,
    ) -> (QueuePair<T, Rts, B>, QueuePair<T, Rts, B>)
    where
        T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
    {
        let ends = [&first, &second].map(|qp| self.local.connection_data_of(qp.number()));
        (self.up(first, &ends[0], &ends[1]), self.up(second, &ends[1], &ends[0]))
    }

    /// Connects a queue pair to itself.
    pub fn looped<T, B: Makes<T>>(&self, qp: QueuePair<T, Init, B>) -> QueuePair<T, Rts, B>
    where
        T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
    {
        let end = self.local.connection_data_of(qp.number());
        self.up(qp, &end, &end)
    }

    fn up<T, B: Makes<T>>(
        &self,
        qp: QueuePair<T, Init, B>,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> QueuePair<T, Rts, B>
    where
        T: Connected<Rtr: From<RtrAttributes>, Rts: From<RtsAttributes>>,
    {
        let qp = qp.rtr(&self.local.rtr(mine, theirs).into()).expect("RTR");
        qp.rts(&self.local.rts(mine, theirs).into()).expect("RTS")
    }

    /// Connects two queue pairs to each other, which both send as `rts` says.
    pub fn connect_with<B: Makes<Rc>>(
        &self,
        first: QueuePair<Rc, Init, B>,
        second: QueuePair<Rc, Init, B>,
        rts: RtsAttributes,
    ) -> (QueuePair<Rc, Rts, B>, QueuePair<Rc, Rts, B>) {
        let ends = [&first, &second].map(|qp| self.local.connection_data_of(qp.number()));
        let up = |qp: QueuePair<Rc, Init, B>, mine: &ConnectionData, theirs: &ConnectionData| {
            let qp = qp.rtr(&self.local.rtr(mine, theirs)).expect("RTR");
            qp.rts(&RtsAttributes { sq_psn: mine.psn, ..rts }).expect("RTS")
        };
        (up(first, &ends[0], &ends[1]), up(second, &ends[1], &ends[0]))
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

/// Calls `look` until it returns a value.
#[track_caller]
pub fn until<R>(mut look: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// Polls until there is a completion.
#[track_caller]
pub fn wait<Q: Queues + ?Sized>(completions: &mut CqReader, queues: &mut Q) -> Completion {
    until(|| completions.poll(queues).unwrap_or_else(|error| panic!("{error}")))
}

/// Polls until a poll fails; nothing completes before.
#[track_caller]
pub fn refused<Q: Queues + ?Sized>(completions: &mut CqReader, queues: &mut Q) -> PollError {
    until(|| match completions.poll(queues) {
        Ok(Some(completion)) => panic!("{completion:?}"),
        Ok(None) => None,
        Err(error) => Some(error),
    })
}

/// Has a key lead to a piece of memory, for reading and writing, by a connection that goes then: for
/// tests of transports that do not configure keys.
pub fn lead_to(rig: &Rig, key: &Mkey, piece: Sge) {
    let cq = rig.cq(64);
    let qp = rig.looped(rig.init(QueuePair::builder(&rig.pd, &cq)));
    let mut completions = CqReader::new(&cq).unwrap();
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default()).unwrap();
    let both = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let request = key.configure().access(both).layout([piece]);
    // SAFETY: no code holds a reference to the memory.
    unsafe { send.post(1, request.signaled()) }.unwrap();
    let done = wait(&mut completions, &mut send);
    assert!(matches!(done, Completion::Send(done) if done.id == 1), "{done:?}");
}
