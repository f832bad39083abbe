//! The verbs bindings have one shape, whether rdma-sys makes them or this crate: the types written
//! out below are what the driver counts on. Run with and without the feature `rdma-sys`.

use std::mem::zeroed;
use std::os::raw::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use mlx5_sys::dv;
use mlx5_sys::verbs::*;

/// Each function coerces to the type written beside it, or this does not compile.
macro_rules! functions {
    ($($name:ident: ($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Inline functions of the header.
        #[test]
        fn inline_functions_have_the_signatures_of_rdma_sys() {
            $(let _: unsafe fn($($arg),*) $(-> $result)? = $name;)*
        }
    };
    (extern $($name:ident: ($($arg:ty),*) $(-> $result:ty)?;)*) => {
        /// Functions of the library; the addresses prove that it is linked.
        #[test]
        fn library_functions_are_linked_and_have_their_signatures() {
            $(
                let function: unsafe extern "C" fn($($arg),*) $(-> $result)? = $name;
                assert_ne!(function as usize, 0);
            )*
        }
    };
}

functions! { extern
    ibv_get_device_list: (*mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list: (*mut *mut ibv_device);
    ibv_get_device_name: (*mut ibv_device) -> *const c_char;
    ibv_get_device_index: (*mut ibv_device) -> c_int;
    ibv_open_device: (*mut ibv_device) -> *mut ibv_context;
    ibv_close_device: (*mut ibv_context) -> c_int;
    ibv_query_device: (*mut ibv_context, *mut ibv_device_attr) -> c_int;
    ibv_query_gid: (*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int;
    ibv_query_pkey: (*mut ibv_context, u8, c_int, *mut u16) -> c_int;
    ibv_alloc_pd: (*mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd: (*mut ibv_pd) -> c_int;
    ibv_reg_mr: (*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
    ibv_reg_mr_iova2: (*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
    ibv_dereg_mr: (*mut ibv_mr) -> c_int;
    ibv_create_comp_channel: (*mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel: (*mut ibv_comp_channel) -> c_int;
    ibv_create_cq: (*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
    ibv_resize_cq: (*mut ibv_cq, c_int) -> c_int;
    ibv_destroy_cq: (*mut ibv_cq) -> c_int;
    ibv_get_cq_event: (*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
    ibv_ack_cq_events: (*mut ibv_cq, c_uint);
    ibv_get_async_event: (*mut ibv_context, *mut ibv_async_event) -> c_int;
    ibv_ack_async_event: (*mut ibv_async_event);
    ibv_event_type_str: (ibv_event_type) -> *const c_char;
    ibv_create_srq: (*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq;
    ibv_modify_srq: (*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int;
    ibv_query_srq: (*mut ibv_srq, *mut ibv_srq_attr) -> c_int;
    ibv_destroy_srq: (*mut ibv_srq) -> c_int;
    ibv_create_qp: (*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp: (*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
    ibv_query_qp: (*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int;
    ibv_destroy_qp: (*mut ibv_qp) -> c_int;
    ibv_qp_to_qp_ex: (*mut ibv_qp) -> *mut ibv_qp_ex;
    ibv_create_ah: (*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah: (*mut ibv_ah) -> c_int;
    ibv_fork_init: () -> c_int;
}

mod inline {
    use super::*;

    functions! {
        ___ibv_query_port: (*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        ibv_query_gid_ex: (*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32) -> c_int;
        ibv_query_gid_table: (*mut ibv_context, *mut ibv_gid_entry, usize, u32) -> isize;
        ibv_query_device_ex: (*mut ibv_context, *const ibv_query_device_ex_input, *mut ibv_device_attr_ex) -> c_int;
        __ibv_reg_mr: (*mut ibv_pd, *mut c_void, usize, c_uint, c_int) -> *mut ibv_mr;
        ibv_create_cq_ex: (*mut ibv_context, *mut ibv_cq_init_attr_ex) -> Option<*mut ibv_cq_ex>;
        ibv_create_qp_ex: (*mut ibv_context, *mut ibv_qp_init_attr_ex) -> Option<*mut ibv_qp>;
        ibv_create_srq_ex: (*mut ibv_context, *mut ibv_srq_init_attr_ex) -> Option<*mut ibv_srq>;
        ibv_open_xrcd: (*mut ibv_context, *mut ibv_xrcd_init_attr) -> Option<*mut ibv_xrcd>;
        ibv_alloc_dm: (*mut ibv_context, *mut ibv_alloc_dm_attr) -> Option<*mut ibv_dm>;
        ibv_alloc_mw: (*mut ibv_pd, ibv_mw_type::Type) -> Option<*mut ibv_mw>;
        ibv_bind_mw: (*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int;
        ibv_poll_cq: (*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
        ibv_req_notify_cq: (*mut ibv_cq, c_int) -> c_int;
        ibv_post_send: (*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
        ibv_post_recv: (*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
        ibv_post_srq_recv: (*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
        ibv_wr_start: (*mut ibv_qp_ex);
        ibv_wr_rdma_write: (*mut ibv_qp_ex, u32, u64);
        ibv_wr_set_sge: (*mut ibv_qp_ex, u32, u64, u32);
        ibv_wr_set_inline_data: (*mut ibv_qp_ex, *mut c_void, usize);
        ibv_wr_complete: (*mut ibv_qp_ex) -> c_int;
        ibv_start_poll: (*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int;
        ibv_next_poll: (*mut ibv_cq_ex) -> c_int;
        ibv_end_poll: (*mut ibv_cq_ex);
        ibv_wc_read_opcode: (*mut ibv_cq_ex) -> ibv_wc_opcode::Type;
        ibv_cq_ex_to_cq: (*mut ibv_cq_ex) -> *mut ibv_cq;
    }
}

#[test]
fn enums_unions_and_structures_have_the_shape_of_rdma_sys() {
    let state: c_uint = ibv_qp_state::IBV_QPS_RTS;
    let _: ibv_qp_state::Type = state;
    let access: ibv_access_flags =
        ibv_access_flags::IBV_ACCESS_LOCAL_WRITE | ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    assert_eq!(access.0, 1 | 4);
    assert_eq!(format!("{access:?}"), "ibv_access_flags(5)");
    assert_eq!(format!("{:?}", ibv_event_type::IBV_EVENT_QP_FATAL), "IBV_EVENT_QP_FATAL");
    assert_eq!((ibv_qp_attr_mask::IBV_QP_STATE | ibv_qp_attr_mask::IBV_QP_PORT).0, 1 | 32);
    assert_eq!(ibv_send_flags::IBV_SEND_SIGNALED.0, 2);
    assert_eq!(ibv_mtu::IBV_MTU_4096, 5);
    assert_eq!(ibv_wc_status::IBV_WC_WR_FLUSH_ERR, 5);
    assert_eq!(ibv_qp_type::IBV_QPT_RC, 2);
    assert_eq!(IBV_GID_TYPE_ROCE_V2, 2);
    assert_eq!([IBV_LINK_LAYER_INFINIBAND, IBV_LINK_LAYER_ETHERNET], [1u8, 2]);
    assert_eq!(IBV_QPF_GRH_REQUIRED, 1u8);

    let mut sge = ibv_sge { addr: 1, length: 2, lkey: 3 };
    let mut wr = ibv_send_wr {
        wr_id: 7,
        next: null_mut(),
        sg_list: &mut sge,
        num_sge: 1,
        opcode: ibv_wr_opcode::IBV_WR_RDMA_WRITE,
        send_flags: ibv_send_flags::IBV_SEND_INLINE.0,
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t { imm_data: 9 },
        wr: wr_t { rdma: rdma_t { remote_addr: 4, rkey: 5 } },
        qp_type: qp_type_t { xrc: xrc_t { remote_srqn: 6 } },
        bind_mw_tso_union: bind_mw_tso_union_t {
            tso: tso_t { hdr: null_mut(), hdr_sz: 0, mss: 0 },
        },
    };
    wr.wr.atomic = atomic_t { remote_addr: 4, compare_add: 1, swap: 2, rkey: 5 };
    wr.wr.ud = ud_t { ah: null_mut(), remote_qpn: 10, remote_qkey: 11 };
    // SAFETY: these members were written last; all their bytes are initialized.
    unsafe {
        assert_eq!((wr.wr.ud.remote_qpn, wr.wr.ud.remote_qkey), (10, 11));
        assert_eq!(wr.imm_data_invalidated_rkey_union.invalidated_rkey, 9);
    }

    let gid = ibv_gid { raw: [1; 16] };
    let ah = ibv_ah_attr {
        grh: ibv_global_route {
            dgid: gid,
            flow_label: 1,
            sgid_index: 2,
            hop_limit: 3,
            traffic_class: 4,
        },
        dlid: 5,
        sl: 6,
        src_path_bits: 7,
        static_rate: 8,
        is_global: 1,
        port_num: 1,
    };
    // SAFETY: all of `raw` was written, and the halves cover it.
    assert_eq!(unsafe { ah.grh.dgid.global.interface_id }, u64::from_ne_bytes([1; 8]));

    // SAFETY: zero is valid for every member: integers, and null pointers.
    let mut attr: ibv_qp_attr = unsafe { zeroed() };
    attr.qp_state = ibv_qp_state::IBV_QPS_RTR;
    attr.path_mtu = ibv_mtu::IBV_MTU_1024;
    attr.ah_attr = ah;
    attr.cap = ibv_qp_cap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    assert_eq!(attr.ah_attr.grh.traffic_class, 4);
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: the test points `cq_context` to its own counter and gives one writable entry.
    unsafe {
        *(*cq).cq_context.cast::<c_int>() += num_entries;
        (*wc).wr_id = 77;
    }
    1
}

unsafe extern "C" fn query_port(
    _: *mut ibv_context,
    port_num: u8,
    attr: *mut ibv_port_attr,
    size: usize,
) -> c_int {
    // SAFETY: the test gives a writable structure of this type.
    unsafe { (*attr).lid = u16::from(port_num) };
    assert_eq!(size, size_of::<ibv_port_attr>());
    0
}

unsafe extern "C" fn open_qp(_: *mut ibv_context, _: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    null_mut()
}

#[test]
fn basic_operations_go_through_the_context() {
    let mut polled: c_int = 0;
    // SAFETY: zero is valid for every member: integers, null pointers, absent functions.
    let (mut context, mut cq, mut wc): (ibv_context, ibv_cq, ibv_wc) =
        unsafe { (zeroed(), zeroed(), zeroed()) };
    context.ops.poll_cq = Some(poll_cq);
    cq.context = &mut context;
    cq.cq_context = (&raw mut polled).cast();
    // SAFETY: the CQ, its context and one entry are alive.
    assert_eq!(unsafe { ibv_poll_cq(&mut cq, 1, &mut wc) }, 1);
    assert_eq!((polled, wc.wr_id), (1, 77));
}

#[test]
fn extended_operations_need_an_extended_context_that_has_them() {
    // SAFETY: zero is valid for every member: integers, null pointers, absent functions.
    let (mut table, mut port): (verbs_context, ibv_port_attr) = unsafe { (zeroed(), zeroed()) };
    table.query_port = Some(query_port);
    table.open_qp = Some(open_qp);
    table.sz = size_of::<verbs_context>();
    table.context.abi_compat = null_mut::<c_void>().wrapping_byte_sub(1);
    // From the whole table, because the functions step back from the context to it.
    let table = &raw mut table;

    // SAFETY: the context lies in a table that is alive to the end of the test, and every call
    // either finds its function set or refuses; the attributes are not followed.
    unsafe {
        let context = &raw mut (*table).context;
        assert_eq!(___ibv_query_port(context, 3, &mut port), 0);
        assert_eq!(port.lid, 3);
        assert_eq!(ibv_open_qp(context, null_mut()), Some(null_mut()));

        *libc::__errno_location() = 0;
        assert_eq!(ibv_open_xrcd(context, null_mut()), None, "the provider has no such function");
        assert_eq!(*libc::__errno_location(), libc::EOPNOTSUPP);

        // A provider whose table ends after `open_qp`, counted from the end of the structure.
        (*table).sz = size_of::<verbs_context>() - std::mem::offset_of!(verbs_context, open_qp);
        assert_eq!(ibv_open_qp(context, null_mut()), Some(null_mut()));
        (*table).sz -= 1;
        assert_eq!(ibv_open_qp(context, null_mut()), None, "the table does not reach so far");

        (*table).sz = size_of::<verbs_context>();
        (*table).context.abi_compat = null_mut();
        assert_eq!(ibv_open_qp(context, null_mut()), None, "the context is not extended");
    }
}

#[test]
fn a_window_is_bound_only_within_its_own_pd() {
    // SAFETY: zero is valid for every member: integers, null pointers.
    let (mut mw, mut mr, mut bind): (ibv_mw, ibv_mr, ibv_mw_bind) =
        unsafe { (zeroed(), zeroed(), zeroed()) };
    let refuse = |mw: &mut ibv_mw, bind: &mut ibv_mw_bind| {
        // SAFETY: window and request are alive, and no refused request reaches the QP.
        unsafe { ibv_bind_mw(null_mut(), mw, bind) }
    };
    mw.type_ = ibv_mw_type::IBV_MW_TYPE_2;
    assert_eq!(refuse(&mut mw, &mut bind), libc::EINVAL);
    mw.type_ = ibv_mw_type::IBV_MW_TYPE_1;
    bind.bind_info.length = 1;
    assert_eq!(refuse(&mut mw, &mut bind), libc::EINVAL);
    mr.pd = null_mut::<ibv_pd>().wrapping_byte_add(8);
    bind.bind_info.mr = &mut mr;
    assert_eq!(refuse(&mut mw, &mut bind), libc::EPERM);
}

#[test]
fn both_libraries_answer() {
    // SAFETY: the function takes any value and returns a static string.
    let text =
        unsafe { std::ffi::CStr::from_ptr(ibv_wc_status_str(ibv_wc_status::IBV_WC_SUCCESS)) };
    assert_eq!(text.to_str(), Ok("success"));
    let mut object = dv::mlx5dv_obj::default();
    // SAFETY: with no object type asked for, libmlx5 looks at no member.
    assert_eq!(unsafe { dv::mlx5dv_init_obj(&mut object, 0) }, libc::EINVAL);
    // The object's types are those of verbs.
    object.qp.in_ = null_mut::<ibv_qp>();
    assert!(object.qp.out.is_null());
    assert_eq!(u64::from(dv::MLX5DV_OBJ_QP | dv::MLX5DV_OBJ_CQ), 3);
}
