//! Packets with PSNs that the responder has executed already, by the peer or by a third party.

use super::side::{Post, Side};
use super::{Pair, Setup};
use crate::card::{Link, Timeouts};
use crate::object::State;
use crate::wire::{Frame, Header, Reth};

const NO_ANSWER: u8 = 0x15;

fn setup() -> Setup {
    Setup {
        link: Link::Roce,
        timeouts: Timeouts::SPECIFICATION,
        depth: 16,
        retries: 1,
        ..Setup::default()
    }
}

/// Measured with packets of a third party that has the addresses, the numbers and the next PSN (evidence
/// E108 to E110): it is executed like the peer's, whose own packet then is a duplicate. After several
/// of them, the acknowledge is of packets that the peer has not sent.
#[test]
fn forged_packets_are_executed_and_several_leave_the_peer_without_an_answer() {
    for (forged, syndrome) in [(1, 0), (3, NO_ANSWER)] {
        let setup = setup();
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        own.write_to(0, 8, peer.key);
        own.rig.card.pump();
        let frame = own.rig.card.take_frame().expect("a packet");
        peer.rig.card.receive(&frame);
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(own.outcomes(0), [(0, 0)]);
        let (header, _) = Header::decode(setup.link, &frame.0).expect("a packet");
        for number in 1..=forged {
            let address = Side::address(4096 + 8 * u64::from(number));
            let reth = Some(Reth { address, key: peer.key, length: 8 });
            let forged = Header { psn: header.psn + number, reth, ..header };
            let frame: Result<Frame, std::convert::Infallible> = forged.frame(8, |to| {
                to.copy_from_slice(b"intruder");
                Ok(())
            });
            let Ok(frame) = frame;
            peer.rig.card.receive(&frame);
        }
        pair.settle();
        let [own, peer] = &mut pair.sides;
        assert_eq!(peer.get(4104, 8 * forged as usize), b"intruder".repeat(forged as usize));
        own.put(0, &[7; 8]);
        let index = own.write_to(64, 8, peer.key);
        assert!(pair.run(5, |pair| pair.sides[0].outcomes(0) == [(index, syndrome)]), "{forged}");
        let peer = &mut pair.sides[1];
        assert_eq!((peer.state(), peer.get(64, 8)), (State::Rts, vec![0; 8]));
    }
}

/// Measured with these depths (evidence F054, F055). No atomic is executed twice.
#[test]
fn a_requester_that_goes_back_too_far_gets_no_answer() {
    const ADDED: u32 = 200;
    for (back, syndrome) in [(4, 0), (16, 0), (64, NO_ANSWER), (200, NO_ANSWER)] {
        let setup = setup();
        let mut pair = Pair::new(setup);
        let [own, peer] = &mut pair.sides;
        let mut add = Post::new(0x12);
        (add.data, add.remote) = (vec![(0, 8, own.key)], (Side::address(64), peer.key));
        add.operands = (1, 0);
        for _ in 0..ADDED {
            let index = pair.sides[0].post(&add);
            pair.settle();
            assert_eq!(pair.sides[0].outcomes(0), [(index, 0)]);
        }
        let [own, peer] = &mut pair.sides;
        let identity = &peer.rig.card.identity;
        let address = (peer.qp, identity.lid, identity.gids[0].gid);
        own.reset();
        own.connect(setup, address, [setup.psn[0] + ADDED - back, setup.psn[1]]);
        let repeated = if syndrome == 0 { back } else { 1 };
        for _ in 0..repeated {
            let outcome = (pair.sides[0].post(&add), syndrome);
            assert!(pair.run(5, |pair| pair.sides[0].outcomes(0) == [outcome]), "{back} back");
        }
        let [own, peer] = &mut pair.sides;
        assert_eq!(peer.get(64, 8), u64::from(ADDED).to_le_bytes());
        if syndrome == 0 {
            assert_eq!(own.get(0, 8), u64::from(ADDED - 1).to_le_bytes(), "the saved answer");
        }
    }
}
