//! A server of many connections that posts its receives once: to a shared receive queue.
//!
//! With a receive queue per connection, each needs memory for its own peak load. Here all
//! connections take from one queue, and complete on one CQ. The server refills the queue when the
//! device reports that it runs short.
//!
//! Everything in this process: `cargo run --example srq_server`

use std::error::Error;
use std::time::Duration;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::ib::Access;
use mlx5::ring::{CqReader, QueueTable, ReceiveConfig, RegisterUse, SendConfig, SendQueue, Srq};
use mlx5::verbs::{
    CompletionQueue, Context, EventSource, ProtectionDomain, QueuePair, SharedReceiveQueue,
};
use mlx5::wqe::{Inline, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

const CLIENTS: u64 = 20;
/// Messages of each client.
const MESSAGES: u64 = 10;
/// Receives that are posted at most, for all clients together, and bytes of each.
const RECEIVES: u64 = 32;
const ROOM: u64 = 64;
/// Fewer than this, and the device asks for more.
const LOW: u32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let context = Context::open_first()?;
    let pd = ProtectionDomain::new(&context)?;
    let port = LocalPort::new(&context, 1, None)?;
    // Declared before the queues, so that it is freed after them.
    let memory = pd.allocate((RECEIVES * ROOM) as usize, Access::LOCAL_WRITE)?;

    // ANCHOR: shared
    // 1. One queue of receives, and one CQ for all completions. The reader of the CQ reserves a CQ
    //    slot for each receive that can be outstanding, so the CQ never overruns.
    let cq = CompletionQueue::new(&context, 1023)?;
    let srq = SharedReceiveQueue::builder(&pd).max_wr(RECEIVES as u32).build()?;
    let mut completions = CqReader::new(&cq)?;
    let receives = Srq::new(&srq, &mut completions, ReceiveConfig { receives: RECEIVES as u32 })?;

    // 2. A table in which polls find queues by number. Looking one up takes as long for hundreds of
    //    connections as for one.
    let mut table = QueueTable::new();
    let key = table
        .insert_shared(receives)
        .map_err(|_| "the table has an unknown SRQ of an XRC domain")?;
    // ANCHOR_END: shared

    // 3. The connections. The server's ends are made with the shared queue, and attached to it
    //    before their peers send.
    let mut pairs = vec![];
    for _ in 0..CLIENTS {
        let server = QueuePair::builder(&pd, &cq).shared_receive_queue(&srq).build()?;
        let client = QueuePair::builder(&pd, &cq).max_inline_data(32).build()?;
        let (here, there) = (port.connection_data(&server), port.connection_data(&client));
        // ANCHOR: attach
        let server = server.init(&port.init())?;
        table.attach(key, &server, &mut completions)?;
        // ANCHOR_END: attach
        let server = server.rtr(&port.rtr(&here, &there))?.rts(&port.rts(&here, &there))?;
        let client = client.init(&port.init())?;
        let client = client.rtr(&port.rtr(&there, &here))?.rts(&port.rts(&there, &here))?;
        // All of them in one thread: they may share doorbell registers, but not for BlueFlame.
        let config =
            SendConfig { register: RegisterUse::Shared, requests: 4, ..Default::default() };
        table.insert_send(SendQueue::new(&client, &mut completions, config)?);
        pairs.push((server, client));
    }

    // 4. Memory for the receives: the id says which part of it a receive has. They are posted by a
    //    batch, which costs one store to the doorbell record, and the device is to tell once when
    //    fewer than a few are left.
    let part = |id: u64| memory.sge((id * ROOM) as usize, ROOM as usize);
    let mut free: Vec<u64> = (0..RECEIVES).collect();
    let mut refills = 0;
    let mut refill = |table: &mut QueueTable, free: &mut Vec<u64>| -> Result<(), Box<dyn Error>> {
        // ANCHOR: refill
        let queue = table.shared(key).ok_or("the table has it")?;
        let mut batch = queue.batch();
        for id in free.drain(..) {
            batch.append(id, part(id)?)?;
        }
        // SAFETY: each part is in no other receive, and is read after its completion. The memory is
        // freed after the queues.
        unsafe { batch.ring() };
        srq.set_limit(LOW)?;
        // ANCHOR_END: refill
        refills += 1;
        Ok(())
    };
    refill(&mut table, &mut free)?;
    let low = EventSource::SharedReceiveQueue(srq.as_raw().as_ptr().addr());

    let mut received = 0;
    for round in 0..MESSAGES {
        for (number, (server, client)) in pairs.iter().enumerate() {
            // 5. A client sends.
            let text = format!("message {round} of client {number}");
            let queue = table.send(client.number()).ok_or("the table has it")?;
            // SAFETY: the payload is copied.
            unsafe { queue.post(0, SendMessage::new(Inline(text.as_bytes())).signaled())? };

            // 6. A poll finds the queue of each completion. If there is no completion, the server
            //    looks for events.
            let (mut sent, mut arrived) = (false, false);
            while !(sent && arrived) {
                match completions.poll(&mut table)? {
                    Some(Completion::Send(_)) => sent = true,
                    Some(Completion::Receive(done)) => {
                        let bytes =
                            memory.to_vec((done.id * ROOM) as usize, done.byte_len as usize);
                        assert_eq!((done.qpn, bytes), (server.number(), text.clone().into_bytes()));
                        free.push(done.id);
                        arrived = true;
                        received += 1;
                    }
                    None => std::thread::yield_now(),
                    Some(other) => return Err(format!("{other:?}").into()),
                }
                match context.async_event(Duration::ZERO)? {
                    Some(event) if event.source == low => refill(&mut table, &mut free)?,
                    _ => {}
                }
            }
        }
    }
    println!("{received} messages of {CLIENTS} clients, in {RECEIVES} receives");
    println!("refilled {refills} times");
    Ok(())
}
