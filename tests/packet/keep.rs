//! Packets that a program keeps.

use std::mem::forget;

use mlx5::packet::{KeptPacket, PacketReceiverBuilder};

use crate::{Pair, number};

const PLAIN: fn(PacketReceiverBuilder) -> PacketReceiverBuilder =
    |builder| builder.slots(8).spare_slots(3).slot_bytes(256);
/// Slots for two to four packets each.
const STRIDING: fn(PacketReceiverBuilder) -> PacketReceiverBuilder =
    |builder| builder.slots(4).spare_slots(3).striding(64, 8);

/// Takes all packets, and keeps the one with that number.
fn keep(pair: &mut Pair, wanted: u64) -> Option<KeptPacket> {
    let mut kept = None;
    for packet in pair.receiver.poll(64) {
        let packet = packet.unwrap();
        if number(&packet) == wanted {
            kept = packet.keep();
        }
    }
    kept
}

#[test]
fn a_kept_packet_stays_and_the_ring_stays_full() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x20 + at as u8, change);
        let mut all = Vec::new();
        for _ in 0..3 {
            let wanted = pair.sent + 1;
            pair.send(4, 100);
            all.push((wanted, keep(&mut pair, wanted).unwrap()));
            // Each slot of the ring is filled several times.
            for _ in 0..8 {
                pair.send(4, 100);
                assert_eq!(pair.receiver.poll(64).map(Result::unwrap).count(), 4);
            }
        }
        for (wanted, kept) in &all {
            assert_eq!(kept[..], pair.packet(*wanted, 100));
            assert_eq!(kept.info().flow_tag, 0x77);
        }
        // No more can be kept, until one is dropped.
        let wanted = pair.sent;
        pair.send(1, 100);
        assert!(keep(&mut pair, wanted).is_none());
        all.pop();
        let wanted = pair.sent;
        pair.send(1, 100);
        let kept = keep(&mut pair, wanted).unwrap();
        assert_eq!(kept[..], pair.packet(wanted, 100));
        // As many fit as ever: nothing starves the ring.
        assert!(pair.receiver.poll(64).all(|packet| packet.is_ok()));
        pair.refill();
        pair.send(8, 64);
        assert_eq!(pair.receiver.poll(64).map(Result::unwrap).count(), 8);
        assert_eq!(pair.receiver.losses().unwrap().packets, 0);
    }
}

#[test]
fn packets_of_one_slot_are_kept_together() {
    let mut pair = Pair::new(0x22, STRIDING);
    // Four packets of two strides in each slot.
    pair.send(4, 100);
    let kept: Vec<KeptPacket> =
        pair.receiver.poll(64).map(|packet| packet.unwrap().keep().unwrap()).collect();
    for _ in 0..5 {
        pair.refill();
        pair.send(16, 100);
        assert_eq!(pair.receiver.poll(64).map(Result::unwrap).count(), 16);
    }
    for (at, packet) in kept.iter().enumerate() {
        assert_eq!(packet[..], pair.packet(at as u64, 100));
    }
    // They count as one: of two more slots packets may be kept.
    for expected in [true, true, false] {
        let wanted = pair.sent;
        pair.refill();
        pair.send(4, 100);
        let more = keep(&mut pair, wanted);
        assert_eq!(more.is_some(), expected);
        forget(more);
    }
    drop(kept);
    let wanted = pair.sent;
    pair.refill();
    pair.send(4, 100);
    assert!(keep(&mut pair, wanted).is_some());
}

#[test]
fn kept_packets_go_to_other_threads_and_outlive_the_receiver() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x23 + at as u8, change);
        let expected = pair.packet(1, 80);
        pair.send(3, 80);
        let kept = keep(&mut pair, 1).unwrap();
        // Receives are outstanding, and packets that no poll has taken.
        pair.send(2, 80);
        let Pair { rig, port, receiver, sender, .. } = pair;
        drop((receiver, sender, port, rig));
        let read = std::thread::spawn(move || kept.to_vec()).join().unwrap();
        assert_eq!(read, expected);
    }
}

#[test]
fn packets_are_kept_and_dropped_by_many_threads() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x25 + at as u8, change);
        for _ in 0..50 {
            let first = pair.sent;
            pair.refill();
            pair.send(8, 64);
            let packets: Vec<_> = pair.receiver.poll(64).map(Result::unwrap).collect();
            assert_eq!(packets.len(), 8);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        for (at, packet) in packets.iter().enumerate() {
                            if let Some(kept) = packet.keep() {
                                assert_eq!(number(&kept), first + at as u64);
                            }
                        }
                    });
                }
            });
        }
        // All of them may be kept again, and the ring is full.
        let kept: Vec<_> = (0..3)
            .map(|_| {
                let wanted = pair.sent;
                pair.refill();
                pair.send(4, 100);
                keep(&mut pair, wanted)
            })
            .collect();
        assert!(kept.iter().all(Option::is_some));
        pair.refill();
        pair.send(8, 64);
        assert_eq!(pair.receiver.poll(64).map(Result::unwrap).count(), 8);
        assert_eq!(pair.receiver.losses().unwrap().packets, 0);
    }
}
