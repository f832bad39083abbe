//! The inline functions of `verbs.h`, which are in no library. Signatures are those of rdma-sys.

use core::mem::{offset_of, zeroed};
use core::ptr::null_mut;

use libc::{EINVAL, ENOSYS, EOPNOTSUPP, EPERM, c_int, c_uint, c_void};

use super::*;

/// `enum ibv_advise_mr_advice`
#[allow(non_camel_case_types)]
pub type ibv_advise_mr_advice = ib_uverbs_advise_mr_advice::Type;

/// The provider's table around `context`, or `None` of a provider older than such tables.
///
/// # Safety
/// `context` is open.
#[inline]
unsafe fn verbs_get_ctx(context: *mut ibv_context) -> Option<*mut verbs_context> {
    // SAFETY: the caller keeps the context open.
    let extended = unsafe { (*context).abi_compat }.addr() == usize::MAX;
    // libibverbs marks a context so exactly if it lies inside a verbs_context.
    extended.then(|| context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast())
}

/// `verbs_get_ctx_op`: the provider's table if it reaches to member `$member` and has it.
macro_rules! verbs_get_ctx_op {
    ($context:expr, $member:ident) => {{
        // SAFETY: the caller of the inline function keeps the object and its context open; `sz`
        // says how much of the table the provider has, counted from its end.
        unsafe {
            verbs_get_ctx($context).filter(|table| {
                (**table).sz >= size_of::<verbs_context>() - offset_of!(verbs_context, $member)
                    && (**table).$member.is_some()
            })
        }
    }};
}

/// Sets `errno`, as functions do that return a pointer.
fn fail<T>(errno: c_int) -> Option<*mut T> {
    // SAFETY: libc gives the address of this thread's errno.
    unsafe { *libc::__errno_location() = errno };
    None
}

/// Functions that call a member of their first argument.
macro_rules! calls_member {
    ($($name:ident = $member:ident ($object:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) $(-> $result:ty)?;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of `verbs.h`.")]
        ///
        /// # Safety
        /// The object was created with this function enabled, and the arguments are as `verbs.h`
        /// wants them.
        #[inline]
        pub unsafe fn $name($object: *mut $type $(, $arg: $arg_type)*) $(-> $result)? {
            // SAFETY: the caller keeps the object alive; the provider set the members that it
            // offers, and one it did not set stops here.
            unsafe { (*$object).$member.expect(stringify!($member))($object $(, $arg)*) }
        }
    )* };
}

calls_member! {
    ibv_wr_atomic_cmp_swp = wr_atomic_cmp_swp(qp: ibv_qp_ex, rkey: u32, remote_addr: u64, compare: u64, swap: u64);
    ibv_wr_atomic_fetch_add = wr_atomic_fetch_add(qp: ibv_qp_ex, rkey: u32, remote_addr: u64, add: u64);
    ibv_wr_bind_mw = wr_bind_mw(qp: ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, bind_info: *const ibv_mw_bind_info);
    ibv_wr_local_inv = wr_local_inv(qp: ibv_qp_ex, invalidate_rkey: u32);
    ibv_wr_rdma_read = wr_rdma_read(qp: ibv_qp_ex, rkey: u32, remote_addr: u64);
    ibv_wr_rdma_write = wr_rdma_write(qp: ibv_qp_ex, rkey: u32, remote_addr: u64);
    ibv_wr_rdma_write_imm = wr_rdma_write_imm(qp: ibv_qp_ex, rkey: u32, remote_addr: u64, imm_data: __be32);
    ibv_wr_send = wr_send(qp: ibv_qp_ex);
    ibv_wr_send_imm = wr_send_imm(qp: ibv_qp_ex, imm_data: __be32);
    ibv_wr_send_inv = wr_send_inv(qp: ibv_qp_ex, invalidate_rkey: u32);
    ibv_wr_send_tso = wr_send_tso(qp: ibv_qp_ex, hdr: *mut c_void, hdr_sz: u16, mss: u16);
    ibv_wr_set_ud_addr = wr_set_ud_addr(qp: ibv_qp_ex, ah: *mut ibv_ah, remote_qpn: u32, remote_qkey: u32);
    ibv_wr_set_xrc_srqn = wr_set_xrc_srqn(qp: ibv_qp_ex, remote_srqn: u32);
    ibv_wr_set_inline_data = wr_set_inline_data(qp: ibv_qp_ex, addr: *mut c_void, length: usize);
    ibv_wr_set_inline_data_list = wr_set_inline_data_list(qp: ibv_qp_ex, num_buf: usize, buf_list: *const ibv_data_buf);
    ibv_wr_set_sge = wr_set_sge(qp: ibv_qp_ex, lkey: u32, addr: u64, length: u32);
    ibv_wr_set_sge_list = wr_set_sge_list(qp: ibv_qp_ex, num_sge: usize, sg_list: *const ibv_sge);
    ibv_wr_start = wr_start(qp: ibv_qp_ex);
    ibv_wr_complete = wr_complete(qp: ibv_qp_ex) -> c_int;
    ibv_wr_abort = wr_abort(qp: ibv_qp_ex);

    ibv_start_poll = start_poll(cq: ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int;
    ibv_next_poll = next_poll(cq: ibv_cq_ex) -> c_int;
    ibv_end_poll = end_poll(cq: ibv_cq_ex);
    ibv_wc_read_opcode = read_opcode(cq: ibv_cq_ex) -> ibv_wc_opcode::Type;
    ibv_wc_read_vendor_err = read_vendor_err(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_byte_len = read_byte_len(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_imm_data = read_imm_data(cq: ibv_cq_ex) -> __be32;
    ibv_wc_read_invalidated_rkey = read_imm_data(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_qp_num = read_qp_num(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_src_qp = read_src_qp(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_wc_flags = read_wc_flags(cq: ibv_cq_ex) -> c_uint;
    ibv_wc_read_slid = read_slid(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_sl = read_sl(cq: ibv_cq_ex) -> u8;
    ibv_wc_read_dlid_path_bits = read_dlid_path_bits(cq: ibv_cq_ex) -> u8;
    ibv_wc_read_completion_ts = read_completion_ts(cq: ibv_cq_ex) -> u64;
    ibv_wc_read_completion_wallclock_ns = read_completion_wallclock_ns(cq: ibv_cq_ex) -> u64;
    ibv_wc_read_cvlan = read_cvlan(cq: ibv_cq_ex) -> u16;
    ibv_wc_read_flow_tag = read_flow_tag(cq: ibv_cq_ex) -> u32;
    ibv_wc_read_tm_info = read_tm_info(cq: ibv_cq_ex, tm_info: *mut ibv_wc_tm_info);

    ibv_post_wq_recv = post_recv(wq: ibv_wq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) -> c_int;
    ibv_memcpy_to_dm = memcpy_to_dm(dm: ibv_dm, dm_offset: u64, host_addr: *const c_void, length: usize) -> c_int;
}

/// `ibv_memcpy_from_dm` of `verbs.h`.
///
/// # Safety
/// `dm` is alive and `host_addr` writable for `length` bytes.
#[inline]
pub unsafe fn ibv_memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the caller keeps `dm` alive; every provider with device memory sets this member.
    unsafe { (*dm).memcpy_from_dm.expect("memcpy_from_dm")(host_addr, dm, dm_offset, length) }
}

/// Functions that call one of the operations every provider has, through their object's context.
macro_rules! calls_context {
    ($($name:ident ($object:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) = $member:ident;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of `verbs.h`; returns what the provider returns.")]
        ///
        /// # Safety
        /// The object is alive, and the arguments are as `verbs.h` wants them.
        #[inline]
        pub unsafe fn $name($object: *mut $type $(, $arg: $arg_type)*) -> c_int {
            // SAFETY: the caller keeps the object alive and with it its context.
            unsafe {
                (*(*$object).context).ops.$member.expect(stringify!($member))($object $(, $arg)*)
            }
        }
    )* };
}

calls_context! {
    ibv_poll_cq(cq: ibv_cq, num_entries: i32, wc: *mut ibv_wc) = poll_cq;
    ibv_req_notify_cq(cq: ibv_cq, solicited_only: i32) = req_notify_cq;
    ibv_post_srq_recv(srq: ibv_srq, recv_wr: *mut ibv_recv_wr, bad_recv_wr: *mut *mut ibv_recv_wr) = post_srq_recv;
    ibv_post_send(qp: ibv_qp, wr: *mut ibv_send_wr, bad_wr: *mut *mut ibv_send_wr) = post_send;
    ibv_post_recv(qp: ibv_qp, wr: *mut ibv_recv_wr, bad_wr: *mut *mut ibv_recv_wr) = post_recv;
    ibv_dealloc_mw(mw: ibv_mw) = dealloc_mw;
}

/// Functions that call an extended operation and return 0 or an `errno`.
macro_rules! returns_errno {
    ($($name:ident ($object:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) = $member:ident, $context:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of `verbs.h`; `EOPNOTSUPP` if the provider lacks it.")]
        ///
        /// # Safety
        /// The object is alive, and the arguments are as `verbs.h` wants them.
        #[inline]
        pub unsafe fn $name($object: *mut $type $(, $arg: $arg_type)*) -> c_int {
            // SAFETY: the caller keeps the object alive, and with it its context.
            #[allow(unused_unsafe, reason = "some of the objects are contexts themselves")]
            let context: *mut ibv_context = unsafe { $context };
            match verbs_get_ctx_op!(context, $member) {
                // SAFETY: the table was found with this member set.
                Some(table) => unsafe {
                    (*table).$member.expect(stringify!($member))($object $(, $arg)*)
                },
                None => EOPNOTSUPP,
            }
        }
    )* };
}

returns_errno! {
    ibv_destroy_flow(flow_id: ibv_flow) = ibv_destroy_flow, (*flow_id).context;
    ibv_modify_flow_action_esp(action: ibv_flow_action, esp: *mut ibv_flow_action_esp_attr) = modify_flow_action_esp, (*action).context;
    ibv_destroy_flow_action(action: ibv_flow_action) = destroy_flow_action, (*action).context;
    ibv_close_xrcd(xrcd: ibv_xrcd) = close_xrcd, (*xrcd).context;
    ibv_advise_mr(pd: ibv_pd, advice: ibv_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge, num_sge: u32) = advise_mr, (*pd).context;
    ibv_free_dm(dm: ibv_dm) = free_dm, (*dm).context;
    ibv_modify_cq(cq: ibv_cq, attr: *mut ibv_modify_cq_attr) = modify_cq, (*cq).context;
    ibv_get_srq_num(srq: ibv_srq, srq_num: *mut u32) = get_srq_num, (*srq).context;
    ibv_dealloc_td(td: ibv_td) = dealloc_td, (*td).context;
    ibv_query_rt_values_ex(context: ibv_context, values: *mut ibv_values_ex) = query_rt_values, context;
    ibv_modify_qp_rate_limit(qp: ibv_qp, attr: *mut ibv_qp_rate_limit_attr) = modify_qp_rate_limit, (*qp).context;
    ibv_modify_wq(wq: ibv_wq, wq_attr: *mut ibv_wq_attr) = modify_wq, (*wq).context;
    ibv_destroy_wq(wq: ibv_wq) = destroy_wq, (*wq).context;
    ibv_destroy_rwq_ind_table(rwq_ind_table: ibv_rwq_ind_table) = destroy_rwq_ind_table, (*rwq_ind_table).context;
    ibv_destroy_counters(counters: ibv_counters) = destroy_counters, (*counters).context;
    ibv_attach_counters_point_flow(counters: ibv_counters, attr: *mut ibv_counter_attach_attr, flow: *mut ibv_flow) = attach_counters_point_flow, (*counters).context;
    ibv_read_counters(counters: ibv_counters, counters_value: *mut u64, ncounters: u32, flags: u32) = read_counters, (*counters).context;
}

/// Functions that call an extended operation and return a pointer.
macro_rules! returns_pointer {
    ($($name:ident ($object:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) -> $result:ty = $member:ident, $context:expr;)*) => { $(
        #[doc = concat!("`", stringify!($name), "` of `verbs.h`.")]
        ///
        /// `None`, and `errno` is `EOPNOTSUPP`, if the provider lacks it; null, and `errno` is the
        /// provider's, if it fails.
        ///
        /// # Safety
        /// The object is alive, and the arguments are as `verbs.h` wants them.
        #[inline]
        pub unsafe fn $name($object: *mut $type $(, $arg: $arg_type)*) -> Option<*mut $result> {
            // SAFETY: the caller keeps the object alive, and with it its context.
            #[allow(unused_unsafe, reason = "some of the objects are contexts themselves")]
            let context: *mut ibv_context = unsafe { $context };
            match verbs_get_ctx_op!(context, $member) {
                // SAFETY: the table was found with this member set.
                Some(table) => Some(unsafe {
                    (*table).$member.expect(stringify!($member))($object $(, $arg)*)
                }),
                None => fail(EOPNOTSUPP),
            }
        }
    )* };
}

returns_pointer! {
    ibv_create_flow(qp: ibv_qp, flow: *mut ibv_flow_attr) -> ibv_flow = ibv_create_flow, (*qp).context;
    ibv_create_flow_action_esp(ctx: ibv_context, esp: *mut ibv_flow_action_esp_attr) -> ibv_flow_action = create_flow_action_esp, ctx;
    ibv_open_xrcd(context: ibv_context, xrcd_init_attr: *mut ibv_xrcd_init_attr) -> ibv_xrcd = open_xrcd, context;
    ibv_alloc_dm(context: ibv_context, attr: *mut ibv_alloc_dm_attr) -> ibv_dm = alloc_dm, context;
    ibv_alloc_null_mr(pd: ibv_pd) -> ibv_mr = alloc_null_mr, (*pd).context;
    ibv_reg_dm_mr(pd: ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: u32) -> ibv_mr = reg_dm_mr, (*pd).context;
    ibv_create_cq_ex(context: ibv_context, cq_attr: *mut ibv_cq_init_attr_ex) -> ibv_cq_ex = create_cq_ex, context;
    ibv_alloc_td(context: ibv_context, init_attr: *mut ibv_td_init_attr) -> ibv_td = alloc_td, context;
    ibv_alloc_parent_domain(context: ibv_context, attr: *mut ibv_parent_domain_init_attr) -> ibv_pd = alloc_parent_domain, context;
    ibv_open_qp(context: ibv_context, qp_open_attr: *mut ibv_qp_open_attr) -> ibv_qp = open_qp, context;
    ibv_create_rwq_ind_table(context: ibv_context, init_attr: *mut ibv_rwq_ind_table_init_attr) -> ibv_rwq_ind_table = create_rwq_ind_table, context;
    ibv_create_counters(context: ibv_context, init_attr: *mut ibv_counters_init_attr) -> ibv_counters = create_counters, context;
}

/// The basic CQ that every extended CQ starts with.
///
/// # Safety
/// None; the pointer is not followed.
#[inline]
pub unsafe fn ibv_cq_ex_to_cq(cq: *mut ibv_cq_ex) -> *mut ibv_cq {
    cq.cast()
}

/// `ibv_get_device_list`, under the name that a static build has for it.
///
/// # Safety
/// `num_devices` is null or writable.
#[inline]
pub unsafe fn __ibv_get_device_list(num_devices: *mut c_int) -> *mut *mut ibv_device {
    // SAFETY: the caller's contract is the library's.
    unsafe { ibv_get_device_list(num_devices) }
}

/// `ibv_query_port` of C: fills all of `port_attr`. Returns 0 or an `errno`.
///
/// # Safety
/// `context` is open, `port_attr` is writable.
#[inline]
pub unsafe fn ___ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    match verbs_get_ctx_op!(context, query_port) {
        // SAFETY: the table was found with this member set; the size is that of the type.
        Some(table) => unsafe {
            let query_port = (*table).query_port.expect("query_port");
            query_port(context, port_num, port_attr, size_of::<ibv_port_attr>())
        },
        // SAFETY: the old call fills a prefix of the structure; zero is valid for the rest.
        None => unsafe {
            port_attr.write(zeroed());
            ibv_query_port(context, port_num, port_attr.cast())
        },
    }
}

/// Whether `access` has bits that only the newer call of the kernel takes, and masks if need be.
fn has_optional_access(access: c_uint) -> bool {
    access & ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0 != 0
}

/// `ibv_reg_mr` of C. `is_access_const` not 0 allows the older kernel call where `access` does not
/// need the newer.
///
/// # Safety
/// - `pd` is alive.
/// - `length` bytes at `addr` stay mapped until the region is deregistered, and the caller accepts
///   what the HCA writes there under `access`.
#[inline]
pub unsafe fn __ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_uint,
    is_access_const: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract is the library's.
    unsafe {
        if is_access_const != 0 && !has_optional_access(access) {
            ibv_reg_mr(pd, addr, length, access as c_int)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, addr as u64, access)
        }
    }
}

/// `ibv_reg_mr_iova` of C; see [`__ibv_reg_mr`].
///
/// # Safety
/// - `pd` is alive.
/// - `length` bytes at `addr` stay mapped until the region is deregistered, and the caller accepts
///   what the HCA writes there under `access`. `iova` is the address that WQEs and peers use for
///   `addr`.
#[inline]
pub unsafe fn __ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
    is_access_const: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller's contract is the library's.
    unsafe {
        if is_access_const != 0 && !has_optional_access(access) {
            ibv_reg_mr_iova(pd, addr, length, iova, access as c_int)
        } else {
            ibv_reg_mr_iova2(pd, addr, length, iova, access)
        }
    }
}

/// `ibv_alloc_mw` of `verbs.h`. `None`, and `errno` is `EOPNOTSUPP`, if the provider lacks it.
///
/// # Safety
/// `pd` is alive.
#[inline]
pub unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, type_: ibv_mw_type::Type) -> Option<*mut ibv_mw> {
    // SAFETY: the caller keeps `pd` alive and with it its context.
    match unsafe { (*(*pd).context).ops.alloc_mw } {
        // SAFETY: the caller keeps `pd` alive, which is all that `alloc_mw` asks for.
        Some(alloc_mw) => Some(unsafe { alloc_mw(pd, type_) }),
        None => fail(EOPNOTSUPP),
    }
}

/// The key with its variable part, the lowest 8 bits, one higher.
///
/// # Safety
/// None.
#[inline]
pub unsafe fn ibv_inc_rkey(rkey: u32) -> u32 {
    rkey & !0xff | rkey.wrapping_add(1) & 0xff
}

/// Binds a type 1 window. Returns 0 or an `errno`.
///
/// # Safety
/// All three are alive.
#[inline]
pub unsafe fn ibv_bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the caller keeps all three alive.
    unsafe {
        let info = &(*mw_bind).bind_info;
        let range = info.addr != 0 || info.length != 0;
        if (*mw).type_ != ibv_mw_type::IBV_MW_TYPE_1 || info.mr.is_null() && range {
            return EINVAL;
        }
        if !info.mr.is_null() && (*mw).pd != (*info.mr).pd {
            return EPERM;
        }
        (*(*mw).context).ops.bind_mw.expect("bind_mw")(qp, mw, mw_bind)
    }
}

/// `ibv_create_srq_ex` of `verbs.h`: a plain SRQ through the plain call, all else extended.
///
/// # Safety
/// `context` is open, `srq_init_attr_ex` is valid and names live objects.
#[inline]
pub unsafe fn ibv_create_srq_ex(
    context: *mut ibv_context,
    srq_init_attr_ex: *mut ibv_srq_init_attr_ex,
) -> Option<*mut ibv_srq> {
    // SAFETY: the caller gives valid attributes.
    let (mask, kind) = unsafe { ((*srq_init_attr_ex).comp_mask, (*srq_init_attr_ex).srq_type) };
    let pd = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD.0;
    let typed = ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE.0;
    let plain = mask == pd || mask == pd | typed && kind == ibv_srq_type::IBV_SRQT_BASIC;
    if plain {
        // SAFETY: the caller's contract is the library's; extended attributes start with plain
        // ones.
        return Some(unsafe { ibv_create_srq((*srq_init_attr_ex).pd, srq_init_attr_ex.cast()) });
    }
    let Some(table) = verbs_get_ctx_op!(context, create_srq_ex) else {
        return fail(EOPNOTSUPP);
    };
    // SAFETY: the table was found with this member set.
    Some(unsafe { (*table).create_srq_ex.expect("create_srq_ex")(context, srq_init_attr_ex) })
}

/// `ibv_post_srq_ops` of `verbs.h`. Returns 0 or an `errno`.
///
/// # Safety
/// `srq` is alive, `op` is a list of valid operations, `bad_op` is writable.
#[inline]
pub unsafe fn ibv_post_srq_ops(
    srq: *mut ibv_srq,
    op: *mut ibv_ops_wr,
    bad_op: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the caller keeps the SRQ alive.
    let context = unsafe { (*srq).context };
    match verbs_get_ctx_op!(context, post_srq_ops) {
        // SAFETY: the table was found with this member set.
        Some(table) => unsafe { (*table).post_srq_ops.expect("post_srq_ops")(srq, op, bad_op) },
        None => {
            // SAFETY: the caller gives a writable place.
            unsafe { *bad_op = op };
            EOPNOTSUPP
        }
    }
}

/// `ibv_create_qp_ex` of `verbs.h`: a plain QP through the plain call, all else extended.
///
/// # Safety
/// `context` is open, `qp_init_attr_ex` is valid and names live objects.
#[inline]
pub unsafe fn ibv_create_qp_ex(
    context: *mut ibv_context,
    qp_init_attr_ex: *mut ibv_qp_init_attr_ex,
) -> Option<*mut ibv_qp> {
    // SAFETY: the caller gives valid attributes.
    let mask = unsafe { (*qp_init_attr_ex).comp_mask };
    if mask == ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD.0 {
        // SAFETY: the caller's contract is the library's; extended attributes start with plain
        // ones.
        return Some(unsafe { ibv_create_qp((*qp_init_attr_ex).pd, qp_init_attr_ex.cast()) });
    }
    let Some(table) = verbs_get_ctx_op!(context, create_qp_ex) else {
        return fail(EOPNOTSUPP);
    };
    // SAFETY: the table was found with this member set.
    Some(unsafe { (*table).create_qp_ex.expect("create_qp_ex")(context, qp_init_attr_ex) })
}

/// `ibv_query_device_ex` of `verbs.h`. Returns 0 or an `errno`; what an old kernel does not tell is
/// zero.
///
/// # Safety
/// `context` is open, `input` is null or valid, `attr` is writable.
#[inline]
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller gives null or valid input.
    if !input.is_null() && unsafe { (*input).comp_mask } != 0 {
        return EINVAL;
    }
    if let Some(table) = verbs_get_ctx_op!(context, query_device_ex) {
        // SAFETY: the table was found with this member set; the size is that of the type.
        let result = unsafe {
            let query = (*table).query_device_ex.expect("query_device_ex");
            query(context, input, attr, size_of::<ibv_device_attr_ex>())
        };
        if result != EOPNOTSUPP && result != ENOSYS {
            return result;
        }
    }
    // SAFETY: `attr` is writable, and zero is valid for all of it.
    unsafe {
        attr.write(zeroed());
        ibv_query_device(context, &raw mut (*attr).orig_attr)
    }
}

/// `ibv_create_wq` of `verbs.h`. `None`, and `errno` is `EOPNOTSUPP`, if the provider lacks it.
///
/// # Safety
/// `context` is open, `wq_init_attr` is valid and names live objects.
#[inline]
pub unsafe fn ibv_create_wq(
    context: *mut ibv_context,
    wq_init_attr: *mut ibv_wq_init_attr,
) -> Option<*mut ibv_wq> {
    let Some(table) = verbs_get_ctx_op!(context, create_wq) else {
        return fail(EOPNOTSUPP);
    };
    // SAFETY: the table was found with this member set. A WQ that is not null is new and has no
    // other user, and libibverbs expects these members to be set here.
    unsafe {
        let wq = (*table).create_wq.expect("create_wq")(context, wq_init_attr);
        if !wq.is_null() {
            (*wq).wq_context = (*wq_init_attr).wq_context;
            (*wq).events_completed = 0;
            libc::pthread_mutex_init(&raw mut (*wq).mutex, null_mut());
            libc::pthread_cond_init(&raw mut (*wq).cond, null_mut());
        }
        Some(wq)
    }
}

/// 1 if `caps`, a set of bits by QP type, has `qpt`, else 0.
///
/// # Safety
/// None.
#[inline]
pub unsafe fn ibv_is_qpt_supported(caps: u32, qpt: ibv_qp_type::Type) -> c_int {
    c_int::from(caps & 1 << qpt != 0)
}
