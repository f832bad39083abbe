// Written by `cargo xtask bindings --write`, from the headers of rdma-core 44.

#[repr(C)]
pub struct ibv_sa_path_rec {
    pub dgid: ibv_gid,
    pub sgid: ibv_gid,
    pub dlid: __be16,
    pub slid: __be16,
    pub raw_traffic: libc::c_int,
    pub flow_label: __be32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: libc::c_int,
    pub numb_path: u8,
    pub pkey: __be16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}
pub mod rdma_cm_event_type {
    #[allow(unused_imports)]
    use super::*;
    pub type Type = libc::c_uint;
    pub const RDMA_CM_EVENT_ADDR_RESOLVED: Type = 0;
    pub const RDMA_CM_EVENT_ADDR_ERROR: Type = 1;
    pub const RDMA_CM_EVENT_ROUTE_RESOLVED: Type = 2;
    pub const RDMA_CM_EVENT_ROUTE_ERROR: Type = 3;
    pub const RDMA_CM_EVENT_CONNECT_REQUEST: Type = 4;
    pub const RDMA_CM_EVENT_CONNECT_RESPONSE: Type = 5;
    pub const RDMA_CM_EVENT_CONNECT_ERROR: Type = 6;
    pub const RDMA_CM_EVENT_UNREACHABLE: Type = 7;
    pub const RDMA_CM_EVENT_REJECTED: Type = 8;
    pub const RDMA_CM_EVENT_ESTABLISHED: Type = 9;
    pub const RDMA_CM_EVENT_DISCONNECTED: Type = 10;
    pub const RDMA_CM_EVENT_DEVICE_REMOVAL: Type = 11;
    pub const RDMA_CM_EVENT_MULTICAST_JOIN: Type = 12;
    pub const RDMA_CM_EVENT_MULTICAST_ERROR: Type = 13;
    pub const RDMA_CM_EVENT_ADDR_CHANGE: Type = 14;
    pub const RDMA_CM_EVENT_TIMEWAIT_EXIT: Type = 15;
}
pub mod rdma_port_space {
    #[allow(unused_imports)]
    use super::*;
    pub type Type = libc::c_uint;
    pub const RDMA_PS_IPOIB: Type = 2;
    pub const RDMA_PS_TCP: Type = 262;
    pub const RDMA_PS_UDP: Type = 273;
    pub const RDMA_PS_IB: Type = 319;
}
#[repr(C)]
pub struct rdma_route {
    pub addr: rdma_addr,
    pub path_rec: *mut ibv_sa_path_rec,
    pub num_paths: libc::c_int,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_event_channel {
    pub fd: libc::c_int,
}
#[repr(C)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut libc::c_void,
    pub qp: *mut ibv_qp,
    pub route: rdma_route,
    pub ps: rdma_port_space::Type,
    pub port_num: u8,
    pub event: *mut rdma_cm_event,
    pub send_cq_channel: *mut ibv_comp_channel,
    pub send_cq: *mut ibv_cq,
    pub recv_cq_channel: *mut ibv_comp_channel,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub pd: *mut ibv_pd,
    pub qp_type: ibv_qp_type::Type,
}
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_conn_param {
    pub private_data: *const libc::c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}
#[repr(C)]
pub struct rdma_addrinfo {
    pub ai_flags: libc::c_int,
    pub ai_family: libc::c_int,
    pub ai_qp_type: libc::c_int,
    pub ai_port_space: libc::c_int,
    pub ai_src_len: socklen_t,
    pub ai_dst_len: socklen_t,
    pub ai_src_addr: *mut sockaddr,
    pub ai_dst_addr: *mut sockaddr,
    pub ai_src_canonname: *mut libc::c_char,
    pub ai_dst_canonname: *mut libc::c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut libc::c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut libc::c_void,
    pub ai_next: *mut rdma_addrinfo,
}
impl rdma_cm_join_mc_attr_mask {
    pub const RDMA_CM_JOIN_MC_ATTR_ADDRESS: rdma_cm_join_mc_attr_mask =
        rdma_cm_join_mc_attr_mask(1);
    pub const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: rdma_cm_join_mc_attr_mask =
        rdma_cm_join_mc_attr_mask(2);
    pub const RDMA_CM_JOIN_MC_ATTR_RESERVED: rdma_cm_join_mc_attr_mask =
        rdma_cm_join_mc_attr_mask(4);
}
impl ::core::ops::BitOr<rdma_cm_join_mc_attr_mask> for rdma_cm_join_mc_attr_mask {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        rdma_cm_join_mc_attr_mask(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for rdma_cm_join_mc_attr_mask {
    #[inline]
    fn bitor_assign(&mut self, rhs: rdma_cm_join_mc_attr_mask) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<rdma_cm_join_mc_attr_mask> for rdma_cm_join_mc_attr_mask {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        rdma_cm_join_mc_attr_mask(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for rdma_cm_join_mc_attr_mask {
    #[inline]
    fn bitand_assign(&mut self, rhs: rdma_cm_join_mc_attr_mask) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
#[derive(Copy, Clone, Hash, PartialEq, Eq, Debug)]
pub struct rdma_cm_join_mc_attr_mask(pub libc::c_uint);
impl rdma_cm_mc_join_flags {
    pub const RDMA_MC_JOIN_FLAG_FULLMEMBER: rdma_cm_mc_join_flags = rdma_cm_mc_join_flags(0);
    pub const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: rdma_cm_mc_join_flags =
        rdma_cm_mc_join_flags(1);
    pub const RDMA_MC_JOIN_FLAG_RESERVED: rdma_cm_mc_join_flags = rdma_cm_mc_join_flags(2);
}
impl ::core::ops::BitOr<rdma_cm_mc_join_flags> for rdma_cm_mc_join_flags {
    type Output = Self;
    #[inline]
    fn bitor(self, other: Self) -> Self {
        rdma_cm_mc_join_flags(self.0 | other.0)
    }
}
impl ::core::ops::BitOrAssign for rdma_cm_mc_join_flags {
    #[inline]
    fn bitor_assign(&mut self, rhs: rdma_cm_mc_join_flags) {
        self.0 |= rhs.0;
    }
}
impl ::core::ops::BitAnd<rdma_cm_mc_join_flags> for rdma_cm_mc_join_flags {
    type Output = Self;
    #[inline]
    fn bitand(self, other: Self) -> Self {
        rdma_cm_mc_join_flags(self.0 & other.0)
    }
}
impl ::core::ops::BitAndAssign for rdma_cm_mc_join_flags {
    #[inline]
    fn bitand_assign(&mut self, rhs: rdma_cm_mc_join_flags) {
        self.0 &= rhs.0;
    }
}
#[repr(transparent)]
#[derive(Copy, Clone, Hash, PartialEq, Eq, Debug)]
pub struct rdma_cm_mc_join_flags(pub libc::c_uint);
#[repr(C)]
#[derive(Copy, Clone)]
pub struct rdma_cm_join_mc_attr_ex {
    pub comp_mask: u32,
    pub join_flags: u32,
    pub addr: *mut sockaddr,
}

crate::load::functions! {
    Cm;
    "RDMACM_1.0" fn rdma_create_event_channel() -> *mut rdma_event_channel;
    "RDMACM_1.0" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    "RDMACM_1.0" fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut libc::c_void, ps: rdma_port_space::Type) -> libc::c_int;
    "RDMACM_1.0" fn rdma_create_ep(id: *mut *mut rdma_cm_id, res: *mut rdma_addrinfo, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> libc::c_int;
    "RDMACM_1.0" fn rdma_destroy_ep(id: *mut rdma_cm_id);
    "RDMACM_1.0" fn rdma_destroy_id(id: *mut rdma_cm_id) -> libc::c_int;
    "RDMACM_1.0" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> libc::c_int;
    "RDMACM_1.0" fn rdma_resolve_addr(id: *mut rdma_cm_id, src_addr: *mut sockaddr, dst_addr: *mut sockaddr, timeout_ms: libc::c_int) -> libc::c_int;
    "RDMACM_1.0" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: libc::c_int) -> libc::c_int;
    "RDMACM_1.0" fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, qp_init_attr: *mut ibv_qp_init_attr) -> libc::c_int;
    "RDMACM_1.0" fn rdma_create_qp_ex(id: *mut rdma_cm_id, qp_init_attr: *mut ibv_qp_init_attr_ex) -> libc::c_int;
    "RDMACM_1.0" fn rdma_destroy_qp(id: *mut rdma_cm_id);
    "RDMACM_1.0" fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> libc::c_int;
    "RDMACM_1.2" fn rdma_establish(id: *mut rdma_cm_id) -> libc::c_int;
    "RDMACM_1.0" fn rdma_listen(id: *mut rdma_cm_id, backlog: libc::c_int) -> libc::c_int;
    "RDMACM_1.0" fn rdma_get_request(listen: *mut rdma_cm_id, id: *mut *mut rdma_cm_id) -> libc::c_int;
    "RDMACM_1.0" fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> libc::c_int;
    "RDMACM_1.0" fn rdma_reject(id: *mut rdma_cm_id, private_data: *const libc::c_void, private_data_len: u8) -> libc::c_int;
    "RDMACM_1.3" fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const libc::c_void, private_data_len: u8) -> libc::c_int;
    "RDMACM_1.0" fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> libc::c_int;
    "RDMACM_1.0" fn rdma_disconnect(id: *mut rdma_cm_id) -> libc::c_int;
    "RDMACM_1.0" fn rdma_join_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr, context: *mut libc::c_void) -> libc::c_int;
    "RDMACM_1.0" fn rdma_leave_multicast(id: *mut rdma_cm_id, addr: *mut sockaddr) -> libc::c_int;
    "RDMACM_1.1" fn rdma_join_multicast_ex(id: *mut rdma_cm_id, mc_join_attr: *mut rdma_cm_join_mc_attr_ex, context: *mut libc::c_void) -> libc::c_int;
    "RDMACM_1.0" fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> libc::c_int;
    "RDMACM_1.0" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> libc::c_int;
    "RDMACM_1.0" fn rdma_get_src_port(id: *mut rdma_cm_id) -> __be16;
    "RDMACM_1.0" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> __be16;
    "RDMACM_1.0" fn rdma_get_devices(num_devices: *mut libc::c_int) -> *mut *mut ibv_context;
    "RDMACM_1.0" fn rdma_free_devices(list: *mut *mut ibv_context);
    "RDMACM_1.0" fn rdma_event_str(event: rdma_cm_event_type::Type) -> *const libc::c_char;
    "RDMACM_1.0" fn rdma_set_option(id: *mut rdma_cm_id, level: libc::c_int, optname: libc::c_int, optval: *mut libc::c_void, optlen: usize) -> libc::c_int;
    "RDMACM_1.0" fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> libc::c_int;
    "RDMACM_1.0" fn rdma_getaddrinfo(node: *const libc::c_char, service: *const libc::c_char, hints: *const rdma_addrinfo, res: *mut *mut rdma_addrinfo) -> libc::c_int;
    "RDMACM_1.0" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo);
    "RDMACM_1.2" fn rdma_init_qp_attr(id: *mut rdma_cm_id, qp_attr: *mut ibv_qp_attr, qp_attr_mask: *mut libc::c_int) -> libc::c_int;
    "RDMACM_1.3" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> libc::c_int;
    "RDMACM_1.3" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> libc::c_int;
}
