//! Two reliable connections to each other, made by firmware commands alone: the UAR page, the
//! memory, CQs, queue pairs, and every state transition.
//!
//! Here the program makes the decisions that verbs otherwise make: which UAR page, which memory, at
//! which offset. The resulting queues are equivalent to those of verbs, and are posted to and
//! polled alike.
//!
//! `cargo run --example devx_rc`

use std::error::Error;

use mlx5::connect::LocalPort;
use mlx5::cqe::Completion;
use mlx5::devx::{DevxPd, Firmware, Uar, UarKind, Umem};
use mlx5::ib::{Access, Rc};
use mlx5::ring::{
    CqReader, Queues, ReceiveConfig, ReceiveQueue, RegisterUse, SendConfig, SendQueue,
};
use mlx5::verbs::{
    self, CompletionQueue, Context, Devx, Pages, QueuePair, QueuePairBuilder, Reset,
};
use mlx5::wqe::{Inline, RdmaWrite, SendMessage};
// Stands in for the device where the machine has none. A program for real devices leaves this out.
use mlx5_model as _;

/// The capacity of either side's rings.
const REQUESTS: u32 = 64;
const INLINE: u32 = 32;

fn main() -> Result<(), Box<dyn Error>> {
    // 1. A context that may give commands. libmlx5 asks the kernel for a user context of the device's
    //    when it opens the device; commands, and what they make, are this user's.
    let context = Context::open_first()?;
    if let devx @ Devx::Refused(_) = context.devx() {
        return Err(format!("{} was opened with {devx}", context.name()).into());
    }

    // 2. ALLOC_UAR: a page of doorbell registers. Kinds are tried in the order of the list. Each
    //    refused kind comes with its reason.
    let choice = Uar::first_of(&context, &UarKind::ALL)?;
    for (kind, why) in &choice.refused {
        println!("no {kind} register: {why}");
    }
    let uar = choice.uar;
    println!("register: {}, {} bytes at a time", uar.kind(), uar.blue_flame().max(8));

    // 3. CREATE_UMEM: memory of the program's that the device knows by number. All rings and records
    //    will lie in it. Put it on huge pages (`Pages::huge`) or the device's node (`Pages::bind`).
    let umem = Umem::new(&context, Pages::new(1 << 17)?)?;
    println!("rings in umem {:#x}, {} bytes", umem.number(), umem.len());

    // 4. ALLOC_PD. Memory regions here are made by verbs in a verbs protection domain, so the queue
    //    pairs use it, too. Keys made by command would use a domain made by command.
    let by_command = DevxPd::new(&context)?;
    let pd = verbs::ProtectionDomain::new(&context)?;
    println!(
        "protection domains {:#x} by command, {:#x} by verbs",
        by_command.number(),
        pd.number()?
    );

    // 5. CREATE_CQ: log_cq_size, uar_page, the event queue of a vector (c_eqn), where the ring lies
    //    (cq_umem_id, _offset) and the record (dbr_umem_id, dbr_addr). Rings start on pages of 4
    //    KiB, records at multiples of 8 bytes; the first page here is for the records.
    let mut end = 1 << 12;
    let mut place = |bytes: usize| {
        let offset = end;
        end += bytes.next_multiple_of(1 << 12);
        offset
    };
    let mut cq = |record| {
        let cq =
            CompletionQueue::by_command(&context, 4 * REQUESTS).uar(&uar).record(&umem, record);
        let offset = place(cq.ring_bytes());
        cq.ring(&umem, offset).build()
    };
    let (cq, peer_cq) = (cq(0)?, cq(64)?);
    println!("{cq:?}");

    // 6. CREATE_QP: st (the transport), pd, cqn_snd, cqn_rcv, log_sq_size, log_rq_size and _stride,
    //    uar_page, pm_state, and where rings and record lie. Receives come first in the rings,
    //    sends right behind them.
    let mut queue_pair =
        |cq: &CompletionQueue<Firmware>, record| -> mlx5::Result<QueuePair<Rc, Reset, Firmware>> {
            let qp = QueuePairBuilder::<Rc, _>::by_command(&pd, cq)
                .max_send_wr(REQUESTS)
                .max_recv_wr(REQUESTS)
                .max_inline_data(INLINE)
                .uar(&uar)
                .record(&umem, record);
            let offset = place(qp.ring_bytes()?);
            qp.ring(&umem, offset).build()
        };
    let (qp, peer) = (queue_pair(&cq, 128)?, queue_pair(&peer_cq, 192)?);

    // 7. RST2INIT_QP: port, P_Key index, what the peer may do.
    let port = LocalPort::new(&context, 1, None)?;
    let (qp, peer) = (qp.init(&port.init())?, peer.init(&port.init())?);

    // 8. From INIT on receives can be posted, and should be, before the peer sends. Rings take over
    //    these objects like verbs objects. From here on there is no difference.
    let (mut completions, mut peer_completions) = (CqReader::new(&cq)?, CqReader::new(&peer_cq)?);
    let mut receive = ReceiveQueue::new(&peer, &mut peer_completions, ReceiveConfig::default())?;
    let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    // SAFETY: the memory is looked at when the message is there.
    unsafe { receive.post(1, memory.sge(0, 64)?)? };

    // 9. INIT2RTR_QP: MTU, log_msg_max, the peer's number and address (on RoCE with its MAC
    //    address, which is looked up first), the PSN to expect, min_rnr_nak, log_rra_max.
    //    RTR2RTS_QP: the PSN to start with, ack_timeout, retry_count, rnr_retry, log_sra_max.
    let ends = (port.connection_data_of(qp.number()), port.connection_data_of(peer.number()));
    let qp = qp.rtr(&port.rtr(&ends.0, &ends.1))?.rts(&port.rts(&ends.0, &ends.1))?;
    let peer = peer.rtr(&port.rtr(&ends.1, &ends.0))?.rts(&port.rts(&ends.1, &ends.0))?;
    println!("{qp:?}\nQUERY_QP: {:?}", peer.query()?.state);

    // 10. Both pairs have the same register, so each rings by eight bytes only. One that has its
    //     register alone copies short WQEs there.
    let config = SendConfig { register: RegisterUse::Shared, ..SendConfig::default() };
    let mut send = SendQueue::new(&qp, &mut completions, config)?;
    let target = memory.remote(1024)?;
    // SAFETY: inline payloads are copied; the memory is looked at when all is complete.
    unsafe {
        send.post(2, RdmaWrite::new(Inline(b"written by command"), target))?;
        send.post(3, SendMessage::new(Inline(b"sent by command")).signaled())?;
    }
    println!("{:?}", next(&mut completions, &mut send)?);
    println!("{:?}", next(&mut peer_completions, &mut receive)?);
    let (mut written, mut sent) = ([0; 18], [0; 15]);
    memory.read(1024, &mut written);
    memory.read(0, &mut sent);
    println!("memory: {:?}, {:?}", std::str::from_utf8(&written)?, std::str::from_utf8(&sent)?);

    // 11. QP_2RST, once the queue is given back. The order of drops does not matter: each object
    //     keeps the objects that it uses.
    drop(send);
    let qp = qp.reset()?;
    println!("{:?}", qp.query()?.state);
    Ok(())
}

/// The next completion, which is a success.
fn next(completions: &mut CqReader, queues: &mut impl Queues) -> Result<Completion, String> {
    loop {
        match completions.poll(queues).map_err(|error| error.to_string())? {
            Some(Completion::Failed(failure)) => return Err(failure.to_string()),
            Some(done) => return Ok(done),
            None => std::thread::yield_now(),
        }
    }
}
