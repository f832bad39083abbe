//! SENDs of unreliable datagrams, whose WQEs have two blocks, and of unreliable connections.

use std::mem::zeroed;
use std::ptr::NonNull;

use mlx5::ib::{HasQueues, Transport, Uc, Ud};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::attr::{UdInitAttributes, UnreliableRtsAttributes};
use mlx5::verbs::{AddressHandle, CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rts};
use mlx5::wqe::{InlineBytes, SendMessage, Sge, UdAddress};
use mlx5_sys::verbs::*;

use super::inline::message;
use super::prepared::{INLINE, MOST, POINTER, Sends};
use crate::MODE;
use crate::side::{LENGTH, LIST, Row, Side, forget, watch};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};

pub(super) const QKEY: u32 = 0x1111_1111;

/// A queue pair, of a device of its own.
pub(super) struct Line<T: Transport> {
    pub(super) qp: QueuePair<T, Rts>,
    pub(super) cq: CompletionQueue,
    memory: MemoryRegion,
    rig: Rig,
}

fn shape<T: HasQueues>(rig: &Rig, cq: &CompletionQueue) -> QueuePairBuilder<T> {
    QueuePairBuilder::new(&rig.pd, cq).max_send_wr(128).max_inline_data(64)
}

impl<T: Transport> Line<T> {
    fn new(make: impl FnOnce(&Rig, &CompletionQueue) -> QueuePair<T, Rts>) -> Self {
        let rig = Rig::new(MODE);
        let cq = rig.cq(511);
        let (qp, memory) = (make(&rig, &cq), rig.memory(4096));
        watch(qp.as_raw(), cq.as_raw());
        Self { qp, cq, memory, rig }
    }

    fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), LENGTH, self.memory.lkey())
    }
}

impl Line<Ud> {
    pub(super) fn datagrams() -> Self {
        Self::new(|rig, cq| {
            let qp = shape::<Ud>(rig, cq).build().expect("a queue pair");
            let qp = qp.init(&UdInitAttributes::new(1, QKEY)).expect("INIT").rtr().expect("RTR");
            qp.rts(&UnreliableRtsAttributes::default()).expect("RTS")
        })
    }

    /// The way to itself.
    pub(super) fn handle(&self) -> AddressHandle {
        let way = self.rig.local.address(&self.rig.local.connection_data(&self.qp));
        AddressHandle::new(&self.rig.pd, &way).expect("an address handle")
    }
}

impl Line<Uc> {
    /// Connected to itself.
    fn connection() -> Self {
        Self::new(|rig, cq| {
            let qp = rig.init(shape::<Uc>(rig, cq));
            rig.looped(qp)
        })
    }
}

/// This crate, raw layer: datagrams.
pub struct Raw {
    send: SendQueue<Ud>,
    completions: CqReader,
    address: UdAddress,
    payload: [u8; MOST],
    sge: Sge,
    _line: Line<Ud>,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::datagrams();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            completions,
            address: UdAddress::new(&line.handle(), line.qp.number(), QKEY),
            payload: [0; MOST],
            sge: line.sge(),
            _line: line,
        }
    }

    #[inline(never)]
    fn inline<const BYTES: usize>(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let bytes = InlineBytes(message::<BYTES>(&self.payload, id));
            let send = SendMessage::new(bytes).signaled().to(&self.address);
            // SAFETY: the payload is copied into the WQE.
            unsafe { self.send.post(id, send) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let send = SendMessage::new(sge).signaled().to(&self.address);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, send) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for _ in 0..calls {
            forget(&mut self.send);
            let mut batch = self.send.batch();
            for id in 0..LIST as u64 {
                let send = SendMessage::new(sge).signaled().to(&self.address);
                batch.append(id, send).expect("appended");
            }
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { batch.ring() };
        }
        calls * LIST
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::UdInline => Some(self.inline::<8>(calls)),
            Row::UdInline24 => Some(self.inline::<24>(calls)),
            Row::UdPointer => Some(self.pointer(calls)),
            Row::UdList => Some(self.list(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}

/// This crate, raw layer: a connection.
pub struct Connection {
    send: SendQueue<Uc>,
    completions: CqReader,
    sge: Sge,
    _line: Line<Uc>,
}

impl Connection {
    pub fn new() -> Self {
        let line = Line::connection();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        Self { send: send.expect("a QP of its own"), completions, sge: line.sge(), _line: line }
    }

    #[inline(never)]
    fn pointer(&mut self, calls: usize) -> usize {
        let sge = self.sge;
        for id in 0..calls as u64 {
            forget(&mut self.send);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, SendMessage::new(sge).signaled()) }.expect("posted");
        }
        calls
    }
}

impl Side for Connection {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::UcPointer => Some(self.pointer(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}

/// Successes that `ibv_poll_cq` takes.
pub(super) fn polled(cq: &CompletionQueue, calls: usize) -> usize {
    // SAFETY: the structure consists of integers, so zeros are valid.
    let mut wc: ibv_wc = unsafe { zeroed() };
    let mut success = || {
        // SAFETY: there is space for one completion, and no other code polls the CQ.
        let taken = unsafe { ibv_poll_cq(cq.as_raw().as_ptr(), 1, &mut wc) };
        taken == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS
    };
    (0..calls).take_while(|_| success()).count()
}

/// `ibv_post_send`.
pub struct Classic<T: Transport> {
    line: Line<T>,
    /// Those that are inline, by pointer, and lists.
    rows: (&'static [Row], Row, Option<Row>),
    sends: Sends,
    _handle: Option<AddressHandle>,
}

impl Classic<Ud> {
    pub fn datagrams() -> Self {
        let line = Line::datagrams();
        let handle = line.handle();
        let rows = (&[Row::UdInline, Row::UdInline24][..], Row::UdPointer, Some(Row::UdList));
        let mut made = Self::with(line, rows);
        let number = made.line.qp.number();
        for request in made.sends.each() {
            request.wr.ud.ah = handle.as_raw().as_ptr();
            request.wr.ud.remote_qpn = number;
            request.wr.ud.remote_qkey = QKEY;
        }
        made._handle = Some(handle);
        made
    }
}

impl Classic<Uc> {
    pub fn connection() -> Self {
        Self::with(Line::connection(), (&[], Row::UcPointer, None))
    }
}

impl<T: Transport> Classic<T> {
    fn with(line: Line<T>, rows: (&'static [Row], Row, Option<Row>)) -> Self {
        let sends = Sends::new(line.sge(), ibv_wr_opcode::IBV_WR_SEND);
        Self { line, rows, sends, _handle: None }
    }

    #[inline(never)]
    fn post(&mut self, which: usize, calls: usize) -> usize {
        // SAFETY: QP, address, requests and memory live as long as `self`.
        unsafe { self.sends.post(self.line.qp.as_raw().as_ptr(), which, calls) }
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        // SAFETY: QP, address, requests and memory live as long as `self`.
        unsafe { self.sends.list(self.line.qp.as_raw().as_ptr(), calls) }
    }
}

impl<T: Transport> Side for Classic<T> {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let (inline, pointer, list) = self.rows;
        match row {
            _ if row == pointer => Some(self.post(POINTER, calls)),
            _ if inline.contains(&row) => {
                self.sends.set_inline(row.inline_bytes().expect("an inline row"));
                Some(self.post(INLINE, calls))
            }
            _ if Some(row) == list => Some(self.list(calls)),
            Row::Poll | Row::Empty if calls != 0 => Some(polled(&self.line.cq, calls)),
            _ => None,
        }
    }
}

/// `ibv_wr_*`.
pub struct Extended {
    kind: u32,
    ex: NonNull<ibv_qp_ex>,
    _qp: ExtendedQp,
    number: u32,
    sge: ibv_sge,
    payload: [u64; MOST / 8],
    cq: CompletionQueue,
    handle: AddressHandle,
    _line: Line<Ud>,
}

impl Extended {
    pub fn datagrams() -> Self {
        Self::with(ibv_qp_type::IBV_QPT_UD)
    }

    pub fn connection() -> Self {
        Self::with(ibv_qp_type::IBV_QPT_UC)
    }

    fn with(kind: u32) -> Self {
        let line = Line::datagrams();
        let cq = line.rig.cq(511);
        let operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0.into();
        let qp = ExtendedQp::looped(&line.rig, &cq, &Shape::new(kind, 128, operations));
        watch(qp.qp(), cq.as_raw());
        let sge = line.sge();
        Self {
            kind,
            ex: qp.ex(),
            // SAFETY: the QP is alive.
            number: unsafe { qp.qp().as_ref() }.qp_num,
            _qp: qp,
            sge: ibv_sge { addr: sge.addr, length: LENGTH, lkey: sge.lkey },
            payload: [0; MOST / 8],
            cq,
            handle: line.handle(),
            _line: line,
        }
    }

    /// # Safety
    /// Between `ibv_wr_start` and `ibv_wr_complete`.
    #[inline(always)]
    unsafe fn send(&mut self, id: u64, datagram: bool) {
        // SAFETY: the caller upholds the same conditions.
        unsafe {
            let ex = self.ex.as_ptr();
            (*ex).wr_id = id;
            (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
            ibv_wr_send(ex);
            if datagram {
                ibv_wr_set_ud_addr(ex, self.handle.as_raw().as_ptr(), self.number, QKEY);
            }
        }
    }

    #[inline(never)]
    fn inline(&mut self, bytes: usize, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            self.payload[0] = id;
            forget(self);
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                self.send(id, true);
                ibv_wr_set_inline_data(ex, (&raw mut self.payload).cast(), bytes);
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls
    }

    #[inline(never)]
    fn pointer<const DATAGRAM: bool>(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                self.send(id, DATAGRAM);
                ibv_wr_set_sge(ex, self.sge.lkey, self.sge.addr, self.sge.length);
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for _ in 0..calls {
            // SAFETY: QP and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                for id in 0..LIST as u64 {
                    self.send(id, true);
                    ibv_wr_set_sge(ex, self.sge.lkey, self.sge.addr, self.sge.length);
                }
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls * LIST
    }
}

impl Side for Extended {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        let datagrams = self.kind == ibv_qp_type::IBV_QPT_UD;
        match row {
            Row::UdInline if datagrams => Some(self.inline(8, calls)),
            Row::UdInline24 if datagrams => Some(self.inline(24, calls)),
            Row::UdPointer if datagrams => Some(self.pointer::<true>(calls)),
            Row::UdList if datagrams => Some(self.list(calls)),
            Row::UcPointer if !datagrams => Some(self.pointer::<false>(calls)),
            Row::Poll | Row::Empty if calls != 0 => Some(polled(&self.cq, calls)),
            _ => None,
        }
    }
}
