//! A device's clock and its port, as libibverbs and libmlx5 see them.

mod verbs;

use std::mem::zeroed;
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mlx5_sys::dv::{mlx5dv_clock_info, mlx5dv_get_clock_info, mlx5dv_ts_to_ns};
use mlx5_sys::verbs::*;
use verbs::{Device, LIMIT};

fn raw_clock(device: &Device) -> u64 {
    // SAFETY: all zero is a value of the structure, which the call fills.
    unsafe {
        let mut values: ibv_values_ex = zeroed();
        values.comp_mask = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        assert_eq!(ibv_query_rt_values_ex(device.context.as_ptr(), &mut values), 0);
        assert_eq!(values.raw_clock.tv_sec, 0);
        values.raw_clock.tv_nsec as u64
    }
}

fn info(device: &Device) -> mlx5dv_clock_info {
    // SAFETY: integers, which the call fills.
    unsafe {
        let mut info: mlx5dv_clock_info = zeroed();
        assert_eq!(mlx5dv_get_clock_info(device.context.as_ptr(), &mut info), 0);
        info
    }
}

#[test]
fn the_clock_goes_and_is_the_time_of_day() {
    let device = Device::open(0);
    let (first, at_first) = (raw_clock(&device), info(&device));
    sleep(Duration::from_millis(20));
    let second = raw_clock(&device);
    assert!(second - first >= 20_000_000, "{first} and {second}");
    let day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i128;
    let before = day();
    let now = i128::from(mlx5dv_ts_to_ns(&at_first, raw_clock(&device)));
    let after = day();
    let slack = 5_000_000;
    assert!(before - slack <= now && now <= after + slack, "{before} {now} {after}");
    // Where the card is used, the page is written anew.
    sleep(Duration::from_millis(600));
    device.port();
    let later = info(&device);
    assert!(later.last_cycles > at_first.last_cycles && later.nsec > at_first.nsec);
    device.close();
}

#[test]
fn a_port_that_goes_down_is_told_of() {
    let device = Device::open(0);
    // SAFETY: the context is open; the event is filled, and acknowledged once.
    let next = || unsafe {
        let mut event: ibv_async_event = zeroed();
        let mut poll =
            libc::pollfd { fd: device.context.as_ref().async_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut poll, 1, LIMIT.as_millis() as i32), 1, "no event");
        assert_eq!(ibv_get_async_event(device.context.as_ptr(), &mut event), 0);
        ibv_ack_async_event(&mut event);
        (event.event_type, event.element.port_num)
    };
    assert!(!mlx5_model::set_port(99, false));
    for (up, event, state) in [
        (false, ibv_event_type::IBV_EVENT_PORT_ERR, ibv_port_state::IBV_PORT_DOWN),
        (true, ibv_event_type::IBV_EVENT_PORT_ACTIVE, ibv_port_state::IBV_PORT_ACTIVE),
    ] {
        assert!(mlx5_model::set_port(0, up));
        assert_eq!(next(), (event, 1));
        assert_eq!(device.port().state, state);
    }
    device.close();
}
