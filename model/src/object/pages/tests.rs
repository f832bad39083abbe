//! Unit tests.

use super::*;
use crate::memory::test::Flat;

#[test]
fn a_buffer_follows_its_pages() {
    let memory = Flat::new(0x1_0000, 0x4000);
    let pages = Pages::new(vec![0x1_3000, 0x1_0000, 0x1_2000], 12, 0xf80, 0x1100).unwrap();
    let data: Vec<u8> = (0..0x1100u32).map(|i| (i % 251) as u8).collect();
    pages.write(&memory, 0, &data).unwrap();
    let mut first = [0; 0x80];
    memory.read(0x1_3f80, &mut first).unwrap();
    assert_eq!(first, data[..0x80]);
    let mut third = [0; 0x80];
    memory.read(0x1_2000, &mut third).unwrap();
    assert_eq!(third, data[0x1080..]);
    let mut all = vec![0; data.len()];
    pages.read(&memory, 0, &mut all).unwrap();
    assert_eq!(all, data);
    let part = pages.part(0x60, 0x40).unwrap();
    let mut bytes = [0; 0x40];
    part.read(&memory, 0, &mut bytes).unwrap();
    assert_eq!(bytes, data[0x60..0xa0]);
}

#[test]
fn publishing_crosses_pages() {
    let memory = Flat::new(0x1_0000, 0x4000);
    let pages = Pages::new(vec![0x1_3000, 0x1_0000], 12, 0, 0x2000).unwrap();
    for (offset, length) in [(0xfc0, 128), (0, 64), (0xff0, 16), (0xff1, 16), (0x1fff, 1)] {
        let data = vec![offset as u8 | 1; length];
        pages.publish(&memory, offset, &data).unwrap();
        let mut back = vec![0; length];
        pages.read(&memory, offset, &mut back).unwrap();
        assert_eq!(back, data);
    }
    assert!(pages.publish(&memory, 0x1fc1, &[0; 64]).is_err());
}

#[test]
fn publishing_reaches_the_last_byte_of_all_addresses() {
    let last = 0u64.wrapping_sub(0x1000);
    let memory = Flat::new(last, 0x1000);
    let pages = Pages::new(vec![last], 12, 0xfc0, 64).unwrap();
    pages.publish(&memory, 0, &[7; 64]).unwrap();
    let mut back = [0; 64];
    memory.read(last + 0xfc0, &mut back).unwrap();
    assert_eq!(back, [7; 64]);
}

#[test]
fn what_does_not_fit_is_no_buffer() {
    assert!(Pages::new(vec![0; 2], 12, 1, 0x2000).is_none());
    assert!(Pages::new(vec![0; 2], 64, 0, 1).is_none());
    assert!(Pages::new(vec![0; 2], 12, usize::MAX, 2).is_none());
    let pages = Pages::new(vec![0x1000], 12, 0, 64).unwrap();
    assert!(pages.locate(64).is_none());
    assert!(pages.part(1, 64).is_none());
    assert!(pages.part(usize::MAX, 1).is_none());
    let memory = Flat::new(0x1000, 0x1000);
    assert!(pages.read(&memory, 32, &mut [0; 33]).is_err());
    assert!(pages.write(&memory, usize::MAX, &[0; 33]).is_err());
}
