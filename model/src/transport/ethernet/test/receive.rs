//! Tests of received frames: strides, removed VLAN tags, RSS.

use mlx5_sys::ifc::{create_eq_in, create_eq_out, modify_tir_in, qpc};

use super::*;
use crate::wire::Frame;
use crate::wire::ethernet::folded;

#[test]
fn tags_are_put_in_and_taken_out() {
    let strips: Change = |rq| rq.set(rqc::VSD.within(create_rq_in::CTX), 0u64);
    for (receives, stripped) in [(as_is as Change, false), (strips, true)] {
        let mut side = Side::with(receives, as_is);
        let tir = side.tir;
        side.lead(0, 0x0101, &[tir]);
        side.receive(0, 0x400, 256);
        let frame = tcp(0x0101, 30);
        side.rig.write(side.page, &frame);
        // Bit 15 of the header's size asks for a tag; its bytes take the header's place.
        let mut eth = segment(CHECKSUMS, 0, &[]);
        eth[12..16].copy_from_slice(&[0x80, 0, 0x60, 0x05]);
        let rest = pointer(frame.len() as u32, side.key, START);
        side.post(0x0a, &[&eth[..], &rest].concat());
        let cqe = side.received(0);
        assert_eq!((cqe[28], cqe[29] & 1), (7, u8::from(stripped)), "{cqe:02x?}");
        let met = side.rig.read::<88>(side.page + 0x400);
        // The checksum starts with IP, whether the tag is left in the packet or not.
        let start = if stripped { 14 } else { 18 };
        assert_eq!(cqe[20..22], folded(&met[start..start + 70]).to_be_bytes());
        if stripped {
            assert_eq!(cqe[30..32], [0x60, 0x05]);
            assert_eq!((cqe[47], &met[12..14]), (84, &[8, 0][..]));
        } else {
            assert_eq!(cqe[30..32], [0, 0]);
            assert_eq!((cqe[47], &met[12..18]), (88, &[0x81, 0, 0x60, 5, 8, 0][..]));
        }
    }
}

#[test]
fn packets_share_a_receive_until_its_strides_are_used_up() {
    let mut side = Side::with(striding, as_is);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.receive_strides(0, 0x400, 512);
    side.receive_strides(1, 0x800, 512);
    // Three strides, three, then two that are left and not enough.
    for length in [84 + 84, 84 + 84, 84 + 85] {
        side.send(0, &tcp(0x0101, length - 54));
    }
    // WQE, strides (with the bit of a filler), bytes, first stride.
    let expected = [(0, 3, 168, 0), (0, 3, 168, 3), (0, 0x8002, 0, 6), (1, 3, 169, 0)];
    for (slot, (wqe, strides, length, first)) in expected.into_iter().enumerate() {
        let cqe = side.received(slot as u64);
        let half = |at: usize| u16::from_be_bytes([cqe[at], cqe[at + 1]]);
        assert_eq!((half(2), half(44), half(46), half(60)), (wqe, strides, length, first));
        assert_eq!(cqe[63] >> 4, 2);
    }
    assert_eq!(side.rig.read::<6>(side.page + 0x400 + 192), [2, 0, 0, 0, 1, 1]);
    assert_eq!(side.rig.read::<6>(side.page + 0x800), [2, 0, 0, 0, 1, 1]);
    // In error, the one in use and those behind it are flushed, each once.
    side.receive_strides(2, 0x400, 512);
    side.modify_rq(1, 3).unwrap();
    side.run();
    for (slot, index) in [(4, 1), (5, 2)] {
        let cqe = side.received(slot);
        assert_eq!((cqe[55], cqe[61], cqe[63] >> 4), (5, index, 14), "{cqe:02x?}");
    }
}

#[test]
fn a_frame_that_does_not_fit_its_receive_fails_the_queue() {
    for (receives, length) in [(as_is as Change, 83), (striding, 512)] {
        let mut side = Side::with(receives, as_is);
        let tir = side.tir;
        side.lead(0, 0x0101, &[tir]);
        if length == 83 {
            side.receive(0, 0x400, length);
            side.receive(1, 0x400, length);
        } else {
            side.receive_strides(0, 0x400, length);
            side.receive_strides(1, 0x400, length);
        }
        side.send(0, &tcp(0x0101, length as usize + 1 - 54));
        for (slot, syndrome) in [(0, 1), (1, 5)] {
            let cqe = side.received(slot);
            assert_eq!((cqe[55], cqe[61], cqe[63] >> 4), (syndrome, slot as u8, 14), "{cqe:02x?}");
        }
        assert_eq!(side.sent(0)[63] >> 4, 0);
        assert_eq!(side.rig.card.objects.qps[&side.rq].state, State::Error);
    }
}

/// As in two dumps of devices (`mlx5e_gro`, and one of a host with pages of 64 KiB): unlike a
/// connection's, such a CQE does not have the solicited bit.
#[test]
fn a_receive_by_a_wrong_key_has_a_devices_codes() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    side.key ^= 1;
    side.receive(0, 0x400, 256);
    side.key ^= 1;
    side.send(0, &tcp(0x0101, 30));
    let cqe = side.received(0);
    assert_eq!(cqe[52..56], [0x93, 0, 0x32, 0x04], "{cqe:02x?}");
    assert_eq!(cqe[63] & !1, 0xe0);
    assert_ne!(cqe[62], 0);
}

#[test]
fn a_receive_queue_that_cannot_be_read_fails_with_an_event() {
    const CATASTROPHIC: u8 = 0x05;
    const RECEIVE_QUEUE: u8 = 1;
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    let create = side.rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << CATASTROPHIC);
    side.rig.number(&create, create_eq_out::EQ_NUMBER);
    let queue = side.rig.card.objects.qps.get_mut(&side.rq).unwrap();
    qpc::DBR_ADDR.set(&mut queue.context[..], 0xdead_0000);
    side.send(0, &tcp(0x0101, 30));
    let eqe: [u8; 64] = side.rig.read(ring(&create));
    let number = side.rq.to_be_bytes();
    assert_eq!((eqe[1], eqe[0x34], &eqe[0x39..0x3c]), (CATASTROPHIC, RECEIVE_QUEUE, &number[1..]));
    assert_eq!(side.rig.card.objects.qps[&side.rq].state, State::Error);
}

#[test]
fn packets_are_spread_by_their_addresses() {
    let mut side = Side::new();
    let (number, cq_ring) = cq(&mut side.rig);
    let create = side.rig.create_rq(number);
    let other = side.rig.number(&create, create_rq_out::RQN);
    let table = side.rig.create_rqt(2, &[side.rq, other]);
    let rqt = side.rig.number(&table, create_rqt_out::RQTN);
    let field = |field: Field| field.within(create_tir_in::CTX);
    let select = |inner: Field| field(inner.within(tirc::RX_HASH_FIELD_SELECTOR_OUTER));
    let mut tir = side
        .rig
        .create_spreading_tir(rqt, side.domain)
        .set(select(rx_hash_field_select::SELECTED_FIELDS), 2u64);
    let key = field(tirc::RX_HASH_TOEPLITZ_KEY).bit_offset() / 8;
    // Only the lowest bit of the destination's address moves anything.
    tir.0[key + 7] = 2;
    let tir = side.rig.number(&tir, create_tir_out::TIRN);
    side.lead(0, 0x0101, &[tir]);
    let first = side.rq;
    side.rq = other;
    side.modify_rq(0, 1).unwrap();
    side.rq = first;
    side.receive(0, 0x400, 256);
    let record = wq::DBR_ADDR.within(rqc::WQ).within(create_rq_in::CTX).get(&create.0);
    let wqe = [pointer(256, side.key, START + 0x800), pointer(0, 0x100, 0)];
    side.rig.write(ring(&create), &wqe.concat());
    side.rig.write(record, &1u32.to_be_bytes());
    let mut frame = tcp(0x0101, 0);
    side.send(0, &frame);
    assert_eq!(side.received(0)[63] >> 4, 2);
    assert_eq!((side.received(0)[16], side.rig.read::<64>(cq_ring)[63]), (1 << 2, UNWRITTEN));
    frame[33] = 3;
    side.receive(1, 0x400, 256);
    side.send(0, &frame);
    assert_eq!(side.rig.read::<64>(cq_ring)[63] >> 4, 2);
    assert_eq!(side.received(1)[63], UNWRITTEN);
}

#[test]
fn a_tir_blocks_what_its_transport_domain_sends_if_it_was_told() {
    let mut side = Side::new();
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    let unicast = tcp(0x0101, 30);
    let group = [&[3], &unicast[1..]].concat();
    let mut arrived = 0u16;
    let mut comes = |side: &mut Side, send: &dyn Fn(&mut Side)| {
        side.receive(arrived, 0x400, 256);
        send(side);
        let came = side.received(arrived.into())[63] >> 4 == 2;
        arrived += u16::from(came);
        came
    };
    let mut come = |side: &mut Side| {
        [&unicast, &group].map(|frame| comes(side, &|side: &mut Side| side.send(0, frame)))
    };
    assert_eq!(come(&mut side), [true; 2], "nothing was said of it");
    let modify = |side: &mut Side, passes: u64| {
        let modify = Command::new(opcode::MODIFY_TIR, modify_tir_in::SIZE)
            .set(modify_tir_in::TIRN, side.tir)
            // The bit `self_lb_en`.
            .set(modify_tir_in::BITMASK, 16u64)
            .set(tirc::SELF_LB_BLOCK.within(modify_tir_in::CTX), passes);
        side.rig.run(&modify).unwrap();
    };
    for (passes, expected) in
        [(1, [true, false]), (2, [false, true]), (3, [true, true]), (0, [false, false])]
    {
        modify(&mut side, passes);
        assert_eq!(come(&mut side), expected, "self_lb_block {passes}");
    }
    // Another port may send the same.
    let from_wire = |side: &mut Side| {
        side.rig.card.receive(&Frame::new(unicast.clone()));
        side.rig.card.settle();
    };
    assert!(comes(&mut side, &from_wire));
}
