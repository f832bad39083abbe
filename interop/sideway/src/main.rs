//! A queue pair that sideway made and connected, taken over by mlx5.
//!
//! `cargo xtask sideway`

use std::error::Error;
use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::ib::Rc;
use mlx5::ring::{CqReader, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue};
use mlx5::wqe::{Inline, SendMessage, Sge};
// Stands in for the card where the machine has none. A program for real cards leaves this out.
use mlx5_model as _;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{CompletionQueue, GenericCompletionQueue};
use sideway::ibverbs::device::{DeviceInfo, DeviceList};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState, SetInlineData,
    SetScatterGatherEntry, WorkRequestFlags,
};

/// Messages sent by mlx5.
const MESSAGES: u64 = 1000;

/// Bytes that a message may have.
const ROOM: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    // 1. sideway makes the objects and connects the queue pair to itself.
    let devices = DeviceList::new()?;
    let device = devices.get(0).ok_or("no device")?;
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let bytes = NonNull::from(Box::leak(Box::new([0u8; ROOM])));
    // SAFETY: the memory is never freed.
    let region =
        unsafe { pd.reg_mr(bytes.as_ptr() as usize, ROOM, AccessFlags::LocalWrite.into())? };
    let cq = context.create_cq_builder().setup_cqe(64).build()?;
    let queue = GenericCompletionQueue::from(cq.clone());
    let mut qp = pd
        .create_qp_builder()
        .setup_max_send_wr(16)
        .setup_max_recv_wr(16)
        .setup_max_inline_data(ROOM as u32)
        .setup_send_cq(queue.clone())
        .setup_recv_cq(queue)
        .build()?;
    connect(&mut qp, context.query_port(1)?.lid())?;
    println!("sideway: queue pair {:#x} of {}", qp.qp_number(), device.name());

    // 2. A first message by sideway, and both its completions.
    let first = b"by sideway";
    let mut receive = qp.start_post_recv();
    // SAFETY: the memory is registered and lives on.
    unsafe { receive.construct_wr(1).setup_sge(region.lkey(), bytes.as_ptr() as u64, ROOM as u32) };
    receive.post()?;
    let mut send = qp.start_post_send();
    send.construct_wr(2, WorkRequestFlags::Signaled).setup_send().setup_inline_data(first);
    send.post()?;
    let mut left = 2;
    while left > 0 {
        for completion in cq.start_poll().into_iter().flatten() {
            check(completion.status() == 0, "sideway's request failed")?;
            left -= 1;
        }
    }
    check(text(bytes, first.len()) == first, "sideway's message did not arrive")?;

    // 3. mlx5 takes the queues over. sideway keeps the objects.
    // SAFETY: the pointers are those of libibverbs' objects, which live to the end of `main` and
    // have nothing outstanding. sideway does not post or poll again.
    let (mut completions, mut send, mut receive) = unsafe {
        let mut completions = CqReader::from_raw(cq.cq().cast())?;
        let pair = qp.qp().cast();
        let config = SendConfig::default();
        let send = SendQueue::<Rc>::from_raw(pair, &mut completions, config)?;
        let config = ReceiveConfig::default();
        let receive = ReceiveQueue::from_raw(pair, &mut completions, config)?;
        (completions, send, receive)
    };
    let memory = Sge::new(bytes.as_ptr() as u64, ROOM as u32, region.lkey());
    for id in 0..MESSAGES {
        let message = format!("message {id} by mlx5");
        // SAFETY: the memory is registered, lives on, and is read only when nothing is under way.
        unsafe {
            receive.post(id, memory)?;
            send.post(id, SendMessage::new(Inline(message.as_bytes())).signaled())?;
        }
        let mut left = 2;
        while left > 0 {
            match completions.poll(&mut (&mut send, &mut receive))? {
                Some(Completion::Failed(failure)) => return Err(failure.to_string().into()),
                Some(_) => left -= 1,
                None => std::thread::yield_now(),
            }
        }
        check(text(bytes, message.len()) == message.as_bytes(), "a message is wrong")?;
    }

    // 4. Back to sideway, which destroys them.
    send.into_raw().map_err(|_| "requests are outstanding")?;
    receive.into_raw().map_err(|_| "receives are outstanding")?;
    completions.into_raw().map_err(|_| "not a CQ of libibverbs")?;
    println!("mlx5: {MESSAGES} messages arrived as they were sent");
    Ok(())
}

/// Takes the queue pair to RTS, with itself as its peer.
fn connect(qp: &mut impl QueuePair, lid: u16) -> Result<(), Box<dyn Error>> {
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(1)
        .setup_access_flags(AccessFlags::LocalWrite.into());
    qp.modify(&attributes)?;
    let mut address = AddressHandleAttribute::new();
    address.setup_dest_lid(lid).setup_port(1);
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(qp.qp_number())
        .setup_rq_psn(0)
        .setup_max_dest_read_atomic(1)
        .setup_min_rnr_timer(12)
        .setup_address_vector(&address);
    qp.modify(&attributes)?;
    let mut attributes = QueuePairAttribute::new();
    attributes
        .setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(0)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(1);
    qp.modify(&attributes)?;
    Ok(())
}

/// The first `length` bytes of the memory that messages arrive in.
fn text(bytes: NonNull<[u8; ROOM]>, length: usize) -> Vec<u8> {
    // SAFETY: the memory is never freed, and all messages have arrived.
    let all = unsafe { bytes.read() };
    all[..length].to_vec()
}

fn check(holds: bool, sentence: &str) -> Result<(), Box<dyn Error>> {
    if holds { Ok(()) } else { Err(sentence.into()) }
}
