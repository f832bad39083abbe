//! Polls, batches, losses, failures and waits.

use std::time::Duration;

use etherparse::PacketBuilder;
use mlx5::cqe::Status;
use mlx5::packet::{LossScope, PacketError, PacketFault, PacketReceiverBuilder};
use mlx5::wqe::{EthSend, Inline};

use crate::{Pair, number};

const PLAIN: fn(PacketReceiverBuilder) -> PacketReceiverBuilder =
    |builder| builder.slots(16).spare_slots(4).slot_bytes(256);
/// Slots of 1,024 bytes.
const STRIDING: fn(PacketReceiverBuilder) -> PacketReceiverBuilder =
    |builder| builder.slots(4).spare_slots(2).striding(64, 16);

#[test]
fn packets_are_lent_whole_in_order_and_round_after_round() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x10 + at as u8, change);
        let mut expected = 0;
        for round in 0..100 {
            let length = 60 + round % 100;
            pair.send(7, length);
            let sent: Vec<Vec<u8>> =
                (expected..expected + 7).map(|number| pair.packet(number, length)).collect();
            let packets: Vec<_> = pair.receiver.poll(32).map(Result::unwrap).collect();
            assert_eq!(packets.len(), 7);
            for (packet, sent) in packets.iter().zip(&sent) {
                assert_eq!(packet.bytes(), sent);
                assert_eq!((packet.info().flow_tag, packet.fault()), (0x77, None));
            }
            expected += 7;
        }
        assert_eq!(pair.receiver.poll(32).count(), 0);
        assert_eq!(pair.receiver.losses().unwrap().packets, 0);
    }
}

#[test]
fn a_poll_returns_no_more_than_it_is_asked_for() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x12 + at as u8, change);
        pair.send(10, 60);
        let mut numbers = |most: usize| -> Vec<u64> {
            pair.receiver.poll(most).map(|packet| number(&packet.unwrap())).collect()
        };
        assert_eq!(numbers(0), []);
        assert_eq!(numbers(4), [0, 1, 2, 3]);
        assert_eq!(numbers(1), [4]);
        assert_eq!(numbers(32), [5, 6, 7, 8, 9]);
        assert_eq!(numbers(32), []);
    }
}

#[test]
fn a_packet_and_a_kept_one_tell_the_fault_of_their_headers() {
    const IP_CHECKSUM: usize = 14 + 10;
    const UDP_PAYLOAD: usize = 14 + 20 + 8;
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x1c + at as u8, change);
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 8], pair.to)
            .ipv4([192, 0, 2, 1], [192, 0, 2, 2], 8)
            .udp(7, 9000);
        let mut right = Vec::new();
        builder.write(&mut right, &[3; 40]).unwrap();
        for (wrong, fault) in [
            (None, None),
            (Some(IP_CHECKSUM), Some(PacketFault::NetworkHeader)),
            (Some(UDP_PAYLOAD), Some(PacketFault::TransportChecksum)),
        ] {
            let mut packet = right.clone();
            if let Some(wrong) = wrong {
                packet[wrong] ^= 1;
            }
            pair.sender.post(0, EthSend::new(Inline(&packet)).signaled()).unwrap();
            pair.sender.poll().for_each(|returned| drop(returned.unwrap()));
            let came = pair.receiver.poll(1).next().unwrap().unwrap();
            assert_eq!((came.fault(), came.keep().unwrap().fault()), (fault, fault));
        }
    }
}

/// What an iterator has not taken, the next poll returns.
#[test]
fn a_poll_that_ends_early_loses_nothing() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x14 + at as u8, change);
        for _ in 0..10 {
            pair.send(9, 60);
            let first = pair.sent - 9;
            let mut packets = pair.receiver.poll(32);
            for expected in first..first + 3 {
                assert_eq!(number(&packets.next().unwrap().unwrap()), expected);
            }
            let rest: Vec<u64> =
                pair.receiver.poll(32).map(|packet| number(&packet.unwrap())).collect();
            assert_eq!(rest, Vec::from_iter(first + 3..first + 9));
        }
        assert_eq!(pair.receiver.losses().unwrap().packets, 0);
    }
}

/// Every packet that was sent has arrived or is counted, whatever overran.
#[test]
fn packets_that_arrive_and_losses_are_all_that_were_sent() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x16 + at as u8, change);
        let mut arrived = 0;
        for round in 0..400 {
            // Up to four times as many as there is memory for.
            pair.send(round % 64, 60 + round as usize % 120);
            arrived += pair.receiver.poll(round as usize % 23).map(Result::unwrap).count() as u64;
        }
        loop {
            match pair.receiver.poll(32).map(Result::unwrap).count() {
                0 => break,
                count => arrived += count as u64,
            }
        }
        let losses = pair.receiver.losses().unwrap();
        assert_eq!(losses.scope, LossScope::Receiver);
        assert!(losses.packets > 0 && arrived > 0);
        assert_eq!(arrived + losses.packets, pair.sent);
    }
}

#[test]
fn a_rule_that_none_counts_has_the_losses_of_the_port() {
    let mut pair = Pair::new(0x18, PLAIN);
    let before = pair.receiver.losses().unwrap();
    assert_eq!(before.scope, LossScope::Receiver);
    let sniffer = pair.receiver.rule().sniffer();
    pair.receiver.steer(sniffer).unwrap();
    assert_eq!(pair.receiver.losses().unwrap().scope, LossScope::Port);
}

#[test]
fn a_packet_longer_than_its_slot_fails_the_receiver_until_it_recovers() {
    let change: [fn(PacketReceiverBuilder) -> PacketReceiverBuilder; 2] =
        // Slots of 256 and of 512 bytes.
        [PLAIN, |builder| builder.slots(16).striding(64, 8)];
    for (at, change) in change.into_iter().enumerate() {
        fail_and_recover(Pair::new(0x1e + at as u8, change), 256 << at);
    }
}

fn fail_and_recover(mut pair: Pair, slot: usize) {
    let mut kept = Vec::new();
    for _ in 0..3 {
        pair.refill();
        pair.send(2, 60);
        let sent = pair.sent;
        // One byte more than the slot has.
        let long = pair.packet(9, slot + 1);
        let memory = pair.port.pd().allocate(4096, mlx5::ib::Access::empty()).unwrap();
        let mut memory = mlx5::endpoint::MrSlice::new(memory);
        memory.write(0, &long);
        drop(memory.split_off(long.len()));
        pair.sender.post(1, mlx5::wqe::EthSend::new(memory).signaled()).unwrap();
        pair.sender.poll().for_each(|returned| drop(returned.unwrap()));
        // What came before the failure is there.
        let before: Vec<u64> =
            (0..2).map(|_| number(&pair.receiver.poll(1).next().unwrap().unwrap())).collect();
        assert_eq!(before, [sent - 2, sent - 1]);
        for _ in 0..40 {
            let Some(Err(PacketError::Failed(failure))) = pair.receiver.poll(8).next() else {
                panic!("no failure")
            };
            assert_eq!(failure.status, Status::LocalLength);
        }
        pair.receiver.recover().unwrap();
        assert_eq!(pair.receiver.poll(8).count(), 0);
        pair.send(16, 190);
        let packets: Vec<_> = pair.receiver.poll(32).map(Result::unwrap).collect();
        let after: Vec<u64> = packets.iter().map(|packet| number(packet)).collect();
        assert_eq!(after, Vec::from_iter(sent..sent + 16));
        kept.push((sent + 3, packets[3].keep().unwrap()));
    }
    for (at, packet) in kept {
        assert_eq!(packet[..], pair.packet(at, 190), "kept beyond later failures");
    }
    let refused = pair.receiver.recover().unwrap_err();
    assert!(refused.to_string().contains("has failed"), "{refused}");
}

#[test]
fn a_wait_ends_with_a_packet_or_at_its_time() {
    for (at, change) in [PLAIN, STRIDING].into_iter().enumerate() {
        let mut pair = Pair::new(0x1a + at as u8, change);
        assert!(!pair.receiver.wait(Duration::from_millis(1)).unwrap());
        pair.send(1, 60);
        // The event of the first wait.
        assert!(pair.receiver.wait(Duration::ZERO).unwrap());
        assert_eq!(pair.receiver.poll(8).count(), 1);
        pair.send(1, 60);
        assert!(pair.receiver.arm().unwrap(), "it is there already");
        assert_eq!(pair.receiver.poll(8).count(), 1);
        // From another thread, to one that sleeps.
        let Pair { receiver, sender, .. } = &mut pair;
        let to = crate::address(0x1a + at as u8);
        let packet = [to.as_slice(), &[2; 6], &[0x88, 0xb5], &[0; 46]].concat();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let send = mlx5::wqe::EthSend::new(mlx5::wqe::Inline(&packet)).signaled();
                sender.post(0, send).unwrap();
            });
            while receiver.poll(8).count() == 0 {
                assert!(receiver.wait(Duration::from_secs(30)).unwrap());
            }
        });
    }
}

#[test]
fn rules_come_and_go() {
    let mut pair = Pair::new(0x1c, PLAIN);
    let other = crate::address(0x1d);
    let rule = pair.receiver.rule().destination(other);
    let rule = pair.receiver.steer(rule).unwrap();
    pair.send(1, 60);
    pair.to = other;
    pair.send(1, 60);
    assert_eq!(pair.receiver.poll(8).map(Result::unwrap).count(), 2);
    assert!(pair.receiver.remove(rule));
    assert!(!pair.receiver.remove(rule));
    pair.send(1, 60);
    assert_eq!(pair.receiver.poll(8).count(), 0);
    assert_eq!(pair.receiver.losses().unwrap().packets, 0, "it matched no rule");
}
