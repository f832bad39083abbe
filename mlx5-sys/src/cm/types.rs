//! The structures of `rdma_cma.h` that have unions in them, and their unions, with the names that
//! rdma-sys gives them. With the feature `rdma-sys` the types are those of that crate.

#![allow(non_camel_case_types)]

use libc::{c_int, c_void, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

use super::{rdma_cm_event_type, rdma_cm_id, rdma_conn_param};
use crate::verbs::types::c_types;
#[cfg(feature = "rdma-sys")]
use crate::verbs::types::same_fields;
use crate::verbs::{__be16, ibv_ah_attr, ibv_gid};

c_types! {
    /// `struct rdma_ib_addr`: the GIDs of both sides, and their partition.
    #[derive(Clone, Copy)]
    struct rdma_ib_addr {
        /// The own GID.
        sgid: ibv_gid,
        /// The peer's GID.
        dgid: ibv_gid,
        /// The P_Key, big-endian.
        pkey: __be16,
    }

    /// The own IP address; its family says which member is valid.
    union src_addr_union_t {
        /// The family.
        src_addr: sockaddr,
        /// IPv4.
        src_sin: sockaddr_in,
        /// IPv6.
        src_sin6: sockaddr_in6,
        /// Any.
        src_storage: sockaddr_storage,
    }

    /// The peer's IP address; its family says which member is valid.
    union dst_addr_union_t {
        /// The family.
        dst_addr: sockaddr,
        /// IPv4.
        dst_sin: sockaddr_in,
        /// IPv6.
        dst_sin6: sockaddr_in6,
        /// Any.
        dst_storage: sockaddr_storage,
    }

    /// The addresses below IP.
    union addr_union_t {
        /// The GIDs.
        ibaddr: rdma_ib_addr,
    }

    /// `struct rdma_addr`: the addresses of both sides.
    struct rdma_addr {
        /// The own IP address.
        src_addr_union: src_addr_union_t,
        /// The peer's IP address.
        dst_addr_union: dst_addr_union_t,
        /// The addresses below IP.
        addr: addr_union_t,
    }

    /// `struct rdma_ud_param`: a datagram service or a multicast group.
    #[derive(Clone, Copy)]
    struct rdma_ud_param {
        /// The peer's private data. In events of multicast groups: the program's context.
        private_data: *const c_void,
        /// Bytes of private data.
        private_data_len: u8,
        /// The address.
        ah_attr: ibv_ah_attr,
        /// The queue pair number.
        qp_num: u32,
        /// The Q_Key.
        qkey: u32,
    }

    /// The data of an event. The service of the identifier decides which member is valid.
    union param_t {
        /// For a connection.
        conn: rdma_conn_param,
        /// For a datagram service or a multicast group.
        ud: rdma_ud_param,
    }

    /// `struct rdma_cm_event`
    struct rdma_cm_event {
        /// The identifier; for a request a new one.
        id: *mut rdma_cm_id,
        /// For a request, the identifier that listens.
        listen_id: *mut rdma_cm_id,
        /// The kind of the event.
        event: rdma_cm_event_type::Type,
        /// An errno, or the reason of a rejection.
        status: c_int,
        /// Its data.
        param: param_t,
    }
}
