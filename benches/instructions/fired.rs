//! Requests that were written ahead.

use mlx5::cqe::Completion;
use mlx5::ib::{Rc, Transport, Ud};
use mlx5::ring::{CqReader, Prepared, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, QueuePair, Rts};
use mlx5::wqe::{Field, InlineBytes, Operation, RdmaWrite, Remote, SendMessage, To, UdAddress};

use super::datagram::{Line as Datagrams, QKEY};
use crate::MODE;
use crate::side::{Row, Side, forget, shape, watch};
use rig::Rig;

/// Bytes of the longest payload.
pub const LONG: usize = 200;

/// A field of it, which is aligned as fields of orders are.
const PRICE: Field<96, 8> = Field;

/// A queue with requests that were written ahead.
struct Ahead<O: Operation, T: Transport> {
    completions: CqReader,
    prepared: Prepared<O, T>,
}

impl<O: Operation, T: Transport> Ahead<O, T> {
    fn poll(&mut self, calls: usize) -> usize {
        let sent = |found| matches!(found, Ok(Some(Completion::Send(_))));
        (0..calls).filter(|_| sent(self.completions.poll(&mut self.prepared))).count()
    }
}

/// Returns a payload that begins with `id`.
#[inline(always)]
fn beginning<const N: usize>(mut payload: [u8; N], id: usize) -> [u8; N] {
    payload[..8].copy_from_slice(&id.to_ne_bytes());
    payload
}

/// WRITEs of `N` bytes, on a reliable connection.
pub struct Raw<const N: usize> {
    ahead: Ahead<RdmaWrite<InlineBytes<N>>, Rc>,
    payload: [u8; N],
    remote: Remote,
    _line: Line,
}

/// A connected queue pair, like that of other sides but for its inline bytes.
struct Line {
    qp: QueuePair<Rc, Rts>,
    cq: CompletionQueue,
    memory: MemoryRegion,
    _peer: QueuePair<Rc, Rts>,
    _rig: Rig,
}

impl Line {
    fn new(inline: usize) -> Self {
        let rig = Rig::new(MODE);
        let (cq, peer_cq) = (rig.cq(511), rig.cq(511));
        let own = shape(&rig, &cq).max_inline_data(inline.max(64) as u32);
        let (qp, peer) = rig.connect(rig.init(own), rig.init(shape(&rig, &peer_cq)));
        watch(qp.as_raw(), cq.as_raw());
        let memory = rig.memory(4096);
        Self { qp, cq, memory, _peer: peer, _rig: rig }
    }
}

impl<const N: usize> Raw<N> {
    pub fn new() -> Self {
        let line = Line::new(N);
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let prepared = Prepared::new(send.expect("a QP of its own"));
        let remote = Remote::new(line.memory.remote_address() + 1024, line.memory.rkey());
        Self { ahead: Ahead { completions, prepared }, payload: [0; N], remote, _line: line }
    }

    /// Fires all that is prepared, with payloads of the program.
    #[inline(never)]
    fn fire(&mut self) -> usize {
        let mut fired = 0;
        while self.ahead.prepared.fire(beginning(self.payload, fired)).is_ok() {
            fired += 1;
            forget(&mut self.ahead.prepared);
        }
        fired
    }
}

impl Raw<LONG> {
    /// Fires all that is prepared, and changes eight bytes in the middle of each.
    #[inline(never)]
    fn fire_field(&mut self) -> usize {
        let mut fired = 0_usize;
        while self.ahead.prepared.fire(PRICE.with(fired.to_ne_bytes())).is_ok() {
            fired += 1;
            forget(&mut self.ahead.prepared);
        }
        fired
    }
}

/// The same type's two loops.
pub struct Long(Raw<LONG>);

impl Long {
    pub fn new() -> Self {
        Self(Raw::new())
    }
}

impl Side for Long {
    fn prepare(&mut self, _: Row, calls: usize) {
        self.0.prepare(Row::Prepared200, calls);
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PreparedField => Some(self.0.fire_field()),
            Row::Poll | Row::Empty if calls != 0 => self.0.run(row, calls),
            _ => None,
        }
    }
}

impl<const N: usize> Side for Raw<N> {
    fn prepare(&mut self, _: Row, calls: usize) {
        for id in 0..calls as u64 {
            let write = RdmaWrite::new(InlineBytes([0; N]), self.remote).signaled();
            self.ahead.prepared.prepare(id, write).expect("prepared");
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match (row, N) {
            // As many as were prepared.
            (Row::Prepared, 8)
            | (Row::Prepared64, 64)
            | (Row::Prepared128, 128)
            | (Row::Prepared200, LONG) => Some(self.fire()),
            // Not rows of this side: what follows one.
            (Row::Poll | Row::Empty, _) if calls != 0 => Some(self.ahead.poll(calls)),
            _ => None,
        }
    }
}

/// A datagram of 64 bytes, and its address.
type Message = To<SendMessage<InlineBytes<64>>, UdAddress>;

/// SENDs of unreliable datagrams.
pub struct Datagram64 {
    ahead: Ahead<Message, Ud>,
    payload: [u8; 64],
    address: UdAddress,
    _line: Datagrams<Ud>,
}

impl Datagram64 {
    pub fn new() -> Self {
        let line = Datagrams::datagrams();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        let prepared = Prepared::new(send.expect("a QP of its own"));
        let address = UdAddress::new(&line.handle(), line.qp.number(), QKEY);
        Self { ahead: Ahead { completions, prepared }, payload: [0; 64], address, _line: line }
    }

    /// Fires all that is prepared.
    #[inline(never)]
    fn fire(&mut self) -> usize {
        let mut fired = 0;
        while self.ahead.prepared.fire(beginning(self.payload, fired)).is_ok() {
            fired += 1;
            forget(&mut self.ahead.prepared);
        }
        fired
    }
}

impl Side for Datagram64 {
    fn prepare(&mut self, _: Row, calls: usize) {
        for id in 0..calls as u64 {
            let send = SendMessage::new(InlineBytes([0; 64])).signaled().to(self.address);
            self.ahead.prepared.prepare(id, send).expect("prepared");
        }
    }

    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::PreparedUd => Some(self.fire()),
            Row::Poll | Row::Empty if calls != 0 => Some(self.ahead.poll(calls)),
            _ => None,
        }
    }
}
