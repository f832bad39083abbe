//! Several packets by one request: the bytes that DPDK writes for the same packets, delivery in order
//! with one completion, and each error.

use mlx5::cqe::{Completion, SendOperation, Status};
use mlx5::devx::{Sq, Tis, TransportDomain};
use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, Excess, PostError, SendConfig, SendQueue};
use mlx5::verbs::{QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::{
    EthMultiPacket, EthSend, Inline, InlineBytes, InlineGather, MixedPacket, PacketList, Sge,
};
use rig::Rig;
use rig::random::Random;
use rig::verbs::QpMemory;

use crate::{Side, address, rig, udp};

/// Receives for so many packets, each of at most 2,000 bytes.
fn receives(side: &mut Side, count: usize) {
    for at in 0..count {
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe { side.frames.post(at as u64, side.sge(at * 2000, 2000)).unwrap() };
    }
}

/// Waits for so many packets, which lie where [`receives`] put them.
fn received(side: &mut Side, count: usize) -> Vec<Vec<u8>> {
    let lengths: Vec<u32> = (0..count).map(|_| side.received().byte_len).collect();
    let packets = lengths.iter().enumerate();
    packets.map(|(at, length)| side.memory.to_vec(at * 2000, *length as usize)).collect()
}

#[test]
fn packets_in_memory_and_in_the_wqe_arrive_in_order_with_one_completion() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let to = address(40);
    let _flow = b.flow(to);
    let packets: Vec<_> = (0..5u8).map(|at| udp(to, 1, &vec![at; 18 + usize::from(at)])).collect();
    receives(&mut b, 5);
    a.memory.write(0, &packets[1]);
    a.memory.write(200, &packets[4]);
    let burst = [
        MixedPacket::Inline(&packets[0]),
        MixedPacket::Memory(a.sge(0, packets[1].len())),
        MixedPacket::Inline(&packets[2]),
        MixedPacket::Inline(&packets[3]),
        MixedPacket::Memory(a.sge(200, packets[4].len())),
    ];
    // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
    unsafe { a.send.post(7, EthMultiPacket::new(burst).signaled()).unwrap() };
    match a.completion() {
        Completion::Send(done) => {
            assert_eq!((done.id, done.operation), (7, SendOperation::MultiPacket));
        }
        other => panic!("{other:?}"),
    }
    assert!(a.send.is_idle());
    assert_eq!(received(&mut b, 5), packets);
    b.is_quiet();
}

#[test]
fn the_device_fills_in_the_checksums_of_all_packets() {
    let rig = rig();
    let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
    let _flow = b.flow(address(41));
    let packet = udp(address(41), 5, b"checked by the receiver");
    receives(&mut b, 2);
    let pieces: [&[u8]; 2] = [&packet[..20], &packet[20..]];
    let burst = [InlineGather(&pieces); 2];
    // SAFETY: the payload is copied into the WQE.
    unsafe { a.send.post(1, EthMultiPacket::new(burst).checksums()).unwrap() };
    for _ in 0..2 {
        assert!(b.received().info().checksums_ok());
    }
    assert!(!a.send.is_idle(), "nothing reports it");
}

#[test]
fn a_burst_is_split_where_a_wqe_is_full() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let limits = a.send.limits();
    assert_eq!(limits.max_packets, 58);
    let packets = [InlineBytes([3; 60]); 32];
    let mut rest = &packets[..];
    let mut counts = Vec::new();
    while !rest.is_empty() {
        let (request, left) = EthMultiPacket::first_of(rest, &limits);
        counts.push(rest.len() - left.len());
        // SAFETY: the payload is copied into the WQE.
        unsafe { a.send.post(1, request.signaled_if(left.is_empty())).unwrap() };
        rest = left;
    }
    assert_eq!(counts, [14, 14, 4]);
    a.sent_well(1);
    let memory = [a.sge(0, 60); 60];
    let (first, left) = EthMultiPacket::first_of(&memory[..], &limits);
    assert_eq!((first.into_packets().len(), left.len()), (58, 2));
    // Of a packet that no WQE holds, the request is refused.
    let long = [Inline(&[3; 930]); 2];
    let (first, left) = EthMultiPacket::first_of(&long[..], &limits);
    assert_eq!(left.len(), 1);
    // SAFETY: nothing is posted.
    let refused = unsafe { a.send.post(1, first) };
    let expected = PostError::InlineTooLong(Excess::new(930, limits.max_inline));
    assert_eq!(refused, Err(expected));
}

#[test]
fn a_send_queue_made_by_command_sends_several_packets() {
    let rig = rig();
    let mut b = Side::new(&rig);
    let to = address(42);
    let _flow = b.flow(to);
    receives(&mut b, 3);
    let cq = rig.cq(64);
    let tis = Tis::new(&TransportDomain::new(&rig.context).unwrap()).unwrap();
    let sq = Sq::builder(&rig.pd, &tis, &cq).max_inline_data(100).build().unwrap();
    let mut reader = CqReader::new(&cq).unwrap();
    let mut sends = SendQueue::new(&sq, &mut reader, SendConfig::default()).unwrap();
    assert_eq!(sends.limits().max_packets, 58);
    let packet = udp(to, 1, b"by command");
    // SAFETY: the payload is copied into the WQE.
    unsafe { sends.post(1, EthMultiPacket::new([Inline(&packet); 3]).signaled()).unwrap() };
    let done = rig::until(|| reader.poll(&mut sends).unwrap());
    assert!(matches!(done, Completion::Send(done) if done.id == 1));
    assert_eq!(received(&mut b, 3), [&packet[..]; 3]);
}

#[test]
fn what_is_no_burst_is_refused_before_it_is_posted() {
    let rig = rig();
    let mut a = Side::new(&rig);
    let most = a.send.limits().max_inline;
    let mut refused = |error, posted: &dyn Fn(&mut Side) -> Result<(), PostError>| {
        assert_eq!(posted(&mut a), Err(error));
        assert!(a.send.is_idle());
    };
    // SAFETY: nothing is posted.
    unsafe {
        refused(PostError::NoPackets, &|a| {
            a.send.post(1, EthMultiPacket::new(&[] as &[Inline<'_>]))
        });
        refused(PostError::PacketTooShort, &|a| {
            a.send.post(1, EthMultiPacket::new([Inline(&[3; 60]), Inline(&[3; 13])]))
        });
        refused(PostError::PacketTooShort, &|a| {
            a.send.post(1, EthMultiPacket::new([a.sge(0, 60), Sge::default()]))
        });
        refused(PostError::InlineTooLong(Excess::new(most as usize + 1, most)), &|a| {
            let longer = vec![3; most as usize + 1];
            a.send.post(1, EthMultiPacket::new([Inline(&longer)]))
        });
        refused(PostError::SgeTooLong { bytes: u32::MAX }, &|a| {
            a.send.post(1, EthMultiPacket::new([Sge::new(0, u32::MAX, 1)]))
        });
        for count in [59, 100] {
            refused(PostError::TooManyPackets(Excess::new(count, 58)), &|a| {
                a.send.post(1, EthMultiPacket::new(vec![a.sge(0, 60); count]))
            });
        }
        refused(PostError::TooManyPackets(Excess::new(60, 58)), &|a| {
            a.send.post(1, EthMultiPacket::new([Inline(&[3; 60]); 15]))
        });
    }
}

#[test]
fn a_packet_that_fails_is_an_error_cqe_of_the_request() {
    let rig = rig();
    type Bad = fn(&Side) -> Sge;
    let cases: [(&str, Bad, Status); 2] = [
        (
            "no such key",
            |a| Sge { lkey: a.sge(0, 60).lkey ^ 1, ..a.sge(0, 60) },
            Status::LocalProtection,
        ),
        ("beyond the MTU", |a| a.sge(0, 1515), Status::LocalLength),
    ];
    for (name, bad, status) in cases {
        let (mut a, mut b) = (Side::new(&rig), Side::new(&rig));
        let _flow = b.flow(address(43));
        receives(&mut b, 3);
        a.memory.write(0, &udp(address(43), 1, &[7; 18]));
        // SAFETY: memory lives to the end, and is accessed only after the requests on it complete.
        unsafe {
            let burst = [a.sge(0, 60), bad(&a), a.sge(0, 60)];
            a.send.post(1, EthMultiPacket::new(burst)).unwrap();
        }
        match a.completion() {
            Completion::Failed(failure) => {
                assert_eq!((failure.id, failure.status), (1, status), "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
        // The model sends what is before the packet that fails.
        assert_eq!(b.received().byte_len, 60, "{name}");
        b.is_quiet();
        // SAFETY: nothing is posted.
        let after = unsafe { a.send.post(2, EthSend::new(a.sge(0, 60))) };
        assert_eq!(after, Err(PostError::WrongState), "{name}");
    }
}

/// What DPDK's packaged program writes, see the file. `model/tests/dpdk.rs` holds that program to it.
const DPDK: &str = include_str!("../../model/tests/dpdk_multi_packet.txt");

/// Returns the WQE of that name in the file.
fn written(name: &str) -> Vec<u8> {
    let lines = DPDK.lines().skip_while(|line| *line != name).skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    let bytes = lines.flat_map(|line| line.split(' ').filter(|word| !word.is_empty()));
    bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// The packets of a WQE, from its data segments.
fn packets(wqe: &[u8]) -> Vec<MixedPacket<'_>> {
    let mut rest = &wqe[32..];
    let mut packets = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_be_bytes(rest[at..at + 4].try_into().unwrap());
        let size = match word(0) {
            header if header >> 31 == 1 => {
                let length = (header & 0x3ff) as usize;
                packets.push(MixedPacket::Inline(&rest[4..4 + length]));
                (4 + length).next_multiple_of(16)
            }
            length => {
                let at = u64::from(word(8)) << 32 | u64::from(word(12));
                packets.push(MixedPacket::Memory(Sge::new(at, length, word(4))));
                16
            }
        };
        rest = &rest[size..];
    }
    packets
}

/// A queue, and the bytes that its requests leave in its ring.
struct Ring {
    sends: SendQueue<RawPacket>,
    memory: QpMemory,
    /// The block at which the next request begins.
    head: usize,
    reader: CqReader,
    _side: (QueuePair<RawPacket, Rts>, Rig),
}

impl Ring {
    fn new() -> Ring {
        let rig = rig();
        let cq = rig.cq(64);
        let builder = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cq);
        let qp = builder.max_send_wr(16).max_recv_wr(0).max_inline_data(300).build().unwrap();
        let qp = qp.init(1).unwrap().rtr().unwrap().rts().unwrap();
        let mut reader = CqReader::new(&cq).unwrap();
        let sends = SendQueue::new(&qp, &mut reader, SendConfig::default()).unwrap();
        // SAFETY: the queue pair lives as long as the structure.
        let memory = unsafe { QpMemory::new(qp.as_raw()) };
        Ring { sends, memory, head: 0, reader, _side: (qp, rig) }
    }

    /// Posts a request, and returns its bytes and its completion.
    fn post<L: PacketList>(&mut self, packets: L) -> (Vec<u8>, Completion) {
        let request = EthMultiPacket::new(packets).signaled();
        // SAFETY: the payload is copied, or the request names memory by a key that is none.
        unsafe { self.sends.post(1, request).unwrap() };
        let ring = self.memory.send_ring();
        let (start, size) = (self.head * 64 % ring.len(), ring.len());
        let wqe: Vec<u8> = (0..64 * 15).map(|at| ring[(start + at) % size]).collect();
        let ds = usize::from(wqe[7] & 0x3f);
        self.head += ds.div_ceil(4);
        let done = rig::until(|| self.reader.poll(&mut self.sends).unwrap());
        (wqe[..ds * 16].to_vec(), done)
    }
}

/// Without what differs: the queue's number, and the completion mode.
fn masked(mut wqe: Vec<u8>) -> Vec<u8> {
    wqe[4..7].fill(0);
    wqe[11] = 0;
    wqe
}

#[test]
fn the_bytes_are_those_that_dpdk_writes() {
    for (name, count) in [("memory", 32), ("inline", 11)] {
        let theirs = written(name);
        let packets = packets(&theirs);
        assert_eq!(packets.len(), count, "{name}");
        let (ours, _) = Ring::new().post(&packets[..]);
        assert_eq!(masked(ours), masked(theirs), "{name}");
    }
}

#[test]
fn each_type_of_packet_leaves_the_bytes_of_the_layout_around_the_rings_end() {
    let mut random = Random::new();
    let mut ring = Ring::new();
    let post = |expected: &[u8], (wqe, done): (Vec<u8>, Completion)| {
        assert_eq!((wqe[0], wqe[3], usize::from(wqe[7])), (0, 0x29, 1 + expected.len() / 16));
        assert_eq!(wqe[16..], *expected);
        assert!(matches!(done, Completion::Send(_)), "{done:?}");
    };
    for _ in 0..200 {
        let lengths = (0..1 + random.below(4)).map(|_| 14 + random.below(200) as usize);
        let lengths: Vec<usize> = lengths.collect();
        let bytes: Vec<Vec<u8>> = lengths.iter().map(|length| random.bytes(*length)).collect();
        let mut expected = vec![0; 16];
        for packet in &bytes {
            expected.extend((0x8000_0000 | packet.len() as u32).to_be_bytes());
            expected.extend(packet);
            expected.resize(expected.len().next_multiple_of(16), 0);
        }
        let inline: Vec<_> = bytes.iter().map(|packet| Inline(packet)).collect();
        let mixed: Vec<_> = bytes.iter().map(|packet| MixedPacket::Inline(packet)).collect();
        let halves = bytes.iter().map(|packet| <[&[u8]; 2]>::from(packet.split_at(9)));
        let halves: Vec<_> = halves.collect();
        let gathered: Vec<_> = halves.iter().map(|pieces| InlineGather(pieces)).collect();
        post(&expected, ring.post(inline));
        post(&expected, ring.post(mixed));
        post(&expected, ring.post(gathered));
        let known: [u8; 60] = random.bytes(60).try_into().unwrap();
        let segment = [&0x8000_003c_u32.to_be_bytes()[..], &known].concat();
        post(&[vec![0; 16], segment.repeat(14)].concat(), ring.post([InlineBytes(known); 14]));
    }
}
