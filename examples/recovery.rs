//! Connections that fail, and what a program does then: read the cause, close, have all buffers
//! back, connect anew, go on. Three causes: a wrong key, a peer without a receive, a peer that is gone.
//!
//! Both sides in this process: `cargo run --example recovery`

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::{Failure, Status};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver, Returned};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{AckTimeout, RtsAttributes};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair, Reset};
use mlx5::wqe::{RdmaWrite, Remote, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Buffers of each side, and bytes of each.
const BUFFERS: usize = 8;
const LENGTH: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let context = Context::open_first()?;
    let port = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let board = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let place = board.remote(0)?;
    let wrong = Remote::new(board.remote_address(), board.rkey() ^ 0x100);

    // 1. A wrong key. The requests behind the failed one are flushed, and the server's queue pair
    //    is in ERROR as well: both sides close.
    let (client, server) = (Idle::new(&pd)?, Idle::new(&pd)?);
    let (mut client, server) = connect(&port, client, server, 4)?;
    for (id, to) in [place, wrong, place, place].into_iter().enumerate() {
        let buffer = client.free.pop().ok_or("a buffer is free")?;
        client.endpoint.post(id as u64, RdmaWrite::new(buffer, to).signaled())?;
    }
    report("a wrong key", &client.first_failure()?);
    let (client, server) = (client.close()?, server.close()?);

    // 2. The server has no receive posted.
    let (mut client, server) = connect(&port, client, server, 0)?;
    client.send("is anybody there?")?;
    report("no receive", &client.first_failure()?);
    let (client, server) = (client.close()?, server.close()?);

    // 3. The server is gone, as after a crash: its queue pair is destroyed.
    let (mut client, server) = connect(&port, client, server, 4)?;
    drop(server);
    client.send("are you still there?")?;
    report("no peer", &client.first_failure()?);
    let client = client.close()?;

    // 4. The server is back, with a new queue pair.
    let (mut client, mut server) = connect(&port, client, Idle::new(&pd)?, 4)?;
    client.send("here I am again")?;
    let received = server.next()?;
    let text = received.buffers.one().map_err(|_| "a receive of one buffer")?.to_vec();
    println!("arrived: {}", String::from_utf8_lossy(&text).trim_end_matches('\0'));
    Ok(())
}

fn report(case: &str, failure: &Failure) {
    println!("{case}: {}: {}", failure.status.name(), cure(failure.status));
}

// ANCHOR: cause
/// What the program does about it, besides connecting anew.
fn cure(status: Status) -> &'static str {
    match status {
        // Programs disagree. The same request would fail again.
        Status::RemoteAccess | Status::RemoteInvalidRequest | Status::LocalProtection => {
            "mend the program, or ask the peer for its present address and key"
        }
        // The peer is alive, and slower than this side.
        Status::RnrRetriesExceeded => "let the peer post receives first, or use credits",
        // The peer, its host or the network is down. Ask by other means, and wait longer each time.
        Status::RetriesExceeded => "wait until the peer listens again",
        // Not a cause: an earlier request failed.
        Status::Flushed => "look for the first failure",
        _ => "log the failure: its text has the usual cause",
    }
}
// ANCHOR_END: cause

/// A side between connections. It has all its buffers.
struct Idle {
    qp: QueuePair<mlx5::ib::Rc, Reset>,
    completions: CqReader,
    free: Vec<MrSlice>,
}

impl Idle {
    fn new(pd: &ProtectionDomain) -> Result<Idle> {
        let cq = CompletionQueue::new(pd.context(), 64)?;
        let qp = QueuePair::builder(pd, &cq).max_send_wr(8).max_recv_wr(8).build()?;
        let mut rest = MrSlice::new(pd.allocate(BUFFERS * LENGTH, Access::LOCAL_WRITE)?);
        let mut free = vec![];
        for _ in 1..BUFFERS {
            let next = rest.split_off(LENGTH);
            free.push(std::mem::replace(&mut rest, next));
        }
        free.push(rest);
        Ok(Idle { qp, completions: CqReader::new(&cq)?, free })
    }
}

/// A connected side.
struct Side {
    endpoint: Endpoint,
    free: Vec<MrSlice>,
}

/// Connects two sides, `receives` of the second one posted. Each connection has new PSNs.
fn connect(port: &LocalPort, a: Idle, b: Idle, receives: usize) -> Result<(Side, Side)> {
    let (first, second) = (port.connection_data(&a.qp), port.connection_data(&b.qp));
    let side = |mut idle: Idle, mine, theirs, receives| -> Result<Side> {
        let qp = idle.qp.init(&port.init())?;
        let mut receiver = Receiver::new(&qp, &mut idle.completions, ReceiveConfig::default())?;
        for id in 0..receives {
            receiver.post(id as u64, idle.free.pop().ok_or("a buffer is free")?)?;
        }
        // ANCHOR: retries
        // The defaults wait for a receive for ever, and up to seconds for an answer.
        let patience = RtsAttributes {
            timeout: AckTimeout::at_least(Duration::from_millis(20)),
            retry_cnt: 2,
            rnr_retry: 1,
            ..port.rts(mine, theirs)
        };
        let qp = qp.rtr(&port.rtr(mine, theirs))?.rts(&patience)?;
        // ANCHOR_END: retries
        let endpoint = Endpoint::new(qp, receiver, idle.completions, SendConfig::default())?;
        Ok(Side { endpoint, free: idle.free })
    };
    Ok((side(a, &first, &second, 0)?, side(b, &second, &first, receives)?))
}

impl Side {
    fn send(&mut self, text: &str) -> Result<()> {
        let mut buffer = self.free.pop().ok_or("a buffer is free")?;
        buffer.write(0, &[0; LENGTH]);
        buffer.write(0, text.as_bytes());
        self.endpoint.post(0, SendMessage::new(buffer).signaled())?;
        Ok(())
    }

    // ANCHOR: close
    /// Returns the first failure. Its request and those before it have given their buffers back.
    fn first_failure(&mut self) -> Result<Failure> {
        loop {
            let returned = self.next()?;
            self.free.extend(returned.buffers);
            if let Outcome::Failed(failure) = returned.outcome {
                return Ok(failure);
            }
        }
    }

    /// Moves the queue pair to RESET, and takes the buffers of all requests and receives back.
    fn close(self) -> Result<Idle> {
        let (mut free, closed) = (self.free, self.endpoint.close()?);
        let in_flight = closed.sends.into_iter().chain(closed.receives);
        let before = free.len();
        free.extend(in_flight.flat_map(|(_, buffers)| buffers));
        println!(
            "closed: {} of {BUFFERS} buffers, {} of them in flight",
            free.len(),
            free.len() - before
        );
        Ok(Idle { qp: closed.qp, completions: closed.completions, free })
    }
    // ANCHOR_END: close

    fn next(&mut self) -> Result<Returned> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(returned) = self.endpoint.poll().next() {
                return Ok(returned?);
            }
            std::thread::yield_now();
        }
        Err("no completion".into())
    }
}
