//! Operations whose memory is owned.

use super::Slice;
use crate::verbs::Transport;
use crate::wqe::{
    CompareSwap, FetchAdd, Inline, InlineBytes, InlineGather, Nop, Payload, PostOn, Read, Send,
    SendImm, SgeList, Write, WriteImm,
};

/// The slices of a request.
#[derive(Debug, Default)]
pub enum Buffers {
    /// The request had none.
    #[default]
    None,
    /// One.
    One(Slice),
    /// A list.
    Many(Vec<Slice>),
}

impl Buffers {
    /// The slice, if it is one.
    pub fn one(self) -> Option<Slice> {
        match self {
            Self::One(slice) => Some(slice),
            _ => None,
        }
    }

    /// The list, if it is one.
    pub fn many(self) -> Option<Vec<Slice>> {
        match self {
            Self::Many(slices) => Some(slices),
            _ => None,
        }
    }

    /// Bytes of all slices.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(slice) => slice.len(),
            Self::Many(slices) => slices.iter().map(Slice::len).sum(),
        }
    }
}

/// A payload that owns the memory it names, or copies it.
pub trait OwnedPayload: Payload {
    /// The memory.
    fn into_buffers(self) -> Buffers;
}

impl OwnedPayload for Slice {
    fn into_buffers(self) -> Buffers {
        Buffers::One(self)
    }
}

impl OwnedPayload for Vec<Slice> {
    fn into_buffers(self) -> Buffers {
        Buffers::Many(self)
    }
}

macro_rules! copied {
    ($([$($generics:tt)*] $type:ty;)*) => { $(
        impl<$($generics)*> OwnedPayload for $type {
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
    [P: OwnedPayload] Write<P>, |write| write.into_payload().into_buffers();
    [P: OwnedPayload] WriteImm<P>, |write| write.into_payload().into_buffers();
    [P: OwnedPayload + SgeList] Read<P>, |read| read.into_payload().into_buffers();
    [] CompareSwap<Slice>, |swap| Buffers::One(swap.into_old());
    [] FetchAdd<Slice>, |add| Buffers::One(add.into_old());
}
