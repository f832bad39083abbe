//! Faults of requests, and what a device shows of each.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mlx5::diag::sysfs::PortCounters;
use mlx5::expert::RawWqe;
use mlx5::ib::{Access, Rc};
use mlx5::verbs::attr::{AckTimeout, LinkLayer, RnrTimer};
use mlx5::wqe::{RdmaRead, RdmaWrite, Remote, SendMessage, Sge};

use crate::bench::Bench;
use crate::cases::wqe;
use crate::message::{Rights, Shape};
use crate::side::{Base, Side};
use crate::verdict::{Verdict, holds};

/// A fault that a requester runs into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// An lkey of no region.
    LocalKey,
    /// A SEND from beyond the end of its region.
    LocalBounds,
    /// A READ into a region that the device may not write.
    ReadOnly,
    /// A request is outstanding when the program moves the queue pair to ERROR.
    OwnError,
    /// Four are: the second of them.
    FlushBehind,
    /// A WQE whose opcode is none.
    Opcode,
    /// A WRITE that neither the peer's queue pair nor its region allows.
    NoRight,
    /// A WRITE with an rkey of no region.
    RemoteKey,
    /// A WRITE beyond the end of the peer's region.
    RemoteBounds,
    /// A SEND to a peer without receives.
    NoReceive {
        /// The code of the responder's RNR NAK timer.
        code: u8,
        /// `rnr_retry` of the requester.
        retries: u8,
    },
    /// A WRITE to a peer in ERROR, which does not answer.
    DeadPeer {
        /// The code of the requester's time-out.
        code: u8,
        /// `retry_cnt` of the requester.
        retries: u8,
    },
}

/// What a fault showed.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// The CQE that reports it.
    pub cqe: [u8; 64],
    /// The time from the post to this CQE, or to the first of several.
    pub time: Duration,
    /// How far each counter of the port's transport moved.
    pub counters: BTreeMap<String, u64>,
}

/// Trials of a fault that takes no noticeable time.
const TRIALS: usize = 3;
/// The longest time that is not noticeable.
const SHORT: Duration = Duration::from_millis(20);

impl Fault {
    /// Returns the time that a device takes at most.
    pub fn takes(self, link: LinkLayer) -> Duration {
        let expected = match self {
            Self::NoReceive { code, retries } => RnrTimer::from_code(code)
                .map_or(Duration::ZERO, |timer| timer.device_wait() * u32::from(retries)),
            Self::DeadPeer { code, retries } => AckTimeout::from_code(code)
                .ok()
                .and_then(|timeout| timeout.dead_peer_after(retries, link))
                .unwrap_or(Duration::ZERO),
            _ => Duration::ZERO,
        };
        if expected <= SHORT { Duration::ZERO } else { expected * 3 / 2 }
    }

    /// Returns how often it is caused.
    pub fn trials(self) -> usize {
        // The link makes no difference between a noticeable time and none.
        if self.takes(LinkLayer::Ethernet).is_zero() { TRIALS } else { 1 }
    }

    /// Returns this side's queue pair, and the peer's.
    fn shapes(self) -> (Shape, Shape) {
        let (mut mine, mut theirs) = (Shape::default(), Shape::default());
        match self {
            Self::NoRight => {
                theirs.region = Rights { write: false, ..Rights::ALL };
                theirs.queue_pair = theirs.region;
            }
            Self::NoReceive { code, retries } => {
                mine.rnr_retries = retries;
                let wait = RnrTimer::from_code(code).map_or(Duration::ZERO, RnrTimer::duration);
                theirs.rnr_micros = wait.as_micros() as u32;
            }
            Self::DeadPeer { code, retries } => {
                mine.retries = retries;
                let wait = AckTimeout::from_code(code).ok().and_then(AckTimeout::duration);
                mine.timeout_micros = wait.unwrap_or_default().as_micros() as u32;
            }
            _ => {}
        }
        (mine, theirs)
    }

    /// Causes it on a connection of its own.
    pub fn cause(self, bench: &mut Bench<'_>) -> Verdict<Outcome> {
        let (mine, theirs) = self.shapes();
        let (mut side, door) = bench.rc_with(&mine, &theirs)?;
        let read_only = bench.base.pd.allocate(4096, Access::REMOTE_READ)?;
        let (sge, remote, end) = (side.sge(0, 64), door.remote(0), side.memory.len());
        if matches!(self, Self::DeadPeer { .. }) {
            bench.peer.fail()?;
        }
        let before = counters(&bench.base);
        let began = Instant::now();
        match self {
            Self::LocalKey => {
                let wrong = Sge { lkey: sge.lkey ^ 0x5500, ..sge };
                side.post(1, SendMessage::new(wrong).signaled())?;
            }
            Self::LocalBounds => {
                let beyond = Sge { length: 65, ..side.sge(end - 64, 64) };
                side.post(1, SendMessage::new(beyond).signaled())?;
            }
            Self::ReadOnly => {
                let into = read_only.source(0, 64)?;
                side.post(1, RdmaRead::new(into, remote).signaled())?;
            }
            Self::OwnError | Self::FlushBehind => {
                // The peer has no receives and is asked for ever.
                let requests = if self == Self::OwnError { 1 } else { 4 };
                for id in 0..requests {
                    side.post(id, SendMessage::new(sge))?;
                }
                side.fail()?;
            }
            Self::Opcode => {
                let bytes = wqe(0x3e, 0, &[]);
                // SAFETY: the bytes name no memory.
                side.post(1, unsafe { RawWqe::new(&bytes) }?)?;
            }
            Self::NoRight | Self::DeadPeer { .. } => {
                side.post(1, RdmaWrite::new(sge, remote).signaled())?;
            }
            Self::RemoteKey => {
                let wrong = Remote { rkey: remote.rkey ^ 0x5500, ..remote };
                side.post(1, RdmaWrite::new(sge, wrong).signaled())?;
            }
            Self::RemoteBounds => {
                let beyond = door.remote(door.length as usize - 63);
                side.post(1, RdmaWrite::new(sge, beyond).signaled())?;
            }
            Self::NoReceive { .. } => side.post(1, SendMessage::new(sge).signaled())?,
        }
        let mut cqe = first(&mut side)?;
        let time = began.elapsed();
        if self == Self::FlushBehind {
            let _ = side.next()?;
            cqe = first(&mut side)?;
        }
        let moved = |(name, after): (String, u64)| {
            let before = before.get(&name).copied().unwrap_or(0);
            (name, after.wrapping_sub(before))
        };
        let counters = counters(&bench.base).into_iter().map(moved).collect();
        Ok(Outcome { cqe, time, counters })
    }
}

/// Waits for the next CQE. Returns its bytes, and leaves it to the next poll.
fn first(side: &mut Side<Rc>) -> Verdict<[u8; 64]> {
    let patience = side.patience();
    let deadline = Instant::now() + patience;
    loop {
        if let Some(cqe) = side.completions.peek()? {
            return Ok(cqe.bytes());
        }
        holds(Instant::now() < deadline, format!("no completion within {patience:?}"))?;
        thread::yield_now();
    }
}

/// Reads the counters of the transport. The kernel repeats counts for some milliseconds, which have
/// to pass first.
fn counters(base: &Base) -> BTreeMap<String, u64> {
    let (device, port) = (base.context.sysfs_path(), base.local.init().port);
    let lifespan = device.join(format!("ports/{port}/hw_counters/lifespan"));
    let repeats = fs::read_to_string(lifespan).ok().and_then(|text| text.trim().parse().ok());
    // A kernel that repeats them for longer than that is told to by its administrator.
    if let Some(repeats @ 1..=1000) = repeats {
        thread::sleep(Duration::from_millis(repeats + 1));
    }
    PortCounters::read(&device, port).transport.into_iter().collect()
}
