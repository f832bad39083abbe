//! SENDs and WRITEs on dynamic connections, whose WQEs have two blocks.

use std::ptr::NonNull;

use mlx5::cqe::Completion;
use mlx5::ib::{Dci, Dct};
use mlx5::ring::{CqReader, ReceiveConfig, SendConfig, SendQueue, Srq};
use mlx5::verbs::attr::{AddressVector, DctRtrAttributes, InitAttributes, Mtu, RtsAttributes};
use mlx5::verbs::{
    AddressHandle, CompletionQueue, MemoryRegion, QueuePair, QueuePairBuilder, Rtr, Rts,
    SharedReceiveQueue,
};
use mlx5::wqe::{DcAddress, RdmaWrite, Remote, SendMessage, Sge};
use mlx5_sys::dv;
use mlx5_sys::verbs::*;

use crate::MODE;
use crate::side::{LENGTH, Row, Side, forget, watch};
use rig::Rig;
use rig::extended::{ExtendedQp, Shape};

const KEY: u64 = 0x1122_3344_5566_7788;
/// SENDs that a target takes before it is looked after.
const RECEIVES: u32 = 256;

/// A target with receives for all that is sent, on a device of its own.
struct Target {
    qp: QueuePair<Dct, Rtr>,
    way: AddressVector,
    memory: MemoryRegion,
    rig: Rig,
    shared: Srq,
    completions: CqReader,
}

impl Target {
    fn new() -> Self {
        let rig = Rig::new(MODE);
        let (cq, memory) = (rig.cq(2 * RECEIVES), rig.memory(4096));
        let srq = SharedReceiveQueue::builder(&rig.pd).max_wr(RECEIVES).build().expect("an SRQ");
        let qp = QueuePair::dc_target(&rig.pd, &cq, &srq, KEY).build().expect("a target");
        let qp = qp.init(&rig.local.init()).expect("INIT");
        let way = rig.local.address(&rig.local.connection_data(&qp));
        let qp = qp.rtr(&DctRtrAttributes::new(way)).expect("RTR");
        let mut completions = CqReader::new(&cq).expect("a CQ of its own");
        let shared = Srq::new(&srq, &mut completions, ReceiveConfig::default());
        let mut shared = shared.expect("an SRQ of its own");
        shared.attach(&qp, &mut completions).expect("attached");
        let mut target = Self { qp, way, memory, rig, shared, completions };
        for id in 0..RECEIVES.into() {
            target.receive(id);
        }
        target
    }

    fn receive(&mut self, id: u64) {
        let into = Sge::new(self.memory.address() + 2048, LENGTH, self.memory.lkey());
        // SAFETY: the memory lives as long as the queue, and the program does not access it.
        unsafe { self.shared.post(id, into) }.expect("posted");
    }

    /// Posts a receive for every one that a SEND took.
    fn look_after(&mut self) {
        while let Some(taken) = self.completions.poll(&mut self.shared).expect("no overrun") {
            match taken {
                Completion::Receive(done) => self.receive(done.id),
                other => panic!("{other:?}"),
            }
        }
    }

    fn handle(&self) -> AddressHandle {
        AddressHandle::new(&self.rig.pd, &self.way).expect("an address handle")
    }

    fn sge(&self) -> Sge {
        Sge::new(self.memory.address(), LENGTH, self.memory.lkey())
    }

    fn remote(&self) -> Remote {
        Remote::new(self.memory.remote_address() + 1024, self.memory.rkey())
    }
}

/// This crate, raw layer.
pub struct Raw {
    send: SendQueue<Dci>,
    completions: CqReader,
    address: DcAddress,
    sge: Sge,
    remote: Remote,
    _qp: QueuePair<Dci, Rts>,
    target: Target,
}

impl Raw {
    pub fn new() -> Self {
        let target = Target::new();
        let cq = target.rig.cq(511);
        let qp = QueuePairBuilder::<Dci>::new(&target.rig.pd, &cq).max_send_wr(128);
        let qp = qp.max_inline_data(64).build().expect("an initiator");
        let qp = qp.init(&InitAttributes::new(1)).expect("INIT");
        let qp = qp.rtr(Mtu::Mtu1024).expect("RTR").rts(&RtsAttributes::default()).expect("RTS");
        watch(qp.as_raw(), cq.as_raw());
        let mut completions = CqReader::new(&cq).expect("a CQ of its own");
        let send = SendQueue::new(&qp, &mut completions, SendConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            completions,
            address: DcAddress::new(&target.handle(), target.qp.number(), KEY),
            sge: target.sge(),
            remote: target.remote(),
            _qp: qp,
            target,
        }
    }

    #[inline(never)]
    fn send(&mut self, calls: usize) -> usize {
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
    fn write(&mut self, calls: usize) -> usize {
        let (sge, remote) = (self.sge, self.remote);
        for id in 0..calls as u64 {
            forget(&mut self.send);
            let write = RdmaWrite::new(sge, remote).signaled().to(&self.address);
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, write) }.expect("posted");
        }
        calls
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::DcSend => Some(self.send(calls)),
            Row::DcWrite => Some(self.write(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                self.target.look_after();
                let taken = (0..calls).map_while(|_| self.completions.poll(&mut self.send).ok()?);
                Some(taken.count())
            }
            _ => None,
        }
    }
}

/// `ibv_wr_*` and `mlx5dv_wr_set_dc_addr`: libmlx5 has no other way.
pub struct Extended {
    ex: NonNull<ibv_qp_ex>,
    direct: NonNull<dv::mlx5dv_qp_ex>,
    _qp: ExtendedQp,
    cq: CompletionQueue,
    handle: AddressHandle,
    number: u32,
    sge: ibv_sge,
    remote: Remote,
    target: Target,
}

impl Extended {
    pub fn new() -> Self {
        let target = Target::new();
        let cq = target.rig.cq(511);
        let operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE;
        let shape = Shape::new(ibv_qp_type::IBV_QPT_DRIVER, 128, operations.0.into());
        let qp = ExtendedQp::looped(&target.rig, &cq, &shape);
        watch(qp.qp(), cq.as_raw());
        let sge = target.sge();
        // SAFETY: the QP is alive, and libmlx5's.
        let direct = unsafe { dv::mlx5dv_qp_ex_from_ibv_qp_ex(qp.ex().as_ptr()) };
        Self {
            ex: qp.ex(),
            direct: NonNull::new(direct).expect("a QP of libmlx5"),
            _qp: qp,
            cq,
            handle: target.handle(),
            number: target.qp.number(),
            sge: ibv_sge { addr: sge.addr, length: LENGTH, lkey: sge.lkey },
            remote: target.remote(),
            target,
        }
    }

    /// # Safety
    /// Between the operation and `ibv_wr_complete`.
    #[inline(always)]
    unsafe fn finish(&mut self) {
        let handle = self.handle.as_raw().as_ptr();
        // SAFETY: QP, address and memory live as long as `self`.
        unsafe {
            dv::mlx5dv_wr_set_dc_addr(self.direct.as_ptr(), handle, self.number, KEY);
            let ex = self.ex.as_ptr();
            ibv_wr_set_sge(ex, self.sge.lkey, self.sge.addr, self.sge.length);
            assert_eq!(ibv_wr_complete(ex), 0);
        }
    }

    #[inline(never)]
    fn send(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            // SAFETY: QP, address and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                (*ex).wr_id = id;
                (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                ibv_wr_send(ex);
                self.finish();
            }
        }
        calls
    }

    #[inline(never)]
    fn write(&mut self, calls: usize) -> usize {
        let ex = self.ex.as_ptr();
        for id in 0..calls as u64 {
            // SAFETY: QP, address and memory live as long as `self`.
            unsafe {
                ibv_wr_start(ex);
                (*ex).wr_id = id;
                (*ex).wr_flags = ibv_send_flags::IBV_SEND_SIGNALED.0;
                ibv_wr_rdma_write(ex, self.remote.rkey, self.remote.addr);
                self.finish();
            }
        }
        calls
    }
}

impl Side for Extended {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        match row {
            Row::DcSend => Some(self.send(calls)),
            Row::DcWrite => Some(self.write(calls)),
            Row::Poll | Row::Empty if calls != 0 => {
                self.target.look_after();
                Some(super::datagram::polled(&self.cq, calls))
            }
            _ => None,
        }
    }
}
