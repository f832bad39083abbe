//! Datagrams and multicast: one queue pair asks a whole group who is there, and each member answers
//! to the source address of the question.
//!
//! `cargo run --example ud_multicast [members]`
//!
//! Everything runs in one process, in turns. Between processes and hosts, the calls are the same.
//! On InfiniBand the subnet manager then assigns the group's LID (librdmacm joins groups).

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::{Completion, DatagramHeader, ReceiveDone};
use mlx5::ib::{Access, Gid, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair,
    QueuePairBuilder, Rts, UdInitAttributes, UnreliableRtsAttributes,
};
use mlx5::wqe::{Inline, SendMessage, Sge, UdAddress};
// Stands in for the card where the machine has none. A program for real cards leaves this out.
use mlx5_model as _;

/// The key of the whole group. A sender must know it.
const QKEY: u32 = 0x0bad_cafe;
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
    fn new(pd: &ProtectionDomain) -> Result<Station, Box<dyn Error>> {
        let cq = CompletionQueue::new(pd.context(), 128)?;
        let qp = QueuePairBuilder::<Ud>::new(pd, &cq).max_inline_data(64).build()?;
        let qp = qp.init(&UdInitAttributes::new(1, QKEY))?;
        let mut completions = CqReader::new(&cq)?;
        let receive = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
        let qp = qp.rtr()?.rts(&UnreliableRtsAttributes::default())?;
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
        let memory = pd.allocate(ROOM * 16, Access::LOCAL_WRITE)?;
        let mut station = Station { qp, send, receive, completions, memory };
        for id in 0..16 {
            let at = station.memory.address() + id * ROOM as u64;
            let sge = Sge::new(at, ROOM as u32, station.memory.lkey());
            // SAFETY: each receive has memory of its own, which is read when it is complete, and
            // lives longer than the queue pair's last completion is waited for.
            unsafe { station.receive.post(id, sge)? };
        }
        Ok(station)
    }

    fn say(&mut self, text: &str, to: &UdAddress) -> Result<(), Box<dyn Error>> {
        // SAFETY: the text travels in the request.
        unsafe { self.send.post(0, SendMessage::new(Inline(text.as_bytes())).signaled().to(to))? };
        Ok(())
    }

    /// Waits for the next message: what the card says of it, the header before it, and its text.
    fn hear(&mut self) -> Result<(ReceiveDone, Option<DatagramHeader>, String), Box<dyn Error>> {
        loop {
            match self.completions.poll(&mut (&mut self.send, &mut self.receive))? {
                Some(Completion::Receive(done)) => {
                    let mut bytes = [0; ROOM];
                    self.memory.read(done.id as usize * ROOM, &mut bytes);
                    let head = bytes.first_chunk().ok_or("a receive has room for a header")?;
                    let text = String::from_utf8_lossy(&bytes[done.datagram()]).into_owned();
                    return Ok((done, DatagramHeader::read(&done, head), text));
                }
                Some(Completion::Failed(failure)) => return Err(failure.into()),
                // The datagram has left. UD does not report whether it arrived.
                Some(_) | None => std::thread::yield_now(),
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let members = std::env::args().nth(1).map_or(Ok(3), |count| count.parse::<usize>())?;
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
    let mut stations = Vec::new();
    for _ in 0..members {
        let station = Station::new(&pd)?;
        // From here on it receives the group's messages, until the membership is dropped.
        let membership = station.qp.attach_multicast(group, lid)?;
        stations.push((station, membership));
    }

    // A sender need not be a member of the group.
    let mut asking = Station::new(&pd)?;
    let everybody = AddressHandle::new(&pd, &port.multicast(group, lid))?;
    asking.say("who is there?", &UdAddress::multicast(&everybody, QKEY))?;

    for (station, _) in &mut stations {
        let (done, header, question) = station.hear()?;
        println!("{:#x} hears from {:#x}: {question}", station.qp.number(), done.src_qp);
        // The completion has the sender's queue pair, and with the header the way to it.
        let way = AddressHandle::new(&pd, &port.sender(&done, header.as_ref()))?;
        let answer = format!("I am, {:#x}", station.qp.number());
        station.say(&answer, &UdAddress::new(&way, done.src_qp, QKEY))?;
    }
    for _ in 0..members {
        let (done, _, answer) = asking.hear()?;
        println!("{:#x} hears from {:#x}: {answer}", asking.qp.number(), done.src_qp);
    }
    Ok(())
}
