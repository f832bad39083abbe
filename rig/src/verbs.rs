//! libmlx5's own data path, and access to the memory that it shares with the HCA.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::{NonNull, null_mut};

use mlx5::devx::Umem;
use mlx5::wqe::Sge;
use mlx5_sys::dv;
use mlx5_sys::verbs::{
    ibv_cq, ibv_poll_cq, ibv_post_recv, ibv_post_send, ibv_post_srq_recv, ibv_qp, ibv_query_srq,
    ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq, ibv_srq_attr, ibv_wc,
    ibv_wr_opcode,
};

use super::lint;

/// A request, in verbs' terms.
#[derive(Clone, Debug)]
pub struct Request {
    /// `wr_id`.
    pub id: u64,
    /// `enum ibv_wr_opcode`.
    pub opcode: ibv_wr_opcode::Type,
    /// Its own memory.
    pub list: Vec<Sge>,
    /// `IBV_SEND_INLINE`.
    pub inline: bool,
    /// `IBV_SEND_SIGNALED`.
    pub signaled: bool,
    /// `IBV_SEND_SOLICITED`.
    pub solicited: bool,
    /// `IBV_SEND_FENCE`.
    pub fenced: bool,
    /// Address and rkey of the peer's memory.
    pub remote: (u64, u32),
    /// Immediate data.
    pub imm: u32,
    /// The value that an atomic compares with.
    pub compare: u64,
    /// The value that an atomic puts or adds.
    pub swap_add: u64,
}

impl Request {
    /// Creates a signaled request without optional parts.
    pub fn signaled(id: u64, opcode: ibv_wr_opcode::Type, list: &[Sge]) -> Self {
        Self {
            id,
            opcode,
            list: list.to_vec(),
            inline: false,
            signaled: true,
            solicited: false,
            fenced: false,
            remote: (0, 0),
            imm: 0,
            compare: 0,
            swap_add: 0,
        }
    }
}

fn sges(list: &[Sge]) -> Vec<ibv_sge> {
    list.iter().map(|sge| ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey }).collect()
}

/// Posts a list of requests in one call.
///
/// # Safety
/// The QP is alive, and the memory that the requests name lives until they are complete.
pub unsafe fn post_send(qp: NonNull<ibv_qp>, requests: &[Request]) -> Result<(), i32> {
    // SAFETY: the caller upholds the same conditions.
    unsafe { post_send_to(qp, requests, 0) }
}

/// Posts a list of requests on the requesting end of an extended reliable connection, all to one
/// shared receive queue.
///
/// # Safety
/// The QP is alive, and the memory that the requests name lives until they are complete.
pub unsafe fn post_send_to(qp: NonNull<ibv_qp>, requests: &[Request], srq: u32) -> Result<(), i32> {
    // SAFETY: the caller upholds the same conditions.
    unsafe { post_send_with(qp, requests, |_, wr| wr.qp_type.xrc.remote_srqn = srq) }
}

/// Posts a list of requests after `say` has set further fields of each, by its place in the list.
///
/// # Safety
/// The QP is alive. The memory that the requests name, and that `say` adds, lives until they are
/// complete.
pub unsafe fn post_send_with(
    qp: NonNull<ibv_qp>,
    requests: &[Request],
    mut say: impl FnMut(usize, &mut ibv_send_wr),
) -> Result<(), i32> {
    let mut lists: Vec<_> = requests.iter().map(|request| sges(&request.list)).collect();
    let mut chain: Vec<ibv_send_wr> = requests
        .iter()
        .zip(&mut lists)
        .map(|(request, list)| {
            // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
            // valid.
            let mut wr: ibv_send_wr = unsafe { zeroed() };
            wr.wr_id = request.id;
            wr.sg_list = list.as_mut_ptr();
            wr.num_sge = list.len() as i32;
            wr.opcode = request.opcode;
            let flag = |yes: bool, flag: ibv_send_flags| if yes { flag.0 } else { 0 };
            wr.send_flags = flag(request.inline, ibv_send_flags::IBV_SEND_INLINE)
                | flag(request.signaled, ibv_send_flags::IBV_SEND_SIGNALED)
                | flag(request.solicited, ibv_send_flags::IBV_SEND_SOLICITED)
                | flag(request.fenced, ibv_send_flags::IBV_SEND_FENCE);
            wr.imm_data_invalidated_rkey_union.imm_data = request.imm.to_be();
            let (address, rkey) = request.remote;
            match request.opcode {
                ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => {
                    wr.wr.atomic.remote_addr = address;
                    wr.wr.atomic.rkey = rkey;
                    wr.wr.atomic.compare_add = request.compare;
                    wr.wr.atomic.swap = request.swap_add;
                }
                ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                    wr.wr.atomic.remote_addr = address;
                    wr.wr.atomic.rkey = rkey;
                    wr.wr.atomic.compare_add = request.swap_add;
                }
                _ => {
                    wr.wr.rdma.remote_addr = address;
                    wr.wr.rdma.rkey = rkey;
                }
            }
            wr
        })
        .collect();
    chain.iter_mut().enumerate().for_each(|(at, wr)| say(at, wr));
    for at in 1..chain.len() {
        chain[at - 1].next = &raw mut chain[at];
    }
    let mut bad = null_mut();
    // SAFETY: the chain and its lists live through the call; the caller upholds the other
    // conditions.
    match unsafe { ibv_post_send(qp.as_ptr(), chain.as_mut_ptr(), &mut bad) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// Posts one receive.
///
/// # Safety
/// The QP is alive, and the memory stays so until the receive is complete.
pub unsafe fn post_receive(qp: NonNull<ibv_qp>, id: u64, list: &[Sge]) -> Result<(), i32> {
    let mut list = sges(list);
    // SAFETY: the structure consists of integers and pointers, so zeros are valid.
    let mut wr: ibv_recv_wr = unsafe { zeroed() };
    wr.wr_id = id;
    wr.sg_list = list.as_mut_ptr();
    wr.num_sge = list.len() as i32;
    let mut bad = null_mut();
    // SAFETY: request and list live through the call; the caller upholds the other conditions.
    match unsafe { ibv_post_recv(qp.as_ptr(), &mut wr, &mut bad) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// Posts receives to a shared receive queue, in one call.
///
/// # Safety
/// The SRQ is alive, and the memory stays so until the receives are complete.
pub unsafe fn post_shared(srq: NonNull<ibv_srq>, receives: &[(u64, Vec<Sge>)]) -> Result<(), i32> {
    let mut lists: Vec<_> = receives.iter().map(|(_, list)| sges(list)).collect();
    let mut chain: Vec<ibv_recv_wr> = receives
        .iter()
        .zip(&mut lists)
        .map(|(receive, list)| {
            // SAFETY: the structure consists of integers and pointers, so zeros are valid.
            let mut wr: ibv_recv_wr = unsafe { zeroed() };
            wr.wr_id = receive.0;
            wr.sg_list = list.as_mut_ptr();
            wr.num_sge = list.len() as i32;
            wr
        })
        .collect();
    for at in 1..chain.len() {
        chain[at - 1].next = &raw mut chain[at];
    }
    let mut bad = null_mut();
    // SAFETY: the chain and its lists live through the call; the caller upholds the other
    // conditions.
    match unsafe { ibv_post_srq_recv(srq.as_ptr(), chain.as_mut_ptr(), &mut bad) } {
        0 => Ok(()),
        errno => Err(errno),
    }
}

/// The addresses of a shared receive queue's list and record.
#[derive(Clone, Copy)]
pub struct SrqMemory {
    buffer: *const u8,
    record: *const u8,
    /// Bytes of a WQE.
    pub stride: usize,
    /// WQEs in its memory.
    pub wqes: usize,
}

impl SrqMemory {
    /// Asks libmlx5 for the addresses.
    ///
    /// # Safety
    /// The SRQ is alive, and stays so as long as the result is used.
    pub unsafe fn new(srq: NonNull<ibv_srq>) -> Self {
        let mut out = MaybeUninit::<dv::mlx5dv_srq>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        let mut attributes = MaybeUninit::<ibv_srq_attr>::zeroed();
        // SAFETY: zeros are valid in these C structures.
        unsafe {
            let object = object.assume_init_mut();
            object.srq.in_ = srq.as_ptr();
            object.srq.out = out.as_mut_ptr();
            assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_SRQ.into()), 0);
            assert_eq!(ibv_query_srq(srq.as_ptr(), attributes.as_mut_ptr()), 0);
            let wqes = attributes.assume_init().max_wr as usize + 1;
            let dv = out.assume_init();
            let (buffer, record) = (dv.buf.cast_const().cast(), dv.dbrec.cast_const().cast());
            Self { buffer, record, stride: dv.stride as usize, wqes }
        }
    }

    /// Describes a queue that was made by command. Its record is at the start of a umem, and its
    /// WQEs are on the second page.
    ///
    /// # Safety
    /// The umem stays as long as the result is used.
    pub unsafe fn placed(umem: &Umem, stride: usize, wqes: usize) -> Self {
        let record = umem.start().expect("mapped").as_ptr().cast_const();
        assert!(umem.len() >= 4096 + stride * wqes);
        // SAFETY: within the umem.
        Self { buffer: unsafe { record.add(4096) }, record, stride, wqes }
    }

    /// The WQEs' bytes.
    pub fn list(&self) -> Vec<u8> {
        read(self.buffer, self.wqes * self.stride)
    }

    /// The doorbell record.
    pub fn record(&self) -> [u8; 4] {
        read(self.record, 4).try_into().expect("4 bytes")
    }
}

/// Takes one completion.
///
/// # Safety
/// The CQ is alive and no other reader has it.
pub unsafe fn poll(cq: NonNull<ibv_cq>) -> Result<Option<ibv_wc>, i32> {
    let mut wc = MaybeUninit::<ibv_wc>::zeroed();
    // SAFETY: room for one; the caller upholds the other conditions.
    match unsafe { ibv_poll_cq(cq.as_ptr(), 1, wc.as_mut_ptr()) } {
        0 => Ok(None),
        // SAFETY: all-zero is a completion, and the library has filled it.
        1 => Ok(Some(unsafe { wc.assume_init() })),
        error => Err(error),
    }
}

/// The addresses of a QP's rings and record.
#[derive(Clone, Copy)]
pub struct QpMemory {
    /// What libmlx5 tells of the queue pair.
    pub dv: dv::mlx5dv_qp,
}

impl QpMemory {
    /// Asks libmlx5 for the addresses.
    ///
    /// # Safety
    /// The QP is alive, and stays so as long as the result is used.
    pub unsafe fn new(qp: NonNull<ibv_qp>) -> Self {
        let mut out = MaybeUninit::<dv::mlx5dv_qp>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: zeros are valid in these C structures.
        unsafe {
            let object = object.assume_init_mut();
            object.qp.in_ = qp.as_ptr();
            object.qp.out = out.as_mut_ptr();
            assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_QP.into()), 0);
            let memory = Self { dv: out.assume_init() };
            lint::begin(qp, &memory);
            memory
        }
    }

    /// Returns the send ring's bytes. Also lints all WQEs posted since the last call; whichever
    /// library wrote them, there must be no defect.
    pub fn send_ring(&self) -> Vec<u8> {
        let ring = read(self.dv.sq.buf.cast(), (self.dv.sq.wqe_cnt * self.dv.sq.stride) as usize);
        lint::go_on(self, &ring);
        ring
    }

    /// The receive ring's bytes.
    pub fn receive_ring(&self) -> Vec<u8> {
        read(self.dv.rq.buf.cast(), (self.dv.rq.wqe_cnt * self.dv.rq.stride) as usize)
    }

    /// The doorbell record.
    pub fn record(&self) -> [u8; 8] {
        read(self.dv.dbrec.cast(), 8).try_into().expect("8 bytes")
    }
}

/// The addresses of a CQ's ring and record. Reading marks the CQ as taken from libmlx5, which can
/// still poll it.
#[derive(Clone, Copy)]
pub struct CqMemory {
    /// What libmlx5 tells of the CQ.
    pub dv: dv::mlx5dv_cq,
}

impl CqMemory {
    /// Asks libmlx5 for the addresses.
    ///
    /// # Safety
    /// The CQ is alive, and stays so as long as the result is used.
    pub unsafe fn new(cq: NonNull<ibv_cq>) -> Self {
        let mut out = MaybeUninit::<dv::mlx5dv_cq>::zeroed();
        let mut object = MaybeUninit::<dv::mlx5dv_obj>::zeroed();
        // SAFETY: zeros are valid in these C structures.
        unsafe {
            let object = object.assume_init_mut();
            object.cq.in_ = cq.as_ptr();
            object.cq.out = out.as_mut_ptr();
            assert_eq!(dv::mlx5dv_init_obj(object, dv::MLX5DV_OBJ_CQ.into()), 0);
            Self { dv: out.assume_init() }
        }
    }

    /// The entry `slot`: 64 or 128 bytes.
    pub fn entry(&self, slot: usize) -> Vec<u8> {
        assert!(slot < self.dv.cqe_cnt as usize);
        let size = self.dv.cqe_size as usize;
        // SAFETY: within the ring.
        read(unsafe { self.dv.buf.cast::<u8>().add(slot * size) }, size)
    }

    /// Writes the entry `slot`, its last byte last.
    pub fn write(&self, slot: usize, bytes: &[u8]) {
        let size = self.dv.cqe_size as usize;
        assert!(slot < self.dv.cqe_cnt as usize && bytes.len() == size);
        for (at, &byte) in bytes.iter().enumerate() {
            // SAFETY: within the ring.
            unsafe { self.dv.buf.cast::<u8>().add(slot * size + at).write_volatile(byte) }
        }
    }

    /// The doorbell record.
    pub fn record(&self) -> [u8; 8] {
        read(self.dv.dbrec.cast(), 8).try_into().expect("8 bytes")
    }
}

fn read(from: *const u8, length: usize) -> Vec<u8> {
    // SAFETY: memory of a queue, as the callers have it from the library.
    (0..length).map(|at| unsafe { from.add(at).read_volatile() }).collect()
}
