//! The structures that are written by hand, against the header. With rdma-sys these are its own,
//! which it does not check.

#[allow(
    dead_code,
    non_camel_case_types,
    non_snake_case,
    unknown_lints,
    unnecessary_transmutes,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod header {
    #[allow(unused_imports)]
    use crate::verbs::*;

    include!(concat!(env!("OUT_DIR"), "/verbs_check.rs"));
}

/// `name { field = path in the header's view; … }`: same size and alignment, same offsets.
macro_rules! same_layout {
    ($($name:ident { $($($field:ident).+ = $($path:ident).+;)* })*) => { $(
        const _: () = {
            assert!(size_of::<crate::verbs::$name>() == size_of::<header::$name>());
            assert!(align_of::<crate::verbs::$name>() == align_of::<header::$name>());
            $(assert!(
                core::mem::offset_of!(crate::verbs::$name, $($field).+)
                    == core::mem::offset_of!(header::$name, $($path).+)
            );)*
        };
    )* };
}

same_layout! {
    ibv_gid { raw = raw; global = global; }
    ibv_async_event { element = element; event_type = event_type; }
    ibv_global_route {
        dgid = dgid;
        flow_label = flow_label;
        sgid_index = sgid_index;
        hop_limit = hop_limit;
        traffic_class = traffic_class;
    }
    ibv_ah_attr {
        grh = grh;
        dlid = dlid;
        sl = sl;
        src_path_bits = src_path_bits;
        static_rate = static_rate;
        is_global = is_global;
        port_num = port_num;
    }
    ibv_mw_bind_info {
        mr = mr;
        addr = addr;
        length = length;
        mw_access_flags = mw_access_flags;
    }
    ibv_wc {
        wr_id = wr_id;
        status = status;
        opcode = opcode;
        vendor_err = vendor_err;
        byte_len = byte_len;
        imm_data_invalidated_rkey_union = __bindgen_anon_1;
        qp_num = qp_num;
        src_qp = src_qp;
        wc_flags = wc_flags;
        pkey_index = pkey_index;
        slid = slid;
        sl = sl;
        dlid_path_bits = dlid_path_bits;
    }
    ibv_send_wr {
        wr_id = wr_id;
        next = next;
        sg_list = sg_list;
        num_sge = num_sge;
        opcode = opcode;
        send_flags = send_flags;
        imm_data_invalidated_rkey_union = __bindgen_anon_1;
        wr = wr;
        qp_type = qp_type;
        bind_mw_tso_union = __bindgen_anon_2;
    }
    ibv_ops_wr {}
    ibv_flow_spec {}
}

/// The same for the unnamed structures inside, whose names differ.
macro_rules! same_parts {
    ($($name:ident = $part:ident { $($field:ident),* })*) => { $(
        const _: () = {
            assert!(size_of::<crate::verbs::$name>() == size_of::<header::$part>());
            $(assert!(
                core::mem::offset_of!(crate::verbs::$name, $field)
                    == core::mem::offset_of!(header::$part, $field)
            );)*
        };
    )* };
}

same_parts! {
    rdma_t = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey }
    atomic_t = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey }
    ud_t = ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey }
    bind_mw_t = ibv_send_wr__bindgen_ty_4__bindgen_ty_1 { mw, rkey, bind_info }
    tso_t = ibv_send_wr__bindgen_ty_4__bindgen_ty_2 { hdr, hdr_sz, mss }
    tm_t = ibv_ops_wr__bindgen_ty_1 { unexpected_cnt, handle, add }
    add_t = ibv_ops_wr__bindgen_ty_1__bindgen_ty_1 { recv_wr_id, sg_list, num_sge, tag, mask }
}
