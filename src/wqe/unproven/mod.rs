//! Requests and layouts that no test has had executed. Needs the feature `unproven`.
//!
//! Tests compare the bytes of these WQEs with the layouts in public sources: rdma-core, Linux, SPDK,
//! DPDK and Mellanox OFED. That is all they show. Neither the model nor a ConnectX device has
//! executed one for this crate: the model refuses signatures and encryption, as an HCA without the
//! capability does, and no interface of this crate makes a queue pair that may execute [`Wait`] or
//! [`SendEnable`]. Expect mistakes, and verify the effect on your device.
//!
//! - Signed and encrypted data behind a key. A key that was made for it has, besides its layout, a
//!   format of the data in memory and on the wire ([`Protected`]), and a PSV for each signed side,
//!   which [`SetPsv`] sets. The HCA then adds, checks, copies or strips signatures as data passes.
//!   [`devx::unproven::Psv`](crate::devx::unproven::Psv) makes PSVs.
//! - Queues that wait for others: [`Wait`] and [`SendEnable`].
//!
//! This module may change in any release.

mod protection;
mod signature;
mod steering;

pub use protection::{Encrypted, Encryption, Protected};
pub use signature::{
    BlockSignature, BlockSize, CrcKind, Escape, Guard, SetPsv, Signature, SignedBlocks,
};
pub use steering::{SendEnable, Wait};
