//! Bursts: several packets by one request, within the WQE and from memory that comes back.

use mlx5::endpoint::{MrSlice, Outcome};
use mlx5::ib::Access;
use mlx5::ring::PostError;
use mlx5::wqe::{EthMultiPacket, Inline, InlineBytes};

use crate::Pair;

impl Pair {
    /// Polls until so many packets have arrived.
    fn burst(&mut self, count: usize) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        while arrived.len() < count {
            arrived.extend(self.receiver.poll(64).map(|packet| packet.unwrap().to_vec()));
        }
        arrived
    }
}

#[test]
fn a_burst_within_the_wqe_is_one_request() {
    let mut pair = Pair::new(0x50, |builder| builder.slots(64));
    let packets: Vec<Vec<u8>> = (0..20).map(|number| pair.packet(number, 60)).collect();
    let inline: Vec<_> = packets.iter().map(|packet| Inline(packet)).collect();
    let limits = pair.sender.send_queue().limits();
    let (first, rest) = EthMultiPacket::first_of(&inline, &limits);
    pair.sender.post(1, first).unwrap();
    pair.sender.post(2, EthMultiPacket::new(rest).signaled()).unwrap();
    let returned: Vec<_> = pair.sender.poll().map(Result::unwrap).collect();
    assert_eq!(returned.iter().map(|one| one.id).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(pair.burst(20), packets);
    let packet: [u8; 60] = packets[0].clone().try_into().unwrap();
    pair.sender.post(3, EthMultiPacket::new([InlineBytes(packet); 3]).signaled()).unwrap();
    assert_eq!(pair.sender.poll().map(Result::unwrap).count(), 1);
    assert_eq!(pair.burst(3), [&packets[0][..]; 3]);
}

#[test]
fn the_memory_of_a_burst_comes_back_with_its_completion() {
    let mut pair = Pair::new(0x51, |builder| builder.slots(32));
    let packets: Vec<Vec<u8>> = (0..3).map(|number| pair.packet(number, 100)).collect();
    let mut rest = MrSlice::new(pair.port.pd().allocate(300, Access::empty()).unwrap());
    let mut slices = Vec::new();
    for packet in &packets {
        rest.write(0, packet);
        let later = rest.split_off(100);
        slices.push(std::mem::replace(&mut rest, later));
    }
    pair.sender.post(1, EthMultiPacket::new(slices).signaled()).unwrap();
    let mut returned: Vec<_> = pair.sender.poll().map(Result::unwrap).collect();
    let returned = returned.pop().unwrap();
    assert!(matches!(returned.outcome, Outcome::Sent(_)));
    assert_eq!(returned.buffers.slices().len(), 3);
    assert_eq!(pair.burst(3), packets);
}

#[test]
fn a_burst_that_is_refused_returns_its_memory() {
    let mut pair = Pair::new(0x52, |builder| builder.slots(32));
    let other = pair.rig.pd.allocate(4096, Access::empty()).unwrap();
    let burst = EthMultiPacket::new(vec![MrSlice::new(other)]);
    let refused = pair.sender.post(1, burst).unwrap_err();
    assert_eq!(refused.error, PostError::PdMismatch);
    assert_eq!(refused.operation.into_packets().len(), 1);
    let short = pair.port.pd().allocate(13, Access::empty()).unwrap();
    let refused = pair.sender.post(1, EthMultiPacket::new(vec![MrSlice::new(short)])).unwrap_err();
    assert_eq!(refused.error, PostError::PacketTooShort);
    assert_eq!(refused.operation.into_packets()[0].len(), 13);
}
