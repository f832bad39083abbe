//! Copies of libmlx5 to BlueFlame buffers. Faults are counted for the whole process, so this is one test.
#![cfg(target_arch = "x86_64")]

mod verbs;

use mlx5_model::stores;
use mlx5_sys::verbs::*;
use verbs::{Device, connected};

#[test]
fn a_copy_of_libmlx5_is_executed_in_one_fault() {
    let device = Device::open(0);
    let (one, other) = connected(&device);
    let mut from: Vec<u8> = (0..64).collect();
    let mut to = vec![0; 64];
    let (source, target) = (device.register(&mut from), device.register(&mut to));
    let recording = stores::record();
    // The ring's end is met several times.
    for turn in 0..200 {
        let length = 8 + turn as u32 % 25;
        other.receive(turn, target, 64);
        stores::take();
        stores::faults();
        one.send(turn, source, length, ibv_send_flags::IBV_SEND_INLINE);
        let (seen, faults) = (stores::take(), stores::faults());
        assert_eq!(faults, 1, "{seen:?}");
        let first = seen[0].offset;
        let places: Vec<_> = seen.iter().map(|store| (store.offset, store.bytes.len())).collect();
        let words: Vec<_> = (0..8).map(|word| (first + 8 * word, 8)).collect();
        assert_eq!(places, words);
        // Control segment, inline header, payload.
        let bytes: Vec<u8> = seen.into_iter().flat_map(|store| store.bytes).collect();
        assert_eq!(bytes[20..][..length as usize], from[..length as usize]);
        assert!(device.poll_now().is_some() && device.poll_now().is_some());
        assert_eq!(to[..length as usize], from[..length as usize]);
    }
    drop(recording);
    one.destroy();
    other.destroy();
    // SAFETY: each region is deregistered once, and the memory still lives.
    unsafe {
        assert_eq!(ibv_dereg_mr(source.as_ptr()), 0);
        assert_eq!(ibv_dereg_mr(target.as_ptr()), 0);
    }
    device.close();
}
