//! What the doorbell record does: raw stores to ring, record and register of a queue pair.
//!
//! The steps are those of the measurements on ConnectX-6
//! (github.com/unionxic/rdma-fault-characterization): eight WRITEs that complete, then 16 more, whose
//! doorbell names all of them whatever the record says. Both queue pairs are this side's.

use std::sync::atomic::{Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use mlx5::devx::ifc::{opcode, qp_2err_in, qpc};
use mlx5::devx::{Command, Firmware, Umem};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{CompletionQueue, MemoryRegion, Pages, QueuePair, QueuePairBuilder, Reset, Rts};

use crate::side::Base;
use crate::verdict::{Verdict, failed, holds};

/// CQEs of the ring, more than any trial needs.
const CQES: usize = 128;
/// Blocks of the send queue, more than any trial needs.
const BLOCKS: u16 = 64;
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

const WRITE: u8 = 0x08;
const NOP: u8 = 0x00;

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
                queue.write(BASELINE);
                queue.ring(BASELINE);
                return Ok(queue.settled(Queue::successes));
            }
            Self::Ahead => {
                queue.baseline()?;
                queue.nops(8);
                queue.record(BASELINE + 8);
                return Ok(queue.settled(Queue::successes) - u64::from(BASELINE));
            }
            Self::OwnError { record } => {
                queue.fails(record)?;
            }
            Self::Refused { record } => {
                queue.baseline()?;
                queue.write(REFUSED - BASELINE);
                queue.wqe(WRITE, queue.memory.rkey() ^ 0xff00);
                queue.write(END - REFUSED - 1);
                queue.nops(record.saturating_sub(END));
                queue.record(record);
                queue.ring(END);
            }
            Self::Late => {
                queue.fails(BASELINE)?;
                let early = queue.settled(Queue::errors);
                holds(early == 0, format!("{early} error CQEs for a record that covers nothing"))?;
                queue.record(END);
            }
        }
        queue.is_in_error()?;
        Ok(queue.settled(Queue::errors))
    }
}

/// Two queue pairs of one device, and the memory that the requester shares with it.
struct Queue<'a> {
    requester: QueuePair<Rc, Rts, Firmware>,
    target: QueuePair<Rc, Rts, Firmware>,
    cqes: Umem,
    memory: MemoryRegion,
    posted: u16,
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
        Ok(Self { requester, target, cqes, memory, posted: 0, base, _cq: cq })
    }

    /// Runs the WRITEs before a trial, with the record as it should be.
    fn baseline(&mut self) -> Verdict {
        self.write(BASELINE);
        self.record(BASELINE);
        self.ring(BASELINE);
        self.wait("WRITEs", |queue| Ok(queue.successes() == u64::from(BASELINE)))
    }

    /// Leaves WRITEs unanswered, and moves the queue pair to ERROR.
    fn fails(&mut self, record: u16) -> Verdict {
        self.baseline()?;
        // So the target acknowledges nothing.
        fail(&self.target)?;
        self.write(END - BASELINE);
        self.nops(record.saturating_sub(END));
        self.record(record);
        self.ring(END);
        // The doorbell has arrived when the device's own count does not change any more.
        self.settled(|queue| {
            let context = queue.requester.query_context();
            context.map_or(0, |context| qpc::SW_SQ_WQEBB_COUNTER.get(&context))
        });
        fail(&self.requester)
    }

    /// Writes a WQE to the ring.
    fn wqe(&mut self, opcode: u8, rkey: u32) {
        let mut wqe = [0; 64];
        let ds = if opcode == WRITE { 3 } else { 1 };
        let first = u32::from(self.posted) << 8 | u32::from(opcode);
        wqe[..4].copy_from_slice(&first.to_be_bytes());
        wqe[4..8].copy_from_slice(&(self.requester.number() << 8 | ds).to_be_bytes());
        // A CQE in any case.
        wqe[11] = 8;
        let address = self.memory.remote_address().to_be_bytes();
        wqe[16..24].copy_from_slice(&address);
        wqe[24..28].copy_from_slice(&rkey.to_be_bytes());
        wqe[32..36].copy_from_slice(&64u32.to_be_bytes());
        wqe[36..40].copy_from_slice(&self.memory.lkey().to_be_bytes());
        wqe[40..48].copy_from_slice(&address);
        let (rings, sends) = self.requester.rings();
        let slot = usize::from(self.posted % BLOCKS) * 64;
        // SAFETY: a block of the send ring, which lives as long as the queue pair and which only this
        // code writes. The device reads bytes.
        unsafe { rings.add(sends + slot).cast::<[u8; 64]>().write_volatile(wqe) };
        self.posted += 1;
    }

    /// Writes signaled WRITEs to the ring.
    fn write(&mut self, count: u16) {
        (0..count).for_each(|_| self.wqe(WRITE, self.memory.rkey()));
    }

    /// Writes signaled NOPs to the ring.
    fn nops(&mut self, count: u16) {
        (0..count).for_each(|_| self.wqe(NOP, 0));
    }

    /// Stores the send counter of the doorbell record.
    fn record(&self, counter: u16) {
        fence(Ordering::SeqCst);
        // SAFETY: the second word of a doorbell record of eight bytes, aligned to eight, which lives
        // as long as the queue pair.
        unsafe {
            let word = self.requester.record().cast::<u32>().add(1);
            word.write_volatile(u32::from(counter).to_be());
        }
        fence(Ordering::SeqCst);
    }

    /// Stores the counter behind the last WQE to the doorbell register.
    fn ring(&self, counter: u16) {
        let value = u64::from(counter) << 40 | u64::from(self.requester.number()) << 8;
        let register = self.requester.uar().register().cast::<u64>();
        fence(Ordering::SeqCst);
        // SAFETY: a register of the queue pair's UAR, which lives as long as the queue pair.
        unsafe { register.write_volatile(value.to_be()) };
    }

    /// Counts the CQEs so far with an opcode.
    fn count(&self, opcode: u8) -> u64 {
        let Some(first) = self.cqes.start() else { return 0 };
        let cqe = |slot: usize| {
            // SAFETY: a slot of the CQ's ring. The device may write meanwhile: the byte has any value,
            // and is checked below.
            unsafe { first.add(slot * 64 + 63).read_volatile() }
        };
        // In the first lap the device writes 0 as the owner; before, the opcode is none.
        let is_there = |end: &u8| end >> 4 != 0xf && end & 1 == 0;
        let found = (0..CQES).map(cqe).take_while(is_there);
        found.filter(|end| end >> 4 == opcode).count() as u64
    }

    fn successes(&self) -> u64 {
        self.count(0)
    }

    fn errors(&self) -> u64 {
        self.count(0xd)
    }

    fn is_in_error(&self) -> Verdict {
        self.wait("the queue pair fails", |queue| {
            Ok(qpc::STATE.get(&queue.requester.query_context()?) == ERROR)
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
