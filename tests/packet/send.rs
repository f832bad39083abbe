//! Sending: inline, from memory, behind a header, and prepared.

use mlx5::endpoint::{MrSlice, Outcome};
use mlx5::ib::Access;
use mlx5::wqe::{EthSend, EthTso, Field, Inline, InlineBytes};

use crate::Pair;

const SMALL: fn(mlx5::packet::PacketReceiverBuilder) -> mlx5::packet::PacketReceiverBuilder =
    |builder| builder.slots(32);

impl Pair {
    /// Returns the packets that have arrived.
    fn arrived(&mut self) -> Vec<Vec<u8>> {
        self.receiver.poll(64).map(|packet| packet.unwrap().to_vec()).collect()
    }
}

#[test]
fn a_packet_is_sent_inline_or_from_memory_which_comes_back() {
    let mut pair = Pair::new(0x40, SMALL);
    let packet = pair.packet(1, 100);
    let region = pair.port.pd().allocate(4096, Access::empty()).unwrap();
    let mut memory = MrSlice::new(region);
    memory.write(0, &packet);
    let rest = memory.split_off(100);
    pair.sender.post(1, EthSend::new(Inline(&packet)).signaled()).unwrap();
    pair.sender.post(2, EthSend::new(memory).signaled()).unwrap();
    let returned: Vec<_> = pair.sender.poll().map(Result::unwrap).collect();
    assert_eq!(returned.iter().map(|one| one.id).collect::<Vec<_>>(), [1, 2]);
    let [_, second] = <[_; 2]>::try_from(returned).unwrap();
    assert!(matches!(second.outcome, Outcome::Sent(_)));
    let mut whole = second.buffers.one().unwrap();
    // A header of this packet before a payload from memory.
    let payload = whole.split_off(14);
    pair.sender.post(3, EthSend::new(payload).header(&packet[..14]).signaled()).unwrap();
    assert_eq!(pair.sender.poll().map(Result::unwrap).count(), 1);
    assert_eq!(pair.arrived(), [packet.clone(), packet.clone(), packet]);
    drop(rest);
}

#[test]
fn memory_of_another_domain_is_refused() {
    let mut pair = Pair::new(0x41, SMALL);
    let memory = pair.rig.pd.allocate(4096, Access::empty()).unwrap();
    let refused = pair.sender.post(1, EthSend::new(MrSlice::new(memory)).signaled()).unwrap_err();
    assert_eq!(refused.error, mlx5::ring::PostError::PdMismatch);
    assert_eq!(refused.operation.into_payload().len(), 4096);
}

#[test]
fn an_order_is_written_ahead_and_changed_where_it_matters() {
    let mut pair = Pair::new(0x42, SMALL);
    let packet = pair.packet(0, 64);
    let order: [u8; 64] = packet.clone().try_into().unwrap();
    let sender = pair.port.sender().build().unwrap();
    let mut prepared = sender.into_prepared::<EthSend<InlineBytes<64>>>();
    // A price of 8 bytes at offset 40.
    const PRICE: Field<40, 8> = Field;
    let mut expected = Vec::new();
    for value in 1..=5_u64 {
        prepared.prepare(value, EthSend::new(InlineBytes(order)).signaled()).unwrap();
        assert_eq!(pair.receiver.poll(8).count(), 0, "nothing is sent before");
        prepared.fire(PRICE.with(value.to_be_bytes())).unwrap();
        let mut changed = packet.clone();
        changed[40..48].copy_from_slice(&value.to_be_bytes());
        expected.push(changed);
        assert_eq!(pair.arrived(), expected[expected.len() - 1..]);
        assert_eq!(prepared.poll().map(Result::unwrap).count(), 1);
    }
}

#[test]
fn a_large_send_goes_in_pieces() {
    let mut pair = Pair::new(0x43, SMALL);
    let sender = pair.port.sender().max_tso_header(54).build().unwrap();
    pair.sender = sender;
    let mut header = [pair.to.as_slice(), &[2, 0, 0, 0, 0, 8], &[8, 0, 0x45, 0]].concat();
    header.extend_from_slice(&[0, 0, 0, 7, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    header.extend_from_slice(&[0x10, 0x20, 0x30, 0x40, 0, 0, 0, 100, 0, 0, 0, 1, 0x50, 0x18]);
    header.extend_from_slice(&[1, 0, 0, 0, 0, 0]);
    assert_eq!(header.len(), 54);
    let payload: Vec<u8> = (0..250).collect();
    let mut memory = MrSlice::new(pair.port.pd().allocate(250, Access::empty()).unwrap());
    memory.write(0, &payload);
    pair.sender.post(1, EthTso::new(&header, 100, memory).checksums().signaled()).unwrap();
    assert_eq!(pair.sender.poll().map(Result::unwrap).count(), 1);
    let arrived = pair.arrived();
    let pieces: Vec<&[u8]> = arrived.iter().map(|packet| &packet[54..]).collect();
    assert_eq!(pieces, [&payload[..100], &payload[100..200], &payload[200..]]);
}
