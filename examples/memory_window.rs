//! Memory windows: one side grants the other access to a part of its memory for a while, without a
//! system call. The grant is a request of the send queue, and so is its revocation.
//!
//! Both sides in this process: `cargo run --example memory_window`

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::Access;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, Queues, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Init, MemoryWindow, ProtectionDomain};
use mlx5::verbs::{QueuePair, Type2};
use mlx5::wqe::{Inline, RdmaWrite, Remote, SendInvalidate};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // 1. Two queue pairs, connected to each other; the walkthrough explains every step of that.
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let (owner_cq, guest_cq) =
        (CompletionQueue::new(&context, 64)?, CompletionQueue::new(&context, 64)?);
    let queue_pair = |cq| -> Result<QueuePair<Rc, Init>> {
        let builder = QueuePair::builder(&pd, cq).max_send_wr(16).max_inline_data(64);
        Ok(builder.build()?.init(&local.init())?)
    };
    let (owner, guest) = (queue_pair(&owner_cq)?, queue_pair(&guest_cq)?);
    let (mine, theirs) = (local.connection_data(&owner), local.connection_data(&guest));
    let mut owner_completions = CqReader::new(&owner_cq)?;
    let config = ReceiveConfig::default();
    let mut inbox = ReceiveQueue::new(&owner, &mut owner_completions, config)?;
    let owner = owner.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let guest = guest.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let mut owner_send = SendQueue::new(&owner, &mut owner_completions, SendConfig::default())?;
    let mut guest_completions = CqReader::new(&guest_cq)?;
    let mut guest_send = SendQueue::new(&guest, &mut guest_completions, SendConfig::default())?;

    // 2. The owner's memory. Peers have no right to it, but windows may be bound to it.
    let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND)?;
    let letter = memory.sge(2048, 64)?;
    // SAFETY: the memory outlives the queue, and the program does not access this part.
    unsafe { inbox.post(1, letter)? };

    // ANCHOR: bind
    // 3. A window of type 2: only the peer of one queue pair may use it, and that peer may
    //    invalidate it. A request binds it to 512 bytes. The program chooses the key's low byte, so
    //    that earlier keys become invalid.
    let mut window = MemoryWindow::<Type2>::new(&pd)?;
    let grant = window.bind(owner.number(), 42, &memory, 1024, 512, Access::REMOTE_WRITE)?;
    // SAFETY: no code holds a reference to the memory as long as the peer may write it.
    let rkey = unsafe { owner_send.bind(2, &mut window, grant.signaled())? };
    // ANCHOR_END: bind
    println!("bound: {}", wait(&mut owner_completions, &mut owner_send)?);

    // 4. The guest writes into the window. The programs decide how it learns address and key.
    let place = Remote::new(memory.remote_address() + 1024, rkey);
    // SAFETY: inline payloads name no memory of this side.
    unsafe { guest_send.post(3, RdmaWrite::new(Inline(b"I was here"), place).signaled())? };
    println!("written: {}", wait(&mut guest_completions, &mut guest_send)?);

    // 5. The guest sends that it is done, and gives the key back: the message invalidates the key,
    //    and the owner's completion names it.
    let farewell = SendInvalidate::new(Inline(b"thanks"), rkey);
    // SAFETY: inline payloads name no memory of this side.
    unsafe { guest_send.post(4, farewell.signaled())? };
    println!("sent: {}", wait(&mut guest_completions, &mut guest_send)?);
    let told = wait(&mut owner_completions, &mut (&mut owner_send, &mut inbox))?;
    println!("told: {told}");
    let mut found = [0; 10];
    memory.read(1024, &mut found);
    println!("found: {}", String::from_utf8_lossy(&found));

    // 6. From now on the key opens nothing.
    // SAFETY: inline payloads name no memory of this side.
    unsafe { guest_send.post(5, RdmaWrite::new(Inline(b"and again"), place).signaled())? };
    println!("then: {}", wait(&mut guest_completions, &mut guest_send)?);
    Ok(())
}

/// The next completion, as text.
fn wait<Q: Queues + ?Sized>(completions: &mut CqReader, queues: &mut Q) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        match completions.poll(queues)? {
            Some(Completion::Send(done)) => return Ok(format!("{:?}", done.operation)),
            Some(Completion::Receive(done)) => {
                return Ok(match done.kind {
                    ReceiveKind::SendInvalidate(rkey) => {
                        format!("{} bytes, key {rkey:#x} is invalid", done.byte_len)
                    }
                    other => format!("{other:?}"),
                });
            }
            Some(Completion::Failed(failure)) => return Ok(failure.status.name().to_owned()),
            Some(other) => return Err(format!("{other:?}").into()),
            None => std::hint::spin_loop(),
        }
    }
    Err("no completion".into())
}
