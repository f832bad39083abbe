//! Memory near the device: rings on the NUMA node of the device, and payload on huge pages. Each step
//! does without where the machine has none.
//!
//! `cargo run --example placement`

use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::endpoint::{Endpoint, MrSlice, Outcome, Receiver};
use mlx5::expert::Placement;
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig};
use mlx5::verbs::{
    CompletionQueue, Context, HugePageSize, MemoryRegion, ProtectionDomain, QueuePair,
};
use mlx5::wqe::SendMessage;
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PAYLOAD: usize = 4 << 20;

fn main() -> Result<()> {
    let context = Context::open_first()?;
    let pd = ProtectionDomain::new(&context)?;

    // ANCHOR: rings
    // The kernel writes -1 where the machine has one node. The model has no such file.
    let node = fs::read_to_string(context.sysfs_path().join("device/numa_node"));
    let node = node.ok().and_then(|text| text.trim().parse::<u32>().ok());
    // Rings and doorbell records of all queues lie in one mapping, on that node.
    let rings = Arc::new(match node {
        Some(node) => Placement::new().on_node(node),
        None => Placement::new(),
    });
    let cq = CompletionQueue::builder(&context, 64).placement(&pd, &rings).build()?;
    let qp = QueuePair::builder(&pd, &cq).placement(&rings).build()?;
    // ANCHOR_END: rings
    println!("{} KiB of rings, node {node:?}", rings.in_use() >> 10);

    let (memory, pages) = payload(&pd)?;
    println!("{} MiB of payload on {pages}", memory.len() >> 20);

    // A message to itself, from one half of the payload to the other.
    let port = LocalPort::new(&context, 1, None)?;
    let data = port.connection_data(&qp);
    let qp = qp.init(&port.init())?;
    let mut completions = CqReader::new(&cq)?;
    let mut receiver = Receiver::new(&qp, &mut completions, ReceiveConfig::default())?;
    let mut outgoing = MrSlice::new(memory);
    receiver.post(1, outgoing.split_off(PAYLOAD / 2))?;
    let qp = qp.rtr(&port.rtr(&data, &data))?.rts(&port.rts(&data, &data))?;
    let mut endpoint = Endpoint::new(qp, receiver, completions, SendConfig::default())?;
    endpoint.post(2, SendMessage::new(outgoing).signaled())?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        if let Some(returned) = endpoint.poll().next() {
            match returned?.outcome {
                Outcome::Received(done) => {
                    println!("received: {} bytes", done.byte_len);
                    return Ok(());
                }
                Outcome::Failed(failure) => return Err(failure.into()),
                _ => {}
            }
        }
        std::thread::yield_now();
    }
    Err("nothing arrives".into())
}

// ANCHOR: payload
/// Memory on huge pages, or on usual ones if the system has reserved none.
fn payload(pd: &ProtectionDomain) -> Result<(MemoryRegion, &'static str)> {
    let rights = Access::LOCAL_WRITE;
    match pd.allocate_huge(PAYLOAD, HugePageSize::Mib2, rights) {
        Ok(region) => Ok((region, "huge pages")),
        Err(error) => {
            eprintln!("no huge pages: {error}");
            Ok((pd.allocate(PAYLOAD, rights)?, "usual pages"))
        }
    }
}
// ANCHOR_END: payload
