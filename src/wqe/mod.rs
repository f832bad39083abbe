//! Work requests as types: one per operation.
//!
//! An operation's constructor takes what it cannot do without; setters add the rest. What it sends
//! or scatters to is a [`Payload`]: a scatter/gather entry ([`Sge`]), a list of them, or bytes that
//! travel in the WQE ([`Inline`]). Which operation may be posted on which transport is a matter of
//! types ([`PostOn`]): a program that posts one the transport does not have does not compile. On
//! transports without a fixed peer an operation is posted with its destination ([`To`]).
//! [`SendQueue`](crate::ring::SendQueue) writes them into its ring; a WQE that runs past the ring's
//! end goes on at its start, at a granularity of 16 bytes.

mod address;
pub(crate) mod change;
pub(crate) mod dump;
mod dynamic;
mod encode;
pub(crate) mod error;
mod ethernet;
mod local;
mod masked;
mod mkey;
mod multi_packet;
mod operation;
mod patch;
mod payload;
pub(crate) mod raw;
pub(crate) mod tags;
mod transport;
mod umr;
mod unit;
#[cfg(feature = "unproven")]
pub mod unproven;
mod until;
mod window;
mod writer;

pub use address::{Address, To, UdAddress, XrcAddress};
pub(crate) use change::{Change, InlinePart};
pub(crate) use dump::Dump;
pub use dynamic::DcAddress;
pub use encode::Operation;
pub(crate) use encode::{Code, Encode};
use error::{Excess, PostError};
pub(crate) use ethernet::START as HEADER_IN_SEGMENT;
pub use ethernet::{EthSend, EthTso};
pub use local::DmaMemcpy;
pub use masked::{Bits, MaskedCompareSwap, MaskedFetchAdd, Number};
pub use mkey::{ConfigureKey, Interleaved, KeyLayout, ListAt, Strided};
pub use multi_packet::{EthMultiPacket, MixedPacket, PacketList, PacketPayload};
pub(crate) use multi_packet::{MAX_PACKETS, OneSegment};
pub use operation::{
    CompareSwap, FetchAdd, Nop, RdmaRead, RdmaWrite, RdmaWriteImm, SendImm, SendMessage,
};
pub use patch::{Field, FieldBytes, Fill};
pub(crate) use patch::{FillUnits, MOST_UNITS, Patch};
pub(crate) use payload::{EncodePayload, EncodeWord, MAX_SGE_LENGTH, TERMINATOR, data_segment};
pub use payload::{Inline, InlineBytes, InlineGather, OldValue, Payload, SgeList};
pub(crate) use raw::RawWqe;
pub(crate) use tags::{AppendTag, ChangeTags, ListFlags};
pub(crate) use tags::{Tag, TagHeader};
pub use transport::PostOn;
pub(crate) use unit::Unit;
pub use until::WaitUntil;
pub use window::{BindWindow, LocalInvalidate, SendInvalidate};
pub(crate) use writer::{Block, Kept, Linear, Segment, Segments, Units, Wrapping};

/// A scatter/gather entry: local memory that the HCA reads or writes.
///
/// A plain description: nothing is borrowed. What must stay alive until when is said where a WQE is
/// committed, at [`Batch::ring`](crate::ring::Batch::ring). An entry of length 0 is left out of the
/// WQE.
///
/// ```
/// # let rig::Link { memory, .. } = rig::link()?;
/// use mlx5::wqe::Sge;
///
/// // The first 64 bytes of a memory region. `Sge::new` takes any address and key, unchecked.
/// let sge = memory.sge(0, 64)?;
/// assert_eq!(sge, Sge::new(memory.address(), 64, memory.lkey()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Its layout is that of `struct ibv_sge`.
#[doc(alias("ibv_sge", "mlx5_wqe_data_seg"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Sge {
    /// Virtual address, within the memory region of `lkey`.
    pub addr: u64,
    /// Length in bytes, at most 2^31.
    pub length: u32,
    /// Local key of the memory region.
    pub lkey: u32,
}

impl Sge {
    /// `length` bytes at `addr`, of the region with key `lkey`.
    pub const fn new(addr: u64, length: u32, lkey: u32) -> Self {
        Self { addr, length, lkey }
    }
}

/// Memory of the peer: its address there, and the key that the peer gave.
///
/// ```
/// # let rig::Link { memory, .. } = rig::link()?;
/// use mlx5::wqe::Remote;
///
/// // The peer made this from its region, and sent address and key.
/// let start = memory.remote(0)?;
/// assert_eq!(start, Remote::new(memory.remote_address(), memory.rkey()));
/// assert_eq!(start.offset(256), memory.remote(256)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "mlx5_wqe_raddr_seg")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Remote {
    /// Virtual address at the peer.
    pub addr: u64,
    /// Remote key of the peer's memory region.
    pub rkey: u32,
}

impl Remote {
    /// The peer's memory at `addr`, under its key `rkey`.
    pub const fn new(addr: u64, rkey: u32) -> Self {
        Self { addr, rkey }
    }

    /// The memory `bytes` further on, wrapping at 2^64.
    #[must_use]
    pub const fn offset(self, bytes: u64) -> Self {
        Self { addr: self.addr.wrapping_add(bytes), rkey: self.rkey }
    }
}

/// Local memory where an atomic puts the peer's old value: eight bytes, in host byte order, or as
/// many as an [atomic under masks](Number) has.
///
/// See the example on [`FetchAdd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Word {
    /// Virtual address.
    pub addr: u64,
    /// Local key of the memory region.
    pub lkey: u32,
}

impl Word {
    /// The bytes at `addr`, of the region with key `lkey`.
    pub const fn new(addr: u64, lkey: u32) -> Self {
        Self { addr, lkey }
    }
}

/// The limits of a queue's requests, fixed when it was created.
///
/// ```
/// # let rig::Link { sends, .. } = rig::link()?;
/// // A queue pair with `max_send_sge(2)` and `max_inline_data(64)`: what the device made of it.
/// let limits = sends.limits();
/// assert!(limits.max_sge >= 2 && limits.max_inline >= 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Scatter/gather entries in a WQE.
    pub max_sge: u32,
    /// Bytes of inline payload in a WQE.
    pub max_inline: u32,
    /// Packets from memory in a WQE with several ([`EthMultiPacket`]); 0 if the queue sends no
    /// Ethernet packets, or the device has no such WQEs. A packet within the WQE takes the space of
    /// as many as it has units of 16 bytes, with a header of 4 bytes.
    pub max_packets: u32,
}

impl Limits {
    /// Returns the inline bytes that libmlx5 has granted.
    ///
    /// For a queue without SGEs it subtracts the inline header from no space, in 32 bits.
    pub(crate) fn granted_inline(bytes: u32) -> u32 {
        if bytes > i32::MAX as u32 { 0 } else { bytes }
    }
}
