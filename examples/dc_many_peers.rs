//! Dynamic connections: one queue pair sends reliably to many peers, without a queue pair for each.
//!
//! `cargo run --example dc_many_peers [peers]`
//!
//! Each peer has a target (DCT), with receives in a shared queue. A sender needs the target's
//! number, address and access key. One initiator (DCI) greets all peers, and adds up in the memory
//! of the first what the others received. Everything runs in one process, in turns. Between hosts,
//! the calls are the same.

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::{Completion, ReceiveDone};
use mlx5::ib::{Access, Dci, Dct};
use mlx5::ring::{CqReader, Queues, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{DctRtrAttributes, InitAttributes, Mtu, RtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairBuilder, Rtr, SharedReceiveQueue,
};
use mlx5::wqe::{DcAddress, FetchAdd, Inline, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

/// The access key of the targets. Requests with another key are refused.
const KEY: u64 = 0x5ec2_e7ed_0007_0001;
/// Room of a receive.
const ROOM: usize = 64;

/// One that anybody may send to.
struct Peer {
    qp: QueuePair<Dct, Rtr>,
    receives: Srq,
    completions: CqReader,
    memory: MemoryRegion,
}

impl Peer {
    fn new(pd: &ProtectionDomain, port: &LocalPort) -> Result<Peer, Box<dyn Error>> {
        let cq = CompletionQueue::new(pd.context(), 128)?;
        // Receives of all who send come from one queue; any number of targets may share it.
        let srq = SharedReceiveQueue::builder(pd).build()?;
        let qp = QueuePair::dc_target(pd, &cq, &srq, KEY).build()?.init(&port.init())?;
        // Ready to receive is all that it gets, and when its number is known.
        let own = port.address(&port.connection_data(&qp));
        let qp = qp.rtr(&DctRtrAttributes::new(own))?;
        let mut completions = CqReader::new(&cq)?;
        let mut receives = Srq::new(&srq, &mut completions, ReceiveConfig::default())?;
        receives.attach(&qp, &mut completions)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_ATOMIC;
        let memory = pd.allocate(8 + ROOM, access)?;
        let sge = memory.sge(8, ROOM)?;
        // SAFETY: the memory is read when the receive is complete, and lives as long as the queue.
        unsafe { receives.post(0, sge)? };
        Ok(Peer { qp, receives, completions, memory })
    }

    /// Waits for a message: what the device says of it, and its text.
    fn hear(&mut self) -> Result<(ReceiveDone, String), Box<dyn Error>> {
        match wait(&mut self.completions, &mut self.receives)? {
            Completion::Receive(done) => {
                let bytes = self.memory.to_vec(8, done.byte_len as usize);
                Ok((done, String::from_utf8(bytes)?))
            }
            other => Err(format!("{other:?}").into()),
        }
    }
}

/// Waits for a completion.
fn wait(
    completions: &mut CqReader,
    queues: &mut impl Queues,
) -> Result<Completion, Box<dyn Error>> {
    loop {
        match completions.poll(queues)? {
            Some(Completion::Failed(failure)) => return Err(failure.into()),
            Some(completion) => return Ok(completion),
            None => std::thread::yield_now(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(8), |count| count.parse::<usize>())?.max(1);
    let context = Context::open_first()?;
    let port = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;
    let mut peers = (0..count).map(|_| Peer::new(&pd, &port)).collect::<Result<Vec<_>, _>>()?;

    // The initiator: of no peer in particular.
    let cq = CompletionQueue::new(&context, 128)?;
    let qp = QueuePairBuilder::<Dci>::new(&pd, &cq).max_inline_data(64).build()?;
    let qp = qp.init(&InitAttributes::new(1))?.rtr(Mtu::Mtu1024)?;
    let qp = qp.rts(&RtsAttributes { max_rd_atomic: 1, ..RtsAttributes::default() })?;
    let mut completions = CqReader::new(&cq)?;
    let mut send = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    let counted = pd.allocate(8, Access::LOCAL_WRITE)?;

    // ANCHOR: address
    // Each peer tells its number and address by other means. An address is made once.
    let mut addresses = Vec::new();
    for peer in &peers {
        let way = AddressHandle::new(&pd, &port.address(&port.connection_data(&peer.qp)))?;
        addresses.push(DcAddress::new(&way, peer.qp.number(), KEY));
    }
    // ANCHOR_END: address
    let first = &peers[0].memory;
    let sum = first.remote(0)?;
    for (number, address) in addresses.iter().enumerate() {
        let text = format!("hello, number {number}");
        // The device connects to whomever a request is for, and leaves who was connected before.
        // SAFETY: the text travels in the request; the word is read when all is complete.
        unsafe {
            send.post(0, SendMessage::new(Inline(text.as_bytes())).signaled().to(address))?;
            let old = counted.word(0)?;
            let add = FetchAdd::new(old, sum, number as u64).signaled();
            send.post(1, add.to(&addresses[0]))?;
        }
        // Done when the peer has it: these are reliable connections.
        for request in 0..2 {
            match wait(&mut completions, &mut send)? {
                Completion::Send(done) if done.id == request => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
    }
    for peer in &mut peers {
        let (done, text) = peer.hear()?;
        println!("{:#x} hears from {:#x}: {text}", peer.qp.number(), done.src_qp);
    }
    let mut sum = [0; 8];
    peers[0].memory.read(0, &mut sum);
    println!("the first has counted {}", u64::from_ne_bytes(sum));
    Ok(())
}
