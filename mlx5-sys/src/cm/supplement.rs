//! Constants of `rdma_cma.h` that rdma-sys lacks.

use libc::c_int;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    rustdoc::all
)]
mod generated {
    #[cfg(feature = "bindgen")]
    include!(concat!(env!("OUT_DIR"), "/cm_supplement.rs"));
    #[cfg(not(feature = "bindgen"))]
    include!("../bindings/cm_supplement.rs");
}

macro_rules! constants {
    ($($(#[$meta:meta])* $name:ident: $type:ty;)*) => { $(
        $(#[$meta])*
        pub const $name: $type = {
            assert!(generated::$name as u64 <= <$type>::MAX as u64);
            generated::$name as $type
        };
    )* };
}

constants! {
    /// `responder_resources`: as many as the device has, and the peer asks for.
    RDMA_MAX_RESP_RES: u8;
    /// `initiator_depth`: as many as the device has, and the peer offers.
    RDMA_MAX_INIT_DEPTH: u8;
    /// Level of `rdma_set_option`: the identifier.
    RDMA_OPTION_ID: c_int;
    /// Level of `rdma_set_option`: InfiniBand.
    RDMA_OPTION_IB: c_int;
    /// Type of service (RFC 2474): `uint8_t`.
    RDMA_OPTION_ID_TOS: c_int;
    /// Like `SO_REUSEADDR`: `int`.
    RDMA_OPTION_ID_REUSEADDR: c_int;
    /// Like `IPV6_V6ONLY`: `int`.
    RDMA_OPTION_ID_AFONLY: c_int;
    /// The code of the local ACK timeout: `uint8_t`.
    RDMA_OPTION_ID_ACK_TIMEOUT: c_int;
    /// A path that the program has resolved itself: `struct ibv_path_data[]`.
    RDMA_OPTION_IB_PATH: c_int;
    /// The Q_Key of datagram queue pairs and multicast groups of librdmacm.
    RDMA_UDP_QKEY: u32;
}
