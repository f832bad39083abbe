//! What others measured on devices, each with the work that takes that time or has that rate in the
//! software model. The sources are in `evidence/`, by the names of the facts.

use mlx5::expert::BlueFlameCopy;
use mlx5::ib::{Access, RawPacket, Rc, Ud};
use mlx5::ring::{
    CqReader, PacketEvent, PacketRq, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig,
    SendQueue,
};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Flow, MemoryRegion, QueuePair, QueuePairBuilder, Reset, Rts,
};
use mlx5::wqe::{EthSend, Inline, SendMessage, UdAddress};

use super::ends::{
    Device, End, INLINE, Operation, Payload, Result, Setup, latency, next, post_and_wait,
};

/// A generation of devices on a link.
pub struct Machine {
    /// The value of `MLX5_MODEL_PROFILE`.
    pub profile: &'static str,
    /// The value of `MLX5_MODEL_LINK`.
    pub link: &'static str,
    pub rows: &'static [Row],
}

/// A measured value, and the work that it is compared with.
pub struct Row {
    pub fact: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    /// From and to.
    pub measured: (f64, f64),
    /// Runs the work on the device.
    pub model: fn(&Device) -> Result<f64>,
    /// How far the model may be off, in percent, and the reason for more than [`NEAR`].
    pub within: (f64, &'static str),
}

/// A residual up to this many percent counts as agreement.
pub const NEAR: f64 = 10.0;

impl Row {
    /// Returns by how many percent a value is off: 0 within the measured range, otherwise from the
    /// nearer end.
    pub fn residual(&self, value: f64) -> f64 {
        let nearest = value.clamp(self.measured.0, self.measured.1);
        (value - nearest) / nearest * 100.0
    }

    /// Returns the measured value as text.
    pub fn measured(&self) -> String {
        match self.measured {
            (from, to) if from == to => number(from),
            (0.0, to) => format!("up to {}", number(to)),
            (from, to) => format!("{} to {}", number(from), number(to)),
        }
    }
}

/// Returns a number with three or four digits that count.
pub fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

const fn row(
    fact: &'static str,
    what: &'static str,
    unit: &'static str,
    measured: (f64, f64),
    model: fn(&Device) -> Result<f64>,
) -> Row {
    Row { fact, what, unit, measured, model, within: (NEAR, "") }
}

/// Allows a row to be farther off, for a reason.
const fn off(row: Row, percent: f64, why: &'static str) -> Row {
    Row { within: (percent, why), ..row }
}

const fn exactly(value: f64) -> (f64, f64) {
    (value, value)
}

const WRITE: Operation = Operation::Write(Payload::Inline);
const COPIED: RegisterUse = RegisterUse::Own;
const RUNG: RegisterUse = RegisterUse::Shared;
/// The longest payload that perftest and UCX put into a WQE (F179).
const SHORT: usize = 187;

const OF_LIBRARIES: &str = "a program's own instructions cost no time";
const TWO_PROGRAMS: &str =
    "two programs on the same device: the profile has the rates of the other";

/// All rows, by generation and link.
pub const MACHINES: &[Machine] = &[
    Machine { profile: "cx5", link: "infiniband", rows: CX5 },
    Machine { profile: "cx5", link: "roce", rows: CX5_ROCE },
    Machine { profile: "cx6", link: "infiniband", rows: CX6 },
    Machine { profile: "cx6", link: "roce", rows: CX6_ROCE },
    Machine { profile: "cx6dx", link: "roce", rows: CX6_DX },
    Machine { profile: "cx7", link: "infiniband", rows: CX7 },
];

const CX5: &[Row] = &[
    row("E160", "WRITE of 64 B, BlueFlame, inline", "us", exactly(1.6), |device| {
        microseconds(device, COPIED, &[WRITE], 64)
    }),
    row("E160", "READ of 64 B, BlueFlame", "us", exactly(1.8), |device| {
        microseconds(device, COPIED, &[Operation::Read], 64)
    }),
    row("E160, E170", "compare-and-swap, BlueFlame", "us", exactly(1.8), |device| {
        microseconds(device, COPIED, &[Operation::CompareSwap], 8)
    }),
    row("E161", "WRITE of 8 B, BlueFlame, inline", "us", exactly(1.3), |device| {
        microseconds(device, COPIED, &[WRITE], 8)
    }),
    row("E161", "WRITE, and a READ behind it", "us", exactly(2.5), |device| {
        microseconds(device, RUNG, &[WRITE, Operation::Read], 8)
    }),
    row("E162", "NOP, doorbell", "us", exactly(1.21), |device| {
        microseconds(device, RUNG, &[Operation::Nop], 0)
    }),
    row("E162", "each further NOP of a doorbell", "us", exactly(0.17), |device| {
        let one = microseconds(device, RUNG, &[Operation::Nop], 0)?;
        Ok((microseconds(device, RUNG, &[Operation::Nop; 17], 0)? - one) / 16.0)
    }),
    row("E183", "READ of 8 B; measured through a switch", "us", exactly(2.0), |device| {
        microseconds(device, COPIED, &[Operation::Read], 8)
    }),
    row("E187", "a pointer instead of 8 B inline", "us", exactly(0.52), |device| {
        let pointer = Operation::Write(Payload::Pointer);
        let inline = microseconds(device, COPIED, &[WRITE], 8)?;
        Ok(microseconds(device, COPIED, &[pointer], 8)? - inline)
    }),
    row("E166, E167", "WRITE of 8 B, 24 queue pairs", "M/s", exactly(63.0), |device| {
        rate(device, 24, FEW, |_, _| WRITE)
    }),
    row("E167", "READ of 8 B, 24 queue pairs", "M/s", exactly(65.0), |device| {
        rate(device, 24, FEW, |_, _| Operation::Read)
    }),
    row("E167", "fetch-and-add, 24 queue pairs", "M/s", exactly(8.4), apart),
    row("E168", "READ of 8 B, 24 queue pairs", "M/s", exactly(60.0), |device| {
        rate(device, 24, FEW, |_, _| Operation::Read)
    }),
    off(
        row("E168", "fetch-and-add, 24 queue pairs", "M/s", exactly(5.2), apart),
        65.0,
        TWO_PROGRAMS,
    ),
    off(
        row("E168", "WRITE of 8 B, 24 queue pairs", "M/s", exactly(90.0), |device| {
            rate(device, 24, FEW, |_, _| WRITE)
        }),
        35.0,
        TWO_PROGRAMS,
    ),
    row("E169", "fetch-and-add at one address", "M/s", exactly(2.24), |device| {
        rate(device, 1, FEW, |_, _| Operation::FetchAdd(0))
    }),
    row("E169", "the same at two, lower 12 bits equal", "M/s", exactly(2.24), |device| {
        rate(device, 1, FEW, |_, request| Operation::FetchAdd(request % 2 * 4096))
    }),
    off(
        row("E169", "fetch-and-add at 384 addresses", "M/s", exactly(52.0), apart),
        85.0,
        "measured on Connect-IB; ConnectX-5 begins 8.4 million atomics a second (E167)",
    ),
    row("E174", "WRITE of 8 B, one queue pair", "M/s", exactly(20.0), |device| {
        rate(device, 1, MANY, |_, _| WRITE)
    }),
    row("E174", "WRITE by pointer, 24 queue pairs", "M/s", exactly(60.6), |device| {
        rate(device, 24, FEW, |_, _| Operation::Write(Payload::Pointer))
    }),
    row("E173", "two queue pairs against one", "times", exactly(2.0), |device| {
        Ok(rate(device, 2, MANY, |_, _| WRITE)? / rate(device, 1, MANY, |_, _| WRITE)?)
    }),
    row("E173", "three queue pairs against one", "times", (2.0, 3.2), |device| {
        Ok(rate(device, 3, MANY, |_, _| WRITE)? / rate(device, 1, MANY, |_, _| WRITE)?)
    }),
    row("E175", "posts of one line against two", "times", exactly(2.0), |device| {
        Ok(posting(device, 64)? / posting(device, 8)?)
    }),
    row("F159", "SEND of 32 B, half round trip", "us", (0.81, 0.83), |device| sends(device, 32)),
    row("F159", "SEND of 1 KiB, half round trip", "us", (1.52, 1.61), |device| sends(device, 1024)),
    row("F159", "SEND of 4 KiB, half round trip", "us", (2.25, 2.28), |device| sends(device, 4096)),
    row("F159", "SEND of 32 KiB, half round trip", "us", exactly(4.56), |device| {
        sends(device, 32 << 10)
    }),
    row("F160", "UD SEND of 32 B, half round trip", "us", exactly(0.86), |device| {
        datagrams(device, 32)
    }),
    off(
        row("F160", "UD SEND of 1 KiB, half round trip", "us", exactly(1.44), |device| {
            datagrams(device, 1024)
        }),
        25.0,
        "a datagram with a pointer has two lines, and each line costs a whole copy",
    ),
    row("F160", "UD SEND of 4 KiB, half round trip", "us", exactly(2.22), |device| {
        datagrams(device, 4096)
    }),
];

const CX5_ROCE: &[Row] =
    &[row("F157", "packet of 60 B, half round trip", "us", exactly(0.816), packets)];

const CX6: &[Row] = &[
    row("E166", "WRITE of 8 B, 24 queue pairs", "M/s", exactly(112.0), |device| {
        rate(device, 24, FEW, |_, _| WRITE)
    }),
    off(
        row("F176", "SEND of 4 KiB, round trip of rc_pingpong", "us", (5.56, 5.78), |device| {
            Ok(2.0 * sends(device, 4096)?)
        }),
        45.0,
        OF_LIBRARIES,
    ),
    row("F177", "WRITE of 8 B, limit of a test", "us", (0.0, 2.5), |device| {
        microseconds(device, COPIED, &[WRITE], 8)
    }),
    row("F177", "READ of 8 B, limit of a test", "us", (0.0, 4.5), |device| {
        microseconds(device, COPIED, &[Operation::Read], 8)
    }),
];

const CX6_ROCE: &[Row] = &[
    row("E133", "ERROR to RESET", "us", exactly(1695.0), |device| Ok(steps(device)?.reset)),
    row("E134", "RESET to INIT", "us", exactly(431.0), |device| Ok(steps(device)?.init)),
    row("E135", "INIT to RTR", "us", exactly(371.0), |device| Ok(steps(device)?.rtr)),
    row("E136", "RTR to RTS", "us", exactly(222.0), |device| Ok(steps(device)?.rts)),
    row("E137", "RTS to ERROR", "us", exactly(217.0), |device| Ok(steps(device)?.error)),
    row("E138", "query of a queue pair", "us", (57.8, 83.5), |device| Ok(steps(device)?.query)),
    row("E139", "deregistration of 8 MiB", "us", (130.0, 260.0), |device| {
        Ok(registration(device, 8 << 20)?.1)
    }),
    row("E140", "destruction of a queue pair by verbs", "us", (550.0, 600.0), |device| {
        Ok(steps(device)?.destroy)
    }),
    off(
        row("E141", "ERROR to RTS", "us", (770.0, 810.0), |device| {
            let steps = steps(device)?;
            Ok(steps.reset + steps.init + steps.rtr + steps.rts)
        }),
        260.0,
        "firmware 20.43 is faster than 20.40, on which the single steps were measured",
    ),
    row("E142", "queue pair destroyed, created and connected", "us", exactly(1800.0), |device| {
        let steps = steps(device)?;
        Ok(steps.destroy + steps.create + steps.init + steps.rtr + steps.rts)
    }),
    row("E145", "WRITE beside one to a peer that is gone", "times", exactly(0.975), beside_silence),
    off(
        row("E184", "WRITE of 64 B, program not tuned", "us", (3.1, 4.7), |device| {
            microseconds(device, COPIED, &[WRITE], 64)
        }),
        60.0,
        OF_LIBRARIES,
    ),
    row("F172", "registration of 1 GB", "ms", exactly(98.0), |device| {
        Ok(registration(device, 1_000_000_000)?.0 / 1e3)
    }),
    row("F172", "deregistration of 1 GB", "ms", exactly(23.5), |device| {
        Ok(registration(device, 1_000_000_000)?.1 / 1e3)
    }),
    row("F173", "registration and deregistration of 8 KiB", "us", exactly(54.54), |device| {
        let (made, gone) = registration(device, 8 << 10)?;
        Ok(made + gone)
    }),
];

const CX6_DX: &[Row] = &[off(
    row("F175", "SEND of 4 KiB, round trip of rc_pingpong", "us", exactly(7.55), |device| {
        Ok(2.0 * sends(device, 4096)?)
    }),
    60.0,
    OF_LIBRARIES,
)];

const CX7: &[Row] = &[
    row("F161", "WRITE of 8 B, BlueFlame, inline", "us", exactly(1.43), |device| {
        microseconds(device, COPIED, &[WRITE], 8)
    }),
    row("F165", "WRITE of 64 KiB", "GB/s", exactly(48.6), |device| {
        let write = Operation::Write(Payload::Pointer);
        bandwidth(device, write, 64 << 10, None)
    }),
    row("E186", "READ of 8 KiB, 16 under way against 1", "times", exactly(10.0), |device| {
        let of = |depth| bandwidth(device, Operation::Read, 8 << 10, Some(depth));
        Ok(of(16)? / of(1)?)
    }),
];

/// Bytes of each side's memory.
const MEMORY: usize = 64 << 10;

fn setup(register: RegisterUse) -> Setup {
    Setup { register, depth: None, requests: 64, memory: MEMORY }
}

/// Returns the time of requests that are posted at once.
fn microseconds(
    device: &Device,
    register: RegisterUse,
    operations: &[Operation],
    bytes: usize,
) -> Result<f64> {
    let mut ends = device.ends(setup(register))?;
    Ok(latency(&mut ends, operations, bytes)? as f64 / 1e3)
}

/// Requests of a queue pair in the shorter of two bursts, where many queue pairs post. Twice as many
/// READs may be under way.
const FEW: u64 = 8;
/// The same, where few queue pairs post.
const MANY: u64 = 32;

/// Returns the rate of requests of `count` queue pairs at once in millions a second, by the time that
/// twice as many take longer. `operation` gets the numbers of queue pair and request.
fn rate(
    device: &Device,
    count: u64,
    few: u64,
    operation: fn(u64, u64) -> Operation,
) -> Result<f64> {
    // Small ones, since a program may lock few bytes.
    let small = Setup { requests: 2 * few as u32, memory: 8 << 10, ..setup(RUNG) };
    let pairs = (0..count).map(|_| device.ends(small));
    let mut pairs = pairs.collect::<Result<Vec<_>>>()?;
    let short = burst(device, &mut pairs, few, 8, operation)?;
    let long = burst(device, &mut pairs, 2 * few, 8, operation)?;
    Ok((few * count) as f64 * 1e3 / (long - short))
}

/// Atomics at words of which no two are at one place.
fn apart(device: &Device) -> Result<f64> {
    rate(device, 24, FEW, |pair, request| Operation::FetchAdd(pair * 128 + request * 8))
}

/// Returns the bandwidth of a queue pair in gigabytes a second.
fn bandwidth(
    device: &Device,
    operation: Operation,
    bytes: usize,
    depth: Option<u8>,
) -> Result<f64> {
    let mut pairs = [device.ends(Setup { depth, ..setup(RUNG) })?];
    let short = burst(device, &mut pairs, FEW, bytes, |_, _| operation)?;
    let long = burst(device, &mut pairs, 2 * FEW, bytes, |_, _| operation)?;
    Ok((FEW as usize * bytes) as f64 / (long - short))
}

/// Rings one doorbell for each queue pair. Returns the time until all requests are complete, in
/// nanoseconds.
fn burst(
    device: &Device,
    pairs: &mut [[End; 2]],
    requests: u64,
    bytes: usize,
    operation: impl Fn(u64, u64) -> Operation,
) -> Result<f64> {
    let begun = device.now()?;
    for (pair, [near, far]) in pairs.iter_mut().enumerate() {
        let operations = (0..requests).map(|request| operation(pair as u64, request));
        near.post(&operations.collect::<Vec<_>>(), bytes, far.remote()?)?;
    }
    let mut ended = begun;
    for [near, _] in pairs {
        ended = ended.max(near.completed()?);
    }
    Ok((ended - begun) as f64)
}

/// Returns the program's time for posts of WRITEs, one by one.
fn posting(device: &Device, bytes: usize) -> Result<f64> {
    let [mut near, far] = device.ends(setup(COPIED))?;
    let remote = far.remote()?;
    let post = || (0..FEW).try_for_each(|_| near.post(&[WRITE], bytes, remote));
    Ok(device.time(post)?.0)
}

/// Round trips that are measured.
const TRIPS: u64 = 8;

/// Returns half of the time, in microseconds, between two arrivals at side 0, where each side answers
/// when it has seen the other one's message. `shoot` sends from a side, and returns when that has
/// arrived at the other.
fn half_round_trip(mut shoot: impl FnMut(usize) -> Result<u64>) -> Result<f64> {
    shoot(0)?;
    let begun = shoot(1)?;
    let mut ended = begun;
    for _ in 0..TRIPS {
        shoot(0)?;
        ended = shoot(1)?;
    }
    Ok((ended - begun) as f64 / (2 * TRIPS) as f64 / 1e3)
}

fn sends(device: &Device, bytes: usize) -> Result<f64> {
    let mut ends = device.ends(setup(COPIED))?;
    // So many that no side has to wait for the peer's credit.
    for end in &mut ends {
        (0..2 * TRIPS).try_for_each(|_| end.receive(bytes))?;
    }
    let payload = if bytes <= SHORT { Payload::Inline } else { Payload::Pointer };
    half_round_trip(|from| {
        let to = 1 - from;
        let remote = ends[to].remote()?;
        // Nobody waits for the sender's own completion.
        ends[from].post(&[Operation::Send(payload)], bytes, remote)?;
        ends[to].arrived()
    })
}

/// A queue pair for datagrams.
struct Station {
    send: SendQueue<Ud>,
    _sent: CqReader,
    arrivals: CqReader,
    receives: ReceiveQueue,
    address: UdAddress,
    memory: MemoryRegion,
}

impl Station {
    fn new(device: &Device) -> Result<Self> {
        /// A key that both stations know.
        const QKEY: u32 = 0x0bad_cafe;
        let (pd, local) = (&device.pd, &device.local);
        let sends = CompletionQueue::new(&device.context, 128)?;
        let arrivals = CompletionQueue::new(&device.context, 128)?;
        let builder = QueuePairBuilder::<Ud>::new(pd, &sends).receive_cq(&arrivals);
        let qp = builder.max_inline_data(INLINE as u32).build()?;
        let qp = qp.init(&UdInitAttributes::new(1, QKEY))?;
        let mut arrivals = CqReader::new(&arrivals)?;
        let receives = ReceiveQueue::new(&qp, &mut arrivals, ReceiveConfig::default())?;
        let qp: QueuePair<Ud, Rts> = qp.rtr()?.rts(&UnreliableRtsAttributes::default())?;
        let way = AddressHandle::new(pd, &local.address(&local.connection_data(&qp)))?;
        let address = UdAddress::new(&way, qp.number(), QKEY);
        let mut sent = CqReader::new(&sends)?;
        let config = SendConfig { copy: BlueFlameCopy::detect(), ..SendConfig::default() };
        let send = SendQueue::new(&qp, &mut sent, config)?;
        let memory = pd.allocate(MEMORY, Access::LOCAL_WRITE)?;
        Ok(Self { send, _sent: sent, arrivals, receives, address, memory })
    }
}

fn datagrams(device: &Device, bytes: usize) -> Result<f64> {
    /// Bytes that a receive has before the payload.
    const HEADER: usize = 40;
    let mut stations = [Station::new(device)?, Station::new(device)?];
    half_round_trip(|from| {
        let to = 1 - from;
        let into = stations[to].memory.sge(MEMORY / 2, HEADER + bytes)?;
        let address = stations[to].address;
        // SAFETY: the memory lives as long as the queue, no reference to it exists, and no request
        // reads it.
        unsafe { stations[to].receives.post(0, into)? };
        let (sge, zeros) = (stations[from].memory.sge(0, bytes)?, [0; INLINE]);
        let send = &mut stations[from].send;
        // SAFETY: as above, or the payload is in the WQE.
        unsafe {
            if bytes <= SHORT {
                let message = SendMessage::new(Inline(&zeros[..bytes])).signaled();
                send.post(0, message.to(&address))?;
            } else {
                send.post(0, SendMessage::new(sge).signaled().to(&address))?;
            }
        }
        let Station { arrivals, receives, .. } = &mut stations[to];
        next(arrivals, receives, device.reading)
    })
}

/// A queue pair for packets, and its address.
struct Plug {
    send: SendQueue<RawPacket>,
    _sent: CqReader,
    frames: PacketRq,
    address: [u8; 6],
    _flow: Flow,
    memory: MemoryRegion,
}

impl Plug {
    fn new(device: &Device, number: u8) -> Result<Self> {
        let sends = CompletionQueue::new(&device.context, 128)?;
        let arrivals = CompletionQueue::new(&device.context, 128)?;
        let builder = QueuePairBuilder::<RawPacket>::new(&device.pd, &sends);
        let builder = builder.receive_cq(&arrivals).max_inline_data(INLINE as u32);
        let qp = builder.build()?.init(1)?.rtr()?.rts()?;
        let frames = PacketRq::new(&qp, &arrivals, ReceiveConfig::default())?;
        // The address of a group that no other process uses: what the port sends there comes back.
        let [a, b, c, d] = std::process::id().to_be_bytes();
        let address = [3, a, b, c, d, number];
        let flow = Flow::builder(1).destination(address).build(&qp)?;
        let mut sent = CqReader::new(&sends)?;
        let config = SendConfig { copy: BlueFlameCopy::detect(), ..SendConfig::default() };
        let send = SendQueue::new(&qp, &mut sent, config)?;
        let memory = device.pd.allocate(MEMORY, Access::LOCAL_WRITE)?;
        Ok(Self { send, _sent: sent, frames, address, _flow: flow, memory })
    }
}

fn packets(device: &Device) -> Result<f64> {
    /// A local experimental type.
    const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
    let mut plugs = [Plug::new(device, 1)?, Plug::new(device, 2)?];
    half_round_trip(|from| {
        let to = 1 - from;
        let memory = &plugs[to].memory;
        let into = memory.sge(0, MEMORY)?;
        // SAFETY: the memory lives as long as the queue, and no reference to it exists.
        unsafe { plugs[to].frames.post(0, into)? };
        let (destination, source) = (plugs[to].address, plugs[from].address);
        let packet = [&destination[..], &source, &ETHER_TYPE, &[0; 46]].concat();
        // SAFETY: the payload is in the WQE.
        unsafe { plugs[from].send.post(0, EthSend::new(Inline(&packet)).signaled())? };
        match plugs[to].frames.poll()? {
            Some(PacketEvent::Packet(packet)) => {
                Ok(device.reading.nanoseconds(packet.info().timestamp))
            }
            other => Err(format!("no packet has arrived when the post returned: {other:?}").into()),
        }
    })
}

/// What commands on a queue pair take, in microseconds.
struct Steps {
    create: f64,
    init: f64,
    rtr: f64,
    rts: f64,
    query: f64,
    error: f64,
    reset: f64,
    destroy: f64,
}

fn steps(device: &Device) -> Result<Steps> {
    let local = &device.local;
    let cq = CompletionQueue::new(&device.context, 16)?;
    let builder = QueuePair::<Rc, Reset>::builder(&device.pd, &cq);
    let (create, qp) = device.time(|| Ok(builder.build()?))?;
    // It is its own peer.
    let data = local.connection_data(&qp);
    let (init, qp) = device.time(|| Ok(qp.init(&local.init())?))?;
    let (rtr, qp) = device.time(|| Ok(qp.rtr(&local.rtr(&data, &data))?))?;
    let (rts, qp) = device.time(|| Ok(qp.rts(&local.rts(&data, &data))?))?;
    let (query, _) = device.time(|| Ok(qp.query()?))?;
    let (error, qp) = device.time(|| Ok(qp.to_error()?))?;
    let (reset, qp) = device.time(|| Ok(qp.reset()?))?;
    let (destroy, ()) = device.time(|| {
        drop(qp);
        Ok(())
    })?;
    let [create, init, rtr, rts, query, error, reset, destroy] =
        [create, init, rtr, rts, query, error, reset, destroy].map(|time| time / 1e3);
    Ok(Steps { create, init, rtr, rts, query, error, reset, destroy })
}

/// Returns what the registration and the deregistration of so many bytes take, in microseconds. Their
/// times are linear in the bytes, so two short regions tell: programs may lock few bytes.
fn registration(device: &Device, bytes: u64) -> Result<(f64, f64)> {
    const SHORT: usize = 64 << 10;
    let times = |length: usize| -> Result<[f64; 2]> {
        let (made, region) =
            device.time(|| Ok(device.pd.allocate(length, Access::LOCAL_WRITE)?))?;
        let (gone, ()) = device.time(|| {
            drop(region);
            Ok(())
        })?;
        Ok([made, gone].map(|time| time / 1e3))
    };
    let (short, long) = (times(SHORT)?, times(17 * SHORT)?);
    let of = |at: usize| {
        let byte = (long[at] - short[at]) / (16 * SHORT) as f64;
        short[at] + byte * (bytes as f64 - SHORT as f64)
    };
    Ok((of(0), of(1)))
}

/// Returns how much longer a WRITE takes while another queue pair waits for a peer that is gone.
fn beside_silence(device: &Device) -> Result<f64> {
    let mut ends = device.ends(setup(COPIED))?;
    let alone = latency(&mut ends, &[WRITE], 8)? as f64;
    let [mut near, far] = device.ends(setup(COPIED))?;
    let remote = far.remote()?;
    drop(far);
    near.post(&[WRITE], 8, remote)?;
    post_and_wait(&mut ends, &[WRITE], 8)?;
    Ok(latency(&mut ends, &[WRITE], 8)? as f64 / alone)
}
