//! The operations of either process on a connection: by this crate, or by libmlx5.

use std::ops::Range;

use mlx5::connect::Connection;
use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ib::{Access, Rc};
use mlx5::verbs::{MemoryRegion, MemoryWindow, QueuePair, Rts, Type1, Type2};
use mlx5::wqe::{Inline, LocalInvalidate, RdmaRead, RdmaWrite, Remote, SendInvalidate};
use mlx5_sys::verbs::{
    bind_mw_t, ibv_bind_mw, ibv_mw_bind, ibv_mw_bind_info, ibv_send_flags, ibv_wc, ibv_wc_flags,
    ibv_wc_status as status, ibv_wr_opcode as wr,
};

use super::READ_AND_WRITE;
use crate::processes::{Library, connected, to};
use rig::Rig;
use rig::Side;

/// Offsets of either side's own memory: written, read, and received data.
const WRITTEN: usize = 0;
const FETCHED: usize = 8192;
pub const RECEIVED: usize = 16384;
/// The receive that every connection has posted.
const RECEIVE: u64 = 1 << 40;

/// How a request ended, in verbs' terms.
pub type Outcome = status::Type;

/// A receive: its status, the length of its message, and the key that this has invalidated.
pub type Received = (Outcome, u32, Option<u32>);

/// One end of a connection, posted to and polled by either library. Each call posts one request and
/// returns after its completion.
pub trait End: Sized {
    fn new(rig: &Rig, control: &mut Connection) -> Self;
    fn qp(&self) -> &QueuePair<Rc, Rts>;
    fn write(&mut self, to: Remote, bytes: &[u8]) -> Outcome;
    fn read(&mut self, from: Remote, length: usize) -> Result<Vec<u8>, Outcome>;
    /// SEND, of a few bytes.
    fn send_invalidate(&mut self, rkey: u32, bytes: &[u8]) -> Outcome;
    /// The receive that was posted at first.
    fn received(&mut self) -> Received;
    /// Returns the window's key.
    fn bind_1(
        &mut self,
        window: &mut MemoryWindow<Type1>,
        region: &MemoryRegion,
        part: Range<usize>,
        access: Access,
    ) -> u32;
    /// For the peer of this queue pair.
    fn bind_2(
        &mut self,
        window: &mut MemoryWindow<Type2>,
        tag: u8,
        region: &MemoryRegion,
        part: Range<usize>,
    ) -> u32;
    fn invalidate(&mut self, window: &mut MemoryWindow<Type2>) -> Outcome;
}

impl End for Side<Rc> {
    fn new(rig: &Rig, control: &mut Connection) -> Self {
        let (mut side, _) = connected(rig, control, &|_, _| {});
        let room = side.sge(RECEIVED, 64);
        // SAFETY: memory lives as long as the queues, and is read after the requests complete.
        unsafe { side.receive.post(RECEIVE, room).unwrap() };
        side
    }

    fn qp(&self) -> &QueuePair<Rc, Rts> {
        &self.qp
    }

    fn write(&mut self, to: Remote, bytes: &[u8]) -> Outcome {
        self.memory.write(WRITTEN, bytes);
        let write = RdmaWrite::new(self.sge(WRITTEN, bytes.len()), to).signaled();
        // SAFETY: memory lives as long as the queues, and is read after the requests complete.
        unsafe { self.send.post(1, write).unwrap() };
        outcome(self, 1)
    }

    fn read(&mut self, from: Remote, length: usize) -> Result<Vec<u8>, Outcome> {
        // SAFETY: memory lives as long as the queues, and is read after the requests complete.
        unsafe {
            self.send.post(2, RdmaRead::new(self.sge(FETCHED, length), from).signaled()).unwrap()
        };
        match outcome(self, 2) {
            status::IBV_WC_SUCCESS => Ok(self.memory.to_vec(FETCHED, length)),
            refused => Err(refused),
        }
    }

    fn send_invalidate(&mut self, rkey: u32, bytes: &[u8]) -> Outcome {
        // SAFETY: the payload is copied into the WQE.
        unsafe {
            self.send.post(3, SendInvalidate::new(Inline(bytes), rkey).signaled()).unwrap();
        }
        outcome(self, 3)
    }

    fn received(&mut self) -> Received {
        match self.wait() {
            Completion::Receive(done) => {
                assert_eq!(done.id, RECEIVE);
                let ReceiveKind::SendInvalidate(rkey) = done.kind else { panic!("{done:?}") };
                (status::IBV_WC_SUCCESS, done.byte_len, Some(rkey))
            }
            Completion::Failed(failure) => {
                assert_eq!(failure.id, RECEIVE, "{failure}");
                (failure.status.wc_status(), 0, None)
            }
            other => panic!("{other:?}"),
        }
    }

    fn bind_1(
        &mut self,
        window: &mut MemoryWindow<Type1>,
        region: &MemoryRegion,
        part: Range<usize>,
        access: Access,
    ) -> u32 {
        let request = window.bind(region, part.start, part.len(), access).unwrap();
        // SAFETY: no code holds a reference to the region.
        let rkey = unsafe { self.send.bind(4, window, request.signaled()) }.unwrap();
        assert_eq!(outcome(self, 4), status::IBV_WC_SUCCESS);
        rkey
    }

    fn bind_2(
        &mut self,
        window: &mut MemoryWindow<Type2>,
        tag: u8,
        region: &MemoryRegion,
        part: Range<usize>,
    ) -> u32 {
        let qpn = self.qp.number();
        let request =
            window.bind(qpn, tag, region, part.start, part.len(), READ_AND_WRITE).unwrap();
        // SAFETY: no code holds a reference to the region.
        let rkey = unsafe { self.send.bind(5, window, request.signaled()) }.unwrap();
        assert_eq!(outcome(self, 5), status::IBV_WC_SUCCESS);
        rkey
    }

    fn invalidate(&mut self, window: &mut MemoryWindow<Type2>) -> Outcome {
        let rkey = window.rkey();
        // SAFETY: what is invalidated names no memory.
        unsafe { self.send.post(6, LocalInvalidate::new(rkey).signaled()).unwrap() };
        window.set_rkey(rkey & !0xff);
        outcome(self, 6)
    }
}

/// How the request of that id ended, which is the next to end.
fn outcome(side: &mut Side<Rc>, id: u64) -> Outcome {
    match side.wait() {
        Completion::Send(done) => {
            assert_eq!(done.id, id);
            status::IBV_WC_SUCCESS
        }
        Completion::Failed(failure) => {
            assert_eq!(failure.id, id, "{failure}");
            failure.status.wc_status()
        }
        other => panic!("{other:?}"),
    }
}

impl Library<Rc> {
    fn outcome(&self, id: u64) -> Outcome {
        let done = self.wait();
        assert_eq!(done.wr_id, id);
        done.status
    }
}

fn bind_info(region: &MemoryRegion, part: &Range<usize>, access: Access) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: region.as_raw().as_ptr(),
        addr: region.address() + part.start as u64,
        length: part.len() as u64,
        mw_access_flags: access.bits(),
    }
}

/// The key that a message has invalidated.
fn invalidated(done: &ibv_wc) -> Option<u32> {
    // SAFETY: both are 32 bits; the flag says which of them it is.
    let rkey = unsafe { done.imm_data_invalidated_rkey_union.invalidated_rkey };
    (done.wc_flags & ibv_wc_flags::IBV_WC_WITH_INV.0 != 0).then_some(rkey)
}

impl End for Library<Rc> {
    fn new(rig: &Rig, control: &mut Connection) -> Self {
        let (side, _) = Library::connected(rig, control, &|_, _| {});
        Library::receive(&side, RECEIVE, RECEIVED, 64);
        side
    }

    fn qp(&self) -> &QueuePair<Rc, Rts> {
        &self.qp
    }

    fn write(&mut self, at: Remote, bytes: &[u8]) -> Outcome {
        self.memory.write(WRITTEN, bytes);
        self.post(1, wr::IBV_WR_RDMA_WRITE, &[self.sge(WRITTEN, bytes.len())], to(at));
        self.outcome(1)
    }

    fn read(&mut self, from: Remote, length: usize) -> Result<Vec<u8>, Outcome> {
        self.post(2, wr::IBV_WR_RDMA_READ, &[self.sge(FETCHED, length)], to(from));
        match self.outcome(2) {
            status::IBV_WC_SUCCESS => Ok(self.memory.to_vec(FETCHED, length)),
            refused => Err(refused),
        }
    }

    fn send_invalidate(&mut self, rkey: u32, bytes: &[u8]) -> Outcome {
        self.memory.write(WRITTEN, bytes);
        self.post(3, wr::IBV_WR_SEND_WITH_INV, &[self.sge(WRITTEN, bytes.len())], |wr| {
            wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
        });
        self.outcome(3)
    }

    fn received(&mut self) -> Received {
        let done = self.wait();
        assert_eq!(done.wr_id, RECEIVE);
        match done.status {
            status::IBV_WC_SUCCESS => (done.status, done.byte_len, invalidated(&done)),
            failed => (failed, 0, None),
        }
    }

    fn bind_1(
        &mut self,
        window: &mut MemoryWindow<Type1>,
        region: &MemoryRegion,
        part: Range<usize>,
        access: Access,
    ) -> u32 {
        let mut bind = ibv_mw_bind {
            wr_id: 4,
            send_flags: ibv_send_flags::IBV_SEND_SIGNALED.0,
            bind_info: bind_info(region, &part, access),
        };
        let mw = window.as_raw();
        // SAFETY: all are alive; the library writes the window's key.
        let rkey = unsafe {
            assert_eq!(ibv_bind_mw(self.qp.as_raw().as_ptr(), mw.as_ptr(), &mut bind), 0);
            mw.as_ref().rkey
        };
        window.set_rkey(rkey);
        assert_eq!(self.outcome(4), status::IBV_WC_SUCCESS);
        rkey
    }

    fn bind_2(
        &mut self,
        window: &mut MemoryWindow<Type2>,
        tag: u8,
        region: &MemoryRegion,
        part: Range<usize>,
    ) -> u32 {
        let rkey = window.rkey() & !0xff | u32::from(tag);
        self.post(5, wr::IBV_WR_BIND_MW, &[], |wr| {
            wr.bind_mw_tso_union.bind_mw = bind_mw_t {
                mw: window.as_raw().as_ptr(),
                rkey,
                bind_info: bind_info(region, &part, READ_AND_WRITE),
            };
        });
        window.set_rkey(rkey);
        assert_eq!(self.outcome(5), status::IBV_WC_SUCCESS);
        rkey
    }

    fn invalidate(&mut self, window: &mut MemoryWindow<Type2>) -> Outcome {
        let rkey = window.rkey();
        self.post(6, wr::IBV_WR_LOCAL_INV, &[], |wr| {
            wr.imm_data_invalidated_rkey_union.invalidated_rkey = rkey;
        });
        window.set_rkey(rkey & !0xff);
        self.outcome(6)
    }
}
