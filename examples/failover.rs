//! Automatic path migration: the path of a connection breaks under traffic, both HCAs move to the
//! alternate path, and no message is lost. The program only hears of it.
//!
//! The paths are two service levels here; those of two ports or switches are set in the same way.
//! The software ConnectX breaks the first one: this program runs itself again with the rule for it
//! in the environment (docs/model.md, "Faults").
//!
//! Both sides in this process: `cargo run --example failover`

use std::collections::VecDeque;
use std::env;
use std::error::Error;
use std::process::Command;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver, Returned};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{AckTimeout, AddressVector, AlternatePath, RtsAttributes};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair};
use mlx5::wqe::SendMessage;
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The fault: packets of service level 0 are lost from the 400th on.
const FAULTS: (&str, &str) = ("MLX5_MODEL_FAULTS", "sl 0 packet 400- loss");
/// Service level of the alternate path.
const ALTERNATE: u8 = 1;
const MESSAGES: u64 = 500;
const WINDOW: usize = 8;
const LENGTH: usize = 64;
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<()> {
    if env::var_os(FAULTS.0).is_none() {
        let again = Command::new(env::current_exe()?).env(FAULTS.0, FAULTS.1).status()?;
        return if again.success() { Ok(()) } else { Err("the traffic failed".into()) };
    }
    let context = Context::open_first()?;
    let port = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let (mut sender, mut receiver) = connect(&context, &port, &pd)?;
    offer(&sender)?;
    offer(&receiver)?;

    // Each side posts what it has room for; messages are numbered.
    let mut free: VecDeque<MrSlice> = buffers(&pd)?.into();
    for buffer in buffers(&pd)? {
        receiver.post_receive(0, buffer)?;
    }
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    let deadline = Instant::now() + TIMEOUT;
    while sent < MESSAGES || received < MESSAGES {
        while posted < MESSAGES && posted < received + WINDOW as u64 {
            let Some(mut buffer) = free.pop_front() else { break };
            buffer.write(0, &posted.to_be_bytes());
            sender.post(posted, SendMessage::new(buffer).signaled())?;
            posted += 1;
        }
        for returned in sender.poll().collect::<Vec<_>>() {
            free.push_back(success(returned?)?);
            sent += 1;
        }
        for returned in receiver.poll().collect::<Vec<_>>() {
            let buffer = success(returned?)?;
            if buffer.to_vec()[..8] != received.to_be_bytes() {
                return Err(format!("message {received} is another one").into());
            }
            received += 1;
            receiver.post_receive(0, buffer)?;
        }
        if Instant::now() > deadline {
            return Err(format!("{sent} sent, {received} received").into());
        }
    }
    println!("{received} messages arrived, each once and in order");

    // Each queue pair has told that it moved.
    for _ in 0..2 {
        let event = context.async_event(TIMEOUT)?.ok_or("no queue pair has moved")?;
        println!("event: {}", event.explanation().map_or("unknown", |(name, _)| name));
    }
    let now = sender.queue_pair().query()?;
    println!("service level {}, {:?}", now.address.service_level, now.migration);
    Ok(())
}

// ANCHOR: alternate
/// Gives a queue pair an alternate path, and makes it ready to move there. Both sides have to; the
/// path is armed as soon as packets have told each side that the other one is ready.
fn offer(endpoint: &Endpoint) -> Result<()> {
    let qp = endpoint.queue_pair();
    let first = qp.query()?.address;
    let address = AddressVector { service_level: ALTERNATE, ..first };
    let timeout = AckTimeout::at_least(Duration::from_millis(20));
    Ok(qp.set_alternate_path(&AlternatePath { address, pkey_index: 0, timeout })?)
}
// ANCHOR_END: alternate

fn connect(
    context: &Context,
    port: &LocalPort,
    pd: &ProtectionDomain,
) -> Result<(Endpoint, Endpoint)> {
    let make = || -> Result<(QueuePair<Rc, Init>, CompletionQueue)> {
        let cq = CompletionQueue::new(context, 64)?;
        let qp = QueuePair::builder(pd, &cq).max_send_wr(16).max_recv_wr(16).build()?;
        Ok((qp.init(&port.init())?, cq))
    };
    let (one, other) = (make()?, make()?);
    let (first, second) = (port.connection_data(&one.0), port.connection_data(&other.0));
    let endpoint = |(qp, cq): (QueuePair<Rc, Init>, CompletionQueue), mine, theirs| {
        let mut completions = CqReader::new(&cq)?;
        let receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
        // The tries on the first path end soon, then come those on the other one.
        let tries = RtsAttributes {
            timeout: AckTimeout::at_least(Duration::from_millis(20)),
            retry_cnt: 7,
            ..port.rts(mine, theirs)
        };
        let qp = qp.rtr(&port.rtr(mine, theirs))?.rts(&tries)?;
        Ok::<_, Box<dyn Error>>(Endpoint::new(qp, receiver, completions, SendConfig::default())?)
    };
    Ok((endpoint(one, &first, &second)?, endpoint(other, &second, &first)?))
}

fn buffers(pd: &ProtectionDomain) -> Result<Vec<MrSlice>> {
    let mut rest = MrSlice::new(pd.allocate((WINDOW + 1) * LENGTH, Access::LOCAL_WRITE)?);
    Ok((0..WINDOW)
        .map(|_| {
            let next = rest.split_off(LENGTH);
            std::mem::replace(&mut rest, next)
        })
        .collect())
}

/// The buffer of a request that succeeded.
fn success(returned: Returned) -> Result<MrSlice> {
    match returned.outcome {
        Outcome::Failed(failure) => Err(failure.into()),
        _ => returned.buffers.one().map_err(|_| "a request of one buffer".into()),
    }
}
