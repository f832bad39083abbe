//! Polled mode: a thread polls the registers.

mod verbs;

use std::ptr::null_mut;

use mlx5_model::Mode;
use mlx5_sys::verbs::*;
use verbs::{Device, LIMIT, connected};

#[test]
fn a_thread_notices_doorbells_and_arms() {
    mlx5_model::set_mode(Mode::Polled).unwrap();
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from = vec![0x5a; 64];
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    for id in 0..200 {
        // SAFETY: the queue and its channel live.
        assert_eq!(unsafe { ibv_req_notify_cq(device.cq.as_ptr(), 0) }, 0);
        other.receive(id, target, 64);
        one.send(id, source, 40, ibv_send_flags(0));
        // SAFETY: the channel lives; the pointers are filled by the calls.
        unsafe {
            let fd = device.channel.as_ref().fd;
            let mut wait = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            assert_eq!(libc::poll(&mut wait, 1, LIMIT.as_millis() as i32), 1, "event {id}");
            let (mut cq, mut argument) = (null_mut(), null_mut());
            assert_eq!(ibv_get_cq_event(device.channel.as_ptr(), &mut cq, &mut argument), 0);
            ibv_ack_cq_events(cq, 1);
        }
        assert_eq!((device.poll().wr_id, device.poll().wr_id), (id, id));
    }
    assert_eq!(to[..40], from[..40]);
    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}
