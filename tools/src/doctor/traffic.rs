//! The final check: a message that is sent and received.

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::attr::{AckTimeout, RtsAttributes};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};
use mlx5::wqe::SendMessage;

use super::check::{Check, Group, Question};
use super::situation::Situation;

/// Longest time for a message. A connection fails long before.
const PATIENCE: Duration = Duration::from_secs(10);
/// Benchmarks send this size by default, and ask for queues of [`DEPTH`]: a smaller test would pass
/// where they fail. The message is segmented to the path MTU and reassembled.
const LENGTH: usize = 64 << 10;
const DEPTH: u32 = 128;

pub fn look(situation: &Situation) -> Vec<Check> {
    situation.ports().into_iter().map(|port| message(situation, port)).collect()
}

fn message(situation: &Situation, port: u8) -> Check {
    let question = Question::new(
        Group::Traffic,
        format!("port {port} message"),
        "a reliable connection of a queue pair with itself: one SEND, compared byte by byte",
        "it takes memory, queues, registers, address and port together; the cable and the peer it \
         does not prove",
    );
    if situation.arguments.no_traffic {
        return question.not_applicable("--no-traffic");
    }
    let Some(context) = situation.context() else {
        return question.not_applicable(situation.why_not_open());
    };
    if !situation.is_active(port) {
        return question.not_applicable("the port is not active");
    }
    match send(context, port, situation.arguments.gid_index) {
        Ok(()) => question.good(format!("{LENGTH} bytes went out and came back whole")),
        Err(error) => question.broken(
            error.to_string(),
            "look at what is broken above; then: ibv_rc_pingpong -d DEVICE -g INDEX on two shells",
        ),
    }
}

/// Sends one message to itself.
fn send(context: &Context, port: u8, gid_index: Option<u32>) -> Result<(), Box<dyn Error>> {
    let gid_index = gid_index.map(u8::try_from).transpose()?;
    let local = LocalPort::new(context, port, gid_index)?;
    let pd = ProtectionDomain::new(context)?;
    let cq = CompletionQueue::new(context, 2 * DEPTH)?;
    let queue_pair = QueuePair::builder(&pd, &cq).max_send_wr(DEPTH).max_recv_wr(DEPTH).build()?;
    let own = local.connection_data(&queue_pair);
    let queue_pair = queue_pair.init(&local.init())?;

    let mut completions = CqReader::new(&cq)?;
    let mut receiver = Receiver::new(&queue_pair, &mut completions, ReceiveConfig::default())?;
    let arriving = MrSlice::new(pd.allocate(LENGTH, Access::LOCAL_WRITE)?);
    receiver.post(RECEIVE, arriving)?;

    let queue_pair = queue_pair.rtr(&local.rtr(&own, &own))?;
    // On a port connected to itself, a message that does not arrive at once never arrives. Devices
    // take a second to say so.
    let attributes = RtsAttributes {
        timeout: AckTimeout::at_least(Duration::from_millis(67)),
        retry_cnt: 1,
        ..local.rts(&own, &own)
    };
    let queue_pair = queue_pair.rts(&attributes)?;
    let mut channel = Endpoint::new(queue_pair, receiver, completions, SendConfig::default())?;

    let pattern: Vec<u8> = (0..LENGTH).map(|index| (index * 7 + index / 251) as u8).collect();
    let mut leaving = MrSlice::new(pd.allocate(LENGTH, Access::LOCAL_WRITE)?);
    leaving.write(0, &pattern);
    channel.post(SEND, SendMessage::new(leaving).signaled())?;

    let deadline = Instant::now() + PATIENCE;
    let (mut sent, mut arrived) = (false, None);
    while !sent || arrived.is_none() {
        for returned in channel.poll() {
            let returned = returned?;
            match (returned.id, returned.outcome) {
                (_, Outcome::Failed(failure)) => return Err(failure.to_string().into()),
                (SEND, _) => sent = true,
                (_, Outcome::Received(_)) => arrived = returned.buffers.one().ok(),
                (id, outcome) => return Err(format!("request {id} ended so: {outcome:?}").into()),
            }
        }
        if Instant::now() > deadline {
            return Err(format!("nothing arrived within {PATIENCE:?}").into());
        }
        std::hint::spin_loop();
    }
    match arrived {
        Some(arrived) if arrived.to_vec() == pattern => Ok(()),
        _ => Err("what arrived is not what was sent".into()),
    }
}

const RECEIVE: u64 = 1;
const SEND: u64 = 2;
