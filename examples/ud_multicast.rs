//! A feed by multicast: one queue pair sends numbered datagrams to a group, and every subscriber gets
//! each of them. Datagrams can be lost, so a subscriber looks for gaps, and asks the publisher for
//! what is missing. Here the last subscriber joins late, and misses the first tick.
//!
//! `cargo run --example ud_multicast [subscribers]`
//!
//! Everything runs in one process, in turns. Between processes and hosts, the calls are the same.
//! On InfiniBand the subnet manager then assigns the group's LID (librdmacm joins groups).

use std::error::Error;
use std::time::{Duration, Instant};

use mlx5::connect::LocalPort;
use mlx5::cqe::{Completion, DatagramHeader, ReceiveDone, ReceiveKind};
use mlx5::ib::{Access, Gid, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairBuilder, Rts,
};
use mlx5::wqe::{Inline, SendImm, UdAddress};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Datagrams of the feed.
const TICKS: u32 = 5;
/// The key of the whole group. A sender must know it.
const QKEY: u32 = 0x0bad_cafe;
/// Receives that a station has posted. A datagram that finds none is lost, and nobody is told.
const RECEIVES: u64 = 16;
/// A receive has room for the packet's header, then for the message.
const ROOM: usize = ReceiveDone::HEADER_BYTES + 64;

/// A queue pair with its objects. It has no fixed peer and can send to any station.
struct Station {
    qp: QueuePair<Ud, Rts>,
    send: SendQueue<Ud>,
    receive: ReceiveQueue,
    completions: CqReader,
    memory: MemoryRegion,
}

impl Station {
    fn new(pd: &ProtectionDomain) -> Result<Station> {
        let cq = CompletionQueue::new(pd.context(), 128)?;
        let qp = QueuePairBuilder::<Ud>::new(pd, &cq).max_inline_data(64).build()?;
        let qp = qp.init(&UdInitAttributes::new(1, QKEY))?;
        let mut completions = CqReader::new(&cq)?;
        let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
        let qp = qp.rtr()?.rts(&UnreliableRtsAttributes::default())?;
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
        let memory = pd.allocate(ROOM * RECEIVES as usize, Access::LOCAL_WRITE)?;
        let mut station = Station { qp, send, receive, completions, memory };
        for id in 0..RECEIVES {
            station.post_receive(id)?;
        }
        Ok(station)
    }

    fn post_receive(&mut self, id: u64) -> Result<()> {
        let sge = self.memory.sge(id as usize * ROOM, ROOM)?;
        // SAFETY: each receive has memory of its own, which is read when it is complete. The memory
        // is declared after the queues, so it is freed after them.
        unsafe { self.receive.post(id, sge)? };
        Ok(())
    }

    // ANCHOR: say
    /// Sends a text, with the number of a tick as immediate value.
    fn say(&mut self, number: u32, text: &str, to: &UdAddress) -> Result<()> {
        let datagram = SendImm::new(Inline(text.as_bytes()), number).signaled();
        // SAFETY: the text travels in the WQE, so the request names no memory.
        unsafe { self.send.post(0, datagram.to(to))? };
        Ok(())
    }
    // ANCHOR_END: say

    /// Waits for the next datagram, and posts its receive again.
    fn hear(&mut self) -> Result<Heard> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            match self.completions.poll(&mut (&mut self.send, &mut self.receive))? {
                Some(Completion::Receive(done)) => {
                    let mut bytes = [0; ROOM];
                    self.memory.read(done.id as usize * ROOM, &mut bytes);
                    self.post_receive(done.id)?;
                    let head = bytes.first_chunk().ok_or("a receive has room for a header")?;
                    let header = DatagramHeader::read(&done, head);
                    let text = String::from_utf8_lossy(&bytes[done.datagram()]).into_owned();
                    let ReceiveKind::SendImm(number) = done.kind else {
                        return Err(format!("a datagram without a number: {done:?}").into());
                    };
                    return Ok(Heard { number, text, done, header });
                }
                Some(Completion::Failed(failure)) => return Err(failure.into()),
                // The datagram has left. UD does not report whether it arrived.
                Some(_) | None => std::thread::yield_now(),
            }
        }
        Err("no datagram arrives".into())
    }
}

/// A datagram that has arrived, with its completion and the header before it.
struct Heard {
    number: u32,
    text: String,
    done: ReceiveDone,
    header: Option<DatagramHeader>,
}

impl Heard {
    // ANCHOR: sender
    /// The way to the sender, by the completion and the header.
    fn sender(&self, port: &LocalPort, pd: &ProtectionDomain) -> Result<UdAddress> {
        let way = AddressHandle::new(pd, &port.sender(&self.done, self.header.as_ref()))?;
        Ok(UdAddress::new(&way, self.done.src_qp, QKEY))
    }
    // ANCHOR_END: sender
}

fn main() -> Result<()> {
    let count = std::env::args().nth(1).map_or(Ok(3), |count| count.parse::<usize>())?.max(1);
    let context = Context::open_first()?;
    let port = LocalPort::new(&context, 1, None)?;
    let pd = ProtectionDomain::new(&context)?;

    // A group that only this run uses. On RoCE its GID has the type of this port's GID. On
    // InfiniBand it has a LID, too.
    let [.., high, low] = std::process::id().to_be_bytes();
    let (group, lid): (Gid, u16) = match port.attributes().is_ethernet() {
        true => (format!("239.7.{high}.{low}").parse()?, 0),
        false => (format!("ff12:401b::{high:x}:{low:x}").parse()?, 0xc007),
    };

    // The publisher need not be a member of the group.
    let mut publisher = Station::new(&pd)?;
    let everybody = AddressHandle::new(&pd, &port.multicast(group, lid))?;
    let everybody = UdAddress::multicast(&everybody, QKEY);
    let tick = |number: u32| format!("tick {number}: {}", 10_000 + 25 * number);

    let (mut subscribers, mut members) = (vec![], vec![]);
    for _ in 0..count {
        subscribers.push(Station::new(&pd)?);
    }
    for number in 0..TICKS {
        // All join before the first tick, but the last one after it.
        let joining = if number == 0 { 0..count - 1 } else { members.len()..count };
        for subscriber in &subscribers[joining] {
            // ANCHOR: join
            // From here on it receives the group's datagrams, until the membership is dropped.
            members.push(subscriber.qp.attach_multicast(group, lid)?);
            // ANCHOR_END: join
        }
        publisher.say(number, &tick(number), &everybody)?;
    }

    for subscriber in &mut subscribers {
        let (mut next, mut missing) = (0, vec![]);
        while next < TICKS || !missing.is_empty() {
            let heard = subscriber.hear()?;
            println!("{:#x} hears {}", subscriber.qp.number(), heard.text);
            // ANCHOR: gap
            if heard.number < next {
                missing.retain(|number| *number != heard.number);
                continue;
            }
            // The ticks between are lost, or late. The publisher sends them again, to this one.
            let lost = next..heard.number;
            for number in lost.clone() {
                subscriber.say(number, "again", &heard.sender(&port, &pd)?)?;
                missing.push(number);
            }
            next = heard.number + 1;
            // ANCHOR_END: gap
            for _ in lost {
                let asked = publisher.hear()?;
                println!("the publisher is asked for tick {} {}", asked.number, asked.text);
                publisher.say(asked.number, &tick(asked.number), &asked.sender(&port, &pd)?)?;
            }
        }
    }
    println!("{count} subscribers have all {TICKS} ticks");
    Ok(())
}
