//! Memory on the device: the source of a message, counters that a peer adds to, and a flag that the
//! peer writes. None of it crosses the host's memory.
//!
//! Both sides in this process: `cargo run --example device_memory`

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, Queues, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, DeviceMemory, Init, ProtectionDomain, QueuePair};
use mlx5::wqe::{FetchAdd, InlineBytes, RdmaWrite, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // 1. There is little of it, and not every device has it.
    let context = Context::open_first()?;
    println!("the device has {} KiB of memory to give", context.device_memory()? >> 10);
    let pd = ProtectionDomain::new(&context)?;
    let mut board = DeviceMemory::allocate(&context, 4096, 6)?;

    // ANCHOR: region
    // 2. Requests name it by a region, whose addresses start at zero. They are not pointers of this
    //    process.
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let region = pd.register_device(&board, 0, board.len(), rights)?;
    // ANCHOR_END: region

    // 3. Two queue pairs, connected to each other; the walkthrough explains every step of that.
    let local = LocalPort::new(&context, 1, None)?;
    let cq = CompletionQueue::new(&context, 256)?;
    let queue_pair = || -> Result<QueuePair<Rc, Init>> {
        Ok(QueuePair::builder(&pd, &cq).max_inline_data(32).build()?.init(&local.init())?)
    };
    let (qp, peer) = (queue_pair()?, queue_pair()?);
    let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
    let mut completions = CqReader::new(&cq)?;
    let mut inbox = ReceiveQueue::new(&peer, &mut completions, ReceiveConfig::default())?;
    let qp = qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let mut owner = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    let mut client = SendQueue::new(&peer, &mut completions, SendConfig::default())?;
    let host = pd.allocate(4096, Access::LOCAL_WRITE)?;

    // ANCHOR: use
    // 4. Stores go over the bus, eight bytes at a time or copied in fours. A doorbell takes along
    //    what was stored before it, so the message is there when the device looks.
    board.write(1024, b"a message out of the device's memory");
    board.store(0, 100);
    // SAFETY: `host`, `board` and its region outlive the requests, which are waited for.
    unsafe {
        inbox.post(1, host.sge(0, 64)?)?;
        owner.post(2, SendMessage::new(region.sge(1024, 36)?).signaled())?;
    }
    // ANCHOR_END: use
    for _ in 0..2 {
        println!("{:?}", wait(&mut completions, &mut ((&mut owner, &mut client), &mut inbox))?);
    }
    let mut text = [0; 36];
    host.read(0, &mut text);
    println!("received: {}", std::str::from_utf8(&text)?);

    // 5. The peer's atomics and WRITEs are done on the device, without a turn over the owner's bus.
    let word = host.word(128)?;
    // SAFETY: `host`, `board` and its region outlive the requests, which are waited for.
    unsafe {
        for id in 10..13 {
            client.post(id, FetchAdd::new(word, region.remote(0)?, 5).signaled())?;
        }
        let done = InlineBytes(1_u64.to_ne_bytes());
        client.post(13, RdmaWrite::new(done, region.remote(8)?).signaled())?;
    }
    for _ in 10..=13 {
        println!("{:?}", wait(&mut completions, &mut ((&mut owner, &mut client), &mut inbox))?);
    }

    // 6. A load waits for the device: it is for what is looked at seldom.
    println!("counter: {}, flag: {}", board.load(0), board.load(8));
    Ok(())
}

fn wait(completions: &mut CqReader, queues: &mut impl Queues) -> Result<Completion> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match completions.poll(queues)? {
            Some(Completion::Failed(failure)) => return Err(failure.to_string().into()),
            Some(completion) => return Ok(completion),
            None if Instant::now() > deadline => return Err("no completion in ten seconds".into()),
            None => std::thread::yield_now(),
        }
    }
}
