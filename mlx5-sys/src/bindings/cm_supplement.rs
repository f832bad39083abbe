// Written by `cargo xtask bindings --write`, from the headers of rdma-core 44.

pub const RDMA_UDP_QKEY: u32 = 19088743;
pub const RDMA_MAX_RESP_RES: libc::c_uint = 255;
pub const RDMA_MAX_INIT_DEPTH: libc::c_uint = 255;
pub const RDMA_OPTION_ID: libc::c_uint = 0;
pub const RDMA_OPTION_IB: libc::c_uint = 1;
pub const RDMA_OPTION_ID_TOS: libc::c_uint = 0;
pub const RDMA_OPTION_ID_REUSEADDR: libc::c_uint = 1;
pub const RDMA_OPTION_ID_AFONLY: libc::c_uint = 2;
pub const RDMA_OPTION_ID_ACK_TIMEOUT: libc::c_uint = 3;
pub const RDMA_OPTION_IB_PATH: libc::c_uint = 1;
