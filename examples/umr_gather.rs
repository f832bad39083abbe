//! An indirect memory key over scattered memory: its user sees one contiguous range, and the device
//! gathers. The key is created once; requests of the send queue set its memory, again and again.
//!
//! Both sides in this process: `cargo run --example umr_gather`

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Init, Mkey, ProtectionDomain, QueuePair};
use mlx5::wqe::{Interleaved, RdmaRead, Remote, Sge, Strided};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // 1. Two queue pairs, connected to each other; the walkthrough explains every step of that.
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let (owner_cq, reader_cq) =
        (CompletionQueue::new(&context, 64)?, CompletionQueue::new(&context, 64)?);
    let queue_pair = |cq| -> Result<QueuePair<Rc, Init>> {
        Ok(QueuePair::builder(&pd, cq).max_send_wr(16).build()?.init(&local.init())?)
    };
    let (owner, reader) = (queue_pair(&owner_cq)?, queue_pair(&reader_cq)?);
    let (mine, theirs) = (local.connection_data(&owner), local.connection_data(&reader));
    let owner = owner.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let reader = reader.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let mut owner_completions = CqReader::new(&owner_cq)?;
    let mut owner_send = SendQueue::new(&owner, &mut owner_completions, SendConfig::default())?;
    let mut reader_completions = CqReader::new(&reader_cq)?;
    let mut reader_send = SendQueue::new(&reader, &mut reader_completions, SendConfig::default())?;

    // 2. The owner's table: eight rows of 16 bytes, a name and a price in each. Peers have no right
    //    to it by the region's own key.
    let mut table = pd.allocate(4096, Access::LOCAL_WRITE)?;
    for (row, name) in
        ["iron", "salt", "silk", "rice", "gold", "wool", "corn", "coal"].into_iter().enumerate()
    {
        table.write(row * 16, name.as_bytes());
        table.write(row * 16 + 8, format!("{:>4}", 7 * row + 3).as_bytes());
    }

    // 3. A key with room for four entries. It leads nowhere yet.
    let key = Mkey::new(&pd, 4)?;

    // 4. A list: two names and the last price. Behind the key, addresses start at 0.
    let pieces = [table.sge(0, 4)?, table.sge(2 * 16, 4)?, table.sge(7 * 16 + 8, 4)?];
    let list = key.configure().access(Access::REMOTE_READ).layout(pieces);
    // SAFETY: the table stays registered, and no code writes it.
    unsafe { owner_send.post(1, list.signaled())? };
    wait(&mut owner_completions, &mut owner_send)?;
    let into = pd.allocate(4096, Access::LOCAL_WRITE)?;
    let mut read = |length: usize| -> Result<String> {
        let target = into.sge(0, length)?;
        let request = RdmaRead::new(target, Remote::new(0, key.rkey())).signaled();
        // SAFETY: the memory stays registered, and is read when the request is complete.
        unsafe { reader_send.post(2, request)? };
        wait(&mut reader_completions, &mut reader_send)?;
        Ok(String::from_utf8_lossy(&into.to_vec(0, length)).into_owned())
    };
    println!("the list: {}", read(12)?);

    // 5. A strided pattern: the column of names, from every row. The same key, another request.
    let Sge { addr, lkey, .. } = table.sge(0, 8 * 16)?;
    let column = [Strided { addr, lkey, length: 4, skip: 12 }];
    let names = key.configure().layout(Interleaved { repeat: 8, pieces: &column });
    // SAFETY: the memory stays registered, and is read when the request is complete.
    unsafe { owner_send.post(3, names.signaled())? };
    wait(&mut owner_completions, &mut owner_send)?;
    println!("the column: {}", read(32)?);

    // 6. Enough. The key opens nothing any more, and can be configured again.
    // SAFETY: the request names no memory.
    unsafe { owner_send.post(4, key.invalidate().signaled())? };
    wait(&mut owner_completions, &mut owner_send)?;
    println!("then: {}", read(12).expect_err("the key is not in use"));
    Ok(())
}

/// Until the next completion, which is a success.
fn wait(completions: &mut CqReader, queue: &mut SendQueue) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match completions.poll(queue)? {
            Some(Completion::Send(_)) => return Ok(()),
            Some(Completion::Failed(failure)) => return Err(failure.status.name().into()),
            Some(other) => return Err(format!("{other:?}").into()),
            None => std::hint::spin_loop(),
        }
    }
    Err("no completion".into())
}
