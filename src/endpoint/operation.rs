//! Operations whose memory is owned.

use core::slice::from_ref;

use super::{Buffers, MrSlice};
use crate::ib::Transport;
use crate::wqe::{
    Address, CompareSwap, FetchAdd, Inline, InlineBytes, InlineGather, MaskedCompareSwap,
    MaskedFetchAdd, Nop, Number, Payload, PostOn, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm,
    SendInvalidate, SendMessage, SgeList, To,
};

/// A payload that owns the memory it names, or copies it.
pub trait OwnedPayload: Payload {
    /// The slices that it names.
    fn slices(&self) -> &[MrSlice];

    /// The memory.
    fn into_buffers(self) -> Buffers;
}

impl OwnedPayload for MrSlice {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice] {
        from_ref(self)
    }

    #[inline(always)]
    fn into_buffers(self) -> Buffers {
        self.into()
    }
}

impl OwnedPayload for Vec<MrSlice> {
    #[inline(always)]
    fn slices(&self) -> &[MrSlice] {
        self
    }

    fn into_buffers(self) -> Buffers {
        self.into()
    }
}

macro_rules! copied {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        impl<$($generics)*> OwnedPayload for $type {
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

copied! {
    [] Inline<'_>;
    [const N: usize] InlineBytes<N>;
    [] InlineGather<'_>;
}

/// An operation that names memory by slices only, so that it can be posted without `unsafe`.
pub trait OwnedOperation<T: Transport>: PostOn<T> {
    /// The slices that it names.
    fn slices(&self) -> &[MrSlice];

    /// The memory.
    fn into_buffers(self) -> Buffers;
}

macro_rules! owned {
    ($([$($generics:tt)*] $type:ty, |$this:ident| $slices:expr => $buffers:expr;)*) => { $(
        impl<T: Transport, $($generics)*> OwnedOperation<T> for $type
        where
            $type: PostOn<T>,
        {
            #[inline(always)]
            fn slices(&self) -> &[MrSlice] {
                let $this = self;
                $slices
            }

            #[inline(always)]
            fn into_buffers(self) -> Buffers {
                let $this = self;
                $buffers
            }
        }
    )* };
}

owned! {
    [] Nop, |_nop| &[] => Buffers::None;
    [P: OwnedPayload] SendMessage<P>, |send|
        send.payload().slices() => send.into_payload().into_buffers();
    [P: OwnedPayload] SendImm<P>, |send|
        send.payload().slices() => send.into_payload().into_buffers();
    [P: OwnedPayload] SendInvalidate<P>, |send|
        send.payload().slices() => send.into_payload().into_buffers();
    [P: OwnedPayload] RdmaWrite<P>, |write|
        write.payload().slices() => write.into_payload().into_buffers();
    [P: OwnedPayload] RdmaWriteImm<P>, |write|
        write.payload().slices() => write.into_payload().into_buffers();
    [P: OwnedPayload + SgeList] RdmaRead<P>, |read|
        read.payload().slices() => read.into_payload().into_buffers();
    [] CompareSwap<MrSlice>, |swap| from_ref(swap.old()) => swap.into_old().into();
    [] FetchAdd<MrSlice>, |add| from_ref(add.old()) => add.into_old().into();
    [N: Number] MaskedCompareSwap<N, MrSlice>, |swap| from_ref(swap.old()) => swap.into_old().into();
    [N: Number] MaskedFetchAdd<N, MrSlice>, |add| from_ref(add.old()) => add.into_old().into();
    [P: OwnedPayload, A: Address] To<SendMessage<P>, A>, |to|
        to.operation().payload().slices() => payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<SendImm<P>, A>, |to|
        to.operation().payload().slices() => payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<RdmaWrite<P>, A>, |to|
        to.operation().payload().slices() => payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<RdmaWriteImm<P>, A>, |to|
        to.operation().payload().slices() => payload(to.into_operation().into_payload());
    [P: OwnedPayload + SgeList, A: Address] To<RdmaRead<P>, A>, |to|
        to.operation().payload().slices() => payload(to.into_operation().into_payload());
    [A: Address] To<CompareSwap<MrSlice>, A>, |to|
        from_ref(to.operation().old()) => to.into_operation().into_old().into();
    [A: Address] To<FetchAdd<MrSlice>, A>, |to|
        from_ref(to.operation().old()) => to.into_operation().into_old().into();
}

#[inline(always)]
fn payload(payload: impl OwnedPayload) -> Buffers {
    payload.into_buffers()
}
