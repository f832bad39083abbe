//! Times of completions, by the device's clocks.

use std::time::{Duration, Instant, SystemTime};

use mlx5::Error;
use mlx5::cqe::{Completion, RealTime, ReceiveKind, SendOperation, Timestamp, TimestampFormat};
use mlx5::devx::{SendTimes, Sq, Tis, TransportDomain};
use mlx5::expert::Makes;
use mlx5::ib::Transport;
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{DeviceClock, PtpClock, PtpOffset};
use mlx5::wqe::{EthSend, Inline, Nop, PostOn, RdmaWrite, SendMessage};

use super::{ethernet, uc, ud};
use crate::bench::Bench;
use crate::case::{Case, Need};
use crate::message::{Arrived, Shape};
use crate::side::{Side, until};
use crate::verdict::{Verdict, failed, holds, lacking, same};

pub(crate) const CASES: &[Case] = &[
    Case::new("times.reliable", "A WRITE completes between two readings of the clock.", reliable),
    Case::new("times.receive", "So does the receive of a message.", receive),
    Case::new("times.unreliable", "So does a SEND of an unreliable connection.", unreliable),
    Case::new("times.datagram", "So does a datagram.", datagram),
    Case::new("times.packet", "So does an Ethernet packet.", packet).needs(ethernet::NEEDS),
    Case::new("times.wait", "A packet behind a wait leaves at its time, and not before.", wait)
        .needs(&[Need::Ethernet, Need::Commands]),
    Case::new(
        "times.real",
        "Two completions in real-time format are as far apart as by the system's clock, and agree with \
         the PTP clock where there is one.",
        real,
    )
    .needs(&[Need::Ethernet, Need::Commands]),
];

/// How often each is done.
const ROUNDS: u64 = 10;

/// The device's free-running clock.
struct Clock(DeviceClock);

impl Clock {
    fn new(bench: &Bench<'_>) -> Verdict<Clock> {
        let clock = DeviceClock::new(&bench.base.context);
        clock.map(Clock).map_err(|error| lacking(format!("the clock cannot be read: {error}")))
    }

    fn count(&self) -> Verdict<Timestamp> {
        self.0.count().ok_or_else(|| failed("the clock cannot be read"))
    }

    /// Checks that a time is one since `before`.
    fn since(&self, before: Timestamp, time: Option<Timestamp>) -> Verdict {
        let after = self.count()?;
        let within = time.is_some_and(|time| before <= time && time <= after);
        holds(within, format!("CQE at {time:?}, posted at {before:?}, seen at {after:?}"))
    }
}

/// Posts requests one by one, and compares the time of each with readings of the clock.
fn sent<T: Transport, B: Makes<T>, O: PostOn<T>>(
    bench: &Bench<'_>,
    side: &mut Side<T, B>,
    operation: SendOperation,
    request: impl Fn() -> O,
) -> Verdict
where
    Nop: PostOn<T>,
{
    let clock = Clock::new(bench)?;
    for id in 0..ROUNDS {
        let before = clock.count()?;
        side.post(id, request())?;
        match side.next_timed()? {
            (Completion::Send(done), time) => {
                same("completed request", (done.id, done.operation), (id, operation))?;
                clock.since(before, time)?;
            }
            (Completion::Failed(failure), _) => return Err(failed(failure)),
            (other, _) => return Err(failed(format!("instead of request {id}: {other:?}"))),
        }
    }
    Ok(())
}

fn reliable(bench: &mut Bench) -> Verdict {
    let (mut side, door) = bench.rc(&Shape::default())?;
    let write = || RdmaWrite::new(Inline(b"now"), door.remote(0)).signaled();
    sent(bench, &mut side, SendOperation::Write, write)?;
    bench.peer.has(0, b"now")
}

fn receive(bench: &mut Bench) -> Verdict {
    let (mut side, _) = bench.rc(&Shape::default())?;
    let clock = Clock::new(bench)?;
    for id in 0..ROUNDS {
        let before = clock.count()?;
        side.receive.post(id, side.memory.sge(0, 64)?)?;
        bench.peer.send(1, 0, 16)?;
        match side.next_timed()? {
            (Completion::Receive(done), time) => {
                same("receive", (done.id, done.kind), (id, ReceiveKind::Send))?;
                clock.since(before, time)?;
            }
            (Completion::Failed(failure), _) => return Err(failed(failure)),
            (other, _) => return Err(failed(format!("instead of receive {id}: {other:?}"))),
        }
        bench.peer.sent(1)?;
    }
    Ok(())
}

fn unreliable(bench: &mut Bench) -> Verdict {
    let (mut side, _) = uc::connect(bench)?;
    for id in 0..ROUNDS {
        bench.peer.receive(id, 0, 64)?;
    }
    sent(bench, &mut side, SendOperation::Send, || SendMessage::new(Inline(b"now")).signaled())?;
    bench.peer.received(0, Arrived::Send, 3).map(|_| ())
}

fn datagram(bench: &mut Bench) -> Verdict {
    let (mut side, to) = ud::open(bench)?;
    for id in 0..ROUNDS {
        bench.peer.receive(id, 0, 64)?;
    }
    let send = || SendMessage::new(Inline(b"now")).signaled().to(&to);
    sent(bench, &mut side, SendOperation::Send, send)?;
    bench.peer.received(0, Arrived::Send, ud::HEADER + 3).map(|_| ())
}

fn packet(bench: &mut Bench) -> Verdict {
    let mut line = ethernet::connect(bench)?;
    for id in 0..ROUNDS {
        bench.peer.receive(id, 2000 * id as u32, 2000)?;
    }
    let bytes = line.udp(b"at what time?");
    let send = || EthSend::new(Inline(&bytes)).signaled();
    sent(bench, &mut line.side, SendOperation::Send, send)?;
    ethernet::arrives(bench, 0, bytes.len()).map(|_| ())
}

fn wait(bench: &mut Bench) -> Verdict {
    let mut line = ethernet::connect(bench)?;
    let clock = Clock::new(bench)?;
    let times = SendTimes::free_running(&bench.base.context)
        .map_err(|error| lacking(format!("no queue waits for a time: {error}")))?;
    let reading = clock.0.read().ok_or_else(|| lacking("the clock's page cannot be read"))?;
    bench.peer.receive(0, 0, 2000)?;
    let bytes = line.udp(b"not before");
    let later = reading.after(clock.count()?, Duration::from_millis(50));
    line.side.post(1, times.until(later))?;
    line.side.post(2, EthSend::new(Inline(&bytes)).signaled())?;
    match line.side.next_timed()? {
        (Completion::Send(done), time) => {
            same("completed request", done.id, 2)?;
            let waited = time.is_some_and(|time| later <= time);
            holds(waited, format!("the packet was sent at {time:?}, and not from {later:?} on"))?;
        }
        (Completion::Failed(failure), _) => return Err(failed(failure)),
        (other, _) => return Err(failed(format!("instead of the packet: {other:?}"))),
    }
    ethernet::arrives(bench, 0, bytes.len()).map(|_| ())
}

/// A time by the device's PTP clock, and readings of the system's clocks before and after.
struct Moment {
    before: Instant,
    day: SystemTime,
    real: RealTime,
    after: Instant,
}

impl Moment {
    /// The moment of a NOP's completion.
    fn of(
        bench: &Bench<'_>,
        reader: &mut CqReader,
        send: &mut SendQueue<mlx5::ib::RawPacket>,
        id: u64,
    ) -> Verdict<Moment> {
        let (before, day) = (Instant::now(), SystemTime::now());
        // SAFETY: a NOP names no memory.
        unsafe { send.post(id, Nop::new().signaled())? };
        let terms = bench.base.terms;
        let (completion, time) = until(terms.patience, || reader.poll_timed(send))?;
        let after = Instant::now();
        match terms.seen(completion) {
            Completion::Send(done) => same("completed request", done.id, id)?,
            other => return Err(failed(format!("instead of a NOP: {other:?}"))),
        }
        let real = time.and_then(Timestamp::real_time);
        let real = real.ok_or_else(|| failed(format!("{time:?} has too many nanoseconds")))?;
        Ok(Moment { before, day, real, after })
    }

    /// Checks that the offset of the PTP clock to the system's tells when it was, as far as the clocks
    /// are in step.
    fn agrees_with(&self, offset: &PtpOffset) -> Verdict {
        let most = self.after - self.before + DRIFT;
        let (earliest, latest) = (self.day - DRIFT, self.day + most);
        let told = offset.system_time(self.real);
        holds(
            earliest <= told && told <= latest,
            format!("{:?} is {told:?} by {offset:?}, and was {:?} or later", self.real, self.day),
        )
    }
}

/// A clock that follows another one may run this much faster or slower within a case.
const DRIFT: Duration = Duration::from_micros(500);

fn real(bench: &mut Bench) -> Verdict {
    let base = &bench.base;
    let tis = Tis::new(&TransportDomain::new(&base.context)?)?;
    let cq = base.cq(&Shape::default())?;
    let sq = Sq::builder(&base.pd, &tis, &cq).timestamps(TimestampFormat::RealTime).build();
    let sq = sq.map_err(|error| lacking(format!("no queue with real times: {error}")))?;
    let mut reader = CqReader::new(&cq)?;
    let mut send = SendQueue::new(&sq, &mut reader, SendConfig::default())?;
    let first = Moment::of(bench, &mut reader, &mut send, 1)?;
    std::thread::sleep(Duration::from_millis(50));
    let second = Moment::of(bench, &mut reader, &mut send, 2)?;
    let [earlier, later] = [&first, &second].map(|moment| moment.real.since_epoch());
    let apart = later.checked_sub(earlier);
    let apart = apart.ok_or_else(|| failed("the second completion has the earlier time"))?;
    let least = (second.before - first.after).saturating_sub(DRIFT);
    let most = second.after - first.before + DRIFT;
    holds(
        (least..=most).contains(&apart),
        format!("{apart:?} apart by the device, {least:?} to {most:?} by the system"),
    )?;
    match PtpClock::new(&base.context) {
        Ok(clock) => second.agrees_with(&clock.measure()?),
        // The model has none inside a process, and containers may have none.
        Err(Error::Attribute { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
