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

/// Implements a request that is a ctrl segment and one more, which its `segment` returns.
macro_rules! one_segment {
    ($type:ident, $code:ident) => {
        impl $crate::wqe::Operation for $type {
            const OPCODE: u8 = ::mlx5_sys::wqe::opcode::$code;
        }

        impl $crate::wqe::Encode for $type {
            #[inline(always)]
            fn body_ds(&self) -> u32 {
                1
            }

            #[inline(always)]
            fn check(&self, _: &$crate::wqe::Limits) -> Result<(), $crate::wqe::PostError> {
                Ok(())
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            unsafe fn put<W: $crate::wqe::Segments>(&self, writer: &mut W) {
                // SAFETY: the segment that `body_ds` counts.
                unsafe { writer.put(self.segment()) }
            }
        }
    };
}

mod protection;
mod signature;
mod steering;

pub use protection::{Encrypted, Encryption, Protected};
pub use signature::{
    BlockSignature, BlockSize, CrcKind, Escape, Guard, SetPsv, Signature, SignedBlocks,
};
pub use steering::{SendEnable, Wait};
