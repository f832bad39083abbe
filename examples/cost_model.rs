//! What the ways to post a request cost, by the time stamps that the device writes into CQEs: BlueFlame
//! or doorbell, inline or by pointer, READ, WRITE or SEND, one doorbell for many requests, and
//! message sizes.
//!
//! Both sides in this process: `cargo run --example cost_model`
//!
//! On the software model the times mean something only with `MLX5_MODEL_TIME=virtual`: then they
//! are those of a documented model of costs, the same in every run.

use std::error::Error;
use std::time::{Duration, Instant, SystemTime};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{
    BlueFlameCopy, CqReader, Queues, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig,
    SendQueue,
};
use mlx5::verbs::{
    ClockReading, CompletionQueue, Context, DeviceClock, Init, MemoryRegion, ProtectionDomain,
    QueuePair, Rts,
};
use mlx5::wqe::{Inline, RdmaRead, RdmaWrite, Remote, SendMessage, Sge};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of the largest message.
const LARGEST: usize = 1 << 20;
/// Bytes of the largest inline payload.
const INLINE: usize = 256;
/// Requests that are measured one by one.
const ROUNDS: usize = 9;
/// Batches that are measured one by one.
const BATCHES: u32 = 4;
/// Requests of a batch that measures bandwidth.
const WINDOW: u32 = 8;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Result<()> {
    // 1. The device, and its clock: CQEs have counts of it.
    let context = Context::open_first()?;
    println!("{}", what_the_times_are(&context)?);
    let clock = DeviceClock::new(&context)?;
    let clock = clock.read().ok_or("the device's clock cannot be read")?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;

    // 2. Two queue pairs that post: one copies short WQEs to its register (BlueFlame), the other one
    //    only rings doorbells. Copies have to be wide for the model to tell them from doorbells.
    let mut copied = Lane::new(&pd, &local, clock, RegisterUse::Own)?;
    let mut rung = Lane::new(&pd, &local, clock, RegisterUse::Shared)?;

    // 3. One request at a time.
    println!("\nWRITE, one at a time, ns");
    println!(
        "{:>8}{:>18}{:>18}{:>18}{:>18}",
        "bytes", "BlueFlame inline", "pointer", "doorbell inline", "pointer"
    );
    for bytes in [8, 28, 64, 128, 256] {
        print!("{bytes:>8}");
        for lane in [&mut copied, &mut rung] {
            for payload in [Payload::Inline, Payload::Pointer] {
                print!("{:>18}", lane.latency(Operation::Write(payload), bytes)?);
            }
        }
        println!();
    }
    println!("\n8 bytes by pointer and BlueFlame, one at a time, ns");
    for operation in [Operation::Write(Payload::Pointer), Operation::Send, Operation::Read] {
        println!("{:>8}{:>18}", operation.name(), copied.latency(operation, 8)?);
    }

    // 4. Many requests behind one doorbell.
    println!("\nWRITE of 8 bytes inline, one doorbell for so many, millions a second");
    for requests in [1, 2, 4, 8, 16, 32, 64] {
        let time = rung.batches(requests, Payload::Inline, 8)?;
        let each = f64::from(BATCHES * requests) * 1e3 / time.as_nanos() as f64;
        println!("{requests:>8}{each:>18.3}");
    }

    // 5. Message sizes.
    println!("\nWRITE by pointer, {WINDOW} behind one doorbell, GB/s");
    for bytes in (6..=20).step_by(2).map(|log| 1 << log) {
        let time = rung.batches(WINDOW, Payload::Pointer, bytes)?;
        let rate = f64::from(BATCHES * WINDOW) * bytes as f64 / time.as_nanos() as f64;
        println!("{bytes:>8}{rate:>18.3}");
    }
    Ok(())
}

/// Returns a line that says what is measured.
fn what_the_times_are(context: &Context) -> Result<String> {
    let device = context.attributes()?;
    if device.board_id.as_deref() != Some("MLX5-MODEL") {
        return Ok(format!("{}, {}: times of this device", device.name, device.product()));
    }
    Ok(match std::env::var("MLX5_MODEL_TIME").as_deref() {
        Ok("virtual") => {
            "the software model with virtual time: times of its cost model, of no device"
        }
        _ => {
            "the software model: these times mean nothing; MLX5_MODEL_TIME=virtual shows its costs"
        }
    }
    .to_owned())
}

/// Where the payload of a request is.
#[derive(Clone, Copy)]
enum Payload {
    /// In the WQE.
    Inline,
    /// In memory, which the device reads.
    Pointer,
}

#[derive(Clone, Copy)]
enum Operation {
    Write(Payload),
    Send,
    Read,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Write(_) => "WRITE",
            Self::Send => "SEND",
            Self::Read => "READ",
        }
    }
}

/// A queue pair that posts, and its peer.
struct Lane {
    clock: ClockReading,
    completions: CqReader,
    queue: SendQueue,
    arrivals: CqReader,
    receives: ReceiveQueue,
    /// This side's memory, and the peer's. The queues are dropped first.
    own: MemoryRegion,
    remote: MemoryRegion,
}

impl Lane {
    fn new(
        pd: &ProtectionDomain,
        local: &LocalPort,
        clock: ClockReading,
        register: RegisterUse,
    ) -> Result<Self> {
        let cqs =
            [CompletionQueue::new(pd.context(), 128)?, CompletionQueue::new(pd.context(), 16)?];
        let queue_pair = |cq: &CompletionQueue| -> Result<QueuePair<Rc, Init>> {
            let builder = QueuePair::builder(pd, cq).max_send_wr(512).max_recv_wr(4);
            Ok(builder.max_inline_data(INLINE as u32).build()?.init(&local.init())?)
        };
        let (qp, peer) = (queue_pair(&cqs[0])?, queue_pair(&cqs[1])?);
        let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
        let mut arrivals = CqReader::new(&cqs[1])?;
        let receives = ReceiveQueue::new(&peer, &mut arrivals, ReceiveConfig::default())?;
        let qp: QueuePair<Rc, Rts> =
            qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
        peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
        let mut completions = CqReader::new(&cqs[0])?;
        let config =
            SendConfig { register, copy: BlueFlameCopy::detect(), ..SendConfig::default() };
        let queue = SendQueue::new(&qp, &mut completions, config)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (own, remote) = (pd.allocate(LARGEST, access)?, pd.allocate(LARGEST, access)?);
        Ok(Self { clock, completions, queue, arrivals, receives, own, remote })
    }

    fn sge(&self, bytes: usize) -> Sge {
        Sge::new(self.own.address(), bytes as u32, self.own.lkey())
    }

    fn peer(&self) -> Remote {
        Remote::new(self.remote.remote_address(), self.remote.rkey())
    }

    /// Returns the median time from the completion of one request to that of the next, which is
    /// posted when the first has completed.
    fn latency(&mut self, operation: Operation, bytes: usize) -> Result<u128> {
        let mut times = Vec::new();
        let mut before = self.one(operation, bytes)?;
        for _ in 0..ROUNDS {
            let after = self.one(operation, bytes)?;
            times.push(after.duration_since(before)?.as_nanos());
            before = after;
        }
        times.sort_unstable();
        Ok(times[ROUNDS / 2])
    }

    /// Posts a request, and returns when it completed.
    fn one(&mut self, operation: Operation, bytes: usize) -> Result<SystemTime> {
        let (sge, peer, zeros) = (self.sge(bytes), self.peer(), [0; INLINE]);
        if let Operation::Send = operation {
            let into = Sge::new(self.remote.address(), bytes as u32, self.remote.lkey());
            // SAFETY: the peer's memory lives as long as its queue, and no reference to it exists.
            unsafe { self.receives.post(0, into)? };
        }
        // SAFETY: both regions live as long as the queue, and nothing else accesses them meanwhile.
        unsafe {
            match operation {
                Operation::Write(Payload::Inline) => {
                    self.queue.post(0, RdmaWrite::new(Inline(&zeros[..bytes]), peer).signaled())?;
                }
                Operation::Write(Payload::Pointer) => {
                    self.queue.post(0, RdmaWrite::new(sge, peer).signaled())?;
                }
                Operation::Send => self.queue.post(0, SendMessage::new(sge).signaled())?,
                Operation::Read => self.queue.post(0, RdmaRead::new(sge, peer).signaled())?,
            }
        }
        let done = next(&mut self.completions, &mut self.queue, self.clock)?;
        if let Operation::Send = operation {
            next(&mut self.arrivals, &mut self.receives, self.clock)?;
        }
        Ok(done)
    }

    /// Posts batches of WRITEs, each when the one before has completed, and returns the time of
    /// [`BATCHES`].
    fn batches(&mut self, requests: u32, payload: Payload, bytes: usize) -> Result<Duration> {
        let begun = self.batch(requests, payload, bytes)?;
        let mut ended = begun;
        for _ in 0..BATCHES {
            ended = self.batch(requests, payload, bytes)?;
        }
        Ok(ended.duration_since(begun)?)
    }

    fn batch(&mut self, requests: u32, payload: Payload, bytes: usize) -> Result<SystemTime> {
        let (sge, peer, zeros) = (self.sge(bytes), self.peer(), [0; INLINE]);
        let mut batch = self.queue.batch();
        for request in 1..=requests {
            let last = request == requests;
            match payload {
                Payload::Inline => {
                    let write = RdmaWrite::new(Inline(&zeros[..bytes]), peer);
                    batch.append(0, write.signaled_if(last))?;
                }
                Payload::Pointer => {
                    batch.append(0, RdmaWrite::new(sge, peer).signaled_if(last))?;
                }
            }
        }
        // SAFETY: both regions live as long as the queue, and nothing else accesses them meanwhile.
        unsafe { batch.ring() };
        next(&mut self.completions, &mut self.queue, self.clock)
    }
}

/// Waits for a completion, and returns when the device wrote it.
fn next(
    completions: &mut CqReader,
    queues: &mut impl Queues,
    clock: ClockReading,
) -> Result<SystemTime> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(written) = completions.peek()?.map(|next| clock.time(next.timestamp())) {
            return match completions.poll(queues)? {
                Some(Completion::Failed(failure)) => Err(failure.into()),
                Some(_) => Ok(written),
                None => Err("a completion has gone".into()),
            };
        }
        if Instant::now() > deadline {
            return Err(format!("no completion within {TIMEOUT:?}").into());
        }
        std::hint::spin_loop();
    }
}
