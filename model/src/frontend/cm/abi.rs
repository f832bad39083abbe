//! Structures of the interface (`rdma/rdma_user_cm.h`), byte for byte and in host order.

#![allow(missing_docs)]

use crate::management::message;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! structures {
    ($($name:ident $size:literal { $($field:ident: $type:ty,)* })*) => {$(
        #[repr(C)]
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        pub(super) struct $name {
            $(pub $field: $type,)*
        }
        const _: () = assert!(size_of::<$name>() == $size);
        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    )*};
}

/// `RDMA_MAX_PRIVATE_DATA`
pub(super) const PRIVATE: usize = 256;
/// Bytes of `struct __kernel_sockaddr_storage`.
pub(super) const STORAGE: usize = 128;
/// Bytes of `struct sockaddr_in6`.
pub(super) const SOCKADDR6: usize = 28;

structures! {
    Header 8 {
        command: u32, input: u16, output: u16,
    }
    CreateId 24 {
        uid: u64, response: u64, ps: u16, qp_type: u8, reserved: [u8; 5],
    }
    DestroyId 16 {
        response: u64, id: u32, reserved: u32,
    }
    BindIp 40 {
        response: u64, addr: [u8; SOCKADDR6], id: u32,
    }
    Bind 136 {
        id: u32, addr_size: u16, reserved: u16, addr: [u8; STORAGE],
    }
    ResolveIp 64 {
        src_addr: [u8; SOCKADDR6], dst_addr: [u8; SOCKADDR6], id: u32, timeout_ms: u32,
    }
    ResolveAddr 272 {
        id: u32, timeout_ms: u32, src_size: u16, dst_size: u16, reserved: u32,
        src_addr: [u8; STORAGE], dst_addr: [u8; STORAGE],
    }
    ResolveRoute 8 {
        id: u32, timeout_ms: u32,
    }
    Query 16 {
        response: u64, id: u32, option: u32,
    }
    PathRec 64 {
        dgid: [u8; 16], sgid: [u8; 16], dlid: u16, slid: u16, raw_traffic: u32, flow_label: u32,
        reversible: u32, mtu: u32, pkey: u16, hop_limit: u8, traffic_class: u8, numb_path: u8,
        sl: u8, mtu_selector: u8, rate_selector: u8, rate: u8, packet_life_time_selector: u8,
        packet_life_time: u8, preference: u8,
    }
    QueryRouteReply 200 {
        node_guid: u64, route: [PathRec; 2], src_addr: [u8; SOCKADDR6],
        dst_addr: [u8; SOCKADDR6], num_paths: u32, port_num: u8, reserved: [u8; 3],
    }
    QueryAddrReply 272 {
        node_guid: u64, port_num: u8, reserved: u8, pkey: u16, src_size: u16, dst_size: u16,
        src_addr: [u8; STORAGE], dst_addr: [u8; STORAGE],
    }
    PathData 72 {
        flags: u32, reserved: u32, record: [u8; 64],
    }
    ConnParam 272 {
        qp_num: u32, qkey: u32, private_data: [u8; PRIVATE], private_data_len: u8, srq: u8,
        responder_resources: u8, initiator_depth: u8, flow_control: u8, retry_count: u8,
        rnr_retry_count: u8, valid: u8,
    }
    AhAttr 32 {
        dgid: [u8; 16], flow_label: u32, sgid_index: u8, hop_limit: u8, traffic_class: u8,
        reserved1: u8, dlid: u16, sl: u8, src_path_bits: u8, static_rate: u8, is_global: u8,
        port_num: u8, reserved2: u8,
    }
    UdParam 304 {
        qp_num: u32, qkey: u32, ah_attr: AhAttr, private_data: [u8; PRIVATE],
        private_data_len: u8, reserved: [u8; 7],
    }
    Ece 8 {
        vendor_id: u32, attr_mod: u32,
    }
    Connect 288 {
        conn_param: ConnParam, id: u32, reserved: u32, ece: Ece,
    }
    Listen 8 {
        id: u32, backlog: u32,
    }
    Accept 296 {
        uid: u64, conn_param: ConnParam, id: u32, reserved: u32, ece: Ece,
    }
    Reject 264 {
        id: u32, private_data_len: u8, reason: u8, reserved: [u8; 2], private_data: [u8; PRIVATE],
    }
    Disconnect 4 {
        id: u32,
    }
    InitQpAttr 16 {
        response: u64, id: u32, qp_state: u32,
    }
    QpAttr 144 {
        qp_attr_mask: u32, qp_state: u32, cur_qp_state: u32, path_mtu: u32, path_mig_state: u32,
        qkey: u32, rq_psn: u32, sq_psn: u32, dest_qp_num: u32, qp_access_flags: u32,
        ah_attr: AhAttr, alt_ah_attr: AhAttr, max_send_wr: u32, max_recv_wr: u32,
        max_send_sge: u32, max_recv_sge: u32, max_inline_data: u32, pkey_index: u16,
        alt_pkey_index: u16, en_sqd_async_notify: u8, sq_draining: u8, max_rd_atomic: u8,
        max_dest_rd_atomic: u8, min_rnr_timer: u8, port_num: u8, timeout: u8, retry_cnt: u8,
        rnr_retry: u8, alt_port_num: u8, alt_timeout: u8, reserved: [u8; 5],
    }
    Notify 8 {
        id: u32, event: u32,
    }
    JoinIp 48 {
        response: u64, uid: u64, addr: [u8; SOCKADDR6], id: u32,
    }
    Join 152 {
        response: u64, uid: u64, id: u32, addr_size: u16, join_flags: u16, addr: [u8; STORAGE],
    }
    GetEvent 8 {
        response: u64,
    }
    EventReply 336 {
        uid: u64, id: u32, event: u32, status: u32, param: [u8; 304], reserved: u32,
        ece: Ece,
    }
    SetOption 24 {
        optval: u64, id: u32, level: u32, optname: u32, optlen: u32,
    }
    MigrateId 16 {
        response: u64, id: u32, fd: u32,
    }
    ResolveService 88 {
        id: u32, reserved: u32, service_id: u64, name: [u8; 64], flags: u32, reserved2: u32,
    }
    WriteEvent 24 {
        id: u32, reserved: u32, event: u32, status: u32, argument: u64,
    }
}

impl From<Ece> for message::Ece {
    fn from(Ece { vendor_id, attr_mod }: Ece) -> Self {
        // The link has 24 bits.
        Self { vendor: vendor_id & 0xff_ffff, options: attr_mod }
    }
}

impl From<message::Ece> for Ece {
    fn from(message::Ece { vendor, options }: message::Ece) -> Self {
        Self { vendor_id: vendor, attr_mod: options }
    }
}

/// Numbers of commands (`RDMA_USER_CM_CMD_*`).
pub(super) mod command {
    pub const CREATE_ID: u32 = 0;
    pub const DESTROY_ID: u32 = 1;
    pub const BIND_IP: u32 = 2;
    pub const RESOLVE_IP: u32 = 3;
    pub const RESOLVE_ROUTE: u32 = 4;
    pub const QUERY_ROUTE: u32 = 5;
    pub const CONNECT: u32 = 6;
    pub const LISTEN: u32 = 7;
    pub const ACCEPT: u32 = 8;
    pub const REJECT: u32 = 9;
    pub const DISCONNECT: u32 = 10;
    pub const INIT_QP_ATTR: u32 = 11;
    pub const GET_EVENT: u32 = 12;
    pub const GET_OPTION: u32 = 13;
    pub const SET_OPTION: u32 = 14;
    pub const NOTIFY: u32 = 15;
    pub const JOIN_IP_MCAST: u32 = 16;
    pub const LEAVE_MCAST: u32 = 17;
    pub const MIGRATE_ID: u32 = 18;
    pub const QUERY: u32 = 19;
    pub const BIND: u32 = 20;
    pub const RESOLVE_ADDR: u32 = 21;
    pub const JOIN_MCAST: u32 = 22;
    pub const RESOLVE_IB_SERVICE: u32 = 23;
    pub const WRITE_CM_EVENT: u32 = 24;
}

/// Numbers of events (`enum rdma_cm_event_type`).
pub(super) mod event {
    pub const ADDR_RESOLVED: u32 = 0;
    pub const ADDR_ERROR: u32 = 1;
    pub const ROUTE_RESOLVED: u32 = 2;
    pub const CONNECT_REQUEST: u32 = 4;
    pub const CONNECT_RESPONSE: u32 = 5;
    pub const UNREACHABLE: u32 = 7;
    pub const REJECTED: u32 = 8;
    pub const ESTABLISHED: u32 = 9;
    pub const DISCONNECTED: u32 = 10;
    pub const MULTICAST_JOIN: u32 = 12;
    pub const MULTICAST_ERROR: u32 = 13;
    pub const TIMEWAIT_EXIT: u32 = 15;
    pub const ADDRINFO_ERROR: u32 = 17;
    pub const USER: u32 = 18;
    pub const INTERNAL: u32 = 19;
}

/// Types of queue pairs (`enum ib_qp_type`).
pub(super) mod qp_type {
    pub const RC: u8 = 2;
    pub const UC: u8 = 3;
    pub const UD: u8 = 4;
    pub const XRC_INI: u8 = 9;
    pub const XRC_TGT: u8 = 10;
}
