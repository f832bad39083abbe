//! Captures and counters of the same run say the same.
//!
//! The captures are read by a library that has no part in writing them.

use std::sync::{Arc, Mutex};

use mlx5_sys::ifc::{Field, opcode, qpc, query_q_counter_in, query_q_counter_out as counter};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use proptest::prelude::*;

use super::side::Side;
use super::{Pair, Setup};
use crate::capture::Capture;
use crate::card::{Link, Sort};
use crate::command::test::Command;
use crate::trace::Sink;
use crate::wire::{Acknowledge, Frame, Header, NakCode, Opcode};

/// A frame of a capture.
pub(crate) struct Seen {
    pub(crate) inbound: bool,
    pub(crate) dropped: Option<String>,
    pub(crate) frame: Frame,
}

/// The frames of a capture.
pub(crate) fn frames(link: Link, capture: &[u8]) -> Vec<Seen> {
    let mut reader = PcapNgReader::new(capture).unwrap();
    let mut seen = Vec::new();
    while let Some(block) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block.unwrap() else { continue };
        let bytes = match link {
            Link::InfiniBand => &packet.data[16..packet.data.len() - 2],
            Link::Roce => &packet.data,
        };
        let dropped = packet.options.iter().find_map(|option| match option {
            EnhancedPacketOption::Comment(text) => Some(text.to_string()),
            _ => None,
        });
        let inbound = packet.options.contains(&EnhancedPacketOption::Flags(1));
        seen.push(Seen { inbound, dropped, frame: Frame::new(bytes.to_vec()) });
    }
    seen
}

/// A pair whose sides capture and count, with the captures and the numbers of the sets.
struct Watched {
    pair: Pair,
    link: Link,
    captures: [Arc<Mutex<Vec<u8>>>; 2],
    sets: [u32; 2],
    first_psn: u32,
}

impl Watched {
    fn new(setup: Setup, seed: u64, rate: u64) -> Self {
        let mut pair = Pair::lossy(setup, seed, rate);
        let captures: [Arc<Mutex<Vec<u8>>>; 2] = Default::default();
        let sets = [0, 1].map(|index: usize| {
            let side: &mut Side = &mut pair.sides[index];
            let sink = Sink::Memory(captures[index].clone());
            let ports = [side.rig.card.identity.clone()];
            side.rig.card.capture(&Capture::start(sink, &ports).unwrap(), 0);
            let set = side.rig.counters();
            let qp = side.rig.card.objects.qps.get_mut(&side.qp).unwrap();
            qpc::COUNTER_SET_ID.set(&mut qp.context[..], set.into());
            set
        });
        Self { pair, link: setup.link, captures, sets, first_psn: setup.psn[0] }
    }

    fn count(&mut self, side: usize, field: Field) -> u64 {
        let query = Command::new(opcode::QUERY_Q_COUNTER, 0x20)
            .set(query_q_counter_in::COUNTER_SET_ID, self.sets[side]);
        field.get(&self.pair.sides[side].rig.run(&query).unwrap())
    }

    fn seen(&self, side: usize) -> Vec<Seen> {
        frames(self.link, &self.captures[side].lock().unwrap())
    }

    /// The headers of the frames that came to a side and were not dropped at its port.
    fn arrived(&self, side: usize) -> Vec<Header> {
        let all = self.seen(side).into_iter().filter(|seen| seen.inbound && seen.dropped.is_none());
        all.map(|seen| Header::decode(self.link, &seen.frame.0).unwrap().0).collect()
    }

    /// How many acknowledges with such a syndrome came to a side.
    fn told(&self, side: usize, is: impl Fn(Acknowledge) -> bool) -> u64 {
        let arrived = self.arrived(side);
        let told =
            arrived.iter().filter(|header| header.aeth.is_some_and(|aeth| is(aeth.syndrome)));
        told.count() as u64
    }

    /// Compares the port's counters of both sides with the captures.
    fn ports_agree(&self) {
        for side in 0..2 {
            let traffic = self.pair.sides[side].rig.card.traffic;
            let sum = |is: &dyn Fn(&Seen) -> bool| {
                let those = self.seen(side).into_iter().filter(|seen| is(seen));
                those.fold((0, 0), |(packets, octets), seen| {
                    (packets + 1, octets + (seen.frame.0.len() - self.link.header()) as u64)
                })
            };
            let unicast = Sort::Unicast as usize;
            let sent = traffic.sent[unicast];
            assert_eq!((sent.packets, sent.octets), sum(&|seen| !seen.inbound));
            let received = traffic.received[unicast];
            let is_good = |seen: &Seen| seen.inbound && seen.dropped.is_none();
            assert_eq!((received.packets, received.octets), sum(&is_good));
            // A frame that was damaged in its address is another port's.
            let is_wrong = |seen: &Seen| {
                let reason = seen.dropped.as_deref();
                seen.inbound && reason.is_some_and(|reason| reason != "dropped: not for this port")
            };
            assert_eq!((traffic.wrong.packets, traffic.wrong.octets), sum(&is_wrong));
        }
    }

    /// Compares the counters of the second side's responder with the requests that came to it, of
    /// which none is a READ and none was refused.
    fn responder_agrees(&mut self) {
        let (mut expected, mut ahead, mut behind, mut writes) = (self.first_psn, 0, 0, 0);
        for header in self.arrived(1) {
            // PSNs have 24 bits, and windows are at most half of them.
            match header.psn.wrapping_sub(expected) & 0xff_ffff {
                0 => {
                    expected = (expected + 1) & 0xff_ffff;
                    let starts = matches!(header.opcode, Opcode::WriteFirst | Opcode::WriteOnly);
                    writes += u64::from(starts);
                }
                1..0x80_0000 => ahead += 1,
                _ => behind += 1,
            }
        }
        assert_eq!(self.count(1, counter::OUT_OF_SEQUENCE), ahead);
        assert_eq!(self.count(1, counter::DUPLICATE_REQUEST), behind);
        assert_eq!(self.count(1, counter::RX_WRITE_REQUESTS), writes);
    }
}

fn is_rnr(syndrome: Acknowledge) -> bool {
    matches!(syndrome, Acknowledge::Rnr(_))
}

fn is_gap(syndrome: Acknowledge) -> bool {
    syndrome == Acknowledge::Nak(NakCode::Sequence)
}

#[test]
fn missing_receives_are_counted_as_captured() {
    let mut watched = Watched::new(Setup::default(), 0, 0);
    watched.pair.sides[0].send(8);
    watched.pair.settle();
    for _ in 0..3 {
        watched.pair.tick();
    }
    let told = watched.told(0, is_rnr);
    assert!(told > 1, "{told}");
    assert_eq!(watched.count(0, counter::RNR_NAK_RETRY_ERR), told);
    assert_eq!(watched.count(1, counter::OUT_OF_BUFFER), told);
    watched.ports_agree();
}

#[test]
fn losses_and_repetitions_are_counted_as_captured() {
    // The second of four packets is lost, and then an acknowledge.
    let mut watched = Watched::new(Setup { mtu: 256, ..Setup::default() }, 0, 0);
    let (mut requests, mut answers) = (0, 0);
    watched.pair.drop = Box::new(move |from, _| {
        requests += u32::from(from == 0);
        answers += u32::from(from == 1);
        from == 0 && requests == 2 || from == 1 && answers == 2
    });
    let [own, peer] = &mut watched.pair.sides;
    own.write_to(0, 1024, peer.key);
    watched.pair.settle();
    assert!(watched.pair.tick().is_some());
    let told = watched.told(0, is_gap);
    assert_eq!((told, watched.count(0, counter::PACKET_SEQ_ERR)), (1, 1));
    // A request that goes back without having been told to: a time-out.
    assert_eq!(watched.count(0, counter::LOCAL_ACK_TIMEOUT_ERR), 1);
    watched.ports_agree();
    watched.responder_agrees();
    assert!(watched.count(1, counter::DUPLICATE_REQUEST) > 0);
    assert_eq!(watched.count(1, counter::OUT_OF_SEQUENCE), 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever a wire that loses, repeats, reorders and corrupts does.
    #[test]
    fn a_bad_wire_is_counted_as_captured(seed: u64, rate in 0u64..60, roce: bool) {
        let link = if roce { Link::Roce } else { Link::InfiniBand };
        let setup = Setup { link, mtu: 256, psn: [0xff_fff8, 0xabc], ..Setup::default() };
        let mut watched = Watched::new(setup, seed, rate);
        for length in [8, 1000, 3000, 8, 700] {
            let [own, peer] = &mut watched.pair.sides;
            own.write_to(0, length, peer.key);
        }
        watched.pair.run(200, |_| false);
        watched.ports_agree();
        watched.responder_agrees();
    }
}
