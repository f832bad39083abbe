//! One type per operation of the send queue.

use mlx5_sys::wqe::{AtomicSeg, opcode};

use super::encode::{encode, raddr_segment, setters};
use super::{
    Encode, Limits, OldValue, Operation, Payload, Remote, Segment, Segments, Sge, SgeList, Word,
    data_segment,
};
use crate::wqe::EncodeError;

/// Does nothing but take its place in the queue, and complete.
#[doc(alias = "MLX5_OPCODE_NOP")]
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
#[doc(alias("IBV_WR_SEND", "ibv_wr_send", "MLX5_OPCODE_SEND"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct SendMessage<P> {
    payload: P,
    flags: u8,
}

impl<P: Payload> SendMessage<P> {
    /// Sends `payload`.
    pub const fn new(payload: P) -> Self {
        Self { payload, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] SendMessage<P>, SEND, payload payload);

/// SEND with immediate: the peer's completion also carries 32 bits.
#[doc(alias("IBV_WR_SEND_WITH_IMM", "ibv_wr_send_imm", "MLX5_OPCODE_SEND_IMM"))]
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

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] SendImm<P>, SEND_IMM, payload payload, imm imm);

/// RDMA WRITE: puts the payload into the peer's memory, and the peer does not notice.
#[doc(alias("IBV_WR_RDMA_WRITE", "ibv_wr_rdma_write", "MLX5_OPCODE_RDMA_WRITE"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RdmaWrite<P> {
    payload: P,
    remote: Remote,
    flags: u8,
}

impl<P: Payload> RdmaWrite<P> {
    /// Writes `payload` to `remote`.
    pub const fn new(payload: P, remote: Remote) -> Self {
        Self { payload, remote, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
}

encode!([P: Payload] RdmaWrite<P>, RDMA_WRITE, remote remote, payload payload);

/// RDMA WRITE with immediate: also takes the peer's oldest receive, whose completion carries 32
/// bits and the length.
#[doc(alias("IBV_WR_RDMA_WRITE_WITH_IMM", "ibv_wr_rdma_write_imm", "MLX5_OPCODE_RDMA_WRITE_IMM"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RdmaWriteImm<P> {
    payload: P,
    remote: Remote,
    imm: u32,
    flags: u8,
}

impl<P: Payload> RdmaWriteImm<P> {
    /// Writes `payload` to `remote` and completes a receive with `imm`; verbs programs see `imm`
    /// as `ntohl(imm_data)`.
    pub const fn new(payload: P, remote: Remote, imm: u32) -> Self {
        Self { payload, remote, imm, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
    setters!(solicited);
}

encode!([P: Payload] RdmaWriteImm<P>, RDMA_WRITE_IMM, remote remote, payload payload, imm imm);

/// RDMA READ: fetches the peer's memory, as many bytes as the entries hold.
#[doc(alias("IBV_WR_RDMA_READ", "ibv_wr_rdma_read", "MLX5_OPCODE_RDMA_READ"))]
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct RdmaRead<P> {
    payload: P,
    remote: Remote,
    flags: u8,
}

impl<P: SgeList> RdmaRead<P> {
    /// Reads from `remote` into the memory of `into`.
    pub const fn new(into: P, remote: Remote) -> Self {
        Self { payload: into, remote, flags: 0 }
    }

    #[inline(always)]
    pub(crate) fn payload(&self) -> &P {
        &self.payload
    }

    /// Returns the payload.
    pub fn into_payload(self) -> P {
        self.payload
    }

    setters!(signaled);
}

encode!([P: SgeList] RdmaRead<P>, RDMA_READ, remote remote, payload payload);

/// Atomic compare and swap on 8 bytes of the peer's memory.
#[doc(alias("IBV_WR_ATOMIC_CMP_AND_SWP", "ibv_wr_atomic_cmp_swp", "MLX5_OPCODE_ATOMIC_CS"))]
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

    #[inline(always)]
    pub(crate) fn old(&self) -> &W {
        &self.old
    }

    /// Returns the memory for the old value.
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
#[doc(alias("IBV_WR_ATOMIC_FETCH_AND_ADD", "ibv_wr_atomic_fetch_add", "MLX5_OPCODE_ATOMIC_FA"))]
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

    #[inline(always)]
    pub(crate) fn old(&self) -> &W {
        &self.old
    }

    /// Returns the memory for the old value.
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
            fn check(&self, limits: &Limits) -> Result<(), EncodeError> {
                if limits.max_sge == 0 {
                    return Err(EncodeError::TooManySges);
                }
                self.old.word(8).map(|_| ()).ok_or(EncodeError::WordTooShort)
            }

            #[inline(always)]
            fn flags(&self) -> u8 {
                self.flags
            }

            #[inline(always)]
            unsafe fn put<S: Segments>(&self, writer: &mut S) {
                // `check` has seen to it that there is one.
                let old = self.old.word(8).unwrap_or_default();
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
