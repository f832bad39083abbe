//! Unit tests.

use mlx5_sys::ifc::{Field, create_eq_in, create_eq_out};

use super::*;
use crate::command::test::{Rig, ring};
use crate::function::PortChange;

/// A rig with an EQ of 16 that listens for failures of queue pairs: its number and ring.
fn listener() -> (Rig, u32, u64) {
    let mut rig = Rig::new();
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 5 | 1 << 0x11);
    let number = rig.number(&create, create_eq_out::EQ_NUMBER);
    (rig, number, ring(&create))
}

fn register(rig: &mut Rig, offset: usize, eq: u32, consumer: u32) {
    let uar = rig.uar;
    rig.card.store(uar, offset, &(eq << 24 | consumer).to_be_bytes());
}

#[test]
fn an_event_goes_to_who_listens() {
    let (mut rig, eq, ring) = listener();
    rig.card.qp_event(0x1234, QpEvent::AccessError);
    rig.card.qp_event(0x1234, QpEvent::CommunicationEstablished);
    assert_eq!(rig.card.objects.eqs.get(eq).unwrap().producer, 1);
    let eqe: [u8; 64] = rig.read(ring);
    let mut expected = [0; 64];
    expected[1] = 0x11;
    expected[0x38..0x3c].copy_from_slice(&[0, 0, 0x12, 0x34]);
    assert_eq!(eqe, expected);
    assert!(rig.card.interrupts.is_empty(), "it was not armed");
}

#[test]
fn a_port_that_goes_down_or_up_says_so_once() {
    let mut rig = Rig::new();
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 9);
    rig.run(&create).unwrap();
    for up in [true, false, false, true] {
        rig.card.set_port(up);
    }
    for (slot, subtype) in [(0, 1), (1, 4)] {
        let eqe: [u8; 64] = rig.read(ring(&create) + slot * 64);
        assert_eq!((eqe[1], eqe[3], eqe[0x28]), (9, subtype, 0x10));
    }
    let eqe: [u8; 64] = rig.read(ring(&create) + 128);
    assert_eq!(eqe, [0; 64]);
}

#[test]
fn the_interrupt_comes_once_per_arm() {
    let (mut rig, eq, _) = listener();
    register(&mut rig, 0x40, eq, 0);
    assert!(rig.card.interrupts.is_empty());
    rig.card.qp_event(1, QpEvent::Catastrophic);
    rig.card.qp_event(1, QpEvent::Catastrophic);
    assert_eq!(rig.card.interrupts, [3]);
    // Arming with one left to take raises it at once.
    register(&mut rig, 0x40, eq, 1);
    assert_eq!(rig.card.interrupts, [3, 3]);
    register(&mut rig, 0x48, eq, 2);
    rig.card.qp_event(1, QpEvent::Catastrophic);
    assert_eq!(rig.card.interrupts, [3, 3]);
}

#[test]
fn the_owner_bit_turns_and_an_overrun_ends_it() {
    let (mut rig, eq, ring) = listener();
    for i in 0..40u32 {
        rig.card.qp_event(i, QpEvent::Catastrophic);
        let eqe: [u8; 64] = rig.read(ring + u64::from(i % 16) * 64);
        assert_eq!(eqe[0x3b], i as u8);
        assert_eq!(eqe[0x3f], (i / 16 % 2) as u8);
        register(&mut rig, 0x48, eq, i + 1);
    }
    for i in 0..17 {
        rig.card.qp_event(i, QpEvent::Catastrophic);
    }
    assert!(rig.card.objects.eqs.get(eq).unwrap().failed);
    let eqe: [u8; 64] = rig.read(ring + 8 * 64);
    assert_eq!(eqe[0x3b], 0, "the first of the sixteen stays");
}

#[test]
fn registers_of_another_page_do_nothing() {
    let (mut rig, eq, _) = listener();
    let other = rig.uar + 1;
    rig.card.store(other, 0x40, &(eq << 24).to_be_bytes());
    assert_eq!(rig.card.complaints.stray_doorbells, 1);
    assert!(!rig.card.objects.eqs.get(eq).unwrap().armed);
    register(&mut rig, 0x40, 0xee, 0);
    assert_eq!(rig.card.complaints.stray_doorbells, 2);
}

#[test]
fn an_eq_made_armed_is_armed() {
    let mut rig = Rig::new();
    let state = Field::within(eqc::ST, create_eq_in::EQ_CONTEXT_ENTRY);
    let create = rig.create_eq().set(state, 9u64).set(create_eq_in::EVENT_BITMASK, 1u64 << 5);
    rig.run(&create).unwrap();
    rig.card.qp_event(1, QpEvent::Catastrophic);
    assert_eq!(rig.card.interrupts, [3]);
}

#[test]
fn the_function_reports_events_of_its_own() {
    let mut rig = Rig::new();
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << 9 | 1 << 0xb | 1 << 0x22);
    let eq = rig.number(&create, create_eq_out::EQ_NUMBER);
    let changes = PortChange::ALL.map(Notice::Port);
    for notice in [&changes[..], &[Notice::Pages(-3), Notice::General(8)]].concat() {
        rig.card.notify(notice);
    }
    let expected = [(9, 6), (9, 7), (9, 8), (9, 9), (0xb, 0), (0x22, 8)];
    assert_eq!(rig.card.objects.eqs.get(eq).unwrap().producer as usize, expected.len());
    for (slot, expected) in (0..).zip(expected) {
        let eqe: [u8; 64] = rig.read(ring(&create) + slot * 64);
        assert_eq!((eqe[1], eqe[3]), expected);
        assert_eq!(eqe[0x28] >> 4, u8::from(expected.0 == 9), "the number of the port");
        if expected.0 == 0xb {
            assert_eq!(eqe[0x20..0x28], [0, 0, 0, 0, 0xff, 0xff, 0xff, 0xfd]);
        }
    }
    assert_eq!(rig.card.function.pages.wanted(), -3);
}

#[test]
fn completed_commands_are_reported_to_the_eq_of_before() {
    let mut rig = Rig::new();
    assert_eq!(rig.card.command_queue(), None);
    let create = rig.create_eq().set(create_eq_in::EVENT_BITMASK, 1u64 << Notice::COMMANDS);
    let eq = rig.number(&create, create_eq_out::EQ_NUMBER);
    assert_eq!(rig.card.command_queue(), Some(eq));
    rig.card.notify(Notice::Commands { eq, slots: 0x8000_0001 });
    let eqe: [u8; 64] = rig.read(ring(&create));
    assert_eq!((eqe[1], &eqe[0x20..0x24]), (0x0a, &[0x80, 0, 0, 1][..]));
}
