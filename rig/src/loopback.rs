//! What the examples in the documentation of types need and do not show.

use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, Queues, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, Rts};
use mlx5::wqe::{Remote, Sge};

/// A result of anything.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// An RC queue pair that is connected to itself, with its queues and some memory.
pub struct Link {
    /// The domain of queue pair and memory.
    pub pd: ProtectionDomain,
    /// Port 1.
    pub local: LocalPort,
    /// The queue pair.
    pub qp: QueuePair<Rc, Rts>,
    /// The polling side of its CQ.
    pub reader: CqReader,
    /// Its send queue.
    pub sends: SendQueue,
    /// Its receive queue.
    pub receives: ReceiveQueue,
    /// 4096 zeros, with all rights.
    pub memory: MemoryRegion,
    /// Bytes 0 to 63 of the memory.
    pub sge: Sge,
    /// The memory from byte 64 on, as the peer names it.
    pub remote: Remote,
}

/// Opens the first device and connects a queue pair to itself.
///
/// # Errors
/// There is no device, or it refuses an object.
pub fn link() -> Result<Link> {
    let pd = ProtectionDomain::new(&Context::open_first()?)?;
    let local = LocalPort::new(pd.context(), 1, None)?;
    let cq = CompletionQueue::new(pd.context(), 128)?;
    let qp = QueuePair::builder(&pd, &cq).max_inline_data(64).max_send_sge(2).build()?;
    let data = local.connection_data(&qp);
    let qp = qp.init(&local.init())?.rtr(&local.rtr(&data, &data))?;
    let qp = qp.rts(&local.rts(&data, &data))?;
    let mut reader = CqReader::new(&cq)?;
    let receives = ReceiveQueue::new(&qp, &mut reader, ReceiveConfig::default())?;
    let sends = SendQueue::new(&qp, &mut reader, SendConfig::default())?;
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::MW_BIND | remote)?;
    let sge = memory.sge(0, 64)?;
    let remote = memory.remote(64)?;
    Ok(Link { pd, local, qp, reader, sends, receives, memory, sge, remote })
}

/// Polls until there is a completion.
///
/// # Errors
/// A poll failed, or there was none for 30 seconds.
pub fn poll(reader: &mut CqReader, queues: &mut impl Queues) -> Result<Completion> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Instant::now() < deadline {
        if let Some(completion) = reader.poll(queues)? {
            return Ok(completion);
        }
        std::thread::yield_now();
    }
    Err("no completion".into())
}
