//! Operations whose memory is owned.

use core::slice::from_ref;

use super::{Buffers, MrSlice};
use crate::ib::Access;
use crate::ring::source::DomainId;
use crate::wqe::{
    CompareSwap, EthMultiPacket, EthSend, EthTso, FetchAdd, Inline, InlineBytes, InlineGather,
    MaskedCompareSwap, MaskedFetchAdd, Nop, Number, PacketList, Payload, RdmaRead, RdmaWrite,
    RdmaWriteImm, SendImm, SendInvalidate, SendMessage, SgeList, To, WaitUntil,
};

/// A payload or an operation that names memory by slices only, so that it can be posted without
/// `unsafe`.
///
/// Such payloads are an [`MrSlice`], a `Vec` of slices, and every payload that is copied into the
/// WQE. A program can post no other type: [`PostOn`](crate::wqe::PostOn) and [`SgeList`] are
/// sealed. So the queues may rely on `slices`.
///
/// ```no_run
/// # use mlx5::endpoint::{ConnectionKey, Endpoints, Owned};
/// # use mlx5::ib::Rc;
/// # use mlx5::wqe::PostOn;
/// /// Posts an operation to several peers, as far as their queues have room.
/// fn to_all<O: PostOn<Rc> + Owned + Clone>(server: &mut Endpoints, peers: &[ConnectionKey], one: O) {
///     for peer in peers {
///         if let Err(refused) = server.post(*peer, 0, one.clone()) {
///             eprintln!("{peer:?}: {}", refused.error);
///         }
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` names memory that the safe layer does not own",
    note = "it takes an `MrSlice`, a `Vec` of them, or bytes in the request (`Inline`, `InlineBytes`)"
)]
pub trait Owned {
    /// The right that the slices need: [`LOCAL_WRITE`](Access::LOCAL_WRITE) if the HCA writes to them,
    /// and none if it only reads them. Slices by themselves are the memory of a receive.
    const NEEDS: Access;

    /// The slices that it names.
    fn slices(&self) -> &[MrSlice];

    /// The memory.
    fn into_buffers(self) -> Buffers;
}

/// Returns whether queues of a protection domain may post a request: all its memory is of that
/// domain, and has the right that the request needs.
#[inline(always)]
pub(super) fn accepts<O: Owned>(domain: DomainId, request: &O) -> bool {
    request.slices().iter().all(|slice| slice.domain_for(O::NEEDS) == domain)
}

impl Owned for MrSlice {
    const NEEDS: Access = Access::LOCAL_WRITE;

    #[inline(always)]
    fn slices(&self) -> &[MrSlice] {
        from_ref(self)
    }

    #[inline(always)]
    fn into_buffers(self) -> Buffers {
        Buffers::One(self)
    }
}

impl Owned for Vec<MrSlice> {
    const NEEDS: Access = Access::LOCAL_WRITE;

    #[inline(always)]
    fn slices(&self) -> &[MrSlice] {
        self
    }

    #[inline(always)]
    fn into_buffers(self) -> Buffers {
        Buffers::Many(self)
    }
}

/// Types that name no memory.
macro_rules! without_memory {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        impl<$($generics)*> Owned for $type {
            const NEEDS: Access = Access::empty();

            #[inline(always)]
            fn slices(&self) -> &[MrSlice] {
                &[]
            }

            #[inline(always)]
            fn into_buffers(self) -> Buffers {
                Buffers::None
            }
        }
    )* };
}

without_memory! {
    [] Inline<'_>;
    [const N: usize] InlineBytes<N>;
    [] InlineGather<'_>;
    [] &[Inline<'_>];
    [const N: usize] &[InlineBytes<N>];
    [] &[InlineGather<'_>];
    [const N: usize] [Inline<'_>; N];
    [const N: usize, const M: usize] [InlineBytes<N>; M];
    [const N: usize] [InlineGather<'_>; N];
    [] Nop;
    [] WaitUntil;
}

/// Types whose memory is that of the part which the two methods return.
macro_rules! with_memory_of {
    ($([$($generics:tt)*] $type:ty, $part:ident, $into_part:ident, $needs:expr;)*) => { $(
        impl<$($generics)*> Owned for $type {
            const NEEDS: Access = $needs;

            #[inline(always)]
            fn slices(&self) -> &[MrSlice] {
                self.$part().slices()
            }

            #[inline(always)]
            fn into_buffers(self) -> Buffers {
                self.$into_part().into_buffers()
            }
        }
    )* };
}

with_memory_of! {
    [P: Payload + Owned] SendMessage<P>, payload, into_payload, Access::empty();
    [P: Payload + Owned] SendImm<P>, payload, into_payload, Access::empty();
    [P: Payload + Owned] SendInvalidate<P>, payload, into_payload, Access::empty();
    [P: Payload + Owned] RdmaWrite<P>, payload, into_payload, Access::empty();
    [P: Payload + Owned] RdmaWriteImm<P>, payload, into_payload, Access::empty();
    [P: SgeList + Owned] RdmaRead<P>, payload, into_payload, Access::LOCAL_WRITE;
    [P: Payload + Owned] EthSend<'_, P>, payload, into_payload, Access::empty();
    [P: Payload + Owned] EthTso<'_, P>, payload, into_payload, Access::empty();
    [L: PacketList + Owned] EthMultiPacket<L>, packets, into_packets, Access::empty();
    [] CompareSwap<MrSlice>, old, into_old, Access::LOCAL_WRITE;
    [] FetchAdd<MrSlice>, old, into_old, Access::LOCAL_WRITE;
    [N: Number] MaskedCompareSwap<N, MrSlice>, old, into_old, Access::LOCAL_WRITE;
    [N: Number] MaskedFetchAdd<N, MrSlice>, old, into_old, Access::LOCAL_WRITE;
    [O: Owned, A] To<O, A>, operation, into_operation, O::NEEDS;
}
