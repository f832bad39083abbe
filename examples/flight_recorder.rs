//! The flight recorder: after thousands of messages a program fails, and its queue reports its last
//! operations, byte by byte. The recorder was not requested beforehand.
//!
//! Both sides in this process: `cargo run --features flight-recorder --example flight_recorder`

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::diag::flight::{Dump, What};
use mlx5::diag::text::SendWqe;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, PostError, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, Init, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Inline, RdmaWrite};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Slots of eight bytes on the peer's board.
const SLOTS: u64 = 512;

/// Returns a message's slot. One in five thousand is a slot too far, as a bug would do.
fn slot(message: u64) -> u64 {
    if message % 5000 == 4321 { SLOTS } else { message * 7919 % SLOTS }
}

fn main() -> Result<()> {
    // 1. Two queue pairs, connected to each other, as in every other example.
    let context = Context::open_first()?;
    let cq = CompletionQueue::new(&context, 255)?;
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
    let board = pd.allocate(SLOTS as usize * 8, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let remote = board.remote(0)?;
    let mut completions = CqReader::new(&cq)?;
    let mut queue = SendQueue::new(&qp, &mut completions, SendConfig::default())?;

    // 2. Messages without end. Nothing here knows of a recorder: the feature is all that it takes.
    let mut posted = 0;
    let failure = 'sending: loop {
        let message = Inline(b"message.");
        let write = RdmaWrite::new(message, remote.offset(slot(posted) * 8)).signaled();
        // SAFETY: inline payloads name no memory of this side, which would have to stay alive.
        match unsafe { queue.post(posted, write) } {
            Ok(()) => posted += 1,
            Err(PostError::QueueFull { .. } | PostError::CqFull { .. } | PostError::WrongState) => {
            }
            Err(error) => return Err(error.into()),
        }
        while let Some(completion) = completions.poll(&mut queue)? {
            if let Completion::Failed(failure) = completion {
                break 'sending failure;
            }
        }
    };
    println!("message {} failed: {}", failure.id, failure.status.name());

    // 3. The record froze when that was read. Its text can be logged, and read again: by
    //    `mlx5 decode`, or here. `MLX5_FLIGHT_DUMP=stderr` would have written it by now.
    let text = queue.flight_record().to_string();
    let dump = Dump::parse(&format!("the log of a day\n{text}and so on\n"));
    let record = dump.records.first().ok_or("no record")?;
    println!("{} events, {} before them", record.events.len(), record.lost);
    let guilty = record.guilty().ok_or("the WQE that failed is always there")?;
    println!("{}", SendWqe::new(&guilty.bytes, record.addressing()));
    let address = u64::from_be_bytes(guilty.bytes[16..24].try_into()?);
    let end = board.remote_address() + SLOTS * 8;
    println!("it goes {} bytes beyond the board", address + 8 - end);

    // 4. Was the device slow to say so? Each event has its time.
    let failed = record.failure().ok_or("a frozen record ends with an error")?;
    let written = record.events.iter().position(
        |event| matches!(&event.what, What::Wqe(wqe) if wqe.index == guilty.index && !wqe.found),
    );
    if let Some(written) = written {
        let took = record.events[failed].at - record.events[written].at;
        println!("{took} ns after it was posted");
    }
    Ok(())
}
