//! Queue pairs and completion queues, made by verbs or by firmware commands. Tests of rings run on
//! both, and on mixtures.

use std::fmt;

use mlx5::devx::{ByCommand, Firmware};
use mlx5::ib::Receives;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{Capacities, CqeSize, InitAttributes, QueuePairAttributes};
use mlx5::verbs::{self, Connected, Context, ProtectionDomain, ThreadDomain};
use mlx5::verbs::{CanReceive, Init, Reset, Rtr, Rts, State};
use mlx5::{Error, Result};

/// The interface that creates a queue pair and its CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Both are made by verbs.
    Verbs,
    /// Both are made by command.
    Command,
    /// The queue pair is made by command, the CQ by verbs.
    CommandOnVerbsCq,
}

/// The variable of the environment by which a test's own program is run again, with everything that
/// [`By::of_environment`] is asked for made by command.
pub const BY: &str = "MLX5_TEST_BY";

impl By {
    /// Returns the interface that creates objects in this run.
    pub fn of_environment() -> By {
        match std::env::var(BY).as_deref() {
            Ok("command") => By::Command,
            Ok(other) => panic!("{BY} is {other}"),
            Err(_) => By::Verbs,
        }
    }
}

/// Both ends by verbs, by command, and what can be mixed.
pub const MADE: [[By; 2]; 4] = [
    [By::Verbs; 2],
    [By::Command; 2],
    [By::Verbs, By::Command],
    [By::CommandOnVerbsCq, By::Command],
];

/// Both ends by verbs, and both by command.
pub const ALIKE: [[By; 2]; 2] = [[By::Verbs; 2], [By::Command; 2]];

/// A completion queue.
#[derive(Debug)]
pub enum Cq {
    /// Made by verbs.
    Verbs(verbs::CompletionQueue),
    /// Made by command.
    Command(verbs::CompletionQueue<Firmware>),
}

impl Cq {
    /// Creates a CQ of at least so many entries.
    pub fn new(context: &Context, by: By, entries: u32, size: CqeSize) -> Cq {
        match by {
            By::Verbs | By::CommandOnVerbsCq => {
                let builder = verbs::CompletionQueue::builder(context, entries).cqe_size(size);
                Cq::Verbs(builder.build().unwrap())
            }
            By::Command => {
                // Verbs' rings have an entry more than was asked for.
                let builder =
                    verbs::CompletionQueue::by_command(context, entries + 1).cqe_size(size);
                Cq::Command(builder.build().unwrap())
            }
        }
    }

    /// Takes over the polling side.
    pub fn completions(&self) -> CqReader {
        match self {
            Cq::Verbs(cq) => CqReader::new(cq),
            Cq::Command(cq) => CqReader::new(cq),
        }
        .unwrap()
    }
}

/// A queue pair.
pub enum Qp<T: Connected + ByCommand, S: State> {
    /// Made by verbs.
    Verbs(verbs::QueuePair<T, S>),
    /// Made by command.
    Command(verbs::QueuePair<T, S, Firmware>),
}

impl<T: Connected + ByCommand, S: State> fmt::Debug for Qp<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Qp::Verbs(qp) => qp.fmt(f),
            Qp::Command(qp) => qp.fmt(f),
        }
    }
}

/// Makes a queue pair with a register of its own.
pub fn queue_pair<T: Connected + Receives + ByCommand>(
    by: By,
    pd: &ProtectionDomain,
    cq: &Cq,
    shape: Capacities,
    signal_all: bool,
) -> Qp<T, Reset> {
    macro_rules! build {
        ($builder:expr) => {
            $builder
                .max_send_wr(shape.max_send_wr)
                .max_recv_wr(shape.max_recv_wr)
                .max_send_sge(shape.max_send_sge)
                .max_recv_sge(shape.max_recv_sge)
                .max_inline_data(shape.max_inline_data)
                .signal_all(signal_all)
                .build()
                .unwrap()
        };
    }
    match (by, cq) {
        (By::Verbs, Cq::Verbs(cq)) => {
            let thread = ThreadDomain::new(pd.context()).unwrap();
            let builder = verbs::QueuePairBuilder::<T>::new(pd, cq).thread_domain(&thread);
            Qp::Verbs(build!(builder))
        }
        (By::Verbs, Cq::Command(_)) => panic!("verbs take a CQ of verbs alone"),
        (_, Cq::Verbs(cq)) => {
            Qp::Command(build!(verbs::QueuePairBuilder::<T, _>::by_command(pd, cq)))
        }
        (_, Cq::Command(cq)) => {
            Qp::Command(build!(verbs::QueuePairBuilder::<T, _>::by_command(pd, cq)))
        }
    }
}

macro_rules! moved {
    ($result:expr, $made:ident) => {
        $result.map(Qp::$made).map_err(|failed| (Qp::$made(failed.queue_pair), failed.error))
    };
}

/// A move that failed, with the queue pair.
type Moved<T, To, From> = Result<Qp<T, To>, (Qp<T, From>, Error)>;

impl<T: Connected + ByCommand> Qp<T, Reset> {
    /// Moves it to INIT.
    pub fn init(self, attributes: &InitAttributes) -> Moved<T, Init, Reset> {
        match self {
            Qp::Verbs(qp) => moved!(qp.init(attributes), Verbs),
            Qp::Command(qp) => moved!(qp.init(attributes), Command),
        }
    }
}

impl<T: Connected + ByCommand> Qp<T, Init> {
    /// Moves it to RTR.
    pub fn rtr(self, attributes: &T::Rtr) -> Moved<T, Rtr, Init> {
        match self {
            Qp::Verbs(qp) => moved!(qp.rtr(attributes), Verbs),
            Qp::Command(qp) => moved!(qp.rtr(attributes), Command),
        }
    }
}

impl<T: Connected + ByCommand> Qp<T, Rtr> {
    /// Moves it to RTS.
    pub fn rts(self, attributes: &T::Rts) -> Moved<T, Rts, Rtr> {
        match self {
            Qp::Verbs(qp) => moved!(qp.rts(attributes), Verbs),
            Qp::Command(qp) => moved!(qp.rts(attributes), Command),
        }
    }
}

impl<T: Connected + ByCommand> Qp<T, Rts> {
    /// Takes over its send queue.
    pub fn send_queue(
        &self,
        completions: &mut CqReader,
        config: SendConfig,
    ) -> Result<SendQueue<T>> {
        match self {
            Qp::Verbs(qp) => SendQueue::new(qp, completions, config),
            Qp::Command(qp) => SendQueue::new(qp, completions, config),
        }
    }
}

impl<T: Connected + Receives + ByCommand, S: CanReceive> Qp<T, S> {
    /// Takes over its receive queue.
    pub fn receive_queue(
        &self,
        completions: &mut CqReader,
        config: ReceiveConfig,
    ) -> Result<ReceiveQueue> {
        match self {
            Qp::Verbs(qp) => ReceiveQueue::new(qp, completions, config),
            Qp::Command(qp) => ReceiveQueue::new(qp, completions, config),
        }
    }
}

impl<T: Connected + ByCommand, S: State> Qp<T, S> {
    /// The queue pair of verbs that it is.
    pub fn verbs(&self) -> &verbs::QueuePair<T, S> {
        match self {
            Qp::Verbs(qp) => qp,
            Qp::Command(qp) => panic!("{qp:?} was made by command"),
        }
    }

    /// Start of its send queue.
    pub fn send_ring(&self) -> *mut u8 {
        match self {
            Qp::Verbs(qp) => {
                // SAFETY: the queue pair is alive; the caller looks no longer than that.
                unsafe { super::verbs::QpMemory::new(qp.as_raw()) }.dv.sq.buf.cast()
            }
            Qp::Command(qp) => {
                let (rings, sends) = qp.rings();
                // SAFETY: within the rings.
                unsafe { rings.as_ptr().add(sends) }
            }
        }
    }

    /// Returns its number.
    pub fn number(&self) -> u32 {
        match self {
            Qp::Verbs(qp) => qp.number(),
            Qp::Command(qp) => qp.number(),
        }
    }

    /// Returns its attributes, as the device has them.
    pub fn query(&self) -> QueuePairAttributes {
        match self {
            Qp::Verbs(qp) => qp.query(),
            Qp::Command(qp) => qp.query(),
        }
        .unwrap()
    }

    /// Moves it to ERROR.
    #[allow(clippy::wrong_self_convention, reason = "as the queue pairs have it")]
    pub fn to_error(self) -> Moved<T, mlx5::verbs::Failed, S> {
        match self {
            Qp::Verbs(qp) => moved!(qp.to_error(), Verbs),
            Qp::Command(qp) => moved!(qp.to_error(), Command),
        }
    }

    /// Moves it to RESET.
    pub fn reset(self) -> Moved<T, Reset, S> {
        match self {
            Qp::Verbs(qp) => moved!(qp.reset(), Verbs),
            Qp::Command(qp) => moved!(qp.reset(), Command),
        }
    }
}
