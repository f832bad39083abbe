//! Waiting instead of polling: one `epoll` loop receives completion events and asynchronous device
//! events through their descriptors. An asynchronous runtime uses the same descriptors (tokio:
//! `AsyncFd`).
//!
//! Both sides in this process: `cargo run --example events_epoll`

use std::error::Error;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{io, thread, time::Duration};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionChannel, CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts,
};
use mlx5::wqe::{Inline, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MESSAGES: u64 = 5;

fn main() -> Result<()> {
    // 1. A completion queue whose events go to a channel.
    let context = Context::open_first()?;
    let channel = CompletionChannel::new(&context)?;
    let cq = CompletionQueue::builder(&context, 64).channel(&channel).build()?;
    let sender_cq = CompletionQueue::new(&context, 64)?;

    // 2. Two queue pairs, connected to each other: one receives here, the other sends from a
    //    thread.
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let make = |cq: &CompletionQueue| -> Result<QueuePair<Rc, Init>> {
        let qp = QueuePair::builder(&pd, cq).max_inline_data(32).build()?;
        Ok(qp.init(&local.init())?)
    };
    let (qp, peer) = (make(&cq)?, make(&sender_cq)?);
    let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
    let qp: QueuePair<Rc, Rts> =
        qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let memory = pd.allocate(4096, Access::LOCAL_WRITE)?;
    let mut completions = CqReader::new(&cq)?;
    let mut receives = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
    for id in 0..MESSAGES {
        let sge = memory.sge(id as usize * 64, 64)?;
        // SAFETY: the region outlives the queue; each receive has a piece of it, which is not read
        // before its completion.
        unsafe { receives.post(id, sge)? };
    }
    let sender = thread::spawn(move || send(&peer, &sender_cq).expect("five messages are sent"));

    // 3. Two descriptors to wait for: the channel's, and that of asynchronous events.
    let mut events = context.async_events();
    let epoll = Epoll::new()?;
    epoll.add(channel.as_fd(), 1)?;
    epoll.add(events.as_fd(), 2)?;

    // ANCHOR: loop
    // 4. The order that loses nothing: ask for an event, poll until nothing is left, then wait.
    //    A CQE that comes between asking and waiting raises the event. Earlier CQEs were polled.
    let mut received = 0;
    while received < MESSAGES {
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
        if received == MESSAGES {
            break;
        }
        for source in epoll.wait()? {
            if source == 1 {
                // One for each time that it was armed. They are acknowledged all together when the
                // queue is destroyed.
                while let Some(queue) = channel.try_event()? {
                    assert!(queue == cq);
                }
            } else {
                for event in &mut events {
                    println!("event: {}", event?);
                }
            }
        }
    }
    // ANCHOR_END: loop
    sender.join().map_err(|_| "the sender failed")?;
    println!("all {received} are there");
    Ok(())
}

/// Sends a message now and then.
fn send(qp: &QueuePair<Rc, Rts>, cq: &CompletionQueue) -> Result<()> {
    let mut completions = CqReader::new(cq)?;
    let mut queue = SendQueue::new(qp, &mut completions, SendConfig::default())?;
    for number in 1..=MESSAGES {
        thread::sleep(Duration::from_millis(5));
        let message = format!("message {number}");
        // SAFETY: an inline payload names no memory that would have to stay alive.
        unsafe { queue.post(number, SendMessage::new(Inline(message.as_bytes())).signaled())? };
        while completions.poll(&mut queue)?.is_none() {
            thread::yield_now();
        }
    }
    Ok(())
}

/// Just enough of `epoll`.
struct Epoll(OwnedFd);

impl Epoll {
    fn new() -> Result<Self> {
        // SAFETY: the descriptor is new, and owned by the result alone.
        match unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } {
            -1 => Err(io::Error::last_os_error().into()),
            // SAFETY: the descriptor is new, and owned by the result alone.
            fd => Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    fn add(&self, fd: BorrowedFd<'_>, name: u64) -> Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: name };
        let (epoll, fd) = (self.0.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event lives through the call.
        match unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    fn wait(&self) -> Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 2];
        // SAFETY: room for two events.
        match unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 2, -1) } {
            -1 => Err(io::Error::last_os_error().into()),
            count => Ok(events.iter().take(count as usize).map(|event| event.u64).collect()),
        }
    }
}
