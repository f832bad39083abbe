//! Packets between two processes.

use std::time::Instant;

use mlx5::ring::PacketEvent;
use mlx5::wqe::{EthSend, EthTso, Inline};

use crate::{Side, rig, tcp_header, udp};
use rig::PATIENCE;
use rig::process::{self, Peer};

/// In the peer's environment: the addresses of parent and child.
const PARENT: &str = "MLX5_ETHERNET_PARENT";
const ROUNDS: u64 = 40;

fn parse(text: &str) -> [u8; 6] {
    let bytes: Vec<u8> = text.split(':').map(|part| part.parse().unwrap()).collect();
    bytes.try_into().unwrap()
}

impl Side {
    /// The next frame's id and length, when it comes.
    fn wait(&mut self) -> (u64, usize) {
        let start = Instant::now();
        loop {
            match self.frames.poll().unwrap() {
                Some(PacketEvent::Packet(done)) => {
                    assert!(done.info().checksums_ok());
                    return (done.id, done.byte_len as usize);
                }
                None => assert!(start.elapsed() < PATIENCE, "nothing comes"),
                other => panic!("{other:?}"),
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn provide(&mut self, receives: u64) {
        for id in 0..receives {
            // SAFETY: the memory lives as long as the side, and is read when frames are there.
            unsafe { self.frames.post(id, self.sge(id as usize * 2000, 2000)).unwrap() };
        }
    }
}

#[test]
fn frames_reach_another_process_and_come_back() {
    if process::role().is_some() {
        return peer();
    }
    let rig = rig();
    let own = crate::address(40);
    let mut side = Side::new(&rig);
    let _flow = side.flow(own);
    side.provide(8);
    let text: Vec<String> = own.iter().map(u8::to_string).collect();
    // Everything here is ready before the other is there at all.
    let mut command = process::child(frames_reach_another_process_and_come_back, "peer");
    let other = Peer::start(command.env(PARENT, text.join(":")));
    for round in 0..ROUNDS {
        let (id, length) = side.wait();
        let frame = side.memory.to_vec(id as usize * 2000, length);
        assert_eq!(frame[42..], [round as u8; 20]);
        let mut back: [u8; 6] = [0; 6];
        back.copy_from_slice(&frame[6..12]);
        // SAFETY: the memory lives as long as the side, and is read when frames are there.
        unsafe {
            side.frames.post(id, side.sge(id as usize * 2000, 2000)).unwrap();
            // The peer's own address is what its frames come from, but for the last byte.
            back[5] = 41;
            let echo = udp(back, 9, &[round as u8; 20]);
            side.send.post(round, EthSend::new(Inline(&echo)).checksums().signaled()).unwrap();
        }
        side.sent_well(round);
    }
    // A large send in pieces.
    let mut total = 0;
    while total < 4000 {
        let (id, length) = side.wait();
        let frame = side.memory.to_vec(id as usize * 2000, length);
        assert!(frame[54..].iter().enumerate().all(|(at, byte)| *byte == (total + at) as u8));
        total += length - 54;
    }
    other.end();
}

fn peer() {
    let to = parse(&std::env::var(PARENT).expect("started by the test above"));
    let rig = rig();
    let mut side = Side::new(&rig);
    let _flow = side.flow(crate::address(41));
    side.provide(8);
    for round in 0..ROUNDS {
        let frame = udp(to, 9, &[round as u8; 20]);
        // SAFETY: the memory lives as long as the side, and is read when frames are there.
        unsafe {
            side.send.post(round, EthSend::new(Inline(&frame)).checksums().signaled()).unwrap();
            side.sent_well(round);
            let (id, length) = side.wait();
            let frame = side.memory.to_vec(id as usize * 2000, length);
            assert_eq!(frame[42..], [round as u8; 20]);
            side.frames.post(id, side.sge(id as usize * 2000, 2000)).unwrap();
        }
    }
    let payload: Vec<u8> = (0..4000u32).map(|at| at as u8).collect();
    side.memory.write(40_000, &payload);
    let header = tcp_header(to);
    // SAFETY: the memory lives as long as the side, and is not written until the send completes.
    unsafe {
        let tso = EthTso::new(&header, 1000, side.sge(40_000, 4000)).checksums().signaled();
        side.send.post(1, tso).unwrap();
    }
    side.sent_well(1);
}
