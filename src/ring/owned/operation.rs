//! Operations whose memory is owned.

use super::{Buffers, Slice};
use crate::verbs::Transport;
use crate::wqe::{
    Address, CompareSwap, FetchAdd, Inline, InlineBytes, InlineGather, MaskedCompareSwap,
    MaskedFetchAdd, Nop, Number, Payload, PostOn, Read, Send, SendImm, SendInvalidate, SgeList, To,
    Write, WriteImm,
};

/// A payload that owns the memory it names, or copies it.
pub trait OwnedPayload: Payload {
    /// The memory.
    fn into_buffers(self) -> Buffers;
}

impl OwnedPayload for Slice {
    #[inline(always)]
    fn into_buffers(self) -> Buffers {
        self.into()
    }
}

impl OwnedPayload for Vec<Slice> {
    fn into_buffers(self) -> Buffers {
        self.into()
    }
}

macro_rules! copied {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        impl<$($generics)*> OwnedPayload for $type {
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
    /// The memory.
    fn into_buffers(self) -> Buffers;
}

macro_rules! owned {
    ($([$($generics:tt)*] $type:ty, |$this:ident| $buffers:expr;)*) => { $(
        impl<T: Transport, $($generics)*> OwnedOperation<T> for $type
        where
            $type: PostOn<T>,
        {
            #[inline(always)]
            fn into_buffers(self) -> Buffers {
                let $this = self;
                $buffers
            }
        }
    )* };
}

owned! {
    [] Nop, |_nop| Buffers::None;
    [P: OwnedPayload] Send<P>, |send| send.into_payload().into_buffers();
    [P: OwnedPayload] SendImm<P>, |send| send.into_payload().into_buffers();
    [P: OwnedPayload] SendInvalidate<P>, |send| send.into_payload().into_buffers();
    [P: OwnedPayload] Write<P>, |write| write.into_payload().into_buffers();
    [P: OwnedPayload] WriteImm<P>, |write| write.into_payload().into_buffers();
    [P: OwnedPayload + SgeList] Read<P>, |read| read.into_payload().into_buffers();
    [] CompareSwap<Slice>, |swap| swap.into_old().into();
    [] FetchAdd<Slice>, |add| add.into_old().into();
    [N: Number] MaskedCompareSwap<N, Slice>, |swap| swap.into_old().into();
    [N: Number] MaskedFetchAdd<N, Slice>, |add| add.into_old().into();
    [P: OwnedPayload, A: Address] To<Send<P>, A>, |to| payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<SendImm<P>, A>,
        |to| payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<Write<P>, A>, |to| payload(to.into_operation().into_payload());
    [P: OwnedPayload, A: Address] To<WriteImm<P>, A>,
        |to| payload(to.into_operation().into_payload());
    [P: OwnedPayload + SgeList, A: Address] To<Read<P>, A>,
        |to| payload(to.into_operation().into_payload());
    [A: Address] To<CompareSwap<Slice>, A>, |to| to.into_operation().into_old().into();
    [A: Address] To<FetchAdd<Slice>, A>, |to| to.into_operation().into_old().into();
}

#[inline(always)]
fn payload(payload: impl OwnedPayload) -> Buffers {
    payload.into_buffers()
}
