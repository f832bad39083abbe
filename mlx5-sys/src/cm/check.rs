//! The structures that are written by hand, against the header, as those of `verbs` are.

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
    use crate::cm::*;
    use crate::verbs::*;
    use libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

    include!(concat!(env!("OUT_DIR"), "/cm_check.rs"));
}

/// Same size and alignment, same offsets. Fields: name here = name in the header's view.
macro_rules! same_layout {
    ($($name:ident { $($field:ident = $path:ident;)* })*) => { $(
        const _: () = {
            assert!(size_of::<crate::cm::$name>() == size_of::<header::$name>());
            assert!(align_of::<crate::cm::$name>() == align_of::<header::$name>());
            $(assert!(
                core::mem::offset_of!(crate::cm::$name, $field)
                    == core::mem::offset_of!(header::$name, $path)
            );)*
        };
    )* };
}

same_layout! {
    rdma_ib_addr { sgid = sgid; dgid = dgid; pkey = pkey; }
    rdma_addr { src_addr_union = __bindgen_anon_1; dst_addr_union = __bindgen_anon_2; addr = addr; }
    rdma_ud_param {
        private_data = private_data;
        private_data_len = private_data_len;
        ah_attr = ah_attr;
        qp_num = qp_num;
        qkey = qkey;
    }
    rdma_cm_event {
        id = id;
        listen_id = listen_id;
        event = event;
        status = status;
        param = param;
    }
}
