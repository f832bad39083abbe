//! A multicast group by IP address: librdmacm joins it, and datagrams go by the direct path.
//!
//! ```text
//! cargo run --features cm --example mckey -- receive 239.1.2.3 192.0.2.1 5
//! cargo run --features cm --example mckey -- send 239.1.2.3 192.0.2.1 5
//! ```
//!
//! The second address is a local one, of the port that joins. The sender does not wait for
//! receivers. Datagrams without a receiver are lost.

use std::error::Error;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use mlx5::connect::cm::{Identifier, JoinAs, Joined};
use mlx5::cqe::{Completion, ReceiveDone, ReceiveKind};
use mlx5::ib::{Access, Ud};
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::verbs::attr::UnreliableRtsAttributes;
use mlx5::verbs::{AddressHandle, CompletionQueue, ProtectionDomain, QueuePairBuilder};
use mlx5::wqe::{Inline, SendImm, UdAddress};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PATIENCE: Duration = Duration::from_secs(20);
/// A receive has room for the packet's header, then for the message.
const ROOM: usize = ReceiveDone::HEADER_BYTES + 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [role, group, local, count] = &arguments[..] else {
        return Err("usage: mckey receive|send GROUP LOCAL-IP DATAGRAMS".into());
    };
    let (group, local, count) = (group.parse()?, local.parse()?, count.parse()?);
    match role.as_str() {
        "receive" => receive(&join(group, local)?, group, count),
        "send" => send(&join(group, local)?, count),
        role => Err(format!("a role is receive or send, not {role:?}").into()),
    }
}

// ANCHOR: join
/// Joins a group on the port that has the local address.
fn join(group: IpAddr, local: IpAddr) -> Result<Identifier<Ud, Joined>> {
    let id = Identifier::datagrams()?;
    let id = id.resolve_address(Some((local, 0).into()), (group, 0).into(), PATIENCE)?;
    Ok(id.wait(PATIENCE)?.join(group, JoinAs::Member)?.wait(PATIENCE)?)
}
// ANCHOR_END: join

/// Receives so many datagrams of a group.
fn receive(id: &Identifier<Ud, Joined>, group: IpAddr, count: u64) -> Result<()> {
    let context = id.open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 128)?;
    let memory = pd.allocate(ROOM * count as usize, Access::LOCAL_WRITE)?;
    let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).max_recv_wr(u32::try_from(count)?).build()?;
    let qp = qp.init(&id.init()?)?;
    let mut completions = CqReader::new(&cq)?;
    let mut receives = ReceiveQueue::new(&qp, &mut completions, ReceiveConfig::default())?;
    for id in 0..count {
        let sge = memory.sge(id as usize * ROOM, ROOM)?;
        // SAFETY: each receive has memory of its own, which is read when it is complete. The queue
        // is dropped before the memory.
        unsafe { receives.post(id, sge)? };
    }
    let qp = qp.rtr()?;
    let _membership = qp.attach_multicast(id.group().gid, id.group().lid)?;
    println!("listening on {group}");
    let (mut received, deadline) = (0, Instant::now() + PATIENCE);
    while received < count {
        match completions.poll(&mut receives)? {
            Some(Completion::Receive(done)) => {
                let mut bytes = [0; ROOM];
                memory.read(done.id as usize * ROOM, &mut bytes);
                let ReceiveKind::SendImm(number) = done.kind else {
                    return Err("a datagram without a number".into());
                };
                println!("{number}: {}", String::from_utf8_lossy(&bytes[done.datagram()]));
                received += 1;
            }
            Some(Completion::Failed(failure)) => return Err(failure.into()),
            _ if Instant::now() > deadline => return Err("no datagram arrives".into()),
            _ => std::thread::yield_now(),
        }
    }
    Ok(())
}

/// Sends so many datagrams to a group.
fn send(id: &Identifier<Ud, Joined>, count: u64) -> Result<()> {
    let context = id.open()?;
    let pd = ProtectionDomain::new(&context)?;
    let cq = CompletionQueue::new(&context, 128)?;
    let qp = QueuePairBuilder::<Ud>::new(&pd, &cq).max_inline_data(64).build()?;
    let qp = qp.init(&id.init()?)?.rtr()?.rts(&UnreliableRtsAttributes::default())?;
    let mut completions = CqReader::new(&cq)?;
    let mut sends = SendQueue::new(&qp, &mut completions, SendConfig::default())?;
    // ANCHOR: send
    let group = id.group();
    let handle = AddressHandle::new(&pd, &group.address)?;
    let everybody = UdAddress::multicast(&handle, group.qkey);
    // ANCHOR_END: send
    for number in 0..u32::try_from(count)? {
        let words = format!("datagram {number} to all");
        let datagram = SendImm::new(Inline(words.as_bytes()), number).signaled();
        // SAFETY: the text travels in the WQE, so the request names no memory.
        unsafe { sends.post(number.into(), datagram.to(&everybody))? };
        loop {
            match completions.poll(&mut sends)? {
                Some(Completion::Failed(failure)) => return Err(failure.into()),
                Some(_) => break,
                None => std::thread::yield_now(),
            }
        }
    }
    println!("{count} datagrams were sent");
    Ok(())
}
