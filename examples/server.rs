//! A server that answers the requests of many connections, without `unsafe`: one CQ and one shared
//! receive queue for all of them. With `--tokio`, server and clients are two tasks that sleep while
//! nothing completes.
//!
//! Everything in this process: `cargo run --release --example server -- --connections 1000`
//!
//! `--ratio` serves 10 connections as well, in turns, and compares: the work of a completion does
//! not depend on the number of connections.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{ConnectionKey, Endpoints, MrSlice, Outcome, Returned, SharedReceiver};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{
    CompletionChannel, CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts,
    SharedReceiveQueue,
};
use mlx5::wqe::{InlineBytes, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;
use tokio::io::unix::AsyncFd;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Requests in flight, over all connections together.
const IN_FLIGHT: usize = 256;
/// Receives of each side, for all connections together, and bytes of each.
const RECEIVES: u32 = 1024;
const ROOM: usize = 64;
/// Turns of a comparison.
const TURNS: u32 = 5;

fn main() -> Result<()> {
    let options = Options::read()?;
    let context = Context::open_first()?;
    let port = LocalPort::new(&context, 1, None)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = runtime.enter();
    let mut many = World::new(&context, &port, options.connections)?;
    let run = |world: &mut World| match options.tokio {
        true => runtime.block_on(world.run_tasks(options.requests)),
        false => world.run(options.requests),
    };
    if !options.ratio {
        let (completions, time) = run(&mut many)?;
        println!("{} connections: {} requests answered", options.connections, options.requests);
        println!("{:.0} completions per second", per_second(completions, time));
        return Ok(());
    }
    let mut few = World::new(&context, &port, 10)?;
    let mut sums = [(0, Duration::ZERO); 2];
    for _ in 0..TURNS {
        for (world, (completions, time)) in [&mut few, &mut many].into_iter().zip(&mut sums) {
            let (more, longer) = run(world)?;
            *completions += more;
            *time += longer;
        }
    }
    let [few, many] = sums.map(|(completions, time)| per_second(completions, time));
    println!("10 connections: {few:.0} completions per second");
    println!("{} connections: {many:.0} completions per second", options.connections);
    println!("ratio: {:.2}", many / few);
    Ok(())
}

fn per_second(completions: u64, time: Duration) -> f64 {
    completions as f64 / time.as_secs_f64()
}

/// A server and its clients.
struct World {
    server: Side,
    clients: Side,
    /// Connections of the clients, in the order in which they ask next.
    idle: VecDeque<ConnectionKey>,
}

/// All connections of one side, on one CQ and one shared receive queue.
struct Side {
    endpoints: Endpoints,
    events: Events,
}

/// The channel that announces completions, and a descriptor of it that tokio waits for.
struct Events {
    channel: CompletionChannel,
    readable: AsyncFd<OwnedFd>,
}

impl World {
    fn new(context: &Context, port: &LocalPort, connections: usize) -> Result<Self> {
        let pd = ProtectionDomain::new(context)?;
        // Each connection may have its part of the requests in flight, and as many answers.
        let depth = (2 * IN_FLIGHT / connections).max(4) as u32;
        let cqes = RECEIVES + depth * connections as u32;
        let mut server = Unconnected::new(&pd, cqes)?;
        let mut clients = Unconnected::new(&pd, cqes)?;
        let mut idle = VecDeque::with_capacity(connections);
        for _ in 0..connections {
            // Both ends take receives from their side's shared queue from now on.
            let (first, _) = server.queue_pair(port, depth)?;
            let (second, key) = clients.queue_pair(port, depth)?;
            let (mine, theirs) = (port.connection_data(&first), port.connection_data(&second));
            let up = |qp: QueuePair<Rc, Init>, here, there| -> Result<QueuePair<Rc, Rts>> {
                Ok(qp.rtr(&port.rtr(here, there))?.rts(&port.rts(here, there))?)
            };
            let config = SendConfig { requests: depth, ..SendConfig::default() };
            server.side.endpoints.insert(up(first, &mine, &theirs)?, config)?;
            clients.side.endpoints.insert(up(second, &theirs, &mine)?, config)?;
            idle.push_back(key);
        }
        Ok(Self { server: server.side, clients: clients.side, idle })
    }

    /// Has `requests` requests answered, by polling both sides. Returns the number of completions
    /// and the time that they took.
    fn run(&mut self, requests: u64) -> Result<(u64, Duration)> {
        let start = Instant::now();
        let mut ask = Asking::new(&mut self.idle, requests);
        let mut completions = 0;
        while ask.answered < requests {
            ask.more(&mut self.clients.endpoints)?;
            completions += serve(&mut self.server.endpoints)?;
            completions += ask.take(&mut self.clients.endpoints)?;
        }
        Ok((completions, start.elapsed()))
    }

    /// Does the same by two tasks, which wait for events while nothing completes.
    async fn run_tasks(&mut self, requests: u64) -> Result<(u64, Duration)> {
        let start = Instant::now();
        let Self { server, clients, idle } = self;
        let served = Cell::new(0);
        let mut serving = pin!(server.serve_on(&served));
        let mut asking = pin!(async {
            let mut ask = Asking::new(idle, requests);
            let mut completions = 0;
            while ask.answered < requests {
                ask.more(&mut clients.endpoints)?;
                completions += clients.poll_or_wait(|endpoints| ask.take(endpoints)).await?;
            }
            Ok(completions)
        });
        // Until the clients have all answers, or either fails.
        let completions = poll_fn(|task| match serving.as_mut().poll(task) {
            Poll::Ready(failed) => Poll::Ready(failed),
            Poll::Pending => asking.as_mut().poll(task),
        });
        let completions = completions.await?;
        Ok((completions + served.get(), start.elapsed()))
    }
}

impl Side {
    /// Answers requests until it fails, and counts completions.
    async fn serve_on(&mut self, completions: &Cell<u64>) -> Result<u64> {
        loop {
            completions.set(completions.get() + self.poll_or_wait(serve).await?);
        }
    }

    /// Polls until there are completions. The order loses none: poll, request an event, poll once
    /// more, then wait. A completion that comes after the second poll raises the event.
    async fn poll_or_wait(
        &mut self,
        mut poll: impl FnMut(&mut Endpoints) -> Result<u64>,
    ) -> Result<u64> {
        loop {
            // ANCHOR: wait
            let completions = poll(&mut self.endpoints)?;
            if completions != 0 {
                // Lets the other task run.
                tokio::task::yield_now().await;
                return Ok(completions);
            }
            self.endpoints.arm();
            let completions = poll(&mut self.endpoints)?;
            if completions != 0 {
                return Ok(completions);
            }
            let mut readable = self.events.readable.readable().await?;
            // tokio waits for an edge, so all events are taken.
            while self.events.channel.try_event()?.is_some() {}
            readable.clear_ready();
            // ANCHOR_END: wait
        }
    }
}

/// Answers the requests that have arrived, each out of the memory in which it arrived. Returns the
/// number of completions.
fn serve(server: &mut Endpoints) -> Result<u64> {
    let mut completions = 0;
    // ANCHOR: serve
    while let Some((client, returned)) = server.poll_one()? {
        completions += 1;
        let Returned { id, buffers, outcome } = returned;
        let memory = buffers.one().map_err(|_| "every request has one slice")?;
        match outcome {
            Outcome::Received(_) => {
                server.post(client, id, SendMessage::new(memory).signaled())?;
            }
            // The answer is sent: the memory is free for the next request of any client.
            Outcome::Sent(_) => server.post_receive(id, memory)?,
            // The client leaves, and the memory of its requests serves the others.
            Outcome::Failed(failure) => {
                eprintln!("a client left: {failure}");
                let removed = server.remove(client)?;
                server.post_receive(id, memory)?;
                for (id, buffers) in removed.sends.into_iter().chain(removed.receives) {
                    server.post_receive(id, buffers.one().map_err(|_| "it was one slice")?)?;
                }
            }
            Outcome::SentUnsignaled { .. } => return Err("every answer is signaled".into()),
        }
    }
    // ANCHOR_END: serve
    Ok(completions)
}

/// The clients, while they ask.
struct Asking<'w> {
    idle: &'w mut VecDeque<ConnectionKey>,
    requests: u64,
    asked: u64,
    answered: u64,
}

impl<'w> Asking<'w> {
    fn new(idle: &'w mut VecDeque<ConnectionKey>, requests: u64) -> Self {
        Self { idle, requests, asked: 0, answered: 0 }
    }

    /// Sends requests, on one connection after the other.
    fn more(&mut self, clients: &mut Endpoints) -> Result<()> {
        while self.asked < self.requests && self.asked - self.answered < IN_FLIGHT as u64 {
            let Some(connection) = self.idle.pop_front() else { break };
            let request = InlineBytes(self.asked.to_ne_bytes());
            clients.post(connection, self.asked, SendMessage::new(request).signaled())?;
            self.asked += 1;
            self.idle.push_back(connection);
        }
        Ok(())
    }

    /// Takes the answers that have arrived. Returns the number of completions.
    fn take(&mut self, clients: &mut Endpoints) -> Result<u64> {
        let mut completions = 0;
        while let Some((_, returned)) = clients.poll_one()? {
            completions += 1;
            match returned.outcome {
                Outcome::Received(_) => {
                    let memory = returned.buffers.one().map_err(|_| "every receive has a slice")?;
                    let mut number = [0; 8];
                    memory.read(0, &mut number);
                    if u64::from_ne_bytes(number) >= self.asked {
                        return Err("an answer to what nobody asked".into());
                    }
                    clients.post_receive(returned.id, memory)?;
                    self.answered += 1;
                }
                Outcome::Failed(failure) => return Err(failure.into()),
                _ => {}
            }
        }
        Ok(completions)
    }
}

/// A side to which connections are added.
struct Unconnected {
    side: Side,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
}

impl Unconnected {
    fn new(pd: &ProtectionDomain, cqes: u32) -> Result<Self> {
        let channel = CompletionChannel::new(pd.context())?;
        let cq = CompletionQueue::builder(pd.context(), cqes).channel(&channel).build()?;
        // ANCHOR: shared
        let srq = SharedReceiveQueue::builder(pd).max_wr(RECEIVES).build()?;
        let mut completions = CqReader::new(&cq)?;
        let config = ReceiveConfig { receives: RECEIVES };
        let mut receiver = SharedReceiver::new(&srq, &mut completions, config)?;
        let pool = pd.allocate(RECEIVES as usize * ROOM, Access::LOCAL_WRITE)?;
        let mut pool = MrSlice::new(pool);
        for id in 0..u64::from(receiver.queue().free().min(RECEIVES)) {
            let rest = pool.split_off(ROOM);
            receiver.post(id, std::mem::replace(&mut pool, rest))?;
        }
        let endpoints = Endpoints::with_receiver(completions, receiver)?;
        // ANCHOR_END: shared
        // A descriptor of its own for tokio, which owns it.
        #[allow(deprecated, reason = "the new function is unsafe, for types that do not own one")]
        let readable = AsyncFd::new(channel.as_fd().try_clone_to_owned()?)?;
        let side = Side { endpoints, events: Events { channel, readable } };
        Ok(Self { side, pd: pd.clone(), cq, srq })
    }

    /// A queue pair in INIT that is attached, and its key.
    fn queue_pair(
        &mut self,
        port: &LocalPort,
        depth: u32,
    ) -> Result<(QueuePair<Rc, Init>, ConnectionKey)> {
        // ANCHOR: attach
        let qp = QueuePair::builder(&self.pd, &self.cq).shared_receive_queue(&self.srq);
        let qp = qp.max_send_wr(depth).max_inline_data(8).build()?.init(&port.init())?;
        let key = self.side.endpoints.attach(&qp)?;
        // ANCHOR_END: attach
        Ok((qp, key))
    }
}

struct Options {
    connections: usize,
    requests: u64,
    tokio: bool,
    ratio: bool,
}

impl Options {
    fn read() -> Result<Self> {
        const USAGE: &str = "usage: server [--connections N] [--requests N] [--tokio] [--ratio]";
        let mut options = Self { connections: 100, requests: 10_000, tokio: false, ratio: false };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            match name.as_str() {
                "--connections" => options.connections = arguments.next().ok_or(USAGE)?.parse()?,
                "--requests" => options.requests = arguments.next().ok_or(USAGE)?.parse()?,
                "--tokio" => options.tokio = true,
                "--ratio" => options.ratio = true,
                _ => return Err(USAGE.into()),
            }
        }
        if options.connections == 0 {
            return Err("at least one connection".into());
        }
        Ok(options)
    }
}
