//! Several threads that post to one queue pair, without a lock. Each has a counter of its own in the
//! peer's memory. One thread polls for all of them.
//!
//! Both sides in this process: `cargo run --example producers [threads]`

use std::error::Error;
use std::thread;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, Producer, Retirer, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair};
use mlx5::wqe::{InlineBytes, RdmaWrite, Remote};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Requests of each thread.
const POSTS: u64 = 500;

fn main() -> Result<()> {
    let threads = std::env::args().nth(1).map_or(Ok(3), |count| count.parse::<u64>())?;

    // 1. Two queue pairs, connected to each other; the walkthrough explains every step of that.
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 128)?;
    let queue_pair = || -> Result<QueuePair<Rc, Init>> {
        let builder = QueuePair::builder(&pd, &cq).max_send_wr(64).max_inline_data(16);
        Ok(builder.build()?.init(&local.init())?)
    };
    let (qp, peer) = (queue_pair()?, queue_pair()?);
    let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
    let qp = qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let _peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let counters = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let remote = counters.remote(0)?;

    // 2. The queue is split into a half that posts, and a half that polls. Producers are clones.
    // ANCHOR: share
    let mut completions = CqReader::new(&cq)?;
    let queue = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    let (producer, retirer) = queue.share();
    let queue = thread::scope(|scope| -> Result<SendQueue> {
        let posting = (0..threads).map(|thread| {
            let producer = producer.clone();
            scope.spawn(move || post(&producer, thread, remote.offset(8 * thread)))
        });
        let posting: Vec<_> = posting.collect();
        let retirer = retire(&mut completions, retirer, threads * POSTS)?;
        posting.into_iter().try_for_each(|thread| thread.join().expect("a producer panicked"))?;
        drop(producer);
        Ok(retirer.unshare().map_err(|_| "a producer is left")?)
    })?;
    // ANCHOR_END: share

    // 3. The queue is exclusive again.
    println!("one owner again, idle: {}", queue.is_idle());
    for thread in 0..threads {
        let mut bytes = [0; 8];
        counters.read(8 * thread as usize, &mut bytes);
        println!("counter of thread {thread}: {}", u64::from_le_bytes(bytes));
    }
    Ok(())
}

// ANCHOR: post
/// Counts up in the peer's memory. If the queue is full, the polling thread makes space.
fn post(producer: &Producer, thread: u64, counter: Remote) -> Result<()> {
    for count in 1..=POSTS {
        let write = RdmaWrite::new(InlineBytes(count.to_le_bytes()), counter);
        // SAFETY: the payload travels in the WQE, so the request names no memory of this side.
        while let Err(error) = unsafe { producer.post(thread, write.signaled()) } {
            if !matches!(error, PostError::QueueFull { .. } | PostError::CqFull { .. }) {
                return Err(error.into());
            }
            thread::yield_now();
        }
    }
    Ok(())
}
// ANCHOR_END: post

/// Polls until `requests` are retired.
fn retire(completions: &mut CqReader, mut retirer: Retirer, requests: u64) -> Result<Retirer> {
    let mut done = 0;
    while done < requests {
        match completions.poll(&mut retirer)? {
            Some(Completion::Send(_)) => done += 1,
            Some(Completion::Failed(failure)) => return Err(failure.into()),
            Some(other) => return Err(format!("{other:?}").into()),
            None => thread::yield_now(),
        }
    }
    Ok(retirer)
}
