//! Frames longer than 1,514 bytes, which an Ethernet port lets through once its driver says so.

use mlx5_sys::ifc::{access_register_in, create_mkey_in, mkc, opcode, pmtu_reg};

use super::*;
use crate::wire::Frame;

/// Sets the longest payload of the port, by PMTU.
fn set_mtu(side: &mut Side, mtu: u64) {
    let set = Command::new(opcode::ACCESS_REG, 0x10 + pmtu_reg::SIZE)
        .set(access_register_in::REGISTER_ID, 0x5003u64)
        .set(pmtu_reg::LOCAL_PORT.within(Field::new(0x10, 31, pmtu_reg::SIZE * 8)), 1u64)
        .set(pmtu_reg::ADMIN_MTU.within(Field::new(0x10, 31, pmtu_reg::SIZE * 8)), mtu + 22);
    side.rig.run(&set).unwrap();
}

/// Gives the side a key of four pages, and returns them.
fn four_pages(side: &mut Side) -> [u64; 4] {
    let field = |field: Field| field.within(create_mkey_in::MEMORY_KEY_MKEY_ENTRY);
    let pages = [(); 4].map(|()| side.rig.page());
    let create = side.rig.create_mkey().without_pages();
    let create = create
        .set(field(mkc::LEN), 0x3f00u64)
        .set(field(mkc::TRANSLATIONS_OCTWORD_SIZE), 2u64)
        .set(create_mkey_in::TRANSLATIONS_OCTWORD_ACTUAL_SIZE, 2u64);
    let create = pages.into_iter().fold(create, Command::page);
    side.key = side.rig.mkey(&create);
    pages
}

/// Sends a frame of so many bytes of payload; returns its completion.
fn send(side: &mut Side, payload: u32) -> [u8; 64] {
    let header = &tcp(0x0101, 0)[..14];
    let data = pointer(payload, side.key, START);
    let slot = u64::from(side.posted);
    side.post(0x0a, &[&segment(0, 0, header)[..], &data].concat());
    side.sent(slot)
}

#[test]
fn a_frame_may_be_as_long_as_the_driver_says() {
    let mut side = Side::new();
    let pages = four_pages(&mut side);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    set_mtu(&mut side, 9000);
    let last = pages[2] + (START + 8999) % 0x1000;
    side.rig.write(last, &[0x5a]);
    // The frame comes back 0x100 bytes behind its start: its last byte is 14 bytes further.
    side.receive(0, 0x100, 9100);
    let sent = send(&mut side, 9000);
    assert_eq!((sent[55], sent[63] >> 4), (0, 0), "{sent:02x?}");
    let cqe = side.received(0);
    assert_eq!(cqe[63] >> 4, 2, "{cqe:02x?}");
    assert_eq!(cqe[44..48], 9014u32.to_be_bytes());
    assert_eq!(side.rig.read::<1>(last + 0x100 + 14), [0x5a]);
    let sent = send(&mut side, 9001);
    assert_eq!((sent[55], sent[63] >> 4), (0x01, 13), "longer than the port lets through");
}

#[test]
fn a_segment_that_allows_padding_is_no_longer_than_its_count() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    // Linux sets the flag in every segment of its receives.
    let segment = |offset: u64| pointer(0x8000_0000 | 64, side.key, START + offset);
    let list = [segment(0), segment(0x400)].concat();
    side.rig.write(side.receive.0, &list);
    side.rig.write(side.receive.1, &1u32.to_be_bytes());
    let frame = tcp(0x0101, 40);
    side.rig.card.receive(&Frame::new(frame.clone()));
    side.rig.card.settle();
    assert_eq!(side.received(0)[63] >> 4, 2);
    assert_eq!(side.rig.read::<64>(side.page)[..], frame[..64]);
    assert_eq!(side.rig.read::<8>(side.page + 64), [0; 8], "behind the first segment");
    assert_eq!(side.rig.read::<30>(side.page + 0x400)[..], frame[64..]);
}

#[test]
fn a_longer_frame_does_not_arrive() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive(0, 0, 0xf00);
    let frame = Frame::new(tcp(0x0101, 1600));
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63], UNWRITTEN, "nothing has arrived");
    set_mtu(&mut side, 2000);
    side.rig.card.receive(&frame);
    side.rig.card.settle();
    assert_eq!(side.received(0)[63] >> 4, 2);
    set_mtu(&mut side, 1000);
    assert!(!side.rig.card.passes(&Frame::new(tcp(0x0101, 961))));
    assert!(side.rig.card.passes(&Frame::new(tcp(0x0101, 960))));
}

#[test]
fn packets_of_roce_are_held_to_an_mtu_that_is_set() {
    let mut side = Side::new();
    let mut packet = tcp(0x0101, 2000);
    // UDP, to RoCE's port.
    packet[23] = 17;
    packet[20..22].fill(0);
    packet[36..38].copy_from_slice(&4791u16.to_be_bytes());
    let packet = Frame::new(packet);
    assert!(packet.is_transport(Link::Roce));
    assert!(side.rig.card.passes(&packet), "connections choose");
    set_mtu(&mut side, 1500);
    assert!(!side.rig.card.passes(&packet));
    set_mtu(&mut side, 2040);
    assert!(side.rig.card.passes(&packet));
}
