//! The twin that libmlx5 posts to, by each of its interfaces.

use std::ptr::null_mut;

use mlx5::ib::Access;
use mlx5::verbs::{MemoryRegion, Mkey};
use mlx5_sys::dv;
use mlx5_sys::verbs::*;

use super::{Layout, Request, Side, What};
use rig::random::Random;

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
pub(super) fn by_post_send(side: &mut Side, region: &MemoryRegion, requests: &[Request]) {
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
    let sge = region.sge(0, 16).unwrap();
    let mut list = ibv_sge { addr: sge.addr, length: sge.length, lkey: sge.lkey };
    let mut chain = Vec::new();
    for request in requests {
        // SAFETY: the structure consists of integers, pointers and unions of them, so zeros are
        // valid.
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
pub(super) fn by_builders(
    side: &mut Side,
    region: &MemoryRegion,
    requests: &[Request],
    random: &mut Random,
) {
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
/// The functions of `mlx5dv.h` may be called on `direct`: its queue pair is alive, between
/// `ibv_wr_start` and `ibv_wr_complete`, and its `wr_id` and `wr_flags` are set.
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
    // SAFETY: the caller upholds the same conditions.
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
