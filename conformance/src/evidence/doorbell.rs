//! What the doorbell record does: raw stores to ring, record and register of a queue pair.
//!
//! The steps are those of the measurements on ConnectX-6
//! (github.com/unionxic/rdma-fault-characterization): eight WRITEs that complete, then 16 more, whose
//! doorbell names all of them whatever the record says. Both queue pairs are this side's.

use std::thread;
use std::time::{Duration, Instant};

use mlx5::devx::ifc::{opcode, qp_2err_in, qpc};
use mlx5::devx::{Command, Firmware, Umem};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{CompletionQueue, Pages, QueuePair, QueuePairBuilder, Reset, Rts};

use super::ring::{BLOCKS, CQES, Ring, WRITE};
use crate::side::Base;
use crate::verdict::{Verdict, failed, holds};

/// WQEs that complete before a trial.
const BASELINE: u16 = 8;
/// The counter behind the last WQE of a trial.
const END: u16 = 24;
/// The WQE that the peer refuses.
const REFUSED: u16 = 16;
/// The state of a queue pair, as its context has it.
const ERROR: u64 = 6;
/// Without another CQE for so long, none is expected any more: a device takes some 10 microseconds for
/// each, and at most 133 for those of a late record.
const SETTLED: Duration = Duration::from_millis(20);

/// How the queue pair comes to ERROR, and what its record says then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trial {
    /// The record stays 0 while eight WRITEs are rung. The number is of those that complete.
    NeverStored,
    /// The record is ahead by eight NOPs that are never rung. The number is of those that complete.
    Ahead,
    /// The program moves it there.
    OwnError {
        /// The counter in the record.
        record: u16,
    },
    /// The peer refuses a WRITE.
    Refused {
        /// The counter in the record.
        record: u16,
    },
    /// As for `OwnError`, with a record that covers nothing and is stored again in ERROR.
    Late,
}

impl Trial {
    /// Runs it. Returns the number of CQEs: successes of the first two trials, errors of the others.
    pub fn run(self, base: &Base) -> Verdict<u64> {
        let mut queue = Queue::new(base)?;
        match self {
            Self::NeverStored => {
                queue.ring.write(BASELINE);
                queue.ring.ring(BASELINE);
                return Ok(queue.settled(Queue::successes));
            }
            Self::Ahead => {
                queue.baseline()?;
                queue.ring.nops(8);
                queue.ring.record(BASELINE + 8);
                return Ok(queue.settled(Queue::successes) - u64::from(BASELINE));
            }
            Self::OwnError { record } => {
                queue.fails(record)?;
            }
            Self::Refused { record } => {
                queue.baseline()?;
                let ring = &mut queue.ring;
                ring.write(REFUSED - BASELINE);
                ring.wqe(WRITE, REFUSED, ring.memory.rkey() ^ 0xff00);
                ring.write(END - REFUSED - 1);
                ring.nops(record.saturating_sub(END));
                ring.record(record);
                ring.ring(END);
            }
            Self::Late => {
                queue.fails(BASELINE)?;
                let early = queue.settled(Queue::errors);
                holds(early == 0, format!("{early} error CQEs for a record that covers nothing"))?;
                queue.ring.record(END);
            }
        }
        queue.is_in_error()?;
        Ok(queue.settled(Queue::errors))
    }
}

/// Two queue pairs of one device, and the memory that the requester shares with it.
struct Queue<'a> {
    ring: Ring,
    target: QueuePair<Rc, Rts, Firmware>,
    base: &'a Base,
    _cq: CompletionQueue<Firmware>,
}

impl<'a> Queue<'a> {
    fn new(base: &'a Base) -> Verdict<Self> {
        let cqes = Umem::new(&base.context, Pages::new(CQES * 64)?)?;
        let cq = CompletionQueue::by_command(&base.context, CQES as u32 - 1).ring(&cqes, 0);
        let cq = cq.build()?;
        let make = || {
            let builder = QueuePairBuilder::<Rc, Firmware>::by_command(&base.pd, &cq);
            builder.max_send_wr(BLOCKS.into()).build()
        };
        let (first, second) = (make()?, make()?);
        let ends = [&first, &second].map(|qp| base.local.connection_data_of(qp.number()));
        let up = |qp: QueuePair<Rc, Reset, Firmware>, mine: usize| -> Verdict<_> {
            let (mine, theirs) = (&ends[mine], &ends[1 - mine]);
            let qp = qp.init(&base.local.init()).map_err(|refused| refused.error)?;
            let qp = qp.rtr(&base.local.rtr(mine, theirs)).map_err(|refused| refused.error)?;
            Ok(qp.rts(&base.local.rts(mine, theirs)).map_err(|refused| refused.error)?)
        };
        let (requester, target) = (up(first, 0)?, up(second, 1)?);
        let memory = base.pd.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let ring = Ring { requester, cqes, memory, posted: 0 };
        Ok(Self { ring, target, base, _cq: cq })
    }

    /// Runs the WRITEs before a trial, with the record as it should be.
    fn baseline(&mut self) -> Verdict {
        self.ring.write(BASELINE);
        self.ring.record(BASELINE);
        self.ring.ring(BASELINE);
        self.wait("WRITEs", |queue| Ok(queue.successes() == u64::from(BASELINE)))
    }

    /// Leaves WRITEs unanswered, and moves the queue pair to ERROR.
    fn fails(&mut self, record: u16) -> Verdict {
        self.baseline()?;
        // So the target acknowledges nothing.
        fail(&self.target)?;
        self.ring.write(END - BASELINE);
        self.ring.nops(record.saturating_sub(END));
        self.ring.record(record);
        self.ring.ring(END);
        // The doorbell has arrived when the device's own count does not change any more.
        self.settled(|queue| {
            let context = queue.ring.requester.query_context();
            context.map_or(0, |context| qpc::SW_SQ_WQEBB_COUNTER.get(&context))
        });
        fail(&self.ring.requester)
    }

    fn successes(&self) -> u64 {
        self.ring.successes() as u64
    }

    fn errors(&self) -> u64 {
        self.ring.found().iter().filter(|cqe| cqe[63] >> 4 == 0xd).count() as u64
    }

    fn is_in_error(&self) -> Verdict {
        self.wait("the queue pair fails", |queue| {
            Ok(qpc::STATE.get(&queue.ring.requester.query_context()?) == ERROR)
        })
    }

    /// Returns a number when it has not changed for long.
    fn settled(&self, number: fn(&Self) -> u64) -> u64 {
        let (mut last, mut since) = (number(self), Instant::now());
        while since.elapsed() < SETTLED {
            thread::yield_now();
            let now = number(self);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        last
    }

    fn wait(&self, what: &str, is_done: impl Fn(&Self) -> Verdict<bool>) -> Verdict {
        let deadline = Instant::now() + self.base.terms.patience;
        while !is_done(self)? {
            if Instant::now() > deadline {
                return Err(failed(format!("{what}: not within {:?}", self.base.terms.patience)));
            }
            thread::yield_now();
        }
        Ok(())
    }
}

/// Moves a queue pair to ERROR by command.
fn fail(qp: &QueuePair<Rc, Rts, Firmware>) -> Verdict {
    let command = Command::new(opcode::QP_2ERR, qp_2err_in::SIZE);
    // SAFETY: only the state changes. In ERROR no WQE is executed.
    unsafe { qp.object().modify(&command.set(qp_2err_in::QPN, qp.number())) }?;
    Ok(())
}
