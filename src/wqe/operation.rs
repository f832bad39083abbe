//! One type per operation of the send queue.

use mlx5_sys::wqe::opcode;
use mlx5_sys::wqe::{
    AtomicSeg, CE_ALWAYS, FENCE_SMALL_AND_FENCE, RaddrSeg, SEGMENT_SIZE, SOLICITED, WQEBB_SIZE,
};

use super::{
    Block, Limits, OldValue, Payload, Remote, Segment, Segments, Sge, SgeList, Word, data_segment,
};
use crate::ring::PostError;

mod sealed {
    use super::{Block, Limits, PostError, Segments};

    /// How an operation becomes a WQE. Sealed: the queue trusts `body_ds` to be what `put` writes.
    pub trait Encode {
        /// Size of the WQE in its usual form, in 16-byte units; 0 if no form is usual, or it has
        /// more than one 64-byte block.
        const USUAL_DS: u32 = 0;
        /// Whether [`check`](Self::check) would pass and the WQE has [`USUAL_DS`](Self::USUAL_DS)
        /// units, of a queue that takes one entry at least.
        #[inline(always)]
        fn is_usual(&self, _limits: &Limits) -> bool {
            false
        }
        /// Size of the WQE without its ctrl segment, in 16-byte units.
        fn body_ds(&self) -> u32;
        /// Whether the queue takes it.
        fn check(&self, limits: &Limits) -> Result<(), PostError>;
        /// `fm_ce_se` of the ctrl segment.
        fn flags(&self) -> u8;
        /// `imm` of the ctrl segment.
        fn immediate(&self) -> u32;
        /// Writes the segments after the ctrl segment.
        ///
        /// # Safety
        /// There is space for [`body_ds`](Self::body_ds) segments, and [`check`](Self::check)
        /// passed.
        unsafe fn put<W: Segments>(&self, writer: &mut W);
        /// As [`put`](Self::put), where [`is_usual`](Self::is_usual): asks nothing again.
        ///
        /// # Safety
        /// As there.
        #[inline(always)]
        unsafe fn put_usual<W: Segments>(&self, writer: &mut W) {
            // SAFETY: passed on.
            unsafe { self.put(writer) }
        }
        /// As [`put`](Self::put), to a block, of which the words before a payload are kept.
        ///
        /// # Safety
        /// As there; the WQE is no longer than the block.
        #[inline(always)]
        unsafe fn put_short(&self, writer: &mut Block) {
            // SAFETY: passed on.
            unsafe { self.put(writer) }
        }
    }
}
pub(crate) use sealed::Encode;

/// A request for a send queue: one of this module's types.
pub trait Operation: Encode {
    /// Opcode in the ctrl segment (`mlx5dv.h`, `MLX5_OPCODE_*`).
    const OPCODE: u8;
}

macro_rules! setters {
    (signaled) => {
        /// Asks for a completion. An unsignaled request is retired by the completion of a later
        /// one; only its failure is reported. Default: unsignaled.
        pub const fn signaled(mut self) -> Self {
            self.flags |= CE_ALWAYS;
            self
        }

        /// Asks for a completion if `yes`, as [`signaled`](Self::signaled).
        pub const fn signaled_if(mut self, yes: bool) -> Self {
            if yes {
                self.flags |= CE_ALWAYS;
            }
            self
        }

        /// Starts only when the READs and atomics before it are done.
        pub const fn fenced(mut self) -> Self {
            self.flags |= FENCE_SMALL_AND_FENCE;
            self
        }
    };
    (solicited) => {
        /// Raises an event at the peer, if its CQ is armed for solicited completions.
        pub const fn solicited(mut self) -> Self {
            self.flags |= SOLICITED;
            self
        }
    };
}

/// [`Operation`] and [`Encode`] of a type, from the names of its parts.
macro_rules! encode {
    (
        [$($generics:tt)*] $type:ty, $code:ident
        $(, remote $remote:ident)? $(, payload $payload:ident)? $(, imm $imm:ident)?
    ) => {
        impl<$($generics)*> Operation for $type {
            const OPCODE: u8 = opcode::$code;
        }

        impl<$($generics)*> Encode for $type {
            // The type of every payload is called `P`.
            const USUAL_DS: u32 = usual_ds(
                1 $(+ one_for(stringify!($remote)))?,
                0 $(+ P::USUAL_DS * one_for(stringify!($payload)))?
            );

            #[inline(always)]
            fn is_usual(&self, _limits: &Limits) -> bool {
                true $(&& self.$payload.is_usual(_limits))?
            }

            #[inline(always)]
            fn body_ds(&self) -> u32 {
                0 $(+ segments_of(self.$remote))? $(+ self.$payload.ds())?
            }

            #[inline(always)]
            fn check(&self, _limits: &Limits) -> Result<(), PostError> {
                $(self.$payload.check(_limits)?;)?
                Ok(())
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            fn immediate(&self) -> u32 {
                0 $(| self.$imm)?
            }

            #[inline(always)]
            unsafe fn put<W: Segments>(&self, _writer: &mut W) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put(raddr_segment(self.$remote)) };
                )?
                $(
                    // SAFETY: `body_ds` counts these segments; `check` passed.
                    unsafe { self.$payload.put(_writer) };
                )?
            }

            #[inline(always)]
            unsafe fn put_usual<W: Segments>(&self, _writer: &mut W) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put(raddr_segment(self.$remote)) };
                )?
                $(
                    // SAFETY: `body_ds` counts these segments; the payload is a usual one.
                    unsafe { self.$payload.put_usual(_writer) };
                )?
            }

            #[inline(always)]
            unsafe fn put_short(&self, _writer: &mut Block) {
                $(
                    // SAFETY: `body_ds` counts this segment.
                    unsafe { _writer.put(raddr_segment(self.$remote)) };
                )?
                let _most = WQEBB_SIZE / SEGMENT_SIZE
                    - 1
                    $(- one_for(stringify!($remote)) as usize)?;
                $(
                    // SAFETY: `body_ds` counts these segments, `check` passed; the rest of the block
                    // is no less than they take.
                    unsafe { self.$payload.put_short(_writer.rest(), _most) };
                )?
            }
        }
    };
}

/// 1, for a part that is there.
const fn one_for(_part: &str) -> u32 {
    1
}

/// Size of a WQE with so many units before a payload of `payload` units, if both fit a block.
const fn usual_ds(before: u32, payload: u32) -> u32 {
    let fits = (before + payload) as usize <= WQEBB_SIZE / SEGMENT_SIZE;
    if payload != 0 && fits { before + payload } else { 0 }
}

/// Segments that a remote address takes.
#[inline(always)]
const fn segments_of(_: Remote) -> u32 {
    1
}

#[inline(always)]
fn raddr_segment(remote: Remote) -> Segment {
    zerocopy::transmute!(RaddrSeg {
        raddr: remote.addr.into(),
        rkey: remote.rkey.into(),
        reserved: 0.into()
    })
}

/// Does nothing but take its place in the queue, and complete.
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Nop {
    flags: u8,
}

impl Nop {
    /// A request that does nothing.
    pub const fn new() -> Self {
        Self { flags: 0 }
    }

    setters!(signaled);
}

encode!([] Nop, NOP);

/// SEND: the peer's oldest receive takes the payload.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Send<P> {
    payload: P,
    flags: u8,
}

impl<P: Payload> Send<P> {
    /// Sends `payload`.
    pub const fn new(payload: P) -> Self {
        Self { payload, flags: 0 }
    }

    /// What it carries.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] Send<P>, SEND, payload payload);

/// SEND with immediate: the peer's completion also carries 32 bits.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SendImm<P> {
    payload: P,
    imm: u32,
    flags: u8,
}

impl<P: Payload> SendImm<P> {
    /// Sends `payload` and `imm`; verbs programs see `imm` as `ntohl(imm_data)`.
    pub const fn new(payload: P, imm: u32) -> Self {
        Self { payload, imm, flags: 0 }
    }

    /// What it carries.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] SendImm<P>, SEND_IMM, payload payload, imm imm);

/// RDMA WRITE: puts the payload into the peer's memory, and the peer does not notice.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Write<P> {
    payload: P,
    remote: Remote,
    flags: u8,
}

impl<P: Payload> Write<P> {
    /// Writes `payload` to `remote`.
    pub const fn new(payload: P, remote: Remote) -> Self {
        Self { payload, remote, flags: 0 }
    }

    /// What it carries.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
}

encode!([P: Payload] Write<P>, RDMA_WRITE, remote remote, payload payload);

/// RDMA WRITE with immediate: also takes the peer's oldest receive, whose completion carries 32
/// bits and the length.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct WriteImm<P> {
    payload: P,
    remote: Remote,
    imm: u32,
    flags: u8,
}

impl<P: Payload> WriteImm<P> {
    /// Writes `payload` to `remote` and completes a receive with `imm`; verbs programs see `imm`
    /// as `ntohl(imm_data)`.
    pub const fn new(payload: P, remote: Remote, imm: u32) -> Self {
        Self { payload, remote, imm, flags: 0 }
    }

    /// What it carries.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] WriteImm<P>, RDMA_WRITE_IMM, remote remote, payload payload, imm imm);

/// RDMA READ: fetches the peer's memory, as many bytes as the entries hold.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Read<P> {
    payload: P,
    remote: Remote,
    flags: u8,
}

impl<P: SgeList> Read<P> {
    /// Reads from `remote` into the memory of `into`.
    pub const fn new(into: P, remote: Remote) -> Self {
        Self { payload: into, remote, flags: 0 }
    }

    /// What it carries.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
}

encode!([P: SgeList] Read<P>, RDMA_READ, remote remote, payload payload);

/// Atomic compare and swap on 8 bytes of the peer's memory.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct CompareSwap<W = Word> {
    old: W,
    remote: Remote,
    compare: u64,
    swap: u64,
    flags: u8,
}

impl<W: OldValue> CompareSwap<W> {
    /// Replaces the 8 bytes at `remote` by `swap` if they equal `compare`; puts what was there
    /// before into `old`. Values are in host byte order. `remote` is a multiple of 8.
    pub const fn new(old: W, remote: Remote, compare: u64, swap: u64) -> Self {
        Self { old, remote, compare, swap, flags: 0 }
    }

    /// Where the old value goes.
    pub fn into_old(self) -> W {
        self.old
    }

    setters!(signaled);

    #[inline(always)]
    fn operands(&self) -> Segment {
        zerocopy::transmute!(AtomicSeg { swap_add: self.swap.into(), compare: self.compare.into() })
    }
}

/// Atomic addition to 8 bytes of the peer's memory.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FetchAdd<W = Word> {
    old: W,
    remote: Remote,
    add: u64,
    flags: u8,
}

impl<W: OldValue> FetchAdd<W> {
    /// Adds `add` to the 8 bytes at `remote`, wrapping; puts what was there before into `old`.
    /// Values are in host byte order. `remote` is a multiple of 8.
    pub const fn new(old: W, remote: Remote, add: u64) -> Self {
        Self { old, remote, add, flags: 0 }
    }

    /// Where the old value goes.
    pub fn into_old(self) -> W {
        self.old
    }

    setters!(signaled);

    #[inline(always)]
    fn operands(&self) -> Segment {
        zerocopy::transmute!(AtomicSeg { swap_add: self.add.into(), compare: 0.into() })
    }
}

macro_rules! atomic {
    ($type:ident, $code:ident) => {
        impl<W: OldValue> Operation for $type<W> {
            const OPCODE: u8 = opcode::$code;
        }

        impl<W: OldValue> Encode for $type<W> {
            #[inline(always)]
            fn body_ds(&self) -> u32 {
                3
            }

            #[inline(always)]
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                if limits.max_sge == 0 {
                    return Err(PostError::TooManySges);
                }
                self.old.word().map(|_| ()).ok_or(PostError::WordTooShort)
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            fn immediate(&self) -> u32 {
                0
            }

            #[inline(always)]
            unsafe fn put<S: Segments>(&self, writer: &mut S) {
                // `check` has seen to it that there is one.
                let old = self.old.word().unwrap_or_default();
                let old = Sge { addr: old.addr, length: 8, lkey: old.lkey };
                // SAFETY: these are the three segments that `body_ds` counts.
                unsafe {
                    writer.put(raddr_segment(self.remote));
                    writer.put(self.operands());
                    writer.put(data_segment(&old));
                }
            }
        }
    };
}

atomic!(CompareSwap, ATOMIC_CS);
atomic!(FetchAdd, ATOMIC_FA);
