//! Sleeping on queues made by firmware command: an event channel wakes a `poll` loop when messages
//! have arrived, and when a peer's request was refused.
//!
//! Both sides in this process: `cargo run --example devx_events`

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::{io, thread, time::Duration};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::devx::{EventChannel, EventKind, Firmware};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Inline, RdmaWrite, Remote, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MESSAGES: u64 = 5;

/// The identifiers of events: 64 bits that the program chooses.
const COMPLETED: u64 = 1;
const REFUSED: u64 = 2;

fn main() -> Result<()> {
    // 1. Two connected queue pairs, each with a CQ, all by firmware command.
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let make = || -> Result<_> {
        let cq = CompletionQueue::by_command(&context, 256).build()?;
        let qp = QueuePair::by_command(&pd, &cq).max_inline_data(32).build()?;
        Ok((qp.init(&local.init())?, cq))
    };
    let ((qp, cq), (peer, peer_cq)) = (make()?, make()?);
    let (mine, theirs) =
        (local.connection_data_of(qp.number()), local.connection_data_of(peer.number()));
    let qp = qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;

    // 2. An event channel, and subscriptions. Verbs queues have a completion channel and the
    //    context's events. Queues that were made by command have this channel.
    let channel = EventChannel::new(&context)?;
    channel.subscribe(&cq, EventKind::Completion, COMPLETED)?;
    channel.subscribe(&qp, EventKind::AccessError, REFUSED)?;

    // 3. Receives, and memory that the peer may read only. A thread sends now and then, and in the
    //    end writes where it may not.
    let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    let mut completions = CqReader::new(&cq)?;
    let mut receives = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
    for id in 0..MESSAGES {
        let sge = memory.sge(id as usize * 64, 64)?;
        // SAFETY: the region outlives the queue; each receive has a piece of it, which is not read
        // before its completion.
        unsafe { receives.post(id, sge)? };
    }
    let target = memory.remote(0)?;
    let sender = thread::spawn(move || send(&peer, &peer_cq, target).expect("the peer's part"));

    // 4. The order that loses nothing: ask for an event, poll until nothing is left, then sleep.
    //    A CQE that comes between asking and sleeping raises the event. Earlier CQEs were polled.
    let (mut received, mut refused) = (0, false);
    while received < MESSAGES || !refused {
        completions.arm();
        for completion in completions.poll_all(&mut receives) {
            match completion? {
                Completion::Receive(done) => {
                    let bytes = memory.to_vec(done.id as usize * 64, done.byte_len as usize);
                    println!("received: {}", String::from_utf8_lossy(&bytes));
                    received += 1;
                }
                other => return Err(format!("{other:?}").into()),
            }
        }
        if received < MESSAGES || !refused {
            sleep_on(&channel)?;
        }
        // Reading an event of the CQ also counts it, so that the next request for one is not taken
        // for a late repetition of this one's.
        while let Some(event) = channel.try_event()? {
            match event.cookie() {
                COMPLETED => println!("woken: {event}"),
                REFUSED => {
                    println!("event: {event}");
                    refused = true;
                }
                other => return Err(format!("an event of nobody: {other}").into()),
            }
        }
    }
    sender.join().map_err(|_| "the sender failed")?;
    println!("all {received} are there, and one write was refused");
    Ok(())
}

/// Waits until the channel is readable: any loop over descriptors can.
fn sleep_on(channel: &EventChannel) -> Result<()> {
    let fd = channel.as_fd().as_raw_fd();
    let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd, which lives through the call.
    match unsafe { libc::poll(&mut wait, 1, -1) } {
        -1 => Err(io::Error::last_os_error().into()),
        _ => Ok(()),
    }
}

/// Sends a message now and then, and writes where it may not.
fn send(
    qp: &QueuePair<Rc, Rts, Firmware>,
    cq: &CompletionQueue<Firmware>,
    target: Remote,
) -> Result<()> {
    let mut completions = CqReader::new(cq)?;
    let mut queue = SendQueue::new(qp, &mut completions, SendConfig::default())?;
    for number in 1..=MESSAGES + 1 {
        thread::sleep(Duration::from_millis(5));
        let message = format!("message {number}");
        let payload = Inline(message.as_bytes());
        // SAFETY: an inline payload names no memory of this side, and the peer's memory is not
        // written.
        unsafe {
            match number {
                ..=MESSAGES => queue.post(number, SendMessage::new(payload).signaled())?,
                _ => queue.post(number, RdmaWrite::new(payload, target).signaled())?,
            }
        }
        let completion = loop {
            match completions.poll(&mut queue)? {
                Some(completion) => break completion,
                None => thread::yield_now(),
            }
        };
        let failed = matches!(completion, Completion::Failed(_));
        if failed != (number > MESSAGES) {
            return Err(format!("{completion:?}").into());
        }
    }
    Ok(())
}
