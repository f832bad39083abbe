//! An order gateway: short messages, lowest latency first. Orders travel inside their WQEs, and the
//! immediate value has their number. A thread of its own posts, and spins on the CQ.
//!
//! Credits keep the venue from being overrun: each order takes a credit, and each answer returns
//! one. There are as many credits as the venue has receives posted.
//!
//! Both sides in this process: `cargo run --example order_gateway`

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use mlx5::connect::{Connection, Listener, LocalPort};
use mlx5::cqe::{ReceiveDone, ReceiveKind};
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::RtsAttributes;
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::{InlineBytes, SendImm};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ORDERS: u32 = 1000;
/// Orders that may be without an answer: the receives of each side.
const CREDITS: u32 = 16;
/// Bytes of an order, and of an answer.
const LENGTH: usize = 24;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    let listener = Listener::bind("127.0.0.1:0")?;
    let address = listener.local_address()?;
    let gateway = thread::Builder::new().name("gateway".to_owned());
    let gateway =
        gateway.spawn(move || trade(Side::connect(Connection::connect(address, TIMEOUT)?)?))?;
    let venue = listener.accept(TIMEOUT).map_err(Into::into).and_then(Side::connect);
    let venue = venue.and_then(answer);
    gateway.join().expect("the gateway's thread panicked").and(venue)
}

/// The gateway: sends orders as long as it has credits.
fn trade(mut side: Side) -> Result<()> {
    let (mut next, mut answers, mut credits, mut most) = (0, 0, CREDITS, 0);
    while answers < ORDERS {
        // ANCHOR: credits
        while credits > 0 && next < ORDERS {
            side.send(next, order(next))?;
            (next, credits) = (next + 1, credits - 1);
        }
        most = most.max(next - answers);
        while let Some((number, answer)) = side.poll()? {
            assert_eq!((number, &answer[..8]), (answers, &b"accepted"[..]), "answers are in order");
            (answers, credits) = (answers + 1, credits + 1);
        }
        // ANCHOR_END: credits
    }
    side.connection.barrier(2)?;
    println!("{answers} orders, all accepted, at most {most} without an answer");
    Ok(())
}

/// The venue: accepts each order.
fn answer(mut side: Side) -> Result<()> {
    let mut accepted = 0;
    while accepted < ORDERS {
        if let Some((number, bytes)) = side.poll()? {
            assert_eq!(bytes, order(number));
            let mut answer = [0; LENGTH];
            answer[..8].copy_from_slice(b"accepted");
            side.send(number, answer)?;
            accepted += 1;
        }
    }
    side.connection.barrier(2)?;
    Ok(())
}

/// The bytes of an order: side, price, quantity.
fn order(number: u32) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..4].copy_from_slice(if number % 2 == 0 { b"buy " } else { b"sell" });
    bytes[8..16].copy_from_slice(&u64::from(10_000 + number).to_le_bytes());
    bytes[16..].copy_from_slice(&100_u64.to_le_bytes());
    bytes
}

/// One end of the connection.
struct Side {
    endpoint: Endpoint,
    connection: Connection,
    sent: u32,
    deadline: Instant,
}

impl Side {
    fn connect(mut connection: Connection) -> Result<Side> {
        let context = Context::open_first()?;
        let port = LocalPort::new(&context, 1, None)?;
        let pd = ProtectionDomain::new(&context)?;
        let cq = CompletionQueue::new(&context, 5 * CREDITS)?;
        // An answer may overtake the acknowledgement of its order, so there are more send WQEs than
        // credits.
        let qp = QueuePair::builder(&pd, &cq)
            .max_send_wr(4 * CREDITS)
            .max_recv_wr(CREDITS)
            .max_inline_data(LENGTH as u32)
            .build()?;
        let mine = port.connection_data(&qp);
        let theirs = connection.exchange(&mine)?;
        let qp = qp.init(&port.init())?;

        // All receives are posted before the peer may send. Each has a part of one region.
        let mut completions = CqReader::new(&cq)?;
        let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        let mut memory = MrSlice::new(pd.allocate(LENGTH * CREDITS as usize, Access::LOCAL_WRITE)?);
        for id in 1..u64::from(CREDITS) {
            let rest = memory.split_off(LENGTH);
            receiver.post(id, std::mem::replace(&mut memory, rest))?;
        }
        receiver.post(u64::from(CREDITS), memory)?;

        // ANCHOR: no-retry
        let qp = qp.rtr(&port.rtr(&mine, &theirs))?;
        // A message without a receive fails at once: it is a defect of the credits.
        let qp = qp.rts(&RtsAttributes { rnr_retry: 0, ..port.rts(&mine, &theirs) })?;
        // ANCHOR_END: no-retry
        let endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
        connection.barrier(1)?;
        let deadline = Instant::now() + TIMEOUT;
        Ok(Side { endpoint, connection, sent: 0, deadline })
    }

    // ANCHOR: send
    /// Sends a message of constant length. One in eight is signaled, and retires those before it.
    fn send(&mut self, number: u32, bytes: [u8; LENGTH]) -> Result<()> {
        self.sent += 1;
        let message = SendImm::new(InlineBytes(bytes), number).signaled_if(self.sent % 8 == 0);
        self.endpoint.post(number.into(), message)?;
        Ok(())
    }
    // ANCHOR_END: send

    /// Takes the next message. Its memory is posted again before the peer learns that it is free.
    fn poll(&mut self) -> Result<Option<(u32, [u8; LENGTH])>> {
        if Instant::now() > self.deadline {
            return Err("the peer does not answer".into());
        }
        loop {
            let next = self.endpoint.poll().next();
            let Some(returned) = next.transpose()? else { return Ok(None) };
            match returned.outcome {
                Outcome::Received(ReceiveDone { kind: ReceiveKind::SendImm(number), .. }) => {
                    let memory = returned.buffers.one().map_err(|_| "a receive of one part")?;
                    let mut bytes = [0; LENGTH];
                    memory.read(0, &mut bytes);
                    self.endpoint.post_receive(returned.id, memory)?;
                    return Ok(Some((number, bytes)));
                }
                Outcome::Failed(failure) => return Err(failure.into()),
                _ => {} // a message has left
            }
        }
    }
}
