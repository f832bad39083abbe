//! Tag matching: messages select their receive memory by a tag, as in MPI.
//!
//! The receiver appends entries to a list: a tag, and memory for a message with that tag. The device
//! puts each message into the memory of the oldest matching entry, and fetches long messages from
//! their sender by itself. A message that arrives before its entry consumes an ordinary receive.
//! All in this process: `cargo run --example tag_matching`

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::expert::TagCapacity;
use mlx5::expert::{Rendezvous, Tag, TagHeader};
use mlx5::expert::{TagCompletion, TagConfig, TagHandle, TagReceive, TmSrq};
use mlx5::ib::Access;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, SharedReceiveQueue,
};
use mlx5::wqe::{InlineGather, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

/// Receives for what comes too early, and bytes of each; behind them lies the memory of entries.
const RECEIVES: usize = 8;
const ROOM: usize = 256;
const LONG: usize = 64 << 10;

/// The receiving side: the queue, and messages that came before anybody asked for them.
struct Receiver {
    tags: TmSrq,
    completions: CqReader,
    memory: MemoryRegion,
    early: Vec<(u64, Vec<u8>)>,
}

impl Receiver {
    fn post(&mut self, id: u64) -> Result<(), Box<dyn Error>> {
        let sge = self.memory.sge(id as usize * ROOM, ROOM)?;
        // SAFETY: the program reads the memory only after its message has come.
        unsafe { self.tags.post(id, sge)? };
        Ok(())
    }

    /// Asks for a message. If the device has early ones that polls have not found, the entry waits.
    fn expect(&mut self, tag: Tag) -> Result<TagHandle, Box<dyn Error>> {
        let entry = TagReceive::new(tag, self.memory.sge(RECEIVES * ROOM, LONG)?);
        // SAFETY: the program reads the memory only after the entry's message has come, or after
        // the entry was removed.
        Ok(unsafe { self.tags.append(1, entry)? })
    }

    /// Polls once, and keeps what is early. What arrived in an entry, if anything did.
    fn poll(&mut self) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
        match self.tags.poll(&mut self.completions, &mut ())? {
            Some(TagCompletion::Unexpected(done)) => {
                let bytes = self.memory.to_vec(done.id as usize * ROOM, done.byte_len as usize);
                let (header, rest) = TagHeader::parse(&bytes).ok_or("it has a header")?;
                self.early.push((header.tag, rest.to_vec()));
                self.post(done.id)?;
            }
            Some(TagCompletion::Matched(matched)) => println!("on its way: {:?}", matched.header),
            Some(TagCompletion::Arrived(arrival)) => {
                let bytes = self.memory.to_vec(RECEIVES * ROOM, arrival.byte_len as usize);
                return Ok(Some(bytes));
            }
            Some(TagCompletion::Removed { .. } | TagCompletion::Synced(_)) | None => {}
            Some(other) => return Err(format!("{other:?}").into()),
        }
        Ok(None)
    }

    /// Waits for what an entry asked for, which may be early after all.
    fn wait(&mut self, tag: Tag, entry: TagHandle) -> Result<Vec<u8>, Box<dyn Error>> {
        loop {
            if let Some(bytes) = self.poll()? {
                return Ok(bytes);
            }
            match self.early.iter().position(|(early, _)| tag.matches(*early)) {
                // The device could not use the entry, so it is still there.
                Some(at) if self.tags.is_listed(entry) => {
                    self.tags.remove(entry)?;
                    return Ok(self.early.remove(at).1);
                }
                _ if self.tags.needs_sync() => self.tags.sync(0)?,
                _ => {}
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let context = Context::open_first()?;
    let pd = ProtectionDomain::new(&context)?;
    let port = LocalPort::new(&context, 1, None)?;
    // 1. A queue that matches tags has a CQ of its own. What its queue pair sends is the device's.
    let cq = CompletionQueue::new(&context, 255)?;
    let far = CompletionQueue::new(&context, 255)?;
    let room = TagCapacity { tags: 63, operations: 64 };
    let srq = SharedReceiveQueue::builder(&pd).tags(&cq, room).build()?;
    let mut completions = CqReader::new(&cq)?;
    let mut tags = TmSrq::new(&srq, &mut completions, TagConfig::default())?;
    let taker = QueuePair::builder(&pd, &cq).max_send_wr(0).shared_receive_queue(&srq).build()?;
    let sender = QueuePair::builder(&pd, &far).max_inline_data(64).build()?;
    let (here, there) = (port.connection_data(&taker), port.connection_data(&sender));
    let taker = taker.init(&port.init())?;
    tags.attach(&taker, &mut completions)?;
    let _taker = taker.rtr(&port.rtr(&here, &there))?.rts(&port.rts(&here, &there))?;
    let sender = sender.init(&port.init())?.rtr(&port.rtr(&there, &here))?;
    let sender = sender.rts(&port.rts(&there, &here))?;
    let memory = pd.allocate(RECEIVES * ROOM + LONG, Access::LOCAL_WRITE)?;
    let mut receiver = Receiver { tags, completions, memory, early: vec![] };
    (0..RECEIVES as u64).try_for_each(|id| receiver.post(id))?;
    let mut sent = CqReader::new(&far)?;
    let mut send = SendQueue::new(&sender, &mut sent, SendConfig::default())?;
    let mut answers = ReceiveQueue::new(&sender, &mut sent, ReceiveConfig::default())?;
    // 2. A sender puts a header before each message. Here one is early, and one is expected.
    for (tag, text) in [(0x501, "too early"), (0x502, "in time")] {
        let wanted = Tag::masked(0x502, !0xf0);
        let entry = (tag == 0x502).then(|| receiver.expect(wanted)).transpose()?;
        let header = TagHeader::eager(tag).to_bytes();
        // SAFETY: the payload is copied into the WQE.
        unsafe { send.post(1, SendMessage::new(InlineGather(&[&header, text.as_bytes()])))? };
        while receiver.early.is_empty() {
            receiver.poll()?;
        }
        if let Some(entry) = entry {
            println!("by the list: {}", String::from_utf8(receiver.wait(wanted, entry)?)?);
        }
    }
    println!("early: {}", String::from_utf8(receiver.early.remove(0).1)?);
    // 3. A long one is offered: its address and key. The device fetches it, and tells the sender.
    let mut source = pd.allocate(LONG + 64, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    source.write(0, &[7; LONG]);
    let entry = receiver.expect(Tag::any())?;
    let from = source.remote(0)?;
    let offer = Rendezvous { from, length: LONG as u32 }.offer(0x503, 0);
    // SAFETY: inline; the rest is looked at, or written, when the answer has come.
    unsafe {
        answers.post(2, source.sge(LONG, 64)?)?;
        send.post(3, SendMessage::new(offer).signaled())?;
    }
    assert_eq!(receiver.wait(Tag::any(), entry)?, [7; LONG]);
    while !matches!(sent.poll(&mut (&mut send, &mut answers))?, Some(Completion::Receive(_))) {}
    println!("{LONG} bytes were fetched, and their sender told");
    Ok(())
}
