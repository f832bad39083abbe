use super::*;

fn word(space: &mut ConfigSpace, at: u64) -> u32 {
    u32::from_le_bytes(space.read(at, 4).unwrap().try_into().unwrap())
}

#[test]
fn the_bar_tells_its_size() {
    let mut space = ConfigSpace::new(0x101b, Link::InfiniBand);
    assert_eq!(word(&mut space, 0), 0x101b_15b3);
    space.write(0x10, &[0xff; 8]).unwrap();
    let (low, high) = (word(&mut space, 0x10), word(&mut space, 0x14));
    assert_eq!(low & 0xf, 0xc, "64 bits, prefetchable");
    let size = !(u64::from(high) << 32 | u64::from(low & !0xf)) + 1;
    assert_eq!(size, bar::SIZE);
}

#[test]
fn the_capabilities_are_a_list() {
    let mut space = ConfigSpace::new(0x101b, Link::InfiniBand);
    let mut at = u64::from(space.read(0x34, 1).unwrap()[0]);
    let mut found = Vec::new();
    while at != 0 {
        let header = space.read(at, 2).unwrap();
        found.push(header[0]);
        at = header[1].into();
    }
    assert_eq!(found, [0x01, 0x09, 0x10, 0x11]);
}

#[test]
fn a_store_changes_only_what_is_writable() {
    let mut space = ConfigSpace::new(0x101b, Link::InfiniBand);
    let before = space.bytes.clone();
    assert_eq!(space.write(0, &[0xff; SIZE]), Some(Effect::Reset));
    for (at, (before, after)) in before.iter().zip(&space.bytes).enumerate() {
        assert_eq!((before ^ after) & !space.writable[at], 0, "at {at:#x}");
    }
    assert!(space.masks_all());
}

#[test]
fn one_bit_starts_a_reset_and_reads_as_zero() {
    let mut space = ConfigSpace::new(0x101b, Link::InfiniBand);
    assert_eq!(space.write(at::CONTROL as u64, &[0x10, 0x29]), Some(Effect::None));
    assert_eq!(space.write(at::CONTROL as u64, &[0x10, 0xa9]), Some(Effect::Reset));
    assert_eq!(space.read(at::CONTROL as u64, 2).unwrap(), [0x10, 0x29]);
    assert_eq!(space.write(at::CONTROL as u64 + 1, &[0x80]), Some(Effect::Reset));
}

#[test]
fn accesses_beyond_the_end_are_refused() {
    let mut space = ConfigSpace::new(0x101b, Link::InfiniBand);
    assert_eq!(space.read(SIZE as u64 - 1, 2), None);
    assert_eq!(space.read(u64::MAX, 4), None);
    assert_eq!(space.write(SIZE as u64 - 2, &[0; 4]), None);
}

#[test]
fn the_class_is_that_of_the_link() {
    let class = |link| word(&mut ConfigSpace::new(0x101b, link), 8) >> 8;
    assert_eq!(class(Link::InfiniBand), 0x02_0700);
    assert_eq!(class(Link::Roce), 0x02_0000);
}
