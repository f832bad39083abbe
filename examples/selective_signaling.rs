//! Few completions for many requests: only some requests are signaled, and the device may compress
//! their CQEs. The completion of a request covers all requests before it.
//!
//! Both sides in this process: `cargo run --example selective_signaling`

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, CqeCompression, Rc};
use mlx5::ring::{CqReader, PostError, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, DeviceClock, Init, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Inline, RdmaWrite};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Counters to be written to the peer.
const COUNTERS: u64 = 1000;
/// One in this many requests is signaled.
const EVERY: u64 = 8;
/// Requests that one doorbell tells the device of.
const BATCH: u64 = 64;

fn main() -> Result<()> {
    // 1. A completion queue with compression. If the device cannot compress, its creation fails, and a
    //    CQ without compression is used. It has a slot for each request of the queue: when a queue
    //    pair fails, unsignaled requests complete, too.
    let context = Context::open_first()?;
    let builder = CompletionQueue::builder(&context, 255);
    let compressed = builder.clone().compression(CqeCompression::Hash).build();
    let cq = compressed.or_else(|_| builder.build())?;

    // 2. Two queue pairs, connected to each other.
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let queue_pair = || -> Result<QueuePair<Rc, Init>> {
        let builder = QueuePair::builder(&pd, &cq).max_send_wr(128).max_inline_data(16);
        Ok(builder.build()?.init(&local.init())?)
    };
    let (qp, peer) = (queue_pair()?, queue_pair()?);
    let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
    let qp: QueuePair<Rc, Rts> =
        qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let _peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let board = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let remote = board.remote(0)?;

    let mut completions = CqReader::new(&cq)?;
    let mut queue = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    let clock = DeviceClock::new(&context).ok().and_then(|clock| clock.read());

    // 3. Post until the queue is full, then poll: each completion frees the slots of its request
    //    and of the unsignaled requests before it. The last request is signaled, too, else the
    //    program would not learn that it has completed.
    let (mut posted, mut done, mut completed, mut last) = (0, 0, 0, None);
    while done < COUNTERS {
        // ANCHOR: batch
        let mut batch = queue.batch();
        for _ in 0..BATCH.min(COUNTERS - posted) {
            let (payload, number) = ((posted + 1).to_le_bytes(), posted + 1);
            let write = RdmaWrite::new(Inline(&payload), remote.offset(posted % 512 * 8));
            let signaled = number % EVERY == 0 || number == COUNTERS;
            match batch.append(number, write.signaled_if(signaled)) {
                Ok(()) => posted += 1,
                Err(PostError::QueueFull { .. } | PostError::CqFull { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // SAFETY: inline payloads name no memory of this side, which would have to stay alive.
        unsafe { batch.ring() };
        // ANCHOR_END: batch

        // 4. A look at the next completion tells when it was written, before a poll takes it.
        if let Some(next) = completions.peek()? {
            last = clock.zip(next.timestamp()).map(|(clock, at)| clock.time(at));
        }
        // ANCHOR: poll
        while let Some(completion) = completions.poll(&mut queue)? {
            match completion {
                Completion::Send(sent) => (done, completed) = (sent.id, completed + 1),
                other => return Err(format!("{other:?}").into()),
            }
        }
        // ANCHOR_END: poll
    }
    println!(
        "{done} requests, {completed} completions, compressed: {}",
        cq.compression().is_some()
    );
    if let Some(age) = last.and_then(|last| last.elapsed().ok()) {
        println!("the last were written {} ms ago", age.as_millis());
    }
    let mut bytes = [0; 8];
    board.read(((COUNTERS - 1) % 512 * 8) as usize, &mut bytes);
    println!("the peer has {}", u64::from_le_bytes(bytes));
    Ok(())
}
