//! Shared receive queues through libibverbs, with the model linked in: granted and refused sizes,
//! and events.

mod verbs;

use std::mem::zeroed;
use std::ptr::{NonNull, null_mut};

use mlx5_sys::verbs::*;
use verbs::{Device, LIMIT, Qp, errno};

/// A shared receive queue.
struct Srq(NonNull<ibv_srq>);

impl Srq {
    fn new(device: &Device, receives: u32) -> Result<Self, i32> {
        // SAFETY: all zero is a valid attribute structure; the domain lives.
        unsafe {
            let mut init: ibv_srq_init_attr = zeroed();
            init.attr.max_wr = receives;
            init.attr.max_sge = 2;
            let srq = ibv_create_srq(device.pd.as_ptr(), &mut init);
            let srq = NonNull::new(srq).ok_or_else(errno)?;
            assert!(init.attr.max_wr >= receives && init.attr.max_sge >= 2);
            Ok(Self(srq))
        }
    }

    fn attributes(&self) -> ibv_srq_attr {
        // SAFETY: all zero is a valid attribute structure, which the call fills.
        unsafe {
            let mut attr: ibv_srq_attr = zeroed();
            assert_eq!(ibv_query_srq(self.0.as_ptr(), &mut attr), 0);
            attr
        }
    }

    fn modify(&self, mask: ibv_srq_attr_mask, max_wr: u32, limit: u32) -> i32 {
        // SAFETY: all zero is a valid attribute structure; the queue lives.
        unsafe {
            let mut attr: ibv_srq_attr = zeroed();
            (attr.max_wr, attr.srq_limit) = (max_wr, limit);
            ibv_modify_srq(self.0.as_ptr(), &mut attr, mask.0 as i32)
        }
    }

    fn limit(&self, limit: u32) -> i32 {
        self.modify(ibv_srq_attr_mask::IBV_SRQ_LIMIT, 0, limit)
    }

    /// Posts a receive of memory behind a key.
    fn receive(&self, id: u64, mr: NonNull<ibv_mr>, offset: u64, length: u32) {
        // SAFETY: all zero is a valid request; the region lives.
        unsafe {
            let addr = mr.as_ref().addr as u64 + offset;
            let mut sge = ibv_sge { addr, length, lkey: mr.as_ref().lkey };
            let mut request: ibv_recv_wr = zeroed();
            request.wr_id = id;
            request.sg_list = &mut sge;
            request.num_sge = 1;
            let mut bad = null_mut();
            assert_eq!(ibv_post_srq_recv(self.0.as_ptr(), &mut request, &mut bad), 0);
        }
    }

    fn destroy(&self) -> i32 {
        // SAFETY: each test ends with the one that succeeds.
        unsafe { ibv_destroy_srq(self.0.as_ptr()) }
    }

    /// A queue pair that takes from it.
    fn qp(&self, device: &Device) -> Qp {
        // SAFETY: all zero is a valid attribute structure; the objects live.
        unsafe {
            let mut init: ibv_qp_init_attr = zeroed();
            init.send_cq = device.cq.as_ptr();
            init.recv_cq = device.cq.as_ptr();
            init.srq = self.0.as_ptr();
            init.cap.max_send_wr = 16;
            init.cap.max_send_sge = 1;
            init.qp_type = ibv_qp_type::IBV_QPT_RC;
            init.sq_sig_all = 1;
            Qp(NonNull::new(ibv_create_qp(device.pd.as_ptr(), &mut init)).expect("ibv_create_qp"))
        }
    }
}

/// The next asynchronous event, whose reading is acknowledged.
fn event(device: &Device) -> ibv_async_event {
    // SAFETY: the context lives; the event is filled before it is acknowledged.
    unsafe {
        let fd = device.context.as_ref().async_fd;
        let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut wait, 1, LIMIT.as_millis() as i32), 1, "no event");
        let mut event: ibv_async_event = zeroed();
        assert_eq!(ibv_get_async_event(device.context.as_ptr(), &mut event), 0);
        ibv_ack_async_event(&mut event);
        event
    }
}

fn deregister(mr: NonNull<ibv_mr>) {
    // SAFETY: the region is deregistered once, and the memory still lives.
    unsafe { assert_eq!(ibv_dereg_mr(mr.as_ptr()), 0) };
}

#[test]
fn a_shared_queue_says_what_it_is() {
    let device = Device::open(0);
    let srq = Srq::new(&device, 100).expect("a queue");
    let attr = srq.attributes();
    assert!(attr.max_wr >= 100 && attr.max_sge >= 2, "{} {}", attr.max_wr, attr.max_sge);
    assert_eq!(attr.srq_limit, 0);
    assert_eq!(srq.modify(ibv_srq_attr_mask::IBV_SRQ_MAX_WR, 200, 0), libc::EINVAL);
    assert_eq!(srq.limit(attr.max_wr + 1), libc::EINVAL);
    assert_eq!(srq.limit(0), 0);
    // SAFETY: the domain lives; destroying it is refused.
    assert_eq!(unsafe { ibv_dealloc_pd(device.pd.as_ptr()) }, libc::EBUSY);
    assert_eq!(srq.destroy(), 0);
    assert_eq!(Srq::new(&device, 1 << 20).err(), Some(libc::EINVAL));
    device.close();
}

#[test]
fn queue_pairs_share_receives_and_events_tell_of_them() {
    let device = Device::open(0);
    let srq = Srq::new(&device, 16).expect("a queue");
    let lid = device.port().lid;
    let senders = [device.qp(), device.qp()];
    let sharing = [srq.qp(&device), srq.qp(&device)];
    for (sender, receiver) in senders.iter().zip(&sharing) {
        sender.connect(lid, receiver.number());
        receiver.connect(lid, sender.number());
    }
    let mut from = vec![0x77; 64];
    let mut to = vec![0; 16 * 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    assert_eq!(srq.destroy(), libc::EBUSY, "two queue pairs take from it");

    for id in 0..4 {
        srq.receive(id, target, id * 64, 64);
    }
    assert_eq!(srq.limit(3), 0);
    assert_eq!(srq.attributes().srq_limit, 3);
    let mut received = Vec::new();
    for turn in 0..4u64 {
        senders[turn as usize % 2].send(100 + turn, source, 8, ibv_send_flags(0));
        for _ in 0..2 {
            let completion = device.poll();
            assert_eq!(completion.status, ibv_wc_status::IBV_WC_SUCCESS);
            if completion.opcode == ibv_wc_opcode::IBV_WC_RECV {
                let at = completion.wr_id as usize * 64;
                assert_eq!(to[at..at + 8], from[..8]);
                received.push((completion.wr_id, completion.qp_num));
            }
        }
    }
    let [one, other] = [sharing[0].number(), sharing[1].number()];
    assert_eq!(received, [(0, one), (1, other), (2, one), (3, other)]);
    let limit = event(&device);
    assert_eq!(limit.event_type, ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED);
    // SAFETY: an event of this type names the queue.
    assert_eq!(unsafe { limit.element.srq }, srq.0.as_ptr());
    assert_eq!(srq.attributes().srq_limit, 0, "it is told of once");

    // A queue pair in error says that it takes no more, and what is posted stays.
    srq.receive(9, target, 0, 64);
    // SAFETY: all zero is a valid attribute structure.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
    assert_eq!(sharing[0].modify(&mut attr, ibv_qp_attr_mask::IBV_QP_STATE.0), 0);
    let last = event(&device);
    assert_eq!(last.event_type, ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED);
    // SAFETY: an event of this type names the queue pair.
    assert_eq!(unsafe { last.element.qp }, sharing[0].0.as_ptr());
    assert!(device.poll_now().is_none());
    senders[1].send(7, source, 8, ibv_send_flags(0));
    let mut ids = [device.poll().wr_id, device.poll().wr_id];
    ids.sort_unstable();
    assert_eq!(ids, [7, 9]);

    // An unread event vanishes with its queue.
    assert_eq!(srq.limit(5), 0);
    senders.into_iter().chain(sharing).for_each(Qp::destroy);
    deregister(source);
    deregister(target);
    assert_eq!(srq.destroy(), 0);
    device.close();
}

#[test]
fn an_empty_queue_is_waited_for() {
    let device = Device::open(0);
    let srq = Srq::new(&device, 4).expect("a queue");
    let lid = device.port().lid;
    let (sender, receiver) = (device.qp(), srq.qp(&device));
    sender.connect(lid, receiver.number());
    receiver.connect(lid, sender.number());
    let mut from = vec![0x77; 64];
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    sender.send(1, source, 8, ibv_send_flags(0));
    assert!(device.poll_now().is_none());
    srq.receive(2, target, 0, 64);
    let mut ids = [device.poll().wr_id, device.poll().wr_id];
    ids.sort_unstable();
    assert_eq!(ids, [1, 2]);
    assert_eq!(to[..8], from[..8]);
    sender.destroy();
    receiver.destroy();
    deregister(source);
    deregister(target);
    assert_eq!(srq.destroy(), 0);
    device.close();
}
