//! The C interface of the crate [`mlx5`]: `libmlx5direct`, whose header is `include/mlx5.h`.
//!
//! A program makes its queue pairs and completion queues by libibverbs. It takes their queues over, and
//! posts, polls and arms by this library. The header states the contract of each function; `docs/c.md`
//! shows a program.
//!
//! The modules, lowest first:
//!
//! | module | is for |
//! |---|---|
//! | `status` | `enum mlx5_status` with its texts |
//! | `error` | the detail of a failure; panics become failures |
//! | `claims` | what this process has taken over |
//! | `objects` | what libibverbs and libmlx5 tell of objects |
//! | `address` | `struct mlx5_address` |
//! | `request` | `struct mlx5_request`, `struct mlx5_receive` |
//! | `payload` | payloads of requests |
//! | `operation` | the operations of each transport |
//! | `completion` | `struct mlx5_completion` |
//! | `wait` | completion channels |
//! | `group` | a completion queue and its queues |
//! | `cq` | the calls of `struct mlx5_cq` |
//! | `sq` | the calls of `struct mlx5_sq` |
//! | `batch` | those of its batches |
//! | `prepared` | those of its prepared requests |
//! | `rq` | the calls of `struct mlx5_rq` |
//! | `srq` | the calls of `struct mlx5_srq` |
//! | `packets` | the calls of `struct mlx5_packets` |
//! | `times` | times that requests wait for |

mod address;
mod batch;
mod claims;
mod completion;
mod cq;
mod error;
mod group;
mod objects;
mod operation;
mod packets;
mod payload;
mod prepared;
mod request;
mod rq;
mod sq;
mod srq;
mod status;
mod times;
mod wait;

pub use address::{Address, mlx5_address_init, mlx5_address_init_dc, mlx5_address_init_xrc};
pub use batch::{mlx5_sq_append, mlx5_sq_begin, mlx5_sq_discard, mlx5_sq_ring};
pub use completion::{COMPLETION_GRH, COMPLETION_SOLICITED, Completion, mlx5_completion_text};
pub use cq::{
    CQ_UNPOLLED, mlx5_cq_abandon, mlx5_cq_arm, mlx5_cq_event_taken, mlx5_cq_fd, mlx5_cq_give_back,
    mlx5_cq_ibv, mlx5_cq_poll, mlx5_cq_take, mlx5_cq_wait,
};
pub use error::mlx5_last_error;
pub use group::Cq;
pub use packets::{
    PACKET_IP_OK, PACKET_IPV4, PACKET_IPV6, PACKET_L4_OK, PACKET_LAST, PACKET_TCP, PACKET_UDP,
    PACKET_VLAN, Packet, Packets, mlx5_packets_abandon, mlx5_packets_arm, mlx5_packets_capacity,
    mlx5_packets_event_taken, mlx5_packets_fd, mlx5_packets_ibv, mlx5_packets_poll,
    mlx5_packets_post, mlx5_packets_take, mlx5_packets_take_striding, mlx5_packets_wait,
};
pub use prepared::{mlx5_sq_cancel, mlx5_sq_fire, mlx5_sq_prepare, mlx5_sq_prepared, mlx5_sq_warm};
pub use request::{
    CHECKSUMS, Change, FENCED, INLINE, INLINE_HEADER, INTERLEAVED, LIST_IN_MEMORY, Operation,
    Receive, Request, SIGNALED, SOLICITED, TYPE_2, VLAN, ZERO_BASED,
};
pub use rq::{
    Rq, mlx5_rq_abandon, mlx5_rq_capacity, mlx5_rq_give_back, mlx5_rq_ibv, mlx5_rq_post,
    mlx5_rq_take,
};
pub use sq::{
    SQ_OWN_REGISTER, Sq, mlx5_sq_abandon, mlx5_sq_capacity, mlx5_sq_give_back, mlx5_sq_ibv,
    mlx5_sq_post, mlx5_sq_recover, mlx5_sq_take,
};
pub use srq::{
    Srq, mlx5_srq_abandon, mlx5_srq_attach, mlx5_srq_capacity, mlx5_srq_detach, mlx5_srq_ibv,
    mlx5_srq_post, mlx5_srq_reclaimed, mlx5_srq_take, mlx5_srq_take_xrc,
};
pub use status::{Status, mlx5_status_text};
pub use times::mlx5_time_mask;

/// The version as one number: 10000 × major + 100 × minor + patch.
pub const VERSION: u32 = 10_000 * number(env!("CARGO_PKG_VERSION_MAJOR"))
    + 100 * number(env!("CARGO_PKG_VERSION_MINOR"))
    + number(env!("CARGO_PKG_VERSION_PATCH"));

/// Returns the value of decimal digits.
const fn number(digits: &str) -> u32 {
    let (digits, mut at, mut value) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        value = value * 10 + (digits[at] - b'0') as u32;
        at += 1;
    }
    value
}

/// Returns the version of the library that is loaded, as `MLX5_VERSION` is that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn mlx5_version() -> u32 {
    VERSION
}
