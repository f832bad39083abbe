//! One type per operation of the send queue.

use mlx5_sys::wqe::{AtomicSeg, opcode};

use super::encode::{encode, raddr_segment, setters};
use super::{
    Encode, Limits, OldValue, Operation, Payload, Remote, Segment, Segments, Sge, SgeList, Word,
    data_segment,
};
use crate::wqe::{Excess, PostError};

/// Does nothing but take its place in the queue, and complete.
///
/// ```
/// # let rig::Link { mut reader, mut sends, .. } = rig::link()?;
/// use mlx5::cqe::{Completion, SendOperation};
/// use mlx5::wqe::Nop;
///
/// // Completes when all requests before it are complete.
/// // SAFETY: the request names no memory.
/// unsafe { sends.post(1, Nop::new().signaled())? };
/// # let completion = rig::poll(&mut reader, &mut sends)?;
/// // The completion that a poll finds:
/// assert!(matches!(completion, Completion::Send(done) if done.operation == SendOperation::Nop));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut receives, mut memory, sge, .. } = rig::link()?;
/// use mlx5::wqe::SendMessage;
///
/// memory.write(2048, b"hello");
/// let message = memory.sge(2048, 5)?;
/// // SAFETY: the memory stays registered, and nothing uses it before the completions.
/// unsafe {
///     receives.post(1, sge)?; // the peer's side: here the queue pair is its own peer
///     sends.post(2, SendMessage::new(message).signaled())?;
/// }
/// # for _ in 0..2 { rig::poll(&mut reader, &mut (&mut sends, &mut receives))?; }
/// // When the receive is complete:
/// let mut bytes = [0; 5];
/// memory.read(0, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { memory: _m, mut reader, mut sends, mut receives, sge, .. } = rig::link()?;
/// use mlx5::cqe::{Completion, ReceiveKind};
/// use mlx5::wqe::{Inline, SendImm};
///
/// // SAFETY: the payload is copied into the WQE. The receive's memory stays registered.
/// unsafe {
///     receives.post(1, sge)?;
///     sends.post(2, SendImm::new(Inline(b"hello"), 42))?;
/// }
/// # let completion = rig::poll(&mut reader, &mut (&mut sends, &mut receives))?;
/// // The completion of the receive has the immediate data.
/// let Completion::Receive(done) = completion else { return Err("a send".into()) };
/// assert_eq!(done.kind, ReceiveKind::SendImm(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// The bytes may become visible to the peer in any order, also across WRITEs. A SEND, a WRITE with
/// immediate or an atomic behind it shows the peer that they are there.
///
/// ```
/// # let rig::Link { mut reader, mut sends, memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::{Inline, RdmaWrite};
///
/// // `remote` is byte 64 of the peer's memory, which here is this side's.
/// // SAFETY: the payload is copied into the WQE.
/// unsafe { sends.post(1, RdmaWrite::new(Inline(b"hello"), remote).signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // When the request is complete:
/// let mut bytes = [0; 5];
/// memory.read(64, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { memory, mut reader, mut sends, mut receives, sge, remote, .. } = rig::link()?;
/// use mlx5::cqe::{Completion, ReceiveKind};
/// use mlx5::wqe::{Inline, RdmaWriteImm};
///
/// // SAFETY: the payload is copied into the WQE. The receive's memory stays registered.
/// unsafe {
///     receives.post(1, sge)?; // taken, but not written: the bytes go to `remote`
///     sends.post(2, RdmaWriteImm::new(Inline(b"hello"), remote, 42))?;
/// }
/// # let completion = rig::poll(&mut reader, &mut (&mut sends, &mut receives))?;
/// let Completion::Receive(done) = completion else { return Err("a send".into()) };
/// assert_eq!((done.id, done.kind), (1, ReceiveKind::WriteImm(42)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut memory, sge, remote, .. } = rig::link()?;
/// use mlx5::wqe::RdmaRead;
///
/// // The peer has written to its memory, which here is this side's.
/// memory.write(64, b"hello");
/// // SAFETY: the memory of `sge` stays registered, and nothing uses it before the completion.
/// unsafe { sends.post(1, RdmaRead::new(sge, remote).signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // When the request is complete:
/// let mut bytes = [0; 5];
/// memory.read(0, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { mut reader, mut sends, memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::CompareSwap;
///
/// // Takes a lock of the peer: 7 if it was 0. The old value comes to the start of the memory.
/// let old = memory.word(0)?;
/// // SAFETY: the memory stays registered, and nothing uses the word before the completion.
/// unsafe { sends.post(1, CompareSwap::new(old, remote, 0, 7).signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // When the request is complete:
/// let mut bytes = [0; 8];
/// memory.read(0, &mut bytes);
/// assert_eq!(u64::from_ne_bytes(bytes), 0); // the lock was free
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
///
/// ```
/// # let rig::Link { mut reader, mut sends, mut memory, remote, .. } = rig::link()?;
/// use mlx5::wqe::FetchAdd;
///
/// memory.write(64, &100u64.to_ne_bytes()); // the peer's counter
/// let old = memory.word(0)?;
/// // SAFETY: the memory stays registered, and nothing uses the word before the completion.
/// unsafe { sends.post(1, FetchAdd::new(old, remote, 5).signaled())? };
/// # rig::poll(&mut reader, &mut sends)?;
/// // When the request is complete, the counter is 105, and the word has what it was.
/// let mut bytes = [0; 8];
/// memory.read(0, &mut bytes);
/// assert_eq!(u64::from_ne_bytes(bytes), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
            fn check(&self, limits: &Limits) -> Result<(), PostError> {
                if limits.max_sge == 0 {
                    return Err(PostError::TooManySges(Excess::new(1, 0)));
                }
                self.old.word(8).map(|_| ()).ok_or(PostError::WordTooShort)
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
