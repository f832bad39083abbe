//! Several packets in one WQE (ENHANCED_MPSW).

use super::*;

const ENHANCED_MPSW: u8 = 0x29;

/// A packet within the WQE: a header, the bytes, and zeros up to the next segment.
fn inline(packet: &[u8]) -> Vec<u8> {
    let mut segment = (0x8000_0000 | packet.len() as u32).to_be_bytes().to_vec();
    segment.extend_from_slice(packet);
    segment.resize(segment.len().next_multiple_of(16), 0);
    segment
}

/// A side that receives packets to one address, with three receives posted.
///
/// The send queue has no `ALLOW_MULTI_PKT_SEND_WQE`: Linux sends by these WQEs on such queues.
fn side(sends: Change) -> Side {
    let mut side = Side::with(as_is, sends);
    let tir = side.tir;
    side.lead(0, 0x0101, &[tir]);
    (0..3).for_each(|number| side.receive(number, 0x400 + u64::from(number) * 0x100, 0x100));
    side
}

impl Side {
    /// Returns the packets that were received.
    fn packets(&self) -> Vec<Vec<u8>> {
        let filled = (0..3).map(|slot| self.received(slot)).filter(|cqe| cqe[63] >> 4 == 2);
        let lengths: Vec<u8> = filled.map(|cqe| cqe[47]).collect();
        let packets = lengths.iter().zip(0..).map(|(length, at)| {
            let bytes = self.rig.read::<0x100>(self.page + 0x400 + at * 0x100);
            bytes[..usize::from(*length)].to_vec()
        });
        packets.collect()
    }
}

#[test]
fn each_segment_is_a_packet_and_one_cqe_reports_all() {
    let mut side = side(as_is);
    let packets = [tcp(0x0101, 6), tcp(0x0101, 40), tcp(0x0101, 7)];
    side.rig.write(side.page, &packets[1]);
    let memory = pointer(packets[1].len() as u32, side.key, START);
    let segments =
        [&segment(0, 0, &[])[..], &inline(&packets[0]), &memory, &inline(&packets[2])].concat();
    side.post(ENHANCED_MPSW, &segments);
    let sent = side.sent(0);
    assert_eq!((sent[56], sent[63] >> 4), (ENHANCED_MPSW, 0), "{sent:02x?}");
    assert_eq!(sent[44..48], (60u32 + 94 + 61).to_be_bytes());
    assert_eq!(side.sent(1)[63], UNWRITTEN, "no second CQE");
    assert_eq!(side.packets(), packets);
}

#[test]
fn the_segment_asks_for_the_checksums_of_all_packets() {
    let mut side = side(as_is);
    let packet = inline(&tcp(0x0101, 6));
    side.post(ENHANCED_MPSW, &[&segment(CHECKSUMS, 0, &[])[..], &packet, &packet].concat());
    assert_eq!(side.packets().len(), 2);
    for packet in side.packets() {
        let headers = Headers::of(&packet).unwrap();
        assert!(headers.network_is_right(&packet) && headers.transport_is_right(&packet));
    }
}

/// A WQE that fails: its segments, the syndrome, and how many packets leave before.
type Case = (&'static str, Vec<u8>, u8, usize);

#[test]
fn a_packet_that_cannot_be_sent_fails_the_queue_and_those_before_it_have_left() {
    const QP_OPERATION: u8 = 0x02;
    const LENGTH: u8 = 0x01;
    const PROTECTION: u8 = 0x04;
    let (plain, good) = (segment(0, 0, &[]), inline(&tcp(0x0101, 6)));
    let headed: Change =
        |command| command.set(sqc::MIN_WQE_INLINE_MODE.within(create_sq_in::CTX), 1u64);
    let cases: [Case; 7] = [
        ("no packet", plain.clone(), QP_OPERATION, 0),
        ("a header", [&segment(0, 0, &[3; 2])[..], &good].concat(), QP_OPERATION, 0),
        ("an MSS", [&segment(0, 60, &[])[..], &good].concat(), QP_OPERATION, 0),
        ("too short", [&plain[..], &good, &inline(&[3; 13])].concat(), LENGTH, 1),
        ("too long", [&plain[..], &good, &pointer(1519, 0, START)].concat(), LENGTH, 1),
        ("bad key", [&plain[..], &good, &pointer(60, 7, START)].concat(), PROTECTION, 1),
        ("cut off", [&plain[..], &good[..48]].concat(), QP_OPERATION, 0),
    ];
    for (name, segments, syndrome, left) in cases {
        let mut side = side(as_is);
        side.post(ENHANCED_MPSW, &segments);
        let sent = side.sent(0);
        assert_eq!((sent[55], sent[63] >> 4), (syndrome, 0xd), "{name}: {sent:02x?}");
        assert_eq!(side.packets().len(), left, "{name}");
        assert_eq!(side.rig.card.objects.qps[&side.sq].state, State::Error, "{name}");
    }
    // A queue whose packets have their headers in the WQE takes packets that are there as a whole.
    let mut inlined = side(headed);
    inlined.post(ENHANCED_MPSW, &[&plain[..], &good].concat());
    assert_eq!((inlined.sent(0)[63] >> 4, inlined.packets().len()), (0, 1));
    let mut by_pointer = side(headed);
    by_pointer.rig.write(by_pointer.page, &tcp(0x0101, 6));
    let memory = pointer(60, by_pointer.key, START);
    by_pointer.post(ENHANCED_MPSW, &[&plain[..], &memory].concat());
    assert_eq!((by_pointer.sent(0)[63] >> 4, by_pointer.packets().len()), (0xd, 0));
}
