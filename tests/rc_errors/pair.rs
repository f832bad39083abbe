//! Two connected queue pairs that are made to fail and moved to RTS again.

use std::time::{Duration, Instant};

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::{Completion, Failure, QueueKind, ReceiveKind, Status};
use mlx5::devx::QueuePairFailure;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{
    Capacities, CqeSize, InitAttributes, Mtu, QpState, RnrTimer, RtrAttributes, RtsAttributes,
};
use mlx5::verbs::{AsyncEvent, Context, EventSource, MemoryRegion, ProtectionDomain, Reset, Rts};
use mlx5::wqe::{PostOn, Remote, SendMessage, Sge};

use rig::made::{By, Cq, Qp, queue_pair};

pub const PATIENCE: Duration = Duration::from_secs(20);
pub const LENGTH: usize = 16 << 10;
pub const EVERYTHING: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);

/// How a pair of queue pairs is connected.
#[derive(Clone)]
pub struct Setup {
    /// Rights of the responder's queue pair, and of its region.
    pub queue_pair: Access,
    pub region: Access,
    pub rts: RtsAttributes,
    pub rnr: RnrTimer,
    pub responder_depth: u8,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            queue_pair: EVERYTHING,
            region: EVERYTHING,
            rts: RtsAttributes { max_rd_atomic: 4, ..RtsAttributes::default() },
            rnr: RnrTimer::at_least(Duration::from_micros(10)),
            responder_depth: 4,
        }
    }
}

/// A requester, `a`, and a responder, `b`, on one port.
pub struct Pair {
    pub setup: Setup,
    pub a: End,
    pub b: End,
}

pub struct End {
    pub live: Option<Live>,
    pub completions: CqReader,
    pub cq: Cq,
    pub region: MemoryRegion,
    pub pd: ProtectionDomain,
    pub context: Context,
}

/// The objects that are dropped with the queue pair.
pub struct Live {
    pub sends: SendQueue<Rc>,
    pub receives: ReceiveQueue,
    pub qp: Qp<Rc, Rts>,
}

impl Pair {
    pub fn new(setup: Setup) -> Pair {
        let context = Context::open_first().unwrap();
        // A peer that is gone is noticed sooner than by a device.
        assert!(mlx5_model::set_timeouts(0, mlx5_model::Timeouts::SPECIFICATION));
        let a = End::new(&context, EVERYTHING);
        let b = End::new(&context, setup.region);
        let mut pair = Pair { setup, a, b };
        let (a, b) = (pair.a.queue_pair(), pair.b.queue_pair());
        pair.connect(a, b);
        pair
    }

    pub fn connect(&mut self, a: Qp<Rc, Reset>, b: Qp<Rc, Reset>) {
        let (number_a, number_b) = (a.number(), b.number());
        self.a.connect(a, number_b, EVERYTHING, &self.setup);
        self.b.connect(b, number_a, self.setup.queue_pair, &self.setup);
    }

    /// Moves both queue pairs through RESET to RTS, or creates missing ones again.
    pub fn recover(&mut self) {
        self.setup = Setup { queue_pair: EVERYTHING, ..self.setup.clone() };
        let (a, b) = (self.a.reset(), self.b.reset());
        self.connect(a, b);
    }

    /// Recovers, then sends messages each way.
    pub fn works_again(&mut self) {
        self.recover();
        for round in 1..4 {
            message(&mut self.a, &mut self.b, round);
            message(&mut self.b, &mut self.a, round);
        }
    }
}

/// A message from one to the other.
pub fn message(from: &mut End, to: &mut End, fill: u8) {
    to.receive(7, to.sge(4096, 64));
    from.region.write(0, &[fill; 64]);
    from.post(8, SendMessage::new(from.sge(0, 64)).signaled());
    assert_eq!(from.success(), 8);
    match to.next() {
        Completion::Receive(done) => {
            assert_eq!((done.id, done.byte_len, done.kind), (7, 64, ReceiveKind::Send));
        }
        other => panic!("{other:?}"),
    }
    let mut bytes = [0; 64];
    to.region.read(4096, &mut bytes);
    assert_eq!(bytes, [fill; 64]);
}

impl End {
    pub fn new(context: &Context, access: Access) -> End {
        End::within(ProtectionDomain::new(context).unwrap(), access)
    }

    /// Creates an end in an existing protection domain.
    pub fn within(pd: ProtectionDomain, access: Access) -> End {
        let context = pd.context().clone();
        let cq = Cq::new(&context, By::of_environment(), 128, CqeSize::B64);
        End {
            live: None,
            completions: cq.completions(),
            cq,
            region: pd.allocate(LENGTH, access).unwrap(),
            pd,
            context,
        }
    }

    pub fn queue_pair(&self) -> Qp<Rc, Reset> {
        let shape = Capacities {
            max_send_wr: 16,
            max_recv_wr: 16,
            max_send_sge: 4,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        queue_pair(By::of_environment(), &self.pd, &self.cq, shape, false)
    }

    pub fn connect(&mut self, qp: Qp<Rc, Reset>, peer: u32, access: Access, setup: &Setup) {
        let local = LocalPort::new(&self.context, 1, None).unwrap();
        let theirs = ConnectionData {
            lid: local.attributes().lid,
            gid: local.gid().map(|entry| entry.gid),
            ..ConnectionData::new(peer, Mtu::Mtu1024)
        };
        let qp = qp.init(&InitAttributes { access, ..local.init() }).unwrap();
        let config = ReceiveConfig::default();
        let receives = qp.receive_queue(&mut self.completions, config).unwrap();
        let rtr = RtrAttributes {
            min_rnr_timer: setup.rnr,
            max_dest_rd_atomic: setup.responder_depth,
            ..local.rtr(&theirs, &theirs)
        };
        let qp = qp.rtr(&rtr).unwrap().rts(&setup.rts).unwrap();
        let sends = qp.send_queue(&mut self.completions, SendConfig::default()).unwrap();
        self.live = Some(Live { sends, receives, qp });
    }

    pub fn reset(&mut self) -> Qp<Rc, Reset> {
        match self.live.take() {
            Some(Live { sends, receives, qp }) => {
                drop((sends, receives));
                let number = qp.number();
                let qp = qp.to_error().unwrap().reset().unwrap();
                assert_eq!(qp.number(), number);
                qp
            }
            None => self.queue_pair(),
        }
    }

    pub fn live(&mut self) -> &mut Live {
        self.live.as_mut().expect("connected")
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        self.region.sge(offset, length).unwrap()
    }

    pub fn remote(&self, offset: usize) -> Remote {
        self.region.remote(offset).unwrap()
    }

    pub fn post(&mut self, id: u64, operation: impl PostOn<Rc>) {
        // SAFETY: every memory that a test names is a region's, which outlives its queue pair, or
        // is not registered at all, which is what the card is to find out.
        unsafe { self.live().sends.post(id, operation).unwrap() }
    }

    pub fn receive(&mut self, id: u64, sge: Sge) {
        // SAFETY: every memory that a test names is a region's, which outlives its queue pair, or
        // is not registered at all, which is what the card is to find out.
        unsafe { self.live().receives.post(id, sge).unwrap() }
    }

    /// The next completion.
    pub fn next(&mut self) -> Completion {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(completion) = self.try_next() {
                return completion;
            }
            assert!(Instant::now() < deadline, "no completion within {PATIENCE:?}");
            std::thread::yield_now();
        }
    }

    pub fn try_next(&mut self) -> Option<Completion> {
        let live = self.live.as_mut().expect("connected");
        self.completions.poll(&mut (&mut live.sends, &mut live.receives)).unwrap()
    }

    /// The next completion, which is a send's success.
    pub fn success(&mut self) -> u64 {
        match self.next() {
            Completion::Send(done) => done.id,
            other => panic!("instead of a success: {other:?}"),
        }
    }

    /// The next completion, which is the failure of request `id` with that status.
    pub fn failure(&mut self, queue: QueueKind, id: u64, status: Status) -> Failure {
        match self.next() {
            Completion::Failed(failure) => {
                println!("{failure}");
                assert_eq!(
                    (failure.queue, failure.id, failure.status),
                    (queue, id, status),
                    "{failure}"
                );
                check_text(&failure);
                #[cfg(feature = "flight-recorder")]
                self.check_flight(&failure);
                failure
            }
            other => panic!("instead of {status:?}: {other:?}"),
        }
    }

    /// The queue's record ends with the WQE that failed, and with what the card said of it.
    #[cfg(feature = "flight-recorder")]
    fn check_flight(&mut self, failure: &Failure) {
        use mlx5::diag::flight::{Dump, Reason, What};
        let live = self.live();
        let record = match failure.queue {
            QueueKind::Send => live.sends.flight_record(),
            QueueKind::Receive => live.receives.flight_record(),
        };
        assert_eq!(record.reason, Reason::Error, "{record}");
        let last = record.failure().expect("an error CQE");
        let What::Cqe(cqe) = &record.events[last].what else { panic!("{record}") };
        assert_eq!(last + 1, record.events.len(), "nothing follows: {record}");
        assert_eq!(record.wqe_of(last), Some(last - 1), "{record}");
        let guilty = record.guilty().expect("the WQE");
        assert!(guilty.found && !guilty.is_cut(), "{record}");
        assert_eq!(record.changed(), Some(false), "{record}");
        // A flush tells of an earlier failure.
        if failure.status != Status::Flushed {
            assert_eq!(guilty.index, failure.wqe_index, "{record}");
            assert_eq!(Status::from_syndrome(cqe.syndrome()), failure.status, "{record}");
            assert_eq!(cqe.vendor_syndrome(), failure.vendor_error, "{record}");
            if failure.queue == QueueKind::Send {
                assert_eq!(guilty.bytes[3], cqe.0[56], "opcode: {record}");
            }
        }
        let log = record.to_string().replace('\n', "\nanother line\n2026-11-21T22:00:00 app: ");
        let expected = Dump { records: vec![record], damaged: vec![] };
        assert_eq!(Dump::parse(&log), expected, "{log}");
    }

    pub fn send_fails(&mut self, id: u64, status: Status) -> Failure {
        let failure = self.failure(QueueKind::Send, id, status);
        assert_eq!(self.state(), QpState::Error);
        failure
    }

    pub fn receive_fails(&mut self, id: u64, status: Status) -> Failure {
        let failure = self.failure(QueueKind::Receive, id, status);
        assert_eq!(self.state(), QpState::Error);
        failure
    }

    /// The state that the card reports.
    pub fn state(&mut self) -> QpState {
        self.live().qp.query().state
    }

    /// Returns why the queue pair failed, as the HCA's context of it says.
    pub fn cause(&mut self) -> Option<QueuePairFailure> {
        let Live { qp, .. } = self.live.as_ref().expect("connected");
        let (context, number) = (&self.context, qp.number());
        match qp {
            Qp::Verbs(qp) => QueuePairFailure::query(context, qp, number),
            Qp::Command(qp) => QueuePairFailure::query(context, qp.object(), number),
        }
        .unwrap()
    }

    /// Checks why the queue pair failed: the status, and vendor syndrome, type of the hardware
    /// syndrome and hardware syndrome.
    pub fn failed_by(&mut self, status: Status, numbers: [u8; 3]) {
        let cause = self.cause().expect("it has failed");
        assert_eq!((cause.status(), cause.numbers()), (status, numbers), "{cause}");
    }

    /// Waits for an asynchronous event of this side's queue pair.
    pub fn event(&mut self) -> AsyncEvent {
        let number = self.live().qp.number();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(event) = self.context.async_event(Duration::from_millis(100)).unwrap() {
                if event.source == EventSource::QueuePair(number) {
                    return event;
                }
            }
        }
        panic!("no event of queue pair {number:#x} within {PATIENCE:?}");
    }
}

/// Name, number in `enum ibv_wc_status`, and what the explanation speaks of.
const TEXTS: [(&str, u32, &str); 11] = [
    ("IBV_WC_LOC_LEN_ERR", 1, "length"),
    ("IBV_WC_LOC_QP_OP_ERR", 2, "WQE"),
    ("IBV_WC_LOC_PROT_ERR", 4, "lkey"),
    ("IBV_WC_WR_FLUSH_ERR", 5, "error state"),
    ("IBV_WC_MW_BIND_ERR", 6, "window"),
    ("IBV_WC_REM_INV_REQ_ERR", 9, "longer than its receive"),
    ("IBV_WC_REM_ACCESS_ERR", 10, "rkey"),
    ("IBV_WC_REM_OP_ERR", 11, "own side"),
    ("IBV_WC_RETRY_EXC_ERR", 12, "queue pair is gone"),
    ("IBV_WC_RNR_RETRY_EXC_ERR", 13, "post receives"),
    ("IBV_WC_GENERAL_ERR", 21, "no reason"),
];

/// The text of a failure says which request it was, the status as verbs name it, and the cause.
pub fn check_text(failure: &Failure) {
    let text = failure.to_string();
    let (_, number, cause) = TEXTS
        .into_iter()
        .find(|(name, ..)| *name == failure.status.name())
        .unwrap_or_else(|| panic!("no text is known of {text}"));
    assert_eq!(failure.status.wc_status(), number, "{text}");
    for part in [failure.status.name(), cause, &format!("{:#x}", failure.qpn)] {
        assert!(text.contains(part), "{part:?} is missing in {text:?}");
    }
}
