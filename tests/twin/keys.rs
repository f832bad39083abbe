//! Requests that change keys, and those around them: memory windows bound and invalidated, by this
//! side and from afar, keys over keys configured by lists and strided patterns.
//!
//! libmlx5 leaves the parts of a bound or invalidated window's key context that do not count as they
//! are in the ring; they are zero here. So of each WQE the bytes are compared that libmlx5 writes. The
//! windows and keys of the twins are two: their numbers, in the ctrl segment and in remote addresses,
//! are compared with what they should be.

use std::ptr::null_mut;

use mlx5::cqe::{Completion, ReceiveKind};
use mlx5::ring::{
    Batch, Completions, PostError, ReceiveConfig, ReceiveQueue, SendConfig, SendQueue,
};
use mlx5::text;
use mlx5::verbs::{
    Access, CompletionQueue, MemoryRegion, MemoryWindow, Mkey, Rc, Type1, Type2, Uc,
};
use mlx5::wqe::{
    BindWindow, Interleaved, LocalInvalidate, Nop, PostOn, Remote, Send, SendInvalidate, Sge,
    Strided, Write,
};
use mlx5_model::stores::{self, Store};
use mlx5_sys::dv;
use mlx5_sys::verbs::*;

use crate::rig::extended::{ExtendedQp, Shape};
use crate::rig::random::Random;
use crate::rig::verbs::{QpMemory, post_receive};
use crate::rig::{Rig, verbs};

const POSTS: u32 = 200;
const CASES: u32 = 3;
const MEMORY: usize = 1 << 14;
const RECEIVE: u32 = 64;
const WINDOWS: usize = 3;
const INLINE: u32 = 500;

/// What is posted; windows and keys by number.
#[derive(Clone, Debug)]
pub enum What {
    /// To memory of the region, or by the window of type 1 of that number.
    Write(Option<usize>),
    Send,
    /// Names a window of type 2 that is bound.
    SendInvalidate(usize),
    /// Of type 1: to so many bytes at an offset, or to nothing.
    Bind1(usize, u32, u32, Access),
    /// Of type 2, which is not bound, with this tag.
    Bind2(usize, u8, u32, u32, Access, bool),
    /// Of a window of type 2 that is bound.
    Invalidate(usize),
    Configure(usize, Option<Access>, Layout),
}

#[derive(Clone, Debug)]
pub enum Layout {
    Same,
    List(Vec<Sge>),
    Interleaved(u32, Vec<Strided>),
}

#[derive(Clone, Debug)]
struct Request {
    id: u64,
    what: What,
    signaled: bool,
    fenced: bool,
}

/// One of the twins.
struct Side {
    qp: ExtendedQp,
    cq: CompletionQueue,
    rings: QpMemory,
    ones: Vec<MemoryWindow<Type1>>,
    twos: Vec<MemoryWindow<Type2>>,
    keys: Vec<Mkey>,
    /// Offset of the half of the register that its first doorbell used.
    half: Option<usize>,
}

impl Side {
    fn new(rig: &Rig, kind: u32) -> Self {
        let cq = rig.cq(1024);
        let mut operations = ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_RDMA_WRITE.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_LOCAL_INV.0
            | ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW.0;
        if kind == ibv_qp_type::IBV_QPT_RC {
            operations |= ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_SEND_WITH_INV.0;
        }
        let mut shape = Shape::new(kind, 32, operations.into());
        shape.max_recv_wr = 64;
        shape.max_inline_data = INLINE;
        if kind == ibv_qp_type::IBV_QPT_RC {
            shape.direct_operations = u64::from(
                dv::MLX5DV_QP_EX_WITH_MR_LIST
                    | dv::MLX5DV_QP_EX_WITH_MR_INTERLEAVED
                    | dv::MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
            );
        }
        let qp = ExtendedQp::looped(rig, &cq, &shape);
        // SAFETY: the QP lives as long as the side.
        let rings = unsafe { QpMemory::new(qp.qp()) };
        let ones = (0..WINDOWS).map(|_| MemoryWindow::new(&rig.pd).unwrap()).collect();
        let twos = (0..WINDOWS).map(|_| MemoryWindow::new(&rig.pd).unwrap()).collect();
        let keys = (0..WINDOWS).map(|_| Mkey::new(&rig.pd, 32).unwrap()).collect();
        Self { qp, cq, rings, ones, twos, keys, half: None }
    }

    fn number(&self) -> u32 {
        // SAFETY: alive.
        unsafe { self.qp.qp().as_ref() }.qp_num
    }

    /// What the ctrl segment names, if it is a key.
    fn key(&self, what: &What) -> Option<u32> {
        match what {
            What::Write(_) | What::Send => None,
            What::SendInvalidate(at) | What::Invalidate(at) | What::Bind2(at, ..) => {
                Some(self.twos[*at].rkey())
            }
            What::Bind1(at, ..) => Some(self.ones[*at].rkey()),
            What::Configure(at, ..) => Some(self.keys[*at].lkey()),
        }
    }

    /// After a request was posted.
    fn posted(&mut self, what: &What) {
        match what {
            What::Bind1(at, ..) => {
                let rkey = self.ones[*at].rkey();
                self.ones[*at].set_rkey(rkey & !0xff | rkey.wrapping_add(1) & 0xff);
            }
            What::Bind2(at, tag, ..) => {
                let rkey = self.twos[*at].rkey();
                self.twos[*at].set_rkey(rkey & !0xff | u32::from(*tag));
            }
            What::Invalidate(at) => {
                let rkey = self.twos[*at].rkey();
                self.twos[*at].set_rkey(rkey & !0xff);
            }
            _ => {}
        }
    }

    /// Offsets from the register's half that was used first, and widths, of stores that must be of
    /// the ring's bytes from `from` on.
    fn places(&mut self, stores: Vec<Store>, ring: &[u8], from: usize) -> Vec<(usize, usize)> {
        let register = self.rings.dv.bf.reg.addr() % 4096;
        let half = *self.half.get_or_insert(stores[0].offset);
        let mut at = from;
        let mut places = Vec::new();
        for Store { offset, bytes, .. } in stores {
            for byte in &bytes {
                assert_eq!(*byte, ring[at % ring.len()], "byte {:#x} of the WQE", at - from);
                at += 1;
            }
            places.push(((offset - register) ^ (half - register), bytes.len()));
        }
        places
    }
}

pub fn bind_info(
    region: &MemoryRegion,
    offset: u32,
    length: u32,
    access: Access,
) -> ibv_mw_bind_info {
    ibv_mw_bind_info {
        mr: region.as_raw().as_ptr(),
        addr: region.address() + u64::from(offset),
        length: length.into(),
        mw_access_flags: access.bits(),
    }
}

fn flags(request: &Request) -> u32 {
    let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
    flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
        | flag(request.fenced, ibv_send_flags::IBV_SEND_FENCE)
}

/// `IBV_ACCESS_ZERO_BASED`
pub const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;

/// Posts by `ibv_post_send`, one call for all; and by `ibv_bind_mw`, which is for type 1.
fn by_post_send(side: &mut Side, region: &MemoryRegion, requests: &[Request]) {
    if let [request @ Request { what: What::Bind1(at, offset, length, access), .. }] = requests {
        let window = side.ones[*at].as_raw();
        let mut bind = ibv_mw_bind {
            wr_id: request.id,
            send_flags: flags(request),
            bind_info: bind_info(region, *offset, *length, *access),
        };
        // SAFETY: all are alive.
        let result = unsafe { ibv_bind_mw(side.qp.qp().as_ptr(), window.as_ptr(), &mut bind) };
        assert_eq!(result, 0);
        return;
    }
    let sge = Sge::new(region.address(), 16, region.lkey());
    let mut list = ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey };
    let mut chain = Vec::new();
    for request in requests {
        // SAFETY: integers, pointers and unions of them.
        let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
        wr.wr_id = request.id;
        wr.send_flags = flags(request);
        match &request.what {
            What::Write(by) => {
                wr.opcode = ibv_wr_opcode::IBV_WR_RDMA_WRITE;
                (wr.sg_list, wr.num_sge) = (&mut list, 1);
                wr.wr.rdma.remote_addr = region.address();
                wr.wr.rdma.rkey = by.map_or(region.rkey(), |at| side.ones[at].rkey());
            }
            What::Send => {
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND;
                (wr.sg_list, wr.num_sge) = (&mut list, 1);
            }
            What::SendInvalidate(at) => {
                wr.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
                (wr.sg_list, wr.num_sge) = (&mut list, 1);
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = side.twos[*at].rkey();
            }
            What::Bind2(at, tag, offset, length, access, zero) => {
                wr.opcode = ibv_wr_opcode::IBV_WR_BIND_MW;
                let window = &side.twos[*at];
                wr.bind_mw_tso_union.bind_mw = bind_mw_t {
                    mw: window.as_raw().as_ptr(),
                    rkey: window.rkey() & !0xff | u32::from(*tag),
                    bind_info: bind_info(region, *offset, *length, *access),
                };
                if *zero {
                    // SAFETY: just written.
                    unsafe {
                        wr.bind_mw_tso_union.bind_mw.bind_info.mw_access_flags |= ZERO_BASED;
                    }
                }
            }
            What::Invalidate(at) => {
                wr.opcode = ibv_wr_opcode::IBV_WR_LOCAL_INV;
                wr.imm_data_invalidated_rkey_union.invalidated_rkey = side.twos[*at].rkey();
            }
            other => unreachable!("{other:?} in a list"),
        }
        chain.push(wr);
    }
    for at in 1..chain.len() {
        chain[at - 1].next = &raw mut chain[at];
    }
    let mut bad = null_mut();
    // SAFETY: the chain lives through the call, the memory to the end.
    let result = unsafe { ibv_post_send(side.qp.qp().as_ptr(), chain.as_mut_ptr(), &mut bad) };
    assert_eq!(result, 0);
    for request in requests {
        side.posted(&request.what);
    }
}

/// Posts by `ibv_wr_*` and `mlx5dv_wr_*`.
fn by_builders(side: &mut Side, region: &MemoryRegion, requests: &[Request], random: &mut Random) {
    let ex = side.qp.ex().as_ptr();
    // SAFETY: an extended queue pair of libmlx5; everything named lives to the end.
    unsafe {
        let direct = dv::mlx5dv_qp_ex_from_ibv_qp_ex(ex);
        ibv_wr_start(ex);
        for request in requests {
            (*ex).wr_id = request.id;
            (*ex).wr_flags = flags(request);
            match &request.what {
                What::Write(by) => {
                    let rkey = by.map_or(region.rkey(), |at| side.ones[at].rkey());
                    ibv_wr_rdma_write(ex, rkey, region.address());
                    ibv_wr_set_sge(ex, region.lkey(), region.address(), 16);
                }
                What::Send => {
                    ibv_wr_send(ex);
                    ibv_wr_set_sge(ex, region.lkey(), region.address(), 16);
                }
                What::SendInvalidate(at) => {
                    ibv_wr_send_inv(ex, side.twos[*at].rkey());
                    ibv_wr_set_sge(ex, region.lkey(), region.address(), 16);
                }
                What::Bind1(..) => unreachable!("the builders bind windows of type 2"),
                What::Bind2(at, tag, offset, length, access, zero) => {
                    let window = &side.twos[*at];
                    let mut info = bind_info(region, *offset, *length, *access);
                    info.mw_access_flags |= if *zero { ZERO_BASED } else { 0 };
                    let rkey = window.rkey() & !0xff | u32::from(*tag);
                    ibv_wr_bind_mw(ex, window.as_raw().as_ptr(), rkey, &info);
                }
                What::Invalidate(at) => ibv_wr_local_inv(ex, side.twos[*at].rkey()),
                What::Configure(at, access, layout) => {
                    (*ex).wr_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
                    configure(direct, &side.keys[*at], *access, layout, random);
                }
            }
            side.posted(&request.what);
        }
        assert_eq!(ibv_wr_complete(ex), 0);
    }
}

/// # Safety
/// As the functions of `mlx5dv.h`.
unsafe fn configure(
    direct: *mut dv::mlx5dv_qp_ex,
    key: &Mkey,
    access: Option<Access>,
    layout: &Layout,
    random: &mut Random,
) {
    let key = key.as_raw().as_ptr();
    let mut sges = Vec::new();
    let mut pieces = Vec::new();
    match layout {
        Layout::Same => {}
        Layout::List(list) => sges.extend(list.iter().map(|sge| ibv_sge {
            addr: sge.addr,
            length: sge.length,
            lkey: sge.lkey,
        })),
        Layout::Interleaved(_, list) => {
            pieces.extend(list.iter().map(|piece| dv::mlx5dv_mr_interleaved {
                addr: piece.addr,
                bytes_count: piece.length.into(),
                bytes_skip: piece.skip.into(),
                lkey: piece.lkey,
            }));
        }
    }
    let (sge_count, piece_count) = (sges.len() as u16, pieces.len() as u16);
    // SAFETY: passed on.
    unsafe {
        match (access, layout) {
            (Some(access), Layout::List(_)) if random.one_in(2) => {
                dv::mlx5dv_wr_mr_list(direct, key, access.bits(), sge_count, sges.as_mut_ptr());
            }
            (Some(access), Layout::Interleaved(repeat, _)) if random.one_in(2) => {
                let (access, list) = (access.bits(), pieces.as_mut_ptr());
                dv::mlx5dv_wr_mr_interleaved(direct, key, access, *repeat, piece_count, list);
            }
            _ => {
                let mut attributes = dv::mlx5dv_mkey_conf_attr::default();
                let setters =
                    u8::from(access.is_some()) + u8::from(!matches!(layout, Layout::Same));
                dv::mlx5dv_wr_mkey_configure(direct, key, setters, &mut attributes);
                let access_first = random.one_in(2);
                if let Some(access) = access.filter(|_| access_first) {
                    dv::mlx5dv_wr_set_mkey_access_flags(direct, access.bits());
                }
                match layout {
                    Layout::Same => {}
                    Layout::List(_) => {
                        dv::mlx5dv_wr_set_mkey_layout_list(direct, sge_count, sges.as_ptr());
                    }
                    Layout::Interleaved(repeat, _) => dv::mlx5dv_wr_set_mkey_layout_interleaved(
                        direct,
                        *repeat,
                        piece_count,
                        pieces.as_ptr(),
                    ),
                }
                if let Some(access) = access.filter(|_| !access_first) {
                    dv::mlx5dv_wr_set_mkey_access_flags(direct, access.bits());
                }
            }
        }
    }
}

/// Where requests go: a batch, or the queue, one by one.
trait Sink<T: mlx5::verbs::Transport> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError>;
}

impl<T: mlx5::verbs::Transport> Sink<T> for Batch<'_, T> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        self.append(id, operation)
    }
}

/// Rings each request.
struct Singly<'a, T: mlx5::verbs::Transport>(&'a mut SendQueue<T>);

impl<T: mlx5::verbs::Transport> Sink<T> for Singly<'_, T> {
    fn take<O: PostOn<T>>(&mut self, id: u64, operation: O) -> Result<(), PostError> {
        // SAFETY: the memory lives to the end of the test, and nobody looks at it.
        unsafe { self.0.post(id, operation) }
    }
}

/// A transport that the requests of this file go on, as far as it has them.
trait Twin: mlx5::verbs::Transport + Sized
where
    Write<Sge>: PostOn<Self>,
    Send<Sge>: PostOn<Self>,
    BindWindow: PostOn<Self>,
    LocalInvalidate: PostOn<Self>,
    Nop: PostOn<Self>,
{
    const KIND: u32;
    /// Whether it has SEND with invalidate, and keys over keys.
    const MORE: bool;
    fn more(
        batch: &mut impl Sink<Self>,
        side: &Side,
        region: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError>;
}

macro_rules! flagged {
    ($batch:ident, $request:ident, $op:expr) => {{
        let op = $op.signaled_if($request.signaled);
        if $request.fenced {
            $batch.take($request.id, op.fenced())
        } else {
            $batch.take($request.id, op)
        }
    }};
}

impl Twin for Rc {
    const KIND: u32 = ibv_qp_type::IBV_QPT_RC;
    const MORE: bool = true;

    fn more(
        batch: &mut impl Sink<Self>,
        side: &Side,
        region: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError> {
        let sge = Sge::new(region.address(), 16, region.lkey());
        match &request.what {
            What::SendInvalidate(at) => {
                flagged!(batch, request, SendInvalidate::new(sge, side.twos[*at].rkey()))
            }
            What::Configure(at, access, layout) => {
                let mut change = side.keys[*at].configure();
                if let Some(access) = access {
                    change = change.access(*access);
                }
                match layout {
                    Layout::Same => flagged!(batch, request, change),
                    Layout::List(list) => match list.as_slice() {
                        &[one, two, three, four] => {
                            let four = change.layout([one, two, three, four]);
                            flagged!(batch, request, four)
                        }
                        list => flagged!(batch, request, change.layout(list)),
                    },
                    Layout::Interleaved(repeat, pieces) => {
                        let layout = Interleaved { repeat: *repeat, pieces };
                        flagged!(batch, request, change.layout(layout))
                    }
                }
            }
            other => unreachable!("{other:?}"),
        }
    }
}

impl Twin for Uc {
    const KIND: u32 = ibv_qp_type::IBV_QPT_UC;
    const MORE: bool = false;

    fn more(
        _: &mut impl Sink<Self>,
        _: &Side,
        _: &MemoryRegion,
        request: &Request,
    ) -> Result<(), PostError> {
        unreachable!("{request:?}")
    }
}

fn append<T: Twin>(
    batch: &mut impl Sink<T>,
    side: &Side,
    region: &MemoryRegion,
    request: &Request,
) -> Result<(), PostError>
where
    Write<Sge>: PostOn<T>,
    Send<Sge>: PostOn<T>,
    BindWindow: PostOn<T>,
    LocalInvalidate: PostOn<T>,
    Nop: PostOn<T>,
{
    let sge = Sge::new(region.address(), 16, region.lkey());
    let part = |offset: u32, length: u32| Sge {
        addr: region.address() + u64::from(offset),
        length,
        ..sge
    };
    match &request.what {
        What::Write(by) => {
            let rkey = by.map_or(region.rkey(), |at| side.ones[at].rkey());
            flagged!(batch, request, Write::new(sge, Remote::new(region.address(), rkey)))
        }
        What::Send => flagged!(batch, request, Send::new(sge)),
        What::Bind1(at, offset, length, access) => {
            let part = part(*offset, *length);
            let bind = BindWindow::type_1(side.ones[*at].rkey(), part, *access);
            flagged!(batch, request, bind)
        }
        What::Bind2(at, tag, offset, length, access, zero) => {
            let (rkey, part) = (side.twos[*at].rkey(), part(*offset, *length));
            let bind = BindWindow::type_2(rkey, *tag, side.number(), part, *access);
            flagged!(batch, request, if *zero { bind.zero_based() } else { bind })
        }
        What::Invalidate(at) => flagged!(batch, request, side.twos[*at].invalidate()),
        _ => T::more(batch, side, region, request),
    }
}

/// Chooses requests that succeed, one after another.
struct Chooser<'a> {
    random: &'a mut Random,
    region: &'a MemoryRegion,
    more: bool,
    next: u64,
    unsignaled: u32,
    /// Which windows of type 1 the region's first bytes may be written by, and which of type 2 are
    /// bound.
    writable: [bool; WINDOWS],
    bound: [bool; WINDOWS],
    configured: [bool; WINDOWS],
    /// Windows of type 2 that are left alone for the rest of this call: it takes a while until one is
    /// invalidated from afar, and `ibv_post_send` looks at a window when it is called.
    used: [bool; WINDOWS],
}

impl Chooser<'_> {
    fn access(&mut self) -> Access {
        let mut access = Access::empty();
        for right in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
            if self.random.one_in(2) {
                access |= right;
            }
        }
        access
    }

    fn part(&mut self) -> (u32, u32) {
        let offset = self.random.below(MEMORY as u32 / 2);
        (offset, 1 + self.random.below(MEMORY as u32 / 2))
    }

    fn layout(&mut self, at: usize) -> Layout {
        let (start, lkey) = (self.region.address(), self.region.lkey());
        match self.random.below(5) {
            0 if self.configured[at] => Layout::Same,
            0..3 => {
                let entries = if self.random.one_in(2) { 4 } else { 1 + self.random.below(30) };
                let mut piece = |_| {
                    Sge::new(
                        start + u64::from(self.random.below(1000)),
                        1 + self.random.below(1000),
                        lkey,
                    )
                };
                Layout::List((0..entries).map(&mut piece).collect())
            }
            _ => {
                let entries = 1 + self.random.below(12);
                let mut piece = |_| Strided {
                    addr: start + u64::from(self.random.below(1000)),
                    lkey,
                    length: 1 + self.random.below(60) as u16,
                    skip: self.random.below(60) as u16,
                };
                let pieces = (0..entries).map(&mut piece).collect();
                Layout::Interleaved(1 + self.random.below(9), pieces)
            }
        }
    }

    /// `lists`: what `ibv_post_send` takes several of.
    fn request(&mut self, alone: bool, builders: bool) -> Request {
        let what = loop {
            let at = self.random.below(WINDOWS as u32) as usize;
            let free = !self.used[at];
            match self.random.below(8) {
                0 => {
                    let by = (0..WINDOWS).find(|at| self.writable[*at]);
                    break What::Write(by.filter(|_| self.random.one_in(2)));
                }
                1 => break What::Send,
                2 if self.more && self.bound[at] && free => {
                    self.bound[at] = false;
                    break What::SendInvalidate(at);
                }
                3 if alone && !builders => {
                    if self.random.one_in(4) {
                        self.writable[at] = false;
                        break What::Bind1(at, 0, 0, Access::empty());
                    }
                    let ((offset, length), access) = (self.part(), self.access());
                    let offset = if self.random.one_in(2) { 0 } else { offset };
                    let writes = access.contains(Access::REMOTE_WRITE);
                    self.writable[at] = writes && offset == 0 && length >= 16;
                    break What::Bind1(at, offset, length, access);
                }
                4 | 5 if !self.bound[at] && free => {
                    self.bound[at] = true;
                    let ((offset, length), access) = (self.part(), self.access());
                    let (tag, zero) = (self.random.next() as u8, self.random.one_in(3));
                    break What::Bind2(at, tag, offset, length, access, zero);
                }
                6 if self.bound[at] && free => {
                    self.bound[at] = false;
                    break What::Invalidate(at);
                }
                7 if self.more && builders => {
                    let (mut access, layout) = (self.access(), self.layout(at));
                    if self.random.one_in(2) {
                        access |= Access::LOCAL_WRITE;
                    }
                    let given = !self.configured[at] || self.random.one_in(2);
                    self.configured[at] = true;
                    break What::Configure(at, given.then_some(access), layout);
                }
                _ => {}
            }
        };
        match what {
            What::SendInvalidate(at) => self.used[at] = true,
            What::Bind2(at, ..) | What::Invalidate(at) => self.used[at] |= !builders,
            _ => {}
        }
        self.next += 1;
        self.unsignaled += 1;
        let signaled = self.unsignaled > 4 || self.random.one_in(3);
        if signaled {
            self.unsignaled = 0;
        }
        Request { id: self.next, what, signaled, fenced: self.random.one_in(6) }
    }
}

/// Which bytes of a WQE libmlx5 writes, and have the same value for both: all but a queue pair's
/// number and keys of its own.
pub fn same(what: &What, ds: usize) -> Vec<bool> {
    let mut same = vec![true; ds * 16];
    same[4..7].fill(false);
    let context = 64;
    match what {
        // The builders leave it as it was.
        What::Send => same[12..16].fill(false),
        What::Write(by) => {
            same[12..16].fill(false);
            if by.is_some() {
                same[24..28].fill(false);
            }
        }
        What::SendInvalidate(_) | What::Configure(..) => same[12..16].fill(false),
        What::Bind1(_, _, length, _) | What::Bind2(_, _, _, length, ..) => {
            same[12..16].fill(false);
            same[context..context + 64].fill(false);
            same[context] = true;
            same[context + 7] = true;
            if *length != 0 {
                same[context + 2] = true;
                same[context + 16..context + 32].fill(true);
            }
            if matches!(what, What::Bind1(..)) {
                same[context + 4..context + 7].fill(true);
                same[context + 7] = false;
            }
        }
        What::Invalidate(_) => {
            same[12..16].fill(false);
            same[context..].fill(false);
            same[context] = true;
            same[context + 4..context + 8].fill(true);
        }
    }
    same
}

fn twins<T: Twin>(rig: &Rig, random: &mut Random)
where
    Write<Sge>: PostOn<T>,
    Send<Sge>: PostOn<T>,
    BindWindow: PostOn<T>,
    LocalInvalidate: PostOn<T>,
    Nop: PostOn<T>,
{
    let rights = crate::rig::all_rights() | Access::MW_BIND;
    let region = rig.pd.allocate(MEMORY, rights).unwrap();
    let (mut theirs, mut ours) = (Side::new(rig, T::KIND), Side::new(rig, T::KIND));
    let mut completions = Completions::new(&ours.cq).unwrap();
    // SAFETY: the QP lives to the end of the function, and nobody else posts to it.
    let mut queue =
        unsafe { SendQueue::<T>::from_raw(ours.qp.qp(), &mut completions, SendConfig::default()) }
            .unwrap();
    // SAFETY: as above.
    let mut receive =
        unsafe { ReceiveQueue::from_raw(ours.qp.qp(), &mut completions, ReceiveConfig::default()) }
            .unwrap();
    stores::take();
    let ring_size = ours.rings.send_ring().len();
    assert_eq!(theirs.rings.send_ring().len(), ring_size);
    let mut chooser = Chooser {
        random,
        region: &region,
        more: T::MORE,
        next: 0,
        unsignaled: 0,
        writable: [false; WINDOWS],
        bound: [false; WINDOWS],
        configured: [false; WINDOWS],
        used: [false; WINDOWS],
    };
    let mut head = 0;
    for post in 0..POSTS {
        let builders = chooser.random.one_in(2);
        chooser.used = [false; WINDOWS];
        let count = if chooser.random.one_in(2) { 1 } else { 1 + chooser.random.below(4) };
        let requests: Vec<_> = (0..count).map(|_| chooser.request(count == 1, builders)).collect();
        let what = || format!("post {post}, by builders: {builders}, {requests:#?}");

        let inbox = Sge::new(region.address() + 4096, RECEIVE, region.lkey());
        let mut invalidated = Vec::new();
        for request in &requests {
            let at = match request.what {
                What::Send => None,
                What::SendInvalidate(at) => Some(at),
                _ => continue,
            };
            // SAFETY: QPs and memory live to the end.
            unsafe {
                post_receive(theirs.qp.qp(), 0, &[inbox]).unwrap();
                receive.post(0, inbox).unwrap();
            }
            invalidated.push(at);
        }
        stores::take();

        let their_keys: Vec<_> = {
            // As they are before each request: the library's windows follow as they are posted.
            let mut keys = Vec::new();
            let mut shadow: Vec<u32> = theirs.twos.iter().map(MemoryWindow::rkey).collect();
            for request in &requests {
                keys.push(match request.what {
                    What::Bind2(at, tag, ..) => {
                        let before = shadow[at];
                        shadow[at] = before & !0xff | u32::from(tag);
                        Some(before)
                    }
                    What::Invalidate(at) => {
                        let before = shadow[at];
                        shadow[at] = before & !0xff;
                        Some(before)
                    }
                    What::SendInvalidate(at) => Some(shadow[at]),
                    _ => theirs.key(&request.what),
                });
            }
            keys
        };
        if builders {
            by_builders(&mut theirs, &region, &requests, chooser.random);
        } else {
            by_post_send(&mut theirs, &region, &requests);
            // `ibv_bind_mw` has told the window itself.
            for (window, request) in requests.iter().filter_map(|request| match request.what {
                What::Bind1(at, ..) => Some((at, request)),
                _ => None,
            }) {
                // SAFETY: alive.
                let rkey = unsafe { theirs.ones[window].as_raw().as_ref() }.rkey;
                theirs.posted(&request.what);
                assert_eq!(theirs.ones[window].rkey(), rkey);
            }
        }
        let their_log = stores::take();
        let mut our_keys = Vec::new();
        if count == 1 && chooser.random.one_in(2) {
            our_keys.push(ours.key(&requests[0].what));
            append(&mut Singly(&mut queue), &ours, &region, &requests[0]).unwrap();
            ours.posted(&requests[0].what);
        } else {
            let mut batch = queue.batch();
            for request in &requests {
                our_keys.push(ours.key(&request.what));
                append(&mut batch, &ours, &region, request).unwrap();
                ours.posted(&request.what);
            }
            // SAFETY: the memory lives to the end, and nobody looks at it.
            unsafe { batch.ring() };
        }
        let our_log = stores::take();

        assert_eq!(ours.rings.record(), theirs.rings.record(), "record, {}", what());
        let (mine, libs) = (ours.rings.send_ring(), theirs.rings.send_ring());
        let mut last = 0;
        for (index, request) in requests.iter().enumerate() {
            let at = head * 64 % ring_size;
            let wqe = |ring: &[u8]| -> Vec<u8> {
                (0..1024).map(|byte| ring[(at + byte) % ring_size]).collect()
            };
            let (mine, libs) = (wqe(&mine), wqe(&libs));
            let ds = usize::from(mine[7] & 0x3f);
            let text = format!(
                "{}\n{}",
                text::SendWqe::new(&mine[..ds * 16], text::Addressing::Connected),
                what()
            );
            for (byte, same) in same(&request.what, ds).into_iter().enumerate() {
                assert!(
                    !same || mine[byte] == libs[byte],
                    "byte {byte:#x} is {:#x} here and {:#x} there, {text}",
                    mine[byte],
                    libs[byte]
                );
            }
            for (side, wqe, key) in
                [(&ours, &mine, our_keys[index]), (&theirs, &libs, their_keys[index])]
            {
                assert_eq!(wqe[4..7], side.number().to_be_bytes()[1..], "{text}");
                if let Some(key) = key {
                    assert_eq!(wqe[12..16], key.to_be_bytes(), "{text}");
                }
                if let (What::Bind1(..), Some(key)) = (&request.what, key) {
                    assert_eq!(wqe[71], (key as u8).wrapping_add(1), "{text}");
                }
                if let What::Bind2(..) = request.what {
                    assert_eq!(wqe[68..71], side.number().to_be_bytes()[1..], "{text}");
                }
            }
            last = at;
            head += ds.div_ceil(4);
        }
        let our_places = ours.places(our_log, &mine, last);
        assert_eq!(our_places, theirs.places(their_log, &libs, last), "stores, {}", what());

        // Both are told the same.
        let mut ids = Vec::new();
        let mut received = 0;
        // SAFETY: the CQ is alive, and libmlx5's.
        while let Some(wc) = unsafe { verbs::poll(theirs.cq.as_raw()) }.unwrap() {
            assert_eq!(wc.status, ibv_wc_status::IBV_WC_SUCCESS, "{}", what());
            match wc.opcode {
                ibv_wc_opcode::IBV_WC_RECV => received += 1,
                _ => ids.push(wc.wr_id),
            }
        }
        assert_eq!(received, invalidated.len());
        let mut mine = Vec::new();
        let mut kinds = Vec::new();
        for completion in completions.drain(&mut (&mut queue, &mut receive)) {
            match completion.unwrap() {
                Completion::Send(done) => mine.push(done.id),
                Completion::Receive(done) => kinds.push(done.kind),
                other => panic!("{other:?}, {}", what()),
            }
        }
        assert_eq!(mine, ids, "{}", what());
        assert_eq!(kinds.len(), invalidated.len());
        for (kind, at) in kinds.iter().zip(invalidated) {
            match (kind, at) {
                (ReceiveKind::Send, None) => {}
                (ReceiveKind::SendInvalidate(rkey), Some(at)) => {
                    assert_eq!(rkey >> 8, ours.twos[at].rkey() >> 8);
                }
                other => panic!("{other:?}, {}", what()),
            }
        }
    }
    drop((queue, receive));
}

#[test]
fn changes_of_keys_leave_the_same_bytes_as_libmlx5() {
    let rig = Rig::new(mlx5_model::Mode::Trapped);
    let _turn = crate::turn();
    let _recording = stores::record();
    let mut random = Random::new();
    for _ in 0..CASES {
        twins::<Rc>(&rig, &mut random);
        twins::<Uc>(&rig, &mut random);
    }
}
