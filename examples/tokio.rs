//! An asynchronous program: a server and its client are two tasks on one thread of tokio. Each waits
//! for completions by `AsyncFd`, on the descriptor of its completion channel.
//!
//! Both sides in this process: `cargo run --example tokio`

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver, Returned};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{CompletionChannel, CompletionQueue, Context, Init, ProtectionDomain, QueuePair};
use mlx5::wqe::{Inline, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;
use tokio::io::unix::AsyncFd;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const REQUESTS: u64 = 5;
const LENGTH: usize = "request 1".len();

fn main() -> Result<()> {
    // Completion channels need tokio's I/O driver, and nothing else of it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let context = Context::open_first()?;
        let local = LocalPort::new(&context, 1, None)?;
        let pd = ProtectionDomain::new(&context)?;
        let (server, client) = (Unconnected::new(&local, &pd)?, Unconnected::new(&local, &pd)?);
        let (first, second) =
            (local.connection_data(&server.qp), local.connection_data(&client.qp));
        let connect = |side: Unconnected, mine, theirs| -> Result<Side> {
            let qp = side.qp.rtr(&local.rtr(mine, theirs))?.rts(&local.rts(mine, theirs))?;
            let config = SendConfig::default();
            let endpoint = Endpoint::new(qp, side.receiver, side.completions, config)?;
            Ok(Side { endpoint, events: side.events })
        };
        let server = connect(server, &first, &second)?;
        let client = connect(client, &second, &first)?;
        let server = tokio::spawn(serve(server));
        ask(client).await?;
        server.await??;
        println!("all {REQUESTS} requests were answered");
        Ok(())
    })
}

/// One side of the connection: its endpoint, and the channel that announces completions.
struct Side {
    endpoint: Endpoint,
    events: AsyncFd<CompletionChannel>,
}

impl Side {
    // ANCHOR: next
    /// Waits for the next request that is retired. The order loses no completion: poll, request an
    /// event, poll once more, then wait. A CQE that comes after the second poll raises the event.
    async fn next(&mut self) -> Result<Returned> {
        loop {
            if let Some(returned) = self.poll()? {
                return Ok(returned);
            }
            self.endpoint.arm();
            if let Some(returned) = self.poll()? {
                return Ok(returned);
            }
            let mut readable = self.events.readable().await?;
            // tokio waits for an edge, so all events are taken. Their acknowledgement is left to
            // the destruction of the CQ.
            while self.events.get_ref().try_event()?.is_some() {}
            readable.clear_ready();
        }
    }
    // ANCHOR_END: next

    fn poll(&mut self) -> Result<Option<Returned>> {
        let returned = self.endpoint.poll().next().transpose()?;
        match returned.as_ref().map(|returned| returned.outcome) {
            Some(Outcome::Failed(failure)) => Err(failure.into()),
            _ => Ok(returned),
        }
    }
}

/// Answers each request in upper case, out of the memory in which it arrived.
async fn serve(mut server: Side) -> Result<()> {
    let mut answers = 0;
    while answers < REQUESTS {
        let returned = server.next().await?;
        let mut memory = returned.buffers.into_iter().next().ok_or("a request without memory")?;
        if let Outcome::Received(_) = returned.outcome {
            let text = memory.to_vec().to_ascii_uppercase();
            memory.write(0, &text);
            server.endpoint.post(returned.id, SendMessage::new(memory).signaled())?;
        } else {
            // The client has the answer. The memory is free for another request.
            answers += 1;
            server.endpoint.post_receive(returned.id, memory)?;
        }
    }
    Ok(())
}

/// Asks one question after the other.
async fn ask(mut client: Side) -> Result<()> {
    for number in 1..=REQUESTS {
        let request = format!("request {number}");
        let request = SendMessage::new(Inline(request.as_bytes())).signaled();
        client.endpoint.post(number, request).map_err(|refused| refused.error)?;
        // The completion of the request itself has no memory.
        let answer = loop {
            let returned = client.next().await?;
            if let Outcome::Received(_) = returned.outcome {
                break returned;
            }
        };
        let memory = answer.buffers.into_iter().next().ok_or("an answer without memory")?;
        println!("answer: {}", String::from_utf8_lossy(&memory.to_vec()));
        client.endpoint.post_receive(answer.id, memory)?;
    }
    Ok(())
}

/// One side before it is connected. A receive is posted.
struct Unconnected {
    qp: QueuePair<Rc, Init>,
    receiver: Receiver,
    completions: CqReader,
    events: AsyncFd<CompletionChannel>,
}

impl Unconnected {
    fn new(local: &LocalPort, pd: &ProtectionDomain) -> Result<Self> {
        let channel = CompletionChannel::new(pd.context())?;
        let cq = CompletionQueue::builder(pd.context(), 16).channel(&channel).build()?;
        let qp = QueuePair::builder(pd, &cq).max_inline_data(32).max_send_wr(4).max_recv_wr(4);
        let qp = qp.build()?.init(&local.init())?;
        let mut completions = CqReader::new(&cq)?;
        let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        receiver.post(0, MrSlice::new(pd.allocate(LENGTH, Access::LOCAL_WRITE)?))?;
        // ANCHOR: register
        // SAFETY: a channel has one descriptor, and keeps it open as long as it exists.
        let events = unsafe { AsyncFd::register(channel)? };
        // ANCHOR_END: register
        Ok(Self { qp, receiver, completions, events })
    }
}
