//! Manual mode: registers are memory, and the device executes when the program calls `run`.

mod verbs;

use mlx5_model::Mode;
use mlx5_sys::verbs::*;
use verbs::{Device, connected};

#[test]
fn nothing_happens_until_the_card_is_told() {
    mlx5_model::set_mode(Mode::Manual).unwrap();
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from = vec![0x5a; 64];
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    for id in 0..3 {
        other.receive(id, target, 64);
        one.send(10 + id, source, 40, ibv_send_flags(0));
    }
    assert!(device.poll_now().is_none());
    assert_eq!(to[0], 0);
    mlx5_model::run();
    let mut ids: Vec<u64> = (0..6).map(|_| device.poll_now().expect("completion").wr_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 10, 11, 12]);
    assert_eq!(to[..40], from[..40]);
    mlx5_model::run();
    assert!(device.poll_now().is_none());
    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}

#[test]
fn a_device_is_run_by_the_thread_that_opened_it_alone() {
    mlx5_model::set_mode(Mode::Manual).unwrap();
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut bytes = vec![0; 64];
    let region = device.register(&mut bytes);
    other.receive(6, region, 64);
    one.send(7, region, 40, ibv_send_flags(0));
    std::thread::spawn(mlx5_model::run).join().unwrap();
    assert!(device.poll_now().is_none());
    mlx5_model::run();
    let mut ids = [6, 7].map(|_| device.poll_now().expect("completion").wr_id);
    ids.sort_unstable();
    assert_eq!(ids, [6, 7]);
    one.destroy();
    other.destroy();
    // SAFETY: the region is deregistered once, and the memory still lives.
    unsafe { assert_eq!(ibv_dereg_mr(region.as_ptr()), 0) };
    device.close();
}
