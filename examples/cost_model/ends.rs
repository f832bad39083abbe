//! A device, and queue pairs that are connected to each other: times by the device's clock.

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::{ConnectionData, LocalPort};
use mlx5::cqe::Completion;
use mlx5::expert::BlueFlameCopy;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{
    CqReader, Queues, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig, SendQueue,
};
use mlx5::verbs::attr::RtsAttributes;
use mlx5::verbs::{
    ClockReading, CompletionQueue, Context, DeviceClock, Init, MemoryRegion, ProtectionDomain,
    QueuePair, Rts,
};
use mlx5::wqe::{CompareSwap, FetchAdd, Inline, Nop, RdmaRead, RdmaWrite};
use mlx5::wqe::{Remote, SendMessage};

pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Bytes of the largest inline payload.
pub const INLINE: usize = 256;
/// Requests that are measured one by one.
const ROUNDS: usize = 9;
const TIMEOUT: Duration = Duration::from_secs(30);

/// Where the payload of a request is.
#[derive(Clone, Copy)]
pub enum Payload {
    /// In the WQE.
    Inline,
    /// In memory, which the device reads.
    Pointer,
}

#[derive(Clone, Copy)]
pub enum Operation {
    Nop,
    Write(Payload),
    Send(Payload),
    Read,
    CompareSwap,
    /// To the word at an offset in the peer's memory.
    FetchAdd(u64),
}

/// What queue pairs are to be like.
#[derive(Clone, Copy)]
pub struct Setup {
    /// Whether short WQEs are copied to the register (BlueFlame), or doorbells only ring.
    pub register: RegisterUse,
    /// READs and atomics under way at most, if fewer than the device can have.
    pub depth: Option<u8>,
    /// Requests that are outstanding at most.
    pub requests: u32,
    /// Bytes of each side's memory.
    pub memory: usize,
}

/// A device with its clock.
pub struct Device {
    pub context: Context,
    pub local: LocalPort,
    pub pd: ProtectionDomain,
    clock: DeviceClock,
    /// How to read counts of the clock, which CQEs have.
    pub reading: ClockReading,
}

impl Device {
    pub fn open() -> Result<Self> {
        let context = Context::open_first()?;
        let clock = DeviceClock::new(&context)?;
        let reading = clock.read().ok_or("the device's clock cannot be read")?;
        let local = LocalPort::new(&context, 1, None)?;
        let pd = ProtectionDomain::new(&context)?;
        Ok(Self { context, local, pd, clock, reading })
    }

    /// Returns the present time in nanoseconds.
    pub fn now(&self) -> Result<u64> {
        let count = self.clock.count().ok_or("the device's clock cannot be read by programs")?;
        Ok(self.reading.nanoseconds(count))
    }

    /// Returns how long work takes in nanoseconds, without the reading of the clock, and its result.
    pub fn time<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(f64, R)> {
        let (before, begun) = (self.now()?, self.now()?);
        let result = work()?;
        let ended = self.now()?;
        Ok(((ended - begun) as f64 - (begun - before) as f64, result))
    }

    /// Returns two queue pairs that are connected to each other.
    pub fn ends(&self, setup: Setup) -> Result<[End; 2]> {
        let (near, far) = (Half::new(self, setup)?, Half::new(self, setup)?);
        let near_data = self.local.connection_data(&near.qp);
        let far_data = self.local.connection_data(&far.qp);
        Ok([
            near.connect(self, setup, &near_data, &far_data)?,
            far.connect(self, setup, &far_data, &near_data)?,
        ])
    }
}

/// A queue pair that is not connected yet.
struct Half {
    qp: QueuePair<Rc, Init>,
    sends: CompletionQueue,
    arrivals: CqReader,
    receives: ReceiveQueue,
}

impl Half {
    fn new(device: &Device, setup: Setup) -> Result<Self> {
        let sends = CompletionQueue::new(&device.context, 128)?;
        let arrivals = CompletionQueue::new(&device.context, 64)?;
        let builder = QueuePair::builder(&device.pd, &sends).receive_cq(&arrivals);
        let builder = builder.max_recv_wr(32).max_inline_data(INLINE as u32);
        let builder = builder.max_send_wr(setup.requests);
        let qp: QueuePair<Rc, Init> = builder.build()?.init(&device.local.init())?;
        let mut arrivals = CqReader::new(&arrivals)?;
        let receives = ReceiveQueue::new(&qp, &mut arrivals, ReceiveConfig::default())?;
        Ok(Self { qp, sends, arrivals, receives })
    }

    fn connect(
        self,
        device: &Device,
        setup: Setup,
        mine: &ConnectionData,
        theirs: &ConnectionData,
    ) -> Result<End> {
        let rts = device.local.rts(mine, theirs);
        let max_rd_atomic = setup.depth.unwrap_or(rts.max_rd_atomic);
        let qp = self.qp.rtr(&device.local.rtr(mine, theirs))?;
        let qp: QueuePair<Rc, Rts> = qp.rts(&RtsAttributes { max_rd_atomic, ..rts })?;
        let mut completions = CqReader::new(&self.sends)?;
        let (register, copy) = (setup.register, BlueFlameCopy::detect());
        let config = SendConfig { register, copy, ..SendConfig::default() };
        let queue = SendQueue::new(&qp, &mut completions, config)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_ATOMIC;
        let memory = device.pd.allocate(setup.memory, access)?;
        let (arrivals, receives) = (self.arrivals, self.receives);
        Ok(End { reading: device.reading, completions, queue, arrivals, receives, memory })
    }
}

/// A queue pair with its queues and memory.
pub struct End {
    reading: ClockReading,
    completions: CqReader,
    queue: SendQueue,
    arrivals: CqReader,
    receives: ReceiveQueue,
    /// The queues are dropped first.
    memory: MemoryRegion,
}

impl End {
    /// Returns the memory as a peer names it.
    pub fn remote(&self) -> Result<Remote> {
        Ok(self.memory.remote(0)?)
    }

    /// Posts a receive. Messages come to the second half of the memory, and nobody reads them.
    pub fn receive(&mut self, bytes: usize) -> Result<()> {
        let into = self.memory.sge(self.memory.len() / 2, bytes)?;
        // SAFETY: the memory lives as long as the queue, no reference to it exists, and no request
        // reads it.
        unsafe { self.receives.post(0, into)? };
        Ok(())
    }

    /// Posts requests at once. The last one is signaled. One alone is copied to the register, if
    /// that is done.
    pub fn post(&mut self, operations: &[Operation], bytes: usize, peer: Remote) -> Result<()> {
        let (sge, zeros) = (self.memory.sge(0, bytes)?, [0; INLINE]);
        let old = self.memory.word(0)?;
        let mut batch = self.queue.batch();
        for (at, operation) in operations.iter().enumerate() {
            let last = at + 1 == operations.len();
            match *operation {
                Operation::Nop => batch.append(0, Nop::new().signaled_if(last))?,
                Operation::Write(Payload::Inline) => {
                    let write = RdmaWrite::new(Inline(&zeros[..bytes]), peer);
                    batch.append(0, write.signaled_if(last))?;
                }
                Operation::Write(Payload::Pointer) => {
                    batch.append(0, RdmaWrite::new(sge, peer).signaled_if(last))?;
                }
                Operation::Send(Payload::Inline) => {
                    let send = SendMessage::new(Inline(&zeros[..bytes]));
                    batch.append(0, send.signaled_if(last))?;
                }
                Operation::Send(Payload::Pointer) => {
                    batch.append(0, SendMessage::new(sge).signaled_if(last))?;
                }
                Operation::Read => batch.append(0, RdmaRead::new(sge, peer).signaled_if(last))?,
                Operation::CompareSwap => {
                    let swap = CompareSwap::new(old, peer, 0, 0);
                    batch.append(0, swap.signaled_if(last))?;
                }
                Operation::FetchAdd(offset) => {
                    let add = FetchAdd::new(old, peer.offset(offset), 1);
                    batch.append(0, add.signaled_if(last))?;
                }
            }
        }
        // SAFETY: the memory of both sides lives as long as the queue, or the peer is gone and the
        // device refuses its key. Nothing else accesses it meanwhile.
        unsafe { batch.ring() };
        Ok(())
    }

    /// Waits for the completion of a request. Returns when the device wrote it, in nanoseconds.
    pub fn completed(&mut self) -> Result<u64> {
        next(&mut self.completions, &mut self.queue, self.reading)
    }

    /// Waits for a message. Returns when the device wrote its completion, in nanoseconds.
    pub fn arrived(&mut self) -> Result<u64> {
        next(&mut self.arrivals, &mut self.receives, self.reading)
    }
}

/// Posts requests at once, and returns when the last one completed.
pub fn post_and_wait(
    [near, far]: &mut [End; 2],
    operations: &[Operation],
    bytes: usize,
) -> Result<u64> {
    let is_send = |operation: &&Operation| matches!(operation, Operation::Send(_));
    let sends = operations.iter().filter(is_send).count();
    for _ in 0..sends {
        far.receive(bytes)?;
    }
    near.post(operations, bytes, far.remote()?)?;
    let done = near.completed()?;
    for _ in 0..sends {
        far.arrived()?;
    }
    Ok(done)
}

/// Returns the median time, in nanoseconds, from one completion to that of the next requests, which
/// are posted when the first has been seen.
pub fn latency(ends: &mut [End; 2], operations: &[Operation], bytes: usize) -> Result<u64> {
    let mut times = Vec::new();
    let mut before = post_and_wait(ends, operations, bytes)?;
    for _ in 0..ROUNDS {
        let after = post_and_wait(ends, operations, bytes)?;
        times.push(after - before);
        before = after;
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

/// Waits for a completion, and returns when the device wrote it.
pub fn next(
    completions: &mut CqReader,
    queues: &mut impl Queues,
    reading: ClockReading,
) -> Result<u64> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match completions.poll_timed(queues)? {
            Some((Completion::Failed(failure), _)) => return Err(failure.into()),
            Some((_, Some(written))) => return Ok(reading.nanoseconds(written)),
            Some((other, None)) => return Err(format!("without a time: {other:?}").into()),
            None => {}
        }
        if Instant::now() > deadline {
            return Err(format!("no completion within {TIMEOUT:?}").into());
        }
        std::hint::spin_loop();
    }
}
