//! Limits of the rate at which raw packet queue pairs send, on the model in virtual time: a process of its
//! own, since that time is one for all devices.

use std::sync::LazyLock;

use mlx5::Error;
use mlx5::ib::RawPacket;
use mlx5::ring::{CqReader, PacketEvent, PacketRq, ReceiveConfig, SendConfig, SendQueue};
use mlx5::verbs::{Errno, Flow, QueuePair, QueuePairBuilder, RateLimit, Rts};
use mlx5::wqe::{EthMultiPacket, EthSend};
use rig::Rig;

static VIRTUAL: LazyLock<()> = LazyLock::new(|| {
    // SAFETY: every test comes through here before it calls anything that reads the environment.
    unsafe {
        std::env::set_var("MLX5_MODEL", "always");
        std::env::set_var("MLX5_MODEL_LINK", "roce");
        std::env::set_var("MLX5_MODEL_TIME", "virtual");
    }
});

fn rig() -> Rig {
    LazyLock::force(&VIRTUAL);
    Rig::new(mlx5_model::Mode::Trapped)
}

fn pair(rig: &Rig, cq: &mlx5::verbs::CompletionQueue) -> QueuePair<RawPacket, Rts> {
    let builder = QueuePairBuilder::<RawPacket>::new(&rig.pd, cq).max_send_wr(64);
    builder.build().unwrap().init(1).unwrap().rtr().unwrap().rts().unwrap()
}

/// Bytes of a packet: 10 us at 1 Gbit/s.
const LENGTH: usize = 1250;
const PACKETS: usize = 8;

/// A group that no other process uses, as a port gives its own packets back.
fn group(number: u8) -> [u8; 6] {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    [3, a, b, c, d, number]
}

/// Sends packets under a limit, as requests of their own or in one, and returns the nanoseconds between
/// the first and the last that arrives.
fn spread(number: u8, limit: RateLimit, several: Several) -> u64 {
    let rig = rig();
    let (send_cq, receive_cq) = (rig.cq(128), rig.cq(128));
    let sender = pair(&rig, &send_cq);
    let receiver = pair(&rig, &receive_cq);
    let mut packets = PacketRq::new(&receiver, &receive_cq, ReceiveConfig::default()).unwrap();
    let _flow = Flow::builder(1).destination(group(number)).build(&receiver).unwrap();
    let mut memory = rig.memory(1 << 15);
    let head = [&group(number)[..], &[2, 0, 0, 0, 0, 8], &[0x88, 0xb5]].concat();
    memory.write(0, &head);
    sender.set_rate_limit(limit).unwrap();
    let mut reader = CqReader::new(&send_cq).unwrap();
    let mut sends = SendQueue::new(&sender, &mut reader, SendConfig::default()).unwrap();
    let packet = memory.sge(0, LENGTH).unwrap();
    // SAFETY: the memory lives to the end, and nothing writes it.
    unsafe {
        for at in 0..PACKETS {
            packets.post(at as u64, memory.sge(2048 + at * 1280, 1280).unwrap()).unwrap();
        }
        match several {
            Several::Requests => {
                let mut batch = sends.batch();
                for at in 0..PACKETS {
                    let last = at + 1 == PACKETS;
                    batch.append(1, EthSend::new(packet).signaled_if(last)).unwrap();
                }
                batch.ring();
            }
            Several::Packets => {
                sends.post(1, EthMultiPacket::new([packet; PACKETS]).signaled()).unwrap();
            }
        }
    }
    while !sends.is_idle() {
        let _done = reader.poll(&mut sends).unwrap();
    }
    let mut times = Vec::new();
    while times.len() < PACKETS {
        match packets.poll().unwrap() {
            Some(PacketEvent::Packet(done)) => times.push(done.info().timestamp.raw()),
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    let kilohertz = rig.context.verbs_capabilities().unwrap().get("hca_core_clock").unwrap();
    (times[PACKETS - 1] - times[0]) * 1_000_000 / kilohertz
}

/// How packets are posted.
#[derive(Clone, Copy)]
enum Several {
    /// Each by a request.
    Requests,
    /// All by one.
    Packets,
}

#[test]
fn packets_leave_at_the_rate_of_their_queue_pair() {
    for (number, several) in [(1, Several::Requests), (2, Several::Packets)] {
        // Seven times 10 us, to the tick of the device's clock.
        let spread = spread(number, RateLimit::new(1_000_000), several);
        assert!((69_900..=70_100).contains(&spread), "{spread} ns");
    }
    let at_once = spread(3, RateLimit::NONE, Several::Requests);
    assert!(at_once < 10_000, "{at_once} ns");
    // Four packets leave at once, the others at the rate.
    let burst = RateLimit::new(1_000_000).max_burst(3 * LENGTH as u32).typical_packet(1250);
    let spread = spread(4, burst, Several::Requests);
    assert!((39_000..=40_100).contains(&spread), "{spread} ns");
}

#[test]
fn limits_beyond_the_device_are_refused_and_one_can_be_removed() {
    let rig = rig();
    let cq = rig.cq(64);
    let qp = pair(&rig, &cq);
    let range = rig.context.rate_range().unwrap();
    assert!(range.has::<RawPacket>() && !range.has::<mlx5::ib::Rc>());
    assert_eq!((range.min_kbps, range.max_kbps), (1, 100_000_000));
    let refused = |limit: RateLimit| match qp.set_rate_limit(limit).unwrap_err() {
        error @ Error::Attribute { .. } => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(RateLimit::new(100_000_001)).contains("1 to 100000000 kbit/s"));
    assert!(refused(RateLimit::NONE.max_burst(100)).contains("belong to a rate"));
    for limit in [RateLimit::new(1), RateLimit::new(5_000), RateLimit::NONE, RateLimit::NONE] {
        qp.set_rate_limit(limit).unwrap();
    }
}

#[test]
fn queue_pairs_of_one_limit_share_an_entry_and_the_table_can_be_full() {
    let rig = rig();
    let cq = rig.cq(64);
    // One entry stands for no limit.
    let pairs: Vec<_> = (0..127).map(|_| pair(&rig, &cq)).collect();
    for (at, qp) in pairs.iter().enumerate() {
        qp.set_rate_limit(RateLimit::new(1_000 + at as u32)).unwrap();
    }
    let more = pair(&rig, &cq);
    more.set_rate_limit(RateLimit::new(1_005)).unwrap();
    let full = more.set_rate_limit(RateLimit::new(9_000)).unwrap_err();
    assert_eq!(full.errno(), Some(Errno(libc::ENOSPC)), "{full}");
    drop(pairs);
    more.set_rate_limit(RateLimit::new(9_000)).unwrap();
}
