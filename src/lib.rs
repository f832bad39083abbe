//! A driver for the data path of NVIDIA ConnectX HCAs, in user space.
//!
//! libibverbs creates the queues and connects them. From then on the program posts and polls
//! without it: this crate writes WQEs into the send queue, rings the doorbell and reads CQEs. That
//! path has no lock, no allocation and no system call.
//!
//! It is for RDMA programs that count instructions, and for RDMA programs whose mistakes the
//! compiler should find. It needs Linux with libibverbs, and a ConnectX that libmlx5 drives. Tests
//! and first steps need no device: the repository has a software ConnectX, which a program links in
//! and which runs inside the process.
//!
//! # Example
//!
//! A client that sends a message and waits for the answer. A TCP connection tells each side where
//! the other one is.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use mlx5::prelude::*;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open_first()?;
//! let unconnected = Endpoint::builder(&context).receives(1, 4096).build()?;
//! let mut connection = Connection::connect("192.0.2.1:7471", Duration::from_secs(10))?;
//! let theirs = connection.exchange(&unconnected.connection_data())?;
//! let mut endpoint = unconnected.connect(&theirs)?;
//! connection.barrier(1)?;
//!
//! endpoint.post(2, SendMessage::new(Inline(b"hello")).signaled())?;
//! loop {
//!     for returned in endpoint.poll() {
//!         let returned = returned?;
//!         match returned.outcome {
//!             Outcome::Received(done) => {
//!                 println!("{} bytes arrived", done.byte_len);
//!                 return Ok(());
//!             }
//!             Outcome::Failed(failure) => return Err(failure.into()),
//!             _ => println!("request {} is done", returned.id),
//!         }
//!     }
//! }
//! # }
//! ```
//!
//! # The types that matter
//!
//! | type | is |
//! |---|---|
//! | [`Context`](verbs::Context) | an opened device, from which all other objects are made |
//! | [`MemoryRegion`](verbs::MemoryRegion) | memory that the HCA may reach, with its keys |
//! | [`QueuePair`](verbs::QueuePair) | one end of a connection. Its type names its transport and its state |
//! | [`SendQueue`](ring::SendQueue), [`CqReader`](ring::CqReader) | the raw layer: posting is `unsafe`, because the caller keeps the memory alive until the completion |
//! | [`Endpoint`](endpoint::Endpoint) | the safe layer: it owns the memory of its requests, and needs no `unsafe` |
//! | [`Prepared`](ring::Prepared), [`PreparedEndpoint`](endpoint::PreparedEndpoint) | requests that are written ahead: a post that takes half the instructions |
//!
//! # The modules
//!
//! | module | is for |
//! |---|---|
//! | [`prelude`] | the names that most programs need |
//! | [`verbs`] | devices, memory, queues and their states, by libibverbs |
//! | [`connect`] | exchanging connection data over TCP, and the attributes that follow from it; by librdmacm with the feature `cm` |
//! | [`endpoint`] | posting and polling with buffers that move: the safe layer |
//! | [`packet`] | Ethernet packets in safe code: feeds, orders, captures |
//! | [`ring`] | posting and polling with addresses: the raw layer. Also queues of C programs |
//! | [`wqe`] | the operations: SEND, WRITE, READ, atomics and more, a type for each |
//! | [`cqe`] | completions, and the status of failures |
//! | [`ib`] | plain values: transports, access rights, GIDs |
//! | [`devx`] | objects and queries by firmware command, which verbs do not offer |
//! | [`diag`] | queue entries as text, meanings of the HCA's codes, checks of WQEs |
//! | [`expert`] | what few programs need: queues of other programs, probes, tags, WQEs as bytes |
//! | [`timing`] | a clock of the CPU's counter, and the times of phases |
//! | `flight` | the last events of a queue, with the feature `flight-recorder` |
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `devx`, on by default | objects and queries by firmware command, in [`devx`]. Nothing else needs it |
//! | `cm` | connections by librdmacm, in `connect::cm`. Needs librdmacm to run |
//! | `link` | links the C libraries, which a program without it opens at its first call. Needs libibverbs-dev to build |
//! | `bindgen` | bindings of the installed headers, which have all that rdma-core has there. Links, and needs libclang to build |
//! | `rdma-sys` | the verbs types of the crate rdma-sys, for programs that use it too. Names and types are the same. Links, and needs libclang 15 or older to build |
//! | `timing` | time stamps of the phases of posts and polls |
//! | `flight-recorder` | a record of the last WQEs, doorbells and CQEs of each queue |
//! | `lint` | checks of WQEs before they are rung |
//! | `unproven` | requests that no test has had executed, in `wqe::unproven` and `devx::unproven` |
//!
//! Without a feature, no instruction of it is left in posts and polls.
//!
//! # Where to go on
//!
//! The repository has more pages and programs:
//!
//! - `docs/concepts.md`: the words of RDMA in two sentences each, every libibverbs call beside its
//!   counterpart here, and complete programs on both layers.
//! - `examples/rc_walkthrough.rs`: a connection from the first call to the last, step by step.
//!   `README.md` lists the other examples by task.
//! - `docs/soundness.md`: what safe code cannot break. `docs/performance.md`: what posts and polls
//!   cost, and how that is measured.

#![cfg_attr(
    not(feature = "devx"),
    allow(dead_code, unused_imports, reason = "what only `devx` uses of other modules")
)]

// First: rustdoc lists the methods of a type in the order of these modules.
pub mod ring;
pub mod verbs;

pub mod connect;
pub mod cqe;
#[cfg(feature = "devx")]
pub mod devx;
mod doorbell;
pub mod endpoint;
mod error;
pub mod expert;
pub mod ib;
pub mod packet;
pub mod prelude;
mod watch;
pub mod wqe;

pub use error::{Error, Result};
pub use mlx5_diag as diag;
#[cfg(feature = "flight-recorder")]
pub use watch::flight;
pub use watch::timing;

/// Version of the rdma-core whose headers the bindings are of.
///
/// It is `44.0`, or with the features `bindgen` and `rdma-sys` that of the machine which built the
/// program. The libmlx5 that the program loads at run time may be of another one.
pub const RDMA_CORE_VERSION: &str = env!("MLX5_RDMA_CORE");

/// The README's examples, compiled. The complete program is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The code of the page on concepts, compiled. Its complete programs are run.
#[cfg(doctest)]
#[doc = include_str!("../docs/concepts.md")]
struct Concepts;
