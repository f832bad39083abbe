//! Requests that change keys: a key over four pieces of memory, and a memory window that is bound.

use std::mem::{MaybeUninit, replace};

use mlx5::cqe::Completion;
use mlx5::ib::{Access, Rc};
use mlx5::ring::{CqReader, SendConfig, SendQueue};
use mlx5::verbs::{CompletionQueue, MemoryRegion, MemoryWindow, Mkey, Type1};
use mlx5::wqe::{BindWindow, Sge};
use mlx5_sys::dv;
use mlx5_sys::verbs::*;

use crate::side::{Line, Row, Side, forget, watch};
use rig::extended::{ExtendedQp, Shape};

/// Pieces of memory behind the key.
const PIECES: u32 = 4;
const RIGHTS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_WRITE);

fn pieces(region: &MemoryRegion) -> [Sge; PIECES as usize] {
    std::array::from_fn(|piece| Sge::new(region.address() + piece as u64 * 512, 64, region.lkey()))
}

fn poll(cq: &CompletionQueue, calls: usize) -> usize {
    let mut wc = MaybeUninit::<ibv_wc>::zeroed();
    let mut found = 0;
    for _ in 0..calls {
        // SAFETY: there is space for one completion, zeros are valid in it, and no other code polls
        // the CQ.
        let (taken, wc) = unsafe {
            (ibv_poll_cq(cq.as_raw().as_ptr(), 1, wc.as_mut_ptr()), wc.assume_init_ref())
        };
        found += usize::from(taken == 1 && wc.status == ibv_wc_status::IBV_WC_SUCCESS);
    }
    found
}

/// `ibv_bind_mw`.
pub struct Classic {
    window: MemoryWindow<Type1>,
    region: MemoryRegion,
    line: Line,
}

impl Classic {
    pub fn new() -> Self {
        let line = Line::new();
        let region = line.rig.pd.allocate(4096, RIGHTS | Access::MW_BIND).expect("memory");
        Self { window: MemoryWindow::new(&line.rig.pd).expect("a window"), region, line }
    }

    #[inline(never)]
    fn bind(&mut self, calls: usize) -> usize {
        let mut bind = ibv_mw_bind {
            wr_id: 0,
            send_flags: ibv_send_flags::IBV_SEND_SIGNALED.0,
            bind_info: ibv_mw_bind_info {
                mr: self.region.as_raw().as_ptr(),
                addr: self.region.address(),
                length: 64,
                mw_access_flags: Access::REMOTE_WRITE.bits(),
            },
        };
        let (qp, window) = (self.line.qp.as_raw().as_ptr(), self.window.as_raw().as_ptr());
        for id in 0..calls as u64 {
            bind.wr_id = id;
            // SAFETY: all of them live as long as `self`.
            assert_eq!(unsafe { ibv_bind_mw(qp, window, &mut bind) }, 0);
        }
        calls
    }
}

impl Side for Classic {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::Bind => self.bind(calls),
            Row::Poll | Row::Empty if calls != 0 => poll(&self.line.cq, calls),
            _ => return None,
        })
    }
}

/// `mlx5dv_wr_mr_list`.
pub struct Extended {
    qp: ExtendedQp,
    key: Mkey,
    list: [ibv_sge; PIECES as usize],
    cq: CompletionQueue,
    _line: Line,
}

impl Extended {
    pub fn new() -> Self {
        let line = Line::new();
        let cq = line.rig.cq(511);
        let mut shape = Shape::new(ibv_qp_type::IBV_QPT_RC, 128, 0);
        shape.direct_operations = dv::MLX5DV_QP_EX_WITH_MR_LIST.into();
        let qp = ExtendedQp::looped(&line.rig, &cq, &shape);
        watch(qp.qp(), cq.as_raw());
        let key = Mkey::new(&line.rig.pd, PIECES as u16).expect("a key");
        let list = pieces(&line.memory).map(|sge| ibv_sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        });
        Self { qp, key, list, cq, _line: line }
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        let (ex, key) = (self.qp.ex().as_ptr(), self.key.as_raw().as_ptr());
        for id in 0..calls as u64 {
            forget(self);
            // SAFETY: all of them live as long as `self`.
            unsafe {
                let direct = dv::mlx5dv_qp_ex_from_ibv_qp_ex(ex);
                ibv_wr_start(ex);
                (*ex).wr_id = id;
                (*ex).wr_flags =
                    (ibv_send_flags::IBV_SEND_SIGNALED | ibv_send_flags::IBV_SEND_INLINE).0;
                let list = self.list.as_mut_ptr();
                dv::mlx5dv_wr_mr_list(direct, key, RIGHTS.bits(), PIECES as u16, list);
                assert_eq!(ibv_wr_complete(ex), 0);
            }
        }
        calls
    }
}

impl Side for Extended {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::KeyList => self.list(calls),
            Row::Poll | Row::Empty if calls != 0 => poll(&self.cq, calls),
            _ => return None,
        })
    }
}

/// This crate, raw layer.
pub struct Raw {
    completions: CqReader,
    send: SendQueue<Rc>,
    key: Mkey,
    list: [Sge; PIECES as usize],
    window: MemoryWindow<Type1>,
    sum: u64,
    _line: Line,
}

impl Raw {
    pub fn new() -> Self {
        let line = Line::new();
        let mut completions = CqReader::new(&line.cq).expect("a CQ of its own");
        let send = SendQueue::new(&line.qp, &mut completions, SendConfig::default());
        Self {
            send: send.expect("a QP of its own"),
            completions,
            key: Mkey::new(&line.rig.pd, PIECES as u16).expect("a key"),
            list: pieces(&line.memory),
            window: MemoryWindow::new(&line.rig.pd).expect("a window"),
            sum: 0,
            _line: line,
        }
    }

    #[inline(never)]
    fn list(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let request = self.key.configure().access(RIGHTS).layout(self.list).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.post(id, request) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn bind(&mut self, calls: usize) -> usize {
        for id in 0..calls as u64 {
            forget(self);
            let (rkey, part) = (self.window.rkey(), self.list[0]);
            let request = BindWindow::type_1(rkey, part, Access::REMOTE_WRITE).signaled();
            // SAFETY: the memory lives as long as the queue, and the program does not access it.
            unsafe { self.send.bind(id, &mut self.window, request) }.expect("posted");
        }
        calls
    }

    #[inline(never)]
    fn poll(&mut self, calls: usize) -> usize {
        let mut found = 0;
        for _ in 0..calls {
            forget(self);
            if let Ok(Some(Completion::Send(done))) = self.completions.poll(&mut self.send) {
                self.sum += done.id;
                found += 1;
            }
        }
        found
    }
}

impl Side for Raw {
    fn run(&mut self, row: Row, calls: usize) -> Option<usize> {
        Some(match row {
            Row::KeyList => self.list(calls),
            Row::Bind => self.bind(calls),
            Row::Poll | Row::Empty if calls != 0 => {
                let found = self.poll(calls);
                let ids = replace(&mut self.sum, 0);
                assert!(found == 0 || found == 1 || ids != 0, "ids come back");
                found
            }
            _ => return None,
        })
    }
}
