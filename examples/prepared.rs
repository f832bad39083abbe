//! Prepared requests, written ahead: at the critical moment, the program only fills in two fields
//! and rings the doorbell. The thread is pinned to a core, so that the ring stays in its caches.
//!
//! Both sides in this process: `cargo run --example prepared [core]`

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, Prepared, Queues, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Field, InlineBytes, RdmaWrite};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

// ANCHOR: fields
/// Bytes of an order, and the fields of it that are known last.
const ORDER: usize = 128;
const PRICE: Field<40, 8> = Field;
const QUANTITY: Field<48, 4> = Field;
// ANCHOR_END: fields

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    // The core: an argument, or the one on which the program happens to run.
    // SAFETY: the call has no conditions.
    let present = unsafe { libc::sched_getcpu() }.try_into();
    pin(std::env::args().nth(1).map_or(Ok(present?), |core| core.parse())?)?;

    // 1. Two queue pairs, connected to each other; the walkthrough explains every step of that.
    let context = Context::open_first()?;
    let local = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 64)?;
    let queue_pair = || -> Result<QueuePair<Rc, Init>> {
        let builder = QueuePair::builder(&pd, &cq).max_send_wr(32).max_inline_data(ORDER as u32);
        Ok(builder.build()?.init(&local.init())?)
    };
    let (qp, peer) = (queue_pair()?, queue_pair()?);
    let (mine, theirs) = (local.connection_data(&qp), local.connection_data(&peer));
    let qp: QueuePair<Rc, Rts> =
        qp.rtr(&local.rtr(&mine, &theirs))?.rts(&local.rts(&mine, &theirs))?;
    let _peer = peer.rtr(&local.rtr(&theirs, &mine))?.rts(&local.rts(&theirs, &mine))?;
    let board = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let remote = board.remote(0)?;

    // 2. The direct path takes the send queue over, and `Prepared` takes it from there. The type of
    //    the requests is fixed: WRITEs of an order that travels in the WQE.
    let mut completions = CqReader::new(&cq)?;
    let queue = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    let mut prepared = Prepared::new(queue);

    // ANCHOR: prepare
    // 3. Ahead of time: the requests are written to the ring. Everything that could fail is checked
    //    here. The device does not look at them, since the doorbell record does not cover them.
    for slot in 0..4 {
        let order = InlineBytes([slot as u8; ORDER]);
        let write = RdmaWrite::new(order, remote.offset(slot * ORDER as u64)).signaled();
        prepared.prepare(slot, write)?;
    }
    // ANCHOR_END: prepare
    println!("{} requests are prepared", prepared.len());

    // ANCHOR: fire
    // 4. Now: two fields, the doorbell record, the register. Each call fires the oldest request.
    for (price, quantity) in [(101_u64, 5_u32), (102, 6), (103, 7)] {
        prepared.fire((PRICE.with(price.to_le_bytes()), QUANTITY.with(quantity.to_le_bytes())))?;
    }
    // ANCHOR_END: fire

    // 5. Completions come as always, in order.
    for _ in 0..3 {
        println!("complete: {}", wait(&mut completions, &mut prepared)?);
    }

    // 6. The queue comes back. The request that was not fired is not posted.
    println!("{} request is left", prepared.len());
    let queue = prepared.into_queue();
    println!("idle: {}", queue.is_idle());

    // 7. What the other side has.
    let price = |slot: usize| {
        let mut bytes = [0; 8];
        board.read(slot * ORDER + 40, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    println!("prepared: {} {} {} {}", price(0), price(1), price(2), price(3));
    Ok(())
}

// ANCHOR: pin
/// Pins this thread to a core. A thread that the scheduler moves finds the ring in no cache.
fn pin(core: usize) -> Result<()> {
    // SAFETY: a set of cores is bits, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if core >= 8 * size_of_val(&set) {
        return Err(format!("there is no core {core}").into());
    }
    // SAFETY: the set has a bit for the core, by the check above.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the kernel reads the set, of the size given, during the call. 0 is this thread.
    match unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) } {
        0 => Ok(()),
        _ => Err(format!("core {core}: {}", io::Error::last_os_error()).into()),
    }
}
// ANCHOR_END: pin

/// Polls until there is a completion, and says of what.
fn wait(completions: &mut CqReader, queues: &mut impl Queues) -> Result<String> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match completions.poll(queues)? {
            Some(Completion::Send(done)) => {
                return Ok(format!("request {}, {:?}", done.id, done.operation));
            }
            Some(Completion::Failed(failure)) => return Err(failure.into()),
            Some(other) => return Err(format!("unexpected completion {other:?}").into()),
            None if Instant::now() > deadline => return Err("no completion".into()),
            None => std::hint::spin_loop(),
        }
    }
}
