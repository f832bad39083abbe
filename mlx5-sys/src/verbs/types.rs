//! The structures of `verbs.h` that have unions in them, and their unions, with the names that
//! rdma-sys gives them. C leaves most of these unions unnamed. With the feature `rdma-sys` the types
//! are those of that crate.

#![allow(non_camel_case_types)]

use libc::{c_int, c_uint, c_void};

use super::*;

/// Declares structures and unions as C lays them out.
#[cfg(not(feature = "rdma-sys"))]
macro_rules! c_types {
    ($($(#[$meta:meta])* $kind:ident $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => { $(
        $(#[$meta])*
        #[repr(C)]
        pub $kind $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }
    )* };
}

/// Takes them from rdma-sys, and compiles if each has these fields of these types there.
#[cfg(feature = "rdma-sys")]
macro_rules! c_types {
    ($($(#[$meta:meta])* $kind:ident $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        pub use rdma_sys::{$($name),*};
        $(same_fields! { $name { $($field: $type,)* } })*
    };
}

#[cfg(feature = "rdma-sys")]
macro_rules! same_fields {
    // The one difference: fields of this type are private in rdma-sys.
    (ibv_ops_wr { $($field:ident: $type:ty,)* }) => {};
    ($name:ident { $($field:ident: $type:ty,)* }) => {
        const _: unsafe fn(*const $name) = |same| {
            // SAFETY: the caller passes a valid address; no field is read.
            unsafe { $(let _: *const $type = &raw const (*same).$field;)* }
        };
    };
}

#[cfg(feature = "cm")]
pub(crate) use c_types;
#[cfg(all(feature = "cm", feature = "rdma-sys"))]
pub(crate) use same_fields;

c_types! {
    /// A GID as its two halves, each big-endian.
    #[derive(Clone, Copy)]
    struct ibv_gid_global_t {
        /// Upper half: the subnet.
        subnet_prefix: __be64,
        /// Lower half: the interface.
        interface_id: __be64,
    }

    /// `union ibv_gid`
    #[derive(Clone, Copy)]
    union ibv_gid {
        /// The 16 bytes in network order.
        raw: [u8; 16],
        /// The two halves.
        global: ibv_gid_global_t,
    }

    /// The source of an asynchronous event; `event_type` says which member is valid.
    union ibv_async_event_element_t {
        /// Events of CQs.
        cq: *mut ibv_cq,
        /// Events of QPs.
        qp: *mut ibv_qp,
        /// Events of SRQs.
        srq: *mut ibv_srq,
        /// Events of WQs.
        wq: *mut ibv_wq,
        /// Events of ports, counted from 1.
        port_num: c_int,
    }

    /// `struct ibv_async_event`
    struct ibv_async_event {
        /// The source of the event.
        element: ibv_async_event_element_t,
        /// The kind of the event.
        event_type: ibv_event_type,
    }

    /// Immediate data or a key.
    union imm_data_invalidated_rkey_union_t {
        /// Immediate data, big-endian.
        imm_data: __be32,
        /// The key that is, or was, invalidated.
        invalidated_rkey: u32,
    }

    /// `struct ibv_wc`: one completion.
    struct ibv_wc {
        /// The request's `wr_id`.
        wr_id: u64,
        /// Success or the error; if it is an error, only `wr_id`, `qp_num` and `vendor_err` count.
        status: ibv_wc_status::Type,
        /// The operation that was completed.
        opcode: ibv_wc_opcode::Type,
        /// The vendor's own code of the error.
        vendor_err: u32,
        /// Bytes received, read or written by an atomic.
        byte_len: u32,
        /// Counts by `wc_flags`.
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t,
        /// The local QP.
        qp_num: u32,
        /// UD: the sender's QP.
        src_qp: u32,
        /// `ibv_wc_flags`
        wc_flags: c_uint,
        /// Index of the P_Key; GSI only.
        pkey_index: u16,
        /// UD: the sender's LID.
        slid: u16,
        /// UD: the service level.
        sl: u8,
        /// UD: path bits of the destination LID.
        dlid_path_bits: u8,
    }

    /// `struct ibv_global_route`
    #[derive(Clone, Copy)]
    struct ibv_global_route {
        /// Destination GID.
        dgid: ibv_gid,
        /// Flow label, 20 bits.
        flow_label: u32,
        /// Index of the own GID.
        sgid_index: u8,
        /// Hop limit.
        hop_limit: u8,
        /// Traffic class.
        traffic_class: u8,
    }

    /// `struct ibv_ah_attr`: the way to a destination.
    #[derive(Clone, Copy)]
    struct ibv_ah_attr {
        /// Counts if `is_global` is not 0.
        grh: ibv_global_route,
        /// Destination LID; InfiniBand only.
        dlid: u16,
        /// Service level.
        sl: u8,
        /// Path bits of the own LID.
        src_path_bits: u8,
        /// `ibv_rate`, 0 for none.
        static_rate: u8,
        /// Whether packets carry a GRH; 1 on RoCE.
        is_global: u8,
        /// The own port, counted from 1.
        port_num: u8,
    }

    /// `struct ibv_mw_bind_info`
    #[derive(Clone, Copy)]
    struct ibv_mw_bind_info {
        /// The memory region to open a window in.
        mr: *mut ibv_mr,
        /// First address.
        addr: u64,
        /// Length in bytes.
        length: u64,
        /// `ibv_access_flags`
        mw_access_flags: c_uint,
    }

    /// Operands of RDMA reads and writes.
    #[derive(Clone, Copy)]
    struct rdma_t {
        /// Remote address.
        remote_addr: u64,
        /// Remote key.
        rkey: u32,
    }

    /// Operands of atomics.
    #[derive(Clone, Copy)]
    struct atomic_t {
        /// Remote address, a multiple of 8.
        remote_addr: u64,
        /// Value to compare with, or to add.
        compare_add: u64,
        /// Value to swap in.
        swap: u64,
        /// Remote key.
        rkey: u32,
    }

    /// Destination of sends on UD.
    #[derive(Clone, Copy)]
    struct ud_t {
        /// The way to the destination.
        ah: *mut ibv_ah,
        /// The destination's QP number.
        remote_qpn: u32,
        /// The destination's Q_Key.
        remote_qkey: u32,
    }

    /// The operands of an operation.
    union wr_t {
        /// RDMA reads and writes.
        rdma: rdma_t,
        /// Atomics.
        atomic: atomic_t,
        /// Sends on UD.
        ud: ud_t,
    }

    /// Destination of requests on XRC.
    #[derive(Clone, Copy)]
    struct xrc_t {
        /// The destination's SRQ number.
        remote_srqn: u32,
    }

    /// The destination of a request, by transport.
    union qp_type_t {
        /// XRC.
        xrc: xrc_t,
    }

    /// Operands of binds.
    #[derive(Clone, Copy)]
    struct bind_mw_t {
        /// The window.
        mw: *mut ibv_mw,
        /// Its new key.
        rkey: u32,
        /// The memory that it opens.
        bind_info: ibv_mw_bind_info,
    }

    /// Operands of TCP segmentation.
    #[derive(Clone, Copy)]
    struct tso_t {
        /// The packets' header.
        hdr: *mut c_void,
        /// Its length in bytes.
        hdr_sz: u16,
        /// Largest payload of a packet in bytes.
        mss: u16,
    }

    /// The operands of a bind or of TCP segmentation.
    union bind_mw_tso_union_t {
        /// A bind.
        bind_mw: bind_mw_t,
        /// TCP segmentation.
        tso: tso_t,
    }

    /// `struct ibv_send_wr`: one request for a send queue.
    struct ibv_send_wr {
        /// Comes back in the completion.
        wr_id: u64,
        /// The next request, or null.
        next: *mut ibv_send_wr,
        /// The local memory.
        sg_list: *mut ibv_sge,
        /// Pieces in `sg_list`.
        num_sge: c_int,
        /// The operation.
        opcode: ibv_wr_opcode::Type,
        /// `ibv_send_flags`
        send_flags: c_uint,
        /// Counts by `opcode`.
        imm_data_invalidated_rkey_union: imm_data_invalidated_rkey_union_t,
        /// Counts by `opcode`.
        wr: wr_t,
        /// Counts by the QP's transport.
        qp_type: qp_type_t,
        /// Counts by `opcode`.
        bind_mw_tso_union: bind_mw_tso_union_t,
    }

    /// A tag matching entry to append.
    #[derive(Clone, Copy)]
    struct add_t {
        /// Comes back in the completion of the receive.
        recv_wr_id: u64,
        /// The memory to receive into.
        sg_list: *mut ibv_sge,
        /// Pieces in `sg_list`.
        num_sge: c_int,
        /// Tag to match.
        tag: u64,
        /// Bits of it that count.
        mask: u64,
    }

    /// A tag matching operation.
    #[derive(Clone, Copy)]
    struct tm_t {
        /// Unexpected messages handled so far.
        unexpected_cnt: u32,
        /// The entry, written for an append, read for a removal.
        handle: u32,
        /// The entry to append.
        add: add_t,
    }

    /// `struct ibv_ops_wr`: one operation on an SRQ's tag matching list.
    struct ibv_ops_wr {
        /// Comes back in the completion.
        wr_id: u64,
        /// The next operation, or null.
        next: *mut ibv_ops_wr,
        /// The operation.
        opcode: ibv_ops_wr_opcode::Type,
        /// `ibv_ops_flags`
        flags: c_int,
        /// Its operands.
        tm: tm_t,
    }

    /// The common start of every flow specification.
    #[derive(Clone, Copy)]
    struct hdr_t {
        /// Which specification it is.
        type_: ibv_flow_spec_type::Type,
        /// Its size in bytes.
        size: u16,
    }

    /// The flow specifications.
    union ibv_flow_spec_union_t {
        /// Common start.
        hdr: hdr_t,
        /// Ethernet.
        eth: ibv_flow_spec_eth,
        /// IPv4.
        ipv4: ibv_flow_spec_ipv4,
        /// TCP or UDP.
        tcp_udp: ibv_flow_spec_tcp_udp,
        /// IPv4 with all fields.
        ipv4_ext: ibv_flow_spec_ipv4_ext,
        /// IPv6.
        ipv6: ibv_flow_spec_ipv6,
        /// ESP.
        esp: ibv_flow_spec_esp,
        /// VXLAN and its like.
        tunnel: ibv_flow_spec_tunnel,
        /// GRE.
        gre: ibv_flow_spec_gre,
        /// MPLS.
        mpls: ibv_flow_spec_mpls,
        /// Tags the packet.
        flow_tag: ibv_flow_spec_action_tag,
        /// Drops the packet.
        drop: ibv_flow_spec_action_drop,
        /// Applies an action object.
        handle: ibv_flow_spec_action_handle,
        /// Counts the packet.
        flow_count: ibv_flow_spec_counter_action,
    }

    /// `struct ibv_flow_spec`
    struct ibv_flow_spec {
        /// One of the specifications.
        ibv_flow_spec_union: ibv_flow_spec_union_t,
    }
}
