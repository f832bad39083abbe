//! Ethernet packets: sent inside their WQE, written ahead, and received by the layer that lends them.
//!
//! The link is a process's, so packets are counted in one of their own. In others these sides have no
//! row.

use mlx5::cqe::Completion;
use mlx5::ib::RawPacket;
use mlx5::packet::{PacketPort, PacketReceiver};
use mlx5::ring::{CqReader, Prepared, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::{EthSend, Field, InlineBytes, Sge};
use mlx5_sys::verbs::*;

use super::prepared::{INLINE, Sends};
use crate::MODE;
use crate::side::{LIST, Row, Side, forget, watch};
use rig::Rig;

/// Bytes of a packet: the shortest that Ethernet carries, without its checksum.
const LENGTH: usize = 60;
/// A price in an order.
const PRICE: Field<50, 8> = Field;

/// Returns whether this process has a port of Ethernet.
pub fn are_here() -> bool {
    std::env::var("MLX5_MODEL_LINK").as_deref() == Ok(LINK)
}

/// The link of the process that counts packets.
pub const LINK: &str = "roce";

/// A side of another process.
struct Elsewhere;

impl Side for Elsewhere {
    fn run(&mut self, _: Row, _: usize) -> Option<usize> {
        None
    }
}

/// Makes a side where it has its port.
pub fn here<S: Side + 'static>(make: impl FnOnce() -> S) -> Box<dyn Side> {
    if are_here() { Box::new(make()) } else { Box::new(Elsewhere) }
}

/// A packet to a group, as a port gives its own packets back.
fn packet() -> [u8; LENGTH] {
    let mut packet = [0; LENGTH];
    packet[..14].copy_from_slice(&[3, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    packet
}

/// A queue pair that sends packets.
struct Line {
    qp: QueuePair<RawPacket, Rts>,
    cq: CompletionQueue,
    _rig: Rig,
}

impl Line {
    fn new() -> Self {
        let rig = Rig::new(MODE);
        let cq = rig.cq(511);
        let builder = QueuePairBuilder::<RawPacket>::new(&rig.pd, &cq);
        let qp = builder.max_send_wr(128).max_recv_wr(0).max_inline_data(96).build();
        let qp = qp.expect("a queue pair").init(1).expect("INIT").rtr().expect("RTR");
        let qp = qp.rts().expect("RTS");
        watch(qp.as_raw(), cq.as_raw());
        Self { qp, cq, _rig: rig }
    }

    fn sends(&self) -> (CqReader, SendQueue<RawPacket>) {
        let mut completions = CqReader::new(&self.cq).expect("a CQ of its own");
        let send = SendQueue::new(&self.qp, &mut completions, SendConfig::default());
        (completions, send.expect("a QP of its own"))
    }
}

/// libmlx5.
pub struct Classic {
    line: Line,
    sends: Sends,
}

impl Classic {
    pub fn new() -> Self {
        let line = Line::new();
        let mut sends = Sends::new(Sge::new(0, 0, 0), ibv_wr_opcode::IBV_WR_SEND);
        sends.set_inline(LENGTH);
        Self { line, sends }
    }

    #[inline(never)]
    fn send(&mut self, calls: usize) -> usize {
        // SAFETY: the queue pair lives, and the payload lies in the request's own memory.
        unsafe { self.sends.post(self.line.qp.as_raw().as_ptr(), INLINE, calls) }
    }

    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            // SAFETY: zeros are a value of the structure. The CQ lives.
            let count = unsafe {
                let mut done: ibv_wc = std::mem::zeroed();
                ibv_poll_cq(self.line.cq.as_raw().as_ptr(), 1, &mut done)
            };
            found += usize::try_from(count).expect("a poll that succeeds");
        }
        found
    }
}

impl Side for Classic {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PacketSend => Some(self.send(calls)),
            Row::Poll | Row::Empty if calls != 0 => Some(self.poll(calls)),
            _ => None,
        }
    }
}

/// This crate, raw layer.
pub struct Raw {
    send: SendQueue<RawPacket>,
    completions: CqReader,
    payload: [u8; LENGTH],
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::new();
        let (completions, send) = line.sends();
        Self { send, completions, payload: packet(), _line: line }
    }

    #[inline(never)]
    fn send(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let send = EthSend::new(InlineBytes(self.payload)).signaled();
            // SAFETY: the payload is copied into the WQE.
            unsafe { self.send.post(id, send) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PacketSend => Some(self.send(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}

/// Packets that were written ahead.
pub struct Ahead {
    completions: CqReader,
    prepared: Prepared<EthSend<'static, InlineBytes<LENGTH>>, RawPacket>,
    _line: Line,
}

impl Ahead {
    pub fn new() -> Self {
        let line = Line::new();
        let (completions, send) = line.sends();
        Self { completions, prepared: Prepared::new(send), _line: line }
    }

    /// Fires all that is prepared, and changes eight bytes of each.
    #[inline(never)]
    fn fire(&mut self) -> usize {
        let mut fired = 0_usize;
        while self.prepared.fire(PRICE.with(fired.to_ne_bytes())).is_ok() {
            fired += 1;
            forget(&mut self.prepared);
        }
        fired
    }
}

impl Side for Ahead {
    fn prepare(&mut self, _: Row, calls: usize) {
        for id in 0..calls as u64 {
            let send = EthSend::new(InlineBytes(packet())).signaled();
            self.prepared.prepare(id, send).expect("prepared");
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let sent = |found| matches!(found, Ok(Some(Completion::Send(_))));
        match row {
            Row::PacketFire => Some(self.fire()),
            Row::Poll | Row::Empty if calls != 0 => {
                let polls = (0..calls).map(|_| self.completions.poll(&mut self.prepared));
                Some(polls.filter(|found| sent(*found)).count())
            }
            _ => None,
        }
    }
}

/// This crate's layer that lends packets.
pub struct Lent {
    receiver: PacketReceiver,
    sender: Raw,
    sum: u64,
}

impl Lent {
    pub fn new() -> Self {
        let sender = Raw::new();
        let port = PacketPort::new(sender._line.qp.context(), 1).expect("a port of Ethernet");
        let receiver = port.receiver().slots(256).slot_bytes(256).build();
        let mut receiver = receiver.expect("a receiver");
        let rule = receiver.rule().destination(packet()[..6].try_into().expect("six bytes"));
        receiver.steer(rule).expect("a rule");
        Self { receiver, sender, sum: 0 }
    }

    /// Takes packets in batches, and looks at each: its slot was posted by the next call.
    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(&mut self.receiver);
            for packet in self.receiver.poll(LIST) {
                let packet = packet.expect("a packet");
                self.sum += u64::from(packet[14]) + packet.len() as u64;
                found += 1;
            }
        }
        found
    }
}

impl Side for Lent {
    fn prepare(&mut self, _: Row, packets: usize) {
        for at in 0..packets {
            self.sender.run(Row::PacketSend, 1);
            if at % LIST == LIST - 1 || at == packets - 1 {
                mlx5_model::run();
                while self.sender.run(Row::Poll, 1) != Some(0) {}
            }
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PacketPoll | Row::PacketEmpty => Some(self.poll(calls)),
            Row::Empty if calls != 0 => Some(self.poll(calls)),
            _ => None,
        }
    }
}
